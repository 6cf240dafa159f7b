"""One captured call of a region, from its entry or a continuation to the return."""

from __future__ import annotations

import functools
import logging
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch

from fineline.backends.lock import TRACERS
from fineline.builtins.debuggers import STOPS
from fineline.bytecode.asynchronous import asynchronous, from_outside, let_pass
from fineline.codegen.continuation import Continuation, goes_on, run_on
from fineline.codegen.escape import real_result, settle
from fineline.codegen.frame_snapshot import Snapshot, take_snapshot
from fineline.errors import FinelineError, InternalError
from fineline.exception_slots import told
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import (
    ASKED,
    FAKES_LACK,
    READS,
    UNSEEN,
    CaptureAborted,
    Finished,
    GraphBreak,
    NotOneGraph,
    NotReconstructible,
    Restart,
    RestartSpecialized,
    Uncompiled,
)
from fineline.frames.stub_frames import user_stack
from fineline.interp.body_interpreter import BodyInterpreter
from fineline.interp.interpreter import FLEETING, Interpreter
from fineline.interp.trial import Trial
from fineline.kinds import is_a
from fineline.objects.deferred_texts import begin_segment
from fineline.policy.break_settings import breaks_here
from fineline.policy.decide import rules_now
from fineline.policy.rule import Rule
from fineline.policy.scope_stack import SCOPE
from fineline.region.descriptions import call_stack, describe_miss, place_of, selector_of, user_place
from fineline.region.disabled_frames import FrameRunner
from fineline.region.entry_point import CallShape, EntryPoint, Everything
from fineline.region.interface import CapturingRegion
from fineline.region.loop_merging import Way
from fineline.region.session.break_errors import deciding_rule, named_rule, refused
from fineline.region.session.compile_decision import keep
from fineline.region.session.continuations import Continuations
from fineline.region.session.retry import given_up, make_outside, move_out, start_anew, stop_in_debugger
from fineline.region.session.rollback import Checkpoint, amid_transforms, leave_inference_modes, may_restart
from fineline.region.session.segment_end import SegmentEnd
from fineline.region.session.segment_start import Beginning, begin_at, guard_iterated, register
from fineline.report.events import Event
from fineline.tensor_ops.compute import computing
from fineline.tensor_ops.user_modes import watching
from fineline.tracing.tracebacks import drop_variables

log = logging.getLogger("fineline")


# Graph breaks that a user's rule or option asked for.
DECLARED = ASKED | {"FL403"}
# A call cut into more pieces than this costs more in guards than its graphs can save.
MOST_BREAKS = 400


class Mode(NamedTuple):
    """How a session captures."""

    # Whether it captures at all.
    captures: bool = True
    # On the real values in any case.
    live: bool = False
    # Its writes are taken back in the end, and it ends where a single program can't stand for the call.
    trial: bool = False
    # The reason why an attempt in the other mode stopped.
    why: str = ""


CAPTURE = Mode()


class CaptureSession:
    """One captured call: from the region's entry or a continuation to the return, through any number of graph breaks."""

    def __init__(
        self, region: CapturingRegion, entry_point: EntryPoint, args: tuple, kwargs: dict, mode: Mode = CAPTURE, thrown: BaseException | None = None
    ) -> None:
        """Sets up a session. ``thrown``: what the entry point raises."""
        self.region = region
        self.mode = mode
        self.start = entry_point
        # Whether a program stands for all of the call.
        self.kept = False
        # Whether nothing more is captured.
        self.ended = not mode.captures
        # Whether all is over, and nothing is held any more.
        self.released = False
        # What is done instead of the rest of this session.
        self.behind: Callable[[], Any] | None = None
        # Of the newest segment.
        self.entry_point = entry_point
        self.call = (args, kwargs)
        self.shape = CallShape(len(args), tuple(kwargs))
        self.checkpoint = Checkpoint(hidden=mode.captures)
        self.interp = interp = self._interpreter(args, kwargs)
        self.ways = Continuations(region, interp, entry_point.passed)
        begin = functools.partial(begin_at, interp, region.fn, entry_point, args, kwargs)
        self.beginning = TRACERS.holding(begin) if interp.fakes is not None else begin()
        if thrown is not None:
            interp.pending, self.beginning = None, self.beginning._replace(thrown=thrown)

    def _interpreter(self, args: tuple, kwargs: dict) -> Interpreter:
        """Returns an interpreter for the session."""
        region, entry_point, mode = self.region, self.entry_point, self.mode
        interp = region.watch.interpreter(region.options, region.lessons, self)
        interp.shows_layouts = region.graphs.are_seen
        interp.trace.mutations.ahead = region.state.take_cached_calls()
        interp.rules = rules_now(region.options.policy, interp.fired)
        interp.undoable = breaks_here(region.options.breaks) != "any" or mode.trial or (interp.rules is not None and interp.rules.refuse)
        if not mode.captures:
            interp.trace.active = False
        elif not mode.live and not amid_transforms(entry_point is region.entry):
            symbols = region.symbols(interp, entry_point, args, kwargs, bool(mode.why) or entry_point.draws)
            interp.trace.symbols = symbols
            interp.fakes = interp.known.fakes = symbols.fakes if symbols is not None else None
            # Without graph breaks, all that has happened can be undone.
            interp.switches = not (mode.trial or symbols or mode.why) and entry_point is region.entry and region.options.fullgraph
            interp.restartable = not mode.trial
        interp.unsteady = entry_point.varying.unsteady
        interp.resumes = entry_point.stretch is not None
        state = entry_point.frame_state
        if state is not None and region.entry_points.iterations.are_unrolled(state):
            interp.iteration = weakref.ref(entry_point.varying)
        if state is not None and state.serves_iterations:
            # Those of a loop's iterations go on: each iteration would be captured.
            interp.few_keys = 1
        return interp

    def go(self) -> Any:
        """Returns the result of the call."""
        if self.interp.trace.active:
            self.interp.pause.begin()
        try:
            value = TRACERS.holding(self._go) if self.interp.fakes is not None else self._go()
        except BaseException as e:
            if self.released or not self._comes_from_outside(e):
                raise
            if not self._interrupted(e):
                self._release()
                raise
            # Nothing of this run is in the world; but what lies before it is, and has blocks that are to be left. Not here: while ``e`` is being
            # handled, what the blocks raise would get other contexts.
            self.behind = functools.partial(self.region.run_eagerly, self.entry_point, *self.call, e)
        finally:
            self.interp.pause.end()
        while self.behind is not None:
            # What is done instead of the rest of this run, which is over.
            self._release()
            value = self._take_behind()()
        # Who runs the segment that starts at the entry runs those behind it; else the caller does.
        return run_on(value) if self.start is self.region.entry and goes_on(value) else value

    def _take_behind(self) -> Callable[[], Any]:
        """Returns what is done instead of the rest of this run; no frame holds it: it may hold an exception, of which the traceback leads there."""
        behind, self.behind = self.behind, None
        assert behind is not None
        return behind

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
            if e is interp.interrupt or (from_outside(e) and self._comes_from_outside(e)):
                raise
            if interp.fakes is not None and interp.abandoned is None:
                self._restart("FL515", f"the call raises {type(e).__name__}")
            elif self.behind is not None:
                self._release()
                raise
            elif interp.abandoned is None:
                region.reports.note(Event("raised", "FL408", told(e)[:200], *place_of(region.fn)))
                if not is_a(e, FLEETING):
                    self.region.eager.count_failure("the captured call raises")
                self._release()
                raise
        if self.behind is not None:
            return None
        if interp.abandoned is not None:
            return self._abandon(interp.abandoned)
        if interp.trace.active:
            self._keep_program(value)
        if self.behind is not None:
            return None
        if interp.abandoned is not None:
            return self._abandon(interp.abandoned)
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
        """Writes the program of the segment in which the call returns ``value``, and keeps it."""
        region, interp = self.region, self.interp
        try:
            writer = region.writer(interp.trace, self._name())
            try:
                with computing(interp):
                    writer.returns(value)
                    keep(region, self.entry_point, self.shape, writer, None, False)
            finally:
                writer.rebuild.close()
            self.kept = True
            if interp.fakes is not None and not self.mode.trial:
                # Not here, where what the program raises would be taken for an error of the writing.
                self.behind = functools.partial(self._now, *self.call)
        except Restart as e:
            self._restart(e.error, e.text, e.again, e.draws)
        except NotReconstructible as e:
            self._move_out(e)
            self._failed(e.error, e.text)
        except FinelineError as e:
            interp.abandoned = e
        except Exception as e:
            let_pass(e)
            log.debug("fineline: writing a program failed", exc_info=True)
            self._failed("FL901", f"writing the program failed: {type(e).__name__}: {e}")

    def take_back(self) -> None:
        """Undoes what the newest segment has done."""
        self.checkpoint.take_back(self.interp)

    def _comes_from_outside(self, e: BaseException) -> bool:
        """Returns whether ``e`` has come from outside during this run, or leaves an eager call that it begins behind."""
        return self.interp.interrupted_by(e) or (e is self.beginning.thrown and asynchronous(e) is e)

    def _interrupted(self, e: BaseException) -> bool:
        """Ends this session because of an exception from outside; returns whether handlers in the frames at its entry point must see it."""
        region, interp = self.region, self.interp
        region.state.interrupt(e)
        self.behind = None
        region.reports.note(Event("raised", "FL408", told(e)[:200], *place_of(region.fn)))
        if interp.fakes is not None or self.mode.trial:
            self.take_back()
        leave_inference_modes(interp)
        frame_state = self.entry_point.frame_state
        return interp.fakes is not None and self.entry_point is self.start and frame_state is not None and bool(frame_state.has_handlers)

    def _name(self) -> str:
        fn = self.region.fn
        return f"{getattr(fn, '__name__', type(fn).__name__)}_{self.region.budget.programs}_{id(self.region):x}"

    # -- what the interpreter asks: CaptureHost ------------------------------------------------------------------
    sub_interpreters = (Trial, BodyInterpreter)

    @property
    def run_frame(self) -> FrameRunner:
        return self.region.run_frame

    @property
    def fired(self) -> Counter[Rule]:
        return self.region.reports.fired

    def before_eager_call(self, interp: Interpreter, graph_break: GraphBreak) -> None:
        """Makes real what an eager call gets, while nothing is captured."""
        settle(interp, graph_break)

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for what the region refuses, with the user's line and stack."""
        breaks = breaks_here(self.region.options.breaks)
        return refused(error, text, user_place(f, self.region.fn), rule, breaks, stack=user_stack(f), within=selector_of(f))

    def may_restart(self) -> bool:
        """Returns whether the segment can be taken back and captured on fakes."""
        return not self.mode.why and may_restart(self.interp, self.entry_point is self.start)

    def on_graph_break(self, interp: Interpreter, graph_break: GraphBreak) -> Any:
        """Ends the segment, runs the call, begins the next segment."""
        f = interp.frame
        assert f is not None
        if interp.abandoned is not None:
            # Code of the user's that runs on the way out: why they are on it has been said.
            raise CaptureAborted
        if interp.trace.symbols is not None:
            interp.trace.symbols.check(interp)
        place = user_place(f, self.region.fn)
        declared = self._allow_break(interp, f, graph_break, place)
        if graph_break.error == STOPS:
            return self._stop_in_debugger(graph_break, place)
        self._note_break(f, graph_break, place)
        if self.ways.graph_breaks >= MOST_BREAKS:
            interp.fail("FL428", f"over {MOST_BREAKS} graph breaks in one call, the last because {graph_break.reason}", False)
            return interp.beyond(graph_break)
        end = self._end_segment(f, graph_break, place, declared)
        if end is None:
            # Not in there: what the call raises would have an exception of fineline's as its context.
            return interp.beyond(graph_break)
        snapshot, after, failed = end.snapshot, end.after, end.failed
        snapshot.pass_on()
        settle(interp, graph_break, end.writer.rebuild.built)
        interp.trace.forget()
        if interp.handled is not None:
            drop_variables(interp.handled, f)
        del end
        try:
            value = interp.beyond(graph_break)
        except BaseException as e:
            interp.known.clear()
            self._begin(failed, snapshot, e, "failure")
            raise
        after.entry_point.observe((*snapshot.roots, value), {})
        interp.known.carry(graph_break.fn, interp.trace.recorder.mutated)
        self._begin(after, snapshot, value, "result")
        return value

    def _stop_in_debugger(self, graph_break: GraphBreak, place: tuple[str, int]) -> Any:
        """Continues the call in Python, and all later calls; from its start if it had no visible effect yet."""
        region, interp = self.region, self.interp
        stop_in_debugger(region, interp, graph_break, place)
        if interp.fakes is not None or (self.entry_point is self.start is region.entry and self.may_restart()):
            raise Restart(graph_break.error, graph_break.reason)
        interp.fail(graph_break.error, graph_break.reason, False)
        self.ended = True
        return interp.beyond(graph_break)

    def _allow_break(self, interp: Interpreter, f: Frame, graph_break: GraphBreak, place: tuple[str, int]) -> bool:
        """Returns whether the user has declared the graph break; raises where none may be."""
        breaks = breaks_here(self.region.options.breaks)
        if interp.rules is not None and not graph_break.rule:
            graph_break.reason += interp.rules.told_to_look(graph_break.fn, graph_break.args_)
        reads = graph_break.error in READS and graph_break.fn is not bool
        if breaks == "none" and ((interp.switches and reads) or (interp.fakes and graph_break.error in FAKES_LACK)):
            raise Restart(graph_break.error, graph_break.reason)
        rule_here = interp.declared(graph_break.error) if graph_break.error not in ASKED else None
        if rule_here is not None:
            graph_break.rule = str(rule_here)
        elif breaks == "none" or (breaks == "declared" and graph_break.error not in ASKED):
            if reads and interp.fakes is None and self.mode.why not in ("", graph_break.reason):
                graph_break.reason += f", and in fake mode {self.mode.why}"
            rule = named_rule(graph_break, place)
            interp.abandoned = refused(graph_break.error, graph_break.reason, place, rule, breaks, graph_break.fn, user_stack(f), selector_of(f))
            raise CaptureAborted
        if self.mode.trial:
            interp.abandoned = NotOneGraph()
            raise CaptureAborted
        return rule_here is not None or graph_break.error in DECLARED

    def _note_break(self, f: Frame, graph_break: GraphBreak, place: tuple[str, int]) -> None:
        """Reports the graph break, and the function that capture skips at it."""
        frames = user_stack(f)
        rule, built_in = deciding_rule(graph_break, place)
        self.region.reports.note(Event("break", graph_break.error, graph_break.reason, *place, rule, detail={"stack": frames, "built_in": built_in}))
        if graph_break.error in UNSEEN:
            unseen = place_of(graph_break.fn) if graph_break.error != "FL430" and hasattr(graph_break.fn, "__code__") else place
            where = unseen if unseen[1] else place
            self.region.reports.note(Event("skipped", graph_break.error, graph_break.reason, *where, graph_break.rule, detail={"stack": frames}))

    def _end_segment(self, f: Frame, graph_break: GraphBreak, place: tuple[str, int], declared: bool) -> SegmentEnd | None:
        """Writes the program of the segment that ends at a graph break, and keeps it; returns None if nothing more is captured."""
        region, interp = self.region, self.interp
        end = SegmentEnd(region, interp, self.ways, graph_break, place, declared)
        end.leave_storm()
        try:
            end.write(self._name())
            self.ways.pass_by(end.snapshot.state)
            interp.note_break(end.snapshot.state.stack)
            with computing(interp):
                keep(region, self.entry_point, self.shape, end.writer, declared, interp.outside == "skipped")
            end.add_entry_points(f)
            if interp.fakes is not None:
                end.vary()
                self._leave(end.snapshot, functools.partial(self._now, *self.call))
        except NotReconstructible as e:
            self._give_segment_up(e)
        except FinelineError as e:
            interp.abandoned = e
            raise CaptureAborted from None
        except Exception as e:
            let_pass(e)
            log.debug("fineline: writing a program failed", exc_info=True)
            interp.fail("FL901", f"writing the program failed: {type(e).__name__}: {e}", False)
        return end if interp.trace.active else None

    def _give_segment_up(self, e: NotReconstructible) -> None:
        """Gives the segment up because of a value that no program can make again, and learns what the next capture leaves out."""
        interp = self.interp
        interp.fail(e.error, e.text, False)
        if interp.fakes is not None:
            raise Restart(e.error, e.text) from None
        if interp.trace.start_ambient.inference_mode != torch.is_inference_mode_enabled():
            # The context can't leave its graph; entered between two graphs, it is a value like others.
            self.region.lessons.learn("inference_mode_breaks", True)
        elif not self._move_out(e):
            move_out(self.region.lessons, interp.frame)

    def _leave(self, snapshot: Snapshot, behind: Callable[[], Any]) -> NoReturn:
        """Ends this session at a graph break: the programs behind it do the rest of the call."""
        snapshot.release()
        self.interp.forget_generators()
        self.behind = behind
        raise Finished(None)

    def _begin(self, way: Way | None, snapshot: Snapshot, value: Any, name: str) -> None:
        """Begins the next segment, at the entry point that a ``way`` leads to; None: nothing more is captured."""
        interp = self.interp
        live = (*snapshot.roots, value)
        if way is not None and (
            way.leads_back(live) or way.entry_point.met or snapshot.state.serves_iterations or way.entry_point.varying.varies
        ):
            # What varies here is known from other calls, and only fake mode has symbols.
            self._leave(snapshot, functools.partial(_at, way.go_on, live))
        containers, decomposed = snapshot.containers, snapshot.decomposed
        # Our callers hold the snapshot.
        snapshot.release()
        # The user's handlers may run on either at any moment, for an interrupt: the earlier one is closed when nothing reads by it any more.
        earlier = interp.trace
        begin_segment(interp)
        earlier.guards.close()
        self.checkpoint = Checkpoint()
        if way is None:
            interp.trace.active = False
            self.ended = True
            return
        self.entry_point = entry_point = way.entry_point
        entry_point.inform(bool(interp.known))
        interp.unsteady = entry_point.varying.unsteady
        self.shape = CallShape(len(live))
        register(interp, entry_point, live, [*snapshot.state.values.names, name])
        guard_iterated(interp, containers)
        interp.trace.made.update(decomposed)

        leaves = entry_point.stretch is not None and entry_point.stretch.leaves_function
        if leaves or None in SCOPE.blocks or watching():
            interp.trace.active, interp.resumes = False, True
            entry_point.run_eagerly_after()
            self.ended = True

    def resume(self, interp: Interpreter, graph_break: GraphBreak) -> Any:
        """Leaves this run, which captures nothing, for an entry point behind it: its programs, or a new capture."""
        settle(interp, graph_break)
        interp.trace.made = Everything()
        assert interp.frame is not None
        place, frames = user_place(interp.frame, self.region.fn), {"stack": user_stack(interp.frame)}
        try:
            snapshot = take_snapshot(interp, graph_break, place, constants=False)
        except NotReconstructible as e:
            self.region.reports.note_once(Event("eager", "FL409", f"{e.text}; the call goes on eagerly behind the block", *place, detail=frames))
            return interp.beyond(graph_break)
        snapshot.pass_on()
        frame_state = snapshot.state
        interp.note_break(frame_state.stack)
        live = (*snapshot.roots, interp.beyond(graph_break))
        stretch = self.entry_point.run_eagerly_after()
        dispatcher = stretch.dispatcher_at(frame_state)
        if dispatcher is None and self.ways.graph_breaks >= MOST_BREAKS:
            text = f"over {MOST_BREAKS} graph breaks in one call, the last behind a block"
            self.region.reports.note_once(Event("eager", "FL428", text, *place, detail=frames))
            return live[-1]
        if dispatcher is None:
            # A function that is left is one graph break, as it will be at the next call.
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
            # From the next call on, the function that has returned is one call.
            start_anew(self.region)
        return self._leave(snapshot, functools.partial(_at, dispatcher, live))

    def _now(self, args: tuple, kwargs: dict) -> Any:
        """Returns the call itself, by the program that fake mode has made of it."""
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
        return run(*got)

    def _restart(self, error: str, text: str, again: bool = False, draws: bool | None = None) -> None:
        """Undoes this attempt, and arranges that the call is captured in another mode, outside of any handler of this session's exceptions."""
        roots = tuple([src.value for src in self.interp.trace.guards.roots()])
        mutations = self.interp.trace.mutations
        # The calls of caches that have counted: the next attempt is not to count there again.
        self.region.state.leave_cached_calls([*mutations.ahead, *mutations.cached])
        self.take_back()
        self.interp.trace.mutations.forget()
        self.interp.forget_calls()
        if self.region.watch.tally is not None:
            self.region.watch.tally.drop()
        fake = self.interp.fakes is not None
        if self.mode.trial:
            # Somebody wants to know what fake mode makes of the call.
            self._release()
            raise RestartSpecialized if again else refused(error, text, place_of(self.region.fn))
        if fake:
            how = "with fewer symbols" if again else "on its real values"
            self.region.reports.note(Event("restart", error, f"{text}; the call is captured {how}", *place_of(self.region.fn)))
        args, kwargs = self.call
        if error == STOPS and self.entry_point is self.start is self.region.entry:
            self.behind = functools.partial(self.region.fn, *args, **kwargs)
            return
        if draws is not None:
            self.entry_point.use_symbols_for_draws(draws)
        if self.entry_point is not self.start:
            # On the real values, after a graph break: what lies before it stays.
            self.behind = functools.partial(_at, self.entry_point.dispatcher, roots)
            return
        fixed = again or draws is not None
        why = self.mode.why if fixed else text
        self.behind = lambda: CaptureSession(self.region, self.entry_point, args, kwargs, Mode(live=fake and not fixed, why=why)).go()

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
        fake = interp.fakes is not None
        if fake and self.entry_point is not region.entry and is_a(error, FinelineError):
            # Blocks that were entered before a graph break are left by the user's own code, for real.
            self._restart(error.id, error.reason)
            return None
        untouched = fake or self.start is self.entry_point is region.entry
        if untouched:
            self.take_back()
        inputs = bool(interp.trace.recorder.inputs)
        rerun = fake or (untouched and (not (inputs and interp.trace.recorder.mutated) or bool(interp.trace.mutations.storages)))
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
        """Makes the next capture leave out of its graphs what cannot be there; returns whether that is known to help."""
        if is_a(e, Uncompiled):
            self.region.lessons.learn(*e.lesson)
            return True
        return make_outside(self.region, self.entry_point, e.called_at)

    def _given_up(self) -> None:
        if self.ended:
            return
        interp, region = self.interp, self.region
        error, text = interp.failure or ("FL901", "unknown")
        known = bool(interp.failed_at[0])
        file, line = interp.failed_at if known else place_of(region.fn)
        stack = interp.failed_stack if known else call_stack(region.fn, None)
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
        # Nothing that was alive in the call stays so, and no cycle is left for a collection to find.
        interp = self.interp
        if interp.interrupt is not None:
            # The user's code may have handled it.
            leave_inference_modes(interp)
        interp.trace.recorder.forget()
        interp.trace.guards.close()
        if interp.trace.symbols is not None:
            interp.trace.symbols.close()
            interp.trace.symbols = None
        interp.known.clear()
        interp.texts.clear()
        if self.behind is None and not self.mode.trial:
            # Of a trial, what was written is still to be undone.
            interp.trace.mutations.forget()
        interp.close()
        self.beginning = Beginning()
        self.call = ((), {})


def _at(dispatcher: Any, live: tuple) -> tuple[Continuation, list]:
    """Goes on at a dispatcher: as segments give it back."""
    return Continuation(dispatcher), [*live]
