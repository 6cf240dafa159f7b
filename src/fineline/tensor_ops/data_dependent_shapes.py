"""Results whose sizes depend on the numbers in tensors: of operators with a known rule, and of calls whose sizes only the run can show."""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters, temporarily_clear_interpreter_stack
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._pytree import tree_map_only

from fineline.bytecode.asynchronous import let_pass
from fineline.fake.fake_tensors import DATA_DEPENDENT, sizeless
from fineline.frames.graph_breaks import GraphBreak
from fineline.identity import IdentityMap, IdentitySet
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.tensor_ops.backing import computing
from fineline.tensor_ops.composites import is_composite
from fineline.tensor_ops.size_arguments import SIZED, tensors_for_sizes
from fineline.torch_facts import names
from fineline.torch_facts.mutation import DATA_SHAPED, INFERRED_SIZE, UNSEEN_SIZE
from fineline.torch_facts.spellings import is_custom, packet_of
from fineline.torch_facts.unguarded_sizes import Foresight
from fineline.tracing.interp import Interp

SHAPED = IdentitySet(DATA_SHAPED)
INFERRED = IdentityMap(INFERRED_SIZE.items())
UNSEEN = IdentitySet(UNSEEN_SIZE)
UNSEEN_NAMES = frozenset({f"aten::{fn.__name__}" for fn in UNSEEN_SIZE})
METHODS = frozenset({types.MethodDescriptorType, types.WrapperDescriptorType})
PACKETS = (OpOverload, OpOverloadPacket)
DISPATCHED = frozenset({*PACKETS, CustomOpDef, torch.jit.ScriptFunction})
# The C function, not torch.where: libraries may replace that with a wrapper.
WHERE = (torch._C._VariableFunctions.where, Tensor.where)
MASKS = (torch.bool, torch.uint8)
INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
NESTING = frozenset({tuple, list})
# What makes and unmakes the tensors of a transform: the integer beside the tensor is a level or a dimension.
_LEVEL_OPERATORS = [getattr(torch._C._functorch, name) for name in names.FUNCTORCH["op"].split()]
# Callables for which a tensor of one integer is a fill value or a position, not a size.
VALUED = IdentitySet((torch.full_like, Tensor.__getitem__, operator.getitem, *_LEVEL_OPERATORS))
# Operators whose number of results depends on the sizes of their arguments.
SPLITTING = frozenset(["chunk", "dsplit", "hsplit", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_chunk", "unsafe_split", "vsplit"])
REPEAT = (torch.repeat_interleave, Tensor.repeat_interleave)
# Operators of the dispatcher whose tags do not suffice to decide this, with a function that is another spelling of each.
AS_FUNCTIONS: Mapping[str, Callable] = MappingProxyType(
    {
        "aten::where": WHERE[0], "aten::index": operator.getitem, "aten::one_hot": F.one_hot, "aten::repeat_interleave": REPEAT[0],
        "aten::nonzero_numpy": torch.nonzero, "aten::combinations": torch.combinations, "aten::to_sparse": Tensor.to_sparse,
        "aten::to_sparse_csr": Tensor.to_sparse_csr, "aten::coalesce": Tensor.coalesce, "aten::_ctc_loss": F.ctc_loss,
        "aten::_pack_padded_sequence": torch._pack_padded_sequence, "aten::_pad_packed_sequence": torch._pad_packed_sequence,
        "aten::sparse_coo_tensor": torch.sparse_coo_tensor,
    }
)  # fmt: skip
# Callables that `data_shaped` decides by their arguments.
ASKED = IdentitySet((*SHAPED, *SIZED, *INFERRED_SIZE, *WHERE, operator.getitem, Tensor.__getitem__))
# Infix operators: the size of the result follows from the sizes of both operands.
INFIX = IdentitySet(fn for fn in vars(operator).values() if fn is not operator.getitem)


def data_shaped(fn: Any, args: Any, kwargs: dict | None) -> bool:
    """Returns whether the sizes of the result depend on the numbers in a tensor."""
    if fn not in ASKED:
        return type(fn) in PACKETS and _says_so(_overload(fn, args, kwargs), args, kwargs)
    if fn is operator.getitem or fn is Tensor.__getitem__:
        key = args[1]
        return any(
            (is_a(k, Tensor) and k.dtype in MASKS) or (type(k) is slice and any(is_a(x, Tensor) for x in (k.start, k.stop, k.step)))
            for k in (key if is_a(key, (tuple, list)) else (key,))
        )
    if fn in WHERE:
        return len(args) + len(kwargs or ()) == 1
    if fn in SIZED and tensors_for_sizes(fn, args, kwargs):
        return True
    if fn in INFERRED:
        at = INFERRED[fn]
        return "size" not in (kwargs or ()) and not (len(args) > at and is_a(args[at], (tuple, list)))
    if fn not in SHAPED or fn is F.ctc_loss:
        return False
    given = {*(kwargs or {})}
    if fn is F.one_hot:
        return (args[1] if len(args) > 1 else (kwargs or {}).get("num_classes", -1)) == -1
    if fn in REPEAT:
        repeats = args[1] if len(args) > 1 else (kwargs or {}).get("repeats")
        return not is_a(repeats, int) and "output_size" not in given
    return True


def _overload(fn: Any, args: Any, kwargs: dict | None) -> OpOverload:
    """Returns the overload that a call runs: of several with one name, the overload that accepts these arguments."""
    if is_a(fn, CustomOpDef):
        return fn._opoverload
    if is_a(fn, OpOverload):
        return fn
    try:
        return getattr(fn, torch._C._jit_resolve_packet(fn._qualified_op_name, *args, **(kwargs or {})))
    except Exception as e:  # no overload accepts the arguments, or C cannot resolve them
        let_pass(e)
        return getattr(fn, fn.overloads()[0])


def _says_so(op: OpOverload, args: Any, kwargs: dict | None) -> bool:
    name = op._schema.name
    if name in AS_FUNCTIONS:
        return data_shaped(AS_FUNCTIONS[name], args, kwargs)
    return torch.Tag.dynamic_output_shape in op.tags and name != "aten::linalg_lstsq"


def may_be_by_data(fn: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether the numbers in tensors may decide the sizes of the result of a PyTorch operator."""
    return packet_of(fn) in UNSEEN_NAMES or data_shaped(fn, args, kwargs)


def foreseen(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Foresight:
    """Returns what is known, before the run, about the result sizes of an operator for which `data_shaped` is false."""
    if fn in UNSEEN:
        return Foresight.UNFORESEEN
    if type(fn) in DISPATCHED:
        if packet_of(fn) in UNSEEN_NAMES:
            return Foresight.UNFORESEEN
        if is_custom(fn) and interp.backing.real:
            return _custom(interp, fn, args, kwargs)
        if is_custom(fn) and not is_a(fn, torch.jit.ScriptFunction) and is_composite(_overload(fn, args, kwargs)):
            # It may call operators whose fake kernels report fixed sizes although numbers decide them.
            return Foresight.WATCHED
    # On fakes, the run itself shows it.
    if interp.backing.real and fn not in VALUED and (numbers := numbers_given(fn, args, kwargs)):
        mutated = interp.trace.recorder.writes.storages
        if not all([interp.tensors.known.has(n, mutated) for n in numbers]):
            told = _told(interp, fn, args, kwargs)
            return Foresight.UNFORESEEN if told is None else Foresight.FORESEEN if told else Foresight.BY_DATA
    return Foresight.FORESEEN


def by_data(fn: Any, args: Any, kwargs: dict | None) -> GraphBreak:
    """Returns the graph break for a call whose result shows Python a size, or an attribute, that depends on the numbers in a tensor."""
    if fn is getattr:
        what = f"the tensor's {args[1]}"
    else:
        what = f"what {describe(fn)} gives" if type(fn) in DISPATCHED else f"the shape of {describe(fn)}'s result"
    return GraphBreak(fn, tuple(args), kwargs, "FL508", f"{what} depends on a tensor's values")


def splits(fn: Any) -> bool:
    """Returns whether the number of tensors that ``fn`` returns, which Python sees at once, depends on the sizes of its arguments."""
    return getattr(fn, "__name__", "").partition(".")[0] in SPLITTING


def _custom(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Foresight:
    """Returns what is known about the result sizes of a library's operator: found by its fake or meta kernel, if it has one."""
    if is_a(fn, torch.jit.ScriptFunction):
        if not _only_tensors(fn.schema):
            return Foresight.BY_DATA
        # The question runs the function once more, which only a pure one allows.
        return Foresight.FORESEEN if _only_computes(fn) and _told(interp, fn, args, kwargs) else Foresight.UNFORESEEN
    op = _overload(fn, args, kwargs)
    if _has_rule(op):
        told = _told(interp, op, args, kwargs)
        if told is not None:
            return Foresight.FORESEEN if told else Foresight.BY_DATA
    if is_composite(op) and _only_tensors(op._schema):
        return Foresight.WATCHED
    # A result that is not a tensor, or a list of unknown length, shows Python at once what the numbers decided.
    return Foresight.UNFORESEEN if _only_tensors(op._schema) else Foresight.BY_DATA


def _only_computes(fn: Any) -> bool:
    """Returns whether a scripted function runs only PyTorch operators: none of a library, no Python code (written with a ^), no print, no warning."""
    called = set(re.findall(r"= (\^?\w+(?:::\w+)?)", str(fn.inlined_graph)))
    return all([name.startswith(("aten::", "prim::")) for name in called]) and called.isdisjoint(("prim::Print", "aten::warn"))


def _has_rule(op: OpOverload) -> bool:
    # A composite does not count: its kernel is the user's code, which must run only once.
    return singleton.find(op._schema.name).fake_impl.kernel is not None or torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Meta")


def _told(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> bool | None:
    """Returns whether the call, on tensors without numbers, can determine the sizes of its result; None if it fails there, or inside of a `vmap`."""
    transforms = retrieve_all_functorch_interpreters()
    if any([transform.key() == TransformType.Vmap for transform in transforms]):
        return None
    if transforms:
        # Gradients change no sizes: the tensors below them are asked for.
        args, kwargs = tree_map_only(Tensor, _below_gradients, (args, kwargs))
    try:
        with computing(interp), torch.no_grad(), temporarily_clear_interpreter_stack():
            sizeless().run(fn, args, kwargs)
    except DATA_DEPENDENT:
        return False
    except Exception as e:  # an error of the operator, which it raises again when it runs
        let_pass(e)
        return None
    return True


def _below_gradients(t: Tensor) -> Tensor:
    while torch._C._functorch.is_gradtrackingtensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    return t


def _only_tensors(schema: Any) -> bool:
    return all([_tensor_type(r.type) for r in schema.returns])


def _tensor_type(t: Any) -> bool:
    return all(map(_tensor_type, t.elements())) if t.kind() == "TupleType" else t.kind() == "TensorType"


def numbers_given(fn: Any, args: Any, kwargs: dict | None) -> list[Tensor]:
    """Returns the arguments that are tensors of one integer, which C may read as integers; does not include the ``self`` of a method.

    A tensor of one integer for each sample of `vmap` has none to read: C raises.
    """
    found: list[Tensor] = []
    for a in args[1:] if type(fn) in METHODS else args:
        if type(a) in NESTING:
            found += numbers_given(None, a, None)
        elif is_a(a, Tensor) and a.dtype in INTEGERS and not a.dim() and not _is_batched(a):
            found.append(a)
    return found + numbers_given(None, kwargs.values(), None) if kwargs else found


def _is_batched(t: Tensor) -> bool:
    """Returns whether `vmap` made ``t``, below the wrappers of other transforms."""
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        if torch._C._functorch.is_batchedtensor(t):
            return True
        t = torch._C._functorch.get_unwrapped(t)
    return False
