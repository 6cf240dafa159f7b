"""The part of a program that runs when its graph fails: it restores PyTorch's state and runs the user's code in Python, which raises the error."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch.autograd.grad_mode import _enter_inference_mode
from torch.fx import GraphModule

from fineline.backends.eager import as_it_is
from fineline.bytecode.asynchronous import asynchronous, let_pass
from fineline.codegen.ambient_state import graphs_override_state, in_override_state
from fineline.codegen.error_mapping import as_user
from fineline.codegen.random_draws import Generators, does_more, draw_lines, generators, may_fail
from fineline.codegen.reconstructor import Reconstructor
from fineline.errors import BackendFailed
from fineline.frames.graph_breaks import NotReconstructible
from fineline.fx.infallible import functions
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.random_state import put_back, random_states
from fineline.torch_facts.tensor_backup import Kept
from fineline.torch_facts.thread_state import Standing
from fineline.tracing.mutation_log import MOST_KEPT, has_history
from fineline.tracing.segment_trace import SegmentTrace


class Writer(Protocol):
    """The writer of the program that the call is part of."""

    trace: SegmentTrace
    rebuild: Reconstructor

    def written(self) -> list[Source]: ...


class RestOfCall(Protocol):
    """Runs the rest of the call in Python."""

    # Whether the code is in blocks that it has entered before the segment.
    in_blocks: bool

    def __call__(self, failed: BaseException | None, *roots: Any) -> Any: ...
    def leave(self, error: BaseException, *roots: Any) -> Any: ...


def emit_guarded_graph_call(writer: Writer, call: str, inputs: str, checks: list[str], again: RestOfCall, gm: GraphModule) -> list[str]:
    """Returns statements that call a graph and, if it fails or one of the ``checks`` is true, run the user's code in Python to raise there.

    A graph that is not known to raise gets this only if it has no visible effects, or if something would be lost: Python's writes,
    blocks to leave, handlers. ``inputs``: the text of the arguments in ``call``.
    """
    trace, r = writer.trace, writer.rebuild
    symbols, interp = trace.symbols, trace.guards.interp
    random = trace.state.drew() or (symbols is not None and symbols.fakes.mode.drew)
    written = writer.written()
    drawn, more = draw_lines(r), does_more(trace)
    inexact = trace.failures.inexact
    if drawn and not may_fail(trace):
        return [*drawn, call]
    states = _states(trace)
    before, back = {}, {}
    if states - {torch._C._set_grad_enabled}:
        before["standing"] = f"{r.constant(Standing, 'Standing')}({r.constant(trace.state.start, 'facts')})"
    stand = _stand(trace, r, states, before)
    lost = trace.mutations.written or trace.mutations.slots or trace.mutations.calls or states or trace.failures.caught
    if not checks and not inexact and not drawn and (more or ((random or written) and not (lost and costs_little(writer, written)))):
        errors = trace.failures.errors
        if not errors and not states and not again.in_blocks:
            return [call]
        own = f"{r.constant(functools.partial(as_user, MappingProxyType(errors)), 'as_user')}(error)" if errors else "error"
        return [
            *[f"{name} = {text}" for name, text in before.items()],
            # The error's frames keep an inference mode until they are freed; otherwise its traceback shows where it was raised.
            *("failed = None", "try:", f"    {call}", "except BaseException as error:"),
            f"    failed = {own}{'.with_traceback(None)' if _enter_inference_mode in states else ''}",
            *("if failed is not None:", "    try:"),
            *[f"        {line}" for line in _left(writer, again, "failed", stand)],
            # The error holds this frame, and with it the arguments of the call.
            *("    finally:", "        del failed"),
        ]
    if random:
        before["random"], back["random"] = f"{r.constant(random_states, 'random_states')}()", f"{r.constant(put_back, 'put_back')}(random)"
    if written:
        before["kept"], back["kept"] = f"{r.constant(Kept, 'Kept')}({', '.join(map(r.graph_input, written))})", "kept.undo()"
    if drawn:
        before["drawn"], back["drawn"] = f"{r.constant(Generators, 'Generators')}({generators(r)})", "drawn.put_back()"
    leave = _left(writer, again, "error", stand) if states or again.in_blocks else ["raise"]
    if (more and not checks) or any([has_history(interp.backing.memory(interp, s.value)) for s in written]):
        raise NotReconstructible(f"a check ({inexact}) in a graph with effects, which can't be raised as the code does")
    undone = [f"    {line}" for line in (*stand, *back.values())]
    # Only the uncompiled graph shows whether one of its operators raises: the user's code may handle the error, or not reach the operator.
    failing = r.constant(functools.partial(fails, gm, graphs_override_state(trace.state.start, trace.recorder.traits)), "fails")
    raising = [f"    if failed and {failing}({inputs}):", "        failed = None", *undone]
    modes = ["    modes.put_back()"] if trace.state.modes else []
    return [
        *[f"{name} = {text}" for name, text in before.items()],
        *drawn,
        *("failed = None", "try:", f"    {call}", "except BaseException as error:"),
        *(f"    if {r.constant(leaves, 'leaves')}(error):", *[f"        {line}" for line in leave], "    failed = [error]"),
        f"if {' or '.join(['failed', *checks])}:",
        *undone,
        *raising,
        *modes,
        f"    return {r.constant(again, 'again')}({', '.join(['failed and failed.pop()', *map(r.param, trace.guards.roots())])})",
    ]


def leaves(error: BaseException) -> bool:
    """Returns whether ``error`` leaves the call at once: it has come from outside, no operator raises such an error, or no graph has run."""
    return not is_a(error, Exception) or is_a(error, BackendFailed) or asynchronous(error) is not None


def fails(gm: GraphModule, override_state: str, *inputs: Any) -> bool:
    """Returns whether the uncompiled graph fails, too: then one of its operators raises, and the backend is not at fault."""
    try:
        in_override_state(override_state, as_it_is(gm), *inputs)
    except Exception as e:
        let_pass(e)
        return True
    return False


def _states(trace: SegmentTrace) -> set[Any]:
    """Returns the functions by which the graph changes PyTorch's state: it may fail before it restores the state."""
    return {function for function, _ in functions(trace.recorder.graph) if classify_torch(function) == "state"}


def _stand(trace: SegmentTrace, r: Reconstructor, states: set[Any], before: dict[str, str]) -> list[str]:
    if "standing" in before:
        return ["standing.put_back()"]
    return [f"{r.constant(torch._C._set_grad_enabled, 'set_grad_mode')}({trace.state.start.grad_mode})"]


def _left(writer: Writer, again: RestOfCall, error: str, stand: list[str]) -> list[str]:
    """Returns statements that raise ``error`` out of the segment, and out of the blocks around it that earlier code has entered."""
    r = writer.rebuild
    roots = map(r.param, writer.trace.guards.roots())
    if not again.in_blocks:
        return [*stand, f"raise {error}"]
    modes = ["modes.put_back()"] if writer.trace.state.modes else []
    return [*stand, *modes, f"return {r.constant(again.leave, 'leave')}({', '.join([error, *roots])})"]


def costs_little(writer: Writer, written: list[Source]) -> bool:
    """Returns whether a graph that writes there may run again: the memory that each call copies for that is small."""
    few = sum([s.value.untyped_storage().nbytes() for s in written]) <= MOST_KEPT
    interp = writer.trace.guards.interp
    return few and not any([has_history(interp.backing.memory(interp, s.value)) for s in written])
