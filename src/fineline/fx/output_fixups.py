"""Inference modes, and views without a history, which compilers do not support: removes them from graphs, and restores the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import Graph, GraphModule

from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_wrapper_class, taken_as_it_is

Remake = Callable[[Tensor], Tensor]


# The key of ``meta`` under which the node that enters an inference mode keeps the grad mode around it.
OUTSIDE = "grad_mode_outside"


def without_modes(graph: Graph) -> None:
    """Replaces changes of the inference mode by changes of the grad mode.

    AOTAutograd fails at a view in an inference mode, and leaves PyTorch's Python dispatcher unusable (torch 2.13).
    """
    for node in graph.nodes:
        if node.target is _exit_inference_mode:
            grad_mode = node.args[0].meta[OUTSIDE]
        elif node.target is _enter_inference_mode:
            grad_mode = not node.args[0]
        else:
            continue
        node.args = (grad_mode,)
        node.target = torch._C._set_grad_enabled


def remake(t: Tensor, inference_mode: bool, leaves: bool) -> Remake | None:
    """Returns a function that makes a tensor like ``t`` from a compiled graph's output for it; None if the output is like ``t``.

    ``inference_mode``: whether the graph begins in one; ``leaves``: whether it makes leaves of autograd.
    """
    if hides_class(t):
        with torch._C.DisableTorchFunction():
            bare = not t.requires_grad and not t._is_view()
            untracked_view = t.requires_grad and t._is_view() and not disowned(t) and t.grad_fn is None
        return partial(_bare_of_class if bare else _view_of_class if untracked_view else _as_class, type(t))
    if t.is_inference():
        return None if inference_mode else _inference_tensor if untracked(t) else _inference_data
    if leaves and t.requires_grad and not t._is_view() and t.grad_fn is None:
        return _leaf
    # The view requires grad only because its base does, and has no history: AOTAutograd would make it again with one.
    return _bare_view if t.requires_grad and t._is_view() and not disowned(t) and t.grad_fn is None else None


def needs_gradients(t: Tensor) -> bool:
    """Returns whether ``t`` requires gradients. The user's modes and classes do not see the read."""
    with torch._C.DisableTorchFunction():
        return t.requires_grad


def disowned(t: Tensor) -> bool:
    """Returns whether ``t`` is a view that was made without gradients and then written into: PyTorch forbids to read its history."""
    # The user's modes and classes do not see the read.
    with torch._C.DisableTorchFunction():
        if not (t.requires_grad and t._is_view()):
            return False
        try:
            t.grad_fn  # noqa: B018
        except RuntimeError:
            return True
        return False


def untracked(t: Tensor) -> bool:
    """Returns whether ``t`` has no version: it was made in inference mode and is not ``data`` of such a tensor. (Fakes may have one.)"""
    if not t.is_inference() or is_a(t, FakeTensor):
        return t.is_inference()
    try:
        return t._version < 0
    except RuntimeError:
        return True


def as_captured(compiled: Callable[..., Any]) -> bool:
    """Returns whether a backend has returned the graph itself."""
    return is_a(getattr(compiled, "__self__", None), GraphModule)


def remaking(graph: Callable[..., Any], changes: Sequence[tuple[int, Remake]], several: Sequence[Sequence[int]]) -> Callable[..., Any]:
    """Wraps ``graph``: changes some outputs, and makes ``several`` that share memory distinct objects: Inductor returns one for a tensor and its view."""

    def run(*inputs: Any) -> list:
        outputs = list(graph(*inputs))
        for i, change in changes:
            outputs[i] = _changed(change, outputs[i])
        for places in several:
            seen = IdentitySet()
            for i in places:
                if outputs[i] in seen:
                    outputs[i] = outputs[i].view_as(outputs[i])
                seen.add(outputs[i])
        return outputs

    return run


def _changed(change: Remake, t: Tensor) -> Tensor:
    """Changes an output. If it belongs to none of the transforms that are on, the graph has entered these after it was made: they would wrap it."""
    functorch = torch._C._functorch
    if functorch.get_dynamic_layer_stack_depth() and functorch.maybe_get_level(t) < 0:
        with temporarily_clear_interpreter_stack():
            return change(t)
    return change(t)


def hides_class(t: object) -> bool:
    """Returns whether a graph gets ``t`` as a plain tensor, because its class overrides operators."""
    return is_a(t, Tensor) and hides_class_of(type(t))


def hides_class_of(cls: type[Tensor]) -> bool:
    """Returns whether graphs get the tensors of ``cls`` as plain ones, because the class overrides operators."""
    return cls is not Tensor and cls is not FakeTensor and not taken_as_it_is(cls) and not is_wrapper_class(cls)


def as_plain(t: Tensor) -> Tensor:
    """Returns ``t`` as a graph gets it: modes of AOTAutograd refuse tensors of other classes, even where these see no operators (torch 2.13)."""
    if not hides_class(t) or not overrides_only_functions(type(t)):
        return t
    # Of one that has been written into through a view, C brings the history up to date, which the class would see.
    with torch._C.DisableTorchFunction():
        return t.as_subclass(Tensor)


def overrides_only_functions(cls: type[Tensor]) -> bool:
    """Returns whether ``cls`` overrides ``__torch_function__`` alone: without it, its tensors are like plain ones."""
    return cls.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl


def plain_example(t: Any) -> Any:
    """Returns ``t`` as a backend gets it as an example."""
    if not hides_class(t):
        return t
    # A transform that is on would make a tensor of its own, and refuses to make a leaf.
    with torch._C.DisableTorchFunctionSubclass(), temporarily_clear_interpreter_stack():
        return t.detach().requires_grad_(t.requires_grad) if t.is_leaf else as_plain(t)


def _as_class(cls: type[Tensor], t: Tensor) -> Tensor:
    return t.as_subclass(cls)


@torch.no_grad()
def _view_of_class(cls: type[Tensor], t: Tensor) -> Tensor:
    return t.as_subclass(cls)


def _bare_of_class(cls: type[Tensor], t: Tensor) -> Tensor:
    return torch.Tensor._make_subclass(cls, t)


def _leaf(t: Tensor) -> Tensor:
    return t.requires_grad_() if t.grad_fn is None else t


@torch.inference_mode()
def _inference_tensor(t: Tensor) -> Tensor:
    if type(t) is not Tensor or t.layout is not torch.strided or t.is_conj() or t.is_neg() or t.is_nested:
        return t.clone()
    return torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())


def _inference_data(t: Tensor) -> Tensor:
    return _inference_tensor(t).data


@torch.no_grad()
def _bare_view(t: Tensor) -> Tensor:
    base = t._base
    if t.grad_fn is None or base is None or (base.dtype, base.is_conj(), base.is_neg()) != (t.dtype, t.is_conj(), t.is_neg()):
        return t
    return base.as_strided(t.shape, t.stride(), t.storage_offset())
