"""Objects that are no tensors, and whose classes have a ``__torch_function__``: operators call it where such an object is an argument."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


class Boxed:
    """A tensor in an object, with the names of what was computed of it."""

    def __init__(self, value: Any, seen: Any = ()) -> None:
        self.value, self.seen = value, [*seen]

    def __add__(self, other: Any) -> Any:
        return torch.add(self, other)

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = [name for a in args if isinstance(a, Boxed) for name in a.seen]
        value = fn(*[_opened(a) for a in args], **{name: _opened(a) for name, a in (kwargs or {}).items()})
        return cls(value, [*seen, f"{fn.__name__} of {[kind.__name__ for kind in types]}"])


class Deeper(Boxed):
    """A subclass, which is asked first."""

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.mul:
            return NotImplemented
        return super().__torch_function__(fn, types, args, kwargs)


class Unwilling:
    asked = 0

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked += 1
        return NotImplemented


class Raising:
    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError(f"not {fn.__name__}")


def _opened(a: Any) -> Any:
    return [_opened(x) for x in a] if isinstance(a, (list, tuple)) else a.value if isinstance(a, Boxed) else a


def boxed(cls: Any) -> Any:
    return lambda place: (cls(t(place)), t(place + 1))


def shown(b: Any) -> Any:
    return b.value, b.seen


@table.snippet(args=boxed(Boxed))
def functions(b, y):
    return shown(torch.sin(b)), shown(torch.add(b, y)), shown(torch.add(y, b, alpha=2)), shown(torch.sub(input=y, other=b))


@table.snippet(args=boxed(Boxed))
def functions_in_python(b, y):
    return shown(F.relu(b)), shown(F.layer_norm(b, (4,))), shown(F.mse_loss(b, y))


@table.snippet(args=boxed(Boxed))
def operands(b, y):
    return shown(y * b), shown(b + y), shown(y + b), shown(y @ Boxed(y.mT)), shown(y > b)


@table.snippet(args=boxed(Boxed))
def lists(b, y):
    return shown(torch.stack([b, y])), shown(torch.cat((y, b)))


@table.snippet(args=boxed(Deeper))
def subclasses(b, y):
    return shown(torch.add(Boxed(y), b)), shown(torch.mul(b, Boxed(y)))


@table.snippet(args=boxed(Boxed))
def beside_a_tensor_of_a_class(b, y):
    return shown(torch.add(b, y.as_subclass(Kept)))


class Kept(Tensor):
    """Overrides nothing: results keep the class."""


@table.snippet(args=boxed(lambda x: Unwilling()), min_graphs=1)
def no_class_has_it(u, y):
    y = y + 1
    try:
        torch.add(y, u)
    except TypeError as e:
        asked, Unwilling.asked = Unwilling.asked, 0
        return str(e), asked, y * 2


@table.snippet(args=boxed(lambda x: Raising()))
def raised(r, y):
    try:
        y = torch.add(y * 2, r)
    except ValueError as e:
        return str(e), y + 1


class Naming(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(f"{fn.__name__} of {[kind.__name__ for kind in types]}")
        return fn(*args, **(kwargs or {}))


@table.snippet(args=boxed(Boxed))
def under_a_mode(b, y):
    with Naming() as mode:
        z = torch.add(b, y)
    return shown(z), mode.names


def scaled(x: Any, y: Any, by: Any = 1) -> Any:
    if has_torch_function((x, y)):
        return handle_torch_function(scaled, (x, y), x, y, by=by)
    return x * y + by


@table.snippet(args=boxed(Boxed))
def functions_of_the_user(b, y):
    return shown(scaled(b, y, 2)), scaled(y, y)


@table.snippet(args=boxed(Boxed), breaks=True)
def a_graph_break_between(b, y):
    z = torch.add(b, y)
    fineline.graph_break()
    return shown(torch.cos(z))


@table.snippet(args=lambda place: (Boxed(t(place).requires_grad_()), t(place + 1)), grad=True)
def gradients(b, y):
    return torch.mul(torch.sin(b), y).value.sum()


@table.snippet(args=lambda place: ((Boxed, Deeper, Boxed)[place](t(place)), t(place + 1)), recompiles=(1,))
def classes_that_change(b, y):
    return shown(torch.add(b, y))


@table.program(change={1: lambda state: setattr(state.cls, "__torch_function__", state.other)}, recompiles=(1,))
def a_method_that_changes():
    class Own:
        @classmethod
        def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0] * 2

    state = SimpleNamespace(cls=Own, other=classmethod(lambda cls, fn, types, args=(), kwargs=None: args[0] * 3))

    def fn(x):
        return torch.add(x, state.cls()) + 1

    return fn, state


@table.snippet()
def a_block_within_a_block(x):
    y = x.as_subclass(Kept)
    with torch._C.DisableTorchFunction():
        with torch._C.DisableTorchFunctionSubclass():
            inner = torch._C._is_torch_function_all_disabled()
            with Naming() as mode:
                z = y + 1
        within = torch._C._is_torch_function_all_disabled()
    return z, inner, within, torch._C._is_torch_function_all_disabled(), mode.names


class Pair:
    """Holds two tensors; functions are applied to both."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.sub:
            return NotImplemented
        if fn is torch.stack:
            return cls(torch.stack([p.a for p in args[0]], **(kwargs or {})), torch.stack([p.b for p in args[0]], **(kwargs or {})))
        parts = [[getattr(v, name) if isinstance(v, cls) else v for v in args] for name in ("a", "b")]
        return cls(*[fn(*part, **(kwargs or {})) for part in parts])

    def both(self) -> tuple[Any, Any]:
        return self.a, self.b


def one(place: int) -> tuple[Any, ...]:
    return (t(place), t(place + 1))


@table.snippet(args=one)
def pairs_beside_tensors(x, y):
    return torch.add(x, Pair(x, y)).both(), torch.where(x > 0, Pair(x, y), y).both(), torch.nn.functional.softmax(Pair(x, y), 1).both()


@table.snippet(args=one, min_graphs=0)
def without_an_implementation(x, y):
    told = []
    for action in (lambda: torch.sub(Pair(x, y), 1), lambda: torch.sub(Pair(x, y), Pair(y, x)), lambda: torch.sub(x, Pair(x, y)), lambda: x - Pair(x, y)):
        try:
            action()
        except TypeError as e:
            told.append(str(e))
    return x + 1, told


@table.snippet(args=one)
def functions_that_no_class_sees(x, y):
    with torch._C.DisableTorchFunctionSubclass():
        try:
            torch.sin(Pair(x, y))
        except TypeError as e:
            return x + 1, type(e).__name__, torch.overrides.has_torch_function((Pair(x, y),))


@table.program(args=one)
def pairs_held_outside():
    held = Pair(t(5), t(6))

    def fn(x, y):
        return torch.add(held, x).both(), torch.stack([held, Pair(x, y)]).both()

    return fn, held


@table.program(args=one, breaks=True)
def pairs_across_a_graph_break():
    held = Pair(t(5), t(6))

    def fn(x, y):
        z = torch.add(held, x)
        fineline.graph_break()
        return torch.mul(z, held).both(), x + y

    return fn, held


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)


def test_one_graph() -> None:
    graphs = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in gm.graph.nodes if node.op.startswith("call")])
        return gm.forward

    def fn(x: Tensor) -> Any:
        return torch.stack([Pair(x, x * 2), Pair(x, x)]).a.sum()

    x = t(1)
    compiled = fineline.compile(fn, backend=backend, fullgraph=True)
    assert torch.equal(compiled(x), fn(x)) and torch.equal(compiled(x), fn(x))
    assert len(graphs) == 1
