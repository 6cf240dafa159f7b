"""The lines of a program that draw its random numbers, and the reset of the generators if the graph after them fails."""

from __future__ import annotations

import random
from typing import Any

from fineline.codegen.program_text import ProgramText
from fineline.fx.infallible import cannot_fail
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.tracing.segment_trace import SegmentTrace


def draw_lines(r: ProgramText) -> list[str]:
    """Returns a line for each random number, in the order of the captured code."""
    if not r.draws:
        return []
    draws = r.trace.symbols.draws.of
    return [f"{name} = {r.constant(draws[s].fn, 'draws')}({r.call(draws[s].args, draws[s].kwargs)})" for s, name in r.draws.items()]


def generators(r: ProgramText) -> str:
    """Returns the expressions of the generators that the program draws from, each once."""
    return r.items(IdentitySet([draw.args[0] for draw in r.trace.symbols.draws.of.values()]))


def does_more(trace: SegmentTrace) -> bool:
    """Returns whether the graph has effects, so that it must not run twice. A saved-tensor hook counts, because it may raise on purpose."""
    return bool(trace.state.start.saved_tensor_hooks) or not trace.recorder.harmless(states=True)


def may_fail(trace: SegmentTrace) -> bool:
    """Returns whether the graph may raise, or fail one of its checks, although the guards hold."""
    granted = trace.failures.are_granted() or bool(trace.state.start.saved_tensor_hooks)
    return granted or not cannot_fail(trace.recorder.graph, trace.recorder.kernels.untyped)


class Generators:
    """The saved states of random generators."""

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
