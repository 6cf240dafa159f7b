"""Where a node of a graph comes from: the instruction that made it, the calls that led there, and the modules on the way."""

from __future__ import annotations

from types import CellType
from typing import NamedTuple

from torch import nn

from fineline.bytecode.code import CodeInfo
from fineline.frames.frame import Frame
from fineline.frames.stub_frames import is_own
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.tracing.mutation_log import contents
from fineline.tracing.segment_trace import SegmentTrace

# The methods through which PyTorch calls a module.
_CALLS = frozenset({"forward", "__call__", "_call_impl", "_wrapped_call_impl"})


class ModuleCall(NamedTuple):
    """A module that is being called: how the code came to it, if that is known, its class and its identity."""

    source: Source | None
    cls: type
    key: int


class Trail:
    """The origin of a frame, shared by all nodes that the frame makes: the module whose call it is, and the place of that call."""

    __slots__ = ("called_at", "cls", "key", "source")

    def __init__(self, called_at: Origin | None) -> None:
        self.called_at = called_at
        # Of the module. A `ModuleCall` for each frame took 0.3 % of the first call of BERT.
        self.source: Source | None = None
        self.cls: type | None = None
        self.key = 0

    @property
    def module(self) -> ModuleCall | None:
        return ModuleCall(self.source, self.cls, self.key) if self.cls is not None else None


# The code of a frame, the index of the instruction behind the one that runs, and what led to the frame. A plain tuple: one is made for each node.
Origin = tuple[CodeInfo, int, Trail]


def origin_of(trace: SegmentTrace, f: Frame) -> Origin:
    """Returns the origin of what ``f`` does now."""
    trail = f.trail
    return (f.info, f.ip, trail if trail is not None else _trail(trace, f))


def _trail(trace: SegmentTrace, f: Frame) -> Trail:
    # Not by recursion: the user's code may be as deep as Python allows.
    frames = [f]
    while (back := frames[-1].back) is not None and back.trail is None:
        frames.append(back)
    called_at = trace.guards.interp.nested.called_at if back is None else (back.info, back.ip, back.trail)
    for frame in reversed(frames):
        trail = Trail(called_at)
        _add_module(trace, frame, trail)
        if frame.extras.generator is None:
            # Each step of a generator may have another caller.
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
    """Returns whether ``f`` is the frame of what is compiled: fineline's own may be around it."""
    return f.back is None or (f.back.back is None and is_own(f.back.info.code))
