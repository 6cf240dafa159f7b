"""The table of C functions and types that fineline knows: what a call of each does, and how a capture makes it.

A callable that is not in the table is opaque. Words set the columns of a callable's row, a `CallableSpec`. First the effect of the call:

  pure      has no side effect; the result is new or comes from the arguments
  mutator   changes its first argument
  advance   advances an iterator, its first argument
  callback  always calls Python code that it gets as an argument: the interpreter runs its polyfill instead
  handled   a handler of the interpreter answers every call (`builtins/handlers.py`)
  refused   the call is a graph break

Then how far C looks into the arguments, and therefore when the call may be made natively:

  none      their identity, type and plain fields; no element is touched
  shallow   moves references to elements of containers; iterates iterables; Python code runs only if an argument is itself an
            iterator or container whose type is defined in Python
  key       shallow, and hashes and compares keys: the key arguments, or all objects that become keys of a dict or set
  deep      may call any special method of any argument and of the elements of containers (`__eq__`, `__index__`, `__str__` ...)

If every object that C touches is of an immutable builtin type (or is hashed by identity), the call cannot reach Python code.

The other words are the names of traits, which `CallableSpec` explains, or set a column: `index:0,1`, `args:1,2`, `methods:__add__`.
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
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fineline.cpython.c_types import methods, words_by_name
from fineline.cpython.numpy_scalars import numpy_natives
from fineline.kinds import is_a
from fineline.tables import attributes

EFFECTS = frozenset({"pure", "mutator", "advance", "callback", "handled", "refused"})
READS = frozenset({"none", "shallow", "key", "deep"})


@dataclass(frozen=True, slots=True)
class CallableSpec:
    """One row of the table: the facts about a call of a C callable."""

    effect: str
    reads: str = "deep"
    # Positions of arguments (or slices with parts) on which C calls `__index__` or, for a flag, `__bool__`. A row that reads less than
    # `deep` lists all: an argument other than an int, a bool, None or a slice of these would run Python code, or read a tensor.
    index: tuple[int, ...] = ()
    # The least and the most arguments that a handler takes, by position only; without the second, any number, also by name.
    args: tuple[int, ...] = ()
    # The special methods that C looks up on the arguments, in addition to those that any C code may look up.
    methods: tuple[str, ...] = ()
    # C dispatches on the type of the first argument: the first of `methods` runs instead of C if it is written in Python.
    protocol: bool = False
    checks_result: bool = False  # C checks the type of that special method's result.
    handler_first: bool = False  # A handler is called first; C runs if the handler does not answer.
    moves_only: bool = False  # Moves objects and reads none of them; symbolic numbers stay symbolic.
    # Computes with one item after the other, and Python code can do the same: with symbolic numbers, its polyfill runs.
    one_by_one: bool = False
    sorts: bool = False  # Compares items; the results of comparisons of symbolic numbers are guarded.
    keyed: bool = False  # Calls its argument `key=` with the items; it neither compares nor prints that argument.
    # A type that makes a value of a number, or contains it; not an iterator or range, whose instances have to be recognized later.
    makes_value: bool = False
    number: bool = False  # Converts a tensor to a number.
    walks: bool = False  # Iterates over its arguments. (Other methods iterate only over their object.)
    nested: bool = False  # Iterates over the items of its arguments, unless these are dicts.
    merges: bool = False  # Makes a dict from the keys of two dicts.
    set_algebra: bool = False  # Looks up the elements of one set, or of other iterables, in another set.
    compares_identity: bool = False  # Compares elements, so that their identity counts.
    asks_identity: bool = False  # Compares its two arguments by identity.
    order_independent: bool = False  # Does not depend on the order of a set's elements.
    sets_slice: bool = False  # Iterates over the replacement of a slice.
    # Reads no item of the list or deque: if code only appends to it, its length needs no guard.
    appends: bool = False
    one_element: bool = False  # Looks up its argument, and changes no other element.
    list_reader: bool = False  # Makes an iterator that reads lists, or other iterators over lists, one item at a time.
    makes_iterators: bool = False  # The polyfill is not an iterator class; it may return an iterator, or a tuple of them.
    prints: bool = False  # Makes a text of the whole contents of its arguments.
    writes_out: bool = False  # Makes a text or a hash; symbolic numbers have neither.
    # Python code that does the same, and the form for symbolic numbers (`objects/callable_table.py` adds them).
    polyfill: Callable[..., Any] | None = None
    symbolic: Callable[..., Any] | None = None

    def __str__(self) -> str:
        words = [self.effect] if self.effect in ("handled", "refused") else [self.effect, self.reads]
        for name in self.__slots__[2:]:
            value = getattr(self, name)
            if value is True:
                words.append(name)
            elif callable(value):
                words.append(f"{name}:{value.__module__}.{value.__qualname__}")
            elif value:
                words.append(f"{name}:{','.join(map(str, value))}")
        return " ".join(words)


def parsed(words: str, polyfill: Callable[..., Any] | None = None, symbolic: Callable[..., Any] | None = None) -> CallableSpec:
    """Returns the row that ``words`` describe; the last of several effects counts."""
    columns: dict[str, Any] = {}
    for word in words.split():
        name, _, value = word.partition(":")
        if word in EFFECTS or word == "-":
            columns |= {"effect": word, "reads": "deep"}
        elif word in READS:
            columns["reads"] = word
        elif name in ("index", "args"):
            columns[name] = tuple(map(int, value.split(",")))
        else:
            columns[name] = tuple(value.split(",")) if value else True
    return CallableSpec(**columns, polyfill=polyfill, symbolic=symbolic)


_FUNCTIONS: Mapping[Any, Mapping[str, str]] = MappingProxyType(
    {
        builtins: {
            "pure none": "slice",
            "pure shallow": "enumerate len list reversed tuple zip BaseExceptionGroup ExceptionGroup",
            "pure key": "dict frozenset set",
            "pure deep": "abs all any ascii bin bytearray bytes chr complex divmod float hex int max min oct ord pow range round sorted sum",
            "callback deep": "map filter",
            "handled": "__build_class__ bool breakpoint classmethod eval exec format globals locals object property staticmethod str type",
            "handled args:0,1": "dir vars",
            "handled args:0,2": "super",
            "handled args:1,1": "callable hash id repr",
            "handled args:1,2": "iter next",
            "handled args:2,2": "delattr hasattr isinstance issubclass",
            "handled args:2,3": "getattr",
            "handled args:3,3": "setattr",
            "refused": "__import__ aiter anext compile exit help input open print quit",
            "-": "memoryview __loader__ copyright credits license",
            "handler_first": "enumerate len range zip",
            "protocol": "abs bytes complex float int reversed round",
            "makes_iterators": "reversed",
            "methods:__int__,__trunc__": "int",
            "methods:__divmod__,__rdivmod__": "divmod",
            "methods:__pow__,__rpow__": "pow",
            "methods:__add__,__radd__": "sum",
            "checks_result": "bytes complex float int",
            "index:0": "bin bytearray bytes chr hex oct",
            "index:1": "enumerate round",
            "index:0,1,2": "range",
            "moves_only": "enumerate filter list map reversed slice tuple zip",
            "list_reader": "enumerate reversed zip",
            "one_by_one": "filter map pow sum",
            "one_by_one sorts keyed": "sorted",
            "keyed": "max min",
            "makes_value": "bytes complex",
            "number": "complex float int",
            "nested": "dict",
            "order_independent": "len",
            "prints writes_out": "ascii",
        },
        math: {
            "pure deep": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist erf erfc exp exp2 "
            "expm1 fabs factorial floor fma fmod frexp fsum gamma gcd hypot isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 "
            "log1p log2 modf nextafter perm pow prod radians remainder sin sinh sqrt sumprod tan tanh trunc ulp",
            "protocol": "ceil floor trunc",
            "index:0": "factorial isqrt",
            "index:0,1": "comb gcd lcm perm",
        },
        cmath: {
            "pure deep": "acos acosh asin asinh atan atanh cos cosh exp isclose isfinite isinf isnan log log10 phase polar rect sin "
            "sinh sqrt tan tanh",
        },
        _operator: {
            "pure none": "is_ is_not _compare_digest",
            "callback none": "is_none is_not_none",
            "pure deep": "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert le "
            "lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
            "handler_first": "inv invert",
            "pure shallow": "attrgetter itemgetter methodcaller",
            "mutator deep": "delitem iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem",
            "callback deep": "call",
            "handled args:1,2": "length_hint",
            "protocol checks_result number methods:__index__": "index",
            "methods:__add__": "concat",
            "methods:__iadd__,__add__": "iconcat",
            "one_by_one": "add floordiv mod mul pow sub truediv eq ne lt le gt ge",
            "compares_identity": "eq ne contains countOf indexOf and_ or_ sub xor iand ior isub ixor",
            "asks_identity": "is_ is_not",
            "prints writes_out": "mod imod",
        },
        itertools: {
            "pure none": "repeat",
            "pure shallow": "chain combinations combinations_with_replacement cycle islice permutations product tee zip_longest",
            "pure deep": "compress count",
            "callback deep": "accumulate batched dropwhile filterfalse groupby pairwise starmap takewhile",
            "index:1": "combinations combinations_with_replacement permutations repeat tee",
            "index:1,2,3": "islice",
            "moves_only": "chain cycle islice pairwise product zip_longest",
            "one_by_one": "accumulate dropwhile filterfalse groupby starmap takewhile",
            "makes_iterators": "tee",
        },
        bisect: {"pure deep one_by_one sorts keyed": "bisect_left bisect_right"},
        heapq: {
            "mutator deep one_by_one sorts": "_heapify_max _heappop_max _heapreplace_max heapify heapify_max heappop heappop_max "
            "heappush heappush_max heappushpop heappushpop_max heapreplace heapreplace_max",
        },
        os: {"handled": "fspath"},
        pickle: {"pure deep handler_first": "dumps"},
        struct: {"pure deep": "calcsize pack unpack"},
        functools: {
            "callback deep": "cmp_to_key",
            "callback deep one_by_one": "reduce",
            "pure none": "partial",
            "refused": "_lru_cache_wrapper",
        },
        collections: {
            "pure none": "_tuplegetter",
            "pure shallow moves_only index:1": "deque",
            "pure key nested": "OrderedDict defaultdict",
            "mutator key": "_count_elements",
        },
        types: {
            "pure none": "CellType EllipsisType GenericAlias MappingProxyType MethodType NoneType NotImplementedType",
            "pure none makes_value": "SimpleNamespace",
            "refused": "FunctionType ModuleType",
        },
        _weakref: {"refused handler_first": "ref", "refused": "proxy getweakrefcount getweakrefs"},
        sys: {
            "pure none": "getdefaultencoding getfilesystemencoding getfilesystemencodeerrors intern is_finalizing",
            "handled": "exc_info exception",
            "refused handler_first": "_getframe",
            "refused": "getrecursionlimit exit getrefcount getsizeof settrace setprofile gettrace getprofile",
        },
    }
)
"""Names by module and words; a name may be in several lines. The word `-` is for names left out on purpose."""


def _exceptions() -> Iterator[tuple[Any, str]]:
    for value in vars(builtins).values():
        if is_a(value, type) and issubclass(value, BaseException) and not issubclass(value, BaseExceptionGroup):
            yield value, "pure none"


def _functions() -> Iterator[tuple[Any, str]]:
    for module, lines in _FUNCTIONS.items():
        for name, words in words_by_name(lines).items():
            if "methods:" not in words:
                words += f" methods:__{name}__" if "protocol" in words else _special_methods(name.strip("_")) if module is _operator else ""
            yield from [(fn, words) for fn in attributes(module, name)]


def _special_methods(word: str) -> str:
    """Returns the column `methods` of a function of `operator`."""
    if f"__{word}__" not in vars(operator):
        return ""
    plain = word[1:] if word[0] == "i" and {word[1:], f"{word[1:]}_"} & vars(_operator).keys() else word
    return f" methods:{','.join(dict.fromkeys((f'__{word}__', f'__{plain}__', f'__r{plain}__')))}"


def rows() -> Iterator[tuple[Callable[..., Any], str]]:
    """Yields all callables of the table, each with the words of its row; those left out have the effect `-`."""
    yield from methods()
    yield from numpy_natives()
    yield from _exceptions()
    yield from _functions()
