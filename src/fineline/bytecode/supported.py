"""The Pythons that fineline runs on. `import fineline` reads it, so it imports only what is loaded anyway."""

from __future__ import annotations

import sys
from collections.abc import Sequence

# The oldest and the newest version: those of the files beside this one.
OLDEST, NEWEST = (3, 11), (3, 14)


def unsupported(implementation: str = sys.implementation.name, numbers: Sequence[object] = sys.version_info, build: str = sys.version) -> str | None:
    """Returns why fineline cannot run on a Python, by default this one; None if it can. ``build``: the text that describes the build."""
    version = ".".join(map(str, numbers[:3]))
    supported = f"fineline reads the bytecode of CPython {'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
    if implementation != "cpython":
        return f"this is {implementation} {version}, and {supported}"
    if not OLDEST <= tuple(numbers[:2]) <= NEWEST:
        return f"this is Python {version}, and {supported}"
    if "free-threading build" in build:
        return f"this is a free-threaded build of Python {version}: objects are laid out in another way, and a call's guards would be checked while threads write"
    if tuple(numbers[:3]) == (3, 13, 0):
        # https://github.com/python/cpython/issues/125608
        return "this is Python 3.13.0, which does not report that an attribute of an object was stored, so that guards would hold although it has changed"
    return None
