"""Compiles the graph of a job, in another process or in a thread of this one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch._functorch.config

from fineline.backends.invoke import call_backend, compile_graph
from fineline.backends.lock import TRACERS
from fineline.backends.registry import Backend
from fineline.background.compile_process import CompileProcess, Ended
from fineline.background.graph_job import GraphJob, Outcome
from fineline.background.graph_state import OtherState
from fineline.background.switch_interval import SWITCHES
from fineline.background.tracing_refusal import TracingBegins, tracing_refused
from fineline.background.turns import Turns
from fineline.errors import BackendFailed

if TYPE_CHECKING:
    from fineline.fx.graph_module import CapturedGraph

# How often, and how long in between, a job waits for the process to be in the state in which the graph begins.
TRIES, PAUSE = 20, 0.05


def compiled(job: GraphJob, process: CompileProcess) -> Outcome:
    """Compiles the graph of a job: in ``process``, whose result this process then loads, or in this thread, unless its compiler would trace it here."""
    job.prepare()
    if job.backend.name == "inductor" and job.backend.builtin:
        try:
            process.compile(job)
        except Ended as e:
            return Outcome(error=BackendFailed(str(e), id="FL305", where=job.where))
    for _ in range(TRIES):
        try:
            return Outcome(compiled=TRACERS.holding_in_background(lambda: _compile_here(job)))
        except OtherState:
            time.sleep(PAUSE)
        except TracingBegins:
            return Outcome(reason="its compiler traces it here, which changes what code in other threads sees")
        except BackendFailed as e:
            return Outcome(error=e)
    return Outcome(reason="the process was never in the state of the graph while no call ran")


def _compile_here(job: GraphJob) -> Callable:
    with SWITCHES.shortened(), job.state.in_this_thread(), tracing_refused(), eager_backward():
        return call_backend(job.backend, job.gm, job.examples, job.where)


def from_caches(backend: Backend, gm: CapturedGraph, examples: list, where: str, turns: Turns | None) -> Callable | None:
    """Compiles a graph while it is captured; None if its compiler would trace it, or fails. ``turns``: those that this thread takes beside calls, if it does."""
    call = compile_graph if turns is None else call_backend
    try:
        with turns.taken() if turns is not None else nullcontext(), SWITCHES.shortened(), tracing_refused(), eager_backward():
            return call(backend, gm, examples, where)
    except (TracingBegins, BackendFailed):
        return None


def eager_backward() -> AbstractContextManager[object]:
    """Has AOTAutograd compile the backward pass together with the forward pass, so that no backward pass waits for that."""
    context: AbstractContextManager[object] = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    return context
