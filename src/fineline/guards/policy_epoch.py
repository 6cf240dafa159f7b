"""Numbers for the control rules in force: one for the process and one for the thread, guarded with the other ambient state."""

from __future__ import annotations

import functools
import importlib
import itertools
import threading
from collections.abc import Callable

# After this many different nestings of blocks, all get new numbers: code in them is captured again.
MOST_NESTINGS = 1000


@functools.cache
def _setter() -> Callable[[int, int], None] | None:
    # Not imported at the top: the core imports this package's facts when it is loaded.
    try:
        return getattr(importlib.import_module("fineline._native"), "set_rules", None)
    except ImportError:
        return None


class Rulebook:
    """Numbers the rules in force: programs captured under other numbers do not fit. Numbers are unique; 0: a thread in no block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fresh = itertools.count(1)
        self._nestings: dict[tuple, int] = {(): 0}
        self._local = threading.local()
        self._process = 0
        # The stance of the process: None, or a key that only programs captured under it fit.
        self._stance: object = None
        self._stances: dict[tuple, int] = {}

    def changed(self) -> None:
        """Assigns a new number to the process, because its rules have changed."""
        with self._lock:
            self._process = next(self._fresh)
        self._publish()

    def set_blocks(self, blocks: tuple) -> None:
        """Sets the blocks that this thread is in, outermost first; equal blocks have the same number."""
        with self._lock:
            if len(self._nestings) > MOST_NESTINGS:
                self._nestings = {(): 0}
            number = self._nestings.get(blocks)
            if number is None:
                number = self._nestings[blocks] = next(self._fresh)
        self._local.number = number
        self._publish()

    def set_stance(self, stance: object) -> None:
        """Sets the stance of the process. The same stance under the same rules gets the same number, so that its programs fit again."""
        self._stance = stance
        self._publish()

    def _publish(self) -> None:
        set_rules = _setter()
        if set_rules is not None:
            set_rules(*self.facts())

    def facts(self) -> tuple[int, int]:
        return self._process_now(), getattr(self._local, "number", 0)

    def _process_now(self) -> int:
        if self._stance is None:
            return self._process
        key = (self._process, self._stance)
        with self._lock:
            number = self._stances.get(key)
            if number is None:
                number = self._stances[key] = next(self._fresh)
        return number


RULEBOOK = Rulebook()
