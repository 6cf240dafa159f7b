"""The call tree of a captured call: each frame with its colour, for people and for pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    """The attributes of a node, for JSON. ``parent``: the position of its caller in the list of a tree's nodes; -1: it is the root."""

    parent: int
    name: str
    file: str
    line: int
    colour: str
    operators: int
    seconds: float
    cause: CauseFacts | None
    programs: list[str]


@dataclass(repr=False, eq=False)
class Node:
    """A frame, or a call that ran outside of the capture.

    ``colour``: "captured" (traced into), "eager" (ran in Python), "opaque" (one call in the graph), "constant" (ran at capture, and its
    result is a constant of the program). ``operators``: those recorded in the frame itself, without its children; frames in the body of
    an operator, such as a branch of ``torch.cond``, have those of the body's own graph. ``seconds``: the time in the frame itself, with what
    fineline did for it. ``cause``: why it is eager; None: as its caller. ``programs``: the keys of the programs with its operators.

    Trees are as deep as the user's recursion: no method calls itself.
    """

    name: str
    file: str
    line: int
    colour: str
    operators: int = 0
    children: list[Node] = field(default_factory=list)
    seconds: float = 0.0
    cause: Cause | None = None
    programs: list[str] = field(default_factory=list)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Returns whether both are trees of the same calls. Times, causes and programs may differ."""
        if not isinstance(other, Node):
            return NotImplemented
        return all(one._call() == another._call() for one, another in zip(self, other, strict=False))

    def _call(self) -> tuple[str, str, int, str, int, int]:
        """Returns what equal calls have in common. In the order of the calls, the numbers of children give the shape of a tree."""
        return self.name, self.file, self.line, self.colour, self.operators, len(self.children)

    def __iter__(self) -> Iterator[Node]:
        """Yields this node and all below it, in the order of the calls."""
        return (node for node, _ in self.with_parents())

    def with_parents(self) -> Iterator[tuple[Node, int]]:
        """Yields this node and all below it, in the order of the calls, each with the position of its caller; -1 for this node."""
        stack, position = [(self, -1)], 0
        while stack:
            node, parent = stack.pop()
            yield node, parent
            stack += [(child, position) for child in reversed(node.children)]
            position += 1

    def as_list(self) -> list[NodeFacts]:
        """Returns all nodes, in the order of the calls."""
        return [node._facts(parent) for node, parent in self.with_parents()]

    def _facts(self, parent: int) -> NodeFacts:
        cause: CauseFacts | None = None
        if self.cause is not None:
            id, reason, rule, built_in, file, line = self.cause
            cause = {"id": id, "reason": reason, "rule": rule, "built_in": built_in, "file": file, "line": line}
        return {
            "parent": parent, "name": self.name, "file": self.file, "line": self.line, "colour": self.colour, "operators": self.operators,
            "seconds": self.seconds, "cause": cause, "programs": list(self.programs),
        }  # fmt: skip

    @classmethod
    def from_list(cls, facts: Sequence[NodeFacts]) -> Node:
        return _linked([cls._from_facts(node) for node in facts], [node["parent"] for node in facts])

    @classmethod
    def _from_facts(cls, facts: NodeFacts) -> Node:
        cause = Cause(**facts["cause"]) if facts["cause"] is not None else None
        own = facts["name"], facts["file"], facts["line"], facts["colour"], facts["operators"]
        return cls(*own, [], facts["seconds"], cause, facts["programs"])

    def lines(self, indent: str = "") -> Iterator[str]:
        """Yields a line for each node that matters: operators ran in it, or something below it was not captured.

        Equal siblings that follow each other have one line, with their count.
        """
        nodes, parents = zip(*self.with_parents(), strict=True)
        matters = [node.operators != 0 or node.colour != "captured" for node in nodes]
        below: list[list[int]] = [[] for _ in nodes]
        for i in range(len(nodes) - 1, 0, -1):
            if matters[i]:
                matters[parents[i]] = True
                below[parents[i]].append(i)
        stack = [(0, 1, indent)]
        while stack:
            i, times, indent = stack.pop()
            yield f"{indent}{nodes[i]._line()}" + (f"  ({times} times)" if times > 1 else "")
            for _, equal in groupby(below[i], key=nodes.__getitem__):
                [*_, first] = same = list(equal)
                stack.append((first, len(same), indent + "  "))

    def _line(self) -> str:
        operators = f", {self.operators} operator{'' if self.operators == 1 else 's'}" if self.operators else ""
        return f"{self.colour:<8} {self.name}{operators}  {self.file}:{self.line}"

    def __repr__(self) -> str:
        calls = f", with {len(self.children)} call{'' if len(self.children) == 1 else 's'} in it; print it to read them" if self.children else ""
        return f"<{self.colour} {self.name} at {self.file}:{self.line}{calls}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def joined(nodes: Sequence[Node]) -> Node | None:
    """Joins several trees of one callable: returns their sum if all are equal, otherwise a root above them; None if there are none."""
    found = merged(nodes)
    return found if found is not None or not nodes else Node(nodes[0].name, nodes[0].file, nodes[0].line, "captured", children=[*nodes])


def merged(nodes: Sequence[Node]) -> Node | None:
    """Returns one tree with the times and programs of several that are equal, with equal causes; None if they differ, or there are none."""
    if len(nodes) < 2:
        return nodes[0] if nodes else None
    if not all([node == nodes[0] for node in nodes]):
        return None
    calls = list(zip(*nodes, strict=True))
    if any([node.cause != same[0].cause for same in calls for node in same]):
        return None
    return _linked([_sum(same) for same in calls], [parent for _, parent in nodes[0].with_parents()])


def _sum(nodes: Sequence[Node]) -> Node:
    """Returns a node, without children, that stands for several equal ones."""
    programs = dict.fromkeys([key for node in nodes for key in node.programs])
    return replace(nodes[0], children=[], seconds=sum([node.seconds for node in nodes]), programs=list(programs))


def _linked(nodes: Sequence[Node], parents: Iterable[int]) -> Node:
    """Returns the root of a tree of nodes without children. ``parents``: the position of each one's caller."""
    for node, parent in zip(nodes, parents, strict=True):
        if parent >= 0:
            nodes[parent].children.append(node)
    return nodes[0]
