"""Speculation: effects that must wait because the graph relies on a check in it, or may raise an error that the user's code handles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fineline.frames.frame import handled
from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.fx.body_recorder import Part
from fineline.guards.facts import unseen
from fineline.kinds import is_a
from fineline.policy.break_settings import breaks_here
from fineline.policy.selector import describe
from fineline.tracing.interp import Call, Interp
from fineline.tracing.mutation_log import MOST_KEPT, has_history

# Types of tensors on which an operator's write changes only memory.
KEEPS = frozenset({Tensor, torch.nn.Parameter})


def settle_first(call: Call, rule: str = "", checked: bool = False) -> None:
    """Notes that the graph gets a node that must not run twice; breaks the graph before it if checks, or errors that are handled, forbid that.

    ``checked``: capture runs through the code of the node, and sees what it does.
    """
    trace = call.trace
    if call.interp.backing.real and call.interp.backing.undone and not checked:
        raise Restart("FL516", f"{describe(call.fn)} may do more than compute")
    if delivers(call.interp) and handled(call.frame):
        raise call.graph_break("FL525", f"{describe(call.fn)} may raise, and have effects, where exceptions are handled")
    if trace.failures.fragile or trace.failures.are_granted():
        error, where = ("FL525", "an operator whose exception is handled") if trace.failures.fragile else ("FL514", "a branch that is assumed")
        graph_break = GraphBreak(_nothing, (), None, error, f"{describe(call.fn)} may have effects, after {where}")
        graph_break.rule = "" if trace.failures.fragile else rule
        raise graph_break.to(call.again())
    trace.recorder.traits.once = True


def delivers(interp: Interp) -> bool:
    """Returns whether the handlers in the user's code must see the exceptions of the graph: not in an exported graph or a sub-graph."""
    return not (interp.options.exported or is_a(interp.trace.recorder, Part))


def settle_raising(interp: Interp, fn: Any, args: Any, kwargs: dict | None, raises: bool, targets: Any, history: bool) -> None:
    """Breaks the graph if it would contain both an operator that may raise a handled error and effects that cannot be undone.

    ``raises``: this operator may raise such an error. ``targets``: its arguments that it writes into, with an autograd ``history`` or without.
    """
    trace = interp.trace
    raises = raises and delivers(interp) and handled(interp.frame)
    if raises or (trace.failures.fragile and targets):
        targets = list(leaves_of(targets))
        if _lasting(interp, targets, history):
            text = "may raise an exception that is handled, after" if raises else "writes much after an operator whose exception is handled, or"
            raise GraphBreak(fn, tuple(args), kwargs, "FL525", f"{describe(fn)} {text} effects that can't be undone")
        trace.failures.fragile = trace.failures.fragile or raises


def _lasting(interp: Interp, targets: list, history: bool) -> bool:
    """Returns whether the graph, with writes into ``targets``, has effects that cannot be undone at little cost."""
    trace = interp.trace
    if trace.recorder.traits.once or trace.state.start.saved_tensor_hooks:
        return True
    if not (trace.recorder.writes.storages or targets) or not writes_outside(interp, targets):
        return False
    return bool(history and targets) or not _kept(interp, targets)


def leaves_of(items: Any) -> Iterator[Any]:
    for x in items:
        if is_a(x, (tuple, list)):
            yield from leaves_of(x)
        else:
            yield x


def _nothing() -> None:
    """Does nothing: the eager call of a graph break that only lets the graph's checks run."""


def writes_too_soon(interp: Interp, targets: Any, history: bool) -> bool:
    """Returns whether a write into ``targets`` must wait until the graph's checks have run. ``history``: the write gives them an autograd history."""
    return interp.trace.failures.are_granted() and writes_too_early(interp, targets, history)


def writes_too_early(interp: Interp, targets: Any, history: bool = False) -> bool:
    """Returns whether a write into ``targets`` would change what a check reads, or what the program cannot restore if a check fails."""
    if _among(interp, _checked(interp), targets):
        return True
    if breaks_here(interp.options.breaks) == "none" or not writes_outside(interp, targets):
        return False
    return history or not _kept(interp, targets)


def _kept(interp: Interp, targets: Any) -> bool:
    """Returns whether the program can save, at little cost, the old contents of ``targets`` and of all other inputs that the graph writes into."""
    trace = interp.trace
    if is_a(trace.recorder, Part) or torch._C._functorch.get_dynamic_layer_stack_depth():
        return False
    given = [src.value for _, src in trace.recorder.inputs if is_a(src.value, Tensor)]
    targets = {_storage(interp.backing.memory(interp, t)) for t in targets if is_a(t, Tensor)}
    written = [t for t in given if (at := _storage(interp.backing.memory(interp, t))) in trace.recorder.writes.storages or at in targets]
    plain = 0 not in targets and all([type(t) in KEEPS and not has_history(interp.backing.memory(interp, t)) for t in written])
    return plain and sum([t.untyped_storage().nbytes() for t in written]) <= MOST_KEPT


def writes_outside(interp: Interp, targets: Any) -> bool:
    """Returns whether the graph has written into its inputs, or whether ``targets`` share memory with an input or a checked tensor."""
    trace = interp.trace
    inputs = {_storage(interp.backing.memory(interp, src.value)) for _, src in trace.recorder.inputs if is_a(src.value, Tensor)}
    return not inputs.isdisjoint(trace.recorder.writes.storages) or _among(interp, inputs | _checked(interp), targets, trace.sources)


def _checked(interp: Interp) -> set[int]:
    return {_storage(t) for t, _ in interp.trace.failures.assumed}


def _among(interp: Interp, storages: set[int], targets: Any, known: Any = ()) -> bool:
    return any([is_a(t, Tensor) and (t in known or _storage(interp.backing.memory(interp, t)) in storages) for t in targets])


@unseen
def _storage(t: Tensor) -> int:
    return t.untyped_storage()._cdata if t.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(t) else 0
