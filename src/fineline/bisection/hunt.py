"""The hunt for what makes a backend's results wrong: runs with fewer and fewer graphs, functions and operators compiled."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from fineline.bisection.facts import CallPlace, GraphFacts, Operator
from fineline.bisection.rules import EagerRule, keeps, policy_of, policy_text, rules_for
from fineline.bisection.search import most_tests, needed_together, shortest_stretch
from fineline.bisection.suspects import EAGER, EVERYTHING, NOTHING, Candidate
from fineline.policy.policy import Policy
from fineline.report.costs import count_text

# How a hunt has ended: with a policy that mends the fault; with culprits that no policy mends; nothing is wrong; two equal runs, or checks,
# give different verdicts; eager code is wrong too; the fault shows although the backend compiles nothing; it draws other random numbers.
Status = Literal["mended", "found", "right", "flaky", "eager", "capture", "random"]
# How often a hunt narrows down, for other culprits, or because a rule is not enough for one.
MOST_ATTEMPTS = 16


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run. ``kind``: "" if it is right; otherwise what is wrong, so that another fault is not taken for this one."""

    kind: str = ""
    text: str = ""

    @property
    def right(self) -> bool:
        return not self.kind


@dataclass(frozen=True)
class Run:
    """One run: what was compiled, under which rules, and the verdict. ``ran``: whether a compiled graph has run, and not only been compiled."""

    candidate: Candidate
    rules: tuple[EagerRule, ...]
    verdict: Verdict
    graphs: tuple[GraphFacts, ...] = field(repr=False, default=())
    ran: bool = field(repr=False, default=True)

    def __str__(self) -> str:
        rules = f", with {'; '.join(map(str, self.rules))}" if self.rules else ""
        return f"{self.candidate}{rules}: {self.verdict.text or 'right'}"


class Runner(Protocol):
    """What runs a call, or a program, and judges it."""

    def run(self, candidate: Candidate, rules: Sequence[EagerRule]) -> Run: ...
    def may(self, rule: EagerRule) -> bool: ...
    @property
    def what(self) -> str: ...
    @property
    def unsteady(self) -> str: ...
    @property
    def raised(self) -> str: ...
    def plan(self, text: str) -> None: ...


@dataclass(frozen=True)
class Culprit:
    """What makes a result wrong. ``operators``: the one, or the first and the last of those that make it wrong together.

    ``graph``: the number of its graph, in the order of capture. ``graphs``: all graphs that are needed for it.
    """

    graph: int
    graphs: tuple[int, ...]
    operators: tuple[Operator, ...]
    between: int = 0
    # Whether it is one of the operators, between which the graph is not cut.
    is_one_of: bool = False

    def alike(self, other: Culprit) -> bool:
        """Returns whether the two are the same operators at the same places."""
        names = [[(operator.name, operator.stack, operator.nn_module) for operator in culprit.operators] for culprit in (self, other)]
        return names[0] == names[1]

    @property
    def place(self) -> CallPlace | None:
        return next((operator.place for operator in self.operators if operator.place is not None), None)

    @property
    def function(self) -> str:
        return self.place.function if self.place is not None else ""

    @property
    def file(self) -> str:
        return self.place.file if self.place is not None else ""

    @property
    def line(self) -> int:
        return self.place.line if self.place is not None else 0

    @property
    def module(self) -> str:
        """Returns the path and the class of the ``nn.Module`` whose call it is; "" if it is in none."""
        return next((operator.nn_module for operator in self.operators if operator.nn_module), "")

    def __str__(self) -> str:
        names = [operator.name or "an operator" for operator in self.operators]
        if len(names) == 1:
            lines = names
        elif self.is_one_of:
            lines = [f"one of {', '.join(names)}, between which the graph is not cut"]
        else:
            lines = [f"{' and '.join(names)} together" + (f", with {self.between} between them" if self.between else "")]
        places = dict.fromkeys([operator.place for operator in self.operators if operator.place is not None])
        lines += [f"  in {place.function}, {place.file}:{place.line}" for place in places]
        lines += [f"  module {self.module}"] if self.module else []
        others = [str(i) for i in self.graphs if i != self.graph]
        return "\n".join([*lines, f"  graph {self.graph}" + (f", only if graph {' and '.join(others)} is compiled too" if others else "")])


@dataclass(frozen=True)
class Bisection:
    """The result of a hunt. ``policy``: keeps the culprits eager; with it the result is right (``status`` "mended"). None: there is none."""

    status: Status
    fault: str
    culprits: tuple[Culprit, ...] = ()
    rules: tuple[EagerRule, ...] = ()
    runs: tuple[Run, ...] = field(repr=False, default=())
    what: str = "the result"
    unsteady: str = "the check is flaky"

    @property
    def policy(self) -> Policy | None:
        return policy_of(self.rules, f"keeps a fault of the backend out: {self.fault}") if self.rules else None

    @property
    def policy_text(self) -> str:
        """Returns the rules as the text of a policy file."""
        return policy_text([rule for rule in self.rules if rule.is_writable])

    @property
    def captures(self) -> int:
        """Returns how many runs captured anew."""
        return len(self.runs)

    def __str__(self) -> str:
        lines = [_HEADS[self.status].format(what=self.what, fault=self.fault, unsteady=self.unsteady)]
        if self.status == "right" and self.fault:
            lines[0] += f"; {self.fault}"
        for culprit in self.culprits:
            lines += ["  " + line for line in str(culprit).splitlines()]
        if self.rules:
            lines += ["  mended by", *[f"    {rule}" for rule in self.rules]]
        return "\n".join([*lines, f"  {count_text(self.captures, 'run')}"])


_HEADS = {
    "mended": "{what} is wrong: {fault}",
    "found": "{what} is wrong: {fault}; no rule mends it",
    "right": "{what} is right: there is nothing to find",
    "flaky": "{unsteady}: {fault}",
    "eager": "{what} is wrong in eager code too: {fault}",
    "capture": "{what} is wrong although the backend compiles nothing: the capture is at fault, or reads something that changes: {fault}",
    "random": "{what} can't be compared, because the backend draws other random numbers than eager code (give a check, or turn dropout off): {fault}",
}


@dataclass
class _Kept:
    """A culprit, and the rules that are left for it, of which the first is in force."""

    culprit: Culprit
    rules: list[EagerRule]

    def choose(self, rule: EagerRule) -> None:
        """Puts a rule in force; of the operators, those that it is about are the culprit."""
        self.rules = [rule]
        chosen = tuple([operator for operator in self.culprit.operators if keeps(rule, operator)])
        self.culprit = replace(self.culprit, operators=chosen, is_one_of=len(chosen) > 1)


class Flaky(Exception):
    """Two runs of one kind have different verdicts."""


class Hunt:
    """Makes runs, narrows down the culprits, and looks for the rules that keep them eager."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._runs: list[Run] = []
        self._kind = ""

    def go(self) -> Bisection:
        """Returns the result of the hunt."""
        try:
            return self._go()
        except Flaky as e:
            return self._end("flaky", str(e))

    def _go(self) -> Bisection:
        plain, first = self._run(NOTHING), self._run(EVERYTHING)
        verdicts = [plain.verdict, self._run(NOTHING).verdict if not plain.verdict.right else plain.verdict]
        if verdicts[0].kind != verdicts[1].kind:
            return self._end("flaky", f"without compiled graphs it says {_said(verdicts[0])}, and then {_said(verdicts[1])}")
        if not plain.verdict.right:
            eager = self._run(EAGER).verdict
            return self._end("capture", plain.verdict.text) if eager.right else self._end("eager", eager.text)
        second = self._run(EVERYTHING)
        if first.verdict.kind != second.verdict.kind:
            return self._end("flaky", f"with all graphs compiled it says {_said(first.verdict)}, and then {_said(second.verdict)}")
        if first.verdict.right:
            return self._end("right", self._runner.raised or _why_right(first))
        if first.verdict.kind == "random":
            return self._end("random", first.verdict.text)
        self._kind = first.verdict.kind
        return self._find(first)

    def _end(self, status: Status, fault: str, culprits: Sequence[Culprit] = (), rules: Sequence[EagerRule] = ()) -> Bisection:
        return Bisection(status, fault, tuple(culprits), tuple(rules), tuple(self._runs), self._runner.what, self._runner.unsteady)

    def _run(self, candidate: Candidate, rules: Sequence[EagerRule] = ()) -> Run:
        run = self._runner.run(candidate, rules)
        self._runs.append(run)
        return run

    def _find(self, wrong: Run) -> Bisection:
        """Finds one culprit after the other, until the rules that keep them eager mend the result."""
        first, kept = wrong, list[_Kept]()
        for _ in range(MOST_ATTEMPTS):
            rules = [rule for known in kept for rule in known.rules[:1]]
            culprit = self._narrow(wrong, rules)
            current = next((known for known in kept if known.culprit.alike(culprit)), None)
            if current is None:
                # Of several faults, this is another one.
                current = _Kept(culprit, rules_for(culprit.operators, wrong.graphs, self._runner.may))
                kept.append(current)
            else:
                # It shows under the rule that keeps the fewest operators eager: the next one is for more of them.
                del current.rules[:1]
            for rule in current.rules if culprit.is_one_of else ():
                # Which operator it is shows by the rule that mends it.
                others = [known.rules[0] for known in kept if known is not current]
                if self._run(EVERYTHING, [*others, rule]).verdict.right:
                    current.choose(rule)
                    break
            while current.rules:
                rules = [rule for known in kept for rule in known.rules[:1]]
                wrong = self._run(EVERYTHING, rules)
                if wrong.verdict.right:
                    return self._mended(first, [known.culprit for known in kept], rules)
                if wrong.graphs:
                    break
                # The rule is wrong for the program, which has not run.
                del current.rules[:1]
            if not current.rules:
                break
            self._kind = wrong.verdict.kind
        return self._end("found", first.verdict.text, [known.culprit for known in kept])

    def _mended(self, first: Run, culprits: Sequence[Culprit], rules: Sequence[EagerRule]) -> Bisection:
        # Once more: a check that is wrong at random may have said so.
        last = self._run(EVERYTHING, rules)
        if not last.verdict.right:
            raise Flaky(f"under the same rules it says right, and then {_said(last.verdict)}")
        return self._end("mended", first.verdict.text, culprits, rules)

    def _shows(self, candidate: Candidate, rules: Sequence[EagerRule]) -> bool:
        return self._run(candidate, rules).verdict.kind == self._kind

    def _narrow(self, wrong: Run, rules: Sequence[EagerRule]) -> Culprit:
        """Narrows the fault of a run down: to graphs, to calls of functions in one of them, to operators in these."""
        if not wrong.graphs:
            raise Flaky("the run that is wrong has captured no graph")
        self._runner.plan(f"at most {most_runs(wrong.graphs)} more runs, if one operator is wrong")
        graphs = needed_together(len(wrong.graphs), lambda some: self._shows(Candidate(some), rules))
        number = graphs[-1]
        only = self._run(Candidate(frozenset(graphs), cut=number), rules)
        if only.verdict.kind != self._kind or number >= len(only.graphs):
            raise Flaky(f"{only.candidate}: it says {_said(only.verdict)}, and has said that it is wrong")
        found = only.graphs[number]
        if found.cuts is None:
            return Culprit(number, tuple(graphs), found.operators, is_one_of=len(found.operators) > 1)

        def shows(begin: int, end: int) -> bool:
            return self._shows(Candidate(frozenset(graphs), {number: (begin, end)}), rules)

        end = len(found.operators)
        begin, end = shortest_stretch(_bounds(found, 0, end, by_call=True), shows)
        begin, end = shortest_stretch(_bounds(found, begin, end, by_call=False), shows)
        return _culprit(number, graphs, found, begin, end)


def most_runs(graphs: Sequence[GraphFacts]) -> int:
    """Returns how many runs it takes at most to find one operator, if that is wrong by itself and there is a rule for it."""
    found = 0
    for graph in graphs:
        stretches = [len(list(same)) for _, same in itertools.groupby([operator.call for operator in graph.operators])]
        found = max(found, 2 * (most_tests(len(stretches)) + most_tests(max(stretches, default=1))))
    return most_tests(len(graphs)) + 2 + found + 2


def _why_right(run: Run) -> str:
    """Returns why a run in which all graphs are compiled tells nothing; "" if it does."""
    if not run.graphs:
        return "no graph has been compiled: fineline.explain says why"
    return "" if run.ran else "but no compiled graph has run: the first call runs the code itself, and the graphs from the second call on"


def _said(verdict: Verdict) -> str:
    return verdict.text or "right"


def _bounds(graph: GraphFacts, begin: int, end: int, by_call: bool) -> list[int]:
    """Returns the places of a stretch where the graph may be cut, or those of them at which another call of a function begins."""
    calls = [operator.call for operator in graph.operators]
    inner = [i for i in graph.cuts or () if begin < i < end and (not by_call or calls[i] != calls[i - 1])]
    return [begin, *inner, end]


def _culprit(number: int, graphs: Sequence[int], graph: GraphFacts, begin: int, end: int) -> Culprit:
    places = [i for i in graph.cuts or () if begin < i < end]
    units = [graph.operators[a:b] for a, b in itertools.pairwise([begin, *places, end])]
    ends = [units[0], units[-1]] if len(units) > 1 else units
    # Without the operators that only take a result apart, unless there are no others.
    named = [[operator for operator in unit if operator.name] or list(unit) for unit in ends]
    operators = tuple([operator for unit in named for operator in unit])
    return Culprit(number, tuple(graphs), operators, sum(map(len, units[1:-1])), len(units) == 1 and len(operators) > 1)


