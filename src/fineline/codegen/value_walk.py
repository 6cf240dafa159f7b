"""The walk over values of the captured code: asks in a fixed order where a value comes from, for subclasses that write the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from fineline.guards.source import Source
from fineline.identity import AddressMap
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.segment_trace import SegmentTrace

WrittenT = TypeVar("WrittenT")


class ValueWalk(ABC, Generic[WrittenT]):
    """Asks where a value comes from. A subclass writes the answer: as text of a program, or as parts of an exported graph."""

    # Types whose values are written as they are.
    LITERALS: ClassVar[frozenset[type]]

    def __init__(self, trace: SegmentTrace) -> None:
        self.trace = trace
        # The answers for objects that have been made already. The subclass keeps the objects alive.
        self._memo: AddressMap[WrittenT] = AddressMap()

    def expr(self, v: Any) -> WrittenT:
        """Returns the written form of ``v``, which yields it in a later call."""
        trace, t = self.trace, type(v)
        if trace.deferred.numbers and v in trace.deferred.numbers:
            return self.existing(v, trace.deferred.numbers[v])
        if trace.deferred.texts and v in trace.deferred.texts:
            return self.deferred_text(v)
        if t in self.LITERALS:
            return self.literal(v)
        if t in SYMBOLIC and trace.symbols is not None and getattr(v.node, "shape_env", None) is trace.symbols.shapes:
            return self.symbolic_number(v)
        made = self._memo.get(v)
        if made is not None:
            return made
        src = trace.sources.get(v)
        if is_a(v, Tensor):
            return self.existing(v, src) if src is not None else self.graph_result(v)
        return self.other_object(v, src)

    @abstractmethod
    def existing(self, v: Any, src: Source) -> WrittenT:
        """Returns a value that existed before the call."""

    @abstractmethod
    def deferred_text(self, v: str) -> WrittenT:
        """Returns a text that each call makes again."""

    @abstractmethod
    def literal(self, v: Any) -> WrittenT:
        """Returns a constant."""

    @abstractmethod
    def symbolic_number(self, v: Any) -> WrittenT:
        """Returns a symbolic number."""

    @abstractmethod
    def graph_result(self, v: Tensor) -> WrittenT:
        """Returns a tensor that did not exist before the call."""

    @abstractmethod
    def other_object(self, v: Any, src: Source | None) -> WrittenT:
        """Returns any other object; ``src`` is where it was read, if it was."""
