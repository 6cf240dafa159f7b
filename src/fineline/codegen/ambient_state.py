"""PyTorch's thread state at the start and end of a segment: the graph is compiled in the first, the program leaves the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch.fx import Graph

from fineline.codegen.program_text import ProgramText
from fineline.fx.graph_traits import GraphTraits
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts
from fineline.policy.scope_stack import SCOPE
from fineline.torch_facts.distributed_tensors import SWITCHES
from fineline.torch_facts.thread_state import KERNELS, autocast_depth, changed, differing, set_autocast_depth, set_torch_function_state

T = TypeVar("T")

_DISPATCHING = [set_ for _, set_ in SWITCHES]
NESTING: Mapping[Any, int] = MappingProxyType({torch.autocast_increment_nesting: 1, torch.autocast_decrement_nesting: -1})


def counted(lines: list[str], graph: Graph, rebuild: ProgramText) -> list[str]:
    """Adds to ``lines``, which run a graph, others that set the nesting depth of autocast after it: a compiled graph does not count it."""
    n = sum([NESTING[node.target] for node in graph.nodes if node.op == "call_function" and node.target in NESTING])
    if n == 0:
        return lines
    before = f"depth = {rebuild.constant(autocast_depth, 'autocast_depth')}()"
    return [before, *lines, f"{rebuild.constant(set_autocast_depth, 'set_autocast_depth')}(depth + {n})"]


def restore_lines(before: AmbientFacts, after: AmbientFacts, answers: dict[Any, Any], rebuild: ProgramText) -> list[str]:
    """Returns statements that set the state to what the captured code has left; a compiled graph may not have done so."""
    lines = [f"{rebuild.constant(set_, f'set_{name}')}({rebuild.expr(getattr(after, name))})" for name, set_ in differing(before, after)]
    lines += [f"{rebuild.constant(set_, 'set_state')}({rebuild.expr(now)})" for set_, _, now in changed(answers)]
    if (before.autocast_cpu and not after.autocast_cpu) or (before.autocast_cuda and not after.autocast_cuda):
        # Eager code between two graphs has cached casts of weights; a compiled graph does not clear the cache.
        lines.append(f"{rebuild.constant(torch.clear_autocast_cache, 'clear_autocast_cache')}()")
    if before.rules_of_thread != after.rules_of_thread:
        blocks = rebuild.constant(SCOPE.blocks, "blocks")
        lines.append(f"{rebuild.constant(SCOPE.set_blocks, 'set_blocks')}({blocks})")
    return lines


def put_back_in(graph: Graph, start: AmbientFacts, now: AmbientFacts, answers: dict[Any, Any]) -> None:
    """Adds nodes that set the start state to a graph that ends in a block: compilers trace it repeatedly, and restore few states.

    A block that decides how operators on a `DTensor` are computed decides that of their gradients too, which compilers trace in the state at the end.
    """
    for name, set_ in differing(start, now):
        if set_ in KERNELS:
            graph.call_function(set_, (getattr(start, name),))
    for set_, before, _ in changed(answers):
        if set_ in _DISPATCHING:
            with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
                graph.call_function(set_, (before,))


@contextmanager
def override_state(state: str) -> Iterator[None]:
    """Lets ``__torch_function__`` see operators as far as in this ``state`` of PyTorch's."""
    before = set_torch_function_state(state)
    try:
        yield
    finally:
        set_torch_function_state(before)


def graphs_override_state(start: AmbientFacts, traits: GraphTraits) -> str:
    """Returns the state of PyTorch's in which a graph is compiled and runs: classes whose ``__torch_function__`` the capture has run see no operator again."""
    state = start.torch_function_state
    return "SUBCLASSES_DISABLED" if state == "ENABLED" and traits.hides_operators else state


def in_override_state(state: str, graph: Callable[..., T], *inputs: object) -> T:
    """Calls a graph in this ``state`` of PyTorch's, as in `override_state`, at each call of a program."""
    before = set_torch_function_state(state)
    try:
        return graph(*inputs)
    finally:
        set_torch_function_state(before)


@contextmanager
def in_state(
    start: AmbientFacts, now: AmbientFacts, answers: dict[Any, Any], read: Callable[[], AmbientFacts] = AMBIENT.now
) -> Iterator[None]:
    """Sets, while a backend traces, the state in which its graph begins, but for what `override_state` sets; the capture has changed it since.

    ``read``: returns the state as it is, so far as the block may set it.
    """
    # ``now``, but for what fineline has switched off because it would see the writing of the program.
    outside = read()
    for name, set_ in differing(now, start):
        if set_ is not set_torch_function_state:
            set_(getattr(start, name))
    others = changed(answers)
    for change, before, _ in others:
        change(before)
    inference = nullcontext() if start.inference_mode == now.inference_mode else torch.inference_mode(start.inference_mode)
    depth = autocast_depth()
    try:
        with inference:
            yield
    finally:
        # Tracing enters and leaves autocast for real; for a block that a graph break splits, it does only one of the two.
        set_autocast_depth(depth)
        for name, set_ in differing(read(), outside):
            set_(getattr(outside, name))
        for change, _, after in others:
            change(after)
