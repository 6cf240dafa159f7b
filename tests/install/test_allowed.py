"""``allow_in_graph`` through PyTorch's names: what PyTorch takes is taken."""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging

import pytest
import torch
import torch._dynamo
from torch import nn

from tests.install.captured import X


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x).relu()


class Derived(Block):
    pass


class Callable_:
    def __call__(self, x):
        return x * 2


@dataclasses.dataclass
class Data:
    x: object


class Pair(collections.namedtuple("Pair", "a b")):
    pass


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def plain(x):
    return x.sin() * 2


class Holder:
    def method(self, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 2


BLOCK, HOLDER, OBJECT = Block(), Holder(), Callable_()
# What is marked -> code that meets it.
ALLOWED = {
    "module class": (Block, lambda x: BLOCK(x)),
    "class above the module's": (Block, lambda x, m=Derived(): m(x)),
    "module class, made inside": (Callable_, lambda x: Callable_()(x)),
    "module instance": (BLOCK, lambda x: BLOCK(x)),
    "nn.Linear": (nn.Linear, lambda x: BLOCK(x)),
    "nn.Sequential": (nn.Sequential, lambda x, m=nn.Sequential(Block(), Block()): m(x)),
    "data class": (Data, lambda x: Data(x * 2).x),
    "named tuple": (Pair, lambda x: Pair(x, x + 1).b),
    "autograd function": (Double, lambda x: Double.apply(x)),
    "function": (plain, lambda x: plain(x)),
    "lambda": (shorter := lambda x: x * 3, lambda x: shorter(x)),
    "static method": (Holder.static, lambda x: Holder.static(x)),
    "list of classes": ([Block, Derived], lambda x: BLOCK(x)),
    "list of a class and a function": ([Block, plain], lambda x: plain(BLOCK(x))),
    "tuple": ((Block, plain), lambda x: plain(BLOCK(x))),
    "operator": (torch.sin, lambda x: torch.sin(x)),
}  # fmt: skip


@pytest.fixture
def forgotten(installed):
    yield
    from torch._dynamo import trace_rules

    # Marks of PyTorch's last as long as what they are on.
    for thing in (Block, Derived, Callable_, BLOCK, nn.Linear, nn.Sequential, Data, Pair, Double, plain, torch.sin, shorter, Holder.static):
        trace_rules._allowed_callable_ids.remove(id(thing))


@pytest.mark.parametrize("mark", ["dynamo", "compiler"])
@pytest.mark.parametrize("case", ALLOWED)
def test_what_pytorch_takes_is_taken(forgotten, caplog, case, mark):
    caplog.set_level(logging.WARNING)
    what, f = ALLOWED[case]
    allow = torch._dynamo.allow_in_graph if mark == "dynamo" else torch.compiler.allow_in_graph
    assert allow(what) is what
    x = torch.randn(2, 4)
    compiled = torch.compile(lambda x: f(x) + 1, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x), f(x) + 1)
    told = [record.getMessage() for record in caplog.records if "allow_in_graph" in record.getMessage()]
    several = what if isinstance(what, (list, tuple)) else [what]
    looked_into = any(isinstance(thing, (type, nn.Module)) and thing is not Double for thing in several)
    assert len(told) == looked_into


def test_a_marked_class_as_a_decorator(forgotten):
    @torch._dynamo.allow_in_graph
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x, scale=functools.partial(torch.mul, other=2)):
            return scale(self.lin(x))

    model, x = nn.Sequential(Inner(), Inner()), torch.randn(2, 4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
    assert torch.equal(torch.compile(plain, backend="eager")(X), plain(X))
