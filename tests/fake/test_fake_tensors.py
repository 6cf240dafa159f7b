"""Fakes of real tensors: what they know of them, and what not."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.fake.fake_tensors import sizeless
from fineline.torch_facts.releases import static_fake

NUMBERS = [torch.tensor(2), torch.tensor(2, dtype=torch.int8), torch.tensor(2.0, dtype=torch.float64)]


@pytest.mark.parametrize("t", NUMBERS, ids=lambda t: str(t.dtype))
def test_a_fake_does_not_know_the_number_in_its_tensor(t: torch.Tensor) -> None:
    """From 2.14 on, PyTorch notes it, and a size that it decides is taken for the same at each call."""
    fakes = sizeless()
    with pytest.raises(DataDependentOutputException):
        fakes.run(torch.Tensor.item, (t,), None)
    for shapes in (None, ShapeEnv()):
        assert static_fake(FakeTensorMode(shape_env=shapes), t).item_memo is None


def test_a_size_that_a_number_decides_is_not_known() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(DataDependentOutputException):
        sizeless().run(torch.sum, (x, torch.tensor(1)), None)
