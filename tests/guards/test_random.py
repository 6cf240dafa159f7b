"""Random object graphs, random programs over them, random changes in between: the evaluators must agree at every point."""

from __future__ import annotations

import random
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fineline.guards.facts import tensor_facts
from tests.guards.twins import Steps

CONSTANTS = (type(None), bool, int, float, str, tuple, torch.Size)


def classes() -> list[type]:
    """Fresh classes, so that a change of one test's class is no concern of another's."""

    class Base:
        kind = "base"

    class Left(Base):
        kind = "left"

    class Right(Base):
        pass

    class Slots(Base):
        __slots__ = ("slot",)

    return [Left, Right, Slots]


class World:
    """A graph of objects behind two roots, the program of some of its paths, and ways to change it."""

    def __init__(self, seed: int, weak: bool = True) -> None:
        self.weak = weak
        self.random = random.Random(seed)
        self.classes = classes()
        self.steps = Steps()
        self.objects: list[Any] = []
        self.undo: list[Callable[[], None]] = []
        self.numbers: list[tuple[tuple[str, int, int], float]] = []
        self.roots = [self.value(5), self.value(3), self.constant()]
        self.paths: dict[tuple[int, str, Any], int] = {}
        for position, root in enumerate(self.roots):
            self.walk(self.steps.get("root", -1, position), root, 0)
        self.relate()
        self.random.shuffle(self.objects)

    # Values

    def constant(self) -> Any:
        r = self.random
        return r.choice(
            [None, True, r.randrange(5), r.randrange(10**6), r.random(), f"s{r.randrange(3)}", "s" * r.randrange(40), (1, r.random())]
        )

    def value(self, depth: int) -> Any:
        r = self.random
        if depth == 0 or r.random() < 0.2:
            return self.constant()
        kind = r.randrange(9)
        children = [self.value(depth - 1) for _ in range(r.randrange(1, 4))]
        made: Any
        if kind < 3:
            made = r.choice(self.classes)()
            for i, child in enumerate(children):
                setattr(made, f"a{i}", child)
            if hasattr(type(made), "slot") and r.random() < 0.7:
                made.slot = children[0]
        elif kind == 3:
            made = children
        elif kind == 4:
            made = {f"k{i}": child for i, child in enumerate(children)}
        elif kind == 5:
            made = OrderedDict((i, child) for i, child in enumerate(children))
        elif kind == 6:
            made = tuple(children)
        elif kind == 7:
            made = torch.zeros(r.randrange(1, 3), 2, requires_grad=r.random() < 0.5)
        else:
            made = self.closure(children[0])
        self.objects.append(made)
        return made

    def closure(self, held: Any) -> Callable:
        def inner(default: Any = None) -> Any:
            return held

        inner.__defaults__ = (self.constant(),)
        return inner

    # The program: steps that hold now

    def walk(self, reg: int, value: Any, depth: int) -> None:
        s, r = self.steps, self.random
        if depth > 8 or r.random() < 0.05:
            return
        if isinstance(value, CONSTANTS) and not isinstance(value, tuple):
            if type(value) in (bool, int, float) and r.random() < 0.5:
                s.check("type", reg, type(value))
                self.numbers.append((("number", reg, -1), value))
            else:
                s.check("eq", reg, value)
            return
        if r.random() < 0.8:
            s.check("type", reg, type(value))
        if isinstance(value, torch.Tensor):
            facts = tensor_facts(value)
            any_rows = facts._replace(sizes=(None, *facts.sizes[1:]))
            s.check("tensor", reg, any_rows if r.random() < 0.5 else facts)
            self.numbers += [(("size", reg, 0), facts.sizes[0]), (("stride", reg, 1), facts.strides[1])]
        elif isinstance(value, (list, tuple)):
            if r.random() < 0.5:
                s.check("len", reg, len(value))
            for i, child in enumerate(value):
                if r.random() < 0.8:
                    self.walk(s.get("index", reg, i), child, depth + 1)
        elif isinstance(value, dict):
            self.walk_dict(reg, value, depth)
        elif isinstance(value, types.FunctionType):
            s.check("function", reg, (value.__code__, value.__defaults__, value.__kwdefaults__))
            cell = s.get("index", s.get("member", reg, types.FunctionType.__closure__), 0)
            self.walk(s.get("cell", cell), value.__closure__[0].cell_contents, depth + 1)
        else:
            if self.weak and r.random() < 0.3:
                s.check("weak", reg, weakref.ref(value))
            self.walk_class(type(value))
            if hasattr(value, "slot") and r.random() < 0.5:
                self.walk(s.get("member", reg, type(value).__dict__["slot"]), value.slot, depth + 1)
            self.walk_dict(s.get("dict", reg), value.__dict__, depth)

    def relate(self) -> None:
        """Some numbers, and some pairs of numbers, are related as they are now."""
        r = self.random
        for _ in range(min(len(self.numbers), 6)):
            (one, a), (other, b) = r.choice(self.numbers), r.choice(self.numbers)
            op = "lt" if a < b else "gt" if a > b else "eq"
            self.steps.check("relation", -1, ((one, other), (("leaf", 0), ("leaf", 1), (op, None)), "text"))
            self.steps.check("relation", -1, ((one,), (("leaf", 0), ("const", a), ("eq", None)), "text"))

    def walk_dict(self, reg: int, value: dict, depth: int) -> None:
        s, r = self.steps, self.random
        if r.random() < 0.3:
            s.check("keys", reg, tuple(value))
        if r.random() < 0.3:
            s.check("len", reg, len(value))
        if r.random() < 0.5:
            s.check("absent", reg, "missing")
        for key, child in value.items():
            if r.random() < 0.8:
                self.walk(s.get("key", reg, key), child, depth + 1)

    def walk_class(self, cls: type) -> None:
        s, r = self.steps, self.random
        if r.random() < 0.5:
            s.check("eq", s.get("type_attr", -1, (cls, "kind")), cls.kind)
        if r.random() < 0.5:
            s.check("type_lacks", -1, (cls, "missing"))

    # Changes; each returns how to undo it

    def equal(self, value: Any) -> Any:
        """Something that steps may or may not tell from ``value``: a copy, often at an address that was just freed."""
        if isinstance(value, float):
            return value + 0.0 if self.random.random() < 0.5 else value + 1.0
        if isinstance(value, str):
            return "".join(list(value))
        if isinstance(value, tuple):
            return tuple([self.equal(item) for item in value])
        if isinstance(value, list):
            return list(value)
        if isinstance(value, dict):
            return type(value)(value)
        if isinstance(value, torch.Tensor):
            return torch.zeros_like(value).requires_grad_(value.requires_grad)
        if type(value) in self.classes:
            made = type(value)()
            made.__dict__.update(value.__dict__)
            if hasattr(value, "slot"):
                made.slot = value.slot
            return made
        return value

    def swap(self, value: Any) -> Any:
        return self.equal(value) if self.random.random() < 0.7 else self.value(2)

    def change_item(self, container: Any, key: Any) -> Callable[[], None]:
        old = container[key]
        container[key] = self.swap(old)
        return lambda: container.__setitem__(key, old)

    def change(self) -> Callable[[], None]:
        r = self.random
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        if r.random() < 0.1:
            position = r.randrange(len(self.roots))
            return self.change_item(self.roots, position)
        if not self.objects:
            return nothing
        target = r.choice(self.objects[:12])
        if isinstance(target, torch.Tensor):
            return self.change_tensor(target)
        if isinstance(target, list) and target:
            if r.random() < 0.3:
                target.append(1)
                return lambda: target.pop() and None
            return self.change_item(target, r.randrange(len(target)))
        if isinstance(target, dict):
            return self.change_dict(target)
        if isinstance(target, types.FunctionType):
            cell, old, defaults = target.__closure__[0], target.__closure__[0].cell_contents, target.__defaults__
            if r.random() < 0.7:
                cell.cell_contents = self.swap(old)
            else:
                target.__defaults__ = r.choice([defaults, (*defaults,), (0,)])

            def restore() -> None:
                cell.cell_contents, target.__defaults__ = old, defaults

            return restore
        if type(target) in self.classes:
            return self.change_instance(target)
        return nothing

    def change_tensor(self, target: torch.Tensor) -> Callable[[], None]:
        if self.random.random() < 0.5:
            target.requires_grad_(not target.requires_grad)
            return lambda: setattr(target, "requires_grad", not target.requires_grad)
        data = target.data
        target.data = self.random.choice([data.clone(), data.double(), data.T, data[:1]])
        return lambda: setattr(target, "data", data)

    def change_dict(self, target: dict) -> Callable[[], None]:
        r = self.random
        which = r.randrange(4)
        if which == 0 or not target:
            key = r.choice(["missing", "harmless"])
            target[key] = 1
            return lambda: target.pop(key, None) and None
        if which == 1 and isinstance(target, OrderedDict):
            items = list(target.items())
            target.move_to_end(r.choice(list(target)))

            def restore() -> None:
                target.clear()
                target.update(items)

            return restore
        return self.change_item(target, r.choice(list(target)))

    def change_instance(self, target: Any) -> Callable[[], None]:
        r = self.random
        which = r.randrange(6)
        cls = type(target)
        if which == 0:
            name = r.choice(["kind", "missing", "harmless"])
            had, old = name in cls.__dict__, cls.__dict__.get(name)
            setattr(cls, name, r.choice(["left", "changed", old]))
            return lambda: setattr(cls, name, old) if had else delattr(cls, name)
        if which == 1 and cls is not self.classes[2]:
            target.__class__ = r.choice(self.classes[:2])
            return lambda: setattr(target, "__class__", cls)
        if which == 2:
            old_dict = target.__dict__
            target.__dict__ = dict(old_dict)
            return lambda: setattr(target, "__dict__", old_dict)
        if which == 3 and hasattr(target, "slot"):
            old = target.slot
            target.slot = self.swap(old)
            return lambda: setattr(target, "slot", old)
        return self.change_dict(target.__dict__)

    # Rebuilding: frees a part of the graph and builds a like one, which takes its memory

    def plan(self, value: Any) -> Any:
        """What ``value`` is made of, holding on to none of it."""
        if type(value) is float:
            return (float, value.hex(), (value + 1.0).hex())
        if type(value) is str:
            return (str, list(value))
        if type(value) in (list, tuple):
            return (type(value), [self.plan(item) for item in value])
        if type(value) in (dict, OrderedDict):
            return (type(value), [(key, self.plan(item)) for key, item in value.items()])
        if type(value) in self.classes:
            slot = self.plan(value.slot) if hasattr(value, "slot") else None
            return (type(value), [(key, self.plan(item)) for key, item in value.__dict__.items()], slot)
        if isinstance(value, torch.Tensor):
            return (torch.Tensor, tuple(value.shape), value.dtype, value.requires_grad)
        return (None, value)

    def build(self, plan: tuple, alter: float) -> Any:
        """A new object as planned; each constant is another one with the probability ``alter``."""
        kind = plan[0]
        altered = self.random.random() < alter
        if kind is float:
            return float.fromhex(plan[2 if altered else 1])
        if kind is str:
            return "".join(plan[1]) + ("x" if altered else "")
        if kind in (list, tuple):
            return kind([self.build(item, alter) for item in plan[1]])
        if kind in (dict, OrderedDict):
            return kind([(key, self.build(item, alter)) for key, item in plan[1]])
        if kind in self.classes:
            made = self.random.choice(self.classes[:2])() if altered and kind is not self.classes[2] else kind()
            for key, item in plan[1]:
                setattr(made, key, self.build(item, alter))
            if plan[2] is not None:
                made.slot = self.build(plan[2], alter)
            return made
        if kind is torch.Tensor:
            shape = (*plan[1], 1) if altered else plan[1]
            return torch.zeros(shape, dtype=plan[2], requires_grad=plan[3])
        return plan[1]

    def places(self) -> list[tuple[Any, Any]]:
        """Where a part of the graph can be replaced: containers and keys."""
        found: list[tuple[Any, Any]] = [(self.roots, i) for i in range(len(self.roots))]
        pending = list(self.roots)
        while pending:
            value = pending.pop()
            if type(value) in self.classes:
                value = value.__dict__
            if isinstance(value, (dict, list)):
                found += [(value, key) for key in (value if isinstance(value, dict) else range(len(value)))]
                pending += value.values() if isinstance(value, dict) else value
        return found


@pytest.mark.parametrize("seed", range(60))
def test_rebuilt_parts(seed: int) -> None:
    world = World(seed, weak=False)
    twins = world.steps.twins(len(world.roots))
    world.objects.clear()
    hits = 0
    for _ in range(40):
        container, key = world.random.choice(world.places())
        plan = world.plan(container[key])
        for alter in (0.0, 0.0, world.random.choice([0.0, 0.1, 0.5]), 0.0):
            container[key] = None
            container[key] = world.build(plan, alter)
            hits += twins.holds(*world.roots)
    assert hits >= 80


@pytest.mark.parametrize("seed", range(60))
def test_evaluators_agree(seed: int) -> None:
    world = World(seed)
    twins = world.steps.twins(len(world.roots))
    assert twins.holds(*world.roots)
    hits = 0
    for _ in range(80):
        world.undo.append(world.change())
        hits += twins.holds(*world.roots)
        while world.undo and world.random.random() < 0.55:
            world.undo.pop()()
            hits += twins.holds(*world.roots)
    while world.undo:
        world.undo.pop()()
    # Undone in order of the changes, yet a value may have been replaced inside an object that is itself gone.
    twins.holds(*world.roots)
    assert hits or not world.objects
