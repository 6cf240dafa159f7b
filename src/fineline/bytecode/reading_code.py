"""Recognizes functions that have no effects of their own, but may look up attributes."""

from __future__ import annotations

import itertools
from types import CodeType

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CODES
from fineline.bytecode.pure_code import HARMLESS

_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def globals_of_reading_code(code: CodeType) -> frozenset[str] | None:
    """Returns the global names that a function and those inside it read.

    None if the code may do more by itself: set an attribute or a global name, import, catch exceptions, yield, or use variables around it, or ask for
    the identity of an object other than None.
    """
    if code.co_freevars or code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
        return None
    found, codes = set[str](), [code]
    for one in codes:
        info = CODES[one]
        if info.catches:
            return None
        for (before, constant), (name, arg) in itertools.pairwise((("", 0), *info.instructions)):
            if name == "LOAD_GLOBAL":
                found.add(info.names[arg >> 1])
            elif name == "IS_OP" and (before != "LOAD_CONST" or info.consts[constant] is not None):
                # What the code gets in place of an object may be another one at each read.
                return None
            elif name not in HARMLESS and name not in _LOADS:
                return None
        codes += [constant for constant in one.co_consts if type(constant) is CodeType]
    return frozenset(found)
