"""C iterators that are alive at a graph break: the code after it reads the next items without advancing the iterator itself.

The iterator is a live value of the continuation. Each item that the code takes from it is read with its own guards, so that one
program serves every position in a list. The program advances the iterator at its end.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, MappingProxyType
from typing import Any

from fineline.cpython.iterator_states import SEQUENCE_ITERATOR, iterator_state, set_iterator_state
from fineline.cpython.polyfill_iterators import Lazy
from fineline.cpython.reference_counts import reference_counts
from fineline.identity import IdentityMap, IdentitySet
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.tracing.identity_guards import VIEWS

# Iterators over one container, which C's `__reduce__` describes without loss. A deque's iterator is excluded: its copy would not notice
# a change of the deque.
OVER_CONTAINERS: frozenset[type] = frozenset(
    type(x)  # type: ignore[var-annotated]
    for x in (
        iter([]), iter(()), iter(""), iter("é"), iter(b""), iter(bytearray()), reversed([]), reversed(()), iter({}), iter({}.values()),
        iter({}.items()), reversed({}), reversed({}.values()), reversed({}.items()), iter(set()), iter(OrderedDict()),
    )
)  # fmt: skip
# Iterators that read others, and neither call a function nor read the items; and those that contain items themselves.
READERS: frozenset[type] = frozenset({enumerate, zip, itertools.chain, itertools.islice, itertools.zip_longest})
HOLDERS: frozenset[type] = frozenset(
    {
        itertools.repeat, itertools.count, itertools.product, itertools.permutations, itertools.combinations,
        itertools.combinations_with_replacement,
    }
)  # fmt: skip
# Containers that may hold iterators.
CONTAINERS: tuple[type, ...] = (list, tuple, dict, set, frozenset)
ENDLESS: frozenset[type] = frozenset({itertools.repeat, itertools.count})
CARRIABLE = OVER_CONTAINERS | {SEQUENCE_ITERATOR} | READERS | HOLDERS
INSIDE = CARRIABLE | {type(iter(range(0)))}


class CarriedIterator(Lazy):
    """Stands in for ``iterator``, from which the code has taken ``taken`` items since the graph break."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator
        self.taken = 0
        self.ended = False

    def __next__(self) -> Any:
        """Returns the next item; in captured code `iteration` reads the item instead, with a guard."""
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
        """Returns how often the code has advanced the iterator."""
        return self.taken + self.ended

    def moved(self) -> Iterator[Any]:
        """Returns the iterator itself, advanced to the position that the code has reached."""
        it = advanced(self.iterator, self.moves)
        self.taken, self.ended = 0, False
        return it


# The type of an iterator: the class of its stand-in.
CARRIED: Mapping[type, type[CarriedIterator]] = MappingProxyType(
    {t: type(f"Carried_{t.__name__}", (CarriedIterator,), {}) for t in CARRIABLE}
)
STANDING: Mapping[type, type] = MappingProxyType({stand_in: t for t, stand_in in CARRIED.items()})


class LiveIterator:
    """An iterator that a program passes on: advanced to the position that the code has reached at the graph break."""

    __slots__ = ("iterator",)

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def moved(self) -> Any:
        """Returns the iterator itself, advanced to the position that the code has reached."""
        return self.iterator.moved() if type(self.iterator) in STANDING else self.iterator


class FollowingItem:
    """Reads a later item of an iterator as a member, for guards."""

    MEMBER_TEXTS = MappingProxyType({"": "item {at} that {of} gives next"})

    def __init__(self, ahead: int) -> None:
        self.at = ahead
        self.__name__ = f"item_{ahead}"

    def __get__(self, it: Any, cls: type) -> Any:
        return following(it, self.at)


class EndsAfter:
    """A predicate: an iterator has exactly so many items left."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def __call__(self, it: Any) -> bool:
        try:
            following(it, self.ahead)
        except StopIteration:
            return True
        return False


def following(it: Any, ahead: int) -> Any:
    """Returns the item of ``it`` after the next ``ahead`` ones, without advancing ``it``."""
    t = type(it)
    if t not in INSIDE:
        raise TypeError(f"an iterator of type {t.__name__} can't be copied")
    return next(itertools.islice(_copy(it, IdentityMap()), ahead, None))


def advanced(it: Any, moves: int) -> Any:
    """Advances ``it`` by ``moves`` items, and returns it."""
    # Where the code has written to its dict or set after the last of these items, it gives no item any more, advanced or not.
    with contextlib.suppress(RuntimeError):
        for _ in range(moves):
            next(it, None)
    return it


def _copy(it: Any, copies: IdentityMap[Any]) -> Any:
    """Copies an iterator and those that it reads; an iterator with two readers is copied once."""
    if it in copies:
        return copies[it]
    make, args, *state = iterator_state(it)
    if type(it) in READERS:
        _later_items(it)
        args, state = _copies(args, copies), [_copies(state[0], copies)] if state and type(it) is itertools.chain else state
    new = copies[it] = make(*args)
    if state and state[0] is not None:
        set_iterator_state(new, state[0])
    return new


def _copies(parts: tuple, copies: IdentityMap[Any]) -> tuple:
    return tuple([_copy(x, copies) if type(x) in INSIDE else x for x in parts])


def _later_items(it: Any) -> list[Any]:
    """Returns what a chain will iterate over after what it iterates over now; nothing for another iterator.

    Raises TypeError if it will iterate over an iterator, which a copy of the chain would advance, or if the chain may have no end.
    """
    reduced = iterator_state(it) if type(it) is itertools.chain else ()
    if len(reduced) < 3:
        return []
    source = reduced[2][0]
    if any([type(x) in ENDLESS for x in (source, *iterators_in(source))]):
        raise TypeError("a chain without end can't be copied")
    found = list(_copy(source, IdentityMap()))
    if any([hasattr(type(x), "__next__") for x in found]):
        raise TypeError("a chain of iterators can't be copied")
    return found


def carriable(it: Any, is_written: Callable[[Any], bool], is_taken_apart: Callable[[Any], bool]) -> bool:
    """Returns whether a graph break can carry ``it``: only ``it`` reads the iterators in it, and it can be rebuilt before the break's writes.

    ``is_written``: whether the segment has written to a container; ``is_taken_apart``: whether no program can rebuild a container as a whole.
    """
    inner = iterators_in(it)
    if any([type(x) not in INSIDE for x in inner]) or any([_runs_code(x) for x in (it, *inner)]):
        return False
    try:
        _copy(it, IdentityMap())
    except TypeError:
        return False
    if any([(type(x) is not list and is_written(x)) or is_taken_apart(x) for x in containers_of(it)]):
        return False
    places = Counter(map(id, inner))
    # Each place holds a reference, and so does each entry of ``inner``.
    return all([count <= 2 * places[id(x)] for x, count in zip(inner, reference_counts(inner), strict=True)])


def _runs_code(it: Any) -> bool:
    """Returns whether an iterator calls the user's ``__getitem__``: that of an array is C's."""
    return type(it) is SEQUENCE_ITERATOR and any([type(x) is not np.ndarray for x in gc.get_referents(it)])


def iterators_in(it: Any) -> list[Any]:
    """Returns the iterators that ``it`` reads now or later, and those that they read."""
    if type(it) not in READERS:
        return []
    # Without iterating over the tuple: that of `zip_longest` has NULL items for ended iterators, which Python code must not see.
    parts = [y for x in gc.get_referents(it) for y in (gc.get_referents(x) if type(x) is tuple else (x,))]
    if type(it) is itertools.chain:
        # It will read the items of its source, which may be iterators.
        parts += [x for source in parts for held in gc.get_referents(source) if is_a(held, CONTAINERS) for x in gc.get_referents(held)]
    found: list[Any] = []
    for part in parts:
        if hasattr(type(part), "__next__"):
            found += [part, *iterators_in(part)]
    return found


def readers_in(held: Iterable[Any]) -> list[Any]:
    """Returns the C iterators that read others: those in variables, which may be cells, and those that stand-ins read."""
    found, seen, rest = [], IdentitySet(), [*held]
    while rest:
        v = rest.pop()
        if type(v) in READERS:
            found.append(v)
        elif type(v) is CellType:
            rest += gc.get_referents(v)
        elif is_a(v, Lazy) and type(v) not in STANDING and v not in seen:
            seen.add(v)
            rest += [y for x in vars(v).values() for y in (x if type(x) in (tuple, list) else (x,))]
    return found


def containers_of(it: Any) -> list[Any]:
    """Returns the containers that ``it``, and the iterators that it reads, iterate over now or later."""
    found: list[Any] = []
    for part in (it, *iterators_in(it)):
        if type(part) not in READERS:
            found += gc.get_referents(part)
        for later in _later_items(part):
            # The container of a view, too.
            found += [later, *(gc.get_referents(later) if type(later) in VIEWS else ())]
    return [x for x in found if is_a(x, (*CONTAINERS, bytearray, np.ndarray))]
