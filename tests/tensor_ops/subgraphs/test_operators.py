"""Operators that run graphs, on an interpreter alone: each is one node with its bodies as parts, or a graph break that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

from fineline.frames.graph_breaks import Finished, GraphBreak
from fineline.interp.interpreter import Interpreter
from fineline.region.options import Options
from fineline.region.session.entry_frame import entry_frame
from fineline.tracing.lessons import Lessons
from tests.hosts import Host

X, YES = torch.arange(6.0).reshape(3, 2), torch.tensor(True)
WRITTEN: list = []


def run(fn: Callable, *args: Any) -> tuple[Any, Interpreter]:
    """Captures ``fn(*args)``: -> its result, or the graph break that it meets first, where the run ends; and the interpreter."""

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        raise Finished(graph_break)

    interp = Interpreter(Options(), Lessons(), Host(on_graph_break))
    interp.frame = entry_frame(interp, fn, args, {})
    try:
        return interp.run(), interp
    except Finished as done:
        return done.value, interp


def writes(x: Tensor) -> Tensor:
    WRITTEN.append(1)
    return x.sin()


def on_condition(yes: Tensor, x: Tensor, fn: Callable) -> Any:
    return torch.cond(yes, fn, torch.cos, (x,))


def looping(yes: Tensor, x: Tensor, fn: Callable) -> Any:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, fn(x)), (torch.zeros((), dtype=torch.int64), x))[1]


def over_rows(yes: Tensor, x: Tensor, fn: Callable) -> Any:
    return map_rows(lambda row: fn(row), x)


def scanned(yes: Tensor, x: Tensor, fn: Callable) -> Any:
    return scan(lambda carry, row: (carry + row, fn(row)), torch.zeros(2), x)[1]


def checkpointed(yes: Tensor, x: Tensor, fn: Callable) -> Any:
    return checkpoint(fn, x, use_reentrant=False)


OPERATORS = {
    "cond": (on_condition, 2), "while_loop": (looping, 2), "map_impl": (over_rows, 1), "scan": (scanned, 1), "tag_activation_checkpoint": (checkpointed, 1),
}  # fmt: skip

GIVES = {"while_loop": lambda x: x.sin().sin().sin()}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_one_node_with_its_bodies(name: str) -> None:
    program, bodies = OPERATORS[name]
    result, interp = run(program, YES, X, torch.sin)
    assert torch.equal(result, GIVES.get(name, torch.sin)(X)) and interp.trace.active
    recorder = interp.trace.recorder
    assert [str(n.target) for n in recorder.graph.nodes if n.op == "call_function"].count(name) == 1 and len(recorder.nested.parts) == bodies
    assert any("sin" in str(node.target) for graph in recorder.nested.parts.values() for node in graph.graph.nodes)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_whose_body_no_graph_can_hold_breaks_the_graph(name: str) -> None:
    program, _ = OPERATORS[name]
    graph_break, interp = run(program, YES, X, writes)
    assert graph_break.error == "FL520" and "something that is not its own" in graph_break.reason and "test_operators.py" in graph_break.reason
    assert WRITTEN == [] and not interp.trace.mutations.written
    assert interp.trace.recorder.nested.parts == {} and not any([name == str(n.target) for n in interp.trace.recorder.graph.nodes])
