"""Records a graph that is to be run by one node of another: what it uses from around it becomes its inputs."""

from __future__ import annotations

import operator
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from fineline.fx.graph_equality import same_graph
from fineline.fx.recorder import InputSource, Recorder
from fineline.identity import AddressSet
from fineline.kinds import is_a


class SubRecorder(Recorder):
    """Stands in the place of ``parent`` while the body of a sub-graph runs.

    In the end it is put into the parent's graph as one node (`hold`) or, if no sub-graph can hold what ran, node by node (`inline`).
    """

    def __init__(self, parent: Recorder) -> None:
        super().__init__()
        self.parent = parent
        # Those of the whole segment, for who asks what it reads and writes.
        self.inputs = parent.inputs
        self.writes.storages, self.writes.held, self.kernels.unmeasured = parent.writes.storages, parent.writes.held, parent.kernels.unmeasured
        # The tensors that are lifted: the node, the tensor, and how the outermost graph is to read it, if it does not know it yet.
        self.lifted: list[tuple[Node, Tensor, tuple[str, InputSource | None] | None]] = []
        self._node_of_parent: Node | None = None

    # -- while it runs -------------------------------------------------------------------------------------------------
    def find(self, t: Tensor) -> Node | None:
        node = super().find(t)
        return self._lift(t, None) if node is None and self.parent.known(t) else node

    def known(self, t: Tensor) -> bool:
        return super().known(t) or self.parent.known(t)

    def measured(self, t: Any) -> bool:
        return super().measured(t) if super().known(t) else self.parent.measured(t)

    def made(self, t: Tensor) -> bool:
        """Returns whether it was made here."""
        return super().known(t) and not any([t is other for other in self.operands])

    def placeholder(self, t: Tensor, name: str, source: InputSource | None) -> Node:
        return self._lift(t, (name, source))

    def _lift(self, t: Tensor, read: tuple[str, InputSource | None] | None) -> Node:
        node = self._hole(t, f"arg_{len(self.lifted)}")
        if not self.parent.measured(t):
            self.kernels.unmeasured.add(node)
        self.lifted.append((node, t, read))
        return node

    # -- in the end ----------------------------------------------------------------------------------------------------
    @property
    def operands(self) -> list[Tensor]:
        # Beside these there may be symbolic numbers.
        return [t for _, t, _ in self.lifted if is_a(t, Tensor)]

    def module(self, outputs: list[Tensor]) -> GraphModule:
        """Returns the graph, which gives these tensors."""
        self.graph.output(tuple([self.find(t) for t in outputs]))
        root = nn.Module()
        for name, gm in self.nested.modules.items():
            root.add_module(name, gm)
        return GraphModule(root, self.graph, "Subgraph")

    def hold(self, target: Any, name: str, outputs: list[Tensor]) -> None:
        """Adds one node to the parent's graph that runs this one. Equal sub-graphs share a module, whose name begins with ``name``."""
        parent = self.parent
        operands = [self._outer(t, read) for _, t, read in self.lifted]
        gm = self.module(outputs)
        gm.meta["fineline_operands"] = [_facts(t) for _, t, _ in self.lifted]
        top = self._top()
        attribute = next((known for known, other in top.nested.shared.items() if _same(gm, other)), None)
        if attribute is None:
            n = top._counts[name] = top._counts.get(name, -1) + 1
            attribute = f"{name}_{n}"
            top.nested.shared[attribute] = gm
        parent.nested.modules[attribute] = top.nested.shared[attribute]
        module = parent._node("get_attr", attribute, (), {}, attribute)
        self._node_of_parent = parent._node("call_function", target, (module, attribute, *operands), {}, "invoke_subgraph")
        if not self.kernels.unmeasured.isdisjoint(self.graph.nodes):
            self.kernels.unmeasured.add(self._node_of_parent)
        lifted = AddressSet([t for _, t, _ in self.lifted])
        for ref in [ref for ref, _ in (*self._nodes.values(), *self.nested.hidden.values())]:
            if (t := ref()) is not None and t not in lifted:
                parent.nested.hidden[t] = (ref, self.open)
        for i, t in enumerate(outputs):
            parent.nested.hidden.pop(t, None)
            parent._nodes[t] = (weakref.ref(t), (self._node_of_parent, operator.getitem, i))
        # What is known of the tensors goes by weak references; the operands themselves may go.
        self.lifted = [(hole, hole, None) for hole, _, _ in self.lifted]  # type: ignore[misc]
        self._add_counts()
        parent.traits.hold(self.traits)

    def inline(self) -> None:
        """Moves all nodes to the parent's graph."""
        self._put({node: self._outer(t, read) for node, t, read in self.lifted})
        self._add_counts()

    def open(self) -> None:
        """Replaces the node that `hold` made by the nodes of the sub-graph, because the code uses a value that the sub-graph does not return."""
        parent, call = self.parent, self._node_of_parent
        assert call is not None
        with parent.graph.inserting_before(call):
            twin = self._put(dict(zip([hole for hole, _, _ in self.lifted], call.args[2:], strict=True)))
        outputs: Any = self.graph.output_node().args[0]
        given = [twin[node] for node in outputs]
        for ref, made in parent._nodes.values():
            if type(made) is tuple and made[0] is call and (t := ref()) is not None:
                parent._nodes[t] = (ref, given[made[2]])
        for user in list(call.users):
            _take_place(user, given[user.args[1]])
        module: Any = call.args[0]
        parent.graph.erase_node(call)
        parent.graph.erase_node(module)

    def _put(self, twin: dict[Node, Any]) -> dict[Node, Any]:
        """Copies the nodes to where the parent's graph inserts, and tells the parent what they made."""
        parent = self.parent
        parent.nested.modules.update(self.nested.modules)
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "output"):
                args, kwargs = map_arg((node.args, node.kwargs), twin.__getitem__)
                twin[node] = parent._node(node.op, node.target, args, kwargs, node.name)
                twin[node].meta = node.meta
                if node in self.kernels.unmeasured:
                    self.kernels.unmeasured.add(twin[node])
        for ref, opens in parent.nested.hidden.values():
            if opens == self.open:
                parent.nested.hidden.pop(ref(), None)
        for ref, made in self._nodes.values():
            entry = parent._nodes.get(t := ref())
            if t is not None and (entry is None or entry[0]() is not t):
                parent._nodes[t] = (ref, (twin[made[0]], *made[1:]) if type(made) is tuple else twin[made])
        # The sub-graphs in this one are the parent's from now on.
        for ref, opens in self.nested.hidden.values():
            inner: Any = opens.__self__  # type: ignore[attr-defined]
            if inner.parent is self:
                inner.parent, inner._node_of_parent = parent, twin[inner._node_of_parent]
            if (t := ref()) is not None:
                parent.nested.hidden[t] = (ref, opens)
        return twin

    def _outer(self, t: Tensor, read: tuple[str, InputSource | None] | None) -> Node:
        node = self.parent.find(t)
        if node is None:
            assert read is not None
            node = self.parent.placeholder(t, *read)
        return node

    def _add_counts(self) -> None:
        self.parent.calls += self.calls
        self.parent.traits.only_state = self.parent.traits.only_state and self.traits.only_state
        self.parent.places += self.places

    def _top(self) -> Recorder:
        top: Recorder = self
        while is_a(top, SubRecorder):
            top = top.parent
        return top


def _take_place(node: Node, other: Node) -> None:
    """Makes ``node``, to which others may refer, the same as ``other``, in its place."""
    other.prepend(node)
    node.op, node.target, node.args, node.kwargs = other.op, other.target, other.args, other.kwargs
    other.replace_all_uses_with(node)
    other.graph.erase_node(other)


def _same(a: GraphModule, b: GraphModule) -> bool:
    return bool(a.meta["fineline_operands"] == b.meta["fineline_operands"]) and same_graph(a.graph, b.graph)


def _facts(t: Any) -> tuple:
    if not is_a(t, Tensor):
        return (type(t),)
    return (t.dtype, t.device, t.shape, t.stride() if t.layout is torch.strided else t.layout, t.requires_grad)
