"""A reference model of the rules: what becomes of a call tree, worked out from the specification alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

RANKS = {"glob": 0, "file": 1, "name": 2, "class": 3, "object": 4}
SCOPES = {"process": 1, "region": 2, "block": 3, "mark": 4}


@dataclass(frozen=True)
class Call:
    """A function: an operator before its calls, and one behind them. ``prints``: it has an effect that no graph can hold."""

    name: str
    calls: tuple[Call, ...] = ()
    prints: bool = False

    def walk(self) -> Iterator[Call]:
        yield self
        for call in self.calls:
            yield from call.walk()


class Rule(NamedTuple):
    """``by``: what kind of selector; ``what``: the function's name, or for globs and files the text that all names begin with."""

    verb: str
    by: str
    what: str
    scope: str = "region"


@dataclass
class Outcome:
    """The graphs of one call, each a list of operators; what ran outside of graphs; or the error."""

    graphs: list[list[str]] = field(default_factory=list)
    eager: list[str] = field(default_factory=list)
    error: str = ""


class Refused(Exception):
    pass


class Model:
    def __init__(self, rules: Iterable[Rule], breaks: str) -> None:
        self.rules = list(rules)
        self.breaks = breaks
        self.open: list[str] = []
        self.outcome = Outcome()

    def rule(self, name: str) -> Rule | None:
        """The more specific selector wins, then the inner scope, then the later declaration."""
        found = [
            (RANKS[r.by], len(r.what) if r.by == "glob" else 0, SCOPES[r.scope], n, r)
            for n, r in enumerate(self.rules)
            if (name.startswith(r.what) if r.by in ("glob", "file") else name == r.what)
        ]
        return max(found)[-1] if found else None

    def close(self) -> None:
        if self.open:
            self.outcome.graphs.append(self.open)
        self.open = []

    def graph_break(self, declared: bool) -> None:
        if self.breaks == "none" or (self.breaks == "declared" and not declared):
            raise Refused("break")
        self.close()

    def captured(self, call: Call, decided: bool = False) -> None:
        """A call met during capture."""
        rule = None if decided else self.rule(call.name)
        verb = rule.verb if rule is not None else "trace"
        if verb == "forbid":
            raise Refused("forbid")
        if verb == "disable":
            self.graph_break(declared=True)
            self.eager(call)
        elif verb == "disable_frame":
            self.graph_break(declared=True)
            self.own_frame_eager(call)
        elif verb == "allow":
            if any(inner.prints for inner in call.walk()):
                raise Refused("break")
            self.open.append(call.name)
        elif verb == "substitute":
            self.open.append("substitute")
        else:
            self.open.append(f"{call.name}<")
            if call.prints:
                self.graph_break(declared=False)
            for inner in call.calls:
                self.captured(inner)
            self.open.append(f"{call.name}>")

    def eager(self, call: Call) -> None:
        """Runs in Python with everything it calls."""
        self.outcome.eager.append(f"{call.name}<")
        for inner in call.calls:
            self.eager(inner)
        self.outcome.eager.append(f"{call.name}>")

    def own_frame_eager(self, call: Call) -> None:
        """What it calls is captured again, each call as a region of its own."""
        self.outcome.eager.append(f"{call.name}<")
        for inner in call.calls:
            self.captured(inner)
            self.close()
        self.outcome.eager.append(f"{call.name}>")


def decide(tree: Call, rules: Iterable[Rule], breaks: str = "any") -> Outcome:
    """What becomes of a call of ``tree`` in a region with these rules."""
    model = Model(rules, breaks)
    try:
        model.captured(tree)
        model.close()
    except Refused as refused:
        return Outcome(error=str(refused))
    return model.outcome
