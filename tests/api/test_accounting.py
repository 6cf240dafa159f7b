"""Nothing happens silently: operators captured + eager + skipped are the operators that ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fineline

X = torch.rand(3, 4)


class Count(TorchDispatchMode):
    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += 1
        return func(*args, **(kwargs or {}))


@fineline.disable
def eager(x):
    return x.sin() + x.cos()


@fineline.disable(recursive=False)
def frame_only(x):
    return plain(x.sin()) * 2


def plain(x):
    return (x * 2).relu()


def whole(x):
    return plain(x) + 1


def with_break(x):
    y = plain(x)
    if y.sum() > 0:
        y = eager(y)
    return frame_only(y).tanh()


def with_block(x):
    with fineline.disable():
        y = plain(x) + 1
    return y * 2


def given_up(x):
    out = iter([plain(x), x + 1])
    next(out)
    return {frozenset({1}): plain(next(out))}, type("Odd", (), {})().__class__.__name__


def composite(x):
    return nn.functional.multi_head_attention_forward(
        x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1), 4, 2, torch.rand(12, 4), None, None, None, False, 0.0, torch.rand(4, 4), None
    )[0]


@pytest.mark.parametrize("fn", [whole, with_break, with_block, given_up, composite], ids=lambda fn: fn.__name__)
def test_each_operator_is_accounted_for(fn: Callable) -> None:
    with Count() as count:
        fn(X)
    told = fineline.explain(fn)(X)
    assert sum(told.ran.values()) == count.total and told.ran["captured"] > 0


def test_kinds() -> None:
    assert fineline.explain(whole)(X).ran == {"captured": 3, "eager": 0, "skipped": 0}
    told = fineline.explain(lambda x: eager(plain(x)))(X)
    assert told.ran == {"captured": 2, "eager": 3, "skipped": 0}
    told = fineline.explain(with_block)(X)
    assert told.ran == {"captured": 1, "eager": 3, "skipped": 0}
