"""Recognizes loops without effects of their own, and makes code objects that run their remaining iterations."""

from __future__ import annotations

import dis
from types import CodeType
from typing import NamedTuple

from fineline.bytecode.code import CODES, CodeInfo
from fineline.bytecode.instructions import effect
from fineline.bytecode.pure_code import uses_between

_EXTENDED = dis.opmap["EXTENDED_ARG"]
_OPTIMIZED, _NEW_LOCALS = 0x1, 0x2
# Instructions that belong to a whole function, or let other code see its variables.
_OF_FUNCTIONS = frozenset({
    "COPY_FREE_VARS", "DELETE_FAST", "LOAD_CLOSURE", "MAKE_CELL", "RAISE_VARARGS", "RESUME", "RETURN_GENERATOR", "RETURN_VALUE", "STORE_DEREF",
    "YIELD_VALUE",
})  # fmt: skip
# Instructions that add to a container further down on the stack.
_ADDING = frozenset({"LIST_APPEND", "MAP_ADD", "SET_ADD"})


class PureLoop(NamedTuple):
    """A loop; execution continues at instruction ``end`` after it.

    ``code`` takes the values of all variables, then the top ``depth`` values of the stack. It returns two tuples: the values
    that replace these on the stack after the loop, and the variables ``written``. ``live``: the variables that it reads.
    """

    code: CodeType
    end: int
    depth: int
    live: tuple[int, ...]
    written: tuple[int, ...]


def pure_loop(info: CodeInfo, start: int) -> PureLoop | None:
    """Returns the loop whose iterations begin at instruction ``start``; None if it may have an effect, or another exit."""
    end = _end(info, start)
    inside = info.instructions[start:end]
    if end == 0 or any([name in _OF_FUNCTIONS for name, _ in inside]):
        return None
    pure, levels = uses_between(info, start, end), _levels(info, start, end)
    if pure is None or levels is None:
        return None
    depth = max([_reach(info, k, level) for k, level in levels.items() if k != end])
    written = sorted({arg for name, arg in inside if name == "STORE_FAST"})
    read = {arg for name, arg in inside if name in ("LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_DEREF")}
    code = _code(info, start, end, depth, depth + levels[end], written)
    CODES[code].pure = (pure,)
    return PureLoop(code, end, depth, (*sorted(read & info.live_at(start)),), (*written,))


def _jumps(name: str) -> bool:
    return "JUMP" in name or name == "FOR_ITER"


def _end(info: CodeInfo, start: int) -> int:
    """Returns the instruction after a loop; 0 if the loop also jumps elsewhere."""
    end = max([k + 1 for k, (name, arg) in enumerate(info.instructions) if "BACKWARD" in name and arg == start and k >= start], default=0)
    k = start
    while k < end:
        name, arg = info.instructions[k]
        if _jumps(name):
            if arg < start:
                return 0
            end = max(end, arg)
        k += 1
    return end


def _effect(info: CodeInfo, k: int, jump: bool) -> int:
    return effect(*info.instructions[k], jump)


def _levels(info: CodeInfo, start: int, end: int) -> dict[int, int] | None:
    """Returns the growth of the stack since the loop's start, at each instruction and at the end; None if paths differ."""
    levels, todo = {start: 0}, [start]
    while todo:
        k = todo.pop()
        name, arg = info.instructions[k]
        ways = [(arg, True)] if _jumps(name) else []
        if name not in ("JUMP_FORWARD", "JUMP_BACKWARD"):
            ways.append((k + 1, False))
        for target, jump in ways:
            level = levels[k] + _effect(info, k, jump)
            if target not in levels and target != end:
                todo.append(target)
            if levels.setdefault(target, level) != level:
                return None
    return levels if end in levels else None


def _reach(info: CodeInfo, k: int, level: int) -> int:
    """Returns how many of the values on the stack at the loop's start are removed or changed by instruction ``k``."""
    name, arg = info.instructions[k]
    after = level + _effect(info, k, False)
    return max(-after, arg - after if name in _ADDING else 0, 1 - level if name == "FOR_ITER" else 0, 0)


def _code(info: CodeInfo, start: int, end: int, depth: int, left: int, written: list[int]) -> CodeType:
    """Returns the code of a loop: it loads the stack's values, runs the loop's own instructions, and builds the result."""
    raw, begin = info.code.co_code, _begin(info, start)
    loop = bytearray(raw[begin : _begin(info, end)])
    for k in range(start, end):
        if info.instructions[k].name == "LOAD_DEREF":
            # No instruction of the loop writes the cell: it becomes a plain variable in the same slot.
            loop[info.offsets[k] - begin] = dis.opmap["LOAD_FAST"]
    before = [_written("RESUME", 0), *[_written("LOAD_FAST", info.nslots + k) for k in range(depth)]]
    after = [_written("BUILD_TUPLE", left), *[_written("LOAD_FAST", slot) for slot in written]]
    after += [_written("BUILD_TUPLE", len(written)), _written("BUILD_TUPLE", 2), _written("RETURN_VALUE", 0)]
    names = (*info.slots, *[f".{k} on the stack" for k in range(depth)])
    return info.code.replace(
        co_argcount=len(names),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_nlocals=len(names),
        co_varnames=names,
        co_cellvars=(),
        co_freevars=(),
        co_stacksize=info.code.co_stacksize + depth + len(written) + 2,
        co_flags=_OPTIMIZED | _NEW_LOCALS,
        co_code=b"".join([*before, bytes(loop), *after]),
        co_exceptiontable=b"",
        co_linetable=b"",
    )


def _begin(info: CodeInfo, k: int) -> int:
    """Returns the offset at which an instruction begins, its EXTENDED_ARG prefixes included."""
    offset = info.offsets[k]
    while offset and info.code.co_code[offset - 2] == _EXTENDED:
        offset -= 2
    return offset


def _written(name: str, arg: int) -> bytes:
    """Returns the bytes of an instruction, with EXTENDED_ARG prefixes for a large ``arg``."""
    more = [(arg >> shift) & 0xFF for shift in (24, 16, 8) if arg >> shift]
    return bytes([byte for each in more for byte in (_EXTENDED, each)] + [dis.opmap[name], arg & 0xFF])
