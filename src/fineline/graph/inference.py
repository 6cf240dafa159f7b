"""Inference modes in graphs: no compiler knows them, so they run as blocks without gradients, and what they give is made inference tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import Graph


def without_modes(graph: Graph, grad_mode: bool) -> None:
    """Puts changes of the grad mode, which is ``grad_mode`` at first, in the place of those of the inference mode.

    AOTAutograd fails at a view in an inference mode, and leaves PyTorch's Python dispatcher unusable (torch 2.13).
    """
    outside = {}
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            grad_mode = node.args[0]
            continue
        if node.target is _enter_inference_mode:
            outside[node] = grad_mode
            grad_mode = not node.args[0]
        elif node.target is _exit_inference_mode:
            grad_mode = outside[node.args[0]]
        else:
            continue
        node.target, node.args = torch._C._set_grad_enabled, (grad_mode,)


def giving_inference_tensors(graph: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """``graph``, whose outputs at ``places`` are inference tensors, in the memory that they have."""

    def run(*inputs: Any) -> list:
        outputs = list(graph(*inputs))
        with torch.inference_mode():
            for i in places:
                outputs[i] = _inference_tensor(outputs[i])
        return outputs

    return run


def _inference_tensor(t: Tensor) -> Tensor:
    if type(t) is not Tensor or t.layout is not torch.strided or t.is_conj() or t.is_neg() or t.is_nested:
        return t.clone()
    return torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())
