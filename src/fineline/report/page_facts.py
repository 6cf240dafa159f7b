"""The data of a report's page: what a compiled function did, with the source lines that it is about, for the page's script."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypedDict

from fineline.refusals import REFUSALS
from fineline.report.costs import NO_COST, BreakCost, Cost, CostFacts
from fineline.report.events import Event, ShownRule
from fineline.report.misses import Change
from fineline.report.programs import UNKNOWN, KeptProgram
from fineline.report.source_lines import NOWHERE, Place, SourceLines, SourceText
from fineline.report.tree import Cause, Node

# The kinds of frames, in the order of the page's legend.
CAPTURED, OPAQUE, BY_RULE, FOR_A_REASON, CONSTANT = range(5)
_KINDS = {"captured": CAPTURED, "opaque": OPAQUE, "constant": CONSTANT}
# Kinds of events that are shown as breaks: all that keeps code out of a graph.
BREAKS = {
    "break": "graph break", "eager": "runs eagerly", "skipped": "skipped, not traced into", "limit": "limit", "raised": "raised", "restart": "captured anew",
}  # fmt: skip
# A page shows the most expensive frames of a tree that has more.
MOST_FRAMES = 20_000
# The end of a line of a graph's code that lets go of values, which a reader need not see.
_LETS_GO = re.compile(r";  (?:\w+ = )+None$", re.M)
# A line of a graph's code that is an operator: not a return, nor the read of a constant.
_OPERATOR = re.compile(r"    (?!return\b|\w+ = self\.[\w.]+$)\S")
# One that takes an item of a result.
_ITEM = re.compile(r"    \w+ = (\w+)\[\d+\]")


class FunctionReport(NamedTuple):
    """What one compiled function did, in one process ("": the first).

    ``text``: the same for people who run no script. ``costs``: of the graph breaks, if they were measured. ``rule_costs``: what is known of
    the cost of each rule, in words.
    """

    name: str
    process: str
    headline: str
    text: str
    place: tuple[str, int]
    events: Sequence[Event]
    programs: Sequence[KeptProgram]
    ran: Mapping[str, int | None]
    rules: Mapping[ShownRule, int]
    tree: Node | None
    seconds: float
    numbers: Mapping[str, int]
    costs: Sequence[BreakCost] = ()
    rule_costs: Mapping[ShownRule, Sequence[str]] = MappingProxyType({})


class ShownCause(TypedDict):
    """Why a frame runs eagerly."""

    id: str
    reason: str
    rule: str
    built_in: bool
    at: Place


class TreeFacts(TypedDict):
    """The frames of a call tree: a list for each property, in the order of the calls."""

    name: list[str]
    at: list[Place]
    kind: list[int]
    operators: list[int]
    # In microseconds, without the frames below.
    time: list[float]
    parent: list[int]
    cause: list[int]
    programs: list[list[int]]
    causes: list[ShownCause]
    left_out: int


class ShownPlace(TypedDict):
    """A place where a break happened, how often, and how long its eager code ran, in microseconds.

    ``stack``: the frames that led there. ``cost``: what its graph breaks cost; None if that was not measured, or if it breaks no graph.
    """

    at: Place
    function: str
    times: int
    time: float
    stack: list[tuple[str, Place]]
    cost: CostFacts | None


class BreakFacts(TypedDict):
    """The breaks of one cause."""

    kind: str
    id: str
    reason: str
    rule: str
    built_in: bool
    times: int
    time: float
    cost: CostFacts | None
    places: list[ShownPlace]


class RecompileFacts(TypedDict):
    """A recompile: the value that changed, from what to what, and the line that reads it; each change is a list of its fields."""

    text: str
    value: str
    changes: list[Change]
    at: Place
    read: Place


class GuardTable(TypedDict):
    """The guards of a program: a list for each property. A model has thousands, with similar texts.

    An expression begins with the first ``shared`` characters of the one before it; ``rest`` is what follows. ``condition``: its number in
    ``conditions``. ``cost``: nanoseconds, -1 if they are not known.
    """

    shared: list[int]
    rest: list[str]
    condition: list[int]
    at: list[Place]
    cost: list[float]
    conditions: list[str]


class GraphProgram(TypedDict):
    """A program, with the place of each line of its graph's code."""

    source: str
    code: str
    lines: list[Place]
    operators: int
    guards: GuardTable
    backend: float
    writing: float
    check: float


class RuleText(TypedDict):
    """A rule of a policy, or a mark, how often it decided something, and what is known of its cost."""

    text: str
    place: str
    times: int
    costs: list[str]


class FunctionFacts(TypedDict):
    """The data of one function."""

    name: str
    process: str
    headline: str
    at: Place
    numbers: dict[str, int]
    ran: dict[str, int | None]
    seconds: float
    tree: TreeFacts
    recorded: bool
    breaks: list[BreakFacts]
    recompiles: list[RecompileFacts]
    programs: list[GraphProgram]
    rules: list[RuleText]


class RefusalText(TypedDict):
    """The words of an id."""

    title: str
    explanation: str
    next: str


class PageFacts(TypedDict):
    """The data of the page."""

    functions: list[FunctionFacts]
    sources: list[SourceText]
    refusals: dict[str, RefusalText]


def page_facts(reports: Iterable[FunctionReport]) -> PageFacts:
    """Returns the data of a page about these functions."""
    lines = SourceLines()
    functions = [_function(report, lines) for report in reports]
    ids = {cause["id"] for f in functions for cause in f["tree"]["causes"]} | {found["id"] for f in functions for found in f["breaks"]}
    words = {id: REFUSALS[id] for id in sorted(ids) if id in REFUSALS}
    return {
        "functions": functions,
        "sources": lines.texts(),
        "refusals": {id: {"title": word.title, "explanation": word.explanation, "next": word.next_step} for id, word in words.items()},
    }


def _function(report: FunctionReport, lines: SourceLines) -> FunctionFacts:
    tree = _eager_from_its_start(report) or report.tree or _tree_of_events(report)
    at = lines.function(*report.place)
    programs = {program.measures.key: i for i, program in enumerate(report.programs) if program.measures is not None}
    return {
        "name": report.name, "process": report.process, "headline": report.headline, "at": at,
        "numbers": dict(report.numbers), "ran": dict(report.ran), "seconds": report.seconds,
        "tree": _tree(tree, programs, lines), "recorded": report.tree is not None,
        "breaks": _breaks(report, _eager_seconds(tree), lines),
        "recompiles": [_recompile(event, lines) for event in report.events if event.kind == "recompile"],
        "programs": [_program(program, lines) for program in report.programs],
        "rules": [_rule(rule, times, report.rule_costs.get(rule, ())) for rule, times in report.rules.items()],
    }  # fmt: skip


def _rule(rule: ShownRule, times: int, costs: Sequence[str]) -> RuleText:
    return {"text": str(rule), "place": rule.place, "times": times, "costs": list(costs)}


# -- frames --------------------------------------------------------------------------------------------------------------
def _tree_of_events(report: FunctionReport) -> Node:
    """Returns the frames that events name, for a function whose calls were not recorded."""
    root = Node(report.name, *report.place, "captured", sum([event.detail["ops"] for event in report.events if event.kind == "graph"]))
    for event in _about_code(report.events):
        if event.kind not in ("break", "eager", "skipped"):
            continue
        parent = root
        # An event about the call of the function has the stack of its caller.
        for file, line, name in event.stack[1:] if (event.file, event.line) != report.place else ():
            found = next((child for child in parent.children if (child.name, child.file) == (name, file)), None)
            if found is None:
                found = Node(name, file, line, "captured")
                parent.children.append(found)
            parent = found
        cause = _cause_of(event)
        if cause not in [child.cause for child in parent.children]:
            parent.children.append(Node(event.reason, event.file, event.line, "eager", cause=cause))
    return root


def _eager_from_its_start(report: FunctionReport) -> Node | None:
    """Returns the frame of a function whose calls were not captured at all; None for others."""
    if report.programs or (report.tree is not None and report.tree.children):
        return None
    found = next((event for event in report.events if event.kind in ("skipped", "eager", "limit")), None)
    return Node(report.name, *report.place, "eager", cause=_cause_of(found)) if found is not None else None


def _cause_of(event: Event) -> Cause:
    return Cause(event.id, event.reason, event.rule, not event.users_rule, event.file, event.line)


def _about_code(events: Sequence[Event]) -> list[Event]:
    """Returns the events about code that is in no graph, without those of skipped code that has a graph break at its call."""
    broken = {(event.id, event.reason, event.rule) for event in events if event.kind == "break"}
    return [event for event in events if event.kind in BREAKS and (event.kind != "skipped" or (event.id, event.reason, event.rule) not in broken)]


def _tree(root: Node, programs: Mapping[str, int], lines: SourceLines) -> TreeFacts:
    nodes, parents, left_out = _flattened(root)
    facts: TreeFacts = {
        "name": [], "at": [], "kind": [], "operators": [], "time": [], "parent": parents, "cause": [], "programs": [], "causes": [], "left_out": left_out,
    }  # fmt: skip
    known: dict[Cause, int] = {}
    for node, parent in zip(nodes, parents, strict=True):
        cause = -1
        if node.cause is not None:
            cause = known.setdefault(node.cause, len(known))
            if cause == len(facts["causes"]):
                facts["causes"].append(_cause(node.cause, lines))
        elif node.colour == "eager" and parent >= 0 and facts["kind"][parent] in (BY_RULE, FOR_A_REASON):
            cause = facts["cause"][parent]
        by_rule = cause >= 0 and not facts["causes"][cause]["built_in"]
        facts["name"].append(node.name)
        facts["at"].append(lines.function(node.file, node.line))
        facts["kind"].append(_KINDS.get(node.colour, BY_RULE if by_rule else FOR_A_REASON))
        facts["operators"].append(node.operators)
        facts["time"].append(round(node.seconds * 1e6, 1))
        facts["cause"].append(cause)
        facts["programs"].append([programs[key] for key in node.programs if key in programs])
    return facts


def _cause(cause: Cause, lines: SourceLines) -> ShownCause:
    at = lines.around(cause.file, cause.line)
    return {"id": cause.id, "reason": cause.reason, "rule": cause.rule, "built_in": cause.built_in, "at": at}


def _flattened(root: Node) -> tuple[list[Node], list[int], int]:
    """Returns the frames in the order of the calls, the position of each one's caller, and how many were left out because there are too many."""
    nodes: list[Node] = []
    parents: list[int] = []
    stack = [(root, -1)]
    while stack:
        node, parent = stack.pop()
        stack += [(child, len(nodes)) for child in reversed(node.children)]
        nodes.append(node)
        parents.append(parent)
    if len(nodes) <= MOST_FRAMES:
        return nodes, parents, 0
    kept = _most_expensive(nodes, parents)
    positions = {old: new for new, old in enumerate(kept)}
    return [nodes[i] for i in kept], [positions.get(parents[i], -1) for i in kept], len(nodes) - len(kept)


def _most_expensive(nodes: list[Node], parents: list[int]) -> list[int]:
    """Returns the positions of the frames in which most time was spent, with all their callers."""
    weights = [(node.seconds, node.operators) for node in nodes]
    below: list[list[int]] = [[] for _ in nodes]
    for i in range(len(nodes) - 1, 0, -1):
        parent = parents[i]
        weights[parent] = (weights[parent][0] + weights[i][0], weights[parent][1] + weights[i][1])
        below[parent].append(i)
    kept: list[int] = []
    heap = [((0.0, 0), 0)]
    while heap and len(kept) < MOST_FRAMES:
        i = heapq.heappop(heap)[1]
        kept.append(i)
        for child in below[i]:
            heapq.heappush(heap, ((-weights[child][0], -weights[child][1]), child))
    return sorted(kept)


def _eager_seconds(root: Node) -> Counter[Cause]:
    """Returns the time in eager frames, by cause."""
    seconds: Counter[Cause] = Counter()
    stack: list[tuple[Node, Cause | None]] = [(root, None)]
    while stack:
        node, inherited = stack.pop()
        cause = (node.cause or inherited) if node.colour == "eager" else None
        if cause is not None:
            seconds[cause] += node.seconds  # type: ignore[assignment]
        stack += [(child, cause) for child in node.children]
    return seconds


# -- events --------------------------------------------------------------------------------------------------------------
def _breaks(report: FunctionReport, seconds: Mapping[Cause, float], lines: SourceLines) -> list[BreakFacts]:
    """Returns the breaks grouped by cause, the most expensive first: by the time in their eager code, by graphs, then by their number."""
    groups: dict[_BreakCause, dict[tuple[str, int], list[Event]]] = {}
    for event in _about_code(report.events):
        groups.setdefault(_BreakCause(event.kind, event.id, event.reason, event.rule), {}).setdefault((event.file, event.line), []).append(event)
    found = [_break(cause, places, seconds, report.costs, lines) for cause, places in groups.items()]
    return sorted(found, key=lambda group: (-group["time"], -(group["cost"] or NO_COST.as_dict())["graphs"], -group["times"]))


class _BreakCause(NamedTuple):
    """What breaks of one group have in common."""

    kind: str
    id: str
    reason: str
    rule: str


def _break(
    cause: _BreakCause, places: Mapping[tuple[str, int], list[Event]], seconds: Mapping[Cause, float], costs: Sequence[BreakCost], lines: SourceLines
) -> BreakFacts:
    shown: list[ShownPlace] = []
    own = [cost for cost in costs if cause == ("break", cost.place.id, cost.place.reason, cost.place.rule)]
    for (file, line), events in places.items():
        first = events[0]
        spent = [t for found, t in seconds.items() if (found.id, found.reason, found.file, found.line) == (cause.id, cause.reason, file, line)]
        stack = [(name, lines.around(where, at)) for where, at, name in first.stack]
        at = lines.around(file, line)
        cost = _cost([cost.cost for cost in own if (cost.place.file, cost.place.line) == (file, line)])
        # The time of an eager call is more exact than that of its frame, which has the work of the capture in it.
        time = round((cost["seconds"] if cost is not None and cost["unmeasured"] < cost["breaks"] else sum(spent)) * 1e6, 1)
        shown.append({"at": at, "function": first.function, "times": len(events), "time": time, "stack": stack, "cost": cost})
    shown.sort(key=lambda place: (-place["time"], -place["times"]))
    [first, *_] = next(iter(places.values()))
    return {
        "kind": BREAKS[cause.kind], "id": cause.id, "reason": cause.reason, "rule": cause.rule, "built_in": not first.users_rule,
        "times": sum([place["times"] for place in shown]), "time": sum([place["time"] for place in shown]),
        "cost": _cost([cost.cost for cost in own]), "places": shown,
    }  # fmt: skip


def _cost(costs: Sequence[Cost]) -> CostFacts | None:
    """Returns the sum of the costs; None if there are none."""
    return sum(costs, NO_COST).as_dict() if costs else None


def _recompile(event: Event, lines: SourceLines) -> RecompileFacts:
    miss = event.detail["miss"]
    at, read = lines.around(event.file, event.line), lines.around(miss.file, miss.line)
    return {"text": event.reason, "value": miss.value, "changes": list(miss.changes), "at": at, "read": read}


# -- programs ------------------------------------------------------------------------------------------------------------
def _program(program: KeptProgram, lines: SourceLines) -> GraphProgram:
    measures = program.measures
    graph = program.give_code()
    code = _LETS_GO.sub("", graph.code.strip())
    places = _places_of_lines(code, program.places, lines)
    for name, part in graph.parts:
        code += f"\n\n# {name}\n" + _LETS_GO.sub("", part.strip())
    return {
        "source": program.source.strip("\n"), "code": code, "lines": places, "operators": program.operators,
        "guards": _guards(program, lines), "backend": measures.backend if measures is not None else UNKNOWN,
        "writing": measures.writing if measures is not None else UNKNOWN, "check": measures.check if measures is not None else UNKNOWN,
    }  # fmt: skip


def _guards(program: KeptProgram, lines: SourceLines) -> GuardTable:
    costs = program.measures.guards if program.measures is not None else (UNKNOWN,) * len(program.guards)
    table: GuardTable = {"shared": [], "rest": [], "condition": [], "at": [], "cost": [], "conditions": []}
    conditions: dict[str, int] = {}
    before = ""
    for guard, cost in zip(program.guards, costs, strict=True):
        file, _, line = guard.where.rpartition(":")
        shared = _shared(before, guard.name)
        before = guard.name
        table["shared"].append(shared)
        table["rest"].append(guard.name[shared:])
        table["condition"].append(conditions.setdefault(guard.claim, len(conditions)))
        table["at"].append(lines.around(file, int(line or 0), 1))
        table["cost"].append(round(cost * 1e9, 1) if cost >= 0 else UNKNOWN)
    table["conditions"] += conditions
    return table


def _places_of_lines(code: str, places: Sequence[tuple[str, int]], lines: SourceLines) -> list[Place]:
    """Returns the user's line of each line of a graph's code; (-1, 0) where there is none, an empty list if they are not known."""
    texts = code.split("\n")
    at = [i for i, text in enumerate(texts) if _OPERATOR.match(text)]
    if len(at) != len(places):
        # The items of an operator's results are no operators.
        items = {i: found[1] for i in at if (found := _ITEM.fullmatch(texts[i]))}
        uses = Counter(re.findall(r"(?<![.\w])\w+", code))
        taken = Counter(items.values())
        at = [i for i in at if i not in items or taken[items[i]] + 1 != uses[items[i]]]
    if len(at) != len(places):
        return []
    found_places = [NOWHERE] * len(texts)
    for i, (file, line) in zip(at, places, strict=True):
        found_places[i] = lines.around(file, line, 1)
    return found_places


def _shared(one: str, other: str) -> int:
    """Returns the number of characters with which both texts begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
