"""Facts about writes: the PyTorch callables that write to their arguments, and what they change."""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch._ops import OpOverload, OpOverloadPacket

from fineline.identity import IdentityMap, IdentitySet
from fineline.kinds import is_a
from fineline.tables import attributes

_SLOTS = (
    "__iadd__ __iand__ __idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__ __ixor__ "
    "__setitem__ __delitem__"
)
_IN_PLACE_SLOTS = frozenset(_SLOTS.split())
_SIGNS = frozenset(attributes(operator, _SLOTS))
# The types of callables whose name shows whether they write.
_NAMED = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType)

_METADATA_MUTATORS = (
    "_coalesced_ as_strided_ detach_ requires_grad_ resize resize_ resize_as resize_as_ resize_as_sparse_ set_ sparse_resize_ "
    "sparse_resize_and_clear_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_ share_memory_"
)
METADATA_NAMES = frozenset(_METADATA_MUTATORS.split())
METADATA_MUTATORS: frozenset[Callable[..., Any]] = frozenset(
    value for owner in (torch.Tensor, torch._C.TensorBase, torch) for value in attributes(owner, _METADATA_MUTATORS)
)
"""In-place callables that change sizes, strides, storage, or autograd state of their first argument, not (only) its numbers."""

DATA_SHAPED: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.argwhere, torch.bincount, torch.combinations, torch.masked_select, torch.nonzero, torch.repeat_interleave, torch.unique,
        torch.unique_consecutive, torch._unique, torch._unique2, torch.Tensor.argwhere, torch.Tensor.bincount, torch.Tensor.masked_select,
        torch.Tensor.nonzero, torch.Tensor.repeat_interleave, torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.unique,
        torch.Tensor.unique_consecutive, torch.Tensor.coalesce, F.ctc_loss, F.one_hot, torch._VF.unique_dim,
        torch._pack_padded_sequence, torch._pad_packed_sequence,
    }
)  # fmt: skip
"""Operators whose result's sizes (or refusal) depend on the numbers in a tensor. `x[mask]`, `x[mask] = y`, and `torch.where(x)` do too."""

INFERRED_SIZE: Mapping[Callable[..., Any], int] = MappingProxyType(
    {
        torch.sparse_coo_tensor: 2,
        **{getattr(torch, f"sparse_{kind}_tensor"): 3 for kind in ("csr", "csc", "bsr", "bsc", "compressed")},
    }
)
"""By operator that infers the size of its result from the numbers in a tensor if the caller passes none: the position of the size."""

UNSEEN_SIZE: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.Tensor.values, torch.Tensor._values, torch.Tensor.indices, torch.Tensor._indices, torch.Tensor.crow_indices,
        torch.Tensor.col_indices, torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.linalg.lstsq,
    }
)  # fmt: skip
"""Operators whose result's sizes follow from nothing that is guarded, such as the number of values in a sparse tensor."""

HIDDEN_WRITES: Mapping[Callable[..., Any], tuple[int, ...]] = MappingProxyType(
    {
        F.batch_norm: (1, 2),
        F.instance_norm: (1, 2),
        torch.batch_norm: (3, 4),
        torch.instance_norm: (3, 4),
        torch.native_batch_norm: (3, 4),
        torch.batch_norm_update_stats: (1, 2),
        torch.cudnn_batch_norm: (3, 4),
        torch.miopen_batch_norm: (3, 4),
        F.embedding: (1,),
        F.embedding_bag: (1,),
        torch._C._nn.rrelu_with_noise: (1,),  # type: ignore[attr-defined]
        torch.fused_moving_avg_obs_fake_quant: (3, 4, 5, 6),
        torch._fused_moving_avg_obs_fq_helper: (3, 4, 5, 6),
        torch._native_batch_norm_legit: (3, 4),
        torch._flash_attention_forward_no_dropout_inplace: (0,),
        # Since 2.15.
        **dict.fromkeys(attributes(torch, "_cudnn_attention_forward_no_dropout_inplace"), (0,)),
        torch._cummax_helper: (1, 2),
        torch._cummin_helper: (1, 2),
        torch.fbgemm_linear_fp16_weight: (3,),
        torch.fbgemm_linear_fp16_weight_fp32_activation: (3,),
    }
)
"""By operator whose name does not show it: the positions of arguments that it may write to (running statistics, renormed weights)."""


def _inplace_flag(fn: Callable[..., Any]) -> int | None:
    parameters = tuple(inspect.signature(fn).parameters)
    return parameters.index("inplace") if "inplace" in parameters else None


_INPLACE_FLAGGED = (
    "alpha_dropout celu dropout dropout1d dropout2d dropout3d elu feature_alpha_dropout hardsigmoid hardswish hardtanh leaky_relu mish "
    "relu relu6 rrelu selu silu threshold"
)
INPLACE_FLAG: Mapping[Callable[..., Any], int] = MappingProxyType(
    {fn: position for fn in attributes(F, _INPLACE_FLAGGED) if (position := _inplace_flag(fn)) is not None}
)
"""By function with an ``inplace`` parameter: its position. If it is true, the function writes to and returns its first argument."""


def is_inplace(fn: object) -> bool:
    """Returns whether the callable's name, or an operator's schema, says that it writes to its first argument.

    An ``out=`` argument, `INPLACE_FLAG` and `HIDDEN_WRITES` are further ways to write.
    """
    if isinstance(fn, _NAMED):
        name = fn.__name__
        return name in _IN_PLACE_SLOTS or fn in _SIGNS or (name.endswith("_") and not name.endswith("__"))
    if isinstance(fn, OpOverload):
        return fn._schema.is_mutable
    return isinstance(fn, OpOverloadPacket) and fn.__name__.endswith("_") and not fn.__name__.endswith("__")


def changed_metadata(fn: Any, args: Any, kwargs: dict, existed: IdentityMap[Any]) -> str:
    """Returns, in words, the change of metadata by a call that a graph cannot contain: of a tensor that ``existed`` when the graph began,
    or a new leaf of autograd; "" if there is none.
    """
    if fn in _RESHAPERS and args and args[0] in existed:
        # The graph's example inputs must look as they did when the graph began.
        if fn is not torch.Tensor.requires_grad_ or args[0].requires_grad != (args[1] if len(args) > 1 else True):
            return "changes the metadata of a tensor that existed before"
    out = kwargs.get("out")
    if is_a(out, torch.Tensor) and out in existed and 0 in out.shape:
        # An empty tensor gets its size from the result that is written.
        return "resizes a tensor that existed before"
    # AOTAutograd's output for a leaf gets no gradient.
    return LEAF if _makes_leaf(fn, args, kwargs) else ""


LEAF = "makes a leaf of autograd"
_RESHAPERS = IdentitySet(METADATA_MUTATORS)


def _makes_leaf(fn: Any, args: Any, kwargs: dict) -> bool:
    """Returns whether the result is a tensor that requires grad and has no history."""
    if fn is torch.Tensor.requires_grad_:
        # Leaves that a transform of torch.func makes belong to it. Parameters are made with the flag.
        fits = not is_a(args[0], torch.nn.Parameter) and not torch._C._functorch.get_dynamic_layer_stack_depth()
        return fits and not args[0].requires_grad and all((*args[1:], *kwargs.values()))
    return kwargs.get("requires_grad") is True
