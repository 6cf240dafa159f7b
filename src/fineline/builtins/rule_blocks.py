"""Handlers of rule blocks in captured code: ``with policy:``, and ``with disable():``, in which nothing is captured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.objects.copying import mark_made
from fineline.policy.decide import rules_now
from fineline.policy.declare import Disabled, disable
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.scope_stack import SCOPE
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Handler, Interp


def _enter_policy(call: Call) -> Frame | None:
    # Enters the block for real. A program that ends inside the block enters it too (codegen/ambient_state.py).
    if call.trace.active:
        identify(call.trace, call.args[0])
    SCOPE.enter(call.args[0])
    _new_rules(call.interp)
    return call.finish(call.args[0])


def _leave_policy(call: Call) -> Frame | None:
    SCOPE.leave()
    _new_rules(call.interp)
    return call.finish(None)


def _new_rules(interp: Interp) -> None:
    """Makes the interpreter use the rules of the blocks that are active now."""
    if interp.rules is not None:
        interp.rules.settle()
    interp.rules = rules_now(interp.options.policy, interp.fired)


def _enter_disabled(call: Call) -> Frame | None:
    rule = call.args[0].rule
    if not call.trace.active or MARKS.is_without(rule):
        return call.run_natively()
    if call.interp.fired is not None:
        call.interp.fired[rule] += 1
    graph_break = call.graph_break("FL430", "a with disable() block begins")
    graph_break.rule = str(rule)
    raise graph_break


def _leave_disabled(call: Call) -> Frame | None:
    call.native()
    if call.interp.eager.resumes and None not in SCOPE.blocks:
        # The outermost such block ends, so capture continues.
        raise GraphBreak(_nothing, (), None, "FL430", "a with disable() block ends")
    return call.finish(None)


def _nothing() -> None:
    """Runs at the graph break where a block ends, and does nothing."""


def _make_disabled(call: Call) -> Frame | None:
    if call.args or "fn" in (call.kwargs or {}):
        raise call.graph_break("FL411", "disable() marks a function")
    given = {"recursive": True, "reason": None, **(call.kwargs or {})}
    made = Disabled(given["recursive"], given["reason"], place=f"{call.frame.info.code.co_filename}:{call.frame.line}")
    mark_made(call.trace, made)
    return call.finish(made)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        Policy.__enter__: _enter_policy,
        Policy.__exit__: _leave_policy,
        Disabled.__enter__: _enter_disabled,
        Disabled.__exit__: _leave_disabled,
        disable: _make_disabled,
    }
)
