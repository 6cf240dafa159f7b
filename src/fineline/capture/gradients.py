"""Where no gradients are asked for, what asks for one is only a mark on a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fineline.graph.recorder import Recorder


def dormant(vm: Any, fn: Any, args: Any) -> bool:
    """Whether no history begins at a leaf that the graph makes here, for no gradients are asked for from its start on, nor will be."""
    cap = vm.cap
    if cap.start_ambient.grad_mode or torch.is_grad_enabled() or torch.is_inference_mode_enabled() or type(cap.recorder) is not Recorder:
        return False
    fits = fn is Tensor.requires_grad_ and vm.tensors.symbolic and cap.recorder.known(args[0]) and not args[0]._is_view()
    cap.recorder.leaves = cap.recorder.leaves or fits
    return fits
