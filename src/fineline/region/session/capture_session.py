"""One captured call of a region, from its entry or a continuation to the return."""

from __future__ import annotations

import functools
import logging
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

import torch

from fineline.background.turns import Turn
from fineline.builtins.debuggers import STOPS
from fineline.bytecode.asynchronous import asynchronous, from_outside, let_pass
from fineline.codegen.continuation import Continuation, is_continued, run_on
from fineline.codegen.escape import real_result, settle
from fineline.codegen.frame_snapshot import Snapshot, take_snapshot
from fineline.errors import FinelineError, InternalError
from fineline.exception_slots import error_text
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import (
    ASKED,
    FAKES_LACK,
    READS,
    UNSEEN,
    CaptureAborted,
    CaptureEnded,
    Finished,
    GraphBreak,
    NotOneGraph,
    NotReconstructible,
    Restart,
    RestartSpecialized,
    Uncompiled,
)
from fineline.frames.graph_limits import GraphLimits
from fineline.frames.stub_frames import user_stack
from fineline.interp.interpreter import TRANSIENT, AroundCall, Interpreter
from fineline.interp.sub_interpreter import SubInterpreter
from fineline.kinds import is_a
from fineline.objects.deferred_texts import begin_segment
from fineline.policy.break_settings import breaks_here
from fineline.policy.decide import rules_now
from fineline.policy.scope_stack import SCOPE
from fineline.region.descriptions import call_stack, describe_miss, place_of, selector_of, user_place
from fineline.region.disabled_frames import FrameRunner
from fineline.region.entry_point import CallShape, EntryPoint, Everything
from fineline.region.interface import CapturingRegion
from fineline.region.loop_merging import Way
from fineline.region.session.break_errors import deciding_rule, named_rule, refused
from fineline.region.session.compile_decision import keep
from fineline.region.session.concurrent_trace import ConcurrentTrace
from fineline.region.session.continuations import Continuations
from fineline.region.session.retry import given_up, make_outside, move_out, start_anew, stop_in_debugger, transform_call
from fineline.region.session.rollback import Checkpoint, amid_transforms, enters_transforms, may_restart
from fineline.region.session.segment_end import SegmentEnd
from fineline.region.session.segment_start import Beginning, begin_at, guard_iterated, register
from fineline.region.sharing.adoption import Offer
from fineline.report.costs import BreakPlace
from fineline.report.events import Detail, Event, ShownRule
from fineline.report.operator_counter import OperatorCounts
from fineline.tensor_ops.backing import FakeBacking, LiveBacking, computing
from fineline.tensor_ops.user_modes import watching
from fineline.tracing.tracebacks import drop_variables

log = logging.getLogger("fineline")


# Graph breaks that a user's rule or option asked for.
DECLARED = ASKED | {"FL403"}
# Reasons to run a first call eagerly that later calls do not have.
_PREPARING = frozenset({"FL440", "FL454"})
# A call cut into more pieces than this costs more in guards than its graphs can save.
MOST_BREAKS = 400


class Mode(NamedTuple):
    """How a session captures."""

    # Whether the session captures at all.
    captures: bool = True
    # Whether it captures on the real values in any case.
    live: bool = False
    # Whether its writes are undone in the end, and it stops if one program cannot replace the call.
    trial: bool = False
    # The reason why an attempt in the other mode stopped.
    why: str = ""
    # The turns of the thread, if it runs in one of its own beside the user's code: a trial on fakes that has no effect even meanwhile.
    turn: Turn | None = None


CAPTURE = Mode()


class CaptureSession:
    """One captured call: from the region's entry or a continuation to the return, through any number of graph breaks."""

    def __init__(
        self, region: CapturingRegion, entry_point: EntryPoint, args: tuple, kwargs: dict, mode: Mode = CAPTURE, thrown: BaseException | None = None
    ) -> None:
        """Sets up a session. ``thrown``: an exception that is raised at the entry point."""
        self.region = region
        self.mode = mode
        self.start = entry_point
        # Whether the program of the segment in which the call returns has been added.
        self.kept = False
        # Whether nothing more is captured.
        self.ended = not mode.captures
        # Whether the session is over, and holds no objects of the call any more.
        self.released = False
        # Runs instead of the rest of this session.
        self.fallback: Callable[[], Any] | None = None
        # The state of the newest segment.
        self.entry_point = entry_point
        self.call = (args, kwargs)
        self.shape = CallShape(len(args), tuple(kwargs))
        self.checkpoint = Checkpoint(hidden=mode.captures)
        self.interp = interp = region.watch.interpreter(region.options, region.lessons, self)
        try:
            self._set_up(args, kwargs)
            self.ways = Continuations(region, interp, entry_point.passed)
            self.beginning: Beginning = interp.backing.hold(functools.partial(begin_at, interp, region.fn, entry_point, args, kwargs))
        except BaseException:
            interp.nested.restore_function_modes()
            raise
        if thrown is not None:
            interp.eager.result, self.beginning = None, self.beginning._replace(thrown=thrown)

    def _set_up(self, args: tuple, kwargs: dict) -> None:
        """Sets up the interpreter for the session."""
        region, entry_point, mode, interp = self.region, self.entry_point, self.mode, self.interp
        if mode.turn is not None:
            interp.trace, interp.limits.turn = ConcurrentTrace(interp), mode.turn
        interp.trace.active = mode.captures
        interp.nested.take_function_modes(interp.trace, region.lessons.sets_device)
        interp.tensors.shows_layouts = region.graphs.are_seen
        interp.tensors.arrays.from_anywhere = entry_point is region.entry
        interp.trace.mutations.ahead = region.state.take_cached_calls()
        interp.rules = rules_now(region.options.policy, interp.fired)
        interp.tensors.undoable = breaks_here(region.options.breaks) != "any" or mode.trial or (interp.rules is not None and interp.rules.refuse)
        if mode.captures and mode.live and mode.trial:
            interp.use(LiveBacking(undone=True))
        elif mode.captures and not mode.live and not amid_transforms(entry_point is region.entry):
            symbols = region.symbols(interp, entry_point, args, kwargs, bool(mode.why) or mode.turn is not None or entry_point.draws)
            interp.trace.symbols = symbols
            # Without graph breaks, all effects of the call can be undone.
            switches = not (mode.trial or mode.why) and entry_point is region.entry and region.options.fullgraph
            interp.use(FakeBacking(symbols.fakes, not mode.trial, mode.turn) if symbols is not None else LiveBacking(switches, not mode.trial, mode.trial))
        assert mode.turn is None or not interp.backing.real, "a capture beside calls has no effect"
        interp.varying.unsteady = entry_point.varying.unsteady
        interp.eager.resumes = entry_point.stretch is not None
        state = entry_point.frame_state
        if state is not None and region.entry_points.iterations.are_unrolled(state):
            interp.varying.iteration = weakref.ref(entry_point.varying)
        if state is not None and state.serves_iterations:
            # The iterations of a loop bring more and more keys, and each would be captured.
            interp.varying.few_keys = 1

    def go(self) -> Any:
        """Runs the session; returns the result of the call, or a continuation for the caller to run."""
        if self.interp.trace.active:
            self.interp.eager.pause.begin()
        try:
            value = self.interp.backing.hold(self._go)
        except BaseException as e:
            if self.released or not self._comes_from_outside(e):
                raise
            if not self._interrupted(e):
                self._release()
                raise
            # This session has had no effect, but the code before it has entered blocks, which have to be left. Not here: while ``e`` is
            # being handled, the errors of the blocks would get other contexts.
            self.fallback = functools.partial(self.region.run_eagerly, self.entry_point, *self.call, e)
        finally:
            self.interp.nested.restore_function_modes()
            # Last: the next object that is made starts a collection, which would keep what is still in use here for longer than it lives.
            self.interp.eager.pause.end()
        while self.fallback is not None:
            # This session is over, and another function runs the rest.
            self._release()
            value = self._take_fallback()()
        # The session that starts at the region's entry also runs the later segments; otherwise the caller does.
        return run_on(value) if self.start is self.region.entry and is_continued(value) else value

    def _take_fallback(self) -> Callable[[], Any]:
        """Returns and clears ``fallback``, so that no frame holds it: it may hold an exception whose traceback refers to the frame."""
        fallback, self.fallback = self.fallback, None
        assert fallback is not None
        return fallback

    def _go(self) -> Any:
        interp, region = self.interp, self.region
        if region.watch.tally is not None:
            region.watch.tally.where.append(interp.fate)
        try:
            guard_iterated(interp, self.beginning.containers)
            value = interp.run(self.beginning.thrown)
        except Finished as done:
            value = done.value
        except Restart as e:
            self._restart(e.error, e.text, e.again, e.draws)
        except BaseException as e:
            if e is interp.outcome.interrupt or (from_outside(e) and self._comes_from_outside(e)):
                raise
            if not interp.backing.real and interp.outcome.abandoned is None:
                self._restart("FL515", f"the call raises {type(e).__name__}")
            elif self.fallback is not None:
                self._release()
                raise
            elif interp.outcome.abandoned is None:
                region.reports.note(Event("raised", "FL408", error_text(e)[:200], *place_of(region.fn)))
                if not is_a(e, TRANSIENT):
                    self.region.eager.count_failure("the captured call raises")
                self._release()
                raise
        if self.fallback is not None:
            return None
        if interp.outcome.abandoned is not None:
            return self._abandon(interp.outcome.abandoned)
        if interp.trace.active:
            self._keep_program(value)
        if self.fallback is not None:
            return None
        if interp.outcome.abandoned is not None:
            return self._abandon(interp.outcome.abandoned)
        if not interp.trace.active:
            self._given_up()
        if self.mode.trial:
            self.take_back()
            self._release()
            return None
        self._release()
        result = [value]
        del value
        return real_result(interp, result)

    def _keep_program(self, value: Any) -> None:
        """Writes and adds the program of the segment in which the call returns ``value``."""
        region, interp = self.region, self.interp
        try:
            writer = region.writer(interp.trace, self._name())
            try:
                with computing(interp), self.mode.turn.profiling() if self.mode.turn is not None else nullcontext():
                    writer.returns(value)
                    offer = Offer(region, self.entry_point, self.shape, interp)
                    keep(region, self.entry_point, self.shape, writer, None, False)
                    offer.make()
            finally:
                writer.rebuild.close()
            self.kept = True
            if not interp.backing.real and not self.mode.trial:
                # Not here, where an error of the program would be taken for an error of the writing.
                self.fallback = functools.partial(self._now, *self.call)
        except Restart as e:
            self._restart(e.error, e.text, e.again, e.draws)
        except NotReconstructible as e:
            self._move_out(e)
            self._failed(e.error, e.text)
        except FinelineError as e:
            interp.outcome.abandoned = e
        except Exception as e:
            let_pass(e)
            log.debug("fineline: writing a program failed", exc_info=True)
            self._failed("FL901", f"writing the program failed: {type(e).__name__}: {e}")

    def take_back(self) -> None:
        """Undoes the effects of the newest segment."""
        if self.mode.turn is not None:
            # There are none, and the thread ends with the capture.
            self.interp.stand_ins.forget()
            self.interp.trace.mutations.undo()
            return
        self.checkpoint.take_back(self.interp)

    def _comes_from_outside(self, e: BaseException) -> bool:
        """Returns whether ``e`` has come from outside, during this session or during the eager call after which it begins."""
        return self.interp.interrupted_by(e) or (e is self.beginning.thrown and asynchronous(e) is e)

    def _interrupted(self, e: BaseException) -> bool:
        """Ends this session because of an exception from outside; returns whether handlers in the frames at its entry point must see it."""
        region, interp = self.region, self.interp
        region.state.interrupt(e)
        self.fallback = None
        region.reports.note(Event("raised", "FL408", error_text(e)[:200], *place_of(region.fn)))
        if not interp.backing.real or self.mode.trial:
            self.take_back()
        interp.nested.leave_inference_modes()
        frame_state = self.entry_point.frame_state
        return not interp.backing.real and self.entry_point is self.start and frame_state is not None and bool(frame_state.has_handlers)

    def _name(self) -> str:
        fn = self.region.fn
        return f"{getattr(fn, '__name__', type(fn).__name__)}_{self.region.budget.programs}_{id(self.region):x}"

    # -- CaptureHost: what the interpreter calls -----------------------------------------------------------------
    sub_interpreter = SubInterpreter

    @property
    def tally(self) -> OperatorCounts | None:
        return self.region.watch.tally

    @property
    def run_frame(self) -> FrameRunner:
        return self.region.run_frame

    @property
    def fired(self) -> Counter[ShownRule]:
        return self.region.reports.fired

    def before_eager_call(self, interp: Interpreter, graph_break: GraphBreak) -> None:
        """Replaces the stand-ins that an eager call gets, while nothing is captured."""
        settle(interp, graph_break)

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for what the region refuses, with the user's line and stack."""
        breaks = breaks_here(self.region.options.breaks)
        return refused(error, text, user_place(f, self.region.fn), rule, breaks, stack=user_stack(f), within=selector_of(f))

    def may_restart(self) -> bool:
        """Returns whether the segment can be undone and captured on fakes."""
        return not self.mode.why and may_restart(self.interp, self.entry_point is self.start)

    def on_graph_break(self, interp: Interpreter, graph_break: GraphBreak) -> Any:
        """Ends the segment, makes the call, and begins the next segment; returns the result of the call."""
        f = interp.frame
        assert f is not None
        if interp.outcome.abandoned is not None:
            # User code that runs while the abort leaves its blocks: the reason has been noted.
            raise CaptureAborted
        if interp.trace.symbols is not None:
            interp.trace.symbols.check(interp)
        place = user_place(f, self.region.fn)
        declared = self._allow_break(interp, f, graph_break, place)
        if graph_break.error == STOPS:
            return self._stop_in_debugger(graph_break, place)
        offer = Offer(self.region, self.entry_point, self.shape, interp)
        self._note_break(f, graph_break, place)
        if self.ways.graph_breaks >= MOST_BREAKS:
            interp.fail("FL428", f"over {MOST_BREAKS} graph breaks in one call, the last because {graph_break.reason}", False)
            return interp.beyond(graph_break)
        end = self._end_segment(f, graph_break, place, declared, offer)
        if end is None:
            # Not in `_end_segment`, where an error of the call would get an exception of fineline as its context.
            drop_variables(interp.exceptions.handled, f)
            return interp.beyond(graph_break)
        snapshot, after, failed = end.snapshot, end.after, end.failed
        snapshot.pass_on()
        settle(interp, graph_break, end.writer.rebuild.built)
        interp.trace.forget()
        drop_variables(interp.exceptions.handled, f)
        del end
        interp.nested.restore_function_modes()
        try:
            value = interp.beyond(graph_break)
        except BaseException as e:
            interp.tensors.known.clear()
            self._begin(failed, snapshot, e, "failure")
            raise
        with torch._C.DisableTorchFunction():
            after.entry_point.observe((*snapshot.roots, value), {})
        interp.tensors.known.carry(graph_break.fn, interp.trace.recorder.writes.storages)
        self._begin(after, snapshot, value, "result")
        return value

    def _stop_in_debugger(self, graph_break: GraphBreak, place: tuple[str, int]) -> Any:
        """Continues the call in Python, from its start if it has had no visible effect, and makes all later calls run in Python."""
        region, interp = self.region, self.interp
        stop_in_debugger(region, interp, graph_break, place)
        if not interp.backing.real or (self.entry_point is self.start is region.entry and self.may_restart()):
            raise Restart(graph_break.error, graph_break.reason)
        interp.fail(graph_break.error, graph_break.reason, False)
        self.ended = True
        return interp.beyond(graph_break)

    def _allow_break(self, interp: Interpreter, f: Frame, graph_break: GraphBreak, place: tuple[str, int]) -> bool:
        """Returns whether the user has declared the graph break; raises if it is not allowed."""
        breaks = breaks_here(self.region.options.breaks)
        if interp.rules is not None and not graph_break.rule:
            graph_break.reason += interp.rules.unused_trace_rule(graph_break.fn, graph_break.args_)
        reads = graph_break.error in READS and graph_break.fn is not bool
        if breaks == "none" and ((interp.backing.switches and reads) or (not interp.backing.real and graph_break.error in FAKES_LACK)):
            raise Restart(graph_break.error, graph_break.reason)
        rule_here = interp.declared(graph_break.error) if graph_break.error not in ASKED else None
        if rule_here is not None:
            graph_break.rule = str(rule_here)
        elif breaks == "none" or (breaks == "declared" and graph_break.error not in ASKED):
            if reads and interp.backing.real and self.mode.why not in ("", graph_break.reason):
                graph_break.reason += f", and in fake mode {self.mode.why}"
            rule = named_rule(graph_break, place)
            error = refused(graph_break.error, graph_break.reason, place, rule, breaks, graph_break.fn, user_stack(f), selector_of(f))
            raise interp.outcome.abandon(error)
        if self.mode.turn is not None:
            raise Restart("FL016", f"a graph break: {graph_break.reason}")
        if self.mode.trial:
            raise interp.outcome.abandon(NotOneGraph())
        return rule_here is not None or graph_break.error in DECLARED

    def _note_break(self, f: Frame, graph_break: GraphBreak, place: tuple[str, int]) -> None:
        """Reports the graph break, and the function that capture skips at it."""
        frames = user_stack(f)
        rule, built_in = deciding_rule(graph_break, place)
        event = Event("break", graph_break.error, graph_break.reason, *place, rule, detail={"stack": frames, "built_in": built_in})
        noted = self.region.reports.note(event)
        if self.region.watch.recording is not None:
            graph_break.met = self.region.watch.recording.meet(BreakPlace(noted.id, noted.reason, *place, rule, noted.stack))
        if graph_break.error in UNSEEN:
            unseen = place_of(graph_break.fn) if graph_break.error != "FL430" and hasattr(graph_break.fn, "__code__") else place
            where = unseen if unseen[1] else place
            self.region.reports.note(Event("skipped", graph_break.error, graph_break.reason, *where, graph_break.rule, detail={"stack": frames}))

    def _end_segment(self, f: Frame, graph_break: GraphBreak, place: tuple[str, int], declared: bool, offer: Offer) -> SegmentEnd | None:
        """Writes and adds the program of the segment that ends at a graph break; returns None if nothing more is captured."""
        region, interp = self.region, self.interp
        called_at = transform_call(f) if not declared and enters_transforms(interp) else None
        if called_at is not None and called_at not in region.lessons.eager_sites:
            # No graph ends inside of a transform: later calls make its call, as a whole, between two graphs.
            self._give_segment_up(NotReconstructible(f"{graph_break.reason}, inside of a transform of torch.func", called_at))
            return None
        end = SegmentEnd(region, interp, self.ways, graph_break, place, declared)
        end.leave_storm()
        try:
            end.write(self._name())
            self.ways.pass_by(end.snapshot.state)
            interp.note_break(end.snapshot.state.stack)
            with computing(interp):
                keep(region, self.entry_point, self.shape, end.writer, declared, interp.eager.outside == "skipped")
            end.add_entry_points(f)
            offer.make(*end.ways_on())
            if not interp.backing.real:
                end.vary()
                self._leave(end.snapshot, functools.partial(self._now, *self.call, interp.around_eager_call(graph_break)))
        except NotReconstructible as e:
            self._give_segment_up(e)
        except FinelineError as e:
            raise interp.outcome.abandon(e) from None
        except Exception as e:
            let_pass(e)
            log.debug("fineline: writing a program failed", exc_info=True)
            interp.fail("FL901", f"writing the program failed: {type(e).__name__}: {e}", False)
        return end if interp.trace.active else None

    def _give_segment_up(self, e: NotReconstructible) -> None:
        """Gives up the segment, because a value cannot be reconstructed; the next capture leaves the value out of its graphs."""
        interp = self.interp
        interp.fail(e.error, e.text, False)
        if not interp.backing.real:
            raise Restart(e.error, e.text) from None
        if interp.trace.state.start.inference_mode != torch.is_inference_mode_enabled():
            # The context cannot leave its graph; if it is entered between two graphs, it is a value like others.
            self.region.lessons.limit_graphs(GraphLimits(inference_mode_breaks=True))
        elif not self._move_out(e):
            move_out(self.region.lessons, interp.frame)

    def _leave(self, snapshot: Snapshot, fallback: Callable[[], Any]) -> NoReturn:
        """Ends this session at a graph break: the programs after it run the rest of the call."""
        snapshot.release()
        self.interp.stand_ins.forget()
        self.fallback = fallback
        raise Finished(None)

    def _begin(self, way: Way | None, snapshot: Snapshot, value: Any, name: str) -> None:
        """Begins the next segment, at the entry point that a ``way`` leads to; None: nothing more is captured."""
        interp = self.interp
        live = (*snapshot.roots, value)
        if way is not None and (
            way.leads_back(live) or way.entry_point.met or snapshot.state.serves_iterations or way.entry_point.varies(live)
        ):
            # The values that vary here are known from other calls, and only a capture on fakes has symbols.
            self._leave(snapshot, functools.partial(_at, way.go_on, live))
        containers, decomposed = snapshot.containers, snapshot.decomposed
        # The callers hold the snapshot.
        snapshot.release()
        # An interrupt may run the user's handlers on either trace at any moment: the earlier one is closed when nothing reads by it.
        earlier = interp.trace
        begin_segment(interp)
        earlier.guards.close()
        self.checkpoint = Checkpoint()
        leaves = way is not None and way.entry_point.stretch is not None and way.entry_point.stretch.leaves_function
        eager = leaves or None in SCOPE.blocks or watching() is not None
        if way is not None and not eager:
            interp.nested.take_function_modes(interp.trace, self.region.lessons.sets_device)
        if way is None:
            interp.trace.active = False
            self.ended = True
            return
        if interp.rules is None:
            # The eager call may have set the first mark of the process.
            interp.rules = rules_now(self.region.options.policy, interp.fired)
        self.entry_point = entry_point = way.entry_point
        entry_point.inform(bool(interp.tensors.known))
        interp.varying.unsteady = entry_point.varying.unsteady
        self.shape = CallShape(len(live))
        register(interp, entry_point, live, [*snapshot.state.values.names, name])
        guard_iterated(interp, containers)
        interp.trace.made.update(decomposed)

        if eager:
            interp.trace.active, interp.eager.resumes = False, True
            entry_point.run_eagerly_after()
            self.ended = True

    def resume(self, interp: Interpreter, graph_break: GraphBreak) -> Any:
        """Leaves this session, which captures nothing, for an entry point after it: its programs, or a new capture, run the rest."""
        settle(interp, graph_break)
        interp.trace.made = Everything()
        assert interp.frame is not None
        place = user_place(interp.frame, self.region.fn)
        frames: Detail = {"stack": user_stack(interp.frame)}
        try:
            snapshot = take_snapshot(interp, graph_break, place, constants=False)
        except NotReconstructible as e:
            self.region.reports.note_once(Event("eager", "FL409", f"{e.text}; the call continues eagerly after the block", *place, detail=frames))
            return interp.beyond(graph_break)
        snapshot.pass_on()
        frame_state = snapshot.state
        interp.note_break(frame_state.stack)
        live = (*snapshot.roots, interp.beyond(graph_break))
        stretch = self.entry_point.run_eagerly_after()
        dispatcher = stretch.dispatcher_at(frame_state)
        if dispatcher is None and self.ways.graph_breaks >= MOST_BREAKS:
            text = f"over {MOST_BREAKS} graph breaks in one call, the last one after a block"
            self.region.reports.note_once(Event("eager", "FL428", text, *place, detail=frames))
            return live[-1]
        if dispatcher is None:
            # A function whose rest ran eagerly counts as one graph break, which it is at the next call.
            self.ways.leave_function(stretch)
            self.ways.pass_by(frame_state)
            if stretch.ends >= self.region.budget.limit:
                reason = f"calls leave the block in {stretch.ends} different states, which is the region's recompile_limit"
                self.region.reports.note_once(Event("limit", "FL104", f"{reason}; from here on they go on eagerly", *place, detail=frames))
                return live[-1]
            entry_point = self.region.entry_points.new(self.region, frame_state, False, passed=self.ways.passed)
            dispatcher = stretch.add(entry_point)
            self.region.entry_points.add([entry_point])
        if not self.region.options.error_on_recompile and stretch.was_newly_left():
            # From the next call on, the function that has returned is one eager call.
            start_anew(self.region)
        return self._leave(snapshot, functools.partial(_at, dispatcher, live))

    def _now(self, args: tuple, kwargs: dict, around: AroundCall | None = None) -> Any:
        """Undoes the capture on fakes, and runs the call by the program that it has made. ``around``: makes the eager call after that."""
        self.take_back()
        self.interp.trace.mutations.forget()
        _, _, program, run = self.entry_point.dispatcher.entries[0]
        roots = (*args, *kwargs.values())
        got = program.check(roots)
        if got is None:
            at = program.failing(roots)
            text = describe_miss(self.entry_point.segments[-1], at, roots) if at >= 0 else "its guards change what they read"
            self.entry_point.drop()
            self.call = args, kwargs
            self._restart("FL901", f"the new program does not fit its own call: {text}")
            return None
        out = run(*got)
        return out if around is None or not is_continued(out) else (out[0].with_calls(around), out[1])

    def _restart(self, error: str, text: str, again: bool = False, draws: bool | None = None) -> None:
        """Undoes this attempt, and sets ``fallback`` to capture the call in another mode, outside all handlers of this session."""
        roots = tuple([src.value for src in self.interp.trace.guards.roots()])
        mutations, place = self.interp.trace.mutations, user_place(self.interp.frame, self.region.fn)
        # The calls that caches have counted: the next attempt must not count them again.
        self.region.state.leave_cached_calls([*mutations.ahead, *mutations.cached])
        self.take_back()
        self.interp.trace.mutations.forget()
        self.interp.forget_calls()
        if self.region.watch.tally is not None:
            self.region.watch.tally.drop()
        fake = not self.interp.backing.real
        if self.mode.trial:
            # The caller of a trial decides what happens next.
            self._release()
            if (self.mode.turn is not None or self.mode.live or self.mode.why) and not again:
                raise CaptureEnded(error, text, place)
            raise RestartSpecialized if again else refused(error, text, place_of(self.region.fn))
        if fake:
            how = "with fewer symbols" if again else "on its real values"
            self.region.reports.note(Event("restart", error, f"{text}; the call is captured {how}", *place_of(self.region.fn)))
        args, kwargs = self.call
        if error == STOPS and self.entry_point is self.start is self.region.entry:
            self.fallback = functools.partial(self.region.fn, *args, **kwargs)
            return
        if draws is not None:
            self.entry_point.use_symbols_for_draws(draws)
        if self.entry_point is not self.start:
            # After a graph break, on the real values: the earlier segments stay.
            self.fallback = functools.partial(_at, self.entry_point.dispatcher, roots)
            return
        fixed = again or draws is not None
        why = self.mode.why if fixed else text
        self.fallback = lambda: CaptureSession(self.region, self.entry_point, args, kwargs, Mode(live=fake and not fixed, why=why)).go()

    def _failed(self, error: str, text: str) -> None:
        try:
            self.interp.fail(error, text, False)
        except CaptureAborted:
            pass
        except Restart:
            self._restart(error, text)

    def _abandon(self, error: BaseException) -> Any:
        """Undoes the writes of the call; returns the eager result if the fault is fineline's own, else raises ``error``."""
        interp, region = self.interp, self.region
        fake = not interp.backing.real
        if fake and self.entry_point is not region.entry and is_a(error, FinelineError):
            # The user's own code leaves the blocks that were entered before a graph break, for real.
            self._restart(error.id, error.reason)
            return None
        untouched = fake or self.start is self.entry_point is region.entry
        if untouched:
            self.take_back()
        inputs = bool(interp.trace.recorder.inputs)
        rerun = fake or (untouched and (not (inputs and interp.trace.recorder.writes.storages) or bool(interp.trace.mutations.storages)))
        args, kwargs = self.call
        self._release()
        if is_a(error, NotOneGraph):
            return None
        if is_a(error, FinelineError) and not is_a(error, InternalError):
            given_up(region, error.id, "")
            raise error
        text = f"{type(error).__name__}: {error}"
        region.reports.note(Event("eager", "FL901", text, *place_of(region.fn)))
        if not rerun:
            raise InternalError(text, where="{}:{}".format(*place_of(region.fn)), stack=call_stack(region.fn, None)) from error
        log.warning("fineline: %s:%s: an internal error; the call runs eagerly: %s", *place_of(region.fn), text)
        self.region.eager.count_failure(text)
        return region.run_eagerly(self.entry_point, args, kwargs)

    def _move_out(self, e: NotReconstructible) -> bool:
        """Makes the next capture keep out of its graphs what they cannot contain; returns whether that is known to help."""
        if is_a(e, Uncompiled):
            self.region.lessons.limit_graphs(e.limits)
            return True
        return make_outside(self.region, self.entry_point, e.called_at)

    def _given_up(self) -> None:
        if self.ended:
            return
        interp, region = self.interp, self.region
        error, text = interp.outcome.failure or ("FL901", "unknown")
        known = bool(interp.outcome.failed_at[0])
        file, line = interp.outcome.failed_at if known else place_of(region.fn)
        if error in _PREPARING and self.entry_point is self.start is region.entry:
            region.state.note_preparation()
        stack = interp.outcome.failed_stack if known else call_stack(region.fn, None)
        region.reports.note(Event("eager", error, text, file, line, detail={"stack": stack}))
        given_up(region, error, text)
        self.region.eager.count_failure(text)

    def _release(self) -> None:
        self.released = True
        if self.region.watch.tally is not None and self.region.watch.tally.where:
            self.region.watch.tally.close("eager")
            self.region.watch.tally.where.pop()
        if self.interp.rules is not None:
            self.interp.rules.settle()
        if self.region.reports.fired:
            self.region.reports.tell_rules()
        self.region.reports.tell_tree(self.region.watch)
        # No object of the call stays alive, and no cycle is left for the garbage collector.
        interp = self.interp
        if interp.outcome.interrupt is not None:
            # The user's code may have handled the interrupt.
            interp.nested.leave_inference_modes()
        interp.trace.recorder.forget()
        interp.trace.guards.close()
        if interp.trace.symbols is not None:
            interp.trace.symbols.close()
            interp.trace.symbols = None
        interp.tensors.known.clear()
        interp.trace.deferred.texts.clear()
        if self.fallback is None and not self.mode.trial:
            # The writes of a trial still have to be undone.
            interp.trace.mutations.forget()
        interp.close()
        self.beginning = Beginning()
        self.call = ((), {})


def _at(dispatcher: Callable, live: tuple) -> tuple[Continuation, list]:
    """Returns a continuation at a dispatcher, in the form that segments return."""
    return Continuation(dispatcher), [*live]
