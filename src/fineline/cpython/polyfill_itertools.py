"""The itertools in plain Python, for the interpreter to run where an item may come from, or go to, Python code.

Classes instead of generators, for the reasons in `polyfill_iterators`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import Any

from fineline.cpython.polyfill_iterators import Filter, Lazy
from fineline.cpython.protocols import MISSING
from fineline.kinds import is_a


class FilterFalse(Filter):
    def __next__(self) -> Any:
        function = self.function
        while True:
            item = next(self.source)
            if function is None or function is bool:
                if not item:
                    return item
            elif not function(item):
                return item


class Chain(Lazy):
    def __init__(self, *iterables: Any) -> None:
        self.source: Iterator[Any] | None = iter(iterables)
        self.active: Iterator[Any] | None = None

    def __next__(self) -> Any:
        while self.source is not None:
            if self.active is None:
                source = self.source
                self.source = None
                self.active = iter(next(source))
                self.source = source
            try:
                return next(self.active)
            except StopIteration:
                self.active = None
        raise StopIteration


def chain_from_iterable(cls: type, iterable: Iterable[Any]) -> Chain:
    chained = Chain()
    chained.source = iter(iterable)
    return chained


class ISlice(Lazy):
    def __init__(self, iterable: Iterable[Any], start: Any, stop: Any = MISSING, step: Any = None, /) -> None:
        if stop is MISSING:
            start, stop = None, start
        self.stop = None if stop is None else _size(stop)
        if self.stop == -1:
            raise ValueError("Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
        self.skip = 0 if start is None else _size(start)
        if self.skip < 0 or (self.stop is not None and self.stop < 0):
            raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
        self.step = 1 if step is None else _size(step)
        if self.step < 1:
            raise ValueError("Step for islice() must be a positive integer or None.")
        self.source: Iterator[Any] | None = iter(iterable)
        self.count = 0

    def __next__(self) -> Any:
        source = self.source
        if source is None:
            raise StopIteration
        self.source = None
        while self.count < self.skip:
            next(source)
            self.count += 1
        if self.stop is not None and self.count >= self.stop:
            raise StopIteration
        item = next(source)
        self.source = source
        self.count += 1
        self.skip += self.step
        if self.stop is not None and self.skip > self.stop:
            self.skip = self.stop
        return item


def _size(value: Any) -> int:
    """Returns ``value`` as a size; -1 if C does not accept it."""
    try:
        number = index(value)
    except TypeError:
        number = -1
    return number if number <= sys.maxsize else -1


class TakeWhile(Lazy):
    def __init__(self, predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> None:
        self.predicate = predicate
        self.source = iter(iterable)
        self.stopped = False

    def __next__(self) -> Any:
        if not self.stopped:
            item = next(self.source)
            if self.predicate(item):
                return item
            self.stopped = True
        raise StopIteration


class DropWhile(Lazy):
    def __init__(self, predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> None:
        self.predicate = predicate
        self.source = iter(iterable)
        self.started = False

    def __next__(self) -> Any:
        while True:
            item = next(self.source)
            if self.started:
                return item
            if not self.predicate(item):
                self.started = True
                return item


class StarMap(Lazy):
    def __init__(self, function: Callable[..., Any], iterable: Iterable[Iterable[Any]], /) -> None:
        self.function = function
        self.source = iter(iterable)

    def __next__(self) -> Any:
        return self.function(*tuple(next(self.source)))


class Accumulate(Lazy):
    def __init__(self, iterable: Iterable[Any], func: Callable[[Any, Any], Any] | None = None, *, initial: Any = None) -> None:
        self.source = iter(iterable)
        self.function = func
        self.initial = initial
        self.started = False
        self.total: Any = None

    def __next__(self) -> Any:
        if self.initial is not None:
            self.total = self.initial
            self.initial = None
            self.started = True
            return self.total
        item = next(self.source)
        if not self.started:
            self.started = True
            self.total = item
        elif self.function is None:
            self.total = self.total + item
        else:
            self.total = self.function(self.total, item)
        return self.total


class ZipLongest(Lazy):
    def __init__(self, *iterables: Iterable[Any], fillvalue: Any = None) -> None:
        self.fillvalue = fillvalue
        self.sources: list[Iterator[Any] | None] = []
        for iterable in iterables:
            self.sources.append(iter(iterable))
        self.active = len(self.sources)

    def __next__(self) -> Any:
        if not self.active:
            raise StopIteration
        items = []
        for i in range(len(self.sources)):
            source = self.sources[i]
            item = self.fillvalue
            if source is not None:
                try:
                    item = next(source)
                except StopIteration:
                    self.active -= 1
                    self.sources[i] = None
                    if not self.active:
                        break
                except BaseException:
                    self.active = 0
                    raise
            items.append(item)
        if not self.active:
            raise StopIteration
        return tuple(items)


class Compress(Lazy):
    def __init__(self, data: Iterable[Any], selectors: Iterable[Any]) -> None:
        self.source = iter(data)
        self.selectors = iter(selectors)

    def __next__(self) -> Any:
        while True:
            item = next(self.source)
            if next(self.selectors):
                return item


class Cycle(Lazy):
    def __init__(self, iterable: Iterable[Any], /) -> None:
        self.source: Iterator[Any] | None = iter(iterable)
        self.saved: list[Any] = []
        self.index = 0

    def __next__(self) -> Any:
        if self.source is not None:
            try:
                item = next(self.source)
            except StopIteration:
                self.source = None
            else:
                self.saved.append(item)
                return item
        if not self.saved:
            raise StopIteration
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item


class Count(Lazy):
    def __init__(self, start: Any = 0, step: Any = 1) -> None:
        self.count = start
        self.step = step

    def __next__(self) -> Any:
        count = self.count
        self.count = count + self.step
        return count


class Pairwise(Lazy):
    def __init__(self, iterable: Iterable[Any], /) -> None:
        self.source: Iterator[Any] | None = iter(iterable)
        self.started = False
        self.last: Any = None

    def __next__(self) -> Any:
        source = self.source
        if source is None:
            raise StopIteration
        try:
            if not self.started:
                self.last = next(source)
                self.started = True
                # The source may have advanced this iterator, and ended it.
                if self.source is None:
                    raise StopIteration
            last = self.last
            item = next(source)
        except BaseException:
            self.source, self.last, self.started = None, None, False
            raise
        self.last, self.started = item, True
        return (last, item)


def _batch(batched: Batched, iterable: Iterable[Any], n: Any) -> None:
    size = index(n)
    if size < 1:
        raise ValueError("n must be at least one")
    batched.size = size
    batched.source = iter(iterable)


class Batched(Lazy):
    """That of Python 3.12."""

    strict = False
    size: int
    source: Iterator[Any] | None

    def __init__(self, iterable: Iterable[Any], n: Any) -> None:
        _batch(self, iterable, n)

    def __next__(self) -> Any:
        source = self.source
        if source is None:
            raise StopIteration
        items: list[Any] = []
        while len(items) < self.size:
            try:
                items.append(next(source))
            except StopIteration:
                break
            except BaseException:
                self.source = None
                raise
        # C asks the source again after a last batch that is shorter.
        if not items:
            self.source = None
            raise StopIteration
        if self.strict and len(items) < self.size:
            self.source = None
            raise ValueError("batched(): incomplete batch")
        return tuple(items)


class StrictBatched(Batched):
    """That of Python 3.13, which can refuse a last batch that is shorter."""

    def __init__(self, iterable: Iterable[Any], n: Any, *, strict: Any = False) -> None:
        self.strict = bool(strict)
        _batch(self, iterable, n)


class GroupBy(Lazy):
    def __init__(self, iterable: Iterable[Any], key: Callable[[Any], Any] | None = None) -> None:
        self.source = iter(iterable)
        self.key = key
        self.started = False
        self.targeted = False
        self.target: Any = None
        self.current_key: Any = None
        self.value: Any = None
        self.group: Group | None = None

    def __next__(self) -> Any:
        self.group = None
        while True:
            if self.started:
                if not self.targeted:
                    break
                if not (self.target is self.current_key or self.target == self.current_key):
                    break
            self.step()
        self.target = self.current_key
        self.targeted = True
        self.group = Group(self, self.target)
        return (self.current_key, self.group)

    def step(self) -> None:
        item = next(self.source)
        key = item if self.key is None else self.key(item)
        self.value = item
        self.current_key = key
        self.started = True


class Group(Lazy):
    def __init__(self, parent: GroupBy, target: Any) -> None:
        self.parent = parent
        self.target = target

    def __next__(self) -> Any:
        parent = self.parent
        if parent.group is not self:
            raise StopIteration
        if not parent.started:
            parent.step()
        if not (self.target is parent.current_key or self.target == parent.current_key):
            raise StopIteration
        parent.started = False
        return parent.value


class Tee(Lazy):
    def __init__(self, source: Iterator[Any], link: list[Any]) -> None:
        self.source = source
        self.link = link

    def __copy__(self) -> Tee:
        return Tee(self.source, self.link)

    def __next__(self) -> Any:
        link = self.link
        if len(link) == 1:
            raise RuntimeError("cannot re-enter the tee iterator")
        if not link:
            link.append(None)
            try:
                link[0] = next(self.source)
            except BaseException:
                link.clear()
                raise
            link.append([])
        self.link = link[1]
        return link[0]


def tee(iterable: Iterable[Any], n: int = 2, /) -> tuple[Any, ...]:
    if n < 0:
        raise ValueError("n must be >= 0")
    if n == 0:
        return ()
    source = iter(iterable)
    first = source if type(source) is Tee else Tee(source, [])
    copies = [first]
    while len(copies) < n:
        copies.append(Tee(first.source, first.link))
    return tuple(copies)


class Arrangements(Lazy):
    """An iterator over arrangements of the items of pools: each is known by its number, in the order in which C gives them."""

    total: int
    taken: int

    def __next__(self) -> Any:
        number = self.taken
        if number >= self.total:
            raise StopIteration
        self.taken = number + 1
        return self.item(number)

    def item(self, number: int) -> Any:
        raise NotImplementedError


class Product(Arrangements):
    def __init__(self, *iterables: Iterable[Any], repeat: Any = 1) -> None:
        times = _as_size(repeat)
        if times < 0:
            raise ValueError("repeat argument cannot be negative")
        pools = []
        # Without repetitions, it asks for none.
        for iterable in iterables if times else ():
            pools.append(tuple(iterable))
        self.pools = tuple(pools) * times
        self.total, self.taken = math.prod([len(pool) for pool in self.pools]), 0

    def item(self, number: int) -> Any:
        items = []
        for pool in self.pools[::-1]:
            number, at = divmod(number, len(pool))
            items.append(pool[at])
        return tuple(items[::-1])


class Permutations(Arrangements):
    def __init__(self, iterable: Iterable[Any], r: Any = None) -> None:
        self.pool = tuple(iterable)
        if r is not None and not is_a(r, int):
            raise TypeError("Expected int as r")
        self.length = len(self.pool) if r is None else _not_negative(_as_size(r))
        self.total, self.taken = math.perm(len(self.pool), self.length), 0

    def item(self, number: int) -> Any:
        rest = list(self.pool)
        items = []
        for left in range(self.length - 1, -1, -1):
            at, number = divmod(number, math.perm(len(rest) - 1, left))
            items.append(rest.pop(at))
        return tuple(items)


def _as_size(value: Any) -> int:
    """Returns ``value`` as a number of C."""
    number = index(value)
    if not -sys.maxsize <= number <= sys.maxsize:
        raise OverflowError("Python int too large to convert to C ssize_t")
    return number


def _not_negative(length: int) -> int:
    if length < 0:
        raise ValueError("r must be non-negative")
    return length


class Combinations(Arrangements):
    def __init__(self, iterable: Iterable[Any], r: Any) -> None:
        length = _as_size(r)
        self.pool = tuple(iterable)
        self.length = _not_negative(length)
        self.total, self.taken = math.comb(len(self.pool), self.length), 0

    def item(self, number: int) -> Any:
        at, items = -1, []
        for left in range(self.length - 1, -1, -1):
            at += 1
            # How many combinations have this item next.
            while number >= (count := math.comb(len(self.pool) - at - 1, left)):
                number -= count
                at += 1
            items.append(self.pool[at])
        return tuple(items)


class CombinationsWithReplacement(Arrangements):
    def __init__(self, iterable: Iterable[Any], r: Any) -> None:
        length = _as_size(r)
        self.pool = tuple(iterable)
        self.length = _not_negative(length)
        n = len(self.pool)
        self.total, self.taken = (math.comb(n + self.length - 1, self.length) if n else int(self.length == 0)), 0

    def item(self, number: int) -> Any:
        at, items = 0, []
        for left in range(self.length - 1, -1, -1):
            while number >= (count := math.comb(len(self.pool) - at - 1 + left, left)):
                number -= count
                at += 1
            items.append(self.pool[at])
        return tuple(items)


# What stands for the functions and classes of itertools whose iterators have stand-ins.
STAND_INS: frozenset[Callable[..., Any]] = frozenset(
    (
        Accumulate, Batched, Chain, Combinations, CombinationsWithReplacement, Compress, Count, Cycle, DropWhile, FilterFalse, GroupBy, ISlice, Pairwise,
        Permutations, Product, StarMap, StrictBatched, TakeWhile, ZipLongest, chain_from_iterable, tee,
    )
)  # fmt: skip
