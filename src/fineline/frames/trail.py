"""The origin of a frame: the instruction that called it, and the module whose call it is. Graph nodes refer to it."""

from __future__ import annotations

from typing import NamedTuple

from fineline.bytecode.code import CodeInfo
from fineline.guards.source import Source


class ModuleCall(NamedTuple):
    """A call of a module: the source of the module, if known, its class and its identity."""

    source: Source | None
    cls: type
    key: int


class Trail:
    """The origin of a frame, shared by all nodes that the frame creates: the module whose call it is, and the place of that call."""

    __slots__ = ("called_at", "cls", "key", "source")

    def __init__(self, called_at: Origin | None) -> None:
        self.called_at = called_at
        # The fields of the module. A `ModuleCall` for each frame took 0.3 % of the first call of BERT.
        self.source: Source | None = None
        self.cls: type | None = None
        self.key = 0

    @property
    def module(self) -> ModuleCall | None:
        return ModuleCall(self.source, self.cls, self.key) if self.cls is not None else None


# The code of a frame, the index of the next instruction, and the frame's origin. A plain tuple, because each node has one.
Origin = tuple[CodeInfo, int, Trail]
