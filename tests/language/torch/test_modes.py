"""Modes of the user's that are entered in captured code: they see the operators that they see eagerly, and capture goes on behind them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import fineline
from tests.language.torch.test_torch_functions import BODIES, SEEN, Seeing, of
from tests.oracle import Program, Step, Table, check, t

table = Table()
pytestmark = pytest.mark.usefixtures("derivatives_told")


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(fn.__name__)
        return fn(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(fn))
        return fn(*args, **(kwargs or {}))


MODES = {"functions": Functions, "dispatches": Dispatches}
BOTH = pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])


def around(kind: Any) -> Any:
    def fn(x):
        x = x.cos() * 2
        with (mode := kind()):
            y = torch.sin(x) + x.shape[0] + x.dim()
            y[0] = 1
        return y.exp() + 1, mode.seen

    return fn


def kept(kind: Any) -> Any:
    mode = kind()

    def fn(x):
        mode.seen.clear()
        with mode:
            y = torch.nn.functional.linear(x, torch.ones(2, 4)).relu_()
        return y.sum(), len(mode.seen)

    return fn


def within_each_other(kind: Any) -> Any:
    def fn(x):
        with (outer := kind()):
            y = x.cos()
            with (inner := kind()), torch.no_grad():
                y = y.sin()
            y = y * 2
        return y + 1, inner.seen, outer.seen

    return fn


def left_by_an_error(kind: Any) -> Any:
    def fn(x):
        mode = kind()
        try:
            with mode:
                y = x.sin()
                raise ValueError(y.shape[0])
        except ValueError as e:
            return x.cos() + 1, mode.seen, e.args

    return fn


def called(kind: Any) -> Any:
    def work(x):
        return x.sin() * 2

    def counted(x):
        with kind() as mode:
            return work(x), mode.seen

    def fn(x):
        y, seen = counted(work(x))
        return work(y), seen

    return fn


@BOTH
@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("make", [around, kept, within_each_other, left_by_an_error, called], ids=lambda make: make.__name__)
def test_modes(make: Any, kind: str, dynamic: bool | None, twin: str) -> None:
    table = Table()
    # What the list held before is guarded.
    again = (1,) if make is kept else ()
    table.program(breaks=True, recompiles=again, options={"dynamic": dynamic})(lambda: make(MODES[kind]))
    check(table.programs[0], twin)


# -- what a function mode sees -------------------------------------------------------------------------------------------------------
class Watching(TorchFunctionMode):
    """Notes each call, and gives some of them otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(f"{fn.__name__} of {[kind.__name__ for kind in types]}, {len(args)}, {None if kwargs is None else sorted(kwargs)}")
        if fn is torch.sin:
            return torch.cos(*args) + 1
        return fn(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Tensor, Seeing], ids=["plain", "of_a_class"])
@pytest.mark.parametrize("body", [*SEEN, *BODIES])
def test_what_is_seen(body: str, kind: type[Tensor], twin: str) -> None:
    run = (SEEN | BODIES)[body]

    def fn(x):
        Seeing.seen.clear()
        with Watching() as mode:
            y = run(x)
        return y, mode.seen, list(Seeing.seen)

    marks: dict[str, Any] = {"recompiles": frozenset({1}), "breaks": True, "min_graphs": 0, "tolerance": 1e-6}
    check(Program(body, lambda: (fn, Seeing.seen), [Step(place, args=of(kind)) for place in range(3)], **marks), twin)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sin(x) * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


class Raising(TorchFunctionMode):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.sin:
            raise ValueError(fn.__name__)
        return fn(*args, **(kwargs or {}))


class Unwilling(TorchFunctionMode):
    """Leaves all to the classes of the arguments."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


@table.snippet(min_graphs=0)
def raised_in_a_mode(x):
    try:
        with Raising():
            y = torch.sin(x + 1)
    except ValueError as e:
        return x.sin(), str(e), torch.overrides._get_current_function_mode() is None
    return y


@table.snippet(args=lambda place: (t(place).as_subclass(Seeing),), min_graphs=0)
def left_to_the_class(x):
    Seeing.seen.clear()
    with Unwilling():
        y = x + 1
    return y, list(Seeing.seen)


@table.snippet()
def the_modes_that_are_on(x):
    with Watching() as outer, Watching() as inner:
        on = torch.overrides._get_current_function_mode_stack()
        y = x * len(on)
        found = on[0] is outer, on[1] is inner, torch._C._is_torch_function_mode_enabled(), torch.overrides.has_torch_function((x,))
    return y, found, inner.seen


@table.snippet()
def a_mode_that_is_switched_off(x):
    with Watching() as mode:
        with torch._C.DisableTorchFunctionSubclass():
            x = x + 1
        with torch._C.DisableTorchFunction():
            x = torch.sin(x)
        x = torch.sin(x)
    return x, mode.seen


@table.snippet(breaks=True, recompiles=(1,))
def a_graph_break_under_a_mode(x):
    x = x * 2
    with Watching() as mode:
        x = torch.sin(x)
        fineline.graph_break()
        x = torch.sin(x)
    return x + 1, mode.seen


@table.snippet()
def in_a_generator(x):
    def rows():
        with Watching() as mode:
            for row in x:
                yield torch.sin(row), len(mode.seen)

    return [row for row, _ in rows()], [n for _, n in rows()]


@table.snippet()
def devices_within_each_other(x):
    with torch.device("meta"):
        a = torch.ones(3)
        with torch.device("cpu"):
            b = torch.zeros(4)
        c = torch.empty(2, device="cpu")
    return x + b, a.device.type, c.device.type, torch.ones(1).device.type


@table.snippet()
def a_device_and_a_mode(x):
    with Watching() as mode, torch.device("cpu"):
        y = torch.arange(4) + x
    with torch.device("cpu"), Watching() as other:
        z = torch.full((4,), 2.0)
    return y + z, mode.seen, other.seen


@table.snippet(breaks=True, recompiles=(1,))
def a_graph_break_in_a_block_of_a_device(x):
    with torch.device("cpu"):
        y = torch.zeros(4) + x
        print("a")
        y = y + torch.ones(4)
    return y * 2


@table.snippet(breaks=True, recompiles=(1,), min_graphs=0, grad=True)
def functions_under_a_mode(x):
    with Watching() as mode:
        y = Twice.apply(x) + torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
    return y + 1, mode.seen


@table.snippet(tolerance=1e-6)
def transforms_under_a_mode(x):
    with Watching() as mode:
        rows = torch.vmap(lambda row: torch.sin(row).sum())(x)
        both = torch.func.jvp(torch.sin, (x,), (x,))
    return rows, both, mode.seen, torch._C._functorch.get_dynamic_layer_stack_depth()


@table.snippet(max_graphs=1, tolerance=1e-6, options={"fullgraph": True})
def gradients_under_a_mode(x):
    with Watching() as mode:
        y = torch.vmap(torch.func.grad(lambda row: torch.sin(row).sum()))(x)
    return y, mode.seen, torch._C._functorch.get_dynamic_layer_stack_depth()


@table.snippet(max_graphs=1, tolerance=1e-6, options={"fullgraph": True})
def other_gradients_under_a_mode(x):
    with Watching() as mode:
        value, pull = torch.func.vjp(lambda a, b: (torch.sin(a) * b, b.cos()), x, x * 2)
        pulled = pull((x, x + 1))
        both = torch.func.grad_and_value(lambda a: (a * a).sum())(x)
        twice = torch.func.grad(lambda a: torch.func.grad(lambda b: (b**3).sum())(a).sum())(x)
        unused = torch.func.grad(lambda a, b: (b * 2).sum(), argnums=(0, 1))(x, x)
    return value, pulled, both, twice, unused, mode.seen


@table.snippet(max_graphs=1, options={"fullgraph": True})
def powers_under_a_mode(x):
    with Watching() as mode:
        y = (x**2, 2**x, x**x, torch.pow(x, 2), -x, +x, x // 2, 2 - x, 2 / x, x % 2)
        z = x.clone()
        z **= 2
        z //= 2
        z %= 3
    return y, z, mode.seen


@table.snippet(max_graphs=1, tolerance=1e-6, options={"fullgraph": True})
def jacobians_under_a_mode(x):
    with Watching() as mode:
        rows = torch.func.jacrev(torch.sin)(x[0]), torch.func.hessian(lambda a: (a**3).sum())(x[0])
    return rows, mode.seen


@table.snippet(max_graphs=1, tolerance=1e-6, options={"fullgraph": True})
def gradients_under_a_mode_that_replaces_operators(x):
    with Watching():
        y = torch.func.grad(lambda a: (torch.sin(a) * a).sum())(x)
    return y * 2, torch.func.grad(lambda a: torch.sin(a).sum())(x)


@table.snippet(breaks=True, min_graphs=0, recompiles=(1,), grad=True)
def gradients_of_ones_own_under_a_mode(x):
    with Watching() as mode:
        y = torch.sin(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
    return grad * 2, mode.seen


@table.snippet(breaks=True, recompiles=(1,), min_graphs=0)
def states_under_a_mode(x):
    with Watching() as mode, torch.autocast("cpu", dtype=torch.bfloat16), torch.enable_grad():
        y = x @ x.mT
    with mode, torch.inference_mode():
        z = torch.sin(x)
    with mode, torch.set_grad_enabled(False), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        z = z + torch.sin(x)
    return y, z.clone(), mode.seen, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


@table.snippet(breaks=True, recompiles=(1,), min_graphs=0)
def old_types_under_a_mode(x):
    with Watching() as mode:
        y = torch.FloatTensor([1, 2]) + torch.Tensor([3, 4]) + torch.as_tensor([1.0, 1.0])
    # What counts operators calls this one once more where it runs for real.
    return x[0, :2] + y, [text for text in mode.seen if "lift_fresh" not in text]


@fineline.allow_in_graph
def allowed(x):
    return torch.sin(x) + 1


@table.snippet(recompiles=(1,), options={"fullgraph": True})
def opaque_functions_under_a_mode(x):
    with Watching() as mode:
        y = allowed(x)
    return y, mode.seen


@table.program(recompiles=(1,))
def a_mode_that_is_kept():
    mode = Watching()

    def fn(x):
        mode.seen.clear()
        with mode:
            y = torch.sin(x)
        with mode:
            return torch.sin(y).sum(), len(mode.seen)

    return fn, mode


@table.snippet(args=lambda place: (t(place, 4, 4),), breaks=True, recompiles=(1, 2))
def flops(x):
    x = x * 2
    with FlopCounterMode(display=False) as mode:
        y = x @ x
    return y + 1, mode.get_total_flops()


@table.snippet()
def a_device_is_no_mode_that_sees_operators(x):
    with torch.device("cpu"):
        y = torch.ones(3, 4)
    return x + y


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
