"""torch.utils.checkpoint.checkpoint: its function becomes a sub-graph that backends compute again in the backward pass."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint, noop_context_fn

from fineline.backends.eager import CHECKPOINT, CONTEXT, checkpointed, opened
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import NotCapturable
from fineline.fx.graph_equality import same_graph
from fineline.fx.graph_module import CapturedGraph
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.copying import mark_made
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.subgraphs.autograd_function import see_closed
from fineline.tensor_ops.subgraphs.bodies import Bodies, Body, computed
from fineline.tensor_ops.torch_functions import PassingMode
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import PARTIAL
from fineline.tracing.subgraph_rules import CHECKPOINT as RULES

_OPTIONS = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop")


def _checkpoint(call: Call) -> Frame | None:
    if not call.trace.active:
        return call.run_natively()
    try:
        value = _captured(call.interp, *call.args, **(call.kwargs or {}))
    except NotCapturable as e:
        plain = checkpoint.__wrapped__  # type: ignore[attr-defined]
        call.trace.pin(plain, plain.__qualname__)
        raise e.graph_break(plain, tuple(call.args), call.kwargs, "checkpoint") from None
    return call.finish(value)


def _captured(interp: Interp, function: Any, *args: Any, context_fn: Any = noop_context_fn, **kwargs: Any) -> Any:
    options = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
    if options.get("use_reentrant") is not False:
        raise NotCapturable("with use_reentrant=True it runs its function again in the backward pass, past any graph")
    if not all([is_value(v) for v in options.values()]) or (context_fn is not noop_context_fn and not _fixed(interp, context_fn)):
        raise NotCapturable("one of its options may be another one at the next call")
    bodies = Bodies(interp)
    if interp.nested.modes:
        interp.trace.expand(args, True)
        operands = [t for t in tree_leaves(args) if is_a(t, Tensor)]
        body = bodies.capture(RULES, protocols.call_checkpointed, (function, args, kwargs, operands), made=(args, kwargs, operands))
    else:
        body = bodies.capture(RULES, function, args, kwargs)
    gm = bodies.module(body, "checkpointed")
    if interp.nested.modes:
        _confirm(interp, bodies, body, gm, (function, args, kwargs))
    values, nodes = bodies.lifted()
    if context_fn is not noop_context_fn:
        gm.meta[CONTEXT] = context_fn

    def checkpointed_body(*values: Any) -> Any:
        return checkpointed(opened(gm), *values, **options)

    results = computed(interp, checkpointed_body if interp.backing.real else gm, tuple(values))
    part = interp.trace.recorder.part("checkpointed", gm)
    interp.tensors.keep(interp, CHECKPOINT, "call_function", CHECKPOINT, (part, *nodes), options, results)
    value = body.rebuilt(results)
    mark_made(interp.trace, value)
    return value


def _confirm(interp: Interp, bodies: Bodies, body: Body, gm: CapturedGraph, called: tuple[Any, tuple, dict]) -> None:
    """Raises `NotCapturable` unless the function has the same graph in the backward pass, where none of the modes is on that are on now.

    PyTorch turns on only the innermost device again.
    """
    modes = interp.nested.modes
    again = [mode for mode in modes if is_a(mode, DeviceContext)][-1:]
    if len(again) == len(modes):
        return
    # Gives operators the spellings that they have behind a mode.
    passing = interp.trace.fresh(PassingMode())
    interp.trace.kept.append(passing)
    interp.nested.modes = [*again, passing]
    try:
        others = Bodies(interp)
        other = others.capture(RULES, *called, compared=True)
    finally:
        interp.nested.modes = modes
    values = list(itertools.zip_longest(bodies.values(), others.values()))
    same = all([a is b or (type(a) in SYMBOLIC and type(b) in SYMBOLIC and str(a) == str(b)) for a, b in values])
    if not same or not body.same_structure(other) or not same_graph(gm._graph, others.module(other, "repeated")._graph):
        raise NotCapturable("a function mode changes its operators, and is not on when they run again")


def _fixed(interp: Interp, fn: Any) -> bool:
    """Guards a callable and everything that it reads or contains; returns whether guards can cover it all."""
    trace = interp.trace
    if is_a(fn, types.FunctionType):
        identify(trace, fn)
        return (fn.__module__ or "").startswith("torch.") or see_closed(interp, fn, IdentitySet())
    if type(fn) in (list, tuple):
        trace.expand(fn)
        return all([is_value(x) or _fixed(interp, x) for x in fn])
    if type(fn) is not functools.partial or fn.keywords:
        return False
    src = trace.sources.get(fn)
    if src is not None:
        trace.load_members(fn, src, PARTIAL)
    return _fixed(interp, fn.func) and _fixed(interp, fn.args)


HANDLERS: Mapping[Any, Handler] = MappingProxyType({checkpoint: _checkpoint})
