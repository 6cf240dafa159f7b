"""Handlers of calls that a mark decides: disabled functions, explicit graph breaks, compiled functions inside a capture."""

from __future__ import annotations

import functools
import inspect
import logging
import traceback
import types
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from fineline.builtins.data_parallel import AROUND
from fineline.builtins.distributed_tensors import distributed
from fineline.builtins.libraries import fill_table, fills_table, stand_in
from fineline.cpython.warning_filters import is_shown_once, issue
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.stub_frames import is_own
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.objects.attribute_reads import load_attr
from fineline.policy.decide import Rules
from fineline.policy.dim_marks import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
from fineline.policy.inline_rules import break_rule
from fineline.policy.marks import MARKS, dynamo_kind, torch_mark
from fineline.policy.rule import MARK, Rule
from fineline.policy.selector import of_object
from fineline.policy.stance import Stances
from fineline.symbolic.arithmetic import settled
from fineline.tensor_ops.collectives import collective
from fineline.tracing.identity_guards import METHOD, guard_answer, identify, known_code
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.segment_trace import SegmentTrace

_TORCH_DISABLE = "_disable_dynamo.<locals>.inner"

# Functions of fineline that compile or mark something, by module: each call in captured code runs eagerly.
_DECLARING: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "fineline.api": frozenset({"compile", "explain", "reset", "set_policy"}),
        "fineline.porting": frozenset({"optimize", "optimize_assert", "run"}),
        "fineline.policy.declare": frozenset(
            {"allow_in_graph", "assume_constant_result", "disallow_in_graph", "forbid_in_graph", "substitute_in_graph"}
        ),
        "fineline.install": frozenset({"install", "uninstall"}),
    }
)


# These read the clock, the stack and files, and take locks, to write a record: each call runs eagerly.
RECORDING = frozenset(
    {
        *(logging.Logger._log, logging.Logger.handle, warnings.warn_explicit),
        *(traceback.format_exc, traceback.format_exception, traceback.format_tb),
        *(traceback.print_exc, traceback.print_exception, traceback.print_tb),
    }
)


# It keeps lists that grow with each call (up to 100 past steps), so each call would need a program of its own.
GROWING = inspect.unwrap(torch.optim.LBFGS.step)

# Makes the parameters of a lazy module at its first call, then removes itself from the module's hooks, and changes its class.
INITIALISING = torch.nn.modules.lazy.LazyModuleMixin._infer_parameters


def known_function(interp: Interp, fn: types.FunctionType) -> Handler | None:
    """Returns the handler of a function with one of `KNOWN_CODE` or with a stand-in; None if there is none or a trace rule overrides it."""
    if fn.__code__ in TRACERS:
        return traces_itself
    if interp.rules is not None and trace_rule(interp.rules, fn) is not None:
        return None
    if fn.__code__ is GROWING.__code__:
        return _calls_back
    found = _BY_FUNCTION.get(fn) or collective(fn) or distributed(fn)
    if found is None and fills_table(fn):
        return fill_table
    return _stands_in if found is None and stand_in(fn) is not None else found


def _stands_in(call: Call) -> Frame | None:
    plain: Any = stand_in(call.fn)
    call.trace.pin(plain, plain.__qualname__)
    return call.instead(plain, call.args, call.kwargs)


def _initialises(call: Call) -> Frame | None:
    """Handles the first call of a lazy module. The module changes its class: what was captured before would fit no later call."""
    reason = f"{call.fn.__qualname__} makes the parameters of a module, at its first call"
    if call.interp.declared("FL440") is None:
        call.interp.fail("FL440", reason, False)
    return call.run_eagerly("FL440", reason)


def _recorded(call: Call) -> Frame | None:
    """Breaks the graph at a function that writes a log record, which contains the time and place of its call, or an exception's traceback."""
    return call.run_eagerly("FL411", f"{call.fn.__qualname__} writes a record of when or where something happened")


def _warned(call: Call) -> Frame | None:
    """Handles `warnings.warn`: the program repeats one that Python shows at most once, and then the filters decide; another breaks the graph."""
    found = _warning(call) if call.trace.active else None
    if found is None:
        return _recorded(call)
    text, category, f = found
    asked = (text, category, f.globals["__name__"], f.line)
    if not is_shown_once(*asked):
        return _recorded(call)
    trace = call.trace
    guard_answer(trace, is_shown_once, asked, {}, True)
    for v, name in ((issue, "issue"), (f.globals, "namespace"), (category, category.__name__)):
        trace.pin(v, name)
    given = text, category, f.file, f.line, f.globals
    if call.interp.backing.real:
        # A second attempt to capture the segment shows nothing.
        issue(*given)
    trace.mutations.note_call(issue, [*given], {})
    return call.finish(None)


def _warning(call: Call) -> tuple[str, type[Warning], Frame] | None:
    """Returns text, category and frame of the warning that a call issues; None if they are not constants, or the frame is outside of the region."""
    if call.interp.nested.opaque is not None or call.interp.nested.subgraph_rules is not None or len(call.args) > 3:
        return None
    given = {**dict(zip(("message", "category", "stacklevel"), call.args, strict=False)), **(call.kwargs or {})}
    text, category, level = given.pop("message", None), given.pop("category", None) or UserWarning, given.pop("stacklevel", 1)
    if given or type(text) is not str or type(level) is not int or level < 1:
        return None
    if type(category) is not type or not issubclass(category, Warning) or is_users_class(category):
        return None
    f: Frame | None = call.frame
    for _ in range(level - 1):
        f = None if f is None or is_own(f.info.code) else f.back
    if f is None or is_own(f.info.code) or type(f.globals.get("__name__")) is not str or type(f.globals.get("__warningregistry__", {})) is not dict:
        return None
    return text, category, f


def _calls_back(call: Call) -> Frame | None:
    """Runs a function in Python at a graph break; the functions among its arguments are captured."""
    interp = call.interp
    if not call.trace.active:
        return call.run_natively()
    plain, given = call.fn, call.args
    if interp.run_frame is not None:
        plain, given = type(interp.run_frame).calling, [interp.run_frame, call.fn, *call.args]
        call.trace.pin(plain, call.fn.__qualname__)
        call.trace.pin(interp.run_frame, call.fn.__qualname__)
    graph_break = GraphBreak(plain, tuple(given), call.kwargs, "FL400", f"{call.fn.__qualname__} is disabled")
    graph_break.rule = "built-in: each of its calls would be a program of its own"
    raise graph_break


def own_function(fn: types.FunctionType) -> Handler | None:
    """Returns the handler of a fineline function, or of a function by which `install` replaced one of PyTorch's; None for others."""
    # The entry names its function, because functools.wraps copies it to a user's wrapper.
    if fn.__dict__.get("fineline_door", (None,))[0] == id(fn):
        return _door
    names = _DECLARING.get(fn.__module__)
    return _declares if names is not None and fn.__qualname__ in names else None


def _declares(call: Call) -> Frame | None:
    raise call.graph_break("FL433", f"{call.fn.__qualname__} is called")


def _door(call: Call) -> Frame | None:
    inside = call.fn.__dict__["fineline_door"][1]
    if inside is None:
        _declares(call)
    call.trace.pin(inside, getattr(inside, "__qualname__", type(inside).__qualname__))
    return call.instead(inside, call.args, call.kwargs)


def marked_by_torch(interp: Interp, target: types.FunctionType) -> Handler | None:
    """Returns the handler of a function with one of PyTorch's own marks; a trace rule overrides the mark."""
    found = torch_mark(target)
    if found is None:
        return None
    looked_into = interp.rules is not None and trace_rule(interp.rules, target) is not None
    if found == "wrapped" or MARKS.left_out(target) or looked_into:
        if "_torchdynamo_orig_callable" in target.__dict__:
            return compiled_by_torch
        return _unwrapped if "__wrapped__" in target.__dict__ else None
    return _disabled


# The attributes that PyTorch's `disable` sets; `torch_mark` reads no others.
_MARKS = ("_torchdynamo_disable", "_torchdynamo_disable_msg", "_torchdynamo_disable_recursive", "_torchdynamo_orig_callable")


def guard_mark(trace: SegmentTrace, fn: types.FunctionType) -> None:
    """Guards the code of ``fn``, its marks, and the function that it wraps, but not its identity: each call may create it again."""
    src = trace.sources.get(fn)
    if src is None or src.op == "pin":
        return
    known_code(trace, fn)
    names = fn.__dict__
    table = trace.dict_source(fn, names)
    assert table is not None, "a function with a source has one for its attributes"
    for name in _MARKS:
        if name not in names:
            trace.read_absent(names, table, name)
        elif name == "_torchdynamo_orig_callable":
            trace.load(names[name], trace.guards.access(table, "key", name, names[name]))
        else:
            trace.read_key(names, table, name, names[name])
    if "__wrapped__" not in names:
        trace.read_absent(names, table, "__wrapped__")
        return
    inner = names["__wrapped__"]
    trace.load(inner, trace.guards.access(table, "key", "__wrapped__", inner))
    if type(inner) is types.MethodType:
        trace.load_members(inner, trace.sources[inner], METHOD)
        inner = inner.__func__
    elif type(inner) is functools.partial:
        trace.load_partial(inner)
        inner = inner.func
    if type(inner) is types.FunctionType:
        guard_mark(trace, inner)


def trace_rule(rules: Rules, target: types.FunctionType) -> Rule | None:
    """Returns the trace rule for a function with such a mark, or for the function that it wraps: the wrapper is in a file of PyTorch's."""
    for fn in (target, inspect.unwrap(target)):
        rule = rules.decide(fn)
        if rule is not None:
            return rule if rule.verb == "trace" else None
    return None


def dynamo_function(fn: types.FunctionType) -> Handler | None:
    """Returns the handler of a function of torch._dynamo; None if capture traces into it."""
    return _DYNAMO.get(dynamo_kind(fn))


def _disabled(call: Call) -> Frame | None:
    fn = call.fn
    plain, rule = fn, _torch_rule(fn)
    if MARKS.is_without(rule):
        known_code(call.trace, fn)
        name = "__wrapped__" if fn.__code__.co_qualname == _TORCH_DISABLE else "_torchdynamo_orig_callable"
        return call.callee().of(load_attr, call.interp, call.frame, fn, name)
    if call.interp.fired is not None:
        call.interp.fired[rule] += 1
    if fn.__code__.co_qualname != _TORCH_DISABLE:
        guard_mark(call.trace, fn)
    else:
        identify(call.trace, fn)
        # PyTorch's wrapper would load its compiler only to switch it off, so the original runs.
        plain = fn.__wrapped__
        call.trace.pin(plain, plain.__qualname__)
    given = call.args
    if torch_mark(fn) == "disable_frame" and call.interp.run_frame is not None:
        # The function is an argument, because each call may bring another one.
        plain, given = call.interp.run_frame, [fn.__dict__.get("_torchdynamo_orig_callable", fn), *call.args]
        call.trace.pin(plain, fn.__qualname__)
    graph_break = GraphBreak(plain, tuple(given), call.kwargs, "FL400", f"{fn.__qualname__} is disabled")
    graph_break.rule = str(rule)
    raise graph_break


def _torch_rule(fn: types.FunctionType) -> Rule:
    """Returns PyTorch's own mark of a function as a rule, for reports."""
    original = inspect.unwrap(fn)
    place = f"{original.__code__.co_filename}:{original.__code__.co_firstlineno}" if is_a(original, types.FunctionType) else ""
    verb = "disable_frame" if torch_mark(fn) == "disable_frame" else "disable"
    # Reports keep the rule: of the selector, only the text.
    return Rule(verb, of_object(original)._replace(key=None), str(fn.__dict__.get("_torchdynamo_disable_msg") or "torch.compiler.disable"), place, None, MARK)


def compiled_by_torch(call: Call) -> Frame | None:
    """Calls the function under torch.compile. Guards the wrapper's code, because libraries compile the same function again at each call."""
    known_code(call.trace, call.fn)
    return call.callee().of(load_attr, call.interp, call.frame, call.fn, "_torchdynamo_orig_callable")


# Handlers that guard the function themselves, by its code.
KNOWN_BY_CODE = frozenset({compiled_by_torch, _disabled})


def _unwrapped(call: Call) -> Frame | None:
    plain = call.fn.__wrapped__
    call.trace.pin(plain, plain.__qualname__)
    return call.instead(plain, call.args, call.kwargs)


def _nothing() -> None:
    """Runs at an explicit graph break, and does nothing."""


def explicit_break(call: Call) -> Frame | None:
    if not call.trace.active:
        return call.finish(None)
    msg = call.args[0] if call.args else (call.kwargs or {}).get("msg")
    rule = break_rule(f"{call.frame.file}:{call.frame.line}", msg)
    if MARKS.is_without(rule):
        return call.finish(None)
    if call.interp.fired is not None:
        call.interp.fired[rule] += 1
    graph_break = GraphBreak(_nothing, (), None, "FL401", f"graph_break({msg!r})" if msg else "graph_break()")
    graph_break.message = msg
    raise graph_break


def gives(value: Any) -> Handler:
    """Returns the handler of a callable whose result is always ``value``."""

    def give(call: Call) -> Frame | None:
        return call.finish(value)

    return give


def _identity(call: Call) -> Frame | None:
    return call.finish(call.args[0])


def _opaque(call: Call) -> Frame | None:
    raise call.graph_break("FL402", f"{call.fn.__qualname__} belongs to another compiler")


def traces_itself(call: Call) -> Frame | None:
    raise call.graph_break("FL521", f"{call.fn.__code__.co_qualname.partition('.')[0]} traces or wraps code itself")


def _original(name: str) -> Handler:
    """Returns a handler that calls the function in the wrapper's closure variable ``name``; the rest is that compiler's bookkeeping."""

    def handler(call: Call) -> Frame | None:
        plain = call.fn.__closure__[call.fn.__code__.co_freevars.index(name)].cell_contents
        call.trace.pin(plain, name)
        return call.instead(plain, call.args, call.kwargs)

    return handler


def _stance(call: Call) -> Frame | None:
    """Refuses `set_stance` in captured code, because the stance decides what is captured."""
    if call.trace.active:
        rule = "built-in: what is captured depends on the stance"
        raise call.interp.outcome.abandon(call.interp.refusal("FL105", "set_stance in captured code", call.frame, rule))
    return call.run_natively()


def _hold(call: Call) -> Frame | None:
    """Does nothing in captured code, because a program captures nothing."""
    return call.finish(None if call.trace.active else call.native())


def _marks_size(call: Call) -> Frame | None:
    """Refuses a mark on a size in captured code, where it is too late: a mark decides how an input is captured."""
    if call.trace.active:
        raise call.interp.outcome.abandon(call.interp.refusal("FL105", f"{call.fn.__name__} in captured code", call.frame))
    return call.run_natively()


def _settles_size(call: Call) -> Frame | None:
    """Handles ``mark_static``: guards the sizes as constants from here on."""
    if not call.trace.active:
        return call.run_natively()
    given = dict(zip(("t", "index"), call.args, strict=False)) | (call.kwargs or {})
    t, index = given.get("t"), given.get("index")
    if call.interp.backing.may_be_symbolic and is_a(t, torch.Tensor):
        indices = range(t.dim()) if index is None else index if is_a(index, (list, tuple)) else [index]
        shape, src = call.interp.backing.memory(call.interp, t).shape, call.trace.sources.get(t)
        dims = call.trace.symbols.varying.dims(src, t) if src is not None else {}
        for i in indices:
            # mark_dynamic has precedence.
            if not (i % t.dim() in dims and dims[i % t.dim()].marked):
                settled(shape[i])
    return call.finish(None)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        Stances.set: _stance,
        Stances.hold: _hold,
        Stances.release: _hold,
        mark_dynamic: _marks_size,
        maybe_mark_dynamic: _marks_size,
        mark_unbacked: _marks_size,
        mark_static: _settles_size,
        torch.func.linearize: traces_itself,
        **{fn: _recorded for fn in RECORDING if is_a(fn, types.BuiltinFunctionType)},
        warnings.warn: _warned,
    }
)

# The code of the functions that these two return.
TRACERS = IdentitySet(c for fn in (torch.func.functionalize, torch.func.linearize) for c in fn.__code__.co_consts if is_a(c, types.CodeType))

# The functions that have a handler of their own.
_BY_FUNCTION: Mapping[Any, Handler] = MappingProxyType({**dict.fromkeys(RECORDING, _recorded), INITIALISING: _initialises, **AROUND})

KNOWN_CODE = IdentitySet((*TRACERS, *[fn.__code__ for fn in (GROWING, *_BY_FUNCTION) if is_a(fn, types.FunctionType)]))

_DYNAMO: dict[str, Handler] = {
    "marks_size": _marks_size, "settles_size": _settles_size,
    "graph_break": explicit_break, "true": gives(True), "nothing": gives(None), "identity": _identity, "opaque": _opaque,
    "patched_init": _original("init"), "in_block": _original("func"),
}  # fmt: skip
