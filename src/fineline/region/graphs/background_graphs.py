"""The graphs of a region that are compiled in the background: their jobs, and what programs run once a job is done."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.backends.invoke import compile_graph
from fineline.backends.lock import TRACERS, TracersBusy
from fineline.backends.registry import Backend
from fineline.background.graph_job import GraphJob, Outcome
from fineline.background.pending_graph import Finish, PendingGraph
from fineline.background.queue import QUEUE
from fineline.errors import BackendFailed
from fineline.exception_slots import error_text
from fineline.frames.graph_breaks import Restart, Uncompiled
from fineline.frames.graph_limits import GraphLimits
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.output_fixups import plain_example
from fineline.import_thread import LateModule
from fineline.kinds import is_a
from fineline.region.reports import Reports
from fineline.torch_facts.thread_state import SHARED

if TYPE_CHECKING:
    from fineline.backends import tracing
    from fineline.background import compilation
else:
    # The compilers' modules take a second to import.
    compilation = LateModule("fineline.background.compilation")
    tracing = LateModule("fineline.backends.tracing")


# How often a region drops a compiled graph for what its backend has assumed. Each of its graphs may be one.
MOST_DROPPED = 16


class Region(Protocol):
    """The region: what it does if a backend's error, or its assumptions, call for another capture, or for an error."""

    def capture_anew(self, limits: GraphLimits | None) -> bool: ...
    def runs_as_captured(self, error: BackendFailed) -> bool: ...


class Assumptions:
    """The conditions on symbolic sizes that a backend may add to those of the capture, while it compiles a graph for these examples."""

    def __init__(self, examples: Sequence[Any]) -> None:
        self._env: ShapeEnv | None = next((t.fake_mode.shape_env for t in examples if is_a(t, FakeTensor)), None)
        self._before = self._count()

    def begin(self) -> None:
        """Forgets those so far: the capture has guarded them."""
        self._before = self._count()

    def _count(self) -> tuple[int, ...]:
        env = self._env
        return () if env is None else (len(env.guards), len(env.replacements), len(env.deferred_runtime_asserts))

    @property
    def are_new(self) -> bool:
        return self._count() != self._before


class BackgroundGraphs:
    """The jobs of one region."""

    def __init__(self, backend: Backend, reports: Reports, region: weakref.ref[Region]) -> None:
        self._backend, self._reports, self._region = backend, reports, region
        self._jobs: weakref.WeakKeyDictionary[GraphJob, Assumptions] = weakref.WeakKeyDictionary()
        self._new: list[GraphJob] = []
        # How often a compiled graph was dropped because its backend has assumed more about symbolic sizes than the capture. From the first time on,
        # graphs with symbols are compiled while they are captured, from caches, so that the program guards what the backend assumes.
        self._dropped = 0
        # Whether the call waits where the caches do not have them.
        self.symbols_wait = False

    def forget(self) -> None:
        self._jobs.clear()
        self._new.clear()
        self._dropped, self.symbols_wait = 0, False

    @property
    def are_done(self) -> bool:
        """Returns whether no program waits for a job."""
        return not any([job.outcome is None and job.is_wanted for job in list(self._jobs)])

    def takes(self, gm: CapturedGraph, examples: list) -> bool:
        """Returns whether a graph can be compiled in another thread."""
        if self.symbols_wait and _have_symbols(examples):
            return False
        # Compilers run these operators while they trace, and the state is that of all threads.
        return not any([node.target in SHARED for node in gm._graph.nodes])

    def from_caches(self, gm: CapturedGraph, examples: list, beside_calls: bool) -> Callable | None:
        """Returns the compiled graph if its sizes vary, its backend assumes something about sizes, and its caches have it; None otherwise.

        ``beside_calls``: whether this thread runs beside calls.
        """
        if not self._dropped or not _have_symbols(examples):
            return None
        turns = QUEUE.turns if beside_calls else None
        try:
            return TRACERS.holding(compilation.from_caches, self._backend, gm, self._fakes(examples), self._reports.where, turns)
        except TracersBusy:
            return None

    def _fakes(self, examples: list) -> list:
        # The classes of tensors may answer for attributes that PyTorch reads to make fakes.
        with torch._C.DisableTorchFunction():
            return tracing.fakes_of([plain_example(x) if not is_a(x, FakeTensor) else x for x in examples])

    def job(self, gm: CapturedGraph, examples: list) -> GraphJob:
        """Makes the job to compile a graph, which `begin` queues when the program is complete."""
        job = GraphJob(self._backend, gm, self._fakes(examples), self._reports.name, self._reports.where, weakref.ref(self), QUEUE.turns)
        self._jobs[job] = Assumptions(job.examples)
        self._new = [job]
        return job

    def of_saved(self, gm: CapturedGraph, examples: list, finish: Finish) -> PendingGraph:
        """Returns what a saved program runs as its graph, which is compiled from now on. ``finish``: checks what the backend assumes."""
        job = self.job(gm, examples)
        self._jobs[job] = Assumptions(())
        pending = PendingGraph(gm, job, finish, _refused)
        self.begin()
        return pending

    def begin(self) -> None:
        """Queues the job of the program that has just been written."""
        for job in self._new:
            assumptions = self._jobs.get(job)
            if assumptions is not None and job.is_wanted:
                # In this call, which has captured and is long: the next one is as fast as eager code.
                job.prepare()
                assumptions.begin()
                QUEUE.add(job)
        self._new.clear()

    # -- a call whose program has a job --------------------------------------------------------------------------------
    def settle(self, pending: PendingGraph) -> Callable | None:
        """Returns what a call runs instead of the captured graph; None if it runs that. Raises the backend's error."""
        job = pending.job
        outcome = job.outcome
        if outcome is None:
            QUEUE.add(job)
            return None
        traces = outcome.reason
        if traces:
            outcome = self._compile_now(job, traces)
        if outcome.error is not None:
            return self._refuse(pending, outcome.error)
        compiled = outcome.compiled
        if compiled is None:
            return None
        assumptions = self._jobs.get(job)
        if assumptions is not None and assumptions.are_new:
            self._dropped += 1
            # Its caches do not have it, or will not have what another capture makes of it.
            self.symbols_wait = bool(traces) or self._dropped > MOST_DROPPED
            return self._leave(pending, None)
        self._reports.note_call("takeover", "FL007", f"the compiled graph takes over, {time.monotonic() - job.made_at:.1f} s after its capture")
        return pending.take_over(compiled)

    def _compile_now(self, job: GraphJob, reason: str) -> Outcome:
        """Compiles a graph in the state of the call, which waits; the outcome is empty if other threads hold PyTorch's tracers."""
        self._reports.note_call("waited", "FL008", reason)
        try:
            with torch._C.DisableTorchFunctionSubclass(), compilation.eager_backward():
                compiled = TRACERS.holding(compile_graph, self._backend, job.gm, list(job.examples), job.where)
            outcome = Outcome(compiled=compiled)
        except TracersBusy:
            return Outcome()
        except BackendFailed as e:
            outcome = Outcome(error=e)
        job.end(outcome)
        return outcome

    def _refuse(self, pending: PendingGraph, error: BaseException) -> Callable | None:
        """Does what follows from the backend's error; returns what the call runs."""
        name = self._backend.name
        failed = error if is_a(error, BackendFailed) else BackendFailed(f"{name!r} raised {error_text(error)}", where=pending.job.where)
        try:
            reason = pending.refusal(failed)
        except Uncompiled as e:
            return self._leave(pending, e.limits)
        except Restart:
            return self._leave(pending, None)
        except BackendFailed:
            region = self._region()
            again = BackendFailed(f"{failed.reason} (in the background)", id=failed.id, where=failed.where)
            if region is None or region.runs_as_captured(again):
                return pending.stay_with(pending.captured)
            raise again from failed.__cause__ or error
        self._reports.note_call("eager", "FL435", reason)
        return pending.stay_with(pending.captured)

    def _leave(self, pending: PendingGraph, limits: GraphLimits | None) -> Callable | None:
        """Has the next call captured in another way; this one runs the captured graph."""
        region = self._region()
        if region is None or region.capture_anew(limits):
            pending.stay_with(pending.captured)
        return None


def _have_symbols(examples: Sequence[Any]) -> bool:
    """Returns whether examples have sizes that vary, or vary themselves. Those of a tensor that is not strided may."""
    parts = [(*x.shape, *x.stride(), x.storage_offset()) if is_a(x, FakeTensor) and x.layout is torch.strided else (x,) for x in examples]
    return any([is_a(n, (FakeTensor, torch.SymInt, torch.SymFloat)) for part in parts for n in part])


def _refused(error: BackendFailed) -> str:
    raise error
