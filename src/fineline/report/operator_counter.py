"""Counts the operators that run in calls of a compiled function, by outcome.

"captured": in graphs; "eager": one by one, at graph breaks, between them, or where a capture was given up; "skipped": in code that was
not traced into, because of a rule or a built-in skip.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, TypeVarTuple

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# The outcome of operators of the current segment, which is known at its end.
OPEN = "open"
# The outcomes, in the order of reports.
FATES = ("captured", "eager", "skipped")


class _Where(threading.local):
    def __init__(self) -> None:
        self.stack: list[Callable[[], str]] = []


class OperatorCounts:
    """The counts, and the outcome of an operator that runs now. Subclasses see the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._where = _Where()
        # The number of operators in the current segment.
        self._open = 0

    @property
    def where(self) -> list[Callable[[], str]]:
        """Returns the callables that classify an operator, one for each capture and graph that runs in this thread; the innermost decides."""
        return self._where.stack

    def fate(self) -> str:
        """Returns the outcome for an operator that runs now; "": it is not the user's."""
        where = self._where.stack
        return where[-1]() if where else "skipped"

    def saw(self, func: object, kind: str) -> None:
        """Counts an operator that is about to run."""
        if kind == OPEN:
            self._open += 1
        else:
            self.counts[kind] += 1

    def close(self, kind: str) -> int:
        """Counts the operators captured since the last time as ``kind``; returns their number, 0 on fakes."""
        captured, self._open = self._open, 0
        self.counts[kind] += captured
        return captured

    def drop(self) -> None:
        """Forgets the operators captured since the last time: they are undone, and run again."""
        self._open = 0

    def mark(self) -> int:
        """Returns what `take_back` needs: which operators have been captured so far."""
        return self._open

    def take_back(self, mark: int) -> None:
        """Forgets the operators captured since ``mark``: the code runs again in another way."""
        self._open = mark

    def of_another(self) -> OperatorCounts:
        """Returns the counts for another region that is watched as part of this one: the same object."""
        return self

    def during(self, kind: str, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Makes a call in which operators count as ``kind``, unless a call inside it sets another kind."""
        where = self._where.stack
        depth = len(where)
        where.append(lambda: kind)
        try:
            return call(*args)
        finally:
            del where[depth:]

    def watch(self, kind: str, compile_graph: Callable, plain: bool, captured: int, carried: int) -> Callable:
        """Compiles a graph so that the operators of its later runs count as ``kind``; those that run while it is compiled do not count.

        ``plain``: it runs operator by operator. A compiled graph may run other operators: then the number ``captured`` counts, or, if
        that is 0, the number of the graph's nodes. ``carried``: the floats that come in tensors, out of which the graph reads them.
        """

        def compiled(gm: GraphModule, examples: list, kinds: object) -> Callable:
            call = self.during("", compile_graph, gm, examples, kinds)
            operators = captured or sum([node.op in ("call_function", "call_method") for node in gm._graph.nodes]) - carried

            def run(*args: object) -> object:
                self.counts[kind] += -carried if plain else operators
                return self.during(kind if plain else "", call, *args)

            return run

        return compiled


# What a tensor class with its own sizes, strides or layout is asked, by guards too: no operators.
_QUERIES = frozenset(
    {
        torch.ops.prim.layout.default, torch.ops.prim.device.default, torch.ops.aten.dim.default, torch.ops.aten.sym_size.default,
        torch.ops.aten.sym_stride.default, torch.ops.aten.sym_numel.default, torch.ops.aten.sym_storage_offset.default,
        torch.ops.aten.is_contiguous.default, torch.ops.aten.is_contiguous.memory_format, torch.ops.aten.is_strides_like_format.default,
        torch.ops.aten.is_non_overlapping_and_dense.default,
    }
)  # fmt: skip


class Tally(OperatorCounts, TorchDispatchMode):
    """Sees every ATen operator that runs in a block, for ``explain``."""

    # A sub-graph that a node runs counts as one.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # PyTorch compiles its control-flow operators in eager code too; under a mode that may object to that, it runs them in
        # another way, with other results.
        return True

    def __torch_dispatch__(
        self, func: Callable, types: Sequence[type], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        kind = self.fate()
        if kind and func not in _QUERIES:
            self.saw(func, kind)
        return func(*args, **(kwargs or {}))


class _Hearers(threading.local):
    def __init__(self) -> None:
        self.stack: list[OperatorCounts] = []


class Hearing:
    """The counts of the calls in progress in each thread: operators are counted for the innermost call."""

    def __init__(self) -> None:
        self._threads = _Hearers()
        # The operators of a thread that PyTorch started count for the latest call in any thread.
        self._latest: OperatorCounts | None = None

    def hear(self) -> None:
        """Counts an operator that is about to run."""
        stack = self._threads.stack
        counts = stack[-1] if stack else self._latest
        if counts is not None and (kind := counts.fate()):
            counts.saw(None, kind)

    def during(self, counts: OperatorCounts, make: Callable[[], T]) -> T:
        """Makes a call whose operators count for ``counts``."""
        hear_operators = _core()
        stack = self._threads.stack
        if hear_operators is None or (stack and stack[-1] is counts):
            return make()
        before = self._latest
        try:
            stack.append(counts)
            self._latest = counts
            if len(stack) == 1:
                hear_operators(self.hear)
            return make()
        finally:
            stack.pop()
            self._latest = before
            if not stack:
                hear_operators(None)


_HEARING = Hearing()


@functools.cache
def _core() -> Callable[[Callable[[], None] | None], None] | None:
    try:
        return getattr(importlib.import_module("fineline._native"), "hear_operators", None)
    except ImportError:
        return None


class RunCounts(OperatorCounts):
    """Counts the operators in calls of a region, for ``fineline run --report``, without changing what runs.

    Without the native core it counts nothing.
    """

    @staticmethod
    def available() -> bool:
        return _core() is not None

    def of_another(self) -> OperatorCounts:
        """Returns new counts, because the other region has a report of its own."""
        return RunCounts()

    def during(self, kind: str, call: Callable[[*Ts], T], *args: *Ts) -> T:
        return _HEARING.during(self, functools.partial(super().during, kind, call, *args))
