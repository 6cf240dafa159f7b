"""The graphs that the nodes of one graph run."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule


class NestedGraphs:
    """The graphs that nodes of one graph run, by the names under which they are its attributes."""

    __slots__ = ("modules", "parts", "shared")

    def __init__(self) -> None:
        # Graphs that operators run, and that belong to one node each.
        self.parts: dict[str, Any] = {}
        # Graphs that several nodes may run.
        self.modules: dict[str, GraphModule] = {}
        # In the recorder of the outermost graph: the graphs that several nodes may run, at any depth, because backends identify them by name.
        self.shared: dict[str, GraphModule] = {}

    def attributes(self) -> dict[str, Any]:
        """Returns all graphs by name, for the module of the graph that runs them."""
        return self.parts | self.modules

    def modules_inside(self) -> list[Any]:
        """Returns the modules of all graphs, at any depth."""
        return [module for graph in (*self.parts.values(), *self.modules.values()) for module in graph.modules()]
