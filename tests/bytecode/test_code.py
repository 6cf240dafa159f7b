"""Decoding of code objects, held against the standard library's `dis`."""

from __future__ import annotations

import argparse
import collections.abc
import dis
import inspect
import types
import typing

import pytest
import torch.nn.functional

from fineline.bytecode.code import CODES, NOWHERE, CodeInfo, decoded
from fineline.bytecode.instructions import effect
from fineline.bytecode.place import position_of, standing_for


def long_jumps() -> types.CodeType:
    """Jumps over more code than one byte counts, with instructions behind them that need a prefix of their own."""
    names = "\n".join(f"            n{i} = n{i - 1} + {i}.5" for i in range(1, 400))
    text = f"def f(block, n0):\n    for a in block:\n        for b in a:\n{names}\n            if b:\n                continue\n    return n399\n"
    namespace: dict[str, typing.Any] = {}
    exec(text, namespace)
    code: types.CodeType = namespace["f"].__code__
    return code


def codes() -> collections.abc.Iterator[types.CodeType]:
    yield long_jumps()
    for module in (argparse, inspect, typing, collections, torch.nn.functional):
        todo = [compile(inspect.getsource(module), module.__name__, "exec")]
        while todo:
            code = todo.pop()
            yield code
            todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]


@pytest.mark.parametrize("code", [pytest.param(c, id=f"{c.co_name}-{n}") for n, c in enumerate(codes()) if len(c.co_code) > 2000])
def test_jump_targets(code: types.CodeType) -> None:
    instructions, offsets, index_of = decoded(code)
    assert [index_of[offset] for offset in offsets] == [*range(len(offsets))]
    starts, first = {}, None
    for i in dis.get_instructions(code):
        first = i.offset if first is None else first
        if i.opname != "EXTENDED_ARG":
            starts[first] = i
            first = None
    begins = list(starts)
    assert [i.opname for i in starts.values()] == [i.name for i in instructions]
    for known, own in zip(starts.values(), instructions, strict=True):
        if known.opcode in dis.hasjrel:
            assert begins[own.arg] == known.argval, known


def test_code_that_stands_for_a_place_in_other_code() -> None:
    stub: types.CodeType = (lambda: None).__code__
    far = compile("\n" * 99 + "(" + " " * 5000 + "a,\n\n b . c)", "far", "exec")
    for code in (far, torch.nn.functional.pad.__code__, argparse.ArgumentParser._get_values.__code__):
        for n, place in enumerate(code.co_positions()):
            if None not in place:
                assert CODES[code].position_at(2 * n) == position_of(code, 2 * n) == place
                made = standing_for(stub, code, place, place[0])
                assert next(made.co_positions()) == place
                assert (made.co_filename, made.co_qualname, made.co_firstlineno) == (code.co_filename, code.co_qualname, place[0])
    assert next(standing_for(stub, far, position_of(far, -1), 7).co_positions()) == (7, 7, None, None)
    assert CODES[far].position_at(-1) == position_of(far, -1) == NOWHERE


@pytest.mark.parametrize("code", [pytest.param(c, id=f"{c.co_name}-{n}") for n, c in enumerate(codes()) if c.co_exceptiontable])
def test_handlers_and_live_variables(code: types.CodeType) -> None:
    """Held against a reading of the table row by row, and a data flow over sets that goes on until nothing changes."""
    info = CODES[code]
    rows = [next((h for h in info.handlers if h.start <= ip < h.end), None) for ip in range(len(info.instructions))]
    assert [info.handler_at(ip) for ip in range(len(info.instructions))] == rows
    if {"locals", "vars", "dir", "eval", "exec", "super"}.isdisjoint(info.names):
        held = {n for n, name in enumerate(info.slots) if name in (*code.co_cellvars, *code.co_freevars)}
        stacks = saved_on_stack(info, rows)
        live = live_by_sweeps(info, rows, stacks)
        assert [info.live_at(ip) for ip in range(len(info.instructions))] == [{n for n in found if type(n) is int} | held for found in live]
        for ip, (name, _) in enumerate(info.instructions):
            if name in ("BINARY_OP", "CALL", "FOR_ITER") and ip in stacks:
                # What is saved from a slot with a cell goes back to it, and is live.
                saved = {n for n, slot in enumerate(stacks[ip]) if slot is not None and slot not in held}
                assert info.dead_on_stack(ip + 1) == saved - {v[1] for v in live[ip] if type(v) is tuple}


def saved_on_stack(info: CodeInfo, rows: list) -> dict[int, tuple]:
    """Returns the stack before each instruction: the slot from which LOAD_FAST_AND_CLEAR took a value, None for others."""
    stacks: dict[int, tuple] = {}
    todo: list[tuple[int, tuple]] = [(0, ())] if any(name == "LOAD_FAST_AND_CLEAR" for name, _ in info.instructions) else []
    while todo:
        k, stack = todo.pop()
        if k in stacks:
            assert stacks[k] == stack
            continue
        stacks[k] = stack
        name, arg = info.instructions[k]
        if rows[k] is not None:
            todo.append((rows[k].target, (*stack[: rows[k].depth], *[None] * (1 + rows[k].lasti))))
        ways = [(arg, True)] if "JUMP" in name or name in ("FOR_ITER", "SEND") else []
        for target, jump in [*ways, *([] if name in ENDS else [(k + 1, False)])]:
            grown = effect(name, arg, jump)
            after = [*stack, *[None] * grown][: len(stack) + grown]
            if name == "LOAD_FAST_AND_CLEAR":
                after[-1] = arg
            elif name == "SWAP":
                after[-1], after[-arg] = after[-arg], after[-1]
            todo.append((target, tuple(after)))
    return stacks


ENDS = {"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}


def live_by_sweeps(info: CodeInfo, rows: list, stacks: dict[int, tuple]) -> list[set[typing.Any]]:
    """Returns the live slots before each instruction, and ("stack", place) for each place of a value that becomes a live variable."""
    live: list[set[typing.Any]] = [set() for _ in (*info.instructions, None)]
    before: list[set[typing.Any]] = []
    while before != live:
        before = list(live)
        for k, (name, arg) in reversed([*enumerate(info.instructions)]):
            behind = set() if name in ENDS else set(live[k + 1])
            behind |= live[arg] if "JUMP" in name or name in ("FOR_ITER", "SEND") else set()
            height, read = len(stacks.get(k, ())), set()
            top = ("stack", height - 1)
            if name == "STORE_FAST":
                read = {top} if arg in behind else set()
                behind -= {arg, top}
            elif name == "LOAD_FAST_AND_CLEAR":
                read = {arg} if ("stack", height) in behind else set()
                behind -= {arg, ("stack", height)}
            elif name == "SWAP":
                turned = {top: ("stack", height - arg), ("stack", height - arg): top}
                behind = {turned.get(v, v) for v in behind}
            if rows[k] is not None:
                behind |= {v for v in live[rows[k].target] if type(v) is int or v[1] < rows[k].depth}
            live[k] = behind | read | ({arg} if name in ("LOAD_FAST", "DELETE_FAST") else set())
    return live[:-1]


def test_a_handler_is_found_without_reading_the_table() -> None:
    class Counted(list):
        read = 0

        def __getitem__(self, at: typing.Any) -> typing.Any:
            Counted.read += 1
            return super().__getitem__(at)

        def __iter__(self) -> collections.abc.Iterator:
            raise AssertionError("reads all rows")

    namespace: dict[str, typing.Any] = {}
    statements = "".join(f"    try:\n        a = {n}\n    except ValueError:\n        pass\n" for n in range(1600))
    exec(f"def f():\n{statements}    return a\n", namespace)
    info = CodeInfo(namespace["f"].__code__)
    info.handlers = Counted(info.handlers)
    assert info.live_at(len(info.instructions) - 1) is not None
    # One look for each instruction, and a second one for those that write a variable.
    assert 0 < Counted.read <= 5 * len(info.instructions)
