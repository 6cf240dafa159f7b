"""The reconstructor alone: what it writes for the objects that captured code has made, run, gives the same objects again."""

from __future__ import annotations

import functools
import itertools
import operator
import types
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from fineline.codegen.program_text import RESERVED, short_name
from fineline.codegen.reconstructor import Reconstructor
from fineline.frames.graph_breaks import NotReconstructible
from fineline.interp.interpreter import Interpreter
from fineline.region.options import Options
from fineline.region.session.entry_frame import entry_frame
from fineline.tracing.lessons import Lessons


class Rebuilt(NamedTuple):
    """The value that a program made, its reconstructor, the expression, and the value that the statements make again."""

    value: Any
    writer: Reconstructor
    text: str
    again: Any


def captured(fn: Callable, *args: Any) -> tuple[Any, Reconstructor]:
    """Returns the result of ``fn`` in a capture, and a reconstructor for it."""
    interp = Interpreter(Options(), Lessons())
    interp.frame = entry_frame(interp, fn, args, {})
    value = interp.run()
    assert interp.trace.active, interp.outcome.failure
    return value, Reconstructor(interp.trace)


def run(writer: Reconstructor, text: str, outputs: dict[str, Any] | None = None) -> Any:
    """Runs the statements as a program does: with the arguments as parameters, and the graph's ``outputs`` as variables."""
    space = {**writer.constants, **{writer.params[src.reg]: src.value for src in writer.param_sources}, **(outputs or {})}
    exec("\n".join([*writer.lines, *writer.late]), space)
    return eval(text, space)


def rebuilt(fn: Callable, *args: Any) -> Rebuilt:
    value, writer = captured(fn, *args)
    text = writer.expr(value)
    return Rebuilt(value, writer, text, run(writer, text))


# -- values that have no identity ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"), (True, "True"), (3, "3"), (-1.5, "-1.5"), ("it's", '"it\'s"'), (b"a", "b'a'"), (..., "Ellipsis"),
        (1 << 5000, hex(1 << 5000)), (float("inf"), "float"), (2j, "complex"), (torch.float16, "dtype"), (range(3), "range_1"), (int, "int_1"),
    ],
    ids=lambda v: repr(v)[:12],
)  # fmt: skip
def test_a_constant_is_written_out_or_handed_in(value: Any, text: str) -> None:
    _, writer = captured(lambda: None)
    found = writer.expr(value)
    assert found.removesuffix("_1") == text.removesuffix("_1")
    again = run(writer, found)
    assert again == value and type(again) is type(value)
    assert writer.lines == [] and set(writer.constants) <= {found}


# -- objects made in the capture: equal, of the same type, and new at each run -----------------------------------------------------
Point = namedtuple("Point", "x y")


class Plain:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a


class Own(Plain):
    """Its methods in Python refuse: a reconstructor must not call them."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AssertionError(name)


class Listed(list):
    pass


class Keyed(dict):
    pass


class Tupled(tuple):
    pass


class Whole(int):
    pass


class Failure(ValueError):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def slotted() -> Slotted:
    made = Slotted(1)
    made.b = [2]
    return made


def failure() -> Failure:
    try:
        raise Failure("text", 3) from KeyError("k")
    except Failure as e:
        return e


def silenced() -> KeyError:
    try:
        raise KeyError(1) from None
    except KeyError as e:
        return e


def closure(n: int) -> Callable:
    held = [n]
    return lambda x, y=2, *, z=3: (x, y, z, held)


def facts(v: Any) -> Any:
    """An object of any kind as plain data."""
    if type(v) in (list, tuple, set, frozenset, deque, Listed, Tupled, Point, torch.Size):
        items = sorted(v) if isinstance(v, (set, frozenset)) else v
        return type(v), [facts(x) for x in items], getattr(v, "maxlen", None), facts(getattr(v, "__dict__", {}))
    if isinstance(v, dict):
        return type(v), [(k, facts(x)) for k, x in v.items()], getattr(v, "default_factory", None)
    if isinstance(v, BaseException):
        return type(v), v.args, facts(vars(v)), facts(v.__cause__), v.__suppress_context__, [e.name for e in _entries(v)]
    if isinstance(v, (types.FunctionType, functools.partial)):
        return type(v), facts(v(1))
    if isinstance(v, types.MethodType):
        return v.__func__, facts(v.__self__)
    if isinstance(v, Iterator):
        return type(v), list(itertools.islice(v, 5))
    if hasattr(v, "__dict__") and not callable(v):
        return type(v), facts(vars(v))
    if isinstance(v, Slotted):
        return type(v), v.a, facts(getattr(v, "b", "unset"))
    return type(v), v if type(v) in (int, str, float, bytes, slice, type(None), Whole, bytearray) else repr(v)


def _entries(e: BaseException) -> list:
    found, tb = [], e.__traceback__
    while tb is not None:
        found.append(types.SimpleNamespace(name=tb.tb_frame.f_code.co_name))
        tb = tb.tb_next
    return found


MADE: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, [2, "a"], []],
    "dict": lambda: {"a": 1, 2: {"b": [3]}, None: ()},
    "tuple": lambda: (1, [2], (3, 4)),
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1, 2}),
    "slice": lambda: slice(1, None, 2),
    "size": lambda: torch.Size([2, 3]),
    "deque": lambda: deque([1, 2, 3], maxlen=2),
    "OrderedDict": lambda: OrderedDict(b=1, a=2),
    "defaultdict": lambda: defaultdict(list, {"a": [1]}),
    "bytearray": lambda: bytearray(b"abc"),
    "namedtuple": lambda: Point(1, [2]),
    "namespace": lambda: types.SimpleNamespace(a=1, b=[2]),
    "instance": lambda: Plain(a=1, b=Plain(c=[])),
    "instance with slots": slotted,
    "instance with an unset slot": lambda: Slotted(1),
    "instance with its own __setattr__": lambda: Own(a=[1]),
    "list of a class": lambda: Listed([1, 2]),
    "dict of a class": lambda: Keyed(a=1),
    "tuple of a class": lambda: Tupled([1, [2]]),
    "number of a class": lambda: Whole(7),
    "exception": lambda: KeyError("k", 2),
    "raised exception": failure,
    "exception without context": silenced,
    "function": lambda: closure(5),
    "function without closure": lambda: lambda x: (x, [x]),
    "partial": lambda: functools.partial(closure(1), 2, z=[4]),
    "method": lambda: Plain(a=1).__init__,
    "list iterator": lambda: iter([1, 2, 3]),
    "iterator under way": lambda: (it := iter([1, 2, 3]), next(it))[0],
    "enumerate": lambda: enumerate(["a", "b"], 3),
    "map": lambda: map(abs, [-1, 2]),
    "chain": lambda: itertools.chain([1], (2, 3)),
    "generator that has not begun": lambda: (x * 2 for x in [1, 2]),
    "dict view": lambda: [*[{"a": 1}.values()]],
    "getter": lambda: [operator.itemgetter(1)],
}


@pytest.mark.parametrize("name", MADE)
def test_an_object_is_made_again(name: str) -> None:
    found = rebuilt(MADE[name])
    again, second = found.again, run(found.writer, found.text)
    assert facts(again) == facts(MADE[name]())
    if name not in ("frozenset", "slice", "size"):  # these have no identity
        assert again is not found.value and second is not again


def test_a_class_that_the_capture_has_made() -> None:
    def program() -> Any:
        class Local(Plain):
            kind = [1]

            def own(self) -> Any:
                return Local, __class__  # type: ignore[name-defined]

        Local.later = Local.own  # type: ignore[attr-defined]
        return Local, Local.kind, Local()

    found = rebuilt(program)
    (cls, kind, made), old = found.again, found.value[0]
    assert cls is not old and cls.__mro__[1:] == (Plain, object) and list(vars(cls)) == list(vars(old)) and cls.__qualname__ == old.__qualname__
    assert cls.kind is kind == [1] and type(made) is cls and made.own() == (cls, cls) and cls.later is cls.own


def test_a_class_that_contains_itself_is_not_reconstructible() -> None:
    def program() -> Any:
        class Local:
            kind: list = []

        Local.kind.append(Local)
        return Local

    with pytest.raises(NotReconstructible, match="Local"):
        rebuilt(program)


# -- identity ----------------------------------------------------------------------------------------------------------------------
def test_each_object_is_made_once() -> None:
    def program() -> Any:
        held: list = [1]
        table = {"held": held}
        return [held, table, held, (held,)]

    again = rebuilt(program).again
    assert again[0] is again[2] is again[1]["held"] is again[3][0]


@pytest.mark.parametrize("kind", ["list", "dict", "instance", "function", "through a tuple"])
def test_what_holds_itself(kind: str) -> None:
    def program(kind: str) -> Any:
        if kind == "list":
            held: Any = [1]
            held.append(held)
        elif kind == "dict":
            held = {}
            held["self"] = held
        elif kind == "instance":
            held = Plain()
            held.me = held
        elif kind == "function":
            def held(x: int = 0) -> Any:
                return held
        else:
            held = [0]
            held[0] = (held, 1)
        return held

    again = rebuilt(program, kind).again
    read: dict[str, Callable] = {
        "list": lambda: again[1], "dict": lambda: again["self"], "instance": lambda: again.me, "function": again, "through a tuple": lambda: again[0][0],
    }  # fmt: skip
    assert read[kind]() is again


def test_a_tuple_that_is_made_of_itself_cannot_be_made() -> None:
    held: list = []
    pair = (held, 1)
    held.append(pair)
    _, writer = captured(lambda: None)
    writer.trace.made.update((held, pair))
    with pytest.raises(NotReconstructible, match="a tuple that is made of itself"):
        writer.expr(pair)


# -- what was there before -----------------------------------------------------------------------------------------------------------
def test_an_argument_is_a_parameter_of_the_program() -> None:
    given: list = [1]
    found = rebuilt(lambda given: [given, given], given)
    assert found.again[0] is found.again[1] is given
    assert [src.text() for src in found.writer.param_sources] == ["given"] and found.writer.params.keys() == {found.writer.param_sources[0].reg}


def test_what_an_argument_holds_is_a_parameter_too() -> None:
    thing = Plain(inner=Plain(held=[1]))
    found = rebuilt(lambda thing: {"x": thing.inner.held}, thing)
    assert found.again["x"] is thing.inner.held and "inner_held" in found.text + "".join(found.writer.lines)


def test_a_number_that_was_only_moved_is_a_parameter() -> None:
    found = rebuilt(lambda n: [n], 1000)
    (src,) = found.writer.param_sources
    assert src.text() == "n" and found.writer.lines == ["items = [n]"]


def test_classes_are_constants_and_functions_come_from_where_they_were_read() -> None:
    found = rebuilt(lambda: [Plain, closure])
    assert found.again == [Plain, closure] and [*found.writer.constants.values()] == [Plain]
    assert [src.text() for src in found.writer.param_sources] == [f"globals of {__name__}['closure']"]


def test_what_nobody_knows_is_refused() -> None:
    _, writer = captured(lambda: None)
    for unknown, text in (([1], "a list of unknown origin"), ({}, "a dict of unknown origin"), (torch.ones(2), "a tensor of unknown origin")):
        with pytest.raises(NotReconstructible, match=text):
            writer.expr(unknown)


def test_a_generator_under_way_is_refused() -> None:
    gen, writer = captured(lambda: (gen := (x for x in [1, 2]), next(gen))[0])
    with pytest.raises(NotReconstructible, match="a generator that has begun") as caught:
        writer.expr(gen)
    assert caught.value.called_at == gen.called_at  # where it may run eagerly instead


def test_a_weak_reference_to_what_is_gone_is_refused() -> None:
    _, writer = captured(lambda: None)
    with pytest.raises(NotReconstructible, match="a weak reference to what is gone"):
        writer.expr(weakref.ref(Plain()))


# -- tensors --------------------------------------------------------------------------------------------------------------------------
def test_a_tensor_of_the_graph_is_an_output() -> None:
    value, writer = captured(lambda x: {"y": (y := x + 1), "also": y, "z": y.relu(), "x": x}, x := torch.ones(2))
    text = writer.expr(value)
    assert [*writer.outputs.names] == [writer.trace.recorder.find(value[name]) for name in ("y", "z")]
    again = run(writer, text, {name: value[key] for name, key in zip(writer.outputs.names.values(), ("y", "z"), strict=True)})
    assert again["y"] is again["also"] is value["y"] and again["z"] is value["z"] and again["x"] is x


def test_what_hangs_on_a_tensor_is_put_there() -> None:
    def program(x: Any) -> Any:
        y = x + 1
        y.note = [1]
        return y

    value, writer = captured(program, torch.ones(2))
    text, out = writer.expr(value), torch.ones(2)
    assert run(writer, text, {text: out}) is out and out.note == [1] and out.note is not value.note


def test_outputs_in_the_same_memory_are_noted() -> None:
    value, writer = captured(lambda x: ((y := x + 1), y[:1], x * 2), torch.ones(2))
    writer.expr(value)
    a, b, c = writer.outputs.names
    assert [*writer.outputs.places.values()] == [[a, b], [c]]


# -- names ------------------------------------------------------------------------------------------------------------------------------
def test_a_name_is_given_once() -> None:
    _, writer = captured(lambda: None)
    names = [writer.fresh(base) for base in ("a", "a", "class", "1x", "a.b[c]", "_", "result", "print", "x" * 99, "x" * 99)]
    assert len(set(names)) == len(names) and all(name.isidentifier() for name in names)
    assert names[0] == "a" and RESERVED.isdisjoint(names) and names[4] == "a_b_c"


def test_constants_and_parameters_keep_their_names() -> None:
    _, writer = captured(lambda: None)
    src, other = writer.trace.guards.root(0, "x", 1), writer.trace.guards.root(1, "x", 2)
    assert writer.param(src) == writer.param(src) == "x" != writer.param(other)
    assert writer.param_sources == [src, other]
    held: list = []
    assert writer.constant(held) == writer.constant(held, "other") and writer.constant([]) != writer.constant(held)


def test_short_names_say_where_a_value_comes_from() -> None:
    _, writer = captured(lambda: None)
    guards = writer.trace.guards
    root = guards.root(0, "model", None)
    modules = guards.access(guards.access(root, "dict", None, {}), "key", "_modules", {})
    layer = guards.access(modules, "key", "layer", None)
    assert short_name(layer) == "model_layer"
    assert short_name(guards.access(layer, "index", 3, None)) == "model_layer_3"
    assert short_name(guards.access(layer, "key", (1, 2), None)) == "model_layer_item"
    assert short_name(guards.access(layer, "member", operator.itemgetter, None)) == "model_layer_itemgetter"


# -- parts of statements ---------------------------------------------------------------------------------------------------------------
def test_arguments_of_a_call() -> None:
    _, writer = captured(lambda: None)
    text = writer.call((1, "a"), {"b": 2, "not a name": 3, "class": 4})
    assert eval(f"dict({text.removeprefix('1, ').removeprefix(chr(39) + 'a' + chr(39) + ', ')})") == {"b": 2, "not a name": 3, "class": 4}
    assert text.startswith("1, 'a', b=2")


@pytest.mark.parametrize(("items", "text"), [((), "()"), ((1,), "(1,)"), ((1, "a"), "(1, 'a',)")], ids=["none", "one", "two"])
def test_a_pack_is_a_tuple(items: tuple, text: str) -> None:
    _, writer = captured(lambda: None)
    assert writer.pack(items) == text and eval(text) == items


def test_what_has_been_made_is_known_until_it_is_forgotten() -> None:
    value, writer = captured(lambda: [1])
    assert writer.known(value) is None
    name = writer.expr(value)
    assert writer.known(value) == name and value in writer.built and len(writer.built) == 1
    assert writer.expr(value) == name and len(writer.lines) == 1
    writer.forget(value)
    assert writer.known(value) is None and writer.expr(value) != name
    writer.name_part(part := [2], "whole.part")
    writer.name_part(part, "another")
    assert writer.expr(part) == "whole.part"


def test_what_reduce_has_made_is_as_good_as_made_in_the_capture() -> None:
    _, writer = captured(lambda: None)
    loose = [1, 2]
    assert run(writer, writer.loose(loose)) == [1, 2] and loose in writer.trace.made


def test_iterators_are_set_where_they_were_behind_the_writes() -> None:
    found = rebuilt(MADE["iterator under way"])
    assert found.writer.late and all("__setstate__" in line for line in found.writer.late)
