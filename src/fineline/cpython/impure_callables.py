"""Callables whose results depend on more than their arguments, or that change more: clocks, files, random generators.

A compiler traces a function under ``allow_in_graph`` once. The result of such a callable would be a constant in the compiler's
graph, and its effect would happen once.
"""

from __future__ import annotations

import builtins
import random
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fineline.kinds import is_a
from fineline.numpy_support import np

_DRAWS, _CLOCK, _ACTS = "draws random numbers", "reads a clock", "reads or changes something outside of the code"
# By the module of a function, or of a method's class. Includes Python functions that write logs.
_MODULES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("time", "_datetime", "datetime"), _CLOCK),
        **dict.fromkeys(("_random", "random", "numpy.random"), _DRAWS),
        **dict.fromkeys(("_io", "io", "logging", "traceback", "posix", "nt", "_socket", "select", "_posixsubprocess", "_winapi", "signal", "mmap"), _ACTS),
    }
)
_BUILTINS = frozenset(getattr(builtins, name) for name in ("print", "input", "open", "breakpoint") if hasattr(builtins, name))
_TIME = (
    "clock_getres clock_gettime clock_gettime_ns ctime gmtime localtime monotonic monotonic_ns perf_counter perf_counter_ns process_time "
    "process_time_ns pthread_getcpuclockid sleep strftime thread_time thread_time_ns time time_ns tzset"
)
# The impure names in these modules; their other functions compute from their arguments.
_NAMES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "_datetime": frozenset({"now", "today", "utcnow"}),
        "datetime": frozenset({"now", "today", "utcnow"}),
        "time": frozenset(_TIME.split()),
        "traceback": frozenset({"print_exc", "print_exception", "print_tb"}),
    }
)
_TEXT_IN_MEMORY = frozenset({"StringIO", "BytesIO"})
_SETS = "changes a class"
_SETTERS = frozenset({setattr, delattr, type.__setattr__, type.__delattr__})
_TORCH = "changes or reads PyTorch's state"
_OF_TORCH = frozenset({"get_rng_state", "initial_seed", "load", "manual_seed", "manual_seed_all", "save", "seed", "use_deterministic_algorithms"})


def reaches_out(fn: Any, args: Any, own: Callable[[Any], bool]) -> str | None:
    """Returns a text for what a call of ``fn`` does beyond a computation from its arguments; None if nothing is known.

    ``own`` returns whether the calling code has made an object.
    """
    fn, args = called(fn, args)
    if is_a(fn, types.BuiltinFunctionType) and fn in _BUILTINS:
        return _ACTS
    setter = is_a(fn, (types.BuiltinFunctionType, types.WrapperDescriptorType)) and fn in _SETTERS
    if setter and args and is_a(args[0], type) and not own(args[0]):
        return _SETS
    module, owner = _home(fn, args)
    name = getattr(fn, "__name__", "")
    if module.partition(".")[0] == "torch":
        return _TORCH if name in _OF_TORCH or name.startswith(("set_", "_set_")) else None
    text = next((text for known, text in _MODULES.items() if module == known or module.startswith(f"{known}.")), None)
    if text is None or (module in _NAMES and name not in _NAMES[module]):
        return None
    if text is _DRAWS:
        return None if _draws_the_same(fn, name, args, owner, own) else text
    if is_a(fn, type):
        return None if name in _TEXT_IN_MEMORY else text
    return None if type(owner).__name__ in _TEXT_IN_MEMORY and own(owner) else text


def called(fn: Any, args: Any) -> tuple[Any, Any]:
    """Returns the function that C ``__call__`` wrappers call in the end, for example a Cython function, and its arguments."""
    while type(fn) is types.WrapperDescriptorType and fn.__name__ == "__call__" and args:
        fn, args = args[0], args[1:]
    return fn, args


def _draws_the_same(fn: Any, name: str, args: Any, owner: Any, own: Callable[[Any], bool]) -> bool:
    """Returns whether the numbers are the same at each call: they come from a generator that the code makes with a seed."""
    seeded = bool(args) and args[-1] is not None and args[-1] is not owner
    if owner is None:
        return seeded and (is_a(fn, type) or name == "default_rng")
    return own(owner) and (seeded or name != "seed")


def _home(fn: Any, args: Any) -> tuple[str, Any]:
    """Returns the module of a C callable, and the object whose method it is, or None."""
    owner = getattr(fn, "__self__", None)
    if is_a(fn, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return fn.__objclass__.__module__, args[0] if args else None
    if owner is None and args and is_a(args[0], _GENERATORS):
        # An unbound Cython method does not refer to its class.
        return _module_of_class(type(args[0])), args[0]
    if owner is None or is_a(owner, types.ModuleType):
        return str(getattr(fn, "__module__", None) or ""), None
    if is_a(owner, type):
        return owner.__module__, None
    return _module_of_class(type(owner)), owner


def _module_of_class(cls: type) -> str:
    # A user class may inherit the method.
    return next((k.__module__ for k in cls.__mro__ if issubclass(k, _GENERATORS) or k.__module__ in _MODULES), cls.__module__)


_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
