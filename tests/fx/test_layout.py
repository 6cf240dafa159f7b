"""The native core reads the layout of a tensor as Python does."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fineline.fx.layout import LAYOUTS, Layout, fake_of, layout_of, layout_of_in_python


def _tensors() -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "scalar": torch.ones(()),
            "empty": torch.ones(0, 3),
            "six_dimensions": torch.ones(2, 3, 4, 5, 6, 7).permute(5, 4, 3, 2, 1, 0).requires_grad_(),
            "expanded": torch.ones(1, 2).expand(3, 2),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "integers": torch.ones(2, dtype=torch.int16),
            "complex": torch.ones(2, dtype=torch.complex64).conj(),
            "meta": torch.empty(3, device="meta"),
            "view_of_a_leaf": torch.ones(3, requires_grad=True)[1:],
            "made_in_inference": torch.inference_mode()(torch.ones)(2),
            "sparse": torch.ones(2).to_sparse(),
            "nested": torch.nested.nested_tensor([torch.ones(2)]),
            "quantized": torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
        }


@pytest.mark.parametrize("name", _tensors())
def test_the_native_core_reads_what_python_reads(name: str) -> None:
    t = _tensors()[name]
    found, expected = layout_of(t), layout_of_in_python(t)
    assert (found is None) == (expected is None) == (name in ("sparse", "nested", "quantized"))
    if expected is not None:
        assert [tuple(part) if isinstance(part, tuple) else part for part in expected] == [getattr(found, field) for field in Layout._fields]
        with FakeTensorMode() as mode:
            fake = fake_of(found, mode)
        assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (t.shape, t.stride(), t.dtype, t.device)


def test_other_classes_and_containers() -> None:
    class Other(Tensor):
        pass

    with FakeTensorMode():
        fake = torch.ones(2, 3)
    assert layout_of(fake) == Layout(torch.Size([2, 3]), (3, 1), torch.float32, torch.device("cpu"), False)
    assert layout_of(torch.ones(2).as_subclass(Other)) is None
    assert layout_of(3) is layout_of(()) is None
    assert [type(part) in LAYOUTS for part in layout_of((torch.ones(2), None))] == [True, False]
