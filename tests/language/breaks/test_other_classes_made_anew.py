"""Enums, protocols, autograd functions and tensor classes that eager code makes anew at each call: known by what they hold, as plain classes are."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import pytest
import torch

import fineline
from tests.language.breaks.test_classes_made_anew import ANY, body, using
from tests.oracle import GraphCalls, Program, Step, Table, check, t

table = Table()


# -- enums -----------------------------------------------------------------------------------------------------------------
def plain(a: Any = "a", b: Any = "b") -> type[enum.Enum]:
    class Made(enum.Enum):
        A = a
        B = b

        def method(self, x):
            return x * len(self.name) + len(self.value)

    return Made


def automatic() -> type[enum.Enum]:
    class Made(enum.Enum):
        A = enum.auto()
        B = enum.auto()
        ALSO_B = 2

    return Made


def numbers(a: int = 1, b: int = 2) -> type[enum.IntEnum]:
    class Made(enum.IntEnum):
        A = a
        B = b

    return Made


def flags() -> type[enum.Flag]:
    class Made(enum.Flag):
        A = 1
        B = 2

    return Made


def texts() -> type[enum.Enum]:
    class Made(str, enum.Enum):
        A = "a"
        B = "bb"

    return Made


def with_fields() -> type[enum.Enum]:
    class Made(enum.Enum):
        A = (1, 2.0)
        B = (2, 3.0)

        def __init__(self, k, scale):
            self.k = k
            self.scale = scale

        @property
        def product(self):
            return self.k * self.scale

    return Made


def of_functions() -> type[enum.Enum]:
    class Made(enum.Enum):
        A = enum.member(lambda x: x * 2)

    return Made


def matched(c: Any, x: Any) -> Any:
    match c.A:
        case c.B:
            return x * 3
        case c.A:
            return x * 2


# -- autograd functions ------------------------------------------------------------------------------------------------------
def function(k: float = 3.0, back: float = 4.0) -> type:
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * back + x.sin()

    return Made


def with_setup() -> type:
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(x, n):
            return x * n

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.n = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.n * 2, None

    return Made


def calling(cls: Any) -> Callable[[Any], Any]:
    return lambda x: cls.apply(x)


# -- protocols -----------------------------------------------------------------------------------------------------------------
def protocol(*names: str) -> type:
    return runtime_checkable(type(Protocol)("Made", (Protocol,), {name: lambda self, x: x for name in names or ("method",)}))


def with_a_default() -> type:
    class Base(Protocol):
        def method(self, x):
            return x * 3

    class Made(Base):
        pass

    return Made


class Has:
    def method(self, x):
        return x * 2


has = Has()


# -- classes of tensors ----------------------------------------------------------------------------------------------------------
def tensors(n: int = 2) -> type:
    class Made(torch.Tensor):
        def times(self):
            return self * n

    return Made


def overriding() -> type:
    class Made(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    return Made


def parameters() -> type:
    return type("Made", (torch.nn.Parameter,), {"k": 2})


def plainly(v: Any) -> Any:
    return v.as_subclass(torch.Tensor)


ENUMS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "a_number": (numbers, lambda c, x: x * c.B),
    "a_value": (numbers, lambda c, x: x * c.B.value),
    "a_name": (plain, lambda c, x: x + len(c.B.name)),
    "a_method": (plain, lambda c, x: c.A.method(x)),
    "by_value": (plain, lambda c, x: x + len(c("b").name)),
    "by_name": (plain, lambda c, x: x + len(c["B"].name)),
    "all_members": (automatic, lambda c, x: x + sum([m.value for m in c])),
    "all_numbers": (numbers, lambda c, x: x + sum(c)),
    "how_many": (automatic, lambda c, x: x + len(c) + len(c.__members__)),
    "contains": (automatic, lambda c, x: x + (c.A in c)),
    "isinstance": (automatic, lambda c, x: x + isinstance(c.A, c)),
    "flags": (flags, lambda c, x: x + (c.A | c.B).value + bool(c.A & c.B)),
    "made_by_a_call": (lambda: enum.Enum("Made", "A B C"), lambda c, x: x + c.C.value),
    "a_member": (lambda: automatic().B, lambda m, x: x + m.value),
    "a_member_with_its_name": (lambda: plain().B, lambda m, x: x + len(m.name)),
    "a_member_that_is_a_number": (lambda: numbers().B, lambda m, x: x * m),
    "a_member_that_is_a_text": (lambda: texts().B, lambda m, x: x * len(m)),
    "a_member_that_is_a_flag": (lambda: flags().B, lambda m, x: x * m.value),
    "several_flags": (lambda: (lambda c: c.A | c.B)(flags()), lambda m, x: x + len(type(m).__members__)),
    "a_member_and_its_enum": (lambda: (lambda c: (c.A, c, c.B))(automatic()), lambda made, x: x + (made[0] is made[1].A) + made[2].value),
    "members_in_a_list": (lambda: list(numbers()), lambda members, x: x + sum([m.value for m in members])),
    "a_member_held_by_an_object": (lambda: functools.partial(pow, automatic().B.value), lambda p, x: x * p(2)),
    "compared": (automatic, lambda c, x: x * (2 if c.A is c.A and c.A != c.B and c.B is c.ALSO_B else 3)),
    "match": (automatic, matched),
    "fields": (with_fields, lambda c, x: x * c.B.product + c.A.k),
    "strings": (texts, lambda c, x: x + len(c.A + c.B)),
    "functions": (of_functions, lambda c, x: c.A.value(x)),
    "a_key": (automatic, lambda c, x: x * {c.A: 2, c.B: 3}[c.B]),
    "a_set": (automatic, lambda c, x: x + len({c.A, c.B, c.A})),
    "behind_another_break": (automatic, lambda c, x: x + c.A.value + fineline.disable(lambda: 1)() + c.B.value),
}
FUNCTIONS = {
    "applied": (function, lambda c, x: c.apply(x)),
    "with_setup": (with_setup, lambda c, x: c.apply(x, 3)),
    "its_apply": (lambda: function().apply, lambda apply, x: apply(x)),
    "a_partial": (lambda: functools.partial(with_setup().apply, n=3), lambda apply, x: x if apply is None else function_of(apply, x)),
    "in_a_closure": (lambda: calling(function()), lambda fn, x: fn(x)),
    "derived": (lambda: type("Derived", (function(),), {}), lambda c, x: c.apply(x)),
    "derived_in_captured_code": (function, lambda c, x: type("Derived", (c,), {}).apply(x)),
    "twice": (function, lambda c, x: c.apply(c.apply(x))),
    "two": (lambda: (function(), with_setup()), lambda made, x: made[0].apply(made[1].apply(x, 2))),
    "its_name": (function, lambda c, x: x + len(c.__name__)),
    "without_gradients": (function, lambda c, x: c.apply(x.detach()) + x),
    "behind_another_break": (function, lambda c, x: c.apply(x) + fineline.disable(lambda: 1)() + c.apply(x)),
}
PROTOCOLS = {
    "its_name": (protocol, lambda c, x: x + len(c.__name__)),
    "isinstance": (protocol, lambda c, x: x + isinstance(has, c)),
    "not_isinstance": (lambda: protocol("other"), lambda c, x: x + isinstance(has, c)),
    "isinstance_of_several": (protocol, lambda c, x: x + isinstance(has, (int, c))),
    "isinstance_of_what_is_made": (protocol, lambda c, x: x + isinstance(Has(), c)),
    "issubclass": (protocol, lambda c, x: x + issubclass(Has, c)),
    "a_default": (with_a_default, lambda c, x: c().method(x)),
    "an_instance": (lambda: with_a_default()(), lambda made, x: made.method(x)),
    "derived": (protocol, lambda c, x: type("Derived", (c,), {})().method(x)),
}
TENSORS = {
    "as_subclass": (tensors, lambda c, x: plainly(x.as_subclass(c).sin())),
    "a_tensor": (lambda: torch.ones(3).as_subclass(tensors()), lambda v, x: plainly(v * 2 + 1).sum() + x),
    "a_method": (tensors, lambda c, x: plainly(x.as_subclass(c).times())),
    "an_override": (overriding, lambda c, x: plainly(x.as_subclass(c).sin())),
    "a_tensor_that_overrides": (lambda: torch.ones(3).as_subclass(overriding()), lambda v, x: plainly(v * 2 + 1).sum() + x),
    "isinstance": (tensors, lambda c, x: x + isinstance(x, c) + isinstance(x.as_subclass(c), c)),
    "its_name": (tensors, lambda c, x: x + len(c.__name__)),
    "a_call": (tensors, lambda c, x: plainly(c([1.0, 2.0, 3.0])).sum() + x),
    "a_result": (tensors, lambda c, x: plainly(body(x).as_subclass(c))),
    "a_parameter": (parameters, lambda c, x: c(torch.ones(3)).sum() + x),
    "a_parameter_of_one": (lambda: parameters()(torch.ones(3)), lambda p, x: (p * p.k).sum() + x),
    "its_attribute": (parameters, lambda c, x: x * c.k),
    "in_a_tuple": (lambda: (tensors(), torch.ones(3).as_subclass(tensors())), lambda made, x: x + plainly(made[1]).sum() + isinstance(x, made[0])),
}


def function_of(apply: Any, x: Any) -> Any:
    return apply.func(x, apply.keywords["n"])


MADE = {
    f"{kind}_{name}": row
    for kind, rows in {"enum": ENUMS, "function": FUNCTIONS, "protocol": PROTOCOLS, "tensor": TENSORS}.items()
    for name, row in rows.items()
}
# The backward of what a function gives.
BACKWARD = frozenset(f"function_{name}" for name in FUNCTIONS)

for name, (make, use) in MADE.items():

    def program(make: Any = make, use: Any = use) -> Any:
        return using(make, use)

    program.__name__ = name
    table.program(**{**ANY, "backward": name in BACKWARD, "grad": name in BACKWARD, "recompiles": (0, 1, 2)})(program)


@pytest.mark.parametrize("name", MADE)
def test_graphs_run_at_every_call(name: str) -> None:
    graphs = GraphCalls()
    compiled = fineline.compile(using(*MADE[name]), backend=graphs)
    for place in range(12):
        before = graphs.count
        compiled(torch.ones(3, requires_grad=name in BACKWARD))
    assert graphs.count > before


# -- what tells them apart -----------------------------------------------------------------------------------------------------
def other(change: str) -> Any:
    """Makes an enum that differs from ``plain()`` in one thing."""
    made: Any = plain("b", "a") if change == "values" else plain()
    match change:
        case "method":
            made.method = lambda self, x: x - 7
        case "one_more":
            made = enum.Enum("Made", {"A": "a", "B": "b", "C": "c"}, module=__name__, qualname=made.__qualname__)
        case "order":
            made = enum.Enum("Made", {"B": "b", "A": "a"}, module=__name__, qualname=made.__qualname__)
        case "alias":
            made = enum.Enum("Made", {"A": "a", "B": "a"}, module=__name__, qualname=made.__qualname__)
        case "value_of_a_member":
            made.A._value_ = "abc"
        case "field":
            made.B.extra = 5
    return made


READS: dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda c, x: x * len(c.A.value) + (c.A.value == "a"),
    "method": lambda c, x: c.A.method(x) if hasattr(c.A, "method") else x,
    "names": lambda c, x: [x + 1, [m.name for m in c]],
    "length": lambda c, x: x + len(c),
    "by_value": lambda c, x: [x + 1, c("a").name],
    "by_name": lambda c, x: [x + 1, c["B"].value],
    "members": lambda c, x: [x + 1, list(c.__members__), c.A is c.B],
    "field": lambda c, x: x + getattr(c.B, "extra", 1),
}
CHANGES = ("none", "values", "method", "one_more", "order", "alias", "value_of_a_member", "field")


@pytest.mark.parametrize("read", READS)
def test_enums_that_differ(read: str, twin: str) -> None:
    def program() -> Any:
        eager = fineline.disable(other)
        return lambda x, change: READS[read](eager(change), x.sin()), None

    changes = ("none", "none", *[change for kind in CHANGES[1:] for change in (kind, "none")])
    steps = [Step(place, lambda place: (t(place), changes[place])) for place in range(len(changes))]
    check(Program(read, program, steps, frozenset(range(len(changes))), breaks=True, backward=False, options={"recompile_limit": 100}), twin)


@table.snippet(calls=8, args=lambda place: (t(place), place in (3, 6)), grad=True, breaks=True, recompiles=tuple(range(8)))
def functions_with_another_backward(x, differs):
    return body(fineline.disable(function)(3.0, 5.0 if differs else 4.0).apply(body(x)))


@table.snippet(calls=8, args=lambda place: (t(place), place in (3, 6)), grad=True, breaks=True, recompiles=tuple(range(8)))
def functions_with_another_forward(x, differs):
    return body(fineline.disable(function)(2.0 if differs else 3.0).apply(body(x)))


@table.snippet(calls=8, args=lambda place: (t(place), place in (3, 6)), breaks=True, recompiles=tuple(range(8)), backward=False)
def protocols_with_another_member(x, differs):
    cls = fineline.disable(protocol)("other" if differs else "method")
    return body(x) + isinstance(has, cls) + issubclass(Has, cls) * 2


@table.snippet(calls=8, args=lambda place: (t(place), place in (3, 6)), breaks=True, recompiles=tuple(range(8)), backward=False)
def tensors_with_another_method(x, differs):
    return body(plainly(body(x).as_subclass(fineline.disable(tensors)(5 if differs else 2)).times()))


@fineline.disable
def a_tensor_of(which):
    if which == "overrides":
        return torch.ones(3).as_subclass(overriding())
    made = torch.ones(3).as_subclass(type("Made", (torch.Tensor,), {"times": lambda self: self * 2}))
    if which == "another_method":
        type(made).times = lambda self: self * 5
    return made.double() if which == "another_type" else made


@table.snippet(
    calls=10,
    args=lambda place: (t(place), ("", "", "", "another_method", "", "another_type", "", "overrides", "", "")[place]),
    breaks=True,
    recompiles=tuple(range(10)),
    backward=False,
)
def tensors_of_classes_that_differ(x, which):
    v = a_tensor_of(which)
    y = body(x)
    return y + plainly(v.times() if hasattr(v, "times") else v + 3)


@table.snippet(calls=6, recompiles=(0, 1), breaks=True, backward=False)
def members_that_captured_code_gives_back(x):
    cls = fineline.disable(numbers)()
    return body(x), cls.A.name, cls.B + 1, [cls.A.value, cls["B"].name], cls(2).name


# -- enums that look alike, and are not one -------------------------------------------------------------------------------------
class World:
    """Enums that look alike: the program knows each in another way."""

    def __init__(self) -> None:
        self.held, self.key, self.listed = automatic(), automatic(), automatic()
        self.last: Any = self.held
        self.keys, self.box, self.fixed = {self.key.A: 2, self.held.B: 3}, [self.listed.A, 1], frozenset({self.key.A})

    def give(self, which: str) -> Any:
        self.last = automatic() if which == "new" else getattr(self, which)
        return self.last

    def give_member(self, which: str) -> Any:
        return self.give(which).A

    def uses(self) -> dict[str, Callable[[Any], Any]]:
        """Returns what is asked of a member ``A``."""
        held, keys, box, fixed = self.held, self.keys, self.box, self.fixed

        def is_default(m: Any, kinds: Any = (held.A, 1)) -> Any:
            return m is kinds[0], m in kinds

        def matched(m: Any) -> Any:
            match m:
                case held.A:
                    return 2
                case held():
                    return 3
            return 1

        return {
            "is": lambda m: (m is held.A, m is held.B),
            "equal": lambda m: (m == held.A, m != held.A),
            "isinstance": lambda m: (isinstance(m, held), m in list(held), type(m) is held, m.__class__ is held),
            "default": is_default,
            "match": matched,
            "key": lambda m: (m in keys, keys.get(m, 9)),
            "list": lambda m: (m in box, box[0] is m, box.count(m)),
            "frozen_set": lambda m: m in fixed,
            "made_here": lambda m: ({held.A: 2, m: 3}[held.A], len({held.A, m})),
            "hash": lambda m: hash(m) == hash(held.A),
            "by_value": lambda m: (held(1) is m, type(m)(1) is m, type(m)(2) is held.B),
        }


GIVEN = {
    "anew_first": ("new", "new", "new", "new", "held", "listed", "key", "last", "new", "held"),
    "others_first": ("held", "new", "key", "listed", "new", "held", "last", "new", "key", "new"),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("whole", [True, False], ids=["enum", "member"])
@pytest.mark.parametrize("use", World().uses())
def test_enums_that_look_alike(use: str, whole: bool, given: str, twin: str) -> None:
    def program() -> Any:
        world = World()
        read, eager = world.uses()[use], fineline.disable(world.give if whole else world.give_member)

        def call(x, which):
            made = eager(which)
            return x.sin(), read(made.A if whole else made)

        return call, None

    steps = [Step(place, lambda place: (t(place), GIVEN[given][place])) for place in range(10)]
    check(Program(use, program, steps, frozenset(range(10)), breaks=True, backward=False, min_graphs=0, options={"recompile_limit": 100}), twin)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_other_classes_made_anew(program: Program, twin: str) -> None:
    check(program, twin)
