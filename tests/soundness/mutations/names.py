"""Guard mutations of names: globals, builtins, and the numbers they are bound to."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from types import SimpleNamespace
from typing import Any

import torch

from tests.soundness.mutations.cases import Cases, Color, Doubler, Tripler, X, argument, attr, binding, double, item, triple

CASES = Cases()
case = CASES.add


def global_(name: str, *value: Any) -> Any:
    return binding(globals(), name, *value)


G_INT, G_FLOAT, G_STR, G_TUPLE, G_BYTES, G_NONE = 2, 2.5, "a", (1, 2), b"ab", None
G_LIST, G_DICT, G_SET, G_FROZEN = [1, 2], {"a": 1}, {1, 2}, frozenset({1, 2})
G_FN, G_CLASS, G_MODULE, G_ENUM, G_BIG, G_TENSOR = double, Doubler, math, Color.RED, 100_000, torch.ones(3)

for _name, _read, _value in [
    ("G_INT", lambda x: x * G_INT, 3),
    ("G_FLOAT", lambda x: x * G_FLOAT, 3.5),
    ("G_STR", lambda x: x * len(G_STR), "abc"),
    ("G_TUPLE", lambda x: x * G_TUPLE[1], (1, 3)),
    ("G_BYTES", lambda x: x * G_BYTES[0], b"cd"),
    ("G_NONE", lambda x: x if G_NONE is None else x * 2, 1),
    ("G_LIST", lambda x: x * G_LIST[0], [5]),
    ("G_DICT", lambda x: x * G_DICT["a"], {"a": 7}),
    ("G_SET", lambda x: x * sum(G_SET), {5}),
    ("G_FROZEN", lambda x: x * sum(G_FROZEN), frozenset({5})),
    ("G_FN", lambda x: G_FN(x), triple),
    ("G_CLASS", lambda x: G_CLASS()(x), Tripler),
    ("G_MODULE", lambda x: x * (2 if G_MODULE is math else 3), operator),
    ("G_ENUM", lambda x: x * G_ENUM.value, Color.BLUE),
    ("G_TENSOR", lambda x: x + G_TENSOR, torch.zeros(3)),
]:
    CASES[f"global_{_name[2:].lower()}"] = lambda name=_name, read=_read, value=_value: (read, (X,), global_(name, value))


@case
def global_deleted():
    def fn(x):
        try:
            return x * G_INT
        except NameError:
            return x

    return fn, (X,), global_("G_INT")


@case
def global_added():
    def fn(x):
        try:
            return x * G_LATER
        except NameError:
            return x

    return fn, (X,), global_("G_LATER", 4)


@case
def builtin_shadowed_by_a_global():
    return lambda x: x * len("abc"), (X,), global_("len", lambda s: 10)


@case
def builtin_replaced():
    import builtins

    return lambda x: x * max(1, 2), (X,), attr(builtins, "max", min)


@case
def globals_subscript():
    return lambda x: x * globals()["G_INT"], (X,), global_("G_INT", 5)


@case
def globals_get():
    scope = {"N": 2, "torch": torch}
    exec("def fn(x): return x * globals().get('N', 9)", scope)
    return scope["fn"], (X,), item(scope, "N", 3)


@case
def globals_dict_in():
    scope = {"torch": torch}
    exec("def fn(x): return x * (2 if 'M' in globals() else 3)", scope)
    return scope["fn"], (X,), item(scope, "M", 3)


@case
def number_passed_on_shared_with_a_global():
    s = SimpleNamespace(n=G_BIG)

    def fn(x, n):
        return x + 1, [n], G_BIG

    return fn, lambda: (X, s.n), attr(s, "n", 100_001)


@case
def number_given_twice():
    s = SimpleNamespace(n=123456, m=123456)
    s.m = s.n
    return lambda x, n, m: (x + 1, [n], [m]), lambda: (X, s.n, s.m), attr(s, "m", 654321)


@case
def number_equal_to_a_constant():
    def fn(x, n):
        return x + 1, [n], 77_777

    return argument(fn, next(c for c in fn.__code__.co_consts if c == 77_777), 88_888)


@case
def attribute_of_a_number():
    return argument(lambda x, n: x * n.numerator, 1234, 4321)


@case
def number_inside_a_size():
    return argument(lambda x, n: x * torch.Size((n, 1)).numel(), 1000, 1001)


@functools.cache
def cached_scale(n):
    return n * G_INT


@case
def cached_function_of_a_global():
    clear = cached_scale.cache_clear
    change = global_("G_INT", 7)

    @contextlib.contextmanager
    def both():
        with change:
            clear()
            yield
        clear()

    return lambda x: x * cached_scale(2), (X,), both()
