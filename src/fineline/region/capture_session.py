"""One captured call of a region, from its entry or a continuation to the return."""

from __future__ import annotations

import functools
import logging
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from fineline.backends.lock import TRACERS
from fineline.builtins.debuggers import STOPS
from fineline.bytecode.asynchronous import asynchronous, from_outside, let_pass
from fineline.codegen.continuation import Continuation, goes_on, run_on
from fineline.codegen.escape import real_result, settle
from fineline.codegen.frame_restore import restore
from fineline.codegen.frame_snapshot import Snapshot, take_snapshot
from fineline.codegen.frame_state import FrameState
from fineline.codegen.residual_program import ResidualWriter
from fineline.errors import FinelineError, InternalError
from fineline.exception_slots import told
from fineline.frames.frame import Frame, stack
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
from fineline.fx.recorder import NotForGraph
from fineline.guards.source import Source
from fineline.interp.body_interpreter import BodyInterpreter
from fineline.interp.break_storms import IDLE, idle_frame, leave
from fineline.interp.interpreter import FLEETING, Interpreter
from fineline.interp.trial import Trial
from fineline.kinds import is_a
from fineline.objects.deferred_texts import begin_segment, given
from fineline.policy.break_settings import breaks_here
from fineline.policy.decide import rules_now
from fineline.policy.rule import Rule
from fineline.policy.scope_stack import SCOPE
from fineline.region.break_errors import deciding_rule, named_rule, refused
from fineline.region.compile_decision import keep
from fineline.region.descriptions import call_stack, describe_miss, place_of, selector_of, user_place
from fineline.region.disabled_frames import FrameRunner
from fineline.region.entry_frame import entry_frame
from fineline.region.entry_point import EntryPoint, Everything
from fineline.region.loop_merging import Way, snapshot_at, way_behind
from fineline.region.retry import given_up, make_outside, move_out, start_anew, stop_in_debugger
from fineline.region.rollback import amid_transforms, leave_inference_modes, may_restart, take_back
from fineline.report.events import Event
from fineline.symbolic.arithmetic import holds
from fineline.tensor_ops.compute import computing
from fineline.tensor_ops.user_modes import watching
from fineline.torch_facts.thread_state import hidden_states

log = logging.getLogger("fineline")


# Graph breaks that a user's rule or option asked for.
DECLARED = ASKED | {"FL403"}
TEXTS = frozenset({str, bytes})
# A call cut into more pieces than this costs more in guards than its graphs can save.
MOST_BREAKS = 400


class CaptureSession:
    """One captured call: from the region's entry or a continuation to the return, through any number of graph breaks."""

    def __init__(
        self, region: Any, entry_point: EntryPoint, args: tuple, kwargs: dict, capture: bool = True, live: bool = False, trial: bool = False, why: str = ""
    ) -> None:
        """Sets up a session. ``live``: on the real values in any case. ``why``: the reason why an attempt in the other mode stopped."""
        self.region = region
        self.why = why
        self.start = entry_point
        # Its writes are taken back in the end; whether a program stands for all of the call.
        self.trial = trial
        self.kept = False
        self.call = (args, kwargs)
        self.hidden = hidden_states() if capture else None
        self.blocks = SCOPE.blocks
        self.entry_point = entry_point
        # The graph breaks so far: how many at each place.
        self.passed = entry_point.passed
        self.nargs, self.kwnames = len(args), tuple(kwargs)
        self.interp = interp = region.make_interpreter(region.options, region.lessons, self)
        interp.undoable = breaks_here(region.options.breaks) != "any" or trial
        interp.shows_layouts = region.shows_graphs
        interp.trace.mutations.ahead, region.ahead = region.ahead, []
        interp.rules = rules_now(region.options.policy, interp.fired)
        interp.undoable = interp.undoable or (interp.rules is not None and interp.rules.refuse)
        if not capture:
            interp.trace.active = False
            self.ended = True
        elif not live and not amid_transforms(entry_point is region.entry):
            interp.trace.symbols = symbols = region.symbols(interp, entry_point, args, kwargs, bool(why) or entry_point.draws)
            interp.fakes = interp.known.fakes = symbols and symbols.fakes
            # Without graph breaks, all that has happened can be undone.
            interp.switches = not (trial or symbols or why) and entry_point is region.entry and region.options.fullgraph
            interp.restartable = not trial
        interp.unsteady = entry_point.varying.unsteady
        if entry_point.blocked:
            interp.resumes = True
        if entry_point.frame_state is not None and entry_point.frame_state.chain in region.turns.unrolled:
            interp.turn = weakref.ref(entry_point.varying)
        if entry_point.frame_state is not None and entry_point.frame_state.serves_iterations:
            # Those of a loop's iterations go on: each iteration would be captured.
            interp.few_keys = 1
        self.stop: BaseException | None = None
        self.containers: list = []
        if interp.fakes is not None:
            TRACERS.holding(self._enter, args, kwargs)
        else:
            self._enter(args, kwargs)

    def _enter(self, args: tuple, kwargs: dict) -> None:
        """Makes the frames that the run begins with."""
        entry_point, interp = self.entry_point, self.interp
        if entry_point.frame_state is None:
            interp.frame = entry_frame(interp, self.region.fn, args, kwargs)
        else:
            names = [*entry_point.frame_state.values.names, "failure" if entry_point.raised else "result"]
            args = self._roots(args, names)
            data, self.containers, made = restore(entry_point.frame_state, interp, args[:-1])
            interp.trace.made.update(map(id, made))
            for f, counts in zip(stack(interp.frame), entry_point.idle, strict=False):
                f.idle, f.worked = counts
            interp.note_continuation(entry_point.frame_state.stack)
            if entry_point.raised:
                self.stop = args[-1]
            else:
                assert interp.frame is not None
                resumption = entry_point.frame_state.resumption
                interp.pending = (args[-1], resumption.then, data, resumption.push)

    def _roots(self, values: Any, names: list[str]) -> tuple:
        """Registers what is alive after a graph break, last what the eager call gave or raised."""
        trace = self.interp.trace
        roots = [trace.guards.root(i, name, v) for i, (v, name) in enumerate(zip(values, names, strict=True))]
        trace.given = roots[-1]
        return tuple([self._root(v, src) for v, src in zip(values, roots, strict=True)])

    def _root(self, v: Any, src: Source) -> Any:
        """Registers what a graph break has left; a text of it that varies, also in a tuple, has not been read so far."""
        trace, varying = self.interp.trace, self.entry_point.varying
        if self.entry_point.frame_state is None or not varying.texts or breaks_here(self.region.options.breaks) != "any":
            return trace.read(v, src)
        if type(v) in TEXTS and src.text() in varying.texts:
            return given(self.interp, v, src)
        parts = [(x, trace.guards.access(src, "index", i, x)) for i, x in enumerate(v)] if type(v) is tuple and not src.checked else []
        if not any([type(x) in TEXTS and part.text() in varying.texts for x, part in parts]):
            return trace.read(v, src)
        trace.check_type(src, tuple)
        trace.guards.check(src, "len", len(v))
        trace.adopt(v, src)
        found = tuple([self._root(x, part) for x, part in parts])
        trace.adopt(found, src)
        return found

    def _iterated(self, containers: list) -> None:
        """Iterators over these are under way: what they give must be known."""
        trace = self.interp.trace
        try:
            for v in containers:
                trace.expand(v)
        except NotForGraph as e:
            self.interp.fail("FL413", str(e), False)

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
        if region.tally is not None:
            region.tally.where.append(interp.fate)
        try:
            self._iterated(self.containers)
            value = interp.run(self.stop)
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
                region._note(Event("raised", "FL408", told(e)[:200], *place_of(region.fn)))
                if not is_a(e, FLEETING):
                    self._count_failure("the captured call raises")
                self._release()
                raise
        if self.behind is not None:
            return None
        if interp.abandoned is not None:
            return self._abandon(interp.abandoned)
        if interp.trace.active:
            try:
                writer = region.writer(interp.trace, self._name())
                try:
                    with computing(interp):
                        writer.returns(value)
                        keep(self, writer)
                finally:
                    writer.rebuild.close()
                self.kept = True
                if interp.fakes is not None and not self.trial:
                    # Not here, where what the program raises would be taken for an error of the writing.
                    self.behind = functools.partial(self._now, *self.call)
            except Restart as e:
                self._restart(e.error, e.text, e.again, e.draws)
            except NotReconstructible as e:
                self._move_out(e)
                self._failed(e.error, e.text)
            except FinelineError as e:
                return self._abandon(e)
            except Exception as e:
                let_pass(e)
                log.debug("fineline: writing a program failed", exc_info=True)
                self._failed("FL901", f"writing the program failed: {type(e).__name__}: {e}")
        if self.behind is not None:
            return None
        if interp.abandoned is not None:
            return self._abandon(interp.abandoned)
        if not interp.trace.active:
            self._given_up()
        if self.trial:
            take_back(self)
            self._release()
            return None
        self._release()
        result = [value]
        del value
        return real_result(interp, result)

    def _comes_from_outside(self, e: BaseException) -> bool:
        """Returns whether ``e`` has come from outside during this run, or leaves an eager call that it begins behind."""
        return self.interp.interrupted_by(e) or (e is self.stop and asynchronous(e) is e)

    def _interrupted(self, e: BaseException) -> bool:
        """Ends this session because of an exception from outside; returns whether handlers in the frames at its entry point must see it."""
        region, interp = self.region, self.interp
        region.interrupt, self.behind = e, None
        region._note(Event("raised", "FL408", told(e)[:200], *place_of(region.fn)))
        if interp.fakes is not None or self.trial:
            take_back(self)
        leave_inference_modes(interp)
        frame_state = self.entry_point.frame_state
        return interp.fakes is not None and self.entry_point is self.start and frame_state is not None and bool(frame_state.has_handlers)

    def _name(self) -> str:
        fn = self.region.fn
        return f"{getattr(fn, '__name__', type(fn).__name__)}_{self.region.programs}_{id(self.region):x}"

    # -- what the interpreter asks: CaptureHost ------------------------------------------------------------------
    sub_interpreters = (Trial, BodyInterpreter)

    @property
    def run_frame(self) -> FrameRunner:
        return self.region.run_frame

    @property
    def fired(self) -> Counter[Rule]:
        return self.region.fired

    def before_eager_call(self, interp: Interpreter, graph_break: GraphBreak) -> None:
        """Makes real what an eager call gets, while nothing is captured."""
        settle(interp, graph_break)

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        """Returns the error for what the region refuses, with the user's line and stack."""
        breaks = breaks_here(self.region.options.breaks)
        return refused(error, text, user_place(f, self.region.fn), rule, breaks, stack=user_stack(f), within=selector_of(f))

    def may_restart(self) -> bool:
        """Returns whether the segment can be taken back and captured on fakes."""
        return may_restart(self)

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
            return stop_in_debugger(self, graph_break, place)
        self._note_break(f, graph_break, place)
        if self.graph_breaks >= MOST_BREAKS:
            interp.fail("FL428", f"over {MOST_BREAKS} graph breaks in one call, the last because {graph_break.reason}", False)
            return interp.beyond(graph_break)
        ended = self._end_segment(interp, f, graph_break, place, declared)
        if ended is None:
            # Not in there: what the call raises would have an exception of fineline's as its context.
            return interp.beyond(graph_break)
        snapshot, writer, after, failed = ended
        snapshot.pass_on()
        settle(interp, graph_break, writer.rebuild.built)
        interp.trace.forget()
        del writer, ended
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
            if reads and interp.fakes is None and self.why not in ("", graph_break.reason):
                graph_break.reason += f", and in fake mode {self.why}"
            rule = named_rule(graph_break, place)
            interp.abandoned = refused(graph_break.error, graph_break.reason, place, rule, breaks, graph_break.fn, user_stack(f), selector_of(f))
            raise CaptureAborted
        if self.trial:
            interp.abandoned = NotOneGraph()
            raise CaptureAborted
        return rule_here is not None or graph_break.error in DECLARED

    def _note_break(self, f: Frame, graph_break: GraphBreak, place: tuple[str, int]) -> None:
        """Reports the graph break, and the function that capture skips at it."""
        frames = user_stack(f)
        rule, built_in = deciding_rule(graph_break, place)
        self.region._note(Event("break", graph_break.error, graph_break.reason, *place, rule, detail={"stack": frames, "built_in": built_in}))
        if graph_break.error in UNSEEN:
            unseen = place_of(graph_break.fn) if graph_break.error != "FL430" and hasattr(graph_break.fn, "__code__") else place
            where = unseen if unseen[1] else place
            self.region._note(Event("skipped", graph_break.error, graph_break.reason, *where, graph_break.rule, detail={"stack": frames}))

    def _end_segment(
        self, interp: Interpreter, f: Frame, graph_break: GraphBreak, place: tuple[str, int], declared: bool
    ) -> tuple[Snapshot, ResidualWriter, Way, Way | None] | None:
        """Returns the state of the frames, the segment's writer and the ways on, with a result and with an exception; None if nothing more is captured."""
        region = self.region
        idle = idle_frame(interp, declared)
        if idle is not None:
            newly = leave(interp, idle)
            text = f"the rest of {idle.info.code.co_qualname}, which {IDLE}, runs eagerly"
            region._note(Event("eager", "FL436", text, *place, detail={"stack": user_stack(f)}))
        try:
            snapshot = snapshot_at(self, graph_break, place)
            writer, after, failed = self._written(snapshot, graph_break, declared, idle is not None)
            while found := snapshot.rebuilt & writer.rebuild.built:
                snapshot = snapshot_at(self, graph_break, place, snapshot.held | found)
                writer, after, failed = self._written(snapshot, graph_break, declared, idle is not None)
            self.passed = self._passed(snapshot.state)
            interp.note_break(snapshot.state.stack)
            with computing(interp):
                keep(self, writer, declared)
            entry_points = [after.entry_point] if failed is None else [after.entry_point, failed.entry_point]
            if idle is not None:
                after.entry_point.left, after.entry_point.newly_left, after.entry_point.blocked = idle.info, newly, True
            region.entry_points += [entry_point for entry_point in entry_points if not entry_point.met]
            self._note_place(f)
            if interp.trace.active:
                self._tell_texts(snapshot, graph_break, after.entry_point, entry_points)
            if interp.fakes is not None:
                for entry_point in entry_points:
                    entry_point.vary(snapshot.roots, interp.memory)
                self._leave(snapshot, functools.partial(self._now, *self.call))
        except NotReconstructible as e:
            self._give_segment_up(interp, e)
        except FinelineError as e:
            interp.abandoned = e
            raise CaptureAborted from None
        except Exception as e:
            let_pass(e)
            log.debug("fineline: writing a program failed", exc_info=True)
            interp.fail("FL901", f"writing the program failed: {type(e).__name__}: {e}", False)
        return (snapshot, writer, after, failed) if interp.trace.active else None

    def _give_segment_up(self, interp: Interpreter, e: NotReconstructible) -> None:
        """Gives the segment up because of a value that no program can make again, and learns what the next capture leaves out."""
        interp.fail(e.error, e.text, False)
        if interp.fakes is not None:
            raise Restart(e.error, e.text) from None
        if interp.trace.start_ambient.inference_mode != torch.is_inference_mode_enabled():
            # The context can't leave its graph; entered between two graphs, it is a value like others.
            self.region.lessons.inference_mode_breaks = True
        elif not self._move_out(e):
            move_out(self.region.lessons, interp.frame)

    def _written(self, snapshot: Snapshot, graph_break: GraphBreak, declared: bool, alone: bool) -> tuple[ResidualWriter, Way, Way | None]:
        """Returns a program up to a graph break, and the ways on behind it: with its result, and with its exception if somebody handles that."""
        frame_state = snapshot.state
        passed = self._passed(frame_state)
        after = way_behind(self, frame_state, False, declared, passed, alone)
        failed = way_behind(self, frame_state, True, declared, passed, alone) if frame_state.has_handlers else None
        for entry_point, _ in (after, failed) if failed is not None else (after,):
            entry_point.idle = entry_point.idle or tuple([(f.idle, f.worked) for f in stack(self.interp.frame)])
        writer = ResidualWriter(self.interp.trace, self._name())
        behind = (after.go_on, failed.go_on if failed is not None else None)
        interp = self.interp
        with computing(interp):
            writer.graph_break(graph_break.fn, graph_break.args_, graph_break.kwargs, snapshot.roots, *behind, interp.place(), interp.handled)
        return writer, after, failed

    def _note_place(self, f: Frame) -> None:
        """Notes where the frames around a graph break are: the loops that they are in go round it."""
        for frame in stack(f):
            self.region.lessons.break_places.setdefault(frame.info.code, set()).add(frame.ip)

    def _tell_texts(self, snapshot: Snapshot, graph_break: GraphBreak, after: EntryPoint, entry_points: list[EntryPoint]) -> None:
        """Texts that vary before a graph break do behind it, and so, if it is a text or a number, does what is made of them, or of numbers that vary."""
        texts = self.interp.texts
        for name in [name for name, v in zip(snapshot.state.values.names, snapshot.roots, strict=True) if id(v) in texts]:
            for entry_point in entry_points:
                entry_point.varying.add_text(name)
        if graph_break.error == "FL448" or any([id(a) in texts or holds(a) for a in (*graph_break.args_, *graph_break.kwargs.values())]):
            after.varying.add_made("result")

    @property
    def graph_breaks(self) -> int:
        return sum(self.passed.values())

    def _passed(self, frame_state: FrameState) -> dict:
        return {**self.passed, frame_state.stack: self.passed.get(frame_state.stack, 0) + 1}

    def _leave(self, snapshot: Snapshot, behind: Callable[[], Any]) -> NoReturn:
        """Ends this run at a graph break: the programs behind it do the rest of the call."""
        snapshot.release()
        self.interp.forget_generators()
        self.behind = behind
        raise Finished(None)

    def _begin(self, way: Way | None, snapshot: Snapshot, value: Any, name: str) -> None:
        interp = self.interp
        entry_point, live = way.entry_point if way is not None else None, (*snapshot.roots, value)
        if way is not None and (
            way.leads_back(live) or way.entry_point.met or snapshot.state.serves_iterations or way.entry_point.varying.told_apart
        ):
            # What varies here is known from other calls, and only fake mode has symbols.
            self._leave(snapshot, functools.partial(_at, way.go_on, live))
        roots, containers, decomposed = snapshot.roots, snapshot.containers, snapshot.decomposed
        # Our callers hold the snapshot.
        snapshot.release()
        # The user's handlers may run on either at any moment, for an interrupt: the earlier one is closed when nothing reads by it any more.
        earlier = interp.trace
        begin_segment(interp)
        earlier.guards.close()
        self.hidden, self.blocks = hidden_states(), SCOPE.blocks
        if entry_point is None:
            interp.trace.active = False
            self.ended = True
            return
        self.entry_point, entry_point.informed, interp.unsteady = entry_point, bool(interp.known), entry_point.varying.unsteady
        self.nargs, self.kwnames = len(roots) + 1, ()
        self._roots([*roots, value], [*snapshot.state.values.names, name])
        self._iterated(containers)
        interp.trace.made.update(map(id, decomposed))

        if entry_point.left or None in SCOPE.blocks or watching():
            interp.trace.active, interp.resumes = False, True
            entry_point.blocked = self.ended = True

    ended = False
    # Whether all is over, and nothing is held any more.
    released = False
    # The rest of the call, behind a block in which nothing was captured.
    behind: Callable[[], Any] | None = None

    def resume(self, interp: Interpreter, graph_break: GraphBreak) -> Any:
        """Leaves this run, which captures nothing, for an entry point behind it: its programs, or a new capture."""
        settle(interp, graph_break)
        interp.trace.made = Everything()
        assert interp.frame is not None
        place, frames = user_place(interp.frame, self.region.fn), {"stack": user_stack(interp.frame)}
        try:
            snapshot = take_snapshot(interp, graph_break, place, constants=False)
        except NotReconstructible as e:
            self.region._note_once(Event("eager", "FL409", f"{e.text}; the call goes on eagerly behind the block", *place, detail=frames))
            return interp.beyond(graph_break)
        snapshot.pass_on()
        frame_state = snapshot.state
        interp.note_break(frame_state.stack)
        live = (*snapshot.roots, interp.beyond(graph_break))
        dispatcher = next((d for s, d in self.entry_point.resumed if s.frame_state is not None and s.frame_state.same(frame_state)), None)
        if dispatcher is None and self.graph_breaks >= MOST_BREAKS:
            text = f"over {MOST_BREAKS} graph breaks in one call, the last behind a block"
            self.region._note_once(Event("eager", "FL428", text, *place, detail=frames))
            return live[-1]
        if dispatcher is None:
            # A function that is left is one graph break, as it will be at the next call.
            self.passed = {place: n for place, n in self.passed.items() if self.entry_point.left not in [info for info, _ in place]}
            self.passed = self._passed(frame_state)
            if len(self.entry_point.resumed) >= self.region.options.recompile_limit:
                reason = f"calls leave the block in {len(self.entry_point.resumed)} different states, which is the region's recompile_limit"
                self.region._note_once(Event("limit", "FL104", f"{reason}; from here on they go on eagerly", *place, detail=frames))
                return live[-1]
            entry_point = EntryPoint(self.region, frame_state, False, passed=self.passed)
            dispatcher = entry_point.dispatcher
            self.entry_point.resumed.append((entry_point, dispatcher))
            self.region.entry_points.append(entry_point)
        if self.entry_point.newly_left and not self.region.options.error_on_recompile:
            # From the next call on, the function that has returned is one call.
            self.entry_point.newly_left = False
            start_anew(self.region)
        return self._leave(snapshot, functools.partial(_at, dispatcher, live))

    def _now(self, args: tuple, kwargs: dict) -> Any:
        """Returns the call itself, by the program that fake mode has made of it."""
        take_back(self)
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
        take_back(self, anew=True)
        self.interp.trace.mutations.forget()
        self.interp.forget_calls()
        if self.region.tally is not None:
            self.region.tally.drop()
        fake = self.interp.fakes is not None
        if self.trial:
            # Somebody wants to know what fake mode makes of the call.
            self._release()
            raise RestartSpecialized if again else refused(error, text, place_of(self.region.fn))
        if fake:
            how = "with fewer symbols" if again else "on its real values"
            self.region._note(Event("retreat", error, f"{text}; the call is captured {how}", *place_of(self.region.fn)))
        args, kwargs = self.call
        if error == STOPS and self.entry_point is self.start is self.region.entry:
            self.behind = functools.partial(self.region.fn, *args, **kwargs)
            return
        if draws is not None:
            self.entry_point.draws = draws
        if self.entry_point is not self.start:
            # On the real values, after a graph break: what lies before it stays.
            self.behind = functools.partial(_at, self.entry_point.dispatcher, roots)
            return
        fixed = again or draws is not None
        why = self.why if fixed else text
        self.behind = lambda: CaptureSession(self.region, self.entry_point, args, kwargs, live=fake and not fixed, why=why).go()

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
            take_back(self)
        inputs = {id(src.value) for _, src in interp.trace.recorder.inputs}
        rerun = fake or (untouched and (not (inputs and interp.trace.recorder.mutated) or bool(interp.trace.mutations.storages)))
        args, kwargs = self.call
        self._release()
        if is_a(error, NotOneGraph):
            return None
        if is_a(error, FinelineError) and not is_a(error, InternalError):
            given_up(region, error.id, "")
            raise error
        text = f"{type(error).__name__}: {error}"
        region._note(Event("eager", "FL901", text, *place_of(region.fn)))
        if not rerun:
            raise InternalError(text, where="{}:{}".format(*place_of(region.fn)), stack=call_stack(region.fn, None)) from error
        log.warning("fineline: %s:%s: an internal error; the call runs eagerly: %s", *place_of(region.fn), text)
        self._count_failure(text)
        return region.run_eagerly(self.entry_point, args, kwargs)

    def _move_out(self, e: NotReconstructible) -> bool:
        """Makes the next capture leave out of its graphs what cannot be there; returns whether that is known to help."""
        if is_a(e, Uncompiled):
            self.region.lessons.learn(*e.lesson)
            return True
        return make_outside(self.region, self.entry_point, e.called_at)

    def _count_failure(self, reason: str) -> None:
        region = self.region
        region.failures += 1
        if region.failures > region.options.recompile_limit and region.eager_reason is None and not region.options.fullgraph:
            region.eager_reason = reason
            log.warning("fineline: %s:%s: calls run eagerly from now on: %s", *place_of(region.fn), reason)

    def _given_up(self) -> None:
        if self.ended:
            return
        interp, region = self.interp, self.region
        error, text = interp.failure or ("FL901", "unknown")
        known = bool(interp.failed_at[0])
        file, line = interp.failed_at if known else place_of(region.fn)
        stack = interp.failed_stack if known else call_stack(region.fn, None)
        region._note(Event("eager", error, text, file, line, detail={"stack": stack}))
        given_up(region, error, text)
        self._count_failure(text)

    def _release(self) -> None:
        self.released = True
        if self.region.tally is not None and self.region.tally.where:
            self.region.tally.close("eager")
            self.region.tally.where.pop()
        if self.interp.rules is not None:
            self.interp.rules.settle()
        if self.region.fired:
            self.region.tell_rules()
        self.region.tell_tree()
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
        if self.behind is None and not self.trial:
            # Of a trial, what was written is still to be undone.
            interp.trace.mutations.forget()
        interp.close()
        self.stop = None
        self.call = ((), {})


def _at(dispatcher: Any, live: tuple) -> tuple[Continuation, list]:
    """Goes on at a dispatcher: as segments give it back."""
    return Continuation(dispatcher), [*live]
