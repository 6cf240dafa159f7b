"""The table at the end of section 2, against AOTAutograd's graphs: what the front end keeps whole, and what the backend does."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from torch._functorch.aot_autograd import aot_module_simplified

import fineline
from tests.policy.doors import same

X = torch.arange(4.0)
RAN: list[str] = []
LIBRARY = torch.library.Library("fineline_sentences", "DEF")
LIBRARY.define("raw(Tensor x) -> Tensor")


def twice(x):
    return x.sin().cos()


@torch.library.custom_op("fineline_sentences::decorated", mutates_args=())
def decorated(x: torch.Tensor) -> torch.Tensor:
    RAN.append("compiling" if torch.compiler.is_compiling() or fineline.is_compiling() else "plain")
    return x.sin().cos()


@decorated.register_fake
def _(x):
    return torch.empty_like(x)


def _backward(ctx, g):
    return g * 2


decorated.register_autograd(_backward)


@torch.library.custom_op("fineline_sentences::written", mutates_args=("x",))
def written(x: torch.Tensor) -> None:
    RAN.append("compiling" if torch.compiler.is_compiling() or fineline.is_compiling() else "plain")
    x.sin_()


@torch.library.impl(LIBRARY, "raw", "CPU")
def raw_kernel(x):
    RAN.append("compiling" if torch.compiler.is_compiling() or fineline.is_compiling() else "plain")
    return x.sin().cos()


@torch.library.register_fake("fineline_sentences::raw")
def _(x):
    return torch.empty_like(x)


class Recording:
    """AOTAutograd as a backend, with both graphs kept: those that the front end gives, and those that come of them."""

    def __init__(self):
        self.front, self.back = [], []

    def __call__(self, gm, inputs):
        self.front += [
            str(getattr(n.target, "__name__", n.target)) for n in gm.graph.nodes if n.op == "call_function" or n.op == "call_method"
        ]
        with torch._guards.tracing(torch._guards.TracingContext(None)):
            return aot_module_simplified(gm, inputs, fw_compiler=self.compiler, bw_compiler=self.compiler, inference_compiler=self.compiler)

    def compiler(self, gm, inputs):
        self.back += [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
        return gm.forward


def captured(door, fn, x, backward=False):
    recording = Recording()
    compiled = door.compile(fn, backend=recording, fullgraph=True)
    for _ in range(2):
        ours, theirs = x.clone().requires_grad_(backward), x.clone().requires_grad_(backward)
        a, b = compiled(ours), fn(theirs)
        same(a, b)
        if backward:
            a.sum().backward()
            b.sum().backward()
            same(ours.grad, theirs.grad)
    return recording


@pytest.mark.parametrize("backward", [False, True])
def test_no_mechanism(door, backward):
    """| none | traced inside | traced inside |"""
    seen = captured(door, lambda x: twice(x * 2) + 1, X, backward)
    assert seen.front == ["mul", "sin", "cos", "add"] and {"aten.sin.default", "aten.cos.default"} <= set(seen.back)


@pytest.mark.parametrize("backward", [False, True])
def test_allow_in_graph(door, backward):
    """| allow_in_graph | opaque call | traced inside |"""

    @door.allow_in_graph
    def opaque(x):
        return x.sin().cos()

    seen = captured(door, lambda x: opaque(x * 2) + 1, X, backward)
    assert seen.front == ["mul", "opaque", "add"] and {"aten.sin.default", "aten.cos.default"} <= set(seen.back)


@pytest.mark.parametrize("backward", [False, True])
def test_custom_operators(door, backward):
    """| custom operator | opaque call | opaque call |"""
    seen = captured(door, lambda x: decorated(x * 2) + 1, X, backward)
    assert len(seen.front) == 3 and "decorated" in seen.front[1]
    assert "fineline_sentences.decorated.default" in seen.back and not {n for n in seen.back if "sin" in n or "cos" in n}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.ops.fineline_sentences.raw(x * 2) + 1,
        lambda x: torch.ops.fineline_sentences.raw.default(x * 2) + 1,
        lambda x: torch.ops.fineline_sentences.decorated(x * 2) + 1,
    ],
    ids=["packet", "overload", "decorated by name"],
)
def test_operators_of_a_library(door, fn):
    """| custom operator | opaque call | opaque call |"""
    seen = captured(door, fn, X)
    assert len(seen.front) == 3 and any("fineline_sentences" in n for n in seen.back)
    assert not {n for n in seen.front + seen.back if "sin" in n or "cos" in n}


def test_an_operator_that_writes(door):
    """| custom operator | opaque call | opaque call |"""

    def f(x):
        y = x * 2
        written(y)
        return y + 1

    seen = captured(door, f, X)
    assert "written" in seen.front[1] and not {n for n in seen.front + seen.back if "sin" in n}


def test_kernels_are_never_captured(door):
    """Code that carries PyTorch's own marks (`@torch.compiler.disable`, `torch.compiler.is_compiling()`,
    `torch._dynamo.mark_dynamic`, `torch._dynamo.graph_break()`,
    `@torch._dynamo.allow_in_graph`, custom operators) is understood without `install()`: libraries already contain it."""
    RAN.clear()

    def f(x):
        y = x * 2
        written(y)
        return torch.ops.fineline_sentences.raw(decorated(y)) + 1

    captured(door, f, X)
    assert set(RAN) == {"plain"} and len(RAN) >= 6
