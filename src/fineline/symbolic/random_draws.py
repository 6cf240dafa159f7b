"""The random numbers that a program draws before its graph runs: they are symbols as long as nothing depends on their values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, MappingProxyType
from typing import Any, NamedTuple

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils._sympy.value_ranges import ValueRanges

from fineline.fake.fake_tensors import Path
from fineline.frames.graph_breaks import Restart

# By comparison: the one that is equivalent with exchanged operands.
MIRRORED: Mapping[Any, Callable] = MappingProxyType(
    {operator.lt: operator.gt, operator.gt: operator.lt, operator.le: operator.ge, operator.ge: operator.le}
)


class Draw(NamedTuple):
    """A call of a method that draws, with the generator as first argument, and the instruction that makes the call."""

    fn: Any
    args: tuple
    kwargs: dict[str, Any]
    place: tuple[CodeType, int]


class Draws:
    """The draws of one segment, in order. ``breaking``: instructions whose numbers have to be drawn at graph breaks."""

    def __init__(self, shapes: Any, breaking: set[tuple[CodeType, int]]) -> None:
        self._shapes, self._breaking = shapes, breaking
        self.of: dict[sympy.Symbol, Draw] = {}
        self._ranges: dict[sympy.Symbol, Any] = {}
        # The bounds of floats.
        self._spans: dict[sympy.Symbol, tuple[float, float]] = {}

    def add(self, draw: Draw, example: Any, span: tuple | None) -> Any:
        """Returns a symbol for the result of ``draw``: a number like ``example``, within ``span``, which is known for all ints."""
        shapes, name = self._shapes, f"draw{len(self.of)}"
        if type(example) is float:
            number = shapes.floats.new(example, name)
        else:
            number = shapes.create_unspecified_symint_and_symbol(example, Path(name), DimDynamic.DYNAMIC)
        symbol = number.node._expr
        if type(example) is float and span is not None:
            self._spans[symbol] = span
        elif span is not None:
            shapes.var_to_range[symbol] = ValueRanges(*span)
        self.of[symbol] = draw
        self._ranges[symbol] = shapes.var_to_range[symbol]
        return number

    def always(self, op: Callable, a: Any, b: Any) -> bool | None:
        """Returns the answer of a comparison if it is the same for all numbers that may be drawn; None if not, or if no float is drawn."""
        if op not in MIRRORED:
            return None
        if type(a) is not torch.SymFloat:
            a, b, op = b, a, MIRRORED[op]
        span = self._spans.get(a.node._expr) if type(b) in (int, float) else None
        if span is None:
            return None
        # If a comparison is true for two numbers, it is true for all numbers between them.
        answers = {bool(op(number, b)) for number in span}
        return answers.pop() if len(answers) == 1 else None

    def changed(self) -> list[sympy.Symbol]:
        """Returns the symbols of draws that can no longer have any value."""
        shapes = self._shapes
        return [s for s, span in self._ranges.items() if shapes.simplify(s) != s or shapes.var_to_range[s] != span]

    def depend(self, symbols: Iterable[sympy.Symbol]) -> None:
        """Restarts the capture if any of ``symbols``, on which something depends, is a drawn number: it is then drawn at a graph break."""
        places = {self.of[symbol].place for symbol in symbols if symbol in self.of}
        if places:
            self._breaking |= places
            raise Restart("FL410", "the way of the code depends on a random number", again=True, draws=False)
