"""The shape environment of a segment, and the user's lines at which it has learned something of a symbol."""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Any, Protocol

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.frames.frame import Frame
from fineline.frames.stub_frames import is_own, user_stack
from fineline.stacks import StackPlace
from fineline.symbolic.floats import Floats
from fineline.symbolic.random_draws import Draws


class RunningFrames(Protocol):
    """An interpreter, which knows where the code is."""

    @property
    def frame(self) -> Frame | None: ...


class Shapes(ShapeEnv):
    """PyTorch's shape environment, which notes the user's line at which each thing was assumed."""

    def __init__(self, interp: RunningFrames, breaking_draws: set[tuple[CodeType, int]]) -> None:
        super().__init__()
        # Weakly: closures of PyTorch's fake mode are cycles through this object, and must not keep the user's model.
        self._interp = weakref.ref(interp)
        self.floats = Floats(self)
        self.draws = Draws(self, breaking_draws)
        # Symbol -> the frames down to the line that last guarded or specialized it.
        self.stacks: dict[sympy.Symbol, tuple[StackPlace, ...]] = {}

    @property
    def interp(self) -> RunningFrames | None:
        """Returns the interpreter that captures, while it does."""
        return self._interp()

    def _note(self, expr: Any) -> None:
        interp = self.interp
        f = interp.frame if interp is not None else None
        while f is not None and f.back is not None and is_own(f.info.code):
            f = f.back
        if f is not None:
            stack = user_stack(f)
            for symbol in expr.free_symbols:
                self.stacks[symbol] = stack

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        self._note(a)
        super()._set_replacement(a, tgt, msg)

    def _log_guard(self, prefix: str, g: Any, forcing_spec: bool) -> None:
        self._note(g)
        super()._log_guard(prefix, g, forcing_spec)


def shapes_to(symbol: sympy.Symbol, shapes: ShapeEnv) -> bool:
    """Returns whether a symbol still stands for itself."""
    return bool(shapes.simplify(symbol) == symbol)
