"""What the interpreter's own iterators stand for, where the captured code, or whoever gets them, can tell."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Mapping
from types import GeneratorType, MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.capture.frame import InterpretedGenerator
from fineline.capture.polyfill_iterators import Enumerate, Filter, Map, Zip
from fineline.capture.polyfill_itertools import FilterFalse, StarMap
from fineline.capture.polyfills import POLYFILLS

# Stand-in -> the type that it is to the captured code.
KINDS: Mapping[type, type] = MappingProxyType(
    {InterpretedGenerator: GeneratorType, FakeTensor: Tensor, torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    | {p: c for c, p in POLYFILLS.items() if type(p) is type and type(c) is type}
)
# Those whose state is that of an iterator made of these parts.
_PARTS: Mapping[type, Callable[[Any], tuple[Any, tuple, dict]]] = MappingProxyType(
    {
        Map: lambda v: (builtins.map, (v.function, *v.sources), {}),
        Filter: lambda v: (builtins.filter, (v.function, v.source), {}),
        FilterFalse: lambda v: (itertools.filterfalse, (v.function, v.source), {}),
        StarMap: lambda v: (itertools.starmap, (v.function, v.source), {}),
        Zip: lambda v: (builtins.zip, tuple(v.sources), {"strict": v.strict}),
        Enumerate: lambda v: (builtins.enumerate, (v.source, v.count), {}),
    }
)


def parts_of(v: Any) -> tuple[Any, tuple, dict] | None:
    """-> (callable, args, kwargs) that give the iterator which ``v`` stands for; None: it stands for none, or it can't be made so."""
    parts = _PARTS.get(type(v))
    return None if parts is None else parts(v)
