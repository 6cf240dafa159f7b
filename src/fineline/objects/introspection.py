"""Handlers of introspection: frames, names, exceptions and signatures."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import weakref
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fineline.bytecode.code import CO_OPTIMIZED
from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.errors import Unsupported
from fineline.frames.frame import NULL, Frame, InterpretedGenerator, stack
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.stub_frames import frame_of_stub, is_own, is_stand_in, user_stack
from fineline.kinds import is_a, is_users_class
from fineline.objects import c_access, c_calls
from fineline.objects.attribute_reads import load_attr
from fineline.objects.c_argument_errors import refused
from fineline.tracing.identity_guards import REFERENT, guard_reference, same_target, shown_by
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.lessons import EagerFunction
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.plain_values import is_value
from fineline.tracing.tracebacks import entry_of_now, handling_frame, traceback_of, variables_at

# Functions that only read a mapping, and do not give it back.
_READERS = (sorted, list, tuple, set, frozenset, dict, len)
# Whether the namespaces of ``eval`` and ``exec`` may be given by keyword, as from Python 3.13 on.
_NAMED = not str(getattr(eval, "__text_signature__", "/)")).endswith("/)")
# The attributes of frames that do not depend on what runs later, and those that the interpreter follows.
_OF_RUNNING = frozenset({"f_back", "f_code", "f_globals", "f_lasti", "f_lineno"})


def load_cell(interp: Interp, cell: types.CellType) -> Any:
    """Returns the contents of a cell, guarded if the cell existed before the segment."""
    value = cell.cell_contents
    trace = interp.trace
    src = trace.sources.get(cell)
    if src is not None and not trace.mutations.wrote(cell):
        # The variable's name identifies a varying value in later calls.
        return trace.read(value, trace.guards.access(src, "cell", src.variable(), value))
    return value


def find_cell(interp: Interp, cell: types.CellType) -> Any:
    """Returns the contents of a cell, or `EMPTY`; either is guarded if the cell existed before the segment."""
    if contents(cell) is not EMPTY:
        return load_cell(interp, cell)
    guard_presence(interp, cell)
    return EMPTY


def guard_presence(interp: Interp, cell: types.CellType) -> None:
    """Guards whether a cell that existed before the segment has contents, not what they are."""
    trace = interp.trace
    if trace.active and cell in trace.sources and not trace.mutations.wrote(cell):
        check = (cell_is_empty, "is an empty cell") if cell_is_empty(cell) else (cell_is_full, "is a cell with contents")
        trace.guards.check(trace.sources[cell], "predicate", check, check[1])


def cell_is_empty(cell: types.CellType) -> bool:
    return contents(cell) is EMPTY


def cell_is_full(cell: types.CellType) -> bool:
    return contents(cell) is not EMPTY


def _locals(call: Call) -> Frame | None:
    return call.finish(_namespace(call.interp, call.frame))


def _users(f: Frame) -> Frame:
    """Returns the frame that a C function sees as its caller, even if `map` or the like calls it."""
    while is_own(f.info.code) and f.back is not None:
        f = f.back
    return f


def _namespace(interp: Interp, f: Frame) -> Any:
    """Returns a frame's names as a dict. Up to Python 3.12, a function has one such dict, updated at each call; other entries in it stay."""
    f = _users(f)
    trace, code = interp.trace, f.info.code
    out = f.extras.namespace
    if not code.co_flags & CO_OPTIMIZED:
        # The body of a class, or the code of a module that runs as a function.
        if out is None and trace.active:
            trace.pin(f.globals, "globals()")
        return f.globals if out is None else out
    if out is None:
        out = trace.fresh({})
        if CURRENT.one_namespace:
            f.own_extras().namespace = out
    src = trace.sources.get(out)
    if src is not None and trace.active:
        trace.expand(out)
        trace.mutations.note(out, src)
    for name, value in zip(f.info.slots, f.local, strict=True):
        if type(value) is types.CellType and (name in code.co_cellvars or name in code.co_freevars):
            try:
                value = load_cell(interp, value)
            except ValueError:
                value = NULL
        if value is not NULL:
            out[name] = value
        else:
            out.pop(name, None)
    return out


def _look_at(interp: Interp, f: Frame | None) -> None:
    """Makes programs keep all variables of the running functions from the next capture on."""
    while f is not None:
        interp.lessons.functions.inspected.add(f.info.code)
        f = f.back
    interp.fail("FL439", "variables are looked at through a frame", False)


def _get_frame(call: Call) -> Frame | None:
    """Handles sys._getframe(). The frame may be that of an interpreted function, of which programs know the code, the line and the globals.

    If the code reads ``f_locals``, programs must keep variables that no later instruction reads.
    """
    trace, codes = call.trace, [frame.info.code for frame in stack(call.frame)]
    if trace.active and any(["f_locals" in code.co_names for code in codes]):
        if not call.interp.lessons.functions.inspected.issuperset(codes):
            _look_at(call.interp, call.frame)
    elif trace.active and len(call.args) <= 1 and not call.kwargs and all([type(depth) is int for depth in call.args]):
        within = max(call.args, default=0) < sum([not is_own(code) for code in codes])
        if within and call.then is None and _looks_only(call.frame):
            return call.finish(_asked_for(call, call.native(), (call.frame.info.code, call.frame.ip - 1)))
    return c_calls.call_c(call)


def _looks_only(f: Frame) -> bool:
    """Returns whether the code only reads attributes, which the interpreter knows, of the frame that it is about to get."""
    instructions, names = f.info.instructions, f.info.names
    name, variable = instructions[f.ip]
    if name == "LOAD_ATTR":
        return names[variable] in _OF_RUNNING
    uses = [k for k, (name, arg) in enumerate(instructions) if name.startswith("LOAD_FAST") and arg == variable]
    return name == "STORE_FAST" and all([instructions[k + 1][0] == "LOAD_ATTR" and names[instructions[k + 1][1]] in _OF_RUNNING for k in uses])


def _asked_for(call: Call, frame: types.FrameType, called_at: tuple[types.CodeType, int]) -> types.FrameType:
    call.trace.functions.frames[frame] = called_at
    return call.trace.fresh(frame)


def _reads_at_once(call: Call, reading: tuple[str, ...] = ("get", "copy")) -> bool:
    """Returns whether the value of an attribute read is a mapping that the next instruction only reads: nothing else gets it.

    ``reading``: the methods that only read.
    """
    f = call.frame
    following = f.info.instructions[f.ip : f.ip + 2]
    match [name for name, _ in following]:
        case ["GET_ITER" | "CONTAINS_OP" | "DICT_UPDATE" | "DICT_MERGE", *_] | ["LOAD_CONST" | "LOAD_FAST" | "LOAD_GLOBAL" | "LOAD_DEREF", "BINARY_SUBSCR"]:
            return call.then is None
        case ["CALL", *_]:
            return call.then is None and following[0].arg == 1 and any([f.stack[-1] is reader for reader in _READERS])
        case ["LOAD_METHOD", *_]:
            return call.then is None and f.info.names[following[0].arg] in reading
    return False


def _of_frame(call: Call) -> Frame | None:
    """Delivers an attribute of a frame: for a stand-in frame, that of the interpreter's frame."""
    interp, f, (frame, name) = call.interp, call.frame, call.args
    found = frame_of_stub(frame, f)
    if found is not None and name == "f_lineno":
        return call.finish(found.line)
    called_at = call.trace.functions.frames.get(frame) if call.trace.active and frame not in call.trace.sources else None
    if called_at is not None and name != "f_locals":
        return call.finish(_of_running(call, frame, found, called_at))
    if name == "f_locals" and is_stand_in(frame.f_code):
        if found is None or not found.extras.whole:
            _look_at(interp, f)
            text = f"the variables of {frame.f_code.co_qualname} are looked at, and only those still needed are left; the next call has them all"
            raise interp.outcome.abandon(Unsupported(text, id="FL439", where=f"{f.file}:{f.line}", stack=user_stack(f)))
        if not CURRENT.one_namespace and not _reads_at_once(call):
            raise _may_write(interp, f, found)
        if found.info.code not in interp.lessons.functions.inspected:
            _look_at(interp, f)
        return call.finish(_namespace(interp, found))
    running = handling_frame(frame, f, interp.exceptions.handled) if name == "f_locals" else None
    if running is not None:
        return call.finish(_variables_of_now(call, frame, running))
    if call.trace.active and frame in call.trace.sources:
        raise GraphBreak(getattr, (frame, name), None, "FL431", f"reading .{name} of a frame that existed before the call")
    return call.finish(getattr(frame, name))


def _of_running(call: Call, frame: types.FrameType, running: Frame | None, called_at: tuple[types.CodeType, int]) -> Any:
    """Returns an attribute of a frame that the code has asked for: that of the interpreter's frame, which is the same at each call."""
    name = call.args[1]
    if running is not None and name == "f_lasti":
        return running.info.offsets[max(running.ip - 1, 0)]
    if running is not None and name in ("f_code", "f_globals"):
        value = running.info.code if name == "f_code" else running.globals
        call.trace.pin(value, f"{name} of {running.info.code.co_qualname}")
        return value
    back = frame.f_back
    if name == "f_back" and back is not None and frame_of_stub(back, call.frame) is not None:
        return _asked_for(call, back, called_at)
    raise GraphBreak(getattr, (frame, name), None, "FL431", f"reading .{name} of a frame")


def _variables_of_now(call: Call, entry: types.FrameType, running: Frame) -> Any:
    """Returns what ``f_locals`` of a traceback entry gives whose frame still runs."""
    now = variables_at(entry, running)
    if CURRENT.one_namespace:
        # Each read gives the same dict, in which names that others have put there stay.
        shown: dict[str, Any] = entry.f_locals
        for name in entry.f_code.co_varnames:
            if name not in now:
                shown.pop(name, None)
        shown.update(now)
        return call.trace.fresh(shown)
    if _reads_at_once(call):
        return call.trace.fresh(now)
    if not _reads_at_once(call, ("items", "keys", "values")):
        raise _may_write(call.interp, call.frame, running)
    # A mapping whose methods return lists, which a dict's do not.
    return entry_of_now(entry, running).f_locals


def _may_write(interp: Interp, f: Frame, looked_at: Frame) -> BaseException:
    """Returns what abandons the capture where the variables of a frame may be written through its ``f_locals``."""
    text = f"what .f_locals gives writes through to the variables of {looked_at.info.code.co_qualname}, and this use may write"
    interp.lessons.functions.leave(looked_at.info.code, EagerFunction(True, "FL439", text))
    text += "; from the next call on that function runs in Python"
    return interp.outcome.abandon(Unsupported(text, id="FL439", where=f"{f.file}:{f.line}", stack=user_stack(f)))


def _evaluate(call: Call) -> Frame | None:
    """Handles eval() and exec(), which look up names in the calling frame."""
    if _NAMED and call.kwargs:
        call.args, call.kwargs = _by_place(call.args, call.kwargs)
    if call.kwargs and call.fn is eval:
        return refused(call)
    if len(call.args) < 2 or call.args[1] is None:
        names = call.args[2] if len(call.args) > 2 and call.args[2] is not None else _namespace(call.interp, call.frame)
        call.args = [*call.args[:1], _users(call.frame).globals, names]
        if call.trace.active:
            call.trace.pin(call.args[1], "globals()")
    return call.run_eagerly("FL411", f"{call.fn.__name__}() runs code that is not there yet")


def _by_place(args: list, kwargs: dict[str, Any]) -> tuple[list, dict[str, Any]]:
    """Returns the arguments of eval() or exec() with the namespaces given by keyword in their places, and the other keyword arguments."""
    args, kwargs = list(args), dict(kwargs)
    if len(args) == 1 and ("globals" in kwargs or "locals" in kwargs):
        args.append(kwargs.pop("globals", None))
    if len(args) == 2 and "locals" in kwargs:
        args.append(kwargs.pop("locals"))
    return args, kwargs


def _dir(call: Call) -> Frame | None:
    if not call.args:
        names = _namespace(call.interp, call.frame)
        if call.trace.active:
            call.trace.expand(names)
        return call.finish(call.trace.fresh(sorted(names)))
    return call.run_eagerly("FL411", "dir() can't be captured")


def _globals(call: Call) -> Frame | None:
    names = _users(call.frame).globals
    if call.trace.active:
        call.trace.pin(names, "globals()")
    return call.finish(names)


def _vars(call: Call) -> Frame | None:
    if not call.args:
        return _locals(call)
    t = type(call.args[0])
    if not is_a(call.args[0], (type, types.ModuleType)) and not t.__dictoffset__ and not is_users_class(t):
        return refused(call)
    return load_attr(call.interp, call.frame, call.args[0], "__dict__", call.then)


def _exc_info(call: Call) -> Frame | None:
    e = call.interp.exceptions.handled
    if e is None:
        return call.finish(call.interp.native(sys.exc_info, (), None))
    return call.finish((type(e), e, traceback_of(e, call.trace)))


def _exception(call: Call) -> Frame | None:
    return call.finish(call.interp.exceptions.handled if call.interp.exceptions.handled is not None else call.interp.native(sys.exception, (), None))


def _call_weakref(call: Call) -> Frame | None:
    """Handles ``ref()``: guards that the referent is the same object, to which the program holds a weak reference."""
    trace = call.trace
    ref = call.args[0]
    # Without ref(): a subclass, such as WeakMethod, may return another object.
    obj = REFERENT(ref)
    src = trace.sources.get(ref)
    if src is None and trace.active and ref in trace.made:
        # Only the call itself can find out whether the object is still alive then.
        raise GraphBreak(REFERENT, (ref,), None, "FL410", "a weak reference made here")
    if src is not None and trace.active:
        trace.guards.check(src, "predicate", (partial(same_target, ref if obj is not None else None), "refers to the same object"), "target")
        if obj is not None and obj not in trace.sources and obj not in trace.made:
            raise GraphBreak(REFERENT, (ref,), None, "FL410", "a weak reference to an object that is reached in no other way")
    return call.finish(obj)


def _refer(call: Call) -> Frame | None:
    """Handles ``weakref.ref`` of an existing object: CPython returns the one without a callback that there is, and so do programs."""
    trace, args = call.trace, call.args
    plain = len(args) == 1 and not call.kwargs and args[0] in trace.sources and type(args[0]).__weakrefoffset__ != 0
    if trace.active and plain and (is_a(args[0], (dict, Tensor)) or c_access.hashable(args[0])):
        ref = weakref.ref(args[0])
        src = trace.sources.get(ref)
        if src is None:
            return call.finish(trace.fresh(ref))
        guard_reference(trace, ref, src)
        return call.finish(ref)
    return c_calls.call_c(call)


def _signature(call: Call) -> Frame | None:
    """Handles ``inspect.signature`` of a function: the result depends on the code and the defaults, which are guarded."""
    trace, args = call.trace, call.args
    target = args[0].__func__ if is_a(args[0], types.MethodType) else args[0]
    if not trace.active or not is_a(target, types.FunctionType) or len(args) > 1 or call.kwargs:
        return call.run_eagerly("FL410", f"inspect.signature of a {type(target).__name__}")
    wrapped: Any = target
    while is_a(wrapped, types.FunctionType):
        call.interp.see_function(trace, wrapped)
        d = wrapped.__dict__
        src = trace.dict_source(wrapped, d)
        for name in ("__signature__", "__wrapped__"):
            if name in d:
                trace.read_key(d, src, name, d[name])
            else:
                trace.read_absent(d, src, name)
        wrapped = d.get("__wrapped__")
    result = call.fn(*args)
    # The dict of the parameters is reached only through its mappingproxy.
    trace.made.update((result, result.parameters, shown_by.__get__(result.parameters, MappingProxyType), *result.parameters.values()))
    trace.kept.append(result)
    return call.finish(result)


_STATES: Mapping[str, str] = MappingProxyType(
    {"new": inspect.GEN_CREATED, "suspended": inspect.GEN_SUSPENDED, "running": inspect.GEN_RUNNING, "closed": inspect.GEN_CLOSED}
)


def _generator_state(call: Call) -> Frame | None:
    if len(call.args) == 1 and type(call.args[0]) is InterpretedGenerator:
        return call.finish(_STATES[call.args[0].state])
    return call.interpret()


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        builtins.dir: _dir,
        protocols.of_frame: _of_frame,
        sys._getframe: _get_frame,
        builtins.eval: _evaluate,
        builtins.exec: _evaluate,
        builtins.locals: _locals,
        builtins.globals: _globals,
        builtins.vars: _vars,
        sys.exc_info: _exc_info,
        sys.exception: _exception,
        inspect.getgeneratorstate: _generator_state,
        inspect.signature: _signature,
        REFERENT: _call_weakref,
        weakref.ref: _refer,
    }
)


def global_value(interp: Interp, f: Frame, name: str) -> Any:
    """Returns a global or builtin by name, guarded."""
    trace = interp.trace
    g = f.globals
    if not trace.active:
        if name in g:
            return g[name]
        if name in f.builtins:
            return f.builtins[name]
        raise NameError(f"name '{name}' is not defined", name=name)
    cache = trace.namespaces.global_values.get(g)
    if cache is None:
        cache = trace.namespaces.global_values[g] = {}
    if name in cache:
        return cache[name]
    src = trace.sources.get(g)
    if is_own(f.info.code):
        # Polyfills read only names that no user code changes.
        value = g[name] if name in g else f.builtins[name]
        if not is_value(value):
            trace.pin(value, name)
        cache[name] = value
        return value
    if src is None:
        src = trace.pin(g, f"globals of {g.get('__name__')}")
    if name in g:
        value = trace.read_key(g, src, name, g[name])
    else:
        trace.read_absent(g, src, name)
        if name not in f.builtins:
            raise NameError(f"name '{name}' is not defined", name=name)
        b = trace.pin(f.builtins, "builtins")
        value = trace.read_key(f.builtins, b, name, f.builtins[name])
    cache[name] = value
    return value
