"""The programs of a compiled function as reports show them: guards, the graph's code, the source, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypedDict

# The cost of a guard that could not be measured.
UNKNOWN = -1.0


class Guard(NamedTuple):
    """A guard in words: ``name`` is the user's expression, ``claim`` the condition on it, ``where`` the line that read it, or ""."""

    name: str
    claim: str
    where: str

    def __str__(self) -> str:
        return f"{self.name} {self.claim}" + (f" (read at {self.where})" if self.where else "")


class Measures(NamedTuple):
    """What a program has cost while its capture was watched. Times are in seconds; `UNKNOWN` if they could not be measured.

    ``key`` identifies the program among those of its process. ``backend``: the compilation of the graph. ``writing``: the making of the
    program without that. ``guards``: each guard, with the reads for it alone, if nothing is remembered of earlier calls. ``check``: all
    guards of a warm call, which remembers.
    """

    key: str
    backend: float
    writing: float
    guards: tuple[float, ...]
    check: float


class MeasuresFacts(TypedDict):
    """The costs of a program, for JSON."""

    key: str
    backend: float
    writing: float
    guards: list[float]
    check: float


class ProgramFacts(TypedDict):
    """A program, for JSON and other processes."""

    source: str
    code: str
    parts: list[tuple[str, str]]
    operators: int
    places: list[tuple[str, int]]
    guards: list[dict[str, str]]
    measures: MeasuresFacts | None


class GraphCode(NamedTuple):
    """The code of a graph. ``parts``: the names in it, and the code, of the graphs that its operators run."""

    code: str = ""
    parts: Sequence[tuple[str, str]] = ()


class KeptProgram(NamedTuple):
    """A program that was kept for later calls.

    ``give_code`` returns the code of its graph. If a compiler in the background is at work on the graph, it waits for that.
    ``places``: the line of each operator, if known. ``measures``: None if the capture was not watched.
    """

    source: str
    guards: tuple[Guard, ...]
    give_code: Callable[[], GraphCode]
    operators: int
    places: Sequence[tuple[str, int]] = ()
    measures: Measures | None = None

    def as_dict(self) -> ProgramFacts:
        measures: MeasuresFacts | None = None
        if self.measures is not None:
            key, backend, writing, costs, check = self.measures
            measures = {"key": key, "backend": backend, "writing": writing, "guards": list(costs), "check": check}
        code, parts = self.give_code()
        return {
            "source": self.source, "code": code, "parts": list(parts), "operators": self.operators,
            "places": [(file, line) for file, line in self.places],
            "guards": [guard._asdict() for guard in self.guards], "measures": measures,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, facts: ProgramFacts) -> KeptProgram:
        found = facts["measures"]
        measures = Measures(found["key"], found["backend"], found["writing"], tuple(found["guards"]), found["check"]) if found is not None else None
        places = [(file, line) for file, line in facts["places"]]
        guards = tuple([Guard(**guard) for guard in facts["guards"]])
        code = GraphCode(facts["code"], [(name, code) for name, code in facts["parts"]])
        return cls(facts["source"], guards, lambda: code, facts["operators"], places, measures)


# Returns the program of an event, when somebody wants to read it.
GiveProgram = Callable[[], KeptProgram]
