"""The table of C callables: their rows in `cpython/c_callables.py`, joined with the polyfills and the forms for symbolic numbers."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fineline.cpython.c_callables import CallableSpec, parsed, rows
from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.objects.polyfills import POLYFILLS
from fineline.symbolic.arithmetic import FUNCTIONS
from fineline.tables import is_replaced

UNKNOWN = CallableSpec("unknown")


def _joined() -> Iterator[tuple[Callable[..., Any], CallableSpec]]:
    specs: dict[tuple, CallableSpec] = {}
    for fn, words in rows():
        # The rows list a class method both as a descriptor and bound; the polyfill is keyed by the descriptor.
        unbound = fn.__self__.__dict__[fn.__name__] if type(fn) is types.BuiltinFunctionType and is_a(fn.__self__, type) else fn
        columns = words, POLYFILLS.get(unbound), FUNCTIONS.get(fn)
        spec = specs.get(columns) or specs.setdefault(columns, parsed(*columns))
        if spec.effect != "-":
            yield fn, spec


SPECS: Mapping[Callable[..., Any], CallableSpec] = MappingProxyType(dict(_joined()))
# `torch.Size.numel` is an operator unless the numbers are symbolic.
_ON_SYMBOLS = [(fn, CallableSpec("unknown", symbolic=form)) for fn, form in FUNCTIONS.items() if fn not in SPECS and not is_replaced(fn)]
_BY_IDENTITY = IdentityMap((*_ON_SYMBOLS, *SPECS.items()))


def spec_of(fn: object) -> CallableSpec:
    """Returns the row of a C callable, or `UNKNOWN` if it has none and so must not be called during capture.

    Looks up by identity, which never runs the user's `__hash__` or `__eq__`. A classmethod such as `dict.fromkeys` is a new
    object at each read: it is found by value, bound to the type that defines it, and also as the descriptor in that type.
    """
    spec = _BY_IDENTITY.get(fn)
    if spec is None:
        return SPECS.get(fn, UNKNOWN) if type(fn) is types.BuiltinFunctionType else UNKNOWN
    return spec
