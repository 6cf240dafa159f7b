"""Builtins and functools functions that consume an iterable or call back, in plain Python for the interpreter to run."""
# Plain statements, because the shorter forms would call the functions defined here.
# ruff: noqa: SIM105, SIM110

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import Any

from fineline.bytecode.version import CURRENT
from fineline.cpython.behaviours import SORTS_TAKE_ANY_TRUTH, SUMS_COMPENSATE_ALL
from fineline.cpython.polyfill_iterators import CallableIterator, ReversedSequence
from fineline.cpython.protocols import MISSING, special
from fineline.kinds import is_a

_ABSENT = object()
_EMPTY = {name: CURRENT.worded(f"{name}() arg is an empty sequence") for name in ("max", "min")}
_INFINITE = float("inf")
_TOTAL_ORDER = (int, str)
"""Key types for which a sort of (key, index) tuples equals a sort of the keys: exact types with a total order that agrees with equality."""


def ask_length(iterable: Any) -> None:
    """Asks for a length, as C does before it fills a list; only for the user method that this runs. Asks for no ``__length_hint__``."""
    if special(iterable, "__len__") is not MISSING:
        try:
            len(iterable)
        except TypeError:
            pass


def list_(iterable: Iterable[Any] = (), /) -> list[Any]:
    items: list[Any] = []
    source = iter(iterable)
    ask_length(iterable)
    for item in source:
        items.append(item)
    return items


def tuple_(iterable: Iterable[Any] = (), /) -> tuple[Any, ...]:
    return tuple(list_(iterable))


def tuple_of_items(iterable: Iterable[Any] = (), /) -> tuple[Any, ...]:
    """That of Python 3.14, which asks for no length."""
    items: list[Any] = []
    for item in iterable:
        items.append(item)
    return tuple(items)


def iterator(iterable: Iterable[Any], text: str) -> Iterator[Any]:
    """Returns an iterator over ``iterable``; raises TypeError(text) if there is none."""
    found: Any = _ABSENT
    try:
        found = iter(iterable)
    except TypeError:
        pass
    if found is _ABSENT:
        raise TypeError(text)
    return found


def sequence(iterable: Iterable[Any], text: str) -> Any:
    """Returns a list or tuple of the items of ``iterable``; raises TypeError(text) if it is not iterable."""
    return iterable if is_a(iterable, (list, tuple)) else list(iterator(iterable, text))


def any_(iterable: Iterable[Any], /) -> bool:
    for item in iterable:
        if item:
            return True
    return False


def all_(iterable: Iterable[Any], /) -> bool:
    for item in iterable:
        if not item:
            return False
    return True


def sum_(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    if is_a(start, (str, bytes, bytearray)):
        # C raises the error.
        return sum(iterable, start)
    total = start
    for item in iterable:
        total = total + item
    return total


def compensated_sum(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    """Sums as `sum_` does, but adds up the rounding errors of floats for the end, as C does from Python 3.12 on."""
    if is_a(start, (str, bytes, bytearray)):
        # C raises the error.
        return sum(iterable, start)
    total = start
    items = iter(iterable)
    if type(total) is int:
        before = total
        for item in items:
            before = total
            total = total + item
            if type(item) is not int and type(item) is not bool:
                break
        else:
            return total
        if not _is_small(before):
            return _sum_of_rest(total, items)
    if type(total) is not float:
        return _sum_of_complex(total, items) if SUMS_COMPENSATE_ALL and type(total) is complex else _sum_of_rest(total, items)
    lost = 0.0
    for item in items:
        if SUMS_COMPENSATE_ALL and is_a(item, int):
            item = _as_float(item)
        if type(item) is float:
            total, lost = _added(total, lost, item)
        elif is_a(item, int) and _is_small(item):
            total = total + _as_float(item)
        else:
            total = _with_lost(total, lost) + item
            return _sum_of_complex(total, items) if SUMS_COMPENSATE_ALL and type(total) is complex else _sum_of_rest(total, items)
    return _with_lost(total, lost)


def _added(total: float, lost: float, item: float) -> tuple[float, float]:
    """Returns a sum with an item added, and what it has lost by rounding."""
    rounded = total + item
    # The smaller one loses digits.
    return rounded, lost + ((total - rounded) + item if abs(total) >= abs(item) else (item - rounded) + total)


def _as_float(number: Any) -> float:
    """Converts an int or a float as C does, which asks no method of a subclass."""
    if type(number) is int:
        return float(number)
    return int.__float__(number) if is_a(number, int) else float.__float__(number)


def _sum_of_complex(total: complex, items: Iterator[Any]) -> Any:
    real, imag = total.real, total.imag
    lost, lost_imag = 0.0, 0.0
    item: Any
    while (item := next(items, _ABSENT)) is not _ABSENT:
        if type(item) is complex:
            real, lost = _added(real, lost, item.real)
            imag, lost_imag = _added(imag, lost_imag, item.imag)
        elif is_a(item, (int, float)):
            real, lost = _added(real, lost, _as_float(item))
        else:
            return _sum_of_rest(complex(_with_lost(real, lost), _with_lost(imag, lost_imag)) + item, items)
    return complex(_with_lost(real, lost), _with_lost(imag, lost_imag))


def _sum_of_rest(total: Any, items: Iterator[Any]) -> Any:
    # Without a loop, which would ask for an iterator once more: for one that is not captured, that is a graph break.
    while (item := next(items, _ABSENT)) is not _ABSENT:
        total = total + item
    return total


def _is_small(number: int) -> bool:
    """Returns whether an int is a number of C."""
    # The first question has a guard also for a symbol plus a constant: ``s + 3 >= -(2**63)`` compares s with a number beyond 64 bits.
    return -(2**62) <= number < 2**62 or -(2**63) <= number < 2**63


def _with_lost(total: float, lost: float) -> float:
    # An infinite sum has lost what is no number; and zero would take the sign of a negative zero.
    return total + lost if lost and abs(lost) < _INFINITE else total


def max_(*args: Any, key: Callable[[Any], Any] | None = None, default: Any = _ABSENT) -> Any:
    best = _ABSENT
    best_key: Any = None
    for item in _candidates("max", args, default):
        if key is None and type(item) is int and type(best) is int:
            # The program compares symbolic sizes; no guard is needed.
            best = best_key = max(best, item)
            continue
        item_key = item if key is None else key(item)
        if best is _ABSENT or item_key > best_key:
            best = item
            best_key = item_key
    return _chosen("max", best, default)


def min_(*args: Any, key: Callable[[Any], Any] | None = None, default: Any = _ABSENT) -> Any:
    best = _ABSENT
    best_key: Any = None
    for item in _candidates("min", args, default):
        if key is None and type(item) is int and type(best) is int:
            # The program compares symbolic sizes; no guard is needed.
            best = best_key = min(best, item)
            continue
        item_key = item if key is None else key(item)
        if best is _ABSENT or item_key < best_key:
            best = item
            best_key = item_key
    return _chosen("min", best, default)


def _candidates(name: str, args: tuple[Any, ...], default: Any) -> Any:
    if len(args) == 1:
        return args[0]
    if not args:
        raise TypeError(f"{name} expected at least 1 argument, got 0")
    if default is not _ABSENT:
        raise TypeError(f"Cannot specify a default for {name}() with multiple positional arguments")
    return args


def _chosen(name: str, best: Any, default: Any) -> Any:
    if best is not _ABSENT:
        return best
    if default is _ABSENT:
        raise ValueError(_EMPTY[name])
    return default


def sorted_(iterable: Iterable[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: Any = False) -> list[Any]:
    items = list(iterable)
    list_sort(items, key=key, reverse=reverse)
    return items


def list_sort(self: list[Any], /, *, key: Callable[[Any], Any] | None = None, reverse: Any = False) -> None:
    reverse = bool(reverse) if SORTS_TAKE_ANY_TRUTH else bool(index(reverse))
    items = list.copy(self)
    list.clear(self)
    keys = items
    try:
        if key is not None:
            keys = []
            for item in items:
                keys.append(key(item))
        if reverse:
            list.reverse(items)
            if keys is not items:
                list.reverse(keys)
        try:
            _sort(items, keys)
            if list.__len__(self):
                raise ValueError("list modified during sort")
        finally:
            if reverse:
                list.reverse(items)
    finally:
        if type(self) is list:
            self[:] = items
        else:
            list.__setitem__(self, slice(None), items)


def _sort(items: list[Any], keys: list[Any]) -> None:
    """Sorts stably, by run detection and binary insertion: up to 63 items, with the same comparisons as CPython."""
    if len(items) < 2:
        return
    if keys is not items and _has_total_order(keys):
        pairs = []
        for i in range(len(keys)):
            pairs.append((keys[i], i))
        pairs.sort()
        moved = []
        for pair in pairs:
            moved.append(items[pair[1]])
        items[:] = moved
        return
    start = _first_run(items, keys)
    while start < len(items):
        pivot = keys[start]
        low = 0
        high = start
        while low < high:
            middle = (low + high) // 2
            if pivot < keys[middle]:
                high = middle
            else:
                low = middle + 1
        items.insert(low, items.pop(start))
        if keys is not items:
            keys.insert(low, keys.pop(start))
        start += 1


def _has_total_order(keys: list[Any]) -> bool:
    kind = type(keys[0])
    if kind not in _TOTAL_ORDER:
        return False
    for key in keys:
        if type(key) is not kind:
            return False
    return True


def _count_run(items: list[Any], keys: list[Any]) -> int:
    """Returns the length of the run at the start, which ascends then: a run descends strictly."""
    end = _end_of_ascent(keys, 1)
    if end == 1:
        end = 2
        while end < len(keys) and keys[end] < keys[end - 1]:
            end += 1
        _reverse(items, keys, 0, end)
    return end


def _count_run_with_equals(items: list[Any], keys: list[Any]) -> int:
    """Returns the length of the run at the start, which ascends then: equal items may be in a descending run, and an ascending one is added to it."""
    end = _end_of_ascent(keys, 1)
    if end == len(keys):
        return end
    if end > 1:
        if keys[0] < keys[end - 1]:
            return end
        _reverse(items, keys, 0, end)
    end += 1
    # Equal items change places twice, and are in their first order again.
    equal = end - 1
    while end < len(keys):
        if keys[end] < keys[end - 1]:
            _reverse(items, keys, equal, end)
            equal = end
        elif keys[end - 1] < keys[end]:
            break
        end += 1
    _reverse(items, keys, equal, end)
    _reverse(items, keys, 0, end)
    return _end_of_ascent(keys, end)


def _end_of_ascent(keys: list[Any], end: int) -> int:
    while end < len(keys) and not keys[end] < keys[end - 1]:
        end += 1
    return end


def _reverse(items: list[Any], keys: list[Any], start: int, end: int) -> None:
    items[start:end] = items[start:end][::-1]
    if keys is not items:
        keys[start:end] = keys[start:end][::-1]


_first_run = _count_run_with_equals if CURRENT.sorts_equal_runs else _count_run


def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _ABSENT, /) -> Any:
    value = initial
    for item in iterator(iterable, "reduce() arg 2 must support iteration"):
        value = item if value is _ABSENT else function(value, item)
    if value is _ABSENT:
        raise TypeError("reduce() of empty iterable with no initial value")
    return value


def reduce_from(function: Callable[[Any, Any], Any], iterable: Iterable[Any], /, initial: Any = _ABSENT) -> Any:
    """That of Python 3.14, which takes the first value by name too."""
    return reduce(function, iterable, initial)


def reversed_(sequence: Any, /) -> Any:
    kind = type(sequence)
    method: Any = getattr(kind, "__reversed__", _ABSENT)
    if method is None or (method is _ABSENT and not (hasattr(kind, "__getitem__") and not issubclass(kind, dict))):
        raise TypeError(f"'{kind.__name__}' object is not reversible")
    if method is not _ABSENT:
        return special(sequence, "__reversed__")()
    return ReversedSequence(sequence)


_NOT_CALLABLE = CURRENT.worded("iter(v, w): v must be callable")


def iter_callable(function: Callable[[], Any], sentinel: Any, /) -> CallableIterator:
    """Implements `iter` with two arguments."""
    if not callable(function):
        raise TypeError(_NOT_CALLABLE)
    return CallableIterator(function, sentinel)


class CompareKey:
    """A key of `cmp_to_key`, which wraps a value."""

    __slots__ = ("compare", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare: Callable[[Any, Any], Any], obj: Any) -> None:
        self.compare = compare
        self.obj = obj

    def __lt__(self, other: CompareKey) -> Any:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: CompareKey) -> Any:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: Any) -> Any:
        return self.compare(self.obj, other.obj) == 0

    def __le__(self, other: CompareKey) -> Any:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: CompareKey) -> Any:
        return self.compare(self.obj, other.obj) >= 0


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], CompareKey]:
    return functools.partial(CompareKey, mycmp)


def pow_(base: Any, exp: Any, mod: Any = None) -> Any:
    if mod is None:
        return base**exp
    return pow(base, exp, mod)


def prod(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    total = start
    for item in iterable:
        total = total * item
    return total
