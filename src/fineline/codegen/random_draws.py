"""The lines of a program that draw its random numbers, and what puts the generators back if the graph behind them fails."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from fineline.codegen.program_text import ProgramText
from fineline.fx.infallible import cannot_fail
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.tracing.segment_trace import SegmentTrace


def draw_lines(r: ProgramText) -> list[str]:
    """Returns one for each number, in the order of the captured code."""
    if not r.draws:
        return []
    draws = r.trace.symbols.draws.of
    return [f"{name} = {r.constant(draws[s].fn, 'draws')}({r.call(draws[s].args, draws[s].kwargs)})" for s, name in r.draws.items()]


def generators(r: ProgramText) -> str:
    """Returns those that are drawn from, each once."""
    return r.items(IdentitySet([draw.args[0] for draw in r.trace.symbols.draws.of.values()]))


def does_more(trace: SegmentTrace) -> bool:
    """Returns whether the graph must not run twice. A hook that raises means it."""
    return bool(trace.state.start.saved_tensor_hooks) or not trace.recorder.harmless(states=True)


def may_fail(trace: SegmentTrace) -> bool:
    """Returns whether the graph may raise, or may be found not to hold, where the guards hold."""
    granted = trace.failures.are_granted() or bool(trace.state.start.saved_tensor_hooks)
    return granted or not cannot_fail(trace.recorder.graph, trace.recorder.kernels.untyped)


class Generators:
    """The states of some generators."""

    __slots__ = ("states",)

    def __init__(self, *drawn: Any) -> None:
        self.states = [(g, _state(g)) for g in drawn]

    def put_back(self) -> None:
        for g, state in self.states:
            if is_a(g, random.Random):
                g.setstate(state)
            elif is_a(g, np.random.Generator):
                g.bit_generator.state = state
            else:
                g.set_state(state)


def _state(g: Any) -> Any:
    if is_a(g, random.Random):
        return g.getstate()
    return g.bit_generator.state if is_a(g, np.random.Generator) else g.get_state(legacy=False)
