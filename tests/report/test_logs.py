"""Logs: "`logging.getLogger("fineline")` tells once per place when code runs eagerly because of a mark, with the mark's file and line"."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch

import fineline
from fineline import Policy
from fineline.report.logs import CATEGORIES, LOGS, Logs

X = torch.arange(4.0)


@fineline.disable(reason="reads a file")
def load(x):
    return x + 1


def program(x):
    x = load(x * 2)
    return load(x).cos()


LINE = program.__code__.co_firstlineno


@pytest.fixture(autouse=True)
def anew():
    LOGS.forget()


def crumbs(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "fineline"]


def test_once_per_place_with_the_marks_file_and_line(caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        fineline.compile(program, backend="eager")(X)
    first, second = crumbs(caplog)
    assert first.startswith(f"{__file__}:{LINE + 1} runs eagerly: load is disabled: reads a file; the rule: disable(")
    assert f" at {__file__}:{load.__wrapped__.__code__.co_firstlineno}" in first
    assert second.startswith(f"{__file__}:{LINE + 2} ")
    assert all(r.levelno == logging.INFO for r in caplog.records)
    fineline.reset()
    fineline.compile(program, backend="eager")(X)
    assert len(crumbs(caplog)) == 4


def test_rules_of_a_policy_and_blocks_too(caplog):
    caplog.set_level(logging.INFO)

    def f(x):
        x = x.sin() * 2
        with fineline.disable():
            x = x + 1
        return x.cos()

    fineline.compile(f, backend="eager", policy=Policy(disallow=torch.sin))(X)
    here = f.__code__.co_firstlineno
    assert any(f":{here + 1} runs eagerly: " in c and "disallow(torch.sin) at " in c for c in crumbs(caplog))
    assert any(f":{here + 2} runs eagerly: " in c and f"{__file__}:{here + 2}" in c.partition("rule")[2] for c in crumbs(caplog))


def test_a_region_that_is_called_in_a_block(caplog):
    caplog.set_level(logging.INFO)
    compiled = fineline.compile(lambda x: x + 1, backend="eager")
    for _ in range(3):
        with fineline.disable(reason="while loading"):
            compiled(X)
            compiled(X)
    here = test_a_region_that_is_called_in_a_block.__code__.co_firstlineno
    assert [crumb.partition(" runs eagerly: ")[0] for crumb in crumbs(caplog)] == [f"{__file__}:{here + 5}", f"{__file__}:{here + 6}"]
    assert all(f"disable(with block) at {__file__}:{here + 4}: while loading" in crumb for crumb in crumbs(caplog))
    compiled(X)
    assert len(crumbs(caplog)) == 2 and compiled._region.segments()


def test_nothing_for_a_graph_break_that_no_rule_asked_for(caplog):
    caplog.set_level(logging.INFO)
    fineline.compile(lambda x: x * x[1].item(), backend="eager")(X)
    assert crumbs(caplog) == []


def test_the_categories(caplog):
    asked = Logs(",".join(CATEGORIES))
    try:
        c = fineline.compile(program, backend="eager")
        c(X)
        c(torch.ones(2))
    finally:
        for logger in asked.loggers.values():
            logger.setLevel(logging.NOTSET)
        asked.log.removeHandler(asked.log.handlers[-1])
    said = {name: [r.getMessage() for r in caplog.records if r.name == f"fineline.{name}"] for name in CATEGORIES}
    assert any("FL400" in m and f"{__file__}:{LINE + 1}" in m and "the rule: disable(" in m for m in said["breaks"])
    assert any("x: sizes (4,) -> (2,)" in m for m in said["recompiles"])
    assert any("x is a Tensor of size (4,)" in m for m in said["guards"])
    assert any("def forward(self" in m and "mul" in m for m in said["graphs"])
    assert any("def program(" in m for m in said["program"])
    caplog.clear()
    fineline.compile(program, backend="eager")(X)
    assert not [r for r in caplog.records if r.levelno < logging.INFO]


def run(environment):
    code = "import torch, fineline\nf = fineline.compile(lambda x: x * x[1].item(), backend='eager')\nf(torch.arange(4.0))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout == ""
    return done.stderr


def test_the_environment(monkeypatch):
    """Nothing is printed by default; an unknown name is a warning that lists the known ones."""
    import os

    assert run({**os.environ}) == ""
    said = run({**os.environ, "FINELINE_LOGS": "breaks, nope"})
    assert "FINELINE_LOGS: there is no 'nope'; known are breaks, recompiles, guards, graphs, program" in said
    assert "fineline.breaks: <lambda>: break FL502 at <string>:2: " in said and "fineline.graphs" not in said
