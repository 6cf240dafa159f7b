"""The programs of a region as one document, and back: what a file of saved captures contains."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import fields
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from fineline.backends.registry import Backend
from fineline.codegen.continuation import Continuation
from fineline.codegen.programs import OwnParts, ResidualProgram
from fineline.identity import IdentityMap
from fineline.import_thread import LateModule
from fineline.kinds import is_a
from fineline.region.descriptions import describe_program
from fineline.region.entry_point import CallShape, EntryPoint
from fineline.region.interface import CapturingRegion
from fineline.region.options import Options
from fineline.region.session.entry_frame import instance_of
from fineline.report.events import Detail, Event
from fineline.saving.graph_calls import Stored, graph_callable
from fineline.saving.object_names import Name, NotNamed
from fineline.saving.program_terms import SavedProgram, program_term, state_of, state_term
from fineline.saving.symbolic_examples import varying_inputs
from fineline.saving.terms import Stale, Term, TermReader, TermWriter

if TYPE_CHECKING:
    from fineline.saving import artifacts
else:
    artifacts = LateModule("fineline.saving.artifacts")

# The options that change no program, or that cannot be otherwise in a region whose programs are saved.
_WITHOUT_EFFECT = frozenset({"name", "settings", "policy"})


def why_unsavable(options: Options) -> str:
    """Returns why no program of a region with these options can be saved; "" if they can."""
    if options.policy is not None:
        return "it was compiled with a policy, whose rules the file cannot contain"
    return "it was compiled with check_ranks, which compares captures" if options.check_ranks else ""


class Unsaved(NamedTuple):
    """A program that is not in the document: where it starts, and why it is left out."""

    entry_point: EntryPoint
    reason: str


# -- writing -----------------------------------------------------------------------------------------------------------------
class Document:
    """The data of a region's programs. ``unsaved``: those that have no data."""

    def __init__(self, region: CapturingRegion, known: IdentityMap[Stored | None] | None = None, compiles: bool = True) -> None:
        """``known``: the artefacts of graphs that have been in a file. ``compiles``: whether those of others are made."""
        self._region, self._writer = region, TermWriter()
        self._known, self._compiles = known, compiles
        # The artefacts of the graphs that are in the document.
        self.stored: IdentityMap[Stored | None] = IdentityMap()
        self.unsaved: list[Unsaved] = []
        # The artefacts of compiled graphs, one after the other.
        self.artifacts = bytearray()
        points = list(region.entry_points)
        self.callable = callable_term(region.fn, self._writer)
        self._numbers = {id(point): number for number, point in enumerate(points)}
        self._points = points
        entries = [self._entry(point) for point in points]
        self.programs = sum([len(entry["programs"]) for entry in entries])
        machine = list(self._machine) if self.artifacts else None
        how = {**how_term(region.backend, region.options, self._writer), "together": region.graphs.together}
        self.data = {"callable": self.callable, "machine": machine, "how": how, "entries": entries}

    def report_unsaved(self) -> None:
        """Reports the programs that are left out, each once."""
        reports = self._region.reports
        for point, reason in self.unsaved:
            reports.note_once(Event("unsaved", "FL013", reason, *reports.place_at(point)))

    def text(self) -> str:
        """Returns the document as JSON."""
        return json.dumps({**self.data, "objects": self._writer.table}, separators=(",", ":"))

    def _entry(self, point: EntryPoint) -> Term:
        programs: list[Term] = []
        shapes = [CallShape(nargs, kwnames) for nargs, kwnames, _, _ in reversed(point.dispatcher.entries)]
        for shape, program in zip(shapes, point.segments, strict=False):
            try:
                programs.append(self._program(point, shape, program))
            except NotNamed as e:
                self.unsaved.append(Unsaved(point, str(e)))
        try:
            return {"state": self._state(point), "programs": programs}
        except NotNamed as e:
            self.unsaved += [Unsaved(point, f"the code after the graph break: {e}") for _ in programs]
            return {"state": None, "programs": []}

    def _program(self, point: EntryPoint, shape: CallShape, program: ResidualProgram) -> Term:
        if point.informed:
            raise NotNamed("it relies on tensors that the program before it has made")
        term = program_term(program, self._writer, self._number_of)
        return {**term, "shape": [shape.nargs, list(shape.kwnames)], "artifact": self._artifact(program)}

    def _artifact(self, program: ResidualProgram) -> Term:
        """Adds the artefact of a program's graph to those of the file; returns its key, and where it begins and ends."""
        call, graph, region = program.unbound.call, program.unbound.graph, self._region
        if call is None or graph is None or region.backend.name == "eager":
            return None
        if call.compiled and varying_inputs(call, program.steps, program.unbound.reads.sources) is not None:
            return None
        is_known = self._known is not None and graph in self._known
        stored = self._known.get(graph) if self._known is not None else None
        if stored is not None and stored.machine[1:] != self._machine[1:]:
            is_known, stored = False, None
        if not is_known and self._compiles:
            found = artifacts.artifact_of(call, graph, program.steps, region.backend, region.graphs.compile_now)
            stored = None if found is None else Stored(found, self._machine)
        self.stored[graph] = stored
        if stored is None:
            return None
        start = len(self.artifacts)
        self.artifacts += stored.artifact.entries
        return [stored.artifact.key, start, len(self.artifacts)]

    @functools.cached_property
    def _machine(self) -> artifacts.Machine:
        return artifacts.machine()

    def _number_of(self, go_on: Any) -> int:
        """Returns the number of the entry point that a way on leads to; raises `NotNamed` if that has no data."""
        point = next((point for point in self._points if point.is_called_by(go_on)), None)
        if point is None:
            raise NotNamed("it continues in a loop whose iterations share programs")
        self._state(point)
        return self._numbers[id(point)]

    def _state(self, point: EntryPoint) -> Term:
        if point.frame_state is None:
            return None
        parts = (point.frame_state, point.raised, point.declared, tuple(point.passed.items()), point.breaks)
        return state_term(parts, self._writer)


def callable_term(fn: Any, writer: TermWriter) -> list[str]:
    """Returns what names a callable, or its kind if others are equal: the function of a method, the code of a function, the class of an object."""
    kind, part = "object", fn
    if is_a(fn, MethodType):
        kind, part = "method", fn.__func__
    elif is_a(fn, FunctionType):
        kind, part = "function", fn.__code__
    elif instance_of(fn) is not None:
        kind, part = "instance of", type(fn)
    number = writer.named(part)[1]
    module, path, fingerprint = writer.table[number]
    return [kind, f"{module}:{json.dumps(path)}", fingerprint]


def how_term(backend: Backend, options: Options, writer: TermWriter) -> Term:
    """Returns the data of a backend and of the options that are not as by default; raises `NotNamed` if one has none."""
    usual = Options()
    changed = {f.name: getattr(options, f.name) for f in fields(Options) if f.name not in _WITHOUT_EFFECT and getattr(options, f.name) != getattr(usual, f.name)}
    name = backend.name if backend.source.builtin else None
    try:
        arguments = json.loads(json.dumps(backend.kwargs))
    except TypeError as e:
        raise NotNamed(f"the options of its backend: {e}") from None
    return {
        "backend": name if name is not None else writer.term(backend.source.source),
        "arguments": arguments,
        "options": {name: writer.term(value) for name, value in changed.items()},
    }


def _shown(name: str) -> str:
    module, _, path = name.partition(":")
    return Name(module, tuple([tuple(part) if type(part) is list else part for part in json.loads(path)])).text()


# -- reading -----------------------------------------------------------------------------------------------------------------
class SavedCaptures:
    """The document of a file, and its programs, added to a region. ``origin``: the file's name for messages."""

    def __init__(self, data: Term, stored: bytes, origin: str) -> None:
        """``stored``: the artefacts of compiled graphs."""
        self.data, self.origin, self._stored = data, origin, stored
        self._reader = TermReader(data["objects"])
        self._entries: list[Term] = data["entries"]
        # The artefacts of the graphs that have been added.
        self.stored: IdentityMap[Stored | None] = IdentityMap()

    def check_callable(self, fn: Any) -> None:
        """Raises `Stale` if the programs are for another callable, or its code has changed."""
        try:
            kind, name, fingerprint = callable_term(fn, TermWriter())
        except NotNamed as e:
            raise Stale(str(e)) from None
        saved_kind, saved_name, saved_fingerprint = self.data["callable"]
        if (kind, name) != (saved_kind, saved_name):
            raise Stale(f"it is for the {saved_kind} {_shown(saved_name)}, and this is the {kind} {_shown(name)}")
        if fingerprint != saved_fingerprint:
            raise Stale(f"the {kind} {_shown(name)} has changed since it was saved")

    def how(self) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Returns the backend, its keyword arguments, and the options; raises `Stale` if one is not there."""
        how = self.data["how"]
        value = self._reader.value
        return value(how["backend"]), how["arguments"], {name: value(term) for name, term in how["options"].items()}

    def add_to(self, region: CapturingRegion) -> int:
        """Adds the programs to a region, and reports each one, or why it does not fit this process; returns their number."""
        region.graphs.compile_together(self.data["how"]["together"])
        points, waiting, done, added = {0: region.entry}, [0], set[int](), 0
        while waiting:
            number = waiting.pop(0)
            if number in done:
                continue
            done.add(number)
            for term in self._entries[number]["programs"]:
                try:
                    waiting += self._add(region, points, number, term)
                    added += 1
                except Stale as e:
                    region.reports.note(Event("stale", "FL014", f"a program of {self.origin}: {e}", *region.reports.place_at(points[number])))
        return added

    def _add(self, region: CapturingRegion, points: dict[int, EntryPoint], number: int, term: Term) -> tuple[int, ...]:
        saved, point = SavedProgram(term, self._reader), points[number]
        new = {way: self._entry_point(region, way) for way in saved.ways if way not in points}
        nargs, kwnames = term["shape"]
        shape = CallShape(nargs, tuple(kwnames))
        points |= new
        region.entry_points.add(new.values())
        continuation = None
        if saved.ways:
            after, *failed = [points[way] for way in saved.ways]
            continuation = Continuation(after.dispatcher, saved.through, failed[0].dispatcher if failed else None)
        graph = self._graph(saved, term["artifact"], region)
        instance, own = instance_of(region.fn), OwnParts(point.again(shape.kwnames), continuation, region.run_frame)
        segment = saved.unbound(own, graph).bind(instance, own)
        self._report(region, point, segment, saved.operators)
        region.graphs.share(segment.graph)
        point.add(shape, segment, "eager")
        region.count_program(point)
        return saved.ways

    def _graph(self, saved: SavedProgram, artifact: Term, region: CapturingRegion) -> Callable[..., Any] | None:
        if saved.call is None or saved.graph is None:
            return None
        inputs = varying_inputs(saved.call, saved.steps, saved.sources) if saved.call.compiled else None
        stored = self._artifact(artifact)
        if stored is not None:
            self.stored[saved.graph] = stored
        return graph_callable(saved.call, saved.graph, region, stored, inputs)

    def _artifact(self, term: Term) -> Stored | None:
        if term is None:
            return None
        key, start, end = term
        name, supported, usable, *more = self.data["machine"]
        on = artifacts.Machine(name, tuple(supported), tuple(usable), *more)
        return Stored(artifacts.Artifact(key, self._stored[start:end]), on)

    def _entry_point(self, region: CapturingRegion, number: int) -> EntryPoint:
        state, raised, declared, passed, breaks = state_of(self._entries[number]["state"], self._reader)
        point = region.entry_points.new(region, state, raised, declared, dict(passed))
        point.note_breaks(breaks)
        # As a capture does: the loops around these positions contain the graph break.
        for info, ip in state.chain:
            region.lessons.break_places.setdefault(info.code, set()).add(ip)
        return point

    def _report(self, region: CapturingRegion, point: EntryPoint, segment: ResidualProgram, operators: int) -> None:
        place = region.reports.place_at(point)
        text = f"a program with {operators} operator{'' if operators == 1 else 's'}, from {self.origin}"
        region.reports.note(Event("loaded", "FL012", text, *place))
        detail: Detail = {"program": functools.partial(describe_program, segment)}
        region.reports.tell(Event("program", "FL002", f"program {region.budget.programs}", *place, detail=detail))
