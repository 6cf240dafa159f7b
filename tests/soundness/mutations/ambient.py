"""Guard mutations of PyTorch's ambient state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.soundness.mutations.cases import (
    Cases,
    X,
    attr,
    setting,
)

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
