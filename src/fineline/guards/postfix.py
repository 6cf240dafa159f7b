"""The stack machine of ``relation`` guards: it computes one number from others, and cannot run user code.

A program is a tuple of ``(op, arg)``: ``("leaf", i)`` and ``("const", number)`` push a number, and each other operator, whose ``arg`` is
None, replaces its operands by its result. Integers have 64 bits and floats are doubles; both behave as in Python. An operation without
a result (an overflow, a division by zero, a complex power) yields BAD. A BAD operand makes every result BAD, except those of ``and``,
``or`` and ``select`` that the other operands decide, in any order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeGuard, TypeVar

from fineline.kinds import is_a

Number = int | float
# Of a leaf, its index; of a constant, the number; of other operators None.
ArgT = TypeVar("ArgT")
Code = tuple[tuple[str, ArgT], ...]

# The most leaves, and the most numbers on the stack: the native interpreter's room.
MOST = 64
LEAST_INTEGER, MOST_INTEGER = -(2**63), 2**63 - 1
BAD = None


def _power(base: Number, exponent: Number) -> Number:
    if type(base) is float or type(exponent) is float:
        return float(base) ** float(exponent)
    # Without the bound on the exponent, a huge number would be computed only to be rejected.
    if exponent < 0 or (exponent > 63 and abs(base) > 1):
        raise ValueError("no such integer")
    return base**exponent


UNARY: dict[str, Callable] = {
    "neg": operator.neg,
    "abs": abs,
    "not": operator.not_,
    "to_float": float,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    **{name: getattr(math, name) for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "tanh")},
}
BINARY: dict[str, Callable] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge")},
    "pow": _power,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
    "min": min,
    "max": max,
}
OPERANDS = dict.fromkeys(UNARY, 1) | dict.fromkeys(BINARY, 2) | {"and": 2, "or": 2, "select": 3}


def run(code: Code, leaves: Sequence[Number]) -> Number | None:
    """Returns the result of a program for its leaves; BAD if it has none."""
    stack: list[Number | None] = []
    for op, arg in code:
        if op == "leaf":
            stack.append(leaves[arg])
        elif op == "const":
            stack.append(arg)
        else:
            start = len(stack) - OPERANDS[op]
            stack[start:] = [_apply(op, stack[start:])]
    return stack[0]


def _apply(op: str, operands: list[Number | None]) -> Number | None:
    if op == "select":
        chosen, yes, no = operands
        return BAD if chosen is BAD else yes if chosen else no
    if op in ("and", "or"):
        decisive = op == "or"
        if any(value is not BAD and bool(value) is decisive for value in operands):
            return decisive
        return BAD if BAD in operands else not decisive
    if BAD in operands:
        return BAD
    try:
        result = UNARY[op](*operands) if op in UNARY else BINARY[op](*operands)
    except (ArithmeticError, TypeError, ValueError):  # for example a bit operator on a float
        return BAD
    return result if type(result) is float or is_integer(result) else BAD


def is_integer(value: object) -> TypeGuard[int]:
    """Returns whether the stack machine can represent an integer; a bool is one, as in Python."""
    return (type(value) is int or type(value) is bool) and LEAST_INTEGER <= value <= MOST_INTEGER


def check_code(code: Iterable[tuple[str, object]], n_leaves: int) -> None:
    """Raises ValueError for a program that does not end with one number, or needs too much room."""
    depth = 0
    for op, arg in code:
        if op == "leaf":
            fits = is_a(arg, int) and 0 <= arg < n_leaves
        elif op == "const":
            fits = type(arg) is float or is_integer(arg)
        else:
            fits = op in OPERANDS and depth >= OPERANDS[op]
        if not fits:
            raise ValueError(f"a relation cannot have {op!r} with {arg!r} here")
        depth += 1 - OPERANDS.get(op, 0)
        if depth > MOST:
            raise ValueError("a relation needs too much room")
    if depth != 1 or n_leaves > MOST:
        raise ValueError("a relation has too many numbers, or too few")
