"""Operators that fail for no numbers in their tensors: where their sizes and types are known to do, they run."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from torch.fx import Graph, Node

from fineline.graph.state import RESTORED
from fineline.graph.torch_table import classify_torch

_NAMES = (
    "abs add addcdiv addcmul addmm avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d baddbmm batch_norm bmm cat ceil chunk "
    "clamp clamp_max clamp_min clone concat concatenate contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d cos detach "
    "dropout einsum elu eq erf exp expand expand_as flatten flip float floor ge gelu group_norm gt half hardswish hardtanh "
    "instance_norm interpolate l1_loss layer_norm le leaky_relu lerp linear log log1p log2 log10 log_softmax logical_and logical_not "
    "logical_or lt masked_fill matmul max_pool1d max_pool2d maximum mean minimum mish mm movedim mse_loss mul ne neg ones ones_like pad "
    "permute prelu rand rand_like randn randn_like randperm reciprocal relu relu6 repeat reshape rms_norm roll round rsqrt rsub "
    "scaled_dot_product_attention sigmoid silu sign sin smooth_l1_loss softmax softplus split sqrt square squeeze stack std sub "
    "subtract sum swapaxes t tanh to transpose tril triu unbind unflatten unsqueeze var view view_as where zeros zeros_like"
)
_OPERATORS = "add sub mul truediv neg lt le gt ge eq ne iadd isub imul itruediv"
OPERATORS = frozenset(_OPERATORS.split())
NAMES = frozenset(_NAMES.split())
# With numbers, not only tensors, that a call brings along; others may refuse one.
OF_NUMBERS = OPERATORS | {"lerp", "rsub", "subtract"}


def cannot_fail(graph: Graph) -> bool:
    """Whether running ``graph`` raises for no numbers that its inputs, tensors and numbers, may hold."""
    numbers: set[Node] = set()
    return all([_is_safe(node, numbers) for node in graph.nodes])


def _is_safe(node: Node, numbers: set[Node]) -> bool:
    """``numbers``: the nodes before that are numbers; this one joins them if it is one."""
    if node.op != "call_function" and node.op != "call_method":
        if node.op == "placeholder" and node.name.startswith("number_"):
            numbers.add(node)
        return True
    target: Any = node.target
    name = target if type(target) is str else getattr(target, "__name__", "")
    if name == "item":
        numbers.add(node)
        return True
    given: Set[Node] = numbers.intersection(node.all_input_nodes)
    if getattr(target, "__module__", None) == "_operator":
        # An index that the graph computes may lie outside.
        return name in OPERATORS or (name == "getitem" and len(node.all_input_nodes) == 1)
    if target in RESTORED:
        return True
    known = node.op == "call_method" or classify_torch(target) == "op"
    return known and name.removesuffix("_") in (OF_NUMBERS if given else NAMES)
