"""The rules of each version, on instructions written by hand: they need no Python of that version."""

from __future__ import annotations

import types
from typing import Any

import pytest

from fineline.bytecode import python_3_11, python_3_12, python_3_13, python_3_14
from fineline.bytecode.instructions import Handler, Instruction
from fineline.bytecode.lowering import Lowered, Version, lower
from fineline.bytecode.templates import make_interpolation, make_template

V311, V312, V313, V314 = python_3_11.VERSION, python_3_12.VERSION, python_3_13.VERSION, python_3_14.VERSION


def some_code() -> types.CodeType:
    """Returns code with the variables a (a parameter in a cell), b, c and the cell d."""

    def fn(a: Any, b: Any) -> Any:
        c = d = b
        return lambda: (a, d, c and None)

    return fn.__code__.replace(co_varnames=("a", "b", "c"), co_nlocals=3, co_cellvars=("a", "d"), co_consts=(None,))


def lowered(version: Version, text: str, handlers: list[Handler] | None = None) -> Lowered:
    """Lowers instructions that are written with their arguments, separated by semicolons."""
    parts = [part.split() for part in text.split(";")]
    return lower(some_code(), [Instruction(name, int(*arg or ("0",))) for name, *arg in parts], handlers or [], version)


def shown(found: Lowered) -> str:
    """Writes instructions as `lowered` reads them; constants that the code does not have, as they are."""
    texts = []
    for name, arg in found.instructions:
        own = name == "LOAD_CONST" and arg >= 1
        texts.append(f"{name} {found.consts[arg]!r}" if own else f"{name} {arg}" if arg else name)
    return "; ".join(texts)


ANY = "COPY 1; LOAD_COMMON_CONSTANT 4; IS_OP 0; POP_JUMP_IF_FALSE 9; NOT_TAKEN; POP_TOP; LOAD_CONST 0; RETURN_VALUE; PUSH_NULL; NOP; CALL 0"

RULES = [
    # -- 3.12
    (V312, "BINARY_SLICE; STORE_SLICE", "BUILD_SLICE 2; BINARY_SUBSCR; BUILD_SLICE 2; STORE_SUBSCR"),
    (V312, "LOAD_ATTR 6; LOAD_ATTR 7; COMPARE_OP 66", "LOAD_ATTR 3; LOAD_METHOD 3; COMPARE_OP 4"),
    (V312, "LOAD_SUPER_ATTR 20", "POP_TOP; POP_TOP; PUSH_NULL; SWAP 2; CALL; LOAD_ATTR 5"),
    (V312, "LOAD_SUPER_ATTR 23", "PUSH_NULL; SWAP 4; SWAP 3; SWAP 2; CALL 2; LOAD_METHOD 5"),
    (V312, "COPY 1; POP_JUMP_IF_FALSE 4; POP_TOP; NOP; RETURN_VALUE", "JUMP_IF_FALSE_OR_POP 2; NOP; RETURN_VALUE"),
    # A jump into the middle: the pattern stays in pieces.
    (V312, "COPY 1; POP_JUMP_IF_TRUE 4; POP_TOP; JUMP_FORWARD 2; NOP", "COPY 1; POP_JUMP_FORWARD_IF_TRUE 4; POP_TOP; JUMP_FORWARD 2; NOP"),
    (V312, "FOR_ITER 3; STORE_FAST 1; JUMP_BACKWARD 0; END_FOR; RETURN_CONST 0", "FOR_ITER 3; STORE_FAST 1; JUMP_BACKWARD; LOAD_CONST; RETURN_VALUE"),
    (V312, "CALL_INTRINSIC_1 1; POP_TOP", "PRINT_EXPR; LOAD_CONST None; POP_TOP"),
    (V312, "CALL_INTRINSIC_1 5; CALL_INTRINSIC_1 6; CALL_INTRINSIC_2 1", "UNARY_POSITIVE; LIST_TO_TUPLE; PREP_RERAISE_STAR"),
    (V312, "CALL_INTRINSIC_1 7; CALL_INTRINSIC_1 11; CALL_INTRINSIC_2 4", "MAKE_TYPE_PARAMETERS; MAKE_TYPE_ALIAS; MAKE_TYPE_PARAMETERS"),
    (V312, "LOAD_LOCALS; LOAD_FROM_DICT_OR_DEREF 3; LOAD_LOCALS; STORE_DEREF 0", "LOAD_CLASSDEREF 3; LOAD_NAMESPACE; STORE_DEREF"),
    # -- 3.13
    (V313, "LOAD_FAST_LOAD_FAST 33; STORE_FAST_STORE_FAST 33", "LOAD_FAST 2; LOAD_FAST 1; STORE_FAST 2; STORE_FAST 1"),
    (V313, "STORE_FAST_LOAD_FAST 18", "STORE_FAST 1; LOAD_FAST 2"),
    # Variables in cells: a, by its slot, and d.
    (V313, "LOAD_FAST_LOAD_FAST 3", "LOAD_CLOSURE; LOAD_CLOSURE 3"),
    (V313, "LOAD_CONST 0; CALL_KW 2; LOAD_CONST 0", "KW_NAMES; CALL 2; LOAD_CONST"),
    (V313, "COMPARE_OP 148; POP_JUMP_IF_FALSE 2; NOP", "COMPARE_OP 4; POP_JUMP_FORWARD_IF_FALSE 2; NOP"),
    (V313, "COPY 1; TO_BOOL; POP_JUMP_IF_FALSE 4; POP_TOP; NOP", "JUMP_IF_FALSE_OR_POP 1; NOP"),
    (V313, "TO_BOOL; UNARY_NOT; TO_BOOL; NOP", "UNARY_NOT; UNARY_NOT; UNARY_NOT; NOP"),
    (V313, "CONVERT_VALUE 2; FORMAT_SIMPLE; CONVERT_VALUE 1; LOAD_CONST 0; FORMAT_WITH_SPEC", "FORMAT_VALUE 2; CONVERT_VALUE 1; LOAD_CONST; FORMAT_VALUE 4"),
    (V313, "MAKE_FUNCTION; SET_FUNCTION_ATTRIBUTE 8; SET_FUNCTION_ATTRIBUTE 1; NOP", "MAKE_FUNCTION 9; NOP"),
    (V313, "PUSH_NULL; CALL_FUNCTION_EX 1", "PUSH_NULL; SWAP 2; CALL_FUNCTION_EX 1"),
    (V313, "FOR_ITER 3; STORE_FAST 1; JUMP_BACKWARD 0; END_FOR; POP_TOP; RETURN_VALUE", "FOR_ITER 3; STORE_FAST 1; JUMP_BACKWARD; RETURN_VALUE"),
    # Comprehensions, inlined and not.
    (V313, "GET_ITER; LOAD_FAST_AND_CLEAR 1; SWAP 2; BUILD_SET 0; SWAP 2; GET_ITER", "GET_ITER; LOAD_FAST_AND_CLEAR 1; SWAP 2; BUILD_SET; SWAP 2; GET_ITER 1"),
    (V313, "LOAD_FAST 1; GET_ITER", "LOAD_FAST 1; GET_ITER"),
    # -- 3.14
    (V314, "LOAD_FAST_BORROW 1; LOAD_FAST_BORROW_LOAD_FAST_BORROW 18", "LOAD_FAST 1; LOAD_FAST 1; LOAD_FAST 2"),
    (V314, "LOAD_SMALL_INT 200; LOAD_COMMON_CONSTANT 2", "LOAD_CONST 200; LOAD_CONST <class 'tuple'>"),
    (V314, "BINARY_OP 26; BINARY_OP 5", "BINARY_SUBSCR; BINARY_OP 5"),
    (V314, "PUSH_NULL; LOAD_FAST 1; PUSH_NULL; CALL_FUNCTION_EX; CALL_FUNCTION_EX", "PUSH_NULL; SWAP 2; LOAD_FAST 1; CALL_FUNCTION_EX; CALL_FUNCTION_EX 1"),
    (V314, "COPY 1; TO_BOOL; POP_JUMP_IF_TRUE 5; NOT_TAKEN; POP_TOP; NOP", "JUMP_IF_TRUE_OR_POP 1; NOP"),
    (V314, "POP_JUMP_IF_NONE 3; NOT_TAKEN; NOP; NOP", "POP_JUMP_FORWARD_IF_NONE 2; NOP; NOP"),
    (V314, "COPY 1; LOAD_SPECIAL 1; SWAP 2; SWAP 3; LOAD_SPECIAL 0; CALL 0; POP_TOP", "PUSH_NULL; SWAP 2; BEFORE_WITH; POP_TOP"),
    (V314, "COPY 1; LOAD_SPECIAL 3; SWAP 2; SWAP 3; LOAD_SPECIAL 2; CALL 0", "BEFORE_ASYNC_WITH"),
    # The loop that the compiler writes for `any` of a generator; for a name that is not global; and one that code outside jumps into.
    (V314, f"LOAD_GLOBAL 2; {ANY}", "LOAD_GLOBAL 3; NOP; CALL"),
    (V314, f"LOAD_FAST 1; {ANY}", "LOAD_FAST 1; PUSH_NULL; SWAP 2; NOP; CALL"),
    (
        V314,
        f"LOAD_GLOBAL 2; {ANY}; JUMP_BACKWARD 5",
        "LOAD_GLOBAL 2; COPY 1; LOAD_CONST <built-in function any>; IS_OP; POP_JUMP_FORWARD_IF_FALSE 8; POP_TOP; LOAD_CONST; RETURN_VALUE; "
        "PUSH_NULL; SWAP 2; NOP; CALL; JUMP_BACKWARD 5",
    ),
    (V314, "FOR_ITER 3; STORE_FAST 1; JUMP_BACKWARD 0; END_FOR; POP_ITER; POP_ITER; NOP", "FOR_ITER 3; STORE_FAST 1; JUMP_BACKWARD; POP_TOP; NOP"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "text", "expected"), [pytest.param(*row, id=row[1]) for row in RULES])
def test_rules(version: Version, text: str, expected: str) -> None:
    assert shown(lowered(version, text)) == expected


def test_patterns_do_not_cross_the_border_of_a_handler() -> None:
    text = "COPY 1; POP_JUMP_IF_TRUE 3; POP_TOP; RETURN_VALUE; PUSH_EXC_INFO; RERAISE 0"
    found = lowered(V312, text, [Handler(1, 3, 4, 2, False)])
    assert shown(found) == "COPY 1; POP_JUMP_FORWARD_IF_TRUE 3; POP_TOP; RETURN_VALUE; PUSH_EXC_INFO; RERAISE"
    found = lowered(V312, text, [Handler(0, 3, 4, 2, False)])
    assert (shown(found), found.handlers) == ("JUMP_IF_TRUE_OR_POP 1; RETURN_VALUE; PUSH_EXC_INFO; RERAISE", [Handler(0, 1, 2, 2, False)])
    assert found.origins == [0, 3, 4, 5]


def test_patterns_cross_the_gaps_of_a_handler() -> None:
    text = "COPY 1; TO_BOOL; POP_JUMP_IF_TRUE 5; NOT_TAKEN; POP_TOP; RETURN_VALUE; PUSH_EXC_INFO; RERAISE 0"
    found = lowered(V314, text, [Handler(0, 3, 6, 2, False), Handler(4, 6, 6, 2, False)])
    assert (shown(found), found.handlers) == ("JUMP_IF_TRUE_OR_POP 1; RETURN_VALUE; PUSH_EXC_INFO; RERAISE", [Handler(0, 2, 2, 2, False)])
    # Another handler.
    found = lowered(V314, text, [Handler(0, 3, 6, 2, False), Handler(4, 6, 6, 1, False)])
    assert shown(found).startswith("COPY 1;") and len(found.handlers) == 2


def test_the_handler_around_a_generator_goes() -> None:
    text = "NOP; RETURN_VALUE; CALL_INTRINSIC_1 3; RERAISE 1"
    assert lowered(V312, text, [Handler(0, 2, 2, 0, True)]).handlers == []
    # That of `yield from` stays.
    text = "SEND 3; YIELD_VALUE 1; JUMP_BACKWARD_NO_INTERRUPT 0; END_SEND; RETURN_VALUE; CLEANUP_THROW; JUMP_BACKWARD 3"
    found = lowered(V312, text, [Handler(1, 2, 5, 2, False)])
    assert found.handlers == [Handler(1, 2, 4, 2, False)]
    assert shown(found) == "SEND 3; YIELD_VALUE 1; JUMP_BACKWARD_NO_INTERRUPT; RETURN_VALUE; CLEANUP_THROW; JUMP_FORWARD 3"


@pytest.mark.parametrize(
    ("text", "fn", "values", "args"),
    [
        ("BUILD_INTERPOLATION 0", make_interpolation, ["v", "t"], ["v", "t", "", None]),
        ("BUILD_INTERPOLATION 9", make_interpolation, ["v", "t", "spec"], ["v", "t", "spec", "r"]),
        ("BUILD_TEMPLATE", make_template, ["strings", "parts"], ["strings", "parts"]),
    ],
)
def test_templates_become_calls(text: str, fn: Any, values: list, args: list) -> None:
    found = lowered(V314, text)
    *steps, (last, n) = found.instructions
    stack: list[Any] = ["below", *values]
    for name, arg in steps:
        if name == "SWAP":
            stack[-1], stack[-arg] = stack[-arg], stack[-1]
        else:
            assert name in ("PUSH_NULL", "LOAD_CONST")
            stack.append("NULL" if name == "PUSH_NULL" else found.consts[arg])
    assert (last, n, stack) == ("CALL", len(args), ["below", "NULL", fn, *args])


def test_each_version_lists_what_it_refuses() -> None:
    for version in (V311, V312, V313, V314):
        assert version.refused.keys() & version.rules.keys() == set()
        assert {"FL405", "FL423"} <= {*version.refused.values()}
    assert all("MAKE_TYPE_PARAMETERS" in version.refused for version in (V312, V313, V314))
    # 3.11's instructions are the interpreter's own.
    assert not V311.rules
