"""Stand-ins of the interpreter for Python's iterators, and how the real ones are rebuilt for code that can tell the difference."""

from __future__ import annotations

import builtins
import gc
import itertools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType, MappingProxyType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.cpython import polyfill_iterators as i
from fineline.cpython import polyfill_itertools as t
from fineline.cpython.iterator_states import SEQUENCE_ITERATOR, STATES_OF_ITERTOOLS, NoItems, iterator_state
from fineline.frames.frame import InterpretedGenerator
from fineline.kinds import is_a
from fineline.objects.carried_iterators import STANDING, advanced
from fineline.objects.polyfills import POLYFILLS
from fineline.tables import attributes


class Recipe(NamedTuple):
    """A recipe for an iterator in C: a call, and the state to set if it has been advanced."""

    make: Callable[..., Any]
    args: tuple
    kwargs: Mapping[str, Any] = MappingProxyType({})
    state: tuple[Any, ...] = ()


def ended_sequence_iterator() -> Iterator[Any]:
    it = iter(NoItems())
    next(it, None)
    return it


def sequence_iterator(index: int, sequence: Any) -> Iterator[Any]:
    it = iter(NoItems() if sequence is None else sequence)
    it.__setstate__(index)  # type: ignore[attr-defined]
    return it


def _gone_on(make: Callable[[Any], Iterator[Any]]) -> Callable[[Any, int], Iterator[Any]]:
    def iterator(table: Any, steps: int) -> Iterator[Any]:
        it = make(table)
        for _ in range(steps):
            next(it)
        return it

    return iterator


SET_ITERATOR: type = type(iter(set()))
# Iterators over dicts and sets, whose state C gives as that of list iterators: how to make one over the same table that is as far advanced.
TABLE_ITERATORS: Mapping[type, Callable[[Any, int], Iterator[Any]]] = MappingProxyType(
    {
        SET_ITERATOR: _gone_on(iter),
        **{
            type(make({})): _gone_on(make)
            for make in (
                iter, lambda d: iter(d.values()), lambda d: iter(d.items()), reversed, lambda d: reversed(d.values()), lambda d: reversed(d.items()),
            )
        },
    }
)  # fmt: skip


ORDERED_ITERATOR: type = type(iter(OrderedDict()))
# One type iterates over an ordered dict in all these ways, and does not tell in which.
_ORDERED: tuple[tuple[Callable[[Any], Iterator[Any]], Callable[[Any, int], Iterator[Any]]], ...] = tuple(
    (make, _gone_on(make))
    for make in (
        lambda d: iter(OrderedDict.items(d)), lambda d: iter(OrderedDict.keys(d)), lambda d: iter(OrderedDict.values(d)),
        lambda d: reversed(OrderedDict.items(d)), lambda d: reversed(OrderedDict.keys(d)), lambda d: reversed(OrderedDict.values(d)),
    )
)  # fmt: skip


def _ordered_recipe(it: Any) -> Recipe | None:
    """Returns the recipe for an iterator over an ordered dict: by the way that leads to the items that it still gives."""
    tables = [x for x in gc.get_referents(it) if is_a(x, OrderedDict)]
    table, left = tables[0] if tables else OrderedDict(), [*map(_parts, iterator_state(it)[1][0])]
    steps = len(table) - len(left)
    way = next((again for make, again in _ORDERED if [*map(_parts, make(table))][steps:] == left), None)
    return None if way is None else Recipe(way, (table, steps))


def _parts(item: Any) -> tuple[int, ...]:
    """Returns the ids of a pair, which is made for each read, or of another item."""
    return tuple(map(id, item)) if type(item) is tuple and len(item) == 2 else (id(item),)


def table_recipe(it: Any) -> Recipe | None:
    """Returns the recipe for an iterator over a dict or a set; None for other objects."""
    if type(it) is ORDERED_ITERATOR:
        return _ordered_recipe(it)
    make = TABLE_ITERATORS.get(type(it))
    if make is None:
        return None
    found = [x for x in gc.get_referents(it) if is_a(x, (dict, set, frozenset))]
    # An iterator that has ended no longer refers to its table.
    table = found[0] if found else set() if type(it) is SET_ITERATOR else {}
    return Recipe(make, (table, len(table) - it.__length_hint__()))


# The type that each stand-in has in captured code.
# A dict instead of a proxy, because most calls read it.
KINDS: Mapping[type, type] = {
    InterpretedGenerator: GeneratorType,
    FakeTensor: Tensor,
    torch.SymInt: int,
    torch.SymFloat: float,
    torch.SymBool: bool,
    **{p: c for c, p in POLYFILLS.items() if type(p) is type and type(c) is type},
    i.CallableIterator: type(iter(int, 1)),
    **dict.fromkeys((i.SequenceIterator, i.ArrayIterator), SEQUENCE_ITERATOR),
    i.RangeIterator: type(iter(range(0))),
    i.ReversedSequence: reversed,
    t.Chain: itertools.chain,
    t.Tee: type(itertools.tee(())[0]),
    t.Group: itertools._grouper,  # type: ignore[attr-defined]
    **STANDING,
}


def _named_as(stand_in: type, kind: type) -> None:
    """Names a stand-in class after the C class, because error messages of C contain the name."""
    stand_in.__name__ = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


# The stand-ins that are written in Python: generators and iterators.
WRITTEN = frozenset([stand_in for stand_in in KINDS if stand_in.__module__.partition(".")[0] == "fineline"])
ITERATOR_STAND_INS = WRITTEN - {InterpretedGenerator}
for _stand_in in WRITTEN:
    _named_as(_stand_in, KINDS[_stand_in])

# Each method of such a stand-in: the method of the type that it stands for.
METHODS: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        vars(stand_in)[name]: getattr(KINDS[stand_in], name)
        for stand_in in WRITTEN
        for name in ("__iter__", "__next__", "close", "send", "throw")
        if name in vars(stand_in) and hasattr(KINDS[stand_in], name)
    }
)


def is_method_of_stand_in(v: Any) -> bool:
    """Returns whether ``v`` is a method bound to a generator or iterator stand-in written in Python: eager code needs the real one's method."""
    return type(v) is MethodType and type(v.__self__) in WRITTEN


def _sequence_iterator(v: i.SequenceIterator) -> Recipe:
    return Recipe(ended_sequence_iterator, ()) if v.source is None else Recipe(sequence_iterator, (v.index, v.source))


def _chain(v: t.Chain) -> Recipe:
    if v.source is None:
        return Recipe(itertools.chain, ())
    return Recipe(itertools.chain, (), state=((v.source,) if v.active is None else (v.source, v.active),))


def _islice(v: t.ISlice) -> Recipe:
    if v.source is None:
        return Recipe(itertools.islice, ((), 0))
    return Recipe(itertools.islice, (v.source, v.skip, v.stop, v.step), state=(v.count,))


def _accumulate(v: t.Accumulate) -> Recipe:
    if v.started:
        return Recipe(itertools.accumulate, (v.source, v.function), state=(v.total,))
    return Recipe(itertools.accumulate, (v.source, v.function), {} if v.initial is None else {"initial": v.initial})


def _zip_longest(v: t.ZipLongest) -> Recipe:
    sources = [() if source is None else source for source in v.sources]
    return Recipe(itertools.zip_longest, tuple(sources) if v.active else (), {"fillvalue": v.fillvalue})


def _cycle(v: t.Cycle) -> Recipe:
    if v.source is None:
        return Recipe(itertools.cycle, (itertools.islice(v.saved, v.index, None),), state=((v.saved, True),))
    return Recipe(itertools.cycle, (v.source,), state=((v.saved, False),))


def _rest_of_pairs(last: Any, source: Iterator[Any]) -> Iterator[Any]:
    return itertools.pairwise(itertools.chain((last,), source))


def _pairwise(v: t.Pairwise) -> Recipe:
    if v.source is None:
        return Recipe(itertools.pairwise, ((),))
    return Recipe(_rest_of_pairs, (v.last, v.source)) if v.started else Recipe(itertools.pairwise, (v.source,))


def _further(make: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def iterator(taken: int, *args: Any) -> Iterator[Any]:
        it: Iterator[Any] = advanced(make(*args), taken)
        return it

    return iterator


# Those that have given as many items. C has a state for some of them, which is another for each, and none from Python 3.14 on.
_FURTHER: Mapping[type, Callable[..., Iterator[Any]]] = MappingProxyType(
    {
        stand_in: _further(kind)
        for stand_in, kind in KINDS.items()
        if issubclass(stand_in, t.Arrangements)
    }
)


def _arrangements(v: Any) -> Recipe:
    args = v.pools if type(v) is t.Product else (v.pool, v.length)
    return Recipe(_FURTHER[type(v)], (v.taken, *args)) if v.taken else Recipe(KINDS[type(v)], args)


def _batched(v: t.Batched) -> Recipe:
    # ``strict`` has no name before Python 3.13.
    (batched,) = attributes(itertools, "batched")
    return Recipe(batched, (v.source if v.source is not None else (), v.size), {"strict": True} if v.strict else {})


def _groupby(v: t.GroupBy) -> Recipe | None:
    if v.group is not None and sys.getrefcount(v.group) > 2:
        # Other code holds the group, which takes its items from this iterator.
        return None
    if not v.started and not v.targeted:
        return Recipe(itertools.groupby, (v.source, v.key))
    # C has no state for an iterator whose group has taken its item.
    return Recipe(itertools.groupby, (v.source, v.key), state=((v.value, v.target, v.current_key),)) if v.started and v.targeted else None


def _rest_of_chain(active: Iterator[Any], source: Iterator[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.chain((active,), source))


def _rest_of_accumulate(source: Iterator[Any], function: Any, total: Any) -> Iterator[Any]:
    it = itertools.accumulate(itertools.chain((total,), source), function)
    next(it)
    return it


def _rest_of_cycle(source: Iterator[Any], saved: tuple[Any, ...]) -> Iterator[Any]:
    it = itertools.cycle(itertools.chain(saved, source))
    for _ in saved:
        next(it)
    return it


def _chain_without_state(v: t.Chain) -> Recipe:
    if v.source is None:
        return Recipe(itertools.chain, ())
    return Recipe(itertools.chain.from_iterable, (v.source,)) if v.active is None else Recipe(_rest_of_chain, (v.active, v.source))


def _islice_without_state(v: t.ISlice) -> Recipe:
    if v.source is None:
        return Recipe(itertools.islice, ((), 0))
    return Recipe(itertools.islice, (v.source, v.skip - v.count, None if v.stop is None else v.stop - v.count, v.step))


def _cycle_without_state(v: t.Cycle) -> Recipe:
    # After the first pass, it starts somewhere in what it has saved.
    return Recipe(itertools.cycle, ((*v.saved[v.index :], *v.saved[: v.index]),)) if v.source is None else Recipe(_rest_of_cycle, (v.source, tuple(v.saved)))


def _groupby_without_state(v: t.GroupBy) -> Recipe | None:
    return None if v.started or v.targeted else Recipe(itertools.groupby, (v.source, v.key))


class FirstItems:
    """The first items of a sequence. `reversed` asks this for its length, because that of the user's object has been asked for."""

    __slots__ = ("_length", "_source")

    def __init__(self, length: int, source: Any) -> None:
        self._length, self._source = length, source

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._source[index]


def _reversed_sequence(length: int, source: Any) -> Iterator[Any]:
    return reversed(FirstItems(length, source))


# The recipes for iterators that are advanced, where C's have no state that could be set.
WITHOUT_STATE: Mapping[type, Callable[[Any], Recipe | None]] = MappingProxyType(
    {
        t.TakeWhile: lambda v: Recipe(itertools.takewhile, (v.predicate, () if v.stopped else v.source)),
        # The predicate gives False for each item, and compares none.
        t.DropWhile: lambda v: Recipe(itertools.dropwhile, (().__contains__ if v.started else v.predicate, v.source)),
        t.Chain: _chain_without_state,
        t.ISlice: _islice_without_state,
        t.Accumulate: lambda v: Recipe(_rest_of_accumulate, (v.source, v.function, v.total)) if v.started else _accumulate(v),
        t.Cycle: _cycle_without_state,
        t.GroupBy: _groupby_without_state,
    }
)
# The fields of each stand-in contain its position.
_RECIPES: Mapping[type, Callable[[Any], Recipe | None]] = MappingProxyType(
    {
        i.Map: lambda v: Recipe(builtins.map, (v.function, *v.sources)),
        i.StrictMap: lambda v: Recipe(builtins.map, (v.function, *v.sources), {"strict": True} if v.strict else {}),
        i.Filter: lambda v: Recipe(builtins.filter, (v.function, v.source)),
        i.Zip: lambda v: Recipe(builtins.zip, tuple(v.sources), {"strict": v.strict}),
        i.Enumerate: lambda v: Recipe(builtins.enumerate, (v.source, v.count)),
        i.CallableIterator: lambda v: Recipe(iter, (int, 0) if v.function is None else (v.function, v.sentinel)),
        **dict.fromkeys((i.SequenceIterator, i.ArrayIterator), _sequence_iterator),
        i.ReversedSequence: lambda v: Recipe(_reversed_sequence, (v.index + 1, v.source)),
        i.RangeIterator: lambda v: Recipe(iter, (range(v.at, v.stop, v.step),)),
        t.FilterFalse: lambda v: Recipe(itertools.filterfalse, (v.function, v.source)),
        t.StarMap: lambda v: Recipe(itertools.starmap, (v.function, v.source)),
        t.TakeWhile: lambda v: Recipe(itertools.takewhile, (v.predicate, v.source), state=(v.stopped,)),
        t.DropWhile: lambda v: Recipe(itertools.dropwhile, (v.predicate, v.source), state=(v.started,)),
        t.Compress: lambda v: Recipe(itertools.compress, (v.source, v.selectors)),
        t.Count: lambda v: Recipe(itertools.count, (v.count, v.step)),
        t.Chain: _chain,
        t.ISlice: _islice,
        t.Accumulate: _accumulate,
        t.ZipLongest: _zip_longest,
        t.Cycle: _cycle,
        t.Pairwise: _pairwise,
        **dict.fromkeys(_FURTHER, _arrangements),
        **dict.fromkeys((t.Batched, t.StrictBatched), _batched),
        t.GroupBy: _groupby,
        **dict.fromkeys(STANDING, lambda v: Recipe(advanced, (v.iterator, v.moves))),
        **({} if STATES_OF_ITERTOOLS else WITHOUT_STATE),
    }
)  # fmt: skip

def recipe_of(v: Any) -> Recipe | None:
    """Returns the recipe for the iterator that ``v`` stands for; None: ``v`` is not a stand-in, or its iterator cannot be rebuilt any more."""
    recipe = _RECIPES.get(type(v))
    return None if recipe is None else recipe(v)
