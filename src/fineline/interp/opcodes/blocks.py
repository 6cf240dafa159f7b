"""Instruction handlers for exceptions, ``with``, ``match``, imports and formatting."""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import Any

from fineline.bytecode.intrinsics import make_type_alias
from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.exception_slots import CAUSE, CONTEXT, DICT
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.opcode_families import family
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.attribute_reads import load_attr
from fineline.objects.copying import mark_made
from fineline.objects.type_info import MISSING, raw_lookup, special_method
from fineline.tracing.interp import Interp
from fineline.tracing.tracebacks import traceback_of

MAPPING_FLAG, SEQUENCE_FLAG, MATCH_SELF_FLAG = 1 << 6, 1 << 5, 1 << 22


# -- exceptions --------------------------------------------------------------------------------------------------------
def RAISE_VARARGS(interp: Interp, f: Frame, arg: int) -> Frame | None:
    cause = f.stack.pop() if arg == 2 else MISSING
    if arg == 0:
        if interp.exceptions.handled is None:
            active = interp.native(sys.exc_info, (), None)[1]
            if active is None:
                raise RuntimeError("No active exception to reraise")
            return interp.throw(active, again=True)
        return interp.throw(interp.exceptions.handled, again=True)
    exc = f.stack.pop()
    if is_a(exc, type) and issubclass(exc, BaseException):
        return interp.call(f, exc, [], None, Delivery(_raise_made, None, cause))
    return _raise_made(interp, f, exc, None, cause)


def _raise_made(interp: Interp, f: Frame, exc: Any, then: None, cause: Any) -> Frame | None:
    if not is_a(exc, BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if cause is not MISSING:
        if is_a(cause, type) and issubclass(cause, BaseException):
            return interp.call(f, cause, [], None, Delivery(_raise_from, None, exc))
        return _raise_from(interp, f, cause, None, exc)
    return interp.throw(exc)


def _raise_from(interp: Interp, f: Frame, cause: Any, then: None, exc: BaseException) -> Frame | None:
    if cause is not None and not is_a(cause, BaseException):
        raise TypeError("exception causes must derive from BaseException")
    _exception_changes(interp, exc)
    CAUSE.__set__(exc, cause)
    return interp.throw(exc)


def _exception_changes(interp: Interp, exc: BaseException) -> None:
    """Ends the capture if an exception that existed before is raised, because the program would have to change it again."""
    if interp.trace.active and exc in interp.trace.sources:
        interp.fail("FL424", "an exception object that existed before the call is raised", False)


def RERAISE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    exc = f.stack.pop()
    return interp.throw(exc, again=True)


def PUSH_EXC_INFO(interp: Interp, f: Frame, arg: int) -> None:
    exc = f.stack.pop()
    f.stack.append(interp.exceptions.handled if f.extras.generator is None else f.extras.generator.handled)
    f.stack.append(exc)
    _handles(interp, f, exc)


def POP_EXCEPT(interp: Interp, f: Frame, arg: int) -> None:
    _handles(interp, f, f.stack.pop())


def _handles(interp: Interp, f: Frame, exc: BaseException | None) -> None:
    """Sets the exception that the frame handles. A generator has its own; if it handles none, it sees that of the frame that resumed it."""
    interp.exceptions.handled = exc
    if (gen := f.extras.generator) is not None:
        gen.handled = exc
        if exc is None:
            interp.exceptions.handled = gen.outer


def _caught(classes: Any) -> tuple:
    """Returns the classes that an ``except`` clause names."""
    found: tuple = classes if is_a(classes, tuple) else (classes,)
    for c in found:
        if not (is_a(c, type) and issubclass(c, BaseException)):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    return found


def CHECK_EXC_MATCH(interp: Interp, f: Frame, arg: int) -> None:
    classes = f.stack.pop()
    _caught(classes)
    # By the MRO: CPython does not ask a metaclass.
    f.stack.append(is_a(f.stack[-1], classes))


def CHECK_EG_MATCH(interp: Interp, f: Frame, arg: int) -> None:
    classes = f.stack.pop()
    exc = f.stack[-1]
    if any([issubclass(c, BaseExceptionGroup) for c in _caught(classes)]):
        raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    match: Any
    if is_a(exc, classes):
        match, rest = (exc if is_a(exc, BaseExceptionGroup) else _wrapped(exc)), None
    elif is_a(exc, BaseExceptionGroup):
        match, rest = exc.split(classes)
    else:
        match, rest = None, exc
    if match is None:
        f.stack.append(None)
        return
    mark_made(interp.trace, match)
    mark_made(interp.trace, rest)
    f.stack[-1] = rest
    f.stack.append(match)
    _handles(interp, f, match)


def _wrapped(exc: BaseException) -> BaseExceptionGroup:
    return ExceptionGroup("", (exc,)) if is_a(exc, Exception) else BaseExceptionGroup("", (exc,))


def PREP_RERAISE_STAR(interp: Interp, f: Frame, arg: int) -> None:
    excs = f.stack.pop()
    orig = f.stack.pop()
    result = _reraised(orig, [e for e in excs if e is not None])
    mark_made(interp.trace, result)
    f.stack.append(result)


def _reraised(orig: BaseException, excs: list) -> BaseException | None:
    """Returns the exception that leaves a try/except* statement, from those that its clauses raised and those that none matched."""
    if not excs:
        return None
    if not is_a(orig, BaseExceptionGroup):
        # One naked exception was wrapped for matching; at most one clause ran.
        return excs[0]
    same = [e for e in excs if is_a(e, BaseExceptionGroup) and _same_metadata(e, orig)]
    raised = [e for e in excs if not any(e is s for s in same)]
    leaves = IdentitySet([x for e in same for x in _leaves(e)])
    again = orig.subgroup(lambda e: e in leaves) if leaves else None
    if not raised:
        return again
    if again is not None:
        raised.append(again)
    if len(raised) == 1:
        return raised[0]
    return ExceptionGroup("", raised) if all(is_a(e, Exception) for e in raised) else BaseExceptionGroup("", raised)


def _same_metadata(a: BaseException, b: BaseException) -> bool:
    notes = [DICT.__get__(e).get("__notes__") for e in (a, b)]
    return notes[0] is notes[1] and all([field.__get__(a) is field.__get__(b) for field in (CAUSE, CONTEXT)])


def _leaves(e: BaseException) -> list:
    if is_a(e, BaseExceptionGroup):
        return [x for inner in e.exceptions for x in _leaves(inner)]
    return [e]


def LOAD_ASSERTION_ERROR(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(AssertionError)


# -- with --------------------------------------------------------------------------------------------------------------
def BEFORE_WITH(interp: Interp, f: Frame, arg: int) -> Frame | None:
    manager = f.stack.pop()
    found: dict[str, Any] = {}
    for name, text in _OF_MANAGERS:
        found[name] = special_method(interp.trace, type(manager), name)
        if found[name] is MISSING:
            raise TypeError(_no_manager(interp, text, type(manager)))
    if any(map(_runs_code, found.values())):
        return interp.call(f, protocols.enter, [manager, *found], None, Delivery(_entered))
    methods = {name: _bound(descr, manager) for name, descr in found.items()}
    f.stack.append(methods["__exit__"])
    return interp.call(f, methods["__enter__"], [])


def _runs_code(descr: Any) -> bool:
    """Returns whether it runs Python code to bind ``descr``, or Python may warn of it."""
    return is_a(descr, (property, functools.partial)) or is_a(raw_lookup(type(descr), "__get__"), types.FunctionType)


def _bound(descr: Any, obj: Any) -> Any:
    if is_a(descr, types.FunctionType):
        return types.MethodType(descr, obj)
    return descr if raw_lookup(type(descr), "__get__") is MISSING else descr.__get__(obj, type(obj))


def _entered(interp: Interp, f: Frame, methods: tuple, then: Delivery | None) -> None:
    f.stack += methods


_NO_MANAGER = "'{name}' object does not support the context manager protocol"
_METHODS = (("__enter__", _NO_MANAGER), ("__exit__", f"{_NO_MANAGER} (missed __exit__ method)"))
# In the order in which CPython looks for them, with the text of the error if there is none.
_OF_MANAGERS = [(name, CURRENT.worded(text)) for name, text in (reversed(_METHODS) if CURRENT.looks_for_exit_first else _METHODS)]
_ASYNCHRONOUS = " but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?"


def _no_manager(interp: Interp, text: str, t: type) -> str:
    asynchronous = "{hint}" in text and all([special_method(interp.trace, t, name) is not MISSING for name in ("__aenter__", "__aexit__")])
    module = "" if t.__module__ in ("builtins", "__main__") else f"{t.__module__}."
    return text.format(name=t.__name__, full_name=f"{module}{t.__qualname__}", hint=_ASYNCHRONOUS if asynchronous else "")


def WITH_EXCEPT_START(interp: Interp, f: Frame, arg: int) -> Frame | None:
    exc = f.stack[-1]
    return interp.call(f, f.stack[-4], [type(exc), exc, traceback_of(exc, interp.trace)])


# -- match -------------------------------------------------------------------------------------------------------------
def MATCH_MAPPING(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(bool(type(f.stack[-1]).__flags__ & MAPPING_FLAG))


def MATCH_SEQUENCE(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(bool(type(f.stack[-1]).__flags__ & SEQUENCE_FLAG))


def MATCH_KEYS(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return interp.call(f, protocols.match_keys, [f.stack[-2], f.stack[-1]])


def MATCH_CLASS(interp: Interp, f: Frame, arg: int) -> Frame | None:
    names = f.stack.pop()
    cls = f.stack.pop()
    subject = f.stack.pop()
    if not is_a(cls, type):
        raise TypeError(CURRENT.worded("called match pattern must be a type"))
    return interp.call(f, protocols.match_class, [subject, cls, arg, names, bool(cls.__flags__ & MATCH_SELF_FLAG)])


# -- imports -----------------------------------------------------------------------------------------------------------
def IMPORT_NAME(interp: Interp, f: Frame, arg: int) -> None:
    fromlist = f.stack.pop()
    level = f.stack.pop()
    name = f.info.names[arg]
    full = name
    if level:
        package = f.globals.get("__package__") or f.globals.get("__name__", "").rpartition(".")[0]
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        full = f"{base}.{name}" if name else base
    trace = interp.trace
    if trace.active and full not in sys.modules:
        trace.pin(f.globals, f"globals of {f.globals.get('__name__')}")
        raise GraphBreak(_import, (name, f.globals, fromlist, level), None, "FL425", f"import {full} runs the module")
    module = _import(name, f.globals, fromlist, level)
    if trace.active:
        modules = trace.pin(sys.modules, "sys.modules")
        for key in dict.fromkeys((full, full if fromlist else full.partition(".")[0])):
            if key in sys.modules:
                trace.load(sys.modules[key], trace.guards.access(modules, "key", key, sys.modules[key]))
        if module not in trace.sources:
            trace.pin(module, full)
    f.stack.append(module)


def _import(name: str, globals_: dict, fromlist: Any, level: int) -> Any:
    return builtins.__import__(name, globals_, None, fromlist, level)


def IMPORT_FROM(interp: Interp, f: Frame, arg: int) -> Frame | None:
    module = f.stack[-1]
    name = f.info.names[arg]
    if not hasattr(module, name):
        full = f"{getattr(module, '__name__', '')}.{name}"
        found = sys.modules.get(full)
        if found is None:
            trace = interp.trace
            if trace.active and type(module) is types.ModuleType:
                trace.read_absent(module.__dict__, trace.dict_source(module, module.__dict__), name)
                trace.read_absent(sys.modules, trace.pin(sys.modules, "sys.modules"), full)
            file = getattr(module, "__file__", None)
            raise ImportError(
                f"cannot import name {name!r} from {getattr(module, '__name__', '<unknown module name>')!r} ({file or 'unknown location'})",
                name=getattr(module, "__name__", None),
                path=file,
            )
        f.stack.append(found)
        return None
    return load_attr(interp, f, module, name)


def LOAD_BUILD_CLASS(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(f.builtins["__build_class__"])


# -- formatting --------------------------------------------------------------------------------------------------------
CONVERSIONS = {1: str, 2: repr, 3: ascii}


def FORMAT_VALUE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    spec = f.stack.pop() if arg & 4 else ""
    value = f.stack.pop()
    convert = CONVERSIONS.get(arg & 3)
    if convert is not None:
        return interp.call(f, convert, [value], None, Delivery(_format, None, spec))
    return _format(interp, f, value, None, spec)


def _format(interp: Interp, f: Frame, value: Any, then: None, spec: str) -> Frame | None:
    if type(value) is str and not spec:
        f.stack.append(value)
        return None
    return interp.call(f, format, [value, spec])


def CONVERT_VALUE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return interp.call(f, CONVERSIONS[arg], [f.stack.pop()])


# -- type statements ---------------------------------------------------------------------------------------------------
def MAKE_TYPE_ALIAS(interp: Interp, f: Frame, arg: int) -> Frame | None:
    parts = f.stack.pop()
    if interp.trace.active:
        raise GraphBreak(make_type_alias, (parts,), None, "FL423", "an alias of a type is made")
    return interp.finish(f, make_type_alias(parts))


HANDLERS = family(globals())
