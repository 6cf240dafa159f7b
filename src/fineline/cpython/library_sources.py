"""Finds the Python versions of library functions that C replaces: the interpreter runs them where C would call user code."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any


def python_functions(module: ModuleType, accelerator: str, replaced: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, FunctionType]:
    """Returns the functions that ``module`` defines without its C module ``accelerator``, by name; none if it has no code object.

    ``replaced``: what they find under these names instead.
    """

    def imported(name: str, *how: Any) -> Any:
        if name == accelerator:
            raise ImportError(f"the functions in Python do without {name}")
        return builtins.__import__(name, *how)

    # The code object, not the source, which a frozen program lacks.
    find = getattr(getattr(module.__spec__, "loader", None), "get_code", None)
    code = find(module.__name__) if find is not None else None
    if code is None:
        return MappingProxyType({})
    names: dict[str, Any] = {"__name__": module.__name__, "__builtins__": {**vars(builtins), "__import__": imported}}
    exec(code, names)
    # The file name is in this package, like that of all code that the interpreter runs instead of C.
    file = os.path.join(os.path.dirname(__file__), f"{module.__name__}.py")
    functions = {name: v for name, v in names.items() if type(v) is FunctionType and v.__globals__ is names}
    for fn in functions.values():
        fn.__code__ = fn.__code__.replace(co_filename=file)
    names |= replaced
    return MappingProxyType(functions)
