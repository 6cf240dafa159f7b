"""The file of saved captures: a line with its format, a hash of all that follows, and the parts; refusals of files that do not fit."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fineline import __version__
from fineline.errors import BadCaptures

FORMAT = 2
# The keys of the document.
KEYS = frozenset({"callable", "how", "machine", "objects", "entries"})
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


def write_file(path: Path, document: str, artifacts: bytes, mode: int = 0o666) -> None:
    """Writes a file; one that is there is replaced as a whole, so that no reader sees a part. ``mode``: its permissions, of which the umask takes away some."""
    lines = [json.dumps(versions_now()).encode(), document.encode(), str(len(artifacts)).encode()]
    body = b"\n".join([*lines, artifacts])
    head = _MAGIC + str(FORMAT).encode() + b"\nsha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode), "wb") as out:
            out.write(head + body)
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def read_file(path: Path, own: bool = False) -> Parts:
    """Returns the parts of a file; raises `BadCaptures` for one that is damaged, of another format, or of other versions.

    ``own``: also for one that others than this process's user, and the superuser, may have written.
    """
    try:
        with open(path, "rb") as file:
            if own and (others := _others(os.fstat(file.fileno()))):
                raise BadCaptures(f"{path} {others}: what is in it would run", id="FL221", where=str(path))
            data = file.read()
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise BadCaptures(f"{path} cannot be read: {reason}", id="FL221", where=str(path)) from None
    if not data.startswith(_MAGIC):
        raise BadCaptures(f"{path} is not a file that fineline.save has written", id="FL221", where=str(path))
    number, _, rest = data[len(_MAGIC) :].partition(b"\n")
    if number != str(FORMAT).encode():
        raise BadCaptures(f"its format is {number.decode(errors='replace')[:20]}, and this fineline reads format {FORMAT}", id="FL222", where=str(path))
    claimed, _, body = rest.partition(b"\n")
    if claimed != b"sha256 " + hashlib.sha256(body).hexdigest().encode():
        raise BadCaptures("its contents do not have the hash in its second line: it is damaged, or was changed", id="FL221", where=str(path))
    try:
        versions_line, document_line, length, artifacts = body.split(b"\n", 3)
        versions, document, size = dict(json.loads(versions_line)), dict(json.loads(document_line)), int(length)
    except (ValueError, TypeError) as e:
        raise BadCaptures(f"its hash is right, but it is not what fineline.save writes: {e}", id="FL221", where=str(path)) from None
    for name, version in versions_now().items():
        if versions.get(name) != version:
            raise BadCaptures(f"it was saved with {name} {versions.get(name)}, and this is {name} {version}", id="FL222", where=str(path))
    if len(artifacts) != size or not KEYS.issubset(document):
        raise BadCaptures("one of its parts is missing, or cut off", id="FL221", where=str(path))
    return Parts(versions, document, artifacts)


def _others(facts: os.stat_result) -> str:
    """Returns why others may have written a file; "" if they cannot have."""
    if not hasattr(os, "getuid"):  # Windows, where folders of a user are theirs alone
        return ""
    if facts.st_uid not in (0, os.getuid()):
        return "belongs to another user"
    return "can be written by others" if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""
