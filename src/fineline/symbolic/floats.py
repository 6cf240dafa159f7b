"""Symbolic floats, and the ints made from them: the exact computation of each, in Python's order of operations.

PyTorch's expressions are algebra, in which ``lr * 0.5 * 0.5`` is ``0.25 * lr``; with floats that is another number. Therefore each float
has a symbol of its own there, and here the term that computes it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic

from fineline.fake.fake_tensors import Path
from fineline.guards.relation import has_code, symbols_of
from fineline.guards.term import Term, term_of

# The longest term of a float that remains symbolic.
LONGEST = 64
MOST_WHOLE = 2**62
OPERATORS: Mapping[Any, str] = MappingProxyType(
    {
        float: "to_float",
        **{getattr(operator, name): name for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg")},
        **{getattr(operator, name): name for name in ("lt", "le", "eq", "ne", "gt", "ge")},
        abs: "abs",
        **{getattr(math, name): name for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "tanh")},
    }
)
# Functions whose zeros are positive; and functions whose operands decide the sign of a zero.
POSITIVE_ZERO = frozenset({float, abs, math.exp, math.log, math.log2, math.log10})
SIGNED = frozenset([getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")])
# Functions that make an int from a float: the name in terms, and the form for PyTorch's expressions.
WHOLE: Mapping[Any, tuple[str, Callable]] = MappingProxyType(
    {int: ("trunc", torch.sym_int), math.trunc: ("trunc", torch.sym_int), math.floor: ("floor", math.floor),
     math.ceil: ("ceil", math.ceil), round: ("round", round)}
)  # fmt: skip


class Exact(NamedTuple):
    """The computation of a float, or of an int made from one. ``plain``: PyTorch's own expression, if it contains only sizes and whole numbers."""

    term: Term
    size: int
    plain: Any = None


class FloatResult(NamedTuple):
    """The float result of an operator, the term that computes it, and the size of the term.

    ``claims``: for a constant, the terms that must be true for the same result. None: the float can be a symbol.
    """

    value: float
    term: Term
    size: int
    claims: tuple[Term, ...] | None = None


class Floats:
    """The symbolic floats of one segment, and the assumptions about them."""

    def __init__(self, shapes: Any) -> None:
        self.shapes = shapes
        # The computations, by symbol of a float or of an int made from one.
        self.exact: dict[sympy.Symbol, Exact] = {}
        self.claims: list[Term] = []

    def new(self, value: float, path: str, exact: Exact | None = None) -> torch.SymFloat:
        source = Path(path)
        symbol = self.shapes.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        made: Any = self.shapes.create_symfloatnode(symbol, hint=value, source=source)
        if exact is not None:
            self.exact[symbol] = exact
        return made

    def calculate(self, fn: Callable, values: tuple) -> Any:
        """Returns the float result of ``fn``: a symbol, or a guarded constant; None if it has to be computed from the values themselves."""
        found = self.result(fn, values)
        if found is None:
            return None
        if found.claims is not None:
            for claim in found.claims:
                self.claim(claim, True)
            return found.value
        parts, plain = [self.exactly(v) for v in values], None
        if fn in PLAIN and all([part.plain is not None for part in parts]):
            plain = PLAIN[fn](*[part.plain for part in parts])
        return self.new(found.value, f"float{len(self.exact)}", Exact(found.term, found.size, plain))

    def result(self, fn: Callable, values: tuple) -> FloatResult | None:
        """Returns the float result of ``fn`` with its term; None if the result is not a float, or the term is too long."""
        hints = [hint(v) for v in values]
        if fn not in OPERATORS or None in hints:
            return None
        try:
            value = fn(*hints)
        except (ArithmeticError, ValueError):
            return None
        parts = [self.exactly(v) for v in values]
        term, size = Term(OPERATORS[fn], tuple([part.term for part in parts])), 1 + sum([part.size for part in parts])
        if type(value) is not float or size > LONGEST:
            return None
        if math.isfinite(value) and value != 0:
            return FloatResult(value, term, size)
        # These values cannot be symbols. Guards compare them with ``==``, for which both zeros are equal.
        signs = self._signs(fn, values) if value == 0 else []
        if signs is None or not has_code(self._expand(term)):
            return None
        same = Term("eq", (term, Term("float", (value,)))) if value == value else Term("ne", (term, term))
        return FloatResult(value, term, size, (same, *signs))

    def _signs(self, fn: Callable, values: tuple) -> list[Term] | None:
        """Returns the terms that must be true for a zero result of ``fn`` to keep its sign; None if no terms ensure that."""
        if fn in POSITIVE_ZERO:
            return []
        deciding = values[1:] if fn is operator.mod else values[:1] if fn is operator.pow else values
        symbols = [v for v in deciding if type(v) in (torch.SymInt, torch.SymFloat)]
        if fn not in SIGNED or any([hint(v) == 0 for v in symbols]) or (fn is operator.pow and math.copysign(1.0, hint(values[0])) < 0):
            return None
        zero = Term("int", (0,))
        if fn in (operator.add, operator.sub):
            # A number and its opposite add up to a positive zero, two zeros possibly to a negative one.
            return [Term("ne", (self.exactly(symbols[0]).term, zero))]
        return [Term("gt" if hint(v) > 0 else "lt", (self.exactly(v).term, zero)) for v in symbols]

    def whole(self, fn: Callable, v: torch.SymFloat) -> Any:
        """Returns the int that ``fn`` makes from a float: PyTorch's expression if only sizes decide it, otherwise a symbol of its own."""
        value, exact = fn(hint(v)), self.exactly(v)
        name, symbolic = WHOLE[fn]
        term = Term(name, (exact.term,))
        if exact.plain is not None:
            made = symbolic(exact.plain)
            if hint(made) == value:
                other = term_of(made.node.expr) if type(made) is torch.SymInt else Term("int", (made,))
                if other != term:
                    # The two are equal in algebra; with floats they may differ for some sizes.
                    self.claim(Term("eq", (term, other)), True)
                return made
        if exact.size >= LONGEST or not has_code(self._expand(term)) or abs(value) > MOST_WHOLE:
            self.claim(Term("eq", (term, Term("int", (value,)))), True)
            return value
        # Excludes floats whose int is too large for the stack machine, or that have none in Python.
        self.claim(Term("le", (Term("abs", (exact.term,)), Term("float", (float(MOST_WHOLE),)))), True)
        source = Path(f"{name}{len(self.exact)}")
        symbol = self.shapes.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        self.exact[symbol] = Exact(term, exact.size + 1)
        return self.shapes.create_symintnode(symbol, hint=value, source=source)

    def exactly(self, v: Any) -> Exact:
        if type(v) is not torch.SymFloat:
            return Exact(term_of(v.node.expr) if type(v) is torch.SymInt else Term(type(v).__name__, (v,)), 1, v)
        expr = v.node._expr
        return self.exact.get(expr) or Exact(Term("symbol", (expr,)), 1)

    def expanded(self, expr: Any, whole: bool = True) -> Term:
        """Returns the term of a PyTorch expression, with the computation of each float in it. ``whole``: also of each int made from one."""
        return self._expand(term_of(expr), whole)

    def _expand(self, term: Term, whole: bool = True) -> Term:
        if term.op == "symbol":
            found = self.exact.get(term.args[0])
            return term if found is None or (term.args[0].is_integer and not whole) else self._expand(found.term, whole)
        return Term(term.op, tuple([self._expand(arg, whole) if type(arg) is Term else arg for arg in term.args]))

    def compared(self, op: Callable, a: Any, b: Any) -> bool:
        always: bool | None = self.shapes.draws.always(op, a, b)
        if always is not None:
            return always
        answer = bool(op(hint(a), hint(b)))
        self.claim(Term(OPERATORS[op], (self.exactly(a).term, self.exactly(b).term)), answer)
        return answer

    def settled(self, v: torch.SymFloat) -> float:
        value: float = hint(v)
        self.claim(Term("eq", (self.exactly(v).term, Term("float", (value,)))), True)
        return value

    def claim(self, term: Term, answer: bool) -> None:
        """Guards that ``term`` is true, or that it is false."""
        term = self._expand(term)
        self.shapes.draws.depend(symbols_of(term))
        if has_code(term):
            self.claims.append(term if answer else Term("not", (term,)))
            return
        for symbol in symbols_of(term):
            value = self.shapes.backed_var_to_val[symbol]
            number = Term("int", (int(value),)) if symbol.is_integer else Term("float", (float(value),))
            self.claims.append(Term("eq", (Term("symbol", (symbol,)), number)))


# Functions that PyTorch's expressions have too.
PLAIN: Mapping[Any, Callable] = MappingProxyType(
    {float: torch.sym_float, math.sqrt: torch.sym_sqrt}
    | {fn: fn for fn in (abs, *[getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "neg")])}
)


def hint(v: Any) -> Any:
    """Returns the value of a number in this call; None if it is not known yet."""
    return v.node.hint if type(v) in (torch.SymInt, torch.SymFloat) else None if type(v) is torch.SymBool else v
