"""Operators by identity: one name for all spellings of an operator (function, method, infix, ATen operator).

aten::sub                 `torch.sub`, `Tensor.sub`, `Tensor.__sub__`, `Tensor.__rsub__`, `operator.sub`, `torch.subtract`, `torch.ops.aten.sub` …
aten::sub_                the in-place variants, a group of their own: `Tensor.sub_`, `Tensor.__isub__`, `operator.isub`, `torch.ops.aten.sub_`
aten::sub.out             the overloads of `torch.ops` with an `out` argument, a group of their own (`torch.sub(…, out=…)` is `torch.sub`)
torch.nn.functional.…     operators that are not ATen operators, by the dotted name of a function, method or type
"""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.tables import attributes, imported
from fineline.torch_facts import names as torch_names
from fineline.torch_facts import spelling_names as names
from fineline.torch_facts.callables import TENSOR_ATTRS, classify_torch
from fineline.torch_facts.mutation import INPLACE_FLAG

OWN = frozenset({"aten", "prim", "prims"})
"""The namespaces of PyTorch's own operators."""
_DISPATCHED = (OpOverload, OpOverloadPacket, CustomOpDef, torch.jit.ScriptFunction)

_NO_OPERATORS = frozenset({None, "state", "query"})
_ALIAS_OF: Mapping[str, str] = MappingProxyType(
    {alias: name for name, aliases in names.ALIASES.items() for alias in aliases.split()}
    | {f"__i{op[2:]}": f"{name}_" for name, aliases in names.ALIASES.items() for op in aliases.split() if op.startswith("__")}
)
_INPLACE_AT = IdentityMap(INPLACE_FLAG.items())


def operator_name(fn: object, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> str | None:
    """Returns the name of the operator that a callable is a spelling of, or None if it is not a known operator.

    The arguments matter only for ``inplace=True``, which makes a call one of the in-place variant.
    """
    if is_a(fn, OpOverload):
        out = any(argument.is_out for argument in fn._schema.arguments)
        return _operator(fn._schema.name) + (".out" if out else "")
    packet = packet_of(fn)
    if packet is not None:
        return _operator(packet)
    if is_a(fn, types.MethodWrapperType) and fn.__name__ == "__get__":  # torch.overrides' spelling of an attribute
        fn = fn.__self__
    name = _table().get(fn)
    at = _INPLACE_AT.get(fn)
    if name and at is not None and (args[at] if len(args) > at else (kwargs or {}).get("inplace")):
        return f"{name}_"
    return name


def overload_of(fn: object) -> str | None:
    """Returns the dispatcher's own name of an `OpOverload`, such as ``aten::add.Tensor`` or ``aten::mm.default``."""
    return f"{fn._schema.name}.{fn._overloadname}" if is_a(fn, OpOverload) else None


def packet_of(fn: object) -> str | None:
    """Returns the dispatcher's own name of an operator of `torch.ops` or `torch.library`, such as ``aten::add``; aliases keep theirs."""
    if is_a(fn, OpOverload):
        return fn._schema.name
    if is_a(fn, OpOverloadPacket):
        return fn._qualified_op_name
    return fn._qualname if is_a(fn, CustomOpDef) else None


def is_custom(fn: object) -> bool:
    """Returns whether an operator belongs to a library and not to PyTorch: it may have unknown side effects."""
    if not is_a(fn, _DISPATCHED):
        return False
    packet = packet_of(fn)
    return packet is None or packet.partition("::")[0] not in OWN


def _operator(qualified: str) -> str:
    namespace, _, name = qualified.partition("::")
    return f"aten::{_alias(name)}" if namespace == "aten" else qualified


def _alias(name: str) -> str:
    known = _ALIAS_OF.get(name)
    if known is None and name.endswith("_") and not name.endswith("__"):
        base = _ALIAS_OF.get(name[:-1])
        return f"{base}_" if base else name
    return known or name


@cache
def _aten() -> frozenset[str]:
    return frozenset(name[6:].partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))


def _dunders() -> Iterator[tuple[str, str]]:
    """Yields each special method of tensors with its operator."""
    for name, op in names.INFIX.items():
        inplace = f"aten::{op}_" if f"{op}_" in _aten() else f"aten::{op}"  # `a @= b` is `a = a @ b`
        yield from ((f"__{name}__", f"aten::{op}"), (f"__r{name}__", f"aten::{op}"), (f"__i{name}__", inplace))
    for name, op in names.UNARY.items():
        yield f"__{name}__", f"aten::{op}"
    for name in names.SUBSCRIPT.split():
        yield f"__{name}__", f"torch.Tensor.__{name}__"


def _owners() -> Iterator[tuple[str, Any]]:
    """Yields the namespaces of operators, with their dotted names. An operator is named after the last one that lists it."""
    yield "torch._C._autograd", torch._C._autograd
    yield "torch._C._functorch", torch._C._functorch
    for module in torch_names.ELSEWHERE:
        if (owner := imported(module)) is not None:
            yield module, owner
    yield from [(module.__name__, module) for module in attributes(torch._C, torch_names.C_MODULES)]
    yield "torch.Tensor", torch._C.TensorBase
    yield "torch.Tensor", torch.Tensor
    yield "torch.nn.functional", torch._C._nn
    yield "torch.nn.functional", torch.nn.functional
    yield "torch", torch._C._VariableFunctions
    yield "torch", torch


def _named() -> Iterator[tuple[Any, str]]:
    dunders = dict(_dunders())
    for path, owner in _owners():
        for key in dir(owner):
            fn = getattr(owner, key)
            attribute = is_a(fn, types.GetSetDescriptorType) and path == "torch.Tensor"
            kind = TENSOR_ATTRS.get(key) if attribute else classify_torch(fn)
            if kind in _NO_OPERATORS or kind == "source":
                continue
            name = _name(path, fn, key, kind, attribute, dunders)
            if name is not None:
                yield fn, name


def _name(path: str, fn: Any, key: str, kind: str | None, attribute: bool, dunders: Mapping[str, str]) -> str | None:
    functional = path == "torch.nn.functional"
    if attribute:
        op = names.ATTRIBUTES.get(key, "") if kind == "op" else ""
    elif is_a(fn, types.BuiltinFunctionType):
        op = names.C_NAMES.get(fn.__name__, fn.__name__)
    else:
        op = names.FUNCTIONAL.get(key, key) if functional else names.C_NAMES.get(key, key)
    if op in _aten() and path not in torch_names.ELSEWHERE and (kind != "python" or functional):
        return f"aten::{_alias(op)}"
    if path == "torch.Tensor" and key in dunders:
        return dunders[key]
    if kind == "op" or (path == "torch.Tensor" and kind in ("data", "metadata") and not attribute):
        # A method in Python that only calls a function of `torch` is a spelling of it.
        twin = path == "torch.Tensor" and classify_torch(getattr(torch, key, None)) == "op" and is_a(fn, types.FunctionType)
        return f"torch.{key}" if twin else f"{path}.{key}"
    return None


@cache
def _table() -> IdentityMap[str]:
    """Returns the table, by identity: distinct C functions may be equal (`torch.mm` and `torch.spmm` share their code)."""
    dunders = dict(_dunders())
    table = IdentityMap(_named())
    for name, op in dunders.items():
        fn = getattr(operator, name, None)
        if fn is not None:
            table[fn] = op
    for fn in (builtins.abs, builtins.pow):
        table[fn] = dunders[f"__{fn.__name__}__"]
    return table
