"""What the native program learns between calls: that it does learn, and that it never trusts what it learnt too far."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import torch
from torch import nn

from fineline.guards.facts import tensor_facts
from tests.guards.twins import Steps, Twins


class Module:
    """A stand-in for a module: attributes, a dict of parameters, empty hooks."""

    def __init__(self, size: int = 2) -> None:
        self.training = True
        self.scale = 0.5
        self.hooks: dict = {}
        self.parameters = {"weight": torch.zeros(size, size)}


def module_steps(steps: Steps, reg: int, module: Any) -> int:
    """Guards the module; the register of its weight."""
    attributes = steps.attributes(reg, type(module))
    steps.check("eq", steps.get("key", attributes, "training"), True)
    steps.check("eq", steps.get("key", attributes, "scale"), 0.5)
    steps.check("absent", attributes, "forward")
    steps.check("len", steps.get("key", attributes, "hooks"), 0)
    weight = steps.get("key", steps.get("key", attributes, "parameters"), "weight")
    steps.check("tensor", weight, tensor_facts(module.parameters["weight"]))
    return weight


def program(module: Any, *inputs: torch.Tensor) -> Twins:
    steps = Steps()
    module_steps(steps, steps.get("root", -1, 0), module)
    for position, value in enumerate(inputs, 1):
        steps.check("tensor", steps.get("root", -1, position), tensor_facts(value))
    return steps.twins(1 + len(inputs))


class Learning:
    """Counts full passes within a block."""

    def __init__(self, twins: Twins, allowed: int) -> None:
        self.twins = twins
        self.allowed = allowed

    def __enter__(self) -> None:
        self.before = self.twins.native.statistics()["full_passes"]

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            assert self.twins.native.statistics()["full_passes"] - self.before <= self.allowed


def test_an_unchanged_call_needs_no_full_pass() -> None:
    module = Module()
    twins = program(module)
    assert twins.holds(module)
    with Learning(twins, 0):
        for _ in range(5):
            assert twins.holds(module)
    assert twins.hits() >= 15


def test_an_attribute_no_guard_reads() -> None:
    module = Module()
    twins = program(module)
    assert twins.holds(module)
    with Learning(twins, 0):
        for i in range(5):
            module.calls = i
            assert twins.holds(module)
            module.parameters["other"] = i
            assert twins.holds(module)


def test_a_guarded_constant_replaced_by_an_equal_one() -> None:
    module = Module()
    twins = program(module)
    for _ in range(5):
        module.scale = float("0.5")
        assert twins.holds(module)
        module.scale = float("0.25")  # often at the address of the one before
        assert not twins.holds(module)


def test_a_new_input_each_call() -> None:
    module, inputs = Module(), [torch.zeros(3), torch.zeros(3), torch.zeros(3)]
    twins = program(module, inputs[0])
    for value in inputs:
        assert twins.holds(module, value)
    with Learning(twins, 0):
        for value in inputs:
            assert twins.holds(module, value)
            assert not twins.holds(module, torch.zeros(4))


def test_a_view_whose_base_alone_requires_a_gradient() -> None:
    base = nn.Parameter(torch.zeros(4, 3))
    with torch.no_grad():
        view = base[1:].unsqueeze(0)
    assert view.requires_grad and view.is_leaf
    steps = Steps()
    steps.check("tensor", steps.get("root", -1, 0), tensor_facts(view))
    twins = steps.twins(1)
    for requires in (True, True, False, False, True, True):
        base.requires_grad_(requires)
        assert twins.holds(view) is requires
    with Learning(twins, 0):
        assert twins.holds(view)


def test_one_program_for_several_modules() -> None:
    modules = [nn.Sequential(*[nn.Linear(2, 2) for _ in range(20)]) for _ in range(6)]

    def walk(steps: Steps, reg: int, module: nn.Module) -> None:
        attributes = steps.attributes(reg, type(module))
        steps.check("eq", steps.get("key", attributes, "training"), True)
        for name in ("_forward_hooks", "_forward_pre_hooks"):
            steps.check("len", steps.get("key", attributes, name), 0)
        parameters = steps.get("key", attributes, "_parameters")
        for name, parameter in module._parameters.items():
            steps.check("tensor", steps.get("key", parameters, name), tensor_facts(parameter))
        children = steps.get("key", attributes, "_modules")
        steps.check("keys", children, tuple(module._modules))
        for name, child in module._modules.items():
            walk(steps, steps.get("key", children, name), child)

    steps = Steps()
    walk(steps, steps.get("root", -1, 0), modules[0])
    twins = steps.twins(1)
    for module in modules:
        assert twins.holds(module)
    with Learning(twins, 0):
        for module in modules:
            assert twins.holds(module)
    with Learning(twins, 2):
        modules[3][7].train(False)
        assert not twins.holds(modules[3])
        modules[3][7].train(True)
        assert all(twins.holds(module) for module in modules)
        handle = modules[2][5].register_forward_hook(lambda *args: None)
        assert [twins.holds(module) for module in modules] == [True, True, False, True, True, True]
        handle.remove()
        assert twins.holds(modules[2])


def test_more_modules_than_tables() -> None:
    modules = [nn.Sequential(*[nn.Identity() for _ in range(40)]) for _ in range(80)]
    steps = Steps()
    root = steps.get("root", -1, 0)
    children = steps.get("key", steps.attributes(root, nn.Sequential), "_modules")
    for name in modules[0]._modules:
        steps.check("eq", steps.get("key", steps.attributes(steps.get("key", children, name), nn.Identity), "training"), True)
    twins = steps.twins(1)
    for _ in range(2):
        for module in modules:
            assert twins.holds(module)
    assert twins.native.statistics()["tables"] <= 64
    with Learning(twins, 0):
        for module in modules:
            assert twins.holds(module)


def test_state_replaced_each_call() -> None:
    module = Module()
    twins = program(module)
    for _ in range(4):
        module.parameters["weight"] = torch.zeros(2, 2)
        assert twins.holds(module)
    with Learning(twins, 0):
        for _ in range(4):
            module.parameters["weight"] = torch.zeros(2, 2)
            assert twins.holds(module)
    module.parameters["weight"] = torch.zeros(3)
    assert not twins.holds(module)


def test_a_growing_list() -> None:
    items = ["a"]
    steps = Steps()
    steps.check("eq", steps.get("index", steps.get("root", -1, 0), 0), "a")
    twins = steps.twins(1)
    for _ in range(4):
        items.append("b")
        assert twins.holds(items)
    with Learning(twins, 0):
        for _ in range(40):
            items.append("b")
            assert twins.holds(items)
    items[0] = "c"
    assert not twins.holds(items)


def test_a_new_dict_each_call() -> None:
    module = Module()
    twins = program(module)
    for _ in range(4):
        module.__dict__ = dict(module.__dict__)
        assert twins.holds(module)
    module.__dict__ = {**module.__dict__, "training": False}
    assert not twins.holds(module)


def test_a_class_that_counts_its_calls() -> None:
    class Counting:
        calls = 0
        size = 1

    thing = Counting()
    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("type", root, Counting)
    steps.check("eq", steps.get("type_attr", -1, (Counting, "size")), 1)
    steps.check("type_lacks", -1, (Counting, "missing"))
    twins = steps.twins(1)
    assert twins.holds(thing)
    with Learning(twins, 0):
        for _ in range(4):
            Counting.calls += 1
            assert twins.holds(thing)
    Counting.size = 2
    assert not twins.holds(thing)


def test_a_list_in_a_class_replaced_by_another() -> None:
    class Holder:
        items = ["a"]

    steps = Steps()
    steps.get("root", -1, 0)
    steps.check("eq", steps.get("index", steps.get("type_attr", -1, (Holder, "items")), 0), "a")
    twins = steps.twins(1)
    for item in ("a", "b", "a", "c", "a"):
        Holder.items = [item]
        assert twins.holds(None) == (item == "a")
        Holder.items[0] = "z"
        assert not twins.holds(None)


def test_a_program_of_no_steps() -> None:
    assert Steps().twins(1).holds(None)


def test_a_module_freed_and_another_in_its_place() -> None:
    twins = program(Module())
    for size in (2, 3) * 20:
        module = Module(size)
        assert twins.holds(module) == (size == 2)
        module.scale = float("0.75")
        assert not twins.holds(module)
        del module


def test_types_freed_and_others_in_their_place() -> None:
    def make(slots: bool) -> Any:
        namespace = {"__slots__": ("a", "b", "c")} if slots else {}
        made = type("Fresh", (), namespace)()
        made.a = 1
        return made

    steps = Steps()
    attributes = steps.get("dict", steps.get("root", -1, 0))
    steps.check("eq", steps.get("key", attributes, "a"), 1)
    twins = steps.twins(1)
    for slots in (False, True) * 10:
        made = make(slots)
        assert twins.holds(made) != slots
        del made
        gc.collect(0)  # classes are cycles; only a collection frees them


def test_a_program_keeps_nothing_alive() -> None:
    module = Module()
    inputs = torch.zeros(3)
    twins = program(module, inputs)
    assert twins.holds(module, inputs)
    dead = [weakref.ref(module), weakref.ref(module.parameters["weight"]), weakref.ref(inputs)]
    gc.disable()
    try:
        del module, inputs
        assert [reference() for reference in dead] == [None, None, None]
    finally:
        gc.enable()


def test_a_weakly_held_object_freed_and_another_in_its_place() -> None:
    for _ in range(5):
        module = Module()
        steps = Steps()
        steps.check("weak", steps.get("root", -1, 0), weakref.ref(module))
        twins = steps.twins(1)
        assert twins.holds(module)
        del module
        fresh = [Module() for _ in range(3)]
        assert not any(twins.holds(module) for module in fresh)


class Impostor:
    """Equal to a string, and runs code to say so."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = 0

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        self.asked += 1
        return other == self.text


def test_keys_compared_by_python_code() -> None:
    impostor = Impostor("x")
    holder: dict = {impostor: 1}
    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("eq", steps.get("key", root, "x"), 1)
    steps.check("absent", root, "y")
    twins = steps.twins(1)
    assert twins.holds(holder)
    assert impostor.asked
    holder[impostor] = 2
    assert not twins.holds(holder)
    holder.clear()
    holder["x"] = 1
    assert twins.holds(holder)
    holder[Impostor("y")] = 0
    assert not twins.holds(holder)


def test_a_predicate_that_changes_what_was_checked() -> None:
    module = Module()
    steps = Steps()
    root = steps.get("root", -1, 0)
    weight = module_steps(steps, root, module)
    steps.check("predicate", root, (lambda m: m.parameters.clear() or m.__dict__.clear() or True, "destroys"))
    steps.check("tensor", weight, tensor_facts(module.parameters["weight"]))
    twins = Twins(1, steps.steps, [weight])
    for _ in range(10):
        (values,) = twins.native.check((Module(),))
        assert values.shape == (2, 2)


def test_a_predicate_that_uses_the_program_again() -> None:
    module = Module()
    steps = Steps()
    root = steps.get("root", -1, 0)
    weight = module_steps(steps, root, module)
    depth = [0]

    def again(value: Any) -> bool:
        if depth[0] >= 3:
            return True
        depth[0] += 1
        found = twins.native.check((Module(),))
        value.training = depth[0] % 2 == 0
        twins.native.check((value,))
        value.training = True
        depth[0] -= 1
        return found is not None

    steps.check("predicate", root, (again, "again"))
    twins = Twins(1, steps.steps, [weight])
    for _ in range(5):
        assert twins.native.check((module,)) == (module.parameters["weight"],)


def test_what_comes_out_of_python_code_is_guarded_further() -> None:
    leaf = torch.zeros(2, requires_grad=True)
    leaf.grad = torch.zeros(2)
    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("tensor", root, tensor_facts(leaf))
    grad = steps.get("member", root, torch._C.TensorBase.grad)
    steps.check("tensor", grad, tensor_facts(leaf.grad))
    steps.check("distinct", -1, ((root, grad), ()))
    twins = steps.twins(1)
    assert twins.holds(leaf)
    leaf.grad = torch.zeros(2)
    assert twins.holds(leaf)
    leaf.grad = None
    assert not twins.holds(leaf)


def test_shared_memory_of_new_inputs() -> None:
    base = torch.zeros(8)
    held = [torch.zeros(4) for _ in range(20)]
    steps = Steps()
    registers = [steps.get("root", -1, i) for i in range(22)]
    steps.check("storages", -1, (tuple(registers), (0, 0, *range(2, 22))))
    twins = steps.twins(22)
    for start in (1, 2, 3):
        assert twins.holds(base, base[start:], *held)
        assert not twins.holds(base, torch.zeros(4), *held)
        assert not twins.holds(base, base[start:], *held[:-1], base[:1])
        assert not twins.holds(base, base[start:], *held[:-1], held[0])


def test_materialised_instance_dicts() -> None:
    class Plain:
        def __init__(self) -> None:
            self.a = 1

    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("eq", steps.get("key", steps.attributes(root, Plain), "a"), 1)
    twins = steps.twins(1)
    for _ in range(5):
        fresh = Plain()  # its attributes are in no dict until one is asked for
        assert twins.native.check((fresh,)) is not None
        fresh.a = 2
        assert not twins.holds(fresh)
        fresh.a = 1
        assert twins.holds(fresh)


def test_globals_of_a_function() -> None:
    namespace: dict = {"limit": 3}
    exec("def f(): return limit", namespace)
    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("type", root, types.FunctionType)
    steps.check("eq", steps.get("key", steps.get("member", root, types.FunctionType.__globals__), "limit"), 3)
    twins = steps.twins(1)
    for _ in range(3):
        assert twins.holds(namespace["f"])
        namespace["limit"] = 4
        assert not twins.holds(namespace["f"])
        namespace["limit"] = 3


class Leaf(Module):
    pass


def test_what_plain_getters_read_needs_no_python() -> None:
    """``__mro__`` is a member up to CPython 3.12: where Python had to read it, it read all that was reached through a class too."""

    def fn(x: int = 1, *, y: int = 2) -> int:
        return x + y

    steps = Steps()
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        steps.check("is", steps.get("member", steps.get("root", -1, 0), types.FunctionType.__dict__[name]), getattr(fn, name))
    mro = steps.get("member", steps.get("root", -1, 1), type.__dict__["__mro__"])
    steps.check("is", steps.get("index", mro, 1), Module)
    twins = steps.twins(2)
    assert twins.holds(fn, Leaf) and not twins.holds(fn, Module) and twins.holds(fn, Leaf)
    assert twins.native.statistics()["loud"] == 0
    with Learning(twins, 0):
        assert twins.holds(fn, Leaf)
