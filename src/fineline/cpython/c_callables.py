"""The effects of calling a C function or type: the default-deny table for every native call made during capture.

A callable that is not in the table is opaque. `Native.kind` is the effect of the call:

  pure      has no side effect; the result is new or comes from the arguments
  mutator   changes its first argument
  advance   advances an iterator, its first argument
  callback  always calls Python code that it gets as an argument: the interpreter runs its polyfill instead
  special   the interpreter has a handler for it, or refuses the call because there is none

`Native.reads` says how far C looks into the arguments, and therefore when the call may be made natively:

  none      their identity, type and plain fields; no element is touched
  shallow   moves references to elements of containers; iterates iterables; Python code runs only if an argument is itself an
            iterator or container whose type is defined in Python
  key       shallow, and hashes and compares keys: the key arguments, or whatever becomes a key of a dict or set
  deep      may call any special method of any argument and of the elements of containers (`__eq__`, `__index__`, `__str__` ...)

If every object that C touches is of an immutable builtin type (or is hashed by identity), the call cannot reach Python code.
"""

from __future__ import annotations

import _operator
import _weakref
import bisect
import builtins
import cmath
import collections
import functools
import heapq
import itertools
import math
import operator
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fineline.cpython.c_types import methods
from fineline.cpython.numpy_scalars import numpy_natives
from fineline.kinds import is_a
from fineline.tables import attributes


class Native(NamedTuple):
    kind: str
    reads: str


_FUNCTIONS: Mapping[Any, Mapping[str, str]] = MappingProxyType(
    {
        builtins: {
            "pure none": "slice",
            "pure shallow": "enumerate len list reversed tuple zip BaseExceptionGroup ExceptionGroup",
            "pure key": "dict frozenset set",
            "pure deep": "abs all any ascii bin bool bytearray bytes chr complex divmod float format hex int max min oct ord pow range "
            "round sorted str sum",
            "callback deep": "map filter",
            "special": "__build_class__ __import__ aiter anext breakpoint callable classmethod compile delattr dir eval exec exit "
            "getattr globals hasattr hash help id input isinstance issubclass iter locals next object open print property quit repr "
            "setattr staticmethod super type vars",
            "-": "memoryview __loader__ copyright credits license",
        },
        math: {
            "pure deep": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist erf erfc exp exp2 "
            "expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 "
            "log1p log2 modf nextafter perm pow prod radians remainder sin sinh sqrt tan tanh trunc ulp",
        },
        cmath: {
            "pure deep": "acos acosh asin asinh atan atanh cos cosh exp isclose isfinite isinf isnan log log10 phase polar rect sin "
            "sinh sqrt tan tanh",
        },
        _operator: {
            "pure none": "is_ is_not _compare_digest",
            "pure deep": "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert le "
            "lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
            "pure shallow": "attrgetter itemgetter methodcaller",
            "mutator deep": "delitem iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem",
            "callback deep": "call",
            "special": "length_hint",
        },
        itertools: {
            "pure none": "repeat",
            "pure shallow": "chain combinations combinations_with_replacement cycle islice permutations product tee zip_longest",
            "pure deep": "compress count",
            "callback deep": "accumulate dropwhile filterfalse groupby pairwise starmap takewhile",
        },
        bisect: {"pure deep": "bisect_left bisect_right"},
        heapq: {"mutator deep": "_heapify_max _heappop_max _heapreplace_max heapify heappop heappush heappushpop heapreplace"},
        os: {"special": "fspath"},
        pickle: {"pure deep": "dumps"},
        struct: {"pure deep": "calcsize pack unpack"},
        functools: {"callback deep": "cmp_to_key reduce", "pure none": "partial", "special": "_lru_cache_wrapper"},
        collections: {
            "pure none": "_tuplegetter",
            "pure shallow": "deque",
            "pure key": "OrderedDict defaultdict",
            "mutator key": "_count_elements",
        },
        types: {
            "pure none": "CellType GenericAlias MappingProxyType MethodType SimpleNamespace",
            "special": "FunctionType ModuleType",
        },
        _weakref: {"special": "ref proxy getweakrefcount getweakrefs"},
        sys: {
            "pure none": "getdefaultencoding getfilesystemencoding getfilesystemencodeerrors intern is_finalizing",
            "special": "getrecursionlimit _getframe exc_info exception exit getrefcount getsizeof settrace setprofile gettrace getprofile",
        },
    }
)
"""module -> class -> names; the class `-` is for names left out knowingly."""

_SINGLES: tuple[tuple[Any, str], ...] = (
    (type(None), "pure none"),
    (type(...), "pure none"),
    (type(NotImplemented), "pure none"),
    (property.__init__, "mutator none"),
)

PROTOCOL: Mapping[Any, str] = MappingProxyType(
    {
        abs: "__abs__",
        bool: "__bool__",
        bytes: "__bytes__",
        complex: "__complex__",
        dir: "__dir__",
        float: "__float__",
        format: "__format__",
        hash: "__hash__",
        int: "__int__",
        iter: "__iter__",
        len: "__len__",
        next: "__next__",
        repr: "__repr__",
        reversed: "__reversed__",
        round: "__round__",
        str: "__str__",
        math.ceil: "__ceil__",
        math.floor: "__floor__",
        math.trunc: "__trunc__",
        operator.index: "__index__",
    }
)
"""Functions that dispatch on the type of their first argument: the special method to run if that is written in Python."""


def _special_methods() -> Iterator[tuple[Callable, tuple[str, ...]]]:
    yield from [(fn, (name,)) for fn, name in PROTOCOL.items()]
    for name in vars(_operator):
        word = name.strip("_")
        plain = word[1:] if word[0] == "i" and {word[1:], f"{word[1:]}_"} & vars(_operator).keys() else word
        if name == name.rstrip("_") or name == f"{word}_":
            yield getattr(_operator, name), (f"__{word}__", f"__{plain}__", f"__r{plain}__")
    yield from (
        (int, ("__int__", "__trunc__")), (complex, ("__complex__",)), (divmod, ("__divmod__", "__rdivmod__")), (pow, ("__pow__", "__rpow__")),
        (sum, ("__add__", "__radd__")), (operator.concat, ("__add__",)), (operator.iconcat, ("__iadd__", "__add__")),
    )  # fmt: skip


SPECIAL_METHODS: Mapping[int, tuple[str, ...]] = MappingProxyType({id(fn): names for fn, names in _special_methods()})
"""By id: the special methods that a function looks for in its arguments, beside those that all C code may ask for."""


def _exceptions() -> Iterator[tuple[Any, str]]:
    for value in vars(builtins).values():
        if is_a(value, type) and issubclass(value, BaseException) and not issubclass(value, BaseExceptionGroup):
            yield value, "pure none"


def _entries() -> Iterator[tuple[Any, str]]:
    yield from methods()
    yield from numpy_natives()
    yield from _exceptions()
    for module, classes in _FUNCTIONS.items():
        for verdict, names in classes.items():
            if verdict != "-":
                yield from [(fn, verdict) for fn in attributes(module, names)]
    yield from _SINGLES


def _native(verdict: str) -> Native:
    kind, _, reads = verdict.partition(" ")
    return Native(kind, reads or "deep")


_TABLE: tuple[tuple[Callable[..., Any], Native], ...] = tuple((fn, _native(verdict)) for fn, verdict in _entries())
_BY_VALUE: Mapping[Callable[..., Any], Native] = MappingProxyType(dict(_TABLE))
_BY_ID: Mapping[int, Native] = MappingProxyType({id(fn): native for fn, native in _TABLE})

SPECIAL: frozenset[Callable[..., Any]] = frozenset(fn for fn, native in _BY_VALUE.items() if native.kind == "special")
INDEX_ARGS: Mapping[Callable[..., Any], tuple[int, ...]] = MappingProxyType(
    {
        **{fn: (1,) for t in (list, tuple, collections.deque) for fn in (t.__getitem__, t.__mul__, t.__rmul__)},
        **{fn: (1,) for t in (list, collections.deque) for fn in (t.__setitem__, t.__delitem__, t.__imul__, t.insert)},
        list.pop: (1,),
        collections.OrderedDict.move_to_end: (2,),
        collections.OrderedDict.popitem: (1,),
        collections.deque.rotate: (1,),
        collections.deque: (1,),
        enumerate: (1,),
        itertools.combinations: (1,),
        itertools.combinations_with_replacement: (1,),
        itertools.islice: (1, 2, 3),
        itertools.permutations: (1,),
        itertools.repeat: (1,),
        itertools.tee: (1,),
        **dict.fromkeys((bin, bytearray, bytes, chr, hex, oct, math.factorial, math.isqrt), (0,)),
        **dict.fromkeys((math.comb, math.gcd, math.lcm, math.perm), (0, 1)),
        **{getattr(str, name): (1,) for name in ("__getitem__", "__mul__", "__rmul__", "center", "ljust", "rjust", "zfill")},
        **{getattr(bytes, name): (1,) for name in ("__getitem__", "__mul__", "__rmul__")},
        range: (0, 1, 2),
        round: (1,),
    }
)
"""Callables -> positions of arguments that C puts through `__index__` (in a slice, the parts of it) or, as a flag, through
`__bool__`. Of those that read less than `deep`, all: an int, a bool, None or a slice of these, or else Python code runs, or a tensor is read."""
def classify(fn: object) -> Native | None:
    """Returns the class of a C callable, or None if it is not known and so must not be called during capture.

    Looks up by identity, so never runs a `__hash__` or `__eq__` of the user's. A classmethod such as `dict.fromkeys` is a new
    object each time it is read: it is found by value, bound to the type that defines it, and also as the descriptor in that type.
    """
    native = _BY_ID.get(id(fn))
    if native is None and type(fn) is types.BuiltinFunctionType:
        return _BY_VALUE.get(fn)
    return native


def listed() -> Iterator[tuple[Callable[..., Any], Native]]:
    """Yields all callables of the table, with their class."""
    yield from _TABLE
