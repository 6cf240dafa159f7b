"""Instruction handlers for the stack, constants, variables, attributes and items."""

from __future__ import annotations

import sys
import types
from typing import Any

from fineline.builtins.subscripts import binary_subscr, delete_subscr, store_subscr
from fineline.cpython import protocols
from fineline.frames.frame import NULL, Frame
from fineline.frames.graph_breaks import Delivery
from fineline.frames.opcode_families import family
from fineline.interp.opcodes import blocks as blocks  # its import registers its handlers
from fineline.objects.attribute_errors import LOAD_ATTR, LOAD_METHOD
from fineline.objects.attribute_reads import load_attr
from fineline.objects.attribute_writes import delete_attr, store_attr
from fineline.objects.introspection import cell_is_empty, find_cell, global_value, guard_presence
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY


# -- stack and constants ---------------------------------------------------------------------------------------------
def NOP(interp: Interp, f: Frame, arg: int) -> None:
    """Does nothing: only CPython's own loop needs the instruction."""


def POP_TOP(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.pop()


def PRINT_EXPR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    """Shows the value of an expression in code of a prompt: passes it to ``sys.displayhook``."""
    return load_attr(interp, f, sys, "displayhook", Delivery(_show, None, f.stack.pop()))


def _show(interp: Interp, f: Frame, hook: Any, then: None, value: Any) -> Frame | None:
    return interp.call(f, hook, [value], None, interp.discard)


def PUSH_NULL(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(NULL)


def COPY(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(f.stack[-arg])


def SWAP(interp: Interp, f: Frame, arg: int) -> None:
    s = f.stack
    s[-1], s[-arg] = s[-arg], s[-1]


def LOAD_CONST(interp: Interp, f: Frame, arg: int) -> None:
    value = f.info.consts[arg]
    if interp.trace.deferred.numbers:
        # The constant may be the same object as a number that was passed in.
        interp.trace.deferred.settle(value)
    f.stack.append(value)


# -- variables -------------------------------------------------------------------------------------------------------
def LOAD_FAST(interp: Interp, f: Frame, arg: int) -> None:
    v = f.local[arg]
    if v is NULL:
        raise UnboundLocalError(f"cannot access local variable '{f.info.slots[arg]}' where it is not associated with a value")
    f.stack.append(v)


def LOAD_FAST_AND_CLEAR(interp: Interp, f: Frame, arg: int) -> None:
    """Moves a variable, or NULL, onto the stack while an inlined comprehension uses its slot."""
    f.stack.append(f.local[arg])
    f.local[arg] = NULL


def STORE_FAST(interp: Interp, f: Frame, arg: int) -> None:
    f.local[arg] = f.stack.pop()


def DELETE_FAST(interp: Interp, f: Frame, arg: int) -> None:
    if f.local[arg] is NULL:
        raise UnboundLocalError(f"cannot access local variable '{f.info.slots[arg]}' where it is not associated with a value")
    f.local[arg] = NULL


def MAKE_CELL(interp: Interp, f: Frame, arg: int) -> None:
    v = f.local[arg]
    cell = types.CellType() if v is NULL else types.CellType(v)
    interp.trace.made.add(cell)
    f.local[arg] = cell


def LOAD_CLOSURE(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(f.local[arg])


def _unbound(f: Frame, arg: int) -> Exception:
    name = f.info.slots[arg]
    if name in f.info.code.co_cellvars:
        return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    return NameError(f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope", name=name)


def LOAD_DEREF(interp: Interp, f: Frame, arg: int) -> None:
    value = find_cell(interp, f.local[arg])
    if value is EMPTY:
        raise _unbound(f, arg)
    f.stack.append(value)


def _write_cell(interp: Interp, cell: types.CellType) -> None:
    src = interp.trace.sources.get(cell)
    if src is not None:
        interp.trace.mutations.note(cell, src)


def STORE_DEREF(interp: Interp, f: Frame, arg: int) -> None:
    cell = f.local[arg]
    _write_cell(interp, cell)
    cell.cell_contents = f.stack.pop()


def DELETE_DEREF(interp: Interp, f: Frame, arg: int) -> None:
    cell = f.local[arg]
    guard_presence(interp, cell)
    if cell_is_empty(cell):
        raise _unbound(f, arg)
    _write_cell(interp, cell)
    del cell.cell_contents


def LOAD_GLOBAL(interp: Interp, f: Frame, arg: int) -> None:
    if arg & 1:
        f.stack.append(NULL)
    name = f.info.names[arg >> 1]
    cache = interp.trace.namespaces.global_values.get(f.globals)
    if cache is not None and name in cache:
        f.stack.append(cache[name])
        return
    f.stack.append(global_value(interp, f, name))


def LOAD_NAME(interp: Interp, f: Frame, arg: int) -> None:
    """Loads a variable of a class's body; or of a module's or an expression's code that runs as a function: its variables are globals."""
    name = f.info.names[arg]
    value = _in_class(interp, f, name)
    f.stack.append(global_value(interp, f, name) if value is NULL else value)


def LOAD_CLASSDEREF(interp: Interp, f: Frame, arg: int) -> None:
    """Loads a variable of the function around a class's body, unless the class has one of that name."""
    value = _in_class(interp, f, f.info.slots[arg])
    if value is NULL:
        LOAD_DEREF(interp, f, arg)
    else:
        f.stack.append(value)


def _in_class(interp: Interp, f: Frame, name: str) -> Any:
    """Returns a variable of the class's body that the frame runs, or NULL."""
    space = f.extras.namespace
    if space is None:
        return NULL
    src = interp.trace.sources.get(space) if interp.trace.active else None
    if name in space:
        return interp.trace.read_key(space, src, name, space[name])
    interp.trace.read_absent(space, src, name)
    return NULL


def STORE_NAME(interp: Interp, f: Frame, arg: int) -> None:
    name, space = f.info.names[arg], f.extras.namespace
    if space is None:
        STORE_GLOBAL(interp, f, arg)
    else:
        _class_write(interp, space, name)
        space[name] = f.stack.pop()


def DELETE_NAME(interp: Interp, f: Frame, arg: int) -> None:
    name, space = f.info.names[arg], f.extras.namespace
    if space is None:
        DELETE_GLOBAL(interp, f, arg)
        return
    if _in_class(interp, f, name) is NULL:
        raise NameError(f"name '{name}' is not defined", name=name)
    _class_write(interp, space, name)
    del space[name]


def _class_write(interp: Interp, space: dict[str, Any], name: str) -> None:
    """Notes a write to the namespace of a class's body, if a part of it has run before a graph break."""
    trace = interp.trace
    src = trace.sources.get(space) if trace.active else None
    if src is not None:
        trace.mutations.note(space, src, name)


def SETUP_ANNOTATIONS(interp: Interp, f: Frame, arg: int) -> Frame | None:
    """Makes the dict of the annotations of a class, or of a module's code, unless it has one."""
    return interp.call(f, protocols.set_up_annotations, [], None, interp.discard)


def STORE_GLOBAL(interp: Interp, f: Frame, arg: int) -> None:
    _global_write(interp, f, f.info.names[arg])
    f.globals[f.info.names[arg]] = f.stack.pop()


def _global_write(interp: Interp, f: Frame, name: str) -> None:
    trace = interp.trace
    if trace.active:
        src = trace.pin(f.globals, f"globals of {f.globals.get('__name__')}")
        trace.mutations.note(f.globals, src, name)
        trace.namespaces.forget_globals(f.globals)


def DELETE_GLOBAL(interp: Interp, f: Frame, arg: int) -> None:
    name = f.info.names[arg]
    if interp.trace.active:
        interp.trace.guard_presence(f.globals, interp.trace.pin(f.globals, f"globals of {f.globals.get('__name__')}"), name)
    if name not in f.globals:
        raise NameError(f"name '{name}' is not defined", name=name)
    global_value(interp, f, name)
    _global_write(interp, f, name)
    del f.globals[name]


# -- attributes and items --------------------------------------------------------------------------------------------
def STORE_ATTR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    obj = f.stack.pop()
    return store_attr(interp, f, obj, f.info.names[arg], f.stack.pop())


def DELETE_ATTR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return delete_attr(interp, f, f.stack.pop(), f.info.names[arg])


def BINARY_SUBSCR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    return binary_subscr(interp, f, f.stack.pop(), key)


def STORE_SUBSCR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    key, obj, value = s.pop(), s.pop(), s.pop()
    return store_subscr(interp, f, obj, key, value)


def DELETE_SUBSCR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    return delete_subscr(interp, f, f.stack.pop(), key)


HANDLERS = family(
    globals(), RESUME=NOP, PRECALL=NOP, COPY_FREE_VARS=NOP, LOAD_ATTR=LOAD_ATTR, LOAD_METHOD=LOAD_METHOD,
)  # fmt: skip
