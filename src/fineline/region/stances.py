"""Calls that no program fits, under a stance other than the default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fineline.backends.registry import lookup_backend
from fineline.errors import Recompiled
from fineline.policy.stance import Stance
from fineline.region.descriptions import call_stack
from fineline.region.entry_point import EntryPoint
from fineline.region.interface import CapturingRegion


class Stances:
    """The calls of a region under stances: whether one ran before the first capture, and the regions that replace this one."""

    def __init__(self, stands_for: Any = None, had_first_call: bool = False) -> None:
        # The key of the stance under which this region replaces another, with another backend.
        self._stands_for = stands_for
        self._had_first_call = had_first_call
        # The dispatchers of regions that replace this one, by the keys of the stances.
        self._others: dict[Any, Callable] = {}

    def forget(self) -> None:
        self._others.clear()
        self._had_first_call = False

    def instead(self, region: CapturingRegion, stance: Stance, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Callable[[], Any] | None:
        """Returns a function that runs a call of ``region`` instead of a capture; None if the call is captured."""

        def eagerly() -> Any:
            return region.run_eagerly(entry_point, args, kwargs)

        if stance.name in ("force_eager", "eager_on_recompile"):
            return eagerly
        if stance.name == "fail_on_recompile":
            if region.eager.refusal is not None:
                return eagerly
            rule = 'set_stance("fail_on_recompile")' + (f" at {stance.place}" if stance.place else "")
            miss = region.budget.why_missed(entry_point, args, kwargs)
            raise Recompiled(str(miss), where=region.reports.where, rule=rule, stack=call_stack(region.fn, None))
        if entry_point is not region.entry:
            return None
        if stance.backend is not None:
            if self._stands_for == stance.key:
                return None
            other = self._others.get(stance.key)
            if other is None:
                other = self._others.setdefault(stance.key, region.stand_in(stance.backend, stance.key))
            return lambda: other(*args, **kwargs)
        if region.budget.programs or self._had_first_call:
            return None
        self._had_first_call = True
        if stance.name == "eager_then_compile":
            return eagerly
        first = region.stand_in(lookup_backend("aot_eager"), stance.name)
        return lambda: first(*args, **kwargs)
