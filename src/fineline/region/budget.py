"""The limits of a region's captures: the recompile limit, the calls that fitted no program, and the reasons to run calls eagerly."""

from __future__ import annotations

import logging
import time
import types
from collections import Counter, deque
from collections.abc import Callable

import torch
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.errors import RecompileLimit
from fineline.kinds import is_a
from fineline.policy.scope_stack import SCOPE
from fineline.refusals import REFUSALS
from fineline.region.descriptions import describe_miss, subject
from fineline.region.entry_point import EntryPoint
from fineline.region.options import Options
from fineline.region.reports import Reports
from fineline.report.misses import Miss
from fineline.tensor_ops.user_modes import watching

log = logging.getLogger("fineline")

# How often a region drops all programs to capture its calls from their start. Each time it makes up to as many as the limit allows.
MOST_STARTS = 8
# If the rests of so many calls ran eagerly after a graph break, and took this share of the time, calls run eagerly from their start.
RESTS, MOST_OF_TIME = 8, 0.25


class Misses:
    """Counts the calls that fitted no program, by the guard that failed."""

    def __init__(self) -> None:
        self._guards: Counter[str] = Counter()

    def forget(self) -> None:
        self._guards.clear()

    def explain(self, entry_point: EntryPoint, args: tuple, kwargs: dict, made: int) -> Miss:
        """Counts a miss; returns why the call fits no program at ``entry_point``. ``made``: programs that the region has made."""
        found = entry_point.nearest(args, kwargs)
        if found is not None:
            self._guards[subject(*found)] += 1
            return describe_miss(*found, (*args, *kwargs.values()))
        if not entry_point.segments:
            given_up = "its programs were given up: some of the code runs better eagerly, or the backend has assumed more than they guard"
            return Miss.without_guard(given_up if made else "no program has been made yet")
        return Miss.without_guard("the call's arguments are given in another way")

    @property
    def most_frequent(self) -> str:
        """Returns the guard that calls failed most often, as the rest of a sentence; "" if there is none."""
        most = self._guards.most_common(1)
        return f"; the guard that fails most: {most[0][0]}" if most else ""


class Budget:
    """The number of programs that a region makes, against its recompile limit."""

    def __init__(self, options: Options, reports: Reports) -> None:
        self.programs = 0
        self._options, self._reports, self._misses = options, reports, Misses()
        # How often all programs were dropped for better ones, and how many those were: they do not count against the limit.
        self._starts = self._uncounted = 0
        # The call that was counted last; None for one whose own entry was captured.
        self._counted: object = None

    def forget(self) -> None:
        self.programs = self._starts = self._uncounted = 0
        self._misses.forget()

    @property
    def limit(self) -> int:
        return self._options.recompile_limit

    @property
    def spent(self) -> int:
        """Returns the number of programs that count against the limit."""
        return self.programs - self._uncounted

    @property
    def may_drop_programs(self) -> bool:
        return self._starts < MOST_STARTS

    def spend(self, call: object, again: bool) -> None:
        """Counts a program. ``again``: also if one was counted in the same ``call``."""
        if again or call != self._counted:
            self.programs, self._counted = self.programs + 1, call

    def start_anew(self) -> None:
        """Stops counting the programs so far against the limit, because all are dropped."""
        if self.may_drop_programs:
            self._starts, self._uncounted = self._starts + 1, self.programs

    def why_missed(self, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Miss:
        """Counts a miss; returns why the call fits no program at ``entry_point``."""
        return self._misses.explain(entry_point, args, kwargs, self.programs)

    def report_limit(self, programs: int, entry_point: EntryPoint, args: tuple, kwargs: dict) -> None:
        """Reports once that nothing more is captured at ``entry_point``, and why; if the limit is an error, raises it at each such call."""
        if self._reports.said("limit") and not self._options.limit_is_error:
            return
        why = self.why_missed(entry_point, args, kwargs)
        often = self._misses.most_frequent
        if self._options.limit_is_error:
            reason = f"{programs} programs, recompile_limit={self.limit}; {why}{often}"
            raise RecompileLimit(reason, **self._reports.position(entry_point))
        self._reports.is_first("limit")
        reason = f"{programs} programs, with a recompile_limit of {self.limit}; calls that fit none of them run eagerly{often}"
        self._reports.note_at(entry_point, "limit", "FL104", reason)
        where = "{}:{}".format(*self._reports.place_at(entry_point))
        log.warning("fineline: %s has %s; last miss: %s. %s", where, reason, why, REFUSALS["FL104"].next_step)


class EagerReasons:
    """The reasons why calls of a region run eagerly from their start."""

    def __init__(self, fn: Callable, options: Options, reports: Reports) -> None:
        # Why calls of this function are never captured.
        self.refusal = _refusal(fn)
        # A reason that captures have found, until the region is reset.
        self.reason: str | None = None
        # Whether calls under hooks on saved tensors run eagerly.
        self.under_hooks = False
        self._options, self._reports = options, reports
        self._failures = 0
        # The times of begin and end of the rests of calls that ran eagerly after a graph break, because the limit was reached.
        self._rests: deque[tuple[float, float]] = deque(maxlen=RESTS)

    def forget(self) -> None:
        self.reason, self.under_hooks, self._failures = None, False, 0
        self._rests.clear()

    def always(self, reason: str) -> None:
        """Runs all later calls eagerly."""
        self.reason = reason

    def always_under_hooks(self) -> None:
        """Runs all later calls under hooks on saved tensors eagerly."""
        self.under_hooks = True
        self._reports.note_call_once("skipped", "FL406", "under hooks on saved tensors, calls with graph breaks run eagerly")

    def count_failure(self, reason: str) -> None:
        """Counts a capture that failed; after too many of them, all later calls run eagerly."""
        self._failures += 1
        if self._failures > self._options.recompile_limit and self.reason is None and not self._options.fullgraph:
            self.reason = reason
            log.warning("fineline: %s:%s: calls run eagerly from now on: %s", *self._reports.place, reason)

    def count_rest(self, began: float) -> bool:
        """Counts the rest of a call that ran eagerly since ``began``; returns whether such rests take too much of the time.

        The interpreter is about 50 times slower than Python: calls that spend their time in it are faster if they run eagerly at once.
        """
        now = time.monotonic()
        self._rests.append((began, now))
        taken = sum([end - start for start, end in self._rests])
        if len(self._rests) < RESTS or taken <= MOST_OF_TIME * (now - self._rests[0][0]):
            return False
        self._rests.clear()
        return True

    def why(self) -> str | None:
        """Returns why a call that is made now runs eagerly; None if it may be captured."""
        return self.refusal or self.reason or ambient_refusal()

    def report(self, reason: str) -> None:
        """Reports a call that runs eagerly for this ``reason``."""
        rule = SCOPE.disabled_by if not (self.refusal or self.reason) else None
        if rule is not None:
            self._reports.note_disabled(rule, reason)
        else:
            self._reports.note_call_once("skipped", "FL405" if self.refusal else "FL406", reason)


def _refusal(fn: Callable) -> str | None:
    """Returns why calls of a function are never captured; None if they may be."""
    fn = fn.__func__ if is_a(fn, types.MethodType) else fn
    code = getattr(fn, "__code__", None)
    if code is not None and code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        return f"{fn.__qualname__} is an async function"
    if code is not None and code.co_flags & CO_GENERATOR:
        return f"{fn.__qualname__} is a generator function"
    return None


def ambient_refusal() -> str | None:
    """Returns the state of PyTorch or fineline, in words, that prevents the capture of a call made now; None if there is none."""
    if None in SCOPE.blocks:
        return "the call is made in a with disable() block"
    if (mode := watching()) is not None:
        return mode
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is active"
    if is_fx_symbolic_tracing():
        return "torch.fx traces the call"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "the call is made inside a torch.func transform"
    return None
