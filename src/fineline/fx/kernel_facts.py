"""The memory that kernels write, and what is not known of their results before they run: sizes, types, layouts."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.multiprocessing.reductions import StorageWeakRef


class WrittenStorages:
    """The storages that the operators of a graph wrote into."""

    __slots__ = ("held", "storages")

    def __init__(self) -> None:
        # The addresses of these storages; what keeps the addresses from being given to others after a storage's death.
        self.storages: set[int] = set()
        self.held: list[StorageWeakRef] = []

    def add(self, storage: torch.UntypedStorage) -> None:
        """Notes that an operator wrote into ``storage``."""
        if storage._cdata not in self.storages:
            self.held.append(StorageWeakRef(storage))
        self.storages.add(storage._cdata)


class KernelFacts:
    """What the nodes of a graph compute, as far as guards and fake tensors do not tell it."""

    __slots__ = ("layouts", "unmeasured", "untyped")

    def __init__(self) -> None:
        # Nodes of whose results no guard tells the sizes: what Python reads of them holds for one call.
        self.unmeasured: set[Node] = set()
        # Nodes that fake tensors have gone through, and of which it is not known whether the kernels take tensors of such types.
        self.untyped: set[Node] = set()
        # How the kernels lay out what nodes compute, as far as Python code has asked.
        self.layouts: dict[Node, Any] = {}
