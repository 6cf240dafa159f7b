"""The call tree of a captured call: each frame with its colour, for people and for pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, TypedDict


class Cause(NamedTuple):
    """The reason why a call runs eagerly: the id of the graph break or other event, and the rule that decided.

    ``built_in``: whether the rule is fineline's own. ``file`` and ``line``: the user's line.
    """

    id: str
    reason: str
    rule: str
    built_in: bool
    file: str
    line: int


class CauseFacts(TypedDict):
    """A cause, for JSON."""

    id: str
    reason: str
    rule: str
    built_in: bool
    file: str
    line: int


class NodeFacts(TypedDict):
    """The attributes of a node, and of the nodes below it, for JSON."""

    name: str
    file: str
    line: int
    colour: str
    operators: int
    seconds: float
    cause: CauseFacts | None
    programs: list[str]
    children: list[NodeFacts]


@dataclass(repr=False)
class Node:
    """A frame, or a call that ran outside of the capture.

    ``colour``: "captured" (traced into), "eager" (ran in Python), "opaque" (one call in the graph), "constant" (ran at capture, and its
    result is a constant of the program). ``operators``: those recorded in the frame itself, without its children; frames in the body of
    an operator, such as a branch of ``torch.cond``, have those of the body's own graph. ``seconds``: the time in the frame itself, with what
    fineline did for it. ``cause``: why it is eager; None: as its caller. ``programs``: the keys of the programs with its operators.
    """

    name: str
    file: str
    line: int
    colour: str
    operators: int = 0
    children: list[Node] = field(default_factory=list)
    seconds: float = field(default=0.0, compare=False)
    cause: Cause | None = field(default=None, compare=False)
    programs: list[str] = field(default_factory=list, compare=False)

    def __iter__(self) -> Iterator[Node]:
        """Yields this node and all below it, in the order of the calls."""
        yield self
        for child in self.children:
            yield from child

    def as_dict(self) -> NodeFacts:
        cause: CauseFacts | None = None
        if self.cause is not None:
            id, reason, rule, built_in, file, line = self.cause
            cause = {"id": id, "reason": reason, "rule": rule, "built_in": built_in, "file": file, "line": line}
        return {
            "name": self.name, "file": self.file, "line": self.line, "colour": self.colour, "operators": self.operators,
            "seconds": self.seconds, "cause": cause, "programs": list(self.programs),
            "children": [child.as_dict() for child in self.children],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, facts: NodeFacts) -> Node:
        children = [cls.from_dict(child) for child in facts["children"]]
        cause = Cause(**facts["cause"]) if facts["cause"] is not None else None
        own = facts["name"], facts["file"], facts["line"], facts["colour"], facts["operators"]
        return cls(*own, children, facts["seconds"], cause, facts["programs"])

    @property
    def matters(self) -> bool:
        """Returns whether operators ran in it, or something below it was not captured."""
        return any(node.operators or node.colour != "captured" for node in self)

    def folded_children(self) -> Iterator[tuple[Node, int]]:
        """Yields the children that matter, each with its count: equal ones that follow each other are yielded once."""
        for child, equal in groupby(self.children):
            if child.matters:
                yield child, len(list(equal))

    def lines(self, indent: str = "") -> Iterator[str]:
        """Yields a line for each node that matters; equal siblings that follow each other have one line, with their count."""
        operators = f", {self.operators} operator{'' if self.operators == 1 else 's'}" if self.operators else ""
        yield f"{indent}{self.colour:<8} {self.name}{operators}  {self.file}:{self.line}"
        for child, times in self.folded_children():
            first, *rest = child.lines(indent + "  ")
            yield first + (f"  ({times} times)" if times > 1 else "")
            yield from rest

    def __repr__(self) -> str:
        calls = f", with {len(self.children)} call{'' if len(self.children) == 1 else 's'} in it; print it to read them" if self.children else ""
        return f"<{self.colour} {self.name} at {self.file}:{self.line}{calls}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def joined(nodes: list[Node]) -> Node | None:
    """Joins several trees of one callable: returns the first if all are equal, otherwise a root above them; None if there are none."""
    if not nodes or all([node == nodes[0] for node in nodes]):
        return nodes[0] if nodes else None
    return Node(nodes[0].name, nodes[0].file, nodes[0].line, "captured", children=nodes)
