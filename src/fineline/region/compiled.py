"""The callable that ``compile`` returns for a function, and the ``forward`` of a compiled module. Each has the name of the original,
binds like it, and calls the dispatcher without Python code in between."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from fineline.region.deferred_region import DeferredRegion

if TYPE_CHECKING:
    from fineline.region.region import Region

# The attributes by which libraries find a function's parameters.
_MADE_OF = frozenset({"__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__", "__annotations__"})
_NAMED = _MADE_OF.union(functools.WRAPPER_ASSIGNMENTS)


class Compiled:
    """A compiled function. ``__wrapped__`` is the original; ``rebuild(fn)`` compiles another in the same way.

    A bound method is copied and pickled as one: if a module has compiled its own method, the copy's method uses the copy's weights.
    """

    # A call finds the region's dispatcher in the slot, so that a warm call runs no Python frame of fineline.
    fineline_original = "__wrapped__"
    __slots__ = ("__call__", "__dict__", "__weakref__", "_deferred", "_rebuild")

    def __init__(self, fn: Callable, region: DeferredRegion, rebuild: Callable[[Callable], Compiled]) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]
        object.__setattr__(self, "_deferred", region)
        object.__setattr__(self, "_rebuild", rebuild)
        object.__setattr__(self, "__call__", region.dispatcher)

    @property
    def _region(self) -> Region:
        return self._deferred.region

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        fn = object.__getattribute__(self, "__dict__").get("__wrapped__")
        if name in _MADE_OF and hasattr(fn, name):
            return getattr(fn, name)
        if name == "__signature__" and not isinstance(fn, (types.FunctionType, types.MethodType)):
            return inspect.signature(fn)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def get_compiler_config(self) -> Any:
        """Returns Inductor's settings for this function; None with another backend. PyTorch's compiled functions have this method."""
        return self._deferred.backend.settings()

    def ready(self) -> bool:
        """Returns whether it has been captured, and no call of it runs a graph that is still being compiled (``wait=False``)."""
        return self._deferred.is_ready

    def __repr__(self) -> str:
        return f"<fineline.compile of {self.__wrapped__!r}>"

    def __copy__(self) -> Compiled:
        return self

    def __reduce__(self) -> Any:
        bound = type(self.__wrapped__) is types.MethodType
        return (self._rebuild, (self.__wrapped__,)) if bound else str(self.__qualname__)


class Forward:
    """The ``forward`` of a compiled module: runs the same code as a call of the module, and looks like the original's.

    ``rebuild(module)`` makes the region for a copy of the module.
    """

    fineline_original = "_orig_mod"
    __slots__ = ("__call__", "__weakref__", "_orig_mod", "_rebuild")

    def __init__(self, mod: nn.Module, region: Callable, rebuild: Callable[[nn.Module], Callable] | None) -> None:
        self._orig_mod, self._rebuild = mod, rebuild
        object.__setattr__(self, "__call__", region)

    def __getattribute__(self, name: str) -> Any:
        if name in _NAMED or name == "__wrapped__":
            forward = object.__getattribute__(self, "_orig_mod").forward
            return forward if name == "__wrapped__" else getattr(forward, name)
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return f"<fineline.compile of {self._orig_mod.forward!r}>"

    def __copy__(self) -> Forward:
        return self

    def __reduce__(self) -> Any:
        return _forward_of, (self._orig_mod, self._rebuild)


def _forward_of(mod: nn.Module, rebuild: Callable[[nn.Module], Callable] | None) -> Forward:
    return Forward(mod, rebuilt(mod, rebuild), rebuild)


def rebuilt(mod: nn.Module, rebuild: Callable[[nn.Module], Callable] | None) -> Callable:
    """Returns a region for another module."""
    if rebuild is None:
        raise TypeError("this OptimizedModule was made without a function that rebuilds its region for another module")
    return rebuild(mod)
