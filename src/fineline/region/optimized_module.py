"""``OptimizedModule``: stands in for an ``nn.Module`` and runs the compiled region when called."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import textwrap
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX as EXTRA_STATE

from fineline.region.compiled import Forward, rebuilt

Region = Callable[..., Any]

# The stand-in's own attributes. All others are read from, written to and deleted from the original.
_OWN = frozenset(
    {
        "_called", "_orig_mod", "forward", "_fineline_forward", "_fineline_region", "_fineline_rebuild", "fineline_base", "dynamo_ctx",
        "get_compiler_config", "_of_rebuild", "_torchdynamo_orig_callable", "_torchdynamo_wrapper_id", "load_state_dict",
        "_load_from_state_dict", "_rename", "_renamed", "_is_ready",
    }
)  # fmt: skip
# The name of the original in the keys of torch.compile's compiled modules.
_PREFIX = "_orig_mod."
# Under PyTorch's names the original is the only child of the stand-in. The stand-in then has these tables of its own.
_TABLES = (
    "_parameters", "_buffers", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
# nn.Module's own methods that walk over parameters and modules, which the stand-in then has too.
_WALKS = (
    "state_dict", "_save_to_state_dict", "named_parameters", "parameters", "named_buffers", "buffers", "named_modules", "modules",
    "named_children", "children", "_named_members", "get_submodule", "set_submodule", "get_parameter", "get_buffer",
    "register_state_dict_pre_hook", "register_state_dict_post_hook", "_register_state_dict_hook",
    "register_load_state_dict_pre_hook", "register_load_state_dict_post_hook", "_register_load_state_dict_pre_hook",
)  # fmt: skip

# Methods of nn.Module that may return the module: here they return the stand-in, because ``model = model.to(device)`` would lose it.
_FLUENT = frozenset(
    {
        "_apply", "apply", "bfloat16", "cpu", "cuda", "double", "eval", "float", "get_submodule", "half", "ipu", "mtia", "requires_grad_",
        "share_memory", "to", "to_empty", "train", "type", "xpu",
    }
)  # fmt: skip


class _ForwardAttribute:
    """The attribute ``forward``: of a stand-in, the callable that a call runs; of its class, a function of the module and the arguments."""

    def __get__(self, obj: OptimizedModule | None, owner: type[OptimizedModule]) -> Callable[..., Any]:
        if obj is None:
            return _class_forward(owner)
        call: Region = object.__getattribute__(obj, "__call__")
        return obj._fineline_forward if call is obj._fineline_region else call

    def __set__(self, obj: OptimizedModule, fn: Region) -> None:
        object.__setattr__(obj, "__call__", obj._fineline_region if fn is obj._fineline_forward else fn)

    def __delete__(self, obj: OptimizedModule) -> None:
        object.__setattr__(obj, "__call__", obj._fineline_region)


class OptimizedModule(nn.Module):
    """Acts as the original module, except for calls, which go to ``region``.

    ``rebuild(module)`` makes a region with the same options for another module; copies and unpickled modules get theirs
    from it (so a pickle contains options and no compiled code). Nothing is written on the original. Libraries read the
    attributes ``compile`` and ``get_compiler_config`` of ``rebuild``, if any, as ``dynamo_ctx`` and ``get_compiler_config``.

    Each class of modules has a class of stand-ins of its own, because libraries read the parameters of ``type(model).forward``.
    """

    # A call looks up ``__call__`` on the type, finds a slot there, and calls its value: the region is called without a
    # Python frame in between, and without nn.Module's own ``__call__``.
    fineline_original = "_called"
    __slots__ = ("__call__", "_fineline_forward", "_fineline_rebuild", "_fineline_region", "_orig_mod")

    # The own attributes of a stand-in of this class, the class that was requested, and the class of the original.
    fineline_own = _OWN
    fineline_base: type[OptimizedModule]
    fineline_class: type[nn.Module] | None = None

    def __new__(cls, mod: nn.Module, *args: Any, **kwargs: Any) -> OptimizedModule:
        return object.__new__(_class_for(getattr(cls, "fineline_base", cls), type(mod)))

    def __init__(self, mod: nn.Module, region: Region, rebuild: Callable[[nn.Module], Region] | None = None) -> None:
        # nn.Module.__init__ is not called: parameters, hooks and submodules are the original's.
        set_own = functools.partial(object.__setattr__, self)
        set_own("_orig_mod", mod)
        set_own("_fineline_region", region)
        set_own("_fineline_rebuild", rebuild)
        set_own("_fineline_forward", Forward(mod, region, rebuild))
        set_own("__call__", region)

    # -- calls ------------------------------------------------------------------------------------------------------
    forward = _ForwardAttribute()

    @property
    def _called(self) -> Callable[..., Any]:
        """Returns the callable that capture traces into instead of the region."""
        call: Region = object.__getattribute__(self, "__call__")
        return self._orig_mod if call is self._fineline_region else call

    # -- attributes of torch.compile's modules, which libraries read ----------------------------------------------------
    @property
    def dynamo_ctx(self) -> Callable[[Callable], Any]:
        """Compiles another callable in the same way."""
        compile: Callable[[Callable], Any] = self._of_rebuild("compile")
        return compile

    @property
    def get_compiler_config(self) -> Callable[[], Any]:
        """Returns Inductor's settings for this module; None with another backend."""
        get: Callable[[], Any] = self._of_rebuild("get_compiler_config")
        return get

    @property
    def _torchdynamo_orig_callable(self) -> nn.Module:
        """Returns the module that PyTorch's own compiler compiles if it gets this one."""
        return self._orig_mod

    @property
    def _torchdynamo_wrapper_id(self) -> int:
        # PyTorch compares it, to recognize that the attribute above is this object's own.
        return id(self)

    def _is_ready(self) -> bool:
        """Returns whether it has been captured, and no call of it runs a graph that is still being compiled (``wait=False``)."""
        ready: bool = self._of_rebuild("is_ready")(self._fineline_region)
        return ready

    def _of_rebuild(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_fineline_rebuild"), name)

    # -- attributes -------------------------------------------------------------------------------------------------
    def __getattribute__(self, name: str) -> Any:
        if name in type(self).fineline_own or (name.startswith("__") and name not in ("__dict__", "__getattr__")):
            return object.__getattribute__(self, name)
        mod = object.__getattribute__(self, "_orig_mod")
        if name == "__getattr__":
            # Libraries read attributes by calling it under this name; Python itself looks it up on the type.
            return functools.partial(getattr, mod)
        value = getattr(mod, name)
        if name in _FLUENT and getattr(value, "__self__", None) is mod:
            return functools.partial(_call_fluent, self, value)
        return value

    def __getattr__(self, name: str) -> Any:
        # Reached when the lookup above found nothing, or called with the stand-in as an argument.
        mod = self._orig_mod
        if name == "__signature__":
            return inspect.signature(mod.forward)
        if name.startswith("__"):
            return getattr(mod, name)
        if name == "ready" and self._fineline_rebuild is not None:
            # Here, because a module's own attribute of this name comes first.
            return self._is_ready
        for table in (mod._parameters, mod._buffers, mod._modules):
            if name in table:
                return table[name]
        raise AttributeError(f"{type(mod).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod":
            fresh = rebuilt(value, self._fineline_rebuild)
            type(self).__init__(self, value, fresh, self._fineline_rebuild)
        elif name in type(self).fineline_own or name == "__class__":
            object.__setattr__(self, name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in type(self).fineline_own:
            object.__delattr__(self, name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), *type(self).fineline_own})

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n{textwrap.indent(f'(_orig_mod): {self._orig_mod!r}', '  ')}\n)"

    # -- containers -------------------------------------------------------------------------------------------------
    # Python looks these up on the type, so each is written out; the original decides whether it has them.
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

    # -- states -----------------------------------------------------------------------------------------------------
    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Loads a state with or without torch.compile's prefix in its keys; otherwise as the original does."""
        return self._orig_mod.load_state_dict(_with_keys(state_dict, self._renamed), *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The parent module calls it, with a dict of its own for this child's part.
        self._rename(state_dict, prefix)
        self._orig_mod._load_from_state_dict(state_dict, prefix, *args)

    def _rename(self, state_dict: dict[str, Any], prefix: str) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            name = prefix + self._renamed(key[len(prefix) :])
            if name != key and name not in state_dict:
                state_dict[name] = state_dict.pop(key)

    def _renamed(self, key: str) -> str:
        """Returns a key in the form that the state of this module has."""
        return key if "_orig_mod" in self._orig_mod._modules else key.removeprefix(_PREFIX)

    # -- copies -----------------------------------------------------------------------------------------------------
    def __copy__(self) -> OptimizedModule:
        return _restored(self.fineline_base, copy.copy(self._orig_mod), self._fineline_rebuild)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        return _restored(self.fineline_base, copy.deepcopy(self._orig_mod, memo), self._fineline_rebuild)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self.fineline_base, self._orig_mod, self._fineline_rebuild)


class TorchOptimizedModule(OptimizedModule):
    """An `OptimizedModule` whose parameters and modules are named as torch.compile names them: below ``_orig_mod``."""

    __slots__ = ("_fineline_tables",)
    fineline_own = _OWN.union(_TABLES, _WALKS, ("_modules", "_non_persistent_buffers_set", "_fineline_tables"))

    def __init__(self, mod: nn.Module, region: Region, rebuild: Callable[[nn.Module], Region] | None = None) -> None:
        super().__init__(mod, region, rebuild)
        tables = {**{name: {} for name in _TABLES}, "_modules": {"_orig_mod": mod}, "_non_persistent_buffers_set": set()}
        object.__setattr__(self, "_fineline_tables", tables)

    def __getattr__(self, name: str) -> Any:
        tables: dict[str, Any] = object.__getattribute__(self, "_fineline_tables")
        return tables[name] if name in tables else super().__getattr__(name)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        return nn.Module.load_state_dict(self, _with_keys(state_dict, self._renamed), *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._rename(state_dict, prefix)
        nn.Module._load_from_state_dict(self, state_dict, prefix, *args)

    def _renamed(self, key: str) -> str:
        mod, first = self._orig_mod, key.partition(".")[0]
        known = any(first in table for table in (mod._parameters, mod._buffers, mod._modules, (EXTRA_STATE,)))
        return _PREFIX + key if known and first != "_orig_mod" else key


def _with_keys(state_dict: Any, rename: Callable[[str], str]) -> Any:
    """Returns a state with renamed keys; the metadata about the versions of modules is renamed alike."""
    if not isinstance(state_dict, Mapping):
        return state_dict
    renamed = {rename(key): value for key, value in state_dict.items()}
    if len(renamed) < len(state_dict) or renamed.keys() == state_dict.keys():
        return state_dict
    out: Any = OrderedDict(renamed)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        # Its keys are modules, without a dot at the end.
        out._metadata = {rename(f"{key}." if key else "").removesuffix("."): value for key, value in metadata.items()}
    return out


# -- classes -------------------------------------------------------------------------------------------------------------
# By the requested class and the class of the original; an entry disappears with the last object of its class.
_CLASSES: weakref.WeakValueDictionary[tuple[type, type], type[OptimizedModule]] = weakref.WeakValueDictionary()


def _class_for(base: type[OptimizedModule], cls: type[nn.Module]) -> type[OptimizedModule]:
    found = _CLASSES.get((base, cls))
    if found is None:
        body = {"__slots__": (), "__module__": base.__module__, "__doc__": base.__doc__, "fineline_base": base, "fineline_class": cls}
        name = OptimizedModule.__name__ if base is TorchOptimizedModule else base.__name__
        found = _CLASSES[base, cls] = type(name, (base,), body)
    return found


def _class_forward(owner: type[OptimizedModule]) -> Callable[..., Any]:
    """Returns ``forward`` as a function of the module, with the parameters of the original's ``forward`` if the class is known."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    if owner.fineline_class is None:
        return forward
    theirs = owner.fineline_class.forward
    functools.update_wrapper(forward, theirs, updated=())
    # C code may have no signature.
    with contextlib.suppress(TypeError, ValueError):
        forward.__dict__["__signature__"] = inspect.signature(theirs)
    return forward


def _call_fluent(stand_in: OptimizedModule, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = method(*args, **kwargs)
    return stand_in if result is stand_in._orig_mod else result


def _restored(cls: type[OptimizedModule], mod: nn.Module, rebuild: Callable[[nn.Module], Region] | None) -> OptimizedModule:
    return cls(mod, rebuilt(mod, rebuild), rebuild)
