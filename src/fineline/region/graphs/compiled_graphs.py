"""The graphs of a region that its backend has compiled: how a graph is compiled, reused, or replaced where the backend fails."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch.fx import GraphModule

from fineline.backends.eager import as_it_is
from fineline.backends.invoke import compile_graph
from fineline.backends.lock import TRACERS, TracersBusy
from fineline.backends.registry import Backend
from fineline.backends.structured import TRACE
from fineline.background.graph_job import GraphJob
from fineline.background.pending_graph import Finish
from fineline.bytecode.asynchronous import asynchronous, clear_frames_of
from fineline.codegen.node_metadata import Description, GraphPlace, place_of_graph
from fineline.distributed.buckets import Buckets, buckets_of, compile_at_buckets
from fineline.errors import BackendFailed, FinelineError
from fineline.exception_slots import error_text
from fineline.frames.graph_breaks import Restart
from fineline.frames.graph_limits import GraphLimits
from fineline.fx.graph_equality import outputs_as
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.shadow import Shadow
from fineline.fx.size_facts import Kinds
from fineline.guards.ambient_table import AMBIENT
from fineline.import_thread import LateModule
from fineline.kinds import is_a
from fineline.region.descriptions import call_stack
from fineline.region.graphs.background_graphs import BackgroundGraphs
from fineline.region.options import Options
from fineline.region.reports import Reports
from fineline.region.watch import Watch
from fineline.report.operator_counter import Tally
from fineline.torch_facts.thread_state import CallState, Standing

if TYPE_CHECKING:
    from fineline.background import compilation
else:
    compilation = LateModule("fineline.background.compilation")

log = logging.getLogger("fineline")

# The files whose frames hold no objects of the user's code.
INSIDE = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep, contextlib.__file__)

# The values of the setting `optimize_ddp` that let graphs be cut at the buckets of DistributedDataParallel.
CUTTING = (True, "ddp_optimizer")


class CompiledGraphs:
    """The graphs that one backend compiles for a region."""

    def __init__(
        self, fn: Callable, backend: Backend, options: Options, reports: Reports, watch: Watch, anew: Callable[[], Callable[[GraphLimits | None], bool] | None],
        stored: bool = False,
    ) -> None:  # fmt: skip
        """``anew``: returns the method by which the region captures its next call anew, within more limits; None if it is gone.

        ``stored``: whether the compiled graphs are to be in a file.
        """
        self.graphs: list[GraphModule] = []
        # The place of the graph in the code is kept only for a user's backend.
        self._compiled: list[tuple[GraphModule, Kinds, GraphPlace, Callable | GraphJob]] = []
        self.backend = backend
        self._fn, self._options, self._reports, self._watch = fn, options, reports, watch
        self._anew = anew
        # Whether the backward pass is compiled with the forward pass, so that the caches on disk have one entry for graphs that are compiled here, in
        # the background, and for a file.
        self.together = stored or not options.wait
        self.background = BackgroundGraphs(backend, reports, weakref.ref(self))

    def forget(self) -> None:
        self.graphs.clear()
        self._compiled.clear()
        self.background.forget()

    def share(self, gm: GraphModule | None) -> None:
        """Adds a graph that the region of an equal callable has compiled."""
        if gm is not None:
            self.graphs.append(gm)

    @property
    def are_seen(self) -> bool:
        """Returns whether the backend, a reader of PyTorch's structured trace, or a comparison between ranks will inspect the graphs."""
        return bool(self.backend.sees_graphs or TRACE.is_read or self._options.check_ranks)

    @property
    def min_operators(self) -> int:
        """Returns the fewest operators for which a graph after a graph break is compiled."""
        own = self._options.min_graph_operators
        return self.backend.min_graph_operators if own is None else own

    def compile(self, gm: CapturedGraph, examples: list, kinds: Kinds | None, queues: bool = False) -> Callable | GraphJob:
        """Compiles a graph with the backend, or makes the job to do so, unless that has compiled an equal one for inputs of the same kinds.

        A user's backend gets equal graphs from different places in the code separately, because its result may depend on the place.
        A known graph with more outputs is used too; then ``gm`` gets the same outputs.

        ``queues``: whether it only queues the graph, because this thread runs beside calls; raises `Restart` if a call has to compile the graph.
        """
        place = () if self.backend.builtin else place_of_graph(gm._graph)
        for known, its_kinds, its_place, compiled in self._compiled:
            if its_kinds.sizes is not None and is_a(compiled, GraphJob):
                # What the backend assumes about the sizes is not known yet.
                continue
            outputs = None if kinds is None or its_place != place else outputs_as(known._graph, gm._graph)
            if outputs is not None and kinds is not None and kinds.take_over(its_kinds):
                gm._graph.output_node().args = (outputs,)
                return _outcome(compiled)
        # Before its nodes are described: the sources of its inputs are dropped then.
        buckets = buckets_of(gm) if self.backend.sees_graphs and self._options.optimize_ddp in CUTTING else None
        in_background = self._in_background(gm, examples, buckets)
        if queues and not in_background and self.backend.name != "eager":
            raise Restart("FL016", "its graph cannot be compiled in the background")
        self.graphs.append(gm)
        if self.are_seen or self._options.shadow or is_a(self._watch.tally, Tally):
            Description(gm, examples, self.are_seen)
        made: Callable | GraphJob | None
        if in_background:
            made = self.background.from_caches(gm, examples, queues) or self.background.job(gm, examples)
        else:
            made = self._compile(gm, examples, buckets)
        if made is None:
            # A later graph like this one is compiled.
            return as_it_is(gm)
        if self._options.shadow and not is_a(made, GraphJob):
            made = Shadow(gm, made, self._options.shadow, self._reports)
        if kinds is not None:
            if kinds.sizes is not None and not is_a(made, GraphJob):
                kinds.sizes.compiled()
            self._compiled.append((gm, kinds, place, made))
        return made

    def _in_background(self, gm: CapturedGraph, examples: list, buckets: Buckets | None) -> bool:
        """Returns whether calls do not wait for the backend: nobody counts its operators, reads its trace, or compares ranks or results."""
        options = self._options
        if options.wait or options.shadow or self.backend.name == "eager" or buckets is not None or options.check_ranks:
            return False
        return self._watch.tally is None and not TRACE.is_read and self.background.takes(gm, examples)

    @property
    def would_wait(self) -> bool:
        """Returns whether a call that must not wait would wait for PyTorch's tracers."""
        return TRACERS.is_held_in_background and not self._options.wait

    def compile_saved(self, gm: CapturedGraph, examples: list, finish: Finish) -> Callable:
        """Compiles the graph of a saved program, at its first run, or begins to; it is among the region's graphs already.

        ``finish``: wraps the compiled graph, when the backend has made it.
        """
        if self._in_background(gm, examples, None):
            return self.background.of_saved(gm, examples, finish)
        return finish(self.compile_now(gm, examples), gm)

    def compile_now(self, gm: CapturedGraph, examples: list) -> Callable:
        """Compiles one of the region's graphs again, while the call waits."""
        made = self._compile(gm, examples, None)
        return as_it_is(gm) if made is None else made

    def compile_together(self, together: bool) -> None:
        """Compiles the backward pass with the forward pass if the process that has saved the programs did: the keys of the caches on disk tell both apart."""
        self.together = together

    def note_compiled_again(self, reason: str) -> None:
        """Reports that the compiled form of a saved program's graph is not used."""
        self._reports.note_call("stale", "FL014", f"the compiled graph of a saved program: {reason}; the backend compiles it again")

    def _compile(self, gm: CapturedGraph, examples: list, buckets: Buckets | None) -> Callable | None:
        """Returns the compiled graph; None if other threads hold PyTorch's tracers now."""
        plain = self.backend.name == "eager"
        state, stop = Standing(AMBIENT.now()) if plain else CallState(), None
        at = self._reports.place
        try:
            where = ":".join(map(str, at))
            together = compilation.eager_backward() if self.together else nullcontext()
            with together, TRACE.graph(self, len(self.graphs) - 1, gm, [(*at, self._reports.name)]):
                if plain:
                    return compile_graph(self.backend, gm, examples, where)
                if buckets is not None:
                    return TRACERS.holding(compile_at_buckets, self.backend, gm, examples, where, buckets, self._note_cut)
                return TRACERS.holding(compile_graph, self.backend, gm, examples, where)
        except BaseException as e:
            # Compilers may have wrapped an exception from outside.
            stop = asynchronous(e)
            if stop is not None:
                clear_frames_of(e, INSIDE)
            # If AOTAutograd fails inside a transform of the graph, it does not leave the transform.
            state.put_back()
            if is_a(e, TracersBusy):
                self._reports.note_call("eager", "FL435", str(e))
                return None
            if stop is None:
                if not self.runs_as_captured(e):
                    raise
                return as_it_is(gm)
        try:
            raise stop
        finally:
            # Its traceback refers to this frame.
            del stop

    def _note_cut(self, text: str) -> None:
        self._reports.note_call("cut", "FL006", text)

    def capture_anew(self, limits: GraphLimits | None) -> bool:
        """Has the region's next call captured anew, within these limits too; returns whether that is possible now."""
        anew = self._anew()
        return anew is None or anew(limits)

    def runs_as_captured(self, e: BaseException) -> bool:
        """Returns whether the user wants a graph to run as it was captured if the backend fails on it; reports that."""
        if is_a(e, FinelineError):
            e.stack = e.stack or call_stack(self._fn, None)
        if not is_a(e, BackendFailed) or not self._options.suppress_errors:
            return False
        self._reports.note_call("eager", e.id, e.reason)
        log.warning("fineline: %s:%s: a graph runs as it was captured (suppress_errors): %s", *self._reports.place, e.reason)
        return True

    def failed(self, error: BaseException, times: int) -> None:
        """Reports that a compiled graph has raised, for the ``times``-th time, but the code that it was captured from has not."""
        where, text = self._reports.where, error_text(error)
        self._reports.note_call_once("eager", "FL304", text)
        if times > 1 and not self._options.fall_back:
            reason = f"a compiled graph failed for the second time: {text}" if times == 2 else f"a compiled graph failed again: {text}"
            raise BackendFailed(reason, id="FL304", where=where, stack=call_stack(self._fn, None)) from error
        log.warning("fineline: %s: a compiled graph failed; the call ran eagerly: %s", where, text.partition("\n")[0])


def _outcome(compiled: Callable | GraphJob) -> Callable | GraphJob:
    """Returns the compiled graph of a job that is done."""
    done = compiled.outcome.compiled if is_a(compiled, GraphJob) and compiled.outcome is not None else None
    return compiled if done is None else done
