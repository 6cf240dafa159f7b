"""Custom autograd functions that several test files apply, and a list of what some of them do besides."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import Function

CALLS: list[str] = []


def unary(forward: Any, backward: Any, name: str = "Unary") -> Any:
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def saves(ctx, x):
    ctx.save_for_backward(x)
    return x.sin()


def cosine(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * x.cos()


Sine = unary(saves, cosine, "Sine")


class Mixed(Function):
    """Arguments of all kinds, several results, one gradient missing."""

    @staticmethod
    def forward(ctx, x, factor, y, flags):
        ctx.save_for_backward(x, None, y)
        ctx.factor, ctx.shape, ctx.flags = factor, x.shape, flags
        ctx.parts = [x * 2, {"y": y}]
        return x * factor, x + y, y.argmax()

    @staticmethod
    def backward(ctx, a, b, _):
        x, nothing, y = ctx.saved_tensors
        assert nothing is None and ctx.flags == ("a", 1)
        return (a * ctx.factor + b * ctx.parts[0] + ctx.parts[1]["y"]).view(ctx.shape), None, None, None


SAME = unary(lambda ctx, x: x, lambda ctx, grad: grad * 2, "Same")


def _exp(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y


EXP = unary(_exp, lambda ctx, grad: grad * ctx.saved_tensors[0], "Exp")


class Needs(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y if ctx.needs_input_grad[0] else None, grad * x if ctx.needs_input_grad[1] else None


def _unmaterialized(ctx, x):
    ctx.set_materialize_grads(False)
    return x * 2, x * 3


def _of_two(ctx, a, b):
    return (a * 2 if a is not None else 0) + (b * 3 if b is not None else 0)


LAZY = unary(_unmaterialized, _of_two, "Lazy")


EAGER = unary(lambda ctx, x: (x * 2, x * 3), _of_two, "Eager")


def _none_at_all(ctx, x):
    ctx.set_materialize_grads(False)
    return x * 2


PASSES = unary(_none_at_all, lambda ctx, grad: None if grad is None else grad * 2, "Passes")


class Doubled(Function):
    """Writes into what it is given."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        x.mul_(2).add_(y)
        ctx.mark_dirty(x)
        return x, x * y

    @staticmethod
    def backward(ctx, a, b):
        (y,) = ctx.saved_tensors
        return a * 2 + b * y, a


def _writes_unmarked(ctx, x):
    x.mul_(2)
    return x * 1


UNMARKED = unary(_writes_unmarked, lambda ctx, grad: grad * 2, "Unmarked")


def _dropout(ctx, x):
    ctx.mask = torch.rand_like(x) > 0.5
    return x * ctx.mask


DROP = unary(_dropout, lambda ctx, grad: grad * ctx.mask + torch.rand_like(grad), "Drop")


def _tells(ctx, grad):
    print("backward")
    return grad * 2


def _counts(ctx, grad):
    CALLS.append("backward")
    return grad * len(CALLS)


def _branches(ctx, grad):
    return grad * 2 if grad.sum() > 0 else grad * 3


def _strides(ctx, grad):
    return grad * 2 if grad.is_contiguous() else grad * 3


def _writes(ctx, grad):
    grad.mul_(2)
    return grad


def _mode(ctx, grad):
    return grad * (2 if torch.is_grad_enabled() else 3)


def _kernels(ctx, grad):
    return grad * (2 if torch.are_deterministic_algorithms_enabled() else 3)


_BACKWARDS = (_tells, _counts, _branches, _strides, _writes, _mode, _kernels)
DOUBLE = [unary(lambda ctx, x: x * 2, fn, fn.__name__.strip("_").title()) for fn in _BACKWARDS]


def _pads(ctx, grad):
    (x,) = ctx.saved_tensors
    # Asks which kernels are to run, and does the same with either answer.
    return F.pad(x[..., 1:], (0, 1)) * grad


PADS = unary(saves, _pads, "Pads")


class WithDefaults(Function):
    @staticmethod
    def forward(x, factor=3.0):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.count, ctx.factor = len(inputs), inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor * ctx.count, None


class Sizes(Function):
    """Sizes read in both directions, and kept in between."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.rows, ctx.factor, ctx.shape = x.shape[0] * 2, factor, x.shape
        ctx.save_for_backward(x)
        return x * x.shape[0], x.sum(0)

    @staticmethod
    def backward(ctx, a, b):
        (x,) = ctx.saved_tensors
        return a * ctx.rows * ctx.factor + b.expand(ctx.shape) * a.shape[0] + x.view(-1, 4), None
