"""CPython 3.13: what is new or different against 3.12."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fineline.bytecode import python_3_12
from fineline.bytecode.instructions import ITERATOR_AGAIN
from fineline.bytecode.lowering import Reading, Replacement, Rule, becomes, renamed, shifted


def _load(reading: Reading, slot: int) -> tuple[str, int]:
    """Loads a variable, or a cell for a closure, for which there is no other instruction any more."""
    code = reading.code
    in_cell = slot >= code.co_nlocals or code.co_varnames[slot] in code.co_cellvars
    return "LOAD_CLOSURE" if in_cell else "LOAD_FAST", slot


def load(reading: Reading, k: int) -> Replacement:
    return (_load(reading, reading.instructions[k].arg),), 1


def load_load(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    return (_load(reading, arg >> 4), _load(reading, arg & 15)), 1


def store_load(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    return (("STORE_FAST", arg >> 4), _load(reading, arg & 15)), 1


def store_store(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    return (("STORE_FAST", arg >> 4), ("STORE_FAST", arg & 15)), 1


def constant(reading: Reading, k: int) -> Replacement:
    """A constant; or the names of keywords, which only a call reads."""
    arg = reading.instructions[k].arg
    if reading.follows(k, "CALL_KW"):
        return (("KW_NAMES", arg), ("CALL", reading.instructions[k + 1].arg)), 2
    return (("LOAD_CONST", arg),), 1


def made_function(reading: Reading, k: int) -> Replacement:
    """A function and its attributes, which are on the stack below the code."""
    flags, read = 0, 1
    while reading.instructions[k + read].name == "SET_FUNCTION_ATTRIBUTE":
        flags |= reading.instructions[k + read].arg
        read += 1
    return (("MAKE_FUNCTION", flags),), read


def truth(reading: Reading, k: int) -> Replacement:
    """The instruction after it asks for the truth itself."""
    if reading.instructions[k + 1].name in _ASK:
        return (), 1
    return (("UNARY_NOT", 0), ("UNARY_NOT", 0)), 1


def converted(reading: Reading, k: int) -> Replacement:
    name, arg = reading.instructions[k]
    if reading.follows(k, "FORMAT_SIMPLE"):
        return (("FORMAT_VALUE", arg),), 2
    return ((name, arg),), 1


def popped(reading: Reading, k: int) -> Replacement:
    """The end of a loop takes the iterator away already."""
    return () if k and reading.instructions[k - 1].name == "END_FOR" else (("POP_TOP", 0),), 1


def iterator(reading: Reading, k: int) -> Replacement:
    """A comprehension asks the iterator that it got for an iterator again."""
    of_generator = k > 0 and reading.instructions[k - 1] == ("LOAD_FAST", 0) and reading.code.co_varnames[:1] == (".0",)
    inlined = k > 1 and reading.instructions[k - 1] == ("SWAP", 2) and reading.instructions[k - 2] in _EMPTY
    return (ITERATOR_AGAIN if of_generator or inlined else ("GET_ITER", 0),), 1


_EMPTY = (("BUILD_LIST", 0), ("BUILD_SET", 0), ("BUILD_MAP", 0))
_ASK = frozenset({"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT"})

RULES: Mapping[str, Rule] = MappingProxyType({
    **python_3_12.RULES,
    "COMPARE_OP": shifted(5),
    "CONVERT_VALUE": converted,
    "FORMAT_SIMPLE": becomes(("FORMAT_VALUE", 0)),
    "FORMAT_WITH_SPEC": becomes(("FORMAT_VALUE", 4)),
    "GET_ITER": iterator,
    "LOAD_CONST": constant,
    "LOAD_FAST": load,
    "LOAD_FAST_LOAD_FAST": load_load,
    "MAKE_FUNCTION": made_function,
    "POP_TOP": popped,
    # The callable comes before it, and in 3.11 after it.
    "PUSH_NULL": becomes(("PUSH_NULL", 0), ("SWAP", 2)),
    # Only after what `constant` and `made_function` read.
    "CALL_KW": renamed("CALL"),
    "SET_FUNCTION_ATTRIBUTE": becomes(),
    "STORE_FAST_LOAD_FAST": store_load,
    "STORE_FAST_STORE_FAST": store_store,
    "TO_BOOL": truth,
})  # fmt: skip
CHECKS = python_3_12.VERSION.checks | {"CALL_KW"}
WORDINGS: Mapping[str, str] = MappingProxyType({
    **{text: own for text, own in python_3_12.WORDINGS.items() if not text.startswith("iter(")},
    "can only assign an iterable": "must assign iterable to extended slice",
})  # fmt: skip

VERSION = python_3_12.VERSION._replace(
    rules=RULES, checks=CHECKS, wordings=WORDINGS, one_namespace=False, class_methods_bind=False,
    warns_of=python_3_12.VERSION.warns_of | {"partials"}, sorts_equal_runs=True,
)
