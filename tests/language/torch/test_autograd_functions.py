"""Custom autograd functions with gradients: as two graphs where these can hold what they do, else as the one call that they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from tests.language.torch.autograd_functions import (
    CALLS,
    DOUBLE,
    DROP,
    EAGER,
    EXP,
    LAZY,
    PADS,
    PASSES,
    SAME,
    UNMARKED,
    Doubled,
    Mixed,
    Needs,
    Sine,
    Sizes,
    WithDefaults,
    cosine,
    saves,
    unary,
)
from tests.oracle import Program, Table, check, t

table = Table()


@table.snippet(grad=True)
def arguments_of_all_kinds(x, y):
    a, b, c = Mixed.apply(x * 1, 3.0, y, ("a", 1))
    return a, b, c, b.requires_grad


@table.snippet(grad=True)
def result_that_is_the_argument(x):
    y = x * 2
    return SAME.apply(y) + y, SAME.apply(y) is y


@table.snippet(grad=True)
def backward_that_asks_for_kernels(x):
    return PADS.apply(x) * 2


@table.snippet(grad=True)
def saved_result(x):
    return EXP.apply(x) + EXP.apply(EXP.apply(x * 0.5))


@table.snippet(grad=True)
def needs_input_grad(x, y):
    return Needs.apply(x, y), Needs.apply(x.detach(), y), Needs.apply(x, y.detach()), Needs.apply(x, x)


@table.snippet(grad=True)
def gradients_that_nobody_gives(x):
    return LAZY.apply(x)[0], EAGER.apply(x)[1]


NONE = unary(lambda ctx, x: x * 1, lambda ctx, grad: None, "Nothing")


@table.snippet(grad=True)
def gradients_that_are_none(x):
    return NONE.apply(PASSES.apply(x)) + PASSES.apply(x), NONE.apply(LAZY.apply(x)[0])


@table.snippet(grad=True)
def arguments_that_are_written(x, y):
    z = x * 1
    a, b = Doubled.apply(z, y)
    return a is z, a, b, z * 2, z.requires_grad


@table.program(args=lambda place: (t(place), t(place + 5, grad=True)))
def arguments_of_the_call_that_are_written() -> Any:
    def fn(x, y):
        a, b = Doubled.apply(x, y)
        return a is x, a + b

    return fn


@table.snippet(grad=True, repeats=True)
def writes_that_nobody_is_told_of(x):
    z = x * 1
    return UNMARKED.apply(z), z


@table.snippet(grad=True)
def needs_where_no_gradient_is_asked_for(x):
    with torch.no_grad():
        y = ASKED.apply(x)
    return y, ASKED.apply(x.detach())


ASKED = unary(lambda ctx, x: x * 2 if ctx.needs_input_grad[0] else x * 3, lambda ctx, grad: grad, "Asked")


@table.snippet(grad=True)
def random_numbers(x):
    return DROP.apply(x) + torch.rand_like(x)


@table.program(grad=True, change={0: lambda _: CALLS.clear()}, min_graphs=0, breaks=True, repeats=True)
def backwards_that_no_graph_holds() -> Any:
    def fn(x):
        return [function.apply(x) for function in DOUBLE]

    return fn, CALLS


def _tells_forward(ctx, x):
    torch.rand(2)
    CALLS.append("forward")
    print("forward")
    return x * 2


TOLD = unary(_tells_forward, lambda ctx, grad: grad * 2, "Told")


@table.program(grad=True, change={0: lambda _: CALLS.clear()}, min_graphs=0, breaks=True, repeats=True)
def forward_with_effects() -> Any:
    def fn(x):
        y = TOLD.apply(x) + torch.rand(1)
        return y, len(CALLS)

    return fn, CALLS


@table.program(grad=True, change={2: lambda module: module.update(SCALE=5.0)}, recompiles=(2,), must_recompile=True)
def backward_reads_a_global() -> Any:
    space: dict[str, Any] = {"SCALE": 2.0}
    exec("def forward(ctx, x):\n    return x * SCALE\ndef backward(ctx, grad):\n    return grad * SCALE", space)
    scaled = unary(space["forward"], space["backward"], "Scaled")

    def fn(x):
        return scaled.apply(x) + 1

    return fn, space


class Scales:
    scale = 2.0


SCALES = SimpleNamespace(scale=2.0)
# Each call begins with the same scale.
ANEW = dict.fromkeys(range(3), lambda holder: setattr(holder, "scale", 2.0))
# The backward of the first two can be a graph; that of the last, which asks for strides, is called as it is.
OF_CLASS = unary(lambda ctx, x: x * Scales.scale, lambda ctx, grad: grad * Scales.scale, "OfClass")
OF_OBJECT = unary(lambda ctx, x: x * SCALES.scale, lambda ctx, grad: grad * SCALES.scale, "OfObject")
OF_CLASS_IN_FORWARD = unary(lambda ctx, x: x * Scales.scale, lambda ctx, grad: grad * grad.stride()[0], "OfClassInForward")


def _with_scale(function: Any, holder: Any, for_good: bool) -> Any:
    def fn(x):
        before, holder.scale = holder.scale, 5.0
        y = function.apply(x * 2)
        if not for_good:
            holder.scale = before
        return y + holder.scale

    return fn, holder


@table.program(grad=True, breaks=True, change=ANEW)
def reads_an_attribute_of_a_class_in_a_block() -> Any:
    return _with_scale(OF_CLASS, Scales, False)


@table.program(grad=True, breaks=True, change=ANEW)
def reads_an_attribute_of_a_class_for_good() -> Any:
    return _with_scale(OF_CLASS, Scales, True)


@table.program(grad=True, breaks=True, change=ANEW)
def reads_an_attribute_of_an_object_in_a_block() -> Any:
    return _with_scale(OF_OBJECT, SCALES, False)


class Slotted:
    __slots__ = ("scale",)


SLOTTED = Slotted()
OF_SLOT = unary(lambda ctx, x: x * SLOTTED.scale, lambda ctx, grad: grad * SLOTTED.scale, "OfSlot")


@table.program(grad=True, breaks=True, change=ANEW)
def reads_a_slot_in_a_block() -> Any:
    return _with_scale(OF_SLOT, SLOTTED, False)


RATE = 2.0
OF_GLOBAL = unary(lambda ctx, x: x * RATE, lambda ctx, grad: grad * RATE, "OfGlobal")


@table.program(grad=True, breaks=True)
def reads_a_global_in_a_block() -> Any:
    def fn(x):
        global RATE
        before, RATE = RATE, 5.0
        y = OF_GLOBAL.apply(x * 2)
        RATE = before
        return y + RATE

    return fn


@table.program(grad=True, breaks=True, change=ANEW)
def forward_reads_an_attribute_of_a_class_in_a_block() -> Any:
    return _with_scale(OF_CLASS_IN_FORWARD, Scales, False)


@table.program(grad=True, breaks=True, change=ANEW)
def forward_reads_an_attribute_of_a_class_for_good() -> Any:
    return _with_scale(OF_CLASS_IN_FORWARD, Scales, True)


@table.program(grad=True, max_graphs=1, repeats=True)
def attribute_with_the_name_of_a_global() -> Any:
    space: dict[str, Any] = {"scale": object(), "torch": torch}
    # What asks for the grad mode gets no graph.
    text = """
def forward(ctx, x):
    ctx.scale = 2.0
    return x * 2
def backward(ctx, grad):
    return grad * (ctx.scale + torch.is_grad_enabled())
"""
    exec(text, space)
    scaled = unary(space["forward"], space["backward"], "Scaled")

    def fn(x):
        return scaled.apply(x.exp()) + 1

    return fn


@table.snippet(grad=True, options={"fullgraph": True}, breaks=True, tolerance=1e-6, repeats=True)
def numbers_that_only_the_graph_knows(x):
    y, n = x[x > 0], x.detach().abs().sum().long().item()
    return Sizes.apply(x, n)[0], SAME.apply(y) * 2, WithDefaults.apply(y, float(y.shape[0])) + 1


@table.snippet(grad=True)
def setup_context_sees_defaults(x):
    return WithDefaults.apply(x), WithDefaults.apply(x, 2.0), WithDefaults.apply(x.detach())


def _fails(ctx, x):
    raise ValueError(f"not {tuple(x.shape)}")


FAILS = unary(_fails, cosine, "Fails")
FAILS_LATER = unary(saves, lambda ctx, grad: grad @ grad, "FailsLater")


@table.snippet(grad=True, min_graphs=0)
def forward_that_raises(x):
    try:
        return FAILS.apply(x)
    except ValueError as e:
        return Sine.apply(x), str(e)


@table.snippet(grad=True, min_graphs=0, repeats=True)
def backward_that_raises(x):
    return FAILS_LATER.apply(x)


# -- Functions that run eagerly, whose forward is captured by itself ----------------------------------------------------
class Clipped(torch.autograd.Function):
    """Which way it goes depends on the numbers, so that no graph contains it."""

    made: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx, x, limit):
        y = x.sin() * 2
        if y.sum() > limit:
            raise ValueError(f"more than {limit}")
        ctx.save_for_backward(x)
        ctx.limit = limit
        ctx.set_materialize_grads(False)
        return y.exp(), torch.argmax(y)

    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.limit, None


class Known(Clipped):
    def __init_subclass__(cls):
        Clipped.made.append(cls.__name__)


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x, limit=2.0):
        return x * 3 if x.sum() > limit else x * 4

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.limit = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0] * ctx.limit, None


def handled(function, x, *args):
    try:
        return function.apply(x, *args)
    except ValueError as e:
        return x.cos(), str(e)


@table.snippet(grad=True, breaks=True)
def forward_that_reads_numbers(x):
    y, place = handled(Clipped, x, 100.0)
    return y + 1, place, type(y.grad_fn).__name__, y.grad_fn.limit, y.grad_fn.needs_input_grad


@table.snippet(grad=True, breaks=True, repeats=True)
def forward_that_reads_numbers_and_raises(x):
    return [handled(Clipped, x * k, limit) for k, limit in ((1, 100.0), (2, -100.0))]


@table.snippet(grad=True, breaks=True, repeats=True, min_graphs=0)
def functions_whose_subclasses_are_counted(x):
    return handled(Known, x, 50.0), Clipped.made


@table.snippet(grad=True, breaks=True)
def forward_without_a_context_that_reads_numbers(x):
    return handled(Separate, x), handled(Separate, x, -100.0)


class Counted(Clipped):
    """Its ``apply`` is more than that of its base."""

    @classmethod
    def apply(cls, *args):
        CALLS.append(cls.__name__)
        return super().apply(*args)


@table.program(grad=True, breaks=True, change={0: lambda _: CALLS.clear()}, repeats=True)
def functions_with_an_apply_of_their_own() -> Any:
    return lambda x: handled(Counted, x, 100.0), CALLS


def _other(ctx, x, limit):
    return x.tan() if x.sum() > limit else x * 1, torch.argmax(x)


@table.program(grad=True, breaks=True, change={2: lambda _: setattr(Replaced, "forward", staticmethod(_other))}, recompiles=(2,))
def forward_that_is_replaced() -> Any:
    Replaced.forward = Clipped.forward
    return lambda x: handled(Replaced, x, 100.0)[0] * 2


class Replaced(Clipped):
    pass


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)
