"""The interpreter as the code below it sees it: handlers of calls, attributes, operators and values get an ``Interp``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.autograd.grad_mode import _exit_inference_mode

from fineline.bytecode.code import CodeInfo
from fineline.fake.fake_tensors import Fakes
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import DataDependentBranch, Delivery, GraphBreak, Restart
from fineline.frames.run_limits import RunLimits
from fineline.frames.stand_ins import StandIns
from fineline.frames.stub_frames import Place
from fineline.frames.trail import Origin
from fineline.identity import AddressMap, AddressSet
from fineline.policy.decide import Rules
from fineline.policy.policy import Policy
from fineline.report.events import ShownRule
from fineline.report.operator_counter import OperatorCounts
from fineline.tracing.capture_outcome import CaptureOutcome
from fineline.tracing.constant_tensors import ConstantTensors
from fineline.tracing.eager_code import EagerCode
from fineline.tracing.lessons import Lessons
from fineline.tracing.mutation_log import MutationLog
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.subgraph_rules import SubGraphRules
from fineline.tracing.tracebacks import ExceptionState
from fineline.tracing.varying_reads import VaryingReads


class InterpreterOptions(Protocol):
    """The user's options, as far as an interpreter asks for them."""

    @property
    def breaks(self) -> str: ...
    @property
    def force_graph_breaks(self) -> bool: ...
    @property
    def policy(self) -> Policy | None: ...
    @property
    def verify(self) -> bool: ...
    @property
    def exported(self) -> bool: ...


class Operators(Protocol):
    """The tensor operators: what runs one, records it, and answers for the tensors."""

    symbolic: bool
    # Whether single numbers in tensors are indices.
    indices: bool
    # Whether a backend sees the graph, and with it the layout of what each operator gives.
    shows_layouts: bool
    # Whether writes into tensors may have to be taken back.
    undoable: bool
    known: ConstantTensors

    @property
    def arrays(self) -> SharedArrays: ...
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


class Backing(Protocol):
    """What a capture runs on: the user's tensors, or fakes that stand for them (`tensor_ops/backing.py`)."""

    __slots__ = ()

    # Whether operators run on the user's tensors. On fakes nothing happens: what the code writes is undone, and the program makes the call.
    real: bool
    # Whether sizes and numbers may be symbols.
    may_be_symbolic: bool
    # Whether a capture on the user's tensors can still be undone as a whole, and made on fakes.
    switches: bool
    # Whether the host can take a segment back and capture it on fakes; else it may draw no numbers.
    restartable: bool

    @property
    def is_symbolic(self) -> bool:
        """Returns whether some size or number is a symbol."""

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, born: bool = True) -> Any:
        """Runs an operator, and returns its result. ``born``: new symbols are sizes of it."""

    def run_on_fakes(self, fn: Any, args: Any, kwargs: dict | None) -> Any:
        """Returns what an operator gives on fakes, without an effect on the user's tensors; raises what they raise."""

    def fold(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any:
        """Returns the tensor that has the numbers of an operator's result on constant tensors; None: the result itself."""

    def constants(self) -> ConstantTensors:
        """Returns a new table of constant tensors."""

    def may_have_truth(self, t: Tensor, truth: bool) -> bool:
        """Returns whether the one number in ``t`` has this ``truth``, as far as it can be known."""

    def memory(self, interp: Interp, t: Any) -> Any:
        """Returns what the captured code writes into when it writes into ``t``: where its memory is, and its version."""

    def length(self, interp: Interp, t: Tensor) -> Any:
        """Returns the length of a tensor, which may be a symbol."""

    def operands(self, value: Any) -> Any:
        """Returns ``value`` as operators get it: on fakes, with the fakes of the user's tensors in it."""

    def body_fakes(self, rows: bool) -> Fakes:
        """Returns the fakes for the body of an operator that runs functions. ``rows``: in it a tensor of ``vmap`` is one row."""

    def forget_numbers(self) -> None:
        """Forgets numbers that were read from memory, because it is about to be written."""

    def may_have_drawn(self) -> bool:
        """Returns whether the capture may have drawn random numbers for real."""

    def inner(self) -> Backing:
        """Returns the backing of code that is captured into a graph of its own: it can't change to the other mode."""

    def hold(self, fn: Callable[[], Any]) -> Any:
        """Calls ``fn``, which captures, with the locks that this needs; returns its result."""


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


# The class of the interpreter that a host runs.
I_contra = TypeVar("I_contra", contravariant=True)


class CaptureHost(Protocol[I_contra]):
    """The owner of an interpreter in a capture: it decides at graph breaks and around eager calls."""

    @property
    def run_frame(self) -> FrameCaller: ...
    @property
    def fired(self) -> Counter[ShownRule]: ...
    @property
    def tally(self) -> OperatorCounts | None: ...
    @property
    def sub_interpreter(self) -> Callable[..., SubInterp]: ...

    def on_graph_break(self, interp: I_contra, graph_break: GraphBreak) -> Any:
        """Ends the segment, runs the call, begins the next segment; returns what the call gave."""

    def before_eager_call(self, interp: I_contra, graph_break: GraphBreak) -> None:
        """Prepares what an eager call gets, while nothing is captured."""

    def resume(self, interp: I_contra, graph_break: GraphBreak) -> Any:
        """Captures again, where a block ends in which nothing was captured."""

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for what the region refuses."""

    def may_restart(self) -> bool:
        """Returns whether the segment can be taken back and captured on fakes."""


class OpaqueRun(Protocol):
    """An opaque call that is being run through."""

    # The frame of its function, when that is one of Python.
    frame: Frame | None
    # Whether it has looked at the numbers in a tensor.
    read: bool

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: Any, kind: str | None) -> Any: ...
    def meet(self, interp: Interp, graph_break: GraphBreak) -> None: ...
    def given_by(self, interp: Interp, fn: Any, value: Any) -> None: ...
    def raised(self, interp: Interp) -> None: ...
    def leave(self, interp: Interp) -> None: ...


class ConditionRun(Protocol):
    """A condition of which all parts are being computed."""

    def fail(self, interp: Interp, why: str) -> Frame: ...


class NestedCaptures:
    """What is captured apart within this capture, the modes that the captured code has entered, and this capture's own place in another."""

    __slots__ = ("called_at", "condition", "index_modes", "inference_modes", "opaque", "sub_interpreter", "subgraph_rules")

    def __init__(self, sub_interpreter: Callable[..., SubInterp] | None = None) -> None:
        # Makes the interpreter of a sub-graph; None where there are none.
        self.sub_interpreter = sub_interpreter
        # What the code may do, if it is to become a sub-graph.
        self.subgraph_rules: SubGraphRules | None = None
        # The call under allow_in_graph that is being run through.
        self.opaque: OpaqueRun | None = None
        self.condition: ConditionRun | None = None
        # Modes, entered by the captured code alone, in which single numbers in tensors are indices.
        self.index_modes: list[Any] = []
        # Contexts of inference modes that the captured code is in.
        self.inference_modes: list[Any] = []
        # The origin of what has another interpreter run this code, for the graph's nodes.
        self.called_at: Origin | None = None

    def any(self) -> bool:
        """Returns whether a part of the code is captured apart now."""
        return self.opaque is not None or self.condition is not None

    def restore_index_modes(self) -> None:
        """Enters the modes in earnest, which nothing has done so far: no graph holds what comes next."""
        while self.index_modes:
            torch._C._push_on_torch_function_stack(self.index_modes.pop(0))

    def leave_inference_modes(self) -> None:
        """Leaves what the captured code has entered; nothing else does where an exception from outside comes as it is left."""
        for context in reversed(self.inference_modes):
            _exit_inference_mode(context)
        self.inference_modes.clear()


class Interp(Protocol):
    """A running interpreter. Its fields are documented where `Interpreter` sets them, those of its parts in their classes."""

    options: InterpreterOptions
    lessons: Lessons
    trace: SegmentTrace
    frame: Frame | None
    backing: Backing
    rules: Rules | None
    exceptions: ExceptionState
    limits: RunLimits
    stand_ins: StandIns
    nested: NestedCaptures
    varying: VaryingReads
    eager: EagerCode
    outcome: CaptureOutcome

    @property
    def fired(self) -> Counter[ShownRule] | None: ...
    @property
    def run_frame(self) -> FrameCaller | None: ...
    @property
    def tally(self) -> OperatorCounts | None: ...
    @property
    def tensors(self) -> Operators: ...

    def call(self, f: Frame, fn: Any, args: list, kwargs: dict | None = None, then: Delivery | None = None) -> Frame | None: ...
    def call_plainly(self, f: Frame, fn: Any, args: list, kwargs: dict | None = None, then: Delivery | None = None) -> Frame | None: ...
    def push_function(self, f: Frame | None, fn: Any, args: list, kwargs: dict | None, then: Delivery | None = None) -> Frame | None: ...
    def finish(self, f: Frame, value: Any, then: Delivery | None = None) -> Frame | None: ...
    @property
    def discard(self) -> Delivery: ...
    def native(self, fn: Callable, args: tuple, kwargs: dict | None) -> Any: ...
    def place(self) -> Place: ...
    def may_break(self) -> bool: ...
    def may_restart(self) -> bool: ...
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
    def note_operator(self, count: int = 1) -> None: ...
    def note_subgraph(self, inner: SubInterp) -> None: ...
    def note_call(self, name: str, fn: Any, colour: str, operators: int = 0) -> None: ...


class SubInterp(Interp, Protocol):
    """The interpreter of a sub-graph's code, which gives up before anything happens that could be seen."""

    made: AddressSet
    recorder: Any

    @property
    def mutations(self) -> MutationLog: ...
    @property
    def either(self) -> bool: ...
    def attempt(self, fn: Any, args: list, kwargs: dict | None) -> Any: ...
    def reached(self) -> str: ...
    def end(self) -> None: ...


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
