"""Writes that PyTorch refuses: into leaves that require a gradient, into their views, and into memory that the operator also reads."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import CreationMeta, _get_creation_meta
from torch._prims_common import is_non_overlapping_and_dense_or_false

from fineline.fake.fake_tensors import DATA_DEPENDENT
from fineline.frames.graph_breaks import Restart
from fineline.fx.output_fixups import untracked
from fineline.guards.facts import storage_of, unseen
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.tensor_ops.backing import computing
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import SegmentTrace

# Operators that read and write at different positions: they refuse to read a tensor that they also write into.
_MOVING = (
    "cat concat concatenate dstack gather hstack index_add index_copy index_put index_reduce index_select put scatter scatter_add "
    "scatter_reduce stack take take_along_dim vstack"
)
MOVING = frozenset(_MOVING.split())
_SETITEM = IdentitySet((operator.setitem, Tensor.__setitem__))


def refusal(targets: Iterable[Any], history: bool) -> str:
    """Returns why PyTorch refuses writes into ``targets``, "" if it does not. Asked before the run: PyTorch may raise only after an effect.

    ``history``: the writes become part of an autograd history.
    """
    if not torch.is_inference_mode_enabled() and any(map(untracked, _tensors(targets))):
        return "writes into an inference tensor outside of an inference mode"
    return "writes into a leaf that requires a gradient, or a view" if history and any(map(_refused, _tensors(targets))) else ""


def writes_over_itself(interp: Interp, fn: Any, targets: Iterable[Any], args: Any) -> bool:
    """Returns whether an operator writes several elements into one place in memory.

    PyTorch's kernels refuse most of these writes, but fake kernels check nothing. Where eager code makes the write, AOTAutograd's graph
    does not: it fails, or writes the sum of the elements.
    """
    if not any(map(lies_on_itself, _tensors(targets))):
        return False
    if fn not in _SETITEM or any(True for _ in _all_tensors([args[1]])):
        return True
    # The item may be a part that does not lie on itself.
    with computing(interp):
        try:
            return lies_on_itself(interp.backing.run_on_fakes(operator.getitem, args[:2], None))
        except DATA_DEPENDENT:
            return True


def reads_what_it_writes(interp: Interp, fn: Any, targets: Iterable[Any], args: Any, kwargs: dict | None) -> bool:
    """Returns whether an operator that runs on fakes reads and writes the same memory in a way that its kernel refuses.

    Fake kernels do not check this. If it returns True, the operator must run eagerly on the real tensors, where it raises.
    """
    written = _tensors(targets)
    storages = {storage_of(interp.backing.memory(interp, t)) for t in written} - {0}
    given = [*args[1:], *[v for name, v in (kwargs or {}).items() if name != "out"]]
    if kwargs and "out" in kwargs:
        given.append(args[:1])
    read = [t for t in _all_tensors(given) if storage_of(interp.backing.memory(interp, t)) in storages]
    if not read:
        return False
    moving = getattr(fn, "__name__", "").partition(".")[0].strip("_") in MOVING
    if fn in _SETITEM:
        moving = any(True for _ in _all_tensors([args[1]]))
    with computing(interp):
        try:
            if not moving and fn in _SETITEM:
                written = [interp.backing.run_on_fakes(operator.getitem, args[:2], None)]
            pairs = [(interp.backing.memory(interp, a), interp.backing.memory(interp, b)) for a in written for b in read]
            return any([_overlap(a, b, moving) for a, b in pairs])
        except DATA_DEPENDENT:
            # Only the run knows the memory of this item. Code that writes at an index in a tensor mostly writes what it read at this index.
            return fn not in _SETITEM


def _all_tensors(items: Iterable[Any]) -> Iterator[Tensor]:
    for x in items:
        if is_a(x, Tensor):
            yield x
        elif is_a(x, (tuple, list)):
            yield from _all_tensors(x)


@unseen
def _overlap(a: Tensor, b: Tensor, moving: bool) -> bool:
    """Returns whether a kernel refuses to write into ``a`` while it reads ``b``: PyTorch checks only dense tensors without overlaps.

    ``moving``: the kernel also refuses if both are the same tensor.
    """
    if a is b:
        return moving
    dense = [is_non_overlapping_and_dense_or_false(t) and bool(t.numel() > 0) for t in (a, b) if t.layout is torch.strided]
    if dense != [True, True] or a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    starts = [t.storage_offset() * t.element_size() for t in (a, b)]
    ends = [start + t.numel() * t.element_size() for start, t in zip(starts, (a, b), strict=True)]
    if bool(starts[0] == starts[1]) and bool(ends[0] == ends[1]):
        return moving or a.stride() != b.stride()
    return bool(starts[0] < ends[1]) and bool(starts[1] < ends[0])


@unseen
def guard_writes(interp: Interp, targets: Iterable[Any]) -> None:
    """Guards, for each input that shares memory with ``targets``, whether autograd allows or refuses to write into it."""
    trace = interp.trace
    storages = {storage_of(interp.backing.memory(interp, t)) for t in _tensors(targets)} - {0}
    for src in [s for s in trace.sources.values() if is_a(s.value, Tensor)]:
        t = src.value
        if storage_of(interp.backing.memory(interp, t)) not in storages:
            continue
        refused = _refused(t)
        if trace.symbols is not None and t._is_view() and (refused or lies_on_itself(t)):
            # The fake of a view has its own memory and may always be written.
            raise Restart("FL515", "whether a view may be written in place depends on what it is a view of")
        text = f"autograd {'refuses' if refused else 'allows'} to write in place"
        trace.guards.check(src, "predicate", (partial(_still, refused), text), "written")


@unseen
def guard_hidden_writes(trace: SegmentTrace, written: Iterable[Any]) -> bool:
    """Guards whether autograd allows writes into inputs that a graph writes without autograd's knowledge; returns whether it refuses one.

    AOTAutograd would give these writes a history.
    """
    found = False
    for src in [s for s in written if s.value.requires_grad]:
        kind = _kind(src.value)
        # AOTAutograd gives a leaf that is not a view no history, as in eager code.
        found = found or all(kind)
        text = f"is {'a' if kind[0] else 'no'} view, and autograd {'refuses' if kind[1] else 'allows'} to write in place"
        trace.guards.check(src, "predicate", (partial(_still_of, kind), text), "written through")
    return found


@unseen
def _kind(t: Tensor) -> tuple[bool, bool]:
    return bool(t._is_view()), _refused(t)


def _still_of(kind: tuple[bool, bool], t: Tensor) -> bool:
    return _kind(t) == kind


@unseen
def _refused(t: Tensor) -> bool:
    """Returns whether autograd refuses a write into ``t`` that becomes part of a history."""
    if not t._is_view():
        return t.requires_grad and t.is_leaf
    of_leaf = t.requires_grad and t._base is not None and t._base.is_leaf
    return bool(of_leaf) or _get_creation_meta(t) != CreationMeta.DEFAULT


@unseen
def lies_on_itself(t: Tensor) -> bool:
    """Returns whether several elements of ``t`` may share one place in memory, as in the results of ``expand`` and ``as_strided``.

    It never asks a symbol. No symbol stands for a stride of zero; what lies in a dimension with a symbolic stride is taken to lie apart.
    """
    if t.layout is not torch.strided or t.is_nested or any([type(n) is int and n == 0 for n in t.shape]):
        return False
    layers = [(stride, type(n) is not int, n) for n, stride in zip(t.shape, t.stride(), strict=True) if type(stride) is int and (type(n) is not int or n > 1)]
    # The distance from the first to the last element in the dimensions with smaller strides.
    reach = 0
    for stride, symbolic, n in sorted(layers, key=operator.itemgetter(0, 1)):
        if stride <= reach:
            return True
        reach += 0 if symbolic else stride * (n - 1)
    return False


def _still(refused: bool, t: Tensor) -> bool:
    return _refused(t) == refused


def _tensors(targets: Iterable[Any]) -> list[Tensor]:
    given = [x for t in targets for x in (t if is_a(t, (list, tuple)) else (t,))]
    return [t for t in given if is_a(t, Tensor)]
