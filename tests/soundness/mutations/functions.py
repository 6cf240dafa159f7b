"""Guard mutations of functions: cells, defaults, code, and what is called like one."""

from __future__ import annotations

import functools
import operator
import types
from types import SimpleNamespace

import torch

from tests.soundness.mutations.cases import Cases, Doubler, X, argument, attr, attr_name, classes, doing, double, item, triple

CASES = Cases()
case = CASES.add


@case
def closure_cell():
    n = 2

    def fn(x):
        return x * n

    return fn, (X,), attr_name(fn.__closure__[0], "cell_contents", 3)


@case
def closure_cell_of_a_callee():
    n = 2

    def inner(x):
        return x * n

    return lambda x: inner(x), (X,), attr_name(inner.__closure__[0], "cell_contents", 3)


@case
def closure_cell_emptied():
    n = 2

    def fn(x):
        try:
            return x * n
        except NameError:
            return x

    cell = fn.__closure__[0]
    return fn, (X,), doing(lambda: delattr(cell, "cell_contents"), lambda: setattr(cell, "cell_contents", 2))


@case
def default():
    def inner(x, n=2):
        return x * n

    return lambda x: inner(x), (X,), attr_name(inner, "__defaults__", (3,))


@case
def default_of_the_region():
    def fn(x, n=2):
        return x * n

    return fn, (X,), attr_name(fn, "__defaults__", (3,))


@case
def default_object_changed():
    def inner(x, n=[2]):
        return x * n[0]

    return lambda x: inner(x), (X,), item(inner.__defaults__[0], 0, 3)


@case
def keyword_default():
    def inner(x, *, n=2):
        return x * n

    return lambda x: inner(x), (X,), attr_name(inner, "__kwdefaults__", {"n": 3})


@case
def keyword_default_changed_in_place():
    def inner(x, *, n=2):
        return x * n

    return lambda x: inner(x), (X,), item(inner.__kwdefaults__, "n", 3)


@case
def keyword_defaults_removed():
    def inner(x, *, n=2):
        return x * n

    def fn(x):
        try:
            return inner(x)
        except TypeError:
            return x

    return fn, (X,), attr_name(inner, "__kwdefaults__", None)


@case
def code_swapped():
    def inner(x):
        return x * 2

    return lambda x: inner(x), (X,), attr_name(inner, "__code__", triple.__code__)


@case
def code_of_the_region_swapped():
    def fn(x):
        return x * 2

    return fn, (X,), attr_name(fn, "__code__", triple.__code__)


@case
def code_of_a_method_swapped():
    base, child = classes()
    o = child()
    return lambda x: o.method(x), (X,), attr_name(base.method, "__code__", (lambda self, x: x - 1).__code__)


@case
def function_name():
    def inner(x):
        return x

    return lambda x: x * len(inner.__name__), (X,), attr_name(inner, "__name__", "f")


@case
def function_in_an_argument():
    return argument(lambda x, f: f(x), double, triple)


@case
def function_in_an_argument_other_globals():
    one, two = {"K": 2}, {"K": 3}
    code = compile("lambda x: x * K", "k", "eval")
    f, g = eval(code, one), eval(code, two)
    g = types.FunctionType(f.__code__, two)
    return argument(lambda x, h: h(x), f, g)


@case
def partial_arguments():
    return argument(lambda x, p: p(x), functools.partial(operator.mul, 2), functools.partial(operator.mul, 3))


@case
def partial_keywords():
    def inner(x, n=1):
        return x * n

    p = functools.partial(inner, n=2)
    return lambda x: p(x), (X,), item(p.keywords, "n", 3)


@case
def partial_function():
    return argument(lambda x, p: p(x), functools.partial(double), functools.partial(triple))


@case
def bound_method_self():
    a, b = Doubler(), Doubler()
    b.factor = 3
    return argument(lambda x, m: m(x), a.__call__, b.__call__)


@case
def bound_method_function():
    class P:
        def twice(self, x):
            return x * 2

        def thrice(self, x):
            return x * 3

    p = P()
    return argument(lambda x, m: m(x), p.twice, p.thrice)


@case
def bound_builtin_self():
    return argument(lambda x, m: x * m("a"), {"a": 2}.get, {"a": 3}.get)


@case
def bound_builtin_name():
    d = [1, 2, 2]
    return argument(lambda x, m: x * m(2), d.count, d.index)


@case
def bound_slot_wrapper_self():
    return argument(lambda x, m: x * m(1), (1, 2).__getitem__, (1, 3).__getitem__)


@case
def item_getter():
    return argument(lambda x, g: x * g((2, 3)), operator.itemgetter(0), operator.itemgetter(1))


@case
def attr_getter():
    o = SimpleNamespace(a=2, b=3)
    return argument(lambda x, g: x * g(o), operator.attrgetter("a"), operator.attrgetter("b"))


@case
def method_caller():
    return argument(lambda x, g: x * g([1, 1, 2]), operator.methodcaller("count", 1), operator.methodcaller("count", 2))


@case
def cached_function_replaced():
    s = SimpleNamespace(f=functools.lru_cache(lambda n: n + 1))
    return lambda x: x * s.f(1), (X,), attr(s, "f", functools.lru_cache(lambda n: n + 2))


@case
def cached_property_value():
    class P:
        n = 2

        @functools.cached_property
        def twice(self):
            return self.n * 2

    p = P()
    return lambda x: x * p.twice, (X,), item(p.__dict__, "twice", 9)


def doubling():
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return F


@case
def autograd_function_forward():
    F = doubling()
    return lambda x: F.apply(x), (X,), attr(F, "forward", staticmethod(lambda ctx, x: x * 3))


@case
def autograd_function_backward():
    F = doubling()
    w = X.clone().requires_grad_()

    def fn(x):
        return F.apply(w) * x

    return fn, (X,), attr(F, "backward", staticmethod(lambda ctx, g: g * 5))
