"""A compiled region: its function, options, programs and budget, and the capture of a call that no program fits."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import types
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from fineline.backends.eager import as_it_is
from fineline.backends.invoke import compile_graph
from fineline.backends.lock import TRACERS, TracersBusy
from fineline.backends.registry import Backend
from fineline.backends.structured import TRACE
from fineline.bytecode.asynchronous import asynchronous, clear_frames_of, from_outside
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.bytecode.handlers import take_away_stand_ins
from fineline.codegen.continuation import goes_on, run_on
from fineline.codegen.node_metadata import Description, GraphPlace, place_of_graph
from fineline.codegen.residual_program import ResidualProgram, ResidualWriter
from fineline.errors import BackendFailed, FinelineError, InternalError, Recompiled, RecompileLimit, Unsupported, caller
from fineline.exception_slots import TRACEBACK, told
from fineline.frames.graph_breaks import RestartSpecialized
from fineline.fx.graph_equality import outputs_as
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.size_facts import Kinds
from fineline.guards.facts import AMBIENT
from fineline.guards.policy_epoch import RULEBOOK
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.policy.rule import Rule
from fineline.policy.scope_stack import SCOPE
from fineline.policy.stance import STANCES
from fineline.refusals import REFUSALS
from fineline.region.capture_session import CaptureSession
from fineline.region.descriptions import call_stack, describe_miss, place_of, subject
from fineline.region.disabled_frames import FrameRunner
from fineline.region.dynamic_dims import DynamicDims, marked
from fineline.region.entry_point import EntryPoint
from fineline.region.loop_merging import FEW_CALLS, LoopIterations
from fineline.region.options import GuardFailure, Options
from fineline.region.retry import leave_out, start_anew
from fineline.region.rollback import take_back
from fineline.region.saved_tensor_hooks import hooks_active, saved_plainly
from fineline.region.stances import instead
from fineline.report.events import LISTENERS, Event
from fineline.report.logs import LOGS
from fineline.report.operator_counter import OperatorCounts, Tally
from fineline.report.tree import Node
from fineline.stacks import StackPlace, to_the_user
from fineline.tensor_ops.user_modes import watching
from fineline.torch_facts.thread_state import CallState, Standing, restore
from fineline.tracing.interp import CaptureHost
from fineline.tracing.lessons import Lessons
from fineline.tracing.symbols import Symbols
from fineline.tracing.tracebacks import without_own_frames

log = logging.getLogger("fineline")

# Whose frames hold nothing of the user's.
_INSIDE = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep, contextlib.__file__)
# If the rests of so many calls ran eagerly after a graph break, and took this share of the time, such calls had better begin eagerly.
RESTS, MOST_OF_TIME = 8, 0.25


class Region:
    """One compiled callable."""

    def __init__(self, fn: Callable, backend: Backend, options: Options, lessons: Lessons | None = None) -> None:
        self.fn = fn
        self.name: str = options.name or getattr(fn, "__qualname__", "") or type(fn).__qualname__
        self.backend = backend
        self.options = options
        self.lessons = Lessons() if lessons is None else lessons
        self.made = time.monotonic_ns()
        self.lock = threading.RLock()
        self.capturing: int | None = None
        # What has come from outside into a capture, and is leaving it.
        self.interrupt: BaseException | None = None
        self.programs = 0
        # How often all of these have been given up for better ones, and how many those were: they do not count against the limit.
        self.starts = self.uncounted = 0
        # The call that was counted last; None for one whose own entry was captured.
        self.counted: object = None
        self.failures = 0
        self.eager_reason: str | None = None
        # When the rests of calls began and ended that ran eagerly after a graph break, as the limit was reached.
        self.rests: deque[tuple[float, float]] = deque(maxlen=RESTS)
        # Which guards calls have failed, and how often.
        self.missed: Counter[str] = Counter()
        self.said: set[str] = set()
        self.run_frame = FrameRunner(weakref.WeakMethod(self.child), options, self.lessons)
        self.events: list[Event] = []
        self.graphs: list[GraphModule] = []
        # What the backend has compiled: with the graph's place in the code, where the backend is the user's.
        self.compiled: list[tuple[GraphModule, Kinds, GraphPlace, Callable]] = []
        self.rules_of_process = RULEBOOK.facts()[0]
        # How often each rule has decided something, over all captures.
        self.fired: Counter[Rule] = Counter()
        # Counts operators, for explain and reports of whole programs.
        self.tally: OperatorCounts | None = None
        # Writes the programs.
        self.writer: Callable[[Any, str], ResidualWriter] = ResidualWriter
        # Makes the interpreters, for explain; the calls that they have met, where a report of them is wanted.
        self.make_interpreter: Callable[[Options, Lessons, CaptureHost], Interpreter] = Interpreter
        self.tree: Callable[[], Node] | None = None
        # Calls that a cache of the user's has seen in an attempt that is about to be made anew, which is not to make them again.
        self.ahead: list[tuple[Any, Any]] = []
        # Under a stance that forces another backend: the dispatchers of regions that stand in, and for which stance this is one.
        self.others: dict[Any, Callable] = {}
        self.stands_for: Any = None
        self.had_first_call = False
        # What varies, by the place after a graph break; the programs that lead there are many.
        self.varying: dict[Any, DynamicDims] = {}
        self.entry = EntryPoint(self, None, False)
        self.entry_points = [self.entry]
        # The dispatchers of those that loops go back to, and what is known of the iterations.
        self.loops: dict[EntryPoint, Any] = {}
        self.iterations = LoopIterations()
        self.eager_under_hooks = False
        self.refuse = self._refusal()
        _ALL.add(self)

    def miss(self, args: tuple, kwargs: dict) -> Any:
        state = CallState()
        try:
            return self._captured(args, kwargs) if self.tally is None else self._counted_miss(args, kwargs)
        except BaseException as e:
            if self._stopped_by(e):
                state.put_back()
            if not is_a(e, InternalError):
                TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
            raise

    def _captured(self, args: tuple, kwargs: dict) -> Any:
        out = self.capture(self.entry, args, kwargs)
        return run_on(out) if goes_on(out) else out

    def _counted_miss(self, args: tuple, kwargs: dict) -> Any:
        assert self.tally is not None
        try:
            return self.tally.during("skipped", self._captured, args, kwargs)
        finally:
            if "counts" not in self.said:
                # Where nothing is captured, too.
                self.said.add("counts")
                self.tell_tree()

    def failed(self, error: BaseException, program: Any) -> None:
        """Restores PyTorch's state if ``error``, which a call that fits ``program`` raises, comes from outside."""
        if self._stopped_by(error):
            for op, _, _, facts in program.steps:
                if op == "ambient":
                    restore(facts)
            TRACEBACK.__set__(error, without_own_frames(TRACEBACK.__get__(error)))

    def _stopped_by(self, error: BaseException) -> bool:
        """Returns whether ``error`` has come from outside, and interrupted a call anywhere."""
        stopped = error is self.interrupt or from_outside(error)
        self.interrupt = None
        if stopped:
            take_away_stand_ins()
            # What waits in the frames of PyTorch's own for its end changes its state when it gets there.
            clear_frames_of(error, _INSIDE)
        return stopped

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry.dispatcher(*args, **kwargs)

    def forget(self) -> None:
        """Drops all programs; the next call captures anew."""
        with self.lock:
            # The dispatcher itself stays: it is what the compiled callable holds.
            self.entry.dispatcher.set_entries([])
            self.entry.segments.clear()
            self.entry_points = [self.entry]
            self.loops.clear()
            self.iterations.forget()
            self.varying = {None: self.entry.varying}
            self.programs = self.failures = self.starts = self.uncounted = 0
            self.eager_reason = None
            self.rests.clear()
            self.missed.clear()
            self.said.clear()
            self.run_frame.children.clear()
            self.events.clear()
            self.graphs.clear()
            self.compiled.clear()
            self.lessons.forget_sites()
            self.others.clear()
            self.had_first_call = self.eager_under_hooks = False

    def close_loop(self, own: EntryPoint, earlier: EntryPoint) -> None:
        """Replaces an ``own`` entry point by an ``earlier`` one, which closes a loop."""
        earlier.met, self.loops[earlier] = True, earlier.dispatcher
        if own in self.entry_points:
            self.entry_points.remove(own)

    def segments(self) -> list[ResidualProgram]:
        """Returns all programs, in the order of the entry points' making."""
        return [s for entry_point in self.entry_points for s in entry_point.segments]

    def _refusal(self) -> str | None:
        """Returns why calls of this function are never captured; None if they may be."""
        fn = self.fn
        fn = fn.__func__ if is_a(fn, types.MethodType) else fn
        code = getattr(fn, "__code__", None)
        if code is not None and code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
            return f"{fn.__qualname__} is an async function"
        if code is not None and code.co_flags & CO_GENERATOR:
            return f"{fn.__qualname__} is a generator function"
        return None

    @property
    def shows_graphs(self) -> bool:
        """Returns whether anybody is going to look into the graphs: a backend, or who reads PyTorch's structured trace."""
        return bool(self.backend.sees_graphs or TRACE.is_read)

    # -- capture -------------------------------------------------------------------------------------------------------
    def capture(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Any:
        """Captures a call that fits no program at ``entry_point``, or runs it eagerly."""
        me = threading.get_ident()
        if self.capturing == me and entry_point is self.entry:
            return self.fn(*args, **kwargs)
        stance = STANCES.here()
        if stance is not None:
            run = instead(self, stance, entry_point, args, kwargs)
            if run is not None:
                return run()
        # The user's code runs under the lock: to wait for another thread that captures could be to wait for ever.
        locked: list[bool] = []
        try:
            # One call into C: no exception from outside can come between the lock and the note of it.
            locked.extend(map(self.lock.acquire, (False,)))
            if not locked[0]:
                self._note_once(Event("skipped", "FL406", "another thread captures a call of this region", *place_of(self.fn)))
                return self.run_eagerly(entry_point, args, kwargs)
            if entry_point.dispatcher.entries and self.capturing is None and entry_point is self.entry:
                # Another thread may have captured just this in the meantime.
                found = self._retry(entry_point, args, kwargs)
                if found is not None:
                    return found[0]()
            if entry_point is not self.entry and (None in SCOPE.blocks or watching()):
                entry_point.blocked = True
            if self.options.renew():
                for varying in self.varying.values():
                    varying.dynamic = self.options.dynamic
            if self.options.disable:
                self._note_once(Event("skipped", "FL406", "torch._dynamo.config.disable is set", *place_of(self.fn)))
            if entry_point.blocked or self.options.disable:
                return self.run_eagerly(entry_point, args, kwargs)
            if entry_point is self.entry:
                self._follow_rules()
                reason = self.refuse or self.eager_reason or self._ambient_refusal()
                if reason is not None:
                    self._note_skipped(reason)
                    return self.fn(*args, **kwargs)
                counted = self.programs - self.uncounted
                if counted >= self.options.recompile_limit and not self._leaves_out(entry_point, args, kwargs):
                    self._at_limit(counted, entry_point, args, kwargs)
                    return self.fn(*args, **kwargs)
            elif len(entry_point.segments) >= self.options.recompile_limit and entry_point in self.loops and len(entry_point.calls) <= FEW_CALLS:
                text = f"{len(entry_point.segments)} programs for the iterations of a loop, with a recompile_limit of {self.options.recompile_limit}"
                text += f"; from the next call on each iteration has its own; last miss: {self.why_missed(entry_point, args, kwargs)}"
                self._note(Event("limit", "FL104", text, *self._place_of_entry_point(entry_point), detail=self._stack(entry_point)))
                self.iterations.unroll(entry_point)
                start_anew(self)
                return self.run_eagerly(entry_point, args, kwargs)
            elif len(entry_point.segments) >= self.options.recompile_limit:
                if not self._leaves_out(entry_point, args, kwargs):
                    self._at_limit(len(entry_point.segments), entry_point, args, kwargs)
                return self._rest(entry_point, args, kwargs)
            elif self.eager_reason is not None:
                return self._rest(entry_point, args, kwargs)
            entry_point.observe(args, kwargs)
            # The iterations of a loop that is being captured are one call.
            if (entry_point.segments and self.capturing != me) or (entry_point is self.entry and self.programs):
                why = self.why_missed(entry_point, args, kwargs)
                if self.options.error_on_recompile:
                    raise Recompiled(why, id="FL109", **self._position(entry_point))
                self._note(Event("recompile", "FL407", why, *self._place_of_entry_point(entry_point), detail=self._stack(entry_point)))
                if self.options.guard_fail_fn is not None:
                    self.options.guard_fail_fn(GuardFailure(why, getattr(self.fn, "__code__", None)))
            trial = entry_point is self.entry and hooks_active()
            if trial and self.eager_under_hooks:
                return self.fn(*args, **kwargs)
            before, self.capturing = self.capturing, me
            try:
                if not trial:
                    try:
                        return CaptureSession(self, entry_point, args, kwargs).go()
                    except TracersBusy as e:
                        self._note_once(Event("skipped", "FL406", str(e), *place_of(self.fn)))
                    return self.run_eagerly(entry_point, args, kwargs)
                with saved_plainly():
                    attempt = CaptureSession(self, entry_point, args, kwargs, live=True, trial=True)
                    attempt.go()
            finally:
                self.capturing = before
            found = self._retry(entry_point, args, kwargs) if attempt.kept else None
            if found is not None:
                return found[0]()
            self.eager_under_hooks = True
            text = "under hooks on saved tensors, calls with graph breaks run eagerly"
            self._note_once(Event("skipped", "FL406", text, *place_of(self.fn)))
            return self.fn(*args, **kwargs)
        finally:
            if locked and locked[0]:
                self.lock.release()

    def once(self, args: tuple, kwargs: dict) -> None:
        """Captures one call, of which nothing remains but what the region's ``writer`` makes of it."""
        reason = self.refuse or self._ambient_refusal()
        if reason is not None:
            raise Unsupported(reason, where="{}:{}".format(*place_of(self.fn)))
        run = CaptureSession(self, self.entry, args, kwargs, trial=True)
        try:
            run.go()
        except RestartSpecialized:
            self.once(args, kwargs)
            return
        except FinelineError:
            raise
        except BaseException as e:
            take_back(run)
            TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
            raise
        if not run.kept and self.events:
            last = self.events[-1]
            raise Unsupported(last.reason, where=last.where)

    def symbols(self, interp: Interpreter, entry_point: EntryPoint, args: tuple, kwargs: dict, fake: bool) -> Symbols | None:
        """Returns what a new capture runs on, unless it is the real tensors; ``fake``: in any case."""
        own = self.options
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            return None
        scalars, shaped = own.capture_scalar_outputs, own.capture_dynamic_output_shape_ops
        live = own.first_call == "live" and not self.lessons.compiled_first_call
        if live and not (fake or scalars or shaped or entry_point.symbolic(args, kwargs) or marked((*args, *kwargs.values()))):
            return None
        return Symbols(interp, entry_point.varying, scalars or own.fullgraph, shaped or own.fullgraph, entry_point is not self.entry)

    def run_eagerly(self, entry_point: EntryPoint, args: tuple, kwargs: dict, thrown: BaseException | None = None) -> Any:
        """Runs the rest of a call from ``entry_point`` on without capturing; raises ``thrown`` there, if given."""
        if entry_point is self.entry:
            return self.fn(*args, **kwargs)
        run = CaptureSession(self, entry_point, args, kwargs, False)
        if thrown is not None:
            run.interp.pending, run.stop = None, thrown
        return run.go()

    def _rest(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Any:
        """Runs the rest of a call from ``entry_point`` on, where nothing is captured any more.

        The interpreter is some 50 times slower than Python: where calls spend their time in it, they are eager from their start.
        """
        began = time.monotonic()
        try:
            return self.run_eagerly(entry_point, args, kwargs)
        finally:
            now = time.monotonic()
            self.rests.append((began, now))
            taken = sum([end - start for start, end in self.rests])
            if len(self.rests) == RESTS and taken > MOST_OF_TIME * (now - self.rests[0][0]):
                self.entry.dispatcher.set_entries([])
                self.rests.clear()
                if self.eager_reason is None:
                    self.eager_reason = f"the rests of {RESTS} calls fitted no program behind a graph break; calls are eager from their start now"
                    self._note(Event("limit", "FL104", self.eager_reason, *self._place_of_entry_point(entry_point), detail=self._stack(entry_point)))

    def _retry(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> tuple[Callable] | None:
        roots = (*args, *kwargs.values())
        names = tuple(kwargs)
        for nargs, kwnames, program, target in entry_point.dispatcher.entries:
            if nargs == len(args) and kwnames == names:
                got = program.check(roots)
                if got is not None:
                    return (lambda: target(*got),)  # noqa: B023  (called at once by the caller)
        return None

    def _follow_rules(self) -> None:
        """Programs that were captured under other rules of the process fit no call any more."""
        process, _ = RULEBOOK.facts()
        if self.rules_of_process != process:
            if self.programs:
                self.forget()
            self.rules_of_process = process

    def _ambient_refusal(self) -> str | None:
        if None in SCOPE.blocks:
            return "the call is made in a with disable() block"
        if (mode := watching()) is not None:
            return mode
        if torch._C._get_tracing_state() is not None:
            return "torch.jit.trace is active"
        if is_fx_symbolic_tracing():
            return "torch.fx traces the call"
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "the call is made inside a torch.func transform"
        return None

    def _failing(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> tuple[ResidualProgram, int] | None:
        """Returns the newest program whose guards fail for a call, and the number of the guard."""
        roots = (*args, *kwargs.values())
        for (nargs, kwnames, program, _), segment in zip(entry_point.dispatcher.entries, reversed(entry_point.segments), strict=False):
            if nargs == len(args) and kwnames == tuple(kwargs) and (at := program.failing(roots)) >= 0:
                return segment, at
        return None

    def why_missed(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> str:
        found = self._failing(entry_point, args, kwargs)
        if found is not None:
            self.missed[subject(*found)] += 1
            return describe_miss(*found, (*args, *kwargs.values()))
        if not entry_point.segments:
            given_up = "its programs were given up when some of the code was found to run better eagerly"
            return given_up if self.programs else "no program has been made yet"
        return "the call's arguments are given in another way"

    def _place_of_entry_point(self, entry_point: EntryPoint) -> tuple[str, int]:
        return entry_point.frame_state.place if entry_point.frame_state is not None and entry_point.frame_state.place[0] else place_of(self.fn)

    def _stack(self, entry_point: EntryPoint) -> dict[str, tuple[StackPlace, ...]]:
        """Returns an event's frames from the user's call to ``entry_point``."""
        return {"stack": call_stack(self.fn, entry_point.frame_state)}

    def _position(self, entry_point: EntryPoint) -> dict[str, Any]:
        """Returns where an error at ``entry_point`` is, and the frames on the way there."""
        return {"where": "{}:{}".format(*self._place_of_entry_point(entry_point)), **self._stack(entry_point)}

    def _leaves_out(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> bool:
        """Makes a function that needs a program for each value run eagerly from the next capture on; returns whether there is one."""
        # What is left out is a graph break, which has to be allowed.
        if self.options.limit_is_error or self.options.error_on_recompile or self.options.breaks != "any":
            return False
        found = self._failing(entry_point, args, kwargs)
        place = found[0].reads.place(found[1]) if found is not None else None
        name = leave_out(self, entry_point, (*args, *kwargs.values()), place[0].code if place is not None else None)
        if not name:
            return False
        text = f"{name} has a program for each value, {self.options.recompile_limit} so far; from the next call on it runs eagerly by itself"
        self._note(Event("eager", "FL448", text, *self._place_of_entry_point(entry_point), detail=self._stack(entry_point)))
        start_anew(self)
        return True

    def _at_limit(self, programs: int, entry_point: EntryPoint, args: tuple, kwargs: dict) -> None:
        """Says once that nothing more is captured, and why; under ``fullgraph`` an error at each such call."""
        if "limit" in self.said and not self.options.limit_is_error:
            return
        why = self.why_missed(entry_point, args, kwargs)
        most = self.missed.most_common(1)
        often = f"; the guard that fails most: {most[0][0]}" if most else ""
        if self.options.limit_is_error:
            reason = f"{programs} programs, recompile_limit={self.options.recompile_limit}; {why}{often}"
            raise RecompileLimit(reason, **self._position(entry_point))
        self.said.add("limit")
        limit = self.options.recompile_limit
        reason = f"{programs} programs, with a recompile_limit of {limit}; calls that fit none of them run eagerly{often}"
        self._note(Event("limit", "FL104", reason, *self._place_of_entry_point(entry_point), detail=self._stack(entry_point)))
        where = "{}:{}".format(*self._place_of_entry_point(entry_point))
        log.warning("fineline: %s has %s; last miss: %s. %s", where, reason, why, REFUSALS["FL104"].next_step)

    def graph_failed(self, error: BaseException, times: int) -> None:
        """Reports that a compiled graph has raised, for the ``times``-th time, and the code that it was captured from does not."""
        where, text = "{}:{}".format(*place_of(self.fn)), told(error)
        self._note_once(Event("eager", "FL304", text, *place_of(self.fn)))
        if times > 1 and not self.options.fall_back:
            reason = f"a compiled graph failed for the second time: {text}" if times == 2 else f"a compiled graph failed again: {text}"
            raise BackendFailed(reason, id="FL304", where=where, stack=call_stack(self.fn, None)) from error
        log.warning("fineline: %s: a compiled graph failed; the call ran eagerly: %s", where, text.partition("\n")[0])

    def _note_skipped(self, reason: str) -> None:
        """Reports a call of which nothing is captured."""
        rule = SCOPE.disabled_by if not (self.refuse or self.eager_reason) else None
        if rule is None:
            self._note_once(Event("skipped", "FL405" if self.refuse else "FL406", reason, *place_of(self.fn)))
            return
        self.fired[rule] += 1
        file, _, line = caller().rpartition(":")
        self._note_once(Event("skipped", "FL406", reason, file, int(line or 0), str(rule), detail={"stack": to_the_user()}))
        self.tell_rules()

    def tell_rules(self) -> None:
        self.tell(Event("rules", "FL003", "rules that were met", *place_of(self.fn), detail={"fired": self.fired}))

    def tell_tree(self) -> None:
        """Passes the tree of calls and the counts to listeners; both may still grow."""
        if self.tree is not None or self.tally is not None:
            detail = {"tree": self.tree, "of": id(self), "ran": self.tally.counts if self.tally is not None else None}
            self.tell(Event("tree", "FL004", "calls that were captured", *place_of(self.fn), detail=detail))

    def _note_once(self, event: Event) -> None:
        known = f"{event.reason} {event.where}"
        if known not in self.said:
            self.said.add(known)
            self._note(event)

    def _note(self, event: Event) -> None:
        if event.kind != "graph" and not event.stack and (event.file, event.line) == place_of(self.fn):
            # It is about the call of the function.
            event = replace(event, detail={**event.detail, "stack": call_stack(self.fn, None)})
        event = self.tell(event)
        if len(self.events) < 10_000:
            self.events.append(event)

    def tell(self, event: Event) -> Event:
        """Passes an event to the logs and the listeners."""
        event = replace(event, region=self.name)
        LOGS.hear(event)
        LISTENERS.tell(event)
        return event

    def child(self, fn: Callable) -> Callable:
        """Returns a region for what such a function calls: its dispatcher."""
        own = self.options
        region = Region(fn, self.backend, replace(own, name=None), self.lessons.of_alike())
        self.watch_alike(region)
        region.fired = self.fired
        return region.entry.dispatcher

    def watch_alike(self, region: Region) -> None:
        """Has the calls of another region be seen by who sees those of this one."""
        region.tally, region.make_interpreter = self.tally and self.tally.of_another(), self.make_interpreter

    @property
    def min_graph_operators(self) -> int:
        own = self.options.min_graph_operators
        return self.backend.min_graph_operators if own is None else own

    def compile_graph(self, gm: CapturedGraph, examples: list, kinds: Kinds | None) -> Callable:
        """Hands a graph to the backend, unless that has compiled an equal one for inputs of the same kinds.

        A user's own backend gets each graph that lies at another place in the code, however equal: what it makes may depend on that.
        A known graph with more outputs serves too; then ``gm`` gets the same outputs.
        """
        place = () if self.backend.builtin else place_of_graph(gm._graph)
        for known, its_kinds, its_place, compiled in self.compiled:
            outputs = None if kinds is None or its_place != place else outputs_as(known._graph, gm._graph)
            if outputs is not None and kinds is not None and kinds.take_over(its_kinds):
                gm._graph.output_node().args = (outputs,)
                return compiled
        self.graphs.append(gm)
        plain = self.backend.name == "eager"
        state, stop = Standing(AMBIENT.now()) if plain else CallState(), None
        at = place_of(self.fn)
        if self.shows_graphs or is_a(self.tally, Tally):
            Description(gm, examples, self.shows_graphs)
        try:
            where = ":".join(map(str, at))
            with TRACE.graph(self, len(self.graphs) - 1, gm, [(*at, self.name)]):
                if plain:
                    compiled = compile_graph(self.backend, gm, examples, where)
                else:
                    compiled = TRACERS.holding(compile_graph, self.backend, gm, examples, where)
        except BaseException as e:
            # What has come from outside may have gone through the hands of compilers.
            stop = asynchronous(e)
            if stop is not None:
                clear_frames_of(e, _INSIDE)
            # AOTAutograd that fails inside of a transform of the graph does not leave it.
            state.put_back()
            if is_a(e, TracersBusy):
                # The next graph that is like this one is compiled.
                self._note(Event("eager", "FL435", str(e), *place_of(self.fn)))
                return as_it_is(gm)
            if stop is None:
                if is_a(e, FinelineError):
                    e.stack = e.stack or call_stack(self.fn, None)
                if not is_a(e, BackendFailed) or not self.options.suppress_errors:
                    raise
                self._note(Event("eager", e.id, e.reason, *place_of(self.fn)))
                log.warning("fineline: %s:%s: a graph runs as it was captured (suppress_errors): %s", *place_of(self.fn), e.reason)
                compiled = as_it_is(gm)
        if stop is not None:
            try:
                raise stop
            finally:
                # Its traceback leads here.
                del stop
        if kinds is not None:
            if kinds.sizes is not None:
                kinds.sizes.compiled()
            self.compiled.append((gm, kinds, place, compiled))
        return compiled


# All regions of the process: a forked child has none of the threads that may hold their locks.
_ALL: weakref.WeakSet[Region] = weakref.WeakSet()


def _forked() -> None:
    for region in list(_ALL):
        region.lock = threading.RLock()
        region.capturing = None
        if region.tally is not None:
            # They are the parent's.
            region.tally.counts.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)
