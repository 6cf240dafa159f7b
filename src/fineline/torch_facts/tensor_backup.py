"""Copies the memory of tensors before a write into it, and restores it."""

from __future__ import annotations

import torch
from torch import Tensor

from fineline.identity import IdentitySet


def set_version(t: Tensor, version: int) -> None:
    """Sets the version of a tensor, as the writes of other code would have left it."""
    torch._C._autograd._unsafe_set_version_counter((t,), (version,))


def put_back_memory(storage: torch.UntypedStorage, before: torch.UntypedStorage) -> None:
    """Restores the length and the contents of a storage."""
    with torch._C._DisableTorchDispatch():
        if storage.nbytes() != before.nbytes():
            # An operator may have made it longer, through a view of a tensor.
            storage.resize_(before.nbytes())
        storage.copy_(before)


class Kept:
    """Copies of the memory of some tensors, and their versions."""

    __slots__ = ("copies", "parts", "versions", "whole")

    def __init__(self, *tensors: Tensor) -> None:
        self.whole = [t for t in tensors if t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes]
        self.parts: list = []
        with torch._C._DisableTorchDispatch():
            # One call for all tensors, which costs a third.
            self.copies = torch._foreach_clone([t.detach() if t.requires_grad else t for t in self.whole]) if self.whole else ()
            if len(self.whole) < len(tensors):
                # The whole memory that they are views of.
                whole = IdentitySet(self.whole)
                self.parts = [(t, t.untyped_storage().clone()) for t in tensors if t not in whole]
        self.versions = [(t, t._version) for t in tensors if not t.is_inference()]

    def undo(self) -> None:
        """Restores the memory and the versions."""
        whole = [(t, copy.untyped_storage()) for t, copy in zip(self.whole, self.copies, strict=True)]
        for t, before in whole + self.parts:
            put_back_memory(t.untyped_storage(), before)
        for t, version in self.versions:
            # A backward pass of operators before the call may need the version.
            torch._C._autograd._unsafe_set_version_counter((t,), (version,))
