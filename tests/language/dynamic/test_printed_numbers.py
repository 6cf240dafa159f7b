"""Texts that C makes of sizes and numbers that vary, and of objects whose classes print themselves."""

from __future__ import annotations

import collections
import enum
import operator
from typing import Any

import pytest
import torch

from tests.oracle import Program, Step, Table, check, t

SIZES = ((3, 4), (5, 6), (7, 8), (3, 4))
NUMBERS = ((300, 4.5), (500, 6.25), (700, 8.5), (300, 4.5))
Pair = collections.namedtuple("Pair", "a b")


class Row(list):
    pass


class Table_(dict):
    pass


class Kept(Exception):
    def __init__(self, text: str, given: Any) -> None:
        super().__init__(text, given)
        self.given = given


def _raised(given: Any) -> Any:
    try:
        raise ValueError("odd", given)
    except ValueError as e:
        return str(e), repr(e), e.args, "%s" % (e,)


# Each is given two sizes, or an int and a float, in a tuple or torch.Size.
TEXTS: dict[str, Any] = {
    "percent": lambda s: "%s %d" % (s, 3),
    "percent_with_a_size": lambda s: "%d,%s" % (s[0], s),
    "percent_of_a_list": lambda s: "%s" % [s],
    "percent_by_name": lambda s: "%(a)s" % {"a": s},
    "percent_of_a_slice": lambda s: "%s" % (slice(s[0]),),
    "percent_of_names": lambda s: "%s" % (Pair(s[0], 2),),
    "percent_with_names": lambda s: "%s %s" % Pair(s[0], 2),
    "percent_of_a_list_of_the_users": lambda s: "%s" % Row([s[0]]),
    "percent_of_a_dict_of_the_users": lambda s: "%s %%" % Table_(a=s),
    "percent_of_views": lambda s: "%s %s" % ({"a": s}.values(), {"a": s[0]}.items()),
    "percent_of_a_deque": lambda s: "%s" % (collections.deque([s], maxlen=3),),
    "percent_of_dicts": lambda s: "%s %s" % (collections.OrderedDict(a=s), collections.defaultdict(list, a=s)),
    "percent_as_a_function": lambda s: operator.mod("%s %s", (s, 1)),
    "percent_as_a_method": lambda s: "%s %s".__mod__((s, 1)),
    "percent_of_bytes": lambda s: b"%d %a" % (s[0], s),
    "percent_of_a_bytearray": lambda s: bytes(bytearray(b"%a %d") % (s, 3)),
    "str_of_names": lambda s: str(Pair(s, 1)),
    "str_of_a_dict": lambda s: str({"a": s, "b": [s[0]]}),
    "repr_as_a_method": lambda s: s.__repr__() + [s].__repr__(),
    "format_of_an_attribute": lambda s: "{a.a}".format(a=Pair(s[0], 1)),
    "format_map": lambda s: "{a}".format_map({"a": s}),
    "hash_of_names": lambda s: hash(Pair(1, s[0])),
    "an_error": _raised,
    "an_error_that_was_not_raised": lambda s: "%s %r" % (ValueError(s), ValueError({"a": s})),
    "an_error_with_a_cause": lambda s: repr(ValueError(ValueError(s))),
    "an_error_with_its_own_init": lambda s: (repr(Kept("a", tuple(s)).args), str(Kept("a", tuple(s)))),
}


def sizes(text: Any) -> Any:
    def fn(x: torch.Tensor) -> Any:
        return text(x.shape), x + 1

    return fn


def numbers(text: Any) -> Any:
    def fn(x: torch.Tensor, n: int, m: float) -> Any:
        return text((n, m)), x + 1

    return fn


READ = frozenset({1, 2, 3})


@pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])
@pytest.mark.parametrize("text", TEXTS)
def test_sizes(text: str, dynamic: bool | None, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place, *SIZES[place]),)) for place in range(4)]
    check(Program(text, lambda: sizes(TEXTS[text]), steps, READ, breaks=True, options={"dynamic": dynamic}), twin)


@pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])
@pytest.mark.parametrize("text", TEXTS)
def test_numbers(text: str, dynamic: bool | None, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), *NUMBERS[place])) for place in range(4)]
    check(Program(text, lambda: numbers(TEXTS[text]), steps, READ, breaks=True, options={"dynamic": dynamic}), twin)


class State:
    k = 1


def _printing(*bases: type, **names: Any) -> Any:
    def method(self: Any, *spec: Any) -> str:
        return f"R{state.k}"

    return type("Printing", bases, dict.fromkeys(names, method))


state = State()


class Told(enum.Enum):
    A = 1

    def __str__(self) -> str:
        return f"R{state.k}"


class Shown(str, enum.Enum):
    A = "a"

    def __repr__(self) -> str:
        return f"R{state.k}"


class Metaclass(type):
    def __repr__(cls) -> str:
        return f"R{state.k}"


class Class(metaclass=Metaclass):
    pass


class Asked:
    @property
    def p(self) -> int:
        return state.k


def _ordered(base: type) -> Any:
    return type("Ordered", (base,), dict.fromkeys(("__gt__", "__ge__"), lambda self, other: state.k > 1))


WITH_REPR = {base: _printing(base, __repr__=1) for base in (tuple, list, dict, int, float, str, bytes, frozenset)}
Listed = WITH_REPR[list]
PYTHON: dict[str, Any] = {
    **{f"repr_of_a_{base.__name__}": lambda cls=cls: ("%s" % [cls()], str({1: cls()}), b"%a" % (cls(),)) for base, cls in WITH_REPR.items()},
    "alone": lambda: (str(Listed()), "%s" % Listed(), "%s" % (Listed(),), repr(Listed()), ascii(Listed())),
    "format": lambda: ("{}".format([Listed()]), f"{[Listed()]}", format(_printing(tuple, __format__=1)())),
    "names": lambda: (str(_printing(Pair, __repr__=1)(1, 2)), "%s" % [_printing(Pair, __repr__=1)(1, 2)]),
    "error": lambda: (repr(ValueError(Listed())), str(ValueError(Listed(), 1)), "%s" % ValueError(Listed())),
    "slice": lambda: repr(slice(Shown.A, 1)),
    "enumeration": lambda: (f"{Told.A}", "%s" % Told.A, str(Told.A), "%s %s" % (1, Told.A), "%s" % [Shown.A], repr([Shown.A])),
    "metaclass": lambda: (str(Class), "%s" % Class, str([Class]), "{}".format(Class)),
    "attribute": lambda: ("{a.p}".format(a=asked), "{0.p}".format(asked), "{0[0].p}".format([asked])),
    "order": lambda: ([_ordered(list)()] > [_ordered(list)([1])], operator.ge((_ordered(tuple)(),), (_ordered(tuple)([1]),))),
}
asked = Asked()


def _set(k: int) -> Any:
    return lambda _: setattr(state, "k", k)


@pytest.mark.parametrize("text", PYTHON)
def test_python(text: str, twin: str) -> None:
    def make() -> Any:
        state.k = 1

        def fn(x: torch.Tensor) -> Any:
            return PYTHON[text](), x + 1

        return fn, state

    steps = [Step(place, change=_set(k)) for place, k in enumerate((1, 2, 3, 1))]
    check(Program(text, make, steps, READ, breaks=True), twin)


table = Table()


@table.snippet()
def what_prints_itself_is_compared(x):
    return x + 1, Told.A in (Told.A, 3), Shown.A == "a", [Shown.A] == ["a"], Listed([1]) == [1], Told.A is Told(1)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_printed(program: Program, twin: str) -> None:
    check(program, twin)
