"""Sparse and nested tensors: passed in, made inside, kept in modules; in the graphs of compilers that take them, and between those of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import Program, Table, check, t

table = Table()


def ragged(*rows: int) -> Tensor:
    return torch.nested.nested_tensor([torch.arange(3.0 * n).view(n, 3) for n in rows])


# Captured twice under AOTAutograd, with two warnings each.
@table.snippet(
    args=lambda place: ([(2, 4), (2, 4), (3, 1), (2, 4, 1)][place],), calls=4, recompiles={2, 3},
    twins=("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "counted"),
)  # fmt: skip
def nested_tensors_made_inside(rows):
    x = torch.nested.nested_tensor([torch.ones(n, 3) for n in rows])
    return (x * 2).to_padded_tensor(0.0), len(x.unbind())


@table.snippet(args=lambda place: (t(place, 4, 4),))
def sparse_tensors_made_inside(x):
    y = (x > 0).to(x.dtype).to_sparse()
    return torch.sparse.mm(y, x), (y * 2).to_dense() + 1, y.indices()


# On fakes PyTorch's warning that they are in beta state comes once more.
@table.snippet(args=lambda place: (t(place, 4, 4),), twins=("captured", "reference", "borders"))
def compressed_tensors_made_inside(x):
    return x.to_sparse_csr() @ x.T, x.to_sparse_csc().to_dense()


@table.program(args=lambda place: (t(place, 4, 4),))
def a_sparse_buffer() -> nn.Module:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", torch.eye(4).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(self.adjacency, x) + 1

    return Net()


# As many rows as before, and other ones: where sizes vary, nothing stands for what is to be negated when it is read.
@table.snippet(
    args=lambda place: (torch.view_as_complex(t(1, [3, 3, 5][place % 3], 4, 2)),), calls=6, recompiles=range(6), backward=False,
)  # fmt: skip
def conjugate_and_negative_views(z):
    c = z.conj()
    return c.is_conj(), c * 2, c.imag.is_neg(), c.imag + 1, c.imag.resolve_neg() is c.imag


@table.snippet(
    args=lambda place: (torch.view_as_complex(t(1, [3, 3, 5][place % 3], 4, 2)).conj(),), calls=6, recompiles=range(6), backward=False,
)  # fmt: skip
def conjugate_views_from_outside(z):
    return z.is_conj(), z * 2, z.imag.is_neg(), z.imag + 1, z.imag.resolve_neg() is z.imag


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_layouts(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("options", [{}, {"evaluator": "reference"}, {"first_call": "compiled"}], ids=str)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_nested_argument_is_told_from_others(options: dict, dynamic: bool | None) -> None:
    def fn(x: Tensor) -> Any:
        return (x * 2).to_padded_tensor(0.0) + x.size(0), x.is_nested, [r.shape for r in x.unbind()]

    compiled = fineline.compile(fn, backend="eager", options=options, dynamic=dynamic)
    for rows in ((2, 4), (2, 4), (4, 2), (1, 1, 2), (2, 4)):
        (a, *more), (b, *others) = compiled(ragged(*rows)), fn(ragged(*rows))
        assert torch.equal(a, b) and more == others


def scattered(x: Tensor) -> Tensor:
    return (x + 1).to_sparse().to_dense() * 2


def compressed(x: Tensor) -> Tensor:
    return (x + 1).to_sparse_csr() @ x.T + 1


def nested(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor([x[:2] + 1, x[2:]]).to_padded_tensor(0.0) + 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_quantized_tensors_are_taken_by_no_compiler(backend: str, dynamic: bool | None) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return (x.dequantize() * w).sin() + torch.quantize_per_tensor(w, 0.1, 0, torch.qint8).int_repr()

    compiled = fineline.compile(fn, backend=backend, dynamic=dynamic)
    for place in range(3):
        x, w = torch.quantize_per_tensor(t(place).detach(), 0.1, 0, torch.qint8), t(place + 1)
        torch.testing.assert_close(compiled(x, w), fn(x, w))


# AOTAutograd would end the process: "layout_impl is only implemented for TensorImpl subclasses".
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_compressed_tensors_with_gradients_are_shown_to_no_compiler(backend: str, dynamic: bool | None) -> None:
    def inside(x: Tensor) -> Tensor:
        return (x * 2).to_sparse_csr() @ x + 1

    def held(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(inside, x, use_reentrant=False)

    def given(x: Tensor) -> Tensor:
        return x.to_dense() * 2 + 1

    plain = t(0, 4, 4).detach()
    for fn, x in ((inside, plain), (held, plain), (given, plain.to_sparse_csr()), (given, plain.to_sparse_bsc((2, 2)))):
        compiled = fineline.compile(fn, backend=backend, dynamic=dynamic)
        for _ in range(3):
            torch.testing.assert_close(compiled(x.requires_grad_()), fn(x.requires_grad_()))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [scattered, compressed, nested])
def test_inductor_is_given_none_that_it_does_not_take(fn: Any, dynamic: bool | None) -> None:
    compiled = fineline.compile(fn, backend="inductor", dynamic=dynamic)
    for place in range(3):
        x = t(place, 4, 4).detach()
        torch.testing.assert_close(compiled(x), fn(x))
    strict = fineline.compile(fn, backend="inductor", dynamic=dynamic, fullgraph=True)
    with pytest.raises(fineline.errors.Unsupported, match="FL102.*(sparse|nested)"):
        strict(t(0, 4, 4).detach())


@pytest.mark.parametrize("dynamic", [None, True])
def test_what_a_compiler_does_not_take_is_written_once(dynamic: bool | None) -> None:
    def fn(x: Tensor) -> Tensor:
        s = (x + 1).to_sparse()
        s.mul_(3)
        return s.to_dense() * 2

    compiled = fineline.compile(fn, backend="inductor", dynamic=dynamic)
    for place in range(3):
        x = t(place, 4, 4).detach()
        torch.testing.assert_close(compiled(x), fn(x))


def test_compressed_rows_alive_behind_a_graph_break() -> None:
    """Nothing stands for them in fake mode, into which AOTAutograd makes the capture go: no defect, the real values do."""
    w = nn.Parameter(torch.ones(4))
    places = torch.tensor([[0, 1, 2, 2], [1, 0, 3, 3]])

    def fn(x: Tensor) -> Any:
        a = torch.sparse_coo_tensor(places, w, (4, 5)).coalesce()
        b = (x * (x > 0)).to_sparse_csr()
        return torch.sparse.mm(a, x), a.values(), b.values().sum(), (b @ x.T).relu(), a.to_dense()

    seen: list[str] = []
    compiled = fineline.compile(fn, backend="aot_eager")
    LISTENERS.all += (listener := lambda event: seen.append(event.id),)
    try:
        for place in range(4):
            x = t(place, 5, 3).detach()
            for ours, theirs in zip(compiled(x), fn(x), strict=True):
                torch.testing.assert_close(ours, theirs)
    finally:
        LISTENERS.all = tuple([f for f in LISTENERS.all if f is not listener])
    assert "FL901" not in seen
