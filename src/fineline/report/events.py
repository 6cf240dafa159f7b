"""The stream of events, which explain, logs and errors show in different forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict

from fineline.refusals import REFUSALS
from fineline.report.costs import BreakCost
from fineline.report.misses import Miss
from fineline.report.programs import GiveProgram
from fineline.report.tree import Node
from fineline.stacks import StackPlace


class ShownText(Protocol):
    """The selector of a rule."""

    @property
    def rank(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...


class ShownRule(Protocol):
    """A rule of a policy, as reports show it and processes pass it on."""

    @property
    def verb(self) -> str: ...
    @property
    def selector(self) -> ShownText: ...
    @property
    def reason(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def scope(self) -> int: ...
    @property
    def error(self) -> str: ...
    @property
    def key(self) -> str: ...


class Detail(TypedDict, total=False):
    """More facts of an event. Each kind of event has a few of them."""

    # The frames that lead to the place, the outermost first.
    stack: tuple[StackPlace, ...]
    # Whether the rule that decided is fineline's own.
    built_in: bool
    # The number of a graph's operators, and the file and line of each.
    ops: int
    places: Sequence[tuple[str, int]]
    # Why a call that is captured again fitted no program.
    miss: Miss
    # A function that returns a program.
    program: GiveProgram
    # How often each rule has decided something in a region.
    fired: Counter[ShownRule]
    # A function that returns the calls of a region, an object that stands for the region and outlives it, and its operators by outcome.
    tree: Callable[[], Node] | None
    of: object
    # A function that returns what the graph breaks of a watched region have cost so far.
    costs: Callable[[], list[BreakCost]]
    ran: Counter[str] | None


@dataclass(frozen=True, repr=False)
class Event:
    """An event in a capture.

    ``kind``: "graph" (a graph went to the backend), "break" (a graph break), "recompile" (a call that no program fitted),
    "eager" (a stretch that runs in Python), "skipped" (code that is not traced into, because of a rule or a built-in skip: a disabled
    function or block, a coroutine, a call of a region that captures nothing), "restart" (a capture on fake tensors began again, with
    fewer symbols or on the real values), "shared" (the program of an equal callable's region fits), "takeover" (a graph that was compiled in the
    background), "waited" (a call compiled a graph that could not be), "loaded" (a program from a file or the cache), "stale" (one that does not
    fit this process), "unsaved" (a program that cannot be saved), "cache" (the cache was not used), "limit", "raised", "shadow" (a compiled graph
    differs from eager code, or is not compared with it). Only listeners get
    "program" (a program was added), "rules" (the decisions of a capture's rules) and "tree" (the calls of a region that is watched).

    ``rule``: the text of the rule that decided; ``detail["built_in"]`` says if it is fineline's own. ``detail["stack"]``: the frames that
    lead to the place, the outermost first, each with its file, line and function.
    """

    kind: str
    id: str
    reason: str
    file: str = ""
    line: int = 0
    rule: str = ""
    detail: Detail = field(default_factory=Detail, compare=False)
    # The name of the compiled function.
    region: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """Returns the file and line as one text; "" if there is no place."""
        return f"{self.file}:{self.line}" if self.file else ""

    @property
    def stack(self) -> tuple[StackPlace, ...]:
        """Returns the frames that lead to the place, the outermost first, each with its file, line and function."""
        return self.detail.get("stack", ())

    @property
    def function(self) -> str:
        """Returns the name of the function that contains the place; "" if it is not known."""
        return self.stack[-1][2] if self.stack and self.stack[-1][:2] == (self.file, self.line) else ""

    @property
    def users_rule(self) -> str:
        """Returns the text of the user's rule or mark that decided; "" if there is none."""
        return "" if self.detail.get("built_in") else self.rule

    @property
    def next_step(self) -> str:
        """Returns what to do about it."""
        return REFUSALS[self.id].next_step if self.id in REFUSALS else ""

    def as_dict(self) -> dict[str, object]:
        """Returns the parts of the event that JSON can hold."""
        known = {"kind": self.kind, "id": self.id, "reason": self.reason, "file": self.file, "line": self.line, "rule": self.rule}
        more = {
            "function": self.function, "next": self.next_step,
            "stack": [{"file": file, "line": line, "function": name} for file, line, name in self.stack],
        }  # fmt: skip
        miss = {"miss": self.detail["miss"].as_dict()} if "miss" in self.detail else {}
        return {**known, **more, **miss, **{key: value for key, value in self.detail.items() if key in ("ops", "places", "built_in")}}

    def __repr__(self) -> str:
        place = f" at {self.where}" if self.file else ""
        function = f" in {self.function}" if self.function else ""
        return f"<{self.kind} {self.id}{place}{function}: {self.reason}>"

    def __str__(self) -> str:
        place = f" at {self.where}" if self.file else ""
        return f"{self.kind} {self.id}{place}: {self.reason}"


class Listeners:
    """The functions that get each event of each region when it happens. ``trees``: whether one wants the calls of each capture, too."""

    def __init__(self) -> None:
        self.all: tuple[Callable[[Event], None], ...] = ()
        self.trees = False
        # The errors of listeners that have been logged: the name of each listener, with the type.
        self.said: set[tuple[str, type]] = set()


LISTENERS = Listeners()
