"""The origin of a graph node: the instruction that made it, the calls that led there, and the modules on the way."""

from __future__ import annotations

from types import CellType

from torch import nn

from fineline.frames.frame import Frame
from fineline.frames.stub_frames import is_own
from fineline.frames.trail import Origin, Trail
from fineline.kinds import is_a
from fineline.tracing.mutation_log import contents
from fineline.tracing.segment_trace import SegmentTrace

# The methods through which PyTorch calls a module.
_CALLS = frozenset({"forward", "__call__", "_call_impl", "_wrapped_call_impl"})


def origin_of(trace: SegmentTrace, f: Frame) -> Origin:
    """Returns the origin of the instruction that ``f`` runs now."""
    trail = f.trail
    return (f.info, f.ip, trail if trail is not None else _trail(trace, f))


def _trail(trace: SegmentTrace, f: Frame) -> Trail:
    # Without recursion: the user's calls may be as deep as Python allows.
    frames = [f]
    while (back := frames[-1].back) is not None and back.trail is None:
        frames.append(back)
    called_at: Origin | None
    if back is None:
        called_at = trace.guards.interp.nested.called_at
    else:
        assert back.trail is not None
        called_at = (back.info, back.ip, back.trail)
    for frame in reversed(frames):
        trail = Trail(called_at)
        _add_module(trace, frame, trail)
        if frame.extras.generator is None:
            # A generator may have another caller at each step.
            frame.trail = trail
        called_at = (frame.info, frame.ip, trail)
    return trail


def _add_module(trace: SegmentTrace, f: Frame, trail: Trail) -> None:
    code = f.info.code
    if not f.local or not (code.co_name in _CALLS or (_outermost(f) and code.co_varnames[:1] == ("self",))):
        return
    first = f.local[0]
    if type(first) is CellType:
        first = contents(first)
    if is_a(first, nn.Module):
        trail.source, trail.cls, trail.key = trace.sources.get(first), type(first), id(first)


def _outermost(f: Frame) -> bool:
    """Returns whether ``f`` is the compiled function's frame, which may have one of fineline's own frames around it."""
    return f.back is None or (f.back.back is None and is_own(f.back.info.code))
