"""The effect of each verb of a policy's rules on a call or an operator."""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.fake.dispatch_trace import dispatched
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import FX_CONSTANTS, NotForGraph
from fineline.kinds import is_a
from fineline.objects.c_access import may_compare
from fineline.objects.introspection import load_cell
from fineline.policy.decide import Rules
from fineline.policy.marks import MARKS
from fineline.policy.rule import Rule
from fineline.policy.selector import describe, short_name
from fineline.symbolic.arithmetic import SYMBOLIC, settle_all, settled
from fineline.tensor_ops.subgraphs.allow_in_graph import call_allowed, tensors
from fineline.torch_facts.releases import APPLY, bound_apply, has_apply
from fineline.torch_facts.spellings import operator_name
from fineline.tracing.identity_guards import identify, known_code
from fineline.tracing.interp import Call, Interp
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import F_DEFAULTS, F_KWDEFAULTS

CONTAINERS = (list, tuple, dict, set, frozenset, deque, bytearray)


def call_ruled(call: Call, rule: Rule) -> Frame | None:
    """Handles a call that ``rule`` decides."""
    return VERBS[rule.verb](call, rule)


def operator_rule(interp: Interp, fn: Any, args: Any, kwargs: Any) -> Rule | None:
    """Returns the rule for a tensor operator, however it is spelled."""
    rules = interp.rules
    if rules is None or (rules.operators.is_empty and not MARKS.operators):
        return None
    args, kwargs = tuple(args), kwargs or {}
    reached = _dispatched(rules, fn, args, kwargs) if rules.by_dispatch else frozenset()
    return rules.decide_operator(operator_name(fn, args, kwargs), reached, operator_name(fn))


OTHER: Any = object()


def _dispatched(rules: Rules, fn: Any, args: tuple, kwargs: dict) -> frozenset[str]:
    """Returns the names of the operators that the call dispatches to; a trial run takes 1 to 3 ms, so calls on tensors of the same kind share one."""
    kinds = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), *[_kind(a) for a in (*args, *kwargs.items())])
    if OTHER in kinds:
        return dispatched(fn, args, kwargs)
    return rules.operators.dispatched(fn, kinds, lambda: dispatched(fn, args, kwargs))


def _kind(a: Any) -> Any:
    """Returns the facts about an argument that the operators of a call may depend on; `OTHER` if only the argument's own code could compare it."""
    t = type(a)
    if t in (Tensor, torch.nn.Parameter):
        return a.dtype, a.device, a.shape, a.stride() if a.layout is torch.strided else a.layout, a.requires_grad
    if t in (tuple, list, torch.Size, slice):
        items = [_kind(x) for x in ((a.start, a.stop, a.step) if t is slice else a)]
        return OTHER if OTHER in items else (t, *items)
    return (t, a) if t in FX_CONSTANTS else OTHER


def _graph_break(fn: Any, args: Any, kwargs: Any, error: str, reason: str, rule: Rule) -> GraphBreak:
    graph_break = GraphBreak(fn, tuple(args), kwargs, error, reason + (f": {rule.reason}" if rule.reason else ""))
    graph_break.rule = str(rule)
    return graph_break


def _disable(call: Call, rule: Rule) -> Frame | None:
    name = short_name(_bound(call.fn, call.args))
    if is_a(call.fn, types.FunctionType):
        known_code(call.trace, call.fn)
    plain, given = call.fn, call.args
    if rule.verb == "disable_frame" and call.interp.run_frame is not None:
        # Passes the function as the first argument: in another call it may be another function object with other closure variables.
        plain, given = call.interp.run_frame, [call.fn, *call.args]
        call.trace.pin(plain, name)
    raise _graph_break(plain, given, call.kwargs, "FL400", f"{name} is disabled", rule)


def _disallow(call: Call, rule: Rule) -> Frame | None:
    raise operator_break(call.fn, call.args, call.kwargs, rule)


# The graph break at an infix operator, or at an operator inside another call, by the rule's verb: its id and its text.
_OPERATOR_BREAKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "disable": ("FL400", "is disabled"),
        "disable_frame": ("FL400", "is disabled"),
        "disallow": ("FL429", "is disallowed"),
        "constant": ("FL450", "is assumed constant, which an operator can be only where it is called by its name"),
        "substitute": ("FL451", "takes the place of an operator, and runs eagerly"),
    }
)


def operator_break(fn: Any, args: Any, kwargs: Any, rule: Rule) -> GraphBreak:
    """Returns the graph break at an operator that ``rule`` keeps out of graphs."""
    error, text = _OPERATOR_BREAKS[rule.verb]
    return _graph_break(fn, args, kwargs, error, f"{describe(_bound(fn, args))} {text}", rule)


def _bound(fn: Any, args: Any) -> Any:
    """Returns the callable that the user's code calls: binds `Function.apply`, one function for all its subclasses, to the class in ``args``."""
    return bound_apply(args[0]) if fn is APPLY and args and has_apply(args[0]) else fn


def forbid(interp: Interp, fn: Any, rule: Rule, args: Any = ()) -> None:
    """Abandons the capture with an error that names the user's line."""
    text = describe(_bound(fn, args)) + (f": {rule.reason}" if rule.reason else "")
    raise interp.outcome.abandon(interp.refusal("FL105", text, interp.frame, str(rule)))


def _forbid(call: Call, rule: Rule) -> Frame | None:
    forbid(call.interp, call.fn, rule, call.args)
    return None


def _constant(call: Call, rule: Rule) -> Frame | None:
    interp, trace, fn = call.interp, call.trace, call.fn
    identify(trace, fn)
    if interp.backing.may_be_symbolic:
        call.args = [settle_all(a) for a in call.args]
    for a in call.values():
        if is_value(a) and may_compare(trace, a):
            continue
        if a not in trace.sources:
            reason = f"{describe(_bound(fn, call.args))} is assumed constant, and called with a {type(a).__name__} that the captured code made"
            raise _graph_break(fn, call.args, call.kwargs, "FL450", reason, rule)
        identify(trace, a)
        try:
            trace.expand(a, deep=True)
        except NotForGraph as e:
            raise _graph_break(fn, call.args, call.kwargs, "FL413", str(e), rule) from None
        _settle(a)
    functions = list(_functions(fn))
    for cell in [cell for g in functions for cell in g.__closure__ or () if contents(cell) is not EMPTY]:
        if (number := _settle(cell.cell_contents)) is not cell.cell_contents:
            cell.cell_contents = number
    around = [(g, cell, contents(cell), list(_held(contents(cell)))) for g in functions for cell in g.__closure__ or ()]
    result = call.native()
    for g, cell, value, held in around:
        # The result does not depend on a variable that the call itself changes, such as a cache.
        if value is not EMPTY and contents(cell) is value and _same(held, list(_held(value))):
            _guard_variable(interp, g, cell)
    for g in functions:
        _guard_defaults(interp, g)
    if any([t.grad_fn is not None for t in tensors(result)]):
        interp.fail("FL434", f"{describe(fn)} is assumed constant", True)
        return call.finish(result)
    interp.note_call(describe(fn), fn, "constant")
    if not is_value(result):
        trace.pin(result, f"{getattr(fn, '__name__', 'constant')}()")
    return call.finish(result)


def _functions(fn: Any) -> Iterator[types.FunctionType]:
    """Yields the function of a callable and the functions in its closure, at any depth."""
    found, todo = list[types.FunctionType](), [fn]
    for g in todo:
        if is_a(g, types.FunctionType) and not any([g is other for other in found]):
            found.append(g)
            todo += [contents(cell) for cell in g.__closure__ or ()]
        elif is_a(g, types.MethodType):
            todo.append(g.__func__)
        elif is_a(g, functools.partial):
            todo.append(g.func)
    yield from found


def _held(value: Any, within: tuple[int, ...] = ()) -> Iterator[Any]:
    """Yields the length and the items of a container and of the containers in it, at any depth."""
    if not is_a(value, CONTAINERS) or id(value) in within:
        return
    yield len(value)
    for item in [*dict.keys(value), *dict.values(value)] if is_a(value, dict) else list(value):
        yield item
        yield from _held(item, (*within, id(value)))


def _same(before: list, after: list) -> bool:
    return len(before) == len(after) and all([a is b for a, b in zip(before, after, strict=True)])


def _guard_variable(interp: Interp, fn: types.FunctionType, cell: types.CellType) -> None:
    """Guards the value of a closure variable and, as far as possible, the value's contents."""
    interp.see_function(interp.trace, fn)
    value = settled(load_cell(interp, cell))
    if not is_value(value):
        _guard_held(interp, value)


def _guard_defaults(interp: Interp, fn: types.FunctionType) -> None:
    """Guards the identity and the contents of a function's default values."""
    trace = interp.trace
    interp.see_function(trace, fn)
    src = trace.sources.get(fn)
    for descriptor, values in ((F_DEFAULTS, fn.__defaults__), (F_KWDEFAULTS, fn.__kwdefaults__)):
        if values and src is not None:
            held = trace.guards.access(src, "member", descriptor, values)
            for key, value in enumerate(values) if is_a(values, tuple) else values.items():
                if not is_value(value):
                    trace.load(value, trace.guards.access(held, "index" if is_a(values, tuple) else "key", key, value))
                    _guard_held(interp, value)


def _guard_held(interp: Interp, value: Any) -> None:
    identify(interp.trace, value)
    with contextlib.suppress(NotForGraph):
        interp.trace.expand(value, deep=True)
    _settle(value)


def _settle(value: Any) -> Any:
    """Specializes on the symbolic numbers in ``value``, at any depth; changes lists, dicts and deques in place, and copies other containers."""
    if type(value) in SYMBOLIC:
        return settled(value)
    if not is_a(value, CONTAINERS) or not any([type(v) in SYMBOLIC for v in _held(value)]):
        return value
    if is_a(value, (dict, list, deque)):
        for key in list(dict.keys(value) if is_a(value, dict) else range(len(value))):
            value[key] = _settle(value[key])
        return value
    return settle_all(value)


def _substitute(call: Call, rule: Rule) -> Frame | None:
    replacement = rule.replacement
    identify(call.trace, call.fn)
    if is_a(replacement, types.FunctionType) and replacement not in call.trace.sources:
        call.trace.pin(replacement, replacement.__qualname__)
    return call.instead(replacement, call.args, call.kwargs)


VERBS: Mapping[str, Callable[[Call, Rule], Frame | None]] = MappingProxyType(
    {
        "disable": _disable,
        "disable_frame": _disable,
        "disallow": _disallow,
        "forbid": _forbid,
        "constant": _constant,
        "substitute": _substitute,
        "allow": call_allowed,
    }
)
