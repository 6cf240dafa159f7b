"""The exceptions by which a handler reports that it cannot continue, and the deliveries of call results."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

from fineline.frames.graph_limits import GraphLimits
from fineline.report.costs import MetBreak

# Graph breaks at code that is never captured, because of a rule or its kind: disabled functions, another compiler's code, coroutines.
UNSEEN = frozenset({"FL400", "FL402", "FL405", "FL430"})

# Graph breaks that the user has requested.
ASKED = frozenset({"FL400", "FL401", "FL429", "FL430", "FL451"})

# Graph breaks at values that fake mode may replace by symbols.
READS = frozenset({"FL502", "FL508"})


# Graph breaks that do not occur on the real tensors.
FAKES_LACK = frozenset({"FL516", "FL524"})


class Delivery:
    """The receiver of a call's result instead of the operand stack: calls ``function(interp, frame, result, then, *data)``.

    ``then`` is the delivery for the function's own result; None: the operand stack.
    """

    __slots__ = ("data", "function", "then")

    def __init__(self, function: Callable[..., Any], then: Delivery | None = None, *data: Any) -> None:
        self.function, self.then, self.data = function, then, data

    def of(self, run: Callable[..., Any], *args: Any) -> Any:
        """Returns ``run(*args, self)``, which delivers a value here. If it breaks the graph, the result of the eager call is delivered here too."""
        try:
            return run(*args, self)
        except GraphBreak as b:
            b.to(self)
            raise


def _ignore(interp: object, f: object, value: object, then: None) -> None:
    """Ignores the result of a statement."""


DISCARD = Delivery(_ignore)


class GraphBreak(BaseException):
    """The call runs eagerly, now and on every later call of the region; capture continues with its result.

    The handler has taken the operands off the stack; the result is delivered, and the frame continues at its ``ip``. The handler does not
    choose the delivery: `calls.call_unruled`, which dispatches the call, does.
    """

    def __init__(self, fn: Callable, args: tuple, kwargs: dict | None, error: str, reason: str, ops: int = 0) -> None:
        self.fn = fn
        self.args_ = args
        self.kwargs = kwargs or {}
        self.error = error
        self.reason = reason
        self.ops = ops
        self.rule = ""
        # The user's message at an explicit graph break.
        self.message: str | None = None
        # The exception that the call raised, if it was already made.
        self.raised: Exception | None = None
        # Whether the frames keep variables that are not read any more: the call is likely to raise, and its traceback shows them.
        self.keeps_variables = False
        # The delivery of the result, and whether it has been set: None is the operand stack.
        self.then: Delivery | None = None
        self.bound = False
        # What measures it, if the capture is watched.
        self.met: MetBreak | None = None

    def to(self, then: Delivery | None) -> GraphBreak:
        """Sets the delivery of the result, unless an inner call has set it before."""
        if not self.bound:
            self.then, self.bound = then, True
        return self

    def calls(self, fn: Callable, args: Any, kwargs: dict | None) -> GraphBreak:
        """Replaces the operator by the user's call, if the operator only failed because fakes do not have the numbers; returns the break."""
        if self.error == "FL515":
            self.fn, self.args_, self.kwargs = fn, tuple(args), kwargs or {}
        return self

    def raise_again(self) -> NoReturn:
        assert self.raised is not None
        try:
            raise self.raised
        finally:
            # The traceback refers to frames that refer to this object.
            self.raised = None

    def discard(self) -> GraphBreak:
        """Ignores the result of the eager call, which is a statement."""
        return self.to(DISCARD)


class CaptureAborted(BaseException):
    """Raised to leave the user's frames after the capture was aborted; the error of fineline is raised after that."""


class UncatchableError(BaseException):
    """A graph failed and cannot run again. It replaces the graph's exception, because the state that the user's handlers rely on is unknown."""


class DataDependentBranch(BaseException):
    """Raised at an instruction that depends on a number which only the graph knows."""


class Restart(BaseException):
    """The capture cannot continue in this mode: its effects are undone, and the call is captured in the other mode, on fakes or real values.

    ``again``: on fakes once more, with fewer varying values than before. ``draws``: whether random numbers are symbols from now on, which
    requires fakes; if not, either mode is possible.
    """

    def __init__(self, error: str, text: str, again: bool = False, draws: bool | None = None) -> None:
        super().__init__(text)
        self.error, self.text, self.again, self.draws = error, text, again, draws


class CaptureEnded(Exception):
    """A trial cannot go on, for the reason ``text`` with the id ``error``; ``place``: the user's file and line."""

    def __init__(self, error: str, text: str, place: tuple[str, int]) -> None:
        super().__init__(text)
        self.error, self.text, self.place = error, text, place


class NotCapturable(BaseException):
    """The code of a sub-graph has an effect outside, or does something that no graph can contain.

    It ends the run of that code past all of the user's handlers, and `capture_subgraph` returns it. ``error``: the id of the graph break that
    replaces the sub-graph; ``rule``: the user's rule that breaks the graph; ``raised``: the exception of the call, if it was already made;
    ``cause``: the graph break, or the exception, that the code raised.
    """

    def __init__(
        self, reason: str = "it does what no graph can hold", error: str = "FL520", rule: str = "", raised: Exception | None = None,
        cause: BaseException | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.reason, self.error, self.rule, self.raised, self.cause = reason, error, rule, raised, cause

    def graph_break(self, fn: Any, args: tuple, kwargs: dict | None, text: str) -> GraphBreak:
        """Returns the graph break at which the operator runs as in eager code, instead of the sub-graph."""
        graph_break = GraphBreak(fn, args, kwargs, self.error, f"{text}: {self.reason}")
        graph_break.rule, graph_break.raised, self.raised = self.rule, self.raised, None
        return graph_break


class Communicates(NotCapturable):
    """The code of a sub-graph communicates with other processes, and is captured on real values, where each attempt would do that."""


class Finished(BaseException):
    """The outermost frame returned ``value``."""

    def __init__(self, value: Any) -> None:
        self.value = value


class NotReconstructible(Exception):
    """No program can rebuild a live value. ``called_at``: if this instruction runs eagerly, the value need not be rebuilt."""

    error = "FL409"

    def __init__(self, text: str, called_at: tuple[CodeType, int] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.called_at = called_at


class Uncompiled(NotReconstructible):
    """The backend cannot compile a graph that was captured on real values.

    ``limits``: the values and operators that stay out of graphs from the next capture on.
    """

    def __init__(self, error: str, text: str, limits: GraphLimits) -> None:
        super().__init__(text)
        self.error, self.limits = error, limits


class NotOneGraph(Exception):
    """Raised if a capture that has to become one program reaches a graph break."""


class RestartSpecialized(Exception):
    """Raised if a capture without visible effects is to be repeated with fewer varying values."""
