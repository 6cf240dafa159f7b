"""Stores of programs for regions: a file that the user has loaded, and the cache of a folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from fineline.bytecode.asynchronous import let_pass
from fineline.codegen.programs import ProgramText
from fineline.errors import BadCaptures
from fineline.exception_slots import error_text
from fineline.identity import IdentityMap
from fineline.region.interface import CapturingRegion
from fineline.region.session.retry import start_anew
from fineline.report.events import Event
from fineline.saving.document import Document, SavedCaptures, callable_term, how_term, why_unsavable
from fineline.saving.file import read_file, versions_now, write_file
from fineline.saving.graph_calls import Stored
from fineline.saving.object_names import NotNamed
from fineline.saving.terms import Stale, TermWriter


class FileStore:
    """The programs of a loaded file, which the region gets at its first call; what it captures itself stays with it."""

    def __init__(self, captures: SavedCaptures) -> None:
        # Empty when the region has the programs.
        self._waiting = [captures]

    def begin(self, region: CapturingRegion) -> None:
        """Adds the programs to the region."""
        while self._waiting:
            self._waiting.pop().add_to(region)

    def keep(self, region: CapturingRegion) -> None:
        """Stores nothing: only `save` writes files."""

    def give_up(self, region: CapturingRegion) -> bool:
        """Drops nothing: the user has chosen these programs."""
        return False


class Kept(NamedTuple):
    """A file of the cache, the texts of a region's programs when it was last read or written, and whether other processes have made some of them."""

    path: Path
    texts: frozenset[ProgramText]
    are_others: bool


class CacheStore:
    """A file in the cache's folder for one callable, as it is compiled, with the code and the versions that it has now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # At most one: None if the region cannot be cached. Empty before the first call.
        self._kept: list[Kept | None] = []
        # The artefacts of graphs, each made once.
        self._stored: IdentityMap[Stored | None] = IdentityMap()

    def begin(self, region: CapturingRegion) -> None:
        """Adds the programs of the file, if there is one, at the region's first call."""
        if self._kept:
            return
        self._kept.append(None)
        try:
            path = self._folder / _file_name(region)
        except NotNamed as e:
            _report(region, f"it cannot be saved: {e}")
            return
        try:
            if os.path.lexists(path):
                parts = read_file(path, own=True)
                captures = SavedCaptures(parts.document, parts.artifacts, str(path))
                captures.check_callable(region.fn)
                captures.add_to(region)
                self._stored = captures.stored
        except Exception as e:
            # No call fails because of the cache, whatever is in the file.
            let_pass(e)
            _report(region, e.reason if isinstance(e, BadCaptures) else f"{path} was not used: {e if isinstance(e, Stale) else error_text(e)}")
        texts = _texts(region)
        self._kept[0] = Kept(path, texts, bool(texts))

    def keep(self, region: CapturingRegion) -> None:
        """Writes the file anew if a call has added programs."""
        kept, texts = self._kept[0] if self._kept else None, _texts(region)
        if kept is None or texts <= kept.texts:
            return
        self._kept[0] = kept._replace(texts=texts)
        try:
            # No call may wait for a compiled graph: the next process has its backend compile it again, in the background too.
            found = Document(region, self._stored, compiles=region.options.wait)
            self._stored = found.stored
            found.report_unsaved()
            if found.programs:
                write_file(kept.path, found.text(), bytes(found.artifacts), mode=0o600)
        except Exception as e:
            # The call has its result already.
            let_pass(e)
            _report(region, f"{kept.path} was not written: {e}")

    def give_up(self, region: CapturingRegion) -> bool:
        """Drops all programs, once: those of the file would grow to the limit from process to process, and keep this one from capturing its calls."""
        kept = self._kept[0] if self._kept else None
        if kept is None or not kept.are_others:
            return False
        self._kept[0] = kept._replace(texts=frozenset(), are_others=False)
        start_anew(region)
        _report(region, f"the programs of {kept.path} and those of this process reach the recompile_limit, and a call fits none of them: it is begun anew")
        return True


def _texts(region: CapturingRegion) -> frozenset[ProgramText]:
    return frozenset([segment.unbound.text for segment in region.entry_points.segments()])


def _file_name(region: CapturingRegion) -> str:
    """Returns the name of the file of a region: other code, options, backends and versions have other files; raises `NotNamed` if it has none."""
    if why := why_unsavable(region.options):
        raise NotNamed(why)
    writer = TermWriter()
    of = callable_term(region.fn, writer)
    parts = [of, how_term(region.backend, region.options, writer), writer.table, versions_now()]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    name = "".join([c if c.isalnum() or c in "._" else "_" for c in region.reports.name])[-60:]
    return f"{name}-{digest[:24]}.captures"


def _report(region: CapturingRegion, reason: str) -> None:
    region.reports.note_once(Event("cache", "FL015", reason, *region.reports.place))
