"""Writes to classes, weak references to objects from outside, and hooks, whose registration has both."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict

import pytest
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}


@table.program(options=FULL, calls=4, recompiles=(1, 2, 3))
def a_counter_of_a_class():
    class Counter:
        count = 0

        def __init__(self) -> None:
            self.number = Counter.count
            Counter.count += 1

    def fn(x):
        first, second = Counter(), Counter()
        return x * first.number + second.number, Counter.count, first.count

    return fn, Counter


@table.program(options=FULL, recompiles=(1, 2), change={2: lambda state: setattr(state[0], "flag", False)})
def a_flag_that_is_set_once():
    class Settings:
        flag = False
        name = "none"

    class Own(Settings):
        pass

    own = Own()

    def fn(x):
        if not Settings.flag:
            Settings.flag = True
            Settings.name = "set"
            return x + 1, own.flag, Own.name
        return x * 2, own.flag, Own.name

    return fn, (Settings, Own, own)


@table.program(options=FULL, recompiles=(1, 2), change={1: lambda state: setattr(state[1], "n", 5), 2: lambda state: delattr(state[1], "n")})
def a_subclass_between():
    class Base:
        n = 1

    class Middle(Base):
        pass

    class Last(Middle):
        pass

    def fn(x):
        before = Last.n
        Base.n = 3
        return x * Last.n + before, Middle().n, Base.n, super(Last, Last()).n

    return fn, (Base, Middle, Last)


@table.program(options=FULL, recompiles=(1, 2), change={2: lambda state: setattr(state[0], "flag", False)})
def a_flag_of_a_class_without_subclasses():
    class Settings:
        flag = False
        name = "none"

    own = Settings()

    def fn(x):
        if not own.flag:
            Settings.flag = True
            Settings.name = "set"
            return x + 1, own.flag, type(own).name
        Settings.flag = True
        return x * 2, own.flag, own.name

    return fn, (Settings, own)


@table.program(breaks=True, recompiles=(1,))
def written_around_a_break():
    class Settings:
        level = 0

    def fn(x):
        Settings.level = 2
        x = x + Settings.level
        print(Settings.level)
        Settings.level = 4
        print(Settings.level)
        return x * Settings.level

    return fn, Settings


@table.program(min_graphs=0, recompiles=(1,))
def written_where_it_raises():
    class Settings:
        level = 0

    def fn(x):
        Settings.level = 2
        x = x + 1
        Settings.level = 3
        raise ValueError(Settings.level)

    return fn, Settings


@table.program(options=FULL, recompiles=(1, 2))
def what_is_no_constant():
    class Settings:
        items: object = None
        level = 1

        @property
        def shown(self):
            return 7

    def fn(x):
        Settings.items = [1, 2]
        Settings.level = Settings.items
        Settings.shown = 3
        Settings.new = 4
        result = x * Settings.shown + Settings.new, Settings.items is Settings.level
        Settings.level = 1
        return result

    return fn, Settings


@table.program(options=FULL, change={1: lambda state: setattr(state[0], "last", None), 2: lambda state: delattr(state[0], "rows")})
def of_tensors_and_sizes():
    class Kept:
        last: object = None

    class Own(Kept):
        pass

    def fn(x):
        Kept.last = x + 1
        setattr(Kept, "rows", x.shape[0])
        Kept.both = (Kept.last, Kept.rows)
        return Own.last * 2, Own().rows, Kept.both[0] is Own.last

    return fn, (Kept, Own)


@table.program(options=FULL, recompiles=(1, 2), change={1: lambda state: delattr(state[0], "step"), 2: lambda state: setattr(state[0], "shown", 3)})
def of_methods_and_properties():
    class Layer:
        factor = 2

        @property
        def shown(self):
            return 7

        @classmethod
        def count(cls):
            cls.counted = getattr(cls, "counted", 0) + 1
            return cls.counted

    class Own(Layer):
        pass

    class Three:
        def __get__(self, obj, cls=None):
            return 3 if obj is None else obj.factor

    own = Own()

    def fn(x):
        before = own.shown, own.factor
        Layer.step = lambda self, y: y * self.factor
        Layer.shown, Layer.factor = Three(), 5
        after = own.shown, Own.shown, own.step(x), Own.count(), Layer.count()
        Layer.shown, Layer.factor = property(lambda self: 8), 2
        return before, after, own.shown

    return fn, (Layer, Own, own)


@table.program(options=FULL)
def deleted_again():
    class Settings:
        a = 1

    class Own(Settings):
        a = 2

    def fn(x):
        Settings.b = 3
        Own.b = 4
        told = [Own.b]
        del Own.b
        told.append(Own.b)
        delattr(Settings, "b")
        return x * told[0] + told[1], hasattr(Own, "b"), hasattr(Settings(), "b"), Own.a

    return fn, (Settings, Own)


@table.program(options=FULL, recompiles=(2,), change={2: lambda state: setattr(state[1], "level", 4)})
def through_a_metaclass():
    class Meta(type):
        def __setattr__(cls, name, value):
            super().__setattr__(name, value)
            type.__setattr__(cls, "told", (name, value))

        def __delattr__(cls, name):
            super().__delattr__(name)
            cls.told = name

    class Settings(metaclass=Meta):
        level = 1

    class Own(Settings):
        pass

    def fn(x):
        Settings.level = 2
        Own.other = 3
        told = Own.level, Own.told, Settings.told
        del Own.other
        return x * Own.level, told, Own.told, hasattr(Own, "other")

    return fn, (Settings, Own)


@table.program(breaks=True, min_graphs=0)
def where_it_is_refused():
    class Data(type):
        @property
        def shown(cls):
            return 1

        @shown.setter
        def shown(cls, value):
            cls.set = value

    class Settings(metaclass=Data):
        pass

    def tried(write):
        try:
            return write()
        except (AttributeError, TypeError) as e:
            return str(e)

    def fn(x):
        x = x + 1
        Settings.shown = 3
        del Settings.set
        told = [
            tried(lambda: setattr(int, "level", 1)),
            tried(lambda: delattr(Settings, "level")),
            tried(lambda: type.__setattr__(3, "level", 1)),
            tried(lambda: type.__delattr__(3, "level")),
        ]
        Settings.__name__ = "Other"
        return x * 2, told, Settings.__name__, Settings.shown

    return fn, Settings


@table.program(options=FULL, recompiles=(1,), change={1: lambda state: setattr(type(state), "scale", 3), 2: lambda state: setattr(type(state), "scale", 3)})
def of_a_module():
    class Model(nn.Module):
        scale = 2

        def forward(self, x):
            x = x * self.scale
            type(self).scale = 5
            return x * self.scale

    model = Model()
    return model, model


@table.program(breaks=True, recompiles=(1,))
def in_a_checkpoint():
    class Settings:
        level = 1

    def double(x):
        Settings.level = 2
        return x.sin() * Settings.level

    def fn(x):
        before = Settings.level
        return checkpoint(double, x + 1, use_reentrant=False), Settings.level, before

    return fn, Settings


@table.program(recompiles=(1, 2))
def a_weak_reference_that_is_kept():
    class Holder:
        pass

    target, holder = OrderedDict(a=1), Holder()

    def fn(x):
        holder.ref = weakref.ref(target)
        holder.again = weakref.ref(target)
        return x + 1, holder.ref is holder.again

    return fn, (target, holder)


@table.program(breaks=True)
def a_weak_reference_that_is_asked():
    target = OrderedDict(a=1)

    def fn(x):
        ref = weakref.ref(target)
        x = x * 2
        return x + ref()["a"], ref() is target

    return fn, target


@table.program(breaks=True, recompiles=(1, 2))
def a_weak_reference_over_a_break():
    class Thing:
        pass

    thing = Thing()

    def fn(x):
        ref = weakref.ref(thing)
        x = x * 2
        print(ref() is thing)
        return x + 1, ref

    return fn, thing


@table.program()
def a_weak_reference_that_was_there():
    target = OrderedDict(a=1)
    ref = weakref.ref(target)

    def fn(x):
        return x + 1, weakref.ref(target) is ref

    return fn, (target, ref)


class Kept:
    ref: Any = None
    other: Any = None


def _refer_again(state: Any) -> None:
    target, kept = state
    kept.ref = weakref.ref(target)


def _refer_with_a_callback(state: Any) -> None:
    target, kept = state
    kept.ref = weakref.ref(target, print)


def _forget(state: Any) -> None:
    state[1].ref = None


@table.program(calls=6, recompiles=(1, 3, 4, 5), change={1: _refer_again, 3: _refer_with_a_callback, 4: _refer_again, 5: _forget})
def a_weak_reference_that_comes_and_goes():
    target, kept = Kept(), Kept()

    def fn(x):
        mine = weakref.ref(target)
        return x + 1, mine is kept.ref, mine is weakref.ref(target), kept.ref is not None

    return fn, (target, kept)


def _refer_to_the_target(state: Any) -> None:
    target, other, kept = state
    kept.ref = weakref.ref(target)


@table.program(calls=4, recompiles=(2,), change={2: _refer_to_the_target})
def a_weak_reference_beside_one_to_another_object():
    target, other, kept = Kept(), Kept(), Kept()
    kept.ref = weakref.ref(other)

    def fn(x):
        return x + 1, weakref.ref(target) is kept.ref

    return fn, (target, other, kept)


@table.program(args=lambda place: (t(place),), grad=True, recompiles=(1,))
def weak_references_to_tensors():
    weight, state = nn.Parameter(t(9)), Kept()

    def fn(x):
        weight.own = weakref.ref(weight)
        y = x * weight
        y.source = weakref.ref(weight)
        state.ref = weakref.ref(x)
        return y, y.source is weight.own

    return fn, weight


@table.program(options=FULL, calls=4, recompiles=(1, 2, 3), change={1: lambda state: setattr(state[1], "n", 5), 2: lambda state: delattr(state[1], "n")})
def what_super_finds_while_classes_change():
    class Base:
        n = 1

    class Middle(Base):
        pass

    class Own(Middle):
        n = 100

        def of_super(self):
            return super().n

    own = Own()

    def fn(x):
        told = [own.of_super(), own.of_super()]
        Middle.n, before = 7, vars(Middle).get("n")
        told += [own.of_super(), own.of_super()]
        if before is None:
            del Middle.n
        else:
            Middle.n = before
        Base.n, before = 9, Base.n
        told += [own.of_super(), own.of_super()]
        Base.n = before
        return x * told[0] + told[2], told

    return fn, (Base, Middle, Own)


def model(at_once: bool, lock: threading.Lock | None = None):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.ReLU() for _ in range(3))
            self.installed = False
            self.got: list | None = None

        def install(self) -> None:
            def hook(module, args, output):
                if self.got is not None:
                    self.got.append(output)

            for layer in self.layers:
                layer.register_forward_hook(hook)
            self.installed = True

        def forward(self, x):
            self.got = []
            if not self.installed and lock is not None:
                with lock:
                    self.install()
            elif not self.installed:
                self.install()
            for layer in self.layers:
                x = layer(x) + 1
            got, self.got = self.got, None
            return x, got

    made = Model()
    if not at_once:
        made.install()
    return made, made


@table.program(breaks=True, recompiles=(1,), max_graphs=2)
def hooks_that_are_installed_by_the_first_call():
    return model(True)


@table.program(breaks=True, recompiles=(1,), max_graphs=2)
def hooks_that_are_installed_under_a_lock():
    return model(True, threading.Lock())


@table.program()
def hooks_that_are_there():
    return model(False)


@table.program(breaks=True, recompiles=(1, 2))
def hooks_for_one_call():
    layer = nn.ReLU()

    def fn(x):
        seen = []
        handle = layer.register_forward_hook(lambda module, args, output: seen.append(output * 2))
        x = layer(x)
        handle.remove()
        return x, seen, layer(x)

    return fn, layer


@table.program(calls=4, breaks=True, recompiles=(1, 2, 3))
def a_hook_that_the_next_call_removes():
    layer, weight, handles = nn.ReLU(), t(1), []
    # Numbers that each run has in common.
    RemovableHandle.next_id = 0

    def fn(x):
        if handles:
            handles.pop().remove()
            return layer(x), len(layer._forward_pre_hooks)
        handles.append(layer.register_forward_pre_hook(lambda module, args: (args[0] * weight,)))
        return layer(x), handles[0].id in layer._forward_pre_hooks

    return fn, layer


def scaled(self):
    return 5.0


@table.program(options=FULL, calls=4, repeats=True)
def an_attribute_that_becomes_a_property():
    class Held:
        f = 1.0
        g = 1.0

    held = Held()
    held.g = 4.0

    def fn(x):
        y = x * held.f * held.g
        Held.f = Held.g = property(scaled)
        z = y * held.f * held.g
        Held.f = Held.g = 1.0
        return y, z * held.f * held.g, held.g

    return fn, (Held, held)


@table.program(options=FULL, calls=4)
def a_forward_for_a_while():
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

        def other(self, x):
            return x - 1

    net = Net()

    def fn(x):
        Net.forward, before = Net.other, Net.forward
        y = net(x)
        Net.forward = before
        return y, net(x)

    return fn, Net


@table.program(calls=4, recompiles=(1, 2, 3))
def a_count_in_equal_modules():
    class Net(nn.Module):
        count, scale = 0, 2.0

        def forward(self, x):
            type(self).count += 1
            return x * self.scale + self.count

    first, second = Net(), Net()
    return (lambda x: (first(x), second(x), first(x))), Net


def test_where_a_write_breaks_the_graph() -> None:
    class Settings:
        pass

    def fn(x):
        y = x + 1
        Settings.__len__ = lambda self: 2
        return y * len(Settings())

    told = fineline.explain(fn)(t(0))
    assert [(b.id, b.reason) for b in told.breaks] == [("FL432", "setting .__len__ on a class")] and told.graph_count == 2
    del Settings.__len__
    with pytest.raises(fineline.errors.Unsupported, match="FL432") as refused:
        fineline.compile(fn, backend="eager", fullgraph=True)(t(0))
    assert refused.value.where == f"{__file__}:{fn.__code__.co_firstlineno + 2}" and not hasattr(Settings, "__len__")


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_class_writes(program: Program, twin: str) -> None:
    check(program, twin)
