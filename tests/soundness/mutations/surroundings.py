"""Guard mutations of what surrounds a call: weak references, threads, contexts, iterators, environment."""

from __future__ import annotations

import contextvars
import threading
import weakref
from types import SimpleNamespace

from tests.soundness.mutations.cases import (
    Cases,
    Doubler,
    X,
    attr,
    doing,
    item,
)

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
