"""Records tensor operators as nodes of an FX graph, after each has run on the capture's backing."""

from __future__ import annotations

import builtins
import dataclasses
import keyword
import math
import operator
import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx import Graph, GraphModule, Node

from fineline.backends.eager import CONTEXT
from fineline.fx.function_node import FunctionNode
from fineline.fx.graph_traits import GraphTraits, scattered
from fineline.fx.hook_node import register_hook
from fineline.fx.kernel_facts import KernelFacts, WrittenStorages
from fineline.fx.nested_graphs import NestedGraphs
from fineline.guards.facts import storage_of
from fineline.guards.source import Source
from fineline.identity import AddressMap
from fineline.kinds import is_a
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.spellings import is_custom
from fineline.torch_facts.thread_state import RESTORED
from fineline.torch_facts.unguarded_sizes import RESIZING, sized_by
from fineline.torch_facts.wrapper_subclasses import is_wrapper

FX_CONSTANTS = frozenset(
    {type(None), bool, int, float, complex, str, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_BUILTINS = frozenset(dir(builtins))
_POWERS = (operator.pow, operator.ipow)
# The type of old tensor types such as torch.FloatTensor.
TENSOR_TYPE: Any = type(torch.FloatTensor)
# Types of results that become arguments of other nodes.
NAMED = (Tensor, torch._C._InferenceMode)
# Keys of a node's ``meta`` for its origin, until `program.node_meta` writes it out: the instruction; the source of an input; the layouts of
# its results.
ORIGIN, SOURCE, LAYOUT = "fineline_origin", "fineline_source", "fineline_layout"
# Higher-order operators whose only effects are those of the graphs that they run.
_RUNNING = frozenset(["cond", "while_loop", "map_impl", "scan", "associative_scan", "flex_attention", "tag_activation_checkpoint", "invoke_subgraph"])


class InputSource(Protocol):
    """The origin of a graph input. ``value``: its value in the capturing call; ``reg``: the guards' register that holds it, -1 if none does."""

    @property
    def value(self) -> Any: ...
    @property
    def reg(self) -> int: ...


class NotForGraph(Exception):
    """Raised for an argument that an FX node cannot hold."""


def _items(out: Any) -> Iterator[tuple[Callable, Any, Any]]:
    """Yields the parts of an operator's result: for each, the function that reads it, its key or attribute name, and the part."""
    if is_a(out, (tuple, list)):
        yield from [(operator.getitem, i, item) for i, item in enumerate(out)]
    elif type(out) is dict:
        yield from [(operator.getitem, key, item) for key, item in out.items()]
    elif dataclasses.is_dataclass(out) and not is_a(out, type):
        yield from [(getattr, field.name, getattr(out, field.name)) for field in dataclasses.fields(out)]


def _first(out: Any) -> tuple[tuple[Callable, Any], ...] | None:
    """Returns the path to the first tensor in an operator's result, as (function, key) for each step; None if the result contains no tensor."""
    if is_a(out, Tensor):
        return ()
    for read, key, item in _items(out):
        if (rest := _first(item)) is not None:
            return (read, key), *rest
    return None


def float_of(bits: int) -> float:
    """Returns the float with these bits, because source text can only express one NaN."""
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def complex_of(real: int, imag: int) -> complex:
    """Returns the complex number with these bits, because its source text loses signs of zeros and the bits of a NaN."""
    return complex(float_of(real), float_of(imag))


def _bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


# The bits of ``float("nan")``.
_NAN = 0x7FF8000000000000


def _harmless(target: Any, states: bool) -> bool:
    if is_a(target, HigherOrderOperator):
        return target.name() in _RUNNING
    if is_a(target, (OpOverload, OpOverloadPacket)):
        return not is_custom(target) and classify_torch(target) == "op"
    module = getattr(target, "__module__", None)
    return (
        module in ("_operator", "math", "builtins")
        or (module == "torch" and target.__name__.lstrip("_").startswith("sym_"))
        or target is getattr
        or target in RESTORED
        or target in (float_of, complex_of)
        or is_a(target, FunctionNode)
        or module == "torch._refs"
        or target is register_hook
        or classify_torch(target) == "op"
        or (states and classify_torch(target) == "state")
    )


def computes(node: Node) -> bool:
    """Returns whether the node's operator has no effect that shows if it runs again or on other tensors; False for one that runs graphs."""
    target: Any = node.target
    return node.op == "call_method" or not (is_a(target, HigherOrderOperator) or not _harmless(target, False))


class Recorder:
    """Records the graph of one segment; knows the tensors that it makes by identity, and holds them weakly."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.inputs: list[tuple[Node, Any]] = []
        self.calls = 0
        # Those of them that compute arrays of NumPy.
        self.array_calls = 0
        # By tensor: a weak reference, which distinguishes it from a later object at its address, and the node that made it.
        self._nodes: AddressMap[tuple[Callable[[], Any], Any]] = AddressMap()
        self._last_placeholder: Node | None = None
        self._counts: dict[str, int] = {}
        self.places: list[tuple[str, int]] = []
        # By node: the path to the first tensor in its result. The path is () if the result is a tensor; it is absent if there is no tensor.
        self.results: dict[Node, tuple] = {}
        # The nodes of symbolic numbers, by expression.
        self.numbers: dict[Any, Any] = {}
        self.traits = GraphTraits()
        self.nested = NestedGraphs()
        self.writes = WrittenStorages()
        self.kernels = KernelFacts()

    def _node(self, op: str, target: Any, args: tuple, kwargs: dict, base: str) -> Node:
        """Adds a node like ``Graph.create_node``, but without searching for symbolic leaves and parsing names: 9 us instead of 35 us a node."""
        graph = self.graph
        if target in _POWERS and type(args[0]) in (int, float) and math.copysign(1, args[0]) < 0:
            # FX writes "-1 ** x" for the operator, which is -(1 ** x).
            target = pow
        n = self._counts.get(base)
        self._counts[base] = 0 if n is None else n + 1
        name = base.lstrip("_") if n is None else f"{base.lstrip('_')}_{n}"
        node = self._quick_node(op, target, args, kwargs, name) or graph.create_node(op, target, args, kwargs)
        if (unmeasured := self.kernels.unmeasured) and not unmeasured.isdisjoint(sized_by(node, base)):
            unmeasured.add(node)
        return node

    def _quick_node(self, op: str, target: Any, args: tuple, kwargs: dict, name: str) -> Node | None:
        """Adds a node with exactly this ``name`` and returns it; returns None if FX would change the name."""
        graph = self.graph
        space = graph._graph_namespace
        if not name.isidentifier() or name in space._used_names or keyword.iskeyword(name) or name in _BUILTINS:
            return None
        space._used_names.add(name)
        node = Node(graph, name, op, target, args, kwargs, None)
        space._obj_to_name[node] = name
        graph._insert(node)
        graph._find_nodes_lookup_table.insert(node)
        graph._len += 1
        return node

    def find(self, t: Tensor) -> Node | None:
        """Returns the node of ``t``, and adds one if ``t`` is a part of a result; None if this graph does not know ``t``."""
        entry = self._nodes.get(t)
        if entry is None or entry[0]() is not t:
            return None
        made = entry[1]
        if type(made) is tuple:
            parent, read, key = made
            made = self._node("call_function", read, (parent, key), {}, read.__name__)
            self.calls += 1
            self._nodes[t] = (entry[0], made)
        return made

    def known(self, t: Tensor) -> bool:
        entry = self._nodes.get(t)
        return entry is not None and entry[0]() is t

    def has_aliases(self, t: Tensor) -> bool:
        """Returns whether another tensor of a wrapper subclass that is alive, and that this graph knows, is a view of ``t`` or shares its own memory."""
        own = storage_of(t)
        others = [x for ref, _ in self._nodes.values() if (x := ref()) is not t and is_wrapper(x)]
        with torch._C.DisableTorchFunction():
            return any([x._base is t or (own and storage_of(x) == own) for x in others])

    def placeholder(self, t: Any, name: str, source: InputSource | None) -> Node:
        """Adds a graph input for a tensor that existed before; returns its node."""
        node = self._hole(t, f"{name}_{len(self.inputs)}")
        if is_a(source, Source):
            node.meta[SOURCE] = source
        self.inputs.append((node, source))
        return node

    def _hole(self, t: Tensor, name: str) -> Node:
        graph = self.graph
        usual, graph._insert = graph._insert, (self._last_placeholder or graph._root).append
        node = self._quick_node("placeholder", name, (), {}, name) or graph.create_node("placeholder", name, (), {}, name)
        graph._insert = usual
        self._last_placeholder = node
        self._nodes[t] = (weakref.ref(t), node)
        return node

    def record(
        self, op: str, target: Any, args: tuple, kwargs: dict, out: Any, name: str | None = None, origin: Any = None, layout: Any = None,
        untyped: bool = False,
    ) -> Any:  # fmt: skip
        """Adds a node for an operator that just computed ``out``; returns ``out``.

        ``origin`` and ``layout``: for `program.node_meta`. ``untyped``: the kernels may refuse the types of the arguments.
        """
        base = name or (target if type(target) is str else getattr(target, "__name__", "call"))
        node = self._node(op, target, args, kwargs, base)  # type: ignore[arg-type]
        if origin is not None:
            node.meta[ORIGIN] = origin
        if layout is not None:
            node.meta[LAYOUT] = layout
        if untyped:
            self.kernels.untyped.add(node)
        self.calls += 1
        if is_a(out, NAMED):
            self.results[node] = ()
            if scattered(out):
                self.traits.see_scattered(out)
            entry = self._nodes.get(out)
            if entry is None or entry[0]() is not out:
                self._nodes[out] = (weakref.ref(out), node)
            elif node in self.kernels.unmeasured and (kwargs.get("out") is not None or base in RESIZING):
                self.unmeasure(out)
        else:
            self._bind_items(out, node)
            if (path := _first(out)) is not None:
                self.results[node] = path
        return out

    def unmeasure(self, out: Any) -> None:
        """Notes that no guard determines the sizes of ``out``, a result that was just recorded."""
        if is_a(out, Tensor):
            self.kernels.unmeasured.add(self._origin(out))
        for _, _, item in _items(out):
            self.unmeasure(item)

    def compose(self, out: Any, composition: Any) -> None:
        """Notes which operators have made ``out``, a result of a library's operator that was just recorded."""
        if is_a(out, Tensor):
            self.kernels.compositions[self._origin(out)] = composition
        for _, _, item in _items(out):
            self.compose(item, composition)

    def _origin(self, t: Any) -> Node:
        """Returns the node whose result is ``t``, or contains it."""
        made = self._nodes[t][1]
        found: Node = made[0] if type(made) is tuple else made
        return found

    def measured(self, t: Any) -> bool:
        """Returns whether the sizes of ``t`` follow from guarded facts."""
        entry = self._nodes.get(t)
        if entry is None or entry[0]() is not t:
            return True
        return (entry[1][0] if type(entry[1]) is tuple else entry[1]) not in self.kernels.unmeasured

    def all_measured(self, args: Any) -> bool:
        return all([self.all_measured(a) if type(a) in (tuple, list) else self.measured(a) for a in args])

    def quietly(self, op: str, target: Any, args: tuple, name: str) -> Node:
        """Adds a node that does not stand for an operator of the user's code; returns it."""
        return self._node(op, target, args, {}, name)

    def literal(self, value: Any) -> Any:
        """Returns a node's argument for a float or complex number: the number or, if source text cannot express its bits, a node that makes it."""
        parts = (value.real, value.imag) if type(value) is complex else (value,)
        odd = [_bits(part) for part in parts if part != part or (len(parts) == 2 and (part == 0 or math.isinf(part)))]
        if all([bits in (0, _NAN) for bits in odd]) and not (len(parts) == 2 and _NAN in odd):
            return value
        bits = tuple([_bits(part) for part in parts])
        return self.quietly("call_function", float_of if len(parts) == 1 else complex_of, bits, "number")

    def part(self, name: str, graph: Any) -> Node:
        """Adds a node that refers to ``graph``, a graph that another node runs; returns it."""
        name = f"{name}_{len(self.nested.parts)}"
        self.nested.parts[name] = graph
        return self._node("get_attr", name, (), {}, name)

    def instance(self, cls: type, fields: dict[str, Any]) -> Node:
        """Adds a node that makes an object of ``cls`` from its fields, as an argument of another node; returns it."""
        return self._node("call_function", cls, (), fields, cls.__name__)

    def bind_part(self, item: Tensor, node: Node, read: Callable, key: Any) -> None:
        """Notes that ``item``, unless it is known, is the part of a node's result that ``read`` finds under ``key``."""
        if not self.known(item):
            self._nodes[item] = (weakref.ref(item), (node, read, key))

    def _bind_items(self, out: Any, node: Node) -> None:
        for read, key, item in _items(out):
            if is_a(item, Tensor):
                self.bind_part(item, node, read, key)
            elif any(True for _ in _items(item)):
                inner = self._node("call_function", read, (node, key), {}, read.__name__)
                self.calls += 1
                self._bind_items(item, inner)

    def harmless(self, states: bool = False) -> bool:
        """Returns whether the graph may run again after a failure, with no visible difference; ``states``: the caller puts PyTorch's state back."""
        inside = self.nested.modules_inside()
        # The contexts around a checkpoint are the user's.
        plain = all([is_a(m, GraphModule) and CONTEXT not in m.meta for m in inside])
        graphs = (self.graph, *[m._graph for m in inside if plain])
        return plain and all([node.op != "call_function" or _harmless(node.target, states) for graph in graphs for node in graph.nodes])

    def forget(self) -> None:
        self._nodes.clear()
        self.kernels.compositions.clear()
