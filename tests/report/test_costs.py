"""What graph breaks and rules cost: in explanations, in reports of whole programs, and in the audit."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fineline
from fineline.errors import FinelineError
from fineline.report.costs import BreakCost, BreakPlace, Cost, total
from fineline.report.events import LISTENERS
from fineline.report.recording import Recording

SECONDS = 0.02


def slow(x: torch.Tensor) -> torch.Tensor:
    time.sleep(SECONDS)
    return x + 1


def quick(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


def model(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = slow(x.sin()) * 2
    print(end="")
    return quick(x) + 1


class Cycle:
    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        time.sleep(1.0)


def collects(x: torch.Tensor) -> torch.Tensor:
    Cycle()
    gc.collect()
    return x + 1


def test_garbage_collections_are_no_costs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return collects(x.sin()) * 2

    (found,) = fineline.explain(fn, policy=fineline.Policy(disable=collects))(torch.ones(2)).costs
    assert 0 < found.cost.seconds < 1.0


def test_each_graph_break_and_each_rule() -> None:
    """The graphs and guards of the programs after it, and the time of the eager call."""
    policy = fineline.Policy(disable=[slow], allow=[quick])
    explanation = fineline.explain(model, policy=policy)(torch.ones(3))
    assert [cost.place.id for cost in explanation.costs] == [event.id for event in explanation.breaks] == ["FL400", "FL400", "FL411"]
    assert [cost.cost.breaks for cost in explanation.costs] == [1, 1, 1]
    assert all(cost.cost.seconds >= SECONDS for cost in explanation.costs[:2]) and explanation.costs[2].cost.seconds < SECONDS
    # Of the graphs and guards, all but those of the first program are due to graph breaks.
    first = fineline.explain(lambda x: slow(x.sin()), policy=fineline.Policy(disable=[slow]))(torch.ones(3))
    assert explanation.cost.graphs == len(explanation.graphs) - 1 == 3
    assert 0 < explanation.cost.guards < len(explanation.guards) and all(cost.cost.guards > 0 for cost in explanation.costs)
    assert first.cost.graphs == len(first.graphs) - 1
    rules = {rule.selector.text.rpartition(".")[2]: explanation.cost_of(rule) for rule in explanation.rules}
    assert rules["slow"] == explanation.costs[0].cost + explanation.costs[1].cost and rules["quick"] == Cost()
    text = str(explanation)
    assert f"      {Cost(0, 2, rules['slow'].guards, rules['slow'].seconds)}\n" in text
    assert f"      {rules['slow']}\n" in text and "costs nothing" in text
    assert explanation.as_dict()["costs"] == [cost.as_dict() for cost in explanation.costs]


def test_what_rules_save() -> None:
    """Each is left out of one more call, whatever declares it."""
    calls: list[int] = []

    def counts(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + 1

    @fineline.disable
    def disabled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @fineline.allow_in_graph
    def branches(x: torch.Tensor) -> torch.Tensor:
        # Only its result is in the graph.
        return x + 1 if x.shape[0] > 2 else x - 1

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum().item() > 0 else x - 1

    def step(x: torch.Tensor) -> torch.Tensor:
        y = branches(disabled(x.sin()).cos())
        with fineline.disable():
            y = y.exp()
        return counts(reads(y) * 2)

    policy = fineline.Policy(disable=[counts])
    explanation = fineline.explain(step, policy=policy, savings=True)(torch.ones(3))
    fired = [rule for rule, times in explanation.rules.items() if times]
    assert list(explanation.savings) == fired and len(calls) == 1 + len(fired) >= 5
    found = {rule.selector.text.rpartition(".")[2]: saved for rule, saved in explanation.savings.items()}
    assert found["disabled"].breaks == 1 and found["disabled"].graphs >= 0 and found["counts"].breaks >= 0
    assert found["branches"].breaks == 0
    assert "      compared with a call without it: costs 1 graph break" in str(explanation)
    savings: Any = explanation.as_dict()["savings"]
    assert [entry["key"] for entry in savings] == [rule.key for rule in fired]
    # They hold again after that.
    again = fineline.explain(step, policy=policy)(torch.ones(3))
    assert again.savings == {} and len(again.breaks) == len(explanation.breaks) and again.rules == explanation.rules


def test_marks_that_the_call_sets_hold_after_it() -> None:
    kept: list[Any] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        inner = fineline.disable(lambda y: y * 2)
        kept.append(inner)
        return inner(x.sin()).cos()

    explanation = fineline.explain(step, savings=True)(torch.ones(3))
    assert len(kept) == 1 + len(explanation.savings) >= 2
    for inner in kept:
        found = fineline.explain(lambda x, inner=inner: inner(x + 1) + 1)(torch.ones(3))
        assert [event.id for event in found.breaks] == ["FL400"]


def test_a_rule_without_which_the_call_raises() -> None:
    def reads(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum().item() > 0 else x - 1

    def step(x: torch.Tensor) -> torch.Tensor:
        return reads(x.sin()) * 2

    policy = fineline.Policy(disable=[reads])
    compiled = fineline.compile(step, backend="eager", policy=policy, breaks="declared")
    explanation = fineline.explain(compiled, savings=True)(torch.ones(3))
    (error,) = explanation.savings.values()
    assert isinstance(error, FinelineError) and "      without it the call raises Undeclared: " in str(explanation)


def test_nothing_is_measured_without_an_explanation() -> None:
    compiled = fineline.compile(model, backend="eager")
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert compiled._region.watch.recording is None
    report = fineline.report(compiled)
    assert report.breaks and report.costs == [] and not report.costs_known and " costs " not in str(report)


def test_an_eager_call_that_raises() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        time.sleep(SECONDS)
        raise ValueError

    def step(x: torch.Tensor) -> torch.Tensor:
        try:
            fails(x)
        except ValueError:
            x = x + 1
        return x.sin()

    explanation = fineline.explain(step, policy=fineline.Policy(disable=[fails]))(torch.ones(3))
    assert [cost.cost.seconds >= SECONDS for cost in explanation.costs] == [True]


@pytest.mark.parametrize("marked", [False, True])
def test_captures_on_fakes(marked: bool) -> None:
    """There the eager call is made after the capture, by the program."""
    policy = fineline.Policy(disable=[slow], allow=[quick])
    x = torch.ones(3)
    if marked:
        fineline.mark_dynamic(x, 0)
    explanation = fineline.explain(model, policy=policy, dynamic=None if marked else True)(x)
    static = fineline.explain(model, policy=policy)(torch.ones(3))
    assert [cost.place for cost in explanation.costs] == [cost.place for cost in static.costs]
    assert [cost.cost.graphs for cost in explanation.costs] == [cost.cost.graphs for cost in static.costs] == [1, 1, 1]
    assert all(cost.cost.guards > 0 and not cost.cost.unmeasured for cost in explanation.costs)
    assert all(cost.cost.seconds >= SECONDS for cost in explanation.costs[:2]) and explanation.costs[2].cost.seconds < SECONDS
    assert explanation.tree is not None
    assert sum([node.seconds for node in explanation.tree if node.name == "slow"]) >= 2 * SECONDS
    assert [(node.name, node.colour) for node in explanation.tree] == [(node.name, node.colour) for node in static.tree or ()]


def test_a_recompile_with_symbolic_sizes() -> None:
    before, LISTENERS.trees = LISTENERS.trees, True
    try:
        compiled = fineline.compile(model, backend="eager", policy=fineline.Policy(disable=[slow]))
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    finally:
        LISTENERS.trees = before
    report = fineline.report(compiled)
    found = [cost.cost for cost in report.costs if cost.place.id == "FL400"]
    assert len(found) == 4 and report.recompiles and all(cost.seconds >= SECONDS for cost in found) and not report.cost.unmeasured
    # Both captures lead to the same places; the programs there count for the graph breaks of the first.
    assert [cost.cost.graphs for cost in report.costs] == [2, 2, 2, 0, 0, 0]


def test_the_calls_in_an_eager_call_and_its_exception_after_a_capture_on_fakes() -> None:
    def below(x: torch.Tensor) -> None:
        time.sleep(SECONDS)
        raise ValueError

    @fineline.disable
    def fails(x: torch.Tensor) -> None:
        below(x)

    def step(x: torch.Tensor) -> torch.Tensor:
        try:
            fails(x)
        except ValueError:
            x = x + 1
        return x.sin()

    static, explanation = [fineline.explain(step, dynamic=dynamic)(torch.ones(3)) for dynamic in (False, True)]
    for told in (static, explanation):
        [cost] = told.costs
        # The graph is that of the handler.
        assert cost.cost.seconds >= SECONDS and cost.cost.graphs == 1
        assert [(node.name.rpartition(".")[2], node.colour) for node in told.tree or ()][1:] == [("fails", "eager"), ("below", "eager")]
        assert [node.seconds >= SECONDS for node in told.tree or ()][1:] == [False, True]


def test_each_stack_of_a_place_has_its_own_cost() -> None:
    def wait(x: torch.Tensor, times: int) -> torch.Tensor:
        for _ in range(times):
            x = slow(x.sin())
        return x

    def step(x: torch.Tensor) -> torch.Tensor:
        y = wait(x, 1)
        return y + wait(x, 3)

    explanation = fineline.explain(step, policy=fineline.Policy(disable=[slow]))(torch.ones(3))
    stacks = {cost.place.stack for cost in explanation.costs}
    own = [str(replace(total([cost for cost in explanation.costs if cost.place.stack == stack]), breaks=0)) for stack in stacks]
    shown = [line.strip() for line in str(explanation).splitlines() if line.startswith("      costs ") and "graph break" not in line]
    assert len(explanation.costs) == 4 and len(stacks) == 2 and sorted(shown) == sorted(own) and len({*shown}) == 2


def test_an_eager_call_whose_time_is_not_known() -> None:
    known, unknown = Cost(1, 2, 3, 0.5), Cost(1, unmeasured=1)
    assert str(unknown) == "costs 1 graph break, 1 eager call (not measured)"
    assert str(known + unknown + unknown) == "costs 3 graph breaks, 2 graphs, 3 guards, 500 ms of eager calls, 2 eager calls (not measured)"
    assert str(Cost() - unknown) == "costs 1 eager call (not measured), saves 1 graph break"
    recording = Recording()
    recording.meet(BreakPlace("FL411", "print can't be captured", "a.py", 3, ""))
    [cost] = recording.costs()
    assert cost.cost == unknown


def test_words() -> None:
    assert str(Cost()) == "costs nothing" and str(Cost(seconds=1e-9)) == "costs nothing"
    assert str(Cost(1, 2, 1, 0.0123)) == "costs 1 graph break, 2 graphs, 1 guard, 12.3 ms of eager calls"
    assert str(Cost(1) - Cost(0, 3, 5, 2.5)) == "costs 1 graph break, saves 3 graphs, 5 guards, 2.5 s of eager calls"
    one = BreakCost(BreakPlace("FL411", "print can't be captured", "a.py", 3, "", (("a.py", 3, "f"),)), Cost(1, 2, 3, 4.5, 1))
    assert BreakCost.from_dict(json.loads(json.dumps(one.as_dict()))) == one


PROGRAM = """\
import subprocess, sys, time
import torch

def slow(x):
    if sys.argv[-1] == "sleep":
        time.sleep(0.02)
    return x + 1

def opaque(x):
    print(end="")
    return x * 2

def step(x):
    return slow(x.sin()).cos() + opaque(x)

torch.compile(step, backend="eager")(torch.ones(3))
if "launch" in sys.argv:
    subprocess.run([sys.executable, "program.py", "sleep"], check=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "rules.toml").write_text('disable = ["__main__.slow"]\nconstant = ["builtins.print"]\n')
    return tmp_path


def fineline_of(folder: Path, *args: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fineline", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "250"}, timeout=300)


@pytest.mark.later
def test_reports_of_programs_have_the_costs_of_each_process(folder: Path) -> None:
    assert fineline_of(folder, "run", "--policy", "rules.toml", "--explain", "out.json", "program.py", "launch", "sleep").returncode == 0
    facts = json.loads((folder / "out.json").read_text())
    [inner] = facts["processes"]
    for [function] in (facts["functions"], inner["functions"]):
        [cost] = [cost for cost in function["costs"] if cost["id"] == "FL400"]
        assert cost["seconds"] >= 0.02 and cost["graphs"] == 1 and cost["guards"] > 0 and cost["rule"].startswith("disable(__main__.slow)")


@pytest.mark.later
def test_the_audit_says_what_each_rule_costs_or_saves(folder: Path) -> None:
    done = fineline_of(folder, "audit", "--json", "--policy", "rules.toml", "program.py")
    assert done.returncode == 0, done.stderr
    rules = {rule["selector"]: rule["costs"] for rule in json.loads(done.stdout)["rules"] if rule["times"]}
    assert rules["__main__.slow"]["breaks"] == 1 and rules["__main__.slow"]["graphs"] == 1 and rules["__main__.slow"]["seconds"] > 0
    # Without it, print breaks the graph.
    assert rules["builtins.print"]["breaks"] == -1 and rules["builtins.print"]["guards"] < 0
    done = fineline_of(folder, "audit", "--policy", "rules.toml", "program.py")
    assert "costs 1 graph break, 1 graph, " in done.stdout and "saves 1 graph break, " in done.stdout
