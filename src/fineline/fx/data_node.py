"""The node of an assignment to the ``.data`` of an input."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.functional_tensor import FunctionalTensor


@torch.fx.has_side_effect
def set_data(t: Tensor, value: Tensor) -> None:
    """Sets ``t.data``, which changes no version. Where AOTAutograd traces the graph, it does so by an operator, which it knows to change an input."""
    if type(t) is not FunctionalTensor:
        t.data = value
        return
    version = t._version
    with torch.no_grad():
        t.set_(value)  # type: ignore[call-overload]
    torch._C._autograd._unsafe_set_version_counter((t,), (version,))
