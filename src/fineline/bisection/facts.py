"""Facts about the graphs of a run: the operators, and the user's functions and modules that they come from."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch.fx import Graph, GraphModule, Node

from fineline.frames.stub_frames import is_own
from fineline.frames.trail import Origin
from fineline.fx.recorder import ORIGIN
from fineline.policy.selector import describe

_TORCH = os.path.dirname(torch.__file__) + os.sep
# Operators that only take results apart: no rule is about them.
_TAKING_APART = frozenset({"_operator.getitem", "getattr", "builtins.getattr"})


@dataclass(frozen=True)
class CallPlace:
    """A frame of the user's: its place, and the function's qualified name and Python module."""

    file: str
    line: int
    function: str
    module: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.function}"

    def __str__(self) -> str:
        return f"{self.function} at {self.file}:{self.line}"


@dataclass(frozen=True)
class Operator:
    """An operator of a graph. ``name``: as users write it; "" if no rule can select it.

    ``stack``: the user's frames that led to it, the innermost first. ``call``: the number of the call of the innermost one, in the graph.
    ``nn_module``: the module whose call it is, or "".
    """

    name: str
    stack: tuple[CallPlace, ...]
    call: int
    nn_module: str = ""

    @property
    def place(self) -> CallPlace | None:
        return self.stack[0] if self.stack else None


@dataclass(frozen=True)
class GraphFacts:
    """A graph. ``cuts``: the operators before which it may be cut; None if nobody has asked, or if it can't be cut."""

    operators: tuple[Operator, ...]
    cuts: tuple[int, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Self:
        operators = [
            Operator(o["name"], tuple([CallPlace(**place) for place in o["stack"]]), o["call"], o["nn_module"]) for o in facts["operators"]
        ]  # fmt: skip
        return cls(tuple(operators), None if facts["cuts"] is None else tuple(facts["cuts"]))


def nodes_of(graph: Graph) -> list[Node]:
    """Returns the nodes of a graph that are neither inputs nor its output."""
    return [node for node in graph.nodes if node.op not in ("placeholder", "output")]


def operators_of(gm: GraphModule, modules: Mapping[int, str]) -> tuple[Operator, ...]:
    """Returns the operators of a graph. Call this before its nodes are described, if they have not been: then they still have their origins.

    ``modules``: the paths of modules that are known, by identity.
    """
    homes = {getattr(module, "__file__", None): name for name, module in list(sys.modules.items())}
    calls: dict[object, int] = {}
    found = []
    nodes = nodes_of(gm._graph)
    for node in nodes:
        origin = node.meta.get(ORIGIN)
        frames = list(_frames(origin)) if origin is not None else []
        if frames:
            users = [frame for frame in frames if not frame[0].startswith(_TORCH)] or frames
            stack = tuple([CallPlace(file, line, function, homes.get(file, "__main__")) for file, line, function, _ in users])
            key: object = users[0][3]
        else:
            stack = tuple(_described_frames(node, homes))
            key = (stack[0].file, stack[0].function) if stack else None
        call = calls.setdefault(key, len(calls))
        found.append(Operator(_name(node), stack, call, _nn_module(origin, modules)))
    return tuple(found)


def _frames(origin: Origin | None) -> Iterator[tuple[str, int, str, object]]:
    """Yields the frames that led to a node, the innermost first: file, line, function, and what its call is told by."""
    while origin is not None:
        info, ip, trail = origin
        if not is_own(info.code):
            yield info.code.co_filename, info.lines[max(ip - 1, 0)], info.code.co_qualname, (id(trail), info.code)
        origin = trail.called_at


def _described_frames(node: Node, homes: dict[Any, str]) -> Iterator[CallPlace]:
    """Yields the frames of a node whose origin has been written as a text, the innermost first."""
    for file, line, function in re.findall(r'File "(.*)", line (\d+), in (.*)', node.meta.get("stack_trace") or "")[::-1]:
        yield CallPlace(file, int(line), function, homes.get(file, "__main__"))


def _nn_module(origin: Origin | None, modules: Mapping[int, str]) -> str:
    """Returns the innermost module whose call made a node: its path, if it is known, and its class."""
    while origin is not None:
        trail = origin[2]
        if trail.cls is not None:
            text = trail.source.text() if trail.source is not None else ""
            # Texts of items of iterators are sentences.
            path = modules.get(trail.key, "" if " " in text else text)
            return f"{path} ({trail.cls.__qualname__})" if path else trail.cls.__qualname__
        origin = trail.called_at
    return ""


def _name(node: Node) -> str:
    if node.op == "call_method":
        return f"torch.Tensor.{node.target}"
    name = describe(node.target) if node.op == "call_function" else ""
    return "" if name in _TAKING_APART or name.startswith("fineline.") else name
