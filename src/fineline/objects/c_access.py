"""Checks whether C may use a value: whether it could do so without running Python code or reading a tensor.

- `may_walk`: C iterates over a container or iterator, without comparisons.
- `may_compare`: C hashes, compares and prints a value and all its contents.
- `may_hash`: C looks a value up as a key, or adds it to a container as one.
- `may_index`: C uses a value as an index.
- `may_print`: C formats a value that it may compare.

`may_compare` and `may_hash` also guard the reasons for a positive answer: the values of numbers, and the identity of keys. The caller guards
the contents of containers (`c_calls.prepare`).
"""

from __future__ import annotations

import collections
import enum
import itertools
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fineline.cpython.c_types import DRIVERS
from fineline.cpython.c_types import ITERATORS as C_ITERATORS
from fineline.cpython.iterator_states import iterator_state
from fineline.exception_slots import ARGS
from fineline.frames.frame import InterpretedGenerator
from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.objects.printing import written_out
from fineline.objects.type_info import in_python, type_info
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.identity_guards import VIEWS, identify, parts
from fineline.tracing.plain_values import is_getter
from fineline.tracing.segment_trace import PINNED, SINGLETONS, VALUES, SegmentTrace, is_value
from fineline.tracing.set_identity_guards import look_up, look_up_key

CONTAINERS = frozenset({list, tuple, torch.Size, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter, types.MappingProxyType})
# Iterators that C's own methods read and advance.
ADVANCED_BY_C = frozenset({*C_ITERATORS, *DRIVERS})
ITERATORS = ADVANCED_BY_C.union([t for t in vars(itertools).values() if is_a(t, type)]) - {itertools.groupby, type(iter(types.GenericAlias(list, int)))}
# Iterators that read none of the items that they hold, and no other iterator.
_MOVING = frozenset({itertools.repeat, itertools.product, itertools.permutations, itertools.combinations, itertools.combinations_with_replacement})
DEFAULT_COMPARE = ("__eq__", "__hash__")
# The methods that C calls on a container or number that it iterates over, and on an object that it hashes, compares and prints.
WALKED = (
    "__iter__", "__len__", "__getitem__", "keys", "__eq__", "__hash__", "__contains__", "__str__", "__lt__", "__index__", "__bool__",
)  # fmt: skip
COMPARED = (
    "__eq__", "__hash__", "__lt__", "__gt__", "__le__", "__ge__", "__str__", "__repr__", "__format__", "__index__", "__float__", "__bool__",
    "__len__",
)  # fmt: skip
ORDER = ("__ne__", "__gt__", "__le__", "__ge__")
ITEMS = ("__iter__", "__next__", "__getitem__")
PRINTED = ("__str__", "__repr__", "__format__")
# The namespaces of Python methods that print only the contents: those of enumerations, named tuples and counters.
PRINTING_MEMBERS = (vars(enum), vars(collections))


def is_structseq(cls: type) -> bool:
    """Returns whether a class is a tuple of C's with names for its items, such as ``torch.return_types.max``."""
    return cls.__base__ is tuple and "n_sequence_fields" in vars(cls)


def hashable(obj: Any) -> bool:
    """Returns whether a lookup of ``obj`` in a table runs no user code."""
    h = type(obj).__hash__
    return h is object.__hash__ or (not in_python(h) and h is not None and not is_a(obj, (tuple, frozenset, weakref.ref)))


def overridden(trace: SegmentTrace, t: type, names: tuple[str, ...]) -> bool:
    """Returns whether a class defines one of these methods in Python."""
    info = type_info(trace, t)
    return any(in_python(info.look(trace, n)[1]) for n in names)


def may_walk(trace: SegmentTrace, a: Any) -> bool:
    """Returns whether C may iterate over ``a`` without running Python code."""
    t = type(a)
    if t in SINGLETONS or t in VALUES or t in CONTAINERS or t in VIEWS or t in SYMBOLIC:
        return a not in trace.deferred.texts
    if t in ITERATORS:
        return a not in trace.sources and _iterator_plain(trace, a)
    if is_a(a, Tensor) or is_a(a, InterpretedGenerator):
        return False
    if is_a(a, PINNED):
        return not is_a(a, type) or type(a) is type
    if not is_users_class(t):
        return False
    if is_a(a, (list, tuple, dict, set, frozenset, deque, int, str, float, bytes)):
        return not overridden(trace, t, WALKED)
    return False


def _iterator_plain(trace: SegmentTrace, it: Any, within: tuple[int, ...] = ()) -> bool:
    """Returns whether C may advance a native iterator: it runs no Python iterators, and advances no iterator from before the segment."""
    if type(it) in _MOVING:
        return True
    if type(it) in (zip, enumerate) or type(it).__module__ == "itertools":
        try:
            parts = iterator_state(it)
        except TypeError:
            return False
        return not _has_python(trace, parts[1:], within)
    return True


def _has_python(trace: SegmentTrace, x: Any, within: tuple[int, ...]) -> bool:
    """Returns whether C would run Python code for ``x``. ``within``: the lists and iterators around it, because one may contain itself."""
    if id(x) in within:
        return False
    if is_a(x, (tuple, list)):
        return any(_has_python(trace, y, (*within, id(x))) for y in x)
    if type(x) in ITERATORS:
        return x in trace.sources or not _iterator_plain(trace, x, (*within, id(x)))
    return is_a(x, (InterpretedGenerator, types.FunctionType, types.MethodType, Tensor)) or (
        is_users_class(type(x)) and is_a(getattr(type(x), "__next__", None), types.FunctionType)
    )


def has_python_items(trace: SegmentTrace, a: Any) -> bool:
    """Returns whether iterating over ``a`` runs Python code."""
    t = type(a)
    return is_users_class(t) and not is_a(a, (Tensor, PINNED)) and overridden(trace, t, ITEMS)


def may_compare(trace: SegmentTrace, a: Any, path: tuple[int, ...] = ()) -> bool:
    """Returns whether C may hash, compare and print ``a`` and all its contents."""
    t = type(a)
    if a in trace.deferred.texts:
        return False
    if t in SINGLETONS or t in VALUES:
        if trace.deferred.numbers:
            trace.deferred.settle(a)
        if t is slice and not is_value(a):
            return all([may_compare(trace, x, path) for x in (a.start, a.stop, a.step)])
        return True
    # In a cycle, each way around would be followed.
    if len(path) > 40 or id(a) in path or is_a(a, Tensor):
        return False
    if is_a(a, PINNED) or is_getter(a):
        return _held_plain(trace, a)
    path = (*path, id(a))
    if is_a(a, BaseException) and not all([may_compare(trace, x, path) for x in ARGS.__get__(a)]):
        return False
    if t is tuple or t is list or t is set or t is frozenset or t is deque or t is torch.Size:
        return all([may_compare(trace, x, path) for x in a])
    if t in (dict, OrderedDict, defaultdict, Counter, types.MappingProxyType):
        return all([may_compare(trace, k, path) and may_compare(trace, v, path) for k, v in a.items()])
    if t in VIEWS or t in ITERATORS:
        return t in VIEWS and all([may_compare(trace, x, path) for x in a])
    if not is_users_class(t):
        return t in (bytearray, slice, types.FunctionType, types.MethodType, object) or is_a(a, BaseException)
    if is_a(a, (list, tuple, dict, set, frozenset, deque)):
        items = a.items() if is_a(a, dict) else a
        return may_walk(trace, a) and not overridden(trace, t, ORDER) and all([may_compare(trace, x, path) for x in items])
    return (may_walk(trace, a) and (t in SYMBOLIC or not overridden(trace, t, ORDER))) or not overridden(trace, t, COMPARED)


def _held_plain(trace: SegmentTrace, a: Any) -> bool:
    """Returns whether C may hash and compare a class, an enum member, or another constant: a metaclass or enum may define its own methods."""
    if is_a(a, type):
        return type(a) is type or not overridden(trace, type(a), DEFAULT_COMPARE)
    return not is_a(a, enum.Enum) or not overridden(trace, type(a), ("__eq__",))


def may_hash(trace: SegmentTrace, a: Any, among: Any = None) -> bool:
    """Returns whether C may hash and compare ``a`` as a key; ``among``: the container whose keys it is compared with."""
    t = type(a)
    if a in trace.deferred.texts:
        return False
    if t in SINGLETONS or t in VALUES:
        if trace.deferred.numbers:
            trace.deferred.settle(a)
        if type(among) is set and among in trace.containers.lookups:
            # Its identity needs no guard, but the set may grow by it.
            look_up(trace, a, among)
        return True
    if t is np.ndarray:
        # It has no hash, but may stand for a scalar, which has one.
        return False
    held = (is_a(a, PINNED) and is_value(a)) or is_getter(a)
    if held and (a not in trace.classes.local or not _held_plain(trace, a)):
        return _held_plain(trace, a)
    if t is tuple or t is frozenset:
        return all([may_hash(trace, x) for x in a])
    if not held and not is_a(a, Tensor) and overridden(trace, t, DEFAULT_COMPARE):
        return False
    if type(among) is set and among not in trace.sources:
        look_up(trace, a, among)
    elif is_a(among, (dict, set, frozenset, list)) and among not in trace.sources:
        look_up_key(trace, a, among)
    elif type(among) not in (set, frozenset) or among not in trace.sources or is_a(a, Tensor):
        # The elements of a set from outside have guards; the caller guards that `a` differs from them (`guard_distinct_from`), but for
        # tensors, which may have been added to it just now.
        for part in parts(trace, a):
            identify(trace, part)
    return True


def may_hash_keys(trace: SegmentTrace, a: Any, among: list | None, pairs: bool) -> bool:
    """Returns whether C may hash the items of ``a`` that become keys without running Python code."""
    # The items of an iterator are known only after it has been advanced.
    return type(a) not in ITERATORS and all([may_hash(trace, k, among) for k in keys_of(a, pairs)])


def keys_of(a: Any, pairs: bool) -> Iterable:
    """Returns the items of ``a`` that become keys: all of them, or the first of each item if they are ``pairs``."""
    if is_a(a, dict):
        return dict.keys(a)
    if not is_a(a, (list, tuple, set, frozenset, deque)) and type(a) not in VIEWS:
        return ()
    return [k[0] if is_a(k, (list, tuple)) and k else k for k in a] if pairs else a


def may_index(a: Any) -> bool:
    """Returns whether C may call ``__index__`` or ``__bool__`` of ``a``: for ints, these run no Python code."""
    if type(a) is slice:
        return may_index(a.start) and may_index(a.stop) and may_index(a.step)
    return a is None or is_a(a, int)


def may_print(trace: SegmentTrace, a: Any, within: tuple[int, ...] = ()) -> bool:
    """Returns whether C can format ``a``, which it may compare, without running user code in Python, and whether each call gets the same text."""
    t = type(a)
    if t in SYMBOLIC or id(a) in within:
        return True
    if not within and prints_address(a):
        return False
    if is_users_class(t) and not all([_prints_in_c(trace, t, name) for name in PRINTED]):
        return False
    if is_a(a, dict):
        items: Any = [*dict.keys(a), *dict.values(a)]
    elif is_a(a, (list, tuple, set, frozenset, deque)):
        items = a
    elif t is slice:
        items = a.start, a.stop, a.step
    else:
        # For these containers there is no copy with plain numbers instead of symbols.
        items = ARGS.__get__(a) if is_a(a, BaseException) else a if t in VIEWS else [*a.items()] if t is types.MappingProxyType else ()
        if any([written_out(x) is not x for x in items]):
            return False
    return all([may_print(trace, x, (*within, id(a))) for x in items])


def prints_address(a: Any, within: tuple[int, ...] = ()) -> bool:
    """Returns whether the text of ``a``, if C makes it, contains the address of an object."""
    t = type(a)
    if id(a) in within or (t is not slice and (t in SINGLETONS or t in VALUES or t in SYMBOLIC)):
        return False
    if is_a(a, PINNED):
        return is_a(a, (types.BuiltinFunctionType, torch._ops.OpOverload))
    within = (*within, id(a))
    items: Any
    if t is slice:
        items = a.start, a.stop, a.step
    elif is_a(a, dict):
        made = (a.default_factory,) if is_a(a, defaultdict) else ()
        items = *made, *dict.keys(a), *dict.values(a)
    elif is_a(a, (list, tuple, set, frozenset, deque)) or t in VIEWS:
        items = a
    elif t is types.MappingProxyType:
        items = [*a.items()]
    elif is_a(a, BaseException):
        items = ARGS.__get__(a)
    else:
        return not is_a(a, (int, float, complex, str, bytes, bytearray))
    return any([prints_address(x, within) for x in items])


def _prints_in_c(trace: SegmentTrace, t: type, name: str) -> bool:
    method = type_info(trace, t).look(trace, name)[1]
    return not in_python(method) or (is_a(method, types.FunctionType) and any([method.__globals__ is names for names in PRINTING_MEMBERS]))
