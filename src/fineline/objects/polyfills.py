"""Which plain-Python function stands in for which C callable, where that would call back into Python code.

The interpreter runs a polyfill in place of its C original when an argument is a Python callback, or an iterator, item, key or
value whose special methods are written in Python. Keys are as `native_table.classify` takes them: functions, types, and unbound
methods. A classmethod is keyed by its descriptor, and its polyfill takes the class. A type's value may be a class.
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
from types import MappingProxyType
from typing import Any

from fineline.cpython import polyfill_builtins as b
from fineline.cpython import polyfill_containers as c
from fineline.cpython import polyfill_iterators as i
from fineline.cpython import polyfill_itertools as t
from fineline.cpython import polyfill_operators as o
from fineline.cpython import polyfill_order as order
from fineline.cpython import protocols

# The functions of bisect and heapq.
ORDERED: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        bisect.bisect_left: order.bisect_left,
        bisect.bisect_right: order.bisect_right,
        heapq._heapify_max: order.heapify_max,
        heapq._heappop_max: order.heap_pop_max,  # type: ignore[attr-defined]
        heapq._heapreplace_max: order.heap_replace_max,  # type: ignore[attr-defined]
        heapq.heapify: order.heapify,
        heapq.heappop: order.heap_pop,
        heapq.heappush: order.heap_push,
        heapq.heappushpop: order.heap_push_pop,
        heapq.heapreplace: order.heap_replace,
    }
)
POLYFILLS: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        **ORDERED,
        builtins.abs: lambda a, /: a.__abs__(),
        builtins.all: b.all_,
        builtins.any: b.any_,
        builtins.dict: c.dict_,
        builtins.divmod: lambda a, b, /: protocols.binary(a, b, "__divmod__", "__rdivmod__", divmod),
        builtins.enumerate: i.Enumerate,
        builtins.filter: i.Filter,
        builtins.frozenset: lambda iterable=(), /: frozenset(c.set_(iterable)),
        builtins.list: b.list_,
        builtins.map: i.Map,
        builtins.max: b.max_,
        builtins.min: b.min_,
        builtins.pow: b.pow_,
        builtins.reversed: b.reversed_,
        builtins.set: c.set_,
        builtins.sorted: b.sorted_,
        builtins.sum: b.sum_,
        builtins.tuple: lambda iterable=(), /: tuple(b.list_(iterable)),
        builtins.zip: i.Zip,
        collections.OrderedDict: c.ordered_dict,
        collections.defaultdict: c.default_dict,
        collections.deque: c.deque_,
        collections._count_elements: c.count_elements,  # type: ignore[attr-defined]
        functools.cmp_to_key: b.cmp_to_key,
        functools.reduce: b.reduce,
        itertools.accumulate: t.Accumulate,
        itertools.chain: t.Chain,
        itertools.chain.__dict__["from_iterable"]: t.chain_from_iterable,
        itertools.combinations: lambda iterable, r: itertools.combinations(tuple(iterable), r),
        itertools.combinations_with_replacement: lambda iterable, r: itertools.combinations_with_replacement(tuple(iterable), r),
        itertools.compress: t.Compress,
        itertools.count: t.Count,
        itertools.cycle: t.Cycle,
        itertools.dropwhile: t.DropWhile,
        itertools.filterfalse: t.FilterFalse,
        itertools.groupby: t.GroupBy,
        itertools.islice: t.ISlice,
        itertools.pairwise: t.Pairwise,
        itertools.permutations: lambda iterable, r=None: itertools.permutations(tuple(iterable), r),
        itertools.product: t.product,
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
        set.issubset: c.set_issubset,
        set.issuperset: c.set_issuperset,
        set.symmetric_difference_update: c.set_symmetric_difference_update,
        set.union: c.set_union,
        set.update: c.set_update,
        frozenset.isdisjoint: c.set_isdisjoint,
        frozenset.issubset: c.set_issubset,
        frozenset.issuperset: c.set_issuperset,
        frozenset.union: c.frozenset_union,
        object.__ne__: c.object_ne,
        operator.length_hint: b.length_hint,
        operator.abs: lambda a, /: a.__abs__(),
        operator.add: lambda a, b, /: a + b,
        operator.and_: lambda a, b, /: a & b,
        operator.call: o.call,
        operator.concat: o.concat,
        operator.contains: lambda a, b, /: b in a,
        operator.countOf: o.count_of,
        operator.delitem: o.delitem,
        operator.eq: lambda a, b, /: a == b,
        operator.floordiv: lambda a, b, /: a // b,
        operator.ge: lambda a, b, /: a >= b,
        operator.getitem: lambda a, b, /: a[b],
        operator.gt: lambda a, b, /: a > b,
        operator.iadd: o.iadd,
        operator.iand: o.iand,
        operator.iconcat: o.iconcat,
        operator.ifloordiv: o.ifloordiv,
        operator.ilshift: o.ilshift,
        operator.imatmul: o.imatmul,
        operator.imod: o.imod,
        operator.imul: o.imul,
        operator.indexOf: o.index_of,
        operator.inv: lambda a, /: ~a,
        operator.invert: lambda a, /: ~a,
        operator.ior: o.ior,
        operator.ipow: o.ipow,
        operator.irshift: o.irshift,
        operator.isub: o.isub,
        operator.itruediv: o.itruediv,
        operator.ixor: o.ixor,
        operator.le: lambda a, b, /: a <= b,
        operator.lshift: lambda a, b, /: a << b,
        operator.lt: lambda a, b, /: a < b,
        operator.matmul: lambda a, b, /: a @ b,
        operator.mod: lambda a, b, /: a % b,
        operator.mul: lambda a, b, /: a * b,
        operator.ne: lambda a, b, /: a != b,
        operator.neg: lambda a, /: -a,
        operator.not_: lambda a, /: not a,
        operator.or_: lambda a, b, /: a | b,
        operator.pos: lambda a, /: +a,
        operator.pow: lambda a, b, /: a**b,
        operator.rshift: lambda a, b, /: a >> b,
        operator.setitem: o.setitem,
        operator.sub: lambda a, b, /: a - b,
        operator.truediv: lambda a, b, /: a / b,
        operator.truth: protocols.truth_of,
        operator.xor: lambda a, b, /: a ^ b,
        operator.attrgetter.__call__: o.attrgetter_call,
        operator.itemgetter.__call__: o.itemgetter_call,
        operator.methodcaller.__call__: o.methodcaller_call,
    }
)

ITER_CALLABLE = b.iter_callable
"""`iter` with two arguments (with one, the interpreter reads `__iter__` itself)."""
ITER_SEQUENCE = i.SequenceIterator
"""`iter` of an object that has no `__iter__`, but a `__getitem__` written in Python."""
