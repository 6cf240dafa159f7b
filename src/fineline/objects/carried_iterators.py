"""Iterators of C that are alive at a graph break: the code after it reads the items that follow without moving the iterator itself.

The iterator is a live value of the continuation. Each item that the code takes from it is a read with guards of its own, so that one
program serves every place in a list. The program moves the iterator on at its end.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fineline.cpython.polyfill_iterators import Lazy
from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.tracing.identity_guards import VIEWS

# Iterators over one container, which C's `__reduce__` describes without loss. A deque's is not among them: the copy does not know
# whether the deque has changed.
OVER_CONTAINERS: frozenset[type] = frozenset(
    type(x)  # type: ignore[var-annotated]
    for x in (
        iter([]), iter(()), iter(""), iter("é"), iter(b""), iter(bytearray()), reversed([]), reversed(()), iter({}), iter({}.values()),
        iter({}.items()), reversed({}), reversed({}.values()), reversed({}.items()), iter(set()), iter(OrderedDict()),
    )
)  # fmt: skip
# Iterators that read others, and neither call a function nor look at the items; and those that hold items themselves.
READERS: frozenset[type] = frozenset({enumerate, zip, itertools.chain, itertools.islice, itertools.zip_longest})
HOLDERS: frozenset[type] = frozenset(
    {
        itertools.repeat, itertools.count, itertools.product, itertools.permutations, itertools.combinations,
        itertools.combinations_with_replacement,
    }
)  # fmt: skip
CARRIABLE = OVER_CONTAINERS | READERS | HOLDERS
INSIDE = CARRIABLE | {type(iter(range(0)))}


class CarriedIterator(Lazy):
    """Stands for ``iterator``, of which the code has taken ``taken`` items since the graph break."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator
        self.taken = 0
        self.ended = False

    def __next__(self) -> Any:
        """Returns the next item; in captured code `iteration` answers instead, and guards the item."""
        if self.ended:
            raise StopIteration
        try:
            item = following(self.iterator, self.taken)
        except StopIteration:
            self.ended = True
            raise
        self.taken += 1
        return item

    @property
    def moves(self) -> int:
        """Returns how often the iterator has been asked for an item."""
        return self.taken + self.ended

    def moved(self) -> Iterator[Any]:
        """Returns the iterator itself, moved to where the code is."""
        it = advanced(self.iterator, self.moves)
        self.taken, self.ended = 0, False
        return it


# The type of an iterator -> the class of what stands for it.
CARRIED: Mapping[type, type[CarriedIterator]] = MappingProxyType(
    {t: type(f"Carried_{t.__name__}", (CarriedIterator,), {}) for t in CARRIABLE}
)
STANDING: Mapping[type, type] = MappingProxyType({stand_in: t for t, stand_in in CARRIED.items()})


class LiveIterator:
    """An iterator as a program passes it on: moved to where the code is at the graph break."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def moved(self) -> Any:
        """Returns the iterator itself, moved to where the code is."""
        return self.iterator.moved() if type(self.iterator) in STANDING else self.iterator


class FollowingItem:
    """Reads an item of an iterator, for guards: a descriptor without a setter."""

    MEMBER_TEXTS = MappingProxyType({"": "item {at} that {of} gives next"})

    def __init__(self, ahead: int) -> None:
        self.at = ahead
        self.__name__ = f"item_{ahead}"

    def __get__(self, it: Any, cls: type) -> Any:
        return following(it, self.at)


class EndsAfter:
    """Holds for an iterator that has so many items left and no more."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def __call__(self, it: Any) -> bool:
        try:
            following(it, self.ahead)
        except StopIteration:
            return True
        return False


def following(it: Any, ahead: int) -> Any:
    """Returns the item that ``it`` gives when ``ahead`` others have been taken, and leaves it where it is."""
    t = type(it)
    if t not in INSIDE:
        raise TypeError(f"an iterator of type {t.__name__} can't be copied")
    return next(itertools.islice(_copy(it, IdentityMap()), ahead, None))


def advanced(it: Any, moves: int) -> Any:
    """Takes so many items from ``it``, and returns it."""
    for _ in range(moves):
        next(it, None)
    return it


def _copy(it: Any, copies: IdentityMap[Any]) -> Any:
    """Copies an iterator and those that it reads; two that read the same one have copies that do so too."""
    if it in copies:
        return copies[it]
    make, args, *state = it.__reduce__()
    if type(it) in READERS:
        args, state = _copies(args, copies), [_copies(state[0], copies)] if state and type(it) is itertools.chain else state
    new = copies[it] = make(*args)
    if state and state[0] is not None:
        new.__setstate__(state[0])
    return new


def _copies(parts: tuple, copies: IdentityMap[Any]) -> tuple:
    return tuple([_copy(x, copies) if type(x) in INSIDE else x for x in parts])


def carriable(it: Any, is_written: Callable[[Any], bool], is_taken_apart: Callable[[Any], bool]) -> bool:
    """Returns whether a graph break can carry ``it``: nothing else reads an iterator in it, and it can be made before the break's writes.

    ``is_written``: whether the segment has written to a container; ``is_taken_apart``: whether no program can make a container as a whole.
    """
    inner = iterators_in(it)
    if any([type(x) not in INSIDE for x in inner]) or any([(type(x) is not list and is_written(x)) or is_taken_apart(x) for x in containers_of(it)]):
        return False
    places = Counter(map(id, inner))
    # Each place has a reference, and so has each entry of the list here; two are the loop's and the question's.
    return all([sys.getrefcount(x) <= 2 * places[id(x)] + 2 for x in inner])


def iterators_in(it: Any) -> list[Any]:
    """Returns the iterators that ``it`` reads, and those that they read."""
    found: list[Any] = []
    if type(it) in READERS:
        # Not by walking a tuple: that of `zip_longest` has holes where an iterator has ended, which Python must not see.
        parts = [y for x in gc.get_referents(it) for y in (gc.get_referents(x) if type(x) is tuple else (x,))]
        for part in parts:
            if hasattr(type(part), "__next__"):
                found += [part, *iterators_in(part)]
    return found


def containers_of(it: Any) -> list[Any]:
    """Returns the containers that ``it``, and the iterators that it reads, go through, now or later."""
    found: list[Any] = []
    for part in (it, *iterators_in(it)):
        if type(part) not in READERS:
            found += gc.get_referents(part)
        elif type(part) is itertools.chain and len(reduced := part.__reduce__()) > 2:
            # Those that it has not come to yet, or what they show.
            for later in _copy(reduced[2][0], IdentityMap()):
                found += [later, *(gc.get_referents(later) if type(later) in VIEWS else ())]
    return [x for x in found if is_a(x, (list, tuple, dict, set, frozenset, bytearray))]
