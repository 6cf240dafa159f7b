"""What programs rarely do: objects of odd types that leave a call, generators driven by hand, names looked up in odd places."""

from __future__ import annotations

import array
import collections
import sys
import types
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Frozen(frozenset):
    pass


class Group(set):
    pass


class Bytes(bytearray):
    pass


class Pair(tuple):
    pass


def counted(*args, start=0, **kwargs):
    yield from args
    yield start, kwargs


@table.snippet()
def odd_objects_escape(x):
    made = Bytes(b"ab")
    made.tag = 1
    frozen, group, pair = Frozen({1, 2}), Group({3}), Pair((x, 1))
    return x * 2, made, type(made).__name__, frozen, group, pair, bytearray(b"cd"), slice(1, 3), torch.Size([2, 3])


@table.snippet()
def begun_iterators_of_tables_escape(x):
    d = {1: x, 2: x + 1, 3: 4}
    it, values, back = iter(d), iter(d.values()), reversed(d)
    next(it), next(values), next(values), next(back)
    over, ended, last = iter({1, 2}), iter({1}), iter({1: 2}.items())
    next(over), next(ended), next(ended, None), next(last), next(last, None)
    return x * 2, it, values, back, over, ended, last, [type(i).__name__ for i in (it, over, ended, last)]


@table.snippet()
def generators_of_many_arguments_escape(x):
    return x * 2, counted(x, 1, *[2, 3], start=5, **{"odd name": 6, "x": x}), counted()


@table.snippet()
def super_objects_escape(x):
    class Base:
        def scale(self):
            return 2

    class Derived(Base):
        def parent(self):
            return super()

    return x * Derived().parent().scale(), Derived().parent().scale()


class Parent:
    factor = 3

    @staticmethod
    def still(x):
        return x + 1

    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @property
    def prop(self):
        return self.factor

    def plain(self, x):
        return x - 1

    def __init_subclass__(cls):
        cls.made = True


class Child(Parent):
    factor = 5

    def all(self, x):
        return super().still(x) + super().of_class(x) + super().prop + super().plain(x) + super().factor

    @classmethod
    def unbound(cls, x):
        return super().plain(cls(), x) + super().of_class(x) + super().still(x)

    def missing(self):
        return super().nothing


@table.program()
def super_finds_all_kinds() -> Any:
    def fn(x):
        try:
            Child().missing()
        except AttributeError as e:
            return Child().all(x), Child.unbound(x), str(e)

    return fn


class Meta(type):
    @property
    def size(cls):
        return 4

    def scaled(cls, x):
        return x * cls.size

    def __getattr__(cls, name):
        return len(name)


class Made(metaclass=Meta):
    pass


@table.snippet()
def metaclass_attributes(x):
    return Made.scaled(x) + Made.size + Made.anything


@table.program()
def module_answers_for_names() -> Any:
    mod = types.ModuleType("answering")
    mod.__getattr__ = lambda name: len(name)

    def fn(x):
        return x * mod.four

    return fn


class Slots:
    __slots__ = ("a", "b")


@table.snippet()
def slots_come_and_go(x):
    s = Slots()
    s.a = x
    before = [hasattr(s, "a"), hasattr(s, "b")]
    del s.a
    return x * 2, before, hasattr(s, "a"), s


@table.program(calls=4, recompiles=(1, 2, 3))
def slots_of_before_are_deleted() -> Any:
    s = Slots()
    s.a = 1

    def fn(x):
        if hasattr(s, "a"):
            del s.a
        s.b = x
        return x * 2

    return fn, s


@table.snippet()
def names_of_a_class_body(x):
    class Local:
        first = 1
        second = first + 1
        del first
        third = [second for _ in range(2)] if False else second

        def read(self):
            return Local.second

    return x * Local.second, Local().read(), hasattr(Local, "first")


def echo():
    got = yield 0
    while True:
        try:
            got = yield got
        except ValueError as e:
            got = str(e)


# From Python 3.12 on, Python warns about the two arguments of `throw`, at each call.
@table.snippet(breaks=sys.version_info >= (3, 12), recompiles=(1, 2) if sys.version_info >= (3, 12) else ())
def generators_by_hand(x):
    said = []
    g = echo()
    for act in (lambda: g.send(1), lambda: g.throw(KeyError("new")), lambda: next(g)):
        try:
            said.append(act())
        except (TypeError, KeyError, StopIteration) as e:
            said.append(f"{type(e).__name__}: {e}")
    h = echo()
    said += [next(h), h.send(3), h.throw(ValueError("again")), h.throw(ValueError, ValueError("twice"))]
    said += [h is iter(h), h.close(), next(h, "ended"), h.close()]
    return x * 2, said


def relayed(inner):
    try:
        yield from inner
    except KeyError as e:
        yield f"out: {e}"


@table.snippet()
def throwing_into_delegates(x):
    one, two = relayed(iter([1, 2])), relayed(echo())
    said = [next(one), one.throw(KeyError("a")), next(two), two.throw(ValueError("b"))]
    two.close()
    return x * 2, said


@table.snippet()
def running_generators_are_not_resumed(x):
    def looped():
        yield from holder[0]

    holder = []
    holder.append(looped())
    try:
        next(holder[0])
    except ValueError as e:
        return x * 2, str(e)


@table.snippet()
def deleted_variables(x):
    a = x * 2
    said = []

    def cell():
        return held

    held = 1
    del held
    for act in (cell,):
        try:
            act()
        except NameError as e:
            said.append(str(e))
    del a
    try:
        a
    except UnboundLocalError as e:
        said.append(str(e))
    try:
        del a
    except UnboundLocalError as e:
        said.append(str(e))
    return x * 3, said


@table.snippet()
def bad_unpacking_of_mappings(x):
    said = []
    for act in (lambda: {**5}, lambda: dict(**5), lambda: dict(a=1, **{"a": 2}), lambda: dict(**{1: 2})):
        try:
            act()
        except TypeError as e:
            said.append(str(e))
    return x * 2, said


@table.snippet()
def what_is_in_scope(x):
    inner = 4

    def reads():
        return inner

    class Body:
        names = sorted(n for n in locals() if not n.startswith("__"))
        own = dict(vars())

    try:
        raise KeyError("seen")
    except KeyError:
        found = sys.exception(), sys.exc_info()[0].__name__
    return x * reads(), sorted(locals()), Body.own.keys() - {"__module__", "__qualname__"}, repr(found[0]), found[1]


@table.program(calls=4, recompiles=(1, 2, 3))
def containers_of_before_are_emptied() -> Any:
    state = types.SimpleNamespace(s={1, 2}, d=collections.deque([1, 2]), m={"a": 1, "b": 2}, o=collections.OrderedDict(a=1))

    def fn(x):
        state.s.clear()
        state.s.add(7)
        state.d.rotate(1)
        state.d.append(3)
        state.m.clear()
        state.m["c"] = x.shape[0]
        state.o.move_to_end("a")
        return x * 2

    return fn, state


class Noted:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self.log.append(name)
        object.__delattr__(self, name)

    @property
    def fixed(self):
        return 1


class NotedToo(Noted):
    pass


@table.program(breaks=True)
def what_object_writes_past_a_setattr() -> Any:
    noted = Noted()

    def fn(x):
        y = x + 1
        other, told = Noted(), []
        object.__setattr__(other, "__dict__", {"log": other.log, "y": y})
        object.__setattr__(noted, "__class__", NotedToo)
        told += [other.y * 2, type(noted).__name__, [*noted.log], [*other.log]]
        object.__setattr__(noted, "__class__", Noted)
        for one in (noted, other):
            for write in (lambda one=one: object.__setattr__(one, "fixed", 3), lambda one=one: setattr(one, "fixed", 3), lambda one=one: delattr(one, "fixed")):
                try:
                    write()
                except AttributeError as error:
                    told.append(str(error))
        noted.__dict__ = {"log": noted.log, "z": y}
        told.append([*noted.log])
        noted.log.clear()
        return told, sorted(vars(noted))

    return fn, noted


# Its length is no guard's to ask: the same length is no reason to capture again.
@table.snippet(args=lambda place: (t(place), array.array("i", range([3, 3, 4, 3][place]))), calls=4, recompiles={0, 2}, breaks=True, min_graphs=0)
def arrays_of_pythons_own(x, a):
    y = x + len(a) if a else x
    del a[0]
    return y * 2, list(a)


@table.program(recompiles=(1, 2))
def code_of_a_module_as_a_function() -> Any:
    names: dict[str, Any] = {"k": 2}
    run = types.FunctionType(compile("m = k + len('a')\ngone = m\ndel gone", "made", "exec"), names)
    evaluate = types.FunctionType(compile("m * k", "made", "eval"), names)

    def fn(x):
        run()
        return x * names["m"], evaluate(), "gone" in names

    return fn, names


@table.program(breaks=True)
def code_of_a_prompt() -> Any:
    names: dict[str, Any] = {"k": 2}
    show = types.FunctionType(compile("for i in range(2): k + i\n", "made", "single"), names)

    def fn(x):
        y = x * 2
        return show(), y + 1

    return fn, names


@table.program()
def code_of_a_prompt_with_a_hook_of_its_own() -> Any:
    shown: list[Any] = []
    show = types.FunctionType(compile("x + 1", "made", "single"), {})

    def fn(x):
        before, sys.displayhook = sys.displayhook, shown.append
        try:
            show.__globals__["x"] = len(x)
            show()
        finally:
            sys.displayhook = before
        return x * 2, shown

    return fn, shown


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_rarely(program: Program, twin: str) -> None:
    check(program, twin)
