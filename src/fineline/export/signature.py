"""The parameters of an exported graph: those of the user's function, filled by the example call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from fineline.kinds import is_a

REQUIRED = inspect.Parameter.empty
LITERALS = (type(None), bool, int, float, str, torch.dtype)


class Parameter(NamedTuple):
    """A parameter. ``root``: the number of its argument in the example call, positional ones first; None if it had the default."""

    name: str
    root: int | None
    default: object = REQUIRED


def parameters_of(fn: Callable, args: tuple, kwargs: dict[str, object]) -> list[Parameter]:
    """Returns the parameters of an exported graph; each argument in ``*args`` and ``**kwargs`` gets its own.

    All parameters can be passed by position. A parameter with a default before one without loses its default; if the example
    call used that default, the parameter is left out.
    """
    target = fn.forward if is_a(fn, nn.Module) else fn
    try:
        declared = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        declared = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL), inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]
    roots = {name: len(args) + i for i, name in enumerate(kwargs)}
    found: list[Parameter] = []
    given = 0
    for p in declared:
        default = p.default if _is_literal(p.default) else REQUIRED
        if p.kind is p.VAR_POSITIONAL:
            found += [Parameter(f"{p.name}_{i - given}", i) for i in range(given, len(args))]
        elif p.kind is p.VAR_KEYWORD:
            found += [Parameter(name, root) for name, root in roots.items()]
        elif p.kind is not p.KEYWORD_ONLY and given < len(args):
            found.append(Parameter(p.name, given, default))
            given += 1
        elif p.name in roots:
            found.append(Parameter(p.name, roots.pop(p.name), default))
        elif default is not REQUIRED:
            found.append(Parameter(p.name, None, default))
    last = max([i for i, p in enumerate(found) if p.default is REQUIRED], default=-1)
    return [p._replace(default=REQUIRED) if i < last else p for i, p in enumerate(found) if i >= last or p.root is not None]


def _is_literal(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_literal, value))
    return type(value) in LITERALS and (type(value) is not float or math.isfinite(value))
