"""dataclasses, named tuples, enums and flags, typed dicts, simple namespaces."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import pytest

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: list[str] = dataclasses.field(default_factory=lambda: ["a", "b"])
    hidden: Any = dataclasses.field(default=None, repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    k: int = 3

    def out(self) -> Any:
        return self.x * self.k


@dataclasses.dataclass(order=True)
class Version:
    major: int
    minor: int = 0
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = self.major * 10 + self.minor


@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted:
    a: Any
    b: int = 2


@dataclasses.dataclass
class Output(collections.OrderedDict):
    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value


class Point(NamedTuple):
    x: Any
    y: Any = 1

    def norm(self) -> Any:
        return (self.x**2).sum() + self.y


Pair = collections.namedtuple("Pair", "left right", defaults=[0])


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

    @property
    def double(self) -> int:
        return self.value * 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = enum.auto()


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    RW = R | W


# A class keeps each flag once it is made: no program may be the first to make it.
Perm(0)


class Text(str, enum.Enum):
    A = "a"
    B = "b"


class Row(TypedDict):
    x: Any
    n: int


@table.snippet()
def dataclass_made(x):
    config = Config()
    config.names.append("c")
    return Config(3.0, hidden=x * 2), config, x * config.scale, len(Config().names), repr(config), config == Config(2.0, ["a", "b", "c"], 5)


@table.snippet()
def frozen_dataclass(x):
    frozen = Frozen(x)
    told = []
    try:
        frozen.k = 4
    except dataclasses.FrozenInstanceError as error:
        told.append(str(error))
    other = dataclasses.replace(frozen, k=5)
    return frozen.out(), other.out(), other, told, hash(Frozen(1)) == hash(Frozen(1))


@table.snippet()
def dataclass_order_and_post_init(x):
    versions = [Version(2), Version(1, 5), Version(1, 2)]
    return x * max(versions).total, sorted(versions), Version(1) < Version(2), versions[1].total


@table.snippet()
def dataclass_slots_and_kw_only(x):
    s = Slotted(a=x)
    s.b += 1
    try:
        Slotted(x)
    except TypeError as error:
        return s.a * s.b, s, str(error)


@table.snippet()
def dataclass_functions(x):
    frozen = Frozen(x, 2)
    return dataclasses.asdict(Config()), [f.name for f in dataclasses.fields(frozen)], dataclasses.is_dataclass(frozen), frozen.x + 1


@table.snippet()
def dataclass_that_is_a_dict(x):
    out = Output(loss=x.sum(), logits=x * 2)
    return out, out["loss"] + 1, list(out), len(out), Output(logits=x)


@table.snippet()
def dataclass_made_inside(x):
    @dataclasses.dataclass
    class Inside:
        a: Any
        b: int = 4

    return Inside(x * 2), Inside(x).b


@table.snippet()
def dataclass_inherited(x):
    @dataclasses.dataclass(frozen=True)
    class Child(Frozen):
        extra: int = 7

        def out(self):
            return super().out() + self.extra

    return Child(x).out()


@table.snippet(args=lambda i: (t(i), Config(scale=[2.0, 3.0, 2.0][i])), recompiles=(1,))
def dataclass_argument(x, config):
    config.hidden = x * config.scale
    return config.hidden + len(config.names)


@table.snippet()
def named_tuples(x):
    p = Point(x)
    q = p._replace(y=5)
    a, b = q
    return p.norm() + q.norm(), p, q, p[0] + b, q._asdict(), Point._fields, Point._make([x, 2]), Pair(1), isinstance(p, tuple)


@table.snippet(args=lambda i: (Point(t(i), t(i + 1)), Pair(t(i + 2), 3)))
def named_tuple_arguments(p, pair):
    return p.x * p.y + pair.left * pair.right, p, type(p) is Point


@table.snippet()
def enums(x):
    members = [c.name for c in Color]
    kinds = (Color(2), Color["RED"], Color.CRIMSON is Color.RED, Color.RED == 1, Color.RED in Color, len(Color))
    told = []
    try:
        Color(9)
    except ValueError as error:
        told.append(str(error))
    return x * Color.GREEN.double, members, kinds, told, list(Color.__members__), repr(Color.RED), f"{Color.RED}"


@table.snippet()
def int_enums_and_str_enums(x):
    return x * Level.HIGH + Level.LOW, Level.HIGH > 1, Level(2) is Level.HIGH, Text.A + "z", Text("b"), {"a": 1}[Text.A], x[Level.LOW]


@table.snippet()
def flags(x):
    both = Perm.R | Perm.W
    return x * both.value, both is Perm.RW, Perm.R in both, both & ~Perm.R, bool(Perm.R & Perm.W), [p.name for p in Perm]


@table.snippet()
def enums_as_keys(x):
    table_ = {Color.RED: lambda v: v * 2, Color.GREEN: lambda v: v + 1}
    return [f(x) for f in table_.values()], {c: x * c.value for c in Color}


@table.snippet(args=lambda i: (t(i), [Color.RED, Color.GREEN, Color.RED][i]), recompiles=(1,))
def enum_argument(x, color):
    if color is Color.RED:
        return x * 2
    return x + color.value


@table.snippet()
def simple_namespaces(x):
    ns = SimpleNamespace(a=x, b=SimpleNamespace(c=2))
    ns.b.c += 1
    ns.d = ns.a * ns.b.c
    return ns, ns == SimpleNamespace(**vars(ns)), sorted(vars(ns))


@table.snippet()
def typed_dicts(x):
    row: Row = {"x": x, "n": 2}
    row["n"] += 1
    other = Row(x=x * 2, n=3)
    return row["x"] * row["n"], other, type(other) is dict


@table.snippet()
def copies(x):
    config = Config(hidden=[x, [1]])
    shallow, deep = copy.copy(config), copy.deepcopy(Config(hidden=[1, [2]]))
    shallow.names.append("shared")
    deep.names.append("own")
    return x * len(config.names), shallow, deep, shallow.names is config.names, shallow is config


@table.program(change={1: lambda c: setattr(c, "scale", 4.0), 2: lambda c: setattr(c, "scale", 2.0)}, recompiles=(1,))
def dataclass_from_outside() -> Any:
    config = Config()
    return (lambda x: x * config.scale if "a" in config.names else x), config


@table.program(recompiles=(1,))
def flags_used() -> Any:
    class Perm(enum.Flag):
        R = 4
        W = 2
        X = 1

    def fn(x, p):
        q = Perm.R | Perm.W
        r = q & Perm.W, q ^ Perm.X, ~q, Perm.R in q, bool(q & Perm.X), q.name, list(q)
        return x * q.value, q, r, p | Perm.X, Perm(6) is q, str(q), repr(q)

    fn.__defaults__ = (Perm.R,)
    return fn


@table.program()
def enum_inside() -> Any:
    def fn(x):
        class C(enum.Enum):
            A = 1
            B = 2

        return x * C.B.value, C["A"].name, [c.value for c in C], C(2) is C.B, isinstance(C.A, C), len(C)

    return fn


def another_list(state: Any) -> None:
    """The member's own list has another number, and an equal list takes its place where the code reads it first."""
    state.rows[0] = 7.0
    state.rows = [2.0]


@table.program(change={1: another_list}, recompiles=(1,))
def enum_value_that_is_read_elsewhere_too() -> Any:
    state = SimpleNamespace(rows=[2.0])

    class Kind(enum.Enum):
        ROWS = state.rows

    return (lambda x: x * len(state.rows) * Kind.ROWS.value[0]), state


@table.program(recompiles=(1,))
def enum_values_made_inside() -> Any:
    def fn(x):
        C = enum.Enum("C", {"A": x * 2, "B": [x]})
        return C.A.value + C.B.value[0]

    return fn


@table.program()
def enum_functional() -> Any:
    def fn(x):
        C = enum.Enum("C", "A B")
        return x * C.B.value

    return fn


@table.program()
def intflags() -> Any:
    class F(enum.IntFlag):
        A = 1
        B = 2

    class I(enum.IntEnum):
        ONE = 1
        TWO = 2

    class S(str, enum.Enum):
        P = "p"

    def fn(x):
        f = F.A | F.B
        return x * f + I.TWO, f, I.ONE + 1, f"{S.P.value}", S.P == "p", {I.ONE: 1}[1], F(7), f == 3

    return fn


@table.program(calls=4, breaks=True, recompiles=(1, 2, 3))
def enums_made_inside() -> Any:
    made: list[Any] = []

    def fn(x):
        Two = enum.Enum("Two", "A B")  # type: ignore[misc]

        class Bits(enum.Flag):
            R = 1
            W = 2

        made.extend((Two, Two.A, Bits.R | Bits.W))
        known = Two.A in made, Two(1) is Two.A, Two["B"] in list(Two), [m is Two.A for m in Two], isinstance(Two.A, Two), Bits(3) is made[-1], len(Two)
        apart = all([a is not b for a in made[:-3] for b in made[-3:]])
        return x * Two.B.value, known, apart, Two.__module__, {Two.A: 1}[Two.A], Bits.R in made[-1]

    return fn


@table.program(calls=4, breaks=True, recompiles=(1, 2, 3))
def enum_values_that_vary() -> Any:
    n = [0]

    def fn(x):
        n[0] += 1
        k = n[0]

        class Size(enum.IntEnum):
            A = k
            B = 2 * k

        class Held(enum.Enum):
            A = [k]
            B = "b" * k

        class Bits(enum.Flag):
            R = 1 << k
            S = 1

        told = Size.A + 1, Size(2 * k).value, Size.A < Size.B, Held["A"].value[0], len(Held.B.value), Bits((1 << k) + 1) is Bits.R | Bits.S
        return x * Size.A + Size.B, told, (Bits.R | Bits.S).value

    return fn


@table.program(calls=4, breaks=True, recompiles=(1, 2, 3))
def enum_members_by_another_way() -> Any:
    state: dict[str, Any] = {"n": 0, "made": []}

    def pick(two):
        state["n"] += 1
        member = two.B if state["n"] != 3 else two.A
        state["made"].append(two)
        state.update(items=[member], keys={member: 1}, members={member}, pairs={(member, 1): 3})
        return member, state["made"][0], state["made"][-1]

    pick = fineline.disable(pick)

    def fn(x):
        Two = enum.Enum("Two", "A B")  # type: ignore[misc]
        m, first, last = pick(Two)
        y = x * 2
        held = Two.B in state["items"], Two.B in state["keys"], state["keys"].get(Two.A), Two.B in state["members"], (Two.B, 1) in state["pairs"]
        same = m is Two.B, m == Two.A, {Two.A: 1, Two.B: 2}[m], [Two.A, Two.B].index(m), len({Two.A, m}), (m, 1) == (Two.B, 1), m.name, f"{m}"
        between = first.A == last.A, first is last, {first.A: 1, Two.B: 3}.get(Two.A), first.A in [Two.A], isinstance(first.A, Two)
        return y, held, same, between

    return fn


@table.snippet(breaks=True)
def enums_looked_up(x):
    told = []
    for make in (lambda: Color(1), lambda: Color(9), lambda: Color([1]), lambda: Color(), lambda: Perm(3), lambda: Level(value=1), lambda: Text("b")):
        try:
            told.append(make())
        except (TypeError, ValueError) as error:
            told.append(str(error))
    return x + 1, told


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_data_classes(program: Program, twin: str) -> None:
    check(program, twin)
