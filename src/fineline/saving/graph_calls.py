"""The graphs of saved programs: their callables, which a backend compiles at the first run, from its own caches if these have the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fineline.backends.eager import as_it_is
from fineline.backends.lock import TRACERS
from fineline.backends.registry import Backend
from fineline.background.pending_graph import Finish
from fineline.codegen.ambient_state import in_override_state, override_state
from fineline.codegen.node_metadata import Description
from fineline.codegen.programs import GraphCall
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.output_fixups import plain_example, remaking
from fineline.fx.overlap_check import apart
from fineline.import_thread import LateModule
from fineline.region.interface import CapturingRegion
from fineline.saving.symbolic_examples import Inputs, SymbolicExamples

if TYPE_CHECKING:
    from fineline.saving import artifacts
else:
    artifacts = LateModule("fineline.saving.artifacts")


class Stored(NamedTuple):
    """The artefact of a graph in a file, and the machine that has made it."""

    artifact: artifacts.Artifact
    machine: artifacts.Machine

    def restore(self, backend: Backend) -> Callable[..., Any]:
        return artifacts.restore(self.artifact, self.machine, backend)


class LateGraph:
    """A graph that the region's backend compiles when it first runs, because only then there are inputs."""

    __slots__ = ("_call", "_compiled", "_gm", "_graphs", "_inputs", "_stored")

    def __init__(self, call: GraphCall, gm: CapturedGraph, region: CapturingRegion, stored: Stored | None, inputs: Inputs | None) -> None:
        """``inputs``: those of a graph whose sizes vary."""
        self._call, self._gm, self._graphs, self._stored, self._inputs = call, gm, region.graphs, stored, inputs
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self._compiled is None:
            if self._graphs.would_wait:
                return as_it_is(self._gm)(*inputs)
            self._compiled = self._compile(inputs)
        return self._compiled(*inputs)

    def _compile(self, inputs: tuple) -> Callable[..., Any]:
        if self._stored is not None:
            try:
                return TRACERS.holding(self._stored.restore, self._graphs.backend)
            except artifacts.NotRestored as e:
                self._graphs.note_compiled_again(str(e))
        # The classes of the tensors see none of what follows.
        with torch._C.DisableTorchFunctionSubclass(), override_state(self._call.state):
            if self._inputs is None:
                return self._compile_for([plain_example(t) for t in inputs], _unchecked)
            examples = SymbolicExamples(self._inputs, inputs)
            return self._compile_for(examples.values, functools.partial(_checked, examples))

    def _compile_for(self, examples: list[Any], finish: Finish) -> Callable[..., Any]:
        # AOTAutograd's cache takes a graph with methods only if it knows that they are those of tensors. The file has no example values.
        Description(self._gm, examples, values=True, runs=True)
        return self._graphs.compile_saved(self._gm, examples, finish)


def _checked(examples: SymbolicExamples, compiled: Callable[..., Any], gm: CapturedGraph) -> Callable[..., Any]:
    """Returns a compiled graph with a check of what the backend has assumed about its sizes: that is known when it is done."""
    check = examples.check()
    return compiled if check is None else functools.partial(_if_holds, check, compiled, as_it_is(gm))


def _unchecked(compiled: Callable[..., Any], gm: CapturedGraph) -> Callable[..., Any]:
    return compiled


def _if_holds(check: Callable[[tuple], bool], compiled: Callable[..., Any], plain: Callable[..., Any], *inputs: Any) -> Any:
    """Runs a compiled graph if the inputs are as its backend has assumed; otherwise the graph itself."""
    return compiled(*inputs) if check(inputs) else plain(*inputs)


def graph_callable(
    call: GraphCall, gm: CapturedGraph, region: CapturingRegion, stored: Stored | None, inputs: Inputs | None
) -> Callable[..., Any]:
    """Returns what a program calls as its graph, as the process did that has captured it. ``stored``: the compiled graph, if the file has it."""
    graph: Callable[..., Any] = LateGraph(call, gm, region, stored, inputs) if call.compiled else as_it_is(gm)
    if call.wrappers is not None:
        graph = apart(graph, gm, call.wrappers)
    if call.remade or call.several:
        graph = remaking(graph, call.remade, call.several)
    return functools.partial(in_override_state, call.state, graph) if call.hides else graph
