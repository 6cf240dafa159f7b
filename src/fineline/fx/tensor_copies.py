"""Copies of tensors that share memory where the tensors do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fineline.kinds import is_a

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
# Copies of memory begin at a multiple of this many bytes, so that each dtype finds its place in it.
_ALIGNMENT = 64


class _Memory(NamedTuple):
    """A stretch of a storage: its first byte, and the one after its last."""

    storage: torch.UntypedStorage
    begin: int
    end: int

    def copied(self) -> torch.UntypedStorage:
        bytes_of = torch.empty(0, dtype=torch.uint8, device=self.storage.device).set_(self.storage, self.begin, (self.end - self.begin,), (1,))
        return bytes_of.clone().untyped_storage()


def is_plain(t: Tensor) -> bool:
    """Returns whether a tensor is its memory, offset, sizes and strides: no subclass, sparse, conjugated or negated one."""
    return type(t) in _PLAIN and t.layout is torch.strided and not t.is_conj() and not t.is_neg() and t.device.type != "meta"


def is_expanded(t: Tensor) -> bool:
    """Returns whether items of a tensor lie in one place, which only a write to all of them may change."""
    return any(size > 1 and stride == 0 for size, stride in zip(t.shape, t.stride(), strict=True)) if t.layout is torch.strided else False


def copies_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns copies of tensors without their history: leaves that require a gradient where they do.

    Plain tensors that share memory have copies that do, and keep their strides. Of a storage only the stretch that they use is copied.
    """
    with torch.no_grad():
        used: dict[int, _Memory] = {}
        for t in filter(is_plain, tensors):
            stretch, key = _stretch(t), t.untyped_storage()._cdata
            known = used.get(key, stretch)
            used[key] = _Memory(known.storage, min(known.begin, stretch.begin), max(known.end, stretch.end))
        copied = {key: memory.copied() for key, memory in used.items()}
        made = [_placed(t, copied, used) if is_plain(t) else t.detach().clone() for t in tensors]
    return [copy.requires_grad_(t.requires_grad) for t, copy in zip(tensors, made, strict=True)]


def copied_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Returns the inputs of a graph, with copies of the tensors."""
    copies = iter(copies_of([t for t in inputs if is_a(t, Tensor)]))
    return [next(copies) if is_a(v, Tensor) else v for v in inputs]


def _stretch(t: Tensor) -> _Memory:
    """Returns the stretch of its storage that a plain tensor uses."""
    last = sum([(size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)]) if t.numel() else -1
    begin = int(t.storage_offset() * t.element_size())
    storage = t.untyped_storage()
    return _Memory(storage, begin - begin % _ALIGNMENT, begin + int(last + 1) * t.element_size())


def _placed(t: Tensor, copied: dict[int, torch.UntypedStorage], used: dict[int, _Memory]) -> Tensor:
    key = t.untyped_storage()._cdata
    offset = t.storage_offset() - used[key].begin // t.element_size()
    made = torch.empty(0, dtype=t.dtype, device=t.device).set_(copied[key], offset, t.shape, t.stride())
    return torch.nn.Parameter(made, t.requires_grad) if type(t) is torch.nn.Parameter else made
