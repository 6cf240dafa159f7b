"""What a program runs in place of a graph that is being compiled: the graph as it was captured, until the compiled one takes over."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Protocol

from fineline.backends.eager import opened
from fineline.background.graph_job import GraphJob
from fineline.errors import BackendFailed
from fineline.fx.graph_module import CapturedGraph


class Finish(Protocol):
    """Wraps a compiled graph for a program."""

    def __call__(self, compiled: Callable, gm: CapturedGraph) -> Callable: ...


class Refusal(Protocol):
    """Returns the reason why a graph runs as it was captured, or raises what follows from the backend's error."""

    def __call__(self, error: BackendFailed, /) -> str: ...


class PendingGraph:
    """The graph of a program while its job is not done. The program calls it as it would call the compiled graph."""

    def __init__(self, gm: CapturedGraph, job: GraphJob, finish: Finish, refusal: Refusal) -> None:
        self.gm, self.job = gm, job
        self.refusal: Refusal = refusal
        self._finish = finish
        # The graph as it was captured, and what takes over from it.
        self._captured: Callable | None = None
        self.final: Callable | None = None
        # The functions of programs that call this.
        self._runs: list[weakref.ref[FunctionType]] = []
        job.use(self)

    def __call__(self, *inputs: Any) -> Any:
        with self.job.turns.call():
            return self._now()(*inputs)

    def _now(self) -> Callable:
        """Returns what the call runs: the compiled graph if the job is done."""
        if self.final is not None:
            return self.final
        owner = self.job.owner()
        chosen = owner.settle(self) if owner is not None else None
        return self.captured if chosen is None else chosen

    @property
    def captured(self) -> Callable:
        """Returns what runs the graph operator by operator: a function of its own, whatever else happens to the graph."""
        captured = self._captured
        if captured is None:
            with self.job.writing:
                captured = self._finish(_as_captured(self.gm), self.gm)
                # Another thread may have made the compiled graph take over, and may do so now.
                self._captured = captured if self.final is None else None
        return captured

    def prepare(self) -> None:
        """Makes what runs the graph as it was captured."""
        _ = self.captured

    def use(self, run: FunctionType) -> None:
        """Notes the function of a program that calls this as its global ``graph``."""
        self._runs.append(weakref.ref(run))
        if self.final is not None:
            run.__globals__["graph"] = self.final

    def take_over(self, compiled: Callable) -> Callable:
        """Makes the programs call the compiled graph from now on, as if there had never been another; returns it as they call it."""
        return self.stay_with(self._finish(compiled, self.gm))

    def stay_with(self, final: Callable) -> Callable:
        """Makes the programs call ``final`` from now on."""
        self.final = final
        for ref in self._runs:
            run = ref()
            if run is not None:
                run.__globals__["graph"] = final
        self._runs.clear()
        # They keep symbols and fakes of the capture alive.
        self.refusal, self._captured = _settled, None
        return final


def _settled(error: BackendFailed) -> str:
    return "its job is done"


def _as_captured(gm: CapturedGraph) -> Callable:
    gm.write_code()
    plain = opened(gm)
    # The class gets other code when its nodes are described.
    return MethodType(type(plain).forward, plain)
