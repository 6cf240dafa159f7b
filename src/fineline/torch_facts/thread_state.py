"""Saves, compares and restores PyTorch's thread state."""

from __future__ import annotations

import functools
import gc
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import call
from types import MappingProxyType
from typing import Any

import torch
from torch._C._autograd import _saved_tensors_hooks_set_tracing
from torch._guards import _TLS
from torch.autograd import forward_ad
from torch.fx.node import has_side_effect
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from fineline.bytecode.asynchronous import clear_frames_of
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts
from fineline.torch_facts.distributed_tensors import SWITCHES, dispatch_state, set_parallel_losses
from fineline.torch_facts.function_modes import FunctionModesOff

# The deepest nesting of forward-mode gradients in PyTorch, which does not report the current depth.
MOST_LEVELS = 2
_TORCH = os.path.dirname(torch.__file__) + os.sep
_CORE: Any = torch._C
_FUNCTORCH: Any = torch._C._functorch
_AUTOGRAD: Any = torch._C._autograd


def torch_function_state() -> str:
    """Returns which ``__torch_function__`` see operators: ENABLED, SUBCLASSES_DISABLED or ALL_DISABLED."""
    return str(_CORE._get_torch_function_state().name)


def set_torch_function_state(name: str) -> str:
    """Sets which ``__torch_function__`` see operators; returns the name of the state before."""
    before = torch_function_state()
    _CORE._set_torch_function_state(getattr(_CORE._TorchFunctionState, name))
    return before


SETTERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "grad_mode": torch._C._set_grad_enabled,
        "forward_grad_mode": torch._C._set_fwd_grad_enabled,
        "multithreading": torch._C._set_multithreading_enabled,
        "view_replay": torch._C._set_view_replay_enabled,
        "autocast_cpu_dtype": functools.partial(torch.set_autocast_dtype, "cpu"),
        "autocast_cpu": functools.partial(torch.set_autocast_enabled, "cpu"),
        "autocast_cuda_dtype": functools.partial(torch.set_autocast_dtype, "cuda"),
        "autocast_cuda": functools.partial(torch.set_autocast_enabled, "cuda"),
        "autocast_cache": torch.set_autocast_cache_enabled,
        "torch_function_state": set_torch_function_state,
        "sdp_flash": torch._C._set_sdp_use_flash,
        "sdp_mem_efficient": torch._C._set_sdp_use_mem_efficient,
        "sdp_math": torch._C._set_sdp_use_math,
        "sdp_cudnn": torch._C._set_sdp_use_cudnn,
        "sdp_overrideable": torch._C._set_sdp_use_overrideable,
        "sdp_math_reduction": torch._C._set_math_sdp_allow_fp16_bf16_reduction,
        "sdp_order": torch._C._set_sdp_priority_order,
    }
)


KERNELS = frozenset([has_side_effect(set_) for name, set_ in SETTERS.items() if name.startswith("sdp_")])
"""Functions that set which kernels of attention may be chosen. Backends that drop nodes without used results do not drop these."""
RESTORED = KERNELS | {torch._C._set_grad_enabled}
"""Functions that change only state that `restore` restores."""


_FLAGS: tuple[tuple[Callable[[], bool], Callable[[bool], Any]], ...] = (
    (_FUNCTORCH.get_inplace_requires_grad_allowed, _FUNCTORCH.set_inplace_requires_grad_allowed),
    (_FUNCTORCH.get_single_level_autograd_function_allowed, _FUNCTORCH.set_single_level_autograd_function_allowed),
    (_FUNCTORCH._is_vmap_fallback_enabled, _FUNCTORCH._set_vmap_fallback_enabled),
    *SWITCHES,
)
# How many of them, from the first, belong to a thread.
_THREAD_FLAGS = 2
_HOOKS = (_AUTOGRAD._saved_tensors_hooks_get_disabled_error_message, _AUTOGRAD._saved_tensors_hooks_is_enabled)
_ASKING: Mapping[Any, tuple[Any, ...]] = MappingProxyType(
    {
        _AUTOGRAD._saved_tensors_hooks_disable: _HOOKS,
        _AUTOGRAD._saved_tensors_hooks_enable: _HOOKS,
        **{set_: (ask,) for ask, set_ in _FLAGS},
        **{set_: (ask, dispatch_state) for ask, set_ in SWITCHES},
    }
)
SHARED = KERNELS | {set_parallel_losses}
"""Functions that set the state of all threads."""
_BLOCK_SETTERS = frozenset({"_enter_dual_level", "_exit_dual_level", "_jvp_increment_nesting", "_jvp_decrement_nesting", "_set_vmap_fallback_enabled"})
OF_PROCESS = frozenset(
    {
        "default_dtype", "deterministic", "deterministic_warn_only", "deterministic_fill", "sdp_flash", "sdp_mem_efficient", "sdp_math", "sdp_cudnn",
        "sdp_overrideable", "sdp_math_reduction", "sdp_order", "cudnn", "mkldnn", "threads", "matmul_precision_cuda", "matmul_precision_cpu",
    }
)  # fmt: skip
"""The facts that all threads share. A thread of fineline's own must not set them, because user code runs at the same time."""


def answers_before(fn: Callable, known: dict[Any, Any]) -> None:
    """Notes the state that ``fn`` is about to change, by its query functions, if no guard covers it: guards hold at a program's start."""
    for ask in _ASKING.get(fn, ()):
        known.setdefault(ask, ask())


def sets_shared_state(fn: Callable) -> bool:
    """Returns whether ``fn`` sets a state that other threads see, if only until a block of code ends. Wrappers in Python have the names of C's functions."""
    return fn in SHARED or getattr(fn, "__name__", "") in _BLOCK_SETTERS or any([fn is set_ for _, set_ in SWITCHES])


def changed(known: dict[Any, Any]) -> list[tuple[Callable[[Any], Any], Any, Any]]:
    """Returns the noted states that have changed: the function that sets each, its former value, and its value now."""
    pairs: list[tuple[Any, Callable[[Any], Any]]] = [(_HOOKS[0], set_hooks_message), *_FLAGS]
    return [(set_, known[ask], ask()) for ask, set_ in pairs if ask in known and ask() != known[ask]]


def set_hooks_message(message: str | None) -> None:
    """Sets the reason why hooks on saved tensors are disabled; None enables them."""
    if message is None:
        _AUTOGRAD._saved_tensors_hooks_enable()
    else:
        _AUTOGRAD._saved_tensors_hooks_disable(message)


def differing(a: AmbientFacts, b: AmbientFacts) -> list[tuple[str, Callable[[Any], Any]]]:
    """Returns the names of the facts that differ, each with the function that sets the state."""
    return [(name, set_) for name, set_ in SETTERS.items() if getattr(a, name) != getattr(b, name)]


def restore(before: AmbientFacts) -> None:
    """Restores an earlier state of the thread."""
    now = AMBIENT.now()
    if len(now.functorch_levels) > len(before.functorch_levels):
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(len(before.functorch_levels))
    # The user's modes see some of these functions.
    with FunctionModesOff():
        for name, set_ in differing(now, before):
            set_(getattr(before, name))


def autocast_depth() -> int:
    """Returns PyTorch's count of nested autocast blocks: when the last one ends, PyTorch drops the weights that it has cast."""
    # In one call into C, because an exception from outside between the two would leave the count changed.
    return tuple(map(call, (torch.autocast_increment_nesting, torch.autocast_decrement_nesting)))[1]


def set_autocast_depth(depth: int) -> None:
    for _ in range(autocast_depth(), depth):
        torch.autocast_increment_nesting()
    for _ in range(depth, autocast_depth()):
        torch.autocast_decrement_nesting()


def hidden_states() -> tuple[Any, ...]:
    """Returns the states that are guarded only if code reads them; transforms of torch.func and autocast blocks change and restore them."""
    return _HOOKS[0](), [ask() for ask, _ in _FLAGS], autocast_depth()


def put_back_hidden(states: tuple[Any, ...]) -> None:
    disabled, flags, depth = states
    set_autocast_depth(depth)
    if disabled != _HOOKS[0]():
        set_hooks_message(disabled)
    for (_, set_), flag in zip(_FLAGS, flags, strict=True):
        set_(flag)


def state_is_plain() -> bool:
    """Returns whether this thread is in no mode, transform or hook of PyTorch's, in which no other thread can be as well."""
    facts = AMBIENT.now()
    return not (_get_current_function_mode_stack() or facts.torch_dispatch_modes or facts.functorch_levels or facts.dual_level or facts.saved_tensor_hooks)


def shared_flags(states: tuple[Any, ...]) -> list[bool]:
    """Returns those of the hidden states that all threads share: whether vmap may fall back, and the switches of a `DTensor`."""
    flags: list[bool] = states[1][_THREAD_FLAGS:]
    return flags


def put_back_in_thread(states: tuple[Any, ...]) -> None:
    """Restores the hidden states of this thread alone."""
    message, flags, depth = states
    put_back_hidden((message, flags[:_THREAD_FLAGS] + shared_flags(hidden_states()), depth))


def end_guards(error: BaseException) -> None:
    """Ends the guards of C++ in the variables of PyTorch's functions that ``error`` has passed, which end only with its traceback otherwise.

    By then transforms may have ended, and the guard would put back dispatch keys that belong to them: `torch.Tensor.__repr__` has such a guard.
    """
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()):
        clear_frames_of(error, (_TORCH,))


def leave_dual_levels(level: int) -> None:
    """Ends the levels of forward-mode gradients that PyTorch's Python side no longer counts, from ``level``, the innermost, outwards."""
    for n in range(level, forward_ad._current_level, -1):
        torch._C._exit_dual_level(level=n)


class Standing:
    """PyTorch's thread state at the start of a graph, for a graph that fails inside a block. ``facts``: the state that was guarded."""

    __slots__ = ("facts", "hidden", "level")

    def __init__(self, facts: AmbientFacts) -> None:
        self.facts, self.hidden, self.level = facts, hidden_states(), forward_ad._current_level

    def put_back(self) -> None:
        for level in range(self.level + MOST_LEVELS, self.level, -1):
            with suppress(RuntimeError):
                torch._C._exit_dual_level(level=level)
        restore(self.facts)
        put_back_hidden(self.hidden)


class CallState(Standing):
    """The thread's state at the start of a call that may be left at any moment, in the middle of PyTorch's tracers.

    The tracers change state that no program changes, and an exception from outside may keep them from restoring it.
    """

    __slots__ = ("anomaly", "dispatch_modes", "filters", "function_modes", "lifts", "quiet", "threshold", "tracing", "unhooked")

    def __init__(self) -> None:
        super().__init__(AMBIENT.now())
        self.function_modes, self.dispatch_modes = _get_current_function_mode_stack(), _get_current_dispatch_mode_stack()
        self.anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        self.filters, self.threshold, self.quiet = warnings.filters, gc.get_threshold(), _FAKE_LOG.disabled
        self.tracing = getattr(_TLS, "tracing_context", None)
        self.lifts = torch._C._only_lift_cpu_tensors()
        self.unhooked = _saved_tensors_hooks_set_tracing(False)
        _saved_tensors_hooks_set_tracing(self.unhooked)

    def put_back(self) -> None:
        while torch._C._len_torch_dispatch_stack() and not _same(_get_current_dispatch_mode_stack(), self.dispatch_modes):
            torch._C._pop_torch_dispatch_stack(None)
        for mode in self.dispatch_modes[torch._C._len_torch_dispatch_stack() :]:
            torch._C._push_on_torch_dispatch_stack(mode)
        _note_dispatch_modes(self.dispatch_modes)
        while torch._C._len_torch_function_stack() and not _same(_get_current_function_mode_stack(), self.function_modes):
            _pop_mode()
        for mode in self.function_modes[torch._C._len_torch_function_stack() :]:
            _push_mode(mode)
        torch.set_anomaly_enabled(*self.anomaly)
        warnings.filters, _FAKE_LOG.disabled = self.filters, self.quiet
        gc.set_threshold(*self.threshold)
        _TLS.tracing_context = self.tracing
        torch._C._set_only_lift_cpu_tensors(self.lifts)
        _saved_tensors_hooks_set_tracing(self.unhooked)
        super().put_back()


def _note_dispatch_modes(modes: list[TorchDispatchMode]) -> None:
    """Puts right what PyTorch notes beside its stack of modes: a mode whose `__exit__` did not run to its end leaves it.

    Read from the modes, not saved before the call: these notes are for all threads, and another thread may have been inside of a mode then.
    """
    seen_inside = any([not mode.ignore_compile_internals() for mode in modes])
    _python_dispatch._is_in_torch_dispatch_mode = bool(modes)
    _python_dispatch._is_in_non_infra_torch_dispatch_mode = any([not mode.is_infra_mode() for mode in modes])
    _python_dispatch._is_in_any_mode_without_ignore_compile_internals = seen_inside
    _python_dispatch.set_is_in_mode_without_ignore_compile_internals(seen_inside)


def _same(a: list, b: list) -> bool:
    return list(map(id, a)) == list(map(id, b))


_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")
