"""PyTorch's thread state, taken back to what it was."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx.node import has_side_effect

from fineline.guards.facts import AmbientFacts, ambient_facts

# PyTorch has no deeper nesting of forward-mode gradients, and does not say how deep it is.
MOST_LEVELS = 2

SETTERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "grad_mode": torch._C._set_grad_enabled,
        "autocast_cpu_dtype": functools.partial(torch.set_autocast_dtype, "cpu"),
        "autocast_cpu": functools.partial(torch.set_autocast_enabled, "cpu"),
        "autocast_cuda_dtype": functools.partial(torch.set_autocast_dtype, "cuda"),
        "autocast_cuda": functools.partial(torch.set_autocast_enabled, "cuda"),
        "autocast_cache": torch.set_autocast_cache_enabled,
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
"""Functions that say which kernels of attention may be chosen. Backends that drop nodes whose results nobody uses leave these alone, too."""
RESTORED = KERNELS | {torch._C._set_grad_enabled}
"""Functions that change nothing but state that `restore` takes back."""


def differing(a: AmbientFacts, b: AmbientFacts) -> list[tuple[str, Callable[[Any], Any]]]:
    """What of the state is not the same, by name, each with what sets it."""
    return [(name, set_) for name, set_ in SETTERS.items() if getattr(a, name) != getattr(b, name)]


def restore(before: AmbientFacts) -> None:
    """Takes the thread back to an earlier state."""
    now = ambient_facts()
    if len(now.functorch_levels) > len(before.functorch_levels):
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(len(before.functorch_levels))
    for name, set_ in differing(now, before):
        set_(getattr(before, name))


def autocast_depth() -> int:
    """In how many blocks of autocast PyTorch counts itself: where the last one ends, it forgets the weights that it has cast."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def set_autocast_depth(depth: int) -> None:
    for _ in range(autocast_depth(), depth):
        torch.autocast_increment_nesting()
    for _ in range(depth, autocast_depth()):
        torch.autocast_decrement_nesting()


def hidden_states() -> tuple[Any, ...]:
    """What no guard is on unless it is asked for: transforms of torch.func, and blocks of autocast, change it, and change it back."""
    autograd = torch._C._autograd
    disabled = autograd._saved_tensors_hooks_get_disabled_error_message()
    return disabled, torch._C._functorch.get_inplace_requires_grad_allowed(), autocast_depth()


def put_back_hidden(states: tuple[Any, ...]) -> None:
    disabled, in_place, depth = states
    set_autocast_depth(depth)
    autograd = torch._C._autograd
    if disabled != autograd._saved_tensors_hooks_get_disabled_error_message():
        autograd._saved_tensors_hooks_disable(disabled) if disabled is not None else autograd._saved_tensors_hooks_enable()
    torch._C._functorch.set_inplace_requires_grad_allowed(in_place)


def leave_dual_levels(level: int) -> None:
    """Ends the levels of forward-mode gradients, of which the innermost is ``level``, that PyTorch's Python side no longer knows of."""
    for n in range(level, forward_ad._current_level, -1):
        torch._C._exit_dual_level(level=n)


class Standing:
    """PyTorch's thread state where a graph begins, for when that fails inside of a block; ``facts``: what the guards have found of it."""

    __slots__ = ("facts", "hidden", "level")

    def __init__(self, facts: AmbientFacts) -> None:
        self.facts, self.hidden, self.level = facts, hidden_states(), forward_ad._current_level

    def put_back(self) -> None:
        for level in range(self.level + MOST_LEVELS, self.level, -1):
            with suppress(RuntimeError):
                torch._C._exit_dual_level(level=level)
        restore(self.facts)
        put_back_hidden(self.hidden)
