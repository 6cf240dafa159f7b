"""PyTorch's own samples of its operators, against the class that the table gives them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.mutation import is_inplace

pytestmark = pytest.mark.later


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _only_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_only_tensors(v) for v in value)
    return isinstance(value, Tensor) or value is None


CALLABLES = {id(op.op): op for op in op_db if classify_torch(op.op) is not None}


@pytest.mark.parametrize("op", CALLABLES.values(), ids=lambda op: op.formatted_name)
def test_operators_give_tensors(op: Any) -> None:
    kind = classify_torch(op.op)
    if torch.float32 not in op.supported_dtypes("cpu"):
        pytest.skip("not for float32")
    sample = next(iter(op.sample_inputs("cpu", torch.float32)), None)
    if sample is None:
        pytest.skip("no samples")
    result = op.op(sample.input, *sample.args, **sample.kwargs)
    if kind == "op":
        assert _only_tensors(result) and (list(_tensors(result)) or result is None or result == ())
    elif kind in ("metadata", "data", "query"):
        assert not list(_tensors(result))


def _in_place_samples() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    for op in op_db:
        if op.inplace_variant is not None:
            yield op.name, op.inplace_variant, op


@pytest.mark.parametrize(("name", "fn", "op"), list(_in_place_samples()), ids=lambda x: x if isinstance(x, str) else "")
def test_in_place_methods_return_self(name: str, fn: Any, op: Any) -> None:
    if torch.float32 not in op.supported_dtypes("cpu"):
        pytest.skip("not for float32")
    if not isinstance(fn, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        pytest.skip("wrapped by the samples")
    assert is_inplace(fn)
    for sample in op.sample_inputs("cpu", torch.float32):
        if sample.broadcasts_input or not isinstance(sample.input, Tensor):
            continue
        x = sample.input.clone()
        try:
            result = fn(x, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError):
            continue
        assert result is x
        return
