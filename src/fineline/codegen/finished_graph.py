"""The wrappers that a program needs around the callable for its graph, whichever that is: the captured graph, or a compiled one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fineline.codegen.ambient_state import in_override_state
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.output_fixups import Remake, as_captured, remaking
from fineline.fx.overlap_check import apart


@dataclass
class Finish:
    """The wrappers of one program.

    ``writes``: the graph writes where several inputs may lie; ``wrapped``: some inputs are of wrapper subclasses; ``remade``: the outputs to
    change; ``several``: those that share memory; ``state``: PyTorch's state in which the graph runs, if that is not the program's.
    """

    writes: bool = False
    wrapped: bool = False
    remade: Sequence[tuple[int, Remake]] = ()
    several: Sequence[Sequence[int]] = ()
    state: str = ""

    def __call__(self, compiled: Callable, gm: CapturedGraph) -> Callable:
        """Returns what the program calls."""
        own = as_captured(compiled)
        if self.writes and not own:
            compiled = apart(compiled, gm, self.wrapped)
        several = () if own else self.several
        if self.remade or several:
            compiled = remaking(compiled, self.remade, several)
        return functools.partial(in_override_state, self.state, compiled) if self.state else compiled
