"""Lowering: it knows each instruction of this Python, and what it makes keeps the heights of the stack."""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import dataclasses
import dis
import enum
import inspect
import tarfile
import types
import typing

import pytest

from fineline import refusals
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CODES, CodeInfo
from fineline.bytecode.instructions import effect, jumps
from fineline.bytecode.version import CURRENT
from fineline.interp.opcodes.table import HANDLERS
from tests.bytecode.test_code import long_jumps

MODULES = (argparse, ast, collections, contextlib, dataclasses, enum, inspect, tarfile, typing)
# CPython itself puts these into code, or around it, while it runs; `co_code` never shows them. The compiler's own ones have larger numbers.
UNSEEN = {"CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}


def codes() -> list[types.CodeType]:
    todo = [long_jumps(), *[compile(inspect.getsource(module), module.__name__, "exec") for module in MODULES]]
    for code in todo:
        todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return todo


def test_all_instructions_are_known() -> None:
    shown = {name for name, op in dis.opmap.items() if op < 256 and not name.startswith("INSTRUMENTED_")} - UNSEEN
    assert shown - CURRENT.rules.keys() - CURRENT.refused.keys() - HANDLERS.keys() == set()
    # Nothing is listed twice, or is not there.
    assert CURRENT.rules.keys() - shown == set()
    assert CURRENT.refused.keys() & (CURRENT.rules.keys() | HANDLERS.keys()) == set()
    assert set(CURRENT.refused.values()) <= refusals.REFUSALS.keys()


def heights(info: CodeInfo) -> dict[int, int]:
    """Returns the height of the stack before each instruction that can be reached; two ways to one must agree."""
    found = {0: 0, **{h.target: h.depth + h.lasti + 1 for h in info.handlers}}
    todo = [*found]
    while todo:
        k = todo.pop()
        name, arg = info.instructions[k]
        ways = [(arg, True)] if jumps(name) else []
        if name not in ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"):
            ways.append((k + 1, False))
        for at, jump in ways:
            height = found[k] + effect(name, arg, jump)
            if at not in found:
                todo.append(at)
            assert found.setdefault(at, height) == height >= 0, (info.code, k, name, arg)
    return found


@pytest.mark.parametrize("code", [pytest.param(c, id=f"{c.co_name}-{n}") for n, c in enumerate(codes()) if len(c.co_code) > 300])
def test_lowered_code(code: types.CodeType) -> None:
    info = CODES[code]
    names = {name for name, _ in info.instructions}
    if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR) or not names.isdisjoint(CURRENT.refused):
        return
    assert names <= HANDLERS.keys()
    assert len(info.instructions) == len(info.offsets) == len(info.lines)
    found = heights(info)
    assert max(found.values()) <= code.co_stacksize
    for h in info.handlers:
        assert all(found[k] >= h.depth - (info.instructions[h.target].name == "CLEANUP_THROW") for k in range(h.start, h.end) if k in found)


def test_lines_of_lowered_code() -> None:
    def fn(a, b):
        c = (
            a
            or b
        )  # fmt: skip
        return [
            x
            for x in c
        ]  # fmt: skip

    info = CODES[fn.__code__]
    known = {i.offset: i.positions.lineno or fn.__code__.co_firstlineno for i in dis.get_instructions(fn) if i.positions is not None}
    assert info.lines == [known[offset] for offset in info.offsets]


def test_only_loops_jump_back() -> None:
    """Handlers lie at the end of the code from 3.12 on, and jump to what follows their statement."""

    def loops(xs):
        try:
            for x in xs:
                try:
                    x()
                except ValueError:
                    continue
                except TypeError:
                    try:
                        x(1)
                    except KeyError:
                        for y in x:
                            y()
                    x(2)
                else:
                    x(3)
                with x:
                    x(4)
        except ValueError:
            pass
        while xs:
            try:
                xs()
            except ValueError:
                continue
            finally:
                xs(5)
        try:
            xs()
        finally:
            xs = 6
        return xs

    info = CODES[loops.__code__]
    back = {i.arg for i in info.instructions if "BACKWARD" in i.name}
    heads = {k for k, (name, _) in enumerate(info.instructions) if name == "FOR_ITER"}
    lines = {info.lines[k] - info.code.co_firstlineno for k in back - heads}
    # Two of them with `for`. The one with `while` has two turns, after `continue` and at the end of its body: up to 3.13, only that after
    # `continue` leads to the condition, and the other to the body, as the condition has been written a second time.
    assert heads <= back and len(heads) == 2 and lines in ({20, 21}, {20})


@pytest.mark.skipif(bool(CURRENT.rules), reason="only 3.11 has these instructions")
@pytest.mark.parametrize("name", sorted(dis.opmap))
def test_effects_on_the_stack(name: str) -> None:
    """Held against those of CPython 3.11, whose instructions are the interpreter's."""
    op = dis.opmap[name]
    args = range(32) if op >= dis.HAVE_ARGUMENT else (0,)
    args = {"BUILD_SLICE": (2, 3), "MAKE_FUNCTION": range(16), "PRECALL": (0,), "CALL": (0,), "RAISE_VARARGS": (0, 1, 2)}.get(name, args)
    more = name == "RETURN_GENERATOR"  # It leaves what is sent to the generator first: its next instruction drops it.
    for arg in args:
        for jump in (False, True):
            assert effect(name, arg, jump) - more == dis.stack_effect(op, arg if op >= dis.HAVE_ARGUMENT else None, jump=jump)
