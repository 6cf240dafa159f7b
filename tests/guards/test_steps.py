"""Each kind of step, in both evaluators: it passes, fails after a change, and passes again after the change is undone."""

from __future__ import annotations

import itertools
import struct
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fineline.guards.facts import ambient_facts, tensor_facts
from fineline.report.misses import listed
from tests.guards.twins import Steps, Twins


class Thing:
    colour = "red"

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("a",)


def function(x: int = 1, *, y: int = 2) -> int:
    return x + y


def other(x: int = 1, *, y: int = 2) -> int:
    return x - y


def outer() -> Callable:
    held = "first"

    def inner() -> str:
        return held

    return inner


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    """A failure between a change and its undoing must not spread."""
    yield
    torch.set_default_dtype(torch.float32)


Case = tuple[Any, list, Callable[[], None], Callable[[], None]]


def replace(container: Any, key: Any, value: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """Puts ``value`` at ``key``, and puts back what was there."""
    old = container[key]
    return lambda: container.__setitem__(key, value), lambda: container.__setitem__(key, old)


def drop(container: dict, key: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    old = container[key]
    return lambda: container.__delitem__(key), lambda: container.__setitem__(key, old)


def add(container: Any, key: Any, value: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: container.__setitem__(key, value), lambda: container.__delitem__(key)


def attribute(owner: Any, name: str, value: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    old = getattr(owner, name)
    return lambda: setattr(owner, name, value), lambda: setattr(owner, name, old)


def through_key(holder: dict, *checks: tuple[str, Any]) -> list:
    """Steps that read ``holder["x"]`` and check it."""
    steps = Steps()
    reg = steps.get("key", steps.get("root", -1, 0), "x")
    for op, payload in checks:
        steps.check(op, reg, payload)
    return steps.steps


def eq_case(payload: Any, changed: Any) -> Case:
    holder = {"x": payload}
    return holder, through_key(holder, ("eq", payload)), *replace(holder, "x", changed)


def case_key() -> Case:
    holder = {"x": 1}
    return holder, through_key(holder), *drop(holder, "x")


def case_key_of_mapping_with_missing() -> Case:
    class Default(dict):
        def __missing__(self, key: Any) -> int:
            return 1

    holder = Default(x=1)
    return holder, through_key(holder), *drop(holder, "x")


def case_key_not_a_string() -> Case:
    holder: dict = {(1, "a"): 5, 3: 4, 2.5: 1, int: 2}
    steps = Steps()
    root = steps.get("root", -1, 0)
    for key, value in holder.items():
        steps.check("eq", steps.get("key", root, key), value)
    return holder, steps.steps, *replace(holder, (1, "a"), 6)


def case_dict() -> Case:
    thing = Thing(a=1)
    steps = Steps()
    steps.check("eq", steps.get("key", steps.attributes(steps.get("root", -1, 0), Thing), "a"), 1)
    return thing, steps.steps, *attribute(thing, "a", 2)


def case_dict_without_type() -> Case:
    thing = Thing(a=1)
    steps = Steps()
    steps.check("eq", steps.get("key", steps.get("dict", steps.get("root", -1, 0)), "a"), 1)
    return thing, steps.steps, *attribute(thing, "a", 2)


def case_dict_of_module() -> Case:
    module = types.ModuleType("m")
    module.a = 1
    steps = Steps()
    steps.check("eq", steps.get("key", steps.attributes(steps.get("root", -1, 0), types.ModuleType), "a"), 1)
    return module, steps.steps, *attribute(module, "a", 2)


def case_dict_of_function() -> Case:
    made = types.FunctionType(function.__code__, {})
    steps = Steps()
    steps.check("len", steps.get("dict", steps.get("root", -1, 0)), 0)
    return made, steps.steps, lambda: setattr(made, "a", 1), lambda: delattr(made, "a")


def case_dict_of_thread_local() -> Case:
    local = threading.local()
    local.a = 1
    steps = Steps()
    steps.check("eq", steps.get("key", steps.get("dict", steps.get("root", -1, 0)), "a"), 1)
    return local, steps.steps, *attribute(local, "a", 2)


def case_dict_of_tuple_subclass() -> Case:
    class Pair(tuple):
        pass

    pair = Pair((1, 2))
    pair.a = 1
    steps = Steps()
    steps.check("eq", steps.get("key", steps.attributes(steps.get("root", -1, 0), Pair), "a"), 1)
    return pair, steps.steps, *attribute(pair, "a", 2)


def case_list_item() -> Case:
    items = ["a", "b"]
    steps = Steps()
    steps.check("eq", steps.get("index", steps.get("root", -1, 0), 1), "b")
    return items, steps.steps, *replace(items, 1, "c")


def case_list_too_short() -> Case:
    items = ["a", "b"]
    steps = Steps()
    steps.get("index", steps.get("root", -1, 0), 1)
    return items, steps.steps, lambda: items.__delitem__(1), lambda: items.append("b")


def case_tuple_item() -> Case:
    holder = {"x": (1, [2])}
    steps = Steps()
    pair = steps.get("key", steps.get("root", -1, 0), "x")
    steps.check("len", steps.get("index", pair, 1), 1)
    return holder, steps.steps, *replace(holder, "x", (1, []))


def case_cell() -> Case:
    inner = outer()
    cell = inner.__closure__[0]
    steps = Steps()
    closure = steps.get("member", steps.get("root", -1, 0), types.FunctionType.__closure__)
    steps.check("eq", steps.get("cell", steps.get("index", closure, 0)), "first")
    return inner, steps.steps, *attribute(cell, "cell_contents", "second")


def case_empty_cell() -> Case:
    cell = types.CellType(1)
    steps = Steps()
    steps.get("cell", steps.get("root", -1, 0))
    return cell, steps.steps, lambda: delattr(cell, "cell_contents"), lambda: setattr(cell, "cell_contents", 1)


def case_slot() -> Case:
    slotted = Slotted()
    slotted.a = "x"
    steps = Steps()
    steps.check("eq", steps.get("member", steps.get("root", -1, 0), Slotted.__dict__["a"]), "x")
    return slotted, steps.steps, *attribute(slotted, "a", "y")


def case_slot_emptied() -> Case:
    slotted = Slotted()
    slotted.a = "x"
    steps = Steps()
    steps.get("member", steps.get("root", -1, 0), Slotted.__dict__["a"])
    return slotted, steps.steps, lambda: delattr(slotted, "a"), lambda: setattr(slotted, "a", "x")


def case_getset() -> Case:
    leaf = torch.zeros(2, requires_grad=True)
    steps = Steps()
    steps.check("is", steps.get("member", steps.get("root", -1, 0), torch._C.TensorBase.grad), None)
    return leaf, steps.steps, lambda: setattr(leaf, "grad", torch.ones(2)), lambda: setattr(leaf, "grad", None)


def case_function_defaults() -> Case:
    made = types.FunctionType(function.__code__, {}, "f", (1,))
    steps = Steps()
    steps.check("eq", steps.get("member", steps.get("root", -1, 0), types.FunctionType.__defaults__), (1,))
    return made, steps.steps, *attribute(made, "__defaults__", (2,))


def case_bases_of_class() -> Case:
    class First:
        pass

    class Second:
        pass

    class Derived(First):
        pass

    steps = Steps()
    mro = steps.get("member", steps.get("root", -1, 0), type.__dict__["__mro__"])
    steps.check("is", steps.get("index", mro, 1), First)
    return Derived, steps.steps, *attribute(Derived, "__bases__", (Second,))


def case_type_attr() -> Case:
    class Base:
        size = 1

    class Derived(Base):
        pass

    steps = Steps()
    steps.get("root", -1, 0)
    steps.check("eq", steps.get("type_attr", -1, (Derived, "size")), 1)
    return None, steps.steps, *attribute(Base, "size", 2)


def case_type_lacks() -> Case:
    class Base:
        pass

    class Derived(Base):
        pass

    steps = Steps()
    steps.get("root", -1, 0)
    steps.check("type_lacks", -1, (Derived, "size"))
    return None, steps.steps, lambda: setattr(Base, "size", 2), lambda: delattr(Base, "size")


def case_is() -> Case:
    holder = {"x": Thing}
    return holder, through_key(holder, ("is", Thing)), *replace(holder, "x", Slotted)


def case_type() -> Case:
    class Twin:
        pass

    holder = {"x": Thing()}
    return holder, through_key(holder, ("type", Thing)), *attribute(holder["x"], "__class__", Twin)


def case_len() -> Case:
    items = [1, 2]
    steps = Steps()
    steps.check("len", steps.get("root", -1, 0), 2)
    return items, steps.steps, lambda: items.append(3), lambda: items.pop() and None


def case_len_of_set() -> Case:
    items = {1, 2}
    steps = Steps()
    steps.check("len", steps.get("root", -1, 0), 2)
    return items, steps.steps, lambda: items.add(3), lambda: items.discard(3)


def case_keys() -> Case:
    holder = {"a": 1, "b": 2}
    steps = Steps()
    steps.check("keys", steps.get("root", -1, 0), ("a", "b"))
    return holder, steps.steps, lambda: holder.update(a=holder.pop("a")), lambda: holder.update(b=holder.pop("b"))


def case_keys_of_ordered() -> Case:
    holder = OrderedDict(a=1, b=2)
    steps = Steps()
    steps.check("keys", steps.get("root", -1, 0), ("a", "b"))
    return holder, steps.steps, lambda: holder.move_to_end("a"), lambda: holder.move_to_end("b")


def case_absent() -> Case:
    holder = {"a": 1}
    steps = Steps()
    steps.check("absent", steps.get("root", -1, 0), "b")
    return holder, steps.steps, *add(holder, "b", 1)


def case_code() -> Case:
    made = types.FunctionType(function.__code__, {})
    steps = Steps()
    steps.check("function", steps.get("root", -1, 0), (function.__code__, None, None))
    return made, steps.steps, *attribute(made, "__code__", other.__code__)


def case_defaults() -> Case:
    steps = Steps()
    steps.check("function", steps.get("root", -1, 0), (function.__code__, function.__defaults__, function.__kwdefaults__))
    return function, steps.steps, *attribute(function, "__defaults__", (5,))


def case_kwdefaults() -> Case:
    steps = Steps()
    steps.check("function", steps.get("root", -1, 0), (function.__code__, function.__defaults__, function.__kwdefaults__))
    return function, steps.steps, *attribute(function, "__kwdefaults__", {"y": 5})


def two_keys(op: str, first: Any, second: Any, changed: Any) -> Case:
    holder = {"x": first, "y": second}
    steps = Steps()
    root = steps.get("root", -1, 0)
    x, y = steps.get("key", root, "x"), steps.get("key", root, "y")
    if op == "same":
        steps.check("same", x, y)
    else:
        steps.check("distinct", -1, ((x, y), ()))
    return holder, steps.steps, *replace(holder, "y", changed)


def case_same() -> Case:
    shared = [1]
    return two_keys("same", shared, shared, [1])


def case_distinct() -> Case:
    first = [1]
    return two_keys("distinct", first, [1], first)


@pytest.mark.parametrize("n", [2, 3, 8, 9, 10, 64, 100, 1000])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_distinct_objects(n: int, share: float) -> None:
    """Objects at any two places, of which one is written or both are, must not be one; two that are only read may be."""
    ones = round(n * (1 - share)) or 1
    objects = [[i] for i in range(n)]
    steps = Steps()
    root = steps.get("root", -1, 0)
    registers = tuple([steps.get("index", root, i) for i in range(n)])
    steps.check("distinct", -1, (registers[:ones], registers[ones:]))
    twins = steps.twins(1)
    for _ in range(3):
        assert twins.holds(objects)
        assert twins.holds([[i] for i in range(n)])
    places = {0, 1, ones - 1, ones, n // 2, n - 2, n - 1}
    for a, b in itertools.permutations(sorted([i for i in places if 0 <= i < n]), 2):
        kept, objects[a] = objects[a], objects[b]
        assert twins.holds(objects) is (min(a, b) >= ones)
        objects[a] = kept
    assert twins.holds(objects)


def test_the_explanation_of_objects_that_are_one_names_them() -> None:
    a, b = ["a"], ["b"]
    steps = Steps()
    root = steps.get("root", -1, 0)
    x, y = steps.get("index", root, 0), steps.get("index", root, 1)
    steps.check("distinct", -1, ((x, y), ()))
    twins = steps.twins(1)
    assert twins.holds((a, b)) and not twins.holds((b, b))
    assert listed(twins.reference.explain(((b, b),))) == "which objects are one changed, for ['b']"


def case_tensor() -> Case:
    t = torch.zeros(2, 3)
    holder = {"x": t}
    return holder, through_key(holder, ("tensor", tensor_facts(t))), *replace(holder, "x", torch.zeros(3, 2))


def case_storages() -> Case:
    t = torch.zeros(4)
    holder = {"x": t, "y": t[1:], "z": torch.zeros(4)}
    steps = Steps()
    root = steps.get("root", -1, 0)
    registers = tuple([steps.get("key", root, name) for name in "xyz"])
    steps.check("storages", -1, (registers, (0, 0, 2)))
    return holder, steps.steps, *replace(holder, "z", t[2:])


def case_storages_split() -> Case:
    t = torch.zeros(4)
    holder = {"x": t, "y": t[1:]}
    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("storages", -1, (tuple([steps.get("key", root, name) for name in "xy"]), (0, 0)))
    return holder, steps.steps, *replace(holder, "y", torch.zeros(3))


def case_ambient() -> Case:
    steps = Steps()
    steps.get("root", -1, 0)
    steps.check("ambient", -1, ambient_facts())
    return None, steps.steps, lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)


def case_weak() -> Case:
    thing = Thing()
    holder = {"x": thing}
    return holder, through_key(holder, ("weak", weakref.ref(thing))), *replace(holder, "x", Thing())


def case_set_eq() -> Case:
    items = {1, "a"}
    steps = Steps()
    steps.check("set_eq", steps.get("root", -1, 0), frozenset({1, "a"}))
    return items, steps.steps, lambda: items.add(2), lambda: items.discard(2)


class Name(str):
    pass


def case_set_eq_of_names() -> Case:
    """C compares such sets; an equal name of another class is another element."""
    names = {f"name{n}" for n in range(9)}
    steps = Steps()
    steps.check("set_eq", steps.get("root", -1, 0), frozenset(names))

    def replaced(name: str) -> None:
        names.discard("name3")
        names.add(name)

    return names, steps.steps, lambda: replaced(Name("name3")), lambda: replaced("name3")


def case_predicate() -> Case:
    items = [1]
    steps = Steps()
    steps.check("predicate", steps.get("root", -1, 0), (lambda value: value[0] == 1, "starts with one"))
    return items, steps.steps, *replace(items, 0, 2)


def nan(payload: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 | payload))[0]


EQUALITIES = {
    "none": (None, False),
    "bool": (True, 1),
    "small int": (1, 1.0),
    "big int": (10**30, 10**30 + 1),
    "float": (1.5, 2.5),
    "signed zero": (0.0, -0.0),
    "nan": (nan(0), nan(1)),
    "complex": (1j, complex(-0.0, 1)),
    "str": ("a", "b"),
    "bytes": (b"a", b"b"),
    "dtype": (torch.float32, torch.float64),
    "device": (torch.device("cpu"), torch.device("meta")),
    "layout": (torch.strided, torch.sparse_coo),
    "memory format": (torch.contiguous_format, torch.channels_last),
    "tuple": ((1, ("a", 2.0)), (1, ("a", 2))),
    "tuple length": ((1, 2), (1, 2, 3)),
    "size": (torch.Size([1, 2]), (1, 2)),
    "slice": (slice(1, None, 2), slice(1, None, 2.0)),
    "range": (range(0, 2, 2), range(0, 1, 2)),
    "frozenset": (frozenset({1, 2}), frozenset({True, 2})),
    "type": (int, float),
    "signed zero in a tuple": ((0.0,), (-0.0,)),
}


@pytest.mark.parametrize("name", [name for name in globals() if name.startswith("case_")] + list(EQUALITIES))
def test_pass_change_revert(name: str) -> None:
    root, steps, change, revert = eq_case(*EQUALITIES[name]) if name in EQUALITIES else globals()[name]()
    twins = Twins(1, steps)
    for _ in range(4):
        assert twins.holds(root)
        change()
        assert not twins.holds(root)
        revert()
    assert twins.holds(root)


@pytest.mark.parametrize("name", list(EQUALITIES))
def test_equal_copies_pass(name: str) -> None:
    payload = EQUALITIES[name][0]
    copy = payload if isinstance(payload, (type, torch.dtype, torch.layout, torch.memory_format)) else eval_copy(payload)
    holder = {"x": payload}
    twins = Twins(1, through_key(holder, ("eq", payload)))
    assert twins.holds(holder)
    holder["x"] = copy
    assert twins.holds(holder)


def eval_copy(value: Any) -> Any:
    """An equal object, another one where the type allows it."""
    match value:
        case None | bool():
            return value
        case float():
            return struct.unpack("<d", struct.pack("<d", value))[0]
        case complex():
            return complex(value.real, value.imag)
        case int():
            return int(str(value))
        case str() | bytes():
            return value[:0] + value
        case torch.Size():
            return torch.Size(list(value))
        case tuple():
            return tuple([eval_copy(item) for item in value])
        case slice():
            return slice(value.start, value.stop, value.step)
        case range():
            return range(value.start, value.stop, value.step)
        case frozenset():
            return frozenset(list(value))
        case torch.device():
            return torch.device(str(value))
    raise AssertionError(value)


def test_a_storage_goes_by_its_first_position() -> None:
    t = torch.zeros(4)
    steps = Steps()
    registers = tuple([steps.get("root", -1, i) for i in range(3)])
    steps.check("storages", -1, (registers, (0, 0, 1)))
    assert not steps.twins(3).holds(t, t[1:], t[2:])
