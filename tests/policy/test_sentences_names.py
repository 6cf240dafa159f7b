"""Section 2 of the control surface, from `disable` to `is_compiling`: each test quotes the sentence that it is about."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import pickle
import sys
import typing

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy
from fineline.errors import BadRule, Forbidden, Unsupported
from tests.policy.doors import Probe, same

X = torch.arange(4.0)


def helper(x):
    return x.cos()


def outer(x):
    return helper(x * 2) + 1


def keeps(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    """Says what it does."""
    return x.cos() * k


# -- signatures --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (fineline.compile, torch.compile),
        (fineline.disable, torch._dynamo.disable),
        (fineline.disallow_in_graph, torch._dynamo.disallow_in_graph),
        (fineline.allow_in_graph, torch._dynamo.allow_in_graph),
        (fineline.forbid_in_graph, torch._dynamo.forbid_in_graph),
        (fineline.graph_break, torch._dynamo.graph_break),
        (fineline.assume_constant_result, torch._dynamo.assume_constant_result),
        (fineline.substitute_in_graph, torch.compiler.substitute_in_graph),
        (fineline.set_stance, torch.compiler.set_stance),
        (fineline.error_on_graph_break, torch._dynamo.error_on_graph_break),
        (fineline.nested_compile_region, torch.compiler.nested_compile_region),
        (fineline.list_backends, torch._dynamo.list_backends),
        (fineline.register_backend, torch._dynamo.register_backend),
        (fineline.run, torch._dynamo.run),
    ],
    ids=lambda fn: getattr(fn, "__name__", None),
)
def test_same_signatures(ours, theirs):
    """Same signatures as PyTorch's, so that code ports by changing the import."""
    own = ("name", "recompile_limit", "isolate_recompiles", "shapes_spec")  # of torch.compile alone, in 2.13
    theirs = getattr(theirs, "__init__", theirs) if inspect.isclass(theirs) else theirs
    mine = inspect.signature(ours).parameters
    wanted = [p for name, p in inspect.signature(theirs).parameters.items() if name != "self" and name not in own]
    positional = [p for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len([p for p in mine.values() if p.kind is p.POSITIONAL_OR_KEYWORD]) >= len(positional)
    for p in wanted:
        if p.kind is p.KEYWORD_ONLY:
            assert p.name in mine, (p.name, mine)


# -- disable -----------------------------------------------------------------------------------------------------------------
def test_forms_of_disable(door):
    """`disable(fn=None, recursive=True, *, reason=None)`: decorator, decorator with arguments, plain call, **and context manager**."""

    @door.disable
    def bare(x):
        return x.cos()

    @door.disable(reason="why not")
    def with_arguments(x):
        return x.cos()

    plain = door.disable(helper, True)
    for fn in (bare, with_arguments, plain):
        assert door.graphs(lambda x: fn(x * 2) + 1, X) == [["mul"], ["add"]]  # noqa: B023

    def block(x):
        x = x * 2
        with door.disable():
            x = helper(x)
        return x + 1

    assert door.graphs(block, X) == [["mul"], ["add"]]


def test_disable_leaves_the_original_alone(door, monkeypatch):
    """Given a function it returns a new callable and leaves the original alone (others that call the original are still traced); the new
    callable keeps name, docstring, signature, and can be pickled; over `@staticmethod` and `@classmethod` it works in either
    order."""
    hidden = door.disable(keeps)
    assert hidden is not keeps and door.graphs(lambda x: keeps(x) + 1, X) == [["cos", "mul", "add"]]
    assert (hidden.__name__, hidden.__doc__, inspect.signature(hidden)) == (keeps.__name__, keeps.__doc__, inspect.signature(keeps))
    monkeypatch.setattr(sys.modules[__name__], "keeps", hidden)
    assert pickle.loads(pickle.dumps(hidden)) is hidden

    class Methods:
        @staticmethod
        @door.disable
        def a(x):
            return x.cos()

        @door.disable
        @staticmethod
        def b(x):
            return x.cos()

        @classmethod
        @door.disable
        def c(cls, x):
            return x.cos()

        @door.disable
        @classmethod
        def d(cls, x):
            return x.cos()

    for name in "abcd":
        assert door.graphs(lambda x: getattr(Methods, name)(x * 2) + 1, X) == [["mul"], ["add"]]  # noqa: B023
        assert door.graphs(lambda x: getattr(Methods(), name)(x * 2) + 1, X) == [["mul"], ["add"]]  # noqa: B023


def test_disable_marks_classes_and_modules(door):
    """Given a class or an `nn.Module` instance it marks that object and returns the same object: type, `state_dict` keys, hooks,
    `isinstance` stay as they were, and its hooks run eagerly too."""

    class Own:
        def method(self, x):
            return x.cos()

    assert door.disable(Own) is Own and isinstance(Own(), Own)
    own = Own()
    assert door.graphs(lambda x: own.method(x * 2) + 1, X) == [["mul"], ["add"]]
    layer, seen = nn.Linear(4, 4), []
    layer.register_forward_hook(lambda m, a, out: seen.append(door.is_compiling()) or out.sin())
    keys, hooks = list(layer.state_dict()), dict(layer._forward_hooks)
    assert door.disable(layer) is layer and type(layer) is nn.Linear
    assert list(layer.state_dict()) == keys and dict(layer._forward_hooks) == hooks
    assert door.graphs(lambda x: layer(x * 2) + 1, X) == [["mul"], ["add"]]
    assert seen == [False] * 6


def test_the_more_explicit_request_wins(door):
    """A region that was compiled explicitly and is called from a disabled
    function is still captured (the more explicit request wins, as in PyTorch); inside the block form nothing is captured at all."""
    inner = door.compile(helper, backend=(probe := Probe()))

    @door.disable
    def hidden(x):
        return inner(x)

    same(door.compile(lambda x: hidden(x * 2) + 1, backend="eager")(X), outer(X))
    assert probe.graphs == [["cos"]]
    fresh = door.compile(outer, backend=(probe := Probe()))
    with door.disable():
        same(fresh(X), outer(X))
    assert probe.graphs == []


def test_disable_under_fullgraph(door):
    """Under `fullgraph=True` reaching one is an error that quotes the reason. (`wrapping=`, which torch itself passes, is accepted.)"""
    hidden = door.disable(helper, reason="reads the disk", wrapping=False)
    with pytest.raises(Unsupported, match="reads the disk"):
        door.compile(lambda x: hidden(x * 2) + 1, backend="eager", fullgraph=True)(X)


# -- disallow, allow, forbid -------------------------------------------------------------------------------------------------
def test_disallow_every_spelling(door):
    """`disallow_in_graph(op)`: every spelling of the operator (`torch.sub(a, b)`, `a - b`, `a.sub(b)`, `F.…`) leaves the graph."""
    door.disallow_in_graph([torch.sub, torch.softmax])

    def f(x):
        y = torch.sub(x, 1).cos()
        y = (y - 2).cos()
        y = y.sub(3).cos()
        return nn.functional.softmax(y, dim=0) * y.softmax(0)

    # Between the later ones there is too little for a graph.
    assert {name for graph in door.graphs(f, X) for name in graph} == {"cos", "mul"}


def test_disallow_an_aten_operator(door):
    """Given an ATen
    operator it acts on the smallest captured call that dispatches to it. Until `allow_in_graph(op)` says otherwise, or scoped by a policy."""

    def f(x):
        return nn.functional.softmax(x * 2, dim=0).cos()

    door.disallow_in_graph(torch.ops.aten._softmax)
    assert door.graphs(f, X) == [["mul"], ["cos"]]
    door.allow_in_graph(torch.ops.aten._softmax)
    assert door.graphs(f, X) == [["mul", "softmax", "cos"]]
    assert door.graphs(lambda x: (x * 2 - 1).cos(), X, policy=Policy(disallow=torch.ops.aten.sub.Tensor)) == [["mul"], ["cos"]]


def test_disallow_a_python_function(door):
    """A plain Python function that would be run through is an error at declaration (say `disable`), unless `allow_in_graph` had made it opaque."""

    def own(x):
        return x.cos()

    with pytest.raises(BadRule, match="disable"):
        door.disallow_in_graph(own)
    door.allow_in_graph(own)
    assert door.graphs(lambda x: own(x * 2) + 1, X) == [["mul", "own", "add"]]
    door.disallow_in_graph(own)
    assert door.graphs(lambda x: own(x * 2) + 1, X) == [["mul"], ["add"]]


class Kind(enum.Enum):
    A = 1


class Pair(typing.NamedTuple):
    a: torch.Tensor
    k: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: torch.Tensor
    k: int


@pytest.mark.parametrize(
    "value",
    [
        X, 2, True, 2.0, "text", None, torch.float32, torch.device("cpu"), Kind.A, [X, 1], (X, 1), {"a": X, "b": 2}, Pair(X, 2), Frozen(X, 2),
        [{"a": (X, Pair(X, 1))}],
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_what_allow_carries(door, value):
    """`allow_in_graph(fn)`: its contract is *checked*. Inputs and outputs must be what FX can carry (Tensor, int, bool, float, str, None, dtype, device,
    enum members, and lists, tuples, dicts, named tuples and frozen dataclasses of these)"""

    @door.allow_in_graph
    def opaque(x, value):
        x = x * getattr(value, "a", 1)  # named tuples and dataclasses come in as what they are
        return x * 2, value

    probe = Probe()
    compiled = door.compile(lambda x, value: opaque(x + 1, value), backend=probe, fullgraph=True)
    for _ in range(2):
        x, got = compiled(X, value)
        same(x, opaque(X + 1, value)[0])
        assert type(got) is type(value) and str(got) == str(value)
    assert [[n for n in graph if n not in ("getitem", "getattr", "Pair", "Frozen")] for graph in probe.graphs] == [["add", "opaque"]]


CAPTURED = torch.ones(4)
SCALE = 2.0


def test_the_contract_of_allow(door, monkeypatch):
    """every tensor used inside must come in as an argument. What it reads besides (closure cells, globals,
    attributes) is guarded like any other input. A violation is an error that names the captured variable or the argument, not a wrong result."""
    local = torch.ones(4)
    uses_global = door.allow_in_graph(lambda x: x * CAPTURED)
    uses_cell = door.allow_in_graph(lambda x: x * local)
    for opaque, name in ((uses_global, "CAPTURED"), (uses_cell, "local")):
        with pytest.raises(Unsupported, match=name):
            door.compile(lambda x: opaque(x) + 1, backend="eager")(X)  # noqa: B023

    class Thing:
        pass

    takes = door.allow_in_graph(lambda x, thing: x)
    with pytest.raises(Unsupported, match="Thing"):
        door.compile(lambda x: takes(x, Thing()), backend="eager")(X)
    gives = door.allow_in_graph(lambda x: (x, Thing()))
    with pytest.raises(Unsupported, match="Thing"):
        door.compile(lambda x: gives(x)[0], backend="eager")(X)
    cell, holder = 3.0, Thing()
    holder.k = 5.0

    @door.allow_in_graph
    def reads(x):
        return x * SCALE + cell * holder.k

    compiled = door.compile(lambda x: reads(x) + 1, backend="eager")
    same(compiled(X), reads(X) + 1)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 7.0)
    same(compiled(X), X * 7 + 16)
    cell = 4.0
    same(compiled(X), X * 7 + 21)
    holder.k = 1.0
    same(compiled(X), X * 7 + 5)


def test_forbid_names_the_users_line(door):
    """`forbid_in_graph(fn)`: legal in eager code, an error with the user's line when captured."""

    @door.forbid_in_graph
    def never(x):
        return x * 2

    def f(x):
        return never(x)

    same(f(X), X * 2)
    with pytest.raises(Forbidden) as caught:
        door.compile(f, backend="eager")(X)
    assert caught.value.where == f"{__file__}:{f.__code__.co_firstlineno + 1}"


# -- graph_break, constant, substitute, is_compiling ---------------------------------------------------------------------------
def test_graph_break(door):
    """`graph_break(msg=None)`: one break here, at any depth, in loops, `with` and `try` alike. Nothing outside a compiled region."""

    def deep(x):
        x = x.sin()
        door.graph_break("here")
        return x.cos()

    def f(x):
        for _ in range(2):
            with torch.no_grad():
                try:
                    x = [deep(y) for y in [x * 2]][0]
                finally:
                    x = x + 1
        return x

    graphs = [[name for name in graph if not name.startswith("_")] for graph in door.graphs(f, X)]
    assert graphs == [["mul", "sin"], ["cos", "add", "mul", "sin"], ["cos", "add"]]
    assert door.graph_break() is None and door.graph_break("outside") is None


def test_assume_constant_result(door):
    """`assume_constant_result(fn)`, `substitute_in_graph(original)`: as PyTorch's, with the result's inputs guarded."""
    calls = []

    @door.assume_constant_result
    def factor(k):
        calls.append(k)
        return k * 10.0

    compiled = door.compile(lambda x, k: x * factor(k), backend="eager", fullgraph=True)
    for k in (2, 2, 3, 2):
        same(compiled(X, k), X * k * 10.0)
    assert calls == [2, 3]
    settings = {"scale": [1.0, 2.0]}
    held = door.assume_constant_result(lambda settings: sum(settings["scale"]))
    compiled = door.compile(lambda x: x * held(settings), backend="eager", fullgraph=True)
    for more in (3.0, 4.0):
        same(compiled(X), X * sum(settings["scale"]))
        settings["scale"].append(more)


def test_substitute_in_graph(door):
    """`assume_constant_result(fn)`, `substitute_in_graph(original)`: as PyTorch's, with the result's inputs guarded."""

    def slow(x, k):
        return sum(float(v) for v in x) * k

    with pytest.raises((BadRule, TypeError)):
        door.substitute_in_graph(slow)(lambda x, other: x)
    replacement = door.substitute_in_graph(slow)(lambda x, k: x.sum() * SCALE * k)
    assert callable(replacement)
    compiled = door.compile(lambda x, k: slow(x, k), backend="eager", fullgraph=True)
    same(compiled(X, 2), X.sum() * SCALE * 2)
    same(compiled(X, 3), X.sum() * SCALE * 3)


def test_is_compiling(door):
    """`is_compiling()`: True while captured by fineline or by `torch.export`; `is_dynamo_compiling()`: True only while fineline captures. Both are
    True as well in what replays a capture, and False in code that runs eagerly because of a rule."""

    def asks():
        return door.is_compiling(), door.is_dynamo_compiling()

    hidden = door.disable(asks)
    hidden_frame = door.disable(lambda: (door.is_compiling(), asks()), recursive=False)
    compiled = door.compile(lambda x: (x * 2, asks(), hidden(), hidden_frame()), backend="eager")
    for _ in range(3):
        assert compiled(X)[1:] == ((True, True), (False, False), (False, (True, True)))
    assert asks() == (False, False)
    seen = []

    class Net(nn.Module):
        def forward(self, x):
            seen.append(asks())
            return x * 2

    torch.export.export(Net(), (X,), strict=False)
    assert set(seen) == {(True, False)}
