"""The interpreter: a stack of frames, the loop that runs them, and the handling of exceptions and graph breaks."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from fineline.builtins.calls import bind_arguments, call_unruled, call_value, see_function
from fineline.builtins.debuggers import STOPS, call_from
from fineline.builtins.text_readers import attend
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CODES, CodeInfo
from fineline.errors import InternalError, Unsupported
from fineline.exception_slots import CONTEXT, under
from fineline.frames.frame import NULL, Frame, FramePlaces, InterpretedGenerator
from fineline.frames.graph_breaks import (
    DISCARD,
    UNSEEN,
    CaptureAborted,
    DataDependentBranch,
    Delivery,
    Finished,
    GraphBreak,
    NotReconstructible,
    Restart,
    UncatchableError,
)
from fineline.frames.run_limits import RunLimits
from fineline.frames.stand_ins import StandIns
from fineline.frames.stub_frames import Place, user_frame
from fineline.fx.recorder import NotForGraph
from fineline.interp.break_storms import call_eager_function
from fineline.interp.generators import close_dying, leave_generator, raise_after_dying, resume_generator, stopped
from fineline.interp.opcodes.flow import LONG_LOOP, boolean, ended, truth
from fineline.interp.opcodes.table import NotInterpreted, link
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects.attribute_errors import left
from fineline.objects.iterator_stand_ins import KINDS
from fineline.policy.break_settings import breaks_here
from fineline.policy.decide import Rules
from fineline.policy.rule import Rule
from fineline.report.events import ShownRule
from fineline.report.operator_counter import OperatorCounts
from fineline.tensor_ops.backing import LiveBacking
from fineline.tensor_ops.tensors import TensorOps
from fineline.torch_facts.wrapper_subclasses import stands_for_lengths
from fineline.tracing.capture_outcome import CaptureOutcome
from fineline.tracing.eager_code import EagerCode
from fineline.tracing.interp import Backing, CaptureHost, FrameCaller, InterpreterOptions, NestedCaptures
from fineline.tracing.lessons import Lessons
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.tracebacks import ExceptionState, raised_inside
from fineline.tracing.varying_reads import VaryingReads

# Makes an eager call: it gets the callable, and the arguments.
AroundCall = Callable[..., Any]

_NULLS = (NULL,) * 64
# Exceptions that depend on the moment of the call, and not on anything that a guard could check.
TRANSIENT = (KeyboardInterrupt, MemoryError, RecursionError, torch.OutOfMemoryError, UncatchableError)
# Exceptions of C whose text may name the types of its arguments.
ABOUT_TYPES = (TypeError, AttributeError, RuntimeError, ValueError)
# C functions of these modules do not look at their caller.
IGNORES_CALLERS = frozenset({"_operator", "builtins", "math"})
# Exceptions to this: these compile code with the future features of their caller.
READS_CALLERS = (compile, eval, exec)
# Internal errors, if fineline's code raises them during capture.
INTERNAL = (AssertionError, NotForGraph, NotReconstructible, InternalError)
# Reasons to go on uncaptured where no graph may break, too: the next call is captured.
_OF_ONE_CALL = frozenset({"FL426", "FL440", "FL454", "FL901"})


class Interpreter:
    """Runs frames, and records what they read, call and write in ``trace``."""

    def __init__(
        self,
        options: InterpreterOptions,
        lessons: Lessons,
        host: CaptureHost[Interpreter] | None = None,
        trace: SegmentTrace | None = None,
        call_out: Callable | None = None,
    ) -> None:
        """Sets up the parts. ``host``: None if nothing is captured. ``call_out`` handles the calls of a frame under disable(recursive=False)."""
        self.options, self.lessons, self.host = options, lessons, host
        self.frame: Frame | None = None
        self.trace = trace if trace is not None else SegmentTrace(self)
        # The control rules for this capture; None: there are none.
        self.rules: Rules | None = None
        self.tensors = TensorOps()
        self.use(LiveBacking())
        self.tensors.undoable = options.breaks != "any"
        self.limits = RunLimits()
        self.exceptions = ExceptionState()
        self.stand_ins = StandIns()
        self.eager = EagerCode(call_out)
        self.nested = NestedCaptures(host.sub_interpreter if host is not None else None)
        self.varying = VaryingReads()
        self.outcome = CaptureOutcome()

    @property
    def fired(self) -> Counter[ShownRule] | None:
        """Returns how often each rule has decided something."""
        return self.host.fired if self.host is not None else None

    def use(self, backing: Backing) -> None:
        """Sets the backing of the capture, before it begins."""
        self.backing, self.tensors.known = backing, backing.constants()

    # -- frames --------------------------------------------------------------------------------------------------
    def link(self, info: CodeInfo) -> list:
        eager = self.lessons.eager_sites
        if eager:
            linked, key = self.lessons.linked, (id(info), len(eager))
            return linked.get(key) or linked.setdefault(key, link(info, eager))
        if info.linked is None:
            info.linked = link(info, None)
        return info.linked

    def push_function(self, f: Frame | None, fn: Any, args: list, kwargs: dict | None, then: Delivery | None = None) -> Frame | None:
        """Starts and returns ``fn``'s frame."""
        if f is not None and f is self.eager.frame and self.eager.call_out is not None:
            call = self.eager.call_out(fn, args, kwargs)
            if call is not None:
                return self.finish(f, self.native(call, (), None), then)
        if self.limits.turn is not None:
            self.limits.turn.take()
        code = fn.__code__
        info = CODES[code]
        if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
            raise GraphBreak(fn, tuple(args), kwargs, "FL405", f"{fn.__qualname__} is a coroutine function")
        if type(fn.__globals__) is not dict:
            # CPython asks its ``__missing__`` for names; `annotationlib` gives annotations such globals.
            raise GraphBreak(fn, tuple(args), kwargs, "FL412", f"the globals of {fn.__qualname__} are a {type(fn.__globals__).__name__}")
        if code in self.lessons.functions.eager and f is not None:
            call_eager_function(self, fn, args, kwargs)
        if self.trace.active:
            see_function(self.trace, fn)
        try:
            ops = self.link(info)
        except NotInterpreted as e:
            error, name = e.args
            raise GraphBreak(fn, tuple(args), kwargs, error, f"{fn.__qualname__} contains the instruction {name}") from None
        n = len(args)
        if info.is_plain and not kwargs and n == code.co_argcount:
            local = args
        else:
            local = bind_arguments(self, fn, code, args, kwargs)
            n = len(local)
        if n < info.nslots:
            local.extend(_NULLS[: info.nslots - n] if info.nslots - n <= 64 else [NULL] * (info.nslots - n))
        closure = fn.__closure__
        if closure:
            local[info.nslots - len(closure) :] = closure
        globals_ = fn.__globals__
        function: Any = fn
        frame = Frame(info, ops, globals_, function.__builtins__, local, f)
        frame.function = fn
        frame.began = self.trace.recorder.calls
        frame.then = then
        self.frame = frame
        limits = self.limits
        limits.depth += 1
        if limits.depth > limits.max_depth:
            limits.check_depth()
        return frame

    def finish(self, f: Frame, value: Any, then: Delivery | None = None) -> Frame | None:
        """Delivers a value that is available at once."""
        if then is None:
            f.stack.append(value)
            return None
        try:
            return then.function(self, f, value, then.then, *then.data)
        except GraphBreak as b:
            # The delivery raised it, not the call that returned the value.
            b.to(then.then)
            raise
        except NotForGraph as e:
            raise InternalError(str(e)) from e

    call = call_value
    call_plainly = call_unruled

    # Ignores the result of a call: passed as its ``then``.
    discard = DISCARD


    def may_break(self) -> bool:
        """Returns whether a call may run eagerly here, at a graph break."""
        return self.trace.active and self.nested.opaque is None and breaks_here(self.options.breaks) == "any"

    def may_restart(self) -> bool:
        """Returns whether the host can undo the segment and capture it on fakes."""
        return self.host is not None and self.host.may_restart()

    def only_live(self, graph_break: GraphBreak) -> GraphBreak | Restart:
        """Returns the exception for code that fakes cannot run: a graph break if sizes or numbers vary, which would be constants on real values."""
        symbols = self.trace.symbols
        varies = symbols is not None and (symbols.used or symbols.varying.found)
        if varies and breaks_here(self.options.breaks) == "any":
            return graph_break
        return Restart(graph_break.error, graph_break.reason)

    def type_of(self, obj: Any) -> type:
        if stands_for_lengths(obj):
            return torch.SymInt
        return self.tensors.type_of_array(self, obj) if type(obj) is np.ndarray else KINDS.get(type(obj), type(obj))

    def class_value(self, value: Any) -> Any:
        """Returns the value inside a staticmethod, classmethod or property; pins it, because it cannot change without its holder."""
        trace = self.trace
        if trace.active and value not in trace.sources and value not in trace.made and not is_value(value):
            trace.pin(value, getattr(value, "__qualname__", type(value).__qualname__))
        return value

    resume_generator = resume_generator
    leave_generator = leave_generator
    truth = staticmethod(truth)
    boolean = staticmethod(boolean)
    see_function = staticmethod(see_function)

    def drive(self, gen: InterpretedGenerator, verb: str, value: Any) -> Any:
        """Runs an interpreted generator for native code that advances it; nothing is captured."""
        if type(gen.given) is types.GeneratorType:
            return getattr(gen.given, verb)(value)
        inner = Interpreter(self.options, self.lessons, trace=SegmentTrace(self), call_out=self.eager.call_out)
        inner.trace.active = False
        inner.eager.frame = gen.frame
        try:
            throw = value if verb == "throw" else None
            frame, thrown = inner.resume_generator(None, gen, value if throw is None else None, throw=throw), None
        except BaseException as e:
            if gen.state != "running" or inner.frame is None:
                raise
            frame, thrown = inner.frame, e
        inner.frame = frame
        del frame
        result = inner.run(thrown)
        if gen.state == "closed":
            raise StopIteration() if result is None else StopIteration(result)
        return result

    # -- the loop ----------------------------------------------------------------------------------------------------
    def run(self, throw: BaseException | None = None) -> Any:
        """Runs ``self.frame`` until the outermost frame returns, and returns its value.

        The frame is not an argument, which a caller's frame may hold until the end (as CPython does if another frame evaluator is
        installed, such as torch.compile's): a frame that has returned must die, with the generators in its variables.
        """
        self.stand_ins.running = True
        try:
            return self._run(throw)
        finally:
            self.stand_ins.running = False
            self.stand_ins.bury_dying()

    def _run(self, throw: BaseException | None) -> Any:
        f = self.frame if throw is None else self.unwind(throw)
        assert f is not None
        ops, eager, dying, texts = f.ops, self.eager, self.stand_ins.dying, self.trace.deferred.texts
        while True:
            try:
                if eager.result is not None:
                    (value, then), eager.result = eager.result, None
                    f = self.finish(f, value, then) or self.frame or f
                    ops = f.ops
                while True:
                    if dying:
                        f = close_dying(self, f)
                        ops = f.ops
                    if texts and attend(self, f):
                        continue
                    op, arg, f.ip = ops[f.ip]
                    new = op(self, f, arg)
                    if new is not None:
                        f = new
                        ops = f.ops
            except Finished as done:
                return done.value
            except Restart:
                # The attempt has had no effect, so that its generators must not run their ``finally`` clauses.
                self.stand_ins.forget_all()
                raise
            except DataDependentBranch as e:
                f = self.undecided(e)
                ops = f.ops
                continue
            except GraphBreak as graph_break:
                # Its traceback refers to frames that refer to it: a cycle.
                graph_break.__traceback__ = graph_break.__context__ = None
                caught: GraphBreak | None = graph_break
            except BaseException as e:
                if self.interrupted_by(e):
                    self.interrupted(e)
                elif is_a(e, TRANSIENT):
                    self.note_transient(e)
                elif is_a(e, INTERNAL) and self.trace.active and (is_a(e, InternalError) or raised_inside(e)):
                    f = self.abandon(e)
                    ops = f.ops
                    continue
                f = self.raised(e)
                ops = f.ops
                continue
            f = self.at_graph_break(caught)  # type: ignore[arg-type]
            caught = None
            ops = f.ops

    def at_graph_break(self, graph_break: GraphBreak) -> Frame:
        """Ends the segment at a graph break, runs the call eagerly, and returns the frame that continues with its result."""
        nested, opaque = self.nested, self.nested.opaque
        if nested.condition is not None:
            return nested.condition.fail(self, f"one is {graph_break.reason}")
        if nested.index_modes:
            self.fail(graph_break.error, f"{graph_break.reason}, where numbers in tensors are indices", False)
        if opaque is None:
            self.eager.outside = "skipped" if graph_break.error in UNSEEN else "eager"
        try:
            if opaque is not None and not self.backing.real:
                raise Restart(graph_break.error, graph_break.reason)
            if opaque is not None:
                opaque.meet(self, graph_break)
                value = self.beyond(graph_break)
                opaque.given_by(self, graph_break, value)
            elif graph_break.error == "FL430" and self.eager.resumes and not self.trace.active and self.host is not None:
                value = self.host.resume(self, graph_break)
            elif self.trace.active and self.host is not None:
                value = self.host.on_graph_break(self, graph_break)
            else:
                value = self.beyond(graph_break)
        except (Finished, Restart):
            raise
        except CaptureAborted as e:
            return self.raised(e)
        except BaseException as e:
            if self.interrupted_by(e):
                self.interrupted(e)
            elif is_a(e, TRANSIENT):
                self.note_transient(e)
            return self.raised(e)
        finally:
            self.eager.outside = ""
        f = self.frame
        assert f is not None
        self.eager.result = (value, graph_break.then)
        return f

    @property
    def run_frame(self) -> FrameCaller | None:
        """Returns the function that calls functions under disable(recursive=False); None without a host."""
        return self.host.run_frame if self.host is not None else None

    @property
    def tally(self) -> OperatorCounts | None:
        """Returns the counter of the capture's operators; None if they are not counted."""
        return self.host.tally if self.host is not None else None

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for code that the region refuses."""
        return self.host.refusal(error, text, f, rule) if self.host is not None else Unsupported(text)

    def close(self) -> None:
        """Drops the references to everything that was alive in the call."""
        self.frame = self.exceptions.handled = self.host = None

    def fate(self) -> str:
        """Returns the class in which an operator that runs now is counted; "": it is not one of the user's."""
        return self.eager.fate(self.trace.active)

    def beyond(self, graph_break: GraphBreak) -> Any:
        """Runs the eager call of a graph break and returns its result, or raises again the exception that the call has already raised."""
        handled = self.exceptions.handled
        if graph_break.raised is not None and handled is not None:
            under(handled, graph_break.raise_again)
        elif graph_break.raised is not None:
            graph_break.raise_again()
        if self.host is not None and not self.trace.active:
            self.host.before_eager_call(self, graph_break)
        with self.eager.pause.interrupted():
            if graph_break.error == STOPS:
                return call_from(self.frame, graph_break.fn, graph_break.args_, graph_break.kwargs)
            return self.native(graph_break.fn, graph_break.args_, graph_break.kwargs)

    def native(self, fn: Callable, args: tuple, kwargs: dict | None) -> Any:
        """Calls C code, or Python code that is not captured; ``sys.exception()`` returns the currently handled exception there."""
        if self.frame is not None and not (type(fn) is types.BuiltinFunctionType and fn.__module__ in IGNORES_CALLERS and fn not in READS_CALLERS):
            args, fn = (fn, *args), self.place()
        handled = self.exceptions.handled
        if handled is None:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        return under(handled, fn, *args, **(kwargs or {}))

    def place(self) -> Place:
        """Returns the current place in the user's code, for calls that need the user's frames on the stack."""
        return Place(self.frame, self.eager.stubs)

    def note_call(self, name: str, fn: Any, colour: str, operators: int = 0) -> None:
        """Notifies the call tree of `explain`, if there is one, of a call without an interpreted frame, and of its number of operators."""

    def note_operator(self, count: int = 1) -> None:
        """Notifies the call tree of a recorded operator. ``count``: 0 if it is not the user's, because it runs a sub-graph."""

    def note_subgraph(self, inner: Any) -> None:
        """Notifies the call tree that ``inner`` has captured a sub-graph, which the next operator runs."""

    def note_break(self, place: FramePlaces) -> None:
        """Notifies the call tree that the frames are left at a place from which another interpreter may continue."""

    def note_continuation(self, place: FramePlaces) -> None:
        """Notifies the call tree that the frames left at a place have been rebuilt."""

    def around_eager_call(self, graph_break: GraphBreak) -> AroundCall | None:
        """Returns what makes the eager call of a graph break after this capture for the call tree, which measures it; None if there is none."""
        return None

    def forget_calls(self) -> None:
        """Notifies the call tree that the code since the last graph break is captured again."""

    def raised(self, e: BaseException, anew: bool = False, again: bool = False) -> Frame:
        """Handles an exception of an instruction: sets the implicit context, then finds the handler.

        ``anew``: a ``raise`` statement raised it, which replaces an existing context. ``again``: it has been raised before, so that its context
        and its traceback stay unchanged.
        """
        if self.frame is None:
            raise e
        if not self.backing.real and type(e) in ABOUT_TYPES and any([name in str(e) for name in ("FakeTensor", "SymInt", "SymFloat")]):
            raise Restart("FL515", f"{type(e).__name__}: {e}")
        if e not in self.trace.sources:
            # C may have raised it, with attributes that its class, written in Python, reads.
            self.trace.made.add(e)
        if not again:
            self.exceptions.chain(e, anew)
        return self.unwind(e, again)

    def undecided(self, e: DataDependentBranch) -> Frame:
        """Restarts a capture that cannot continue without a number that only the graph knows: the number is then read at a graph break."""
        if breaks_here(self.options.breaks) == "none":
            return self.abandon(self.refusal("FL518", str(e), self.frame))
        raise Restart("FL518", str(e))

    def long_loop(self, f: Frame) -> None:
        """Ends the capture at a long loop without tensor operators in ``f``; from the next call on, the call that leads to it runs eagerly."""
        self.limits.jumps = 0
        caller = f.back
        if caller is not None and caller.info.instructions[caller.ip - 1].name == "CALL" and caller.back is not None:
            self.lessons.eager_sites.add((caller.info.code, caller.ip - 1))
        self.fail("FL427", f"a loop of over {LONG_LOOP} steps without a tensor operator", False)

    def throw(self, e: BaseException, again: bool = False) -> Frame:
        """Raises ``e`` as the ``raise`` statement does; returns the frame that handles it."""
        return self.raised(e, not again, again)

    def fail(self, error: str, text: str, hint: bool) -> None:
        """Ends the capture of this segment: the call continues uncaptured. ``hint``: this instruction runs eagerly from the next call on."""
        if not self.trace.active:
            return
        if breaks_here(self.options.breaks) != "any" and error not in _OF_ONE_CALL and self.declared(error) is None:
            raise self.outcome.abandon(self.refusal(error, text, self.frame))
        # A capture that has had no effect starts again.
        self.trace.active = self.backing.undone
        self.trace.namespaces.global_values.clear()  # Writes of globals no longer update this table.
        self.eager.pause.end()
        if not self.trace.active:
            self.nested.restore_function_modes()
        f = self.outcome.fail(error, text, self.frame)
        if f is not None and hint:
            self.lessons.eager_sites.add((f.info.code, f.ip - 1))
        if self.trace.active:
            raise Restart(error, text)

    def declared(self, error: str) -> Rule | None:
        """Returns the rule that declares a graph break with that id here; None if there is none."""
        f = user_frame(self.frame)
        if f is None or self.rules is None or breaks_here(self.options.breaks) == "none":
            return None
        return self.rules.decide_break(error, f.info.code, f.globals.get("__name__"))

    def note_transient(self, e: BaseException) -> None:
        """Ends the capture because of ``e``: no program may contain the user's reaction to a transient exception."""
        self.fail("FL426", f"{type(e).__name__} while the call was captured", False)

    def interrupted_by(self, e: BaseException) -> bool:
        """Returns whether ``e`` arrived from outside during the capture. An exception with a source does not count: captured code re-raises it."""
        return self.outcome.is_interrupt(e, self.trace.sources)

    def interrupted(self, e: BaseException) -> None:
        """Raises an exception from outside: on fakes at once, because nothing has happened; otherwise through the user's handlers."""
        self.outcome.interrupt = e
        if not self.backing.real:
            self.leave_immediately(e)
        self.note_transient(e)

    def leave_immediately(self, e: BaseException) -> NoReturn:
        """Raises ``e`` past the user's code and drops the generators."""
        self.stand_ins.forget_all()
        raise e

    def abandon(self, error: BaseException) -> Frame:
        """Leaves the user's code with an exception that only ``finally``, ``with`` and a bare ``except`` handle."""
        return self.raised(self.outcome.abandon(error))

    def unwind(self, e: BaseException, again: bool = False) -> Frame:
        """Finds the frame that handles ``e``; raises it when none does."""
        f, nested, traces = self.frame, self.nested, self.exceptions.traces
        if nested.condition is not None:
            raise Restart("FL518", f"a part of a condition raises {type(e).__name__}")
        while f is not None:
            f.kwnames = ()
            if type(e) is not StopIteration and not again:
                traces.note(e, f)
            again = False
            h = f.info.handler_at(f.ip - 1)
            if h is not None:
                del f.stack[h.depth :]
                # CPython keeps one value more below an exception that is thrown into ``yield from``.
                f.stack.extend(_NULLS[: h.depth - len(f.stack)])
                if h.lasti:
                    f.stack.append(f.ip - 1)
                f.stack.append(e)
                f.ip = h.target
                if not f.info.restores(h):
                    traces.write(e, self.trace)
                self.frame = f
                return f
            self.limits.depth -= 1
            left(self, f, e)
            # Generators that only the stack holds run their ``finally`` now; the traceback keeps only the variables alive.
            f.stack.clear()
            if nested.opaque is not None and nested.opaque.frame is f:
                nested.opaque.raised(self)
            on_stop = f.extras.on_stop
            if f.extras.generator is not None:
                back = self.leave_generator(f, "closed")
                if is_a(e, StopIteration):
                    e = stopped(e)
                    self.trace.made.add(e)
            else:
                back = f.back
                if on_stop is not None and back is not None and is_a(e, StopIteration):
                    self.frame = back
                    return ended(self, back, on_stop, e) or back
            f = back
        self.frame = f = None
        traces.write(e, self.trace)
        if self.stand_ins.dying:
            return raise_after_dying(self, e)
        context = CONTEXT.__get__(e)
        try:
            raise e
        finally:
            # The raise above sets the context to the exception that is handled around the region; the right context was set before.
            if context is not None:
                CONTEXT.__set__(e, context)
