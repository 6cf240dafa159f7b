"""Sizes that nobody can tell before a call: of libraries' operators, scripts and sparse tensors, and of operators that are given a number by a tensor."""

from __future__ import annotations

import bisect
import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fineline
from tests.oracle import Program, Step, Table, check, t

table = Table()


@torch.library.custom_op("fineline_sizes::places", mutates_args=())
def places(x: Tensor) -> Tensor:
    return x.nonzero()


@places.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)


@torch.library.custom_op("fineline_sizes::next", mutates_args=())
def following(x: Tensor) -> Tensor:
    return x + 1


@following.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("fineline_sizes::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0]


@torch.library.custom_op("fineline_sizes::parts", mutates_args=())
def parts(x: Tensor) -> list[Tensor]:
    return [x[i].clone() for i in range(int(x.sum()))]


library = torch.library.Library("fineline_sizes", "FRAGMENT")
library.define("composed(Tensor x) -> Tensor")
library.impl("composed", lambda x: x[x > 0], "CompositeImplicitAutograd")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x[x > 0].clone(), "CPU")


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return x[x > 0]


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return x * 2


@torch.jit.script
def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[x > 0], x + 1


@torch.jit.script
def perhaps(x: Tensor) -> Tensor | None:
    if bool(x.sum() > 2):
        return x
    return None


@fineline.allow_in_graph
def allowed(x: Tensor) -> Tensor:
    return x[x > 0] * 2


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0] + x.nonzero().sum()


exported = torch.export.export(Chosen(), (torch.tensor([1.0, 0, 1]),)).module()
# AOTAutograd runs what warns again.
WITHOUT_AOT = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "counted")
SPARSE = ("csr", "csc", "bsr", "bsc")


def numbers(place: int) -> tuple[Tensor]:
    return (torch.tensor([[1.0, 0, 1], [1, 1, 1], [0, 0, 1], [1, 0, 1]][place], dtype=torch.float32),)


def number(place: int) -> tuple[Tensor]:
    return (torch.tensor([2, 3, 2, 1][place]),)


OF_DATA: dict[str, Callable[[Tensor], Any]] = {
    "places": lambda x: len(places(x)) * x,
    "positive": lambda x: (positive(x) * 2 + 1).shape,
    "parts": lambda x: len(parts(x)) * x,
    "composed": lambda x: torch.ops.fineline_sizes.composed(x).shape,
    "plain": lambda x: torch.ops.fineline_sizes.plain(x).shape[0] * x,
    "scripted": lambda x: (scripted(x) - 1).numel() * x,
    "perhaps": lambda x: x + 1 if perhaps(x) is None else x - 1,
    "allowed": lambda x: len(allowed(x)) * x,
    "exported": lambda x: exported(x).shape,
    "list": lambda x: [c * 2 for c in scripted(x).chunk(2)],
    "loop": lambda x: sum(row * 2 for row in scripted(x)),
    "branch": lambda x: x * 2 if scripted(x).shape[0] > 2 else x - 1,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda a: scripted(a) * 2, x, use_reentrant=False).shape,
    "to_sparse": lambda x: x.to_sparse().indices().shape,
    "len of values": lambda x: len(x.to_sparse().values()) * x,
    "coalesce": lambda x: (x.to_sparse() * 2).coalesce().values().numel(),
    "sparse sum": lambda x: torch.sparse.sum(x.view(1, 3).expand(2, 3).to_sparse(), 0).values().numel() * x,
    "inferred": lambda x: torch.sparse_coo_tensor(x.cumsum(0).long()[None], x).shape,
    "lstsq": lambda x: torch.linalg.lstsq(torch.diag(x), x[:, None], driver="gelsd").residuals.shape,
    "packed": lambda x: nn.utils.rnn.pack_padded_sequence(torch.ones(2, 3, 4), torch.stack([x[2] + 2, x[0] + 1]).long(), True).data.shape,
}  # fmt: skip
X = torch.arange(24.0).reshape(2, 3, 4)
BY_NUMBER: dict[str, Callable[[Tensor], Any]] = {
    "zeros": lambda n: torch.zeros(n).shape[0],
    "factories": lambda n: [f(n).shape for f in (torch.ones, torch.empty, torch.rand, torch.randperm, torch.arange, torch.hann_window)],
    "eye": lambda n: torch.eye(n).shape,
    "arange into another": lambda n: torch.arange(n, out=torch.empty(0)).shape,
    "arange of floats": lambda n: torch.arange(n * 1.0).shape,
    "tril_indices": lambda n: (torch.tril_indices(n, 2).shape, torch.triu_indices(2, n).shape),
    "number of classes": lambda n: F.one_hot(torch.tensor([0, 0]), n).shape,
    "number of classes by name": lambda n: F.one_hot(torch.tensor([0, 0]), num_classes=n).shape,
    "cat": lambda n: torch.cat([X, X], n - 1).shape,
    "sum": lambda n: X.sum(n - 1).shape,
    "by name": lambda n: X.std(dim=n - 1).shape,
    "index_select": lambda n: X.index_select(n - 1, torch.tensor([0])).shape,
    "size": lambda n: X.size(n - 1),
    "unbind": lambda n: len(X.unbind(n - 1)),
    "pad": lambda n: F.pad(X, (0, n)).shape,
    "pool": lambda n: (F.adaptive_avg_pool1d(X, n).shape, F.max_pool1d(X, n).shape),
    "fft": lambda n: torch.fft.fft(X, n).shape,
    "multinomial": lambda n: torch.multinomial(torch.ones(5), n).shape,
    "strided": lambda n: torch.empty_strided((n,), (1,)).shape,
}  # fmt: skip


# Not by the oracle: it would look into the operators, which keep what they have been called with.
WAYS: dict[str, dict[str, Any]] = {
    "real": {"backend": "eager"}, "fake": {"backend": "eager", "options": {"first_call": "compiled"}},
    "dynamic": {"backend": "eager", "dynamic": True}, "aot": {"backend": "aot_eager"},
}  # fmt: skip


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("name", list(OF_DATA | BY_NUMBER))
def test_no_call_is_given_the_sizes_of_another(name: str, way: str) -> None:
    fn, args = (OF_DATA | BY_NUMBER)[name], numbers if name in OF_DATA else number
    if way == "aot" and name in ("factories", "eye", "arange into another"):
        pytest.skip("AOTAutograd fails on it when the size varies, given as a number too")
    compiled = fineline.compile(fn, **WAYS[way])
    for place in (0, 1, 2, 0):
        assert repr(compiled(*args(place))) == repr(fn(*args(place)))


# -- what stays in one graph -------------------------------------------------------------------------------------------
@table.snippet(args=numbers, calls=3, max_graphs=1)
def sizes_that_a_rule_for_fakes_tells(x):
    y = torch.ops.fineline_sizes.next(x)
    return y.shape[0] * torch.ops.fineline_sizes.next(y)


@table.snippet(args=numbers, calls=3, max_graphs=1)
def sizes_that_a_scripted_function_tells_without_numbers(x):
    y = doubled(x.sin())
    return y.cos() * y.shape[0] if y.dim() > 1 else y


HEARD: list[int] = []


@torch.jit.ignore
def heard(x):
    HEARD.append(1)
    return x + 1


@torch.jit.script
def heard_of(x: Tensor) -> Tensor:
    return heard(x) * 2


@torch.jit.script
def warning(x: Tensor) -> Tensor:
    warnings.warn("careful")
    return x * 2


@pytest.mark.parametrize("scripted", [heard_of, warning])
def test_what_a_scripted_function_does_is_done_once(scripted: Callable) -> None:
    compiled = fineline.compile(lambda x: scripted(x.sin()).cos(), backend="eager")
    for calls in range(1, 4):
        HEARD.clear()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert torch.equal(compiled(t(calls)), scripted(t(calls).sin()).cos())
        assert len(HEARD) == (2 if scripted is heard_of else 0) and len(told) == (0 if scripted is heard_of else 2)


def test_sizes_that_nobody_reads_break_no_graph() -> None:
    def fn(x: Tensor, n: Tensor) -> Any:
        return scripted(x) * 2, positive(x) + 1, pair(x), torch.ops.fineline_sizes.plain(x), allowed(x), following(x).shape, torch.full_like(x, n)

    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    for place in range(4):
        given = (*numbers(place), *number(place))
        assert repr(compiled(*given)) == repr(fn(*given))


@table.snippet(args=numbers, calls=3, max_graphs=1, twins=("captured", "reference", "counted"))
def what_is_as_large_as_its_first_operand(x):
    y = torch.zeros(5).index_add(0, scripted(x).long(), scripted(x))
    return y * y.shape[0], x.add(torch.tensor(2)).shape


# -- what else gets such sizes -----------------------------------------------------------------------------------------
@table.snippet(args=numbers, calls=3, breaks=True, recompiles={1, 2})
def a_tensor_that_is_written_anew(x):
    y, z = torch.empty(0), torch.zeros(1)
    torch.mul(scripted(x), 2, out=y)
    z.resize_as_(scripted(x))
    return y.shape, z.shape


@table.snippet(args=lambda place: (numbers(place)[0].view(1, 3).to_sparse(),), calls=4, breaks=True, recompiles={1, 2, 3})
def numbers_in_a_sparse_tensor(s):
    s = s.coalesce()
    return s.values().numel(), s._indices().shape, (s * 2).coalesce().values().shape, torch.sparse.mm(s, torch.ones(3, 2)).shape


for layout in SPARSE:

    def compressed(s: Tensor) -> Any:
        return s.values().shape, (s.crow_indices if s.layout in (torch.sparse_csr, torch.sparse_bsr) else s.ccol_indices)().shape

    def given(place: int, layout: str = layout) -> tuple[Tensor]:
        x = numbers(place)[0].view(1, 3)
        return (getattr(x, f"to_sparse_{layout}")(*([(1, 1)] if layout.startswith("b") else [])),)

    steps = [Step(k, args=given) for k in range(4)]
    table.programs.append(Program(layout, lambda fn=compressed: fn, steps, frozenset({1, 2, 3}), min_graphs=0, breaks=True, twins=WITHOUT_AOT))


@fineline.allow_in_graph
def by_a_callback(x):
    return x.new_zeros(int(re.sub("a", lambda m: str(int(x.sum())), "a")))


@fineline.allow_in_graph
def by_a_default(x):
    return x.new_zeros(int(re.sub("a", lambda m, *, of=x: str(int(of.sum())), "a")))


@fineline.allow_in_graph
def by_a_cached_function(x):
    @functools.lru_cache(None)
    def total():
        return int(x.sum())

    return x.new_zeros(total())


@fineline.allow_in_graph
def by_a_key(x):
    return x.new_zeros(bisect.bisect_left(range(20), 1, key=lambda k: k >= int(x.sum())))


for called in (by_a_callback, by_a_default, by_a_cached_function, by_a_key):

    def sized(x: Tensor, called: Any = called) -> Any:
        y = called(x)
        return y.shape[0], y.numel() * x

    steps = [Step(k, args=numbers) for k in range(4)]
    table.programs.append(Program(called.__name__, lambda fn=sized: fn, steps, frozenset(range(1, 4)), min_graphs=0, breaks=True, twins=WITHOUT_AOT))


@table.snippet(min_graphs=0, breaks=True, twins=WITHOUT_AOT)
def quantized_inside(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() * 2, torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).int_repr()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_sizes_of_data(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("grad", [False, True])
def test_packed_sequences_with_other_lengths(backend: str, grad: bool) -> None:
    def fn(x: Tensor, lengths: Tensor) -> Tensor:
        return nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True).data * 2

    compiled = fineline.compile(fn, backend=backend)
    for lengths in ([3, 2, 2], [3, 1, 1], [3, 3, 3]):
        x = t(0, 3, 3, 4).detach().requires_grad_(grad)
        torch.testing.assert_close(compiled(x, torch.tensor(lengths)), fn(x, torch.tensor(lengths)))


@pytest.mark.parametrize("name", ["fineline_sizes::composed", "fineline_sizes::positive"])
def test_the_code_of_operators_without_a_rule_runs_once(name: str) -> None:
    calls = []
    again = torch.library.Library("fineline_sizes", "FRAGMENT")
    again.define("counting(Tensor x) -> Tensor")
    again.impl("counting", lambda x: calls.append(1) or x + 1, "CompositeImplicitAutograd" if name.endswith("composed") else "CPU")
    fineline.compile(lambda x: torch.ops.fineline_sizes.counting(x).shape, backend="eager")(torch.ones(3))
    again._destroy()
    assert len(calls) == 1
