"""The traits of a graph that decide what may be done with it: whether it computes, may run twice, and may be shown to compilers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.kinds import is_a

_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})


def scattered(t: Any) -> bool:
    """Returns whether ``t`` is a sparse, a nested or a quantized tensor, or a view of a sparse one's values, which few compilers take."""
    if type(t) not in (Tensor, FakeTensor):
        return False
    if t.layout is not torch.strided:
        return t.layout is not torch.jagged
    if t.is_nested or t.is_quantized:
        return True
    base = t._base
    if base is None:
        return False
    # The class of the base may override operators, which would see this read.
    with torch._C.DisableTorchFunction():
        return base.layout is not torch.strided


def fatal(t: object) -> bool:
    """Returns whether AOTAutograd ends the process where it meets ``t``: "layout_impl is only implemented for TensorImpl subclasses" (torch 2.13)."""
    return is_a(t, Tensor) and t.requires_grad and t.layout in _COMPRESSED


class GraphTraits:
    """The traits of one graph, as far as it is recorded."""

    __slots__ = ("fatal", "hides_operators", "leaves", "once", "only_state", "reads_numbers", "scattered")

    def __init__(self) -> None:
        # No operator yet, only changes of PyTorch's state such as the grad mode.
        self.only_state = True
        # An operator gave a sparse, a nested or a quantized tensor; one that no compiler may be shown.
        self.scattered = self.fatal = False
        # A ``__torch_function__`` of a wrapper subclass has been run through: it must not see the operators that are left.
        self.hides_operators = False
        # A node calls code that may do more than compute: it must not run twice in a call.
        self.once = False
        # An operator makes a leaf of autograd, where gradients are not asked for.
        self.leaves = False
        # An operator reads a number in a tensor, as an index.
        self.reads_numbers = False

    def see_scattered(self, out: object) -> None:
        """Notes that an operator gave ``out``, which is `scattered`."""
        self.scattered = True
        self.fatal = self.fatal or fatal(out)

    def hold(self, inner: GraphTraits) -> None:
        """Notes that the graph runs another one."""
        self.scattered, self.fatal = self.scattered or inner.scattered, self.fatal or inner.fatal
        self.hides_operators = self.hides_operators or inner.hides_operators
        self.reads_numbers = self.reads_numbers or inner.reads_numbers
