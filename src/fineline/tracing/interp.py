"""Protocols of the interpreter, its operators, backing and host, for the code in lower packages; and `Call`, a call in progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

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
from fineline.policy.rule import Rule
from fineline.report.events import ShownRule
from fineline.report.operator_counter import OperatorCounts
from fineline.torch_facts.function_modes import FUNCTION_MODES, ModeAt, mode_stack, put_on, sees_operators, take_off
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
    """The user's options that an interpreter reads."""

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
    @property
    def numpy(self) -> str: ...


class Operators(Protocol):
    """The tensor operators: runs them, records them, and answers questions about tensors."""

    symbolic: bool
    # Whether tensors of one number can be indices.
    indices: bool
    # Whether a backend sees the graph, and with it the layout of each operator's result.
    shows_layouts: bool
    # Whether writes into tensors may have to be undone.
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
    def load_attribute(self, interp: Interp, f: Frame, t: Tensor, name: str, kind: str, then: Delivery | None) -> Frame | None: ...
    def set_attribute(
        self, interp: Interp, f: Frame, t: Tensor, name: str, descr: Any, value: Any, then: Delivery
    ) -> Frame | None: ...
    def sign(self, interp: Interp, fn: Any, args: tuple, call: tuple | None = None) -> None: ...
    def reads(self, interp: Interp, t: Any) -> bool: ...
    def number(self, interp: Interp, f: Frame, fn: Any, t: Tensor, then: Delivery | None) -> Frame | None: ...
    def array_attribute(self, interp: Interp, a: Any, name: str) -> Any: ...
    def array_length(self, interp: Interp, a: Any) -> Any: ...
    def may_list_numbers(self, interp: Interp, a: Any) -> bool: ...
    def array_rows(self, interp: Interp, a: Any) -> list | None: ...
    def type_of_array(self, interp: Interp, a: Any) -> type: ...


class Backing(Protocol):
    """The tensors that a capture runs on: the user's, or fakes that stand for them (`tensor_ops/backing.py`)."""

    __slots__ = ()

    # Whether operators run on the user's tensors. On fakes a capture has no effect: the code's writes are undone, and the program runs the call.
    real: bool
    # Whether sizes and numbers may be symbols.
    may_be_symbolic: bool
    # Whether a capture on the user's tensors can still be undone as a whole and repeated on fakes.
    switches: bool
    # Whether the host can undo a segment and capture it on fakes; if not, the segment must not draw random numbers.
    restartable: bool
    # Whether the capture is undone if it fails: nothing of it has an effect then. If not, the call goes on without it.
    undone: bool

    @property
    def is_symbolic(self) -> bool:
        """Returns whether some size or number is a symbol."""

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, born: bool = True, form: Callable | None = None) -> Any:
        """Runs an operator, and returns its result. ``born``: new symbols are registered as sizes of the result; ``form``: runs on fakes instead."""

    def run_on_fakes(self, fn: Any, args: Any, kwargs: dict | None) -> Any:
        """Returns an operator's result on fakes, without an effect on the user's tensors; raises the operator's exceptions."""

    def fold(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any:
        """Returns the tensor with the numbers of an operator's result on constant tensors; None: the result itself has them."""

    def constants(self) -> ConstantTensors:
        """Returns a new table of constant tensors."""

    def may_have_truth(self, t: Tensor, truth: bool) -> bool:
        """Returns whether the one number in ``t`` may have this ``truth``, as far as that is known."""

    def memory(self, interp: Interp, t: Any) -> Any:
        """Returns the tensor whose memory and version change when the captured code writes into ``t``."""

    def view_as_class(self, interp: Interp, t: Tensor, cls: type[Tensor], detached: bool) -> Tensor:
        """Returns a view of a tensor that is of another class. ``detached``: autograd does not take it for a view."""

    def length(self, interp: Interp, t: Tensor) -> Any:
        """Returns the length of a tensor, which may be a symbol."""

    def outside(self, value: Any) -> Any:
        """Returns what the code knows as ``value``, an inner tensor of a result: on fakes, the user's tensor that it stands for, if there is one."""

    def operands(self, value: Any) -> Any:
        """Returns ``value`` in the form that operators take: on fakes, with the user's tensors replaced by their fakes."""

    def body_fakes(self, rows: bool) -> Fakes:
        """Returns the fakes for the body of an operator that runs functions. ``rows``: a tensor of ``vmap`` is one row in the body."""

    def forget_numbers(self) -> None:
        """Forgets the numbers that were read from memory, because the memory is about to be written."""

    def may_have_drawn(self) -> bool:
        """Returns whether the capture may have advanced the real random generators."""

    def inner(self) -> Backing:
        """Returns the backing for code that is captured into a graph of its own: it cannot switch to the other mode."""

    def hold(self, fn: Callable[[], Any]) -> Any:
        """Calls ``fn``, which captures, under the locks that a capture on this backing needs; returns its result."""


class TracedArrays(Protocol):
    """The arrays of the graph: by stand-in, a `tensor_ops.arrays.traced.TracedArray`."""

    def add(self, array: Any, known: Any) -> None: ...
    def get(self, array: Any) -> Any: ...
    def __contains__(self, array: object) -> bool: ...


class SharedArrays(Protocol):
    """The NumPy arrays that share memory with tensors of the graph."""

    alive: list[Any]
    shared: list[tuple[Any, Tensor]]
    shown: AddressMap[list[Tensor]]

    from_anywhere: bool

    @property
    def traced(self) -> TracedArrays: ...
    def made(self, trace: SegmentTrace, v: Any) -> None: ...
    def lies_in_shared(self, a: Any, written: Callable[[Tensor], bool] = ...) -> bool: ...
    def constant(self, interp: Interp, v: Any) -> bool: ...


class FrameCaller(Protocol):
    """Calls functions in frames of CPython and compiles the functions that they call."""

    def __call__(self, target: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def calling(self, target: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def apply(self, cls: Any, /, *args: Any) -> Any: ...


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
        """Ends the segment, runs the eager call, and starts the next segment; returns the call's result."""

    def before_eager_call(self, interp: I_contra, graph_break: GraphBreak) -> None:
        """Prepares the arguments of an eager call while nothing is captured."""

    def resume(self, interp: I_contra, graph_break: GraphBreak) -> Any:
        """Starts to capture again after a block in which nothing was captured."""

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for code that the region refuses."""

    def may_restart(self) -> bool:
        """Returns whether the segment can be undone and captured again on fakes."""


class OpaqueRun(Protocol):
    """An opaque call that the interpreter is running."""

    # The frame of its function, if that is a Python function.
    frame: Frame | None
    # Whether the function has PyTorch's mark, which promises less than a rule.
    lenient: bool

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: Any, kind: str | None) -> Any: ...
    def meet(self, interp: Interp, graph_break: GraphBreak) -> None: ...
    def given_by(self, interp: Interp, graph_break: GraphBreak, value: Any) -> None: ...
    def reads_numbers(self) -> None: ...
    def raised(self, interp: Interp) -> None: ...
    def leave(self, interp: Interp) -> None: ...


class ConditionRun(Protocol):
    """A condition whose parts are all being computed."""

    def fail(self, interp: Interp, why: str) -> Frame: ...


class NestedCaptures:
    """The nested captures that are in progress, the modes that the captured code has entered, and the origin of this capture in another."""

    __slots__ = ("called_at", "condition", "index_modes", "inference_modes", "modes", "opaque", "sub_interpreter", "subgraph_rules")

    def __init__(self, sub_interpreter: Callable[..., SubInterp] | None = None) -> None:
        # Makes the interpreter of a sub-graph; None: sub-graphs are not possible.
        self.sub_interpreter = sub_interpreter
        # The rules for code that is to become a sub-graph.
        self.subgraph_rules: SubGraphRules | None = None
        # The call under allow_in_graph that is running.
        self.opaque: OpaqueRun | None = None
        self.condition: ConditionRun | None = None
        # Modes that only the captured code has entered, in which tensors of one number are indices.
        self.index_modes: list[Any] = []
        # The function modes that see the operators of the captured code. They are not on PyTorch's stack while it is being captured: the method
        # of each is run through for each operator.
        self.modes: list[Any] = []
        # The contexts of inference modes that the captured code has entered.
        self.inference_modes: list[Any] = []
        # The origin of the code that started this interpreter from another one, for the graph's nodes.
        self.called_at: Origin | None = None

    def any(self) -> bool:
        """Returns whether an opaque call or a condition is being captured now."""
        return self.opaque is not None or self.condition is not None

    def restore_function_modes(self) -> None:
        """Enters the modes for real, because no graph holds the code that runs next; so far they were only noted."""
        for modes in (self.index_modes, self.modes):
            put_on(modes)
            modes.clear()

    def take_function_modes(self, trace: SegmentTrace, devices: bool) -> None:
        """Takes the modes off PyTorch's stack at the start of a segment; from here on, the interpreter runs their methods.

        ``devices``: even if the default device is the only one. Otherwise it stays on: the graph and its guards depend on it.
        """
        on = mode_stack()
        if trace.active and on and (devices or sees_operators(on)):
            trace.guards.seen = True
            trace.state.modes = take_off()
            self.modes = [*on]
            for i, mode in enumerate(on):
                trace.load(mode, trace.guards.access(trace.guards.pin(FUNCTION_MODES, "function_modes"), "member", ModeAt(i), mode))

    def leave_inference_modes(self) -> None:
        """Leaves the inference modes that the captured code has entered, for the case that an exception from outside skips their exits."""
        for context in reversed(self.inference_modes):
            _exit_inference_mode(context)
        self.inference_modes.clear()


class Interp(Protocol):
    """A running interpreter. `Interpreter` documents the fields where it sets them; the classes of its parts document theirs."""

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
    def declared(self, error: str) -> Rule | None: ...
    def note_operator(self, count: int = 1) -> None: ...
    def note_subgraph(self, inner: SubInterp) -> None: ...
    def note_call(self, name: str, fn: Any, colour: str, operators: int = 0) -> None: ...


class SubInterp(Interp, Protocol):
    """The interpreter of a sub-graph's code. It ends the capture before the code has an effect that the user could observe."""

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
    """A call in progress: the callable, its arguments, the calling frame, and where the result goes.

    A handler finishes the call, replaces it by another call, or raises a `GraphBreak`. `calls.call_unruled`, which dispatches the call, sets
    the delivery of a graph break and converts a `NotForGraph` into a graph break.
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
        """Makes the call without capturing it, and delivers its result."""
        return self.finish(self.native())

    def run_in_c(self) -> Frame | None:
        """Makes the call of a C function that runs no user code and does not look at its callers."""
        return self.finish(self.fn(*self.args, **(self.kwargs or {})))

    def run_eagerly(self, error: str, reason: str) -> Frame | None:
        """Makes the call; if a segment is being captured, raises a graph break for it."""
        if self.trace.active:
            raise self.graph_break(error, reason)
        return self.run_natively()

    def interpret(self) -> Frame | None:
        """Runs the function, which is written in Python, in an interpreted frame."""
        return self.interp.push_function(self.frame, self.fn, self.args, self.kwargs, self.then)

    def instead(self, fn: Any, args: list, kwargs: dict | None = None, function: Callable[..., Any] | None = None, *data: Any) -> Frame | None:
        """Calls ``fn`` instead. The result is that of this call, or ``function`` processes it, as in `Delivery`."""
        then = self.then if function is None else Delivery(function, self.then, *data)
        return self.interp.call(self.frame, fn, args, kwargs, then)

    def of(self, fn: Any, args: list) -> Call:
        """Returns a call of ``fn`` that replaces this one, with the same keyword arguments, frame and delivery."""
        return Call(self.interp, self.frame, fn, args, self.kwargs, self.then)

    def again(self) -> Delivery:
        """Returns the delivery for a call that must happen before this one: it drops the result and starts this call again."""
        return Delivery(_call_now, self.then, self.fn, tuple(self.args), self.kwargs)

    def callee(self) -> Delivery:
        """Returns the delivery for a callable: it calls the callable instead, with the same arguments."""
        return Delivery(call_it, self.then, self.args, self.kwargs)

    def graph_break(self, error: str, reason: str) -> GraphBreak:
        """Returns a graph break that runs the call eagerly."""
        return GraphBreak(self.fn, tuple(self.args), self.kwargs, error, reason)


def call_it(interp: Interp, f: Frame, fn: Any, then: Delivery | None, args: list, kwargs: dict | None) -> Frame | None:
    return interp.call(f, fn, list(args), kwargs, then)


def _call_now(interp: Interp, f: Frame, value: Any, then: Delivery | None, fn: Any, args: tuple, kwargs: dict | None) -> Frame | None:
    return interp.call(f, fn, list(args), kwargs, then)
