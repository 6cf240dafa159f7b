"""What a ledger counts: places in the code, by function and reason; not calls, and nothing that depends on time or threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fineline
from fineline.ledger.findings import Finding, Findings
from fineline.report.events import LISTENERS

HERE = "test_findings.py"
X = torch.ones(3)


@fineline.disable
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def twice(x: torch.Tensor) -> torch.Tensor:
    y = helper(x) + 1
    return helper(y)


def once_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = helper(x)
    return x


def down(x: torch.Tensor, depth: int) -> torch.Tensor:
    return down(helper(x), depth - 1) if depth else x


def disabled(x: torch.Tensor) -> torch.Tensor:
    return noisy(x) + 1


def generator(x: torch.Tensor) -> Any:
    yield x


async def coroutine(x: torch.Tensor) -> torch.Tensor:
    return x


def awaits(x: torch.Tensor) -> torch.Tensor:
    coroutine(x).close()
    return x + 1


def text(x: torch.Tensor, v: str) -> torch.Tensor:
    return x + len(v.upper())


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Finding]]:
    def find(fn: Callable, *calls: tuple, **how: Any) -> list[Finding]:
        findings = Findings(Path(__file__).parent)
        monkeypatch.setattr(LISTENERS, "all", (findings.hear,))
        compiled = fineline.compile(fn, backend="eager", **how)
        for args in calls:
            compiled(*args)
        facts = json.loads(json.dumps(findings.facts()))
        again = Findings(Path("/nowhere"))
        again.merge(facts)
        again.merge(facts)
        assert again.sorted() == findings.sorted()
        return again.sorted()

    return find


def rows(findings: list[Finding]) -> list[tuple[str, str, str, int]]:
    return [(f.key.kind, f.key.function.rpartition(":")[2], f.key.id, len(f.places)) for f in findings]


def test_places_are_counted_and_not_calls(find: Callable[..., list[Finding]]) -> None:
    assert rows(find(twice, (X,), (X,))) == [("break", "helper", "FL502", 2)]
    assert rows(find(once_in_a_loop, (X,), (X,))) == [("break", "helper", "FL502", 1)]
    # However deep the recursion is.
    assert rows(find(down, (X, 3))) == rows(find(down, (X, 5))) == [("break", "helper", "FL502", 1)]


def test_a_finding_has_the_way_and_the_next_step(find: Callable[..., list[Finding]]) -> None:
    [finding] = find(once_in_a_loop, (X,))
    assert finding.key == ("break", f"{finding.key.function}", "FL502", "item reads a tensor's values")
    assert Path(finding.file).name == HERE and finding.line == helper.__code__.co_firstlineno + 1
    assert len(finding.callers) == 2 and finding.callers[-1].endswith("in helper") and finding.next_step and finding.title


def test_breaks_of_rules_are_listed_with_the_rule(find: Callable[..., list[Finding]]) -> None:
    [finding] = find(disabled, (X,))
    assert rows([finding]) == [("break", "disabled", "FL400", 1)] and finding.rule.startswith("disable(") and HERE not in finding.rule
    [finding] = find(helper, (X,), policy=fineline.Policy(disallow=[torch.Tensor.item], reason="slow: at once"), breaks="declared")
    assert finding.rule == "disallow(torch.Tensor.item)" and finding.key.reason.endswith("slow: at once")


def test_functions_that_are_never_captured(find: Callable[..., list[Finding]]) -> None:
    assert rows(find(generator, (X,), (X,))) == [("eager", "generator", "FL405", 1)]
    assert [row for row in rows(find(awaits, (X,))) if row[0] == "eager"] == []


def test_recompiles_have_one_entry_for_a_guard(find: Callable[..., list[Finding]]) -> None:
    found = find(text, *[(X, "a" * n) for n in range(1, 12)])
    assert rows(found) == [("eager", "text", "FL104", 1), ("recompile", "text", "FL407", 1)]
    assert found[1].key.reason == "v changed" and found[1].said == "v: 'a' -> 'aa'"


def test_states_of_the_process_are_not_listed(find: Callable[..., list[Finding]]) -> None:
    with fineline.set_stance("force_eager"):
        assert find(helper, (X,)) == []
    with fineline.disable():
        assert find(helper, (X,)) == []
