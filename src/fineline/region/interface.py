"""A region as its capture sessions see it: its parts, and the methods that they call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fineline.backends.registry import Backend
from fineline.codegen.residual_program import ResidualWriter
from fineline.distributed.rank_check import RankCheck
from fineline.interp.interpreter import Interpreter
from fineline.region.budget import Budget, EagerReasons
from fineline.region.capture_state import CaptureState
from fineline.region.disabled_frames import FrameRunner
from fineline.region.entry_point import EntryOwner, EntryPoint
from fineline.region.entry_points import EntryPoints
from fineline.region.graphs.compiled_graphs import CompiledGraphs
from fineline.region.reports import Reports
from fineline.tracing.lessons import Lessons
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.symbols import Symbols


class CapturingRegion(EntryOwner, Protocol):
    """A region whose calls are captured."""

    fn: Callable
    lessons: Lessons
    writer: Callable[[SegmentTrace, str], ResidualWriter]
    reports: Reports
    state: CaptureState
    budget: Budget
    eager: EagerReasons
    entry_points: EntryPoints
    entry: EntryPoint
    run_frame: FrameRunner
    ranks: RankCheck | None

    @property
    def backend(self) -> Backend: ...
    @property
    def graphs(self) -> CompiledGraphs: ...
    def symbols(self, interp: Interpreter, entry_point: EntryPoint, args: tuple, kwargs: dict, fake: bool) -> Symbols | None: ...
    def count_program(self, entry_point: EntryPoint) -> None: ...
    def stand_in(self, backend: Backend, stance: Any) -> Callable: ...
