"""Every kind of thing that a function can read: change it between calls, and change it back; the guards must see both.

A case is a function that makes ``(fn, args, change)`` afresh: ``change`` is a context manager that changes what ``fn`` reads on entry and
reverts it on exit. The compiled function must agree with eager before, during and after; after the revert it must not capture again.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import itertools
import math
import operator
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fineline
from tests.soundness.freeze import Freezer, differences

X = torch.arange(6.0).reshape(2, 3) + 1
CASES: dict[str, Callable[[], tuple[Any, Any, Any]]] = {}
_GONE: Any = object()


def case(make: Callable[[], tuple[Any, Any, Any]]) -> Callable[[], tuple[Any, Any, Any]]:
    assert make.__name__ not in CASES, make.__name__
    CASES[make.__name__] = make
    return make


# -- changes -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def attr(obj: Any, name: str, value: Any = _GONE) -> Iterator[None]:
    """``obj.name = value`` (or ``del``); back to what was there, or was not, in the object's own dict."""
    old = vars(obj).get(name, _GONE)
    delattr(obj, name) if value is _GONE else setattr(obj, name, value)
    try:
        yield
    finally:
        delattr(obj, name) if old is _GONE else setattr(obj, name, old)


@contextlib.contextmanager
def item(d: Any, key: Any, value: Any = _GONE) -> Iterator[None]:
    old = dict(d) if isinstance(d, dict) else list(d)
    if value is _GONE:
        del d[key]
    else:
        d[key] = value
    try:
        yield
    finally:
        if isinstance(d, dict):
            if key in old and value is not _GONE:
                d[key] = old[key]
            else:
                d.clear()
                d.update(old)
        else:
            d[:] = old


@contextlib.contextmanager
def doing(do: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    do()
    try:
        yield
    finally:
        undo()


def global_(name: str, value: Any = _GONE) -> Any:
    own = globals()
    old = own.get(name, _GONE)
    if value is _GONE:
        return doing(lambda: own.pop(name), lambda: own.__setitem__(name, old))
    return doing(lambda: own.__setitem__(name, value), lambda: own.pop(name) if old is _GONE else own.__setitem__(name, old))


def argument(fn: Any, before: Any, after: Any) -> tuple[Any, Any, Any]:
    """The second argument is ``after`` instead of ``before``."""
    s = SimpleNamespace(v=before)
    return fn, lambda: (X, s.v), attr(s, "v", after)


def arguments(fn: Any, before: tuple, after: tuple) -> tuple[Any, Any, Any]:
    s = SimpleNamespace(v=before)
    return fn, lambda: s.v, attr(s, "v", after)


def made(fn: Any, before: Callable[[], tuple], after: Callable[[], tuple]) -> tuple[Any, Any, Any]:
    """All arguments are made anew for each call."""
    s = SimpleNamespace(v=before)
    return fn, lambda: s.v(), attr(s, "v", after)


# -- globals -----------------------------------------------------------------------------------------------------------
class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 3


def double(x: Any) -> Any:
    return x * 2


def triple(x: Any) -> Any:
    return x * 3


class Doubler:
    factor = 2

    def __call__(self, x: Any) -> Any:
        return x * self.factor


class Tripler:
    factor = 3

    def __call__(self, x: Any) -> Any:
        return x * self.factor


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


# -- classes and instances ---------------------------------------------------------------------------------------------
class Base:
    scale = 2

    def method(self, x):
        return x * self.scale

    @property
    def prop(self):
        return 2

    @staticmethod
    def static(x):
        return x * 2

    @classmethod
    def klass(cls, x):
        return x * cls.scale


def classes() -> tuple[type, type]:
    base = type("Base", (), {k: v for k, v in vars(Base).items() if k not in ("__dict__", "__weakref__")})
    return base, type("Child", (base,), {})


def of_object(fn: Any, change: Callable[[Any, type, type], Any]) -> tuple[Any, Any, Any]:
    base, child = classes()
    obj = child()
    return (lambda x: fn(x, obj)), (X,), change(obj, child, base)


for _name, _read, _change in [
    ("class_attr", lambda x, o: x * type(o).scale, lambda o, c, b: attr(b, "scale", 3)),
    ("class_attr_by_instance", lambda x, o: x * o.scale, lambda o, c, b: attr(b, "scale", 3)),
    ("class_attr_overridden_in_child", lambda x, o: x * o.scale, lambda o, c, b: attr(c, "scale", 3)),
    ("instance_attr_added", lambda x, o: x * getattr(o, "extra", 1), lambda o, c, b: attr(o, "extra", 3)),
    ("instance_attr_shadows_class_attr", lambda x, o: x * o.scale, lambda o, c, b: attr(o, "scale", 3)),
    ("instance_attr_shadows_method", lambda x, o: o.method(x), lambda o, c, b: attr(o, "method", triple)),
    ("base_method_patched", lambda x, o: o.method(x), lambda o, c, b: attr(b, "method", lambda self, x: x - 1)),
    ("child_method_added", lambda x, o: o.method(x), lambda o, c, b: attr(c, "method", lambda self, x: x - 1)),
    ("staticmethod_replaced", lambda x, o: o.static(x), lambda o, c, b: attr(b, "static", staticmethod(triple))),
    ("classmethod_replaced", lambda x, o: o.klass(x), lambda o, c, b: attr(b, "klass", classmethod(lambda c, x: x - 1))),
    ("property_replaced", lambda x, o: x * o.prop, lambda o, c, b: attr(b, "prop", property(lambda self: 3))),
    ("class_assigned", lambda x, o: x * o.scale, lambda o, c, b: attr_class(o, type("Other", (c,), {"scale": 9}))),
    ("bases_assigned", lambda x, o: x * o.scale, lambda o, c, b: bases(c, type("Mixin", (b,), {"scale": 9}))),
    ("bases_assigned_and_super", lambda x, o: super(type(o), o).method(x),
     lambda o, c, b: bases(c, type("M", (b,), {"method": lambda s, x: x}))),
    ("bases_assigned_and_isinstance", lambda x, o: x * (2 if isinstance(o, Doubler) else 3),
     lambda o, c, b: bases(c, type("M", (b, Doubler), {}))),
    ("bases_assigned_and_issubclass", lambda x, o: x * (2 if issubclass(type(o), Doubler) else 3),
     lambda o, c, b: bases(c, type("M", (b, Doubler), {}))),
    ("isinstance_class_assigned", lambda x, o: x * (2 if isinstance(o, Doubler) else 3),
     lambda o, c, b: attr_class(o, type("M", (c, Doubler), {}))),
    ("getattr_added_to_class", lambda x, o: x * getattr(o, "more", 1), lambda o, c, b: attr(c, "__getattr__", lambda s, n: 6)),
    ("getattribute_added_to_class", lambda x, o: x * o.scale, lambda o, c, b: attr(c, "__getattribute__", lambda s, n: 6)),
    ("hasattr", lambda x, o: x * (2 if hasattr(o, "later") else 3), lambda o, c, b: attr(o, "later", 1)),
    ("hasattr_on_class", lambda x, o: x * (2 if hasattr(type(o), "later") else 3), lambda o, c, b: attr(b, "later", 1)),
    ("class_name", lambda x, o: x * len(type(o).__name__), lambda o, c, b: attr_name(c, "__name__", "C")),
    ("class_qualname", lambda x, o: x * len(type(o).__qualname__), lambda o, c, b: attr_name(c, "__qualname__", "C")),
    ("class_bases_read", lambda x, o: x * len(type(o).__mro__), lambda o, c, b: bases(c, type("M", (b,), {}))),
    ("bool_added_to_class", lambda x, o: x * (2 if o else 3), lambda o, c, b: attr(c, "__bool__", lambda s: False)),
    ("len_added_to_class", lambda x, o: x * (2 if o else 3), lambda o, c, b: attr(c, "__len__", lambda s: 0)),
    ("eq_added_to_class", lambda x, o: x * (2 if o == 1 else 3), lambda o, c, b: attr(c, "__eq__", lambda s, v: True)),
    ("call_added_to_class", lambda x, o: x * (2 if callable(o) else 3), lambda o, c, b: attr(c, "__call__", lambda s: 0)),
    ("instance_dict_replaced", lambda x, o: x * o.__dict__.get("n", 1), lambda o, c, b: attr_dict(o, {"n": 4})),
    ("vars", lambda x, o: x * len(vars(o)), lambda o, c, b: attr(o, "n", 4)),
    ("contains_on_dict_of_instance", lambda x, o: x * (2 if "n" in o.__dict__ else 3), lambda o, c, b: attr(o, "n", 4)),
    ("function_attribute", lambda x, o: x * getattr(o.method, "tag", 1), lambda o, c, b: attr(b.method, "tag", 5)),
]:
    CASES[_name] = lambda read=_read, change=_change: of_object(read, change)


def attr_class(obj: Any, cls: type) -> Any:
    old = type(obj)
    return doing(lambda: setattr(obj, "__class__", cls), lambda: setattr(obj, "__class__", old))


def attr_name(obj: Any, name: str, value: str) -> Any:
    old = getattr(obj, name)
    return doing(lambda: setattr(obj, name, value), lambda: setattr(obj, name, old))


def attr_dict(obj: Any, value: dict) -> Any:
    old = obj.__dict__
    return doing(lambda: setattr(obj, "__dict__", value), lambda: setattr(obj, "__dict__", old))


def bases(cls: type, *new: type) -> Any:
    old = cls.__bases__
    return doing(lambda: setattr(cls, "__bases__", new), lambda: setattr(cls, "__bases__", old))


@case
def instance_attr_changed():
    o = SimpleNamespace(n=2)
    return lambda x: x * o.n, (X,), attr(o, "n", 3)


@case
def instance_attr_deleted():
    o = Doubler()
    o.n = 2

    def fn(x):
        try:
            return x * o.n
        except AttributeError:
            return x

    return fn, (X,), attr(o, "n")


@case
def super_passes_over_a_class():
    class A:
        def f(self, x):
            return x * 2

    class B(A):
        pass

    class C(B):
        def f(self, x):
            return super().f(x)

    c = C()
    return lambda x: c.f(x), (X,), attr(B, "f", lambda self, x: x * 3)


@case
def super_finds_nothing():
    class A:
        pass

    class B(A):
        def f(self, x):
            try:
                return super().f(x)
            except AttributeError:
                return x

    b = B()
    return lambda x: b.f(x), (X,), attr(A, "f", lambda self, x: x * 3)


@case
def instance_dict_shared():
    a, b, c = Doubler(), Doubler(), Doubler()
    a.__dict__ = b.__dict__

    def fn(x):
        a.factor = 5
        return x * b.factor

    return fn, (X,), attr_dict(b, c.__dict__)


@case
def protocol_instance():
    import typing

    @typing.runtime_checkable
    class P(typing.Protocol):
        def later(self): ...

    o = Doubler()
    return lambda x: x * (2 if isinstance(o, P) else 3), (X,), attr(o, "later", triple)


@case
def region_of_a_bound_method_whose_class_is_assigned():
    base, child = classes()
    o = child()
    return o.method, (X,), attr_class(o, type("Other", (child,), {"scale": 9}))


@case
def class_attr_object_whose_class_is_assigned():
    class Holder:
        helper = Doubler()

    return lambda x: Holder.helper(x), (X,), attr_class(Holder.helper, Tripler)


@case
def slot_changed():
    class P:
        __slots__ = ("n",)

    p = P()
    p.n = 2
    return lambda x: x * p.n, (X,), doing(lambda: setattr(p, "n", 3), lambda: setattr(p, "n", 2))


@case
def slot_filled():
    class P:
        __slots__ = ("n",)

    p = P()
    return lambda x: x * getattr(p, "n", 1), (X,), doing(lambda: setattr(p, "n", 3), lambda: delattr(p, "n"))


@case
def python_descriptor_replaced():
    class D:
        def __init__(self, n):
            self.n = n

        def __get__(self, obj, owner):
            return self.n

    class P:
        d = D(2)

    p = P()
    return lambda x: x * p.d, (X,), attr(P, "d", D(3))


@case
def python_descriptor_state():
    class D:
        n = 2

        def __get__(self, obj, owner):
            return self.n

    class P:
        d = D()

    p = P()
    return lambda x: x * p.d, (X,), attr(vars(P)["d"], "n", 3)


@case
def python_descriptor_get_patched():
    class D:
        def __get__(self, obj, owner):
            return 2

    class P:
        d = D()

    p = P()
    return lambda x: x * p.d, (X,), attr(D, "__get__", lambda s, o, t: 3)


@case
def python_descriptor_set_added():
    class D:
        def __get__(self, obj, owner):
            return 2

    class P:
        d = D()

    p = P()
    p.__dict__["d"] = 5

    def set_(self, obj, value):
        pass

    return lambda x: x * p.d, (X,), attr(D, "__set__", set_)


@case
def class_attr_becomes_a_descriptor():
    class D:
        pass

    class P:
        d = D()

    p = P()
    return lambda x: x * (2 if isinstance(p.d, D) else 3), (X,), attr(D, "__get__", lambda s, o, t: 3)


@case
def class_getattr_fallback_of_metaclass():
    class Meta(type):
        pass

    class P(metaclass=Meta):
        pass

    return lambda x: x * getattr(P, "n", 1), (X,), attr(Meta, "__getattr__", lambda c, n: 4)


@case
def metaclass_attr():
    class Meta(type):
        n = 2

    class P(metaclass=Meta):
        pass

    return lambda x: x * P.n, (X,), attr(Meta, "n", 4)


@case
def add_added_to_an_int_subclass():
    class N(int):
        pass

    n = N(2)
    return lambda x: x * (n + 1), (X,), attr(N, "__add__", lambda a, b: 10)


@case
def instancecheck_of_an_abc():
    import abc

    class A(abc.ABC):
        pass

    class P:
        pass

    p = P()
    registry = SimpleNamespace(on=False)

    @classmethod
    def hook(cls, sub):
        return True

    return lambda x: x * (2 if isinstance(p, A) else 3), (X,), clearing(attr(A, "__subclasshook__", hook), A)


@contextlib.contextmanager
def clearing(change: Any, cls: Any) -> Iterator[None]:
    cls._abc_caches_clear()
    with change:
        cls._abc_caches_clear()
        yield
    cls._abc_caches_clear()


@case
def dataclass_field():
    @dataclasses.dataclass
    class D:
        n: int = 2
        names: list = dataclasses.field(default_factory=list)

    d = D()
    return lambda x: x * d.n, (X,), attr(d, "n", 3)


@case
def named_tuple_item():
    P = collections.namedtuple("P", "a b")
    return argument(lambda x, p: x * p.a, P(2, 1), P(3, 1))


@case
def tuple_subclass_with_its_own_getitem():
    class T(tuple):
        def __getitem__(self, i):
            return tuple.__getitem__(self, i)

    return argument(lambda x, p: x * p[0], T((2, 1)), T((3, 1)))


# -- functions and cells -----------------------------------------------------------------------------------------------
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


@case
def cached_property_value():
    class P:
        n = 2

        @functools.cached_property
        def twice(self):
            return self.n * 2

    p = P()
    return lambda x: x * p.twice, (X,), item(p.__dict__, "twice", 9)


@case
def autograd_function_forward():
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return lambda x: F.apply(x), (X,), attr(F, "forward", staticmethod(lambda ctx, x: x * 3))


@case
def autograd_function_backward():
    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    w = X.clone().requires_grad_()

    def fn(x):
        return F.apply(w) * x

    return fn, (X,), attr(F, "backward", staticmethod(lambda ctx, g: g * 5))


# -- modules -----------------------------------------------------------------------------------------------------------
@case
def module_attribute():
    m = types.ModuleType("m")
    m.n = 2
    return lambda x: x * m.n, (X,), attr(m, "n", 3)


@case
def module_function_patched():
    m = types.ModuleType("m")
    m.f = double
    return lambda x: m.f(x), (X,), attr(m, "f", triple)


@case
def module_getattr_added():
    m = types.ModuleType("m")
    return lambda x: x * getattr(m, "n", 1), (X,), attr(m, "__getattr__", lambda name: 4)


@case
def module_getattr_replaced():
    m = types.ModuleType("m")
    m.__getattr__ = lambda name: 4
    return lambda x: x * m.n, (X,), attr(m, "__getattr__", lambda name: 5)


@case
def functional_patched():
    import torch.nn.functional as F

    return lambda x: F.relu(x - 3), (X,), attr(F, "relu", F.gelu)


def _yes() -> bool:
    return True


def _second(a: Any, b: Any) -> Any:
    return b + 1


def _scaled(k: float) -> Any:
    held = [k]
    return lambda x: x * held[0]


# What is not run through: another function in its place has the same type, and perhaps the same code.
for _name, _read, _before, _after in [
    ("functional", lambda x, f: f(x - 3), torch.nn.functional.relu, torch.nn.functional.elu),
    ("function_answered_by_the_interpreter", lambda x, f: x * f(int, 3), typing.cast, _second),
    ("query_answered_by_the_interpreter", lambda x, f: x * (3 if f() else 2), torch.jit.is_scripting, _yes),
    ("ufunc", lambda x, f: x * f(3, 2).item(), np.add, np.subtract),
    ("graph_break", lambda x, f: x * (f() or 2), fineline.graph_break, lambda: 3),
    ("disabled_function", lambda x, f: f(x), fineline.disable(double), fineline.disable(triple)),
    ("disabled_frame", lambda x, f: f(x), fineline.disable(double, recursive=False), fineline.disable(triple, recursive=False)),
    ("disabled_closure", lambda x, f: f(x), fineline.disable(_scaled(2), recursive=False), fineline.disable(_scaled(3), recursive=False)),
    ("function_with_a_mark_of_torch", lambda x, f: f(x), torch.compiler.disable(double), torch.compiler.disable(triple)),
    ("function_that_torch_compiled", lambda x, f: f(x), torch.compile(double), torch.compile(triple)),
    ("constant_function", lambda x, f: x * f(), fineline.assume_constant_result(lambda: 2), lambda: 3),
]:
    def _held_case(read=_read, before=_before, after=_after):
        s = SimpleNamespace(f=before)
        return lambda x: read(x, s.f), (X,), attr(s, "f", after)

    CASES[f"{_name}_as_an_argument"] = lambda read=_read, before=_before, after=_after: argument(read, before, after)
    CASES[f"{_name}_as_an_attribute"] = _held_case


# -- containers --------------------------------------------------------------------------------------------------------
for _name, _read, _make, _change in [
    ("dict_item", lambda x, c: x * c["a"], lambda: {"a": 2, "b": 3}, lambda c: item(c, "a", 5)),
    ("dict_item_unread", lambda x, c: x * c["a"] + len(c), lambda: {"a": 2, "b": 3}, lambda c: item(c, "c", 5)),
    ("dict_order", lambda x, c: x * list(c)[0], lambda: {1: 2, 3: 4}, lambda c: reorder(c)),
    ("ordered_dict_order", lambda x, c: x * list(c)[0], lambda: collections.OrderedDict({1: 2, 3: 4}),
     lambda c: doing(lambda: c.move_to_end(1), lambda: c.move_to_end(3))),
    ("dict_key_added", lambda x, c: x * len([k for k in c]), lambda: {"a": 2}, lambda c: item(c, "b", 5)),
    ("dict_items_loop", lambda x, c: sum([x * v for k, v in c.items()]), lambda: {"a": 2, "b": 1}, lambda c: item(c, "b", 5)),
    ("dict_get_missing", lambda x, c: x * c.get("z", 1), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_in", lambda x, c: x * (2 if "z" in c else 3), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_key_error", lambda x, c: attempt(lambda: x * c["z"], KeyError, x), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_key_type", lambda x, c: x * sum([type(k) is bool for k in c]), lambda: {1: 2}, lambda c: rekey(c, {True: 2})),
    ("dict_pop_default", lambda x, c: x * dict(c).pop("z", 1), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_star", lambda x, c: x * named(**c), lambda: {"n": 2}, lambda c: item(c, "n", 5)),
    ("dict_union", lambda x, c: x * len(c | {"q": 1}), lambda: {"n": 2}, lambda c: item(c, "m", 5)),
    ("dict_equality", lambda x, c: x * (2 if c == {"n": 2} else 3), lambda: {"n": 2}, lambda c: item(c, "n", 5)),
    ("dict_subclass", lambda x, c: x * c["a"], lambda: type("D", (dict,), {})(a=2), lambda c: item(c, "a", 5)),
    ("dict_missing_method", lambda x, c: attempt(lambda: x * c["z"], KeyError, x), lambda: type("D", (dict,), {})(a=2),
     lambda c: attr(type(c), "__missing__", lambda s, k: 7)),
    ("default_dict_factory", lambda x, c: x * (c["z"] + len(c)) * int(c.pop("z") is None or 1),
     lambda: collections.defaultdict(lambda: 2), lambda c: attr_name(c, "default_factory", lambda: 3)),
    ("list_item", lambda x, c: x * c[0], lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_negative_item", lambda x, c: x * c[-1], lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_slice", lambda x, c: x * sum(c[:2]), lambda: [2, 3, 4], lambda c: item(c, 1, 5)),
    ("list_length", lambda x, c: x * len(c), lambda: [2, 3], lambda c: doing(lambda: c.append(1), c.pop)),
    ("list_index_error", lambda x, c: attempt(lambda: x * c[2], IndexError, x), lambda: [2, 3],
     lambda c: doing(lambda: c.append(9), c.pop)),
    ("list_nested", lambda x, c: x * c[0][1], lambda: [[2, 3]], lambda c: item(c[0], 1, 5)),
    ("list_loop", lambda x, c: sum([x * v for v in c]), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_unpacked", lambda x, c: x * first(*c), lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_in", lambda x, c: x * (2 if 5 in c else 3), lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_sorted", lambda x, c: x * sorted(c)[0], lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_equality", lambda x, c: x * (2 if c == [2, 3] else 3), lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_truth", lambda x, c: x * (2 if c else 3), lambda: [], lambda c: doing(lambda: c.append(1), c.pop)),
    ("list_subclass_item", lambda x, c: x * c[0], lambda: type("L", (list,), {})([2, 3]), lambda c: item(c, 0, 5)),
    ("list_of_dicts", lambda x, c: x * c[0]["lr"], lambda: [{"lr": 2}], lambda c: item(c[0], "lr", 5)),
    ("list_reversed", lambda x, c: x * next(reversed(c)), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_enumerated", lambda x, c: sum([x * i * v for i, v in enumerate(c)]), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_zipped", lambda x, c: sum([x * i * v for i, v in zip(c, c)]), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_joined", lambda x, c: x * len(",".join(c)), lambda: ["a", "b"], lambda c: item(c, 1, "long")),
    ("list_max", lambda x, c: x * max(c), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_of_tensors", lambda x, c: torch.cat(c), lambda: [X, X + 1], lambda c: doing(lambda: c.append(X), c.pop)),
    ("set_in", lambda x, c: x * (2 if 5 in c else 3), lambda: {2}, lambda c: doing(lambda: c.add(5), lambda: c.discard(5))),
    ("set_length", lambda x, c: x * len(c), lambda: {2}, lambda c: doing(lambda: c.add(5), lambda: c.discard(5))),
    ("set_order", lambda x, c: x * list(c)[0], lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0), lambda: refill(c, 0, 8))),
    ("set_order_loop", lambda x, c: x + [v for v in c][0], lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0),
     lambda: refill(c, 0, 8))),
    ("set_union_order", lambda x, c: x + list(c | {16})[0], lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0),
     lambda: refill(c, 0, 8))),
    ("set_unpacked", lambda x, c: x * first(*c), lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0), lambda: refill(c, 0, 8))),
    ("deque_item", lambda x, c: x * c[0], lambda: collections.deque([2, 3]), lambda c: doing(lambda: c.rotate(), lambda: c.rotate())),
    ("deque_length", lambda x, c: x * len(c), lambda: collections.deque([2, 3]), lambda c: doing(lambda: c.append(1), c.pop)),
    ("deque_loop", lambda x, c: sum([x * i * v for i, v in enumerate(c)]), lambda: collections.deque([2, 3]),
     lambda c: doing(lambda: c.rotate(), lambda: c.rotate())),
    ("deque_maxlen", lambda x, c: x * (c.maxlen or 9), lambda: collections.deque([2, 3]), None),
    ("dict_keys_view", lambda x, c: sum([x * k for k in c]), lambda: {2: 1}, lambda c: item(c, 5, 1)),
    ("byte_array", lambda x, c: x * c[0], lambda: bytearray(b"ab"), lambda c: doing(lambda: c.__setitem__(0, 1),
     lambda: c.__setitem__(0, 97))),
    ("byte_array_length", lambda x, c: x * len(c), lambda: bytearray(b"ab"), lambda c: doing(lambda: c.append(1), c.pop)),
    ("byte_array_loop", lambda x, c: x * sum(c), lambda: bytearray(b"ab"), lambda c: doing(lambda: c.append(1), c.pop)),
    ("mapping_proxy", lambda x, c: x * types.MappingProxyType(c)["a"], lambda: {"a": 2}, lambda c: item(c, "a", 5)),
    ("chained", lambda x, c: x * sum(itertools.chain(c, c)), lambda: [1, 2], lambda c: item(c, 0, 5)),
    ("copied", lambda x, c: x * c.copy()[0], lambda: [1, 2], lambda c: item(c, 0, 5)),
    ("matched", lambda x, c: matched(x, c), lambda: {"kind": 1}, lambda c: item(c, "kind", 5)),
    ("formatted", lambda x, c: x * len(f"{c}"), lambda: [1, 2], lambda c: item(c, 0, 555)),
]:
    if _change is not None:
        def _make_case(read=_read, make=_make, change=_change):
            c = make()
            return (lambda x, c: read(x, c)), (X, c), change(c)

        CASES[_name] = _make_case


def reorder(d: dict) -> Any:
    def turn():
        pairs = list(d.items())[::-1]
        d.clear()
        d.update(pairs)

    return doing(turn, turn)


def rekey(d: dict, new: dict) -> Any:
    old = dict(d)

    def put(other):
        d.clear()
        d.update(other)

    return doing(lambda: put(new), lambda: put(old))


def refill(s: set, *items: Any) -> None:
    s.clear()
    for i in items:
        s.add(i)


def named(n: int) -> int:
    return n


def first(*args: int) -> int:
    return args[0]


def attempt(get: Any, error: type, other: Any) -> Any:
    try:
        return get()
    except error:
        return other


def matched(x: Any, c: Any) -> Any:
    match c:
        case {"kind": 1}:
            return x * 2
        case _:
            return x * 3


@case
def view_of_a_dict_given():
    d = {2: 1}
    return lambda x, k: sum([x * v for v in k]), (X, d.keys()), item(d, 5, 1)


@case
def mapping_proxy_given():
    d = {"a": 2}
    return lambda x, k: x * k["a"], (X, types.MappingProxyType(d)), item(d, "a", 5)


@case
def list_in_a_tuple():
    c = [2]
    return lambda x, t: x * t[0][0], (X, (c,)), item(c, 0, 5)


@case
def dict_looked_up_by_an_object():
    a, b = Doubler(), Doubler()
    d = {a: 2, b: 3}
    return argument(lambda x, k: x * d[k], a, b)


@case
def dict_lacks_an_object():
    a, b = Doubler(), Doubler()
    d = {b: 3}
    return argument(lambda x, k: x * d.get(k, 1), a, b)


@case
def object_in_a_dict():
    a, b = Doubler(), Doubler()
    d = {b: 3}
    return argument(lambda x, k: x * (2 if k in d else 3), a, b)


@case
def object_in_a_list():
    a, b = Doubler(), Doubler()
    c = [b]
    return argument(lambda x, k: x * (2 if k in c else 3), a, b)


@case
def object_in_a_set():
    a, b = Doubler(), Doubler()
    c = {b}
    return argument(lambda x, k: x * (2 if k in c else 3), a, b)


@case
def index_of_an_object():
    a, b = Doubler(), Doubler()
    c = [b, a]
    return argument(lambda x, k: x * (2 + c.index(k)), a, b)


@case
def count_of_an_object():
    a, b = Doubler(), Doubler()
    c = [b, b]
    return argument(lambda x, k: x * (2 + c.count(k)), a, b)


@case
def lists_of_objects_compared():
    a, b = Doubler(), Doubler()
    c = [b]
    return argument(lambda x, k: x * (2 if k == c else 3), [a], [b])


@case
def dict_looked_up_by_a_tensor():
    a, b = X + 1, X + 2
    d = {a: 2, b: 3}
    return argument(lambda x, k: x * d[k], a, b)


# -- constants: type and value -----------------------------------------------------------------------------------------
class S(str):
    pass


class I(int):
    pass


class Fl(float):
    pass


for _name, _read, _before, _after in [
    ("true_and_one", lambda x, v: x * (2 if v is True else 3), True, 1),
    ("one_and_one_point_zero", lambda x, v: x * (2 if type(v) is int else 3), 1, 1.0),
    ("negative_zero", lambda x, v: x * math.copysign(1.0, v), 0.0, -0.0),
    ("nan", lambda x, v: x * (2 if v != v else 3), float("nan"), 1.0),
    ("negative_zero_in_a_tuple", lambda x, v: x * math.copysign(1.0, v[0]), (0.0,), (-0.0,)),
    ("float_subclass_negative_zero", lambda x, v: x * math.copysign(1.0, float(v)), Fl(0.0), Fl(-0.0)),
    ("string_subclass", lambda x, v: x * (2 if type(v) is str else 3), "a", S("a")),
    ("string_subclass_value", lambda x, v: x * len(v), S("a"), S("abc")),
    ("int_subclass_value", lambda x, v: x * int(v), I(2), I(3)),
    ("int_enum", lambda x, v: x * v.value, Level.LOW, Level.HIGH),
    ("int_enum_and_int", lambda x, v: x * (2 if isinstance(v, Level) else 3), Level.LOW, 2),
    ("none_and_value", lambda x, v: x if v is None else x * v, None, 2),
    ("empty_string", lambda x, v: x if v else x * 2, "", "a"),
    ("int_truth", lambda x, v: x if v else x * 2, 1000, 0),
    ("number_formatted", lambda x, v: x * len(f"{v}"), 1000, 10000),
    ("number_compared", lambda x, v: x * (2 if v > 1500 else 3), 1000, 2000),
    ("number_in_a_range", lambda x, v: sum([x * i for i in range(v)]), 300, 301),
    ("number_is_instance", lambda x, v: x * (2 if isinstance(v, int) else 3), 1000, 1000.0),
    ("float_used", lambda x, v: x * v, 2.5, 3.5),
    ("float_nested", lambda x, v: x * v[0][0], ((2.5,),), ((3.5,),)),
    ("dtype_given", lambda x, v: x.to(v), torch.float64, torch.int32),
    ("device_given", lambda x, v: x.to(v), torch.device("cpu"), torch.device("meta")),
    ("slice_given", lambda x, v: x[v], slice(0, 1), slice(0, 2)),
    ("range_given", lambda x, v: x * len(v), range(2), range(3)),
    ("ellipsis_given", lambda x, v: x[v], ..., 0),
    ("complex_given", lambda x, v: x * v, 1j, 2j),
    ("type_given", lambda x, v: v()(x), Doubler, Tripler),
    ("enum_is", lambda x, v: x * (2 if v is Color.RED else 3), Color.RED, Color.BLUE),
    ("list_or_tuple", lambda x, v: x * (2 if isinstance(v, list) else 3), [1], (1,)),
    ("dict_subclass_or_dict", lambda x, v: x * (2 if type(v) is dict else 3), {}, collections.OrderedDict()),
    ("tensor_or_number", lambda x, v: x * v, 2.0, torch.tensor(3.0)),
    ("object_type", lambda x, v: v(x), Doubler(), Tripler()),
    ("number_as_a_setting", lambda x, v: x.sum(dim=v), 0, 1),
    ("big_number_as_a_size", lambda x, v: torch.zeros(v).numel() + x, 1000, 1001),
    ("metadata_by_keyword", lambda x, v: x.size(dim=v) * x, 0, 1),
    ("cached_with_a_tuple", lambda x, v: x * cached_sum((v, 1)), 1000, 2000),
    ("list_of_numbers", lambda x, v: x.reshape(v), [2, 3], [3, 2]),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: argument(lambda x, v: read(x, v), before, after)


@functools.cache
def cached_sum(pair):
    return pair[0] + pair[1]


# -- identity ----------------------------------------------------------------------------------------------------------
_A, _B = Doubler(), Doubler()
for _name, _read, _before, _after in [
    ("is_between_arguments", lambda x, a, b: x * (2 if a is b else 3), lambda: (X, _A, _B), lambda: (X, _A, _A)),
    ("is_between_arguments_undone", lambda x, a, b: x * (2 if a is b else 3), lambda: (X, _A, _A), lambda: (X, _A, _B)),
    ("is_between_tensors", lambda x, a: x * (2 if a is x else 3), lambda: (X, X), lambda: (X, X + 0)),
    ("is_between_distinct_tensors", lambda x, a: x * (2 if a is x else 3), lambda: (X, X + 0), lambda: (X, X)),
    ("equality_of_plain_objects", lambda x, a, b: x * (2 if a == b else 3), lambda: (X, _A, _B), lambda: (X, _A, _A)),
    ("is_not_of_lists", lambda x, a, b: x * (2 if a is not b else 3), lambda: (X, [], []), lambda: (X, *[[]] * 2)),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: made(lambda *a: read(*a), before, after)


def append_and_measure(x, a, b):
    a.append(1)
    return x * len(b), a, b


def set_and_get(x, a, b):
    a["k"] = 5
    return x * b.get("k", 1), a, b


def set_and_read_attr(x, a, b):
    a.factor = 5
    return x * b.factor


def add_and_measure(x, a, b):
    a.add(9)
    return x * len(b)


def append_to_a_deque(x, a, b):
    a.append(9)
    return x * len(b)


def add_in_place(x, a, b):
    a.add_(1)
    return x * b


def attr_of_tensors(x, a, b):
    a._tag = 5
    return x * getattr(b, "_tag", 1)


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 2


def slots_set(x, a, b):
    a.n = 5
    return x * b.n


def nested_lists(x, a, b):
    a[0].append(1)
    return x * len(b[0])


def pair_of(make: Callable[[], Any]) -> tuple[Any, Any]:
    def one():
        v = make()
        return X, v, v

    return (lambda: (X, make(), make())), one


for _name, _read, _maker in [
    ("aliased_lists", append_and_measure, list),
    ("aliased_dicts", set_and_get, dict),
    ("aliased_sets", add_and_measure, set),
    ("aliased_deques", append_to_a_deque, collections.deque),
    ("aliased_objects", set_and_read_attr, Doubler),
    ("aliased_slotted_objects", slots_set, Slotted),
    ("aliased_nested_lists", nested_lists, lambda: [[]]),
    ("aliased_tensors", add_in_place, lambda: X.clone()),
    ("aliased_tensor_attributes", attr_of_tensors, lambda: X.clone()),
]:
    CASES[_name] = lambda read=_read, maker=_maker: made(lambda *a: read(*a), *pair_of(maker))
    CASES[f"no_longer_{_name}"] = lambda read=_read, maker=_maker: made(lambda *a: read(*a), *pair_of(maker)[::-1])


@case
def tensors_share_storage():
    def apart():
        base = torch.ones(4, 3)
        return X, base[:2], torch.ones(2, 3)

    def shared():
        base = torch.ones(4, 3)
        return X, base[:2], base[1:3]

    return made(add_in_place, apart, shared)


@case
def aliased_cells():
    def pair(same):
        n = m = 2

        def write(v):
            nonlocal n
            n = v

        def other():
            nonlocal m
            m += 0
            return m

        if same:
            other = types.FunctionType(other.__code__, other.__globals__, "other", None, write.__closure__)
        return X, write, other

    def fn(x, write, other):
        write(5)
        return x * other()

    return made(fn, lambda: pair(False), lambda: pair(True))


@case
def positional_or_keyword():
    def fn(x, a=1, b=2):
        return x * a - b

    s = SimpleNamespace(kw=False)

    def args():
        return ((X,), {"b": 3}) if s.kw else ((X, 3), {})

    return fn, args, attr(s, "kw", True)


@case
def keyword_order():
    def fn(x, **kw):
        return x * list(kw.values())[0]

    s = SimpleNamespace(kw={"a": 1, "b": 2})
    return fn, lambda: ((X,), s.kw), attr(s, "kw", {"b": 2, "a": 1})


@case
def argument_count():
    return arguments(lambda *a: sum(a[1:], a[0]), (X, 1), (X, 1, 2))


@case
def weight_tying():
    m = nn.Linear(3, 3, bias=False)
    n = nn.Linear(3, 3, bias=False)
    n.weight = m.weight
    return lambda x: n(m(x)) * (2 if m.weight is n.weight else 3), (X,), doing(
        lambda: setattr(n, "weight", nn.Parameter(torch.ones(3, 3))), lambda: setattr(n, "weight", m.weight)
    )


# -- tensors -----------------------------------------------------------------------------------------------------------
class Sub(Tensor):
    pass


for _name, _read, _before, _after in [
    ("tensor_dtype", lambda x: x * 2, lambda: X, lambda: X.double()),
    ("tensor_dtype_read", lambda x: x * (2 if x.dtype is torch.float32 else 3), lambda: X, lambda: X.double()),
    ("tensor_shape", lambda x: x * x.shape[0], lambda: X, lambda: X[:1]),
    ("tensor_ndim", lambda x: x * x.ndim, lambda: X, lambda: X[0]),
    ("tensor_stride", lambda x: x * x.stride(0), lambda: X, lambda: X.t().contiguous().t()),
    ("tensor_contiguous", lambda x: x * (2 if x.is_contiguous() else 3), lambda: X, lambda: X.t()),
    ("tensor_requires_grad", lambda x: x * (2 if x.requires_grad else 3), lambda: X, lambda: X.clone().requires_grad_()),
    ("tensor_is_leaf", lambda x: x * (2 if x.is_leaf else 3), lambda: X.clone().requires_grad_(), lambda: X.clone().requires_grad_() * 1),
    ("tensor_grad_fn", lambda x: x * (2 if x.grad_fn is None else 3), lambda: X.clone().requires_grad_(),
     lambda: X.clone().requires_grad_() * 1),
    ("tensor_meta", lambda x: x * 2, lambda: X, lambda: X.to("meta")),
    ("tensor_is_meta", lambda x: x * (2 if x.is_meta else 3), lambda: X, lambda: X.to("meta")),
    ("tensor_subclass", lambda x: x * (2 if type(x) is Tensor else 3), lambda: X, lambda: X.as_subclass(Sub)),
    ("tensor_or_parameter", lambda x: x * (2 if isinstance(x, nn.Parameter) else 3), lambda: X.clone().requires_grad_(),
     lambda: nn.Parameter(X)),
    ("tensor_storage_offset", lambda x: x * x.storage_offset(), lambda: torch.ones(4, 3)[1:], lambda: torch.ones(5, 3)[2:]),
    ("tensor_is_view", lambda x: x * (2 if x._is_view() else 3), lambda: X.clone(), lambda: X.clone()[:]),
    ("tensor_base", lambda x: x * (2 if x._base is None else 3), lambda: X.clone(), lambda: X.clone()[:]),
    ("tensor_version", lambda x: x * x._version, lambda: X.clone().add_(1), lambda: X.clone().add_(1).add_(1)),
    ("tensor_sparse", lambda x: x * 2, lambda: X, lambda: X.to_sparse()),
    ("tensor_coalesced", lambda x: 2 if x.is_coalesced() else 3, lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)),
     lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)).coalesce()),
    ("tensor_retains_grad", lambda x: x * (2 if x.retains_grad else 3), lambda: X.clone().requires_grad_() * 1, lambda: retained()),
    ("tensor_conjugate", lambda x: x * (2 if x.is_conj() else 3), lambda: X + 1j, lambda: (X + 1j).conj()),
    ("tensor_inference", lambda x: x * (2 if x.is_inference() else 3), lambda: X.clone(), lambda: inferred()),
    ("tensor_value", lambda x: x * (2 if x.sum() > 30 else 3), lambda: X, lambda: X * 10),
    ("tensor_item", lambda x: x * x[0, 0].item(), lambda: X, lambda: X * 10),
    ("tensor_list", lambda x: x * x[0].tolist()[1], lambda: X, lambda: X * 10),
    ("tensor_as_index", lambda x: x[0] * [2, 3, 4][x[0, 0].int()], lambda: X - 1, lambda: X),
    ("tensor_as_index_of_a_tuple", lambda x: x[0] * (2, 3, 4)[x[0, 0].int()], lambda: X - 1, lambda: X),
    ("tensor_nonzero_count", lambda x: x.nonzero().shape[0] + x, lambda: X, lambda: X - 1),
    ("tensor_expanded", lambda x: x * x.stride(0), lambda: torch.ones(2, 3), lambda: torch.ones(3).expand(2, 3)),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: made(lambda *a: read(*a), lambda: (before(),), lambda: (after(),))


def retained() -> Tensor:
    y = X.clone().requires_grad_() * 1
    y.retain_grad()
    return y


def inferred() -> Tensor:
    with torch.inference_mode():
        return X.clone()


@case
def tensor_data_assigned():
    w = torch.ones(3)
    old = w.data
    return lambda x: x * w.sum(0) + w.ndim, (X,), doing(lambda: setattr(w, "data", torch.ones(2, 3)), lambda: setattr(w, "data", old))


@case
def tensor_grad():
    w = torch.ones(3, requires_grad=True)
    return lambda x: x if w.grad is None else x + w.grad, (X,), doing(lambda: setattr(w, "grad", torch.ones(3)),
     lambda: setattr(w, "grad", None))


@case
def tensor_attribute():
    w = torch.ones(3)
    return lambda x: x * getattr(w, "_foo", 1), (X,), attr(w, "_foo", 5)


@case
def tensor_attribute_changed():
    w = torch.ones(3)
    w._foo = 2
    return lambda x: x * w._foo, (X,), attr(w, "_foo", 5)


@case
def tensor_method_shadowed():
    w = torch.ones(3)
    return lambda x: x + w.exp(), (X,), attr(w, "exp", lambda: 7)


@case
def tensor_requires_grad_set():
    w = torch.ones(3)
    return lambda x: x * w, (X,), doing(lambda: w.requires_grad_(True), lambda: w.requires_grad_(False))


@case
def tensor_name_of_a_class_patched():
    return lambda x: x.newly() if hasattr(x, "newly") else x, (X,), attr(Tensor, "newly", lambda self: self * 2)


# -- ambient state -----------------------------------------------------------------------------------------------------
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 2 if "mul" in str(func) else func(*args, **(kwargs or {}))


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.full_like(args[0], 7.0) if func is torch.relu else func(*args, **(kwargs or {}))


def weighted() -> Tensor:
    return torch.ones(3, requires_grad=True)


for _name, _read, _change in [
    ("grad_mode", lambda x, w: x * w, lambda: torch.no_grad()),
    ("grad_mode_read", lambda x, w: x * (2 if torch.is_grad_enabled() else 3), lambda: torch.no_grad()),
    ("inference_mode", lambda x, w: x * w, lambda: torch.inference_mode()),
    ("autocast", lambda x, w: x @ w, lambda: torch.autocast("cpu", torch.bfloat16)),
    ("autocast_read", lambda x, w: x * (2 if torch.is_autocast_enabled("cpu") else 3), lambda: torch.autocast("cpu", torch.bfloat16)),
    ("default_dtype", lambda x, w: x + torch.ones(3), lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("default_dtype_read", lambda x, w: x.to(torch.get_default_dtype()),
     lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("default_device", lambda x, w: torch.ones(3), lambda: setting(torch.set_default_device, "meta", None)),
    ("device_context", lambda x, w: torch.ones(3), lambda: torch.device("meta")),
    ("deterministic", lambda x, w: x * (2 if torch.are_deterministic_algorithms_enabled() else 3),
     lambda: setting(torch.use_deterministic_algorithms, True, False)),
    ("threads", lambda x, w: x * torch.get_num_threads(), lambda: setting(torch.set_num_threads, 2, torch.get_num_threads())),
    ("matmul_precision", lambda x, w: x * len(torch.get_float32_matmul_precision()), lambda: precision("medium")),
    ("function_mode", lambda x, w: torch.relu(x), lambda: FunctionMode()),
    ("dispatch_mode", lambda x, w: x * 2, lambda: Mode()),
    ("anomaly_read", lambda x, w: x * (2 if torch.is_anomaly_enabled() else 3),
     lambda: setting(torch.autograd.set_detect_anomaly, True, False)),
    ("flash_sdp_read", lambda x, w: x * (2 if torch.backends.cuda.flash_sdp_enabled() else 3),
     lambda: setting(torch.backends.cuda.enable_flash_sdp, False, True)),
    ("warn_always_read", lambda x, w: x * (2 if torch.is_warn_always_enabled() else 3),
     lambda: setting(torch.set_warn_always, True, False)),
    ("mkldnn_flag", lambda x, w: x * (2 if torch.backends.mkldnn.enabled else 3), lambda: torch.backends.mkldnn.flags(enabled=False)),
    ("cudnn_benchmark_flag", lambda x, w: x * (2 if torch.backends.cudnn.benchmark else 3),
     # Not through the flag's own name: PyTorch's test library, once loaded, forbids that in the whole process.
     lambda: setting(torch._C._set_cudnn_benchmark, True, False)),
    ("saved_tensor_hooks", lambda x, w: (x * w).exp(), lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t)),
]:
    def _ambient_case(read=_read, change=_change):
        w = weighted()
        return (lambda x: read(x, w)), (X,), change()

    CASES[_name] = _ambient_case


@contextlib.contextmanager
def setting(fn: Any, value: Any, old: Any) -> Iterator[None]:
    fn(value)
    try:
        yield
    finally:
        fn(old)


def precision(value: str) -> Any:
    """Once set, even to what it was, the precision is another one than the one never set."""
    torch.set_float32_matmul_precision("highest")
    return setting(torch.set_float32_matmul_precision, value, "highest")


@case
def autocast_dtype():
    s = SimpleNamespace(dtype=torch.bfloat16)
    w = torch.ones(3)

    def around():
        return torch.autocast("cpu", s.dtype)

    fn = lambda x: x @ w  # noqa: E731
    fn_around[fn] = around
    return fn, (X,), attr(s, "dtype", torch.float16)


fn_around: dict[Any, Any] = {}


# -- nn.Module ---------------------------------------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("scale", torch.tensor(2.0))
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.table = nn.ModuleDict({"a": nn.Tanh()})
        self.plain = 2
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(torch.linspace(-1, 1 + i, p.numel()).reshape(p.shape))

    def forward(self, x):
        x = self.drop(self.layer(x))
        for block in self.blocks:
            x = block(x)
        if self.scale is not None:
            x = x * self.scale
        for name in self.table:
            x = self.table[name](x)
        return x * self.plain


def hook(module, args, output):
    return output * 3


def hook_with_kwargs(module, args, kwargs, output):
    return output * 4


def pre_hook(module, args):
    return (args[0] * 5,)


def pre_hook_with_kwargs(module, args, kwargs):
    return (args[0] * 6,), kwargs


@contextlib.contextmanager
def removable(add: Callable[[], Any]) -> Iterator[None]:
    handle = add()
    try:
        yield
    finally:
        handle.remove()


def global_backward_hook() -> Any:
    """PyTorch keeps a note of the kind of hook when the last one is gone: the first one leaves it."""
    add = _modules.register_module_full_backward_hook
    add(hook).remove()
    return removable(lambda: add(lambda m, given, got: tuple([g if g is None else g * 2 for g in given])))


_modules = torch.nn.modules.module
for _name, _change in [
    ("forward_hook_added", lambda m: removable(lambda: m.layer.register_forward_hook(hook))),
    ("forward_hook_with_kwargs_added", lambda m: removable(lambda: m.layer.register_forward_hook(hook_with_kwargs, with_kwargs=True))),
    ("forward_pre_hook_added", lambda m: removable(lambda: m.layer.register_forward_pre_hook(pre_hook))),
    ("forward_pre_hook_with_kwargs_added",
     lambda m: removable(lambda: m.layer.register_forward_pre_hook(pre_hook_with_kwargs, with_kwargs=True))),
    ("forward_hook_on_the_root_added", lambda m: removable(lambda: m.register_forward_hook(hook))),
    ("backward_hook_added", lambda m: removable(lambda: m.blocks[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)))),
    ("backward_pre_hook_added", lambda m: removable(lambda: m.layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)))),
    ("global_forward_hook_added", lambda m: removable(lambda: _modules.register_module_forward_hook(hook))),
    ("global_forward_pre_hook_added", lambda m: removable(lambda: _modules.register_module_forward_pre_hook(pre_hook))),
    ("global_backward_hook_added", lambda m: global_backward_hook()),
    ("training_flag", lambda m: doing(m.drop.train, m.drop.eval)),
    ("buffer_replaced", lambda m: attr_name(m, "scale", torch.tensor(5.0))),
    ("buffer_none", lambda m: attr_name(m, "scale", None)),
    ("buffer_shape", lambda m: attr_name(m, "scale", torch.ones(3))),
    ("parameter_replaced", lambda m: attr_name(m.layer, "weight", nn.Parameter(torch.ones(3, 3)))),
    ("parameter_frozen", lambda m: doing(lambda: m.layer.weight.requires_grad_(False), lambda: m.layer.weight.requires_grad_(True))),
    ("bias_none", lambda m: attr_name(m.layer, "bias", None)),
    ("submodule_replaced", lambda m: attr_name(m, "layer", nn.Identity())),
    ("submodule_class_assigned", lambda m: attr_class(m.layer, type("L", (nn.Linear,), {"forward": lambda self, x: x}))),
    ("root_class_assigned", lambda m: attr_class(m, type("N", (Net,), {"forward": lambda self, x: x * 9}))),
    ("module_list_appended", lambda m: doing(lambda: m.blocks.append(nn.Tanh()), lambda: m.blocks._modules.pop("2"))),
    ("module_list_item", lambda m: doing(lambda: m.blocks.__setitem__(1, nn.Tanh()), lambda: m.blocks.__setitem__(1, nn.ReLU()))),
    ("module_dict_key", lambda m: doing(lambda: m.table.__setitem__("b", nn.Tanh()), lambda: m.table.pop("b"))),
    ("forward_patched_on_instance", lambda m: attr(m.layer, "forward", triple)),
    ("forward_patched_on_class", lambda m: attr(nn.ReLU, "forward", lambda self, x: x * 3)),
    ("forward_patched_on_the_root", lambda m: attr(m, "forward", triple)),
    ("call_patched_on_class", lambda m: attr(nn.ReLU, "__call__", lambda self, x: x * 3)),
    ("call_patched_on_module", lambda m: attr(nn.Module, "__call__", lambda self, x: x * 3)),
    ("call_impl_patched_on_class", lambda m: attr(nn.ReLU, "_call_impl", lambda self, x: x * 3)),
    ("call_impl_patched_on_module", lambda m: attr(nn.Module, "_call_impl", lambda self, x: x * 3)),
    ("call_impl_patched_on_instance", lambda m: attr(m.layer, "_call_impl", triple)),
    ("attribute_by_dict", lambda m: item(m.__dict__, "plain", 5)),
    ("module_getattr_patched", lambda m: attr(Net, "__getattr__", lambda self, n: nn.Module.__getattr__(self, n) if n != "scale" else 7)),
    ("functional_inside_patched", lambda m: attr(torch.nn.functional, "linear", lambda x, w, b=None: x * 2)),
]:
    def _net_case(change=_change):
        m = Net().eval()
        return m, (X,), change(m)

    CASES[_name] = _net_case


@case
def call_impl_overridden_from_the_start():
    class Odd(nn.Module):
        n = 2

        def _call_impl(self, x):
            return x * self.n

    m = Odd()
    return lambda x: m(x), (X,), attr(Odd, "n", 3)


@case
def dropout_probability():
    m = nn.Dropout(0.0)
    return m, (X,), attr(m, "p", 1.0)


@case
def module_hook_removed():
    m = Net().eval()
    handle = m.layer.register_forward_hook(hook)
    return m, (X,), doing(handle.remove, lambda: m.layer._forward_hooks.update({handle.id: hook}))


@case
def batch_norm_momentum():
    m = nn.BatchNorm1d(3)

    def fn(x):
        m.running_mean.zero_()
        m.running_var.fill_(1.0)
        y = m(x)
        return y, m.running_mean + 0

    return fn, (X,), attr(m, "momentum", 0.9)


@case
def optimizer_learning_rate():
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.5)
    return lambda x: x * opt.param_groups[0]["lr"], (X,), item(opt.param_groups[0], "lr", 0.25)


# -- elsewhere ---------------------------------------------------------------------------------------------------------
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


# -- the test ----------------------------------------------------------------------------------------------------------
class Counter:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.n += 1
        return graph.forward


def outcome(fn: Any, args: Any, around: Any) -> Any:
    """What a call gives or raises, with the gradients of what it gives, as a tree."""
    given = args() if callable(args) else args
    given, kwargs = given if len(given) == 2 and isinstance(given[1], dict) and isinstance(given[0], tuple) else (given, {})
    leaves = [a for a in given if isinstance(a, Tensor) and a.requires_grad and a.is_leaf]
    torch.manual_seed(0)
    try:
        with around():
            value = fn(*given, **kwargs)
    except Exception as e:
        return ("raised", type(e).__name__, str(e))
    parts = [value]
    if isinstance(value, Tensor) and value.requires_grad and value.layout is torch.strided and not value.is_meta:
        inputs = leaves or reachable(value)
        parts += torch.autograd.grad(value.abs().sum(), inputs, allow_unused=True) if inputs else []
    return Freezer().world(parts)


def reachable(value: Tensor) -> list[Tensor]:
    """The leaves that a gradient of ``value`` flows to."""
    found, seen, stack = [], set(), [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if hasattr(node, "variable"):
                found.append(node.variable)
            stack += [n for n, _ in node.next_functions]
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_and_so_is_its_revert(name: str, evaluator: str) -> None:
    if evaluator == "dynamo":
        pytest.skip("holds for fineline")
    fn, args, change = CASES[name]()
    around = fn_around.pop(fn, contextlib.nullcontext) if not isinstance(fn, nn.Module) else contextlib.nullcontext
    count = Counter()
    options = {"evaluator": "native" if evaluator == "captured" else "reference", "recompile_limit": 100}
    compiled = fn if evaluator == "identity" else fineline.compile(fn, backend=count, options=options)

    def agree(when: str) -> Any:
        expected = outcome(fn, args, around)
        found = outcome(compiled, args, around)
        assert list(differences(expected, found)) == [], when
        return expected

    def settle(when: str) -> Any:
        """Calls until nothing is captured any more: state that the call itself changes may take two."""
        for _ in range(4):
            before = count.n
            result = agree(when)
            if count.n == before:
                return result
        raise AssertionError(f"{when}: captures on every call")

    first = settle("before")
    with change:
        changed = settle("changed")
        assert list(differences(first, changed)), "the case changes nothing"
    captured = count.n
    again = agree("reverted")
    assert count.n == captured, "captured again after the revert"
    assert list(differences(first, again)) == []


def test_the_table_is_long() -> None:
    assert len(CASES) >= 90
