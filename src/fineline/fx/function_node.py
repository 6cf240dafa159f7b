"""The node of an autograd.Function whose forward and backward are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.fx import GraphModule, Interpreter

from fineline.torch_facts.releases import bound_apply

Forward = Callable[..., tuple[Any, tuple[Tensor, ...], tuple[Tensor, ...]]]


class _TwiceDifferentiable(Interpreter):
    """Runs a backward graph that will be differentiated, without the nodes by which it turns gradients off in the usual case."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return None if target is torch._C._set_grad_enabled else super().call_function(target, args, kwargs)


class Ways(NamedTuple):
    """The properties of a captured autograd function, most of them set on its ``ctx``."""

    # Which results are not differentiable, and which arguments are written into.
    constant: tuple[int, ...]
    dirty: tuple[int, ...]
    # The results that may get no gradient, if a missing one is None: there is a backward for each set of these.
    lazy: tuple[int, ...]
    # Whether its backward reads ``saved_tensors``: PyTorch raises if it does so after they have been freed.
    asks: bool
    # Whether its gradients cannot be differentiated themselves.
    once: bool


class _Captured(Function):
    """Runs graphs, and keeps the tensors of the user's class between them; those that it saved for backward are saved here, too."""

    ways: Ways

    @staticmethod
    def forward(ctx: Any, run: Forward, backwards: tuple[GraphModule, ...], numbers: tuple, *args: Tensor) -> Any:
        out, saved, kept = run(*args, *numbers)
        ways: Ways = ctx._forward_cls.ways
        ctx.save_for_backward(*saved)
        ctx.kept, ctx.numbers, ctx.backwards = kept, numbers, backwards
        outs = out if isinstance(out, tuple) else (out,)
        ctx.mark_non_differentiable(*[outs[i] for i in ways.constant])
        ctx.mark_dirty(*[args[i] for i in ways.dirty])
        ctx.set_materialize_grads(not ways.lazy)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        ways: Ways = ctx._forward_cls.ways
        backward = ctx.backwards[sum([(grads[at] is None) << i for i, at in enumerate(ways.lazy)])]
        given = (*[g for g in grads if g is not None], *(ctx.saved_tensors if ways.asks else ()), *ctx.kept, *ctx.numbers)
        run = _TwiceDifferentiable(backward).run if torch.is_grad_enabled() else backward
        return (None, None, None, *run(*given))


class _CapturedOnce(_Captured):
    backward = staticmethod(once_differentiable(_Captured.backward))  # type: ignore[assignment]


class FunctionNode:
    """The target of a node that gets the graphs, their symbolic numbers, and the tensors that the function was applied to.

    The forward graph returns the results, the saved tensors, and the ones kept on ``ctx`` otherwise; a backward graph takes the gradients
    of the results, and these tensors. The target applies a class like the user's, so that gradients, hooks and errors are as in eager
    code: `autograd_function_apply` of `torch.ops.higher_order` hides all tensors from PyTorch, which then neither frees them nor sees
    that they have changed.
    """

    def __init__(self, name: str, ways: Ways) -> None:
        """``name``: that of the user's class."""
        self.name, self.ways = name, ways
        # FX names the target by these.
        self.__name__ = self.__qualname__ = f"{name}_apply"
        self._cls: Any = type(name, (_CapturedOnce if ways.once else _Captured,), {"ways": ways})

    def __call__(self, forward: Forward, backwards: tuple[GraphModule, ...], numbers: tuple, *args: Tensor) -> Any:
        return self._cls.apply(forward, backwards, numbers, *args)


class FunctionCall:
    """The target of a node that applies the user's class itself: FX cannot write a bound class method."""

    def __init__(self, cls: type[Function]) -> None:
        self.cls = cls
        self.__name__, self.__qualname__ = f"{cls.__name__}_apply", f"{cls.__qualname__}.apply"
        if cls.__module__.partition(".")[0] != "torch":
            # FX would look for the target in PyTorch's modules if its ``__module__`` named one of them.
            self.__module__ = cls.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return bound_apply(self.cls)(*args, **kwargs)
