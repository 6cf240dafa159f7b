"""The backend ``eager``: the captured graph, run operator by operator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule


def eager(gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The graph's own Python code."""
    if kwargs:
        warnings.warn(f'backend="eager" has no modes and no options; it ignores {kwargs}', stacklevel=2)
    return as_it_is(gm)


def as_it_is(gm: GraphModule) -> Callable[..., Any]:
    """What runs the graph operator by operator, those of its sub-graphs too: as operators, these would be traced at each backward pass."""
    forward: Callable[..., Any] = _opened(gm).forward
    return forward


def _opened(gm: GraphModule) -> GraphModule:
    nodes = [node for node in gm.graph.nodes if node.target is torch.ops.higher_order.invoke_subgraph]
    if not nodes:
        return gm
    names = {str(node.args[0].target) for node in nodes}
    root = nn.Module()
    for name, module in gm.named_children():
        root.add_module(name, _opened(module) if name in names else module)  # type: ignore[arg-type]
    graph = copy.deepcopy(gm.graph)
    for node in list(graph.nodes):
        if node.target is torch.ops.higher_order.invoke_subgraph:
            with graph.inserting_before(node):
                call = graph.call_module(str(node.args[0].target), node.args[2:])
            node.replace_all_uses_with(call)
            graph.erase_node(node)
    return GraphModule(root, graph, type(gm).__name__)
