"""Each polyfill against its C original: results, order of calls, errors with their texts, and the state left behind."""

from __future__ import annotations

import bisect
import collections
import copy
import dis
import functools
import heapq
import itertools
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fineline.cpython.polyfill_iterators import RangeIterator
from fineline.objects.callable_table import UNKNOWN, spec_of
from fineline.objects.polyfills import ITER_CALLABLE, ITER_SEQUENCE, POLYFILLS
from fineline.tables import attributes
from tests.cpython.traced import (
    Backwards,
    BadKeys,
    BadSize,
    Item,
    Items,
    Mapping,
    Missing,
    NoReverse,
    Sequence,
    Sized,
    boom,
    fail_at_two,
    gen,
    items,
    logged,
    outcome,
    stop_at_two,
    walk,
)  # fmt: skip

CASES: list[Any] = []


class Posing:
    """Answers for its class otherwise."""

    def __init__(self, said: Any) -> None:
        self.said = said

    @property
    def __class__(self) -> Any:
        return self.said

    def __eq__(self, other: Any) -> bool:
        return vars(self) == vars(other)


def case(fn: Any, make: Callable[[], tuple[Any, ...]], kwargs: Callable[[], dict[str, Any]] = dict) -> None:
    CASES.append(pytest.param(fn, make, kwargs, id=f"{getattr(fn, '__qualname__', fn)}-{len(CASES)}"))


for consumer in (list, tuple, set, frozenset, any, all, sum, collections.deque, min, max, sorted, math.prod, math.fsum):
    case(consumer, lambda: (walk(),))
    case(consumer, lambda: (walk(3, 1, 2),))
    case(consumer, lambda: (gen(1, 0, 2.5),))
    case(consumer, lambda: (walk(1, ValueError("mid"), 2),))
    case(consumer, lambda: (Sequence(5, 4),))
    case(consumer, lambda: (5,))
for consumer in (list, tuple, sorted):
    case(consumer, lambda: (Sized(3, 1, 2),))
    case(consumer, lambda: (BadSize(3, 1),))
for consumer in (list, tuple, set, frozenset, collections.deque, dict):
    case(consumer, lambda: ())
for consumer in (any, all, sum, min, max, sorted, set):
    case(consumer, lambda: (items(3, 0, 2, 1),))
    case(consumer, lambda: (walk(Item(0), Item(1), Item("bad"), Item(2)),))
case(sum, lambda: (walk(1), "x"))
case(sum, lambda: (walk(1), b"x"))
case(sum, lambda: (walk(1), bytearray(b"x")))
case(sum, lambda: (walk([1], [2]), []))
case(sum, lambda: (items(1, 2),), lambda: {"start": Item(5)})
for choose in (min, max):
    case(choose, lambda: (3, 1, 2))
    case(choose, lambda: (3, 1), lambda: {"key": lambda x: -x})
    case(choose, lambda: (3, 1), lambda: {"default": 4})
    case(choose, lambda: (walk(),), lambda: {"default": 4})
    case(choose, lambda: (walk(),), lambda: {"default": None})
    case(choose, lambda: ())
    case(choose, lambda: (["bb", "a", "cc", "d"],), lambda: {"key": logged(len)})
    case(choose, lambda: ([1, 2],), lambda: {"key": boom})
    case(choose, lambda: tuple(items(2, 2, 3, 1)))

for reverse in (False, True):
    for values in ([], [1], [2, 1], [3, 1, 2], [1, 2, 3], [3, 2, 1], [1, 1, 0, 2, 0], list("hello world"), [5, 4, 3, 9, 8, 1, 1, 2, 7]):
        case(sorted, lambda v=values: (list(v),), lambda r=reverse: {"key": logged(lambda x: x), "reverse": r})
        case(sorted, lambda v=values: (items(*v),), lambda r=reverse: {"reverse": r})
        case(sorted, lambda v=values: (items(*v),), lambda r=reverse: {"key": lambda x: Item(x.value), "reverse": r})
        case(sorted, lambda v=values: ([(x, i) for i, x in enumerate(v)],), lambda r=reverse: {"key": lambda p: p[0], "reverse": r})
        case(list.sort, lambda v=values: (items(*v),), lambda r=reverse: {"reverse": r})
    case(list.sort, lambda: (items(3, 1, "bad", 2),), lambda r=reverse: {"reverse": r})
    case(list.sort, lambda: ([3, 1, 2],), lambda r=reverse: {"key": fail_at_two, "reverse": r})
    case(sorted, lambda: ([float("nan"), 2.0, 1.0, float("nan"), 0.0],), lambda r=reverse: {"key": lambda x: x, "reverse": r})
    case(sorted, lambda: ([1, "a", 2],), lambda r=reverse: {"key": lambda x: x, "reverse": r})
    case(sorted, lambda: ([True, 2, 0],), lambda r=reverse: {"key": lambda x: x, "reverse": r})


def appending(target: list[Any]) -> Callable[[Any], Any]:
    def key(x: Any) -> Any:
        target.append(x)
        return x

    return key


def test_sort_notices_changes() -> None:
    for sort in (list.sort, POLYFILLS[list.sort]):
        target = [3, 1, 2]
        with pytest.raises(ValueError, match="list modified during sort"):
            sort(target, key=appending(target))
        assert target == [1, 2, 3]


for magnitude in (abs, operator.abs):
    case(magnitude, lambda: (-2.5,))
    case(magnitude, lambda: (torch.tensor([-1.0, 2.0]).sum(),))
case(object.__ne__, lambda: (Item(1), Item(2)))
case(object.__ne__, lambda: (Item(1), Item(1)))
case(object.__ne__, lambda: (Item(1), 3))
case(functools.reduce, lambda: (operator.add, walk(1, 2, 3)))
case(functools.reduce, lambda: (operator.add, walk(), 7))
case(functools.reduce, lambda: (operator.add, walk()))
case(functools.reduce, lambda: (operator.add, 5))
case(functools.reduce, lambda: (boom, walk(1)))
case(functools.reduce, lambda: (boom, walk(1, 2)))
case(functools.reduce, lambda: (logged(operator.sub), walk(1, 2, 3), None))

for lazy in (map, filter, itertools.filterfalse, itertools.takewhile, itertools.dropwhile):
    case(lazy, lambda: (logged(lambda x: x % 2), walk(1, 3, 2, 5, 4)))
    case(lazy, lambda: (stop_at_two, walk(1, 2, 3)))
    case(lazy, lambda: (fail_at_two, walk(1, 2, 3)))
    case(lazy, lambda: (fail_at_two, walk(1, ValueError("mid"), 3)))
    case(lazy, lambda: (bool, 5))
for lazy in (filter, itertools.filterfalse):
    case(lazy, lambda: (None, items(1, 0, 2)))
    case(lazy, lambda: (bool, items(1, 0, 2)))
case(map, lambda: (logged(operator.add), walk(1, 2, 3, name="a"), walk(4, 5, name="b")))
case(map, lambda: (logged(operator.add), walk(1, name="a"), walk(4, 5, name="b")))
case(map, lambda: (operator.add, [1], 5))
case(zip, lambda: ())
case(zip, lambda: (walk(1, 2), walk(3, 4, 5, name="b")))
case(zip, lambda: (walk(1, 2), 5))
for strict in (True, False):
    for lengths in ((), (0,), (2,), (2, 2), (2, 1), (1, 2), (1, 1, 2), (2, 2, 1), (0, 1), (1, 2, 2)):
        case(zip, lambda n=lengths: tuple(walk(*range(k), name=i) for i, k in enumerate(n)), lambda s=strict: {"strict": s})
        case(itertools.zip_longest, lambda n=lengths: tuple(walk(*range(k), name=i) for i, k in enumerate(n)))
case(zip, lambda: (walk(1, ValueError("mid"), 3), walk(4, 5, 6, name="b")), lambda: {"strict": True})
case(itertools.zip_longest, lambda: (walk(1), walk(2, 3, name="b")), lambda: {"fillvalue": "-"})
case(itertools.zip_longest, lambda: (walk(1), walk(2, ValueError("mid"), 3, name="b")))
case(enumerate, lambda: (walk("a", ValueError("mid"), "b"),))
case(enumerate, lambda: (walk("a", "b"), 5))
case(enumerate, lambda: (walk("a", "b"),), lambda: {"start": Item(3)})
case(enumerate, lambda: (walk("a"), "x"))
case(enumerate, lambda: (5,))
for obj in (lambda: Sequence(1, 2, 3), lambda: Backwards(1), lambda: NoReverse(1), lambda: walk(1), lambda: 5, lambda: Sequence()):
    case(reversed, lambda o=obj: (o(),))

case(itertools.chain, lambda: (walk(1, 2, name="a"), [], walk(3, name="b")))
case(itertools.chain, lambda: (walk(1, ValueError("mid"), 2), [5]))
case(itertools.chain, lambda: ([1], 5, [2]))
case(itertools.chain, lambda: ())
for bounds in ((3,), (None,), (1, 4), (1, None, 2), (0, 7, 3), (0,), (2, 2), (5, 3), (None, None), (1, 3, None)):
    case(itertools.islice, lambda b=bounds: (walk(*range(6)), *b))
for bounds in ((-1,), (-1, 2), ("a",), (1, 2, 0), (1, -2), (1, 2, "a"), (1, "a"), ("a", 3)):
    case(itertools.islice, lambda b=bounds: (walk(*range(6)), *b))
case(itertools.islice, lambda: (walk(0, ValueError("mid"), 2, 3), 3))
case(itertools.islice, lambda: (walk(0, ValueError("mid"), 2, 3), 2, 4))
case(itertools.islice, lambda: (walk(0, 1, 2), Item(2)))
case(itertools.starmap, lambda: (logged(pow), walk((2, 3), [3, 2], walk(1, 2, name="in"))))
case(itertools.starmap, lambda: (pow, walk((2, 3), 5, (3, 2))))
case(itertools.accumulate, lambda: (walk(1, 2, 3),))
case(itertools.accumulate, lambda: (walk(1, 2, 3), logged(operator.mul)))
case(itertools.accumulate, lambda: (walk(1, 2, 3),), lambda: {"initial": 10})
case(itertools.accumulate, lambda: (walk(),), lambda: {"initial": 10})
case(itertools.accumulate, lambda: (walk(),))
case(itertools.accumulate, lambda: (walk(1, 2, 3), boom))
case(itertools.accumulate, lambda: (items(1, 2),))
case(itertools.compress, lambda: (walk(1, 2, 3, 4, name="data"), walk(1, 0, 1, name="selectors")))
case(itertools.compress, lambda: (walk(1, 2), items(0, 1)))
case(itertools.cycle, lambda: (walk(1, 2, 3),))
case(itertools.cycle, lambda: (walk(),))
case(itertools.cycle, lambda: (walk(1, ValueError("mid"), 2),))
case(itertools.count, lambda: (Item(1), 2))
case(itertools.count, lambda: ())
for n in range(4):
    case(itertools.pairwise, lambda k=n: (walk(*range(k)),))
    case(itertools.tee, lambda k=n: (walk(*range(k)),))
    case(itertools.product, lambda k=n: (walk(*range(k)), walk("a", "b")))
    case(itertools.permutations, lambda k=n: (walk(*range(k)),))
    case(itertools.combinations, lambda k=n: (walk(*range(k)), 2))
    case(itertools.combinations_with_replacement, lambda k=n: (walk(*range(k)), 2))
case(itertools.pairwise, lambda: (walk(1, ValueError("mid"), 2, 3),))
for batched in attributes(itertools, "batched"):
    for n in (0, 1, 3, 4, -1, 2.5, None):
        case(batched, lambda n=n: (walk(1, 2, 3, 4), n))
    case(batched, lambda: (walk(1, ValueError("mid"), 2, 3), 3))
    case(batched, lambda: (5, 3))
    if "strict" in (batched.__text_signature__ or ""):
        case(batched, lambda: (walk(1, 2, 3, 4), 3), lambda: {"strict": True})
        case(batched, lambda: (walk(1, 2, 3, 4), 2), lambda: {"strict": True})
for asks in attributes(operator, "is_none is_not_none"):
    case(asks, lambda: (None,))
    case(asks, lambda: (Item(1),))
case(itertools.tee, lambda: (walk(1, 2), 0))
case(itertools.tee, lambda: (walk(1, 2), 3))
case(itertools.tee, lambda: (walk(1, 2), -1))
case(itertools.product, lambda: (walk(1, 2),), lambda: {"repeat": 2})
case(itertools.permutations, lambda: (walk(1, 2, 3), 2))
for given in (-1, 0, 1 << 70, 2.5, "a", None, True):
    case(itertools.product, lambda: (walk(1, 2), walk("a", name="b")), lambda n=given: {"repeat": n})
    for arrange in (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement):
        case(arrange, lambda n=given: (walk(1, 2), n))
case(itertools.groupby, lambda: (walk(1, 1, 2, 3, 3),))
case(itertools.groupby, lambda: (walk(1, 3, 2, 5, 7), logged(lambda x: x % 2)))
case(itertools.groupby, lambda: (walk(1, ValueError("mid"), 1, 2),))
case(itertools.groupby, lambda: (items(1, 1, 2),))


@pytest.mark.parametrize("groupby", [itertools.groupby, POLYFILLS[itertools.groupby]])
def test_groupby_stale_groups(groupby: Any) -> None:
    groups = groupby([1, 1, 2, 2, 3])
    _, first = next(groups)
    assert next(first) == 1
    _, second = next(groups)
    assert list(first) == []
    assert list(second) == [2, 2]
    assert [k for k, _ in groups] == [3]


case(str.join, lambda: (",", walk("a", "b")))
case(str.join, lambda: (",", 5))
case(str.join, lambda: (",", walk("a", 5)))
case(str.join, lambda: (",", walk("a", TypeError("mid"))))
case(bytes.join, lambda: (b",", walk(b"a", b"b")))
case(bytes.join, lambda: (b",", 5))

for method in (list.extend, list.__iadd__, collections.deque.extend, collections.deque.extendleft, collections.deque.__iadd__):
    kind: Any = method.__objclass__
    case(method, lambda k=kind: (k([1]), walk(2, 3)))
    case(method, lambda k=kind: (k([1]), walk(2, ValueError("mid"), 3)))
    case(method, lambda k=kind: (k([1]), 5))
case(collections.deque, lambda: (walk(1, 2, 3), 2))
case(collections.deque, lambda: (walk(1, 2, 3),), lambda: {"maxlen": None})
case(list.__setitem__, lambda: ([1, 2, 3], slice(0, 2), walk(7, 8, 9)))
case(list.__setitem__, lambda: ([1, 2, 3], slice(0, 2), 5))
case(list.__setitem__, lambda: ([1, 2, 3], slice(0, 3, 2), 5))
case(list.__setitem__, lambda: ([1, 2, 3], slice(0, 3, 2), walk(7)))
case(list.__setitem__, lambda: ([1, 2, 3], 9, 5))
for seq in (list, tuple):
    for name in ("__contains__", "count", "index"):
        for needle in (2, 9, "bad"):
            case(getattr(seq, name), lambda s=seq, n=needle: (s(items(1, 2, 3, 2)), Item(n)))
        case(getattr(seq, name), lambda s=seq: (s([1, 2]), Item(2)))
    for bounds in ((1,), (2, 4), (-1,), (0, -2), (-9, 9), (Item(1), Item(3)), ("a",)):
        case(seq.index, lambda s=seq, b=bounds: (s([1, 2, 3, 2]), 2, *b))
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
        for a, b in (((1, 2), (1, 2)), ((1, 2), (1, 3)), ((1,), (1, 2)), ((1, 2), (1,)), ((), ()), ((1, "bad"), (1, 2)), ((2, 1), (1, 2))):
            case(getattr(seq, name), lambda s=seq, x=a, y=b: (s(items(*x)), s(items(*y))))
        case(getattr(seq, name), lambda s=seq: (s([1]), 5))
        case(getattr(seq, name), lambda s=seq: (s([1]), {list: (), tuple: []}[s]))
        case(getattr(seq, name), lambda s=seq: (s([float("nan"), 1]), s([math.nan, 1])))
case(list.remove, lambda: (items(1, 2, 3), Item(2)))
case(list.remove, lambda: (items(1, 2, 3), Item(9)))

for fn, first in (
    (dict, lambda: ()), (dict.update, lambda: ({"z": 0},)), (collections.OrderedDict.update, lambda: (collections.OrderedDict(z=0),)),
    (collections.OrderedDict, lambda: ()), (collections.defaultdict, lambda: (list,)),
):  # fmt: skip
    for other in (
        lambda: Mapping(), lambda: walk(("a", 1), ["b", 2]), lambda: walk("xy", walk("p", "q", name="in")), lambda: walk((1, 2, 3)),
        lambda: walk(("a", 1), "xyz"), lambda: walk(("a", 1), walk("p", TypeError("mid"))), lambda: {"k": 1}, lambda: walk(),
        lambda: walk((Item(1), 1), (Item(1), 2)), lambda: walk(("a", 1), walk("p", ValueError("mid"))),
        lambda: walk(("a", 1), ()), lambda: walk(("a", 1), (2,)), lambda: BadKeys(), lambda: Items(),
    ):  # fmt: skip
        case(fn, lambda o=other, f=first: (*f(), o()))
        case(fn, lambda o=other, f=first: (*f(), o()), lambda: {"kw": 1, "a": 2})
case(collections.defaultdict, lambda: (5,))
case(collections.defaultdict, lambda: ())
for other in (lambda: walk(("a", 1), 5), lambda: 5):
    case(dict, lambda o=other: (o(),))
    case(dict.update, lambda o=other: ({"z": 0}, o()))
case(dict, lambda: (), lambda: {"b": 1, "a": 2})
case(dict.__ior__, lambda: ({"a": 1}, walk(("b", 2))))
case(dict.__getitem__, lambda: ({"a": 1}, "a"))
case(dict.__getitem__, lambda: ({"a": 1}, "b"))
case(dict.__getitem__, lambda: (Missing(a=1), "a"))
case(dict.__getitem__, lambda: (Missing(a=1), "b"))
case(dict.__getitem__, lambda: (collections.defaultdict(list), "b"))
case(dict.__getitem__, lambda: (collections.OrderedDict(), (1, 2)))
case(collections.defaultdict.__missing__, lambda: (collections.defaultdict(list), "b"))
case(collections.defaultdict.__missing__, lambda: (collections.defaultdict(), "b"))
case(collections.defaultdict.__missing__, lambda: (collections.defaultdict(boom), "b"))
for other in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 2}, {}, collections.OrderedDict(a=1)):
    for name in ("__eq__", "__ne__"):
        case(getattr(dict, name), lambda o=other: ({"a": Item(1)}, {k: Item(v) for k, v in o.items()}))
        case(getattr(dict, name), lambda: ({"a": 1}, 5))
for pairs in ("ab", "ba", "a", "ac"):
    for name in ("__eq__", "__ne__"):
        for kind in (collections.OrderedDict, dict):
            case(
                getattr(collections.OrderedDict, name),
                lambda k=kind, p=pairs: (collections.OrderedDict(a=Item(1), b=Item(2)), k({n: Item("ab".find(n) + 1) for n in p})),
            )
        case(getattr(collections.OrderedDict, name), lambda: (collections.OrderedDict(), 5))
case(collections._count_elements, lambda: ({}, walk("a", "b", "a")))
case(collections._count_elements, lambda: (Missing(), walk("a", "b", "a")))

for name in ("union", "intersection", "difference", "isdisjoint", "issubset", "issuperset"):
    for kind in (set, frozenset):
        method = getattr(kind, name)
        if method in POLYFILLS:
            case(method, lambda k=kind: (k([1, 2, 3]), walk(2, 3, 4)))
            case(method, lambda k=kind: (k([1, 2]), walk(1, 2, 3)))
            case(method, lambda k=kind: (k([1, 2]), walk(1)))
            case(method, lambda k=kind: (k([1, 2]), walk(7, 8)))
            case(method, lambda k=kind: (k([1, 2]), 5))
            case(method, lambda k=kind: (k([1, 2]), walk(1, [])))
    if not name.startswith("is"):
        case(getattr(set, name), lambda: ({1, 2, 3},))
        case(getattr(set, name), lambda: ({1, 2, 3}, walk(2, 3, name="a"), walk(3, 9, name="b")))
for name in ("update", "intersection_update", "difference_update"):
    case(getattr(set, name), lambda: ({1, 2, 3},))
    case(getattr(set, name), lambda: ({1, 2, 3}, walk(2, 3, name="a"), walk(3, 9, name="b")))
    case(getattr(set, name), lambda: ({1, 2, 3}, 5))
case(set.symmetric_difference_update, lambda: ({1, 2}, walk(2, 3, 3)))

BINARY = "lt le eq ne ge gt add and_ floordiv lshift mod mul matmul or_ pow rshift sub truediv xor concat contains".split()
IN_PLACE = "iadd iand ifloordiv ilshift imod imul imatmul ior ipow irshift isub itruediv ixor iconcat".split()
for name in BINARY + IN_PLACE:
    for a, b in ((7, 2), ([1], [2]), ({1, 2}, {2, 3}), (1, "x"), ([1], 3), ("%s", 2)):
        case(getattr(operator, name), lambda x=a, y=b: (copy.copy(x), y))
for name in ("neg", "pos", "inv", "invert", "not_", "truth"):
    for a in (5, 0, [], "x", True):
        case(getattr(operator, name), lambda x=a: (x,))
for name in ("countOf", "indexOf"):
    case(getattr(operator, name), lambda: (walk(1, 2, 2), 2))
    case(getattr(operator, name), lambda: (items(1, 2, 2), 2))
    case(getattr(operator, name), lambda: (walk(1, 2, 2), 9))
case(operator.getitem, lambda: ([1, 2], 1))
case(operator.getitem, lambda: ([1, 2], 5))
case(operator.setitem, lambda: ([1, 2], 1, 9))
case(operator.delitem, lambda: ([1, 2], 1))
case(operator.call, lambda: (logged(max), 1, 2))
for names in (("real",), ("real", "imag"), ("real.numerator",), ("nope",)):
    case(operator.attrgetter.__call__, lambda n=names: (operator.attrgetter(*n), 5))
for picker in (operator.itemgetter(1), operator.itemgetter(0, -1), operator.itemgetter(slice(1, None)), operator.itemgetter(9)):
    case(operator.itemgetter.__call__, lambda g=picker: (g, [1, 2, 3]))
for caller in (
    operator.methodcaller("split"), operator.methodcaller("split", "b"), operator.methodcaller("split", sep="b", maxsplit=1),
    operator.methodcaller("encode", "utf-8", errors="strict"),
):  # fmt: skip
    case(operator.methodcaller.__call__, lambda c=caller: (c, "abcbd"))
case(type.__instancecheck__, lambda: (int, True))
case(type.__instancecheck__, lambda: (int, "a"))
case(type.__instancecheck__, lambda: (Posing, Posing(int)))
case(type.__instancecheck__, lambda: (int, Posing(bool)))
case(type.__instancecheck__, lambda: (int, Posing("int")))
case(divmod, lambda: (7, 2))
case(divmod, lambda: (7.5, -2))
case(divmod, lambda: (7, "a"))
case(pow, lambda: (2, 3))
case(pow, lambda: (2, 3, 5))
case(pow, lambda: (2, "a"))
case(pow, lambda: (), lambda: {"base": 2, "exp": 3})


for search in (bisect.bisect_left, bisect.bisect_right):
    for numbers in ((), (1, 2, 2, 3), (2, 2, 2)):
        for wanted in (0, 2, 2.5, 9, "a"):
            case(search, lambda numbers=numbers, wanted=wanted: (list(numbers), wanted))
    case(search, lambda: ([1, 2, 3, 4], 3, 1, 3))
    case(search, lambda: ([1, 2, 3, 4], 3, 1, -1))
    case(search, lambda: ([1, 2, 3, 4], 9, 0, 7))
    case(search, lambda: ([1, 2, 3, 4], 3, -1))
    case(search, lambda: ([1, 2, 3, 4], 3, 1.0))
    case(search, lambda: ([1, 2, 3, 4], 3, 4, -2))
    case(search, lambda: (items(1, 2, 3), Item(2)))
    case(search, lambda: (Sequence(1, 2, 3), 2))
    case(search, lambda: (5, 2))
    case(search, lambda: ([4, 3, 1], -3), lambda: {"key": lambda n: -n})
    case(search, lambda: ([4, 3, 1], -3), lambda: {"key": fail_at_two()})
for change in attributes(heapq, "heapify _heapify_max heapify_max heappop _heappop_max heappop_max"):
    for numbers in ((), (1,), (3, 1, 2), (5, 3, 8, 1, 9, 2, 7, 7, 1), (1, "a", 2), (9, 1, "a", 2)):
        case(change, lambda numbers=numbers: (list(numbers),))
    case(change, lambda: ((1, 2),))
    case(change, lambda: (items(3, 1, 2),))
for change in attributes(heapq, "heappush heappush_max heappushpop heappushpop_max heapreplace _heapreplace_max heapreplace_max"):
    for numbers in ((), (1,), (1, 3, 2), (1, 2, 3, 4, 5, 6, 7), (1, "a", 2)):
        for new in (0, 4, 99, "b"):
            case(change, lambda numbers=numbers, new=new: (list(numbers), new))
    case(change, lambda: ((1, 2), 1))
    case(change, lambda: (items(1, 3, 2), Item(2)))

@pytest.mark.parametrize(("fn", "make", "kwargs"), CASES)
def test_same_as_c(fn: Any, make: Callable[[], tuple[Any, ...]], kwargs: Callable[[], dict[str, Any]]) -> None:
    assert outcome(POLYFILLS[fn], make, kwargs) == outcome(fn, make, kwargs)


CLASSMETHODS = (
    (itertools.chain, "from_iterable", lambda: (walk([1, 2], walk(3, name="b")),)),
    (itertools.chain, "from_iterable", lambda: (walk([1, 2], 5, [3]),)),
    (itertools.chain, "from_iterable", lambda: (5,)),
    (dict, "fromkeys", lambda: (walk("a", "b"),)),
    (dict, "fromkeys", lambda: (walk("a", "b"), 7)),
    (dict, "fromkeys", lambda: (walk("a", []),)),
    (collections.OrderedDict, "fromkeys", lambda: (walk("a", "b"), 7)),
)


@pytest.mark.parametrize(("owner", "name", "make"), CLASSMETHODS)
def test_classmethod_same_as_c(owner: type, name: str, make: Any) -> None:
    polyfill = POLYFILLS[owner.__dict__[name]]
    assert outcome(functools.partial(polyfill, owner), make, dict) == outcome(getattr(owner, name), make, dict)


@pytest.mark.parametrize(
    "make", [lambda: (iter([1, 2, 3]).__next__, 3), lambda: (iter(items(1, 2)).__next__, 2), lambda: (boom, 0), lambda: (5, 0)]
)
def test_iter_callable(make: Any) -> None:
    assert outcome(ITER_CALLABLE, make, dict) == outcome(iter, make, dict)


def test_iter_sequence() -> None:
    assert outcome(ITER_SEQUENCE, lambda: (Sequence(1, 2, 3),), dict) == outcome(iter, lambda: (Sequence(1, 2, 3),), dict)


def test_cmp_to_key() -> None:
    make = POLYFILLS[functools.cmp_to_key]
    values = [3, 1, 2, 1]
    assert sorted(values, key=make(lambda a, b: b - a)) == sorted(values, key=functools.cmp_to_key(lambda a, b: b - a))
    key = make(lambda a, b: a - b)
    assert key(1) < key(2) <= key(2) and key(3) > key(2) >= key(2) and key(1) == key(1) and key(2).obj == 2
    with pytest.raises(TypeError):
        hash(key(1))


def test_each_polyfill_has_a_case() -> None:
    untested = set(POLYFILLS) - {c.values[0] for c in CASES} - {owner.__dict__[name] for owner, name, _ in CLASSMETHODS}
    assert untested == {functools.cmp_to_key}


def test_polyfills_stand_for_known_callables() -> None:
    assert [fn for fn in POLYFILLS if spec_of(fn) is UNKNOWN] == []


@pytest.mark.parametrize("numbers", [range(0), range(5), range(5, 2), range(7, -4, -3), range(-2, 2**70, 2**68), range(3, 4)], ids=str)
def test_the_rest_of_a_range(numbers: range) -> None:
    for gone in range(len(numbers) + 1):
        c = iter(numbers)
        ours = RangeIterator(numbers.start + gone * numbers.step, numbers.stop, numbers.step)
        for _ in range(gone):
            next(c)
        assert iter(ours) is ours and list(ours) == list(c)
        assert next(ours, None) is None is next(ours, None)


OPCODES_TO_AVOID = {"YIELD_VALUE", "SEND", "IMPORT_NAME", "BEFORE_WITH", "LOAD_BUILD_CLASS", "DELETE_GLOBAL", "STORE_GLOBAL"}


def _code_of(fn: Any) -> Iterator[types.CodeType]:
    if isinstance(fn, type):
        for method in vars(fn).values():
            if isinstance(method, types.FunctionType):
                yield method.__code__
    else:
        yield fn.__code__


@pytest.mark.parametrize("fn", list(dict.fromkeys([*POLYFILLS.values(), ITER_CALLABLE, ITER_SEQUENCE, RangeIterator])), ids=lambda fn: fn.__qualname__)
def test_plain_code(fn: Any) -> None:
    for code in _code_of(fn):
        assert not OPCODES_TO_AVOID & {i.opname for i in dis.get_instructions(code)}
