"""Programs as data, and the entry points at which they start and continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fineline.bytecode.code import CODES, CodeInfo
from fineline.codegen.continuation import Continuation
from fineline.codegen.programs import GraphCall, OwnParts, ProgramText, ResidualProgram, UnboundProgram
from fineline.frames.stub_frames import Place, StubCode
from fineline.fx.graph_module import CapturedGraph
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.saving.graph_terms import graph_of, graph_term
from fineline.saving.object_names import NotNamed
from fineline.saving.step_terms import StepReader, StepWriter, reads_of, reads_term
from fineline.saving.terms import Stale, Term, TermReader, TermWriter
from fineline.tracing.tracebacks import ShownPlace

_GRAPH = "graph"


# -- writing -----------------------------------------------------------------------------------------------------------------
def program_term(program: ResidualProgram, writer: TermWriter, number_of: Callable[[Any], int]) -> Term:
    """Returns the data of a program; raises `NotNamed` if a part of it has none. ``number_of``: gives the entry point of a way on, or raises that."""
    unbound = program.unbound
    steps = StepWriter(writer)
    terms = steps.steps(program.steps, unbound.instance_at, unbound.reads)
    continuation = next((v for v in program.run.constants.values() if type(v) is Continuation), None)
    return {
        "name": unbound.text.name,
        "source": unbound.text.source,
        "steps": terms,
        "facts": steps.facts,
        "instance_at": unbound.instance_at,
        "outputs": list(unbound.outputs),
        "reads": reads_term(unbound.reads, program.steps, writer),
        "constants": {name: _constant(name, v, unbound, writer) for name, v in unbound.constants.items() if not (name == _GRAPH and unbound.call is not None)},
        "parts": unbound.parts,
        "graph": None if unbound.graph is None else graph_term(unbound.graph, writer),
        "call": None if unbound.call is None else writer.term(unbound.call),
        "continuation": None if continuation is None else _continuation_term(continuation, writer, number_of),
    }


def _constant(name: str, v: Any, unbound: UnboundProgram, writer: TermWriter) -> Term:
    def special(part: Any) -> Term | None:
        if unbound.graph is not None and part is unbound.graph:
            return ["graph"]
        return place_term(part, writer)

    try:
        return writer.term(v, special)
    except NotNamed as e:
        raise NotNamed(f"its constant {name}: {e}") from e




def _continuation_term(continuation: Continuation, writer: TermWriter, number_of: Callable[[Any], int]) -> Term:
    def special(part: Any) -> Term | None:
        return place_term(part, writer)

    through = None if continuation.through is None else writer.term(continuation.through, special)
    raised = continuation.go_on_raised
    return [number_of(continuation.go_on), through, None if raised is None else number_of(raised)]


def place_term(v: Any, writer: TermWriter) -> Term | None:
    """Returns the data of a place, of decoded code, or of a dict that is no namespace; None for other objects."""
    if type(v) is CodeInfo:
        return ["decoded", writer.named(v.code)]
    if type(v) is dict and "__name__" not in v:
        return ["dict", *[[writer.term(key), state_term(x, writer)] for key, x in v.items()]]
    if not is_a(v, Place):
        return None
    stubs = [[*StubCode.of(stub), writer.named(stub.__globals__)] for stub in v.stubs()]
    return ["shown place", stubs, writer.term(v.frames)] if is_a(v, ShownPlace) else ["place", stubs]


def state_term(v: Any, writer: TermWriter) -> Term:
    """Returns the data of a frame state, or of a part of one."""
    return writer.term(v, lambda part: place_term(part, writer))


# -- reading -----------------------------------------------------------------------------------------------------------------
class SavedProgram:
    """A program from a file, read as far as it does not depend on the region: all that it names has been found and compared."""

    def __init__(self, term: Term, reader: TermReader) -> None:
        self._term, self._reader = term, reader
        reads = StepReader(reader, term["facts"])
        steps = reads.steps(term["steps"])
        self.steps = steps
        self._reads = reads_of(term["reads"], steps, term["instance_at"], reader)
        self.graph: CapturedGraph | None = None if term["graph"] is None else graph_of(term["graph"], reader)
        self.call: GraphCall | None = None if term["call"] is None else reader.value(term["call"])
        self._constants = {name: reader.value(v, self._read) for name, v in term["constants"].items()}
        self.through: Callable | None = None
        # The numbers of the entry points after it: none, one, or two.
        self.ways: tuple[int, ...] = ()
        if term["continuation"] is not None:
            after, through, raised = term["continuation"]
            self.through = reader.value(through, self._read)
            self.ways = (after,) if raised is None else (after, raised)

    @property
    def sources(self) -> Sequence[Source]:
        """Returns the sources by their registers."""
        return self._reads.sources

    @property
    def operators(self) -> int:
        """Returns the number of operators in its graph."""
        return 0 if self.graph is None else sum([node.op not in ("placeholder", "output", "get_attr") for node in self.graph._graph.nodes])

    def _read(self, term: list) -> Any:
        if term[0] == "graph":
            return self.graph
        return read_place(term, self._reader)

    def unbound(self, own: OwnParts, graph: Callable | None) -> UnboundProgram:
        """Returns the program, with a region's own parts in it. ``graph``: what it calls as its graph."""
        parts = {"again": own.again, "leave": own.again.leave, "continuation": own.continuation, "run_frame": own.run_frame}
        constants = {**self._constants, **{name: parts[part] for name, part in self._term["parts"].items()}}
        if graph is not None:
            constants[_GRAPH] = graph
        text = ProgramText(f"{self._term['name']}_{id(self):x}", self._term["source"])
        return UnboundProgram(
            text, constants, own, self.steps, self._term["instance_at"], tuple(self._term["outputs"]), self.graph, self._reads, self.call,
            # Files do not have the lines of operators.
            [("", 0)] * self.operators,
        )  # fmt: skip


def read_place(term: list, reader: TermReader) -> Any:
    """Returns the place, or the decoded code, of the data."""
    match term[0]:
        case "decoded":
            return CODES[reader.value(term[1])]
        case "place":
            return _place(term[1], reader)
        case "shown place":
            return ShownPlace(_place(term[1], reader), reader.value(term[2]))
    raise Stale(f"the file has a value of the unknown kind {term[0]!r}")


def _place(stubs: list[Term], reader: TermReader) -> Place:
    return Place.at([StubCode(*code).function(reader.value(globals_)) for *code, globals_ in stubs])


def state_of(term: Term, reader: TermReader) -> Any:
    """Returns the frame state, or the part of one, of the data."""
    return reader.value(term, lambda tagged: read_place(tagged, reader))
