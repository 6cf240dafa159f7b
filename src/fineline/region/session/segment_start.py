"""The start of a segment: the frames that a session begins with, and the values that are alive there as inputs of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fineline.codegen.frame_restore import restore
from fineline.frames.frame import stack
from fineline.fx.recorder import NotForGraph
from fineline.guards.source import Source
from fineline.interp.interpreter import Interpreter
from fineline.objects.deferred_texts import given
from fineline.policy.break_settings import breaks_here
from fineline.region.entry_point import EntryPoint
from fineline.region.session.entry_frame import entry_frame

TEXTS = frozenset({str, bytes})


class Beginning(NamedTuple):
    """The first step of a session: an exception that the code raises there, if any, and the containers that live iterators read."""

    thrown: BaseException | None = None
    containers: Sequence[Any] = ()


def begin_at(interp: Interpreter, fn: Any, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Beginning:
    """Makes the frames of a session that begins at ``entry_point``, with the arguments of a call or with live values."""
    state = entry_point.frame_state
    if state is None:
        interp.frame = entry_frame(interp, fn, args, kwargs)
        return Beginning()
    live = register(interp, entry_point, args, [*state.values.names, "failure" if entry_point.raised else "result"])
    then, containers, made = restore(state, interp, live[:-1])
    interp.trace.made.update(made)
    for f, breaks in zip(stack(interp.frame), entry_point.breaks, strict=False):
        f.own_extras().breaks = breaks
    interp.note_continuation(state.stack)
    if entry_point.raised:
        return Beginning(live[-1], containers)
    assert interp.frame is not None
    interp.eager.result = (live[-1], then)
    return Beginning(None, containers)


def register(interp: Interpreter, entry_point: EntryPoint, values: Any, names: list[str]) -> tuple:
    """Registers the live values after a graph break; the last one is the result or the exception of the eager call."""
    trace = interp.trace
    roots = [trace.guards.root(i, name, v) for i, (v, name) in enumerate(zip(values, names, strict=True))]
    trace.classes.given = roots[-1]
    return tuple([_register(interp, entry_point, v, src) for v, src in zip(values, roots, strict=True)])


def _register(interp: Interpreter, entry_point: EntryPoint, v: Any, src: Source) -> Any:
    """Registers a live value. A text that varies, also in a tuple, is guarded where the code reads it."""
    trace, varying = interp.trace, entry_point.varying
    if entry_point.frame_state is None or not varying.texts or breaks_here(interp.options.breaks) != "any":
        return trace.read(v, src)
    if type(v) in TEXTS and src.text() in varying.texts:
        return given(interp, v, src)
    parts = [(x, trace.guards.access(src, "index", i, x)) for i, x in enumerate(v)] if type(v) is tuple and not src.checked else []
    if not any([type(x) in TEXTS and part.text() in varying.texts for x, part in parts]):
        return trace.read(v, src)
    trace.check_type(src, tuple)
    trace.guards.check(src, "len", len(v))
    trace.adopt(v, src)
    found = tuple([_register(interp, entry_point, x, part) for x, part in parts])
    trace.adopt(found, src)
    return found


def guard_iterated(interp: Interpreter, containers: Sequence[Any]) -> None:
    """Guards the contents of containers that live iterators read."""
    try:
        for v in containers:
            interp.trace.expand(v)
    except NotForGraph as e:
        interp.fail("FL413", str(e), False)
