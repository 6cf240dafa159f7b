"""The intrinsic functions of CPython 3.12 and later that make type parameters and aliases (PEP 695), as functions.

No name leads to them: only an instruction calls them, so each function consists of that instruction.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import FunctionType, MappingProxyType

# TypeVar, ParamSpec, TypeVarTuple, the base class of a generic class, TypeAliasType.
_ONE = (7, 8, 9, 10, 11)
# TypeVar with a bound, TypeVar with constraints, the parameters of a function, the default of a parameter (3.13).
_TWO = (2, 3, 4, 5)


def _of_one(a: object) -> object:
    raise NotImplementedError


def _of_two(a: object, b: object) -> object:
    raise NotImplementedError


def _intrinsics(like: FunctionType, numbers: tuple[int, ...]) -> Mapping[int, FunctionType]:
    n = like.__code__.co_argcount
    name = f"CALL_INTRINSIC_{n}"
    if name not in dis.opmap:
        return MappingProxyType({})
    made = {}
    for number in numbers:
        units = [("RESUME", 0), *[("LOAD_FAST", k) for k in range(n)], (name, number), ("RETURN_VALUE", 0)]
        code = like.__code__.replace(co_code=bytes([byte for unit, arg in units for byte in (dis.opmap[unit], arg)]), co_stacksize=n + 1)
        made[number] = FunctionType(code, {"__name__": __name__}, f"{name.lower()}_{number}")
    return MappingProxyType(made)


INTRINSICS_1 = _intrinsics(_of_one, _ONE)
INTRINSICS_2 = _intrinsics(_of_two, _TWO)
