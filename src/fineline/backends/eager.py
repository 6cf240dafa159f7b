"""The backend ``eager``: the captured graph, run operator by operator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn.attention import _cur_sdpa_kernel_backends, _sdpa_kernel
from torch.utils.checkpoint import checkpoint, noop_context_fn


def eager(gm: GraphModule, example_inputs: Sequence[object], **kwargs: object) -> Callable:
    """Returns the graph's own Python code."""
    if kwargs:
        warnings.warn(f'backend="eager" has no modes and no options; it ignores {kwargs}', stacklevel=2)
    return as_it_is(gm)


def as_it_is(gm: GraphModule) -> Callable:
    """Returns a callable that runs the graph and its sub-graphs operator by operator.

    As operators, sub-graphs would be traced at each backward pass.
    """
    forward: Callable = opened(gm).forward
    return forward


def opened(gm: GraphModule) -> GraphModule:
    """Returns the graph with calls of its sub-graphs instead of the operators that run them, where a call does the same."""
    unannounced(gm)
    inside = {name: opened(module) if isinstance(module, GraphModule) else module for name, module in gm.named_children()}
    ops = [node for node in gm._graph.nodes if node.target in SUBGRAPH_OPERATORS]
    if not ops and all(module is getattr(gm, name) for name, module in inside.items()):
        return gm
    root = nn.Module()
    for name, module in inside.items():
        root.add_module(name, module)
    graph = copy.deepcopy(gm._graph)
    for node in list(graph.nodes):
        if node.target is INVOKE:
            with graph.inserting_before(node):
                call = graph.call_module(str(node.args[0].target), node.args[2:])
            node.replace_all_uses_with(call)
            graph.erase_node(node)
        elif node.target is CHECKPOINT:
            node.target = checkpointed
    plain = GraphModule(root, graph, type(gm).__name__)
    plain.meta.update(gm.meta)
    unannounced(plain)
    return plain


def unannounced(gm: GraphModule) -> None:
    """Stops FX from printing the place of an exception in a graph's code to stderr: the user's code may handle the exception."""
    type(gm)._wrapped_call = staticmethod(_call)  # type: ignore[attr-defined]


def _call(gm: GraphModule, *args: object, **kwargs: object) -> object:
    # Look it up at each call, because FX replaces it while it traces.
    return nn.Module.__call__(gm, *args, **kwargs)


class CheckpointOptions(TypedDict, total=False):
    """The options of PyTorch's checkpoints, as a graph's node has them."""

    use_reentrant: bool | None
    preserve_rng_state: bool
    determinism_check: str
    debug: bool
    early_stop: bool


def checkpointed(gm: GraphModule, *args: object, **kwargs: Unpack[CheckpointOptions]) -> object:
    """Runs a sub-graph now, and again in the backward pass instead of keeping its results."""

    def run(*args: object) -> object:
        kernels = _cur_sdpa_kernel_backends(with_priority=True)
        try:
            return gm(*args)
        except BaseException:
            # The backward pass stops it when it has all it needs, possibly inside a block of user code that sets kernels.
            _sdpa_kernel(kernels, set_priority=True)
            raise

    return checkpoint(run, *args, context_fn=gm.meta.get(CONTEXT, noop_context_fn), **kwargs)


INVOKE, CHECKPOINT = torch.ops.higher_order.invoke_subgraph, torch.ops.higher_order.tag_activation_checkpoint
SUBGRAPH_OPERATORS = frozenset({INVOKE, CHECKPOINT})
# The key under which AOTAutograd looks for the ``context_fn`` of a checkpoint.
CONTEXT = "_checkpoint_context_fn"
