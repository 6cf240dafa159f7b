"""A place where programs start: a region's entry, or the continuation after a graph break."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch

from fineline.bytecode.asynchronous import asynchronous
from fineline.bytecode.code import CodeInfo
from fineline.codegen.continuation import Continuation, is_continued, run_on, running_call
from fineline.codegen.frame_state import FrameState
from fineline.codegen.programs import ResidualProgram
from fineline.errors import InternalError
from fineline.exception_slots import TRACEBACK, error_text
from fineline.frames.frame import BreakCounts
from fineline.frames.graph_breaks import UncatchableError
from fineline.identity import AddressSet
from fineline.kinds import is_a
from fineline.region.descriptions import describe_guards, guard_positions
from fineline.region.dynamic_dims import DynamicDims
from fineline.region.guard_dispatch import Handlers, make_dispatcher, make_guard_program
from fineline.region.options import Options
from fineline.region.sharing.shared_programs import SharedPrograms
from fineline.region.watch import Watch
from fineline.report.costs import Cost
from fineline.report.operator_counter import OperatorCounts
from fineline.tracing.plain_values import PLAIN_TENSORS
from fineline.tracing.tracebacks import without_own_frames

NOWHERE: Mapping = MappingProxyType({})


class Everything(AddressSet):
    """A set with all objects, for a session that captures nothing: any live object may have been made in the call."""

    def __contains__(self, item: object) -> bool:
        return True


class Again:
    """Runs the rest of a call in Python, from ``entry_point`` on."""

    def __init__(self, entry_point: EntryPoint, kwnames: tuple[str, ...]) -> None:
        self._entry_point, self._kwnames = weakref.ref(entry_point), kwnames
        # How often the graph has failed although the code has not.
        self.failures = 0
        self.in_blocks = entry_point.frame_state is not None and entry_point.frame_state.has_handlers

    def __call__(self, failed: BaseException | None, *roots: Any) -> Any:
        """Runs the rest of the call because a branch takes another path than at its capture, or because the graph has ``failed``."""
        try:
            entry_point, value = self._run(None, roots)
            if failed is not None:
                self.failures += 1
                entry_point.region.graphs.failed(failed, self.failures)
            return value
        finally:
            # Its traceback refers to the program that called this.
            del failed

    def leave(self, error: BaseException, *roots: Any) -> Any:
        """Raises ``error``, after which nothing can run again, at the entry point, so that the blocks around that are left."""
        # Handlers see an interrupt itself, because it may come anywhere.
        thrown = UncatchableError(error_text(error)) if is_a(error, Exception) and asynchronous(error) is None else error
        try:
            value = self._run(thrown, roots)[1]
            # If a block swallows an interrupt, the call continues; an uncatchable error is raised again.
            if thrown is error:
                return value
        except BaseException as e:
            if e is not thrown:
                raise
        try:
            raise error
        finally:
            # The error refers to this frame.
            del error, thrown

    def _run(self, thrown: BaseException | None, roots: tuple) -> tuple[EntryPoint, Any]:
        entry_point, n = self._entry_point(), len(roots) - len(self._kwnames)
        assert entry_point is not None
        try:
            return entry_point, entry_point.region.run_eagerly(entry_point, roots[:n], dict(zip(self._kwnames, roots[n:], strict=True)), thrown)
        except BaseException as e:
            TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
            raise


class CallShape(NamedTuple):
    """The number of positional arguments, and the names of the keyword arguments."""

    nargs: int
    kwnames: tuple[str, ...] = ()


class GraphFailures(Protocol):
    """Receives the errors of compiled graphs."""

    def failed(self, error: BaseException, times: int) -> None: ...


class EntryOwner(Protocol):
    """The region of an entry point, with the members that the entry point uses."""

    options: Options
    watch: Watch

    @property
    def graphs(self) -> GraphFailures: ...
    def miss(self, args: tuple, kwargs: dict) -> Any: ...
    def failed(self, error: BaseException, program: ResidualProgram) -> None: ...
    def capture(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Any: ...
    def run_eagerly(self, entry_point: EntryPoint, args: tuple, kwargs: dict, thrown: BaseException | None = None) -> Any: ...


class EagerStretch:
    """Code after an entry point in which nothing is captured: the rest of a block, or of a function that runs eagerly."""

    def __init__(self, left: CodeInfo | None = None, newly: bool = False) -> None:
        # The function whose rest runs eagerly, and whether that is new.
        self._left = left
        self._newly = newly
        # The entry points at which calls have continued, with the dispatchers, to which no program refers.
        self._after: list[tuple[EntryPoint, Any]] = []

    @property
    def leaves_function(self) -> bool:
        return self._left is not None

    @property
    def ends(self) -> int:
        """Returns the number of different states in which calls have continued after it."""
        return len(self._after)

    def dispatcher_at(self, frame_state: FrameState) -> Any:
        """Returns the dispatcher for calls that leave the stretch in this state; None if there is none."""
        return next((d for point, d in self._after if point.frame_state is not None and point.frame_state.same(frame_state)), None)

    def add(self, entry_point: EntryPoint) -> Any:
        """Adds an entry point at which calls continue; returns its dispatcher."""
        dispatcher = entry_point.dispatcher
        self._after.append((entry_point, dispatcher))
        return dispatcher

    def without_left(self, passed: Mapping) -> dict:
        """Returns the graph breaks of ``passed`` outside the function whose rest runs eagerly: it is one graph break at the next call."""
        return {place: n for place, n in passed.items() if self._left not in [info for info, _ in place]}

    def was_newly_left(self) -> bool:
        """Returns whether a function is newly left; from now on it is not."""
        newly, self._newly = self._newly, False
        return newly


class EntryPoint:
    """A place where programs start: the region's entry, or the continuation after a graph break."""

    def __init__(
        self, region: EntryOwner, varying: DynamicDims, frame_state: FrameState | None = None, raised: bool = False, declared: bool = True,
        passed: Mapping = NOWHERE,
    ) -> None:  # fmt: skip
        # Ownership: the compiled callable owns its region's dispatcher, the dispatcher the region, the region its entry points and
        # the dispatchers to which loops return, a program those at which it continues. References back are weak, so that all is
        # freed with the callable.
        self._region = weakref.ref(region)
        self._dispatcher: Callable[[], Any] = lambda: None
        self.frame_state = frame_state
        self.raised = raised
        # The number of graph breaks before it, by place.
        self.passed = passed
        # Whether the user asked for the graph break before it.
        self.declared = declared
        # The code after it in which nothing is captured, until a block or a function is left; None if there is none.
        self.stretch: EagerStretch | None = None
        # Whether random numbers that are drawn after it may be symbols.
        self.draws = False
        # Whether several programs lead here, and whether its own rely on constant tensors of the program before them.
        self.met = self.informed = False
        # The graph breaks of each frame so far, the innermost frame first.
        self.breaks: tuple[BreakCounts, ...] = ()
        self.segments: list[ResidualProgram] = []
        # The programs that start here, or at this place in the regions of equal callables; None: they are for this region only.
        self.shared: SharedPrograms | None = None
        # The calls in which these programs were captured.
        self.calls: set[object] = set()
        self.varying = varying

    @property
    def region(self) -> EntryOwner:
        region = self._region()
        assert region is not None
        return region

    def is_called_by(self, dispatcher: object) -> bool:
        return self._dispatcher() is dispatcher

    @property
    def dispatcher(self) -> Any:
        """Returns the dispatcher; it lives as long as a caller refers to it."""
        found = self._dispatcher()
        if found is None:
            handlers = self.handlers
            found = make_dispatcher(handlers.miss, self.region.options.evaluator, handlers.failed, handlers.finish)
            self._dispatcher = weakref.ref(found)
        return found

    @property
    def handlers(self) -> Handlers:
        """Returns the functions that the dispatcher calls."""
        region = self.region
        return Handlers(region.miss, region.failed, (Continuation, run_on)) if self.frame_state is None else Handlers(self._miss)

    def take(self, dispatcher: object) -> None:
        """Makes ``dispatcher``, which has no programs yet, its own."""
        self._dispatcher = weakref.ref(dispatcher)

    def _miss(self, args: tuple, kwargs: dict) -> Any:
        try:
            return self.region.capture(self, args, kwargs)
        except BaseException as e:
            # An error that is raised again gets no entry for this frame.
            if not is_a(e, InternalError):
                TRACEBACK.__set__(e, without_own_frames(TRACEBACK.__get__(e)))
            raise

    def stands_for(self, frame_state: FrameState, raised: bool, declared: bool) -> bool:
        """Returns whether another program may lead here too: it leaves the same frames, and the programs here rely on their guards only."""
        own = self.frame_state
        if own is None or own.stack != frame_state.stack or (self.raised, self.declared) != (raised, declared):
            return False
        # No other program leads here any more if the dispatcher is gone.
        return self.free and self.is_led_to and own.same(frame_state)

    @property
    def free(self) -> bool:
        """Returns whether its programs rely on their guards only, and not on the program that leads here."""
        return not self.informed and self.stretch is None

    def fits(self, live: tuple) -> bool:
        """Returns whether it has a program that fits these live values."""
        dispatcher = self._dispatcher()
        entries = dispatcher.entries if dispatcher is not None and self.free else ()
        return any([nargs == len(live) and not kwnames and program.check(live) is not None for nargs, kwnames, program, _ in entries])

    def hit(self, args: tuple, kwargs: dict) -> Callable[[], Any] | None:
        """Returns a function that runs the call by the first program that fits; None if none does."""
        roots = (*args, *kwargs.values())
        names = tuple(kwargs)
        for nargs, kwnames, program, target in self.dispatcher.entries:
            if nargs == len(args) and kwnames == names:
                got = program.check(roots)
                if got is not None:
                    return functools.partial(target, *got)
        return None

    def failing(self, args: tuple, kwargs: dict) -> tuple[ResidualProgram, int] | None:
        """Returns the newest program whose guards fail for a call, and the number of the guard."""
        return next(self._failing(args, kwargs), None)

    def nearest(self, args: tuple, kwargs: dict) -> tuple[ResidualProgram, int] | None:
        """Returns the program of which a call has passed most guards before one failed, and the number of that guard; the newest of several."""
        return max(self._failing(args, kwargs), key=lambda found: found[1], default=None)

    def _failing(self, args: tuple, kwargs: dict) -> Iterator[tuple[ResidualProgram, int]]:
        roots = (*args, *kwargs.values())
        for (nargs, kwnames, program, _), segment in zip(self.dispatcher.entries, reversed(self.segments), strict=False):
            if nargs == len(args) and kwnames == tuple(kwargs) and (at := program.failing(roots)) >= 0:
                yield segment, at

    def run_eagerly_after(self, left: CodeInfo | None = None, newly: bool = False) -> EagerStretch:
        """Makes the code after it run eagerly. ``left``: the function whose rest does so; ``newly``: whether that is new."""
        if self.stretch is None:
            self.stretch = EagerStretch(left, newly)
        return self.stretch

    def again(self, kwnames: tuple[str, ...]) -> Again:
        return Again(self, kwnames)

    def meet(self) -> None:
        """Notes that several programs lead here."""
        self.met = True

    def inform(self, informed: bool) -> None:
        """Notes whether the programs here rely on constant tensors of the program before them."""
        self.informed = informed

    def use_symbols_for_draws(self, draws: bool) -> None:
        """Notes whether random numbers that are drawn after it may be symbols."""
        self.draws = draws

    def note_breaks(self, breaks: tuple[BreakCounts, ...]) -> None:
        """Notes the graph breaks of the frames, unless another program that leads here has done so."""
        self.breaks = self.breaks or breaks

    def observe(self, args: tuple, kwargs: dict) -> None:
        """Notes that the values in which a call that fits no program differs from the newest program's call vary."""
        self.varying.observe((*args, *kwargs.values()), self._names(len(args), tuple(kwargs)))

    def symbolic(self, args: tuple, kwargs: dict) -> bool:
        """Returns whether some of the values of a call may be symbols here."""
        return self.varying.symbolic((*args, *kwargs.values()), self._names(len(args), tuple(kwargs)))

    def varies(self, live: tuple) -> bool:
        """Returns whether one of the live values after a graph break has been seen to vary, or is expected to."""
        return self.varying.varies(live, self._names(len(live), ()))

    def _names(self, nargs: int, kwnames: tuple[str, ...]) -> tuple:
        return (*range(nargs), *kwnames) if self.frame_state is None else (*self.frame_state.values.names, "result")

    def vary(self, live: list, memory: Callable[[Any], Any]) -> None:
        """Makes exactly those ``live`` values and sizes vary here that are symbolic at the graph break. ``memory``: the fake of a tensor."""
        assert self.frame_state is not None
        for name, v in zip(self.frame_state.values.names, live, strict=True):
            if type(v) in (torch.SymInt, torch.SymFloat):
                self.varying.add(name, number=True)
            elif type(v) in (int, float):
                self.varying.add(name)
            elif type(v) in PLAIN_TENSORS and v.layout is torch.strided:
                self.varying.add(name, {d for d, n in enumerate(memory(v).shape) if type(n) is torch.SymInt})

    def share(self, programs: SharedPrograms) -> None:
        """Makes its programs those of equal callables, too."""
        self.shared = programs

    @property
    def is_led_to(self) -> bool:
        """Returns whether a program leads here."""
        return self._dispatcher() is not None

    def withdraw(self) -> None:
        """Keeps the regions of equal callables from beginning to run its programs."""
        for segment in self.segments:
            segment.unbound.withdraw()

    def clear(self) -> None:
        """Drops all programs. The dispatcher itself stays, because a compiled callable refers to it."""
        self.withdraw()
        self.segments.clear()
        self.dispatcher.set_entries([])

    def drop(self) -> None:
        """Removes the newest program."""
        self.segments.pop().unbound.withdraw()
        self.dispatcher.set_entries(self.dispatcher.entries[1:])

    def add(self, shape: CallShape, segment: ResidualProgram, outside: str, program: Any = None) -> None:
        """Adds a program for calls of that shape. ``outside``: the kind under which operators outside its graph are counted; ``program``: its guards."""
        nargs, kwnames = shape
        if program is None:
            program = make_guard_program(nargs + len(kwnames), segment.steps, segment.outputs, self.region.options.evaluator)
        self.segments.append(segment)
        self.calls.add(running_call())
        self.varying.captured(segment, self._names(nargs, kwnames))
        export = self.region.options.guard_export_fn
        if export is not None:
            export(describe_guards(segment))
        tally, recording = self.region.watch.tally, self.region.watch.recording
        if recording is not None:
            recording.programs_at(self).append(Cost(graphs=int(segment.graph is not None), guards=len(guard_positions(segment))))
        # The newest first, because it is most like the calls now.
        run = segment.run if tally is None else _counted(tally, segment.run, outside)
        self.dispatcher.set_entries([(nargs, kwnames, program, run), *self.dispatcher.entries])
        here, first = weakref.ref(self), weakref.ref(segment.run)

        def compiled(run: Callable) -> None:
            entry_point = here()
            if entry_point is not None:
                entry_point.dispatcher.set_entries([(n, k, p, run if r is first() else r) for n, k, p, r in entry_point.dispatcher.entries])

        segment.run.compiled = compiled


def _counted(tally: OperatorCounts, run: Callable, kind: str) -> Callable:
    """Returns a function that runs a program and counts operators outside graphs under that kind, also after it, up to the next program."""

    def within(call: Callable | None) -> Callable | None:
        return functools.partial(tally.during, kind, call) if call is not None else None

    def program(*args: Any) -> Any:
        out = tally.during(kind, run, *args)
        if not is_continued(out):
            return out
        behind: Continuation = out[0]
        return Continuation(functools.partial(tally.during, kind, behind.go_on), within(behind.through), within(behind.go_on_raised)), out[1]

    return program
