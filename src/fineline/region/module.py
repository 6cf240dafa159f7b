"""``OptimizedModule``: stands in for an ``nn.Module`` and runs the compiled region when called."""

from __future__ import annotations

import copy
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from fineline.region.compiled import Forward, rebuilt

Region = Callable[..., Any]

# What the stand-in has of its own. Everything else is read from, written to and deleted from the original.
_OWN = frozenset({"_called", "_orig_mod", "forward", "_fineline_forward", "_fineline_region", "_fineline_rebuild"})

# Methods of nn.Module that return the module, or may: they return the stand-in, or ``model = model.to(device)`` would lose it.
_FLUENT = frozenset(
    {
        "_apply", "apply", "bfloat16", "cpu", "cuda", "double", "eval", "float", "get_submodule", "half", "ipu", "mtia", "requires_grad_",
        "share_memory", "to", "to_empty", "train", "type", "xpu",
    }
)  # fmt: skip


class OptimizedModule(nn.Module):
    """The original module, but for calls: these go to ``region``.

    ``rebuild(module)`` gives a region with the same options for another module; copies and unpickled modules get theirs
    from it (so a pickle holds options and no compiled code). Nothing is written on the original.
    """

    # A call looks ``__call__`` up on the type and, as it finds a slot there, takes what the slot holds: the region is
    # called without a Python frame in between, and without nn.Module's own ``__call__``.
    fineline_original = "_called"
    __slots__ = ("__call__", "_fineline_forward", "_fineline_rebuild", "_fineline_region", "_orig_mod")

    def __init__(self, mod: nn.Module, region: Region, rebuild: Callable[[nn.Module], Region] | None = None) -> None:
        # nn.Module.__init__ is left out: parameters, hooks and submodules are the original's.
        set_own = functools.partial(object.__setattr__, self)
        set_own("_orig_mod", mod)
        set_own("_fineline_region", region)
        set_own("_fineline_rebuild", rebuild)
        set_own("_fineline_forward", Forward(mod, region, rebuild))
        set_own("__call__", region)

    # -- calls ------------------------------------------------------------------------------------------------------
    @property
    def forward(self) -> Region:
        """What a call runs; libraries that wrap ``model.forward`` in place find and replace it here."""
        call: Region = object.__getattribute__(self, "__call__")
        return self._fineline_forward if call is self._fineline_region else call

    @forward.setter
    def forward(self, fn: Region) -> None:
        object.__setattr__(self, "__call__", self._fineline_region if fn is self._fineline_forward else fn)

    @forward.deleter
    def forward(self) -> None:
        object.__setattr__(self, "__call__", self._fineline_region)

    @property
    def _called(self) -> Callable[..., Any]:
        """What captured code runs through instead of the region."""
        call: Region = object.__getattribute__(self, "__call__")
        return self._orig_mod if call is self._fineline_region else call

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._orig_mod.forward)

    # -- attributes -------------------------------------------------------------------------------------------------
    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or (name.startswith("__") and name != "__dict__"):
            return object.__getattribute__(self, name)
        mod = object.__getattribute__(self, "_orig_mod")
        value = getattr(mod, name)
        if name in _FLUENT and getattr(value, "__self__", None) is mod:
            return functools.partial(_call_fluent, self, value)
        return value

    def __getattr__(self, name: str) -> Any:
        # Reached when the lookup above found nothing; nn.Module's own version would look a second time.
        if name.startswith("__"):
            return getattr(self._orig_mod, name)
        raise AttributeError(f"{type(self._orig_mod).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod":
            fresh = rebuilt(value, self._fineline_rebuild)
            OptimizedModule.__init__(self, value, fresh, self._fineline_rebuild)
        elif name in _OWN or name == "__class__":
            object.__setattr__(self, name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN:
            object.__delattr__(self, name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), *_OWN})

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n{textwrap.indent(f'(_orig_mod): {self._orig_mod!r}', '  ')}\n)"

    # -- containers -------------------------------------------------------------------------------------------------
    # Python looks these up on the type, so that each is spelled out; the original decides whether it has them.
    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._orig_mod)

    def __contains__(self, item: Any) -> bool:
        return item in self._orig_mod

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._orig_mod[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._orig_mod[key]

    # -- copies -----------------------------------------------------------------------------------------------------
    def __copy__(self) -> OptimizedModule:
        return _restored(type(self), copy.copy(self._orig_mod), self._fineline_rebuild)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        return _restored(type(self), copy.deepcopy(self._orig_mod, memo), self._fineline_rebuild)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (type(self), self._orig_mod, self._fineline_rebuild)


def _call_fluent(stand_in: OptimizedModule, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = method(*args, **kwargs)
    return stand_in if result is stand_in._orig_mod else result


def _restored(cls: type[OptimizedModule], mod: nn.Module, rebuild: Callable[[nn.Module], Region] | None) -> OptimizedModule:
    return cls(mod, rebuilt(mod, rebuild), rebuild)
