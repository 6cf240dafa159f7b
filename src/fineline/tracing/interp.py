"""The interpreter as the code below it sees it: handlers of calls, attributes, operators and values get an ``Interp``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from fineline.bytecode.code import CodeInfo
from fineline.fake.fake_tensors import Fakes
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import DataDependentBranch, Delivery, GraphBreak, Restart
from fineline.frames.stub_frames import Place
from fineline.identity import AddressMap, AddressSet
from fineline.policy.decide import Rules
from fineline.policy.rule import Rule
from fineline.tracing.constant_tensors import ConstantTensors
from fineline.tracing.gc_pause import Pause
from fineline.tracing.lessons import Lessons
from fineline.tracing.segment_trace import SegmentTrace


class InterpreterOptions(Protocol):
    """The user's options, as far as an interpreter asks for them."""

    @property
    def breaks(self) -> str: ...
    @property
    def force_graph_breaks(self) -> bool: ...
    @property
    def policy(self) -> Any: ...
    @property
    def verify(self) -> bool: ...
    @property
    def exported(self) -> bool: ...


class Operators(Protocol):
    """The tensor operators: what runs one, records it, and answers for the tensors."""

    symbolic: bool
    # Whether single numbers in tensors are indices.
    indices: bool

    def call(self, call: Call, kind: str | None) -> Frame | None: ...
    def operator(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, used: bool = False) -> Any: ...
    def shapes(self, interp: Interp) -> bool: ...
    def foreseen(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any: ...
    def wrote(self, interp: Interp, targets: Any, reshapes: bool = False) -> None: ...
    def keep(
        self, interp: Interp, fn: Any, op: str, target: Any, fx_args: tuple, fx_kwargs: dict, result: Any, untyped: bool = False
    ) -> Any: ...
    def record(
        self, interp: Interp, op: str, target: Any, fx_args: tuple, fx_kwargs: dict, result: Any, untyped: bool = False
    ) -> None: ...
    def attribute(self, interp: Interp, t: Tensor, name: str, kind: str) -> Any: ...
    def set_attribute(self, interp: Interp, t: Tensor, name: str, descr: Any, value: Any) -> None: ...
    def sign(self, interp: Interp, fn: Any, args: tuple, call: tuple | None = None) -> None: ...
    def reads(self, interp: Interp, t: Any) -> bool: ...
    def number(self, interp: Interp, f: Frame, fn: Any, t: Tensor, then: Delivery | None) -> Frame | None: ...


class SharedArrays(Protocol):
    """The NumPy arrays that share memory with tensors of the graph."""

    shared: list[tuple[Any, Tensor]]
    shown: AddressMap[list[Tensor]]

    def made(self, trace: SegmentTrace, v: Any) -> None: ...
    def lies_in_shared(self, a: Any, written: Callable[[Tensor], bool] = ...) -> bool: ...
    def constant(self, interp: Interp, v: Any) -> bool: ...


class FrameCaller(Protocol):
    """Calls functions whose own frame runs in Python; what they call is compiled."""

    def __call__(self, target: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def calling(self, target: Any, /, *args: Any, **kwargs: Any) -> Any: ...


class CaptureHost(Protocol):
    """The owner of an interpreter in a capture: it decides at graph breaks and around eager calls."""

    @property
    def run_frame(self) -> FrameCaller: ...
    @property
    def fired(self) -> Counter[Rule]: ...
    @property
    def sub_interpreters(self) -> tuple[Callable[..., TrialInterp], Callable[..., BodyInterp]]: ...

    def on_graph_break(self, interp: Any, graph_break: GraphBreak) -> Any:
        """Ends the segment, runs the call, begins the next segment; returns what the call gave."""

    def before_eager_call(self, interp: Any, graph_break: GraphBreak) -> None:
        """Prepares what an eager call gets, while nothing is captured."""

    def resume(self, interp: Any, graph_break: GraphBreak) -> Any:
        """Captures again, where a block ends in which nothing was captured."""

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for what the region refuses."""

    def may_restart(self) -> bool:
        """Returns whether the segment can be taken back and captured on fakes."""


class Interp(Protocol):
    """A running interpreter. Its fields are documented where `Interpreter` sets them."""

    options: InterpreterOptions
    lessons: Lessons
    trace: SegmentTrace
    texts: AddressMap[Any]
    frame: Frame | None
    fakes: Fakes | None
    computing: bool
    rules: Rules | None
    fired: Counter[Rule] | None
    handled: BaseException | None
    abandoned: BaseException | None
    depth: int
    max_depth: int
    jumps: int
    outside: str
    switches: bool
    undoable: bool
    shows_layouts: bool
    called_at: Any
    unsteady: Mapping[str, str]
    few_keys: int
    stand_ins: list[Any]
    pause: Pause
    call_out: Callable | None
    eager_frame: Frame | None
    host: CaptureHost | None
    restartable: bool
    resumes: bool
    opaque: Any
    merged: Any
    subgraphs: list[Any]
    indices: list[Any]

    inference_modes: list[Any]
    dying: list[InterpretedGenerator]
    running: bool
    # Whether what runs is a backward that may be differentiated itself.
    again: bool
    known: ConstantTensors
    # Makes the interpreter of code that a graph may not be able to hold, and that of a body of a control-flow operator.
    trial: Callable[..., TrialInterp] | None
    inside: Callable[..., BodyInterp] | None

    @property
    def run_frame(self) -> FrameCaller | None: ...
    @property
    def tensors(self) -> Operators: ...
    @property
    def arrays(self) -> SharedArrays: ...

    def call(self, f: Frame, fn: Any, args: list, kwargs: dict | None = None, then: Delivery | None = None) -> Frame | None: ...
    def call_plainly(self, f: Frame, fn: Any, args: list, kwargs: dict | None = None, then: Delivery | None = None) -> Frame | None: ...
    def push_function(self, f: Frame | None, fn: Any, args: list, kwargs: dict | None, then: Delivery | None = None) -> Frame | None: ...
    def finish(self, f: Frame, value: Any, then: Delivery | None = None) -> Frame | None: ...
    @property
    def discard(self) -> Delivery: ...
    def native(self, fn: Callable, args: tuple, kwargs: dict | None) -> Any: ...
    def place(self) -> Place: ...
    def memory(self, t: Tensor) -> Tensor: ...
    def varied(self, f: Frame, values: Any, few: int = 1) -> bool: ...
    def unlike(self, f: Frame, obj: Any) -> bool: ...
    def asked(self, f: Frame, found: list, few: int) -> bool: ...
    def asks_outside(self, f: Frame) -> bool: ...
    def only_live(self, graph_break: GraphBreak) -> GraphBreak | Restart: ...
    def type_of(self, obj: Any) -> type: ...
    def class_value(self, value: Any) -> Any: ...
    @property
    def see_function(self) -> Callable[[SegmentTrace, Any], None]: ...
    @property
    def truth(self) -> Callable[[Interp, Frame, Any, Delivery | None], Frame | None]: ...
    @property
    def boolean(self) -> Callable[[Interp, Frame, Any, Delivery | None], Frame | None]: ...
    def throw(self, e: BaseException, again: bool = False) -> Frame: ...
    def resume_generator(
        self, f: Frame | None, gen: InterpretedGenerator, value: Any, then: Delivery | None = None, on_stop: Delivery | None = None,
        throw: BaseException | None = None,
    ) -> Frame | None: ...  # fmt: skip
    def leave_generator(self, f: Frame, state: str) -> Frame | None: ...
    def drive(self, gen: InterpretedGenerator, verb: str, value: Any) -> Any: ...
    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException: ...
    def undecided(self, e: DataDependentBranch) -> Frame: ...
    def long_loop(self, f: Frame) -> None: ...
    def link(self, info: CodeInfo) -> list: ...
    def fail(self, error: str, text: str, hint: bool) -> None: ...
    def note_operator(self) -> None: ...
    def note_call(self, name: str, fn: Any, colour: str, operators: int = 0) -> None: ...


class TrialInterp(Interp, Protocol):
    """An interpreter that captures code into a graph of its own, and gives up before anything happens that could be seen."""

    given: list[Tensor]
    made: AddressSet
    mutations: Any
    recorder: Any

    @property
    def either(self) -> bool: ...
    def attempt(self, fn: Any, args: list) -> Any: ...


class BodyInterp(TrialInterp, Protocol):
    """An interpreter of the body of a control-flow operator."""

    def settled(self, fn: Any, args: list) -> Any: ...
    def number(self, n: Any) -> Any: ...
    def reached(self) -> str: ...


Handler = Callable[["Call"], Frame | None]


class Call:
    """A call in progress, as its handler gets it: what is called with what, from which frame, and where the result goes.

    A handler finishes the call, has something called instead, or raises a `GraphBreak`. `calls.call_unruled`, which dispatches the call, says
    where the result of a graph break goes, and turns a `NotForGraph` into one.
    """

    __slots__ = ("args", "fn", "frame", "interp", "kwargs", "then", "trace")

    def __init__(self, interp: Interp, frame: Frame, fn: Any, args: list, kwargs: dict | None, then: Delivery | None) -> None:
        self.interp = interp
        self.trace = interp.trace
        self.frame = frame
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.then = then

    def values(self) -> tuple:
        """Returns all arguments."""
        return (*self.args, *self.kwargs.values()) if self.kwargs else tuple(self.args)

    def finish(self, value: Any) -> Frame | None:
        """Delivers the result."""
        if self.then is None:
            self.frame.stack.append(value)
            return None
        return self.interp.finish(self.frame, value, self.then)

    def native(self) -> Any:
        """Makes the call, without capturing it, and returns its result."""
        return self.interp.native(self.fn, tuple(self.args), self.kwargs)

    def run_natively(self) -> Frame | None:
        """Makes the call, without capturing it."""
        return self.finish(self.native())

    def run_here(self) -> Frame | None:
        """Makes the call, of a C function that runs no code of the user's and looks for no caller."""
        return self.finish(self.fn(*self.args, **(self.kwargs or {})))

    def run_eagerly(self, error: str, reason: str) -> Frame | None:
        """Makes the call, at a graph break if something is captured."""
        if self.trace.active:
            raise self.graph_break(error, reason)
        return self.run_natively()

    def interpret(self) -> Frame | None:
        """Runs the function, which is written in Python, as any other."""
        return self.interp.push_function(self.frame, self.fn, self.args, self.kwargs, self.then)

    def instead(self, fn: Any, args: list, kwargs: dict | None = None, function: Callable[..., Any] | None = None, *data: Any) -> Frame | None:
        """Calls ``fn`` instead. The result is that of this call, or what ``function`` makes of it, as in `Delivery`."""
        then = self.then if function is None else Delivery(function, self.then, *data)
        return self.interp.call(self.frame, fn, args, kwargs, then)

    def of(self, fn: Any, args: list) -> Call:
        """Returns the call of ``fn`` that this one comes down to."""
        return Call(self.interp, self.frame, fn, args, self.kwargs, self.then)

    def again(self) -> Delivery:
        """Returns where the result of something goes that must happen first: this call begins anew, and does not get it."""
        return Delivery(_call_now, self.then, self.fn, tuple(self.args), self.kwargs)

    def callee(self) -> Delivery:
        """Returns where something goes that is called instead, with the same arguments."""
        return Delivery(call_it, self.then, self.args, self.kwargs)

    def graph_break(self, error: str, reason: str) -> GraphBreak:
        """Returns the graph break at which the call runs eagerly."""
        return GraphBreak(self.fn, tuple(self.args), self.kwargs, error, reason)


def call_it(interp: Interp, f: Frame, fn: Any, then: Delivery | None, args: list, kwargs: dict | None) -> Frame | None:
    return interp.call(f, fn, list(args), kwargs, then)


def _call_now(interp: Interp, f: Frame, value: Any, then: Delivery | None, fn: Any, args: tuple, kwargs: dict | None) -> Frame | None:
    return interp.call(f, fn, list(args), kwargs, then)
