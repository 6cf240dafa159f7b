"""CPython 3.14: what is new or different against 3.13."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fineline.bytecode import python_3_13
from fineline.bytecode.lowering import Reading, Replacement, Rule, becomes
from fineline.bytecode.templates import make_interpolation, make_template

# The operator of BINARY_OP that reads an item.
SUBSCRIPT = 26
_COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
_NO_MANAGER = "'{full_name}' object does not support the context manager protocol"
# The special methods of asynchronous context managers.
_ASYNCHRONOUS = (2, 3)


def small_int(reading: Reading, k: int) -> Replacement:
    return (("LOAD_CONST", reading.constant(reading.instructions[k].arg)),), 1


def common_constant(reading: Reading, k: int) -> Replacement:
    return (("LOAD_CONST", reading.constant(_COMMON_CONSTANTS[reading.instructions[k].arg])),), 1


def operator(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    return (("BINARY_SUBSCR", 0) if arg == SUBSCRIPT else ("BINARY_OP", arg),), 1


def _end_of_inlined(reading: Reading, k: int) -> int | None:
    """Returns where the call is for which the code from ``k`` on stands, if it is a loop over the generator of ``any``, ``all`` or ``tuple``.

    The compiler writes both: the loop is for the built-in function, and the call for others of its name.
    """
    if not reading.follows(k, "LOAD_COMMON_CONSTANT", "IS_OP", "POP_JUMP_IF_FALSE"):
        return None
    end = reading.instructions[k + 3].arg
    return end if end > k and reading.is_closed(k, end) else None


def called_global(reading: Reading, k: int) -> Replacement:
    name, arg = reading.instructions[k]
    end = _end_of_inlined(reading, k + 1) if reading.follows(k, "COPY") else None
    if end is not None and reading.instructions[end].name == "PUSH_NULL" and reading.is_closed(k, end + 1):
        return ((name, arg | 1),), end + 1 - k
    return ((name, arg),), 1


def copied(reading: Reading, k: int) -> Replacement:
    """``with``: the exit method is loaded first, in two parts as for a call, and the manager is entered."""
    arg, end = reading.instructions[k].arg, _end_of_inlined(reading, k)
    if end is not None:
        return (), end - k
    if arg == 1 and reading.follows(k, "LOAD_SPECIAL", "SWAP", "SWAP", "LOAD_SPECIAL", "CALL"):
        if reading.instructions[k + 1].arg in _ASYNCHRONOUS:
            return (("BEFORE_ASYNC_WITH", 0),), 6
        return (("PUSH_NULL", 0), ("SWAP", 2), ("BEFORE_WITH", 0)), 6
    return python_3_13.RULES["COPY"](reading, k)


def null(reading: Reading, k: int) -> Replacement:
    """A call with ``*`` always has keywords, or NULL in their place."""
    if reading.follows(k, "CALL_FUNCTION_EX"):
        return (("CALL_FUNCTION_EX", 0),), 2
    return python_3_13.RULES["PUSH_NULL"](reading, k)


def _put_below(n: int) -> list[tuple[str, int]]:
    """Moves the last value of the stack below the ``n`` values before it."""
    return [("SWAP", k) for k in range(n + 1, 1, -1)]


def _calling(reading: Reading, fn: object, n: int) -> list[tuple[str, int]]:
    """Calls a function with the last ``n`` values of the stack."""
    load = ("LOAD_CONST", reading.constant(fn))
    return [("PUSH_NULL", 0), *_put_below(n), load, *_put_below(n), ("CALL", n)]


def interpolation(reading: Reading, k: int) -> Replacement:
    arg = reading.instructions[k].arg
    spec = () if arg & 1 else (("LOAD_CONST", reading.constant("")),)
    conversion = ("LOAD_CONST", reading.constant((None, "s", "r", "a")[arg >> 2]))
    return (*spec, conversion, *_calling(reading, make_interpolation, 4)), 1


def template(reading: Reading, k: int) -> Replacement:
    return _calling(reading, make_template, 2), 1


RULES: Mapping[str, Rule] = MappingProxyType({
    **{name: rule for name, rule in python_3_13.RULES.items() if name != "RETURN_CONST"},
    "BINARY_OP": operator,
    "BUILD_INTERPOLATION": interpolation,
    "BUILD_TEMPLATE": template,
    "CALL_FUNCTION_EX": becomes(("CALL_FUNCTION_EX", 1)),
    "COPY": copied,
    "LOAD_COMMON_CONSTANT": common_constant,
    "LOAD_FAST_BORROW": python_3_13.load,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": python_3_13.load_load,
    "LOAD_GLOBAL": called_global,
    "LOAD_SMALL_INT": small_int,
    # Only within what `copied` reads; alone, in code that is not interpreted.
    "LOAD_SPECIAL": becomes(("BEFORE_ASYNC_WITH", 0)),
    "NOT_TAKEN": becomes(),
    "POP_ITER": python_3_13.popped,
    "PUSH_NULL": null,
})  # fmt: skip

WORDINGS: Mapping[str, str] = MappingProxyType({
    **python_3_13.WORDINGS,
    "too many values to unpack (expected {n})": "too many values to unpack (expected {n}, got {got})",
    "{item!r} is not in list": "list.index(x): x not in list",
    "'NoneType' object is not callable": "'{name}' cannot be interpreted as a boolean",
    "cannot convert dictionary update sequence element #{count} to a sequence": "object is not iterable",
    "'{name}' object does not support the context manager protocol": f"{_NO_MANAGER} (missed __enter__ method){{hint}}",
    "'{name}' object does not support the context manager protocol (missed __exit__ method)": f"{_NO_MANAGER} (missed __exit__ method){{hint}}",
})  # fmt: skip

VERSION = python_3_13.VERSION._replace(
    rules=RULES, wordings=WORDINGS, warns_of=python_3_13.VERSION.warns_of - {"partials"}, drops_the_first_first=False, looks_for_exit_first=True, notes_elements=True
)
