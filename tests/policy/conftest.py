"""The fixture ``door``: each test once with fineline's names and once with PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import fineline
from tests.policy.doors import Door


@pytest.fixture(params=["fineline", "torch"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """Nothing that a test declares outlasts it, but for the marks on its own functions."""
    if request.param == "torch":
        fineline.install()
    yield Door(request.param)
    fineline.uninstall()
    fineline.set_policy(None)
    fineline.reset()
    if request.param == "torch":
        torch._dynamo.reset()
