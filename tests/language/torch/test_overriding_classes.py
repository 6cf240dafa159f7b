"""Tensors whose classes override operators: their ``__torch_function__`` sees what is read of them, each time and once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.oracle import Program, Step, check, t

READS: dict[str, Any] = {
    "shape": lambda x: x.shape,
    "shape_by_name": lambda x: getattr(x, "shape"),  # noqa: B009
    "dtype": lambda x: x.dtype,
    "dimensions": lambda x: (x.ndim, x.dim()),
    "sizes": lambda x: (x.size(), x.numel(), torch.numel(x)),
    "flags": lambda x: (x.requires_grad, x.is_floating_point(), torch.is_complex(x)),
    "leaf": lambda x: x.is_leaf,
    "history": lambda x: (x.grad, x.grad_fn, x._version),
    "length": lambda x: len(x),
    "listed": lambda x: len(list(x)),
    "iterated": lambda x: [row.k for row in x],
    "unpacked": lambda x: [a.k for a, b in [x[:2]]],
    "getter": lambda x: torch.Tensor.shape.__get__(x),
}


def program(read: Any, inside: bool) -> Any:
    def make() -> Any:
        class Seeing(torch.Tensor):
            k = 7
            seen: list[str] = []

            @classmethod
            def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                cls.seen.append(fn.__name__)
                if fn == torch.Tensor.shape.__get__:
                    return cls.k, len(cls.seen)
                return super().__torch_function__(fn, types, args, kwargs or {})

        class State:
            cls = Seeing
            seen = Seeing.seen

        def fn(x):
            x = (x + 1).as_subclass(Seeing) if inside else state.given
            return read(x), torch.ones(3) + 1

        state = State()
        state.given = t(1).as_subclass(Seeing)
        return fn, state

    return make


def _turn(state: Any) -> None:
    state.cls.k = 9


@pytest.mark.parametrize("inside", [False, True], ids=["given", "made"])
@pytest.mark.parametrize("read", READS)
def test_reads(read: str, inside: bool, twin: str) -> None:
    steps = [Step(place, change=_turn if place == 2 else None) for place in range(4)]
    marks: dict[str, Any] = {"recompiles": frozenset({1, 2, 3}), "breaks": True, "min_graphs": 0}
    check(Program(read, program(READS[read], inside), steps, **marks), twin)
