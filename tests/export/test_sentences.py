"""Each sentence of the design's control surface that is about export, through both doors."""

from __future__ import annotations

import inspect
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fineline
from fineline.errors import BadArgument, Constrained, FinelineError
from tests.export.models import Batch, Net, Pair, structures
from tests.policy.doors import same

X = torch.arange(4.0)


def two(x, y=None, *, scale=2.0):
    return {"out": x.sin() * scale if y is None else x * y}


def broken(x):
    x = x + 1
    print(end="")
    return x * 2


def test_export(door):
    """`export(f, *args, aten_graph=False, decomposition_table=None, tracing_mode="real", constraints=None, **kwargs)` ->
    `(GraphModule, guards)`"""
    gm, guards = result = door.export(two, X, scale=3.0)
    assert isinstance(gm, torch.fx.GraphModule) and gm is result.graph_module and guards is result.guards
    same(gm(X, scale=3.0), two(X, scale=3.0))
    same(gm(X + 1, None, 3.0), two(X + 1, scale=3.0))
    texts = [str(guard) for guard in guards]
    assert any("scale is 3.0" in text and "test_sentences.py:" in text for text in texts)
    assert any(guard.name == "x" and "size" in guard.claim for guard in guards)
    names = ["aten_graph", "decomposition_table", "tracing_mode", "constraints"]
    assert set(names) <= set(inspect.signature(fineline.export).parameters)


def test_constant_methods(door):
    """A method that is marked as one with a constant result is called during the export; the graph has what it gives."""
    mark = torch._dynamo.assume_constant_result if door.kind == "torch" else fineline.assume_constant_result

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.by = 3

        @mark
        def factor(self, n):
            return len(repr(self.by)) * self.by * n

        @mark
        def weights(self):
            return torch.tensor([1.0, 2.0, 3.0, 4.0]) * self.by

        def forward(self, x):
            return x * self.factor(2) + self.weights()

    net = Scaled()
    gm, _ = door.export(net, X)
    same(gm(X), net(X))
    same(gm(X + 1), net(X + 1))
    assert [node.target for node in gm.graph.nodes if node.op.startswith("call")][-2:] == [operator.mul, operator.add]


def test_the_new_calling_form():
    """... and after `install`, the form in which PyTorch's own takes the call's arguments apart."""
    fineline.install()
    try:
        result = torch._dynamo.export(two, aten_graph=True)(X, scale=3.0)
        same(result.graph_module(X, scale=3.0), two(X, scale=3.0))
        assert type(result) is torch._dynamo.eval_frame.ExportResult
        grown = torch._dynamo.export(lambda x: x.reshape(x.shape[0] * 2, -1))(torch.ones(4, 6))
        assert grown.graph_module(torch.ones(5, 8)).shape == (10, 4)
        fixed = torch._dynamo.export(lambda x: x * x.shape[0], assume_static_by_default=True)(torch.ones(4))
        with pytest.raises(AssertionError):
            fixed.graph_module(torch.ones(5))
        bounded = torch._dynamo.export(lambda x: x * x.shape[0], dynamic_shapes={"x": {0: torch.export.Dim("n", max=9)}})(torch.ones(4))
        same(bounded.graph_module(torch.ones(7)), torch.ones(7) * 7)
        with pytest.raises(AssertionError):
            bounded.graph_module(torch.ones(10))
    finally:
        fineline.uninstall()


def test_structure(door):
    """`export(f, *args, aten_graph=False, decomposition_table=None, tracing_mode="real", constraints=None, **kwargs)` →
    `(GraphModule, guards)`: takes and returns the user's own argument structure"""
    args = ({"x": X, "flag": True}, Pair(1, X + 1), [0, {"deep": (X * 2,)}], Batch(X + 2, scale=0.5))
    gm, _ = door.export(structures, *args)
    fresh = ({"x": X + 3, "flag": True}, Pair(1, X - 1), [0, {"deep": (X * 5,)}], Batch(X * 7, scale=0.5))
    ours, theirs = gm(*fresh), structures(*fresh)
    same(ours["pair"].a, theirs["pair"].a)
    same(ours["list"][0], theirs["list"][0])
    assert type(ours["pair"]) is Pair and ours["pair"].b is None and ours["list"][1][0] is fresh[0]["x"] and ours["list"][1][1:] == (3, "text")
    assert type(ours["data"]) is Batch and ours["data"].scale == 2.5 and ours["data"].mask is None
    same(ours["data"].x, theirs["data"].x)
    assert vars(ours["plain"])["kind"] is type(theirs["plain"]) is type(ours["plain"])
    assert str(inspect.signature(gm.forward)) == "(batch, pair, items, data)"
    gm, _ = door.export(lambda x, y: x + y if x is y else x * y, X, X)
    same(gm(fresh[0]["x"], fresh[0]["x"]), fresh[0]["x"] * 2)
    with pytest.raises(AssertionError, match="same object"):
        gm(X, X + 1)


@pytest.mark.parametrize("how", [{"decomposition_table": {}}, {"tracing_mode": "symbolic"}, {"tracing_mode": "fake"}], ids=str)
def test_without_aten(door, how):
    """AssertionError when `decomposition_table` or a tracing mode other than "real" comes without
    `aten_graph=True`, when there is a graph break, or when the graph does not reproduce the function's inputs and outputs."""
    with pytest.raises(AssertionError, match="FL602") as caught:
        door.export(two, X, **how)
    assert isinstance(caught.value, FinelineError)
    gm, _ = door.export(two, X, aten_graph=True, **how)
    same(gm(X), two(X))
    assert all(isinstance(n.target, torch._ops.OpOverload) for n in gm.graph.nodes if n.op == "call_function")


def test_before_dispatch(door):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))

    def fn(x):
        with torch.no_grad():
            y = net(x)
        return y + net(x), F.scaled_dot_product_attention(x, x, x)

    x = torch.randn(2, 4, 3)
    for mode in ("real", "fake", "symbolic"):
        gm, _ = door.export(fn, x, aten_graph=True, pre_dispatch=True, tracing_mode=mode)
        targets = [n.target for n in gm.graph.nodes if n.op == "call_function"]
        assert targets.count(torch.ops.aten.linear.default) == 2 and torch._C._set_grad_enabled in targets
        assert torch.ops.aten.scaled_dot_product_attention.default in targets
        for ours, theirs in zip(gm(x), fn(x), strict=True):
            same(ours, theirs)
            assert ours.requires_grad == theirs.requires_grad
    with pytest.raises(AssertionError, match="FL602"):
        door.export(fn, x, pre_dispatch=True)


@pytest.mark.parametrize("block", [lambda: torch.autocast("cpu"), lambda: torch.autocast("cpu", enabled=False)], ids=["on", "off"])
def test_autocast_before_dispatch(door, block):
    def fn(x):
        with block():
            return x @ x

    with pytest.raises(AssertionError, match=r"(?s)FL606.*set_autocast_enabled.*next: Export without pre_dispatch"):
        door.export(fn, torch.ones(3, 3), aten_graph=True, pre_dispatch=True)
    with pytest.raises(AssertionError, match=r"(?s)FL606.*pre_dispatch"):
        door.export(torch.vmap(torch.sin), X, aten_graph=True, pre_dispatch=True)
    gm, _ = door.export(fn, torch.ones(3, 3), aten_graph=True)
    assert gm(torch.ones(3, 3)).dtype == fn(torch.ones(3, 3)).dtype


def test_attention_kernels_before_dispatch(door):
    def fn(x):
        y = F.scaled_dot_product_attention(x, x, x)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return y, F.scaled_dot_product_attention(x, x, x)

    x = torch.arange(64.0).reshape(1, 4, 2, 8).transpose(1, 2) / 64
    for aten in (False, True):
        gm, _ = door.export(fn, x, aten_graph=aten)
        assert [y.stride() for y in gm(x)] == [y.stride() for y in fn(x)]
    with pytest.raises(AssertionError, match=r"(?s)FL606.*_set_sdp_use.*pre_dispatch"):
        door.export(fn, x, aten_graph=True, pre_dispatch=True)
    with pytest.raises(AssertionError, match=r"(?s)FL606.*kernels of attention.*next: Take the block out"):
        fineline.exported_program(fn, (x,))

    def stays(x):
        torch.backends.cuda.enable_flash_sdp(False)
        return x * 2

    with pytest.raises(AssertionError, match=r"(?s)FL604.*kernels of attention"):
        door.export(stays, x)
    assert torch.backends.cuda.flash_sdp_enabled()


def test_graph_break(door):
    """AssertionError when `decomposition_table` or a tracing mode other than "real" comes without
    `aten_graph=True`, when there is a graph break, or when the graph does not reproduce the function's inputs and outputs."""
    with pytest.raises(AssertionError, match=r"(?s)FL102.*test_sentences.py:\d+.*next:") as caught:
        door.export(broken, X)
    assert caught.value.where.endswith(f"test_sentences.py:{broken.__code__.co_firstlineno + 2}")
    with pytest.raises(AssertionError, match="FL102|FL103"):
        door.export(lambda x: (door.graph_break(), x)[1] + 1, X)


SEEN: list[torch.Tensor] = []


class Strange:
    __slots__ = ("x",)


def gives_a_strange_thing(x):
    s = Strange()
    s.x = x + 1
    return s


def appends(x):
    SEEN.append(x + 1)
    return x


class Counts(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def changes_its_list(x, items):
    items.append(x + 1)
    return x


@pytest.mark.parametrize(
    ("f", "args", "id", "says"),
    [
        (gives_a_strange_thing, (X,), "FL603", "Strange"),
        (lambda x: iter([x + 1]), (X,), "FL603", "iterator"),
        (appends, (X,), "FL604", "SEEN"),
        (Counts(), (X,), "FL604", "__dict__"),
        (changes_its_list, (X, []), "FL604", "items"),
    ],
)
def test_what_the_graph_does_not_reproduce(door, f, args, id, says):
    """AssertionError when `decomposition_table` or a tracing mode other than "real" comes without
    `aten_graph=True`, when there is a graph break, or when the graph does not reproduce the function's inputs and outputs."""
    with pytest.raises(AssertionError, match=rf"(?s)^{id}.*{says}.*at:.*next:") as caught:
        door.export(f, *args)
    assert caught.value.id == id and not SEEN and args[1:] in ((), ([],))


def test_nothing_else_comes_of_the_call(door):
    """... and the example call leaves nothing behind: neither writes nor random numbers drawn, also where it fails."""

    def f(x, table, fail=False):
        x.add_(torch.rand(4))
        table["a"] = x
        del table["a"]
        if fail:
            raise KeyError("the user's")
        return x * 2

    x, table, before = X.clone(), {}, torch.get_rng_state()
    door.export(f, x, table)
    with pytest.raises(KeyError, match="the user's"):
        door.export(f, x, table, True)
    assert torch.equal(x, X) and not table and torch.equal(torch.get_rng_state(), before)
    weight, y = torch.ones(4, requires_grad=True), X.clone()
    door.export(lambda y: y.mul_(weight), y)
    assert not y.requires_grad and y.grad_fn is None


def test_marked_sizes(door):
    """A dimension marked dynamic varies in the graph; one that the code constrains to one value raises and shows the line."""
    x = torch.ones(4, 3)
    fineline.mark_dynamic(x, 0, max=20)
    gm, guards = door.export(lambda x: x.view(x.shape[0] * 3) + x.shape[0], x)
    same(gm(torch.ones(7, 3)), torch.ones(21) + 7)
    with pytest.raises(AssertionError, match="20"):
        gm(torch.ones(21, 3))
    assert any("20" in str(guard) for guard in guards)
    y = torch.ones(4, 3)
    fineline.mark_dynamic(y, 0)
    with pytest.raises(Constrained, match="test_sentences.py"):
        door.export(lambda y: y + 1 if y.shape[0] == 4 else y, y)


def test_constraints_are_marks_now(door):
    with pytest.raises(BadArgument, match="mark_dynamic"):
        door.export(two, X, constraints=[1])


def test_signature_is_kept(door):
    """... names, defaults, and the keyword arguments of the example call."""
    gm, _ = door.export(two, X)
    assert str(inspect.signature(gm.forward)) == "(x, y=None, scale=2.0)"
    same(gm(x=X), two(X))
    with pytest.raises(AssertionError, match="y is None"):
        gm(X, X)
    with pytest.raises(AssertionError, match=r"scale is 2.0"):
        gm(X, scale=4.0)

    def loose(x, *rest, y=1, **more):
        return x + rest[0] * y + more["z"]

    gm, _ = door.export(loose, X, X + 1, z=X)
    assert list(inspect.signature(gm.forward).parameters) == ["x", "rest_0", "z"]
    same(gm(X, X, z=X), loose(X, X, z=X))


def test_module_state(door):
    """Parameters and buffers keep their names; writes to buffers are the graph's; training as captured."""
    net, twin = Net(), Net()
    twin.load_state_dict(net.state_dict())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gm, _ = door.export(net, torch.ones(3, 4))
    assert list(gm.state_dict()) == list(net.state_dict()) and gm.training
    assert gm.lin.weight is net.lin.weight and gm.tied.weight is net.lin.weight
    same(dict(net.state_dict()), before)
    x = torch.randn(3, 4)
    for _ in range(2):
        torch.manual_seed(3)
        theirs = twin(x)
        torch.manual_seed(3)
        same(gm(x), theirs)
        same(dict(gm.state_dict()), dict(twin.state_dict()))
    net.eval()
    gm, _ = door.export(net, x)
    assert not gm.training and not gm.bn.training
    gm, _ = door.export(net.half, x)
    same(gm(x + 1), net.half(x + 1))
    assert "lin.weight" in gm.state_dict()


def test_a_compiled_function_is_exported_as_it_was(door):
    gm, _ = door.export(door.compile(two, backend="eager"), X)
    same(gm(X), two(X))
    gm, _ = door.export(door.compile(Net(), backend="eager"), torch.ones(2, 4))
    assert "lin.weight" in gm.state_dict()


def test_tracing_modes(door):
    """tracing_mode: "real" and "fake" fix the sizes, "symbolic" lets them vary; "fake" computes no number."""
    net = nn.Linear(4, 4)
    for mode in ("real", "fake", "symbolic"):
        gm, _ = door.export(net, torch.ones(3, 4), aten_graph=True, tracing_mode=mode)
        same(gm(torch.ones(3, 4)), net(torch.ones(3, 4)))
        if mode == "symbolic":
            same(gm(torch.ones(8, 4)), net(torch.ones(8, 4)))
        else:
            with pytest.raises(AssertionError, match=r"x|input"):
                gm(torch.ones(8, 4))
    big = nn.Linear(1 << 20, 1 << 20, device="meta")
    gm, _ = door.export(big, torch.ones(1, 1 << 20, device="meta"), aten_graph=True, tracing_mode="fake")
    assert gm.weight.is_meta
    table = torch._decomp.get_decompositions([torch.ops.aten.addmm])
    gm, _ = door.export(net, torch.ones(3, 4), aten_graph=True, decomposition_table=table)
    assert torch.ops.aten.addmm.default not in [n.target for n in gm.graph.nodes]
    same(gm(torch.ones(3, 4)), net(torch.ones(3, 4)))


def test_theirs_is_back():
    theirs = torch._dynamo.export
    fineline.install()
    assert torch._dynamo.export is not theirs
    fineline.uninstall()
    assert torch._dynamo.export is theirs


def looked_at(x):
    return {f"of {x.shape[0]}": x * 2}


def returned(x):
    return x * 2, "of " + f"{x.shape[0]}"


def only_for_an_error(x):
    told = "of " + f"{x.shape[0]}"
    if x.shape[0] == 3:
        raise ValueError(told)
    return x * 2


@pytest.mark.parametrize("fn", [looked_at, returned, only_for_an_error])
def test_texts_of_sizes(fn):
    """A graph gives no texts: one that is needed fixes its size."""
    exported = fineline.export(fn, torch.ones(5), aten_graph=True, tracing_mode="symbolic")
    assert str(exported.graph_module(torch.ones(5))) == str(fn(torch.ones(5)))
    if fn is only_for_an_error:
        assert str(exported.graph_module(torch.ones(6))) == str(fn(torch.ones(6)))
    else:
        with pytest.raises(AssertionError, match=r"size\(0\) == 5"):
            exported.graph_module(torch.ones(6))
