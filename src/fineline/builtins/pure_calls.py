"""Calls of pure Python functions with plain values: CPython runs them, many times as fast as the interpreter, once what they read is guarded.

Such a function, and all that it calls, computes plain values of plain values, from code that can have no effect. If it raises, or gives anything
but a plain value, nothing has happened: the interpreter runs the call from its start.
"""

from __future__ import annotations

import builtins
import sys
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
from fineline.frames.stub_frames import is_own
from fineline.objects.introspection import global_value, load_cell
from fineline.policy.decide import Rules
from fineline.torch_facts.callables import classify_torch
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.tracebacks import SHALLOW

# Up to this depth, CPython's own stack is no shorter than eager code's would be: the interpreter's frames are on it.
_LOW = 8
# Those whose result has no address that anything could show.
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
    """A function that CPython may run, with what must be as it was when that was found: what else the names stood for has been guarded."""

    __slots__ = ("_cells", "_functions", "_namespaces", "fn", "recursive", "usable")

    def __init__(self) -> None:
        self._functions: list[tuple[FunctionType, tuple[Any, ...]]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._namespaces: list[tuple[FunctionType, dict[str, Any]]] = []
        self.fn: FunctionType | None = None
        # Whether a function is reached from itself, or may be.
        self.recursive = False
        # Whether the last run was of use.
        self.usable = True

    def hold(self, trace: SegmentTrace, fn: FunctionType) -> None:
        """Takes down a function, and the variables around it, that is part of the call."""
        self.fn = self.fn or fn
        self._functions.append((fn, _parts(fn)))
        self._cells += [(cell, contents(cell)) for cell in fn.__closure__ or ()]
        names = trace.namespaces.global_values.get(fn.__globals__)
        if names is not None:
            self._namespaces.append((fn, names))

    def holds(self, trace: SegmentTrace) -> bool:
        """Returns whether the captured code has changed nothing of it since."""
        # Whoever writes a global has the values that are known of its namespace forgotten.
        return (
            all([a is b for fn, parts in self._functions for a, b in zip(_parts(fn), parts, strict=True)])
            and all([contents(cell) is value for cell, value in self._cells])
            and all([trace.namespaces.global_values.get(fn.__globals__) is names for fn, names in self._namespaces])
        )

    def is_within(self, depth: int) -> bool:
        """Returns whether CPython's stack would end no later than that of eager code, whose depth here is ``depth``."""
        return depth <= _LOW if self.recursive else depth + 2 * len(self._functions) < SHALLOW


def _parts(fn: FunctionType) -> tuple:
    """Returns what makes a function what it is, and whether it has attributes."""
    return fn.__code__, fn.__defaults__, fn.__kwdefaults__, bool(fn.__dict__)


def run_pure(interp: Interp, fn: FunctionType, args: list, kwargs: dict | None) -> Any:
    """Returns what ``fn`` gives, from a run by CPython; NULL if the interpreter has to run it."""
    trace = interp.trace
    found = trace.functions.pure.get(fn)
    # Most are known not to be pure.
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
    if found is not None and not (found.usable and found.is_within(interp.depth)):
        return NULL
    if found is None or not found.holds(trace):
        if fn.__code__ in trace.functions.pure:
            return NULL
        found = find_pure(interp, fn)
        # A function that was made here may be gone, and another one have its id; code stays.
        trace.functions.pure[fn if found is not None else fn.__code__] = found
        if found is None:
            return NULL
    if not found.is_within(interp.depth):
        return NULL
    if trace.deferred.numbers:
        for a in (*args, *(kwargs or {}).values()):
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
    """Returns whether nobody asks to see what the code does, and no rule may be about it."""
    ruled = interp.rules is not None and interp.rules.all
    return not (ruled or interp.texts or interp.call_out is not None or interp.opaque is not None or sys.gettrace() is not None or sys.getprofile() is not None)


def settle(trace: SegmentTrace, value: Any) -> None:
    trace.deferred.settle(value)
    if type(value) in (tuple, frozenset):
        for item in value:
            settle(trace, item)


def find_pure(interp: Interp, fn: FunctionType) -> PureFunction | None:
    """Looks at a function and at all that it reaches; if CPython may run it, what was looked at is guarded as the interpreter does."""
    reached, found = [fn], PureFunction()
    for g in reached:
        called = _callees(interp, g)
        if called is None:
            return None
        for callee in called:
            if any([callee is other for other in reached]):
                # Two that call a third are taken for a recursion: no harm is done.
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
    """Returns the functions in Python that ``fn`` may call; None: it may do something that has an effect."""
    pure = pure_code(fn.__code__)
    # Defaults in a dict may change in it.
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
    # A variable may be read by any instruction: a function there could be told by its address.
    return called if all([is_plain(contents(cell)) for cell in fn.__closure__ or ()]) else None


def _is_users(interp: Interp, fn: FunctionType) -> bool:
    """Returns whether a function is no more than its code: the interpreter, too, would run that."""
    name = fn.__qualname__
    return (
        HANDLERS.get(fn) is None
        and not fn.__dict__
        and (fn.__module__ or "").partition(".")[0] not in _PACKAGES
        and id(fn.__code__) not in KNOWN_CODE
        and name not in STOPPING
        and name not in libraries.NAMES
        and classify_torch(fn) in (None, "python")
        and fn.__code__ not in interp.lessons.functions.eager
        and not is_own(fn.__code__)
    )


def _is_marked(rules: Rules, values: tuple[Any, ...]) -> bool:
    """Returns whether a mark is about one of these. Rules by a name or a file may be about anything: where there are some, nothing is handed over."""
    return any([rules.known(value) is not None for value in values if callable(value)])


def _global(fn: Any, name: str) -> Any:
    return fn.__globals__[name] if name in fn.__globals__ else fn.__builtins__.get(name, EMPTY)


def _is_in(value: Any, table: frozenset) -> bool:
    return type(value) in (type, BuiltinFunctionType) and value in table


def _is_harmless(value: Any, use: GlobalUse, taker: Any) -> bool:
    """Returns whether a global value may be used like that; a call of ``taker`` gets the result first."""
    if is_plain(value) or _is_in(value, _FUNCTIONS):
        return True
    if _is_in(value, _ITERATORS):
        return use.called and (use.walked or _is_in(taker, _CONSUMERS))
    return _is_in(value, _EXCEPTIONS) and use.raised


def _guard(interp: Interp, fn: Any) -> bool:
    """Guards what a function is and reads; -> whether all of it is, for the capture, what it is for CPython."""
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
