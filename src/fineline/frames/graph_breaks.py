"""The exceptions by which a handler tells the interpreter that it cannot continue by itself, and where the results of calls go."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

from fineline.frames.graph_limits import GraphLimits

# Graph breaks at code that capture does not look into, because of a rule or by itself: what is disabled, another compiler's, coroutines.
UNSEEN = frozenset({"FL400", "FL402", "FL405", "FL430"})

# Graph breaks that the user has asked for.
ASKED = frozenset({"FL400", "FL401", "FL429", "FL430", "FL451"})

# Graph breaks at what fake mode may make a symbol of.
READS = frozenset({"FL502", "FL508"})


# Graph breaks that are none on the real tensors.
FAKES_LACK = frozenset({"FL516", "FL524"})


class Delivery:
    """Where the result of a call goes in place of the operand stack: to ``function(interp, frame, result, then, *data)``.

    ``then`` is where that function delivers its own result; None: the operand stack.
    """

    __slots__ = ("data", "function", "then")

    def __init__(self, function: Callable[..., Any], then: Delivery | None = None, *data: Any) -> None:
        self.function, self.then, self.data = function, then, data

    def of(self, run: Callable[..., Any], *args: Any) -> Any:
        """Returns ``run(*args, self)``, which delivers something here. If it breaks the graph, the result of that goes here too."""
        try:
            return run(*args, self)
        except GraphBreak as b:
            b.to(self)
            raise


def _ignore(interp: object, f: object, value: object, then: None) -> None:
    """Ignores the result of a statement."""


DISCARD = Delivery(_ignore)


class GraphBreak(BaseException):
    """This call runs eagerly, now and on every later call; capture goes on with its result.

    The handler has taken the operands off the stack; the result is delivered, and the frame goes on at its ``ip``. The handler does not say
    where the result goes: `calls.call_unruled`, which dispatches the call, does.
    """

    def __init__(self, fn: Callable, args: tuple, kwargs: dict | None, error: str, reason: str, ops: int = 0) -> None:
        self.fn = fn
        self.args_ = args
        self.kwargs = kwargs or {}
        self.error = error
        self.reason = reason
        self.ops = ops
        self.rule = ""
        # What the user says at an explicit one.
        self.message: str | None = None
        # What the call has raised, if it has been made already.
        self.raised: Exception | None = None
        # Whether the frames keep the variables that nothing reads any more: the call is likely to raise, and its traceback shows them.
        self.keeps_variables = False
        # Where the result goes, and whether that has been said: None is the operand stack.
        self.then: Delivery | None = None
        self.bound = False

    def to(self, then: Delivery | None) -> GraphBreak:
        """Says where the result goes, unless a call inside of this one has said so already."""
        if not self.bound:
            self.then, self.bound = then, True
        return self

    def calls(self, fn: Callable, args: Any, kwargs: dict | None) -> GraphBreak:
        """Returns what the user's code calls, where an operator that stands for it has met what only real tensors tell."""
        if self.error == "FL515":
            self.fn, self.args_, self.kwargs = fn, tuple(args), kwargs or {}
        return self

    def raise_again(self) -> NoReturn:
        assert self.raised is not None
        try:
            raise self.raised
        finally:
            # Its traceback leads to frames that hold this.
            self.raised = None

    def discard(self) -> GraphBreak:
        """Ignores the result of the eager call, which is a statement."""
        return self.to(DISCARD)


class CaptureAborted(BaseException):
    """The capture is given up, with an error of fineline's that is raised once the user's frames are left."""


class UncatchableError(BaseException):
    """A graph has failed, and can't be run again: in the exception's place, as what the user's handlers rely on is not known."""


class DataDependentBranch(BaseException):
    """Raised where the next instruction depends on a number that only the graph knows."""


class Restart(BaseException):
    """This mode can't go on: what was done is undone, and the call is captured in the other one, on fakes or on the real values.

    ``again``: in fake mode once more, where less varies than before. ``draws``: whether random numbers are symbols from now on, which takes
    fake mode; if not, any mode may do.
    """

    def __init__(self, error: str, text: str, again: bool = False, draws: bool | None = None) -> None:
        super().__init__(text)
        self.error, self.text, self.again, self.draws = error, text, again, draws


class NotCapturable(BaseException):
    """The code of a sub-graph does what could be seen from outside, or what no graph can hold.

    It ends the run of that code past all handlers of the user's, and is then what `capture_subgraph` gives. ``error``: the id of the graph break
    that takes the place of the sub-graph; ``rule``: the user's that has the code break the graph; ``raised``: what the call has raised, if it has
    been made already; ``cause``: the graph break, or the exception, that the code has come to.
    """

    def __init__(
        self, reason: str = "it does what no graph can hold", error: str = "FL520", rule: str = "", raised: Exception | None = None,
        cause: BaseException | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.reason, self.error, self.rule, self.raised, self.cause = reason, error, rule, raised, cause

    def graph_break(self, fn: Any, args: tuple, kwargs: dict | None, text: str) -> GraphBreak:
        """Returns where the operator runs instead, as it does in eager code."""
        graph_break = GraphBreak(fn, args, kwargs, self.error, f"{text}: {self.reason}")
        graph_break.rule, graph_break.raised, self.raised = self.rule, self.raised, None
        return graph_break


class Finished(BaseException):
    """The outermost frame returned ``value``."""

    def __init__(self, value: Any) -> None:
        self.value = value


class NotReconstructible(Exception):
    """A live value can't be made again by a program. ``called_at``: if this instruction runs eagerly, it need not be."""

    error = "FL409"

    def __init__(self, text: str, called_at: tuple[CodeType, int] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.called_at = called_at


class Uncompiled(NotReconstructible):
    """The backend can't compile a graph that was captured on real values.

    ``limits``: what stays out of graphs from the next capture on.
    """

    def __init__(self, error: str, text: str, limits: GraphLimits) -> None:
        super().__init__(text)
        self.error, self.limits = error, limits


class NotOneGraph(Exception):
    """A capture that is to be kept as one program meets a graph break."""


class RestartSpecialized(Exception):
    """A capture of which nobody has seen anything is to be made once more, where less varies."""
