"""Classes that captured code makes in one graph: class statements, type(), named tuples, data classes, enums; and where they break it."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import gc
import sys
import types
import typing
from typing import Any, NamedTuple

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}


class Outer:
    n = 3

    def method(self) -> int:
        return 7


def contents(cls: type) -> tuple:
    """What is to be seen of a class: its names, in order, and where it says that it comes from."""
    return list(vars(cls)), cls.__module__, cls.__qualname__, cls.__doc__, cls.__mro__


@table.snippet(options=FULL)
def used_inside_only(x):
    class Local:
        size = len(x)
        weight = x * 2

        def __init__(self, v):
            self.v = v

        def of_closure(self):
            return self.v + x + self.weight

    return Local(x + 1).of_closure() * Local.size


@table.snippet(options=FULL)
def returned_with_instances(x):
    class Local:
        """Its text."""

        log: list[Any] = []
        kept = x + 1

        def __init__(self, v):
            self.v = v
            self.log.append(len(self.log))

        @property
        def double(self):
            return self.v * 2

        @classmethod
        def make(cls, v):
            return cls(v)

        @staticmethod
        def own():
            return Local

        def again(self):
            return __class__, Local  # type: ignore[name-defined]

    a, b = Local(x), Local.make(x * 3)
    return Local, contents(Local), a, b, a.double, b.again, Local.make, Local.own() is Local, Local.__annotations__, a.again()


@table.snippet(options=FULL)
def slots_and_special_methods(x):
    class Local:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

        def __eq__(self, other):
            return True

        def __iter__(self):
            yield self.a
            yield self.a + 1

        def __init_subclass__(cls):
            pass

        def __class_getitem__(cls, item):
            return item

        def __new__(cls, a):
            return super().__new__(cls)

    made = Local(x + 1)
    return made, list(made), Local.a, Local.__hash__, made == 3, Local[3], contents(Local), Local.__new__, hasattr(made, "b")


@table.snippet(options=FULL)
def bodies_with_statements(x):
    n, scale = 4, 5

    class Local:
        first = 1
        second = first + n
        del first
        for i in range(2):
            last = i
        if second > 3:
            more = n + 1
        locals()["put"] = 6
        names = sorted(locals())
        scale = [scale * j for j in range(2)]
        types: typing.ClassVar[dict[str, Any]] = {}
        types["a"] = second

        def method(self):
            return scale

    return x * Local.second * Local.put, Local.more, Local.names, Local.scale, Local().method(), contents(Local), Local.types


@table.snippet(options=FULL)
def bodies_that_raise(x):
    told = []

    def missing():
        class Local:
            a = nowhere  # type: ignore[name-defined]  # noqa: F821

    def deleted():
        class Local:
            del a  # type: ignore[name-defined]  # noqa: F821

    def conflict():
        class Local:
            __slots__ = ("a",)
            a = 1

    def order():
        class Local(object, Outer):  # type: ignore[misc]
            pass

    for make in (missing, deleted, conflict, order):
        try:
            make()
        except (NameError, ValueError, TypeError) as e:
            told.append((type(e), str(e)))
    return x + 1, told


@table.snippet(options=FULL)
def one_in_another(x):
    class A:
        class B:
            k = 2

            def method(self):
                return A

        b = B()

        def method(self):
            return A.B.k + self.b.k

    class C(A, Outer):
        def method(self):
            return super().method() + self.n

    return x * C().method() * A.B.k, A, C, A.B, A.b, C().b.method() is A


@table.snippet(options=FULL)
def made_in_a_loop(x):
    made = []
    for i in range(3):

        class Local:
            k = i
            v = x * i

            def method(self):
                return self.v + self.k

        made.append(Local())
    return [obj.method() for obj in made], made, len({type(obj) for obj in made})


@table.program(options=FULL, recompiles=(1,), change={1: lambda state: setattr(state, "n", 5), 2: lambda state: setattr(state, "n", 5)})
def of_a_base_from_outside():
    class Base:
        n = 2

        def method(self):
            return self.n

    def fn(x):
        class Local(Base):
            def method(self):
                return super().method() + 1

        return x * Local().method() + Local.n, Local, isinstance(Local(), Base)

    return fn, Base


def test_bases_list_their_subclasses() -> None:
    def fn(x):
        class Local(Outer):
            pass

        return x * Local.n

    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    compiled(t(0))
    # A collection would take away the classes of earlier calls.
    gc.disable()
    try:
        before = len(Outer.__subclasses__())
        compiled(t(1))
        assert len(Outer.__subclasses__()) == before + 1
    finally:
        gc.enable()


@table.program(options=FULL, recompiles=(1,))
def kept_from_call_to_call():
    state: dict[str, Any] = {}

    def fn(x):
        class Local:
            a = 1

            def method(self, v):
                return v * self.a

        old, state["cls"] = state.get("cls"), Local
        return Local().method(x), old is None or old().method(x) * 2, old is Local

    return fn, state


@table.snippet(options=FULL)
def attributes_set_later(x):
    class Local:
        a = 1

        def method(self):
            return self.a

    Local.b, Local.a = x, 2
    Local.c = Local.method
    before = Local().method()
    Local.method = lambda self: self.b
    made = Local()
    del Local.a
    setattr(Local, "me", Local)
    return made.method() * 2, before, Local, contents(Local), hasattr(made, "a"), made.c


@table.snippet(breaks=True, recompiles=(1,))
def deleted_and_set_again(x):
    class Local:
        a, b = 1, 2

    del Local.a
    Local.a = 3
    return x * Local.a, Local, contents(Local)


@table.snippet(breaks=True, recompiles=(1,))
def contained_in_its_own_list(x):
    class Local:
        items: list[Any] = []

    Local.items.append(Local)
    return x + 1, Local


@table.snippet(options=FULL)
def abstract_classes(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

        @property
        @abc.abstractmethod
        def name(self): ...

    class Square(Shape):
        name = "square"

        def area(self):
            return x * x

    try:
        Shape()  # type: ignore[abstract]
    except TypeError as e:
        told = str(e)
    square = Square()
    return square.area(), told, Shape, Square, isinstance(square, Shape), issubclass(Square, Shape), sorted(Shape.__abstractmethods__)


@table.snippet(options=FULL)
def exceptions_of_its_own(x):
    class Error(ValueError):
        at = 3

    try:
        raise Error("no")
    except Error as e:
        return x + e.at, Error, isinstance(e, ValueError)


@table.snippet(options=FULL)
def derived_from_containers(x):
    class Table(dict):
        def __missing__(self, key):
            return 5

    class Items(list):
        pass

    class Pair(tuple):
        def both(self):
            return len(self)

    return x * Table()["a"] * Pair((1, 2)).both(), Table(a=1), Items([x]), Pair((1, x))


@table.snippet(options=FULL)
def a_module_class(x):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2

        def forward(self, v):
            return v * self.scale

    layer = Layer()
    return layer(x), type(layer).__name__, layer.training


@table.snippet(options=FULL)
def made_by_type(x):
    names = {"a": 1, "method": lambda self, v: v * self.a}
    A = type("A", (), names)
    names["a"], names["own"] = 2, A
    B = type("B", (A, Outer), {"__doc__": "text", "__slots__": ()})
    return B().method(x) * B.n, A, B, contents(A), contents(B), names, B.__bases__, B.__dict__.get("a"), vars(A)["a"]


@table.snippet(options=FULL)
def named_tuples(x):
    names = ["left", "right"]
    Pair = collections.namedtuple("Pair", names, defaults=[2])  # type: ignore[misc]
    names.append("more")
    Odd = collections.namedtuple("Odd", "a def a", rename=True)  # type: ignore[misc]
    pair = Pair(x)
    told = pair._replace(right=x), pair._asdict(), Pair._make([1, 2]), repr(Odd(1, 2, 3)), Pair._fields, Pair._field_defaults
    return pair.left * pair.right, pair, Pair, told, contents(Pair), Pair._make, pair._replace, Odd


@table.snippet(breaks=True, recompiles=(1,))
def methods_of_named_tuples_that_are_replaced(x):
    Pair = collections.namedtuple("Pair", "a b")
    make = Pair._make
    Pair._make = lambda items: Pair(0, 0)  # type: ignore[method-assign, assignment]
    Other = typing.NamedTuple("Other", a=int)  # type: ignore[call-overload]
    return x + 1, make, make([1, 2]), Pair._make([1, 2]), Other.__module__, Other


@table.snippet(options=FULL)
def typed_named_tuples(x):
    class Pair(NamedTuple):
        """Its text."""

        a: Any
        b: int = 2

        def product(self):
            return self.a * self.b

        @property
        def more(self):
            return self.a + 1

    Other = typing.NamedTuple("Other", [("a", int), ("b", str)])
    pair = Pair(x)
    told = Pair._field_defaults, Pair.__orig_bases__ == (NamedTuple,)  # type: ignore[attr-defined]
    return pair.product() * pair._replace(b=3).more, pair, Pair, Other(1, "a"), Other, told, contents(Pair), contents(Other)


# From Python 3.14 on, C makes a class's annotations when they are read. The program cannot make such a dict again, and the call runs eagerly.
@table.snippet(**{"options": FULL} if sys.version_info < (3, 14) else {"min_graphs": 0})
def annotations_of_named_tuples(x):
    class Pair(NamedTuple):
        a: Any
        b: int = 2

    Other = typing.NamedTuple("Other", [("a", int), ("b", str)])
    return Pair(x).a + 1, Pair.__annotations__, Other.__annotations__


@table.snippet(options=FULL)
def data_classes(x):
    @dataclasses.dataclass
    class Config:
        """Its text."""

        weight: Any
        scale: int = 2
        names: list[str] = dataclasses.field(default_factory=list)
        shared: typing.ClassVar[int] = 5

        def method(self):
            return self.weight * self.scale + self.shared

    @dataclasses.dataclass(order=True)
    class Derived(Config):
        more: float = 0.5
        temporary: dataclasses.InitVar[int] = 3

        def __post_init__(self, temporary):
            self.names.append(str(temporary))

    a, b = Config(x + 1), Derived(x, 3, more=1.5)
    changed = dataclasses.replace(a, scale=7)
    told = [f.name for f in dataclasses.fields(b)], dataclasses.is_dataclass(Derived), Derived.__match_args__, Config(1, 2) == Config(1, 2)
    return a.method() * b.method() * changed.scale, a, b, Config, Derived, told, contents(Config), contents(Derived)


@table.snippet(options=FULL)
def data_classes_with_options(x):
    @dataclasses.dataclass(frozen=True, eq=True, kw_only=True)
    class Point:
        a: int = 1
        b: str = dataclasses.field(default="b", repr=False)

    point = Point(a=4)
    try:
        point.a = 5  # type: ignore[misc]
    except dataclasses.FrozenInstanceError as e:
        told = str(e)
    return x * point.a, point, told, Point.__doc__, hash(point) == hash(Point(a=4)), Point


@table.snippet(breaks=True, recompiles=(1, 2))
def data_classes_that_break(x):
    @dataclasses.dataclass(slots=True)
    class Slotted:
        a: int = 1

    @dataclasses.dataclass
    class Odd:
        a: Any = x

    class Later:
        a: int = 1

    Later.b = 2  # type: ignore[attr-defined]
    late = dataclasses.dataclass(Later)
    return x * Slotted().a * late().a, Odd, Later is late, contents(Slotted)


@table.snippet(options=FULL)
def enums_by_call(x):
    Color = enum.Enum("Color", ["RED", "BLUE"])  # type: ignore[misc]
    Flags = enum.IntFlag("Flags", "A B C")
    Names = enum.StrEnum("Names", {"p": "q"})
    told = list(Color), Color["BLUE"], Color(2), Color.RED.name, Names.p, isinstance(Flags.A, int), Color.RED is Color(1), len(Color)
    return x * Color.BLUE.value * Flags.C, Color, Color.RED, told, {Color.RED: x}, Color.__module__, Flags


@table.snippet(breaks=1)
def all_alive_at_a_break(x):
    Pair = collections.namedtuple("Pair", "a b")
    Color = enum.Enum("Color", ["RED", "BLUE"])  # type: ignore[misc]

    @dataclasses.dataclass
    class Config:
        a: int = 2

    class Local(Outer):
        def __init__(self, v):
            super().__init__()
            self.v = v

        def method(self):
            return self.v + __class__.n  # type: ignore[name-defined]

    local, pair, red, make = Local(x * 2), Pair(x, 3), Color.RED, Pair._make
    fineline.graph_break()
    told = Pair._make([1, 2]), make([3, 4]), red is Color.RED, Color(2).name, Config().a, Config() == Config(2)
    return local.method() * pair.b * Config(5).a, told, Local, Pair, Color, Config, local


@table.snippet(breaks=True)
def a_break_in_a_body(x):
    class Local:
        a = x * 2
        fineline.graph_break()
        b = a + 1

        def method(self):
            return self.b * 2

        if "c" not in locals():
            c = 5
        del a

    return Local().method() * Local.c, Local, contents(Local)


@table.program(breaks=True, min_graphs=0, recompiles=(1,))
def what_runs_code_of_the_users():
    log: list[Any] = []

    class Meta(type):
        def __new__(mcs, name, bases, space, **rest):
            log.append((name, sorted(rest)))
            return super().__new__(mcs, name, bases, space)

    class Base:
        def __init_subclass__(cls, **rest):
            log.append(("subclass", cls.__name__, sorted(rest)))

    class Field:
        def __set_name__(self, owner, name):
            log.append(("named", owner.__name__, name))

    def fn(x):
        class A(metaclass=Meta, key=3):
            pass

        class B(Base, key=4):
            pass

        class C:
            a = Field()

        class E(enum.Enum):
            ONE = 1
            TWO = enum.auto()

        D = type("D", (Base,), {})
        made = types.new_class("F", (), {}, lambda space: space.update(a=2))
        return x * E.TWO.value * made.a, A, B, C, D, list(log)  # type: ignore[attr-defined]

    return fn, log


@table.snippet(options=FULL)
def keys_of_tables(x):
    class Local:
        pass

    known, group = {Local: 2}, {Local}
    return x * known[Local], Local in group, known, type(Local()) in known


@table.snippet(breaks=True, recompiles=(1, 2))
def hashes_and_addresses(x):
    class Local:
        pass

    return x + 1, hash(Local) == hash(Local), id(Local) == id(Local), repr(Local), Local.__name__


@table.snippet(options=FULL)
def decorated_methods(x):
    def twice(fn):
        @functools.wraps(fn)
        def both(*args):
            return fn(*args) * 2

        return both

    class Local:
        @twice
        def method(self, v):
            return v + 1

        @staticmethod
        @twice
        def static(v):
            return v

        partial = functools.partial(lambda a, b: a + b, 1)

    return Local().method(x), Local.static(x), Local.partial(2), Local, Local.method


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_class_statements(program: Program, twin: str) -> None:
    check(program, twin)
