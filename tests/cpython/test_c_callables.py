"""The table of native callables: nothing is missing, nothing is looked up through user code, and samples do what their class says."""

from __future__ import annotations

import builtins
import cmath
import collections
import dis
import functools
import inspect
import itertools
import math
import operator
import os
import random
import time
import types
import weakref
from typing import Any

import pytest

from fineline.builtins.handlers import HANDLERS
from fineline.cpython.c_callables import _FUNCTIONS, EFFECTS, READS, CallableSpec
from fineline.cpython.c_types import C_DESCRIPTORS, TYPES
from fineline.objects.callable_table import SPECS, UNKNOWN, spec_of
from fineline.objects.polyfills import POLYFILLS

LEFT_OUT = {"__loader__", "copyright", "credits", "license", "memoryview"}
PRIVATE = {
    "_grouper", "_tee", "_tee_dataobject", "RLock", "__loader__", "_CacheInfo", "_HashedSeq", "cached_property", "get_cache_token",
    "partialmethod", "singledispatchmethod", "UnionType", "_PlaceholderType", "_singledispatchmethod_get",
}  # fmt: skip


@pytest.mark.parametrize("module", [builtins, math, cmath, operator, itertools, functools])
def test_every_callable_of_a_module(module: types.ModuleType) -> None:
    unknown = {
        name
        for name in dir(module)
        if callable(value := getattr(module, name)) and not isinstance(value, types.FunctionType) and spec_of(value) is UNKNOWN
    }
    assert unknown - {"GenericAlias"} <= LEFT_OUT | PRIVATE


def test_every_method_of_each_type() -> None:
    left_out = {
        (facts.type.__name__, name)
        for facts in TYPES
        for name, value in vars(facts.type).items()
        if isinstance(value, C_DESCRIPTORS) and spec_of(value) is UNKNOWN
    }
    assert {t for t, _ in left_out} <= {
        "bytearray", "code", "Pattern", "generator",
        "map", "filter", "accumulate", "dropwhile", "filterfalse", "groupby", "starmap", "takewhile",
    }  # fmt: skip


def test_names_in_the_facts_exist() -> None:
    for facts in TYPES:
        names = {name for line in facts.lines.values() for name in line.split()}
        if facts.type in (str, bytes, bytearray) or facts.default == "refused":
            continue  # rows that share a list of names
        shared = {"__hash__", "__new__", "__class_getitem__", "__reversed__", "__repr__"}
        assert {n for n in names - shared if not hasattr(facts.type, n)} == set(), facts.type


def test_words() -> None:
    for fn, spec in SPECS.items():
        assert spec.effect in EFFECTS and spec.reads in READS, fn


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (len, ("pure", "shallow")),
        (sorted, ("pure", "deep")),
        (any, ("pure", "deep")),
        (list, ("pure", "shallow")),
        (dict, ("pure", "key")),
        (set, ("pure", "key")),
        (isinstance, ("handled", "deep")),
        (map, ("callback", "deep")),
        (functools.reduce, ("callback", "deep")),
        (list.append, ("mutator", "shallow")),
        (list.pop, ("mutator", "shallow")),
        (list.copy, ("pure", "shallow")),
        (list.index, ("pure", "deep")),
        (list.__eq__, ("pure", "deep")),
        (list.__contains__, ("pure", "deep")),
        (dict.get, ("pure", "key")),
        (dict.items, ("pure", "none")),
        (dict.__setitem__, ("mutator", "key")),
        (dict.fromkeys, ("pure", "key")),
        (dict.__dict__["fromkeys"], ("pure", "key")),
        (dict.__init__, ("handled", "deep")),
        (collections.OrderedDict.move_to_end, ("mutator", "key")),
        (collections.defaultdict.__missing__, ("callback", "key")),
        (collections.deque.appendleft, ("mutator", "shallow")),
        (set.add, ("mutator", "key")),
        (set.__or__, ("pure", "key")),
        (str.join, ("pure", "deep")),
        (str.upper, ("pure", "none")),
        (str.maketrans, ("pure", "deep")),
        (int.from_bytes, ("pure", "deep")),
        (int.bit_length, ("pure", "none")),
        (float.is_integer, ("pure", "none")),
        (object.__new__, ("handled", "deep")),
        (object.__setattr__, ("handled", "deep")),
        (object.__eq__, ("pure", "none")),
        (object.__ne__, ("pure", "deep")),
        (tuple.__new__, ("pure", "shallow")),
        (ValueError, ("pure", "none")),
        (type(iter([])).__next__, ("advance", "shallow")),
        (enumerate.__next__, ("advance", "deep")),
        (itertools.chain.from_iterable, ("pure", "shallow")),
        (operator.iadd, ("mutator", "deep")),
        (weakref.ref, ("refused", "deep")),
        (next, ("handled", "deep")),
    ],
)
def test_samples(fn: Any, expected: tuple[str, str]) -> None:
    spec = spec_of(fn)
    assert (spec.effect, spec.reads) == expected


@pytest.mark.parametrize("fn", [time.time, random.random, os.getcwd, random.Random.random, map.__next__, [].append, 5, None, "x", [], {}])
def test_unknown(fn: Any) -> None:
    assert spec_of(fn) is UNKNOWN


def test_lookup_runs_no_user_code() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise AssertionError

        def __eq__(cls, other: object) -> bool:
            raise AssertionError

    class Callable(metaclass=Meta):
        def __hash__(self) -> int:
            raise AssertionError

        def __call__(self) -> None: ...

    assert spec_of(Callable) is spec_of(Callable()) is UNKNOWN


def test_handled_and_refused() -> None:
    handled = {fn for fn, spec in SPECS.items() if spec.effect == "handled"}
    assert {getattr, setattr, isinstance, type, super, next, iter, id, hash, object.__init__, property} <= handled
    assert {spec_of(fn).effect for fn in (print, input, open, object.__reduce__)} == {"refused"}
    assert list in {facts.type for facts in TYPES}


# -- no row is shadowed: each says what is done ------------------------------------------------------------------------
def leaves_to_c(handler: Any, seen: set[int]) -> bool:
    """Whether the code of a handler, or of a function of fineline's that it names, calls `c_calls.call_c`."""
    codes = [handler.__code__]
    if id(handler) in seen:
        return False
    seen.add(id(handler))
    for code in codes:
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        found = list(dis.get_instructions(code))
        if any(a.argval == "c_calls" and b.argval == "call_c" for a, b in itertools.pairwise(found)):
            return True
        named = [handler.__globals__.get(i.argval) for i in found if i.opname == "LOAD_GLOBAL"]
        if any(leaves_to_c(fn, seen) for fn in named if isinstance(fn, types.FunctionType) and (fn.__module__ or "").startswith("fineline.")):
            return True
    return False


def test_a_handled_callable_has_a_handler() -> None:
    """An effect beside a handler is one that the handler leaves to C; no handler answers what a row gives to C alone."""
    for fn, spec in SPECS.items():
        assert (fn in HANDLERS) == (spec.effect == "handled" or spec.handler_first), (fn, spec)
        if fn in HANDLERS:
            assert leaves_to_c(inspect.unwrap(HANDLERS[fn]), set()) == spec.handler_first, (fn, spec)
        assert not (spec.handler_first and spec.effect == "handled"), fn


def test_columns_fit_the_effect() -> None:
    default = CallableSpec("handled")
    for fn, spec in SPECS.items():
        if spec.effect == "handled":
            for name in spec.__slots__[2:]:
                assert getattr(spec, name) == getattr(default, name) or name in ("args", "symbolic"), (fn, spec)
        else:
            assert spec.args == default.args, (fn, spec)
        if spec.one_by_one or spec.makes_iterators:
            assert spec.polyfill is not None, (fn, spec)
        assert not spec.sorts or spec.one_by_one, (fn, spec)
        assert not spec.set_algebra or (spec.walks and spec.compares_identity), (fn, spec)
        assert len(spec.methods) >= 1 if spec.protocol else not spec.checks_result, (fn, spec)


def test_each_name_has_one_effect() -> None:
    """A second effect, of a name that is in two lines of a block, would be one that never applies."""
    blocks = [(facts.type, facts.lines) for facts in TYPES] + list(_FUNCTIONS.items())
    for owner, lines in blocks:
        of_effects = [name for words, names in lines.items() if words.split()[0] in EFFECTS | {"-"} for name in names.split()]
        assert [name for name, times in collections.Counter(of_effects).items() if times > 1] == [], owner
        if not isinstance(owner, type):
            assert {name for names in lines.values() for name in names.split()} == set(of_effects), owner


def test_each_name_exists() -> None:
    """A block of a type may share names with those of others: each is an attribute of one of them."""
    blocks = collections.defaultdict(set)
    for facts in TYPES:
        for names in facts.lines.values():
            for name in names.split():
                blocks[name].add(facts.type)
    later = {"__buffer__"}  # From Python 3.12 on.
    assert [name for name, types_ in blocks.items() if name not in later and not any(hasattr(t, name) for t in types_)] == []
    assert {fn for fn in POLYFILLS if spec_of(fn) is UNKNOWN} == set()


def test_a_row_in_words() -> None:
    assert str(spec_of(list.append)) == "mutator shallow moves_only appends"
    assert str(spec_of(list.__init__)) == "handled args:1" and str(spec_of(getattr)) == "handled args:2,3"
    assert str(spec_of(range)) == "pure deep index:0,1,2 handler_first" and str(spec_of(print)) == "refused"
    assert str(spec_of(reversed)).startswith("pure shallow methods:__reversed__ protocol moves_only list_reader makes_iterators polyfill:fineline.")


class Trap:
    """A value that notices each special method that C calls on it."""

    def __init__(self) -> None:
        self.called: list[str] = []


ANSWERS = {"__hash__": 1, "__index__": 0, "__int__": 0, "__len__": 0, "__float__": 0.0, "__str__": "", "__repr__": ""}


def _trap(name: str) -> Any:
    def method(self: Trap, *args: Any) -> Any:
        self.called.append(name)
        return ANSWERS.get(name, True)

    return method


for _name in "__hash__ __eq__ __lt__ __gt__ __le__ __ge__ __ne__ __index__ __int__ __float__ __len__ __bool__ __str__ __repr__".split():
    setattr(Trap, _name, _trap(_name))

ALLOWED = {"none": set[str](), "shallow": set[str](), "key": {"__hash__", "__eq__"}}
MAKE: dict[type, Any] = {
    list: lambda x: [x, 1],
    tuple: lambda x: (x, 1),
    dict: lambda x: {0: x, 1: 1},
    collections.OrderedDict: lambda x: collections.OrderedDict({0: x, 1: 1}),
    collections.defaultdict: lambda x: collections.defaultdict(int, {0: x, 1: 1}),
    set: lambda x: {x, 1},
    frozenset: lambda x: frozenset((x, 1)),
    collections.deque: lambda x: collections.deque((x, 1)),
    types.MappingProxyType: lambda x: types.MappingProxyType({0: x}),
    type({}.keys()): lambda x: {x: 0}.keys(),
    type({}.values()): lambda x: {0: x}.values(),
    type({}.items()): lambda x: {0: x}.items(),
    int: lambda x: 5,
    float: lambda x: 5.0,
    str: lambda x: "ab",
    bytes: lambda x: b"ab",
}


@pytest.mark.parametrize("owner", MAKE, ids=lambda t: t.__name__)
def test_reads_no_more_than_it_says(owner: type) -> None:
    """Each method, with hostile elements and arguments: only the special methods that its class of reads allows are called."""
    for name, fn in vars(owner).items():
        spec = spec_of(fn)
        if spec.effect not in ("pure", "mutator") or spec.reads == "deep" or name in ("__new__", "fromkeys"):
            continue
        for extra in range(3):
            element, argument = Trap(), Trap()
            container = MAKE[owner](element)
            arguments: list[Any] = [argument, Trap()][:extra]
            for i in spec.index:
                arguments[i - 1 : i] = [0] if i <= len(arguments) else []
            if name == "move_to_end":
                container[element] = 0
                arguments[:1] = [element]
            element.called.clear()
            try:
                fn(container, *arguments)
            except (TypeError, ValueError, KeyError, IndexError):
                pass
            called = {c for trap in (element, *arguments) if isinstance(trap, Trap) for c in trap.called}
            assert called <= ALLOWED[spec.reads], (owner, name, extra)


FUNCTIONS = [
    fn
    for module in (builtins, itertools, collections)
    for fn in vars(module).values()
    if (spec := spec_of(fn)).effect == "pure" and spec.reads != "deep" and fn is not object
]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_functions_read_no_more_than_they_say(fn: Any) -> None:
    for make in (list, tuple, lambda x: dict(zip(range(9), x, strict=False)), lambda x: [(y, 0) for y in x]):
        for extra in ((), (2,), ([1, 2],)):
            traps = [Trap(), Trap()]
            try:
                result = fn(make(traps), *extra)
                if hasattr(result, "__next__"):
                    next(result)
            except (TypeError, ValueError, StopIteration):
                pass
            assert {c for trap in traps for c in trap.called} <= ALLOWED[spec_of(fn).reads]


@pytest.mark.parametrize("owner", [t for t in MAKE if t not in (int, float, str, bytes)], ids=lambda t: t.__name__)
def test_pure_methods_change_nothing(owner: type) -> None:
    for name, fn in vars(owner).items():
        if spec_of(fn).effect != "pure" or name == "fromkeys":
            continue
        for arguments in ((), (1,), (0, 1), (MAKE[owner](7),)):
            container = MAKE[owner](7)
            before = (list(container), list(getattr(container, "items", list)()))
            try:
                fn(container, *arguments)
            except (TypeError, ValueError, KeyError, IndexError):
                pass
            assert (list(container), list(getattr(container, "items", list)())) == before, name


@pytest.mark.parametrize("owner", [list, dict, set, collections.deque, collections.OrderedDict], ids=lambda t: t.__name__)
def test_methods_that_change_are_mutators(owner: type) -> None:
    for name, fn in vars(owner).items():
        for arguments in ((), (1,), (0, 1), ([(5, 6)],), ({9},)):
            container = MAKE[owner](7)
            before = (list(container), list(getattr(container, "items", list)()))
            try:
                fn(container, *arguments)
            except Exception:
                continue
            if name != "__init__" and (list(container), list(getattr(container, "items", list)())) != before:
                assert spec_of(fn).effect == "mutator", name
