"""Calls a backend without side effects on the program that is being captured, and raises its failures as `BackendFailed`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import MethodType

import torch
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._device import DeviceContext

from fineline.backends.aot_refusal import aot_refused, kept_from_aot
from fineline.backends.eager import opened
from fineline.backends.lock import without_collections
from fineline.backends.registry import Backend
from fineline.errors import BackendFailed


def compile_graph(backend: Backend, gm: GraphModule, example_inputs: Sequence[object], where: str | None = None) -> Callable:
    """Returns the callable that runs ``gm``. Call this in the state (grad mode, autocast, …) in which the graph begins."""
    # The backend "eager" draws no numbers. After others the random state is restored, which undoes draws of other threads too.
    with nullcontext() if backend.name == "eager" and backend.builtin else undisturbed():
        return call_backend(backend, gm, example_inputs, where)


def call_backend(backend: Backend, gm: GraphModule, example_inputs: Sequence[object], where: str | None) -> Callable:
    """Returns the callable that the backend makes of ``gm``; raises `BackendFailed` if it makes none."""
    beyond_aot: str = getattr(gm, "beyond_aot", "")
    try:
        with aot_refused(beyond_aot):
            compiled = backend(gm, example_inputs)
    except BackendFailed:
        raise
    except Exception as error:
        raise BackendFailed(f"{backend.name!r} raised {type(error).__name__}: {error}", where=where) from error
    if not callable(compiled):
        raise BackendFailed(f"{backend.name!r} returned {_described(compiled)}", id="FL302", where=where)
    own = compiled is gm or (type(compiled) is MethodType and compiled.__self__ is gm and compiled.__name__.endswith("forward"))
    # A backend that returns the graph itself wants it run operator by operator, its sub-graphs too.
    plain = opened(gm) if own else gm
    return kept_from_aot(compiled, gm, beyond_aot) if plain is gm else plain.forward


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restores random state and grad mode after the block, and hides the block from user function modes."""
    python_state = random.getstate()
    with without_collections():
        cpu_state = torch.default_generator.get_state()
        cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    grad_mode = torch.is_grad_enabled()
    with _without_function_modes():
        try:
            yield
        finally:
            random.setstate(python_state)
            torch.default_generator.set_state(cpu_state)
            if cuda_states:
                torch.cuda.set_rng_state_all(cuda_states)
            torch._C._set_grad_enabled(grad_mode)


@contextmanager
def _without_function_modes() -> Iterator[None]:
    # Keep the default device, which is a function mode too: the graph's factory functions depend on it.
    modes = _get_current_function_mode_stack()
    kept = [mode for mode in modes if isinstance(mode, DeviceContext)]
    if len(kept) == len(modes):
        yield
        return
    _replace_modes(kept)
    try:
        yield
    finally:
        _replace_modes(modes)


def _replace_modes(modes: Sequence[TorchFunctionMode]) -> None:
    for _ in _get_current_function_mode_stack():
        _pop_mode()
    for mode in modes:
        _push_mode(mode)


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
