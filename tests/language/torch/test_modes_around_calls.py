"""Function modes that are on around a call of a compiled function: their Python code is run through, and its effects are in the graph."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import fineline
from tests.language.torch.test_modes import Functions, Raising, Unwilling, Watching
from tests.language.torch.test_torch_functions import SEEN, Doubling, Seeing
from tests.oracle import Table, check, t

table = Table()
pytestmark = pytest.mark.usefixtures("derivatives_told")


class Scaling(TorchFunctionMode):
    """Gives ``torch.sin`` another result, which depends on the mode's state."""

    def __init__(self, factor: float, offset: Tensor | None = None) -> None:
        super().__init__()
        self.factor, self.offset = factor, offset

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.sin:
            y = torch.cos(*args) * self.factor
            return y if self.offset is None else y + self.offset
        return fn(*args, **(kwargs or {}))


class Counting(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.last = 0, None

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        self.last = fn
        return fn(*args, **(kwargs or {}))


def run(x: Any) -> Any:
    y = torch.sin(x) + x.shape[0]
    y[0] = 1
    return y.exp() + 1


def broken(x: Any) -> Any:
    y = torch.sin(x) + 1
    fineline.graph_break()
    return torch.sin(y) * 2


def hidden(compiled: Any) -> Any:
    """Calls what is compiled, without showing it to the oracle, which compares what functions hold."""
    holder = iter(lambda: compiled, None)
    return lambda *args: next(holder)(*args)


def called(body: Callable, choose: Callable[[int], Any]) -> Any:
    """Makes a program that calls ``body``, compiled, under the modes that ``choose`` gives for each call, the outermost first."""

    def make(compile: Any) -> Any:
        compiled = hidden(compile(body))

        def fn(place: int, *args: Any) -> Any:
            modes = choose(place)
            with contextlib.ExitStack() as stack:
                for mode in modes:
                    stack.enter_context(mode)
                result = compiled(*args)
                on = torch._C._len_torch_function_stack()
            return result, on, [vars(mode) for mode in modes if not isinstance(mode, torch.device)]

        return fn

    return make


def at(place: int) -> tuple:
    return place, t(place)


def program(name: str, body: Callable, choose: Callable[[int], Any], args: Callable[[int], tuple] = at, **marks: Any) -> None:
    make = functools.partial(called(body, choose))
    make.__name__ = name  # type: ignore[attr-defined]
    table.program(raw=True, args=args, **marks)(make)


program("one_mode", run, lambda place: [Watching()])
program("a_graph_break", broken, lambda place: [Watching()], breaks=True)
program("two_modes", run, lambda place: [Watching(), Scaling(2.0)])
program("the_other_order", run, lambda place: [Watching(), Scaling(2.0)][:: 1 - place % 2 * 2], recompiles=(1,), must_recompile=True, calls=4)
program("not_at_each_call", run, lambda place: [Watching()] * (place % 2), recompiles=(1,), must_recompile=True, calls=4)
program("another_class", run, lambda place: [Scaling(3.0) if place % 2 else Watching()], recompiles=(1,), must_recompile=True, calls=4)
program("another_state", run, lambda place: [Scaling(3.0 if place < 2 else 4.0)], recompiles=(2,), calls=5)
program("a_tensor_in_a_mode", run, lambda place: [Scaling(3.0, t(place + 5))], grad=True)
program("the_same_mode_twice", run, lambda place: [Watching()] * 2)
program("an_unwilling_mode", lambda x: x + 1, lambda place: [Unwilling()], lambda place: (place, t(place).as_subclass(Doubling)))
program("an_unwilling_mode_alone", run, lambda place, mode=Unwilling(): [mode], breaks=True, min_graphs=0)
program("a_device", lambda x: x + torch.arange(4), lambda place: [torch.device("cpu"), Watching()])
program("a_device_inside", lambda x: x + torch.arange(4), lambda place: [Watching(), torch.device("cpu")])
program("another_device", lambda x: (x + 1, torch.ones(4)), lambda place: [Watching(), torch.device("meta" if place == 2 else "cpu")], recompiles=(2,))
program("only_devices", lambda x: (x + 1, torch.ones(4)), lambda place: [torch.device("meta" if place == 2 else "cpu")], recompiles=(2,))
program("the_device_that_is_on", lambda x: (x + torch.ones(4), torch.get_default_device()), lambda place: [torch.device("cpu"), Watching()])


def _raising(x: Any) -> Any:
    try:
        y = torch.sin(x + 1)
    except ValueError as e:
        return x.cos() + 1, str(e)
    return y


program("raised_and_caught", _raising, lambda place: [Raising()])
program("raised", lambda x: torch.sin(x.cos() + 1), lambda place: [Raising()], min_graphs=0)


def _entered_and_left(x: Any) -> Any:
    y = torch.sin(x)
    with Watching() as mode:
        y = torch.sin(y)
    return torch.sin(y), mode.seen


program("a_mode_inside", _entered_and_left, lambda place: [Watching()])
program("a_mode_inside_and_a_device", _entered_and_left, lambda place: [torch.device("cpu"), Watching()])


def _break_inside(x: Any) -> Any:
    y = torch.sin(x)
    with Watching() as mode:
        y = torch.sin(y)
        fineline.graph_break()
        y = torch.sin(y)
    return torch.sin(y), mode.seen


program("a_break_in_a_mode_inside", _break_inside, lambda place: [Watching()], breaks=True, recompiles=(1,))


def _modes_that_are_on(x: Any) -> Any:
    on = torch.overrides._get_current_function_mode_stack()
    return x * len(on), [type(mode).__name__ for mode in on], on[-1].seen, torch.overrides.has_torch_function((x,))


program("the_modes_that_are_on", _modes_that_are_on, lambda place: [Watching(), Watching()])


def _rows(x: Any) -> Any:
    def rows() -> Any:
        for row in x:
            yield torch.sin(row)

    return [row + 1 for row in rows()]


program("generators", _rows, lambda place: [Watching()])


def _branch(x: Any) -> Any:
    return torch.sin(x) if x.sum() > 0 else torch.cos(x)


program("a_branch", _branch, lambda place: [Watching()], lambda place: (place, t(place).abs() * (1 - place % 2 * 2)), breaks=True, recompiles=(1,), calls=4)


@table.program(raw=True, args=at, recompiles=(1, 2), calls=5)
def a_counter(compile: Any) -> Any:
    mode, compiled = Counting(), hidden(compile(run))

    def fn(place: int, x: Any) -> Any:
        with mode:
            return compiled(x)

    return fn, mode


@table.program(raw=True, args=at, recompiles=(1,), calls=4)
def a_list_that_is_emptied(compile: Any) -> Any:
    mode, compiled = Watching(), hidden(compile(run))

    def fn(place: int, x: Any) -> Any:
        mode.seen.clear()
        with mode:
            return compiled(x), list(mode.seen)

    return fn, mode


@table.program(raw=True, args=at, calls=4, recompiles=(1, 2, 3), breaks=True)
def entered_in_one_call_and_left_in_another(compile: Any) -> Any:
    mode = Watching()

    def enter(x: Any) -> Any:
        y = torch.sin(x)
        mode.__enter__()
        return torch.sin(y)

    def leave(x: Any) -> Any:
        y = torch.sin(x)
        mode.__exit__(None, None, None)
        return torch.sin(y)

    enter, leave = hidden(compile(enter)), hidden(compile(leave))

    def fn(place: int, x: Any) -> Any:
        mode.seen.clear()
        y = enter(x)
        on = torch._C._len_torch_function_stack()
        y = leave(torch.sin(y))
        return y, on, torch._C._len_torch_function_stack()

    return fn, mode


@table.program(raw=True, args=at)
def another_mode_left_on(compile: Any) -> Any:
    def swap(x: Any) -> Any:
        y = torch.sin(x)
        outer = torch.overrides._pop_mode()
        inner = Watching()
        inner.__enter__()
        return torch.sin(y), outer, inner

    swap = hidden(compile(swap))

    def fn(place: int, x: Any) -> Any:
        mode = Functions()
        mode.__enter__()
        y, outer, inner = swap(x)
        same = torch.overrides._get_current_function_mode() is inner, outer is mode
        inner.__exit__(None, None, None)
        return y, same, mode.seen, inner.seen

    return fn


class Entering(TorchFunctionMode):
    """Enters itself again for one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.seen = 0, []

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(f"{self.depth} {fn.__name__}")
        if fn is torch.sin and self.depth < 2:
            self.depth += 1
            with self:
                y = torch.sin(*args) + 1
            self.depth -= 1
            return y
        return fn(*args, **(kwargs or {}))


class Converting(TorchFunctionMode):
    """Gives other types than the operators."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y = fn(*args, **(kwargs or {}))
        if fn is torch.sin:
            return [y, "text"]
        if fn is torch.cos:
            return y.as_subclass(Doubling)
        return 3 if fn is Tensor.shape.__get__ else y


def _converted(x: Any) -> Any:
    (y, text), z = torch.sin(x), torch.cos(x)
    return y + z, text, z, x.shape


program("entered_again", run, lambda place: [Entering()])
program("other_types", _converted, lambda place: [Converting()])


class Printing(TorchFunctionMode):
    """Breaks the graph in its method."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        print(fn.__name__)
        return fn(*args, **(kwargs or {}))


program("a_method_that_breaks_the_graph", run, lambda place: [Printing()], breaks=True)


@table.program(raw=True, args=at, recompiles=(1,))
def a_model(compile: Any) -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))
    for k, p in enumerate(model.parameters()):
        p.data = t(k, *p.shape)
    compiled = hidden(compile(model))

    def fn(place: int, x: Any) -> Any:
        with Watching() as mode:
            y = compiled(x)
            y.sum().backward()
        return y, mode.seen, [p.grad for p in model.parameters()]

    return fn, model


@table.program(raw=True, args=lambda place: (place, t(place, 3 + place % 3, 4)), recompiles=(1,), calls=5)
def sizes_that_vary(compile: Any) -> Any:
    compiled = hidden(compile(lambda x: torch.sin(x).reshape(-1) * x.shape[0]))

    def fn(place: int, x: Any) -> Any:
        with Watching() as mode:
            return compiled(x), mode.seen

    return fn


@table.program(raw=True, args=at, breaks=True, min_graphs=0)
def errors_of_operators(compile: Any) -> Any:
    def fail(x: Any) -> Any:
        y = torch.sin(x)
        return y @ torch.sin(x)

    compiled = hidden(compile(fail))

    def fn(place: int, x: Any) -> Any:
        mode = Watching()
        try:
            with mode:
                return compiled(x)
        except RuntimeError as e:
            return str(e), mode.seen, torch._C._len_torch_function_stack()

    return fn


# -- what else is on, and what else runs ----------------------------------------------------------------------------------------------
@fineline.allow_in_graph
def _allowed(x: Any) -> Any:
    return torch.sin(x) + 1


@torch.library.custom_op("modes_around_calls::twice", mutates_args=())
def _custom(x: Tensor) -> Tensor:
    return x * 2


_custom.register_fake(torch.empty_like)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sin(x) * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def _checkpointed(x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False) + 1


def _backward(x: Any) -> Any:
    y = x.detach().requires_grad_()
    torch.sin(y).sum().backward()
    return y.grad


def _without_the_mode(x: Any) -> Any:
    y = torch.sin(x)
    with torch.overrides._pop_mode_temporarily():
        y = torch.sin(y)
    return torch.sin(y)


def _in_a_loop(x: Any) -> Any:
    for i in range(5):
        x = torch.sin(x) + i
        fineline.graph_break()
    return x


def _states(x: Any) -> Any:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.mT
        fineline.graph_break()
        y = y @ x
    return torch.sin(y.float()), torch.is_grad_enabled()


def _not_seen(x: Any) -> Any:
    with torch._C.DisableTorchFunction():
        y = torch.sin(x)
        fineline.graph_break()
        y = torch.sin(y)
    return torch.sin(y)


def _raised_after_a_break(x: Any) -> Any:
    try:
        y = torch.sin(x)
        fineline.graph_break()
        raise ValueError(y.shape[0])
    except ValueError as e:
        return torch.sin(x), e.args


def _random(x: Any) -> Any:
    return torch.rand(3) + torch.rand_like(x[:, 0]), torch.nn.functional.dropout(x, 0.5)


def _structured(x: Any) -> Any:
    return torch.sort(x), x.max(1), torch.stack([x, x]).unbind(0), torch.einsum("ij,kj->ik", x, x)


def _written(x: Any) -> Any:
    x.mul_(2)
    x[0] = torch.sin(x[1])
    return x.t_().shape


def _asserted(x: Any) -> Any:
    assert (x > -100).all() or (x < 100).all()
    assert (x > 200).all() or (x < 100).all(), "too large"
    return torch.sin(x)


def _checked(x: Any) -> Any:
    if not (x > -100).all():
        raise ValueError(x.shape[0])
    if torch.isnan(x).any() or torch.isinf(x).any():
        return x
    return torch.sin(x)


def _numbers(x: Any) -> Any:
    n = (x > 0).sum().item()
    return x * n, n + 1, torch.ones(n) if n < 50 else None


def _unknown_sizes(x: Any) -> Any:
    found = x[x > 0]
    return torch.sin(found), torch.nonzero(x > 0).sum(), torch.unique(x).numel()


def _recurrent(x: Any) -> Any:
    cell, state = nn.functional.rnn_tanh_cell if hasattr(nn.functional, "rnn_tanh_cell") else torch.rnn_tanh_cell, torch.zeros(3, 4)
    w = torch.ones(4, 4) / 4
    for _ in range(3):
        state = cell(x, state, w, w)
    return torch.nn.functional.scaled_dot_product_attention(x[None], state[None], x[None])


for options in ({}, {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}):
    program("numbers_of_tensors", _numbers, lambda place: [Watching()], breaks=True, recompiles=(1, 2), options=options)
    program("sizes_of_data", _unknown_sizes, lambda place: [Watching()], breaks=True, recompiles=(1, 2), options=options)
program("recurrent", _recurrent, lambda place: [Watching()], tolerance=1e-6)
program("compiled_dynamically", run, lambda place: [Watching()], lambda place: (place, t(place, 5 + place, 4)), options={"dynamic": True}, recompiles=(1,))


class Breaking(TorchFunctionMode):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fineline.graph_break()
        return fn(*args, **(kwargs or {}))


class WithoutSums(TorchFunctionMode):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented if fn is Tensor.add or fn is Tensor.__add__ else fn(*args, **(kwargs or {}))


def _summed(x: Any) -> Any:
    try:
        return x + x.shape[0], x + 2.5
    except TypeError as e:
        return x.shape[0], str(e)


def of_size(place: int) -> tuple[int, Any]:
    return place, t(place, 5 + place, 4)


program("numbers_in_a_tuple", _summed, lambda place: [Breaking()], of_size, breaks=True, recompiles=(1,), calls=4)
program("sums_refused", _summed, lambda place: [WithoutSums()], of_size, breaks=True, recompiles=(1,), min_graphs=0, calls=4)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam], ids=lambda kind: kind.__name__)
def test_training(kind: Any, twin: str) -> None:
    if twin == "counted" and kind is torch.optim.Adam:
        pytest.skip("PyTorch's optimizers take other operators where code is compiled")
    own = Table()

    @own.program(raw=True, args=at, recompiles=(1, 2), breaks=True, calls=4, tolerance=1e-4)
    def make(compile: Any) -> Any:
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.0), nn.Linear(4, 2))
        for k, p in enumerate(model.parameters()):
            p.data = t(k, *p.shape)
        optimizer = kind(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = hidden(compile(step))

        def fn(place: int, x: Any) -> Any:
            # PyTorch's optimizers call other operators where they are captured: what the mode has seen differs.
            with Watching() as mode:
                loss = compiled(x)
            return loss, len(mode.seen) > 10

        return fn, model

    check(own.programs[0], twin)


program("asserted", _asserted, lambda place: [Watching()], breaks=True, recompiles=(1,))
program("checked", _checked, lambda place: [Watching()], breaks=True, recompiles=(1,))
program("asserted_under_a_quiet_mode", _asserted, lambda place: [Scaling(2.0)], breaks=True, recompiles=(1,))
program("functions_allowed_in_graphs", lambda x: _allowed(x) + 1, lambda place: [Watching()])
program("custom_operators", lambda x: _custom(x) + 1, lambda place: [Watching()], breaks=True, min_graphs=0)
program("autograd_functions", lambda x: _Twice.apply(x) + 1, lambda place: [Watching()], grad=True)
program("checkpoints", _checkpointed, lambda place: [Watching()], breaks=True, min_graphs=0, args=lambda place: (place, t(place).requires_grad_()))
program("backward_inside", _backward, lambda place: [Watching()], breaks=True, min_graphs=0)
program("without_the_mode", _without_the_mode, lambda place: [Watching(), Scaling(2.0)])
program("in_a_loop", _in_a_loop, lambda place: [Watching()], breaks=True, recompiles=(1,))
program("other_states", _states, lambda place: [Watching()], breaks=True, recompiles=(1,))
program("not_seen", _not_seen, lambda place: [Watching()], breaks=True, recompiles=(1,))
program("raised_after_a_break", _raised_after_a_break, lambda place: [Watching()], breaks=True, recompiles=(1,))
program("random_numbers", _random, lambda place: [Watching()])
program("structured_results", _structured, lambda place: [Watching()], tolerance=1e-6)
program("arguments_written", _written, lambda place: [Watching()], breaks=True, min_graphs=0)


def _failing(x: Any, at: Any) -> Any:
    y = torch.sin(x)
    z = torch.sin(y[at])
    return z + 1


def _failing_in_a_block(x: Any, at: Any) -> Any:
    with Functions() as mode:
        y = torch.sin(x)
        fineline.graph_break()
        try:
            return torch.sin(y[at]), mode.seen
        except IndexError:
            return torch.cos(y), mode.seen


@pytest.mark.parametrize("body", [_failing, _failing_in_a_block], ids=lambda body: body.__name__)
def test_a_graph_that_fails(body: Any, twin: str) -> None:
    own = Table()

    @own.program(raw=True, calls=5, args=lambda place: (t(place), torch.tensor([place * 2 % 5])), breaks=True, recompiles=(1, 2, 3, 4), min_graphs=0)
    def make(compile: Any) -> Any:
        compiled = hidden(compile(body))

        def fn(x: Any, at: Any) -> Any:
            mode = Watching()
            try:
                with mode:
                    return compiled(x, at), mode.seen
            except IndexError as e:
                return type(e).__name__, mode.seen, torch._C._len_torch_function_stack()

        return fn

    check(own.programs[0], twin)


@table.program(raw=True, args=at, calls=4, recompiles=(1, 2))
def a_mode_that_the_code_knows(compile: Any) -> Any:
    mode = Watching()

    def run(x: Any, given: Any) -> Any:
        given.seen.clear()
        y = torch.sin(x)
        mode.last = given is mode
        return y + len(mode.seen), torch.overrides._get_current_function_mode() is given

    compiled = hidden(compile(run))

    def fn(place: int, x: Any) -> Any:
        with mode if place < 2 else Watching() as other:
            return compiled(x, other), other.seen

    return fn, mode


@table.program(raw=True, args=at, calls=4, recompiles=(1,))
def another_factor_set_by_the_code(compile: Any) -> Any:
    def run(x: Any, mode: Any) -> Any:
        y = torch.sin(x)
        mode.factor = 5.0
        return torch.sin(y)

    compiled = hidden(compile(run))

    def fn(place: int, x: Any) -> Any:
        with Scaling(2.0) as mode:
            return compiled(x, mode), mode.factor

    return fn


# -- the default device ------------------------------------------------------------------------------------------------------------
def _set_inside(x: Any) -> Any:
    y = x.cos()
    torch.set_default_device("meta")
    z = torch.ones(3)
    torch.set_default_device("cpu")
    return y + torch.ones(4), z.device.type


def _left_set(x: Any) -> Any:
    torch.set_default_device("meta")
    return x + 1, torch.ones(2)


def _unset(x: Any) -> Any:
    y = x + torch.ones(4, device="cpu")
    torch.set_default_device(None)
    return y + torch.ones(4), torch.get_default_device()


def _set_before_a_break(x: Any) -> Any:
    torch.set_default_device("meta")
    y = torch.ones(2)
    fineline.graph_break()
    return x + 1, torch.ones(2), y


def _set_under_a_mode(x: Any) -> Any:
    with Watching() as mode:
        torch.set_default_device("meta")
        y = torch.ones(2)
    torch.set_default_device(None)
    return x + torch.ones(4), y, mode.seen


def _set_and_raised(x: Any) -> Any:
    torch.set_default_device("meta")
    raise ValueError(torch.ones(2).device.type, x + 1)


def sets_device(name: str, body: Callable, before: Callable[[int], Any] = lambda place: None, modes: Any = (), **marks: Any) -> None:
    def make(compile: Any) -> Any:
        compiled = hidden(compile(body))

        def fn(place: int, x: Any) -> Any:
            torch.set_default_device(before(place))
            try:
                with contextlib.ExitStack() as stack:
                    for mode in modes:
                        stack.enter_context(mode())
                    result = compiled(x)
                on = torch.get_default_device(), torch._C._len_torch_function_stack(), torch.ones(1).device
            finally:
                torch.set_default_device(None)
            return result, on

        return fn

    make.__name__ = name
    table.program(raw=True, args=at, **marks)(make)


def by_turns(place: int) -> str | None:
    return "meta" if place % 2 else None


sets_device("set_inside", _set_inside)
sets_device("set_inside_by_turns", _set_inside, by_turns, recompiles=(1,), calls=4)
sets_device("left_set", _left_set)
sets_device("left_set_by_turns", _left_set, by_turns, recompiles=(1,), calls=4)
sets_device("unset", _unset, by_turns, recompiles=(1,), calls=4)
sets_device("unset_where_set", _unset, lambda place: "meta", recompiles=(1,), breaks=True)
sets_device("set_before_a_break", _set_before_a_break, breaks=True)
sets_device("set_under_a_mode", _set_under_a_mode, by_turns, recompiles=(1,), calls=4)
sets_device("set_in_modes_around", _left_set, by_turns, [Watching], recompiles=(1,), calls=4)
sets_device("set_and_raised", _set_and_raised, min_graphs=0)


READ: dict[str, Any] = {
    "copied": lambda x: copy.copy(x) + 1,
    "copied_deeply": lambda x: copy.deepcopy(x) + copy.deepcopy([x, {"a": x}])[0],
    "arrays": lambda x: (np.asarray(x).shape, x.numpy().sum(), x.__array__().dtype.name, torch.from_numpy(np.ones(4)) + x),
    "sums": lambda x: (sum([x, x]), sum(list(x)), max(x[0, 0], x[0, 1]), min([x[0, 0], x[1, 1]]), any([x[0, 0] > 9]), all(x[0] > 9)),
    "of_one_number": lambda x: (abs(x), round(x[0, 0]), divmod(x, 2), pow(x, 2), math.sqrt(x[0, 0].abs()), complex(x[0, 0])),
    "walked": lambda x: ([*reversed(x)], [*enumerate(x)], [*zip(x, x, strict=True)], list(x)[0], tuple(x[0])),
    "indices": lambda x: ([1, 2, 3][torch.tensor(1)], [*range(torch.tensor(2))], (x > 0).nonzero().shape[1], x[torch.tensor(1)]),
    "texts": lambda x: ("%.2f" % x[0, 0], f"{x[0, 0]:.1f}", str(x[0]), "{}".format(x[0, 1]), format(x[0, 0], ".1f")),
    "mapped": lambda x: (functools.reduce(torch.add, [x, x, x]), [*map(torch.sin, [x, x])], [*filter(lambda row: row.sum() > 0, x)]),
    "sorted_by": lambda x: (sorted(x, key=lambda row: row.sum().item()), sorted([x[0, 0], x[0, 1]])),
    "operators": lambda x: (operator.add(x, x), x.__add__(x), operator.itemgetter(0)(x), operator.attrgetter("shape")(x), operator.methodcaller("sin")(x)),
    "compared": lambda x: ([x[0, 0]] == [x[0, 0]], x in [x], [x].index(x), x is x, x.shape == x.shape, (x[0, 0], 1) < (x[0, 0] + 1, 2)),
    "as_keys": lambda x: ({x: 1}[x], x in {x}, len({x, x + 1}), hash(x) == hash(x)),
    "metadata": lambda x: (x.is_leaf, x._version, x.storage_offset(), x.layout, x.is_cuda, x.itemsize, x.nbytes, x.ndim, x.is_contiguous()),
    "attributes": lambda x: (hasattr(x, "grad"), getattr(x, "shape"), hasattr(x, "nothing"), x.__class__.__name__, isinstance(x, nn.Parameter), type(x)),
    "memory": lambda x: (x.untyped_storage().nbytes(), x.data_ptr() == x.data_ptr(), x.element_size()),
    "hooks": lambda x: (x * x.detach().requires_grad_()).register_hook(lambda g: g * 2) is None,
    "constants": lambda x: (torch.tensor([1.0, 2.0]), torch.tensor(3), torch.as_tensor(2.0), torch.asarray([1]), torch.scalar_tensor(2.0)),
    "factories": lambda x: (torch.zeros(2), torch.ones_like(x), x.new_ones(2), torch.empty(0), torch.full((2,), 1.0), torch.eye(2), torch.linspace(0, 1, 3)),
    "lists": lambda x: (torch._foreach_add([x, x], 1), torch.block_diag(x, x).shape, torch.broadcast_tensors(x, x[0]), torch.chunk(x, 2)),
    "written": lambda x: (x.clone().fill_(1), x.clone().zero_(), torch.add(x, 1, out=torch.empty(3, 4)), x.clone().copy_(x)),
    "sets": lambda x: operator.setitem(y := x.clone(), 0, 1) or operator.iadd(y, 1),
    "modules": lambda x: nn.Linear(4, 2, dtype=torch.float32).weight.shape,
    "flags": lambda x: (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_tensor(x), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
    "promoted": lambda x: (torch.result_type(x, 1), torch.promote_types(torch.int8, torch.float16), torch.can_cast(torch.int, torch.float), x.type(), x.float()),
    "shaped": lambda x: (torch.broadcast_shapes((3, 1), (4,)), x.shape.numel(), torch.Size([1, 2]) + x.shape, x.size(), x.stride()),
}


@pytest.mark.parametrize("body", READ)
def test_what_is_read(body: str, twin: str) -> None:
    if twin == "counted" and body == "arrays":
        pytest.skip("NumPy's functions are operators of the graph")
    own = Table()
    marks: dict[str, Any] = {"recompiles": frozenset({1, 2}), "breaks": True, "min_graphs": 0, "tolerance": 1e-6}
    own.program(raw=True, args=at, **marks)(called(READ[body], lambda place: [Watching()]))
    check(own.programs[0], twin)


@pytest.mark.parametrize("body", SEEN)
def test_what_is_seen(body: str, twin: str) -> None:
    own = Table()

    def choose(place: int) -> list[Any]:
        return [Watching()]

    marks: dict[str, Any] = {"recompiles": frozenset({1}), "breaks": True, "min_graphs": 0, "tolerance": 1e-6}
    own.program(raw=True, args=at, **marks)(called(SEEN[body], choose))
    own.program(raw=True, args=lambda place: (place, t(place).as_subclass(Seeing)), **marks)(called(SEEN[body], choose))
    for one in own.programs:
        Seeing.seen.clear()
        check(one, twin)


def _size_at_a_break(x: Any) -> Any:
    with Functions() as mode:
        n, y = x.shape[0], x + 1
        fineline.graph_break()
    return y, n, mode.seen


def _gradient_dropped(x: Any) -> Any:
    x.grad = None
    return x * 1


def with_gradient(place: int) -> tuple[int, Any]:
    x = t(place, 2 + place, 3, grad=True)
    x.grad = torch.ones_like(x)
    return place, x


program("sizes_at_a_break_in_a_mode", _size_at_a_break, lambda place: [], of_size, options={"dynamic": True}, breaks=True, recompiles=(1,))
program("writes_that_a_mode_sees", _gradient_dropped, lambda place: [Functions()], with_gradient, options={"dynamic": True}, recompiles=(1,))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Any, twin: str) -> None:
    check(program, twin)
