"""AttributeError.name and .obj, which C sets on the way out of a read, and the name of a NameError."""

from __future__ import annotations

import operator
import sys
import types
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check

table = Table()


class Plain:
    given = property(lambda self: self.fail())

    @property
    def own(self):
        raise AttributeError("mine")

    @property
    def told(self):
        raise AttributeError("told", name="another", obj=3)

    @property
    def told_nothing(self):
        raise AttributeError("told", name=None)

    def __setattr__(self, name, value):
        raise AttributeError("not set")

    def __delattr__(self, name):
        raise AttributeError("not deleted")


class Asked(Plain):
    def __getattr__(self, name):
        raise AttributeError(f"no {name}")

    def above(self):
        return super().own


class Reading:
    __slots__ = ("empty",)

    def __getattribute__(self, name):
        if name == "empty":
            return object.__getattribute__(self, name)
        raise AttributeError("nothing")


class Slots:
    __slots__ = ("empty",)
    unreadable = property()


class Late:
    def __get__(self, obj, cls):
        raise AttributeError("late")


class Meta(type):
    late = Late()

    @property
    def own(cls):
        raise AttributeError("of the class")


class Made(metaclass=Meta):
    held = Late()


class AskedMeta(Meta):
    def __getattr__(cls, name):
        raise AttributeError(f"no {name} in the class")


class AskedMade(metaclass=AskedMeta):
    pass


class Left:
    @fineline.disable
    def __getattr__(self, name):
        raise AttributeError("left")


def facts(read, *args):
    try:
        read(*args)
    except AttributeError as e:
        about = type(e.obj) if type(e.obj) is super else e.obj
        return type(e), str(e), e.name, about, e.__context__
    return None


def texts(read, *args):
    try:
        read(*args)
    except AttributeError as e:
        return type(e), str(e), e.__context__
    return None


module = types.ModuleType("module")
module.__getattr__ = lambda name: operator.attrgetter("own")(Plain())  # type: ignore[method-assign]
plain, asked, reading, slots, made, left = Plain(), Asked(), Reading(), Slots(), Made(), Left()


def delete(obj):
    del obj.own


def delete_missing(obj):
    del obj.none


def put(obj):
    obj.own = 1


# C adds the name and the object to errors of these reads.
READS = [
    lambda: plain.own, lambda: plain.given, lambda: plain.told, lambda: plain.none,
    lambda: plain.none(), lambda: asked.own, lambda: asked.own(), lambda: asked.none, lambda: asked.none(), lambda: asked.above(),
    lambda: reading.none, lambda: reading.none(), lambda: reading.empty, lambda: slots.empty, lambda: slots.unreadable,
    lambda: Made.own, lambda: Made.own(), lambda: Made.held, lambda: Made.held(), lambda: Made.late, lambda: made.held,
    lambda: AskedMade.own, lambda: AskedMade.none, lambda: AskedMade.none(), lambda: module.some, lambda: module.some(),
    lambda: getattr(plain, "own"), lambda: object.__getattribute__(plain, "own"), lambda: object.__getattribute__(plain, "none"),
    lambda: operator.attrgetter("own")(plain), lambda: operator.attrgetter("own.more")(plain),
    lambda: list(map(getattr, [plain], ["own"])), lambda: hasattr(plain, "own") or plain.own,
    lambda: put(plain), lambda: delete(plain), lambda: delete_missing(made), lambda: put(slots),
]  # fmt: skip
# From Python 3.13 on, C looks up the method itself.
CALLED = lambda: operator.methodcaller("own")(plain)  # noqa: E731
READS += [CALLED] if sys.version_info < (3, 13) else []
# C adds nothing to these: a call of a method where C looks the method up itself, and an error that was made with the name None. fineline may.
UNNAMED = [lambda: plain.own(), lambda: slots.empty(), lambda: made.held(), lambda: plain.told_nothing]


# From Python 3.12 on, C adds nothing to most of these once they have run a few times.
@table.snippet(calls=3 if sys.version_info < (3, 12) else 1)
def reads(x):
    return x + 1, [facts(read) for read in READS]


@table.snippet()
def reads_that_name_nothing(x):
    return x + 1, texts(CALLED), [texts(read) for read in UNNAMED]


@table.snippet(breaks=True)
def a_read_that_is_left(x):
    """An eager ``__getattr__`` raises: fineline does not know of which read."""
    return x + 1, texts(lambda: left.none), texts(lambda: left.none())


@table.program()
def modules() -> Any:
    net = torch.nn.Linear(4, 4)

    def fn(x):
        try:
            net.missing
        except AttributeError as e:
            return net(x), e.name, e.obj is net

    return fn, net


@table.program(breaks=True)
def a_break_on_the_way() -> Any:
    class Broken:
        def __getattr__(self, name):
            fineline.graph_break()
            raise AttributeError(name)

    obj = Broken()

    def fn(x):
        y = x * 2
        return y, facts(lambda: obj.one), facts(lambda: obj.two())

    return fn


@table.program(breaks=True)
def decided_by_a_tensor() -> Any:
    class Decided:
        def __init__(self, x):
            self.x = x

        @property
        def sign(self):
            if self.x.sum() > 0:
                raise AttributeError("positive")
            return -1

    def fn(x):
        d = Decided(x)
        try:
            return x * d.sign
        except AttributeError as e:
            return x + 1, e.name, e.obj is d

    return fn


@table.program()
def an_error_that_was_there_before() -> Any:
    error = AttributeError("shared")

    class Shared:
        def __getattr__(self, name):
            raise error

    obj = Shared()

    def fn(x):
        try:
            obj.one
        except AttributeError:
            pass
        try:
            obj.two
        except AttributeError as e:
            # C writes into it at its first read; fineline leaves it as it was.
            return x + 1, e is error

    return fn, error


@table.snippet()
def it_leaves_the_region(x):
    return x + 1, asked.none


@table.snippet()
def it_is_given_back(x):
    try:
        asked.none
    except AttributeError as e:
        kept = e
    return x + 1, kept


@table.snippet()
def names(x):
    def free():
        return late

    def local():
        return own  # noqa: F821
        own = 1

    found = []
    for fn in (free, local, lambda: nowhere):  # type: ignore[name-defined]  # noqa: F821
        try:
            fn()
        except NameError as e:
            found += [type(e), str(e), e.name]
    late = 1
    return x + 1, found


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_attribute_errors(program: Program, twin: str) -> None:
    check(program, twin)
