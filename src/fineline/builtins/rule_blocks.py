"""Blocks of rules in captured code: ``with policy:``, and ``with disable():`` in which nothing is captured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from fineline.tracing.interp import Interp


def _enter_policy(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    # The block is entered for real; a program that ends inside of it enters it too (program/ambient.py).
    if interp.trace.active:
        identify(interp.trace, args[0])
    SCOPE.enter(args[0])
    if interp.rules is not None:
        interp.rules.settle()
    interp.rules = rules_now(interp.options.policy, interp.fired)
    return interp.finish(f, args[0], then, data)


def _leave_policy(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    SCOPE.leave()
    if interp.rules is not None:
        interp.rules.settle()
    interp.rules = rules_now(interp.options.policy, interp.fired)
    return interp.finish(f, None, then, data)


def _enter_disabled(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    rule = args[0].rule
    if not interp.trace.active or MARKS.is_without(rule):
        return interp.finish(f, interp.native(fn, tuple(args), None), then, data)
    if interp.fired is not None:
        interp.fired[rule] += 1
    graph_break = GraphBreak(fn, tuple(args), None, "FL430", "a with disable() block begins")
    graph_break.rule = str(rule)
    raise graph_break.to(then, data)


def _leave_disabled(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    interp.native(fn, tuple(args), None)
    if interp.resumes and None not in SCOPE.blocks:
        # The outermost such block ends: capture goes on.
        raise GraphBreak(_nothing, (), None, "FL430", "a with disable() block ends").to(then, data)
    return interp.finish(f, None, then, data)


def _nothing() -> None:
    """Runs at the graph break where a block ends, and does nothing."""


def _make_disabled(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if args or "fn" in (kwargs or {}):
        raise GraphBreak(fn, tuple(args), kwargs, "FL411", "disable() marks a function").to(then, data)
    given = {"recursive": True, "reason": None, **(kwargs or {})}
    made = Disabled(given["recursive"], given["reason"], place=f"{f.info.code.co_filename}:{f.line}")
    mark_made(interp.trace, made)
    return interp.finish(f, made, then, data)


HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    {
        Policy.__enter__: _enter_policy,
        Policy.__exit__: _leave_policy,
        Disabled.__enter__: _enter_disabled,
        Disabled.__exit__: _leave_disabled,
        disable: _make_disabled,
    }
)
