"""Statements that make a class again that the captured code has made, and what belongs to it."""

from __future__ import annotations

from types import CellType
from typing import Any

from fineline.codegen.program_text import ProgramText
from fineline.frames.graph_breaks import Uncompiled
from fineline.frames.graph_limits import GraphLimits
from fineline.tracing.recreated_classes import TYPE_DICT, MadeClass


def made_class(r: ProgramText, cls: type, made: MadeClass) -> str:
    """Writes the calls that have made a class, and its attributes that the code has set later; returns its variable."""
    if cls in r.busy or not made.calls:
        raise _not_made(f"the class {cls.__qualname__}, which contains itself, or is not complete")
    r.busy.add(cls)
    (make, args, kwargs), *changes = made.calls
    for space in args:
        cell = space.get("__classcell__") if type(space) is dict else None
        if cell is not None:
            # It gets the class when the class is made.
            r.statement("cell", f"{r.constant(CellType, 'CellType')}()", cell)
    # The region notes it: a later segment then compares what it holds.
    text = f"{r.constant(r.trace.classes.local, 'classes')}({r.constant(make, 'make')}, {r.call(args, kwargs)})"
    name = r.statement(cls.__name__, text, cls)
    r.busy.discard(cls)
    for change, args, kwargs in changes:
        r.lines.append(f"{r.constant(change, change.__name__)}({r.call(args, kwargs)})")
    r.close_cells(cls, name)
    _set_attributes(r, name, cls, made)
    return name


def _set_attributes(r: ProgramText, name: str, cls: type, made: MadeClass) -> None:
    now = dict(TYPE_DICT.__get__(cls))
    stay = [attr for attr in made.space if attr in now]
    if stay != list(now)[: len(stay)]:
        raise _not_made(f"the class {cls.__qualname__}, an attribute of which was deleted and set again")
    r.lines += [f"type.__delattr__({name}, {attr!r})" for attr in made.space if attr not in now]
    for attr, value in now.items():
        if attr not in made.space or made.space[attr] is not value:
            text = r.expr(value)
            r.lines.append(f"type.__setattr__({name}, {attr!r}, {text})")


def _not_made(text: str) -> Uncompiled:
    """Returns the exception that lets classes be made eagerly from the next capture on."""
    return Uncompiled("FL409", text, GraphLimits(made_classes=False))


def part_of_class(r: ProgramText, v: Any, cls: type) -> str:
    """Returns the expression of an object that was made together with a class."""
    made, now = r.trace.classes.made[cls], TYPE_DICT.__get__(cls)
    if any([now.get(attr) is not value for attr, value in made.space.items()]):
        raise _not_made(f"a part of the class {cls.__qualname__}, attributes of which were replaced")
    return f"{r.expr(cls)}{made.parts[v]}"
