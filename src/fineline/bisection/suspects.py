"""A part of the graphs of a run that its backend compiles, while the rest runs as it was captured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch.fx import GraphModule

from fineline.backends.eager import as_it_is
from fineline.backends.registry import Registered
from fineline.bisection.facts import GraphFacts, operators_of
from fineline.bytecode.asynchronous import let_pass
from fineline.distributed.graph_cuts import Cuts


@dataclass(frozen=True)
class Candidate:
    """What the backend compiles in a run: these graphs, by their number in the order of capture, or all (None).

    ``stretches``: of a graph, the operators from a number up to another; the graph's other operators run as they were captured.
    ``cut``: the graph whose facts are to tell where it may be cut. ``captures``: False, nothing is captured.
    """

    graphs: frozenset[int] | None = None
    stretches: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    cut: int = -1
    captures: bool = True

    def __str__(self) -> str:
        if not self.captures:
            return "nothing captured"
        if self.graphs is None:
            return "all graphs compiled"
        if not self.graphs:
            return "no graph compiled"
        named = [f"graph {i}" + ("" if i not in self.stretches else ", operators {} to {}".format(*self._shown(i))) for i in sorted(self.graphs)]
        few = 4
        return f"compiled: {'; '.join(named[:few])}" + (f"; {len(named) - few} more" if len(named) > few else "")

    def _shown(self, graph: int) -> tuple[int, int]:
        begin, end = self.stretches[graph]
        return begin, end - 1


EVERYTHING, NOTHING, EAGER = Candidate(), Candidate(frozenset()), Candidate(frozenset(), captures=False)


class Suspects:
    """The graphs of one run. It counts those that come to its backends, notes their facts, and compiles what the candidate names.

    ``tell``: gets the number and the facts of each graph. ``modules``: the paths of modules, by identity. ``as_eager``: the backend is to
    draw eager code's random numbers, if it can. ``ran``: is called before a compiled graph runs for the first time.
    """

    def __init__(
        self, candidate: Candidate, tell: Callable[[int, GraphFacts], None] | None = None, modules: Mapping[int, str] = MappingProxyType({}),
        as_eager: bool = False, ran: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.candidate = candidate
        self.graphs: list[GraphFacts] = []
        # What the backend has raised, and what graphs that it has compiled have raised.
        self.refusals: list[Exception] = []
        self.failures: list[Exception] = []
        self._tell, self._modules, self._as_eager, self._ran = tell, modules, as_eager, ran

    def within(self, registered: Registered) -> Registered:
        """Returns a backend that compiles with ``registered`` what the candidate names."""
        fn = SuspectBackend(self, registered)
        return Registered(registered.name, fn, registered.tags, registered.builtin, registered.min_graph_operators)

    def compile(self, backend: Callable, gm: GraphModule, examples: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable:
        number, candidate = len(self.graphs), self.candidate
        operators = operators_of(gm, self._modules)
        self.graphs.append(GraphFacts(operators))
        cuts = _cuts(gm, examples) if number == candidate.cut or number in candidate.stretches else None
        if cuts is not None:
            self.graphs[number] = GraphFacts(operators, tuple([i for i, legal in enumerate(cuts.legal()) if legal]))
        if self._tell is not None:
            self._tell(number, self.graphs[number])
        if candidate.graphs is not None and number not in candidate.graphs:
            return as_it_is(gm)
        if number in candidate.stretches and cuts is not None:
            return self._in_part(backend, gm, cuts, candidate.stretches[number], kwargs)
        return self._compiled(backend, gm, examples, kwargs)

    def _in_part(self, backend: Callable, gm: GraphModule, cuts: Cuts, stretch: tuple[int, int], kwargs: Mapping[str, Any]) -> Callable:
        begin, end = stretch
        places = [place for place in (begin, end) if 0 < place < len(cuts.nodes)]
        parts = cuts.parts(places)
        at = 1 if begin > 0 else 0
        runs = [self._compiled(backend, p.module, cuts.examples(p), kwargs) if i == at else as_it_is(p.module) for i, p in enumerate(parts)]
        return cuts.chained(parts, runs)

    def _compiled(self, backend: Callable, gm: GraphModule, examples: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable:
        drawing = getattr(backend, "drawing_as_eager", None) if self._as_eager else None
        try:
            compiled = (drawing or backend)(gm, list(examples), **kwargs)
        except Exception as e:
            self.refusals.append(e)
            raise
        if not callable(compiled) or getattr(compiled, "__self__", compiled) is gm:
            self._ran()
            return compiled
        first = True

        def run(*inputs: Any) -> Any:
            nonlocal first
            if first:
                first = False
                self._ran()
            try:
                return compiled(*inputs)
            except Exception as e:
                self.failures.append(e)
                raise

        return run


def _cuts(gm: GraphModule, examples: Sequence[Any]) -> Cuts | None:
    """Returns the places where a graph may be cut; None if it can't be, because it does not run on fake tensors."""
    try:
        found = Cuts(gm, examples)
    except Exception as e:
        let_pass(e)
        return None
    return found if found.nodes else None


class SuspectBackend:
    """A backend that compiles, of the graphs that come to it, what a candidate names."""

    def __init__(self, suspects: Suspects, registered: Registered) -> None:
        self.__name__ = registered.name
        self._suspects, self._registered = suspects, registered

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable:
        return self._suspects.compile(self._registered.load(), gm, example_inputs, kwargs)

    @property
    def get_compiler_config(self) -> Any:
        return getattr(self._registered.load(), "get_compiler_config", None)
