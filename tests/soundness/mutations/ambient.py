"""Guard mutations of PyTorch's ambient state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.soundness.mutations.cases import Cases, X, attr, attr_name, setting

CASES = Cases()
case = CASES.add


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 2 if "mul" in str(func) else func(*args, **(kwargs or {}))


class FunctionMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.full_like(args[0], 7.0) if func is torch.relu else func(*args, **(kwargs or {}))


def weighted() -> Tensor:
    return torch.ones(3, requires_grad=True)


for _name, _read, _change in [
    ("grad_mode", lambda x, w: x * w, lambda: torch.no_grad()),
    ("grad_mode_read", lambda x, w: x * (2 if torch.is_grad_enabled() else 3), lambda: torch.no_grad()),
    ("inference_mode", lambda x, w: x * w, lambda: torch.inference_mode()),
    ("autocast", lambda x, w: x @ w, lambda: torch.autocast("cpu", torch.bfloat16)),
    ("autocast_read", lambda x, w: x * (2 if torch.is_autocast_enabled("cpu") else 3), lambda: torch.autocast("cpu", torch.bfloat16)),
    ("default_dtype", lambda x, w: x + torch.ones(3), lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("default_dtype_read", lambda x, w: x.to(torch.get_default_dtype()),
     lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("default_device", lambda x, w: torch.ones(3), lambda: setting(torch.set_default_device, "meta", None)),
    ("device_context", lambda x, w: torch.ones(3), lambda: torch.device("meta")),
    ("deterministic", lambda x, w: x * (2 if torch.are_deterministic_algorithms_enabled() else 3),
     lambda: setting(torch.use_deterministic_algorithms, True, False)),
    ("threads", lambda x, w: x * torch.get_num_threads(), lambda: setting(torch.set_num_threads, 2, torch.get_num_threads())),
    ("matmul_precision", lambda x, w: x * len(torch.get_float32_matmul_precision()), lambda: precision("medium")),
    ("function_mode", lambda x, w: torch.relu(x), lambda: FunctionMode()),
    ("dispatch_mode", lambda x, w: x * 2, lambda: Mode()),
    ("anomaly_read", lambda x, w: x * (2 if torch.is_anomaly_enabled() else 3),
     lambda: setting(torch.autograd.set_detect_anomaly, True, False)),
    ("flash_sdp_read", lambda x, w: x * (2 if torch.backends.cuda.flash_sdp_enabled() else 3),
     lambda: setting(torch.backends.cuda.enable_flash_sdp, False, True)),
    ("warn_always_read", lambda x, w: x * (2 if torch.is_warn_always_enabled() else 3),
     lambda: setting(torch.set_warn_always, True, False)),
    ("mkldnn_flag", lambda x, w: x * (2 if torch.backends.mkldnn.enabled else 3), lambda: torch.backends.mkldnn.flags(enabled=False)),
    ("cudnn_benchmark_flag", lambda x, w: x * (2 if torch.backends.cudnn.benchmark else 3),
     # Not through the flag's own name: PyTorch's test library, once loaded, forbids that in the whole process.
     lambda: setting(torch._C._set_cudnn_benchmark, True, False)),
    ("saved_tensor_hooks", lambda x, w: (x * w).exp(), lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t)),
]:
    def _ambient_case(read=_read, change=_change):
        w = weighted()
        return (lambda x: read(x, w)), (X,), change()

    CASES[_name] = _ambient_case


def precision(value: str) -> Any:
    """Once set, even to what it was, the precision is another one than the one never set."""
    torch.set_float32_matmul_precision("highest")
    return setting(torch.set_float32_matmul_precision, value, "highest")


@case
def autocast_dtype():
    s = SimpleNamespace(dtype=torch.bfloat16)
    w = torch.ones(3)

    def around():
        return torch.autocast("cpu", s.dtype)

    fn = lambda x: x @ w  # noqa: E731
    fn_around[fn] = around
    return fn, (X,), attr(s, "dtype", torch.float16)


fn_around: dict[Any, Any] = {}


def dual(x: Any) -> Any:
    return x * (2 if torch.autograd.forward_ad._current_level >= 0 else 3)


_backends = torch.backends
for _name, _read, _change in [
    ("inference_mode_read", lambda x: x * (2 if torch.is_inference_mode_enabled() else 3), lambda: torch.inference_mode()),
    ("inference_result_read", lambda x: (x * 2).is_inference(), lambda: torch.inference_mode()),
    ("default_device_read", lambda x: x * len(torch.get_default_device().type), lambda: setting(torch.set_default_device, "meta", None)),
    ("autocast_dtype_read", lambda x: x * len(str(torch.get_autocast_dtype("cpu"))), lambda: torch.autocast("cpu", torch.float16)),
    ("autocast_cache_read", lambda x: x * (2 if torch.is_autocast_cache_enabled() else 3),
     lambda: setting(torch.set_autocast_cache_enabled, False, True)),
    ("deterministic_warnings_read", lambda x: x * (2 if torch.is_deterministic_algorithms_warn_only_enabled() else 3),
     lambda: deterministic_warnings()),
    ("deterministic_debug_mode_read", lambda x: x * (1 + torch.get_deterministic_debug_mode()),
     lambda: setting(torch.use_deterministic_algorithms, True, False)),
    ("filled_memory_read", lambda x: x * (2 if torch.utils.deterministic.fill_uninitialized_memory else 3),
     lambda: attr_name(torch.utils.deterministic, "fill_uninitialized_memory", False)),
    ("anomaly_check_read", lambda x: x * (2 if torch.is_anomaly_check_nan_enabled() else 3),
     lambda: entered(lambda: torch.autograd.set_detect_anomaly(True, check_nan=False))),
    ("multithreading_read", lambda x: x * (2 if torch._C._is_multithreading_enabled() else 3),
     lambda: entered(lambda: torch.autograd.set_multithreading_enabled(False))),
    ("view_replay_read", lambda x: x * (2 if torch._C._is_view_replay_enabled() else 3),
     lambda: entered(lambda: torch.autograd._force_original_view_tracking(True))),
    ("mem_efficient_sdp_read", lambda x: x * (2 if _backends.cuda.mem_efficient_sdp_enabled() else 3),
     lambda: setting(_backends.cuda.enable_mem_efficient_sdp, False, True)),
    ("math_sdp_read", lambda x: x * (2 if _backends.cuda.math_sdp_enabled() else 3), lambda: setting(_backends.cuda.enable_math_sdp, False, True)),
    ("fast_path_read", lambda x: x * (2 if _backends.mha.get_fastpath_enabled() else 3), lambda: setting(_backends.mha.set_fastpath_enabled, False, True)),
    ("sparse_checks_read", lambda x: x * (2 if torch.sparse.check_sparse_tensor_invariants.is_enabled() else 3),
     lambda: torch.sparse.check_sparse_tensor_invariants(True)),
    ("module_overwriting_read", lambda x: x * (2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3),
     lambda: setting(torch.__future__.set_overwrite_module_params_on_conversion, True, False)),
    ("default_dtype_of_complex", lambda x: x * torch.complex(torch.ones(1), torch.ones(1)), lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("default_dtype_of_division", lambda x: x.int() / 2, lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("default_dtype_of_tensor", lambda x: torch.tensor([1.5]) + x.int(), lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("grad_mode_of_results", lambda x: (x.clone().requires_grad_() * 2).requires_grad, lambda: torch.no_grad()),
    ("torch_function_enabled", lambda x: x * (2 if torch._C._is_torch_function_enabled() else 3), lambda: torch._C.DisableTorchFunctionSubclass()),
    ("function_mode_of_methods", lambda x: x.relu() * torch.relu(x), lambda: FunctionMode()),
    ("forward_level", lambda x: dual(x), lambda: torch.autograd.forward_ad.dual_level()),
    ("being_traced_read", lambda x: x * (2 if torch.jit.is_tracing() else 3), lambda: attr(torch.jit, "is_tracing", lambda: True)),
    ("exporting_read", lambda x: x * (2 if torch.onnx.is_in_onnx_export() else 3), lambda: attr(torch.onnx, "is_in_onnx_export", lambda: True)),
    ("fill_of_empty", lambda x: torch.empty(3).fill_(1).dtype.itemsize * x, lambda: setting(torch.set_default_dtype, torch.float64, torch.float32)),
    ("profiler_read", lambda x: x * (2 if torch.autograd._profiler_enabled() else 3), lambda: torch.autograd.profiler.profile()),
    ("interop_threads_read", lambda x: x * torch.get_num_threads(), lambda: setting(torch.set_num_threads, 3, torch.get_num_threads())),
]:
    CASES[f"state_{_name}"] = lambda read=_read, change=_change: ((lambda x: read(x)), (X,), change())


@contextlib.contextmanager
def entered(make: Any) -> Iterator[None]:
    """These act as soon as they are made."""
    with make():
        yield


@contextlib.contextmanager
def deterministic_warnings() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
