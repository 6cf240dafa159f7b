"""CPython 3.12: what is new or different against 3.11."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fineline.bytecode import python_3_11
from fineline.bytecode.instructions import Instruction
from fineline.bytecode.intrinsics import TYPE_ALIAS
from fineline.bytecode.lowering import Reading, Replacement, Rule, Version, becomes, renamed, shifted

CONDITIONS = ("TRUE", "FALSE", "NONE", "NOT_NONE")
# The number of the intrinsic function that converts a StopIteration that leaves a generator (PEP 479).
STOPS = 3
# The intrinsic functions that are instructions, by number. The others make type parameters.
INTRINSICS_1: Mapping[int, str] = MappingProxyType(
    {2: "IMPORT_STAR", 4: "ASYNC_GEN_WRAP", 5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE", TYPE_ALIAS: "MAKE_TYPE_ALIAS"}
)
INTRINSICS_2: Mapping[int, str] = MappingProxyType({1: "PREP_RERAISE_STAR"})

# After a copy, from 3.13 on with an instruction for the truth, from 3.14 on with one for the way that is not taken.
_KEPT_OR_POPPED = tuple([
    (truth, (*before, f"POP_JUMP_IF_{truth}", *after, "POP_TOP"))
    for truth in ("TRUE", "FALSE")
    for before, after in (((), ()), (("TO_BOOL",), ()), (("TO_BOOL",), ("NOT_TAKEN",)))
])  # fmt: skip


def kept_or_popped(reading: Reading, k: int) -> Replacement:
    """``a or b``: a copy decides, and the value is popped if it does not jump."""
    name, arg = reading.instructions[k]
    for truth, pattern in _KEPT_OR_POPPED if arg == 1 else ():
        if reading.follows(k, *pattern):
            return ((f"JUMP_IF_{truth}_OR_POP", reading.instructions[k + pattern.index(f"POP_JUMP_IF_{truth}") + 1].arg),), len(pattern) + 1
    return ((name, arg),), 1


def intrinsic_1(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    match arg:
        case 1:
            return (("PRINT_EXPR", 0), ("LOAD_CONST", reading.constant(None))), 1
        case 3:
            # Only the handler around a generator has it. The interpreter converts the exception itself.
            return (), 1
    return ((INTRINSICS_1.get(arg, "MAKE_TYPE_PARAMETERS"), 0),), 1


def intrinsic_2(reading: Reading, k: int) -> Replacement:
    return ((INTRINSICS_2.get(reading.instructions[k].arg, "MAKE_TYPE_PARAMETERS"), 0),), 1


def attribute(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    return (("LOAD_METHOD" if arg & 1 else "LOAD_ATTR", arg >> 1),), 1


def super_attribute(reading: Reading, k: int) -> Replacement:
    """``super().name``, for which CPython makes no object, becomes a call of ``super`` and a read of the attribute."""
    arg = reading.instructions[k].arg
    explicit = (("PUSH_NULL", 0), ("SWAP", 4), ("SWAP", 3), ("SWAP", 2), ("CALL", 2))
    implicit = (("POP_TOP", 0), ("POP_TOP", 0), ("PUSH_NULL", 0), ("SWAP", 2), ("CALL", 0))
    return (*(explicit if arg & 2 else implicit), ("LOAD_METHOD" if arg & 1 else "LOAD_ATTR", arg >> 2)), 1


def class_variable(reading: Reading, k: int) -> Replacement:
    """A variable of a class's body, or of the function around it; annotations and type parameters read the body's variables otherwise."""
    if reading.follows(k, "LOAD_FROM_DICT_OR_DEREF"):
        return (("LOAD_CLASSDEREF", reading.instructions[k + 1].arg),), 2
    return (("LOAD_NAMESPACE", 0),), 1


def jump_back(reading: Reading, k: int) -> Replacement:
    name, arg = reading.instructions[k]
    return ((name if reading.repeats(k) else "JUMP_FORWARD", arg),), 1


def constant_returned(reading: Reading, k: int) -> Replacement:
    return (("LOAD_CONST", reading.instructions[k].arg), ("RETURN_VALUE", 0)), 1


RULES: Mapping[str, Rule] = MappingProxyType({
    "BINARY_SLICE": becomes(("BUILD_SLICE", 2), ("BINARY_SUBSCR", 0)),
    "CALL_INTRINSIC_1": intrinsic_1,
    "CALL_INTRINSIC_2": intrinsic_2,
    "COMPARE_OP": shifted(4),
    "COPY": kept_or_popped,
    # The instruction before it takes the iterator away, and continues after it.
    "END_FOR": becomes(),
    "END_SEND": becomes(),
    "JUMP_BACKWARD": jump_back,
    "JUMP_BACKWARD_NO_INTERRUPT": jump_back,
    "LOAD_ATTR": attribute,
    "LOAD_FAST_CHECK": renamed("LOAD_FAST"),
    "LOAD_LOCALS": class_variable,
    "LOAD_SUPER_ATTR": super_attribute,
    **{f"POP_JUMP_IF_{condition}": renamed(f"POP_JUMP_FORWARD_IF_{condition}") for condition in CONDITIONS},
    "RETURN_CONST": constant_returned,
    "STORE_SLICE": becomes(("BUILD_SLICE", 2), ("STORE_SUBSCR", 0)),
})  # fmt: skip

REFUSED: Mapping[str, str] = MappingProxyType({
    **python_3_11.REFUSED,
    **dict.fromkeys(("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_NAMESPACE", "MAKE_TYPE_PARAMETERS"), "FL423"),
})  # fmt: skip
OWN_HANDLERS = frozenset({Instruction("CALL_INTRINSIC_1", STOPS)})
WORDINGS: Mapping[str, str] = MappingProxyType({
    "called match pattern must be a type": "called match pattern must be a class",
    "iter(v, w): v must be callable": "iter(object, sentinel): object must be callable",
    "max() arg is an empty sequence": "max() iterable argument is empty",
    "min() arg is an empty sequence": "min() iterable argument is empty",
})  # fmt: skip

VERSION = Version(
    RULES, REFUSED, frozenset({"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}), OWN_HANDLERS, WORDINGS, compensates_sums=True, stops_at_subset=True
)
