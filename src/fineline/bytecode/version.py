"""The facts about the running version of CPython."""

from __future__ import annotations

import sys
from collections.abc import Generator

from fineline.bytecode import python_3_11, python_3_12, python_3_13, python_3_14
from fineline.bytecode.lowering import Version

_MODULES = {(3, 11): python_3_11, (3, 12): python_3_12, (3, 13): python_3_13, (3, 14): python_3_14}
CURRENT: Version = _MODULES[sys.version_info[:2]].VERSION


def _caught() -> Generator[None, None, bool]:
    try:
        yield
    except GeneratorExit:
        return True
    return False


def _close_returns() -> bool:
    generator = _caught()
    next(generator)
    returned: object = generator.close()  # type: ignore[func-returns-value]
    return returned is True


# Whether ``close`` of a generator returns what the generator returns, as from Python 3.13 on.
CLOSE_RETURNS = _close_returns()
