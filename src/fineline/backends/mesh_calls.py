"""Calls with a mesh of processes in a graph, and the meshes as inputs of the graph that AOTAutograd gets."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.fx import GraphModule, Node

from fineline.kinds import is_a


class MeshCall:
    """A target in a graph: a function of the part of this process, or a method of a `DTensor`, with constants: placements, and ``mesh`` or None.

    A compiler may give the mesh as a further argument: what it traces with is not the mesh itself.
    """

    def __init__(self, fn: Callable, mesh: object, constants: dict[str, object]) -> None:
        self._fn, self.mesh, self._constants = fn, mesh, constants
        self.__name__ = fn.__name__

    def __call__(self, t: Tensor, mesh: object = None) -> object:
        mesh = self.mesh if mesh is None else mesh
        return self._fn(t, **self._constants) if mesh is None else self._fn(t, mesh, **self._constants)

    def __eq__(self, other: object) -> bool:
        return is_a(other, MeshCall) and self._fn is other._fn and self.mesh is other.mesh and self._constants == other._constants

    def __hash__(self) -> int:
        return hash((self._fn, id(self.mesh), *self._constants))


def meshes_as_inputs(own: GraphModule) -> list[object]:
    """Makes the meshes in a graph its last inputs, and returns them: AOTAutograd would give a stand-in back as the mesh of a result."""
    meshes: dict[int, tuple[object, Node]] = {}
    last = [node for node in own.graph.nodes if node.op == "placeholder"][-1:]
    for node in list(own.graph.nodes):
        mesh = node.target.mesh if is_a(node.target, MeshCall) else None
        if mesh is None:
            continue
        if id(mesh) not in meshes:
            with own.graph.inserting_after(last[-1]) if last else own.graph.inserting_before(next(iter(own.graph.nodes))):
                last.append(own.graph.placeholder(f"mesh_{len(meshes)}"))
            meshes[id(mesh)] = mesh, last[-1]
        node.args = (*node.args, meshes[id(mesh)][1])
    return [mesh for mesh, _ in meshes.values()]
