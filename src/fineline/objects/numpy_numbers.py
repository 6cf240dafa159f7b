"""NumPy's numbers from outside: for those that vary, operators and conversions take symbols, as for Python's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fineline.cpython.numpy_scalars import NUMBERS, NUMPY_SCALARS
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC, compared
from fineline.tracing.identity_guards import Number
from fineline.tracing.segment_trace import SegmentTrace

ITEM = Number(np.generic.item)
# What gives a number of Python's, and asks for no more than its value.
CONVERSIONS = frozenset({float, int, operator.index, np.generic.item})

# Compared with those of Python's, they are compared as these are. (Of others, the one of Python's is rounded first.)
ALIKE: Mapping[type, type] = MappingProxyType({np.float64: float, np.int64: int})
SMALL = 2**53


def among(values: Any) -> bool:
    """Returns whether one of NumPy's is among ``values``, or in a list or tuple there."""
    return any([type(a) in NUMPY_SCALARS or (type(a) in (list, tuple) and among(a)) for a in values])


def symbol_for(trace: SegmentTrace, a: Any) -> Any:
    """Returns what stands for ``a`` where its value alone counts, also in a tuple or a slice: a symbol if it is known to vary, else ``a`` itself."""
    t = type(a)
    if t in NUMBERS and trace.active and (src := trace.deferred.numbers.get(a)) is not None:
        number = np.generic.item(a)
        # Also where it is no symbol yet: that it differs shows when this is read again.
        found = trace.read(number, trace.guards.access(src, "member", ITEM, number))
        return found if type(found) in SYMBOLIC else a
    if t is tuple:
        items = [symbol_for(trace, x) for x in a]
        return a if all([x is y for x, y in zip(items, a, strict=True)]) else tuple(items)
    if t is slice:
        return slice(symbol_for(trace, a.start), symbol_for(trace, a.stop), symbol_for(trace, a.step))
    return a


def converts(fn: Any, args: Any) -> bool:
    """Returns whether a number of Python's does as well for ``fn``; floats are no indices, and the error names their type."""
    return fn in CONVERSIONS and len(args) == 1 and (fn is not operator.index or is_a(args[0], np.integer))


def symbols_for(trace: SegmentTrace, values: Any) -> list:
    return [symbol_for(trace, a) for a in values]


def answered(trace: SegmentTrace, op: Callable, a: Any, b: Any) -> np.bool_ | None:
    """Returns a comparison of a number that varies with one of Python's; None if it is none."""
    symbol: Any
    other: Any
    if ALIKE.get(type(a)) is type(b):
        symbol, other = symbol_for(trace, a), b
    elif ALIKE.get(type(b)) is type(a):
        symbol, other = symbol_for(trace, b), a
    else:
        return None
    if type(symbol) not in SYMBOLIC or not -SMALL < other < SMALL:
        return None
    trace.deferred.settle(other)
    return np.bool_(compared(op, symbol, b) if other is b else compared(op, a, symbol))
