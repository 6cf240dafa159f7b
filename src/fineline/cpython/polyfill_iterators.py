"""Lazy builtins in plain Python, for the interpreter to run where an item may come from, or go to, Python code.

Classes, not generators: like the C versions, they continue after an exception, propagate `StopIteration`, and have a state of plain
fields. A field named `source` is None once C would have dropped its iterator. They call no methods of their bases: `super()` needs a cell, which no
program could make after a graph break in the method, and a base by its name would get guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import Any, Self


class Lazy:
    def __iter__(self) -> Self:
        return self


class Map(Lazy):
    def __init__(self, function: Callable[..., Any], iterable: Iterable[Any], /, *more: Iterable[Any]) -> None:
        self.function = function
        self.sources = [iter(iterable)]
        for other in more:
            self.sources.append(iter(other))

    def __next__(self) -> Any:
        if len(self.sources) == 1:
            return self.function(next(self.sources[0]))
        arguments = []
        for source in self.sources:
            arguments.append(next(source))
        return self.function(*arguments)


class StrictMap(Lazy):
    """That of Python 3.14, which can refuse iterables of different lengths."""

    def __init__(self, function: Callable[..., Any], iterable: Iterable[Any], /, *more: Iterable[Any], strict: object = False) -> None:
        self.strict = bool(strict)
        self.function = function
        self.sources = [iter(iterable)]
        for other in more:
            self.sources.append(iter(other))

    def __next__(self) -> Any:
        if len(self.sources) == 1:
            return self.function(next(self.sources[0]))
        arguments = []
        if not self.strict:
            for source in self.sources:
                arguments.append(next(source))
            return self.function(*arguments)
        ended = False
        for source in self.sources:
            try:
                arguments.append(next(source))
            except StopIteration:
                ended = True
                break
        if not ended:
            return self.function(*arguments)
        _check_ends("map", self.sources, len(arguments))
        raise StopIteration


class Filter(Lazy):
    def __init__(self, function: Callable[..., Any] | None, iterable: Iterable[Any], /) -> None:
        self.function = function
        self.source = iter(iterable)

    def __next__(self) -> Any:
        function = self.function
        while True:
            item = next(self.source)
            if function is None or function is bool:
                if item:
                    return item
            elif function(item):
                return item


class Zip(Lazy):
    def __init__(self, *iterables: Iterable[Any], strict: object = False) -> None:
        self.strict = bool(strict)
        self.sources: list[Iterator[Any]] = []
        for iterable in iterables:
            self.sources.append(iter(iterable))

    def __next__(self) -> Any:
        items: list[Any] = []
        ended = not self.sources
        for source in self.sources:
            try:
                items.append(next(source))
            except StopIteration:
                ended = True
                break
        if not ended:
            return tuple(items)
        if self.strict and self.sources:
            _check_ends("zip", self.sources, len(items))
        raise StopIteration


def _check_ends(name: str, sources: list[Iterator[Any]], ended: int) -> None:
    """Raises ValueError unless all iterators end, of which the one at ``ended`` has."""
    if ended:
        raise ValueError(f"{name}() argument {ended + 1} is shorter than argument{_span(ended)}")
    for i in range(1, len(sources)):
        longer = True
        try:
            next(sources[i])
        except StopIteration:
            longer = False
        if longer:
            raise ValueError(f"{name}() argument {i + 1} is longer than argument{_span(i)}")


def _span(count: int) -> str:
    return " 1" if count == 1 else f"s 1-{count}"


class Enumerate(Lazy):
    def __init__(self, iterable: Iterable[Any], start: Any = 0) -> None:
        self.count = index(start)
        self.source = iter(iterable)

    def __next__(self) -> Any:
        item = next(self.source)
        count = self.count
        self.count = count + 1
        return (count, item)


class RangeIterator(Lazy):
    """An iterator over the rest of a range; its position and bounds may be symbolic."""

    def __init__(self, at: int, stop: int, step: int) -> None:
        self.at, self.stop, self.step = at, stop, step

    def __next__(self) -> int:
        at = self.at
        if at >= self.stop if self.step > 0 else at <= self.stop:
            raise StopIteration
        self.at = at + self.step
        return at


class ReversedSequence(Lazy):
    """The result of `reversed` for an object that has only `__len__` and `__getitem__`."""

    def __init__(self, sequence: Any) -> None:
        self.index = len(sequence) - 1
        self.source = sequence

    def __next__(self) -> Any:
        index = self.index
        if index < 0:
            raise StopIteration
        try:
            item = self.source[index]
        except (IndexError, StopIteration):
            pass
        else:
            self.index = index - 1
            return item
        self.index = -1
        raise StopIteration


class CallableIterator(Lazy):
    """`iter(function, sentinel)`."""

    def __init__(self, function: Callable[[], Any], sentinel: Any) -> None:
        self.function: Callable[[], Any] | None = function
        self.sentinel = sentinel

    def __next__(self) -> Any:
        if self.function is not None:
            try:
                item = self.function()
            except StopIteration:
                pass
            else:
                # The function may have advanced this iterator, and ended it.
                if self.function is None:
                    raise StopIteration
                if not (self.sentinel is item or self.sentinel == item):
                    return item
            self.function = None
        raise StopIteration


class SequenceIterator(Lazy):
    """`iter(x)` of an object with `__getitem__` only."""

    def __init__(self, sequence: Any) -> None:
        self.index = 0
        self.source = sequence

    def __next__(self) -> Any:
        if self.source is None:
            raise StopIteration
        try:
            item = self.source[self.index]
        except (IndexError, StopIteration):
            pass
        else:
            self.index += 1
            return item
        self.source = None
        raise StopIteration


class ArrayIterator(SequenceIterator):
    """`iter(a)` of an array of NumPy: it ends where the array does, without the error that C would clear."""

    def __next__(self) -> Any:
        source = self.source
        if source is not None and self.index < len(source):
            item = source[self.index]
            self.index += 1
            return item
        self.source = None
        raise StopIteration
