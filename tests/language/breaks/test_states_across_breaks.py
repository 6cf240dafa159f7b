"""Blocks that change a state of PyTorch's, cut by graph breaks: what code reads of the state, and that no call captures what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad, graph

import fineline
from tests.oracle import Program, Step, check

CORE: Any = torch._C
FUNCTORCH: Any = torch._C._functorch


@contextmanager
def setting(ask: Callable[[], Any], set_: Callable[[Any], Any], value: Any) -> Iterator[None]:
    old = ask()
    set_(value)
    try:
        yield
    finally:
        set_(old)


# What enters a block, and what reads the state.
STATES: dict[str, tuple[Callable[[], AbstractContextManager], Callable[[], Any]]] = {
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), lambda: (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))),
    "autocast without its cache": (lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False), torch.is_autocast_cache_enabled),
    "multithreading": (lambda: torch.autograd.set_multithreading_enabled(False), CORE._is_multithreading_enabled),
    "forward gradients": (lambda: forward_ad._set_fwd_grad_enabled(False), CORE._is_fwd_grad_enabled),
    "view tracking": (lambda: torch.autograd._force_original_view_tracking(True), CORE._is_view_replay_enabled),
    "hooks on saved tensors": (
        lambda: graph.disable_saved_tensors_hooks("none here"),
        lambda: (CORE._autograd._saved_tensors_hooks_get_disabled_error_message(), CORE._autograd._saved_tensors_hooks_is_enabled()),
    ),
    "requires_grad_": (
        lambda: setting(FUNCTORCH.get_inplace_requires_grad_allowed, FUNCTORCH.set_inplace_requires_grad_allowed, True),
        FUNCTORCH.get_inplace_requires_grad_allowed,
    ),
    "single levels": (
        lambda: setting(FUNCTORCH.get_single_level_autograd_function_allowed, FUNCTORCH.set_single_level_autograd_function_allowed, True),
        FUNCTORCH.get_single_level_autograd_function_allowed,
    ),
    "fallback of vmap": (
        lambda: setting(FUNCTORCH._is_vmap_fallback_enabled, FUNCTORCH._set_vmap_fallback_enabled, False),
        FUNCTORCH._is_vmap_fallback_enabled,
    ),
    "no_grad": (torch.no_grad, torch.is_grad_enabled),
    "kernels of attention": (lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), CORE._get_flash_sdp_enabled),
    "dual level": (forward_ad.dual_level, lambda: forward_ad._current_level),
}
PLACES: dict[str, Callable[[Any, Callable[[], Any]], Callable[..., Any]]] = {}


def place(make: Callable[[Any, Callable[[], Any]], Callable[..., Any]]) -> None:
    PLACES[make.__name__] = make


@place
def once(block: Any, read: Callable[[], Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        with block():
            y = x * 2
            n = y.sum().item()
        return (y.sin() @ y.cos()) * 2, n, read()

    return fn


@place
def twice(block: Any, read: Callable[[], Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        with block():
            y = x.sin() * 2
            n = y.sum().item()
        with block():
            z = y.cos() @ y
            inside = read()
        return z * 2, n, inside, read()

    return fn


@place
def loop(block: Any, read: Callable[[], Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        seen = []
        for _ in range(3):
            with block():
                x = x.sin() * 2
                seen.append(read())
                seen.append(x.sum().item())
            seen.append(read())
        return x + 1, seen

    return fn


@place
def handled(block: Any, read: Callable[[], Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        try:
            with block():
                y = x.sin() * 2
                print(y.sum().item() > 100)
                raise ValueError
        except ValueError:
            return y.cos() * 2, read()

    return fn


@place
def inside(block: Any, read: Callable[[], Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor) -> Any:
        y = x.sin() * 2
        with block():
            n = y.sum().item()
            first = read()
            y = y.cos() * 2
        with block():
            z = y.sin() * 2
            second = read()
        return z, n, first, second, read()

    return fn


@pytest.mark.parametrize("cut", PLACES)
@pytest.mark.parametrize("name", STATES)
def test_block(name: str, cut: str, twin: str) -> None:
    steps = [Step(k, args=lambda _, n=n: (torch.linspace(-1, 1, n),)) for k, n in enumerate((2, 2, 3, 4, 4, 5, 5))]
    fn = PLACES[cut](*STATES[name])
    # For a size that has not been met; nothing is captured for another one.
    check(Program(f"{name}: {cut}", lambda: (fn, None), steps, frozenset({2}), min_graphs=0, breaks=True, backward=False), twin)


def test_few_programs() -> None:
    graphs: list[Any] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                x = (x @ x).float().sin()
                print(x.sum().item(), end="")
        return x.cos() + 1

    compiled = fineline.compile(fn, backend=lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
    x = torch.eye(3)
    expected = fn(x)
    for _ in range(12):
        assert torch.equal(compiled(x), expected)
    assert len(graphs) <= 4
