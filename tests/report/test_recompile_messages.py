"""Recompile messages are in the user's words: each kind of guard fails once, and says what there was and what there is."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import enum
import functools
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import fineline
from fineline.guards.steps import CHECKS
from fineline.guards.texts import value_text
from fineline.region import budget

X = torch.arange(4.0)
LEVEL: Any = 3


class Box:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        raise AssertionError("a message runs the user's code")


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


class Bare:
    def __init__(self) -> None:
        self.a = 1


class Calling:
    def __call__(self, x):
        return x + 1


def two_of(self, x):
    return x + 2


CALL = Calling.__call__


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Number(int):
    pass


class Text(str):
    __slots__ = ()


class Pair(collections.namedtuple("Pair", "a b")):
    pass


@dataclasses.dataclass
class Record:
    a: Any = 1


@functools.lru_cache
def cached(n):
    return [n]


@fineline.disable
def popped(values):
    return values[0]


def length(x, v):
    return x + len(v)


def shown(x, v):
    return x + len(str(v))


def attribute(x, v):
    return x + len(str(v.a))


def optional(x, v):
    return x + len(str(getattr(v, "a", 0)))


def called(x, v):
    return v(x)


def one(x):
    return x + 1


def two(x):
    return x + 2


def plain(x):
    return x + 1


def is_same(x, v):
    return x + (v[0] is v[1])


def is_tensor(x, y):
    return x + y + (x is y)


def first(x, v):
    return x + v[0]


def iterated(x, items):
    for item in items:
        fineline.graph_break()
        x = x + len(str(item))
    return x


def behind(x, v):
    fineline.graph_break()
    return x + len(v.a)


def given(x, values):
    return x + len(popped(values))


def global_value(x):
    return x + len(str(LEVEL))


def overlapping(x, y):
    y.add_(1)
    return x + y


def sizes(x):
    return x + 1 if x.shape[0] > 10 else x


def linear(x, module):
    return module(x)


def trained(x, module):
    return x + module.training


def entry(x, d):
    return x + d.get("a", 0)


def iterated_entries(x, d):
    return x + len(list(d))


def member(x, s):
    return x + (3 in s)


def converted(x, a):
    return x + torch.from_numpy(a)


def stored(x, n):
    return x + cached(n)[0]


def year(x, d):
    return x + d.year


def referred(x, r):
    return x + (r() is None)


def nested(x, t):
    return x + ord(t[1][1])


def sign(x, v):
    return x * v


def cut(x, s):
    return x[s].sum()


SHARED, LINEAR, BASE = Box(a=1), torch.nn.Linear(4, 4), torch.ones(6)


class changed:
    """A call after a change."""

    def __init__(self, change: Callable[[], object], *args: Any) -> None:
        self.change, self.args = change, args


def set_level(value: Any) -> Callable[[], None]:
    return lambda: globals().__setitem__("LEVEL", value)


# fn, the calls, and what the last recompile says.
PROGRAMS: dict[str, tuple[Callable, list[Any], str]] = {
    "dtype": (plain, [(X,), (X.double(),)], "x: dtype torch.float32 -> torch.float64"),
    "sizes": (plain, [(X,), (torch.ones(2, 3),)], "x: sizes (4,) -> (2, 3), strides (1,) -> (3, 1)"),
    "strides": (plain, [(torch.ones(4, 4),), (torch.ones(4, 4).t(),)], "x: strides (4, 1) -> (1, 4)"),
    "gradients": (plain, [(X,), (X.clone().requires_grad_(),)], "x: requires_grad False -> True"),
    "class of a tensor": (plain, [(X,), (torch.nn.Parameter(X, False),)], "x: class torch.Tensor -> torch.nn.parameter.Parameter"),
    "inference": (plain, [(X,), (torch.inference_mode()(torch.ones)(4),)], "x: is_inference False -> True"),
    "a tensor that is none": (shown, [(X, BASE), (X, None)], "v: a Tensor -> None"),
    "a size in a relation": (sizes, [(torch.ones(4),), (torch.ones(5),), (torch.ones(20),)], "x.size(0) <= 10"),
    "a number": (shown, [(X, 1), (X, "a")], "v: 1 -> 'a'"),
    "None": (shown, [(X, None), (X, 1.5)], "v: None -> 1.5"),
    "a long text": (shown, [(X, "a" * 500), (X, "b" * 500)], "v: 'aaaa"),
    "a huge number": (shown, [(X, 1 << 5000), (X, "a")], "v: int -> str"),
    "NaN": (sign, [(X, float("nan")), (X, -float("nan"))], "v: nan -> another nan"),
    "an enum": (shown, [(X, Color.RED), (X, Color.BLUE)], "v: Color.RED -> Color.BLUE"),
    "a slice": (cut, [(X, slice(1, 2)), (X, slice(1, 3))], "s: slice(1, 2, None) -> slice(1, 3, None)"),
    "a dtype": (lambda x, v: x.to(v), [(X, torch.int32), (X, torch.int64)], "v: torch.int32 -> torch.int64"),
    "a subclass of int": (lambda x, v: x + int(v), [(X, Number(1)), (X, Number(2))], "v: no longer true: == 1; it is Number(2)"),
    "a subclass of str": (lambda x, v: x + ord(v), [(X, Text("a")), (X, Text("b"))], "v: no longer true: == 'a'; it is Text('b')"),
    "in tuples": (nested, [(X, (1, (2, "a"))), (X, (1, (2, "b")))], "t[1][1]: 'a' -> 'b'"),
    "a named tuple": (attribute, [(X, Pair("a", 1)), (X, Pair("b", 1))], "v[0]: 'a' -> 'b'"),
    "a type": (attribute, [(X, Box(a=1)), (X, Slotted(1))], "v: Box -> Slotted"),
    "a length": (length, [(X, [1]), (X, [1, 2])], "v: length 1 -> 2"),
    "a deque": (length, [(X, collections.deque([1])), (X, collections.deque([1, 2]))], "v: length 1 -> 2"),
    "an item of a deque": (lambda x, v: x + len(v[0]), [(X, collections.deque(["a"])), (X, collections.deque([[1]]))], "v[0]: 'a' -> [1]"),
    "bytes that change": (first, [(X, bytearray(b"a")), (X, bytearray(b"b"))], "v: no longer true: == b'a'; it is bytearray(b'b')"),
    "keys": (iterated_entries, [(X, {"a": 1}), (X, {"b": 1})], "d: keys ['a'] -> ['b']"),
    "keys of the user's": (iterated_entries, [(X, {SHARED: 1}), (X, {Box(): 1})], "d: other objects as keys, [a Box]"),
    "tensors as keys": (iterated_entries, [(X, {X: 1}), (X, {BASE: 1})], "d: other objects as keys, [a Tensor]"),
    "a key that is gone": (entry, [(X, {"a": 1}), (X, {})], "d['a']: it is gone"),
    "a key that has come": (entry, [(X, {}), (X, {"a": 1})], "d: 'a' is there now"),
    "a set": (member, [(X, {1, 2}), (X, {1, 3})], "s: {1, 2} -> {1, 3}"),
    "an attribute": (attribute, [(X, Box(a=1)), (X, Box(a="z"))], "v.a: 1 -> 'z'"),
    "an attribute that is gone": (optional, [(X, Box(a=1)), (X, Box())], "v.a: it is gone"),
    "an attribute that has come": (optional, [(X, Box()), (X, Box(a=1))], "v.a: it is there now"),
    "a class attribute that has come": (attribute, [(X, Bare()), changed(lambda: setattr(Bare, "a", 2), X, Bare())], "Bare.a: it is defined now"),
    "a method": (called, [(X, Calling()), changed(lambda: setattr(Calling, "__call__", two_of), X, Calling())],
                 "Calling.__call__: function Calling.__call__ -> function two_of"),
    "a slot": (attribute, [(X, Slotted("a")), (X, Slotted("b"))], "v.a: 'a' -> 'b'"),
    "a field": (attribute, [(X, Record("a")), (X, Record("b"))], "v.a: 'a' -> 'b'"),
    "a namespace": (attribute, [(X, types.SimpleNamespace(a="a")), (X, types.SimpleNamespace(a=2))], "v.a: 'a' -> 2"),
    "a function": (called, [(X, one), (X, two)], "v: function one -> function two"),
    "a function of C": (called, [(X, torch.sin), (X, torch.cos)], "v: function sin -> function cos"),
    "a partial": (called, [(X, functools.partial(one)), (X, functools.partial(two))], "v.func: function one -> function two"),
    "a class": (lambda x, v: x + len(v.__name__), [(X, Box), (X, Slotted)], "v: Box -> Slotted"),
    "a global": (global_value, [(X,), changed(set_level("high"), X)], f"globals of {__name__}['LEVEL']: 3 -> 'high'"),
    "one object": (is_same, [(X, [SHARED, SHARED]), (X, [SHARED, Box(a=1)])], "v[1]: the same object as v[0] -> another object"),
    "two objects": (is_same, [(X, [SHARED, Box(a=1)]), (X, [SHARED, SHARED])], "v[1]: an object of its own -> the same object as v[0]"),
    "one tensor": (is_tensor, [(X, X), (X, X.clone())], "y: the same object as x -> another object"),
    "memory": (overlapping, [(BASE[:4], BASE[2:]), (X.clone(), X.clone())], "the tensors' memory: which of y and x share memory has changed"),
    "the grad mode": (plain, [(X,), changed(lambda: torch.set_grad_enabled(False), X)], "PyTorch's state: grad_mode True -> False"),
    "a module's parameter": (linear, [(X, LINEAR), (X, torch.nn.Linear(4, 4, bias=False))], "module.bias: a Parameter -> None"),
    "a module's mode": (trained, [(X, LINEAR), changed(LINEAR.eval, X, LINEAR)], "module.training: True -> False"),
    "an array": (converted, [(X, np.ones(4)), (X, np.ones(4, np.float32))], "torch.from_numpy(a): dtype torch.float64 -> torch.float32"),
    "a NumPy number": (shown, [(X, np.float32(1)), (X, np.int64(3))], "v: float32 -> int64"),
    "a cache": (stored, [(X, 1), changed(cached.cache_clear, X, 1)], ""),
    "a date": (year, [(X, datetime.date(2020, 1, 1)), (X, datetime.date(2021, 1, 1))], "result: 2020 -> 2021"),
    "a weak reference": (referred, [(X, weakref.ref(SHARED)), (X, weakref.ref(Box))], "r: no longer true: refers to the same object; it is a ReferenceType"),
    "behind a break": (behind, [(X, Box(a="a")), (X, Box(a=[1]))], "v.a: 'a' -> [1]"),
    "what eager code gives": (given, [(X, ["a"]), (X, [[1, 2]])], "result: 'a' -> [1, 2]"),
    "an iterator from outside": (iterated, [(X, iter([1, 2, 3])), (X, iter([1, "a", 3]))], "item: int -> str"),
    "an iterator that ends": (iterated, [(X, iter([1, 2])), (X, iter([1]))], "whether the iterator has ended: False -> True"),
    "enumerate": (lambda x, v: iterated(x, enumerate(v)), [(X, ["a", "b"]), (X, ["a", 1.5])], "item[1]: 'b' -> 1.5"),
    "items of a dict": (lambda x, v: iterated(x, v.items()), [(X, {"a": 1, "b": 2}), (X, {"a": 1, "b": "x"})], "v['b']: 2 -> 'x'"),
    "zip": (lambda x, v: iterated(x, zip(v, v, strict=True)), [(X, ["a", "b"]), (X, ["a"])], "a zip does not have it"),
    "an item of a long list": (iterated, [(X, ["a", "b", "c", "d", "e", "f"]), (X, ["a", "b", "c", "d", "e", 1.5])], "gives next: str -> float"),
    "a longer list": (iterated, [(X, ["a"] * 2), (X, ["a"] * 7)], "gives no more items; it is a list_iterator"),
}  # fmt: skip
# What no capture checks; programs may.
UNUSED = {"weak"}
PRIVATE = re.compile(r" at 0x[0-9a-f]|0x[0-9a-f]{5,}|<[a-z_.]*\.?[A-Za-z]* object|Stepped|FollowingItem|TensorFacts|TensorOf|Carried|_fineline|__dict__")


def unread(args: Iterable[Any]) -> list[Any]:
    """Returns the arguments, with copies of the iterators: two tests make each call."""
    return [copy.copy(a) if isinstance(a, Iterator) else a for a in args]


def recompiles(fn: Callable, calls: list[Any]) -> list[str]:
    compiled = fineline.compile(fn, backend="eager")
    try:
        for call in calls:
            if isinstance(call, changed):
                call.change()
            compiled(*unread(call.args if isinstance(call, changed) else call))
        return [e.reason for e in fineline.report(compiled).recompiles]
    finally:
        torch.set_grad_enabled(True)
        LINEAR.train()
        set_level(3)()
        vars(Bare).get("a") and delattr(Bare, "a")
        Calling.__call__ = CALL
        fineline.reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recompile_says_what_there_was_and_what_there_is(name: str) -> None:
    fn, calls, expected = PROGRAMS[name]
    reasons = recompiles(fn, calls)
    assert expected in (reasons[-1] if reasons else ""), reasons
    assert not any(PRIVATE.search(reason) for reason in reasons), reasons


def test_the_program_that_fits_best_tells_what_has_changed() -> None:
    """The newest one would tell of a value that is as it was in another program."""
    state = Box(mode="a")

    def f(x: torch.Tensor, rows: list) -> torch.Tensor:
        return x * len(rows) if state.mode == "a" else x

    compiled = fineline.compile(f, backend="eager")
    compiled(X, [1, 2])
    compiled(X, [1, 2, 3])
    state.mode = "b"
    compiled(X, [1, 2])
    assert [event.detail["miss"].changes[0][1:] for event in fineline.report(compiled).recompiles] == [("2", "3"), ("'a'", "'b'")]


def test_each_kind_of_check_fails_in_one_of_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: set[str] = set()
    describe = budget.describe_miss

    def note(segment: Any, at: int, roots: tuple) -> str:
        failed.add(segment.steps[at][0])
        return describe(segment, at, roots)

    monkeypatch.setattr(budget, "describe_miss", note)
    for fn, calls, _ in PROGRAMS.values():
        recompiles(fn, calls)
    assert failed >= CHECKS - UNUSED and {"key"} <= failed


@pytest.mark.parametrize("name", PROGRAMS)
def test_guards_are_told_in_the_users_words(name: str) -> None:
    fn, calls, _ = PROGRAMS[name]
    compiled = fineline.compile(fn, backend="eager")
    compiled(*unread(calls[0]))
    guards = fineline.report(compiled).guards
    fineline.reset()
    assert guards and not [guard for guard in guards if re.search(r" at 0x|0x[0-9a-f]{5,}| object>|FollowingItem|TensorOf|TensorFacts", guard)]


class Odd:
    @property
    def __class__(self) -> Any:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError

    __iter__ = __repr__ = __str__ = __eq__ = __hash__ = __len__  # type: ignore[assignment]


class OddList(list):
    __iter__ = __len__ = __repr__ = Odd.__len__  # type: ignore[assignment]


class OddText(str):
    __getitem__ = __repr__ = __str__ = Odd.__len__  # type: ignore[assignment]


# Behind functions: pytest looks at what it is given.
VALUES: dict[str, Callable[[], Any]] = {
    "an Odd": Odd, "an OddList": lambda: OddList([1]), "OddText('abc')": lambda: OddText("abc"), "[an Odd, {1: an Odd}]": lambda: [Odd(), {1: Odd()}],
    "[0, 1, 2, 3, 4, 5, 6, 7, ...]": lambda: list(range(20)), "a dict of 20": lambda: {i: i for i in range(20)}, "(1,)": lambda: (1,),
    "set()": set, "[[a list of 1]]": lambda: [[[[1]]]], "module torch": lambda: torch, "method sin of a Tensor": lambda: X.sin,
    "method Box.__init__ of a Box": lambda: Box().__init__, "a partial of function len": lambda: functools.partial(len),
    "str.upper": lambda: str.upper, "Box": lambda: Box, "a Tensor": lambda: X, "function len": lambda: len, "Color.RED": lambda: Color.RED,
    "function aten::add.Tensor": lambda: torch.ops.aten.add.Tensor, "F.a|b": lambda: enum.IntFlag("F", "a b")(3), "True": lambda: True,
    "np.float32(2.0)": lambda: np.float32(2), "an int of 5001 bits": lambda: 1 << 5000, "'" + "a" * 76 + "...": lambda: "a" * 100,
    "Number(3)": lambda: Number(3),
}  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_texts_of_values_run_none_of_the_users_code(text: str) -> None:
    assert value_text(VALUES[text]()) == text


def test_a_list_that_holds_itself_ends() -> None:
    v: list[Any] = []
    v.append(v)
    assert value_text(v) == "[[a list of 1]]"
