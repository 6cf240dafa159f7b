"""The source lines that a page shows: of the functions and places that it names, each line once."""

from __future__ import annotations

import inspect
import linecache
import os
import tokenize
from collections.abc import Iterator
from typing import TypedDict

from fineline.stacks import is_library, short_path

# The number of a file among those of the page, and a line; (-1, 0): no place.
Place = tuple[int, int]
NOWHERE: Place = (-1, 0)
# The lines of a function that are shown, those around a place, and those of all files together.
LONGEST_FUNCTION, AROUND, MOST_LINES = 60, 3, 8_000


class SourceText(TypedDict):
    """The known lines of a file: runs of lines, each with the number of its first one."""

    path: str
    name: str
    library: bool
    runs: list[tuple[int, str]]


class SourceLines:
    """Collects places, and reads their lines at the end."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        # The wanted lines of each file.
        self._wanted: list[set[int]] = []
        self._functions: set[tuple[str, int]] = set()

    def function(self, file: str, line: int) -> Place:
        """Returns the place where a function begins; the page gets its lines."""
        if not file or not line:
            return NOWHERE
        number = self._number(file)
        if (file, line) not in self._functions:
            self._functions.add((file, line))
            self._wanted[number].update(range(line, line + _length(file, line)))
        return (number, line)

    def around(self, file: str, line: int, lines: int = AROUND) -> Place:
        """Returns a place; the page gets the lines around it."""
        if not file or not line:
            return NOWHERE
        number = self._number(file)
        self._wanted[number].update(range(max(line - lines, 1), line + lines + 1))
        return (number, line)

    def texts(self) -> list[SourceText]:
        """Returns the files with the lines that are wanted of them; those of libraries only as long as there are not too many."""
        order = sorted(self._files, key=is_library)
        found: dict[str, list[tuple[int, str]]] = {}
        left = MOST_LINES
        for file in order:
            found[file] = list(_runs(file, sorted(self._wanted[self._files[file]])[:left]))
            left -= sum([text.count("\n") + 1 for _, text in found[file]])
        return [{"path": file, "name": _name(file), "library": is_library(file), "runs": found[file]} for file in self._files]

    def _number(self, file: str) -> int:
        number = self._files.setdefault(file, len(self._files))
        if number == len(self._wanted):
            self._wanted.append(set())
        return number


def _length(file: str, line: int) -> int:
    """Returns the number of lines of the function that begins there, at most `LONGEST_FUNCTION`."""
    block = linecache.getlines(file)[line - 1 : line - 1 + LONGEST_FUNCTION]
    try:
        return len(inspect.getblock(block)) if block else 0
    except (SyntaxError, tokenize.TokenError):
        return len(block)


def _runs(file: str, wanted: list[int]) -> Iterator[tuple[int, str]]:
    lines = linecache.getlines(file)
    run: list[int] = []
    for number in [number for number in wanted if number <= len(lines)]:
        if run and number != run[-1] + 1:
            yield run[0], _joined(lines, run)
            run = []
        run.append(number)
    if run:
        yield run[0], _joined(lines, run)


def _joined(lines: list[str], numbers: list[int]) -> str:
    return "\n".join([lines[number - 1].rstrip("\n") for number in numbers])


def _name(file: str) -> str:
    """Returns a short name of a file: relative to its library, or to the working folder."""
    if is_library(file):
        return short_path(file)
    here = os.getcwd() + os.sep
    return file[len(here) :] if file.startswith(here) else file
