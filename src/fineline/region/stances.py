"""Calls that no program fits, under a stance other than the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fineline.backends.registry import Backend, lookup_backend
from fineline.errors import Recompiled
from fineline.policy.stance import Stance
from fineline.region.descriptions import call_stack, place_of


def instead(region: Any, stance: Stance, entry_point: Any, args: tuple, kwargs: dict) -> Callable[[], Any] | None:
    """Returns what runs the call in place of a capture; None: it is captured."""

    def eagerly() -> Any:
        return region.run_eagerly(entry_point, args, kwargs)

    if stance.name in ("force_eager", "eager_on_recompile"):
        return eagerly
    if stance.name == "fail_on_recompile":
        if region.refuse is not None:
            return eagerly
        rule = 'set_stance("fail_on_recompile")' + (f" at {stance.place}" if stance.place else "")
        raise Recompiled(region.why_missed(entry_point, args, kwargs), where="{}:{}".format(*place_of(region.fn)), rule=rule, stack=call_stack(region.fn, None))
    if entry_point is not region.entry:
        return None
    if stance.backend is not None:
        if region.stands_for == stance.key:
            return None
        other = region.others.get(stance.key)
        if other is None:
            other = region.others.setdefault(stance.key, _another(region, stance.backend, stance.key))
        return lambda: other(*args, **kwargs)
    if region.programs or region.had_first_call:
        return None
    region.had_first_call = True
    if stance.name == "eager_then_compile":
        return eagerly
    first = _another(region, lookup_backend("aot_eager"), stance.name)
    return lambda: first(*args, **kwargs)


def _another(region: Any, backend: Backend, key: Any) -> Callable:
    """Returns the dispatcher, which owns it, of a region for the same function, whose graphs another backend compiles."""
    other = type(region)(region.fn, backend, region.options, region.lessons.of_alike())
    other.stands_for, other.had_first_call = key, True
    region.watch_alike(other)
    return other.entry.dispatcher
