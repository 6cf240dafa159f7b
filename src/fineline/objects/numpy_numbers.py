"""NumPy scalars from before the segment: operators and conversions take symbols for those that vary, as for Python's numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fineline.cpython.numpy_scalars import NUMBERS, NUMPY_SCALARS
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.symbolic.arithmetic import SYMBOLIC, compared
from fineline.tables import attributes
from fineline.tracing.identity_guards import Number
from fineline.tracing.segment_trace import SegmentTrace

ITEM = Number(np.generic.item)
# Functions that return a Python number and depend only on the value.
CONVERSIONS = frozenset({float, int, operator.index, np.generic.item})

# NumPy types that compare with Python's numbers as these Python types do. (For other types, NumPy rounds the Python number first.)
ALIKE: Mapping[type, type] = MappingProxyType({cls: kind for name, kind in (("float64", float), ("int64", int)) for cls in attributes(np, name)})
SMALL = 2**53


def among(values: Any) -> bool:
    """Returns whether there is a NumPy scalar among ``values``, or in a list or tuple there."""
    return any([type(a) in NUMPY_SCALARS or (type(a) in (list, tuple) and among(a)) for a in values])


def symbol_for(trace: SegmentTrace, a: Any) -> Any:
    """Returns a symbol for ``a`` if it is known to vary, else ``a`` itself, also in a tuple or slice; the caller must depend only on the value."""
    t = type(a)
    if t in NUMBERS and trace.active and (src := trace.deferred.numbers.get(a)) is not None:
        number = np.generic.item(a)
        # Reads it even if it is not a symbol yet: the next read finds out whether it varies.
        found = trace.read(number, trace.guards.access(src, "member", ITEM, number))
        return found if type(found) in SYMBOLIC else a
    if t is tuple:
        items = [symbol_for(trace, x) for x in a]
        return a if all([x is y for x, y in zip(items, a, strict=True)]) else tuple(items)
    if t is slice:
        return slice(symbol_for(trace, a.start), symbol_for(trace, a.stop), symbol_for(trace, a.step))
    return a


def converts(fn: Any, args: Any) -> bool:
    """Returns whether ``fn`` takes a Python number equally well; a float is not an index, and the error message contains its type."""
    return fn in CONVERSIONS and len(args) == 1 and (fn is not operator.index or is_a(args[0], np.integer))


def symbols_for(trace: SegmentTrace, values: Any) -> list:
    return [symbol_for(trace, a) for a in values]


def answered(trace: SegmentTrace, op: Callable, a: Any, b: Any) -> np.bool_ | None:
    """Returns a comparison of a varying NumPy scalar with a Python number; None if this is not such a comparison."""
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
