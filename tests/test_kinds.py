"""`is_a`, native and in Python: by the type alone."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import torch

from fineline.kinds import is_a, is_a_in_python

BOTH = pytest.mark.parametrize("ask", [is_a, is_a_in_python], ids=["native", "python"])


class Pretender:
    @property
    def __class__(self) -> Any:
        raise AssertionError("asked")


class Colour(enum.Enum):
    RED = 1


@BOTH
@pytest.mark.parametrize(
    ("obj", "kinds", "answer"),
    [
        (1, int, True),
        (True, int, True),
        (1, (str, (bytes, int)), True),
        (1, (), False),
        (1, int | str, True),
        (b"", int | str, False),
        (int, type, True),
        (torch.zeros(1), torch.Tensor, True),
        (torch.nn.Parameter(torch.zeros(1)), (str, torch.Tensor), True),
        (torch.zeros(1), torch.nn.Parameter, False),
        (Colour.RED, enum.Enum, True),
    ],
)
def test_answers(ask: Any, obj: Any, kinds: Any, answer: bool) -> None:
    assert ask(obj, kinds) is answer


@BOTH
def test_nobody_is_asked_for_a_class(ask: Any) -> None:
    assert ask(Pretender(), Pretender)
    assert not ask(Pretender(), int)


@BOTH
@pytest.mark.parametrize("args", [(1,), (1, 2), (1, (2,)), (1, int, str)])
def test_misuse(ask: Any, args: Any) -> None:
    with pytest.raises(TypeError):
        ask(*args)
