"""Guard mutations of classes and their instances."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.soundness.mutations.cases import (
    Cases,
    Doubler,
    Tripler,
    X,
    argument,
    attr,
    attr_class,
    attr_dict,
    attr_name,
    bases,
    classes,
    doing,
    triple,
)

CASES = Cases()
case = CASES.add


def of_object(fn: Any, change: Callable[[Any, type, type], Any]) -> tuple[Any, Any, Any]:
    base, child = classes()
    obj = child()
    return (lambda x: fn(x, obj)), (X,), change(obj, child, base)


# What reads an object, and what changes it, its class or the base of that.
OF_OBJECTS: list[tuple[str, Any, Any]] = [
    ("class_attr", lambda x, o: x * type(o).scale, lambda o, c, b: attr(b, "scale", 3)),
    ("class_attr_by_instance", lambda x, o: x * o.scale, lambda o, c, b: attr(b, "scale", 3)),
    ("class_attr_overridden_in_child", lambda x, o: x * o.scale, lambda o, c, b: attr(c, "scale", 3)),
    ("class_attr_written_before_it_is_read", lambda x, o: (setattr(type(o).__mro__[1], "scale", 7), x * o.scale)[1],
     lambda o, c, b: attr(c, "scale", 3)),
    ("bases_assigned_below_a_written_class_attr", lambda x, o: (setattr(type(o).__mro__[-2], "scale", 7), x * o.scale)[1],
     lambda o, c, b: bases(c, type("Mixin", (b,), {"scale": 9}))),
    ("class_attr_of_a_base_of_a_class_made_here", lambda x, o: x * type("Sub", (type(o),), {})().scale, lambda o, c, b: attr(b, "scale", 3)),
    ("class_attr_between_a_class_made_here_and_its_base", lambda x, o: x * type("Sub", (type(o),), {}).scale, lambda o, c, b: attr(c, "scale", 3)),
    ("bases_assigned_to_the_base_of_a_class_made_here", lambda x, o: x * type("Sub", (type(o),), {}).scale,
     lambda o, c, b: bases(c, type("Mixin", (b,), {"scale": 9}))),
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
    ("name_added_to_dict_of_class", lambda x, o: x * (2 if "more" in type(o).__dict__ else 3), lambda o, c, b: attr(c, "more", 4)),
    ("name_gone_from_dict_of_class", lambda x, o: x * (2 if "scale" in vars(type(o).__base__) else 3), lambda o, c, b: attr(b, "scale")),
    ("got_from_dict_of_class", lambda x, o: x * type(o).__dict__.get("scale", 5), lambda o, c, b: attr(c, "scale", 2)),
    ("item_of_dict_of_class", lambda x, o: x * type(o).__base__.__dict__["scale"], lambda o, c, b: attr(b, "scale", 4)),
    ("function_in_dict_of_class", lambda x, o: type(o).__base__.__dict__["method"](o, x),
     lambda o, c, b: attr(b, "method", lambda self, x: x - 1)),
    ("function_attribute", lambda x, o: x * getattr(o.method, "tag", 1), lambda o, c, b: attr(b.method, "tag", 5)),
]
for _name, _read, _change in OF_OBJECTS:
    CASES[_name] = lambda read=_read, change=_change: of_object(read, change)


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
