"""The interpreter when ``explain`` watches: it keeps a tree of the calls it meets. Other captures pay nothing for it."""

from __future__ import annotations

import types
from typing import Any

from fineline.capture.frame import Frame
from fineline.capture.machine import Machine
from fineline.capture.places import is_own
from fineline.capture.signals import Border
from fineline.capture.tensors import TensorOps
from fineline.kinds import is_a
from fineline.policy.marks import wrapped
from fineline.region.describe import user_place
from fineline.region.frames import FrameRunner
from fineline.report.tree import Node, joined

# A program that calls for ever may have calls for ever.
MOST_NODES = 100_000


class Tree:
    """The calls so far. ``under_way``: the eager calls that are being made, under the root."""

    def __init__(self, name: str, place: tuple[str, int]) -> None:
        self.root = Node(name, *place, "captured")
        self.under_way = [self.root]
        self._size = 1

    def add(self, parent: Node, name: str, place: tuple[str, int], colour: str) -> Node:
        node = Node(name, *place, colour)
        self._size += 1
        if self._size < MOST_NODES:
            parent.children.append(node)
        return node

    def result(self) -> Node:
        """The tree of the one call; its root stands for the compiled callable, which usually calls one function."""
        root = self.root
        only = joined(root.children) if not root.operators else None
        return only if only in root.children[:1] else root


class WatchedTensors(TensorOps):
    """Counts each frame's operators."""

    def record(self, vm: Any, op: str, target: Any, fx_args: tuple, fx_kwargs: dict, result: Any) -> None:
        super().record(vm, op, target, fx_args, fx_kwargs, result)
        vm.node_of(vm.frame).operators += 1


class Watched(Machine):
    """A machine that writes down whom it calls."""

    def __init__(self, tree: Tree, options: Any) -> None:
        super().__init__(options)
        self.tree = tree
        self.tensors = WatchedTensors()

    def node_of(self, f: Frame | None) -> Node:
        while f is not None:
            node: Node | None = getattr(f, "node", None)
            if node is not None:
                return node
            f = f.back
        return self.tree.under_way[-1]

    def push_function(
        self, f: Frame | None, fn: types.FunctionType, args: list, kwargs: dict | None, then: Any = None, data: Any = None
    ) -> Frame | None:
        opaque = self.opaque
        frame = super().push_function(f, fn, args, kwargs, then, data)
        if frame is not None and frame.function is fn and not is_own(fn.__code__) and (opaque is None or opaque.frame is None):
            colour = "opaque" if opaque is not None else "captured" if self.cap.active else "eager"
            place = (fn.__code__.co_filename, fn.__code__.co_firstlineno)
            frame.node = self.tree.add(self.node_of(f), fn.__qualname__, place, colour)
        return frame

    def at_border(self, border: Border) -> Frame:
        fn = wrapped(border.args_[0] if is_a(border.fn, FrameRunner) else border.fn)
        code = getattr(fn, "__code__", None)
        if self.opaque is not None or (code is not None and is_own(code)):
            return super().at_border(border)
        place = (code.co_filename, code.co_firstlineno) if code is not None else user_place(self.frame, None)
        name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__qualname__
        self.tree.under_way.append(self.tree.add(self.node_of(self.frame), str(name), place, "eager"))
        try:
            return super().at_border(border)
        finally:
            self.tree.under_way.pop()
