"""Guard mutations of enumerations, data classes, named tuples, slots, and what describes them."""

from __future__ import annotations

import collections
import dataclasses
import enum
import inspect
import typing
from typing import Any

from tests.soundness.mutations.cases import Cases, X, attr, attr_name, doing, item

CASES = Cases()
case = CASES.add


def enumeration() -> Any:
    return enum.Enum("Kind", {"A": 2, "B": 3})


class Holder:
    def __init__(self, a: int) -> None:
        self.a = a


def matched(p: Any) -> int:
    cls = type(p)
    match p:
        case cls(2):
            return 2
        case cls(_, 2):
            return 4
    return 3


# What makes the data, what reads it, what changes it.
ROWS: list[tuple[str, Any, Any, Any]] = [
    ("enum_members", enumeration, lambda x, k: x * len(k), lambda k: doing(lambda: k._member_names_.append("A"), k._member_names_.pop)),
    ("enum_attribute", enumeration, lambda x, k: x * getattr(k.A, "extra", 2), lambda k: attr(k.A, "extra", 7)),
    ("enum_class_attribute", enumeration, lambda x, k: x * getattr(k, "extra", 2), lambda k: attr(k, "extra", 7)),
    ("enum_method", enumeration, lambda x, k: x * (2 if hasattr(k.A, "twice") else 3), lambda k: attr(k, "twice", lambda s: 7)),
    ("enum_value", lambda: enum.Enum("K", {"A": [2], "B": 3}), lambda x, k: x * k.A.value[0], lambda k: item(k.A.value, 0, 7)),
    ("enum_value_in_a_value", lambda: enum.Enum("K", {"A": (1, {"a": 2}), "B": 3}), lambda x, k: x * k.A._value_[1]["a"],
     lambda k: item(k.A.value[1], "a", 7)),
    ("enum_value_of_a_class", lambda: enum.Enum("K", {"A": Holder(2), "B": 3}), lambda x, k: x * k["A"].value.a, lambda k: attr(k.A.value, "a", 7)),
    ("enum_members_mapping", enumeration, lambda x, k: x * len(k.__members__), lambda k: item(k._member_map_, "C", k.B)),
    ("dataclass_fields", lambda: dataclasses.make_dataclass("D", ["a", "b"])(2, 3), lambda x, d: x * len(dataclasses.fields(d)),
     lambda d: item(type(d).__dataclass_fields__, "b")),
    ("dataclass_as_dict", lambda: dataclasses.make_dataclass("D", ["a", "b"])(2, 3), lambda x, d: x * sum(dataclasses.asdict(d).values()),
     lambda d: item(type(d).__dataclass_fields__, "b")),
    ("dataclass_replaced", lambda: dataclasses.make_dataclass("D", ["a", "b"])(2, 3), lambda x, d: x * dataclasses.replace(d, a=5).b,
     lambda d: attr(d, "b", 7)),
    ("dataclass_is_one", lambda: dataclasses.make_dataclass("D", ["a", "b"])(2, 3), lambda x, d: x * (2 if dataclasses.is_dataclass(d) else 3),
     lambda d: attr(type(d), "__dataclass_fields__")),
    ("dataclass_default", lambda: dataclasses.make_dataclass("D", [("a", int, 2)]), lambda x, d: x * d().a,
     lambda d: attr_name(d.__init__, "__defaults__", (7,))),
    ("dataclass_init", lambda: dataclasses.make_dataclass("D", ["a"]), lambda x, d: x * d(2).a,
     lambda d: attr(d, "__init__", lambda s, a: s.__dict__.update(a=7))),
    ("dataclass_post_init", lambda: dataclasses.make_dataclass("D", ["a"], namespace={"__post_init__": lambda s: setattr(s, "a", 5)}),
     lambda x, d: x * d(2).a, lambda d: attr(d, "__post_init__", lambda s: setattr(s, "a", 7))),
    ("dataclass_eq", lambda: dataclasses.make_dataclass("D", ["a"]), lambda x, d: x * (2 if d(2) == d(2) else 3),
     lambda d: attr(d, "__eq__", lambda s, o: False)),
    ("frozen_field", lambda: dataclasses.make_dataclass("D", ["a"], frozen=True)(2), lambda x, d: x * d.a,
     lambda d: doing(lambda: object.__setattr__(d, "a", 7), lambda: object.__setattr__(d, "a", 2))),
    ("frozen_key", lambda: dataclasses.make_dataclass("D", ["a"], frozen=True)(2), lambda x, d: x * {type(d)(2): 2}.get(d, 3),
     lambda d: doing(lambda: object.__setattr__(d, "a", 7), lambda: object.__setattr__(d, "a", 2))),
    ("slots_field", lambda: dataclasses.make_dataclass("D", ["a"], slots=True)(2), lambda x, d: x * d.a, lambda d: attr_name(d, "a", 7)),
    ("slots_read", lambda: type("S", (), {"__slots__": ("a",)})(), lambda x, d: x * len(type(d).__slots__), lambda d: attr(type(d), "__slots__", ("a", "b"))),
    ("match_args", lambda: type("S", (), {"__match_args__": ("a", "b"), "a": 2, "b": 2})(), lambda x, d: x * matched(d),
     lambda d: attr(type(d), "__match_args__", ("c", "b"))),
    ("match_args_of_a_dataclass", lambda: dataclasses.make_dataclass("D", ["a", "b"])(2, 2), lambda x, d: x * matched(d),
     lambda d: attr(type(d), "__match_args__", ("c", "b"))),
    ("named_tuple_fields", lambda: collections.namedtuple("N", "a b")(2, 3), lambda x, d: x * len(d._fields), lambda d: attr(type(d), "_fields", ("a",))),
    ("named_tuple_as_dict", lambda: collections.namedtuple("N", "a b")(2, 3), lambda x, d: x * len(d._asdict()),
     lambda d: attr(type(d), "_fields", ("a",))),
    ("named_tuple_default", lambda: collections.namedtuple("N", "a b", defaults=[3]), lambda x, d: x * d(2).b,
     lambda d: attr_name(d.__new__, "__defaults__", (7,))),
    ("named_tuple_field_replaced", lambda: collections.namedtuple("N", "a b")(2, 3), lambda x, d: x * d.a,
     lambda d: attr(type(d), "a", property(lambda s: 7))),
    ("named_tuple_replace", lambda: collections.namedtuple("N", "a b")(2, 3), lambda x, d: x * d._replace(a=5).a,
     lambda d: attr(type(d), "_make", classmethod(lambda c, v: c(7, 7)))),
    ("annotations_of_a_class", lambda: type("S", (), {"__annotations__": {"a": int}}), lambda x, d: x * len(d.__annotations__),
     lambda d: item(d.__annotations__, "b", int)),
    ("annotations_by_inspect", lambda: type("S", (), {"__annotations__": {"a": int}}), lambda x, d: x * len(inspect.get_annotations(d)),
     lambda d: item(d.__annotations__, "b", int)),
    ("typed_dict_keys", lambda: typing.TypedDict("T", {"a": int}), lambda x, d: x * len(d.__annotations__), lambda d: item(d.__annotations__, "b", int)),
    ("doc_of_a_class", lambda: type("S", (), {"__doc__": "ab"}), lambda x, d: x * len(d.__doc__), lambda d: attr_name(d, "__doc__", "abc")),
    ("module_of_a_class", lambda: type("S", (), {"__module__": "ab"}), lambda x, d: x * len(d.__module__), lambda d: attr_name(d, "__module__", "abc")),
    ("abstract_methods", lambda: __import__("abc").ABCMeta("S", (), {}), lambda x, d: x * (2 if inspect.isabstract(d) else 3),
     lambda d: attr_name(d, "__abstractmethods__", frozenset({"a"})) if hasattr(d, "__abstractmethods__") else attr(d, "__abstractmethods__", frozenset("a"))),
    ("subclasses", lambda: type("S", (), {}), lambda x, d: x * (2 + len(d.__subclasses__())), lambda d: subclassed(d)),
    ("property_of_instance_attribute", lambda: type("S", (), {"p": property(lambda s: 2)})(), lambda x, d: x * d.p, lambda d: attr(type(d), "p", 7)),
    ("property_getter_code", lambda: type("S", (), {"p": property(two)})(), lambda x, d: x * d.p,
     lambda d: attr_name(two, "__code__", (lambda s: 7).__code__)),
    ("descriptor_becomes_data", lambda: shadowed(type("G", (), {"__get__": lambda g, o, t: 5})), lambda x, d: x * d.p,
     lambda d: attr(type(vars(type(d))["p"]), "__set__", lambda g, o, v: None)),
    ("descriptor_gets_delete", lambda: shadowed(type("G", (), {"__get__": lambda g, o, t: 5})), lambda x, d: x * d.p,
     lambda d: attr(type(vars(type(d))["p"]), "__delete__", lambda g, o: None)),
    ("cached_property_added", lambda: type("S", (), {"p": 2})(), lambda x, d: x * d.p, lambda d: attr(type(d), "p", property(lambda s: 7))),
    ("class_attribute_deleted", lambda: type("S", (type("B", (), {"p": 2}),), {"p": 3})(), lambda x, d: x * d.p, lambda d: attr(type(d), "p")),
    ("mixin_attribute_added", lambda: type("S", (type("A", (), {}), type("B", (), {"p": 2})), {})(), lambda x, d: x * d.p,
     lambda d: attr(type(d).__bases__[0], "p", 7)),
]
for _name, _make, _read, _change in ROWS:
    def _data_case(make=_make, read=_read, change=_change):
        d = make()
        return (lambda x: read(x, d)), (X,), change(d)

    CASES[f"data_{_name}"] = _data_case


def two(s: Any) -> int:
    return 2


def shadowed(kind: Any) -> Any:
    o = type("S", (), {"p": kind()})()
    o.__dict__["p"] = 2
    return o


def subclassed(cls: Any) -> Any:
    kept: list[Any] = []
    return doing(lambda: kept.append(type("T", (cls,), {})), lambda: (kept.clear(), __import__("gc").collect()))
