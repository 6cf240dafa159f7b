"""A host for the interpreters of unit tests: each test gives it the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from fineline.errors import Unsupported
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.interp.interpreter import Interpreter
from fineline.interp.sub_interpreter import SubInterpreter
from fineline.region.disabled_frames import FrameRunner
from fineline.region.options import Options
from fineline.report.events import ShownRule
from fineline.report.operator_counter import OperatorCounts
from fineline.tracing.lessons import Lessons


def _call(interp: Interpreter, graph_break: GraphBreak) -> Any:
    return interp.beyond(graph_break)


class Host:
    """A `CaptureHost`. Unless told otherwise it makes the call at a graph break, and goes on with the segment."""

    sub_interpreter = SubInterpreter
    tally: OperatorCounts | None = None

    def __init__(
        self,
        on_graph_break: Callable[[Any, GraphBreak], Any] = _call,
        before_eager_call: Callable[[Any, GraphBreak], object] = lambda interp, graph_break: None,
        refusal: Callable[..., BaseException] = lambda error, text, f, rule="": Unsupported(text),
    ) -> None:
        self.run_frame = FrameRunner(lambda: None, Options(), Lessons())
        self.fired: Counter[ShownRule] = Counter()
        self._on_graph_break, self._before_eager_call, self._refusal = on_graph_break, before_eager_call, refusal

    def on_graph_break(self, interp: Any, graph_break: GraphBreak) -> Any:
        return self._on_graph_break(interp, graph_break)

    def before_eager_call(self, interp: Any, graph_break: GraphBreak) -> None:
        self._before_eager_call(interp, graph_break)

    def resume(self, interp: Any, graph_break: GraphBreak) -> Any:
        return interp.beyond(graph_break)

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        return self._refusal(error, text, f, rule)

    def may_restart(self) -> bool:
        return False
