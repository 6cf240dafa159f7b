"""Values that guards compare by value, values that never change, and keys that C finds without running the user's code."""

from __future__ import annotations

import enum
import re
import types
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import SDPBackend

from fineline.cpython.numpy_scalars import NUMBERS, NUMPY_SCALARS
from fineline.kinds import is_a, is_users_class
from fineline.policy.selector import PYBIND
from fineline.torch_facts.distributed_tensors import PLACEMENT, is_placement

PLAIN_TENSORS = frozenset({Tensor, torch.nn.Parameter, FakeTensor})
SINGLETONS = frozenset({type(None), bool, type(...), type(NotImplemented)})
VALUES = frozenset(
    {int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice, SDPBackend, *NUMPY_SCALARS}
)  # fmt: skip
PINNED = (
    type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType, enum.Enum, re.Pattern,
    type(torch.backends.cuda.SDPAParams.__init__),  # a function of C++ bindings, as a class has it
    torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch.finfo, torch.iinfo, *PLACEMENT,
)  # fmt: skip
# Numbers whose guards may be deferred, and which may be symbols.
LAZY = (float, int)
# Numbers that never become symbols.
UNSYMBOLIC = NUMPY_SCALARS | {complex}
# Those whose guard waits until the code uses the value: parts of them may be symbols.
DEFERRED = NUMBERS | {complex}


def is_value(v: Any) -> bool:
    """Returns whether guards compare ``v`` by value, because no program can observe its identity."""
    t = type(v)
    if t in SINGLETONS or t in VALUES:
        return t is not slice or (is_value(v.start) and is_value(v.stop) and is_value(v.step))
    if t is tuple or t is frozenset or t is torch.Size:
        return all(is_value(x) for x in v)
    if t is types.BuiltinFunctionType:
        # A method bound to an object belongs to that object; a class may be one that each call creates.
        of = v.__self__
        return of is None or is_a(of, types.ModuleType) or (is_a(of, type) and not is_users_class(of)) or type(of).__name__.startswith(PYBIND)
    if is_a(v, PINNED):
        # A placement that holds a mask belongs to one tensor.
        return not is_a(v, PLACEMENT) or is_placement(v)
    return is_getter(v)


def is_getter(v: Any) -> bool:
    """Returns whether ``v`` is such as ``Tensor.shape.__get__``, by which PyTorch names an attribute to ``__torch_function__``: each read makes another."""
    return type(v) is types.MethodWrapperType and type(v.__self__) is types.GetSetDescriptorType


def hashes_plainly(k: object) -> bool:
    """Returns whether C hashes and compares the key ``k`` without running the user's code."""
    t = type(k)
    if t is str or is_a(k, (Tensor, *PINNED)) or is_getter(k):
        return True
    if is_a(k, (tuple, frozenset)):
        return all([hashes_plainly(x) for x in k])
    return not is_a(t.__hash__, types.FunctionType) and not is_a(t.__eq__, types.FunctionType)
