"""Calls: parameters of every kind, defaults, star-arguments, bound and unbound methods, callables."""

from __future__ import annotations

import collections
import functools
import inspect
import types
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


def every_kind(a, /, b, c=3, *rest, d, e=5, **more):
    return a * b + c + d + e + sum(rest) + sum(more.values())


@table.snippet()
def parameters_of_every_kind(x):
    return every_kind(x, 2, d=1), every_kind(x, 2, 4, 5, 6, d=7, e=8, f=9), every_kind(x, b=2, d=0, a=4)


@table.snippet()
def star_calls(x):
    args, kwargs = [2, 4], {"d": 1, "z": 2}
    return every_kind(x, *args, **kwargs), every_kind(*[x], *(2,), *args, **{"d": 3}, **{"q": 4}), every_kind(x, *iter(args), d=1)


@table.snippet()
def errors_of_calls(x):
    told = []

    def f(a, b=1, *, c):
        return a

    for args, kwargs in (((), {}), ((1, 2, 3), {"c": 1}), ((1,), {}), ((1,), {"c": 1, "z": 2}), ((1,), {"a": 2, "c": 3})):
        try:
            f(*args, **kwargs)
        except TypeError as error:
            told.append(str(error))
    for bad in (lambda: f(*3), lambda: f(**{1: 2}), lambda: f(**{"c": 1}, **{"c": 2}), lambda: every_kind(a=1, b=2, d=3), lambda: x()):
        try:
            bad()
        except TypeError as error:
            told.append(str(error))
    return x * len(told), told


@table.snippet(args=lambda i: (t(i), t(i + 1), t(i + 2)))
def outermost_takes_star_args(x, *rest):
    return x + sum(rest), len(rest), rest


@table.snippet(args=lambda i: (t(i),), kwargs=lambda i: {"b": t(i + 1), "a": t(i + 2)})
def outermost_takes_keywords(x, **more):
    return {key: x * value for key, value in more.items()}, more


@table.snippet(args=lambda i: (t(i),), kwargs=lambda i: [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}][i], recompiles=(1,))
def keyword_order_is_seen(x, **more):
    return x * more["a"], list(more)


@table.snippet(args=lambda i: [(t(i),), (t(i), t(i + 1)), (t(i),), (t(i), t(i + 1), t(i + 2))][i], calls=4, recompiles=(1, 3))
def number_of_arguments_varies(*xs):
    return torch.stack(xs).sum(0)


@table.snippet(args=lambda i: (t(i),), kwargs=lambda i: [{}, {"scale": 3.0}, {}, {"bias": t(5)}][i], calls=4, recompiles=(1, 3))
def defaults_of_the_outermost(x, scale=2.0, bias=None):
    return x * scale if bias is None else x * scale + bias


@table.snippet(args=lambda i: (t(i), 2), kwargs=lambda i: {"c": 3.0})
def kinds_of_the_outermost(a, /, b, *, c, d=4):
    return a * b + c + d


@table.snippet()
def star_args_tuple_is_fresh(x):
    def f(*args, **kwargs):
        kwargs["new"] = 1
        return args, kwargs

    given, more = (x, 1), {"k": x * 2}
    args, kwargs = f(*given, **more)
    return args, kwargs, more, kwargs is more


@table.snippet()
def bound_and_unbound_methods(x):
    class A:
        k = 2

        def m(self, v, n=1):
            return v * self.k + n

        @classmethod
        def c(cls, v):
            return v + cls.k

        @staticmethod
        def s(v):
            return v - 1

    a = A()
    m, c = a.m, A.c
    return m(x), A.m(a, x, n=2), c(x), a.c(x), A.s(x), a.s(x), m.__self__ is a, m.__func__ is A.m, c.__self__ is A


@table.snippet()
def callable_objects(x):
    class Scale:
        def __init__(self, k):
            self.k = k

        def __call__(self, v, *, plus=0):
            return v * self.k + plus

    scale = Scale(3)
    return scale(x), scale(x, plus=1), list(map(Scale(2), [x, x + 1])), callable(scale), callable(x)


@table.snippet()
def call_found_on_the_class_only(x):
    class A:
        def __call__(self, v):
            return v * 2

    a = A()
    a.__call__ = lambda v: v * 100
    return a(x)


@table.snippet()
def functions_in_containers(x):
    steps = {"relu": torch.relu, "double": lambda v: v * 2, "method": torch.Tensor.cos, "plus": functools.partial(torch.add, other=1)}
    for step in steps.values():
        x = step(x)
    return x, [f(x) for f in (x.sum, x.mean)]


@table.snippet()
def higher_order(x):
    def compose(*fs):
        return functools.reduce(lambda f, g: lambda *a: g(f(*a)), fs)

    return compose(torch.sin, lambda v: (v, v + 1), lambda p: p[0] * p[1])(x)


@table.snippet()
def evaluation_order(x):
    log = []

    def note(name, value):
        log.append(name)
        return value

    def f(*args, **kwargs):
        return args[0]

    y = note("f", f)(note("1", x), *note("2", [1]), k=note("3", 1), **note("4", {}))
    {note("key", "a"): note("value", 1)}
    note("left", 1) + note("right", 2)
    target = note("object", [0, 0])
    target[note("index", 0)] = note("assigned", 5)
    return y * 2, log


@table.snippet()
def signature_inspected(x):
    def f(a, b: int = 2, *, c: str = "d") -> Any:
        return a

    signature = inspect.signature(f)
    bound = signature.bind(x, c="e")
    bound.apply_defaults()
    return f(*bound.args, **bound.kwargs) * 2, list(signature.parameters), f.__code__.co_argcount


@table.snippet(args=lambda i: ({"x": t(i), "more": [t(i + 1), (t(i + 2), 3)]},))
def nested_arguments(tree):
    x, (y, (z, n)) = tree["x"], tree["more"]
    tree["result"] = x + y
    return z * n + tree["result"]


@table.snippet(args=lambda i: (t(i), [t(i + 1)], {"k": t(i + 2)}))
def arguments_returned_as_they_are(x, xs, d):
    xs.append(x * 2)
    d["new"] = xs[0] + d["k"]
    return x, xs, d, (x, xs)


def _shared(i: int) -> tuple[Any, ...]:
    values = [t(i)]
    return values, values, (values,)


@table.snippet(args=_shared)
def one_list_three_times(a, b, c):
    a.append(a[0] * 2)
    b.append(len(a))
    return a is b, c[0] is a, len(c[0]), a[0] + 1


@table.snippet(args=lambda i: ([t(i)], [t(i)]) if i != 1 else 2 * ([t(i)],), recompiles=(1,))
def two_lists_or_one_twice(a, b):
    a.append(1)
    return a[0] * len(b)


@table.program(change={1: lambda fn: setattr(fn, "__defaults__", (5,)), 2: lambda fn: setattr(fn, "__defaults__", (2,))}, recompiles=(1,))
def defaults_swapped() -> Any:
    def fn(x, k=2):
        return x * k

    return fn


@table.program()
def bound_method_as_the_outermost() -> Any:
    class Model:
        def __init__(self) -> None:
            self.weight = t(7)
            self.seen: list[Any] = []

        def run(self, x):
            self.last = x * self.weight
            return self.last + 1

    model = Model()
    return model.run, model


@table.program(recompiles=(1, 2))
def callable_object_as_the_outermost() -> Any:
    class Model:
        calls = 0

        def __call__(self, x):
            self.calls += 1
            return x * self.calls

    model = Model()
    return model.__call__, model


@table.program()
def functions_bound_by_hand() -> Any:
    class Model:
        scale = 3

    def grown(self, x, k=1):
        return x * self.scale + k

    model = Model()

    def fn(x):
        plain = grown.__get__(None, Model)
        bound = grown.__get__(model, Model)
        return bound(x), plain(model, x, k=2), types.FunctionType.__get__(grown, model)(x), bound.__self__ is model, plain is grown

    return fn, model


@table.program()
def decorated_outermost() -> Any:
    def doubled(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * 2

        return inner

    @doubled
    def fn(x, y):
        return x + y

    return lambda x, y: fn(x, y=y)


@table.program(calls=4, breaks=True, change={2: lambda box: box.append(torch.cos)}, recompiles=(2,))
def compiled_anew_at_each_call() -> Any:
    """As transformers makes its flex attention masks."""
    box = [torch.sin]

    def inner(x):
        return box[-1](x) + 1

    @torch.compiler.disable
    def compiled():
        return torch.compile(inner, backend="eager")

    return lambda x: compiled()(x) * 2, box


class Name(str):
    """A string with methods of its own to be found by."""

    def __hash__(self):
        return str.__hash__(self)

    def __eq__(self, other):
        return str.__eq__(self, other)


class Key:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        return self is other


def given(*args, **kwargs):
    return args, kwargs, [type(name).__name__ for name in kwargs]


@table.program(calls=4, breaks=True, change={2: lambda names: names.update(b=3), 3: lambda names: names.update({Name("a"): 5})}, recompiles=(2, 3))
def keywords_with_hashes_of_their_own() -> Any:
    names = {Name("a"): 1}

    def fn(x):
        y = x + 1
        told = [given(y, **names), given(c=x, **names), dict(**names)]
        for wrong in (lambda: given(a=1, **names), lambda: given(*[y], **{Key(): 1}), lambda: dict(**{3: 1}, **names), lambda: print(**{Key(): 2})):
            try:
                told.append(wrong())
            except TypeError as error:
                told.append(str(error))
        return y * 2, told, len({(Name("a") if i else "b"): i for i in range(3)}), len({(Name("a") if i == 1 else "b") for i in range(3)})

    return fn, names


@table.snippet()
def keyword_given_twice_by_a_mapping(x):
    mapping = collections.UserDict(a=2)
    told = [given(b=x * 2, **mapping)]
    for more in ({"a": 1}, {3: 1}, {3: 1, "a": 4}):
        try:
            told.append(given(**more, **mapping))
        except TypeError as error:
            told.append(str(error))
    return x + 1, told


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_calls(program: Program, twin: str) -> None:
    check(program, twin)
