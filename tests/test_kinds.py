"""`is_a`, native and in Python: by the type alone."""

from __future__ import annotations

import collections
import enum
import functools
import io
import itertools
import random
import re
from typing import Any

import numpy as np
import pytest
import torch

from fineline.kinds import is_a, is_a_in_python, is_users_class

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


class Meta(type):
    @property
    def __flags__(cls) -> Any:
        raise AssertionError("asked")


class OfMeta(metaclass=Meta):
    pass


class Chain(itertools.chain):
    pass


# Static types in 3.11, which C creates at run time in later versions.
C_TYPES = [
    *[t for t in vars(itertools).values() if type(t) is type and t.__module__ == "itertools"], collections.deque, collections.defaultdict, io.StringIO, io.BytesIO,
    type(iter(collections.deque())),
]  # fmt: skip


@pytest.mark.parametrize("cls", C_TYPES, ids=lambda cls: cls.__name__)
def test_a_c_type_is_not_the_users(cls: type) -> None:
    assert not is_users_class(cls)


# The type of functions that Cython compiles is not of the standard library; it describes ``__module__`` of its instances.
CYTHON = type(np.random.RandomState.__dict__["randn"])


@pytest.mark.parametrize("cls", [CYTHON, Pretender, OfMeta, Chain, Colour, torch.nn.Parameter, collections.Counter, random.Random, re.Pattern, functools.partial])
def test_a_class_that_may_run_python_code_is_the_users(cls: type) -> None:
    assert is_users_class(cls)
