"""PyTorch's thread state at a segment's start and end: compiled in the one, left in the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch

from fineline.guards.facts import AmbientFacts
from fineline.policy.scopes import SCOPE

SETTERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "grad_mode": torch._C._set_grad_enabled,
        "autocast_cpu_dtype": functools.partial(torch.set_autocast_dtype, "cpu"),
        "autocast_cpu": functools.partial(torch.set_autocast_enabled, "cpu"),
        "autocast_cuda_dtype": functools.partial(torch.set_autocast_dtype, "cuda"),
        "autocast_cuda": functools.partial(torch.set_autocast_enabled, "cuda"),
        "autocast_cache": torch.set_autocast_cache_enabled,
    }
)


def restore_lines(before: AmbientFacts, after: AmbientFacts, rebuild: Any) -> list[str]:
    """Statements that put the state where the captured code left it; a compiled graph may not have."""
    lines = [f"{rebuild.constant(set_, f'set_{name}')}({rebuild.expr(getattr(after, name))})" for name, set_ in _differing(before, after)]
    if before.rules_of_thread != after.rules_of_thread:
        blocks = rebuild.constant(SCOPE.blocks, "blocks")
        lines.append(f"{rebuild.constant(SCOPE.set_blocks, 'set_blocks')}({blocks})")
    return lines


def _differing(a: AmbientFacts, b: AmbientFacts) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, set_) for name, set_ in SETTERS.items() if getattr(a, name) != getattr(b, name)]


def restore(before: AmbientFacts, now: AmbientFacts) -> None:
    """Takes the thread back to an earlier state."""
    if len(now.functorch_levels) > len(before.functorch_levels):
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(len(before.functorch_levels))
    for name, set_ in _differing(now, before):
        set_(getattr(before, name))


@contextmanager
def in_state(start: AmbientFacts, now: AmbientFacts) -> Iterator[None]:
    """A backend traces under the state in which its graph begins, which the capture has left behind."""
    changed = _differing(start, now)
    for name, set_ in changed:
        set_(getattr(start, name))
    inference = nullcontext() if start.inference_mode == now.inference_mode else torch.inference_mode(start.inference_mode)
    try:
        with inference:
            yield
    finally:
        for name, set_ in changed:
            set_(getattr(now, name))
