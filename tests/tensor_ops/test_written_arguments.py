"""Which arguments an operator writes into: programs copy their memory first where the operator may fail."""

import pytest
import torch

from fineline.tensor_ops.tensor_operator import targets_of

A, B, OUT = torch.ones(2, 2), torch.ones(2, 2), torch.empty(2, 2)
PAIR = OUT, B

CALLS = {
    "plain": (torch.add, (A, B), None, []),
    "out": (torch.add, (A, B), {"out": OUT}, [OUT]),
    # As a function that passes its own parameter on.
    "no out": (torch.tensordot, (A, B), {"dims": 1, "out": None}, []),
    "in place": (torch.Tensor.add_, (A, B), None, [A]),
    "several": (torch.max, (A, 0), {"out": PAIR}, [PAIR]),
    "by a flag": (torch.nn.functional.relu, (A,), {"inplace": True}, [A]),
    "without the flag": (torch.nn.functional.relu, (A,), {"inplace": False}, []),
    "hidden": (torch.nn.functional.batch_norm, (A, B, OUT), {"training": True}, [B, OUT]),
}


@pytest.mark.parametrize("name", CALLS)
def test_written_arguments(name):
    fn, args, kwargs, expected = CALLS[name]
    found = [t for t in targets_of(fn, args, kwargs) if t is not None]
    assert len(found) == len(expected) and all(a is b for a, b in zip(found, expected, strict=True))
