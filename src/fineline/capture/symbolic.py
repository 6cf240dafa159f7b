"""Numbers that stand for any value: what the interpreter does with them, and when their value has to be settled."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from fineline.capture.floats import OPERATORS, PLAIN, WHOLE, hint

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
    if t is torch.SymFloat and v.node.has_hint():
        return v.node.shape_env.floats.settled(v)
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
    if op in (operator.floordiv, operator.mod, operator.truediv) and compared(operator.eq, values[1], 0):
        return op(*[settled(v) for v in values])
    if op is operator.truediv or any([type(v) in (float, torch.SymFloat) for v in values]):
        return _float(op, *values)
    return _known(op(*values))


def _float(fn: Callable, *values: Any) -> Any:
    """The float that ``fn`` gives."""
    shapes = next(v.node.shape_env for v in values if type(v) in SYMBOLIC)
    if any([type(v) in SYMBOLIC and not v.node.has_hint() for v in values]):
        return _known(PLAIN.get(fn, fn)(*values))
    found = shapes.floats.calculate(fn, values)
    return fn(*[settled(v) for v in values]) if found is None else found


def compared(op: Callable, a: Any, b: Any) -> bool:
    """A comparison is answered at once, and its answer guarded."""
    for v in (a, b):
        if type(v) is torch.SymFloat and hint(a) is not None and hint(b) is not None:
            return bool(v.node.shape_env.floats.compared(op, a, b))
    return bool(op(a, b))


def true(v: Any) -> bool:
    """Whether a symbolic number is not zero."""
    return compared(operator.ne, v, 0) if type(v) is torch.SymFloat else bool(v)


def _divmod(a: Any, b: Any) -> Any:
    return calculate(operator.floordiv, a, b), calculate(operator.mod, a, b)


def _least(*values: Any) -> Any:
    return _chosen(torch.sym_min, values)


def _greatest(*values: Any) -> Any:
    return _chosen(torch.sym_max, values)


def _chosen(choose: Callable, values: tuple) -> Any:
    if len(values) == 1:
        values = tuple(values[0])
    found = values[0]
    if {type(v) for v in values} - {int, torch.SymInt}:
        # Of an int and a float the one that is chosen keeps its type.
        better = operator.lt if choose is torch.sym_min else operator.gt
        for v in values[1:]:
            found = v if compared(better, v, found) else found
        return found
    for v in values[1:]:
        found = choose(found, v)
    return _known(found)


def _whole(fn: Callable, v: Any) -> Any:
    if type(v) is torch.SymInt:
        return v
    if type(v) is torch.SymBool:
        return int(settled(v))
    return v.node.shape_env.floats.whole(fn, v) if v.node.has_hint() else _known(WHOLE[fn][1](v))


def _absolute(v: Any) -> Any:
    return _float(abs, v) if type(v) is torch.SymFloat else _known(abs(v))


def _math(fn: Callable) -> Callable:
    return lambda *values: _float(fn, *values) if len(values) == 1 else fn(*[settled(v) for v in values])


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
        builtins.float: lambda v: v if type(v) is torch.SymFloat else _float(float, v),
        builtins.bool: true,
        builtins.abs: _absolute,
        builtins.min: _least,
        builtins.max: _greatest,
        builtins.divmod: _divmod,
        builtins.pow: lambda a, b: calculate(operator.pow, a, b),
        builtins.sum: _sum,
        math.prod: _product,
        operator.index: lambda v: v if type(v) is torch.SymInt else operator.index(settled(v)),
        operator.not_: lambda v: not true(v),
        operator.truth: true,
        **{fn: _math(fn) for fn in OPERATORS if getattr(fn, "__module__", "") == "math"},
        **{fn: (lambda v, *digits, fn=fn: fn(settled(v), *digits) if digits else _whole(fn, v)) for fn in WHOLE},
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
