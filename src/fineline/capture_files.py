"""Saved captures: `save` writes the programs of a compiled callable to a file, `load` compiles a callable with those of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fineline.api import check_callable, compile, compiled_region, original, with_storage
from fineline.errors import BadCaptures
from fineline.import_thread import LateModule
from fineline.region.compiled import Compiled
from fineline.region.optimized_module import OptimizedModule
from fineline.region.options import KNOWN, Options

if TYPE_CHECKING:
    from fineline.saving import document, file, object_names, stores, terms
else:
    document = LateModule("fineline.saving.document")
    file = LateModule("fineline.saving.file")
    object_names = LateModule("fineline.saving.object_names")
    stores = LateModule("fineline.saving.stores")
    terms = LateModule("fineline.saving.terms")


def save(compiled: Callable, path: str | os.PathLike[str]) -> int:
    """Writes the programs of a compiled callable to a file, and what PyTorch's caches have of its graphs; returns the number of programs.

    A program with a part that another process cannot find by name is left out, with an event that says why. Raises `BadCaptures` if none is left.
    """
    region = compiled_region(compiled)
    if region.entry_points.storage is not None:
        region.entry_points.storage.begin(region)
    if why := document.why_unsavable(region.options):
        raise BadCaptures(why, id="FL224", where=region.reports.where)
    if region.segments() == []:
        raise BadCaptures("it has no programs", id="FL224", where=region.reports.where)
    try:
        found = document.Document(region)
    except object_names.NotNamed as e:
        raise BadCaptures(f"{region.name}: {e}", id="FL224", where=region.reports.where) from None
    found.report_unsaved()
    if found.programs == 0:
        reason = found.unsaved[0].reason if found.unsaved else "no call runs them any more"
        raise BadCaptures(f"none of its {len(region.segments())} programs: {reason}", id="FL224", where=region.reports.where)
    # A link stays, and leads to the new file.
    file.write_file(Path(os.path.realpath(path)), found.text(), bytes(found.artifacts))
    return found.programs


def load(path: str | os.PathLike[str], fn: Callable) -> Any:
    """Compiles a callable as the file says, and gives it the file's programs: calls that they fit are neither captured nor compiled.

    Of a compiled callable, compiles the function or module that it was made from.

    Raises `BadCaptures` for a file that is damaged, of other versions, or of another callable, before anything of it runs.
    """
    check_callable(fn)
    if isinstance(fn, (OptimizedModule, Compiled)):
        fn = original(fn)
    where = Path(path)
    parts = file.read_file(where)
    try:
        found = document.SavedCaptures(parts.document, parts.artifacts, os.fspath(path))
        found.check_callable(fn)
        backend, arguments, options = found.how()
    except terms.Stale as e:
        raise BadCaptures(str(e), id="FL223", where=os.fspath(path)) from None
    own = {name: value for name, value in options.items() if name in KNOWN}
    rest = {f.name: options[f.name] for f in fields(Options) if f.name in options and f.name not in KNOWN}
    made = compile(fn, backend=backend, mode=arguments.get("mode"), options={**(arguments.get("options") or {}), **own}, **rest)
    return with_storage(made, stores.FileStore(found))
