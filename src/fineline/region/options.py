"""What a user can set for one region."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from fineline.capture.local_classes import LocalClasses
from fineline.errors import BadArgument
from fineline.region.dispatch import Evaluator

KNOWN = {"recompile_limit": int, "evaluator": str, "force_borders": bool}


@dataclass
class Options:
    """``recompile_limit``: programs a region keeps. ``evaluator``: "native" or "reference". ``force_borders``: a border after each operator.

    ``opaque`` grows while the region lives: instructions that could not be captured and run eagerly from then on.
    """

    fullgraph: bool = False
    recompile_limit: int = 8
    evaluator: Evaluator = "native"
    force_borders: bool = False
    rules: Any = None
    opaque: set[tuple[CodeType, int]] = field(default_factory=set)
    classes: LocalClasses = field(default_factory=LocalClasses)
    # Instructions with their handlers, for code with opaque places: by code info and number of such places.
    linked: dict[tuple[int, int], list] = field(default_factory=dict)


def split_options(options: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """-> (fineline's own options, the backend's)."""
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in (options or {}).items():
        kind = KNOWN.get(key)
        if kind is None:
            rest[key] = value
            continue
        if not isinstance(value, kind):
            raise BadArgument(f"option {key!r} takes a {kind.__name__}, not {value!r}")
        own[key] = value
    if own.get("evaluator", "native") not in ("native", "reference"):
        raise BadArgument(f'option \'evaluator\' is "native" or "reference", not {own["evaluator"]!r}')
    return own, rest
