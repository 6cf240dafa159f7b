"""Tensors of one number as indices: views of what they select, in one graph, with every backend."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline
from fineline.backends.registry import lookup_backend
from tests.oracle import Program, Table, check, t

table = Table()
ONE = {"max_graphs": 1}


def placed(place: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor, and where to look in it: another place at each call."""
    return torch.arange(12.0).view(4, 3) + place, torch.tensor((2, 0, -1, 1)[place])


@table.snippet(args=placed, calls=4, **ONE)
def one_row(x, i):
    return (x + 1)[i] * 2


@table.snippet(args=placed, calls=4, **ONE)
def among_other_indices(x, i):
    y = x.view(4, 3, 1) * 2
    return y[i, :2], y[..., i % 3, 0], y[None, i, None, 1:], y[0, i % 3], y[1:, i % 3, :], y[i, i % 3], y[i, ..., 0]


@table.snippet(args=placed, calls=4, **ONE)
def what_is_selected_is_a_view(x, i):
    y = x * 2
    y[i].add_(1)
    row = y[i]
    row.mul_(3)
    return y, row, x[i], x[i, 1:]


@table.snippet(args=placed, calls=4, **ONE)
def written_to(x, i):
    x[i] = 7
    x[i, 1:] = torch.tensor([1.0, 2.0])
    x[:, i % 3] += 1
    x[i] *= 2
    return x.sum()


@table.snippet(args=placed, calls=4, **ONE)
def computed_in_the_graph(x, i):
    return x[x.sum(1).argmax()], x[i.to(torch.int8), (i + 1).to(torch.int32) % 3]


@table.snippet(args=lambda place: (t(0, 4, 3, grad=True), torch.tensor(place)), grad=True, **ONE)
def differentiated(x, i):
    return x[i] * x[i, 0]


@table.snippet(args=lambda place: (t(0, 4), torch.tensor((1, 9, 2, -5)[place]), []), calls=4)
def out_of_bounds(x, i, log):
    log.append(1)
    return x[i] * 2, log.append(2)


@table.snippet(args=lambda place: (t(0, 4), torch.tensor((1, 9, 2, -5)[place]), []), calls=4)
def out_of_bounds_behind_writes(x, i, log):
    log.append(1)
    x.add_(1)
    y = torch.dropout(x, 0.5, True)
    log.append(2)
    return y[i] * 2, log.append(3)


@table.snippet(args=lambda place: (t(0, 4), torch.tensor(bool(place % 2)), torch.tensor([True, False, place == 0, True])), breaks=True, recompiles={1, 2})
def masks_are_not_numbers(x, flag, mask):
    return x[flag].sum(), x[mask].sum(), x[flag, 0].sum()


@table.snippet(args=lambda place: (t(0, 4, 3), torch.tensor([[2, 0, 1, 1][place], 1])))
def in_vmap(x, i):
    return torch.vmap(lambda k: x.index_select(0, k.view(1)).squeeze(0) * 2)(i), torch.vmap(lambda row, n: row[0] * n, in_dims=(0, None))(x, i[0])


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_indices(program: Program, twin: str) -> None:
    check(program, twin)


def read(x: torch.Tensor, i: torch.Tensor) -> Any:
    return x[i] * 2


def selected(x: torch.Tensor, i: torch.Tensor) -> Any:
    return torch.select(x, index=i.item(), dim=0) * 2


def written(x: torch.Tensor, i: torch.Tensor) -> Any:
    x[i] = 7
    return x * 2


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"fullgraph": True}], ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [read, selected, written])
def test_compilers_take_them(fn: Any, backend: str, options: dict) -> None:
    """Compiled by Inductor, an index that only the graph knows leads anywhere in memory, unless the graph checks it."""
    compiled = fineline.compile(fn, backend=backend, **options)
    for place in (2, 3, -1, 0):
        x, there = torch.randn(4, 3), torch.randn(4, 3)
        there.copy_(x)
        assert torch.equal(compiled(x, torch.tensor(place)), fn(there, torch.tensor(place)))
        assert torch.equal(x, there)
    raised: dict[int, str] = {}
    for place in (4, -5):
        try:
            raised[place] = str(compiled(torch.randn(4, 3), torch.tensor(place)))
        except IndexError as e:
            raised[place] = str(e)
    assert all(["out of" in text for text in raised.values()]), (raised, fineline.explain(compiled)(torch.ones(4, 3), torch.tensor(1)))


SPELLINGS = {
    "method": (lambda x, n: x.select(0, n), (4, -5)),
    "operator": (lambda x, n: torch.ops.aten.select.int(x, 0, n), (4, -5)),
    "packet": (lambda x, n: torch.ops.aten.select(x, 0, n), (4, -5)),
    "narrow": (lambda x, n: torch.narrow(x, 0, n, length=2), (3, 4, -1, -5)),
    "length": (lambda x, n: x.narrow(0, 1, n), (-1, 4)),
    "view": (lambda x, n: x.as_strided((2,), (1,), n), (-1,)),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_out_of_bounds_in_every_spelling(name: str, backend: str) -> None:
    """AOTAutograd takes a narrow() that goes too far for a slice, which is shorter then; Inductor reads what lies there."""
    select, beyond = SPELLINGS[name]

    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        return select(x, i.item()) * 2

    compiled = fineline.compile(fn, backend=backend, fullgraph=True)
    x = torch.randn(4, 3)
    for place in (2, 1, 0, 2):
        assert torch.equal(compiled(x, torch.tensor(place)), fn(x, torch.tensor(place)))
    for place in beyond:
        with pytest.raises((IndexError, RuntimeError)) as expected:
            fn(x, torch.tensor(place))
        with pytest.raises(expected.type):
            compiled(x, torch.tensor(place))


def _reads(b: torch.Tensor, i: torch.Tensor) -> Any:
    return b[i] * 2


def _selects(b: torch.Tensor, i: torch.Tensor) -> Any:
    return torch.select(b, 0, i.item()) * 2


def _narrows(b: torch.Tensor, i: torch.Tensor) -> Any:
    return torch.narrow(b, 0, i.item(), 2) * 2


def _writes(b: torch.Tensor, i: torch.Tensor) -> Any:
    b[i] = 7
    return b * 2


@pytest.mark.parametrize("mode", [{}, {"fullgraph": True}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [_reads, _selects, _narrows, _writes])
def test_bounds_are_those_of_each_call(fn: Any, backend: str, mode: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Where sizes vary: the first call's would let Inductor read, and write, past the end of what is smaller."""
    compiled = fineline.compile(fn, backend=backend, **mode)
    for n in (4, 5, 6, 9, 7):
        i = torch.tensor(n - 2)
        x = torch.randn(n, 3)
        assert torch.equal(compiled(x.clone(), i), fn(x.clone(), i))
    assert "a compiled graph failed" not in caplog.text
    for place in (3, 5, -4):
        memory = torch.zeros(8, 3)
        with pytest.raises((IndexError, RuntimeError)):
            compiled(memory[2:5], torch.tensor(place))
        assert not memory.any()


@pytest.mark.parametrize("mode", [{"fullgraph": True}, {}], ids=str)
def test_libraries_may_wrap_functions_of_pytorch(mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch_geometric puts a ``torch.select`` of its own in the place of PyTorch's, and calls that."""
    select, where = torch.select, torch.where
    monkeypatch.setattr(torch, "select", lambda *args, **kwargs: select(*args, **kwargs))
    monkeypatch.setattr(torch, "where", lambda *args, **kwargs: where(*args, **kwargs))

    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        return torch.select(x, 0, i.item()) * 2, torch.where(x > 0)[0] * 2

    compiled = fineline.compile(fn, backend="inductor", **mode)
    for place in (2, 1, 0, -4):
        x = torch.randn(4, 3)
        for got, expected in zip(compiled(x, torch.tensor(place)), fn(x, torch.tensor(place)), strict=True):
            assert torch.equal(got, expected)
    for place in (4, -5):
        with pytest.raises(IndexError):
            compiled(torch.randn(4, 3), torch.tensor(place))


@pytest.mark.parametrize("fn", [read, written])
def test_a_backend_that_reads_numbers_is_given_symbols(fn: Any) -> None:
    """What was captured on real values it can't compile; on fakes, the number is one of the graph's: one graph, where a break would do."""
    given: list[str] = []

    def counting(gm: torch.fx.GraphModule, inputs: list) -> Any:
        given.append(gm.code)
        return lookup_backend("aot_eager")(gm, inputs)

    compiled = fineline.compile(fn, backend=counting)
    for place in (2, 1, 0):
        assert torch.equal(compiled(torch.ones(4, 3), torch.tensor(place)), fn(torch.ones(4, 3), torch.tensor(place)))
    assert ["select" in code for code in given] == [False, True]


NAMES = "kept keep told as_user random_states put_back again graph failed failure error random raised result program math"


@pytest.mark.parametrize("name", NAMES.split())
def test_names_of_the_program_are_the_users_too(name: str) -> None:
    """A call that fails behind writes: what the program keeps for it has a name of its own."""
    space: dict[str, Any] = {"torch": torch}
    lines = ["log.append(1)", f"{name}.add_(1)", f"y = torch.dropout({name}, 0.5, True)[i]", "log.append(2)", f"return y * {name}"]
    exec(f"def fn({name}, i, log):\n" + "\n".join(f"    {line}" for line in lines), space)

    def run(call: Any) -> list[Any]:
        seen: list[Any] = []
        x, log = torch.zeros(3), []
        torch.manual_seed(0)
        for place in (0, 1, 7, 2):
            try:
                seen.append(call(x, torch.tensor(place), log).tolist())
            except IndexError as e:
                seen.append(str(e))
            seen.append((x.tolist(), list(log)))
        return seen

    assert run(fineline.compile(space["fn"], backend="eager")) == run(space["fn"])
