"""Guard mutations of what surrounds a call: weak references, threads, contexts, iterators, environment."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import datetime
import decimal
import fractions
import functools
import io
import itertools
import pathlib
import queue
import re
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.soundness.mutations.cases import Cases, Doubler, X, attr, doing, item, made

CASES = Cases()
case = CASES.add


@case
def weak_reference():
    a, b = Doubler(), Doubler()
    b.factor = 3
    s = SimpleNamespace(r=weakref.ref(a), keep=(a, b))
    return lambda x: s.keep[0](x) if s.r() is s.keep[0] else x, (X,), attr(s, "r", weakref.ref(b))


@case
def weak_reference_dead():
    a = Doubler()
    gone = weakref.ref(Doubler())
    s = SimpleNamespace(r=weakref.ref(a), keep=a)
    return lambda x: x if s.r() is None else s.keep(x), (X,), attr(s, "r", gone)


@case
def thread_local():
    local = threading.local()
    local.n = 2
    return lambda x: x * local.n, (X,), doing(lambda: setattr(local, "n", 3), lambda: setattr(local, "n", 2))


@case
def thread_local_missing():
    local = threading.local()
    return lambda x: x * getattr(local, "n", 1), (X,), doing(lambda: setattr(local, "n", 3), lambda: delattr(local, "n"))


@case
def context_variable():
    var = contextvars.ContextVar("var", default=2)
    tokens = []
    return lambda x: x * var.get(), (X,), doing(lambda: tokens.append(var.set(3)), lambda: var.reset(tokens.pop()))


@case
def environment_variable():
    import os

    name = "FINELINE_TEST"
    change = doing(lambda: os.environ.__setitem__(name, "abcde"), lambda: os.environ.pop(name))
    return lambda x: x * len(os.environ.get("FINELINE_TEST", "ab")), (X,), change


@case
def generator_given():
    s = SimpleNamespace(n=2)

    def numbers():
        yield s.n

    return lambda x, g: x * next(g), lambda: (X, numbers()), attr(s, "n", 3)


@case
def iterator_given():
    s = SimpleNamespace(n=[2])
    return lambda x, g: x * next(g), lambda: (X, iter(s.n)), attr(s, "n", [3])


@case
def signature_of_a_wrapper():
    import inspect

    def inner(x):
        return x

    def wrapper(*a):
        return inner(*a)

    return lambda x: x * len(inspect.signature(wrapper).parameters), (X,), attr(wrapper, "__wrapped__", lambda a, b, c: 0)


@case
def range_with_a_big_number_of_a_list():
    c = [1000]
    return lambda x: x * c[0], (X,), item(c, 0, 1001)


def advanced(it: Any, n: int) -> Any:
    for _ in range(n):
        next(it)
    return it


# Iterators given, at one place or another.
for _name, _make in [
    ("list_iterator", lambda: iter([2, 3, 4, 5])),
    ("tuple_iterator", lambda: iter((2, 3, 4, 5))),
    ("range_iterator", lambda: iter(range(2, 9))),
    ("dict_iterator", lambda: iter({2: 0, 3: 0, 4: 0})),
    ("text_iterator", lambda: map(int, iter("2345"))),
    ("generator", lambda: (v for v in [2, 3, 4, 5])),
    ("enumeration", lambda: (i + v for i, v in enumerate([2, 3, 4]))),
    ("count", lambda: itertools.count(2)),
    ("cycle", lambda: itertools.cycle([2, 3, 4])),
    ("chain", lambda: itertools.chain([2], [3, 4])),
    ("slice", lambda: itertools.islice([2, 3, 4, 5], 4)),
    ("reversal", lambda: reversed([5, 4, 3, 2])),
    ("repetition", lambda: itertools.accumulate(itertools.repeat(2))),
    ("set_iterator", lambda: iter({2, 3, 4})),
    ("deque_iterator", lambda: iter(collections.deque([2, 3, 4]))),
]:
    CASES[f"advanced_{_name}"] = lambda make=_make: made(lambda x, it: x * next(it), lambda: (X, make()), lambda: (X, advanced(make(), 1)))
    CASES[f"exhausted_{_name}"] = lambda make=_make: made(
        lambda x, it: x * sum(itertools.islice(it, 2)), lambda: (X, make()), lambda: (X, advanced(make(), 1))
    )

for _name, _make, _read, _change in [
    ("weak_keys", lambda: (weakref.WeakKeyDictionary(), Doubler()), lambda x, w: x * (2 if w[1] in w[0] else 3),
     lambda w: doing(lambda: w[0].__setitem__(w[1], 1), lambda: w[0].pop(w[1]))),
    ("weak_values", lambda: (weakref.WeakValueDictionary(), Doubler()), lambda x, w: x * (2 if "k" in w[0] else 3),
     lambda w: doing(lambda: w[0].__setitem__("k", w[1]), lambda: w[0].pop("k"))),
    ("weak_set", lambda: (weakref.WeakSet(), Doubler()), lambda x, w: x * (2 if w[1] in w[0] else 3),
     lambda w: doing(lambda: w[0].add(w[1]), lambda: w[0].discard(w[1]))),
    ("weak_set_length", lambda: (weakref.WeakSet(), Doubler()), lambda x, w: x * (1 + len(w[0])),
     lambda w: doing(lambda: w[0].add(w[1]), lambda: w[0].discard(w[1]))),
    ("weak_proxy", lambda: (weakref.proxy(_HELD),), lambda x, w: x * w[0].factor, lambda w: attr(_HELD, "factor", 7)),
    ("weak_method", lambda: (weakref.WeakMethod(_HELD.__call__),), lambda x, w: w[0]()(x), lambda w: attr(_HELD, "factor", 7)),
    ("lock", lambda: threading.Lock(), lambda x, w: x * (2 if w.locked() else 3), lambda w: doing(w.acquire, w.release)),
    ("event", lambda: threading.Event(), lambda x, w: x * (2 if w.is_set() else 3), lambda w: doing(w.set, w.clear)),
    ("queue", lambda: queue.SimpleQueue(), lambda x, w: x * (1 + w.qsize()), lambda w: doing(lambda: w.put(1), w.get)),
    ("array", lambda: np.array([2.0, 3.0]), lambda x, w: x * float(w[0]), lambda w: doing(lambda: w.__setitem__(0, 7), lambda: w.__setitem__(0, 2))),
    ("array_shape", lambda: np.ones(6), lambda x, w: x * w.shape[0], lambda w: attr_shape(w)),
    ("array_of_bytes", lambda: array.array("i", [2, 3]), lambda x, w: x * w[0], lambda w: doing(lambda: w.__setitem__(0, 7), lambda: w.__setitem__(0, 2))),
    ("memory_view", lambda: (_BYTES, memoryview(_BYTES)), lambda x, w: x * w[1][0], lambda w: doing(lambda: w[0].__setitem__(0, 7), lambda: w[0].__setitem__(0, 2))),
    ("chain_map", lambda: collections.ChainMap({}, {"a": 2}), lambda x, w: x * w["a"], lambda w: item(w.maps[0], "a", 7)),
    ("counter", lambda: collections.Counter("ab"), lambda x, w: x * (1 + w["c"]), lambda w: item(w, "c", 7)),
    ("counter_total", lambda: collections.Counter("ab"), lambda x, w: x * w.total(), lambda w: item(w, "c", 7)),
    ("user_dict", lambda: collections.UserDict(a=2), lambda x, w: x * w["a"], lambda w: item(w.data, "a", 7)),
    ("user_list", lambda: collections.UserList([2]), lambda x, w: x * w[0], lambda w: item(w.data, 0, 7)),
    ("text_stream", lambda: io.StringIO("abc"), lambda x, w: x * (1 + w.tell()), lambda w: doing(lambda: w.seek(2), lambda: w.seek(0))),
    ("singledispatch", lambda: dispatching(), lambda x, w: x * w(1), lambda w: registered(w)),
    ("cached_result", lambda: functools.lru_cache(lambda n: _FACTOR[0]), lambda x, w: x * w(1), lambda w: refreshed(w)),
    ("cached_information", lambda: functools.lru_cache(lambda n: n), lambda x, w: x * (1 + w.cache_info().currsize), lambda w: doing(lambda: w(1), w.cache_clear)),
    ("exit_stack", lambda: [2], lambda x, w: x * stacked(w), lambda w: item(w, 0, 7)),
    ("context_manager_function", lambda: [2], lambda x, w: x * managed(w), lambda w: item(w, 0, 7)),
    ("partial_arguments_set", lambda: functools.partial(pow, 2), lambda x, w: x * w(3), lambda w: partial_set(w)),
    ("partial_attribute", lambda: functools.partial(pow, 2), lambda x, w: x * getattr(w, "tag", 2), lambda w: attr(w, "tag", 7)),
    ("pattern", lambda: [re.compile("a")], lambda x, w: x * len(w[0].findall("aab")), lambda w: item(w, 0, re.compile("b"))),
    ("fraction", lambda: [fractions.Fraction(1, 2)], lambda x, w: x * float(w[0]), lambda w: item(w, 0, fractions.Fraction(1, 3))),
    ("decimal", lambda: [decimal.Decimal("0.5")], lambda x, w: x * float(w[0]), lambda w: item(w, 0, decimal.Decimal("0.25"))),
    ("path", lambda: [pathlib.PurePath("a/b")], lambda x, w: x * len(w[0].parts), lambda w: item(w, 0, pathlib.PurePath("a/b/c"))),
    ("date", lambda: [datetime.date(2000, 1, 2)], lambda x, w: x * w[0].day, lambda w: item(w, 0, datetime.date(2000, 1, 7))),
    ("context_copied", lambda: contextvars.ContextVar("v", default=2), lambda x, w: x * contextvars.copy_context().get(w, 2), lambda w: variable(w)),
]:
    def _held_case(make=_make, read=_read, change=_change):
        w = make()
        return (lambda x: read(x, w)), (X,), change(w)

    CASES[f"held_{_name}"] = _held_case


_HELD = Doubler()
_BYTES = bytearray([2, 3])
_FACTOR = [2]


def attr_shape(w: Any) -> Any:
    return doing(lambda: setattr(w, "shape", (2, 3)), lambda: setattr(w, "shape", (6,)))


def dispatching() -> Any:
    @functools.singledispatch
    def f(v: Any) -> int:
        return 2

    return f


def registered(f: Any) -> Any:
    """There is no way to take a function back but to register what there was."""
    return doing(lambda: f.register(int, lambda v: 7), lambda: f.register(int, f.registry[object]))


def refreshed(f: Any) -> Any:
    def put(n: int) -> None:
        _FACTOR[0] = n
        f.cache_clear()

    return doing(lambda: put(7), lambda: put(2))


def stacked(w: list) -> int:
    with contextlib.ExitStack() as stack:
        return stack.enter_context(contextlib.nullcontext(w[0]))


@contextlib.contextmanager
def giving(w: list) -> Any:
    yield w[0]


def managed(w: list) -> int:
    with giving(w) as v:
        return v


def partial_set(p: Any) -> Any:
    return doing(lambda: p.__setstate__((pow, (7,), {}, {})), lambda: p.__setstate__((pow, (2,), {}, {})))


def variable(var: Any) -> Any:
    tokens: list[Any] = []
    return doing(lambda: tokens.append(var.set(7)), lambda: var.reset(tokens.pop()))
