"""Saves, compares and restores PyTorch's random states."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fineline.backends.lock import without_collections

RandomStates = list[tuple[Callable[[Any], Any], list[Tensor]]]


def random_states() -> RandomStates:
    """Returns the states of the generators, each kind with the function that sets it."""
    with without_collections():
        states: RandomStates = [(_set_cpu, [torch.default_generator.get_state()])]
        if torch.cuda.is_initialized():
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return states


def put_back(states: RandomStates) -> None:
    for put, tensors in states:
        put(tensors)


def unmoved(states: RandomStates) -> bool:
    """Returns whether no random number has been drawn since. Compares the bytes without PyTorch's operators, which a mode would see."""
    return are_equal(states, random_states())


def are_equal(a: RandomStates, b: RandomStates) -> bool:
    return [_bytes(tensors) for _, tensors in a] == [_bytes(tensors) for _, tensors in b]


def _set_cpu(tensors: list[Tensor]) -> None:
    torch.default_generator.set_state(tensors[0])


def _bytes(tensors: list[Tensor]) -> list[bytes]:
    return [ctypes.string_at(t.data_ptr(), t.numel()) for t in tensors]
