"""Texts of functions and objects that print with their address: of arguments, and of what the call makes."""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.language.dynamic.texts import Held
from tests.oracle import Program, Table, check, t

table = Table()


class Plain:
    number = 2

    def method(self) -> int:
        return self.number


class Abstract(abc.ABC):  # noqa: B024
    pass


class Slots:
    __slots__ = ("a",)


class Printing(Plain):
    def __repr__(self) -> str:
        return "printing"


class Above(Plain):
    def __repr__(self) -> str:
        return f"{super().__repr__()}!"


class Titled(Plain):
    def __str__(self) -> str:
        return "titled"


class Equal:
    """Its methods show whether C, or the compiler, compares it."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        return 1


class Number(int):
    pass


def one(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def two(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def made_anew(n: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def made(x: torch.Tensor) -> torch.Tensor:
        return x * n

    return made


# By name: what several calls get in turn. The objects last, so that the eager run and the compiled one print the same.
ARGUMENTS: dict[str, list[Any]] = {
    "objects": [Plain(), Plain(), Plain()],
    "closures": [made_anew(1), made_anew(2), made_anew(1)],
    "slots": [Slots(), Slots(), Slots()],
    "abstract": [Abstract(), Abstract(), Abstract()],
    "bare": [object(), object(), object()],
    "equal": [Equal(), Equal(), Equal()],
    "methods": [Plain().method, Plain().method, Plain().method],
    "partial": [functools.partial(made_anew(1), 1), functools.partial(made_anew(1), 1), functools.partial(made_anew(2), 1)],
    "lists": [[Plain(), 1], [Plain(), 1], [Plain(), 1]],
    "dicts": [{"a": Plain()}, {"a": Plain()}, {"a": Plain()}],
    "keys": [{one: 1}, {one: 1}, {one: 1}],
    "deep": [[(Plain(), {"a": [made_anew(1)]})] for _ in range(3)],
}
# Others at each call: another program each.
OTHERS: dict[str, list[Any]] = {
    "functions": [one, two, one],
    "kinds": [Plain(), made_anew(1), Slots()],
    "printing": [Plain(), Printing(), Plain()],
    "titled": [Titled(), Plain(), Titled()],
    "above": [Above(), Above(), Plain()],
    "parts": [[Plain()], [made_anew(1), Plain()], [Plain(), Printing()]],
    "arguments": [functools.partial(one, 1), functools.partial(one, 2), functools.partial(one, n=Plain())],
    "numbers": [[Plain(), 1], [Plain(), 2], [Plain(), 3]],
    "identical": [(shared := [Plain()] * 2), shared, [Plain(), Plain()]],
    "other_types": [Plain(), 3, "text"],
    "tensors": [Plain(), torch.ones(2), [torch.ones(2), Plain()]],
    "classes": [Plain, Slots, Plain()],
}
TEXTS: dict[str, Callable[[Any], Any]] = {
    "str": lambda o: (str(o), repr(o), format(o), f"{o}", f"{o!r:>120}"),
    "percent": lambda o: ("%s" % (o,), "%r %d" % (o, 3)),
    "format": lambda o: ("{}".format(o), "{0} {0!r}".format(o), "{a} {{{b!r:>90}}} {0}".format(1, a=o, b=o)),
    "tuple": lambda o: (str((o, 1)), f"{(o, o)}", f"{[o, 'a']} { {'a': o} }"),
}


def given(name: str, values: list[Any], text: str, **marks: Any) -> None:
    def make() -> Any:
        def fn(x, o):
            y = x.sin()
            found = TEXTS[text](o)
            return y + 1, found

        return fn

    make.__name__ = f"{text}_of_{name}"
    table.program(args=lambda k: (t(), values[k]), steady=False, **marks)(make)


for text in TEXTS:
    for name, values in ARGUMENTS.items():
        given(name, values, text, max_graphs=1)
    for name, values in OTHERS.items():
        given(name, values, text, breaks=True, recompiles={1, 2})


# -- C makes the text ------------------------------------------------------------------------------------------------------
# Each call has another text, which no program may hold as a constant; these are graph breaks.
BY_C: dict[str, Callable[[Any], Any]] = {
    "names": lambda o: ("{a}".format_map({"a": o}), "%(a)s" % {"a": o}),
    "ascii": lambda o: (ascii(o), f"{o!a}", b"%a" % (o,)),
    "methods": lambda o: (o.__repr__(), o.__str__(), o.__format__("")),
    "of_object": lambda o: (object.__repr__(o), object.__str__(o)),
    "methods_of_containers": lambda o: ([o].__repr__(), (o,).__repr__(), {"a": o}.__repr__(), list.__str__([o])),
    "errors": lambda o: (str(ValueError(o)), repr(ValueError(o, 1)), "%s" % ValueError(o)),
    "views": lambda o: ("%s" % ({"a": o}.values(),), str({o: 1}.keys()), "%s" % types.MappingProxyType({"a": o})),
    "deque": lambda o: ("%s" % (collections.deque([o]),), f"{collections.OrderedDict(a=o)}"),
    "slices": lambda o: (str(slice(o)), "%s" % (slice(1, o),)),
    "named_tuples": lambda o: str(collections.namedtuple("P", "a")(o)),  # noqa: PYI024
    "raised": lambda o: (_error(lambda: [1].index(o)), _error(lambda: int("%s" % (o,))), _error(lambda: f"{o:>9}"), _error(lambda: "%d" % o)),
    "hash": lambda o: (hash(o), hash((o, 1)), hash(ValueError) == hash(ValueError)),
    "data": lambda o: str(Held("a", o)),
}


def _error(fn: Callable[[], object]) -> Any:
    try:
        return fn()
    except Exception as e:
        return type(e), str(e)


def by_c(name: str, use: Callable[[Any], Any]) -> None:
    def make() -> Any:
        def fn(x, o):
            y = x.sin()
            found = use(o)
            return y + 1, found

        return fn

    for kind in ("objects", "closures", "bare"):
        make.__name__ = f"{name}_by_c_of_{kind}"
        values = ARGUMENTS[kind]
        table.program(args=lambda k, values=values: (t(), values[k]), breaks=True, recompiles={1, 2}, steady=False)(make)


for name, use in BY_C.items():
    by_c(name, use)

ERRORS = [ValueError(1), ValueError(1), ValueError(1)]


@table.snippet(args=lambda k: (t(), ERRORS[k]), breaks=True, recompiles={1, 2}, steady=False)
def hash_of_an_error(x, e):
    return x + 1, hash(e), hash((e, 1)), str(e)


@table.snippet(args=lambda k: (t(), Number(k)), recompiles={1, 2})
def numbers_of_the_users(x, n):
    return x + 1, f"{n} {[n]} {n!r}", "%s %d" % (n, n), hash(n)


# -- who reads it, and what changes ----------------------------------------------------------------------------------------
def object_each(k: int) -> tuple[torch.Tensor, Any]:
    return t(), ARGUMENTS["objects"][k]


@table.snippet(args=object_each, breaks=True, recompiles={1, 2}, steady=False)
def read(x, o):
    y = x.sin()
    text = f"{o}"
    return y + len(text), {text: 1}, "Plain" in text, text.split()[0], text == str(o)


@table.snippet(args=lambda k: (t(), OTHERS["functions"][k]), max_graphs=2, recompiles={1}, steady=False)
def read_of_named_functions(x, h):
    y = h(x)
    text = f"{h}"
    return y + len(text), {text: 1}, "two" in text, text.split()[1], id(h)


@table.snippet(args=object_each, max_graphs=3, breaks=True, recompiles={1, 2}, steady=False)
def raised(x, o):
    y = x.sin()
    if y.shape[0] == 3:
        raise ValueError(f"bad: {o}")
    return y


@table.snippet(args=object_each, max_graphs=1, steady=False)
def said_in_an_error(x, o):
    y = x.sin()
    if not isinstance(o, Plain):
        raise TypeError(f"bad: {o}")
    torch._check(y.shape[0] == 3, lambda: f"bad: {o}")
    return y + 1


@table.program(args=object_each, max_graphs=1, steady=False)
def stored() -> Any:
    log: list[str] = []
    held = Held("a")

    def fn(x, o):
        y = x.sin()
        held.text = f"about {o}"
        log.append(f"{o} and " + repr(o))
        return y + 1, held.text

    return fn, (log, held)


# Those that programs write to.
WRITTEN = [(Plain(), made_anew(1)) for _ in range(3)]


@table.snippet(args=lambda k: (t(), WRITTEN[k][1]), breaks=True, recompiles={1, 2}, steady=False)
def renamed(x, h):
    h.__qualname__ = "first"
    before = f"{h}"
    y = x.sin()
    h.__qualname__ = "second"
    return y + 1, before, f"{h}"


@table.program(args=object_each, breaks=True, recompiles={1, 2}, steady=False)
def class_changed() -> Any:
    class Own:
        pass

    kept = Own()

    def fn(x, o):
        before = f"{kept}"
        y = x.sin()
        Own.__repr__ = lambda self: "other"
        after = f"{kept}"
        del Own.__repr__
        Own.__module__ = "another"
        return y + 1, re.sub("0x.*", "", before), after, re.sub("0x.*", "", f"{kept}")

    return fn


@table.program(args=object_each, breaks=True, recompiles={0, 1, 2}, steady=False)
def class_changed_between() -> Any:
    class Own:
        pass

    kept, calls = Own(), [0]

    def fn(x, o):
        return x.sin() + 1, [f"{kept.__class__} {kept} {[kept]}", f"{o}"]

    def run(x, o):
        calls[0] += 1
        if calls[0] == 2:
            Own.__repr__ = lambda self: "other"
        found = fn(x, o)
        return found[0], re.sub("0x.*", "", found[1][0]), found[1][1]

    return run


@table.snippet(args=lambda k: (t(), [ARGUMENTS["objects"][k]]), breaks=True, recompiles={1, 2}, steady=False)
def grown(x, held):
    before = f"{held}"
    y = x.sin()
    held.append(1)
    new = [held[0]]
    text = f"{new}"
    new.append(new)
    return y + 1, before, f"{held}", text, f"{new}"


@table.snippet(args=lambda k: (t(), WRITTEN[k][0]), max_graphs=1, steady=False)
def written_to(x, o):
    o.number = 3
    text = f"{o}"
    o.number = 4
    return x.sin() + 1, text


# The interpreter has objects of its own for these.
STAND_INS: dict[str, Callable[[], Any]] = {
    "generator": lambda: (i for i in [1]),
    "map": lambda: map(len, ["a"]),
    "filter": lambda: filter(None, [1]),
    "takewhile": lambda: itertools.takewhile(bool, [1]),
    "list_iterator": lambda: iter([1]),
    "frame": sys._getframe,
}


@pytest.mark.parametrize("name", STAND_INS)
def test_objects_with_a_stand_in(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.sin()
        made = STAND_INS[name]()
        return y + 1, [re.sub("0x[0-9a-f]+", "0x", text) for text in (str(made), "%r" % (made,), f"{[made]}")]

    compiled = fineline.compile(fn, backend="eager")
    for _ in range(3):
        assert re.sub("line [0-9]+", "line", str(compiled(t())[1])) == re.sub("line [0-9]+", "line", str(fn(t())[1]))


# -- what the call makes ---------------------------------------------------------------------------------------------------
def new_object(x):
    made = Plain()
    return x.sin() + made.number, made, f"{made}"


def new_objects(x):
    made = [Plain(), Plain()]
    y = x.sin() + 1
    return y, made, f"{made}"


def new_function(x):
    def made(a):
        return a * 2

    return made(x.sin()) + 1, made, str(made)


def new_closure(x):
    y = x.sin()

    def made(a):
        return a * y

    return made(y) + 1, made, "{}".format(made)


def new_lambda(x):
    made = lambda a: a * 2  # noqa: E731
    return made(x.sin()) + 1, made, "%s" % made


def new_wrapper(x):
    @functools.wraps(one)
    def made(a):
        return one(a)

    return made(x.sin()) + 1, made, repr(made)


def new_method(x):
    made = Plain().method
    return x.sin() + made(), made, str(made)


def new_partial(x):
    made = functools.partial(lambda a, b: a * b, 2.0)
    return made(x.sin()) + 1, made, f"{made}"


def new_bare(x):
    made = object()
    return x.sin() + 1, made, f"{made}"


def new_renamed(x):
    def made(a):
        return a

    made.__qualname__ = "other"
    return x.sin() + 1, made, f"{made}"


NEW = (new_object, new_objects, new_function, new_closure, new_lambda, new_wrapper, new_method, new_partial, new_bare, new_renamed)


@pytest.mark.parametrize("fn", NEW, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("first_call", ["live", "compiled"])
def test_what_the_call_makes(fn: Callable[..., Any], dynamic: bool | None, first_call: str) -> None:
    """The text is that of the object which the same call returns; the oracle can't tell, because each run makes others."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    compiled = fineline.compile(fn, backend=backend, dynamic=dynamic, options={"first_call": first_call})
    for place in range(3):
        x = t(place)
        y, made, text = compiled(x)
        assert text == str(made)
        torch.testing.assert_close(y, fn(x)[0])
    assert len(graphs) == 1, fineline.report(compiled)


@table.snippet(max_graphs=1)
def only_the_text(x):
    """Nothing else refers to the object."""
    made = Held(f"{Plain()}")
    text = "%s" % (lambda a: a)
    return x.sin() + 1, type(made.text), type(text)


@table.snippet(max_graphs=2, breaks=True)
def new_and_read(x):
    made = Plain()
    y = x.sin()
    return y + len(re.sub("0x.*", "", f"{made}"))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_texts_with_addresses(program: Program, twin: str) -> None:
    check(program, twin)
