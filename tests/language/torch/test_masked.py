"""`torch.masked`: functions that leave out what a mask leaves out, which are captured, and `MaskedTensor`, whose operators run eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.masked import as_masked_tensor, masked_tensor

from tests.language.torch.test_modes_around_calls import hidden
from tests.oracle import TWINS, Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}
OVER_A_DIMENSION = (
    "sum", "mean", "softmax", "log_softmax", "softmin", "prod", "amax", "amin", "argmax", "argmin", "cumsum", "cumprod", "logsumexp", "median"
)  # fmt: skip
OF_AN_ORDER = ("norm", "normalize")
UNBIASED = ("std", "var")
FURTHER = {**dict.fromkeys(OVER_A_DIMENSION, (1,)), **dict.fromkeys(OF_AN_ORDER, (2.0, 1)), **dict.fromkeys(UNBIASED, (1, True))}


def masked(place: int, *shape: int) -> tuple:
    x = t(place, *shape)
    # Each row keeps something.
    mask = t(place + 10, *shape) > 0
    mask[..., 0] = True
    return x.requires_grad_(), mask


@pytest.mark.parametrize("name", FURTHER)
def test_functions(name: str, twin: str) -> None:
    own, fn, further = Table(), getattr(torch.masked, name), FURTHER[name]

    def body(x: Any, mask: Any) -> Any:
        return fn(x * 2, *further, mask=mask)

    def args(place: int) -> tuple:
        x, mask = masked(place, 3 + max(place - 1, 0) % 4, 4)
        return x, None if place == 4 else mask[:1] if place == 5 else mask

    own.snippet(args=args, calls=6, recompiles=(2, 4, 5), max_graphs=4, tolerance=1e-5)(body)
    check(own.programs[0], twin)


@table.snippet(args=masked, options=FULL, tolerance=1e-5)
def several(x: Any, mask: Any) -> Any:
    weights = torch.masked.softmax(x, -1, mask=mask)
    return torch.masked.sum(weights * x, mask=mask), torch.masked.mean(x, (0, 1), keepdim=True, mask=mask), torch.masked.logaddexp(x, x, mask, mask)


@table.snippet(args=lambda place: (t(place), [torch.float32, torch.float64][place % 2]), calls=4, recompiles=(1,), options=FULL)
def other_types(x: Any, dtype: Any) -> Any:
    return torch.masked.sum(x, 1, dtype=dtype, mask=x > 0), torch.masked.amax(x, 1, mask=x > -9)


def of_masked_tensor(body: Callable) -> Any:
    """Makes a program that calls ``body``, compiled, on a `MaskedTensor`; returns plain tensors."""

    def make(compile: Any) -> Any:
        compiled = hidden(compile(body))

        def fn(x: Any, mask: Any) -> Any:
            found = compiled(masked_tensor(x.detach(), mask))
            return [(y.get_data(), y.get_mask()) if isinstance(y, torch.masked.MaskedTensor) else y for y in found]

        return fn

    make.__name__ = body.__name__  # type: ignore[attr-defined]
    table.program(raw=True, args=masked, breaks=True, min_graphs=0, recompiles=(1, 2), backward=False)(make)
    return body


@of_masked_tensor
def reductions_of_a_masked_tensor(x: Any) -> Any:
    return x.sum(1), x.mean(), x.amax(0), torch.sum(x, 0)


@of_masked_tensor
def operators_on_a_masked_tensor(x: Any) -> Any:
    return torch.sin(x) * 2, x + x, x.reshape(-1), torch.softmax(x, 1)


@of_masked_tensor
def parts_of_a_masked_tensor(x: Any) -> Any:
    return x.get_data() + 1, ~x.get_mask(), x.to_tensor(0.0) * 2, x.is_sparse, x.is_sparse_coo(), x.layout


# AOTAutograd makes PyTorch warn in another order.
@table.snippet(args=masked, breaks=True, min_graphs=0, recompiles=(1, 2), twins=[name for name in TWINS if not name.startswith("aot")])
def made_and_used(x: Any, mask: Any) -> Any:
    y = as_masked_tensor(x, mask)
    return torch.sin(y).sum(1).to_tensor(0) + 1, torch.masked.sum(masked_tensor(x.detach(), mask), 1).get_data()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
