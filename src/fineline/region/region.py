"""A compiled region: its function, options, programs and budget, and the capture of a call that no program fits."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from fineline.backends.invoke import compile_graph
from fineline.backends.registry import Backend
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.capture.capture import Capture
from fineline.capture.machine import FLEETING, Machine
from fineline.capture.signals import Abandoned, Border, Finished, Unrebuildable
from fineline.capture.traces import without_own_frames
from fineline.errors import FinelineError, InternalError, RecompileLimit, Unsupported
from fineline.kinds import is_a
from fineline.program.result import real_result
from fineline.program.segment import Segment, SegmentWriter
from fineline.program.template import Template
from fineline.refusals import REFUSALS
from fineline.region.describe import describe_miss, place_of, subject, user_place
from fineline.region.dispatch import make_dispatcher, make_guard_program
from fineline.region.entry import ENTRY, entry_frame
from fineline.region.frames import FrameRunner
from fineline.region.options import Options
from fineline.report.events import Event

log = logging.getLogger("fineline")


class Site:
    """A place where programs start: the region's entry, or the continuation behind a border."""

    def __init__(self, region: Region, template: Template | None, raised: bool, declared: bool = True) -> None:
        # Who owns whom: the compiled callable its region's dispatcher, that the region, the region its sites, a program the
        # dispatchers that it goes on with. The ways back are weak, so that all goes when the callable goes.
        self._region = weakref.ref(region)
        self._dispatcher: Callable[[], Any] = lambda: None
        self.template = template
        self.raised = raised
        # Whether the user asked for the border before it.
        self.declared = declared
        self.segments: list[Segment] = []

    @property
    def region(self) -> Region:
        region = self._region()
        assert region is not None
        return region

    @property
    def dispatcher(self) -> Any:
        """What is called; whoever wants it to stay holds it."""
        found = self._dispatcher()
        if found is None:
            region = self.region
            found = make_dispatcher(region.miss if self.template is None else self._miss, region.options.evaluator)
            self._dispatcher = weakref.ref(found)
        return found

    def _miss(self, args: tuple, kwargs: dict) -> Any:
        try:
            return self.region.capture(self, args, kwargs)
        except BaseException as e:
            # What is raised again as it is gets no entry for this frame either.
            if not is_a(e, InternalError):
                e.__traceback__ = without_own_frames(e.__traceback__)
            raise

    def add(self, nargs: int, kwnames: tuple[str, ...], segment: Segment) -> None:
        program = make_guard_program(nargs + len(kwnames), segment.steps, segment.outputs, self.region.options.evaluator)
        self.segments.append(segment)
        # The newest first: it is what the calls look like now.
        self.dispatcher.set_entries([(nargs, kwnames, program, segment.run), *self.dispatcher.entries])
        here, first = weakref.ref(self), weakref.ref(segment.run)

        def compiled(run: Callable) -> None:
            site = here()
            if site is not None:
                site.dispatcher.set_entries([(n, k, p, run if r is first() else r) for n, k, p, r in site.dispatcher.entries])

        segment.run.compiled = compiled


class Region:
    """One compiled callable."""

    def __init__(self, fn: Callable, backend: Backend, options: Options) -> None:
        self.fn = fn
        self.backend = backend
        self.options = options
        self.lock = threading.RLock()
        self.capturing: int | None = None
        self.programs = 0
        self.failures = 0
        self.eager_reason: str | None = None
        # Which guards calls have failed, and how often.
        self.missed: Counter[str] = Counter()
        self.said: set[str] = set()
        self.runners: dict[int, FrameRunner] = {}
        self.events: list[Event] = []
        self.graphs: list[GraphModule] = []
        self.entry = Site(self, None, False)
        self.sites = [self.entry]
        self.refuse = self._refusal()
        _ALL.add(self)

    def miss(self, args: tuple, kwargs: dict) -> Any:
        try:
            return self.capture(self.entry, args, kwargs)
        except BaseException as e:
            if not is_a(e, InternalError):
                e.__traceback__ = without_own_frames(e.__traceback__)
            raise

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry.dispatcher(*args, **kwargs)

    def forget(self) -> None:
        """Drops all programs; the next call captures anew."""
        with self.lock:
            # The dispatcher itself stays: it is what the compiled callable holds.
            self.entry.dispatcher.set_entries([])
            self.entry.segments.clear()
            self.sites = [self.entry]
            self.programs = self.failures = 0
            self.eager_reason = None
            self.missed.clear()
            self.said.clear()
            self.runners.clear()
            self.events.clear()
            self.graphs.clear()
            self.options.opaque.clear()

    def segments(self) -> list[Segment]:
        """All programs, in the order of the sites' making."""
        return [s for site in self.sites for s in site.segments]

    def _refusal(self) -> str | None:
        """Why calls of this function are never captured, if so."""
        fn = self.fn
        fn = fn.__func__ if is_a(fn, types.MethodType) else fn
        code = getattr(fn, "__code__", None)
        if code is not None and code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
            return f"{fn.__qualname__} is an async function"
        if code is not None and code.co_flags & CO_GENERATOR:
            return f"{fn.__qualname__} is a generator function"
        return None

    # -- capture -------------------------------------------------------------------------------------------------------
    def capture(self, site: Site, args: tuple, kwargs: dict) -> Any:
        """A call that no program at ``site`` fits."""
        me = threading.get_ident()
        if self.capturing == me and site is self.entry:
            return self.fn(*args, **kwargs)
        # The user's code runs under the lock: to wait for another thread that captures could be to wait for ever.
        if not self.lock.acquire(blocking=False):
            self._note_once(Event("eager", "FL406", "another thread captures a call of this region", *place_of(self.fn)))
            return self.fn(*args, **kwargs) if site is self.entry else Run(self, site, args, kwargs, False).go()
        try:
            if site.dispatcher.entries and self.capturing is None and site is self.entry:
                # Another thread may have captured just this in the meantime.
                found = self._retry(site, args, kwargs)
                if found is not None:
                    return found[0]()
            if site is self.entry:
                reason = self.refuse or self.eager_reason or self._ambient_refusal()
                if reason is not None:
                    self._note_once(Event("eager", "FL405" if self.refuse else "FL406", reason, *place_of(self.fn)))
                    return self.fn(*args, **kwargs)
                if self.programs >= self.options.recompile_limit:
                    self._at_limit(self.programs, site, args, kwargs)
                    return self.fn(*args, **kwargs)
            elif len(site.segments) >= self.options.recompile_limit:
                self._at_limit(len(site.segments), site, args, kwargs)
                return Run(self, site, args, kwargs, False).go()
            if site.segments or (site is self.entry and self.programs):
                self._note(Event("recompile", "FL407", self._why_missed(site, args, kwargs), *self._place_of_site(site)))
            before, self.capturing = self.capturing, me
            # A capture makes many small objects and few cycles: a collection in the middle finds nothing and costs up to 10 %.
            collecting = gc.isenabled()
            gc.disable()
            try:
                return Run(self, site, args, kwargs).go()
            finally:
                self.capturing = before
                if collecting:
                    gc.enable()
        finally:
            self.lock.release()

    def _retry(self, site: Site, args: tuple, kwargs: dict) -> tuple[Callable] | None:
        roots = (*args, *kwargs.values())
        names = tuple(kwargs)
        for nargs, kwnames, program, target in site.dispatcher.entries:
            if nargs == len(args) and kwnames == names:
                got = program.check(roots)
                if got is not None:
                    return (lambda: target(*got),)  # noqa: B023  (called at once by the caller)
        return None

    def _ambient_refusal(self) -> str | None:
        c = torch._C
        if c._len_torch_dispatch_stack():
            return "a TorchDispatchMode is active"
        if any(not is_a(m, DeviceContext) for m in _get_current_function_mode_stack()):
            return "a TorchFunctionMode is active"
        if torch._C._get_tracing_state() is not None:
            return "torch.jit.trace is active"
        if c._functorch.peek_interpreter_stack() is not None:
            return "the call is made inside a torch.func transform"
        return None

    def _why_missed(self, site: Site, args: tuple, kwargs: dict) -> str:
        roots = (*args, *kwargs.values())
        for (nargs, kwnames, program, _), segment in zip(site.dispatcher.entries, reversed(site.segments), strict=False):
            if nargs != len(args) or kwnames != tuple(kwargs):
                continue
            at = program.failing(roots)
            if at >= 0:
                self.missed[subject(segment, at)] += 1
                return describe_miss(segment, at, roots)
        return "the call's arguments are given in another way" if site.segments else "no program fitted"

    def _place_of_site(self, site: Site) -> tuple[str, int]:
        return site.template.place if site.template is not None and site.template.place[0] else place_of(self.fn)

    def _at_limit(self, programs: int, site: Site, args: tuple, kwargs: dict) -> None:
        """Says once that nothing more is captured, and why; under ``fullgraph`` an error at each such call."""
        if "limit" in self.said and not self.options.fullgraph:
            return
        why = self._why_missed(site, args, kwargs)
        most = self.missed.most_common(1)
        often = f"; the guard that fails most: {most[0][0]}" if most else ""
        if self.options.fullgraph:
            reason = f"{programs} programs, recompile_limit={self.options.recompile_limit}; {why}{often}"
            raise RecompileLimit(reason, where="{}:{}".format(*place_of(self.fn)))
        self.said.add("limit")
        reason = f"{programs} programs, which is its recompile_limit; calls that fit none of them run eagerly{often}"
        self._note(Event("limit", "FL104", reason, *place_of(self.fn)))
        where = "{}:{}".format(*place_of(self.fn))
        log.warning("fineline: %s has %s; last miss: %s. %s", where, reason, why, REFUSALS["FL104"].next_step)

    def _note_once(self, event: Event) -> None:
        if event.reason not in self.said:
            self.said.add(event.reason)
            self._note(event)

    def _note(self, event: Event) -> None:
        if len(self.events) < 10_000:
            self.events.append(event)

    def runner(self, target: Any) -> FrameRunner:
        """Runs ``target`` under disable(recursive=False); the same each time, so that programs can hold it."""
        found = self.runners.get(id(target))
        if found is None:
            found = self.runners[id(target)] = FrameRunner(target, weakref.WeakMethod(self.child), self.options)
        return found

    def child(self, fn: Callable) -> Callable:
        """A region for what such a function calls: its dispatcher."""
        own = self.options
        region = Region(fn, self.backend, Options(own.fullgraph, own.recompile_limit, own.evaluator, own.force_borders))
        return region.entry.dispatcher

    def compile_graph(self, gm: GraphModule, examples: list) -> Callable:
        """Hands a graph to the backend."""
        self.graphs.append(gm)
        return compile_graph(self.backend, gm, examples, ":".join(map(str, place_of(self.fn))))


# Borders that a user's rule or option asked for.
DECLARED = frozenset({"FL400", "FL401", "FL403"})
# Below this a compiled graph gains little over its operators: entering and guarding one costs as much as a few of them.
SMALL_GRAPH = 32
# ... in a call that has shown to be cut often; the first pieces are compiled whatever their size.
FEW_BORDERS = 4
# A call cut into more pieces than this costs more in guards than its graphs can save.
MOST_BORDERS = 400
# What would only be met again at the next capture.
HOPELESS = frozenset({"FL427", "FL428"})


def _as_it_is(gm: GraphModule, examples: list) -> Callable:
    return gm.forward


class Run:
    """One captured call: from the region's entry or a continuation to the return, through any number of borders."""

    def __init__(self, region: Region, site: Site, args: tuple, kwargs: dict, capture: bool = True) -> None:
        self.region = region
        self.start = site
        self.call = (args, kwargs)
        self.random = _random_states() if capture and site is region.entry else []
        self.site = site
        self.borders = 0
        self.nargs, self.kwnames = len(args), tuple(kwargs)
        self.vm = vm = Machine(region.options)
        vm.on_border = self.on_border
        vm.run_frame = region.runner
        vm.refuse = lambda error, text, f: _refused(error, text, user_place(f, region.fn))
        if not capture:
            vm.cap.active = False
            self.ended = True
        self.stop: BaseException | None = None
        if site.template is None:
            vm.frame = entry_frame(vm, region.fn, args, kwargs)
        else:
            data, containers, made = site.template.build(vm, args[:-1])
            vm.cap.made.update(map(id, made))
            names = [*site.template.names, "failure" if site.raised else "result"]
            self._roots(args, names, containers)
            if site.raised:
                self.stop = args[-1]
            else:
                assert vm.frame is not None
                vm.frame = vm.deliver(vm.frame, args[-1], site.template.then, data, site.template.push)

    def _roots(self, values: Any, names: list[str], containers: list) -> None:
        cap = self.vm.cap
        for i, (v, name) in enumerate(zip(values, names, strict=True)):
            cap.load(v, cap.guards.root(i, name, v))
        for v in containers:
            # An iterator over it is under way: what it gives must be known.
            cap.expand(v)

    def go(self) -> Any:
        vm, region = self.vm, self.region
        try:
            if self.stop is not None:
                value = vm.run(vm.frame, self.stop)
            else:
                value = vm.run(vm.frame)
        except Finished as done:
            value = done.value
        except BaseException as e:
            if vm.abandoned is None:
                region._note(Event("raised", "FL408", f"{type(e).__name__}: {e}"[:200], *place_of(region.fn)))
                if not is_a(e, FLEETING):
                    self._count_failure("the captured call raises")
                self._release()
                raise
        if vm.abandoned is not None:
            return self._abandon(vm.abandoned)
        if vm.cap.active:
            try:
                writer = SegmentWriter(vm.cap, self._name())
                writer.returns(value)
                self._keep(writer)
            except Unrebuildable as e:
                self._failed("FL409", e.text)
            except FinelineError as e:
                return self._abandon(e)
            except Exception as e:
                log.debug("fineline: writing a program failed", exc_info=True)
                self._failed("FL901", f"writing the program failed: {type(e).__name__}: {e}")
        if vm.abandoned is not None:
            return self._abandon(vm.abandoned)
        if not vm.cap.active:
            self._given_up()
        value = real_result(vm.cap, value)
        self._release()
        return value

    def _name(self) -> str:
        fn = self.region.fn
        return f"{getattr(fn, '__name__', type(fn).__name__)}_{self.region.programs}_{id(self.region):x}"

    def _keep(self, writer: SegmentWriter, between: bool = False) -> None:
        """Compiles the segment. ``between``: it stands between two borders that nobody asked for; then a few operators go eagerly."""
        region = self.region
        n = writer.cap.recorder.calls
        recorder = writer.cap.recorder
        small = n > 0 and ((between and n < SMALL_GRAPH and self.borders > FEW_BORDERS) or recorder.only_state)
        segment = writer.compile(_as_it_is if small else region.compile_graph)
        if segment.graph is not None:
            places = writer.cap.recorder.places
            if small:
                reason = f"{n} operators between two graph breaks: too few for a graph of their own"
                region._note(
                    Event("eager", "FL404", reason, *(places[0] if places else place_of(region.fn)), detail={"ops": n, "places": places})
                )
            else:
                at = next((p for p in places if p[0]), None) or place_of(region.fn)
                region._note(Event("graph", "FL001", f"{n} operator{'' if n == 1 else 's'}", *at, detail={"ops": n, "places": places}))
        self.site.add(self.nargs, self.kwnames, segment)
        if self.site is region.entry or self.site.segments[1:]:
            region.programs += 1

    def on_border(self, vm: Machine, border: Border) -> Any:
        """Ends the segment, runs the call, begins the next segment."""
        region = self.region
        f = vm.frame
        assert f is not None
        place = user_place(f, region.fn)
        if region.options.fullgraph:
            vm.abandoned = _refused(border.error, border.reason, place, border.rule)
            raise Abandoned
        region._note(Event("break", border.error, border.reason, *place, border.rule))
        self.borders += 1
        if self.borders > MOST_BORDERS:
            vm.fail("FL428", f"over {MOST_BORDERS} graph breaks in one call, the last because {border.reason}", False)
            return vm.native(border.fn, border.args_, border.kwargs)
        try:
            template = Template(vm, border)
            template.place = place
            declared = border.error in DECLARED
            after = Site(region, template, False, declared)
            failed = Site(region, template, True, declared) if template.has_handlers else None
            writer = SegmentWriter(vm.cap, self._name())
            writer.border(
                border.fn,
                border.args_,
                border.kwargs,
                template.roots,
                after.dispatcher,
                failed.dispatcher if failed is not None else None,
                self.site is region.entry,
                vm.place(),
            )
            self._keep(writer, not declared and not self.site.declared)
            region.sites += [after] if failed is None else [after, failed]
        except Unrebuildable as e:
            vm.fail("FL409", e.text, False)
            self._move_out(e)
            return vm.native(border.fn, border.args_, border.kwargs)
        except FinelineError as e:
            vm.abandoned = e
            raise Abandoned from None
        except Exception as e:
            log.debug("fineline: writing a program failed", exc_info=True)
            vm.fail("FL901", f"writing the program failed: {type(e).__name__}: {e}", False)
            return vm.native(border.fn, border.args_, border.kwargs)
        try:
            value = vm.native(border.fn, border.args_, border.kwargs)
        except BaseException as e:
            self._begin(failed, template, e, "failure")
            raise
        self._begin(after, template, value, "result")
        return value

    def _begin(self, site: Site | None, template: Template, value: Any, name: str) -> None:
        vm = self.vm
        roots, containers, decomposed = template.roots, template.containers, template.decomposed
        # The template outlives the call: it must not hold what was alive in it.
        template.roots, template.containers, template.decomposed = [], [], []
        vm.cap.guards.close()
        vm.cap = Capture(vm)
        if site is None:
            vm.cap.active = False
            self.ended = True
            return
        self.site = site
        self.nargs, self.kwnames = len(roots) + 1, ()
        self._roots([*roots, value], [*template.names, name], containers)
        vm.cap.made.update(map(id, decomposed))

    ended = False

    def _move_out(self, e: Unrebuildable) -> None:
        """What is alive here can't be made again: from the next call on, the call that leads here runs eagerly as a whole."""
        f = self.vm.frame
        options = self.region.options
        while f is not None and f.back is not None:
            caller = f.back
            key = (caller.info.code, caller.ip - 1)
            if (
                caller.info.instructions[caller.ip - 1].name in ("CALL", "CALL_FUNCTION_EX")
                and key not in options.opaque
                and caller.info.code not in ENTRY
            ):
                options.opaque.add(key)
                return
            f = caller

    def _failed(self, error: str, text: str) -> None:
        with contextlib.suppress(Abandoned):
            self.vm.fail(error, text, False)

    def _abandon(self, error: BaseException) -> Any:
        """Puts back what the call has written; -> the eager result if the fault is fineline's own, else raises ``error``."""
        vm, region = self.vm, self.region
        untouched = self.start is self.site is region.entry
        if untouched:
            vm.cap.journal.undo()
            for put, state in self.random:
                put(state)
        inputs = {id(src.value) for _, src in vm.cap.recorder.inputs}
        rerun = untouched and not (inputs and vm.cap.recorder.mutated)
        args, kwargs = self.call
        self._release()
        if is_a(error, FinelineError) and not is_a(error, InternalError):
            raise error
        text = f"{type(error).__name__}: {error}"
        region._note(Event("eager", "FL901", text, *place_of(region.fn)))
        if not rerun:
            raise InternalError(text, where="{}:{}".format(*place_of(region.fn))) from error
        log.warning("fineline: %s:%s: an internal error; the call runs eagerly: %s", *place_of(region.fn), text)
        self._count_failure(text)
        return region.fn(*args, **kwargs)

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
        region._note(Event("eager", error, text, *vm.failed_at))
        if error in HOPELESS and not region.options.opaque:
            region.eager_reason = text
        self._count_failure(text)

    def _release(self) -> None:
        # Nothing that was alive in the call stays so, and no cycle is left for a collection to find.
        vm = self.vm
        vm.cap.recorder.forget()
        vm.cap.guards.close()
        vm.traces.clear()
        vm.frame = vm.on_border = vm.run_frame = vm.handled = None
        self.stop = None
        self.call = ((), {})


def _refused(error: str, reason: str, place: tuple[str, int], rule: str = "") -> Unsupported:
    """The error under ``fullgraph`` for what would have been a graph break."""
    where = f"{place[0]}:{place[1]}"
    if error == "FL400":
        return Unsupported(reason, id="FL103", where=where, rule=rule)
    words = REFUSALS[error]
    step = f"{words.next_step} Or take fullgraph=True away; fineline.explain(fn)(*args).breaks lists all breaks at once."
    return Unsupported(f"{reason} ({error}: {words.title})", id="FL102", where=where, rule=rule, next_step=step)


def _random_states() -> list[tuple[Callable, Any]]:
    """PyTorch's random states, with what puts them back."""
    states: list[tuple[Callable, Any]] = [(torch.default_generator.set_state, torch.default_generator.get_state())]
    if torch.cuda.is_initialized():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return states


# All regions of the process: a forked child has none of the threads that may hold their locks.
_ALL: weakref.WeakSet[Region] = weakref.WeakSet()


def _forked() -> None:
    for region in list(_ALL):
        region.lock = threading.RLock()
        region.capturing = None


os.register_at_fork(after_in_child=_forked)
