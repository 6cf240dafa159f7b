"""The interpreter: a stack of frames, the loop that runs them, and what happens when one raises."""

from __future__ import annotations

import gc
import types
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NoReturn

import torch

from fineline.builtins.calls import bind_arguments, call_unruled, call_value, see_function
from fineline.builtins.debuggers import STOPS, call_from
from fineline.builtins.subscripts import FEW_KEYS
from fineline.builtins.text_readers import attend
from fineline.bytecode.asynchronous import asynchronous
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CODES, CodeInfo
from fineline.errors import InternalError, Unsupported
from fineline.exception_slots import CONTEXT, under
from fineline.fake.fake_tensors import Fakes, NotFakeable
from fineline.frames.frame import NULL, Frame, InterpretedGenerator
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
from fineline.frames.stub_frames import Place, is_own, user_frame, user_stack
from fineline.fx.recorder import NotForGraph
from fineline.guards.source import member_text
from fineline.interp.break_storms import call_eager_function
from fineline.interp.generators import bury, close_dying, leave_generator, raise_behind_dying, resume_generator, stopped
from fineline.interp.opcodes.flow import LONG_LOOP, boolean, ended, truth
from fineline.interp.opcodes.table import link
from fineline.kinds import is_a
from fineline.objects.attribute_errors import left
from fineline.objects.iterator_stand_ins import KINDS
from fineline.policy.break_settings import breaks_here
from fineline.policy.decide import Rules
from fineline.policy.rule import Rule
from fineline.report.operator_counter import OPEN
from fineline.stacks import StackPlace
from fineline.symbolic.arithmetic import numbers
from fineline.symbolic.floats import hint
from fineline.tensor_ops.numpy_arrays import Arrays
from fineline.tensor_ops.subgraphs.allow_in_graph import OpaqueCall
from fineline.tensor_ops.subgraphs.nested_regions import give_up_subgraphs
from fineline.tensor_ops.tensors import TensorOps
from fineline.tracing.constant_tensors import ConstantTensors
from fineline.tracing.gc_pause import Pause
from fineline.tracing.identity_guards import VIEWS, shown_by
from fineline.tracing.interp import BodyInterp, CaptureHost, FrameCaller, InterpreterOptions, TrialInterp
from fineline.tracing.lessons import IterationSite, Lessons
from fineline.tracing.segment_trace import UNSYMBOLIC, SegmentTrace, is_value
from fineline.tracing.tracebacks import SHALLOW, Traces, check_depth, raised_inside

_NULLS = (NULL,) * 64
# What a container holds at a place seldom goes round: a program for each of so many.
FEW_CONTENTS = 2
# So many numbers and texts in a container tell what it holds from what others hold.
MOST_NUMBERS = 16
TOLD_APART = (int, float, str, bytes)
# So many values of a number are kept that a loop asks for at one place.
MOST_ASKED = 64
# Whether these are raised depends on the moment of the call, and not on what a guard could check.
FLEETING = (KeyboardInterrupt, MemoryError, RecursionError, torch.OutOfMemoryError, UncatchableError)
# What C raises about the types of what it was given.
SPEAKING = (TypeError, AttributeError, RuntimeError, ValueError)
# C functions of these modules do not look for their caller.
QUIET = frozenset({"_operator", "builtins", "math"})
# ... but for these, which compile as the code of their caller was.
LOOKING = (compile, eval, exec)
# The interpreter's own, if its code raises them: the user's code can't.
INTERNAL = (AssertionError, NotForGraph, NotReconstructible, InternalError)


class Interpreter:
    """Runs frames on real values; what they read, call and write goes to ``trace``."""

    # -- what few runs set ---------------------------------------------------------------------------------------
    # Why, and where, the segment was given up.
    failure: tuple[str, str] | None = None
    failed_at: tuple[str, int] = ("", 0)
    failed_stack: tuple[StackPlace, ...] = ()
    # Whether what runs is a backward that may be differentiated itself.
    again = False
    # What has come from outside: a signal handler or another thread has raised it.
    interrupt: BaseException | None = None
    # On the real values: whether the capture can still be undone, and made on fakes.
    switches = False
    # Whether the host can take a segment back and capture it on fakes; else it may draw no numbers.
    restartable = False
    # Whether the host captures again where a block ends in which nothing was captured.
    resumes = False
    # The origin of what has another interpreter run this code, for the graph's nodes.
    called_at: Any = None
    # Whether a backend sees the graph, and with it the layout of what each operator gives.
    shows_layouts = False
    max_depth = SHALLOW
    # The iteration of a loop that this run is, if each iteration has programs of its own.
    iteration: weakref.ref[Any] | None = None
    # So many indices, or keys, that vary at one place have a program each.
    few_keys = FEW_KEYS

    def __init__(
        self,
        options: InterpreterOptions,
        lessons: Lessons,
        host: CaptureHost | None = None,
        trace: SegmentTrace | None = None,
        call_out: Callable | None = None,
    ) -> None:
        """``host``: None if nothing is captured. ``call_out`` takes the calls that ``eager_frame`` makes itself."""
        self.options, self.lessons, self.host = options, lessons, host
        self.frame: Frame | None = None
        self.handled: BaseException | None = None
        self.tensors, self.known, self.arrays = TensorOps(), ConstantTensors(), Arrays()
        # The result of a graph break and where it goes: delivering it may run into the next graph break, or raise.
        self.pending: tuple[Any, Delivery | None] | None = None
        self.trace = trace if trace is not None else SegmentTrace(self)
        self.texts = self.trace.texts
        self.events: list[Any] = []
        self.jumps = 0
        self.depth = 0
        # Suspended generators whose last reference went during an instruction; whether there will be a next one.
        self.dying: list[InterpretedGenerator] = []
        self.running = False
        # The generators, and other iterators, that are not Python's own.
        self.stand_ins: list[weakref.ref] = []
        # Set by the instructions that raise, so that the implicit context is that of a new raise (or left alone).
        self.raising = self.reraising = False
        # A frame under disable(recursive=False).
        self.call_out = call_out
        self.eager_frame: Frame | None = None
        # Make the interpreter for code that a graph may not be able to hold, and the one for a function that a node of the graph is to run.
        self.trial: Callable[..., TrialInterp] | None
        self.inside: Callable[..., BodyInterp] | None
        self.trial, self.inside = host.sub_interpreters if host is not None else (None, None)
        # Why the whole capture is given up: raised when the user's code has been left.
        self.abandoned: BaseException | None = None
        # The control rules that hold for this capture; None: there are none.
        self.rules: Rules | None = None
        # How often each has decided something.
        self.fired: Counter[Rule] | None = host.fired if host is not None else None
        # In fake mode: what tensor operators run on.
        self.fakes: Fakes | None = None
        # Such an operator runs: none of the user's.
        self.computing = False
        # Contexts of inference modes that the captured code is in.
        self.inference_modes: list[Any] = []
        self.pause = Pause()
        # Whether writes into tensors may have to be taken back.
        self.undoable = options.breaks != "any"
        # While a call runs natively, at a graph break: what its operators are, for the tally.
        self.outside = ""
        # The call under allow_in_graph that is being run through.
        self.opaque: OpaqueCall | None = None
        # Modes, entered by the captured code alone, in which single numbers in tensors are indices.
        self.indices: list[Any] = []
        # The sub-graphs that are being captured, the innermost last.
        self.subgraphs: list[Any] = []
        self.merged: Any = None  # The condition of which all parts are being computed.
        self.traces = Traces()
        self.stubs: dict = {}
        # What tells this run from others.
        self.marker = object()
        # What of containers, by where they come from, has differed from call to call: the "length", or "numbers" or "texts" alone.
        self.unsteady: Mapping[str, str] = {}

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
        """Starts ``fn``'s frame; -> the frame."""
        if f is not None and f is self.eager_frame and self.call_out is not None:
            call = self.call_out(fn, args, kwargs)
            if call is not None:
                return self.finish(f, self.native(call, (), None), then)
        code = fn.__code__
        info = CODES[code]
        if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
            raise GraphBreak(fn, tuple(args), kwargs, "FL405", f"{fn.__qualname__} is a coroutine function")
        if code in self.lessons.eager_functions and f is not None:
            call_eager_function(self, fn, args, kwargs)
        if self.trace.active:
            see_function(self.trace, fn)
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
        frame = Frame(info, self.link(info), globals_, function.__builtins__, local, f)
        frame.function = fn
        frame.began = self.trace.recorder.calls
        frame.then = then
        self.frame = frame
        self.depth += 1
        if self.depth > self.max_depth:
            check_depth(self)
        return frame

    def finish(self, f: Frame, value: Any, then: Delivery | None = None) -> Frame | None:
        """Delivers a value that is there at once."""
        if then is None:
            f.stack.append(value)
            return None
        try:
            return then.function(self, f, value, then.then, *then.data)
        except GraphBreak as b:
            # It is not of the call that gave the value.
            b.to(then.then)
            raise
        except NotForGraph as e:
            raise InternalError(str(e)) from e

    call = call_value
    call_plainly = call_unruled

    # Ignores the result of a call: passed as its ``then``.
    discard = DISCARD

    def memory(self, t: torch.Tensor) -> torch.Tensor:
        """Returns what the captured code writes into when it writes into ``t``."""
        if self.fakes is None or not is_a(t, torch.Tensor):
            return t
        self.computing = True
        try:
            return self.fakes.twin(t)
        except NotFakeable as e:
            raise Restart("FL515", str(e)) from None
        finally:
            self.computing = False

    def varied(self, f: Frame, values: Any, few: int = 1) -> bool:
        """Returns whether the numbers among ``values``, of which C asks the value, had others here when ``few`` earlier calls were captured.

        Then a program for each value would never end, and the place had better be a graph break; what it gives is known behind that.
        """
        found = [hint(n) for v in values for n in numbers(v)] if self.fakes is not None else []
        if self.trace.unsymbolic:
            found += [v for v in values if type(v) in UNSYMBOLIC and v in self.trace.lazy]
        return bool(found) and None not in found and self.asked(f, found, few)

    def unlike(self, f: Frame, obj: Any) -> bool:
        """Returns whether a container that is about to be read as a whole held others here when earlier calls were captured.

        Numbers that vary are symbols in a container that the segment has not written to.
        """
        trace = self.trace
        if not trace.active or not self.unsteady:
            return False
        src, shown = trace.sources.get(obj), False
        if type(obj) in VIEWS:
            held = gc.get_referents(obj)[0]
            src, shown = (trace.sources[held], False) if held in trace.sources else (src, True)
            obj = held
        text = "" if src is None else member_text(shown_by, src.text()) if shown else src.text()
        what = self.unsteady.get(text) if obj not in trace.expanded else None
        written = obj in trace.mutations.written
        if src is None or what is None or (what == "numbers" and not written):
            return False
        before = trace.mutations.before(obj)
        held = (before.keys() if what == "keys" else before.values()) if is_a(before, dict) else before
        found = [v for v in islice(held, MOST_NUMBERS) if type(v) in TOLD_APART] if written or what in ("keys", "texts") else []
        return self.asked(f, [src.text(), len(before), *found], min(self.few_keys, FEW_CONTENTS))

    def asked(self, f: Frame, found: list, few: int) -> bool:
        """Returns whether other values than those ``found`` were asked for here when ``few`` earlier calls were captured; notes these."""
        place = self._asking_site(f)
        if place is None:
            return False
        seen = self.lessons.asked_numbers.setdefault(place, {})
        # A loop may come here several times in one run.
        others = [known for run, known in seen.items() if run is not self.marker]
        if len(others) >= few and not any([found in known for known in others]):
            self.lessons.asked_outside.add(place)
        own = seen.setdefault(self.marker, [])
        if place not in self.lessons.asked_outside and len(own) < MOST_ASKED:
            own.append(found)
        return place in self.lessons.asked_outside

    def asks_outside(self, f: Frame) -> bool:
        """Returns whether what asks for values here runs eagerly, because it has asked for several."""
        return bool(self.lessons.asked_outside) and self._asking_site(f) in self.lessons.asked_outside

    def _asking_site(self, f: Frame) -> IterationSite | None:
        """Returns the instruction of the user's code that asks for values; None if no graph break may be there."""
        if not self.trace.active or self.opaque is not None or breaks_here(self.options.breaks) != "any":
            return None
        while f.back is not None and is_own(f.info.code):
            f = f.back
        return self.iteration, f.info.code, f.ip - 1

    def only_live(self, graph_break: GraphBreak) -> GraphBreak | Restart:
        """Returns what to raise where fakes can't go on: on the real values, sizes and numbers that vary would be constants, and a graph break keeps them."""
        symbols = self.trace.symbols
        varies = symbols is not None and (symbols.used or symbols.varying.found)
        if varies and breaks_here(self.options.breaks) == "any":
            return graph_break
        return Restart(graph_break.error, graph_break.reason)

    def forget_generators(self) -> None:
        """Closes the interpreter's suspended generators without running them: they continue in the program."""
        for gen in [ref() for ref in self.stand_ins]:
            if type(gen) is InterpretedGenerator:
                gen.state, gen.frame = "closed", None

    def type_of(self, obj: Any) -> type:
        return KINDS.get(type(obj), type(obj))

    def class_value(self, value: Any) -> Any:
        """Returns what is inside a staticmethod, classmethod or property: as fixed as its holder."""
        trace = self.trace
        if trace.active and value not in trace.sources and value not in trace.made and not is_value(value):
            trace.pin(value, getattr(value, "__qualname__", type(value).__qualname__))
        return value

    resume_generator = resume_generator
    leave_generator = leave_generator
    bury = bury
    truth = staticmethod(truth)
    boolean = staticmethod(boolean)
    see_function = staticmethod(see_function)

    def drive(self, gen: InterpretedGenerator, verb: str, value: Any) -> Any:
        """Runs an interpreted generator for native code that asks for its next value; nothing is captured."""
        if type(gen.given) is types.GeneratorType:
            return getattr(gen.given, verb)(value)
        inner = Interpreter(self.options, self.lessons, trace=SegmentTrace(self), call_out=self.call_out)
        inner.trace.active = False
        inner.eager_frame = gen.frame
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
            raise StopIteration(result)
        return result

    # -- the loop ----------------------------------------------------------------------------------------------------
    def run(self, throw: BaseException | None = None) -> Any:
        """Runs ``self.frame`` until the outermost frame returns, and returns its value.

        The frame is not an argument, which a caller's frame may hold until the end (CPython does so where another frame evaluator is
        installed, as torch.compile's is): one that has returned must go, with the generators in its variables.
        """
        self.running = True
        try:
            return self._run(throw)
        finally:
            self.running = False
            while self.dying:
                self.bury(self.dying.pop(0))

    def _run(self, throw: BaseException | None) -> Any:
        f = self.frame if throw is None else self.unwind(throw)
        assert f is not None
        ops, dying, texts = f.ops, self.dying, self.texts
        while True:
            try:
                if self.pending is not None:
                    (value, then), self.pending = self.pending, None
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
                # Nothing has happened yet, and so no generator has been let go.
                self.forget_generators()
                dying.clear()
                raise
            except DataDependentBranch as e:
                f = self.undecided(e)
                ops = f.ops
                continue
            except GraphBreak as graph_break:
                # Its traceback leads to frames that hold it: a cycle.
                graph_break.__traceback__ = graph_break.__context__ = None
                caught: GraphBreak | None = graph_break
            except BaseException as e:
                if self.interrupted_by(e):
                    self.interrupted(e)
                elif is_a(e, FLEETING):
                    self.fleeting(e)
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
        """Cuts the segment here, runs the call, and goes on behind it."""
        if self.merged is not None:
            return self.merged.fail(self, f"one is {graph_break.reason}")
        if self.subgraphs and self.opaque is None:
            give_up_subgraphs(self)
        if self.indices:
            self.fail(graph_break.error, f"{graph_break.reason}, where numbers in tensors are indices", False)
            while self.indices:
                torch._C._push_on_torch_function_stack(self.indices.pop(0))
        if self.opaque is None:
            self.outside = "skipped" if graph_break.error in UNSEEN else "eager"
        try:
            if self.opaque is not None and self.fakes is not None:
                raise Restart(graph_break.error, graph_break.reason)
            if self.opaque is not None:
                opaque = self.opaque
                opaque.meet(self, graph_break)
                value = self.beyond(graph_break)
                opaque.given_by(self, graph_break.fn, value)
            elif graph_break.error == "FL430" and self.resumes and not self.trace.active and self.host is not None:
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
            elif is_a(e, FLEETING):
                self.fleeting(e)
            return self.raised(e)
        finally:
            self.outside = ""
        f = self.frame
        assert f is not None
        self.pending = (value, graph_break.then)
        return f

    @property
    def run_frame(self) -> FrameCaller | None:
        """Returns what calls a function under disable(recursive=False)."""
        return self.host.run_frame if self.host is not None else None

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for what the region refuses."""
        return self.host.refusal(error, text, f, rule) if self.host is not None else Unsupported(text)

    def close(self) -> None:
        """Lets go of all that was alive in the call."""
        self.frame = self.handled = self.host = None

    def fate(self) -> str:
        """Returns what an operator that runs now is to the capture; "": none of the user's."""
        if self.computing:
            return ""
        if self.outside or self.resumes:
            return self.outside or "skipped"
        return OPEN if self.trace.active else "eager"

    def beyond(self, graph_break: GraphBreak) -> Any:
        """Returns what is called at a graph break."""
        if graph_break.raised is not None and self.handled is not None:
            under(self.handled, graph_break.raise_again)
        elif graph_break.raised is not None:
            graph_break.raise_again()
        if self.host is not None and not self.trace.active:
            self.host.before_eager_call(self, graph_break)
        with self.pause.interrupted():
            if graph_break.error == STOPS:
                return call_from(self.frame, graph_break.fn, graph_break.args_, graph_break.kwargs)
            return self.native(graph_break.fn, graph_break.args_, graph_break.kwargs)

    def native(self, fn: Callable, args: tuple, kwargs: dict | None) -> Any:
        """Calls into C, or into Python that is not captured, with the exception that is being handled in place."""
        if self.frame is not None and not (type(fn) is types.BuiltinFunctionType and fn.__module__ in QUIET and fn not in LOOKING):
            args, fn = (fn, *args), self.place()
        if self.handled is None:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        return under(self.handled, fn, *args, **(kwargs or {}))

    def place(self) -> Place:
        """Returns where the user's code is now, for calls that must find it on the stack."""
        return Place(self.frame, self.stubs)

    def note_call(self, name: str, fn: Any, colour: str, operators: int = 0) -> None:
        """Hears of a call that has no frame of its own here, and how many of the last operators are its own: `explain` shows it."""

    def note_operator(self) -> None:
        """Hears that an operator has been recorded."""

    def note_break(self, place: Any) -> None:
        """Hears that the frames are left at a place, which another interpreter may continue from."""

    def note_continuation(self, place: Any) -> None:
        """Hears that the frames have been made that were left at a place."""

    def forget_calls(self) -> None:
        """Hears that what has been captured since the last graph break is captured again."""

    def raised(self, e: BaseException) -> Frame:
        """Handles an exception of an instruction: sets the implicit context, then finds the handler."""
        if self.frame is None:
            raise e
        if self.fakes is not None and type(e) in SPEAKING and any([name in str(e) for name in ("FakeTensor", "SymInt", "SymFloat")]):
            raise Restart("FL515", f"{type(e).__name__}: {e}")
        if e not in self.trace.sources:
            # C may have raised it, with attributes that its class, written in Python, reads.
            self.trace.made.add(e)
        handled = self.handled
        if handled is not None and e is not handled and not self.reraising and (CONTEXT.__get__(e) is None or self.raising):
            link_: BaseException = handled
            while (inner := CONTEXT.__get__(link_)) is not None:
                if inner is e:
                    CONTEXT.__set__(link_, None)
                    break
                link_ = inner
            CONTEXT.__set__(e, handled)
        again, self.reraising, self.raising = self.reraising, False, False
        return self.unwind(e, again)

    def undecided(self, e: DataDependentBranch) -> Frame:
        """Restarts a capture that cannot continue without a number that only the graph knows: the number is then read at a graph break."""
        if breaks_here(self.options.breaks) == "none":
            return self.abandon(self.refusal("FL518", str(e), self.frame))
        raise Restart("FL518", str(e))

    def long_loop(self, f: Frame) -> None:
        """Ends the capture at a long loop without tensor operators in ``f``; from the next call on, the call that leads to it runs eagerly."""
        self.jumps = 0
        caller = f.back
        if caller is not None and caller.info.instructions[caller.ip - 1].name == "CALL" and caller.back is not None:
            self.lessons.eager_sites.add((caller.info.code, caller.ip - 1))
        self.fail("FL427", f"a loop of over {LONG_LOOP} steps without a tensor operator", False)

    def throw(self, e: BaseException, again: bool = False) -> Frame:
        """Raises ``e`` as the ``raise`` statement does; returns the frame that handles it."""
        self.raising, self.reraising = not again, again
        return self.raised(e)

    def fail(self, error: str, text: str, hint: bool) -> None:
        """Gives this segment up: the call goes on, uncaptured. With ``hint`` the place runs eagerly from the next call on."""
        if not self.trace.active:
            return
        if breaks_here(self.options.breaks) != "any" and error not in ("FL426", "FL901") and self.declared(error) is None:
            self.abandoned = self.refusal(error, text, self.frame)
            raise CaptureAborted
        fakes = self.trace.active = self.fakes is not None
        self.trace.global_values.clear()  # Nobody forgets them any more where globals are written.
        self.pause.end()
        self.failure = (error, text)
        f = self.frame
        while f is not None and is_own(f.info.code):
            f = f.back
        if f is not None:
            self.failed_at, self.failed_stack = (f.info.code.co_filename, f.line), user_stack(f)
            if hint:
                self.lessons.eager_sites.add((f.info.code, f.ip - 1))
        if fakes:
            raise Restart(error, text)

    def declared(self, error: str) -> Rule | None:
        """Returns the rule that declares a graph break of that id here."""
        f = user_frame(self.frame)
        if f is None or self.rules is None or breaks_here(self.options.breaks) == "none":
            return None
        return self.rules.decide_break(error, f.info.code, f.globals.get("__name__"))

    def fleeting(self, e: BaseException) -> None:
        """Ends the capture because of ``e``: no program may contain what the user's code makes of it."""
        self.fail("FL426", f"{type(e).__name__} while the call was captured", False)

    def interrupted_by(self, e: BaseException) -> bool:
        """Returns whether ``e`` comes from outside now; what the frames were given, as the exception that they handle, their code raises itself."""
        return e is self.interrupt or (e not in self.trace.sources and asynchronous(e) is e)

    def interrupted(self, e: BaseException) -> None:
        """Has what comes from outside leave the call: on fakes at once, as nothing has happened; else through the user's handlers."""
        self.interrupt = e
        if self.fakes is not None:
            self.leave_at_once(e)
        self.fleeting(e)

    def leave_at_once(self, e: BaseException) -> NoReturn:
        """Raises ``e``; none of the user's code sees it."""
        self.forget_generators()
        self.dying.clear()
        raise e

    def abandon(self, error: BaseException) -> Frame:
        """Leaves the user's code, which sees an exception that only ``finally``, ``with`` and a bare ``except`` handle."""
        self.abandoned = error
        return self.raised(CaptureAborted())

    def unwind(self, e: BaseException, again: bool = False) -> Frame:
        """Finds the frame that handles ``e``; raises it when none does."""
        f = self.frame
        if self.merged is not None:
            raise Restart("FL518", f"a part of a condition raises {type(e).__name__}")
        while f is not None:
            f.kwnames = ()
            if type(e) is not StopIteration and not again:
                self.traces.note(e, f)
            again = False
            h = f.info.handler_at(f.ip - 1)
            if h is not None:
                del f.stack[h.depth :]
                if h.lasti:
                    f.stack.append(f.ip - 1)
                f.stack.append(e)
                f.ip = h.target
                self.traces.write(e, self.trace)
                self.frame = f
                return f
            self.depth -= 1
            left(self, f, e)
            # Generators that only the stack holds run their ``finally`` now; the traceback keeps the variables alive, and nothing else.
            f.stack.clear()
            if self.opaque is not None and self.opaque.frame is f:
                self.opaque.raised(self)
            if self.subgraphs:
                give_up_subgraphs(self, f)
            on_stop = f.on_stop
            if f.generator is not None:
                back = self.leave_generator(f, "closed")
                if is_a(e, StopIteration):
                    e = stopped(e)
            else:
                back = f.back
                if on_stop is not None and back is not None and is_a(e, StopIteration):
                    self.frame = back
                    return ended(self, back, on_stop, e) or back
            f = back
        self.frame = f = None
        self.traces.write(e, self.trace)
        if self.dying:
            return raise_behind_dying(self, e)
        context = CONTEXT.__get__(e)
        try:
            raise e
        finally:
            # The raise above sets the context of what is being handled around the region; inside, it was set already.
            if context is not None:
                CONTEXT.__set__(e, context)
