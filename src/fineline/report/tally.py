"""Counts the operators that run under ``explain``, by what became of them.

"captured": in graphs; "eager": one by one, at graph breaks, between them, or where a capture was given up; "skipped": in code that was
not looked into, because of a rule or a built-in skip.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# What becomes of the operators of the segment that is being captured is not known before its end.
OPEN = "open"

class Tally(TorchDispatchMode):
    """Sees every ATen operator that runs. ``where`` tells, for the innermost capture, what an operator that runs now is to it."""

    # A sub-graph that a node runs counts as one.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.where: list[Callable[[], str]] = []
        # Of the segment that is being captured.
        self._open = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # PyTorch compiles its control-flow operators in eager code too; where it sees a mode that may object to that, it runs
        # them in a way of its own, with other results.
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kind = self.where[-1]() if self.where else "skipped"
        if kind:
            self.saw(func, kind)
        return func(*args, **(kwargs or {}))

    def saw(self, func: Any, kind: str) -> None:
        """An operator is about to run."""
        if kind == OPEN:
            self._open += 1
        else:
            self.counts[kind] += 1

    def close(self, kind: str) -> None:
        """What has been captured since the last time became ``kind``."""
        self.counts[kind] += self._open
        self._open = 0

    def drop(self) -> None:
        """... is taken back, and is going to run again."""
        self._open = 0

    @contextlib.contextmanager
    def _all_are(self, kind: str) -> Iterator[None]:
        self.where.append(lambda: kind)
        try:
            yield
        finally:
            self.where.pop()

    def watch(self, kind: str, compile_graph: Callable, plain: bool) -> Callable:
        """A graph that runs again counts too: what it runs is of that kind. What runs while it is compiled does not count.

        ``plain``: it runs operator by operator. What a compiler has made of it may run other ones: then those of the graph count.
        """

        def compiled(gm: Any, examples: list, kinds: Any) -> Callable:
            with self._all_are(""):
                call = compile_graph(gm, examples, kinds)
            operators = sum([node.op in ("call_function", "call_method") for node in gm.graph.nodes])

            def run(*args: Any) -> Any:
                if not plain:
                    self.counts[kind] += operators
                with self._all_are(kind if plain else ""):
                    return call(*args)

            return run

        return compiled
