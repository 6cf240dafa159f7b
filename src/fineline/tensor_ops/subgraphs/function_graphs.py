"""The sub-graphs of an autograd.Function: its forward, captured on the call's values, and its backward, on gradients that stand for later ones."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import Function, forward_ad
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from fineline.backends.invoke import undisturbed
from fineline.bytecode.asynchronous import let_pass
from fineline.cpython import protocols
from fineline.fake.fake_tensors import own_attributes
from fineline.frames.graph_breaks import ASKED, CaptureAborted, Communicates, GraphBreak, NotCapturable, Restart
from fineline.fx.function_node import FunctionNode, Ways
from fineline.fx.graph_module import CapturedGraph
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.backing import computing
from fineline.tensor_ops.subgraphs.capture import SubGraph, capture_subgraph, may_stand
from fineline.torch_facts.releases import bound_apply
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value
from fineline.tracing.subgraph_rules import BACKWARD, FORWARD, SubGraphRules

# A class that sets one of these attributes has behaviour that the graphs cannot represent.
BEYOND_BACKWARD = ("jvp", "vjp", "vmap", "generate_vmap_rule", "clear_saved_tensors_on_access", "boxed_grads_call")
_ONCE = once_differentiable(lambda ctx: None).__code__
_OF_CONTEXT = frozenset(
    {
        "needs_input_grad",
        "to_save",
        "dirty_tensors",
        "non_differentiable",
        "materialize_grads",
        "saved_for_forward",
        "_fineline_saved",
        "_fineline_asked",
    }
)
_DEEPEST = 4
# The most results whose gradients may be missing, because each set of missing gradients needs its own backward graph.
_MOST_LAZY = 3


class _Beyond:
    """A member of a real ``ctx`` that `Context` does not support: reading it ends the capture."""

    def __get__(self, obj: Any, cls: type) -> Any:
        raise NotCapturable


class Context(FunctionCtx):
    """The ``ctx`` of an autograd function during its capture."""

    to_save: Any = None
    dirty_tensors: Any = None
    non_differentiable: Any = None
    saved_for_forward: Any = None
    materialize_grads = True
    _fineline_saved: tuple = ()
    _fineline_asked = False
    metadata = next_functions = name = register_hook = register_prehook = saved_variables = requires_grad = _Beyond()
    _raw_saved_tensors = _input_metadata = _is_pure_view = _materialize_non_diff_grads = _sequence_nr = _Beyond()

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs

    @property
    def saved_tensors(self) -> tuple:
        self._fineline_asked = True
        return self._fineline_saved


class Unasked(Context):
    """The ``ctx`` of a function inside a backward that may be differentiated itself; it refuses ``needs_input_grad``."""

    needs_input_grad: Any = _Beyond()

    def __init__(self) -> None:
        pass


def needed(args: Iterable[Any]) -> tuple[bool, ...]:
    """Returns the value of ``ctx.needs_input_grad``: for each argument, whether it is a tensor that requires a gradient."""
    # The classes of the tensors see none of these reads.
    with torch._C.DisableTorchFunction():
        return tuple([is_a(a, Tensor) and a.requires_grad for a in args])


class FunctionGraphs:
    """The graphs of one call of an autograd function, with the results of the call."""

    def __init__(
        self, target: FunctionNode, forward: CapturedGraph, backwards: list[CapturedGraph], numbers: list, given: list[Tensor], results: Any
    ) -> None:
        self.target, self.forward, self.backwards = target, forward, backwards
        # The inputs of the graphs: symbolic numbers from the code around them, and tensors.
        self.numbers, self.given = numbers, given
        self._results = results

    def apply(self, interp: Interp) -> Any:
        """Returns the results, which are already computed, with the autograd history that the node will give them."""
        results = interp.backing.operands(self._results)
        return interp.backing.run(interp, self.target, (lambda *args: results, tuple(self.backwards), tuple(self.numbers), *self.given), None)


def capture_function(interp: Interp, cls: Any, args: list) -> FunctionGraphs | None:
    """Returns the graphs of ``cls.apply(*args)``; None, without an effect, if graphs cannot represent the function."""
    given = [a for a in args if is_a(a, Tensor)]
    if not may_stand(interp, FORWARD) or interp.nested.opaque is not None or interp.options.force_graph_breaks or not _usual(interp, cls, args, given):
        return None
    ctx = Unasked() if differentiated(interp) else Context(needed(args))
    setup = cls.setup_context if cls.setup_context is not Function.setup_context else None
    rules = FORWARD.but(writes_operands=not (interp.trace.failures.assumed or interp.backing.switches))
    forward = capture_subgraph(
        interp, apply_by(interp), [cls.forward, setup, ctx, tuple(args)], rules, [("arg", t) for t in given], (ctx,)
    )
    if is_a(forward, NotCapturable):
        _refuse(interp, cls, args, forward)
        return None
    graphs = _completed(interp, cls, ctx, args, forward)
    if is_a(graphs, NotCapturable):
        _refuse(interp, cls, args, graphs)
        return None
    interp.trace.kept.append(ctx)
    interp.trace.recorder.writes.storages |= forward.recorder.writes.storages.touched
    if interp.tensors.undoable:
        interp.trace.mutations.take_over(forward.inner.mutations)
    return graphs


def apply_by(interp: Interp) -> Callable:
    """Returns the function that runs a forward for ``apply``, without gradients."""
    return protocols.apply_unseen if interp.nested.modes else protocols.apply_under_no_grad


def _refuse(interp: Interp, cls: Any, args: list, found: NotCapturable) -> None:
    """Raises the restart or the graph break that ended a capture, if a node that runs the whole function would hide it; otherwise returns."""
    cause = found.cause
    if is_a(found, Communicates) and interp.may_restart():
        raise Restart("FL515", f"{cls.__qualname__} communicates with other processes")
    if is_a(found, Communicates) and not differentiated(interp):
        # A backend that traces through the node would keep the process group itself in its graph.
        raise GraphBreak(bound_apply(cls), tuple(args), None, "FL511", f"{cls.__qualname__} communicates with other processes")
    if is_a(cause, Restart) and cause.again:
        raise cause
    if is_a(cause, GraphBreak) and not differentiated(interp) and (interp.backing.real or cause.error in ASKED):
        # A backend that traces through the node would run the code of this graph break once, while it compiles, and never again.
        outside = GraphBreak(bound_apply(cls), tuple(args), None, cause.error, f"{cls.__qualname__} breaks the graph: {cause.reason}")
        outside.rule = cause.rule
        raise outside


def differentiated(interp: Interp) -> bool:
    """Returns whether the interpreter runs a backward that may be differentiated itself."""
    return interp.nested.subgraph_rules is not None and interp.nested.subgraph_rules.differentiable


def _completed(interp: Interp, cls: Any, ctx: Context, args: list, forward: SubGraph) -> FunctionGraphs | NotCapturable:
    """Returns the graphs of a function whose ``forward`` is captured; if this fails, undoes the forward and returns the reason."""
    try:
        with nullcontext() if interp.backing.real else computing(interp):
            return _capture(interp, cls, ctx, args, forward)
    except (NotCapturable, Restart, CaptureAborted, Exception) as e:
        forward.undo()
        if is_a(e, NotCapturable):
            return e
        let_pass(e)
        if is_a(e, CaptureAborted):
            raise
        return NotCapturable(str(e), cause=e)


def transformed() -> bool:
    """Returns whether a transform of torch.func or forward AD is active: then a function's rules apply even if no argument requires a gradient."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _usual(interp: Interp, cls: Any, args: list, given: list[Tensor]) -> bool:
    return (
        all([getattr(cls, name, None) is getattr(Function, name, None) for name in BEYOND_BACKWARD])
        and all([is_a(fn, types.FunctionType) for fn in (cls.forward, cls.setup_context, cls.backward)])
        and all([type(t) in PLAIN_TENSORS and t.layout is torch.strided for t in given])
        and all([_fixed(a) for a in args if not is_a(a, Tensor)])
        and not transformed()
        and not torch._C._len_torch_function_stack()
    )


def _capture(interp: Interp, cls: Any, ctx: Context, args: list, forward: SubGraph) -> FunctionGraphs:
    out = forward.value
    outs = out if type(out) is tuple else (out,)
    saved, kept, constant = _context_tensors(ctx, outs)
    recorder = forward.recorder
    if _state_changes(recorder) > 2 or not all([type(t) in PLAIN_TENSORS and recorder.known(t) and _bare(t) for t in outs]):
        raise NotCapturable
    dirty = _dirty(interp, ctx, forward, outs)
    nodes = [tuple([_node(recorder, t) for t in group]) for group in (outs, saved, kept)]
    lazy = (
        ()
        if ctx.materialize_grads
        else tuple([i for i, t in enumerate(outs) if i not in constant and (t.is_floating_point() or t.is_complex())])
    )
    if len(lazy) > _MOST_LAZY:
        raise NotCapturable
    with undisturbed(), _disable_current_modes():
        passes, once = _backwards(interp, cls, ctx, outs, (saved, kept), lazy, args)
    numbers = list(
        {key: n for part in (recorder, *[later.recorder for later, _ in passes]) for key, (_, n) in part.numbers.items()}.values()
    )
    results = (nodes[0] if type(out) is tuple else nodes[0][0], *nodes[1:])
    graph = recorder.finished(results, [node for node, _ in recorder.holes], numbers, f"{cls.__name__}_forward")
    backwards = [_finished(later.recorder, found, numbers, ctx, f"{cls.__name__}_backward") for later, found in passes]
    for part in (forward, *[later for later, _ in passes]):
        interp.note_subgraph(part.inner)
    ways = Ways(constant, dirty, lazy, ctx._fineline_asked, once)
    return FunctionGraphs(FunctionNode(cls.__name__, ways), graph, backwards, numbers, recorder.given(), (out, saved, kept))


def _bare(t: Tensor) -> bool:
    """Returns whether the user's code has set no attribute of ``t``."""
    return t.__dict__.keys() <= own_attributes() if type(t) is FakeTensor else not t.__dict__


def _node(recorder: Any, t: Tensor) -> Any:
    node = recorder.find(t)
    if node is None:
        raise NotCapturable
    return node


def _context_tensors(ctx: Context, outs: tuple) -> tuple[tuple, tuple, tuple]:
    """Returns the tensors that ``ctx`` has saved, those that it keeps otherwise, and the positions of results that are not differentiable."""
    saved = () if ctx.to_save is None else ctx.to_save
    passed = () if ctx.non_differentiable is None else ctx.non_differentiable
    if type(saved) is not tuple or type(passed) is not tuple or type(ctx.materialize_grads) is not bool:
        raise NotCapturable
    if ctx.saved_for_forward is not None or not all([any([t is out for out in outs]) for t in passed]):
        raise NotCapturable
    kept = IdentitySet()
    for name, value in ctx.__dict__.items():
        if name not in _OF_CONTEXT and not _tensors_in(value, kept):
            raise NotCapturable
    ctx._fineline_saved = saved
    constant = tuple([i for i, t in enumerate(outs) if any([t is other for other in passed])])
    return tuple([t for t in saved if t is not None]), tuple(kept), constant


def _dirty(interp: Interp, ctx: Context, forward: SubGraph, outs: tuple) -> tuple[int, ...]:
    """Returns the positions of the tensors that ``ctx`` marks as dirty; raises `NotCapturable` unless the forward writes into these alone."""
    marked = () if ctx.dirty_tensors is None else ctx.dirty_tensors
    given = forward.recorder.given()
    dirty = [i for i, t in enumerate(given) if any([t is other for other in marked])]
    storages = {interp.backing.memory(interp, given[i]).untyped_storage()._cdata for i in dirty}
    if type(marked) is not tuple or len(dirty) != len(marked) or not forward.recorder.writes.storages.touched <= storages:
        raise NotCapturable
    if not all([any([t is out for out in outs]) for t in marked]):
        raise NotCapturable
    return tuple(dirty)


def _tensors_in(value: Any, found: IdentitySet, depth: int = 0) -> bool:
    """Adds the tensors in ``value``, an attribute of ``ctx``, to ``found``; returns whether everything else in it is constant."""
    if is_a(value, Tensor):
        found.add(value)
        return True
    if type(value) in (tuple, list, dict) and depth < _DEEPEST:
        parts = [*value.keys(), *value.values()] if type(value) is dict else value
        return all([_tensors_in(part, found, depth + 1) for part in parts])
    return _fixed(value)


def _fixed(value: Any) -> bool:
    """Returns whether ``value`` is a constant, a symbolic number, or a tuple of these."""
    return type(value) in SYMBOLIC or is_value(value) or (type(value) in (tuple, torch.Size) and all([_fixed(x) for x in value]))


def _backwards(interp: Interp, cls: Any, ctx: Context, outs: tuple, held: tuple, lazy: tuple, args: list) -> tuple[list[tuple[SubGraph, tuple]], bool]:
    """Returns the backward for each set of missing gradients: its graph and its results; and whether it is once-differentiable."""
    run = cls.backward
    once = run.__code__ is _ONCE
    if once:
        # The node does what the decorator's wrapper does.
        run = run.__closure__[run.__code__.co_freevars.index("fn")].cell_contents
    before, found = dict(ctx.__dict__), []
    for missing in range(2 ** len(lazy)):
        come = [i for i in range(len(outs)) if ctx.materialize_grads or (i in lazy and not missing >> lazy.index(i) & 1)]
        with torch.no_grad():
            grads = {i: interp.backing.run(interp, torch.zeros_like, (outs[i],), None) for i in come}
            given = {"grad": grads.values(), "saved": held[0], "kept": held[1]}
            come_to = [grads.get(i) for i in range(len(outs))]
            rules = _rules_of_backward(interp, once)
            one = _backward(interp, run, ctx, args, given, come_to, rules)
            if one[0].inner.either and not _same(one, _backward(interp, run, ctx, args, given, come_to, rules.but(opposite=True))):
                raise NotCapturable
        if any([before.get(name) is not v for name, v in ctx.__dict__.items() if name != "_fineline_asked"]):
            raise NotCapturable
        found.append(one)
    return found, once


def _rules_of_backward(interp: Interp, once: bool) -> SubGraphRules:
    """Returns the rules of a backward. Functions in it become sub-graphs if it may be differentiated, but not functions in their backwards."""
    inside = frozenset({FORWARD.kind, BACKWARD.kind}) if not once and not differentiated(interp) else frozenset()
    return BACKWARD.but(differentiable=not once, contains=inside)


def _backward(
    interp: Interp, run: Callable, ctx: Context, args: list, given: dict[str, Iterable[Tensor]], grads: list, rules: SubGraphRules
) -> tuple[SubGraph, tuple]:
    """Returns the graph of a backward on these ``grads``, and the nodes or constants of the gradients for the tensors among ``args``."""
    operands = [(name, t) for name, tensors in given.items() for t in tensors]
    found = capture_subgraph(interp, protocols.run_under_no_grad, [run, ctx, *grads], rules, operands, (ctx,))
    if is_a(found, NotCapturable):
        raise found
    value = found.value
    if _state_changes(found.recorder) > 2:
        raise NotCapturable
    gradients = value if type(value) is tuple else (value,)
    if len(gradients) != len(args) or any([g is not None and not is_a(a, Tensor) for g, a in zip(gradients, args, strict=True)]):
        raise NotCapturable
    # A number stays as it is, so that PyTorch raises its error when the backward runs.
    results = tuple([_node(found.recorder, g) if is_a(g, Tensor) else g for g, a in zip(gradients, args, strict=True) if is_a(a, Tensor)])
    if not all([is_a(g, (Node, int, float, NoneType)) for g in results]):
        raise NotCapturable
    return found, results


def _same(one: tuple[SubGraph, tuple], other: tuple[SubGraph, tuple]) -> bool:
    """Returns whether two captures made the same graph. False for graphs that run other graphs, which each capture makes for itself."""
    nodes = [list(found.recorder.graph.nodes) for found, _ in (one, other)]
    # Compares texts, because 1 == True, but they are different arguments.
    written = [
        repr(([(n.op, n.name, n.args, n.kwargs) for n in graph], found)) for graph, (_, found) in zip(nodes, (one, other), strict=True)
    ]
    targets = [[n.target for n in graph] for graph in nodes]
    return written[0] == written[1] and targets[0] == targets[1] and not any([n.op == "get_attr" for n in nodes[0]])


def _finished(recorder: Any, results: tuple, numbers: list, ctx: Context, name: str) -> CapturedGraph:
    """Returns the graph of a backward, without inputs for the saved tensors if the code did not read them."""
    nodes = [node for node, _ in recorder.holes]
    if not ctx._fineline_asked:
        kept = [node for node in nodes if not str(node.target).startswith("saved")]
        for node in nodes:
            if node not in kept:
                recorder.graph.erase_node(node)
        nodes = kept
    return recorder.finished(results, nodes, numbers, name)


def _state_changes(recorder: Any) -> int:
    """Returns how often a graph sets the grad mode."""
    return sum([node.op == "call_function" and node.target is torch._C._set_grad_enabled for node in recorder.graph.nodes])
