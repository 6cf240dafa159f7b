"""Programs: the guards and the code of a segment, first without the instance that they were captured for, then for one."""

from __future__ import annotations

import linecache
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch.fx import GraphModule

from fineline.background.pending_graph import PendingGraph
from fineline.codegen.continuation import Continuation
from fineline.codegen.deoptimization import RestOfCall
from fineline.fx.graph_module import CapturedGraph
from fineline.guards.source import Reads
from fineline.guards.steps import Step
from fineline.stacks import PROGRAM
from fineline.tracing.interp import FrameCaller


class ProgramText:
    """The source of a segment's code, compiled at its first use: the capturing call does not need it."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self._code: CodeType | None = None

    @property
    def code(self) -> CodeType:
        if self._code is None:
            filename = f"{PROGRAM}{self.name}>"
            self._code = compile(self.source, filename, "exec")
            linecache.cache[filename] = (len(self.source), None, self.source.splitlines(True), filename)
            weakref.finalize(self, linecache.cache.pop, filename, None)
        return self._code


class Program:
    """A segment's code, as a function that is made at its first run, or before that by `make`."""

    def __init__(self, text: ProgramText, constants: Mapping[str, Any]) -> None:
        self.text, self.constants = text, constants
        self.run: Callable | None = None
        self.compiled: Callable[[Callable], None] | None = None

    def __call__(self, *args: Any) -> Any:
        run = self.run
        return (self.make() if run is None else run)(*args)

    def make(self) -> Callable:
        """Makes the function, unless it is made; returns it."""
        if self.run is None:
            self.run = self._compile()
            if self.compiled is not None:
                self.compiled(self.run)
        return self.run

    def _compile(self) -> Callable:
        namespace = {"math": math, **self.constants}
        graph: Any = namespace.get("graph")
        if getattr(graph, "__func__", None) is CapturedGraph._lazy_forward:
            # The backend returned the graph itself, or a copy: the program calls its generated code, not the stand-in that generates it.
            returned: CapturedGraph = graph.__self__
            returned.write_code()
            namespace["graph"] = returned.forward
        exec(self.text.code, namespace)
        # Removed from its own globals, because the two would refer to each other.
        run: Callable = namespace.pop("program")
        if type(graph) is PendingGraph and type(run) is FunctionType:
            graph.use(run)
        return run


class GraphCall(NamedTuple):
    """How the constant ``graph`` of a program is made from its graph module: another process makes it in the same way.

    ``registers``: those of the graph's inputs. ``compiled``: whether a backend has compiled it. ``state``: PyTorch's state of overrides in which that
    happens; ``hides``: whether the graph runs in it, too. ``wrappers``: None, or the last argument of `apart`. ``remade``, ``several``: those of `remaking`.
    """

    registers: tuple[int, ...]
    compiled: bool
    state: str
    hides: bool = False
    wrappers: bool | None = None
    remade: tuple[tuple[int, Callable[..., Any]], ...] = ()
    several: tuple[tuple[int, ...], ...] = ()


class OwnParts(NamedTuple):
    """The parts of a program that belong to its region.

    ``again`` runs the segment, and all code after it, in Python. ``continuation``: the way on after a graph break; None at a return.
    ``run_frame``: calls functions whose callees are regions.
    """

    again: RestOfCall
    continuation: Continuation | None = None
    run_frame: FrameCaller | None = None


class UnboundProgram:
    """A compiled segment without the instance, which is the object that calls of the region call, and without the region's own parts.

    The regions of equal callables share it. The guards read the instance as any other object.
    """

    def __init__(
        self, text: ProgramText, constants: Mapping[str, Any], own: OwnParts, steps: tuple[Step, ...], instance_at: int, outputs: tuple[int, ...],
        gm: CapturedGraph | None, reads: Reads, call: GraphCall | None = None, places: Sequence[tuple[str, int]] = (),
    ) -> None:  # fmt: skip
        """``instance_at``: the number of the step that gives the instance; -1 if the program reads none. ``call``: how it calls its graph.

        ``places``: the line of each operator.
        """
        self.text, self.outputs, self.graph, self.reads, self.call, self.instance_at = text, outputs, gm, reads, call, instance_at
        self.places = places
        # Whether a region has dropped it for better ones, so that no other region is to begin with it.
        self.withdrawn = False
        parts = {name: part for name, v in constants.items() if (part := _part(v, own)) is not None}
        self.constants = {name: v for name, v in constants.items() if name not in parts}
        self._parts = parts
        self._before, self._after = (steps, ()) if instance_at < 0 else (steps[:instance_at], steps[instance_at + 1 :])
        self._register = steps[instance_at][1] if instance_at >= 0 else -1

    def withdraw(self) -> None:
        """Keeps other regions from beginning to run it."""
        self.withdrawn = True

    @property
    def waits(self) -> bool:
        """Returns whether its graph is still to be compiled in the background."""
        graph = self.constants.get("graph")
        return type(graph) is PendingGraph and graph.job.outcome is None

    @property
    def takes_instances(self) -> bool:
        """Returns whether it reads an instance, which each region gives to it."""
        return self._register >= 0

    @property
    def parts(self) -> dict[str, str]:
        """Returns which of the region's own parts the constants of these names are."""
        return {name: get.__name__.removeprefix("_") for name, get in self._parts.items()}

    def steps(self, instance: Any) -> tuple[Step, ...]:
        """Returns the guard steps for this instance."""
        return (*self._before, ("pin", self._register, -1, instance), *self._after) if self.takes_instances else self._before

    def bind(self, instance: Any, own: OwnParts) -> ResidualProgram:
        """Returns the program of a region with this instance and these parts."""
        constants = {**self.constants, **{name: get(own) for name, get in self._parts.items()}}
        return ResidualProgram(Program(self.text, constants), self.steps(instance), self)


def _part(v: Any, own: OwnParts) -> Callable[[OwnParts], Any] | None:
    """Returns the function that reads the constant ``v`` from the region's own parts; None if it is not one of them."""
    if v is own.again:
        return _again
    if v is own.continuation:
        return _continuation
    if v is own.run_frame:
        return _run_frame
    return _leave if type(v) is MethodType and v.__self__ is own.again else None


def _again(own: OwnParts) -> RestOfCall:
    return own.again


def _leave(own: OwnParts) -> Callable[..., Any]:
    return own.again.leave


def _continuation(own: OwnParts) -> Continuation | None:
    return own.continuation


def _run_frame(own: OwnParts) -> FrameCaller | None:
    return own.run_frame


class ResidualProgram:
    """A compiled segment: the guard steps, and the code to run."""

    def __init__(self, run: Program, steps: tuple[Step, ...], unbound: UnboundProgram) -> None:
        self.run = run
        self.steps = steps
        self.unbound = unbound
        self.source: str = unbound.text.source
        self.outputs: tuple[int, ...] = unbound.outputs
        self.graph: GraphModule | None = unbound.graph
        self.reads: Reads = unbound.reads
