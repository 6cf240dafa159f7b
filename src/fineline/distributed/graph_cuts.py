"""Cuts a graph into parts that run one after the other, at places where no part can notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from fineline.fake.fake_tensors import empty_strided
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts
from fineline.kinds import is_a
from fineline.tensor_ops.tensor_operator import targets_of
from fineline.torch_facts.thread_state import CallState


class Part(NamedTuple):
    """A part of a graph: its module, the nodes of the whole graph that it reads, and those that it gives to later parts or returns."""

    module: GraphModule
    inputs: list[Node]
    outputs: list[Node]


class _Probe(Interpreter):
    """Runs a graph on fakes; notes the value of each node, the state of PyTorch before it, and the memory that operators write into."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.states: dict[Node, AmbientFacts] = {}
        self.written: set[int] = set()

    def run_node(self, n: Node) -> Any:
        self.states[n] = AMBIENT.now()
        if n.op in ("placeholder", "output", "get_attr"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        fn = getattr(type(args[0]), str(n.target), None) if n.op == "call_method" else n.target
        given = [(t, t._version) for t in tree_leaves((args, kwargs)) if is_a(t, Tensor)]
        hidden = [t for t in tree_leaves(targets_of(fn, args, kwargs)) if is_a(t, Tensor)]
        value = super().run_node(n)
        self.written.update([memory_of(t) for t in (*hidden, *[t for t, version in given if t._version != version])])
        return value


def memory_of(t: Tensor) -> int:
    return t.untyped_storage()._cdata


class Cuts:
    """The places where a graph may be cut, found by a run of the graph on fakes.

    A cut is no place for the values that cross it to share memory with what any part writes: a compiler sees only the part, and would not know
    that two of its inputs are one. PyTorch's state (gradients, autocast) is there as at the graph's start, in which each part is compiled.
    """

    def __init__(self, gm: GraphModule, examples: Sequence[Any]) -> None:
        self._gm = gm
        self._examples = dict(zip(gm.graph.find_nodes(op="placeholder"), examples, strict=True))
        self._mode = detect_fake_mode(examples) or FakeTensorMode()
        self.nodes = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
        self._output = gm.graph.output_node()
        self._probe = _Probe(gm)
        state = CallState()
        try:
            with _disable_current_modes(), self._mode:
                # No real tensor takes part, not even as a constant: the run would write into it.
                fakes = [self._mode.from_tensor(x, static_shapes=True) if is_a(x, Tensor) and not is_a(x, FakeTensor) else x for x in examples]
                self._probe.run(*fakes, enable_io_processing=False)
        finally:
            state.put_back()

    def legal(self) -> list[bool]:
        """Returns for each of `nodes` whether the graph may be cut before it."""
        start, at, end = self._probe.states[self.nodes[0]], {n: i for i, n in enumerate(self.nodes)}, len(self.nodes)
        # By place: how many values that may not cross it begin, or stop, to be needed there.
        changes = [0] * (end + 2)
        for i, n in enumerate(self.nodes):
            last = max([at.get(user, end) for user in n.users], default=i)
            if last > i and not self._may_cross(n):
                changes[i + 1] += 1
                changes[last + 1] -= 1
        return [held == 0 and self._probe.states[n] == start for n, held in zip(self.nodes, itertools.accumulate(changes), strict=False)]

    def _may_cross(self, node: Node) -> bool:
        value = self._probe.env[node]
        return is_a(value, Tensor) and value.layout is torch.strided and memory_of(value) not in self._probe.written

    def parts(self, places: Sequence[int]) -> list[Part]:
        """Returns the parts of the graph, cut before the nodes at these ``places``, in their order."""
        bounds = [0, *places, len(self.nodes)]
        return [self._part(self.nodes[a:b]) for a, b in itertools.pairwise(bounds)]

    def _part(self, nodes: list[Node]) -> Part:
        inside = set(nodes)
        read = {m: None for n in nodes for m in n.all_input_nodes if m not in inside}
        outputs = [n for n in nodes if any([user not in inside for user in n.users])]
        graph = Graph()
        copies: dict[Node, Node] = {}
        for n in read:
            copies[n] = graph.placeholder(n.name)
            copies[n].meta = dict(n.meta)
        for n in nodes:
            copies[n] = graph.node_copy(n, copies.__getitem__)
        graph.output(tuple([copies[n] for n in outputs]))
        return Part(GraphModule(self._gm, graph, type(self._gm).__name__), list(read), outputs)

    def examples(self, part: Part) -> list[Any]:
        """Returns the example inputs of a part: those of the graph, and fakes of what earlier parts give."""
        return [self._examples[n] if n in self._examples else self._fresh(self._probe.env[n]) for n in part.inputs]

    def _fresh(self, t: Tensor) -> Tensor:
        """Returns a fake like ``t`` without its history: one that requires a gradient is no leaf, as in the run."""
        with _disable_current_modes(), self._mode:
            return empty_strided(t.shape, t.stride(), t.dtype, t.device, history=t.requires_grad)

    def chained(self, parts: Sequence[Part], compiled: Sequence[Callable]) -> Callable:
        """Returns the callable that runs the compiled parts, with the inputs and outputs of the whole graph."""
        return _Chain(list(self._examples), list(self._output.args[0]), parts, compiled)  # type: ignore[arg-type]


class _Step(NamedTuple):
    run: Callable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    # The slots that nothing reads after this step.
    freed: tuple[int, ...]


class _Chain:
    """Runs parts of a graph in their order; keeps each value until its last use."""

    def __init__(self, inputs: list[Node], outputs: list[Any], parts: Sequence[Part], compiled: Sequence[Callable]) -> None:
        slots = {n: i for i, n in enumerate((*inputs, *[n for part in parts for n in part.outputs]))}
        self._empty = [None] * (len(slots) - len(inputs))
        self._outputs = tuple([slots[n] if is_a(n, Node) else None for n in outputs])
        self._constants = tuple([None if is_a(n, Node) else n for n in outputs])
        kept = {*self._outputs}
        self._steps: list[_Step] = []
        for i, (part, run) in enumerate(zip(parts, compiled, strict=True)):
            later = {slots[n] for other in parts[i + 1 :] for n in other.inputs}
            read, made = tuple([slots[n] for n in part.inputs]), tuple([slots[n] for n in part.outputs])
            self._steps.append(_Step(run, read, made, tuple({*read, *made} - later - kept)))

    def __call__(self, *inputs: Any) -> tuple:
        values = [*inputs, *self._empty]
        del inputs
        for run, read, made, freed in self._steps:
            results = run(*[values[i] for i in read])
            for i, result in zip(made, results, strict=True):
                values[i] = result
            del results
            for i in freed:
                values[i] = None
        return tuple([constant if i is None else values[i] for i, constant in zip(self._outputs, self._constants, strict=True)])
