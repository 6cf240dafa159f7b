"""Classes that eager code makes anew at each call, and what is called of them: known by what they hold, not as objects."""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Optional, TypeVar

import pytest
import torch

import fineline
from fineline import graph_break
from fineline.api import regions
from tests.oracle import GraphCalls, Program, Step, Table, check, t
from tests.soundness.mutations import classes, data_classes

table = Table()
# The second class of a name tells that they are made anew.
ANY: dict[str, Any] = {"calls": 12, "recompiles": (0, 1), "breaks": True, "backward": False}


def body(x):
    return ((x * 2).sin() + 1).cos().exp().tanh().abs().neg()


def closing(k: int = 2) -> type:
    class Made:
        def __call__(self, x):
            return x + k

    return Made


def with_members(n: int = 3) -> type:
    class Made:
        factor = n

        @staticmethod
        def static(x):
            return x * 2

        @classmethod
        def by_class(cls, x):
            return x * cls.factor

    return Made


def derived() -> type:
    class Base:
        def method(self, x):
            return x + 1

    class Made(Base):
        def method(self, x):
            return super().method(x) * 2

    return Made


def data_class() -> type:
    @dataclasses.dataclass
    class Made:
        k: int = 2

        def method(self, x):
            return x * self.k

    return Made


def abstract() -> type:
    class Made(abc.ABC):
        @property
        def k(self):
            return 4

    return Made


def module() -> type:
    class Made(torch.nn.Module):
        def forward(self, x):
            return x * 2

    return Made


def slotted() -> type:
    class Made:
        __slots__ = ("k",)

        def __init__(self, k):
            self.k = k

    return Made


def frozen() -> type:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Made:
        k: int = 2
        names: list = dataclasses.field(default_factory=list)

    return Made


def generic() -> type:
    kind = TypeVar("kind")

    class Made(Generic[kind]):
        k = 2

    return Made


def typed_tuple() -> type:
    class Made(NamedTuple):
        a: int = 2
        b: int = 3

        def method(self, x):
            return x * self.a

    return Made


def with_special_methods() -> type:
    class Made:
        def __iter__(self):
            yield from (1, 2)

        def __len__(self):
            return 2

        def __getitem__(self, i):
            return i

        def __bool__(self):
            return True

        def __add__(self, other):
            return other * 2

    return Made


def kept_in_a_global() -> type:
    global kept
    kept = with_members()
    return kept


kept: Any = None


def by_type() -> type:
    return type("Made", (), {"__call__": lambda self, x: x + 1})


def caught(cls: Any, x: Any) -> Any:
    try:
        raise cls(1)
    except cls:
        return x + 1


# What eager code makes, and what captured code does with it.
MADE: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "its_bound_c_method": (lambda: type("Made", (dict,), {}).fromkeys, lambda fromkeys, x: x * len(fromkeys("ab"))),
    "its_new": (lambda: type("Made", (tuple,), {}).__new__, lambda new, x: x * len(new(tuple, "abc"))),
    "by_type": (by_type, lambda c, x: c()(x)),
    "a_class_with_a_closure": (closing, lambda c, x: c()(x)),
    "an_instance": (lambda: closing()(), lambda made, x: made(x)),
    "a_static_method": (with_members, lambda c, x: c.static(x)),
    "a_class_method": (with_members, lambda c, x: c.by_class(x)),
    "an_attribute": (with_members, lambda c, x: x * c.factor),
    "a_derived_class": (derived, lambda c, x: c().method(x)),
    "a_data_class": (data_class, lambda c, x: c(3).method(x)),
    "an_instance_of_a_data_class": (lambda: data_class()(3), lambda made, x: made.method(x)),
    "an_abstract_class": (abstract, lambda c, x: x * c().k),
    "a_module_class": (module, lambda c, x: c()(x)),
    "a_module": (lambda: module()(), lambda made, x: made(x)),
    "slots": (slotted, lambda c, x: x * c(2).k),
    "an_instance_with_slots": (lambda: slotted()(2), lambda made, x: x * made.k),
    "a_named_tuple_class": (lambda: collections.namedtuple("Made", "a b"), lambda c, x: c(x, 1).a),
    "a_named_tuple": (lambda: collections.namedtuple("Made", "a b")(1, 2), lambda made, x: x * made.b + made[0]),
    "classes_in_a_tuple": (lambda: (closing(), with_members()), lambda made, x: made[0]()(made[1].static(x))),
    "a_class_in_a_dict": (lambda: {"a": closing()}, lambda made, x: made["a"]()(x)),
    "its_name": (closing, lambda c, x: x + len(c.__name__)),
    "isinstance": (closing, lambda c, x: x + isinstance(c(), c)),
    "an_exception": (lambda: type("Made", (ValueError,), {}), caught),
    "a_class_derived_from_it": (closing, lambda c, x: type("Derived", (c,), {})()(x)),
    "isinstance_of_an_abstract_class": (abstract, lambda c, x: x * isinstance(c(), c) + isinstance(c(), collections.abc.Hashable)),
    "frozen_and_slotted": (frozen, lambda c, x: x * c().k + len(c(5).names)),
    "fields": (data_class, lambda c, x: x * len(dataclasses.fields(c)) * dataclasses.replace(c(), k=9).k),
    "a_generic_class": (generic, lambda c, x: x * c().k),
    "a_typed_named_tuple": (typed_tuple, lambda c, x: c().method(x) + sum(c()._replace(a=7))),
    "special_methods": (with_special_methods, lambda c, x: (c() + x) * len(c()) * c()[1] * sum(c()) * bool(c())),
    "a_partial": (lambda: functools.partial(data_class(), k=4), lambda p, x: p().method(x)),
    "a_bound_method": (lambda: closing()().__call__, lambda method, x: method(x)),
    "a_dict_class": (lambda: type("Made", (dict,), {"n": 2}), lambda c, x: x * c(a=1)["a"] * c.n),
    "a_key_of_a_dict": (closing, lambda c, x: x * {c: 2}[c]),
    "several_of_one_name": (lambda: [with_members(n) for n in (1, 2, 3)], lambda made, x: x * sum([c.factor for c in made])),
    "kept_in_a_global": (kept_in_a_global, lambda c, x: x * c.factor + (kept is c)),
    "behind_another_break": (closing, lambda c, x: c()(x) + fineline.disable(lambda: 1)() + c()(x)),
}


def using(make: Callable[[], Any], use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    eager = fineline.disable(make)
    return lambda x: body(use(eager(), body(x)))


for name, (make, use) in MADE.items():

    def program(make: Any = make, use: Any = use) -> Any:
        # What an earlier run has left.
        globals()["kept"] = None
        return using(make, use)

    program.__name__ = name
    table.program(**ANY)(program)


@pytest.mark.parametrize("name", MADE)
def test_graphs_run_at_every_call(name: str) -> None:
    graphs = GraphCalls()
    compiled = fineline.compile(using(*MADE[name]), backend=graphs)
    for _ in range(12):
        before = graphs.count
        compiled(torch.ones(3))
    assert graphs.count > before


# -- what tells them apart ------------------------------------------------------------------------------------------------
@table.snippet(calls=6, args=lambda place: (t(place), place // 2), breaks=True, recompiles=(0, 1, 2, 3, 4, 5), backward=False)
def with_another_variable(x, n):
    return body(fineline.disable(closing)(n)()(body(x)))


@table.snippet(calls=6, args=lambda place: (t(place), place % 3), breaks=True, recompiles=(0, 1, 2, 3, 4, 5), backward=False)
def with_another_attribute(x, n):
    return body(fineline.disable(with_members)(n).by_class(body(x)))


@fineline.disable
def one_of(n):
    def twice(self, x):
        return x * 2

    base = type("Base", (), {"method": twice})
    return (
        type("Made", (base,), {}),
        type("Made", (base,), {"method": lambda self, x: x + 7}),
        type("Made", (type("Base", (), {"method": lambda self, x: x - 5}),), {}),
        type("Made", (base,), {"__getattribute__": lambda self, name: lambda x: x * 9}),
        type("Made", (base,), {"__slots__": (), "__module__": "elsewhere"}),
    )[n]


@table.snippet(calls=12, args=lambda place: (t(place), place % 5), breaks=True, recompiles=tuple(range(10)), backward=False)
def with_other_methods_and_bases(x, n):
    return body(one_of(n)().method(body(x)))


@table.snippet(calls=8, args=lambda place: (t(place), "a b" if place % 2 else "b a"), breaks=True, recompiles=(0, 1, 2, 3), backward=False)
def named_tuples_with_fields_in_another_order(x, names):
    return body(x * fineline.disable(lambda: collections.namedtuple("Made", names)(2, 3))().a)


@table.snippet(calls=6, recompiles=(0, 1), breaks=True, backward=False)
def that_captured_code_gives_back(x):
    cls = fineline.disable(with_members)()
    return body(x), cls.__name__, cls().factor, isinstance(cls(), cls)


@table.snippet(calls=6, recompiles=(0, 1), breaks=True, backward=False)
def instances_that_captured_code_gives_back(x):
    cls = fineline.disable(data_class)()
    return body(x), cls(3), [cls(), type("Derived", (cls,), {})(5)]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_classes_made_anew(program: Program, twin: str) -> None:
    check(program, twin)


def test_a_class_that_stays_is_known_by_identity() -> None:
    """Its attributes are looked up in C."""
    made = with_members()
    compiled = fineline.compile(using(lambda: made, lambda c, x: x * c.factor), backend="eager")
    for _ in range(4):
        compiled(t())
    region = regions()[-1]
    payloads = [payload for segment in region.segments() for op, _, _, payload in segment.steps if op == "is"]
    assert any([payload is made for payload in payloads]) and len(region.segments()) == 2


# -- what the mutation table changes: here in a class that is made for one call ------------------------------------------------------
CHANGES: dict[str, tuple[Callable[[], Any], Callable[..., Any], Callable[[Any], Any]]] = {
    **{name: (make, read, change) for name, make, read, change in data_classes.ROWS},
    **{
        name: (lambda: classes.classes()[1](), read, lambda o, change=change: change(o, type(o), type(o).__mro__[1]))
        for name, read, change in classes.OF_OBJECTS
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_classes_that_differ(name: str, twin: str) -> None:
    make, read, change = CHANGES[name]

    def program() -> Any:
        changed = contextlib.ExitStack()

        @fineline.disable
        def eager(differs: bool) -> Any:
            changed.close()
            made = make()
            if differs:
                changed.enter_context(change(made))
            return made

        return lambda x, differs: read(x.sin(), eager(differs)), None

    def args(place: int) -> tuple:
        return t(place), place in (3, 4, 5, 7, 8, 11)

    steps = [Step(place, args) for place in range(12)]
    check(Program(name, program, steps, frozenset(range(12)), breaks=True, backward=False, min_graphs=0, options={"recompile_limit": 100}), twin)


# -- classes that look alike, and are not one ------------------------------------------------------------------------------------
def alike() -> type:
    return type("Made", (), {"k": 1, "method": lambda self, x: x + 1})


class World:
    """Classes that look alike: the program knows each in another way."""

    def __init__(self) -> None:
        self.held, self.default, self.listed, self.of_object, self.key = [alike() for _ in range(5)]
        self.object, self.last = self.of_object(), self.held
        self.box, self.keys, self.fixed = [self.listed, int], {self.key: 2, self.held: 3}, frozenset({self.default, self.key})

    def give(self, which: str) -> type:
        if which == "registered":
            self.keys[made := alike()] = 7
            return made
        self.last = alike() if which == "new" else getattr(self, which)
        return self.last

    def uses(self) -> dict[str, Callable[[Any], Any]]:
        held, default, key, box, keys, fixed, obj = self.held, self.default, self.key, self.box, self.keys, self.fixed, self.object
        either, alias = held | int, list[held]  # type: ignore[valid-type]

        def is_default(c, kinds=(default, int)):
            return c is kinds[0], c in kinds, isinstance(c(), kinds), type(c()) is kinds[0]

        def is_keyword(c, *, kind=default):
            return c is kind

        @functools.singledispatch
        def dispatched(o):
            return 1

        dispatched.register(held, lambda o: 2)
        dispatched.register(default, lambda o: 3)

        @functools.lru_cache
        def cached(c):
            return 5 if c is held else 6

        def matched(o):
            match o:
                case held():
                    return 2
                case default():
                    return 3
            return 1

        seen = [held]

        def among_all_before(c):
            seen.append(c)
            return [isinstance(c(), k) for k in seen[:-1]]

        return {
            "is": lambda c: c is held,
            "equal": lambda c: (c == held, c != default),
            "isinstance": lambda c: (isinstance(c(), held), isinstance(held(), c), isinstance(obj, c), isinstance(obj, (c, int))),
            "issubclass": lambda c: (issubclass(c, held), issubclass(held, c), issubclass(type(obj), (int, c))),
            "type": lambda c: (type(obj) is c, type(obj) is type(c()), obj.__class__ is c, type(obj) == c),
            "default": is_default,
            "keyword": is_keyword,
            "union": lambda c: (isinstance(c(), either), c in either.__args__),
            "alias": lambda c: alias.__args__[0] is c,
            "single_dispatch": lambda c: dispatched(c()),
            "cache": cached,
            "match": lambda c: matched(c()),
            "key": lambda c: (c in keys, keys.get(c, 9)),
            "keys_walked": lambda c: [k is c for k in keys],
            "frozen_set": lambda c: c in fixed,
            "list": lambda c: (c in box, box[0] is c, box.count(c), [c, int] == box),
            "tuple": lambda c: ((c, 1) == (held, 1), c not in (held, key)),
            "dict_made_here": lambda c: ({held: 2, c: 3}[held], len({held, c}), {type(obj): 2}.get(c, 3)),
            "set_made_here": lambda c: len({held, c, key}),
            "bases": lambda c: (held in c.__mro__, c in type(obj).__mro__, c.__base__ is held.__base__),
            "derived": lambda c: (isinstance(type("Derived", (c,), {})(), held), isinstance(type("Derived", (c,), {})(), c)),
            "hash": lambda c: hash(c) == hash(held),
            "id": lambda c: id(c) == id(held),
            "weak": lambda c: weakref.ref(held)() is c,
            "copy": lambda c: copy.copy(c) is held or type(copy.copy(c())) is held,
            "any": lambda c: any([k is c for k in box]) or any(k is c for k in (held, key)),
            "attribute_of_one": lambda c: (setattr(held, "extra", 1), hasattr(c, "extra"), delattr(held, "extra"))[1],
            "the_last": lambda c: (isinstance(c(), seen[0]), seen.__setitem__(0, c))[0],
            "all_before": among_all_before,
        }


GIVEN = {
    "anew_first": ("new", "new", "new", "new", "held", "default", "listed", "of_object", "key", "last", "registered", "new"),
    "others_first": ("held", "new", "key", "of_object", "registered", "listed", "held", "new", "last", "default", "new", "registered"),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("use", World().uses())
def test_classes_that_look_alike(use: str, given: str, twin: str) -> None:
    def program() -> Any:
        world = World()
        read, eager = world.uses()[use], fineline.disable(world.give)

        def call(x, which):
            cls = eager(which)
            return x.sin(), read(cls)

        return call, None

    steps = [Step(place, lambda place: (t(place), GIVEN[given][place])) for place in range(12)]
    check(Program(use, program, steps, frozenset(range(12)), breaks=True, backward=False, min_graphs=0, options={"recompile_limit": 100}), twin)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "identity": lambda a, b: (a is b, a == b, a in (b, int)),
    "instances": lambda a, b: (isinstance(a(), b), issubclass(a, b), type(a()) is type(b()), a().__class__ is b),
    "made_here": lambda a, b: (len({a, b}), {a: 1}.get(b, 4), isinstance(type("Derived", (a,), {})(), b)),
    "given_back": lambda a, b: [a, b, a, a(), b()],
}
TWO = (*[("new", "new")] * 3, ("new", "last"), ("held", "new"), ("new", "held"), ("held", "held"), ("last", "last"), ("new", "last"), ("new", "new"))


# Unions and aliases of a class: C makes them, and an object of the first call's class is no instance of them in the second call.
ALIASES: dict[str, Callable[[Any], Any]] = {
    "a union": lambda c: c | str,
    "a union on the right": lambda c: None | c,
    "a union of a union": lambda c: (c | str) | None,
    "a union of a list": lambda c: list[c] | int,
    "a list": lambda c: list[c],
    "an optional": lambda c: Optional[c],
}


@pytest.mark.parametrize("name", ALIASES)
def test_aliases_of_a_class_that_the_call_makes(name: str, twin: str) -> None:
    def program() -> Any:
        def call(x):
            class Made:
                pass

            y = x * 2
            alias = ALIASES[name](Made)
            graph_break()
            checked = isinstance(Made(), alias) if "list" not in name else None
            return y + 1, Made in alias.__args__, list[Made] in alias.__args__, checked

        return call, None

    steps = [Step(place, lambda place: (t(place),)) for place in range(4)]
    check(Program(name, program, steps, frozenset(range(4)), breaks=True, backward=False), twin)


@pytest.mark.parametrize("use", PAIRS)
def test_two_classes_in_one_call(use: str, twin: str) -> None:
    def program() -> Any:
        eager = fineline.disable(World().give)

        def call(x, first, second):
            a, b = eager(first), eager(second)
            return x.sin(), PAIRS[use](a, b)

        return call, None

    steps = [Step(place, lambda place: (t(place), *TWO[place])) for place in range(len(TWO))]
    check(Program(use, program, steps, frozenset(range(9)), breaks=True, backward=False, options={"recompile_limit": 100}), twin)
