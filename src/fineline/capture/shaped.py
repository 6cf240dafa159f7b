"""Operators that give results whose sizes the numbers in tensors decide."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from fineline.capture.given_sizes import SIZED, tensors_for_sizes
from fineline.graph.torch_mutation import DATA_SHAPED, INFERRED_SIZE
from fineline.kinds import is_a

SHAPED = frozenset(map(id, DATA_SHAPED))
INFERRED = {id(fn): at for fn, at in INFERRED_SIZE.items()}
PACKETS = (OpOverload, OpOverloadPacket)
# Not by its name in torch: libraries put wrappers of their own there.
WHERE = (torch._C._VariableFunctions.where, Tensor.where)
MASKS = (torch.bool, torch.uint8)
REPEAT = (torch.repeat_interleave, Tensor.repeat_interleave)
# Operators of the dispatcher that are not told by a tag, or by more than that, by functions that they are spellings of.
AS_FUNCTIONS: Mapping[str, Callable] = MappingProxyType(
    {
        "aten::where": WHERE[0], "aten::index": operator.getitem, "aten::one_hot": F.one_hot, "aten::repeat_interleave": REPEAT[0],
        "aten::nonzero_numpy": torch.nonzero, "aten::combinations": torch.combinations, "aten::to_sparse": Tensor.to_sparse,
        "aten::to_sparse_csr": Tensor.to_sparse_csr, "aten::coalesce": Tensor.coalesce, "aten::_ctc_loss": F.ctc_loss,
        "aten::_pack_padded_sequence": torch._pack_padded_sequence, "aten::_pad_packed_sequence": torch._pad_packed_sequence,
        "aten::sparse_coo_tensor": torch.sparse_coo_tensor,
    }
)  # fmt: skip
# Those whose arguments matter.
ASKED = frozenset(SHAPED | SIZED | INFERRED.keys() | set(map(id, (*WHERE, operator.getitem, Tensor.__getitem__))))


def data_shaped(fn: Any, args: Any, kwargs: dict | None) -> bool:
    """Whether the sizes of the result depend on the numbers in a tensor."""
    if id(fn) not in ASKED:
        return type(fn) in PACKETS and _says_so(_overload(fn, args, kwargs), args, kwargs)
    if fn is operator.getitem or fn is Tensor.__getitem__:
        key = args[1]
        return any(
            (is_a(k, Tensor) and k.dtype in MASKS) or (type(k) is slice and any(is_a(x, Tensor) for x in (k.start, k.stop, k.step)))
            for k in (key if is_a(key, (tuple, list)) else (key,))
        )
    if fn in WHERE:
        return len(args) + len(kwargs or ()) == 1
    if id(fn) in SIZED and tensors_for_sizes(fn, args, kwargs):
        return True
    if id(fn) in INFERRED:
        at = INFERRED[id(fn)]
        return "size" not in (kwargs or ()) and not (len(args) > at and is_a(args[at], (tuple, list)))
    if id(fn) not in SHAPED or fn is F.ctc_loss:
        return False
    given = {*(kwargs or {})}
    if fn is F.one_hot:
        return (args[1] if len(args) > 1 else (kwargs or {}).get("num_classes", -1)) == -1
    if fn in REPEAT:
        repeats = args[1] if len(args) > 1 else (kwargs or {}).get("repeats")
        return not is_a(repeats, int) and "output_size" not in given
    return True


def _overload(fn: Any, args: Any, kwargs: dict | None) -> OpOverload:
    """The operator proper: of several by one name, the one that takes these arguments."""
    if is_a(fn, OpOverload):
        return fn
    try:
        return getattr(fn, torch._C._jit_resolve_packet(fn._qualified_op_name, *args, **(kwargs or {})))
    except Exception:  # none of them does, or C can't tell of such arguments
        return getattr(fn, fn.overloads()[0])


def _says_so(op: OpOverload, args: Any, kwargs: dict | None) -> bool:
    name = op._schema.name
    if name in AS_FUNCTIONS:
        return data_shaped(AS_FUNCTIONS[name], args, kwargs)
    return torch.Tag.dynamic_output_shape in op.tags and name != "aten::linalg_lstsq"
