"""Writes that autograd refuses: into leaves that require a gradient, views of these, and views that were made in ways it can't follow."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import CreationMeta, _get_creation_meta

from fineline.capture.signals import Retreat
from fineline.graph.remade import untracked
from fineline.guards.facts import storage_of
from fineline.kinds import is_a


def refusal(targets: Iterable[Any], history: bool) -> str:
    """What PyTorch has against writes into ``targets``; "" if nothing. It may have written, or drawn numbers, when it says so.

    ``history``: whether the writes become part of one.
    """
    if not torch.is_inference_mode_enabled() and any(map(untracked, _tensors(targets))):
        return "writes into an inference tensor outside of an inference mode"
    if any(map(lies_on_itself, _tensors(targets))):
        return "writes into memory that lies on itself"
    return "writes into a leaf that requires a gradient, or a view" if history and any(map(_refused, _tensors(targets))) else ""


def guard_writes(vm: Any, targets: Iterable[Any]) -> None:
    """What autograd allows for the inputs that a write goes into, it is to allow at each call."""
    cap = vm.cap
    storages = {storage_of(vm.memory(t)) for t in _tensors(targets)} - {0}
    for src in [s for s in cap.sources.values() if is_a(s.value, Tensor)]:
        t = src.value
        if storage_of(vm.memory(t)) not in storages:
            continue
        refused = _refused(t)
        if cap.symbols is not None and t._is_view() and (refused or lies_on_itself(t)):
            # What stands for a view there has memory of its own, and may be written.
            raise Retreat("FL515", "whether a view may be written in place depends on what it is a view of")
        text = f"autograd {'refuses' if refused else 'allows'} to write in place"
        cap.guards.check(src, "predicate", (partial(_still, refused), text), "written")


def _refused(t: Tensor) -> bool:
    """Whether autograd refuses a write into ``t`` that becomes part of a history."""
    if not t._is_view():
        return t.requires_grad and t.is_leaf
    of_leaf = t.requires_grad and t._base is not None and t._base.is_leaf
    return bool(of_leaf) or _get_creation_meta(t) != CreationMeta.DEFAULT


def lies_on_itself(t: Tensor) -> bool:
    """Whether several numbers of ``t`` are one in memory, as in what ``expand`` gives."""
    # Without a question to symbols: none stands for a stride of zero.
    layers = zip(t.shape, t.stride(), strict=True) if t.layout is torch.strided and not t.is_nested else ()
    return any([type(stride) is int and stride == 0 and (type(n) is not int or n > 1) for n, stride in layers])


def _still(refused: bool, t: Tensor) -> bool:
    return _refused(t) == refused


def _tensors(targets: Iterable[Any]) -> list[Tensor]:
    given = [x for t in targets for x in (t if is_a(t, (list, tuple)) else (t,))]
    return [t for t in given if is_a(t, Tensor)]
