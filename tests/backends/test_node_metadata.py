"""What a backend finds in the nodes of a graph: the user's lines, the modules, fake values, and inputs under the names of what they are."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint

import fineline


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.many = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.register_buffer("shift", torch.ones(3))
        self.held = [torch.ones(3)]

    def forward(self, x, more=None):
        y = self.a(x) + self.shift + self.held[0]
        for m in self.many:
            y = m(y)
        return y if more is None else y + more["k"]

    def other(self, x):
        return self.a(x).relu()


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


NET = Net()
SCALE = torch.full((3,), 2.0)
WEIGHTS = {"a": [torch.ones(3)]}


def graphs_of(fn: Callable, *args: Any, **kwargs: Any) -> list[GraphModule]:
    """The graphs that a backend sees of one call."""
    seen: list[GraphModule] = []
    options = kwargs.pop("options", {})

    def backend(gm: GraphModule, inputs: list) -> Callable:
        seen.append(gm)
        return gm.forward

    fineline.compile(fn, backend=backend, **options)(*args, **kwargs)
    return seen


def inputs_of(gm: GraphModule) -> list[str]:
    return [node.name for node in gm.graph.find_nodes(op="placeholder")]


def calls_of(gm: GraphModule) -> list[torch.fx.Node]:
    return [node for node in gm.graph.nodes if node.op.startswith("call")]


X = torch.ones(2, 3)


def over_globals(x):
    return NET(x) * SCALE + WEIGHTS["a"][0]


def closing_over() -> Callable:
    net, scale = Net(), torch.ones(3)
    return lambda x: net.a(x) * scale


def of_many(x, *rest, **named):
    return x + rest[0] + named["k"]


def of_nested(x):
    return x[0]["a"] + x[1][0]


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fooBar, self.w_1 = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.fooBar + self.w_1


A = ["l_self_modules_a_parameters_weight_", "l_self_modules_a_parameters_bias_"]
MANY = ["l_self_modules_many_modules_0_parameters_weight_", "l_self_modules_many_modules_0_parameters_bias_"]
NAMES = [
    ("a_module", Net(), (X,), {}, ["l_x_", *A, "l_self_buffers_shift_", "l_self_held_0_", *MANY]),
    ("a_method", Net().other, (X,), {}, ["l_x_", *A]),
    ("its_forward", Net().forward, (X,), {}, ["l_x_", *A, "l_self_buffers_shift_", "l_self_held_0_", *MANY]),
    ("in_a_dict", Net(), (X, {"k": X + 1}), {}, ["l_x_", *A, "l_self_buffers_shift_", "l_self_held_0_", *MANY, "l_more_k_"]),
    ("inside", Outer(Outer(nn.Linear(3, 3))), (X,), {}, [
        "l_x_", "l_self_modules_inner_modules_inner_parameters_weight_", "l_self_modules_inner_modules_inner_parameters_bias_"]),
    ("globals", over_globals, (X,), {}, [
        "l_x_", *[name.replace("l_self", "g_net") for name in (*A, "l_self_buffers_shift_", "l_self_held_0_", *MANY)], "g_scale_", "g_weights_a_0_"]),
    ("a_closure", closing_over(), (X,), {}, ["l_x_", *[name.replace("l_self", "l_net") for name in A], "l_scale_"]),
    ("of_many", of_many, (X, X + 1), {"k": X + 2}, ["l_x_", "l_rest0_", "l_k_"]),
    ("of_nested", of_nested, ([{"a": X}, (X + 1,)],), {}, ["l_x_0_a_", "l_x_1_0_"]),
    ("odd_names", Odd(), (X,), {}, ["l_x_", "l_self_parameters_foo_bar_", "l_self_parameters_w_1_"]),
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("fn", "args", "kwargs", "names"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_inputs_are_named_by_the_users_expressions(fn: Any, args: Any, kwargs: Any, names: list[str], dynamic: bool | None) -> None:
    (gm,) = graphs_of(fn, *args, options={"dynamic": dynamic}, **kwargs)
    found = inputs_of(gm)
    assert found == names
    assert all([name.isidentifier() for name in found])


def test_names_are_unique() -> None:
    def fn(x):
        return x["a_b"] + x["a"]["b"] + x["a b"]

    (gm,) = graphs_of(fn, {"a_b": X, "a": {"b": X + 1}, "a b": X + 2})
    assert sorted(inputs_of(gm)) == ["l_x_a_b_", "l_x_a_b__1", "l_x_a_b__2"]


def through(x):
    return x.view(-1)


def generated(x):
    for i in range(1, 3):
        yield x * i


def looping(x):
    return sum(generated(x)) + sum([through(x)[0] for _ in range(2)])


def broken(x):
    y = through(x) + 1
    print(end="")
    return through(y * 2)


def checkpointed(x):
    return checkpoint(lambda z: through(NET.a(z).relu()), x, use_reentrant=False)


def conditional(x):
    return torch.cond(x.sum() > 0, lambda z: through(z) + 1, lambda z: through(z) - 1, (x,))


def splitting(x):
    a, b = x.split(1)
    values, places = torch.max(a + b, 1)
    return values * x.size(0), places


def changing_modes(x):
    with torch.no_grad():
        y = x * 2
    return y + x.sum()


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


def own_function(x):
    return Squared.apply(x) + 1


PROGRAMS = [over_globals, looping, broken, checkpointed, conditional, splitting, changing_modes, own_function, Net()]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: getattr(fn, "__name__", "module"))
def test_each_operator_has_the_users_line(fn: Callable, dynamic: bool | None) -> None:
    graphs = graphs_of(fn, torch.ones(2, 3, requires_grad=True), options={"dynamic": dynamic})
    parts = [part for gm in graphs for part in gm.modules() if isinstance(part, GraphModule)]
    for part in parts:
        for node in calls_of(part):
            assert __file__ in node.meta.get("stack_trace", ""), node.format_node()
            assert f"{os.sep}torch{os.sep}nn" not in node.meta["stack_trace"]
            assert not [key for key in node.meta if key.startswith("fineline_")]
    for gm in graphs:
        assert "No stacktrace" not in gm.print_readable(print_output=False)
        assert f"File: {__file__}" in gm.print_readable(print_output=False)


def test_the_innermost_frame_comes_last() -> None:
    (gm,) = graphs_of(lambda x: looping(x), X)
    view = next(node for node in calls_of(gm) if node.target == "view")
    frames = [line.split(", in ")[1] for line in view.meta["stack_trace"].splitlines() if line.startswith("  File")]
    # From Python 3.12 on, a list comprehension has no code of its own.
    within = [const.co_name for const in looping.__code__.co_consts if isinstance(const, CodeType)]
    assert frames[-2 - len(within) :] == ["looping", *within, "through"]
    assert "return x.view(-1)" in view.meta["stack_trace"].splitlines()[-2]
    # From Python 3.13 on, the part before the arguments of a call is marked by tildes.
    assert view.meta["stack_trace"].splitlines()[-1].strip().replace("~", "^") == "^" * len("x.view(-1)")


def hooked() -> nn.Module:
    net = Net()
    net.a.register_forward_hook(lambda m, args, out: out * 2)
    return Outer(net)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("fn", "root"), [(Outer(Net()), "L['self'].inner"), (over_globals, "G['NET']"), (hooked(), "L['self'].inner")])
def test_each_operator_has_its_modules(fn: Callable, root: str, dynamic: bool | None) -> None:
    (gm,) = graphs_of(fn, X, options={"dynamic": dynamic})
    stacks = [list(node.meta.get("nn_module_stack", {}).values()) for node in calls_of(gm)]
    assert stacks[0] == [(root, Net), (f"{root}.a", nn.Linear)]
    assert [(root, Net), (f"{root}.many.1", nn.ReLU)] in stacks
    assert stacks[-1] == []


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: getattr(fn, "__name__", "module"))
def test_nodes_have_fake_values(fn: Callable, dynamic: bool | None) -> None:
    x = torch.ones(2, 3)
    for gm in graphs_of(fn, x, options={"dynamic": dynamic}):
        for node in gm.graph.nodes:
            value = node.meta.get("example_value")
            if node.op == "placeholder" or (node.op.startswith("call") and node.target not in (torch._C._set_grad_enabled, torch.max)):
                assert value is not None, node.format_node()
            values = value if isinstance(value, tuple) else (value,)
            assert all([not isinstance(v, torch.Tensor) or isinstance(v, FakeTensor) for v in values]), node.format_node()


@pytest.mark.parametrize("dynamic", [False, True])
def test_values_tell_the_layout(dynamic: bool) -> None:
    def fn(x):
        return x.t().to(torch.float64) * x.shape[0]

    (gm,) = graphs_of(fn, torch.ones(4, 3), options={"dynamic": dynamic})
    t = next(node for node in calls_of(gm) if node.target == "t").meta["example_value"]
    assert t.stride()[0] == 1 and t.dtype == torch.float32 and t.device.type == "cpu"
    assert next(node for node in calls_of(gm) if node.target == "to").meta["example_value"].dtype == torch.float64
    assert isinstance(t.shape[1], torch.SymInt) is dynamic


def test_values_make_no_size_a_constant() -> None:
    def fn(x):
        y = x.t().contiguous().view(-1)
        return y.reshape(x.shape[1], x.shape[0]).sum(0)

    seen: list[GraphModule] = []
    compiled = fineline.compile(fn, backend=lambda gm, inputs: seen.append(gm) or gm.forward, dynamic=True)
    for n, m in ((2, 3), (5, 4), (7, 3)):
        compiled(torch.ones(n, m))
    assert len(seen) == 1


def test_metadata_keeps_no_tensor_alive() -> None:
    seen: list[GraphModule] = []
    net = Net()

    def fn(x):
        return net(x * 2)

    fineline.compile(fn, backend=lambda gm, inputs: seen.append(gm) or gm.forward)(X)
    gc.collect()
    held = [v for node in seen[0].graph.nodes for v in node.meta.values()]
    assert not [t for t in held if isinstance(t, torch.Tensor) and not isinstance(t, FakeTensor)]


def test_aot_graphs_keep_it() -> None:
    """Profilers and Inductor's comments take it from there."""
    seen: list[GraphModule] = []

    def keep(gm: GraphModule, inputs: list) -> Callable:
        seen.append(gm)
        return gm.forward

    def backend(gm: GraphModule, inputs: list) -> Callable:
        return aot_module_simplified(gm, inputs, fw_compiler=keep)

    with torch.no_grad():
        fineline.compile(Outer(Net()), backend=backend)(X)
    calls = calls_of(seen[0])
    assert calls and all([__file__ in (node.meta.get("stack_trace") or "") for node in calls])
    assert ("L['self'].inner.a", nn.Linear) in [v for node in calls for v in node.meta.get("nn_module_stack", {}).values()]


def test_explained_graphs_have_it() -> None:
    graphs = fineline.explain(broken)(X).graphs
    assert [inputs_of(gm) for gm in graphs] == [["l_x_"], ["l_y_"]]
    assert all(["stack_trace" in node.meta for gm in graphs for node in calls_of(gm)])


CACHED = """
import sys, torch, torch._inductor.compile_fx, fineline
from torch._dynamo.utils import counters

def methods(x):
    return x.view(-1).sin() + 1

def sizes(x):
    y = x.transpose(0, 1).contiguous()
    return y.sum(-1).view(-1, 1) * x.size(1)

def parts(x):
    a, b = x.chunk(2, 1)
    return a.mul(b).to(torch.float64).clamp(min=0)

compiled = [fineline.compile(fn, backend="inductor", dynamic=eval(sys.argv[1])) for fn in (methods, sizes, parts)]
for fn in compiled:
    for n in (2, 2):
        fn(torch.ones(n, 4))
found = {k: n for k, n in counters["aot_autograd"].items() if "cache" in k}
found |= {k: n for k, n in counters["inductor"].items() if "fxgraph" in k}
print(found)
"""


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.later)])
def test_the_next_process_finds_them_in_pytorchs_caches(dynamic: bool, tmp_path: Path) -> None:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    runs = [
        eval(subprocess.run([sys.executable, "-c", CACHED, str(dynamic)], env=env, capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    ]
    assert runs[0] == {"autograd_cache_miss": 3, "autograd_cache_saved": 3, "fxgraph_cache_miss": 3}
    assert runs[1] == {"autograd_cache_hit": 3, "fxgraph_cache_hit": 3}


TRACED = """
import torch, fineline
net = torch.nn.Linear(3, 3)
def fn(x):
    y = net(x).view(-1)
    print(end="")
    return y * 2
for backend in ("eager", "aot_eager"):
    fineline.compile(fn, backend=backend)(torch.ones(2, 3))
"""


def test_the_structured_trace_has_the_graphs(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TRACED], env={**os.environ, "TORCH_TRACE": str(tmp_path)}, check=True)
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    records = [json.loads(line[line.index("{") :]) for line in lines if line.startswith("V")]
    ids = [(r["frame_id"], r["frame_compile_id"]) for r in records if "dynamo_output_graph" in r]
    assert ids == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [r["dynamo_start"]["stack"][-1]["name"] for r in records if "dynamo_start" in r] == ["fn"] * 4
    assert {(r["frame_id"], r["frame_compile_id"]) for r in records if "aot_forward_graph" in r or "aot_inference_graph" in r} <= {(1, 0), (1, 1)}
    assert any(["l_x_" in line for line in lines])


ASKING: dict[str, Callable[[GraphModule], list[str]]] = {
    "its graph": inputs_of,
    "its code": lambda gm: re.findall(r"l_\w+", gm.code.partition("):")[0]),
    "its text": lambda gm: re.findall(r"l_\w+", str(gm).partition("):")[0]),
    "a readable text": lambda gm: re.findall(r'(l_\w+): "', gm.print_readable(print_output=False)),
    "a copy": lambda gm: inputs_of(copy.copy(gm)),
    "a deep copy": lambda gm: inputs_of(copy.deepcopy(gm)),
    "a pickle": lambda gm: inputs_of(pickle.loads(pickle.dumps(gm))),
    "a trace": lambda gm: inputs_of(torch.fx.symbolic_trace(gm)),
    "an interpreter": lambda gm: [node.name for node in torch.fx.Interpreter(gm).graph.find_nodes(op="placeholder")],
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_nodes_are_described_for_who_asks(asking: Callable[[GraphModule], list[str]]) -> None:
    (gm,) = graphs_of(Net(), torch.ones(3))
    nodes = [node for node in gm._graph.nodes if node.op.startswith("call")]
    assert not any({"stack_trace", "example_value"} & node.meta.keys() for node in nodes)
    expected = ["l_x_", "l_self_modules_a_parameters_weight_"]
    assert asking(gm)[:2] == expected and inputs_of(gm)[:2] == expected
    assert all({"stack_trace", "example_value"} <= node.meta.keys() for node in nodes)
    assert gm(*[torch.ones(node.meta["example_value"].shape) for node in gm.graph.find_nodes(op="placeholder")])[0].shape == (3,)


def test_graphs_that_nobody_asks_for_run_as_they_are() -> None:
    seen: list[GraphModule] = []
    compiled = fineline.compile(Net(), backend=lambda gm, inputs: seen.append(gm) or gm.forward)
    first = compiled(torch.ones(3))
    assert torch.equal(first, compiled(torch.ones(3)))
    assert not any("stack_trace" in node.meta for gm in seen for node in gm._graph.nodes)
    assert inputs_of(seen[0])[0] == "l_x_"
    assert torch.equal(first, compiled(torch.ones(3)))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def draws(x):
    return nn.functional.dropout(x, 0.5, True)


def writes(x):
    (x * 2).add_(draws(x))
    return x


# What makes a capture look through its own graph, and the graphs in it.
LOOKED_THROUGH: dict[str, Callable] = {
    "a function with a backward": lambda x: Doubled.apply(draws(x)),
    "a checkpoint": lambda x: checkpoint(draws, x, use_reentrant=False),
    "a branch": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    "a map": lambda x: torch.vmap(torch.sin)(draws(x)),
    "writes": writes,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", LOOKED_THROUGH.values(), ids=LOOKED_THROUGH)
def test_captures_do_not_ask_for_their_own_graphs(fn: Callable, dynamic: bool | None) -> None:
    seen: list[GraphModule] = []
    compiled = fineline.compile(fn, backend=lambda gm, inputs: seen.append(gm) or gm.forward, dynamic=dynamic)
    for n in (2, 3):
        compiled(torch.ones(n, requires_grad=True))
    parts = [part for gm in seen for part in gm.modules() if isinstance(part, GraphModule)]
    assert parts and not any("stack_trace" in node.meta for part in parts for node in part._graph.nodes)


def test_whatever_holds_where_the_graph_is_asked_for() -> None:
    for context in (torch.no_grad, torch.inference_mode, lambda: torch.device("meta"), lambda: fineline.disable()):
        (gm,) = graphs_of(Net(), torch.ones(3, requires_grad=True))
        with context():
            values = {node.name: node.meta["example_value"] for node in gm.graph.nodes if node.op != "output"}
        assert values["l_x_"].requires_grad and values["l_x_"].device.type == "cpu"
        assert {type(value) for value in values.values()} <= {FakeTensor, nn.Parameter, torch.Tensor}
        assert not any(value.is_inference() for value in values.values())


@pytest.mark.parametrize("dynamic", [None, True])
def test_graphs_that_nobody_asks_for_keep_nothing(dynamic: bool | None) -> None:
    net, x = Net(), torch.ones(2, 3)
    seen: list[GraphModule] = []
    fineline.compile(net, backend=lambda gm, inputs: seen.append(gm) or gm.forward, dynamic=dynamic)(x)
    gone = [weakref.ref(value) for value in (net, net.a, net.a.weight, net.held[0], x)]
    del net, x
    gc.collect()
    assert [ref() for ref in gone] == [None] * 5
    assert inputs_of(seen[0])[-1] == "l_self_modules_many_modules_0_parameters_bias_"
