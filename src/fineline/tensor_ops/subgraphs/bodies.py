"""The bodies of control-flow operators: Python callables captured as graphs, without running them for real.

A body runs on fakes, on an interpreter that stops before any effect. Tensors and symbolic numbers that it uses from the code around it are
lifted: the operator takes them as further operands. The graph around an operator changes only after all its bodies have become graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters, temporarily_clear_interpreter_stack
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fineline.fake.fake_tensors import Fakes
from fineline.frames.graph_breaks import GraphBreak, NotCapturable
from fineline.fx.body_recorder import BodyRecorder
from fineline.fx.graph_module import CapturedGraph
from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.backing import computing
from fineline.tensor_ops.subgraphs.capture import SubGraph, capture_call
from fineline.torch_facts.distributed_tensors import holds_masks
from fineline.torch_facts.wrapper_subclasses import is_wrapper
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value
from fineline.tracing.subgraph_rules import SubGraphRules


def computed(interp: Interp, op: Any, args: tuple) -> Any:
    """Returns the result of an operator that runs graphs; raises `NotCapturable` at a graph break, because the user's own call must run eagerly."""
    try:
        return interp.backing.run(interp, op, args, None)
    except GraphBreak as b:
        raise NotCapturable(b.reason, b.error, b.rule, b.raised) from None


class Body:
    """A body that has been captured as a graph."""

    def __init__(self, recorder: BodyRecorder, leaves: list[Any], given: dict[int, Any], spec: TreeSpec) -> None:
        self.recorder = recorder
        # The flat leaves of its result and their structure; the nodes that the graph returns, by the positions of their leaves.
        self.flat, self.spec = leaves, spec
        self._given = given

    def give(self, place: int, node: Any) -> None:
        """Makes the graph return the number at ``place``, which ``node`` computes."""
        self._given[place] = node

    def hold(self, place: int, n: Any, fakes: Fakes) -> None:
        """Makes the graph return the number at ``place`` in a tensor."""
        self._given[place] = self.recorder.quietly("call_function", torch.full, ((), self._given.get(place, n)), "full")
        with fakes.mode:
            self.flat[place] = torch.full((), 0)

    def keep(self, place: int) -> None:
        """Notes that the number at ``place`` is known outside the graph, which need not return it."""
        self._given.pop(place, None)

    @property
    def nodes(self) -> list[Any]:
        return [self._given[i] for i in sorted(self._given)]

    @property
    def outputs(self) -> list[Any]:
        return [self.flat[i] for i in sorted(self._given)]

    @property
    def leaves(self) -> list[Any]:
        """Returns the leaves of the body's result, with `EMPTY` for each that the graph returns."""
        return [EMPTY if i in self._given else leaf for i, leaf in enumerate(self.flat)]

    def rebuilt(self, tensors: Iterable[Any]) -> Any:
        """Returns the body's result, with ``tensors`` for the leaves that the graph returns."""
        rest = iter(tensors)
        return tree_unflatten([next(rest) if leaf is EMPTY else leaf for leaf in self.leaves], self.spec)

    def same_structure(self, other: Body) -> bool:
        return (
            self.spec == other.spec
            and len(self.leaves) == len(other.leaves)
            and all([a is b or (type(a) is type(b) and a == b) for a, b in zip(self.leaves, other.leaves, strict=True)])
        )


class Bodies:
    """The bodies of one call of an operator."""

    def __init__(self, interp: Interp, rows: bool = False) -> None:
        """Sets up the bodies. ``rows``: the operator has a rule for ``vmap``, inside which a body works on one row."""
        levels = retrieve_all_functorch_interpreters()
        if levels and (not rows or any([level.key() != TransformType.Vmap for level in levels])):
            raise NotCapturable("the call stands inside of a transform of torch.func")
        self.interp = interp
        self.fakes = interp.backing.body_fakes(rows=bool(levels))
        self.bodies: list[Body] = []

    # -- operands ------------------------------------------------------------------------------------------------------
    def like(self, t: Tensor) -> Tensor:
        """Returns a fake that stands for any tensor with the layout of ``t``."""
        twin = self.twin(t)
        return self._empty(twin.shape, twin.stride(), twin)

    def gradient(self, t: Tensor) -> Tensor:
        """Returns a fake that stands for the gradient of ``t``."""
        twin = self.twin(t)
        return self._empty(twin.shape, twin.stride(), twin, False)

    def row(self, t: Tensor) -> Tensor:
        """Returns a fake that stands for any ``t[i]``."""
        twin = self.twin(t)
        return self._empty(twin.shape[1:], twin.stride()[1:], twin)

    def carried(self, v: Any) -> Any:
        """Returns a fake tensor, or a symbol, that stands for a value carried from step to step: a tensor or an integer."""
        return self.like(v) if is_a(v, Tensor) else self.interp.trace.symbols.handed()

    def scalar(self, dtype: torch.dtype, like: Tensor, grad: bool = False) -> Tensor:
        """Returns a fake of one number, on the device of ``like``, that stands for any number."""
        with computing(self.interp), self.fakes.mode:
            return torch.empty((), dtype=dtype, device=like.device, requires_grad=grad)

    def _empty(self, shape: Any, strides: Any, twin: Tensor, grad: bool = True) -> Tensor:
        with computing(self.interp), temporarily_clear_interpreter_stack(), self.fakes.mode, torch.no_grad():
            return torch.empty_strided(shape, strides, dtype=twin.dtype, device=twin.device).requires_grad_(grad and twin.requires_grad)

    def alike(self, a: Tensor, b: Tensor, strides: bool = True) -> bool:
        """Returns whether two tensors have the same dtype, device, sizes and, unless ``strides`` is False, strides."""
        a, b = self.twin(a), self.twin(b)
        facts = [[t.dtype, t.device, *[str(n) for n in (*t.shape, *(t.stride() if strides else ()))]] for t in (a, b)]
        return facts[0] == facts[1]

    def twin(self, t: Any) -> Tensor:
        if type(t) not in PLAIN_TENSORS or t.layout is not torch.strided:
            raise NotCapturable(f"an operand is a {type(t).__name__}")
        with computing(self.interp):
            return self.fakes.twin(t)

    # -- bodies --------------------------------------------------------------------------------------------------------
    def capture(
        self, rules: SubGraphRules, fn: Any, args: Iterable[Any], kwargs: dict | None = None, holes: Iterable[Any] = (), made: Iterable[Any] = (),
        compared: bool = False,
    ) -> Body:  # fmt: skip
        """Captures ``fn(*args, **kwargs)`` as a graph. ``holes``: the arguments that the operator passes when it runs the graph; ``made``: objects
        that the segment has created, and that the code may use; ``compared``: no node will run the graph, which is compared with another one."""
        if self.interp.nested.modes and not rules.shown_to_modes:
            raise NotCapturable("the call stands in a function mode that has not seen it")
        found = capture_call(self.interp, fn, args, kwargs, rules, [("operand", hole) for hole in holes], self.fakes, made)
        if is_a(found, NotCapturable):
            raise found
        try:
            body = self._body(found, rules)
        except NotCapturable:
            found.undo()
            raise
        if compared:
            found.undo()
        else:
            self.interp.note_subgraph(found.inner)
        self.bodies.append(body)
        return body

    def _body(self, found: SubGraph, rules: SubGraphRules) -> Body:
        recorder: BodyRecorder = found.recorder
        leaves, spec = tree_flatten(found.value, is_leaf=lambda v: type(v) not in (tuple, list, dict))
        given: dict[int, Any] = {}
        for i, leaf in enumerate(leaves):
            if is_a(leaf, Tensor):
                if holds_masks(leaf):
                    raise NotCapturable("it gives a DTensor whose placements hold a mask")
                if not rules.holds_wrappers or not is_wrapper(leaf):
                    self.twin(leaf)
                given[i] = self._node(recorder, leaf)
            elif type(leaf) in SYMBOLIC and rules.gives_numbers:
                given[i] = found.number(leaf)
            elif not is_value(leaf):
                raise NotCapturable(f"it gives a {type(leaf).__name__}")
        if not rules.gives_operands:
            self.apart(
                [*[leaves[i] for i in given if is_a(leaves[i], Tensor)], *recorder.given()], "it uses and gives tensors that share memory"
            )
        return Body(recorder, leaves, given, spec)

    def _node(self, recorder: BodyRecorder, t: Tensor) -> Any:
        node = recorder.find(t)
        if node is None:
            src = self.interp.trace.sources.get(t)
            if src is None:
                raise NotCapturable("it gives a tensor of unknown origin")
            node = recorder.placeholder(t, "arg", src)
        return node

    def apart(self, tensors: Iterable[Tensor], text: str) -> None:
        """Raises `NotCapturable` if two of these share memory."""
        storages = [self.twin(t).untyped_storage()._cdata for t in tensors]
        if len(set(storages)) < len(storages):
            raise NotCapturable(text)

    # -- after the capture ---------------------------------------------------------------------------------------------
    def lifted(self) -> tuple[list[Any], list[Any]]:
        """Returns the further operands that all bodies take: the lifted values, and their nodes in the graph around them."""
        nodes = [body.recorder.node_outside(t, read) for body, t, read in self._tensors()]
        return self.values(), nodes + [self.interp.trace.to_fx(n) for n in self._numbers()]

    def values(self) -> list[Any]:
        """Returns the lifted values: tensors, then numbers."""
        return [t for _, t, _ in self._tensors()] + self._numbers()

    def module(self, body: Body, name: str, single: bool = False) -> CapturedGraph:
        """Returns the graph of a body, whose inputs are its holes and all lifted values; ``single``: it returns one tensor instead of a tuple."""
        outputs = body.nodes[0] if single else tuple(body.nodes)
        self.interp.trace.recorder.traits.fatal |= body.recorder.traits.fatal
        return body.recorder.graph_of(outputs, [t for _, t, _ in self._tensors()], self._numbers(), name)

    def _tensors(self) -> list[tuple[Body, Tensor, Any]]:
        found: IdentityMap[tuple[Body, Tensor, Any]] = IdentityMap()
        for body in self.bodies:
            for _, t, read in body.recorder.lifted:
                if t not in found or found[t][2] is None:
                    found[t] = body, t, read
        return found.values()

    def _numbers(self) -> list[Any]:
        return list({key: n for body in self.bodies for key, (_, n) in body.recorder.numbers.items()}.values())
