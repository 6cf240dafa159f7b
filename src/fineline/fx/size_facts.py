"""The facts about symbolic sizes that a compiled graph may rely on, in a form that two segments can compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.guards.facts import AmbientFacts
from fineline.kinds import is_a

TRUE = sympy.true
_SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})


class Sizes:
    """The sizes of a graph's inputs and the facts about them, in symbols that are numbered as they appear: each segment has its own.

    ``assumed``: the facts that the backend added when it compiled; a segment that uses its program has to guard them too.
    """

    __slots__ = ("_numbered", "_seen", "_shapes", "assumed", "forms", "known")

    def __init__(self, shapes: Any, numbered: dict[sympy.Symbol, sympy.Symbol], forms: tuple) -> None:
        self._shapes, self._numbered, self.forms = shapes, numbered, forms
        self._seen = len(shapes.guards)
        self.known = (tuple([shapes.var_to_range.get(symbol) for symbol in numbered]), self._claims(0))
        self.assumed: frozenset | None = frozenset()

    def _claims(self, start: int) -> frozenset | None:
        """Returns the conditions on these sizes in the guards from ``start`` on; None if one depends on other sizes too."""
        out = set()
        for guard in self._shapes.guards[start:]:
            claim = self._shapes.simplify(guard.expr)
            symbols = claim.free_symbols
            if symbols and not symbols.isdisjoint(self._numbered) and claim != TRUE:
                if not symbols <= self._numbered.keys():
                    return None
                out.add(claim.xreplace(self._numbered))
        return frozenset(out)

    def compiled(self) -> None:
        """Notes the assumptions of the backend, which has compiled the graph, and releases the segment's symbols."""
        changed = [symbol for symbol in self._numbered if self._shapes.simplify(symbol) != symbol]
        self.assumed = None if changed or self.known[1] is None else self._claims(self._seen)
        self._shapes = None

    def take_over(self, other: Sizes) -> bool:
        """Returns whether the program that was compiled for ``other`` fits here; if so, guards its assumptions."""
        if (self.forms, self.known) != (other.forms, other.known) or other.assumed is None:
            return False
        own = {number: symbol for symbol, number in self._numbered.items()}
        hints = {number: self._shapes.backed_var_to_val[symbol] for number, symbol in own.items()}
        if not all([claim.xreplace(hints) == TRUE for claim in other.assumed]):
            return False
        for claim in other.assumed:
            self._shapes.evaluate_expr(claim.xreplace(own))
        return True


def has_symbols(example: Any) -> bool:
    """Returns whether an input of a graph is a number that varies, or a tensor with a size that does."""
    if not is_a(example, Tensor):
        return type(example) in _SYMBOLIC
    if example.layout is not torch.strided:
        return True
    return any([type(n) in _SYMBOLIC for n in (*example.shape, *example.stride(), example.storage_offset())])


def sizes_of(shapes: ShapeEnv, examples: Sequence[Any]) -> Sizes | None:
    """Returns the sizes of a graph's inputs; None if a program for them cannot be used for others."""
    if any([is_a(x, Tensor) and x.layout is not torch.strided for x in examples]):
        return None
    numbers = [n for x in examples for n in ((*x.shape, *x.stride(), x.storage_offset()) if is_a(x, Tensor) else (x,))]
    exprs = [shapes.simplify(n.node.expr) if type(n) is torch.SymInt else n for n in numbers]
    symbols = dict.fromkeys([e for e in exprs if is_a(e, sympy.Symbol)])
    free = {symbol for e in exprs if is_a(e, sympy.Expr) for symbol in e.free_symbols}
    if any([type(n) not in (int, torch.SymInt) for n in numbers]) or free != symbols.keys() or not free <= shapes.backed_var_to_val.keys():
        return None
    numbered = {symbol: sympy.Symbol(f"n{i}", integer=True) for i, symbol in enumerate(symbols)}
    return Sizes(shapes, numbered, tuple([e.xreplace(numbered) if is_a(e, sympy.Expr) else e for e in exprs]))


class Kinds(NamedTuple):
    """The facts about its inputs and the state around it that a compiled graph may rely on."""

    ambient: AmbientFacts
    inputs: tuple
    # Which inputs share memory, if that matters.
    sharing: tuple[int, ...] | None
    sizes: Sizes | None

    def take_over(self, other: Kinds) -> bool:
        """Returns whether a program for inputs of the ``other`` kinds fits these; if so, guards its assumptions."""
        if self[:3] != other[:3] or self.sizes is None or other.sizes is None:
            return self == other
        return self.sizes.take_over(other.sizes)
