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
    """Facts about the results of nodes that guards and fake tensors do not determine."""

    __slots__ = ("compositions", "layouts", "unmeasured", "untyped")

    def __init__(self) -> None:
        # Nodes whose results have sizes that no guard determines: a size that Python reads of them is valid for one call only.
        self.unmeasured: set[Node] = set()
        # Nodes that ran on fakes only: the kernels may refuse the types of their arguments.
        self.untyped: set[Node] = set()
        # By the node of a library's operator: the operators that it has called on fakes.
        self.compositions: dict[Node, Any] = {}
        # The memory layouts that the kernels give to results, as far as Python code has read them.
        self.layouts: dict[Node, Any] = {}
