"""Formats the stack that leads to a place, for messages: innermost frame last, runs of library frames folded into one line."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from itertools import groupby
from types import FrameType

# File, line and function of a frame.
StackPlace = tuple[str, int, str]

# The prefix of the file names of residual programs, which are not user code.
PROGRAM = "<fineline program "
_OWN = os.path.dirname(__file__) + os.sep
_PATHS = sysconfig.get_paths()
# The folders of libraries. Packages come first, because they may be inside the standard library's folder.
_ROOTS = tuple([os.path.join(path, "") for path in dict.fromkeys([_PATHS["purelib"], _PATHS["platlib"], _PATHS["stdlib"], _PATHS["platstdlib"]])])
# The most files named for a run of library frames.
_MOST_FILES = 2


def is_library(file: str) -> bool:
    """Returns whether a file belongs to an installed package or the standard library, not to the user."""
    return file.startswith(_ROOTS) or file.startswith("<frozen ") or f"{os.sep}site-packages{os.sep}" in file


def is_standard_library(file: str) -> bool:
    """Returns whether a file comes with Python."""
    return file.startswith((os.path.join(_PATHS["stdlib"], ""), "<frozen ")) and f"{os.sep}site-packages{os.sep}" not in file


def short_path(file: str) -> str:
    """Returns a library file's path relative to its import root: ``torch/nn/modules/module.py``."""
    root = next((root for root in _ROOTS if file.startswith(root)), "")
    return file[len(root) :].rpartition(f"site-packages{os.sep}")[2] if root else file.rpartition(f"site-packages{os.sep}")[2]


def folded(stack: Iterable[StackPlace]) -> list[str]:
    """Returns a line for each user frame and one for each run of library frames."""
    lines: list[str] = []
    for library, run in groupby(stack, lambda place: is_library(place[0])):
        places = list(run)
        lines += [_fold(places)] if library else [f"{file}:{line} in {name}" for file, line, name in places]
    return lines


def _fold(places: list[StackPlace]) -> str:
    files = list(dict.fromkeys([short_path(file) for file, _, _ in places]))
    named = " and ".join(files) if len(files) <= _MOST_FILES else f"{files[0]}, ... and {files[-1]}"
    return f"… {len(places)} frame{'' if len(places) == 1 else 's'} in {named}"


def has_callers(stack: tuple[StackPlace, ...]) -> bool:
    """Returns whether a stack contains more than its innermost frame."""
    return len(stack) > 1


def callers() -> Iterator[StackPlace]:
    """Yields the frames on Python's stack outside of fineline, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_OWN, PROGRAM)):
            yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
        frame = frame.f_back


def to_the_user() -> tuple[StackPlace, ...]:
    """Returns the frames from the nearest user frame to the call into fineline, outermost first; the innermost if none is the user's."""
    found: list[StackPlace] = []
    for place in callers():
        found.append(place)
        if not is_library(place[0]):
            return tuple(found[::-1])
    return tuple(found[:1])
