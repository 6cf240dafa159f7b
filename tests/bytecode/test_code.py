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

from fineline.bytecode.code import CODES
from fineline.bytecode.place import standing_for


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
    info = CODES[code]
    starts, first = {}, None
    for i in dis.get_instructions(code):
        first = i.offset if first is None else first
        if i.opname != "EXTENDED_ARG":
            starts[first] = i
            first = None
    begins = list(starts)
    assert [i.opname for i in starts.values()] == [i.name for i in info.instructions]
    for known, own in zip(starts.values(), info.instructions, strict=True):
        if known.opcode in dis.hasjrel:
            assert begins[own.arg] == known.argval, known


def test_code_that_stands_for_a_place_in_other_code() -> None:
    stub: types.CodeType = (lambda: None).__code__
    far = compile("\n" * 99 + "(" + " " * 5000 + "a,\n\n b . c)", "far", "exec")
    for code in (far, torch.nn.functional.pad.__code__, argparse.ArgumentParser._get_values.__code__):
        for n, place in enumerate(code.co_positions()):
            if None not in place:
                made = standing_for(stub, code, 2 * n, place[0])
                assert next(made.co_positions()) == place
                assert (made.co_filename, made.co_qualname, made.co_firstlineno) == (code.co_filename, code.co_qualname, place[0])
    assert next(standing_for(stub, far, -1, 7).co_positions()) == (7, 7, None, None)
