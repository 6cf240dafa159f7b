"""The facts that a compiled program assumes about a tensor, and about the process and thread around a call.

Both functions return a named tuple, so a guard compares with ``==`` and a failure can name the position that differs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from fineline.guards.policy_epoch import RULEBOOK
from fineline.kinds import is_a
from fineline.report.misses import Change

P = ParamSpec("P")
R = TypeVar("R")

_STORAGE: Callable = torch._C.TensorBase.untyped_storage


def unseen(read: Callable[P, R]) -> Callable[P, R]:
    """Returns ``read`` so that no mode and no class of the user's sees what it reads of tensors: to them, only the user's code calls operators."""

    @functools.wraps(read)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch._C.DisableTorchFunction():
            return read(*args, **kwargs)

    return run


class TensorFacts(NamedTuple):
    """Everything a backend specialises on, and nothing that costs more than a field read.

    In a guard, None among the sizes and strides means any value.
    """

    cls: type | None  # in a guard, None if other guards check the class
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    requires_grad: bool
    dispatch_keys: int
    is_inference: bool


class AmbientFacts(NamedTuple):
    """State that operators read without being passed it. Key sets are the raw 64 bits."""

    grad_mode: bool
    inference_mode: bool
    forward_grad_mode: bool
    multithreading: bool
    view_replay: bool
    autocast_cpu: bool
    autocast_cpu_dtype: torch.dtype
    autocast_cuda: bool
    autocast_cuda_dtype: torch.dtype
    autocast_cache: bool
    default_dtype: torch.dtype
    default_device: torch.device | str
    deterministic: bool
    deterministic_warn_only: bool
    deterministic_fill: bool
    sdp_flash: bool
    sdp_mem_efficient: bool
    sdp_math: bool
    sdp_cudnn: bool
    sdp_overrideable: bool
    sdp_math_reduction: bool
    sdp_order: tuple[int, ...]
    cudnn: bool
    mkldnn: bool
    threads: int
    matmul_precision_cuda: str
    matmul_precision_cpu: str
    torch_function_state: str
    torch_function_modes: tuple[type, ...]
    torch_dispatch_modes: tuple[type, ...]
    functorch_levels: tuple[str, ...]
    dual_level: bool
    saved_tensor_hooks: bool
    dispatch_include: int
    dispatch_exclude: int
    rules_of_process: int
    rules_of_thread: int


TENSOR_NAMES = TensorFacts._fields


def tensor_facts(t: torch.Tensor) -> TensorFacts:
    """Returns the facts of ``t``, read without ``__torch_function__`` and without overrides of a subclass."""
    base: Any = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        layout = base.layout.__get__(t)
        if layout is not torch.strided:
            # Those of a tensor with a ragged dimension follow from its inner tensors.
            sizes, strides = (None,) * base.dim(t) if layout is torch.jagged else tuple(base.size(t)), None
        else:
            sizes, strides = _nested(t) if base.is_nested.__get__(t) else (tuple(base.size(t)), tuple(base.stride(t)))
        return TensorFacts(
            type(t),
            base.dtype.__get__(t),
            base.device.__get__(t),
            layout,
            sizes,
            strides,
            base.requires_grad.__get__(t),
            torch._C._dispatch_keys(t).raw_repr(),
            base.is_inference(t),
        )


def _nested(t: torch.Tensor) -> tuple[tuple, tuple]:
    """Returns the sizes of the tensors in a nested tensor, and their strides and offsets."""
    # Hides these operators from user modes.
    with torch._C._DisableTorchDispatch():
        parts = (t._nested_tensor_size(), t._nested_tensor_strides(), t._nested_tensor_storage_offsets())
    sizes, strides, offsets = [tuple([tuple(row) if type(row) is list else row for row in part.tolist()]) for part in parts]
    return sizes, (*strides, offsets)


def tensor_number(t: torch.Tensor, kind: str, index: int) -> int:
    """Returns the size or stride at ``index``, or the storage offset, of ``t``, read in the same way as its facts."""
    base: Any = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        if kind == "offset":
            return base.storage_offset(t)
        return (base.size(t) if kind == "size" else base.stride(t))[index]


def ambient_facts() -> AmbientFacts:
    """Returns the facts of the calling thread and the process."""
    core: Any = torch._C
    functions = [core._get_function_stack_at(i) for i in range(core._len_torch_function_stack())]
    dispatches = [core._get_dispatch_stack_at(i) for i in range(core._len_torch_dispatch_stack())]
    levels = core._functorch.get_interpreter_stack() if core._functorch.get_dynamic_layer_stack_depth() else None
    devices = [mode.device for mode in functions if is_a(mode, DeviceContext)]
    return AmbientFacts(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        core._is_fwd_grad_enabled(),
        core._is_multithreading_enabled(),
        core._is_view_replay_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        devices[-1] if devices else core._get_default_device(),
        core._get_deterministic_algorithms(),
        core._get_deterministic_algorithms_warn_only(),
        core._get_deterministic_fill_uninitialized_memory(),
        core._get_flash_sdp_enabled(),
        core._get_mem_efficient_sdp_enabled(),
        core._get_math_sdp_enabled(),
        core._get_cudnn_sdp_enabled(),
        core._get_overrideable_sdp_enabled(),
        core._get_math_sdp_allow_fp16_bf16_reduction(),
        tuple(core._get_sdp_priority_order()),
        core._get_cudnn_enabled(),
        core._get_mkldnn_enabled(),
        torch.get_num_threads(),
        core._get_fp32_precision_getter("cuda", "matmul"),
        core._get_fp32_precision_getter("mkldnn", "matmul"),
        core._get_torch_function_state().name,
        tuple([type(mode) for mode in functions]),
        tuple([type(mode) for mode in dispatches]),
        tuple([f"{level.key().name}:{level.level()}" for level in levels or ()]),
        forward_ad._current_level >= 0,
        core._autograd._top_saved_tensors_default_hooks(True) is not None,
        core._dispatch_tls_local_include_set().raw_repr(),
        core._dispatch_tls_local_exclude_set().raw_repr(),
        *RULEBOOK.facts(),
    )


def class_name(facts: TensorFacts) -> str:
    """Returns the name of the class in a guard's facts."""
    return "tensor" if facts.cls is None else facts.cls.__name__


def tensor_agrees(expected: TensorFacts, found: TensorFacts) -> bool:
    """Returns whether a tensor with the facts ``found`` passes a guard on the facts ``expected``."""
    return expected == found or all(map(_agrees, TENSOR_NAMES, expected, found))


def _agrees(name: str, expected: Any, found: Any) -> bool:
    if name in ("sizes", "strides") and expected is not None and found is not None and len(expected) == len(found):
        return all([a is None or a == b for a, b in zip(expected, found, strict=True)])
    return bool(expected == found) or (name == "cls" and expected is None)


def describe_difference(old: tuple, new: tuple) -> tuple[Change, ...]:
    """Returns the changes at the positions at which two facts differ, e.g. ``sizes (2, 3) -> (4, 3)``."""
    names: tuple[str, ...] = getattr(type(old), "_fields", None) or tuple(f"[{i}]" for i in range(len(old)))
    if len(old) != len(new):
        return (Change("", f"{len(old)} facts", f"{len(new)} facts"),)
    differing = [(name, a, b) for name, a, b in zip(names, old, new, strict=True) if not _agrees(name, a, b)]
    # A tensor's other facts determine most of its dispatch keys.
    shown = [part for part in differing if part[0] != "dispatch_keys"] or differing
    return tuple([Change(_IN_WORDS.get(name, name), _text(name, a), _text(name, b)) for name, a, b in shown])


# The names of facts in messages, where they are not those of the fields.
_IN_WORDS = MappingProxyType({"cls": "class", "dispatch_keys": "dispatch keys", "dispatch_include": "dispatch keys", "dispatch_exclude": "dispatch keys"})


def _text(name: str, value: Any) -> str:
    """Returns the text of a fact for messages: key sets and classes by their names."""
    if name.startswith("dispatch"):
        return str(torch._C.DispatchKeySet.from_raw_repr(value)).removeprefix("DispatchKeySet")
    if is_a(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return sizes_text(value) if name in ("sizes", "strides") and value is not None else repr(value)


def without_sizes(facts: TensorFacts) -> TensorFacts:
    """Returns the facts of a tensor with the same number of dimensions, of any sizes and strides."""
    unknown = (None,) * len(facts.sizes)
    return facts._replace(sizes=unknown, strides=None if facts.strides is None else unknown)


def sizes_text(sizes: tuple[int | None, ...]) -> str:
    """Formats sizes like a tuple, with a question mark for any size."""
    texts = ["?" if size is None else str(size) for size in sizes]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def has_tangent(t: torch.Tensor) -> bool:
    """Returns whether ``t`` has a tangent at the current level of forward-mode gradients."""
    if forward_ad._current_level < 0 or torch._C._functorch.is_functorch_wrapped_tensor(t):
        return False
    # Hides this operator from user modes.
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return torch._VF._unpack_dual(t, level=forward_ad._current_level)[1] is not None


def storage_of(value: object) -> int:
    """Returns the address of a tensor's storage; 0 for a number, and for tensors without one: sparse ones and some wrappers."""
    with torch._C.DisableTorchFunction():
        try:
            return int(_STORAGE(value)._cdata)
        except (TypeError, NotImplementedError, RuntimeError):
            return 0
