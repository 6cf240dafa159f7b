"""Code that says it is other code, at one place there: what an entry of a traceback tells."""

from __future__ import annotations

from itertools import islice
from types import CodeType

# Entries of a table of positions (Objects/locations.md) for the first eight code units: with columns, and with a line alone.
_COLUMNS, _LINE = 0x80 | 14 << 3 | 7, 0x80 | 13 << 3 | 7


def standing_for(stub: CodeType, code: CodeType, offset: int, line: int) -> CodeType:
    """``stub`` as if it were ``code``, its beginning at the ``line`` and the columns of the instruction at ``offset`` there."""
    _, last, begin, end = next(islice(code.co_positions(), offset // 2, None), (None,) * 4) if offset >= 0 else (None,) * 4
    if last is None or begin is None or end is None:
        table = bytes((_LINE, 0))
    else:
        table = bytes((_COLUMNS, 0, *_varint(last - line), *_varint(begin + 1), *_varint(end + 1)))
    names = {"co_filename": code.co_filename, "co_name": code.co_name, "co_qualname": code.co_qualname}
    return stub.replace(co_firstlineno=line, co_linetable=table, **names)  # type: ignore[arg-type]


def _varint(n: int) -> list[int]:
    """Six bits at a time, the lowest first; the seventh says that more follow."""
    return [n] if n < 64 else [n & 63 | 64, *_varint(n >> 6)]
