"""A region that is made at its first call, so that a process that compiles functions and calls none does not load the engine."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fineline.backends.registry import Backend
from fineline.import_thread import LateModule
from fineline.region.guard_dispatch import Handlers, make_deferred_dispatcher
from fineline.region.options import Options

if TYPE_CHECKING:
    from fineline.region import region as engine
    from fineline.region.entry_points import Storage
    from fineline.region.interface import CapturingRegion
    from fineline.region.watch import Watch
else:
    engine = LateModule("fineline.region.region")


class DeferredRegion:
    """The region of a compiled callable: what `compile` was given, the dispatcher, and the region itself from the first call on.

    The dispatcher stays the same, so that the compiled callable need not know of this.
    """

    def __init__(
        self, fn: Callable, backend: Backend, options: Options, watch: Watch | None = None, shares: bool = True,
        storage: Storage[CapturingRegion] | None = None,
    ) -> None:  # fmt: skip
        """``shares``: whether it and the regions of equal callables run each other's programs. ``storage``: keeps its programs."""
        self.backend = backend
        self.compiled_at = time.monotonic_ns()
        self._fn, self._options, self._watch, self._shares, self._storage = fn, options, watch, shares and watch is None, storage
        # At most one.
        self._made: dict[None, engine.Region] = {}
        self._dispatcher: Callable[[], Any] = lambda: None

    @property
    def if_made(self) -> engine.Region | None:
        """Returns the region; None before the first call."""
        return self._made.get(None)

    @property
    def is_ready(self) -> bool:
        """Returns whether the region has been made and is ready."""
        return self.if_made is not None and self.if_made.is_ready

    @property
    def region(self) -> engine.Region:
        """Returns the region, and makes it before the first call."""
        found = self.if_made
        if found is None:
            dispatcher, how = self.dispatcher, (self._fn, self.backend, self._options)
            new = engine.Region(*how, watch=self._watch, shares=self._shares, storage=self._storage)
            new.entry.take(dispatcher)
            # Not under a lock, because the handler of a signal may make the same call. Of the regions of two threads one is dropped.
            found = self._made.setdefault(None, new)
        return found

    @property
    def dispatcher(self) -> Any:
        """Returns the dispatcher; it lives as long as a caller refers to it."""
        found = self._dispatcher()
        if found is None:
            if self.if_made is not None:
                found = self.if_made.entry.dispatcher
            else:
                found = make_deferred_dispatcher(self._handlers, self._options.evaluator)
            self._dispatcher = weakref.ref(found)
        return found

    def is_called_by(self, dispatcher: object) -> bool:
        return self._dispatcher() is dispatcher

    def _handlers(self) -> Handlers:
        return self.region.entry.handlers
