"""A rule about a function of ``torch.nn.functional`` holds whatever the function's arguments: ``inplace=True`` too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fineline
from fineline import Policy
from fineline.torch_facts.mutation import INPLACE_FLAG
from tests.policy.doors import Probe

X = torch.arange(4.0)
INPLACE = sorted(INPLACE_FLAG, key=lambda fn: fn.__name__)
MODULES = [nn.ReLU, nn.Dropout, nn.ELU, nn.Hardtanh, nn.SiLU, nn.LeakyReLU, nn.Hardswish, nn.Mish, nn.SELU, nn.CELU]


def _arguments(fn):
    x = torch.rand(2, 3, 3) - 0.5
    return (x[None] if fn in (F.dropout2d, F.dropout3d) else x, *([0.1, 0.2] if fn is F.threshold else []))


@pytest.mark.parametrize("fn", INPLACE, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("by", ["object", "name", "mark"])
def test_a_function_is_meant_whatever_its_arguments(fn, by):
    """``F.relu(x, inplace=True)`` is the operator ``relu_``, and a call of ``F.relu``."""

    def run(x, *rest):
        return fn(x * 1, *rest, inplace=True) + 1

    policy = None
    if by == "mark":
        fineline.disallow_in_graph(fn)
    else:
        policy = Policy(disallow=fn if by == "object" else f"torch.nn.functional.{fn.__name__.lstrip('_')}")
    try:
        probe = Probe()
        torch.manual_seed(0)
        fineline.compile(run, backend=probe, policy=policy)(*_arguments(fn))
        assert probe.graphs == [["mul"], ["add"]]
    finally:
        fineline.reset()


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_a_function_is_meant_in_its_module(module):
    functional = {"ReLU": F.relu, "Dropout": F.dropout, "LeakyReLU": F.leaky_relu}.get(module.__name__)
    functional = functional or getattr(F, module.__name__.lower())
    m = module(inplace=True)
    probe = Probe()
    fineline.compile(lambda x: m(x * 1) + 1, backend=probe, policy=Policy(disallow=functional))(X)
    assert probe.graphs == [["mul"], ["add"]]


def test_the_operator_in_place_is_another_one():
    def run(x):
        return torch.relu_(x * 1) + F.relu(x).sum()

    probe = Probe()
    fineline.compile(run, backend=probe, policy=Policy(disallow=torch.relu_))(X)
    assert probe.graphs == [["mul"], ["relu", "sum", "add"]]
    probe = Probe()
    fineline.compile(run, backend=probe, policy=Policy(disallow=F.relu))(X)
    assert probe.graphs == [["mul", "relu_"], ["sum", "add"]]
    assert graphs_of_inplace(Policy(disallow=torch.relu_)) == [["mul"], ["add"]]
    assert graphs_of_inplace(Policy(disallow=torch.ops.aten.relu)) == [["mul", "relu", "add"]]


def graphs_of_inplace(policy):
    probe = Probe()
    fineline.compile(lambda x: F.relu(x * 1, inplace=True) + 1, backend=probe, policy=policy)(X)
    return probe.graphs
