"""One captured call of a region, from its entry or a continuation to the return."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from fineline.backends.lock import TRACERS
from fineline.builtins.debuggers import STOPS
from fineline.bytecode.asynchronous import asynchronous, from_outside, let_pass
from fineline.codegen.continuation import Continuation, goes_on, run_on
from fineline.codegen.escape import real_result, settle
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
from fineline.policy.scope_stack import SCOPE
from fineline.region.break_errors import deciding_rule, named_rule, refused
from fineline.region.compile_decision import keep
from fineline.region.descriptions import call_stack, describe_miss, place_of, selector_of, user_place
from fineline.region.entry_frame import entry_frame
from fineline.region.entry_point import EntryPoint, Everything
from fineline.region.loop_merging import Way, template_at, way_behind
from fineline.region.retry import given_up, make_outside, move_out, start_anew, stop_in_debugger
from fineline.region.rollback import amid_transforms, leave_inference_modes, may_restart, take_back
from fineline.report.events import Event
from fineline.symbolic.arithmetic import holds
from fineline.tensor_ops.compute import computing
from fineline.tensor_ops.user_modes import watching
from fineline.torch_facts.thread_state import hidden_states

log = logging.getLogger("fineline")


# Borders that a user's rule or option asked for.
DECLARED = ASKED | {"FL403"}
TEXTS = frozenset({str, bytes})
# A call cut into more pieces than this costs more in guards than its graphs can save.
MOST_BORDERS = 400


class CaptureSession:
    """One captured call: from the region's entry or a continuation to the return, through any number of borders."""

    def __init__(
        self, region: Any, site: EntryPoint, args: tuple, kwargs: dict, capture: bool = True, live: bool = False, trial: bool = False, why: str = ""
    ) -> None:
        """``live``: on the real values in any case. ``why``: the other mode has been tried, and did not go on because of this."""
        self.region = region
        self.why = why
        self.start = site
        # Its writes are taken back in the end; whether a program stands for all of the call.
        self.trial = trial
        self.kept = False
        self.call = (args, kwargs)
        self.hidden = hidden_states() if capture else None
        self.blocks = SCOPE.blocks
        self.site = site
        # The borders so far: how many at each place.
        self.passed = site.passed
        self.nargs, self.kwnames = len(args), tuple(kwargs)
        self.vm = vm = region.machine(region.options)
        vm.on_border, vm.on_skip, vm.run_frame = self.on_border, settle, region.run_frame
        vm.undoable = breaks_here(region.options.breaks) != "any" or trial
        vm.shows_layouts = region.shows_graphs
        vm.trial, vm.inside, vm.fired = vm.trial or Trial, vm.inside or BodyInterpreter, region.fired
        vm.cap.journal.ahead, region.ahead = region.ahead, []
        vm.rules = rules_now(region.options.policy, vm.fired)
        vm.undoable = vm.undoable or (vm.rules is not None and vm.rules.refuse)
        vm.refuse = lambda error, text, f, rule="": refused(
            error, text, user_place(f, region.fn), rule, breaks_here(region.options.breaks), stack=user_stack(f), within=selector_of(f)
        )
        if not capture:
            vm.cap.active = False
            self.ended = True
        elif not live and not amid_transforms(site is region.entry):
            vm.cap.symbols = symbols = region.symbols(vm, site, args, kwargs, bool(why) or site.draws)
            vm.fakes = vm.known.fakes = symbols and symbols.fakes
            # Without graph breaks, all that has happened can be undone.
            vm.switches = not (trial or symbols or why) and site is region.entry and region.options.fullgraph
            vm.may_restart = None if trial else functools.partial(may_restart, self)
        vm.unsteady = site.varying.unsteady
        if site.blocked:
            vm.resume = self.resume
        if site.template is not None and site.template.chain in region.turns.unrolled:
            vm.turn = weakref.ref(site.varying)
        if site.template is not None and (site.template.turned or site.template.carried):
            # Those of a loop's turns go on: each turn would be captured.
            vm.few_keys = 1
        self.stop: BaseException | None = None
        self.containers: list = []
        if vm.fakes is not None:
            TRACERS.holding(self._enter, args, kwargs)
        else:
            self._enter(args, kwargs)

    def _enter(self, args: tuple, kwargs: dict) -> None:
        """Makes the frames that the run begins with."""
        site, vm = self.site, self.vm
        if site.template is None:
            vm.frame = entry_frame(vm, self.region.fn, args, kwargs)
        else:
            names = [*site.template.names, "failure" if site.raised else "result"]
            args = self._roots(args, names)
            data, self.containers, made = site.template.build(vm, args[:-1])
            vm.cap.made.update(map(id, made))
            for f, counts in zip(stack(vm.frame), site.idle, strict=False):
                f.idle, f.worked = counts
            vm.note_continuation(site.template.stack)
            if site.raised:
                self.stop = args[-1]
            else:
                assert vm.frame is not None
                vm.pending = (args[-1], site.template.then, data, site.template.push)

    def _roots(self, values: Any, names: list[str]) -> tuple:
        """Registers what is alive behind a border, last what the eager call gave or raised."""
        cap = self.vm.cap
        roots = [cap.guards.root(i, name, v) for i, (v, name) in enumerate(zip(values, names, strict=True))]
        cap.given = roots[-1]
        return tuple([self._root(v, src) for v, src in zip(values, roots, strict=True)])

    def _root(self, v: Any, src: Source) -> Any:
        """Registers what a border has left; a text of it that varies, also in a tuple, has not been read so far."""
        cap, varying = self.vm.cap, self.site.varying
        if self.site.template is None or not varying.texts or breaks_here(self.region.options.breaks) != "any":
            return cap.read(v, src)
        if type(v) in TEXTS and src.text() in varying.texts:
            return given(self.vm, v, src)
        parts = [(x, cap.guards.access(src, "index", i, x)) for i, x in enumerate(v)] if type(v) is tuple and not src.checked else []
        if not any([type(x) in TEXTS and part.text() in varying.texts for x, part in parts]):
            return cap.read(v, src)
        cap.check_type(src, tuple)
        cap.guards.check(src, "len", len(v))
        cap.adopt(v, src)
        found = tuple([self._root(x, part) for x, part in parts])
        cap.adopt(found, src)
        return found

    def _iterated(self, containers: list) -> None:
        """Iterators over these are under way: what they give must be known."""
        cap = self.vm.cap
        try:
            for v in containers:
                cap.expand(v)
        except NotForGraph as e:
            self.vm.fail("FL413", str(e), False)

    def go(self) -> Any:
        """Returns the result of the call."""
        if self.vm.cap.active:
            self.vm.pause.begin()
        try:
            value = TRACERS.holding(self._go) if self.vm.fakes is not None else self._go()
        except BaseException as e:
            if self.released or not self._comes_from_outside(e):
                raise
            if not self._interrupted(e):
                self._release()
                raise
            # Nothing of this run is in the world; but what lies before it is, and has blocks that are to be left. Not here: while ``e`` is being
            # handled, what the blocks raise would get other contexts.
            self.behind = functools.partial(self.region.run_eagerly, self.site, *self.call, e)
        finally:
            self.vm.pause.end()
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
        vm, region = self.vm, self.region
        if region.tally is not None:
            region.tally.where.append(vm.fate)
        try:
            self._iterated(self.containers)
            value = vm.run(self.stop)
        except Finished as done:
            value = done.value
        except Restart as e:
            self._retreat(e.error, e.text, e.again, e.draws)
        except BaseException as e:
            if e is vm.interrupt or (from_outside(e) and self._comes_from_outside(e)):
                raise
            if vm.fakes is not None and vm.abandoned is None:
                self._retreat("FL515", f"the call raises {type(e).__name__}")
            elif self.behind is not None:
                self._release()
                raise
            elif vm.abandoned is None:
                region._note(Event("raised", "FL408", told(e)[:200], *place_of(region.fn)))
                if not is_a(e, FLEETING):
                    self._count_failure("the captured call raises")
                self._release()
                raise
        if self.behind is not None:
            return None
        if vm.abandoned is not None:
            return self._abandon(vm.abandoned)
        if vm.cap.active:
            try:
                writer = region.writer(vm.cap, self._name())
                with computing(vm):
                    writer.returns(value)
                    keep(self, writer)
                self.kept = True
                if vm.fakes is not None and not self.trial:
                    # Not here, where what the program raises would be taken for an error of the writing.
                    self.behind = functools.partial(self._now, *self.call)
            except Restart as e:
                self._retreat(e.error, e.text, e.again, e.draws)
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
        if vm.abandoned is not None:
            return self._abandon(vm.abandoned)
        if not vm.cap.active:
            self._given_up()
        if self.trial:
            take_back(self)
            self._release()
            return None
        self._release()
        return real_result(vm, value)

    def _comes_from_outside(self, e: BaseException) -> bool:
        """Returns whether ``e`` has come from outside during this run, or leaves an eager call that it begins behind."""
        return self.vm.interrupted_by(e) or (e is self.stop and asynchronous(e) is e)

    def _interrupted(self, e: BaseException) -> bool:
        """What came from outside leaves this run: on fakes, nothing has happened; -> whether the frames before it have to be told."""
        region, vm = self.region, self.vm
        region.interrupt, self.behind = e, None
        region._note(Event("raised", "FL408", told(e)[:200], *place_of(region.fn)))
        if vm.fakes is not None or self.trial:
            take_back(self)
        leave_inference_modes(vm)
        template = self.site.template
        return vm.fakes is not None and self.site is self.start and template is not None and bool(template.has_handlers)

    def _name(self) -> str:
        fn = self.region.fn
        return f"{getattr(fn, '__name__', type(fn).__name__)}_{self.region.programs}_{id(self.region):x}"

    def on_border(self, vm: Interpreter, border: GraphBreak) -> Any:
        """Ends the segment, runs the call, begins the next segment."""
        region = self.region
        f = vm.frame
        assert f is not None
        if vm.abandoned is not None:
            # Code of the user's that runs on the way out: why they are on it has been said.
            raise CaptureAborted
        if vm.cap.symbols is not None:
            vm.cap.symbols.check(vm)
        place = user_place(f, region.fn)
        breaks = breaks_here(region.options.breaks)
        if vm.rules is not None and not border.rule:
            border.reason += vm.rules.told_to_look(border.fn, border.args_)
        reads = border.error in READS and border.fn is not bool
        if breaks == "none" and ((vm.switches and reads) or (vm.fakes and border.error in FAKES_LACK)):
            raise Restart(border.error, border.reason)
        rule_here = vm.declared(border.error) if border.error not in ASKED else None
        if rule_here is not None:
            border.rule = str(rule_here)
        elif breaks == "none" or (breaks == "declared" and border.error not in ASKED):
            if reads and vm.fakes is None and self.why not in ("", border.reason):
                border.reason += f", and in fake mode {self.why}"
            rule = named_rule(border, place)
            vm.abandoned = refused(border.error, border.reason, place, rule, breaks, border.fn, user_stack(f), selector_of(f))
            raise CaptureAborted
        if self.trial:
            vm.abandoned = NotOneGraph()
            raise CaptureAborted
        if border.error == STOPS:
            return stop_in_debugger(self, border, place)
        frames = user_stack(f)
        rule, built_in = deciding_rule(border, place)
        region._note(Event("break", border.error, border.reason, *place, rule, detail={"stack": frames, "built_in": built_in}))
        if border.error in UNSEEN:
            unseen = place_of(border.fn) if border.error != "FL430" and hasattr(border.fn, "__code__") else place
            detail = {"stack": frames}
            region._note(Event("skipped", border.error, border.reason, *(unseen if unseen[1] else place), border.rule, detail=detail))
        if self.borders >= MOST_BORDERS:
            vm.fail("FL428", f"over {MOST_BORDERS} graph breaks in one call, the last because {border.reason}", False)
            return vm.beyond(border)
        declared = rule_here is not None or border.error in DECLARED
        idle = idle_frame(vm, declared)
        if idle is not None:
            newly = leave(vm, idle)
            region._note(Event("eager", "FL436", f"the rest of {idle.info.code.co_qualname}, which {IDLE}, runs eagerly", *place, detail={"stack": frames}))
        try:
            template = template_at(self, border)
            writer, after, failed = self._written(template, border, place, declared, idle is not None)
            while found := template.reduced & writer.rebuild.built:
                template = template_at(self, border, template.held | found)
                writer, after, failed = self._written(template, border, place, declared, idle is not None)
            self.passed = self._passed(template)
            vm.note_break(template.stack)
            with computing(vm):
                keep(self, writer, declared)
            sites = [after.site] if failed is None else [after.site, failed.site]
            if idle is not None:
                after.site.left, after.site.newly_left, after.site.blocked = idle.info, newly, True
            region.sites += [site for site in sites if not site.met]
            self._note_place(f)
            if vm.cap.active:
                self._tell_texts(template, border, after.site, sites)
            if vm.fakes is not None:
                for site in sites:
                    site.vary(template.roots, vm.memory)
                self._leave(template, functools.partial(self._now, *self.call))
        except NotReconstructible as e:
            vm.fail(e.error, e.text, False)
            if vm.fakes is not None:
                raise Restart(e.error, e.text) from None
            if vm.cap.start_ambient.inference_mode != torch.is_inference_mode_enabled():
                # The context can't leave its graph; entered between two graphs, it is a value like others.
                region.options.inference_borders = True
            elif not self._move_out(e):
                move_out(region.options, vm.frame)
        except FinelineError as e:
            vm.abandoned = e
            raise CaptureAborted from None
        except Exception as e:
            let_pass(e)
            log.debug("fineline: writing a program failed", exc_info=True)
            vm.fail("FL901", f"writing the program failed: {type(e).__name__}: {e}", False)
        if not vm.cap.active:
            # Not above: what the call raises would have an exception of fineline's behind it.
            return vm.beyond(border)
        template.pass_on()
        settle(vm, border, writer.rebuild.built)
        vm.cap.forget()
        del writer
        try:
            value = vm.beyond(border)
        except BaseException as e:
            vm.known.clear()
            self._begin(failed, template, e, "failure")
            raise
        after.site.observe((*template.roots, value), {})
        vm.known.carry(border.fn, vm.cap.recorder.mutated)
        self._begin(after, template, value, "result")
        return value

    def _written(self, template: FrameState, border: GraphBreak, place: tuple, declared: bool, alone: bool) -> tuple[ResidualWriter, Way, Way | None]:
        """Returns a program up to a border, and the ways on behind it: with its result, and with its exception if somebody handles that."""
        template.place = place
        passed = self._passed(template)
        after = way_behind(self, template, False, declared, passed, alone)
        failed = way_behind(self, template, True, declared, passed, alone) if template.has_handlers else None
        for site, _ in (after, failed) if failed is not None else (after,):
            site.idle = site.idle or tuple([(f.idle, f.worked) for f in stack(self.vm.frame)])
        writer = ResidualWriter(self.vm.cap, self._name())
        behind = (after.go_on, failed.go_on if failed is not None else None)
        vm = self.vm
        with computing(vm):
            writer.border(border.fn, border.args_, border.kwargs, template.roots, *behind, vm.place(), vm.handled)
        return writer, after, failed

    def _note_place(self, f: Frame) -> None:
        """Notes where the frames around a graph break are: the loops that they are in go round it."""
        for frame in stack(f):
            self.region.options.break_places.setdefault(frame.info.code, set()).add(frame.ip)

    def _tell_texts(self, template: FrameState, border: GraphBreak, after: EntryPoint, sites: list[EntryPoint]) -> None:
        """Texts that vary before a border do behind it, and so, if it is a text or a number, does what is made of them, or of numbers that vary."""
        texts = self.vm.texts
        for name in [name for name, v in zip(template.names, template.roots, strict=True) if id(v) in texts]:
            for site in sites:
                site.varying.add_text(name)
        if border.error == "FL448" or any([id(a) in texts or holds(a) for a in (*border.args_, *border.kwargs.values())]):
            after.varying.add_made("result")

    @property
    def borders(self) -> int:
        return sum(self.passed.values())

    def _passed(self, template: FrameState) -> dict:
        return {**self.passed, template.stack: self.passed.get(template.stack, 0) + 1}

    def _leave(self, template: FrameState, behind: Callable[[], Any]) -> NoReturn:
        """Ends this run at a border: the programs behind it do the rest of the call."""
        template.roots, template.containers, template.decomposed = [], [], []
        self.vm.forget_generators()
        self.behind = behind
        raise Finished(None)

    def _begin(self, way: Way | None, template: FrameState, value: Any, name: str) -> None:
        vm = self.vm
        site, live = way.site if way is not None else None, (*template.roots, value)
        if way is not None and (way.leads_back(live) or way.site.met or template.turned or template.carried or way.site.varying.told_apart):
            # What varies here is known from other calls, and only fake mode has symbols.
            self._leave(template, functools.partial(_at, way.go_on, live))
        roots, containers, decomposed = template.roots, template.containers, template.decomposed
        # The template outlives the call: it must not hold what was alive in it.
        template.roots, template.containers, template.decomposed = [], [], []
        # The user's handlers may run on either at any moment, for an interrupt: the earlier one is closed when nothing reads by it any more.
        earlier = vm.cap
        begin_segment(vm)
        earlier.guards.close()
        self.hidden, self.blocks = hidden_states(), SCOPE.blocks
        if site is None:
            vm.cap.active = False
            self.ended = True
            return
        self.site, site.informed, vm.unsteady = site, bool(vm.known), site.varying.unsteady
        self.nargs, self.kwnames = len(roots) + 1, ()
        self._roots([*roots, value], [*template.names, name])
        self._iterated(containers)
        vm.cap.made.update(map(id, decomposed))

        if site.left or None in SCOPE.blocks or watching():
            vm.cap.active, vm.resume = False, self.resume
            site.blocked = self.ended = True

    ended = False
    # Whether all is over, and nothing is held any more.
    released = False
    # The rest of the call, behind a block in which nothing was captured.
    behind: Callable[[], Any] | None = None

    def resume(self, vm: Interpreter, border: GraphBreak) -> Any:
        """Leaves this run, which captures nothing, for a site behind it: its programs, or a new capture."""
        settle(vm, border)
        vm.cap.made = Everything()
        assert vm.frame is not None
        place, frames = user_place(vm.frame, self.region.fn), {"stack": user_stack(vm.frame)}
        try:
            template = FrameState(vm, border, constants=False)
        except NotReconstructible as e:
            self.region._note_once(Event("eager", "FL409", f"{e.text}; the call goes on eagerly behind the block", *place, detail=frames))
            return vm.beyond(border)
        template.place = place
        template.pass_on()
        vm.note_break(template.stack)
        live = (*template.roots, vm.beyond(border))
        dispatcher = next((d for s, d in self.site.resumed if s.template is not None and s.template.same(template)), None)
        if dispatcher is None and self.borders >= MOST_BORDERS:
            text = f"over {MOST_BORDERS} graph breaks in one call, the last behind a block"
            self.region._note_once(Event("eager", "FL428", text, *place, detail=frames))
            return live[-1]
        if dispatcher is None:
            # A function that is left is one border, as it will be at the next call.
            self.passed = {place: n for place, n in self.passed.items() if self.site.left not in [info for info, _ in place]}
            self.passed = self._passed(template)
            if len(self.site.resumed) >= self.region.options.recompile_limit:
                reason = f"calls leave the block in {len(self.site.resumed)} different states, which is the region's recompile_limit"
                self.region._note_once(Event("limit", "FL104", f"{reason}; from here on they go on eagerly", *place, detail=frames))
                return live[-1]
            site = EntryPoint(self.region, template, False, passed=self.passed)
            dispatcher = site.dispatcher
            self.site.resumed.append((site, dispatcher))
            self.region.sites.append(site)
        if self.site.newly_left and not self.region.options.error_on_recompile:
            # From the next call on, the function that has returned is one call.
            self.site.newly_left = False
            start_anew(self.region)
        return self._leave(template, functools.partial(_at, dispatcher, live))

    def _now(self, args: tuple, kwargs: dict) -> Any:
        """Returns the call itself, by the program that fake mode has made of it."""
        take_back(self)
        self.vm.cap.journal.forget()
        _, _, program, run = self.site.dispatcher.entries[0]
        roots = (*args, *kwargs.values())
        got = program.check(roots)
        if got is None:
            at = program.failing(roots)
            text = describe_miss(self.site.segments[-1], at, roots) if at >= 0 else "its guards change what they read"
            self.site.drop()
            self.call = args, kwargs
            self._retreat("FL901", f"the new program does not fit its own call: {text}")
            return None
        return run(*got)

    def _retreat(self, error: str, text: str, again: bool = False, draws: bool | None = None) -> None:
        """Nothing has happened yet: the call is captured in another mode, outside of any handler of this run's exceptions."""
        roots = tuple([src.value for src in self.vm.cap.guards.roots()])
        take_back(self, anew=True)
        self.vm.cap.journal.forget()
        self.vm.forget_calls()
        if self.region.tally is not None:
            self.region.tally.drop()
        fake = self.vm.fakes is not None
        if self.trial:
            # Somebody wants to know what fake mode makes of the call.
            self._release()
            raise RestartSpecialized if again else refused(error, text, place_of(self.region.fn))
        if fake:
            how = "with fewer symbols" if again else "on its real values"
            self.region._note(Event("retreat", error, f"{text}; the call is captured {how}", *place_of(self.region.fn)))
        args, kwargs = self.call
        if error == STOPS and self.site is self.start is self.region.entry:
            self.behind = functools.partial(self.region.fn, *args, **kwargs)
            return
        if draws is not None:
            self.site.draws = draws
        if self.site is not self.start:
            # On the real values, behind a border: what lies before it stays.
            self.behind = functools.partial(_at, self.site.dispatcher, roots)
            return
        fixed = again or draws is not None
        why = self.why if fixed else text
        self.behind = lambda: CaptureSession(self.region, self.site, args, kwargs, live=fake and not fixed, why=why).go()

    def _failed(self, error: str, text: str) -> None:
        try:
            self.vm.fail(error, text, False)
        except CaptureAborted:
            pass
        except Restart:
            self._retreat(error, text)

    def _abandon(self, error: BaseException) -> Any:
        """Puts back what the call has written; -> the eager result if the fault is fineline's own, else raises ``error``."""
        vm, region = self.vm, self.region
        fake = vm.fakes is not None
        if fake and self.site is not region.entry and is_a(error, FinelineError):
            # Blocks that were entered before a border are left by the user's own code, for real.
            self._retreat(error.id, error.reason)
            return None
        untouched = fake or self.start is self.site is region.entry
        if untouched:
            take_back(self)
        inputs = {id(src.value) for _, src in vm.cap.recorder.inputs}
        rerun = fake or (untouched and (not (inputs and vm.cap.recorder.mutated) or bool(vm.cap.journal.storages)))
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
        return region.run_eagerly(self.site, args, kwargs)

    def _move_out(self, e: NotReconstructible) -> bool:
        """The next capture leaves out of its graphs what can't be there; -> whether that is known to help."""
        if is_a(e, Uncompiled):
            name, value = e.option
            held = getattr(self.region.options, name)
            setattr(self.region.options, name, held | value if is_a(held, frozenset) else value)
            return True
        return make_outside(self.region, self.site, e.called_at)

    def _count_failure(self, reason: str) -> None:
        region = self.region
        region.failures += 1
        if region.failures > region.options.recompile_limit and region.eager_reason is None and not region.options.fullgraph:
            region.eager_reason = reason
            log.warning("fineline: %s:%s: calls run eagerly from now on: %s", *place_of(region.fn), reason)

    def _given_up(self) -> None:
        if self.ended:
            return
        vm, region = self.vm, self.region
        error, text = vm.failure or ("FL901", "unknown")
        known = bool(vm.failed_at[0])
        file, line = vm.failed_at if known else place_of(region.fn)
        stack = vm.failed_stack if known else call_stack(region.fn, None)
        region._note(Event("eager", error, text, file, line, detail={"stack": stack}))
        given_up(region, error, text)
        self._count_failure(text)

    def _release(self) -> None:
        self.released = True
        if self.region.tally is not None and self.region.tally.where:
            self.region.tally.close("eager")
            self.region.tally.where.pop()
        if self.vm.rules is not None:
            self.vm.rules.settle()
        if self.region.fired:
            self.region.tell_rules()
        self.region.tell_tree()
        # Nothing that was alive in the call stays so, and no cycle is left for a collection to find.
        vm = self.vm
        if vm.interrupt is not None:
            # The user's code may have handled it.
            leave_inference_modes(vm)
        vm.cap.recorder.forget()
        vm.cap.guards.close()
        if vm.cap.symbols is not None:
            vm.cap.symbols.close()
            vm.cap.symbols = None
        vm.known.clear()
        vm.texts.clear()
        if self.behind is None and not self.trial:
            # Of a trial, what was written is still to be undone.
            vm.cap.journal.forget()
        vm.frame = vm.on_border = vm.run_frame = vm.handled = vm.may_restart = None
        self.stop = None
        self.call = ((), {})


def _at(dispatcher: Any, live: tuple) -> tuple[Continuation, list]:
    """Goes on at a dispatcher: as segments give it back."""
    return Continuation(dispatcher), [*live]
