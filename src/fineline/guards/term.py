"""Reduces the sympy expressions of PyTorch's symbolic shapes to a few operators with the meaning that they have in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

import sympy
from sympy.functions.elementary.integers import ceiling, floor
from sympy.logic.boolalg import BooleanFalse, BooleanTrue
from torch.utils._sympy import functions as fn
from torch.utils._sympy.numbers import int_oo

# The largest natural power of a float that becomes a product, as programs compute it.
LONGEST_PRODUCT = 8


@final
class Term(NamedTuple):
    """An operator and its operands.

    A leaf has one operand that is not a term: ``symbol``, ``int``, ``float`` and ``bool``. The operators are those of the stack
    machine of relations, where ``add``, ``mul``, ``min``, ``max``, ``and`` and ``or`` may have more than two operands, and
    ``bit_and``, ``bit_or``, ``bit_xor``, ``round_to``, and functions of the math module under their own names.
    """

    op: str
    args: tuple


class Unsupported(ValueError):
    """An expression cannot be written in the requested form."""


PLAIN: dict[type, str] = {
    fn.FloorDiv: "floordiv", fn.CleanDiv: "floordiv", fn.Mod: "mod", fn.PythonMod: "mod", sympy.Mod: "mod", fn.IntTrueDiv: "truediv",
    fn.PowByNatural: "pow", fn.Max: "max", fn.Min: "min", sympy.Max: "max", sympy.Min: "min", sympy.Abs: "abs", fn.ToFloat: "to_float",
    fn.TruncToInt: "trunc", fn.FloorToInt: "floor", fn.CeilToInt: "ceil", fn.RoundToInt: "round", fn.RoundDecimal: "round_to",
    fn.Where: "select", sympy.ITE: "select", sympy.Not: "not", sympy.And: "and", sympy.Or: "or", fn.BitwiseFn_bitwise_and: "bit_and",
    fn.BitwiseFn_bitwise_or: "bit_or", fn.BitwiseFn_bitwise_xor: "bit_xor",
}  # fmt: skip
OF_FLOATS: dict[type, str] = {fn.FloatTrueDiv: "truediv", fn.FloatPow: "pow"}
RELATIONS: dict[type, str] = {
    sympy.Eq: "eq", sympy.Ne: "ne", sympy.Lt: "lt", sympy.Le: "le", sympy.Gt: "gt", sympy.Ge: "ge",
}  # fmt: skip


def term_of(expr: sympy.Basic | Term) -> Term:
    """Returns the term of a sympy expression ``expr``; a term is returned as it is."""
    if type(expr) is Term:
        return expr
    kind = type(expr)
    if kind in PLAIN:
        return Term(PLAIN[kind], tuple([term_of(arg) for arg in expr.args]))
    if kind in OF_FLOATS:
        return Term(OF_FLOATS[kind], tuple([_as_float(arg) for arg in expr.args]))
    if kind in RELATIONS:
        return Term(RELATIONS[kind], tuple([term_of(side) for side in _whole_sides(*expr.args)]))
    if kind in SPECIAL:
        return SPECIAL[kind](expr)
    if expr.is_Symbol:
        return Term("symbol", (expr,))
    if expr.is_Number:
        return _number(expr)
    name = getattr(kind, "_torch_handler_name", None)  # of the functions that PyTorch keeps sympy from reasoning about
    if name is not None and hasattr(math, name):
        return Term(name, tuple([term_of(arg) for arg in expr.args]))
    raise Unsupported(f"{kind.__name__} has no meaning in Python: {expr}")


def _number(expr: sympy.Basic) -> Term:
    if expr.is_Integer:
        return Term("int", (int(expr),))
    if expr in (sympy.oo, int_oo):
        return Term("float", (math.inf,))
    if expr in (-sympy.oo, -int_oo):
        return Term("float", (-math.inf,))
    if expr.is_Float or expr.is_Rational:
        return Term("float", (float(expr),))
    raise Unsupported(f"not a number that Python has: {expr}")


def _as_float(expr: sympy.Basic) -> Term:
    term = term_of(expr)
    if term.op == "int":  # sympy may have made an integer of a float
        return Term("float", (float(term.args[0]),))
    return Term("to_float", (term,)) if expr.is_integer else term


def _has_fraction(expr: sympy.Basic) -> bool:
    """Returns whether there is division in a sum of products, which sympy writes as a rational factor or a negative power."""
    factors = [factor for summand in sympy.Add.make_args(expr) for factor in sympy.Mul.make_args(summand)]
    return any((f.is_Rational and not f.is_Integer) or (f.is_Pow and f.exp.is_negative) for f in factors)


def _divided(expr: sympy.Basic) -> Term | None:
    """Returns a sum or product of rationals that contains divisions as one division at its end; None for another expression."""
    if not (expr.is_rational and _has_fraction(expr)):
        return None
    numerator, denominator = expr.as_numer_denom()
    return Term("floordiv" if expr.is_integer else "truediv", (term_of(numerator), term_of(denominator)))


def _whole_sides(left: sympy.Basic, right: sympy.Basic) -> tuple[sympy.Basic, sympy.Basic]:
    """Returns both sides of a comparison, multiplied by their denominators, so that it stays a comparison of integers."""
    if not (getattr(left, "is_rational", False) and getattr(right, "is_rational", False)):
        return left, right
    if not (_has_fraction(left) or _has_fraction(right)):
        return left, right
    (over_left, under_left), (over_right, under_right) = left.as_numer_denom(), right.as_numer_denom()
    if not (under_left.is_Integer and under_right.is_Integer):
        return left, right
    common = sympy.ilcm(under_left, under_right)
    return over_left * (common // under_left), over_right * (common // under_right)


def _sum(expr: sympy.Basic) -> Term:
    divided = _divided(expr)
    if divided is not None:
        return divided
    if not expr.is_integer:  # the order of float additions matters
        return Term("add", tuple([term_of(arg) for arg in expr.args]))
    signed = [(arg.as_coeff_Mul()[0].is_negative, arg) for arg in sorted(expr.args, key=lambda arg: bool(arg.is_Number))]
    plus = [term_of(arg) for negative, arg in signed if not negative]
    minus = [arg for negative, arg in signed if negative]
    if not plus:
        plus.append(term_of(minus.pop(0)))
    total = plus[0] if len(plus) == 1 else Term("add", tuple(plus))
    for arg in minus:
        total = Term("sub", (total, term_of(-arg)))
    return total


def _product(expr: sympy.Basic) -> Term:
    divided = _divided(expr)
    if divided is not None:
        return divided
    if expr.args[0] is sympy.S.NegativeOne:
        return Term("neg", (term_of(sympy.Mul(*expr.args[1:], evaluate=False) if len(expr.args) > 2 else expr.args[1]),))
    return Term("mul", tuple([term_of(arg) for arg in expr.args]))


def _power(expr: sympy.Basic) -> Term:
    base, exponent = expr.args
    if exponent.is_number and exponent.is_negative:
        return Term("truediv", (Term("int", (1,)), term_of(sympy.Pow(base, -exponent))))
    if exponent is sympy.S.Half:
        return Term("sqrt", (term_of(base),))
    if base.is_integer and exponent.is_integer and exponent.is_nonnegative:
        return Term("pow", (term_of(base), term_of(exponent)))
    if exponent.is_Integer and exponent <= LONGEST_PRODUCT:
        return Term("mul", (term_of(base),) * int(exponent))
    if exponent.is_Number:
        return Term("pow", (_as_float(base), Term("float", (float(exponent),))))
    raise Unsupported(f"a power with any exponent: {expr}")


def _floor(expr: sympy.Basic) -> Term:
    (number,) = expr.args
    if number.is_rational:
        numerator, denominator = number.as_numer_denom()
        return Term("floordiv", (term_of(numerator), term_of(denominator)))
    return Term("floor", (term_of(number),))


def _ceiling(expr: sympy.Basic) -> Term:
    (number,) = expr.args
    if number.is_rational:
        numerator, denominator = number.as_numer_denom()
        return Term("neg", (Term("floordiv", (term_of(-numerator), term_of(denominator))),))
    return Term("ceil", (term_of(number),))


def _modular_index(expr: sympy.Basic) -> Term:
    base, divisor, modulus = [term_of(arg) for arg in expr.args]
    return Term("mod", (base if divisor == Term("int", (1,)) else Term("floordiv", (base, divisor)), modulus))


def _piecewise(expr: sympy.Basic) -> Term:
    *cases, (value, condition) = expr.args
    if condition != sympy.true:
        raise Unsupported(f"no value where no condition holds: {expr}")
    chosen = term_of(value)
    for value, condition in reversed(cases):
        chosen = Term("select", (term_of(condition), term_of(value), chosen))
    return chosen


SPECIAL: dict[type, Callable[[sympy.Basic], Term]] = {
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Pow: _power,
    floor: _floor,
    ceiling: _ceiling,
    fn.ModularIndexing: _modular_index,
    sympy.Piecewise: _piecewise,
    fn.Identity: lambda expr: term_of(expr.args[0]),
    fn.TruncToFloat: lambda expr: Term("to_float", (Term("trunc", (term_of(expr.args[0]),)),)),
    BooleanTrue: lambda expr: Term("bool", (True,)),
    BooleanFalse: lambda expr: Term("bool", (False,)),
}
