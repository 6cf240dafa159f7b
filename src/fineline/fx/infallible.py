"""Operators that cannot raise because of the numbers in their tensors: if the sizes and types are known to fit, they run."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from fineline.kinds import is_a
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.thread_state import RESTORED

_NAMES = (
    "abs adaptive_avg_pool1d adaptive_avg_pool2d add addcdiv addcmul addmm arange avg_pool1d avg_pool2d baddbmm batch_norm bfloat16 "
    "bmm bool cat ceil chunk clamp clamp_max clamp_min clone concat concatenate contiguous conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d cos cumsum detach double dropout einsum elu empty empty_like eq erf exp expand expand_as flatten flip float "
    "floor full full_like ge gelu group_norm gt half hardswish hardtanh instance_norm int interpolate isfinite isinf isnan l1_loss "
    "layer_norm le leaky_relu lerp linear log log10 log1p log2 log_softmax logical_and logical_not logical_or long lt masked_fill "
    "matmul max_pool1d max_pool2d maximum mean minimum mish mm movedim mse_loss mul ne neg new_empty new_full new_ones new_zeros ones "
    "ones_like pad permute prelu rand rand_like randn randn_like randperm reciprocal relu relu6 repeat reshape rms_norm roll round "
    "rsqrt rsub scaled_dot_product_attention sigmoid sign silu sin smooth_l1_loss softmax softplus split sqrt square squeeze stack "
    "std sub subtract sum swapaxes t tanh to transpose tril triu type_as unbind unflatten unsqueeze var view view_as where zeros "
    "zeros_like"
)
_OPERATORS = "add sub mul truediv neg lt le gt ge eq ne iadd isub imul itruediv"
OPERATORS = frozenset(_OPERATORS.split())
NAMES = frozenset(_NAMES.split())
_IN_PLACE = "iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem"
IN_PLACE = frozenset(_IN_PLACE.split())
_FUNCTIONS = [getattr(module, name, None) for module in (torch, nn.functional) for each in NAMES for name in (each, each + "_")]
_SAFE = frozenset(
    [getattr(operator, name) for name in OPERATORS] + [name + end for name in NAMES for end in ("", "_")] + [fn for fn in _FUNCTIONS if classify_torch(fn) == "op"]
)
_SIGNS = frozenset([getattr(operator, name) for name in IN_PLACE])
# Operators that accept any number as an argument, not only tensors; others may refuse one.
OF_NUMBERS = OPERATORS | {"arange", "lerp", "rsub", "subtract"}
# Operators that read only sizes and the like of their tensors; those that read only these of all tensors but the first.
_OF_SIZES = (
    "empty_like full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like rand_like randint_like randn_like "
    "sym_numel sym_size sym_storage_offset sym_stride zeros_like"
)
OF_SIZES = frozenset(_OF_SIZES.split())
TO_SIZES = frozenset(["expand_as", "reshape_as", "type_as", "view_as"])
# Operators that write over all of a tensor, whatever it contains.
_OVERWRITING = "bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ uniform_ zero_"
OVERWRITING = frozenset(_OVERWRITING.split())
_ITEM = frozenset(["item"])
_UNREAD = OF_SIZES | OVERWRITING
_READ_IN_PART = _UNREAD | TO_SIZES
_VIEWS = (
    "as_strided chunk detach diagonal expand flatten getitem movedim narrow permute reshape select split squeeze swapaxes t transpose unbind "
    "unflatten unfold unsqueeze view view_as"
)
VIEWS = frozenset(_VIEWS.split())
# Operators of `NAMES` that take tensors of any types, and those that take integers and several floating types at once.
_OF_ANY_TYPE = (
    "bfloat16 bool cat chunk clone concat concatenate contiguous detach double empty empty_like eq expand expand_as flatten flip float full full_like "
    "getitem half int isfinite isinf isnan logical_and logical_not logical_or long movedim ne new_empty new_full new_ones new_zeros ones ones_like "
    "permute repeat reshape roll split squeeze stack swapaxes t to transpose tril triu type_as unbind unflatten unsqueeze view view_as where zeros "
    "zeros_like"
)
_OF_REAL_TYPES = (
    "abs add arange ceil clamp clamp_max clamp_min cos cumsum exp floor ge gt iadd imul isub l1_loss le log lt masked_fill maximum minimum mse_loss mul neg "
    "reciprocal relu round rsqrt rsub sigmoid sign sin sqrt square sub subtract sum tanh truediv"
)
OF_ANY_TYPE = frozenset(_OF_ANY_TYPE.split())
OF_REAL_TYPES = frozenset(_OF_REAL_TYPES.split())
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_REAL_TYPES = frozenset([*_FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
_ONE_FLOAT = frozenset([frozenset([dtype]) for dtype in _FLOATS])


def takes_types(fn: Any, args: Collection[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """Returns whether the kernels of an operator of `NAMES` are known to take tensors of such types; fake kernels may take any types."""
    found = frozenset(_types((*args, *kwargs.values()) if kwargs else args))
    if not found or found in _ONE_FLOAT:
        return True
    name = getattr(fn, "__name__", "").removesuffix("_")
    return name in OF_ANY_TYPE or (name in OF_REAL_TYPES and found <= _REAL_TYPES)


def _types(args: Iterable[Any]) -> Iterator[torch.dtype]:
    for a in args:
        if is_a(a, Tensor):
            yield a.dtype
        elif type(a) in (list, tuple):
            yield from _types(a)


def cannot_fail(graph: Graph, untyped: Collection[Node]) -> bool:
    """Returns whether a run of ``graph`` cannot raise, for any numbers in its input tensors and for any input numbers.

    ``untyped``: nodes whose kernels are not known to take the types of their inputs.
    """
    numbers = _numbers(graph)
    return not untyped and all([_is_safe(node, numbers) for node in graph.nodes])


def _numbers(graph: Graph) -> set[Node]:
    """Returns the nodes that are numbers: some inputs, and items of tensors."""
    return {*[node for node in graph.find_nodes(op="placeholder") if node.name.startswith("number_")], *_called(graph, _ITEM)}


def _is_safe(node: Node, numbers: set[Node]) -> bool:
    """Returns whether a node cannot raise. ``numbers``: the nodes of the graph that are numbers."""
    if (node.op != "call_function" and node.op != "call_method") or node in numbers:
        return True
    if may_raise(node.op, node.target, node.args):
        return False
    given = not numbers.isdisjoint(node.all_input_nodes)
    return not given or node.target in RESTORED or _name(node).removesuffix("_") in OF_NUMBERS or _name(node) == "getitem"


def may_raise(op: str, target: Any, args: tuple) -> bool:
    """Returns whether a call in a graph may raise for some numbers in its tensors."""
    if target in _SAFE:
        return False
    name = target if type(target) is str else getattr(target, "__name__", "")
    if name == "getitem":
        # An index that the graph computes may be out of range.
        return _has_nodes(args[1])
    return not (target is getattr or target in RESTORED or (name.removesuffix("_") in NAMES and (op == "call_method" or classify_torch(target) == "op")))


def _has_nodes(key: Any) -> bool:
    if type(key) is slice:
        return isinstance(key.start, Node) or isinstance(key.stop, Node) or isinstance(key.step, Node)
    return any([_has_nodes(k) for k in key]) if isinstance(key, (tuple, list)) else isinstance(key, Node)


def _name(node: Node) -> str:
    target: Any = node.target
    return target if type(target) is str else getattr(target, "__name__", "")


def functions(graph: Graph) -> list[tuple[Any, Iterable[Node]]]:
    """Returns the functions that a graph calls, each once, with the nodes that call it."""
    # FX keeps the functions whose nodes have been erased, without nodes.
    return [(target, nodes) for (op, target), nodes in graph._find_nodes_lookup_table.table.items() if op == "call_function" and nodes]


def _called(graph: Graph, names: Set[str]) -> list[Node]:
    """Returns the nodes of operators with these names."""
    found = [node for function, nodes in functions(graph) if getattr(function, "__name__", "") in names for node in nodes]
    return found + [node for node in graph.find_nodes(op="call_method") if node.target in names]


def unneeded(graph: Graph, given: Collection[Node], untyped: Collection[Node]) -> list[Node]:
    """Returns the nodes that may raise although no output and no write of the graph depends on them: a compiler drops those.

    ``given``: the graph's outputs. ``untyped``: as in `cannot_fail`. The nodes are in the graph's order.
    """
    given = frozenset(given)
    return _unneeded(graph, given, untyped) if _drops(graph, given, untyped) else []


def _unneeded(graph: Graph, given: frozenset[Node], untyped: Collection[Node]) -> list[Node]:
    nodes = [node for node in graph.nodes if node.op == "call_function" or node.op == "call_method"]
    names = [_name(node) for node in nodes]
    numbers: set[Node] | None = None
    # The memory of an input can be read after the graph has run.
    needed = {*given, *[node for node in graph.nodes if node.op == "placeholder"]}
    found = []
    for node, name in zip(reversed(nodes), reversed(names), strict=True):
        live = node in needed
        # Most nodes are needed, and their targets do not matter: they need no more checks.
        if not live or name in OVERWRITING:
            targets = _written(node)
            live = live or any([not needed.isdisjoint(_viewed(target)) for target in targets])
            if not live and not _divides(node):
                numbers = _numbers(graph) if numbers is None else numbers
                live = node in untyped or not _is_safe(node, numbers)
                if live:
                    found.append(node)
            elif live and name in OVERWRITING:
                needed.difference_update(targets)
        if live:
            needed.update(_read(node, name) if name in _READ_IN_PART else node.all_input_nodes)
    return found[::-1]


def _drops(graph: Graph, given: frozenset[Node], untyped: Collection[Node]) -> bool:
    """Returns whether a compiler may drop an operator that may raise. For most graphs a look at the nodes without readers is enough.

    It may take more operators for dropped than compilers drop, but never fewer.
    """
    numbers: set[Node] | None = None
    dropped = set[Node]()
    doubtful = [node for node in graph.nodes if not node.users and node not in given]
    for node in _called(graph, _READ_IN_PART):
        doubtful += node.all_input_nodes
    while doubtful:
        # The last first, so that the readers of a tensor after a write are examined before the write.
        node = doubtful.pop()
        if node.op == "placeholder" or node.op == "output" or node in given or node in dropped or _is_read(node, dropped):
            continue
        # The node may overwrite an earlier result.
        if _name(node) in OVERWRITING:
            return True
        if any([_is_read_after(node, target, given, dropped) for target in _written(node)]):
            continue
        numbers = _numbers(graph) if numbers is None else numbers
        if node in untyped or not _is_safe(node, numbers):
            return True
        dropped.add(node)
        doubtful += node.all_input_nodes
    return False


def _is_read(node: Node, dropped: set[Node]) -> bool:
    return bool(node.users) and any([user not in dropped and _name(user) not in _READ_IN_PART for user in node.users])


def _is_read_after(node: Node, target: Node, given: frozenset[Node], dropped: set[Node]) -> bool:
    """Returns whether it is certain that the numbers that ``node`` writes into ``target`` are read."""
    last = next(reversed(target.users))
    return target.op == "placeholder" or target in given or (last is not node and last not in dropped and _name(last) not in _READ_IN_PART)


def _divides(node: Node) -> bool:
    """Returns whether this is a division without rounding: only divisions of integers raise."""
    return _name(node) in ("div", "divide", "true_divide") and "rounding_mode" not in node.kwargs


def kept_outputs(
    graph: Graph, given: Collection[Node], results: Mapping[Node, tuple], tracked: bool, untyped: Collection[Node]
) -> list[Node]:
    """Returns more outputs for a graph, so that no compiler drops an operator that may raise.

    ``results``: by operator, the path to the first tensor in its result. ``tracked``: gradients may flow; these outputs are detached.
    """
    found = []
    for node in unneeded(graph, given, untyped):
        path = results.get(node)
        last = node
        for read, key in path or ():
            last = _behind(graph, last, "call_function", read, last, key)
        if path is None and _name(node).strip("_") == "setitem":
            last = _behind(graph, node, "call_method", "clone", node.args[0])
        elif path is None:
            continue
        elif _written(node) or written_later(graph, last):
            last = _behind(graph, last, "call_method", "clone", last)
        found.append(_behind(graph, last, "call_method", "detach", last) if tracked else last)
    return found


def _behind(graph: Graph, place: Node, op: str, target: Any, *args: Any) -> Node:
    with graph.inserting_after(place):
        return graph.create_node(op, target, args)


def written_later(graph: Graph, node: Node) -> bool:
    """Returns whether another operator writes into the result of ``node``, or into a view of it."""
    return any([node in _viewed(target) for other in graph.nodes if other is not node for target in _written(other)])


def _written(node: Node) -> list[Node]:
    """Returns the tensors that an operator writes into, according to its name and its ``out``."""
    name, out = _name(node), node.kwargs.get("out") if node.kwargs else None
    if name[-1:] != "_" and node.target not in _SIGNS and out is None:
        return []
    in_place = name.strip("_") in IN_PLACE if name.endswith("__") or node.target in _SIGNS else name.endswith("_")
    targets: Iterable[Any] = (*([node.args[0]] if in_place and node.args else []), out)
    return [t for target in targets for t in (target if isinstance(target, (tuple, list)) else (target,)) if isinstance(t, Node)]


def _viewed(node: Node) -> list[Node]:
    """Returns ``node``, and the nodes that it is a view of."""
    found = [node]
    while _name(node) in VIEWS and node.args and isinstance(node.args[0], Node):
        node = node.args[0]
        found.append(node)
    return found


def _read(node: Node, name: str) -> list[Node]:
    """Returns the nodes whose numbers an operator of that name, one of `_READ_IN_PART`, reads."""
    if name in OF_SIZES:
        return []
    return node.all_input_nodes[:1] if name in TO_SIZES else node.all_input_nodes[1:]
