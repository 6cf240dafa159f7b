"""Records sub-graphs, which nodes of another graph run: their inputs are the node's operands, then the values lifted from the code around."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from fineline.fx.graph_equality import same_graph
from fineline.fx.graph_module import CapturedGraph, graph_module
from fineline.fx.output_fixups import without_modes
from fineline.fx.recorder import Recorder
from fineline.kinds import is_a


class Part(Recorder):
    """Records a sub-graph that lifts only symbolic numbers; ``numbers`` has these by expression: the node, and the number itself."""

    def __init__(self) -> None:
        super().__init__()
        # The operands that the node passes: their input nodes, and the tensors or numbers.
        self.holes: list[tuple[Node, Any]] = []
        # By expression: the nodes of symbols that only this graph knows, and of numbers computed from them.
        self.own: dict[Any, Node] = {}
        self.computed: dict[Any, Any] = {}

    def hole(self, t: Any, name: str = "operand") -> Node:
        """Adds an input for a tensor or a number that the node's operator will pass; returns the input's node."""
        node = self._hole(t, f"{name}_{len(self.holes)}")
        self.holes.append((node, t))
        return node

    def given(self) -> list[Tensor]:
        """Returns all tensors that the sub-graph uses and has not made."""
        return [t for _, t in self.holes if is_a(t, Tensor)]

    def made(self, t: Tensor) -> bool:
        """Returns whether ``t`` is known to this graph, and not lifted from the code around it."""
        return self.known(t)

    def number(self, n: Any) -> Node:
        """Returns the input for a symbolic number from the code around the sub-graph; adds it if needed."""
        # The key is the expression as it was made, because guards that are added later change ``expr``.
        key = n.node._expr
        if key not in self.numbers:
            self.numbers[key] = self._hole(n, f"number_{len(self.numbers)}"), n
        return self.numbers[key][0]

    def finished(self, outputs: Any, inputs: Iterable[Node], numbers: Iterable[Any], name: str) -> CapturedGraph:
        """Returns the finished graph: its inputs are ``inputs`` and then ``numbers``, in this order, even if the graph does not use them."""
        last = self.graph._root
        for node in [*inputs, *[self.number(n) for n in numbers]]:
            last.append(node)
            last = node
        without_modes(self.graph)
        self.graph.create_node("output", "output", (outputs,), {}, "output")
        return graph_module(self.graph, name, self.nested.parts | self.nested.modules)


class BodyRecorder(Part):
    """Records a sub-graph that also lifts the tensors of the code around it, as further inputs. ``parent`` changes only when it is complete."""

    def __init__(self, parent: Recorder) -> None:
        super().__init__()
        self.parent = parent
        # The parent's nodes whose sizes no guard determines.
        self.kernels.unmeasured = set(parent.kernels.unmeasured)
        # The lifted tensors: the input node, the tensor, and the name and source of a new input of the outermost graph if that has no node for it.
        self.lifted: list[tuple[Node, Tensor, tuple[str, Any] | None]] = []

    # -- during the capture --------------------------------------------------------------------------------------------
    def find(self, t: Tensor) -> Node | None:
        node = super().find(t)
        return self._lift(t, None) if node is None and self.parent.known(t) else node

    def known(self, t: Tensor) -> bool:
        return super().known(t) or self.parent.known(t)

    def measured(self, t: Any) -> bool:
        return super().measured(t) if super().known(t) else self.parent.measured(t)

    def made(self, t: Tensor) -> bool:
        return super().known(t) and not any([t is other for other in self.operands])

    def placeholder(self, t: Tensor, name: str, source: Any) -> Node:
        return self._lift(t, (name, source))

    def _lift(self, t: Tensor, read: tuple[str, Any] | None) -> Node:
        node = self._hole(t, f"arg_{len(self.lifted)}")
        if not self.parent.measured(t):
            self.kernels.unmeasured.add(node)
        self.lifted.append((node, t, read))
        return node

    # -- after the capture ---------------------------------------------------------------------------------------------
    @property
    def operands(self) -> list[Tensor]:
        return [t for _, t, _ in self.lifted]

    def given(self) -> list[Tensor]:
        return [*self.operands, *super().given()]

    def node_outside(self, t: Tensor, read: tuple[str, Any] | None) -> Node:
        """Returns the node of ``t`` in the parent's graph; ``read``: name and source of a new input of the outermost graph if ``t`` has no node."""
        node = self.parent.find(t)
        if node is None:
            assert read is not None
            node = self.parent.placeholder(t, *read)
        return node

    def graph_of(self, outputs: Any, tensors: Iterable[Tensor], numbers: Iterable[Any], name: str) -> CapturedGraph:
        """Returns the finished graph: its inputs are the holes, then ``tensors``, then ``numbers``, even if the graph does not use them."""
        return self.finished(
            outputs, [*[node for node, _ in self.holes], *[self.find(t) or self._lift(t, None) for t in tensors]], numbers, name
        )

    def invoke(self, target: Any, outputs: list[Tensor], numbers: list[tuple[Any, Node]]) -> None:
        """Adds a node to the parent's graph that runs this graph and returns ``outputs``. Equal graphs of a segment share one module.

        ``numbers``: the lifted numbers, with their nodes in the parent's graph.
        """
        parent, top = self.parent, self.outermost()
        operands = [self.node_outside(t, read) for _, t, read in self.lifted]
        gm = self.graph_of(tuple([self.find(t) for t in outputs]), self.operands, [n for n, _ in numbers], "Subgraph")
        gm.meta["fineline_operands"] = [*map(_facts, self.operands), *[type(n) for n, _ in numbers]]
        attribute = next((known for known, other in top.nested.shared.items() if _same(gm, other)), None)
        if attribute is None:
            attribute = f"subgraph_{len(top.nested.shared)}"
            top.nested.shared[attribute] = gm
        parent.nested.modules[attribute] = top.nested.shared[attribute]
        module = parent.quietly("get_attr", attribute, (), attribute)
        node = parent.quietly("call_function", target, (module, attribute, *operands, *[outer for _, outer in numbers]), target.name())
        if not self.kernels.unmeasured.isdisjoint(self.graph.nodes):
            parent.kernels.unmeasured.add(node)
        for i, t in enumerate(outputs):
            parent._nodes[t] = (weakref.ref(t), (node, operator.getitem, i))
        parent.calls += self.calls
        parent.places += self.places
        parent.traits.only_state = parent.traits.only_state and self.traits.only_state
        parent.traits.scattered, parent.traits.fatal = parent.traits.scattered or self.traits.scattered, parent.traits.fatal or self.traits.fatal
        parent.traits.once, parent.traits.leaves = parent.traits.once or self.traits.once, parent.traits.leaves or self.traits.leaves
        parent.writes.storages |= self.writes.storages
        parent.writes.held += self.writes.held

    def outermost(self) -> Recorder:
        """Returns the recorder of the whole segment, or of the autograd function that contains this sub-graph."""
        top: Recorder = self
        while is_a(top, BodyRecorder):
            top = top.parent
        return top


def _same(a: Any, b: Any) -> bool:
    return bool(a.meta["fineline_operands"] == b.meta["fineline_operands"]) and same_graph(a._graph, b._graph)


def _facts(t: Tensor) -> tuple:
    return (t.dtype, t.device, t.shape, t.stride() if t.layout is torch.strided else t.layout, t.requires_grad)
