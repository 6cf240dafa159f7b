"""``trace``: "look inside (the default); also overrides a built-in skip"."""

from __future__ import annotations

import functools
import os

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

import fineline
from fineline import Policy, why
from fineline.errors import BadRule
from fineline.policy.files import load_policy
from tests.policy.doors import Probe, same

X = torch.arange(4.0) - 2
ME = __name__
COUNT = [0]


@functools.lru_cache
def cached(n):
    return [n, torch.tensor(n)]


@torch.compiler.disable
def marked(x):
    return x.cos()


@torch._dynamo.disable
def marked_by_dynamo(x):
    return x.cos()


def of_another_compiler(x):
    return x.cos()


of_another_compiler.__module__ = "torch._dynamo.somewhere"


async def coroutine(x):
    return x


# What is skipped by default, a program that meets it, and the operators of its one graph when it is traced into.
SKIPPED = {
    "a mark of torch": (marked, lambda x: marked(x * 2) + 1, ["mul", "cos", "add"]),
    "a mark of torch._dynamo": (marked_by_dynamo, lambda x: marked_by_dynamo(x * 2) + 1, ["mul", "cos", "add"]),
    "a cache": (cached, lambda x: x * cached(2.0)[1], ["tensor", "mul"]),
    "another compiler": (of_another_compiler, lambda x: of_another_compiler(x * 2) + 1, ["mul", "cos", "add"]),
}
SELECTORS = {
    "object": lambda fn: fn,
    "name": lambda fn: f"{fn.__module__}.{fn.__qualname__}",
    "glob": lambda fn: f"*{fn.__qualname__[2:]}*",
    "file": lambda fn: "tests/policy/test_trace.py",
    "folder": lambda fn: "tests/policy/**",
}


@pytest.mark.parametrize("name", SKIPPED)
@pytest.mark.parametrize("by", SELECTORS)
def test_it_overrules_a_built_in_skip(name, by):
    target, program, operators = SKIPPED[name]
    if by == "name" and name == "another compiler":
        pytest.skip("it has no such name")
    selector = SELECTORS[by](target)
    assert why(target).verb == ("constant" if target is cached else "disable") and why(target).scope == "built-in"
    said = fineline.explain(program)(X)
    assert target is cached or said.breaks or [e for e in said.events if e.kind == "eager"]
    policy = Policy(trace=selector)
    assert (why(target, policy).verb, why(target, policy).scope) == ("trace", "region")
    probe = Probe()
    compiled = fineline.compile(program, backend=probe, policy=policy, fullgraph=True)
    for _ in range(3):
        same(compiled(X), program(X))
    assert [[n for n in graph if n != "lift_fresh"] for graph in probe.graphs] == [operators]


# -- what is one node by default ---------------------------------------------------------------------------------------
FUNCTIONALS = [F.relu, F.gelu, F.elu, F.silu, F.hardtanh, F.leaky_relu, F.softmin, F.softmax, F.log_softmax, F.dropout, F.threshold, F.normalize]
PYTHON = [fn for fn in FUNCTIONALS if hasattr(fn, "__code__") and fn is not F.threshold]


@pytest.mark.parametrize("fn", PYTHON, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("by", ["object", "name"])
def test_a_functional_is_looked_into_if_it_is_named_itself(fn, by):
    given = {"dim": 0} if fn in (F.softmin, F.softmax, F.log_softmax, F.normalize) else {"training": False} if fn is F.dropout else {}

    def program(x):
        return fn(x * 2, **given) + 1

    policy = Policy(trace=fn if by == "object" else f"torch.nn.functional.{fn.__name__}")
    assert why(fn, policy).verb == "trace" and why(fn).verb == "allow"
    probes = Probe(), Probe()
    for probe, how in zip(probes, (policy, Policy(trace="torch.nn.functional.*")), strict=True):
        compiled = fineline.compile(program, backend=probe, policy=how, fullgraph=True)
        for x in (X, X, -X):
            same(compiled(x), program(x))
    inside, whole = [probe.modules[0].graph for probe in probes]
    assert fn in [n.target for n in whole.nodes] and fn not in [n.target for n in inside.nodes]


def test_in_a_module():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5)).eval()
    probe = Probe()
    compiled = fineline.compile(model, backend=probe, policy=Policy(trace=[F.relu, F.dropout]), fullgraph=True)
    same(compiled(X), model(X))
    assert F.relu not in [n.target for n in probe.modules[0].graph.nodes]


# -- where there is nothing to look into -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "selector",
    [print, len, list.append, int, torch.sin, torch.Tensor.item, torch.ops.aten.sin, torch.ops.aten.sin.default, "aten::*", "torch.ops.aten.sin",
     "builtins.print", "torch.sin", [os.getpid], [].append, fineline.compile],
    ids=lambda v: getattr(v, "__name__", str(v)),
)  # fmt: skip
def test_c_code_is_an_error_at_declaration(selector, tmp_path):
    with pytest.raises(BadRule) as caught:
        Policy(trace=selector)
    assert caught.value.id == "FL216" and caught.value.where.startswith(__file__)
    if type(selector) is str:
        path = tmp_path / "rules.toml"
        path.write_text(f'\ntrace = ["{selector}"]\n')
        with pytest.raises(BadRule) as caught:
            load_policy(path)
        assert caught.value.id == "FL216" and caught.value.where.endswith("rules.toml:2")


def test_where_a_glob_meets_c_code_it_is_said():
    said = fineline.explain(lambda x: (os.getpid(), x * 2)[1], policy=Policy(trace=["posix.*", f"{ME}.*"]))(X)
    assert "getpid" in said.breaks[0].reason and "nothing to look into for trace(posix.*) at" in said.breaks[0].reason
    assert [rule.selector.text for rule in said.unmatched] == []

    def makes_one(x):
        coroutine(x).close()
        return x * 2

    said = fineline.explain(makes_one, policy=Policy(trace=coroutine))(X)
    assert "nothing to look into for trace(" in said.breaks[0].reason


# -- PyTorch's name for it ---------------------------------------------------------------------------------------------
@pytest.fixture
def installed():
    fineline.install()
    yield
    fineline.uninstall()
    fineline.reset()


def test_dont_skip_tracing(installed):
    def program(x):
        return cached(2.0)[1] * of_another_compiler(x)

    probe = Probe()
    compiled = torch.compile(program, backend=probe)
    with torch._dynamo.dont_skip_tracing():
        for _ in range(3):
            same(compiled(X), program(X))
    assert len(probe.graphs) == 1
    decorated = torch._dynamo.dont_skip_tracing(program)
    same(decorated(X), program(X))
    for fn in (decorated, torch._dynamo.dont_skip_tracing()(program)):
        compiled = torch.compile(lambda x, fn=fn: fn(x) + 1, backend=(probe := Probe()), fullgraph=True)
        for _ in range(3):
            same(compiled(X), program(X) + 1)
        assert len(probe.graphs) == 1

    def block(x):
        y = of_another_compiler(x)
        with torch._dynamo.dont_skip_tracing():
            return of_another_compiler(y) + 1

    compiled = torch.compile(block, backend=(probe := Probe()))
    for _ in range(3):
        same(compiled(X), block(X))
    assert probe.graphs == [["cos", "add"]]


def test_a_rule_of_the_user_stands_above_it(installed):
    @torch.compiler.disable
    def hidden(x):
        return x.cos()

    compiled = torch.compile(lambda x: hidden(x * 2) + 1, backend=(probe := Probe()))
    with torch._dynamo.dont_skip_tracing():
        compiled(X)
    assert probe.graphs == [["mul"], ["add"]]


def test_every_row_that_skips_can_be_overruled_or_says_that_it_is_c():
    """No built-in rule stands that a ``trace`` rule could neither overrule nor be refused for."""
    odd = []
    for rule in fineline.builtin_rules():
        target = getattr(rule.selector.key, "obj", None)
        if target is None or type(target) is str or rule.verb not in ("disable", "disallow"):
            continue
        try:
            decided = why(target, Policy(trace=target))
        except BadRule as e:
            assert e.id == "FL216"
            continue
        if decided.verb != "trace":
            odd.append(target)
    assert odd == []
