"""A compiled region: its parts, and the way in which a call that no program fits is captured or runs eagerly."""

from __future__ import annotations

import gc
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from fineline.backends.lock import TRACERS, TracersBusy
from fineline.backends.registry import Backend
from fineline.background.queue import QUEUE
from fineline.bytecode.asynchronous import clear_frames_of, from_outside
from fineline.bytecode.handlers import take_away_stand_ins
from fineline.codegen.continuation import is_continued, run_on, running_call
from fineline.codegen.programs import ResidualProgram
from fineline.codegen.residual_program import ResidualWriter
from fineline.distributed.rank_check import RankCheck
from fineline.errors import FinelineError, InternalError, Recompiled, Unsupported
from fineline.exception_slots import TRACEBACK
from fineline.frames.graph_breaks import CaptureEnded, RestartSpecialized
from fineline.frames.graph_limits import GraphLimits
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.policy.scope_stack import SCOPE
from fineline.policy.stance import STANCES
from fineline.region import background_capture
from fineline.region.background_capture import EagerRun
from fineline.region.budget import RESTS, Budget, EagerReasons, ambient_refusal
from fineline.region.capture_state import CaptureState
from fineline.region.descriptions import describe_program, name_of
from fineline.region.disabled_frames import FrameRunner
from fineline.region.dynamic_dims import marked
from fineline.region.entry_point import EntryPoint
from fineline.region.entry_points import EntryPoints, Storage
from fineline.region.graphs.compiled_graphs import INSIDE, CompiledGraphs
from fineline.region.interface import CapturingRegion
from fineline.region.loop_merging import FEW_CALLS
from fineline.region.options import GuardFailure, Options
from fineline.region.reports import Reports
from fineline.region.saved_tensor_hooks import hooks_active, saved_plainly
from fineline.region.session.capture_session import CaptureSession, Mode
from fineline.region.session.retry import leaves_out, start_anew
from fineline.region.sharing.adoption import adopt
from fineline.region.sharing.shared_programs import shared_by
from fineline.region.stances import Stances
from fineline.region.watch import UNWATCHED, Watch
from fineline.report.events import Event, ShownRule
from fineline.report.programs import KeptProgram
from fineline.tensor_ops.user_modes import watching
from fineline.torch_facts.function_modes import mode_stack, sees_operators
from fineline.torch_facts.thread_state import CallState, restore
from fineline.tracing.lessons import Lessons
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.symbols import Symbols
from fineline.tracing.tracebacks import without_own_frames


class Region:
    """One compiled callable: a function with its options, the lessons and programs of its captures, and its reports.

    The compiled callable holds the dispatcher of the region's ``entry``. The dispatcher tries the programs that start there, and calls `miss`
    if none fits. A call then runs eagerly, or a `CaptureSession` captures it: it adds programs to the entry points, for later calls.
    After a graph break a program continues at another entry point, whose dispatcher calls `capture` if none of its programs fits.
    """

    def __init__(
        self, fn: Callable, backend: Backend, options: Options, lessons: Lessons | None = None, watch: Watch | None = None,
        writer: Callable[[SegmentTrace, str], ResidualWriter] = ResidualWriter, fired: Counter[ShownRule] | None = None, stances: Stances | None = None,
        shares: bool = False, storage: Storage[CapturingRegion] | None = None,
    ) -> None:  # fmt: skip
        """Makes a region without programs. ``writer`` writes these; ``fired``: the rule counts of a region that this one is part of.

        ``shares``: whether its programs are for the regions of equal callables, too, and theirs for it. ``storage``: keeps its programs.
        """
        self.fn = fn
        # The user's options, and the lessons of captures.
        self.options = options
        self.lessons = Lessons() if lessons is None else lessons
        self.watch = UNWATCHED if watch is None else watch
        self.writer = writer
        self.reports = Reports(fn, options.name or name_of(fn), Counter() if fired is None else fired)
        # The parts that decide whether, and how, a call is captured.
        self.state = CaptureState()
        self.budget = Budget(options, self.reports)
        self.eager = EagerReasons(fn, options, self.reports)
        self.stances = stances or Stances()
        # The results of captures.
        self.graphs = CompiledGraphs(fn, backend, options, self.reports, self.watch, weakref.WeakMethod(self.capture_anew), storage is not None)
        # Compares the first call between processes, captures of their own; None: nobody has asked for that.
        self.ranks = RankCheck(self.reports.name, self.reports.where) if options.check_ranks else None
        self.entry_points = EntryPoints(self, options, shared_by(fn) if shares and self.ranks is None else None, storage)
        # The entry point at which calls begin.
        self.entry = self.entry_points.first
        # Calls functions whose own frame is not captured.
        self.run_frame = FrameRunner(weakref.WeakMethod(self.child), options, self.lessons)

    @property
    def name(self) -> str:
        return self.reports.name

    @property
    def backend(self) -> Backend:
        return self.graphs.backend

    def segments(self) -> list[ResidualProgram]:
        """Returns all programs, in the order of their entry points."""
        return self.entry_points.segments()

    def programs(self) -> list[KeptProgram]:
        """Returns all programs as reports show them."""
        noted = self.watch.recording.measures if self.watch.recording is not None else {}
        return [describe_program(segment, noted.get(segment.unbound.text)) for segment in self.segments()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry.dispatcher(*args, **kwargs)

    def forget(self) -> None:
        """Drops all programs and lessons, so that the next call is captured again."""
        with self.state:
            self.entry_points.forget()
            self.budget.forget()
            self.eager.forget()
            self.reports.forget()
            self.graphs.forget()
            self.stances.forget()
            self.state.background.forget()
            self.run_frame.forget()
            self.lessons.forget_sites()

    # -- a call that no program fits -----------------------------------------------------------------------------------
    def miss(self, args: tuple, kwargs: dict) -> Any:
        """Runs a call that fits no program, for the dispatcher."""
        state = CallState()
        try:
            out = self._captured(args, kwargs) if self.watch.tally is None else self._counted_miss(args, kwargs)
            if self.entry_points.storage is not None:
                self.entry_points.storage.keep(self)
            return out
        except BaseException as e:
            if self._stopped_by(e):
                state.put_back()
            if not is_a(e, InternalError):
                TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
            raise

    def _captured(self, args: tuple, kwargs: dict) -> Any:
        if self.ranks is None or not self.ranks.begin():
            return self._captured_here(args, kwargs)
        try:
            result = self._captured_here(args, kwargs)
        except BaseException as e:
            self.ranks.end(self.reports.events, e)
            raise
        self.ranks.end(self.reports.events, None)
        return result

    def _captured_here(self, args: tuple, kwargs: dict) -> Any:
        out = self.capture(self.entry, args, kwargs)
        return run_on(out) if is_continued(out) else out

    def _counted_miss(self, args: tuple, kwargs: dict) -> Any:
        assert self.watch.tally is not None
        try:
            return self.watch.tally.during("skipped", self._captured, args, kwargs)
        finally:
            if self.reports.is_first("counts"):
                # Also if nothing is captured.
                self.reports.tell_tree(self.watch)

    def failed(self, error: BaseException, program: ResidualProgram) -> None:
        """Restores PyTorch's state if ``error``, which a call that fits ``program`` raises, comes from outside."""
        if self._stopped_by(error):
            for op, _, _, facts in program.steps:
                if op == "ambient":
                    restore(facts)
            TRACEBACK.__set__(error, without_own_frames(TRACEBACK.__get__(error)))

    def _stopped_by(self, error: BaseException) -> bool:
        """Returns whether ``error`` has come from outside, and interrupted a call anywhere."""
        stopped = self.state.was_interrupted_by(error) or from_outside(error)
        if stopped:
            take_away_stand_ins()
            # The context managers in PyTorch's own frames would change its state when they are freed.
            clear_frames_of(error, INSIDE)
        return stopped

    # -- capture -------------------------------------------------------------------------------------------------------
    def capture(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Any:
        """Captures a call that fits no program at ``entry_point``, or runs it eagerly."""
        if self.state.is_in_this_thread and entry_point is self.entry:
            return self.fn(*args, **kwargs)
        stance = STANCES.here()
        if stance is not None:
            run = self.stances.instead(self, stance, entry_point, args, kwargs)
            if run is not None:
                return run()
        locked: list[bool] = []
        try:
            self.state.try_lock(locked)
            if locked[0]:
                out = self._capture_alone(entry_point, args, kwargs)
                if type(out) is not EagerRun:
                    return out
                # It runs when other threads may capture again.
                self.state.unlock()
                locked[0] = False
                return background_capture.run(self, out, args, kwargs)
            if self.state.background.is_pending and entry_point is self.entry:
                return background_capture.run(self, EagerRun(), args, kwargs)
            self.reports.note_call_once("skipped", "FL406", "another thread captures a call of this region")
            return self.run_eagerly(entry_point, args, kwargs)
        finally:
            if locked and locked[0]:
                self.state.unlock()

    def _capture_alone(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Any:
        """Captures a call, or runs it eagerly, while no other thread captures."""
        first = entry_point is self.entry
        if first and self.entry_points.storage is not None and self.state.thread is None:
            self.entry_points.storage.begin(self)
        if first and entry_point.dispatcher.entries and self.state.thread is None:
            # Another thread may have captured a call like this in the meantime, or another process.
            run = entry_point.hit(args, kwargs)
            if run is not None:
                return run()
        if first and self.state.background.is_pending:
            return EagerRun()
        if not first and (None in SCOPE.blocks or watching()):
            entry_point.run_eagerly_after()
        if self.options.renew():
            self.entry_points.follow_option()
        if TRACERS.is_held_in_background and not self.options.wait and not (first and self._goes_to_background()):
            # The tracers of a compiler in a thread change what this capture would see, and it would have to wait for them.
            self.reports.note_call_once("skipped", "FL406", "a compiler runs in a thread of the background; a later call is captured")
            return self.run_eagerly(entry_point, args, kwargs)
        if self.options.disable:
            self.reports.note_call_once("skipped", "FL406", "torch._dynamo.config.disable is set")
        if entry_point.stretch is not None or self.options.disable:
            return self.run_eagerly(entry_point, args, kwargs)
        if first:
            if self._is_eager(args, kwargs):
                return self.fn(*args, **kwargs)
        elif self._unrolls_loop(entry_point, args, kwargs):
            return self.run_eagerly(entry_point, args, kwargs)
        elif self._rest_is_eager(entry_point, args, kwargs):
            return self._run_rest(entry_point, args, kwargs)
        with torch._C.DisableTorchFunction():
            entry_point.observe(args, kwargs)
        run = adopt(self, entry_point, args, kwargs)
        if run is not None:
            return run()
        # The iterations of a loop that is being captured are one call.
        if (entry_point.segments and not self.state.is_in_this_thread) or (first and self.budget.programs):
            self._report_recompile(entry_point, args, kwargs)
        if first and hooks_active():
            return self._capture_under_hooks(args, kwargs)
        if first and self._goes_to_background():
            return background_capture.plan(self, args, kwargs)
        before = self.state.thread
        try:
            self.state.begin()
            try:
                # The graphs of this call are compiled after it: none of its later segments has to wait, or to run eagerly, for that.
                with nullcontext() if self.options.wait else QUEUE.capturing():
                    out = CaptureSession(self, entry_point, args, kwargs).go()
                if self.state.take_preparation() and first and self.watch is UNWATCHED:
                    self._capture_after(args, kwargs)
                if not self.options.wait and gc.isenabled():
                    # Of what the capture has made, in this call: the next one is to be as fast as eager code.
                    gc.collect(0)
                return out
            except TracersBusy as e:
                self.reports.note_call_once("skipped", "FL406", str(e))
            return self.run_eagerly(entry_point, args, kwargs)
        finally:
            # Not in a method: at its first instruction an exception from outside may arrive.
            self.state.thread = before

    def _goes_to_background(self) -> bool:
        """Returns whether a call is captured in the background: nothing observes the capture, and no call has to compile its graph."""
        own = self.options
        if own.wait or own.shadow or self.ranks is not None or self.watch is not UNWATCHED or self.state.thread is not None:
            return False
        return background_capture.is_possible(self)

    def _capture_under_hooks(self, args: tuple, kwargs: dict) -> Any:
        """Captures a call under hooks on saved tensors as a trial, and then runs the program; without one, runs the call eagerly."""
        if self.eager.under_hooks:
            return self.fn(*args, **kwargs)
        before = self.state.thread
        try:
            self.state.begin()
            with saved_plainly():
                attempt = CaptureSession(self, self.entry, args, kwargs, Mode(live=True, trial=True))
                try:
                    attempt.go()
                except CaptureEnded as e:
                    if e.error != "FL516":
                        raise
                    # An operator that may do more than compute does nothing on fakes.
                    attempt = CaptureSession(self, self.entry, args, kwargs, Mode(trial=True, why=e.text))
                    attempt.go()
        except CaptureEnded as e:
            self.reports.note(Event("restart", e.error, f"{e.text}; the call runs eagerly", *e.place))
        except RestartSpecialized:
            # It needs fewer symbols than fakes have: the call runs eagerly, as any without a program.
            attempt.kept = False
        finally:
            # Not in a method: at its first instruction an exception from outside may arrive.
            self.state.thread = before
        run = self.entry.hit(args, kwargs) if attempt.kept else None
        if run is not None:
            return run()
        self.eager.always_under_hooks()
        return self.fn(*args, **kwargs)

    def _capture_after(self, args: tuple, kwargs: dict) -> None:
        """Captures, as a trial, a call that has run eagerly: its result stands, and an error is left to the next call."""
        attempt = CaptureSession(self, self.entry, args, kwargs, Mode(live=True, trial=True))
        try:
            attempt.go()
        except CaptureEnded as e:
            self.reports.note(Event("restart", e.error, f"{e.text}; the next call is captured", *e.place))
        except FinelineError:
            # The session has undone its effects, and the next call raises it.
            return
        except Exception:
            attempt.take_back()

    def capture_anew(self, limits: GraphLimits | None) -> bool:
        """Drops all programs, so that the next call is captured anew, within these limits too; returns False if another thread captures now."""
        locked: list[bool] = []
        try:
            self.state.try_lock(locked)
            if locked[0]:
                if limits is not None:
                    self.lessons.limit_graphs(limits)
                start_anew(self)
            return locked[0]
        finally:
            if locked and locked[0]:
                self.state.unlock()

    @property
    def is_ready(self) -> bool:
        """Returns whether it has programs, and each runs the backend's code, or will run it from its next call on."""
        return bool(self.entry.segments) and not self.state.background.is_pending and self.graphs.background.are_done

    def once(self, args: tuple, kwargs: dict) -> None:
        """Captures one call and undoes it; only the output of the region's ``writer`` remains."""
        reason = self.eager.refusal or ambient_refusal()
        if reason is None and sees_operators(mode_stack()):
            reason = "a TorchFunctionMode is on, and what it does would become part of the graph"
        if reason is not None:
            raise Unsupported(reason, where=self.reports.where)
        attempt = CaptureSession(self, self.entry, args, kwargs, Mode(trial=True))
        try:
            attempt.go()
        except RestartSpecialized:
            self.once(args, kwargs)
            return
        except FinelineError:
            raise
        except BaseException as e:
            attempt.take_back()
            TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
            raise
        if not attempt.kept and self.reports.events:
            last = self.reports.events[-1]
            raise Unsupported(last.reason, where=last.where)

    def symbols(self, interp: Interpreter, entry_point: EntryPoint, args: tuple, kwargs: dict, fake: bool) -> Symbols | None:
        """Returns the symbols and fake tensors for a new capture; None if it runs on the real tensors. ``fake``: never on real ones."""
        own = self.options
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            return None
        scalars, shaped = own.capture_scalar_outputs, own.capture_dynamic_output_shape_ops
        live = own.first_call == "live" and not (self.ranks is not None and self.ranks.is_open) and not self.lessons.graphs.compiled_first_call
        ragged = own.dynamic is not False
        if live and not (fake or scalars or shaped or entry_point.symbolic(args, kwargs) or marked((*args, *kwargs.values()), ragged)):
            return None
        return Symbols(interp, entry_point.varying, scalars or own.fullgraph, shaped or own.fullgraph, entry_point is not self.entry)

    # -- calls that run eagerly ----------------------------------------------------------------------------------------
    def _is_eager(self, args: tuple, kwargs: dict) -> bool:
        """Returns whether a call runs eagerly from its start, and reports why."""
        if self.entry_points.rules_changed() and self.budget.programs:
            self.forget()
        reason = self.eager.why()
        if reason is not None:
            self.eager.report(reason)
            return True
        spent = self.budget.spent
        if spent < self.budget.limit or self._gives_up_stored() or leaves_out(self, self.entry, args, kwargs):
            return False
        self.budget.report_limit(spent, self.entry, args, kwargs)
        return True

    def _gives_up_stored(self) -> bool:
        """Drops all programs at the recompile limit, if other processes have used some of it up; returns whether that is so."""
        return self.entry_points.storage is not None and self.entry_points.storage.give_up(self)

    def _unrolls_loop(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> bool:
        """Gives each iteration of a loop its own programs from the next call on, if they share none; returns whether that is so."""
        programs = len(entry_point.segments)
        if programs < self.budget.limit or not self.entry_points.closes_loop(entry_point) or len(entry_point.calls) > FEW_CALLS:
            return False
        text = f"{programs} programs for the iterations of a loop, with a recompile_limit of {self.budget.limit}"
        text += f"; from the next call on each iteration has its own; last miss: {self.budget.why_missed(entry_point, args, kwargs)}"
        self.reports.note_at(entry_point, "limit", "FL104", text)
        self.entry_points.iterations.unroll(entry_point)
        start_anew(self)
        return True

    def _rest_is_eager(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> bool:
        """Returns whether the rest of a call from ``entry_point`` on runs eagerly, and reports why."""
        programs = len(entry_point.segments)
        if programs < self.budget.limit:
            return self.eager.reason is not None
        # After stored programs have been given up, the next call is captured from its start.
        if not self._gives_up_stored() and not leaves_out(self, entry_point, args, kwargs):
            self.budget.report_limit(programs, entry_point, args, kwargs)
        return True

    def run_eagerly(self, entry_point: EntryPoint, args: tuple, kwargs: dict, thrown: BaseException | None = None) -> Any:
        """Runs the rest of a call from ``entry_point`` on without capturing. ``thrown``: an exception to raise there."""
        if entry_point is self.entry:
            return self.fn(*args, **kwargs)
        return CaptureSession(self, entry_point, args, kwargs, Mode(captures=False), thrown).go()

    def _run_rest(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Any:
        """Runs the rest of a call eagerly; if such rests take too much of the time, later calls are eager from their start."""
        began = time.monotonic()
        try:
            return self.run_eagerly(entry_point, args, kwargs)
        finally:
            if self.eager.count_rest(began):
                self.entry.dispatcher.set_entries([])
                if self.eager.reason is None:
                    reason = f"the rests of {RESTS} calls fitted no program after a graph break; calls are eager from their start now"
                    self.eager.always(reason)
                    self.reports.note_at(entry_point, "limit", "FL104", reason)

    def _report_recompile(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> None:
        """Reports that a call is captured again, and why, to listeners and the user's callback; raises if that is an error."""
        miss = self.budget.why_missed(entry_point, args, kwargs)
        if self.options.error_on_recompile:
            raise Recompiled(str(miss), id="FL109", **self.reports.position(entry_point))
        self.reports.note_recompile(entry_point, miss)
        if self.options.guard_fail_fn is not None:
            self.options.guard_fail_fn(GuardFailure(str(miss), getattr(self.fn, "__code__", None)))

    def count_program(self, entry_point: EntryPoint) -> None:
        """Counts the newest program at ``entry_point`` against the limit.

        Where paths through the code meet, the number of programs says little about the region; and a call that is captured again counts
        once, after however many graph breaks it is.
        """
        first = entry_point is self.entry
        if first or (entry_point.segments[1:] and not entry_point.met):
            self.budget.spend(running_call(), again=first)

    # -- other regions -------------------------------------------------------------------------------------------------
    def child(self, fn: Callable) -> Callable:
        """Returns the dispatcher of a region for a function whose caller's own frame is not captured."""
        options, lessons = replace(self.options, name=None), self.lessons.of_alike()
        region = Region(fn, self.backend, options, lessons, self.watch.of_alike(), fired=self.reports.fired)
        return region.entry.dispatcher

    def stand_in(self, backend: Backend, stance: Any) -> Callable:
        """Makes a region for the same function with the backend of a ``stance``; returns its dispatcher, which owns it."""
        stances = Stances(stance, had_first_call=True)
        region = Region(self.fn, backend, self.options, self.lessons.of_alike(), self.watch.of_alike(), stances=stances)
        return region.entry.dispatcher
