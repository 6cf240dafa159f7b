"""Recognizes code without effects of its own: it computes with variables, constants, and calls of global names.

CPython or the interpreter may run such code, if the objects that the names stand for have no effects either. In such code an
object whose text or order could show its address (a function, an iterator, an exception) never gets into a variable: the
instruction or call that receives it consumes it at once.
"""

from __future__ import annotations

from types import CodeType
from typing import NamedTuple

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CODES, CodeInfo
from fineline.bytecode.instructions import Instruction, effect
from fineline.bytecode.version import CURRENT

HARMLESS = frozenset({
    "BINARY_OP", "BINARY_SUBSCR", "BUILD_CONST_KEY_MAP", "BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_SLICE", "BUILD_STRING",
    "BUILD_TUPLE", "CALL", "CALL_FUNCTION_EX", "COMPARE_OP", "CONTAINS_OP", "COPY", "COPY_FREE_VARS", "DELETE_FAST", "DELETE_SUBSCR",
    "DICT_MERGE", "DICT_UPDATE", "FORMAT_VALUE", "FOR_ITER", "GET_ITER", "IS_OP", "JUMP_BACKWARD", "JUMP_FORWARD", "JUMP_IF_FALSE_OR_POP",
    "JUMP_IF_TRUE_OR_POP", "KW_NAMES", "LIST_APPEND", "LIST_EXTEND", "LIST_TO_TUPLE", "LOAD_ASSERTION_ERROR", "LOAD_CLOSURE",
    "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_GLOBAL", "LOAD_METHOD", "MAKE_CELL", "MAKE_FUNCTION", "MAP_ADD",
    "NOP", "POP_TOP", "PRECALL", "PUSH_NULL", "RAISE_VARARGS", "RERAISE", "RESUME", "RETURN_GENERATOR", "RETURN_VALUE", "SET_ADD",
    "SET_UPDATE", "STORE_DEREF", "STORE_FAST", "STORE_SUBSCR", "SWAP", "UNARY_INVERT", "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_POSITIVE",
    "UNPACK_EX", "UNPACK_SEQUENCE", "YIELD_VALUE",
    *[f"POP_JUMP_{way}_IF_{condition}" for way in ("FORWARD", "BACKWARD") for condition in ("TRUE", "FALSE", "NONE", "NOT_NONE")],
}) - {"UNARY_INVERT" if "bools" in CURRENT.warns_of else ""}  # fmt: skip
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
# Without bytes, because codecs may be written in Python.
PLAIN = frozenset({int, str, float, bool, type(None), complex, range})
# The types of objects that may be plain.
MAYBE_PLAIN = PLAIN | {tuple, frozenset}
# The limit keeps the time linear: a loop over a tuple may check the whole tuple for each item.
_MOST_ITEMS = 64
TYPES = (int, str, float, complex, range, list, dict, set, frozenset, tuple)
# Without codecs, and without methods that read attributes by names in a text.
_METHODS = frozenset([name for t in TYPES for name in vars(t) if not name.startswith("_")]) - {"encode", "format", "format_map", "to_bytes"}
_STORES = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX"})
# Methods that iterate over their first argument at once.
_WALKERS = frozenset({"extend", "join", "update"})


class GlobalUse(NamedTuple):
    """A use of a global name: whether it is called, and whether its value, or the call's result, is raised or iterated at once.

    ``taker`` is the global name whose call gets it as its first argument, or "".
    """

    name: str
    called: bool
    raised: bool
    walked: bool
    taker: str


class PureCode(NamedTuple):
    """The global names and methods that a function and its comprehensions use, and the global names whose calls get its generators."""

    uses: tuple[GlobalUse, ...]
    methods: tuple[str, ...]
    takers: tuple[str, ...]


def is_plain(value: object) -> bool:
    """Returns whether ``value`` is a constant of an exact built-in type, or a tuple or frozenset of few constants."""
    t = type(value)
    return t in PLAIN or ((type(value) is tuple or type(value) is frozenset) and len(value) <= _MOST_ITEMS and all([is_plain(x) for x in value]))


def pure_code(code: CodeType) -> PureCode | None:
    """Returns the names that a function's code uses; None if the code may have an effect. Analyses each code object once."""
    info = CODES[code]
    if info.pure is None:
        info.pure = (_analysed(code),)
    found: PureCode | None = info.pure[0]
    return found


def _analysed(code: CodeType) -> PureCode | None:
    if code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR) or CODES[code].catches:
        return None
    return uses_between(CODES[code], 0, len(CODES[code].instructions))


def uses_between(info: CodeInfo, start: int, end: int) -> PureCode | None:
    """Returns the names that the instructions from ``start`` to before ``end`` use; None if they may have an effect."""
    uses, methods, takers = list[GlobalUse](), list[str](), list[str]()
    outer, ranges = info.code, [(info, start, end)]
    for info, start, end in ranges:
        for k in range(start, end):
            name, arg = info.instructions[k]
            if name not in HARMLESS or (name == "LOAD_METHOD" and info.names[arg] not in _METHODS):
                return None
            if name == "LOAD_CONST" and not (is_plain(info.consts[arg]) or _is_comprehension(info.consts[arg])):
                return None
            if name == "LOAD_GLOBAL":
                uses.append(_use(info, k))
            elif name == "LOAD_METHOD":
                methods.append(info.names[arg])
            elif name in _STORES and info.slots[arg] in outer.co_freevars:
                return None
            elif name == "MAKE_FUNCTION":
                made = _made(info, k)
                if made is None or CODES[made].catches:
                    return None
                ranges.append((CODES[made], 0, len(CODES[made].instructions)))
                first = _start(info.instructions, k - 1)
                if made.co_name == "<genexpr>" and not _is_walked(info, first):
                    takers.append(_taker(info, first))
    return PureCode((*dict.fromkeys(uses),), (*dict.fromkeys(methods),), (*dict.fromkeys(takers),))


def _is_comprehension(constant: object) -> bool:
    return type(constant) is CodeType and constant.co_name in _COMPREHENSIONS


def _made(info: CodeInfo, k: int) -> CodeType | None:
    """Returns the code of the comprehension that instruction ``k`` makes; None if it makes another function."""
    name, arg = info.instructions[k - 1]
    constant = info.consts[arg] if name == "LOAD_CONST" else None
    return constant if _is_comprehension(constant) and not info.instructions[k].arg & ~8 else None


def _start(instructions: list[Instruction], k: int) -> int:
    """Returns the first instruction that makes a comprehension: its cells come before instruction ``k``, which loads its code."""
    if instructions[k - 1].name == "BUILD_TUPLE":
        k -= 1
        while instructions[k - 1].name == "LOAD_CLOSURE":
            k -= 1
    return k


def _use(info: CodeInfo, k: int) -> GlobalUse:
    arg = info.instructions[k].arg
    called = bool(arg & 1)
    after = _after_call(info.instructions, k) if called else info.instructions[k + 1].name
    return GlobalUse(info.names[arg >> 1], called, after == "RAISE_VARARGS", after == "GET_ITER" or _is_walked(info, k), _taker(info, k))


def _taker(info: CodeInfo, k: int) -> str:
    """Returns the global name whose call has the value that begins at instruction ``k`` as its first argument; "" if none."""
    name, arg = info.instructions[k - 1] if k else Instruction("", 0)
    return info.names[arg >> 1] if name == "LOAD_GLOBAL" and arg & 1 else ""


def _is_walked(info: CodeInfo, k: int) -> bool:
    """Returns whether the value that begins at instruction ``k`` is the first argument of a method that iterates over it."""
    name, arg = info.instructions[k - 1] if k else Instruction("", 0)
    return name == "LOAD_METHOD" and info.names[arg] in _WALKERS


def _after_call(instructions: list[Instruction], k: int) -> str:
    """Returns the instruction after the call of the value that instruction ``k`` loads; "" if a jump is between them."""
    depth = 0
    for j in range(k, len(instructions) - 1):
        name, arg = instructions[j]
        if "JUMP" in name or name in ("FOR_ITER", "RETURN_VALUE", "RAISE_VARARGS"):
            return ""
        depth += effect(name, arg)
        if depth == 1 and name in _CALLS:
            return instructions[j + 1].name
    return ""
