"""The file of saved captures: a line with its format, a hash of all that follows, and the parts; refusals of files that do not fit."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fineline import __version__
from fineline.errors import BadCaptures

FORMAT = 1
_MAGIC = b"fineline captures, format "
_SOURCE = Path(__file__).parent.parent


class Parts(NamedTuple):
    """The parts of a file. ``artifacts``: what PyTorch's caches of compiled graphs have given, in their own format; empty if nothing."""

    versions: dict[str, str]
    document: Any
    artifacts: bytes


@functools.cache
def own_hash() -> str:
    """Returns a hash of fineline's own source."""
    found = hashlib.sha256()
    for path in sorted(_SOURCE.rglob("*.py")):
        found.update(path.relative_to(_SOURCE).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:24]


def versions_now() -> dict[str, str]:
    """Returns what has to be the same in the process that loads a file."""
    return {
        "fineline": f"{__version__} {own_hash()}",
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "python": sys.version,
    }


def write_file(path: Path, document: str, artifacts: bytes) -> None:
    """Writes a file; one that is there is replaced as a whole, so that no reader sees a part."""
    lines = [json.dumps(versions_now()).encode(), document.encode(), str(len(artifacts)).encode()]
    body = b"\n".join([*lines, artifacts])
    head = _MAGIC + str(FORMAT).encode() + b"\nsha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(head + body)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def read_file(path: Path) -> Parts:
    """Returns the parts of a file; raises `BadCaptures` for one that is damaged, of another format, or of other versions."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise BadCaptures(f"{path} cannot be read: {e.strerror}", id="FL221", where=str(path)) from None
    if not data.startswith(_MAGIC):
        raise BadCaptures(f"{path} is not a file that fineline.save has written", id="FL221", where=str(path))
    number, _, rest = data[len(_MAGIC) :].partition(b"\n")
    if number != str(FORMAT).encode():
        raise BadCaptures(f"its format is {number.decode(errors='replace')[:20]}, and this fineline reads format {FORMAT}", id="FL222", where=str(path))
    claimed, _, body = rest.partition(b"\n")
    if claimed != b"sha256 " + hashlib.sha256(body).hexdigest().encode():
        raise BadCaptures("its contents do not have the hash in its second line: it is damaged, or was changed", id="FL221", where=str(path))
    versions_line, document, length, artifacts = body.split(b"\n", 3)
    versions, now = json.loads(versions_line), versions_now()
    for name, version in now.items():
        if versions.get(name) != version:
            raise BadCaptures(f"it was saved with {name} {versions.get(name)}, and this is {name} {version}", id="FL222", where=str(path))
    if len(artifacts) != int(length):
        raise BadCaptures("its last part is cut off", id="FL221", where=str(path))
    return Parts(versions, json.loads(document), artifacts)
