"""Attribute loads alone: which loader gives which attribute of which object, and in which order they are tried."""

from __future__ import annotations

import contextlib
import enum
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

from fineline.frames.graph_breaks import GraphBreak
from fineline.interp.interpreter import Interpreter
from fineline.objects import attribute_reads
from fineline.objects.attribute_reads import BINDERS, CLASS_LOADERS, LOADERS, NEXT, OF_CLASSES, absent, load_attr, loaders_of
from fineline.objects.type_info import ABSENT, METHOD, PLAIN, SPECIAL_CLASSES, type_info
from fineline.region.options import Options
from fineline.region.session.entry_frame import entry_frame
from fineline.tracing.lessons import Lessons

WATCHED: dict[CodeType, str] = {
    load.__code__: load.__name__
    for load in (
        *[load for _, load in OF_CLASSES], *[at.load for at in LOADERS], *CLASS_LOADERS, absent, attribute_reads.python_getattribute,
        attribute_reads.c_getattribute,
    )
}  # fmt: skip


class Descriptor:
    """What has only ``__get__``: the instance's dict hides it."""

    def __get__(self, obj: Any, cls: Any) -> Any:
        return "got"


class DataDescriptor(Descriptor):
    def __set__(self, obj: Any, value: Any) -> None: ...


class Base:
    inherited = "inherited"
    hidden = "of the class"
    other, data = Descriptor(), DataDescriptor()
    length = len
    write_only = property(None, lambda self, value: None)

    def __init__(self) -> None:
        self.own, self.hidden = "own", "of the instance"
        self.__dict__.update(other="of the instance", data="of the instance", prop="of the instance")

    @property
    def prop(self) -> str:
        return "property"

    @staticmethod
    def static() -> None: ...

    @classmethod
    def made(cls) -> None: ...

    def method(self) -> None: ...


class Child(Base):
    def method(self) -> None: ...


class Slots:
    __slots__ = ("filled", "left_empty")

    def __init__(self) -> None:
        self.filled = 1


class Asked(Base):
    def __getattr__(self, name: str) -> Any:
        return name


class AskedSlots(Slots):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return name


class Watching:
    def __getattribute__(self, name: str) -> Any:
        return name


class Meta(type):
    of_meta, hidden = "meta", "meta"

    @property
    def meta_property(cls) -> str:
        return cls.__name__

    def meta_method(cls) -> None: ...


class AskedMeta(type):
    def __getattr__(cls, name: str) -> Any:
        return name


class WatchingMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        return name


class Made(metaclass=Meta):
    hidden = of_class = "class"
    meta_property = "class"


class MadeAsked(metaclass=AskedMeta): ...


class MadeWatching(metaclass=WatchingMeta): ...


class Color(enum.Enum):
    RED = 1

    def shade(self) -> None: ...


class Named(enum.Enum):
    RED = 1

    @property
    def value(self) -> str:
        return "red"


class OfDict(dict):
    __slots__ = ("slot",)
    plain = 1


class Tagged(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Local(threading.local): ...


def plainly(x: Any) -> Any:
    return x


plainly.tag = "tag"  # type: ignore[attr-defined]
MODULE, ASKED_MODULE = types.ModuleType("a_module"), types.ModuleType("an_asked_module")
MODULE.x = 1  # type: ignore[attr-defined]
ASKED_MODULE.__dict__["__getattr__"] = plainly
TENSOR, TAGGED = torch.ones(2), torch.ones(2).as_subclass(Tagged)
TENSOR.tag = "tag"  # type: ignore[attr-defined]
LINEAR, COLORS = nn.Linear(2, 2), OrderedDict(red=1)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Gives the names of the loaders that apply, the first one first: those that do not return `NEXT`."""
    found: list[str] = []
    under_way: list[CodeType] = []

    def note(frame: Any, event: str, value: Any) -> None:
        if frame.f_code in WATCHED:
            if event == "call":
                under_way.append(frame.f_code)
            elif event == "return":
                under_way.pop()
                if value is not NEXT and not under_way:
                    found.append(WATCHED[frame.f_code])

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def interpreter(obj: Any) -> Interpreter:
    """An interpreter that captures a function with ``obj`` as its argument."""
    interp = Interpreter(Options(), Lessons())
    interp.frame = entry_frame(interp, plainly, (obj,), {})
    return interp


def loaded(obj: Any, name: str) -> tuple[str, Any]:
    """Returns which loader gives ``obj.name``, and what it gives: a value, the name of the code that is to run, or an error."""
    interp = interpreter(obj)
    f = interp.frame
    assert f is not None
    with watched() as found:
        try:
            frame = load_attr(interp, f, obj, name)
            result = f.stack[-1] if frame is None else frame.info.code.co_name
        except (AttributeError, GraphBreak) as e:
            result = type(e)
    (loader,) = found
    return loader, result


CASES: dict[str, tuple[Any, str, str, Any]] = {
    # The instance's dict, the class, and which of them hides the other.
    "an attribute of the instance": (Base(), "own", "in_instance", "own"),
    "one that hides the class's": (Base(), "hidden", "in_instance", "of the instance"),
    "one that hides a descriptor": (Base(), "other", "in_instance", "of the instance"),
    "a data descriptor hides the instance's": (Base(), "data", "data_descriptor", "__get__"),
    "a property hides the instance's": (Base(), "prop", "data_descriptor", "prop"),
    "a property without a getter": (Base(), "write_only", "data_descriptor", AttributeError),
    "an inherited attribute": (Child(), "inherited", "in_class", "inherited"),
    "a method": (Base(), "method", "in_class", ...),
    "a static method": (Base(), "static", "in_class", Base.static),
    "a class method": (Child(), "made", "in_class", ...),
    "a builtin as class attribute": (Base(), "length", "in_class", len),
    "its dict": (Base(), "__dict__", "own_dict", ...),
    "its class": (Base(), "__class__", "own_class", Base),
    "nothing": (Base(), "nothing", "absent", AttributeError),
    # Slots, and what C computes.
    "a slot": (Slots(), "filled", "member", 1),
    "an empty slot": (Slots(), "left_empty", "member", AttributeError),
    "an empty slot, with __getattr__": (AskedSlots(), "left_empty", "member", "__getattr__"),
    "no dict": (Slots(), "nothing", "absent", AttributeError),
    "a slot of a dict": (OfDict(), "slot", "member", AttributeError),
    "a method of a dict": (OfDict(), "keys", "in_class", ...),
    "a class attribute of a dict": (OfDict(), "plain", "in_class", 1),
    "a method of C's": (COLORS, "move_to_end", "in_class", ...),
    "a function's attribute": (plainly, "tag", "in_instance", "tag"),
    "a function's code": (plainly, "__code__", "member", plainly.__code__),
    "a number's": (7, "numerator", "member", 7),
    "a range's": (range(3), "stop", "member", 3),
    "a slice's": (slice(1, 2), "start", "member", 1),
    # The user's own ways.
    "__getattr__": (Asked(), "nothing", "python_getattr", "__getattr__"),
    "__getattr__ after a property": (Asked(), "prop", "data_descriptor", "get_then_getattr"),
    "__getattr__ after a property without a getter": (Asked(), "write_only", "data_descriptor", "__getattr__"),
    "__getattr__ is not asked": (Asked(), "own", "in_instance", "own"),
    "__getattribute__": (Watching(), "own", "python_getattribute", "__getattribute__"),
    "C's own way": (types.GenericAlias(list, int), "__origin__", "c_getattribute", GraphBreak),
    "each thread's dict": (Local(), "__dict__", "own_dict", {}),
    # Bound methods, Python's modules and PyTorch's.
    "a bound method's name": (Base().method, "__name__", "in_method", "method"),
    "a bound method's function": (Base().method, "__func__", "member", Base.method),
    "a module's": (MODULE, "x", "in_instance", 1),
    "a module's __getattr__": (ASKED_MODULE, "nothing", "module_getattr", "plainly"),
    "not a module's": (MODULE, "nothing", "absent", AttributeError),
    "a parameter": (LINEAR, "weight", "in_module", LINEAR.weight),
    "a submodule": (nn.Sequential(LINEAR), "0", "in_module", LINEAR),
    "what a module stores": (LINEAR, "in_features", "in_instance", 2),
    "not in a module": (LINEAR, "nothing", "python_getattr", "__getattr__"),
    # Tensors, operators, enumerations.
    "a tensor's shape": (TENSOR, "shape", "of_tensor", TENSOR.shape),
    "a subclass's shape": (TAGGED, "ndim", "of_tensor", 1),
    "what is stored on a tensor": (TENSOR, "tag", "in_instance", "tag"),
    "a tensor's method": (TENSOR, "add", "in_class", ...),
    "an operator": (torch.ops.aten, "add", "of_operator", torch.ops.aten.add),
    "an overload's name": (torch.ops.aten.add.Tensor, "name", "of_operator", ...),
    "a member's value": (Color.RED, "value", "of_enum_member", 1),
    "a member's method": (Color.RED, "shade", "in_class", ...),
    "a value of the user's": (Named.RED, "value", "data_descriptor", "value"),
    # Classes.
    "a class's": (Base, "inherited", "of_class", "inherited"),
    "a super's": (super(Child, Child()), "method", "of_super", ...),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loader_that_applies(case: str) -> None:
    obj, name, loader, result = CASES[case]
    found = loaded(obj, name)
    assert found[0] == loader
    if result is ...:
        assert found[1] == getattr(obj, name)
    else:
        assert found[1] is result or (found[1] == result and type(found[1]) is type(result))


# Of a class: its own loaders, in order.
CLASSES: dict[str, tuple[type, str, str, Any]] = {
    "__getattribute__ of the metaclass": (MadeWatching, "x", "by_metaclass", "__getattribute__"),
    "a property of the metaclass hides the class's": (Made, "meta_property", "data_of_metaclass", "meta_property"),
    "a class's dict": (Made, "__dict__", "data_of_metaclass", Made.__dict__),
    "a class's name": (Made, "__name__", "data_of_metaclass", "Made"),
    "a member of an enumeration": (Color, "RED", "enum_member", Color.RED),
    "a class's own hides its metaclass's": (Made, "hidden", "in_bases", "class"),
    "a base's": (Child, "inherited", "in_bases", "inherited"),
    "a method as a function": (Child, "method", "in_bases", Child.method),
    "a property as it is": (Child, "prop", "in_bases", Base.__dict__["prop"]),
    "a slot as it is": (Slots, "filled", "in_bases", Slots.__dict__["filled"]),
    "a metaclass's": (Made, "of_meta", "in_metaclass", "meta"),
    "a metaclass's method": (Made, "meta_method", "in_metaclass", Made.meta_method),
    "__getattr__ of the metaclass": (MadeAsked, "x", "metaclass_getattr", "__getattr__"),
}


@pytest.mark.parametrize("case", CLASSES)
def test_the_loader_of_a_class_that_applies(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    obj, name, loader, result = CLASSES[case]
    monkeypatch.delitem(WATCHED, attribute_reads.of_class.__code__)
    found = loaded(obj, name)
    assert found[0] == loader and found[1] == result


def test_a_class_without_the_attribute() -> None:
    assert loaded(Made, "nothing") == ("of_class", AttributeError)


# -- what is looked up once ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("obj", "name", "loaders"),
    [
        (Base(), "own", "in_instance in_module python_getattr in_method module_getattr"),
        (Base(), "hidden", "in_instance in_class"),
        (Base(), "prop", "data_descriptor"),
        (Base(), "__dict__", "own_dict member"),
        (Base(), "__class__", "own_class member"),
        (sys._getframe(), "f_lineno", "of_frame member"),
        (Slots(), "filled", "member"),
        (Watching(), "own", "python_getattribute c_getattribute"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_the_loaders_of_a_class_and_a_name(obj: Any, name: str, loaders: str) -> None:
    interp = interpreter(Base)
    info = type_info(interp.trace, type(obj))
    found = loaders_of(interp.trace, info, name)
    assert [load.__name__ for load in found] == loaders.split()
    assert info.loaders[name] is found


def test_every_kind_of_thing_that_a_class_has_is_handled() -> None:
    kinds = range(ABSENT, PLAIN + 1)
    assert set(BINDERS) == set(kinds) - {ABSENT}
    # The instance's dict hides what it may hide, and nothing else.
    (in_instance,) = [at for at in LOADERS if at.load is attribute_reads.in_instance]
    assert set(in_instance.kinds) == {ABSENT, *range(METHOD, PLAIN + 1)}
    for kind in kinds:
        assert [at for at in LOADERS if kind in at.kinds and at.names is None]


def test_classes_whose_instances_are_read_in_another_way() -> None:
    listed: list[type] = []
    for classes, _ in OF_CLASSES:
        listed += classes if isinstance(classes, tuple) else (classes,)
    assert set(listed) == SPECIAL_CLASSES
