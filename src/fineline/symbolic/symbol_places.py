"""The places that symbols come from, and what a capture has assumed of the numbers there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import sympy
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import DimConstraint, DimDynamic
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.singleton_int import SingletonInt

from fineline.errors import Constrained
from fineline.guards.source import Source
from fineline.guards.term import Term
from fineline.kinds import is_a
from fineline.symbolic.random_draws import Draws
from fineline.symbolic.shape_env import Shapes, shapes_to


class Place(NamedTuple):
    """Where a number comes from: a size or stride of a tensor, or a source that holds it."""

    source: Source
    kind: str
    dim: int

    def text(self) -> str:
        return self.source.text() if self.kind == "number" else f"{self.source.text()}.{self.kind}({self.dim})"


class VaryingSize(Protocol):
    """A size that varies, with the arguments that PyTorch's shape environment needs. ``marked``: the user marked the dimension."""

    @property
    def kind(self) -> DimDynamic: ...
    @property
    def constraint(self) -> DimConstraint: ...
    @property
    def marked(self) -> bool: ...


class Varying(Protocol):
    """The sizes and numbers that vary. ``fixed``: the texts of floats that are constants. ``found``: whether there may be any."""

    fixed: set[str]

    @property
    def found(self) -> bool: ...
    def dims(self, src: Source, t: Tensor) -> Mapping[int, VaryingSize]: ...
    def loose(self, src: Source, t: Tensor) -> frozenset[int]: ...
    def strides(self, src: Source, t: Tensor) -> frozenset[int]: ...
    def number(self, src: Source, v: int | float) -> bool: ...


class SymbolPlaces:
    """The places of one segment's symbols: which symbol each holds, and which numbers have symbols."""

    __slots__ = ("_bound", "_shapes", "_varying", "leaves", "numbers")

    def __init__(self, shapes: Shapes, varying: Varying) -> None:
        self._shapes, self._varying = shapes, varying
        # The places from which programs compute the symbols.
        self.leaves: dict[sympy.Symbol, Place] = {}
        # The symbols for numbers, by the registers of the sources that hold these.
        self.numbers: dict[int, Any] = {}
        self._bound: list[tuple[Place, Any]] = []

    @property
    def used(self) -> bool:
        return bool(self._bound)

    def bind(self, place: Place, expr: Any) -> None:
        """Notes that ``place`` holds what the expression ``expr`` stands for."""
        self._bound.append((place, expr))
        if expr.is_Symbol:
            self.leaves.setdefault(expr, place)

    def claims(self, draws: Draws) -> tuple[list[Term], dict[sympy.Symbol, Place]]:
        """Returns the assumptions about the symbols: the terms that must be true, and the places of their symbols."""
        shapes, floats = self._shapes, self._shapes.floats
        draws.depend(draws.changed())
        own = {place: sympy.Symbol(f"leaf{i}", real=True, integer=expr.is_integer) for i, (place, expr) in enumerate(self._bound)}
        claims: list[Any] = []
        for place, expr in self._bound:
            now = shapes.simplify(expr)
            if self.leaves.get(now) != place:
                claims.append(sympy.Eq(own[place], now, evaluate=False))
                self._check_mark(place, expr, now)
        for symbol in (*self.leaves, *[symbol for symbol in floats.exact if symbol.is_integer]):
            claims += self._range(symbol, symbol in self.leaves and self.leaves[symbol].kind == "size")
        for g in shapes.guards:
            expr = shapes.simplify(g.expr)
            if shapes._maybe_evaluate_static(expr, axioms=()) is None and not self._of_ragged(expr):
                claims.append(expr)
        terms = [floats.expanded(claim) for claim in claims] + floats.claims
        for symbol in floats.exact:
            now = shapes.simplify(symbol)
            if now != symbol:
                terms.append(Term("eq", (floats.expanded(symbol), floats.expanded(now))))
        places = {**self.leaves, **{symbol: place for place, symbol in own.items()}}
        return list(dict.fromkeys(terms)), places

    def _of_ragged(self, expr: sympy.Expr) -> bool:
        """Returns whether only sizes of ragged dimensions are compared, with each other or with numbers.

        No lengths change the answer: it follows from which tensors hold them, and of these their own guards tell.
        """
        values = self._shapes.backed_var_to_val
        return bool(expr.free_symbols) and all([is_a(values.get(symbol), SingletonInt) for symbol in expr.free_symbols])

    def _range(self, symbol: sympy.Symbol, is_size: bool) -> list[Any]:
        span = self._shapes.var_to_range.get(symbol)
        claims = []
        if span is not None and shapes_to(symbol, self._shapes):
            if span.lower not in (-int_oo, sympy.S.NegativeInfinity) and (not is_size or span.lower > 0):
                claims.append(sympy.Ge(symbol, span.lower, evaluate=False))
            if span.upper not in (int_oo, sympy.S.Infinity) and (not is_size or span.upper < 2**62):
                claims.append(sympy.Le(symbol, span.upper, evaluate=False))
        return claims

    def _check_mark(self, place: Place, expr: Any, now: Any) -> None:
        """Raises `Constrained` if a size that is marked dynamic has become a constant."""
        if place.kind != "size" or not now.is_number:
            return
        dims = self._varying.dims(place.source, place.source.value)
        if place.dim in dims and dims[place.dim].marked:
            stack = self._shapes.stacks.get(expr, ())
            where = "{}:{}".format(*stack[-1]) if stack else None
            how = f"{now} in this call: sizes 0 and 1 are captured by themselves" if expr.is_number else f"always {now}"
            raise Constrained(f"{place.text()} was marked dynamic, and is {how}", where=where, stack=stack)
