"""Inputs in memory that is not PyTorch's: both ways to ask for them, and which of them lie on each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fineline.fx.overlap_check import any_foreign, any_foreign_in_python, lie_on_each_other


@pytest.mark.parametrize("ask", [any_foreign, any_foreign_in_python])
def test_memory_of_others(ask: Callable[[tuple], bool]) -> None:
    own, shown = torch.ones(3), torch.ones(3)
    assert not ask(()) and not ask((own, 1, None, own.to_sparse(), torch.empty(2, device="meta")))
    assert ask((own, torch.from_numpy(np.ones(3)))) and ask((torch.utils.dlpack.from_dlpack(own),))
    shown.numpy()
    assert ask((shown,))


def test_what_lies_on_what() -> None:
    a, own = np.ones(6), torch.ones(3)
    first, last, middle = torch.from_numpy(a[:3]), torch.from_numpy(a[3:]), torch.from_numpy(a[2:4])
    assert not lie_on_each_other((own, own[1:], first, last, 2, own.to_sparse()))
    assert lie_on_each_other((last, own, middle)) and lie_on_each_other((middle, first))
    assert lie_on_each_other((own, torch.utils.dlpack.from_dlpack(own)))
