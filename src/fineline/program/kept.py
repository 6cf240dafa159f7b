"""What was in the tensors that a program's graph writes into, for programs that may have to put it back."""

from __future__ import annotations

import torch
from torch import Tensor


class Kept:
    """Copies of the memory of some tensors, and their versions."""

    __slots__ = ("copies", "parts", "versions", "whole")

    def __init__(self, *tensors: Tensor) -> None:
        self.whole = [t for t in tensors if t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes]
        self.parts: list = []
        with torch._C._DisableTorchDispatch():
            # One call for all, which costs a third.
            self.copies = torch._foreach_clone([t.detach() if t.requires_grad else t for t in self.whole]) if self.whole else ()
            if len(self.whole) < len(tensors):
                # All of what they are views of.
                whole = set(map(id, self.whole))
                self.parts = [(t, t.untyped_storage().clone()) for t in tensors if id(t) not in whole]
        self.versions = [(t, t._version) for t in tensors if not t.is_inference()]

    def undo(self) -> None:
        """Puts all back."""
        whole = [(t, copy.untyped_storage()) for t, copy in zip(self.whole, self.copies, strict=True)]
        for t, before in whole + self.parts:
            with torch._C._DisableTorchDispatch():
                t.untyped_storage().copy_(before)
        for t, version in self.versions:
            # A backward pass from before the call may need it.
            torch._C._autograd._unsafe_set_version_counter((t,), (version,))
