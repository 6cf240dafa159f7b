"""``allow_in_graph`` through PyTorch's names: what PyTorch takes is taken."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import logging
import sys

import pytest
import torch
import torch._dynamo
from torch import nn

from fineline.errors import Unsupported
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


LIBRARY = """
import torch

TABLE = {}


def looks_up(x):
    key = x.dtype, x.dim()
    if key not in TABLE:
        TABLE[key] = 2.0
    return x * TABLE[key]


def counts(x):
    TABLE["calls"] = TABLE.get("calls", 0) + 1
    return x * 2


torch.compiler.allow_in_graph(looks_up)
torch.compiler.allow_in_graph(counts)
"""


def test_what_a_library_marks_is_no_promise_of_the_user_s(forgotten, tmp_path, monkeypatch):
    """The user cannot mend a function that fills a table (einx): no error then, as without `install`."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "library_that_marks.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.delitem(sys.modules, "library_that_marks", raising=False)
    library = importlib.import_module("library_that_marks")
    graphs = []

    def backend(gm, inputs):
        graphs.append([n.target for n in gm.graph.nodes if n.op == "call_function"])
        return gm.forward

    @torch.compile(backend=backend)
    def fills(x):
        return library.looks_up(x.sin()) + 1

    for _ in range(3):
        assert torch.equal(fills(X), X.sin() * 2 + 1)
    assert len(graphs) == 1 and library.looks_up in graphs[0]

    @torch.compile(backend=backend)
    def counts(x):
        return library.counts(x.sin()) + 1

    for k in range(6):
        assert torch.equal(counts(X), X.sin() * 2 + 1) and library.TABLE["calls"] == k + 1
    # The user's own mark is checked.
    torch.compiler.allow_in_graph(marked_by_the_user)
    with pytest.raises(Unsupported, match="FL107"):
        torch.compile(lambda x: marked_by_the_user(x) + 1, backend="eager")(X)


CALLS = {"n": 0}


def marked_by_the_user(x):
    CALLS["n"] += 1
    return x * 2
