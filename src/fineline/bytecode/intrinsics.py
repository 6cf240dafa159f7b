"""The intrinsic function of CPython 3.12 and later that makes the alias of a ``type`` statement (PEP 695), as a function.

No name leads to it: only an instruction calls it, so this function consists of that instruction.
"""

from __future__ import annotations

import dis
from types import CodeType

TYPE_ALIAS = 11


def make_type_alias(parts: tuple) -> object:
    """Returns the alias with these parts: its name, its type parameters, and the function that gives its value."""
    raise NotImplementedError("Python 3.11 has no type statement")


def _of_an_instruction(like: CodeType) -> CodeType:
    """Returns code that calls the intrinsic function; ``like``: code with one parameter."""
    if "CALL_INTRINSIC_1" not in dis.opmap:
        return like
    units = (("RESUME", 0), ("LOAD_FAST", 0), ("CALL_INTRINSIC_1", TYPE_ALIAS), ("RETURN_VALUE", 0))
    return like.replace(co_code=bytes([byte for name, arg in units for byte in (dis.opmap[name], arg)]))


make_type_alias.__code__ = _of_an_instruction(make_type_alias.__code__)
