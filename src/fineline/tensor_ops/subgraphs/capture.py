"""The capture of all sub-graphs: runs the Python code of a node by the rules of its kind, and records it in a graph of its own.

Autograd functions, control-flow operators, checkpoint and nested_compile_region use `capture_subgraph`. It runs the code on an interpreter of its
own, which stops before any effect. A capture that fails therefore has no effect, and its caller runs the code in another way: as one eager call,
or interpreted like other code. Only the guards stay, because the failure depends on the values that they guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad

from fineline.bytecode.asynchronous import let_pass
from fineline.cpython import protocols
from fineline.fake.fake_tensors import Fakes, NotFakeable
from fineline.frames.graph_breaks import GraphBreak, NotCapturable, Restart
from fineline.fx.body_recorder import BodyRecorder, Part
from fineline.fx.recorder import NotForGraph
from fineline.guards.ambient_table import AMBIENT
from fineline.identity import AddressSet
from fineline.kinds import is_a
from fineline.tensor_ops.backing import FakeBacking, computing
from fineline.tensor_ops.subgraphs.made_objects import held, undo_changes, watched
from fineline.torch_facts.random_state import put_back, random_states
from fineline.torch_facts.thread_state import hidden_states, leave_dual_levels, put_back_hidden, restore
from fineline.tracing.interp import Backing, Interp, SubInterp
from fineline.tracing.mutation_log import EMPTY, MutationLog
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.subgraph_rules import SubGraphRules


class SubGraph:
    """A captured sub-graph: its graph, and the result ``value`` of its code. Nothing outside of it has changed yet."""

    def __init__(self, inner: SubInterp, value: Any, before: _Before) -> None:
        self.inner, self.value = inner, value
        self.recorder = inner.recorder
        self._before = before

    def number(self, n: Any) -> Any:
        """Returns the node of ``n``, a symbolic number in the code's result; raises `NotCapturable` if the sub-graph cannot compute it."""
        trace = self.inner.trace
        before, trace.recorder = trace.recorder, self.recorder
        try:
            return trace.symbols.node(n)
        except (Restart, NotForGraph) as e:
            raise NotCapturable(str(e), cause=e) from None
        finally:
            trace.recorder = before

    def undo(self) -> None:
        """Undoes what the code has done, because the sub-graph is not used: its writes into operands, its random draws, its notes in the trace."""
        self.inner.mutations.undo_storages()
        self._before.put_back()


class _Before:
    """A snapshot of what a sub-graph's capture may change in the trace, which has other recorders for nodes, inputs and writes meanwhile."""

    def __init__(self, interp: Interp, rules: SubGraphRules) -> None:
        self.trace = trace = interp.trace
        self.tally = interp.tally
        self.counted = self.tally.mark() if self.tally is not None else 0
        self.kept, self.assumed, self.flags = len(trace.kept), len(trace.failures.assumed), (trace.failures.caught, trace.failures.fragile)
        self.states, self.answers = set(trace.state.setters), dict(trace.state.answers)
        top = trace.recorder.outermost() if is_a(trace.recorder, BodyRecorder) else trace.recorder
        self.shared, self.known = top.nested.shared, len(top.nested.shared)
        # Fakes draw no random numbers.
        self.random = random_states() if not rules.on_fakes else None

    def put_back(self) -> None:
        trace = self.trace
        del trace.kept[self.kept :], trace.failures.assumed[self.assumed :]
        trace.failures.caught, trace.failures.fragile = self.flags
        trace.state.setters, trace.state.answers = self.states, self.answers
        for name in list(self.shared)[self.known :]:
            del self.shared[name]
        if self.random is not None:
            put_back(self.random)
        if self.tally is not None:
            self.tally.take_back(self.counted)


def may_stand(interp: Interp, rules: SubGraphRules) -> bool:
    """Returns whether a sub-graph of this kind is allowed in the code that ``interp`` runs."""
    around = interp.nested.subgraph_rules
    return interp.nested.sub_interpreter is not None and (around is None or around.contains is None or rules.kind in around.contains)


def capture_call(
    interp: Interp, fn: Any, args: Iterable[Any], kwargs: dict | None, rules: SubGraphRules, operands: Iterable[tuple[str, Any]], fakes: Fakes,
    made: Iterable[Any] = (),
) -> SubGraph | NotCapturable:
    """Captures ``fn(*args, **kwargs)``, a call of any callable, as a sub-graph on ``fakes``; otherwise as `capture_subgraph`."""
    args, given = tuple(args), {**(kwargs or {})}
    return capture_subgraph(interp, protocols.call_spread, [fn, args, given], rules, operands, (args, given, *made), backing=FakeBacking(fakes))


def capture_subgraph(
    interp: Interp, fn: Any, args: Iterable[Any], rules: SubGraphRules, operands: Iterable[tuple[str, Any]] = (), made: Iterable[Any] = (),
    kwargs: dict | None = None, backing: Backing | None = None,
) -> SubGraph | NotCapturable:  # fmt: skip
    """Captures ``fn(*args, **kwargs)``, a call of a Python function, as a sub-graph; a failure returns the reason and leaves only guards.

    ``operands``: the tensors and numbers that the node's operator passes, in order, each with the name of its input. ``made``: other objects that
    were made for this call. ``backing``: the backing of the sub-graph; by default an inner one of the capture around it.
    """
    if not may_stand(interp, rules):
        return NotCapturable("it stands in code that no such graph may stand in")
    assert interp.nested.sub_interpreter is not None
    trace = interp.trace
    before, operands = _Before(interp, rules), list(operands)
    args, made = list(args), tuple(made)
    recorder = BodyRecorder(trace.recorder) if rules.lifts else Part()
    for name, v in operands:
        node = recorder.hole(v, name)
        if type(v) is torch.SymInt:
            recorder.own[v.node.expr] = node
    # The methods of modes read what the segment has made, such as the modes themselves.
    shares = rules.lifts or (rules.shown_to_modes and bool(interp.nested.modes))
    reachable = trace.made.copy() if shares and not rules.later else AddressSet()
    reachable.update(made)
    backing = interp.backing.inner() if backing is None else backing
    inner = interp.nested.sub_interpreter(interp, rules, recorder, backing, reachable)
    try:
        roots = [fn, *args, *(kwargs or {}).values(), *interp.nested.modes, *[v for obj in made for v in held(obj)]]
        watch = watched(trace, roots) if shares else None
        with _surroundings(interp, inner, operands, watch):
            value = inner.attempt(fn, args, kwargs)
        return SubGraph(inner, value, before)
    except BaseException as e:
        inner.mutations.undo_storages()
        before.put_back()
        return _reason(e, inner)


def _reason(e: BaseException, inner: SubInterp) -> NotCapturable:
    """Returns why no graph can hold the code, which has ended with ``e``; raises ``e`` if it must end the capture around it, too."""
    if is_a(e, NotCapturable):
        found = type(e)(e.reason + inner.reached(), e.error, e.rule, e.raised, e.cause)
    elif is_a(e, Restart):
        found = NotCapturable(e.text + inner.reached(), cause=e)
    elif is_a(e, GraphBreak):
        found = NotCapturable(f"it breaks the graph: {e.reason}{inner.reached()}", rule=e.rule, cause=e)
    elif is_a(e, NotFakeable):
        found = NotCapturable(f"it uses {e}")
    elif is_a(e, Exception):
        let_pass(e)
        # Leaves out the text after a run on the real values, because making it runs the user's code, which will run again.
        text = f": {e}" if inner.nested.subgraph_rules is not None and inner.nested.subgraph_rules.on_fakes else ""
        found = NotCapturable(f"it raises {type(e).__name__}{text}{inner.reached()}")
    else:
        raise e
    if found.cause is not None:
        # Its traceback refers to frames that refer to it.
        found.cause.__traceback__ = found.cause.__context__ = None
    return found


@contextmanager
def _surroundings(interp: Interp, inner: SubInterp, operands: list[tuple[str, Any]], watch: MutationLog | None) -> Iterator[None]:
    """A context in which the trace records for the sub-graph's interpreter; puts PyTorch's state and all reachable objects back at its end.

    Raises `NotCapturable` if the code has changed or used what is not its own.
    """
    rules, trace = inner.nested.subgraph_rules, interp.trace
    assert rules is not None
    assumed = len(trace.failures.assumed)
    with ExitStack() as around:
        if not inner.backing.real:
            around.enter_context(computing(interp))
        if rules.on_fakes:
            around.enter_context(temporarily_clear_interpreter_stack())
        around.enter_context(_thread_state(inner))
        around.enter_context(_recording(trace, inner))
        around.enter_context(_attributes([] if rules.lifts else [t for _, t in operands]))
        try:
            yield
        finally:
            changed = watch is not None and undo_changes(watch)
    if changed:
        raise NotCapturable("it changes what the code around it has made")
    if len(trace.failures.assumed) > assumed or inner.recorder.inputs:
        raise NotCapturable("it uses what is not its own")


@contextmanager
def _recording(trace: SegmentTrace, inner: SubInterp) -> Iterator[None]:
    """A context in which the trace records nodes, writes and made objects for the sub-graph's interpreter."""
    before = (trace.recorder, trace.mutations, trace.made, trace.guards.interp)
    expanded = trace.read_again() if inner.nested.subgraph_rules is not None and inner.nested.subgraph_rules.later else None
    trace.recorder, trace.mutations, trace.made, trace.guards.interp = inner.recorder, inner.mutations, inner.made, inner
    try:
        yield
    finally:
        trace.recorder, trace.mutations, trace.made, trace.guards.interp = before
        if expanded is not None:
            trace.containers.expanded.update(expanded)
        inner.end()


@contextmanager
def _thread_state(inner: SubInterp) -> Iterator[None]:
    """A context that puts PyTorch's thread state back at its end."""
    before, hidden = AMBIENT.now(), hidden_states()
    nested, level = eager_transforms.JVP_NESTING, forward_ad._current_level
    try:
        yield
    finally:
        inner.nested.leave_inference_modes()
        restore(before)
        put_back_hidden(hidden)
        reached, forward_ad._current_level = forward_ad._current_level, level
        leave_dual_levels(reached)
        eager_transforms.JVP_NESTING = nested


@contextmanager
def _attributes(tensors: list[Tensor]) -> Iterator[None]:
    """A context that puts the attributes of the user's tensors back at its end; raises `NotCapturable` if the code set any, as no graph can."""
    before = [dict(t.__dict__) for t in tensors]
    changed = []
    try:
        yield
    finally:
        changed = [(t.__dict__, was) for t, was in zip(tensors, before, strict=True) if not _same(t.__dict__, was)]
        for now, was in changed:
            now.clear()
            now.update(was)
    if changed:
        raise NotCapturable("it sets attributes of what it is given")


def _same(a: dict, b: dict) -> bool:
    return len(a) == len(b) and all([b.get(k, EMPTY) is v for k, v in a.items()])
