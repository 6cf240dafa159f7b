"""The one instruction set that the interpreter and the analyses know: that of CPython 3.11, with a few additions.

`lowering` translates the code of later versions into it. The additions, for what 3.11 has no instruction for:

- ``LOAD_FAST_AND_CLEAR``: pushes a variable, or NULL, and takes its value away; around an inlined comprehension (PEP 709);
- ``CLEANUP_THROW``: replaces an iterator, a value and a StopIteration by the value of the exception; raises other exceptions again;
- ``MAKE_TYPE_ALIAS``: replaces the parts of a ``type`` statement (PEP 695) by the alias;
- ``MAKE_TYPE_PARAMETERS``: in code that makes type parameters, which is not interpreted;
- ``MAKE_FUNCTION`` with 16 in its argument: the function has a function that gives its annotations (PEP 649);
- ``GET_ITER`` with 1 as its argument: of what is an iterator already, but for code that is called by hand (3.13);
- ``CONVERT_VALUE``: replaces a value by its ``str()``, ``repr()`` or ``ascii()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction; for jumps ``arg`` is the index of the target instruction."""

    name: str
    arg: int


class Handler(NamedTuple):
    """One row of the exception table, in instruction indexes: ``start <= ip < end``."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


ITERATOR_AGAIN = Instruction("GET_ITER", 1)


def jumps(name: str) -> bool:
    """Returns whether an instruction may continue at the one that its argument names."""
    return "JUMP" in name or name in ("FOR_ITER", "SEND")


# By how much an instruction changes the height of the stack, if its argument does not count.
_FIXED: Mapping[str, int] = MappingProxyType({
    **dict.fromkeys((
        "CACHE", "NOP", "RESUME", "EXTENDED_ARG", "MAKE_CELL", "COPY_FREE_VARS", "PRECALL", "KW_NAMES", "SWAP", "GET_ITER",
        "GET_YIELD_FROM_ITER", "LOAD_ATTR", "UNARY_INVERT", "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_POSITIVE", "LIST_TO_TUPLE",
        "CONVERT_VALUE", "MAKE_TYPE_ALIAS", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "DELETE_FAST", "DELETE_DEREF",
        "DELETE_GLOBAL", "DELETE_NAME", "SETUP_ANNOTATIONS", "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "YIELD_VALUE", "GET_AWAITABLE",
        "GET_AITER", "ASYNC_GEN_WRAP",
    ), 0),
    **dict.fromkeys((
        "LOAD_CONST", "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_CLOSURE", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_NAME", "LOAD_METHOD", "COPY",
        "PUSH_NULL", "PUSH_EXC_INFO", "LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "BEFORE_WITH", "BEFORE_ASYNC_WITH", "WITH_EXCEPT_START",
        "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS", "GET_LEN", "GET_ANEXT", "IMPORT_FROM", "RETURN_GENERATOR",
    ), 1),
    **dict.fromkeys((
        "POP_TOP", "POP_EXCEPT", "STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME", "DELETE_ATTR", "RETURN_VALUE", "RERAISE", "PRINT_EXPR",
        "IMPORT_STAR", "IMPORT_NAME", "BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "CONTAINS_OP", "IS_OP", "LIST_APPEND", "LIST_EXTEND", "SET_ADD",
        "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE", "PREP_RERAISE_STAR",
    ), -1),
    **dict.fromkeys(("STORE_ATTR", "DELETE_SUBSCR", "MAP_ADD", "MATCH_CLASS", "CLEANUP_THROW", "END_ASYNC_FOR"), -2),
    "STORE_SUBSCR": -3,
})  # fmt: skip
_CONDITIONS = tuple(f"POP_JUMP_{way}_IF_" for way in ("FORWARD", "BACKWARD"))


def effect(name: str, arg: int, jump: bool = False) -> int:
    """Returns by how much an instruction changes the height of the stack; ``jump``: when it jumps."""
    fixed = _FIXED.get(name)
    if fixed is not None:
        return fixed
    if name.startswith(_CONDITIONS):
        return -1
    match name:
        case "FOR_ITER":
            return -1 if jump else 1
        case "SEND":
            return -1 if jump else 0
        case "JUMP_IF_TRUE_OR_POP" | "JUMP_IF_FALSE_OR_POP":
            return 0 if jump else -1
        case "BUILD_TUPLE" | "BUILD_LIST" | "BUILD_SET" | "BUILD_STRING" | "BUILD_SLICE":
            return 1 - arg
        case "BUILD_MAP":
            return 1 - 2 * arg
        case "BUILD_CONST_KEY_MAP" | "RAISE_VARARGS":
            return -arg
        case "CALL":
            return -arg - 1
        case "CALL_FUNCTION_EX":
            return -2 - (arg & 1)
        case "LOAD_GLOBAL":
            return 1 + (arg & 1)
        case "UNPACK_SEQUENCE":
            return arg - 1
        case "UNPACK_EX":
            return (arg & 0xFF) + (arg >> 8)
        case "MAKE_FUNCTION":
            return -arg.bit_count()
        case "FORMAT_VALUE":
            return -1 if arg & 4 else 0
    raise KeyError(name)
