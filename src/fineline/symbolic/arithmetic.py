"""Arithmetic and functions on symbolic numbers, which stand for any value, and specialization where their value is needed."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.functions import BitwiseFn_bitwise_and, BitwiseFn_bitwise_or, BitwiseFn_bitwise_xor

from fineline.frames.graph_breaks import DataDependentBranch
from fineline.guards.postfix import LEAST_INTEGER, MOST_INTEGER
from fineline.symbolic.floats import OPERATORS, PLAIN, WHOLE, hint
from fineline.torch_facts.wrapper_subclasses import stands_for_lengths

SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})
NUMBERS = frozenset({int, float, bool}) | SYMBOLIC
SIZES = frozenset({tuple, list, torch.Size})
_NUMBERS_AND_HOLDERS = SYMBOLIC | SIZES | {slice}
BITWISE = frozenset({operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.invert})
ARITHMETIC = frozenset({
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv, operator.pow, operator.neg, operator.pos,
    *BITWISE,
})  # fmt: skip
COMPARISONS = frozenset({operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge})
# The bases of powers that are written with a symbol as exponent.
SHORT_POWERS = (1, 2, -1)
# `n = (n * 31 + 7) % 1000` in a loop reaches this in 33 iterations, which take 0.2 s to capture; 64 take 1.6 s, 300 minutes.
MOST_PARTS = 200


def _known(v: Any) -> Any:
    """Returns the value of a symbolic number that can have only one, and any other number as it is."""
    return settled(v) if type(v) in SYMBOLIC and not stands_for_lengths(v) and v.node.expr.is_number else v


def unknown(v: Any) -> bool:
    """Returns whether only the graph will know the value of ``v``: it was read from a tensor, or is a symbol for the size of a ragged dimension."""
    return type(v) in SYMBOLIC and (_symbols((v,)) is not None if stands_for_lengths(v) else bool(free_unbacked_symbols(v.node.expr)))


def text_of(v: Any) -> str:
    """Returns the text of a number, in terms of the user's code if it is symbolic."""
    if type(v) not in SYMBOLIC:
        return str(v)
    own = _symbols((v,))
    return str(v) if own is None else str(own.text(v))


def decided(v: Any) -> bool | None:
    """Returns the truth of a symbolic number, guarded; None if only the graph knows it."""
    if stands_for_lengths(v):
        # PyTorch takes such a size for one of two at least.
        return True
    if not unknown(v):
        return bool(compared(operator.ne, v, 0) if type(v) is torch.SymFloat else v)
    condition = v if type(v) is torch.SymBool else v != 0
    found: bool | None = condition if type(condition) is bool else condition.node.shape_env._maybe_evaluate_static(condition.node.expr)
    return None if found is None else bool(found)


def settled(v: Any) -> Any:
    """Specializes a symbolic number: returns its value, and guards it. Returns any other value as it is."""
    t = type(v)
    if t in SYMBOLIC and unknown(v):
        if t is torch.SymBool and (found := decided(v)) is not None:
            return found
        raise DataDependentBranch(f"the value of {text_of(v)}, which only the graph knows")
    if t is torch.SymFloat and (floats := _floats(v)) is not None:
        return floats.settled(v)
    if stands_for_lengths(v):
        return v
    return int(v) if t is torch.SymInt else float(v) if t is torch.SymFloat else bool(v) if t is torch.SymBool else v


def numbers(value: Any, within: tuple[int, ...] = ()) -> Iterator[Any]:
    """Yields the symbolic numbers in ``value``, also in nested tuples, lists and slices. ``within``: the lists around, to end cycles."""
    t = type(value)
    if t in SYMBOLIC:
        yield value
    elif t in SIZES or t is slice:
        if t is list:
            if id(value) in within:
                return
            within = (*within, id(value))
        parts = (value.start, value.stop, value.step) if t is slice else value
        # Most lists have none, and a user's may be long: an append to one of a million items, in a loop, asks each time.
        if not _NUMBERS_AND_HOLDERS.isdisjoint(map(type, parts)):
            for part in parts:
                yield from numbers(part, within)


def holds(value: Any) -> bool:
    """Returns whether ``value`` contains a symbolic number."""
    return any(True for _ in numbers(value))


def settle_all(value: Any, kinds: frozenset[type] = SYMBOLIC) -> Any:
    """Returns ``value`` with plain numbers instead of symbolic ones of these ``kinds``; a list changes in place, because it must stay the same list."""
    t = type(value)
    if t in SYMBOLIC:
        return settled(value) if t in kinds else value
    if not holds(value):
        return value
    if t is list:
        value[:] = [settle_all(x, kinds) for x in value]
        return value
    if t is slice:
        return slice(*[settle_all(part, kinds) for part in (value.start, value.stop, value.step)])
    return t([settle_all(x, kinds) for x in value])


def is_large(v: Any) -> bool:
    """Returns whether the expression of ``v``, an int, has over `MOST_PARTS` parts: sympy's time for each further operator grows with these."""
    if type(v) is not torch.SymInt:
        return False
    todo, found = [v.node._expr], 0
    while todo and found < MOST_PARTS:
        found += 1
        todo += todo.pop().args
    return bool(todo)


def calculate(op: Callable, *values: Any) -> Any:
    """Computes an operator on numbers, of which some are symbolic."""
    if op not in ARITHMETIC or any(map(stands_for_lengths, values)):
        return op(*[settled(v) for v in values])
    own = _symbols(values)
    if own is None:
        return op(*values)
    if op in BITWISE:
        return _bitwise(op, *values)
    values = _numbers_of(values)
    if op in (operator.floordiv, operator.mod, operator.truediv):
        divisible = decided(values[1])
        if divisible is None:
            own.expect(values[1] != 0, "division by zero", None)
        elif not divisible:
            return op(*[settled(v) for v in values])
    floats = not {float, torch.SymFloat}.isdisjoint(map(type, values))
    if any([unknown(v) for v in values]):
        if torch.SymBool in map(type, values) or (op is operator.pow and not (type(values[1]) is int and values[1] >= 0)):
            return op(*[settled(v) for v in values])
        return own.apart(op, values) if floats else _known(op(*values))
    if op is operator.pow and not floats and type(values[1]) is torch.SymInt:
        return _int_power(*values)
    return _float(op, *values) if floats or op is operator.truediv else _known(op(*values))


def has_symbol(fn: Callable, values: Sequence) -> bool:
    """Returns whether ``fn(*values)`` can be a symbol or a guarded constant; otherwise symbolic numbers have to be specialized."""
    fn = operator.pow if fn is builtins.pow else fn
    if fn not in OPERATORS or fn in COMPARISONS:
        return True
    floats = not {float, torch.SymFloat}.isdisjoint(map(type, values))
    int_power = fn is operator.pow and not floats and type(values[1]) is torch.SymInt
    if not (floats or int_power) and fn is not operator.truediv and (fn in ARITHMETIC or fn is abs):
        # The result is an int, computed from ints.
        return True
    own = _symbols(values)
    if own is None or any([unknown(v) for v in values]):
        return True
    if int_power:
        return type(values[0]) is int and values[0] in SHORT_POWERS
    return own.shapes.floats.result(fn, _numbers_of(tuple(values))) is not None


def _bitwise(op: Callable, *values: Any) -> Any:
    """Computes an operator on bits: symbolically on ints, by the values on bools, whose result is a bool, and on floats, which raise."""
    if torch.SymInt not in map(type, values) or not {type(v) for v in values} <= {int, bool, torch.SymInt}:
        return op(*[settled(v) for v in values])
    values = _numbers_of(values)
    if op is operator.invert:
        return calculate(operator.sub, calculate(operator.neg, *values), 1)
    if op not in (operator.lshift, operator.rshift):
        return _known(op(*values))
    number, places = values
    if not compared(operator.ge, places, 0):
        return op(settled(number), settled(places))
    power = calculate(operator.pow, 2, places) if type(places) is torch.SymInt else 1 << places
    return calculate(operator.mul if op is operator.lshift else operator.floordiv, number, power)


def _has_bits(v: Any) -> bool:
    """Returns whether the expression of ``v`` contains an operator on bits.

    AOTAutograd computes floats in tensors, where such an operator fails on a number that has become a float: a division by one
    separates the two.
    """
    return type(v) is torch.SymInt and v.node.expr.has(BitwiseFn_bitwise_and, BitwiseFn_bitwise_or, BitwiseFn_bitwise_xor)


def _symbols(values: Any) -> Any:
    """Returns the ``Symbols`` of this capture; None if the numbers belong to the user's own fake mode."""
    shapes = getattr(next(v for v in values if type(v) in SYMBOLIC).node, "shape_env", None)
    interp = getattr(shapes, "interp", None)
    return interp.trace.symbols if interp is not None else None


def _floats(v: Any) -> Any:
    """Returns the ``Floats`` of this capture; None if ``v`` does not belong to it, or only the graph knows its value."""
    return getattr(v.node.shape_env, "floats", None) if v.node.has_hint() else None


def _float(fn: Callable, *values: Any) -> Any:
    """Computes ``fn``, whose result is a float."""
    own = _symbols(values)
    if own is None or any([unknown(v) for v in values]):
        return _known(PLAIN[fn](*values)) if fn in PLAIN else fn(*[settled(v) for v in values])
    if fn is not operator.truediv or not {float, torch.SymFloat}.isdisjoint(map(type, values)):
        values = tuple([own.shapes.floats.calculate(operator.truediv, (v, 1)) or settled(v) if _has_bits(v) else v for v in values])
    found = own.shapes.floats.calculate(fn, values)
    return fn(*[settled(v) for v in values]) if found is None else found


def _numbers_of(values: tuple) -> tuple:
    """Replaces bools by one or zero, because PyTorch's expressions do not mix truths and numbers."""
    return tuple([int(v) if type(v) is bool else v for v in values])


def _lies_below(v: Any, number: Any) -> bool:
    """Returns whether ``v`` is an int too large for a relation, and ``number`` is nearer to zero, within 64 bits. Guards that."""
    if type(v) is not int or LEAST_INTEGER <= v <= MOST_INTEGER or type(number) is not torch.SymInt:
        return False
    return decided(number <= MOST_INTEGER if v > 0 else number >= LEAST_INTEGER) is True


def compared(op: Callable, a: Any, b: Any) -> Any:
    """Compares two numbers: returns the answer, and guards it, unless only the graph knows it."""
    if stands_for_lengths(a) or stands_for_lengths(b):
        return _compared_lengths(op, a, b)
    a, b = _numbers_of((a, b))
    if _lies_below(a, b) or _lies_below(b, a):
        return op(a, 0) if type(a) is int else op(0, b)
    if hint(a) is not None and hint(b) is not None:
        for v in (a, b):
            if type(v) is torch.SymFloat and (floats := _floats(v)) is not None:
                return bool(floats.compared(op, a, b))
    result = op(a, b)
    found = decided(result) if type(result) is torch.SymBool else result
    return result if found is None else found


def _compared_lengths(op: Callable, a: Any, b: Any) -> bool:
    """Compares the size of a ragged dimension with another one, or with a number, which no such size equals."""
    own = _symbols((a, b))
    known = own is not None and {type(a), type(b)} <= {int, torch.SymInt} and all([own.has_lengths(v) for v in (a, b) if stands_for_lengths(v)])
    if not known or op not in (operator.eq, operator.ne):
        raise DataDependentBranch(f"a comparison of {text_of(a)} and {text_of(b)}")
    alike = stands_for_lengths(a) and stands_for_lengths(b) and bool(own.same_lengths(a, b))
    return alike is (op is operator.eq)


def _truth(v: Any) -> Any:
    found = decided(v)
    return (v if type(v) is torch.SymBool else v != 0) if found is None else found


def _not(v: Any) -> Any:
    found = _truth(v)
    return torch.sym_not(found) if type(found) is torch.SymBool else not found


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
        # The chosen number keeps its type, int or float.
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
        return int(settled(v)) if decided(v) is not None else torch.sym_ite(v, 1, 0)
    floats = _floats(v)
    return _known(WHOLE[fn][1](v)) if floats is None else floats.whole(fn, v)


def _absolute(v: Any) -> Any:
    return _float(abs, v) if type(v) is torch.SymFloat else _known(abs(v))


def _math(fn: Callable) -> Callable:
    return lambda *values: _float(fn, *values) if len(values) == 1 else fn(*[settled(v) for v in values])


def _power(base: Any, exponent: Any) -> Any:
    """Computes ``math.pow``: the same as ``**`` of floats, if the base is positive."""
    if unknown(base) or unknown(exponent) or not compared(operator.gt, base, 0):
        return math.pow(settled(base), settled(exponent))
    as_float = FUNCTIONS[float]
    return calculate(operator.pow, *[as_float(v) if type(v) in SYMBOLIC else float(v) for v in (base, exponent)])


def _int_power(base: Any, exponent: Any) -> Any:
    """Computes a power with a symbolic exponent; specializes it if Inductor has no code for it, or FX writes it wrongly ("-1 ** n")."""
    if type(base) is int and base in SHORT_POWERS and compared(operator.ge, exponent, 0):
        if base == 1:
            return 1
        if base == -1:
            return calculate(operator.sub, 1, calculate(operator.mul, 2, calculate(operator.mod, exponent, 2)))
        # Inductor shifts an int of 32 bits.
        if compared(operator.lt, exponent, 31):
            return _known(operator.pow(base, exponent))
    return operator.pow(settled(base), settled(exponent))


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
        builtins.bool: _truth,
        builtins.abs: _absolute,
        builtins.min: _least,
        builtins.max: _greatest,
        builtins.divmod: _divmod,
        builtins.pow: lambda a, b: calculate(operator.pow, a, b),
        builtins.sum: _sum,
        math.pow: _power,
        math.prod: _product,
        torch.Size.numel: _product,
        operator.index: lambda v: v if type(v) is torch.SymInt else operator.index(settled(v)),
        operator.not_: _not,
        operator.truth: _truth,
        **{fn: _math(fn) for fn in OPERATORS if getattr(fn, "__module__", "") == "math" and fn is not math.pow},
        **{fn: (lambda v, *digits, fn=fn: fn(settled(v), *digits) if digits else _whole(fn, v)) for fn in WHOLE},
        **{op: (lambda *values, op=op: calculate(op, *values)) for op in ARITHMETIC},
        **{
            op: (lambda a, b, op=op: compared(op, a, b))
            for op in COMPARISONS
        },
    }
)
"""C functions of numbers that have a symbolic form. They get numbers only, and tuples or lists of numbers."""


def only_ints(values: Any) -> bool:
    """Returns whether ``values``, of which `only_numbers` holds, contain no float."""
    return not any([type(v) in (float, torch.SymFloat) or (type(v) in SIZES and not only_ints(v)) for v in values])


def only_numbers(values: Any) -> bool:
    return all([type(v) in NUMBERS or (type(v) in SIZES and only_numbers(v)) for v in values])
