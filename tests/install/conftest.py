"""The fixture ``installed``: PyTorch's names are fineline's, for one test."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo

import fineline


@pytest.fixture
def installed():
    fineline.install()
    yield
    fineline.uninstall()
    fineline.reset()
    torch._dynamo.reset()
