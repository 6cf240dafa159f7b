"""Iterations of pure loops: CPython runs the remaining ones at once, on copies of the containers created in the segment.

If an iteration raises, or a variable gets anything but plain values and containers of these, the run has no effect: the interpreter runs it.
"""

from __future__ import annotations

import sys
from types import CellType, FunctionType
from typing import Any

from fineline.builtins.pure_calls import PureFunction, find_pure, holds_unsymbolic, may_hand_over, settle
from fineline.bytecode.asynchronous import let_pass
from fineline.bytecode.pure_code import is_plain
from fineline.bytecode.pure_loops import PureLoop
from fineline.cpython.iterator_states import iterator_state, set_iterator_state
from fineline.frames.frame import NULL, Frame
from fineline.frames.opcode_families import Handler
from fineline.identity import AddressMap, IdentitySet
from fineline.objects.introspection import load_cell
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import SegmentTrace

# A copy is made at each entry of an inner loop, so that copying a large container would take quadratic time. Sets are not copied: a copy
# may have its items in another order.
_MOST_ITEMS = 64
_MOST_DEEP = 8
_CONTAINERS = (list, dict)
_MADE = (list, dict, set)
_ITERATORS = frozenset(map(type, (iter(range(0)), iter(range(1 << 64)), iter(()), iter(""), iter([]), enumerate(()), zip())))


# Some Python implementations do not have it: then the interpreter runs loops over iterators.
_COUNT = getattr(sys, "getrefcount", None)


def _references(holder: list | tuple, at: int) -> int | None:
    return _COUNT(holder[at]) if _COUNT is not None else None


# The references to an iterator that only its holder has; and additional ones, by the type of the iterator that holds it.
_ALONE = _references([iter(())], 0) or 0
_FURTHER = {enumerate: 1}


def handing_over(handler: Handler, loop: PureLoop) -> Handler:
    """Returns a handler of a jump to the start of ``loop``: after the jump, CPython runs the remaining iterations."""

    def jump(interp: Interp, f: Frame, arg: int) -> Frame | None:
        new = handler(interp, f, arg)
        if new is None and f.ip == arg and interp.trace.active:
            _run_iterations(interp, f, loop)
        return new

    return jump


def _run_iterations(interp: Interp, f: Frame, loop: PureLoop) -> None:
    trace, key = interp.trace, loop.code
    found = trace.functions.pure.get(key)
    if (found is not None and not found.usable) or interp.nested.condition is not None or not may_hand_over(interp):
        return
    entry = _Entry(trace)
    given = entry.values(interp, f, loop)
    if found is None or not found.holds(trace):
        found = _look(interp, f, loop) if found is None and given is not None else PureFunction()
        trace.functions.pure[key] = found
    found.usable = found.usable and given is not None and found.fn is not None and found.is_within(interp.limits.depth)
    if not found.usable:
        return
    assert given is not None
    assert found.fn is not None
    try:
        left, variables = found.fn(*given)
    except Exception as e:
        let_pass(e)
        found.usable = False
        return
    found.usable = entry.takes((*left, *variables))
    if found.usable:
        entry.write()
        f.stack[len(f.stack) - loop.depth :] = [entry.value(v) for v in left]
        for slot, value in zip(loop.written, variables, strict=True):
            if value is not NULL:
                f.local[slot] = entry.value(value)
        f.ip = loop.end
        # CPython has run these iterations.
        interp.limits.jumps = 0


def _look(interp: Interp, f: Frame, loop: PureLoop) -> PureFunction:
    fn = FunctionType(loop.code, f.globals)
    # The program will contain the function, so that the trace keeps it alive.
    interp.trace.kept.append(interp.trace.fresh(fn))
    return find_pure(interp, fn) or PureFunction()


class _Entry:
    """The arguments of a loop, and the containers that the loop gets copies of."""

    __slots__ = ("_cap", "_copies", "_depth", "_found", "_originals")

    def __init__(self, trace: SegmentTrace) -> None:
        self._cap = trace
        # The copy of each container, and the original of each copy: each table keeps the keys of the other alive.
        self._copies: AddressMap[Any] = AddressMap()
        self._originals: AddressMap[Any] = AddressMap()
        self._depth = 0
        # The containers in the results of a loop.
        self._found: list[Any] = []

    def values(self, interp: Interp, f: Frame, loop: PureLoop) -> list | None:
        """Returns the arguments of the loop's code; None if one has no value, or is not a plain value or a container that can be copied."""
        given: list[Any] = [NULL] * f.info.nslots
        for slot in loop.live:
            value = f.local[slot]
            if type(value) is CellType:
                try:
                    value = load_cell(interp, value)
                except ValueError:
                    return None
            given[slot] = self._copy(value)
        for k in range(len(f.stack) - loop.depth, len(f.stack)):
            # A comprehension also has its iterator in its first variable.
            again = f.info.slots[0] == ".0" and f.local[0] is f.stack[k]
            given.append(self._taken(f.stack, k, _ALONE + again))
        if any([given[slot] is NULL for slot in (*loop.live, *range(f.info.nslots, len(given)))]):
            return None
        return given

    def _copy(self, value: Any) -> Any:
        """Returns a plain value, or a copy of a container or of an iterator; NULL for other values."""
        if is_plain(value):
            if self._cap.deferred.unsymbolic and holds_unsymbolic(self._cap, (value,)):
                return NULL
            settle(self._cap, value)
            return value
        t = type(value)
        if value in self._copies:
            return self._copies[value]
        return self._copied(value, _MOST_ITEMS) if t in _CONTAINERS else NULL

    def _copied(self, container: Any, most: float) -> Any:
        """Returns a copy of a list or a dict created in the segment, and of those in it; NULL if that is not possible."""
        own = container in self._cap.made and container not in self._cap.sources
        if not own or len(container) > most or self._depth == _MOST_DEEP:
            return NULL
        copy: Any = type(container)()
        self._note(container, copy)
        self._depth += 1
        items = [self._copy(item) for item in _items(container)]
        self._depth -= 1
        if any([item is NULL for item in items]) or not all(map(is_plain, container if type(container) is dict else ())):
            return NULL
        _fill(copy, container, items)
        return copy

    def _note(self, value: Any, copy: Any) -> None:
        self._copies[value] = copy
        self._originals[copy] = value

    def _taken(self, holder: list | tuple, at: int, references: int) -> Any:
        """Returns a copy of an iterator that nothing else refers to; for other values, the result of `_copy`."""
        if type(holder[at]) not in _ITERATORS:
            return self._copy(holder[at])
        if _references(holder, at) != references or holder[at] in self._cap.sources:
            return NULL
        copy = self._iterator(holder[at])
        if copy is not NULL:
            self._note(holder[at], copy)
        return copy

    def _iterator(self, it: Any) -> Any:
        make, args, *state = iterator_state(it)
        given = [self._source_of(args, k, _ALONE + _FURTHER.get(make, 0)) for k in range(len(args))]
        if any([copy is NULL for copy in given]):
            return NULL
        new = make(*given)
        # From Python 3.12 on, an iterator over a range has None as its state.
        if state and state[0] is not None:
            set_iterator_state(new, *state)
        return new

    def _source_of(self, args: tuple, at: int, references: int) -> Any:
        """Returns an argument for the copy of an iterator: a copy of the container that it iterates over, or its position."""
        t = type(args[at])
        if t is tuple:
            settle(self._cap, args[at])
            return args[at] if all(map(is_plain, args[at])) else NULL
        if t is list and args[at] not in self._copies:
            return self._copied(args[at], float("inf"))
        return self._taken(args, at, references)

    def takes(self, values: tuple) -> bool:
        """Returns whether the capture can continue with the results of a loop: plain values, and containers of these."""
        todo, seen = [*values, *self._copies.values()], IdentitySet()
        for value in todo:
            if value is NULL or is_plain(value) or value in seen:
                continue
            seen.add(value)
            t = type(value)
            if t in _MADE:
                self._found.append(value)
                if t is not list and not all(map(is_plain, value)):
                    return False
                todo += _items(value) if t in _CONTAINERS else ()
            elif value not in self._originals:
                return False
        return True

    def write(self) -> None:
        """Writes the contents of the copies into the containers of the captured code, and notes the new containers."""
        for found in self._found:
            container = self.value(found)
            if container is found:
                self._cap.fresh(found)
            if type(found) in _CONTAINERS:
                _fill(container, found, [*map(self.value, _items(found))])

    def value(self, value: Any) -> Any:
        """Returns the original of a copy; other values unchanged."""
        return self._originals.get(value, value)


def _items(container: list | dict) -> list:
    return [*container.values()] if type(container) is dict else [*container]


def _fill(container: list | dict, keys: list | dict, items: list) -> None:
    """Replaces the contents of a container by ``items``, for a dict under the keys of ``keys``."""
    if type(container) is dict:
        entries = [*zip(keys, items, strict=True)]
        container.clear()
        container.update(entries)
    else:
        container[:] = items
