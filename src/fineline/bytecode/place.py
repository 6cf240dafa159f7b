"""Makes code objects that look like a place in other code, for entries of tracebacks."""

from __future__ import annotations

import warnings
from itertools import islice
from types import CodeType

from fineline.bytecode.code import NOWHERE, Position

# Entries of a table of positions (Objects/locations.md), each for eight code units: with columns, and with a line alone.
_COLUMNS, _LINE = 0x80 | 14 << 3 | 7, 0x80 | 13 << 3 | 7


def standing_for(stub: CodeType, code: CodeType, position: Position, line: int, names: tuple[str, ...] = ()) -> CodeType:
    """Returns ``stub`` with the file and names of ``code``, its start at ``line``, and the columns of ``position`` there.

    ``names``: its parameters, by position. Variables without a value must not be parameters, which always have one.
    """
    _, last, begin, end = position
    if last is None or begin is None or end is None:
        table = bytes((_LINE, 0)) * 2
    else:
        table = bytes((_COLUMNS, 0, *_varint(last - line), *_varint(begin + 1), *_varint(end + 1))) * 2
    own = with_parameters(stub, names)
    return own.replace(
        co_firstlineno=line, co_linetable=table, co_filename=code.co_filename, co_name=code.co_name, co_qualname=code.co_qualname
    )


def position_of(code: CodeType, offset: int) -> Position:
    """Returns the source position of the instruction at ``offset`` in code that is not decoded; `NOWHERE` for -1."""
    return next(islice(code.co_positions(), offset // 2, None), NOWHERE) if offset >= 0 else NOWHERE


def with_parameters(stub: CodeType, names: tuple[str, ...]) -> CodeType:
    """Returns ``stub``, which reads no variables, as code with these parameters."""
    return stub.replace(co_varnames=names, co_argcount=len(names), co_nlocals=len(names))


def calling(fn: object, code: CodeType, position: Position, line: int, names: tuple[str, ...]) -> CodeType:
    """Returns code that looks like ``code`` at a position and calls ``fn``; its only variables are the parameters ``names``."""
    return standing_for(_CALL, code, position, line, names).replace(co_consts=(fn,))


with warnings.catch_warnings():
    # The compiler warns about the call of a constant; `calling` replaces the constant.
    warnings.simplefilter("ignore", SyntaxWarning)
    _CALL: CodeType = compile("lambda: None()", "<call>", "eval").co_consts[0]


def _varint(n: int) -> list[int]:
    """Encodes a number in groups of six bits, lowest first; the seventh bit is set if more follow."""
    return [n] if n < 64 else [n & 63 | 64, *_varint(n >> 6)]
