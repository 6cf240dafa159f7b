"""Classes of PyTorch callables: one node of the graph, an answer from metadata, a graph break, or code to trace.

  op        one node: tensors in, tensors out
  metadata  a constant that a guard on the tensors' metadata already fixes
  data      the result depends on the numbers in a tensor, or on its address
  state     changes ambient state: a node too, no tensor results
  query     reads ambient state that the ambient guard covers
  effect    has effects that no node represents: the call breaks the graph
  python    Python code of PyTorch to trace (like any Python function that is not listed)
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch._functorch.predispatch
import torch.nn.functional
from torch._ops import OpOverload, OpOverloadPacket

from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.tables import attributes
from fineline.torch_facts import names as names

_C_NAMESPACES: tuple[tuple[Any, Mapping[str, str], str | None], ...] = (
    (torch._C._VariableFunctions, names.FUNCTIONS, "op"),
    (torch._C._nn, names.NN, "op"),
    *((module, {}, "op") for module in attributes(torch._C, names.C_MODULES)),
    (torch._C, names.C_FUNCTIONS, None),
    (torch._C._functorch, names.FUNCTORCH, None),
    (torch._C._autograd, names.AUTOGRAD, None),
)
"""Namespaces of C functions, the exceptions, and the class of the functions that are not named (None: unknown)."""


def _by_name(classes: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for kind, listed in classes.items() for name in listed.split()}


def _c_functions() -> Iterator[tuple[Any, str]]:
    for namespace, classes, default in _C_NAMESPACES:
        kinds = _by_name(classes)
        for name in dir(namespace) if default else kinds:
            value = getattr(namespace, name, None)
            kind = kinds.get(name, default)
            if kind and isinstance(value, types.BuiltinFunctionType) and not name.startswith("__"):
                yield value, kind


def _methods() -> Iterator[tuple[Any, str]]:
    kinds = _by_name(names.METHODS)
    for owner in (torch._C.TensorBase, torch.Tensor):
        for name, value in vars(owner).items():
            if isinstance(value, staticmethod):
                value = value.__func__
            if isinstance(value, _METHOD_TYPES) and name not in _PROTOCOL:
                yield value, kinds.get(name, "op")


_METHOD_TYPES = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType)
_PROTOCOL = frozenset({"__torch_function__", "__torch_dispatch__"})


def _functional() -> Iterator[tuple[Any, str]]:
    python = frozenset(names.FUNCTIONAL_PYTHON.split())
    for name, value in vars(torch.nn.functional).items():
        if isinstance(value, types.FunctionType) and value.__module__ in ("torch.nn.functional", "torch._jit_internal"):
            yield value, "python" if name in python or name.startswith("_") else "op"


def _python_functions() -> Iterator[tuple[Any, str]]:
    kinds = _by_name(names.TORCH_PYTHON)
    for name, value in vars(torch).items():
        if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] == "torch":
            yield value, kinds.get(name, "python")
    # Since 2.15: Python functions around `torch._foreach_*`.
    for module in attributes(torch, "foreach"):
        yield from [(value, "python") for value in attributes(module, " ".join(module.__all__))]
    for owner, classes in names.ELSEWHERE.items():
        for kind, listed in classes.items():
            yield from [(fn, kind) for fn in attributes(owner, listed)]


def _types() -> Iterator[tuple[Any, str]]:
    yield from [(t, "metadata") for t in attributes(torch, names.METADATA_TYPES)]
    yield from [(t, "op") for t in attributes(torch, names.TENSOR_TYPES)]
    for value in vars(torch.Size).values():
        if isinstance(value, _METHOD_TYPES):
            yield value, "metadata"


def _table() -> IdentityMap[str]:
    """Returns the table, by identity: distinct C functions may be equal (`torch.mm` and `torch.spmm` share their code)."""
    parts = (_python_functions(), _functional(), _c_functions(), _methods(), _types())
    return IdentityMap(pair for part in parts for pair in part)


_TABLE = _table()
_OPERATORS: Mapping[str, str] = MappingProxyType(_by_name(names.OPERATORS))

TENSOR_ATTRS: Mapping[str, str] = _by_name(names.ATTRIBUTES)
"""By attribute of a tensor: `metadata`; `op` (the node is `getattr(x, name)`, for `data` `torch._C._autograd._get_data_attr(x)`);
or `source` (state of the tensor: another object, a hook table, a counter)."""

BEYOND_GUARD: frozenset[Callable[..., Any]] = frozenset(
    value
    for owner, listed in (
        (torch.Tensor, "_dimI _dimV _is_view _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides _nnz dense_dim "
         "is_coalesced is_pinned is_set_to is_shared q_per_channel_axis q_scale q_zero_point qscheme sparse_dim storage_offset"),
        (torch, "q_per_channel_axis q_scale q_zero_point _debug_has_internal_overlap"),
    )
    for value in attributes(owner, listed)
)  # fmt: skip
"""Class `metadata`, but a guard on dtype, device, layout, sizes, strides and dispatch keys does not imply the answer: guard that too."""

COVERED_QUERIES: frozenset[Callable[..., Any]] = frozenset(
    value
    for owner, listed in (
        (torch._C, "_get_default_device _get_deterministic_algorithms _get_deterministic_algorithms_warn_only "
         "_get_cudnn_enabled _get_cudnn_sdp_enabled _get_deterministic_fill_uninitialized_memory _get_flash_sdp_enabled "
         "_get_math_sdp_allow_fp16_bf16_reduction _get_math_sdp_enabled _get_mem_efficient_sdp_enabled _get_mkldnn_enabled "
         "_get_overrideable_sdp_enabled _get_sdp_priority_order _get_torch_function_state _get_tracing_state _has_torch_function "
         "_has_torch_function_unary _has_torch_function_variadic _is_autocast_available _is_tracing _is_torch_function_all_disabled "
         "_is_torch_function_enabled _is_torch_function_mode_enabled _len_torch_dispatch_stack _len_torch_function_stack "
         "_is_fwd_grad_enabled _is_multithreading_enabled _is_view_replay_enabled "
         "_log_api_usage_metadata _log_api_usage_once _mps_is_available get_autocast_cpu_dtype get_autocast_gpu_dtype get_default_dtype "
         "get_num_threads is_autocast_cache_enabled is_autocast_cpu_enabled is_grad_enabled is_inference_mode_enabled _cxx_flags"),
        (torch._C._functorch, "get_dynamic_layer_stack_depth get_interpreter_stack maybe_current_level peek_interpreter_stack "
         "current_level"),
        (torch._C._autograd, "kineto_available"),
        (torch, "_running_with_deploy are_deterministic_algorithms_enabled compiled_with_cxx11_abi get_default_device "
         "get_deterministic_debug_mode is_deterministic_algorithms_warn_only_enabled"),
        ("torch._utils", "is_compiling"),
        ("torch.amp.autocast_mode", "is_autocast_available"),
        ("torch.backends.cuda", "is_built"), ("torch.backends.mkl", "is_available"), ("torch.backends.mkldnn", "is_available"),
        ("torch.backends.mps", "is_available is_built"), ("torch.backends.openmp", "is_available"),
        ("torch.backends.cudnn", "is_available version"),
        ("torch.compiler", "is_compiling is_dynamo_compiling is_exporting"), ("torch.distributed", "is_available"),
        ("torch.cpu", "current_device device_count is_available"), ("torch.cuda", "_is_compiled is_available"),
        ("torch.jit", "is_scripting is_tracing"),
    )
    for value in attributes(owner, listed)
)  # fmt: skip
"""Class `query`, and the guard on ambient state covers the answer, or it never changes in a process; other answers get a guard each."""

METADATA_WHEN_BARE: frozenset[Callable[..., Any]] = frozenset({torch.Tensor.type})
"""Class `op`, but `metadata` when called without arguments."""

class CallByReference:
    """A target in a graph that calls a function of PyTorch's by reference. Its class is that of the function.

    FX writes the function itself as a path. That leads to the class of a scripted function, and to a wrapper that somebody has put in the
    place of a function or a method: the code of the wrapper is captured, and would run again.
    """

    __slots__ = ("__name__", "fn")

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn, self.__name__ = fn, fn.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return is_a(other, CallByReference) and self.fn is other.fn

    def __hash__(self) -> int:
        return id(self.fn)


def classify_torch(fn: object) -> str | None:
    """Returns the class of a PyTorch callable (a function, an unbound method, a type, an operator), or None if it is not known."""
    kind = _TABLE.get(fn)
    if kind is None and type(fn) is not types.FunctionType:
        if is_a(fn, CallByReference):
            return classify_torch(fn.fn)
        if is_a(fn, OpOverload):
            return _operator(fn)
        if is_a(fn, OpOverloadPacket):
            return _operator(getattr(fn, fn._overload_names[0]))
    return kind


def listed() -> Iterator[tuple[Callable[..., Any], str]]:
    """Yields all callables of the table, with their class."""
    yield from _TABLE.items()


def _operator(op: OpOverload) -> str | None:
    schema = op._schema
    kind = _OPERATORS.get(schema.name.partition("::")[2])
    if kind is not None:
        return kind
    if not schema.returns or any("Tensor" in str(result.type) for result in schema.returns):
        return "op"
    return None
