"""Sizes that the numbers in tensors decide: of factories, and of operators by any spelling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fineline
from fineline.codegen.frame_snapshot import FrameStateBuilder
from fineline.report.events import LISTENERS
from tests.oracle import Program, Step, check, t

FACTORIES: dict[str, Any] = {
    "zeros": lambda n: torch.zeros(n).shape[0],
    "ones": lambda n: len(torch.ones(n)),
    "empty": lambda n: torch.empty(n).numel(),
    "eye": lambda n: torch.eye(n).shape,
    "arange": lambda n: len(torch.arange(n)) * torch.ones(2),
    "arange into": lambda n: torch.arange(n, out=torch.empty(0, dtype=torch.int64)).shape,
    "of two": lambda n: torch.zeros(n, 2).shape,
    "triangle": lambda n: torch.tril_indices(n, 2).shape,
    "upper triangle": lambda n: torch.triu_indices(2, n).shape,
    "window": lambda n: torch.hann_window(n).shape,
    "one hot": lambda n: F.one_hot(torch.tensor([0, 1]), n).shape,
    "new": lambda n: torch.ones(1).new_zeros(n).shape,
}
OPERATORS: dict[str, Any] = {
    "nonzero": lambda x: torch.ops.aten.nonzero(x).shape,
    "nonzero overload": lambda x: torch.ops.aten.nonzero.default(x).shape,
    "masked_select": lambda x: torch.ops.aten.masked_select(x, x > 0).shape,
    "index": lambda x: torch.ops.aten.index(x, [x > 0]).shape,
    "unique": lambda x: torch.ops.aten._unique2(x)[0].shape,
    "unique_consecutive": lambda x: torch.ops.aten.unique_consecutive(x)[0].shape,
    "argwhere": lambda x: torch.ops.aten.argwhere(x).shape,
    "where": lambda x: torch.ops.aten.where(x > 0)[0].shape,
    "repeat_interleave": lambda x: torch.ops.aten.repeat_interleave.Tensor((x > 0).long()).shape,
    "one_hot": lambda x: torch.ops.aten.one_hot((x > 0).long() * x.long().clamp(0)).shape,
}
INPUTS = ([1.0, 0, 2], [1.0, 1, 1], [0.0, 3, 0], [1.0, 0, 2])


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name: str, twin: str) -> None:
    def fn(n: Tensor) -> Any:
        return FACTORIES[name](n), n + 1

    steps = [Step(k, args=lambda _, n=n: (torch.tensor(n),)) for k, n in enumerate((2, 3, 5, 3))]
    check(Program(name, lambda: (fn, None), steps, frozenset(range(4)), min_graphs=0, breaks=True, backward=False), twin)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, twin: str) -> None:
    def fn(x: Tensor) -> Any:
        return OPERATORS[name](x), x + 1

    steps = [Step(k, args=lambda _, v=v: (torch.tensor(v),)) for k, v in enumerate(INPUTS)]
    check(Program(name, lambda: (fn, None), steps, frozenset(range(4)), min_graphs=0, breaks=True, backward=False), twin)


def test_packed_sequences(twin: str) -> None:
    if twin == "counted":
        pytest.skip("kernels are asked how they lay out a result, and these questions are counted")
    def make() -> Any:
        torch.manual_seed(0)
        model = nn.LSTM(4, 3, batch_first=True)

        def fn(x: Tensor, lengths: Tensor) -> Any:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
            return out * 2, packed.data.shape

        return fn, model

    steps = [Step(k, args=lambda _, n=n: (t(0, 3, 4, 4, grad=True), torch.tensor(n))) for k, n in enumerate(([4, 3, 2], [3, 3, 1], [4, 4, 4]))]
    check(Program("packed", make, steps, frozenset(range(3)), min_graphs=0, breaks=True), twin)


def test_arguments_that_wait_lie_where_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made and is gone leaves its id to the arguments of a call, which wait at a graph break for a size: they are not that thing."""
    met, begin = [], FrameStateBuilder.__init__

    def poisoned(self: FrameStateBuilder, interp: Any, graph_break: Any, *args: Any, **kwargs: Any) -> None:
        if graph_break.then is not None and graph_break.then.function.__name__ == "_sized":
            interp.trace.made.add(graph_break.then.data[1])
            met.append(graph_break)
        begin(self, interp, graph_break, *args, **kwargs)

    monkeypatch.setattr(FrameStateBuilder, "__init__", poisoned)

    def fn(x: Tensor, mask: Tensor) -> Any:
        y = x * 2
        return y.view(mask.sum(), 2) + 1

    seen: list[str] = []
    why: list[str] = []
    monkeypatch.setattr(LISTENERS, "all", (lambda event: (seen.append(event.id), why.append(str(event))),))
    compiled = fineline.compile(fn, backend="eager", options={"first_call": "compiled"})
    for _ in range(3):
        x, mask = torch.arange(6.0), torch.tensor([True, False, True, True])
        assert torch.equal(compiled(x, mask), fn(x, mask))
    assert met
    assert "FL901" not in seen, why
