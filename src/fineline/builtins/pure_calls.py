"""Calls of pure Python functions with plain values: CPython runs them, much faster than the interpreter, after guards on all they read.

Such a function, and all that it calls, computes plain values from plain values, with code that has no side effects. If it raises, or
returns anything but a plain value, the interpreter can therefore run the call from its start.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

from fineline.builtins import libraries
from fineline.builtins.debuggers import NAMES as STOPPING
from fineline.builtins.handlers import HANDLERS
from fineline.builtins.marks import KNOWN_CODE
from fineline.bytecode.asynchronous import let_pass
from fineline.bytecode.code import CODES
from fineline.bytecode.pure_code import MAYBE_PLAIN, TYPES, GlobalUse, is_plain, pure_code
from fineline.frames.frame import NULL, Frame
from fineline.frames.run_limits import SHALLOW
from fineline.frames.stub_frames import is_own
from fineline.objects.introspection import global_value, load_cell
from fineline.policy.decide import Rules
from fineline.torch_facts.callables import classify_torch
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.plain_values import UNSYMBOLIC
from fineline.tracing.segment_trace import SegmentTrace

# Up to this depth CPython's stack, which contains the interpreter's frames, is at least as long as it would be in eager code.
_LOW = 8
# Functions whose result contains no address that the code could show.
_FUNCTIONS = frozenset(
    {abs, all, any, ascii, bin, chr, divmod, hex, isinstance, issubclass, len, max, min, oct, ord, pow, repr, round, sorted, sum}
    | {int, float, bool, complex, str, list, dict, set, frozenset, tuple, range}
)  # fmt: skip
# Iterators, which must be consumed where they are made.
_ITERATORS = frozenset({enumerate, zip, reversed, map, filter})
_CONSUMERS = _ITERATORS | {all, any, dict, frozenset, list, max, min, set, sorted, sum, tuple}
_EXCEPTIONS = frozenset([value for value in vars(builtins).values() if type(value) is type and issubclass(value, Exception)])
_PACKAGES = frozenset({"fineline", "torch"})


class PureFunction:
    """A function that CPython may run, with the facts that captured code may change later; guards cover all else that it reads."""

    __slots__ = ("_cells", "_functions", "_namespaces", "fn", "recursive", "usable")

    def __init__(self) -> None:
        self._functions: list[tuple[FunctionType, tuple[Any, ...]]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._namespaces: list[tuple[FunctionType, dict[str, Any]]] = []
        self.fn: FunctionType | None = None
        # Whether a function may call itself, directly or through others.
        self.recursive = False
        # Whether the last run returned a plain value.
        self.usable = True

    def hold(self, trace: SegmentTrace, fn: FunctionType) -> None:
        """Adds a function that the call may run, with its closure and its namespace."""
        self.fn = self.fn or fn
        self._functions.append((fn, _parts(fn)))
        self._cells += [(cell, contents(cell)) for cell in fn.__closure__ or ()]
        names = trace.namespaces.global_values.get(fn.__globals__)
        if names is not None:
            self._namespaces.append((fn, names))

    def holds(self, trace: SegmentTrace) -> bool:
        """Returns whether captured code has changed none of the functions, closures and namespaces."""
        # A write of a global drops the known values of its namespace.
        return (
            all([a is b for fn, parts in self._functions for a, b in zip(_parts(fn), parts, strict=True)])
            and all([contents(cell) is value for cell, value in self._cells])
            and all([trace.namespaces.global_values.get(fn.__globals__) is names for fn, names in self._namespaces])
        )

    def is_within(self, depth: int) -> bool:
        """Returns whether CPython reaches the recursion limit no later than eager code, whose depth here is ``depth``."""
        return depth <= _LOW if self.recursive else depth + 2 * len(self._functions) < SHALLOW


def _parts(fn: FunctionType) -> tuple:
    """Returns the code and the defaults of a function, and whether it has attributes."""
    return fn.__code__, fn.__defaults__, fn.__kwdefaults__, bool(fn.__dict__)


def run_pure(interp: Interp, fn: FunctionType, args: list, kwargs: dict | None) -> Any:
    """Returns the result of ``fn``, run by CPython; NULL if the interpreter has to run it."""
    trace = interp.trace
    found = trace.functions.pure.get(fn)
    # Most functions are known not to be pure.
    if found is None and fn.__code__ in trace.functions.pure:
        return NULL
    for a in args:
        if type(a) not in MAYBE_PLAIN:
            return NULL
    if pure_code(fn.__code__) is None:
        trace.functions.pure[fn.__code__] = None
        return NULL
    for a in args:
        if not is_plain(a):
            return NULL
    if not may_hand_over(interp) or (kwargs and not all([is_plain(a) for a in kwargs.values()])):
        return NULL
    if found is not None and not (found.usable and found.is_within(interp.limits.depth)):
        return NULL
    if found is None or not found.holds(trace):
        if fn.__code__ in trace.functions.pure:
            return NULL
        found = find_pure(interp, fn)
        # A function that the segment made may be deleted, and another get its address; code lives on.
        trace.functions.pure[fn if found is not None else fn.__code__] = found
        if found is None:
            return NULL
    if not found.is_within(interp.limits.depth):
        return NULL
    if trace.deferred.numbers:
        given = (*args, *(kwargs or {}).values())
        if trace.deferred.unsymbolic and holds_unsymbolic(trace, given):
            return NULL
        for a in given:
            settle(trace, a)
    try:
        result = fn(*args, **kwargs) if kwargs else fn(*args)
    except Exception as e:
        let_pass(e)
        found.usable = False
        return NULL
    if not is_plain(result):
        found.usable = False
        return NULL
    interp.note_call(fn.__qualname__, fn, "captured")
    return result


def may_hand_over(interp: Interp) -> bool:
    """Returns whether CPython may run code: no tracer, deferred text or eager hook observes it, no rule can select it, and nothing runs beside it.

    What other code may change meanwhile is compared at each read, and CPython compares nothing.
    """
    ruled = interp.rules is not None and interp.rules.all
    apart = interp.eager.call_out is not None or interp.nested.opaque is not None
    return not (ruled or apart or interp.limits.turn is not None or interp.trace.deferred.texts or sys.gettrace() is not None or sys.getprofile() is not None)


def settle(trace: SegmentTrace, value: Any) -> None:
    trace.deferred.settle(value)
    if type(value) in (tuple, frozenset):
        for item in value:
            settle(trace, item)


def holds_unsymbolic(trace: SegmentTrace, values: Iterable[Any]) -> bool:
    """Returns whether there is a number among ``values``, or in tuples there, that no symbol stands for and whose guard is deferred.

    CPython would read the whole number, with a program for each value. The interpreter reads it where the code does, for example only a part.
    """
    for v in values:
        if type(v) in UNSYMBOLIC:
            src = trace.deferred.numbers.get(v)
            if src is not None and "eq" not in src.checked:
                return True
        elif type(v) is tuple and holds_unsymbolic(trace, v):
            return True
    return False


def find_pure(interp: Interp, fn: FunctionType) -> PureFunction | None:
    """Examines a function and all that it may call. Returns it with guards on all that was read; None if CPython may not run it."""
    reached, found = [fn], PureFunction()
    for g in reached:
        called = _callees(interp, g)
        if called is None:
            return None
        for callee in called:
            if any([callee is other for other in reached]):
                # Two functions that call a third also count as a recursion, which is only more careful.
                found.recursive = True
            else:
                reached.append(callee)
    for g in reached:
        if not _guard(interp, g):
            return None
    for g in reached:
        found.hold(interp.trace, g)
    return found


def _callees(interp: Interp, fn: FunctionType) -> list[FunctionType] | None:
    """Returns the Python functions that ``fn`` may call; None if it may have a side effect."""
    pure = pure_code(fn.__code__)
    # Keyword defaults are in a dict, which may change.
    if pure is None or fn.__kwdefaults__ or not is_plain(fn.__defaults__) or not _is_users(interp, fn):
        return None
    values = {use.name: _global(fn, use.name) for use in pure.uses}
    if not all([name in values and _is_in(values[name], _CONSUMERS) for name in pure.takers]):
        return None
    called = list[FunctionType]()
    if interp.rules is not None and _is_marked(interp.rules, (fn, *values.values(), *[getattr(t, name, None) for t in TYPES for name in pure.methods])):
        return None
    for use in pure.uses:
        value = values[use.name]
        if type(value) is FunctionType and use.called:
            called.append(value)
        elif not _is_harmless(value, use, values.get(use.taker)):
            return None
    # Any instruction may read a closure variable: a function in it could show its address.
    return called if all([is_plain(contents(cell)) for cell in fn.__closure__ or ()]) else None


def _is_users(interp: Interp, fn: FunctionType) -> bool:
    """Returns whether the interpreter would run the function's code, too: no handler, mark or lesson is about it."""
    name = fn.__qualname__
    return (
        HANDLERS.get(fn) is None
        and not fn.__dict__
        and (fn.__module__ or "").partition(".")[0] not in _PACKAGES
        and fn.__code__ not in KNOWN_CODE
        and name not in STOPPING
        and name not in libraries.NAMES
        and classify_torch(fn) in (None, "python")
        and fn.__code__ not in interp.lessons.functions.eager
        and not is_own(fn.__code__)
    )


def _is_marked(rules: Rules, values: tuple[Any, ...]) -> bool:
    """Returns whether one of these has a mark. Rules by name or file may select anything: with one, `may_hand_over` is false."""
    return any([rules.known(value) is not None for value in values if callable(value)])


def _global(fn: Any, name: str) -> Any:
    return fn.__globals__[name] if name in fn.__globals__ else fn.__builtins__.get(name, EMPTY)


def _is_in(value: Any, table: frozenset) -> bool:
    return type(value) in (type, BuiltinFunctionType) and value in table


def _is_harmless(value: Any, use: GlobalUse, taker: Any) -> bool:
    """Returns whether pure code may use a global value as in ``use``. ``taker``: the function that consumes the result of calling it."""
    if is_plain(value) or _is_in(value, _FUNCTIONS):
        return True
    if _is_in(value, _ITERATORS):
        return use.called and (use.walked or _is_in(taker, _CONSUMERS))
    return _is_in(value, _EXCEPTIONS) and use.raised


def _guard(interp: Interp, fn: Any) -> bool:
    """Guards a function and all that it reads. Returns whether the capture sees the same objects there as CPython."""
    trace, pure = interp.trace, pure_code(fn.__code__)
    if fn not in trace.made:
        interp.see_function(trace, fn)
    frame = Frame(CODES[fn.__code__], [], fn.__globals__, fn.__builtins__, [], None)
    values = [(global_value(interp, frame, use.name), _global(fn, use.name)) for use in pure.uses] if pure is not None else []
    values += [(load_cell(interp, cell), contents(cell)) for cell in fn.__closure__ or ()]
    for value, own in values:
        if value is not own:
            return False
        settle(trace, value)
    return True
