"""Numbers that stand for any value: what the interpreter does with them, and when their value has to be settled."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})
NUMBERS = frozenset({int, float, bool}) | SYMBOLIC
SIZES = frozenset({tuple, list, torch.Size})
ARITHMETIC = frozenset(
    {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv, operator.pow, operator.neg, operator.pos}
)


def _known(v: Any) -> Any:
    """A symbolic number that can have one value only is that value."""
    return settled(v) if type(v) in SYMBOLIC and v.node.expr.is_number else v


def settled(v: Any) -> Any:
    """The value of a symbolic number; from now on it is guarded to be this."""
    t = type(v)
    return int(v) if t is torch.SymInt else float(v) if t is torch.SymFloat else bool(v) if t is torch.SymBool else v


def holds(value: Any) -> bool:
    """Whether there is a symbolic number in ``value``, or in the tuples, lists and slices that it is made of."""
    t = type(value)
    if t in SYMBOLIC:
        return True
    if t in SIZES:
        return any([holds(x) for x in value])
    return t is slice and (holds(value.start) or holds(value.stop) or holds(value.step))


def settle_all(value: Any) -> Any:
    """``value`` with numbers for its symbolic ones: a list changes in place, as it is the same list."""
    t = type(value)
    if t in SYMBOLIC:
        return settled(value)
    if not holds(value):
        return value
    if t is list:
        value[:] = [settle_all(x) for x in value]
        return value
    if t is slice:
        return slice(settle_all(value.start), settle_all(value.stop), settle_all(value.step))
    return t([settle_all(x) for x in value])


def calculate(op: Callable, *values: Any) -> Any:
    """An operator on numbers of which some are symbolic."""
    if op not in ARITHMETIC:
        return op(*[settled(v) for v in values])
    if op in (operator.floordiv, operator.mod, operator.truediv) and not bool(values[1] != 0):
        return op(*[settled(v) for v in values])
    return _known(op(*values))


def compared(op: Callable, a: Any, b: Any) -> bool:
    """A comparison is answered at once, and its answer guarded."""
    return bool(op(a, b))


def _divmod(a: Any, b: Any) -> Any:
    return calculate(operator.floordiv, a, b), calculate(operator.mod, a, b)


def _least(*values: Any) -> Any:
    return _chosen(torch.sym_min, values)


def _greatest(*values: Any) -> Any:
    return _chosen(torch.sym_max, values)


def _chosen(choose: Callable, values: tuple) -> Any:
    if len(values) == 1:
        values = tuple(values[0])
    if {type(v) for v in values} - {int, torch.SymInt}:
        # Of an int and a float the one that is chosen keeps its type.
        values = tuple([settled(v) for v in values])
    found = values[0]
    for v in values[1:]:
        found = choose(found, v)
    return _known(found)


def _whole(v: Any) -> Any:
    return v if type(v) is torch.SymInt else int(settled(v)) if type(v) is torch.SymBool else _known(torch.sym_int(v))


def _product(values: Any, *, start: Any = 1) -> Any:
    for v in values:
        start = calculate(operator.mul, start, v) if type(start) in SYMBOLIC or type(v) in SYMBOLIC else start * v
    return start


def _sum(values: Any, start: Any = 0) -> Any:
    for v in values:
        start = calculate(operator.add, start, v) if type(start) in SYMBOLIC or type(v) in SYMBOLIC else start + v
    return start


FUNCTIONS: Mapping[Any, Callable] = MappingProxyType(
    {
        builtins.int: _whole,
        builtins.float: lambda v: _known(torch.sym_float(v)),
        builtins.bool: bool,
        builtins.abs: lambda v: _known(abs(v)),
        builtins.min: _least,
        builtins.max: _greatest,
        builtins.divmod: _divmod,
        builtins.pow: lambda a, b: calculate(operator.pow, a, b),
        builtins.sum: _sum,
        math.prod: _product,
        math.sqrt: lambda v: _known(torch.sym_sqrt(v)),
        math.ceil: lambda v: _known(math.ceil(v)),
        math.floor: lambda v: _known(math.floor(v)),
        math.trunc: _whole,
        operator.index: lambda v: v,
        operator.not_: lambda v: not bool(v),
        operator.truth: bool,
        **{op: (lambda *values, op=op: calculate(op, *values)) for op in ARITHMETIC},
        **{
            op: (lambda a, b, op=op: compared(op, a, b))
            for op in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
        },
    }
)
"""C functions of numbers that have a symbolic form. They get numbers only, and tuples or lists of numbers."""


def only_numbers(values: Any) -> bool:
    return all([type(v) in NUMBERS or (type(v) in SIZES and only_numbers(v)) for v in values])
