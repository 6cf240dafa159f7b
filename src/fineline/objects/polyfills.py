"""The polyfills: the Python function for each C callable that may call back into Python code.

The interpreter runs a polyfill instead of the C original when an argument is a Python callback, or an iterator, item, key or
value whose special methods are written in Python. Keys are as in `callable_table`, which joins them to the rows: functions, types, and
unbound methods. A classmethod is keyed by its descriptor, and its polyfill takes the class. A type's value may be a class.
"""

from __future__ import annotations

import bisect
import builtins
import collections
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from fineline.bytecode.version import CURRENT
from fineline.cpython import polyfill_builtins as b
from fineline.cpython import polyfill_containers as c
from fineline.cpython import polyfill_getters as o
from fineline.cpython import polyfill_iterators as i
from fineline.cpython import polyfill_itertools as t
from fineline.cpython import protocols
from fineline.cpython.behaviours import MAPS_CAN_BE_STRICT, REDUCE_NAMES_INITIAL, TUPLES_ASK_FOR_LENGTHS
from fineline.cpython.library_sources import python_functions
from fineline.cpython.polyfill_heaps import MOVES
from fineline.tables import attributes


def _in_python(
    module: ModuleType, accelerator: str, names: str, replaced: Mapping[str, Callable[..., Any]] = MappingProxyType({})
) -> Mapping[Callable[..., Any], Callable[..., Any]]:
    """Returns the library's own Python versions of the C functions with these names. ``replaced``: what they call instead of others there."""
    found = python_functions(module, accelerator, replaced)
    return MappingProxyType({fn: found[name] for name in names.split() if name in found for fn in attributes(module, name)})


def _of_lists(in_c: Callable[..., Any], in_python: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a heap function: C handles a heap that is empty or not a list, because it raises or compares nothing."""
    return lambda heap, /, *item: in_python(heap, *item) if type(heap) is list and heap else in_c(heap, *item)


def _within_bounds(search: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a search function with C's treatment of its bounds: an upper bound of -1 means none."""

    def bisect(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> int:
        low, high = operator.index(lo), -1 if hi is None else operator.index(hi)
        found: int = search(a, x, low, None if high == -1 else high, key=key)
        return found

    return bisect


# Those for heaps with the largest item first have no underscore from Python 3.14 on, and are two more.
_HEAPQ_NAMES = "heapify heapify_max heappop heappop_max heappush heappush_max heappushpop heappushpop_max heapreplace heapreplace_max"
_BISECT = _in_python(bisect, "_bisect", "bisect_left bisect_right")
_HEAPQ = _in_python(heapq, "_heapq", f"{_HEAPQ_NAMES} _heapify_max _heappop_max _heapreplace_max", MOVES)
# The functions of bisect and heapq, which compare their arguments.
ORDERED: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {fn: _within_bounds(search) for fn, search in _BISECT.items()} | {fn: _of_lists(fn, change) for fn, change in _HEAPQ.items()}
)
_ISSUBSET = c.set_issubset_of_first if CURRENT.stops_at_subset else c.set_issubset
_OPERATORS = (
    "add and_ call concat contains countOf delitem eq floordiv ge getitem gt iadd iand iconcat ifloordiv ilshift imatmul imod imul indexOf inv invert ior "
    "ipow irshift is_none is_not_none isub itruediv ixor le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift setitem sub truediv xor"
)
POLYFILLS: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        **ORDERED,
        builtins.abs: protocols.absolute,
        builtins.all: b.all_,
        builtins.any: b.any_,
        builtins.dict: c.dict_,
        builtins.divmod: lambda a, b, /: protocols.binary(a, b, "__divmod__", "__rdivmod__", divmod),
        builtins.enumerate: i.Enumerate,
        builtins.filter: i.Filter,
        builtins.frozenset: lambda iterable=(), /: frozenset(c.set_(iterable)),
        builtins.list: b.list_,
        builtins.map: i.StrictMap if MAPS_CAN_BE_STRICT else i.Map,
        builtins.max: b.max_,
        builtins.min: b.min_,
        builtins.pow: b.pow_,
        builtins.reversed: b.reversed_,
        builtins.set: c.set_,
        builtins.sorted: b.sorted_,
        builtins.sum: b.compensated_sum if CURRENT.compensates_sums else b.sum_,
        builtins.tuple: b.tuple_ if TUPLES_ASK_FOR_LENGTHS else b.tuple_of_items,
        builtins.zip: i.Zip,
        type.__instancecheck__: protocols.is_of_class,
        collections.OrderedDict: c.ordered_dict,
        collections.defaultdict: c.default_dict,
        collections.deque: c.deque_,
        collections._count_elements: c.count_elements,  # type: ignore[attr-defined]
        functools.cmp_to_key: b.cmp_to_key,
        functools.reduce: b.reduce_from if REDUCE_NAMES_INITIAL else b.reduce,
        itertools.accumulate: t.Accumulate,
        # From Python 3.12 on, with ``strict`` from Python 3.13 on.
        **{fn: t.StrictBatched if "strict" in (fn.__text_signature__ or "") else t.Batched for fn in attributes(itertools, "batched")},
        itertools.chain: t.Chain,
        itertools.chain.__dict__["from_iterable"]: t.chain_from_iterable,
        itertools.combinations: t.Combinations,
        itertools.combinations_with_replacement: t.CombinationsWithReplacement,
        itertools.compress: t.Compress,
        itertools.count: t.Count,
        itertools.cycle: t.Cycle,
        itertools.dropwhile: t.DropWhile,
        itertools.filterfalse: t.FilterFalse,
        itertools.groupby: t.GroupBy,
        itertools.islice: t.ISlice,
        itertools.pairwise: t.Pairwise,
        itertools.permutations: t.Permutations,
        itertools.product: t.Product,
        itertools.starmap: t.StarMap,
        itertools.takewhile: t.TakeWhile,
        itertools.tee: t.tee,
        itertools.zip_longest: t.ZipLongest,
        math.fsum: lambda seq, /: math.fsum(list(seq)),
        math.prod: b.prod,
        str.join: lambda self, iterable, /: str.join(self, b.sequence(iterable, "can only join an iterable")),
        bytes.join: lambda self, iterable, /: bytes.join(self, b.sequence(iterable, "can only join an iterable")),
        list.__contains__: c.sequence_contains,
        list.__eq__: c.list_eq,
        list.__ge__: lambda a, b, /: c.ordered(list, operator.ge, a, b),
        list.__gt__: lambda a, b, /: c.ordered(list, operator.gt, a, b),
        list.__iadd__: c.list_iadd,
        list.__le__: lambda a, b, /: c.ordered(list, operator.le, a, b),
        list.__lt__: lambda a, b, /: c.ordered(list, operator.lt, a, b),
        list.__ne__: lambda a, b, /: c.opposite(c.list_eq(a, b)),
        list.__setitem__: c.list_setitem,
        list.count: c.sequence_count,
        list.extend: c.list_extend,
        list.index: c.list_index,
        list.remove: c.list_remove,
        list.sort: b.list_sort,
        tuple.__contains__: c.sequence_contains,
        tuple.__eq__: c.tuple_eq,
        tuple.__ge__: lambda a, b, /: c.ordered(tuple, operator.ge, a, b),
        tuple.__gt__: lambda a, b, /: c.ordered(tuple, operator.gt, a, b),
        tuple.__le__: lambda a, b, /: c.ordered(tuple, operator.le, a, b),
        tuple.__lt__: lambda a, b, /: c.ordered(tuple, operator.lt, a, b),
        tuple.__ne__: lambda a, b, /: c.opposite(c.tuple_eq(a, b)),
        tuple.count: c.sequence_count,
        tuple.index: c.tuple_index,
        dict.__dict__["fromkeys"]: c.dict_fromkeys,
        dict.__eq__: c.dict_eq,
        dict.__getitem__: c.dict_getitem,
        dict.__ior__: c.dict_ior,
        dict.__ne__: lambda a, b, /: c.opposite(c.dict_eq(a, b)),
        dict.update: c.dict_update,
        collections.OrderedDict.__eq__: c.ordered_dict_eq,
        collections.OrderedDict.__ne__: lambda a, b, /: c.opposite(c.ordered_dict_eq(a, b)),
        collections.OrderedDict.update: c.ordered_dict_update,
        collections.OrderedDict.__dict__["fromkeys"]: c.dict_fromkeys,
        collections.defaultdict.__missing__: c.defaultdict_missing,
        collections.deque.__iadd__: c.deque_iadd,
        collections.deque.extend: c.deque_extend,
        collections.deque.extendleft: c.deque_extendleft,
        set.difference: c.set_difference,
        set.difference_update: c.set_difference_update,
        set.intersection: c.set_intersection,
        set.intersection_update: c.set_intersection_update,
        set.isdisjoint: c.set_isdisjoint,
        set.issubset: _ISSUBSET,
        set.issuperset: c.set_issuperset,
        set.symmetric_difference_update: c.set_symmetric_difference_update,
        set.union: c.set_union,
        set.update: c.set_update,
        frozenset.isdisjoint: c.set_isdisjoint,
        frozenset.issubset: _ISSUBSET,
        frozenset.issuperset: c.set_issuperset,
        frozenset.union: c.frozenset_union,
        object.__ne__: c.object_ne,
        operator.abs: protocols.absolute,
        **_in_python(operator, "_operator", _OPERATORS),
        operator.truth: protocols.truth_of,
        operator.attrgetter.__call__: o.attrgetter_call,
        operator.itemgetter.__call__: o.itemgetter_call,
        operator.methodcaller.__call__: o.methodcaller_call,
    }
)

ITER_CALLABLE = b.iter_callable
"""`iter` with two arguments (with one, the interpreter reads `__iter__` itself)."""
ITER_SEQUENCE = i.SequenceIterator
ITER_ARRAY = i.ArrayIterator
"""`iter` of an object that has no `__iter__`, but a `__getitem__` written in Python."""
