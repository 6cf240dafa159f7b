"""A graph that can leave the process: it is pickled node by node, and loaded as a plain ``torch.fx.GraphModule``."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch import Tensor, nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx import Graph, GraphModule, Node

from fineline.kinds import is_a

# The attributes that belong to the module, and not to the graph, which is made again.
_KEPT = ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")


class Portable(GraphModule):
    """A graph module that is pickled node by node.

    FX pickles a graph's code, and runs it with stand-ins for tensors when it is loaded. That loses changes of the grad mode and of
    autocast, and makes random numbers constants.
    """

    def __reduce__(self) -> tuple:
        root = nn.Module()
        state = {name: self.__dict__[name] for name in (*_KEPT, *_objects(self.graph))}
        root.__dict__.update(state)
        return GraphModule, (root, _made_again(self.graph), type(self).__name__), state


class _Made:
    """An object that is unpickled as the result of a call."""

    def __init__(self, fn: Callable, *args: Any) -> None:
        self.fn, self.args = fn, args

    def __reduce__(self) -> tuple:
        return self.fn, self.args


def _made_again(graph: Graph) -> _Made:
    again = _Made(Graph)
    nodes: dict[Node, _Made] = {}
    for n in graph.nodes:
        args, kwargs = _carried(n.args, nodes), _carried(n.kwargs, nodes)
        nodes[n] = _Made(Graph.create_node, again, n.op, _carried(n.target, nodes), args, kwargs, n.name)
    # All nodes are made before the graph is used.
    return _Made(operator.itemgetter(0), [again, *nodes.values()])


def _carried(value: Any, nodes: dict[Node, _Made]) -> Any:
    """Returns ``value`` as it is pickled: with nodes of the new graph, and operators by name."""
    if is_a(value, Node):
        return nodes[value]
    if is_a(value, (OpOverload, OpOverloadPacket)):
        return _Made(operator.attrgetter(f"ops.{value}"), _TORCH)
    if is_a(value, HigherOrderOperator):
        return _Made(operator.attrgetter(f"ops.higher_order.{value.name()}"), _TORCH)
    if is_a(value, FunctionType) and "<locals>" in value.__qualname__ and _named_as(value):
        return _Made(operator.attrgetter(value.__name__), _Made(importlib.import_module, value.__module__))
    if is_a(value, slice):
        return _Made(slice, *[_carried(x, nodes) for x in (value.start, value.stop, value.step)])
    if is_a(value, dict):
        return {k: _carried(v, nodes) for k, v in value.items()}
    if is_a(value, list):
        return [_carried(x, nodes) for x in value]
    if type(value) is tuple:
        return tuple([_carried(x, nodes) for x in value])
    return value


def _named_as(fn: FunctionType) -> bool:
    """Returns whether its module has ``fn`` under its name, although it was made in a function, as torch.nn.functional.max_pool2d was."""
    return getattr(sys.modules.get(fn.__module__), fn.__name__, None) is fn


_TORCH = _Made(importlib.import_module, "torch")


def portable(root: nn.Module, graph: Graph, name: str) -> Portable:
    """Returns the module of ``graph``, whose nodes name attributes of ``root``; it gets all other attributes of ``root`` too."""
    for child, sub in list(root.named_children()):
        if is_a(sub, GraphModule) and not is_a(sub, Portable):
            root._modules[child] = portable(sub, sub.graph, type(sub).__name__)
    gm = Portable(root, graph, name)
    gm.__dict__.update({kept: root.__dict__[kept] for kept in _KEPT})
    return gm


def _objects(graph: Graph) -> list[str]:
    """Returns the names of the attributes that nodes read and that are neither tensors nor modules."""
    holder = graph.owning_module
    return [n.target for n in graph.nodes if n.op == "get_attr" and n.target in vars(holder)]


def put(root: nn.Module, path: str, value: Any, persistent: bool = True) -> None:
    """Makes ``value`` an attribute of ``root`` at a dotted ``path``, and makes the modules on the path."""
    *around, name = path.split(".")
    for part in around:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root._modules[part]  # type: ignore[assignment]
    if is_a(value, nn.Parameter):
        root.register_parameter(name, value)
    elif is_a(value, Tensor):
        root.register_buffer(name, value, persistent)
    else:
        root.add_module(name, value)
