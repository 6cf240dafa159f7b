"""What capture does on small call trees, held against the reference model: verbs x scopes x selectors x strictness."""

from __future__ import annotations

import contextlib
import itertools
import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fineline
from fineline import Policy
from fineline.errors import FinelineError, Forbidden
from tests.policy.model import Call, Rule, decide

X = torch.arange(3.0)
VERBS = ("trace", "disable", "disable_frame", "allow", "forbid", "substitute")
MODULE = "tests.policy.test_model"

TREES = {
    "leaf": Call("a"),
    "chain 2": Call("a", (Call("b"),)),
    "chain 3": Call("a", (Call("b", (Call("c"),)),)),
    "chain 4": Call("a", (Call("b", (Call("c", (Call("d"),)),)),)),
    "two calls": Call("a", (Call("b"), Call("c"))),
    "shared": Call("a", (Call("b", (Call("d"),)), Call("c", (Call("d"),)))),
    "prints": Call("a", (Call("b", (Call("c", prints=True),)), Call("d"))),
}


class Probe:
    def __init__(self) -> None:
        self.graphs: list[list[str]] = []

    def __call__(self, gm: Any, inputs: Any) -> Any:
        names = [label(n) for n in gm.graph.nodes if n.op.startswith("call_")]
        self.graphs.append([name for name in names if name])
        return gm.forward


NUMBERS = {f"{name}{side}": 10.0 + 2 * i + (side == ">") for i, name in enumerate("abcd") for side in "<>"}
LABELS = {number: name for name, number in NUMBERS.items()} | {99.0: "substitute"}


def label(node: Any) -> str:
    """The operator's name in the model: each adds a number of its own."""
    numbers = [a for a in node.args if isinstance(a, float)]
    return LABELS[numbers[0]] if numbers else node.target.__name__


def functions(tree: Call) -> dict[str, Callable]:
    """The functions of a tree, fresh, as those of a file of their own."""
    lines = []
    for call in {c.name: c for c in tree.walk()}.values():
        lines += [f"def {call.name}(x):", f"    x = x + {NUMBERS[call.name + '<']}"]
        lines += ["    print(end='')"] if call.prints else []
        lines += [f"    x = {inner.name}(x)" for inner in call.calls]
        lines += [f"    return x + {NUMBERS[call.name + '>']}"]
    source, file = "\n".join(lines), "tests/policy/made_of_a_tree.py"
    space: dict[str, Any] = {"__name__": MODULE}
    exec(compile(source, file, "exec"), space)
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    return {name: fn for name, fn in space.items() if callable(fn)}


def replacement(x):
    return x + 99.0


def selector(rule: Rule, made: dict[str, Callable]) -> Any:
    if rule.by == "object":
        return made[rule.what]
    if rule.by == "name":
        return fineline.policy.selector.Selector(2, "name", f"{MODULE}.{rule.what}", rule.what)
    pattern = f"{MODULE}.{rule.what}*"
    return fineline.policy.selector.Selector(0, "glob", ("name", pattern), pattern)


@contextlib.contextmanager
def declared(rules: list[Rule], made: dict[str, Callable]) -> Iterator[Policy]:
    """Declares each rule in its scope; -> the region's policy."""
    by_scope: dict[str, Policy] = {scope: Policy() for scope in ("process", "region", "block")}
    for rule in rules:
        s = selector(rule, made)
        if rule.scope == "mark":
            mark(rule.verb, made[rule.what])
        elif rule.verb == "substitute":
            by_scope[rule.scope] |= Policy(substitute={s: replacement})
        else:
            by_scope[rule.scope] |= Policy(**{rule.verb: s})
    before = fineline.set_policy(by_scope["process"] or None)
    try:
        with by_scope["block"] if by_scope["block"] else contextlib.nullcontext():
            yield by_scope["region"]
    finally:
        fineline.set_policy(before)


def mark(verb: str, fn: Callable) -> None:
    if verb == "substitute":
        fineline.substitute_in_graph(fn)(replacement)
    else:
        {"allow": fineline.allow_in_graph, "forbid": fineline.forbid_in_graph}[verb](fn)


def check(tree: Call, rules: list[Rule], breaks: str) -> None:
    expected = decide(tree, rules, breaks)
    made = functions(tree)
    probe = Probe()
    with declared(rules, made) as policy:
        compiled = fineline.compile(made[tree.name], backend=probe, policy=policy or None, breaks=breaks)
        results, error = [], ""
        try:
            results = [compiled(X + k) for k in range(2)]
        except Forbidden:
            error = "forbid"
        except FinelineError:
            error = "break"
    assert error == expected.error
    if not error:
        assert probe.graphs == expected.graphs
        if all(rule.verb != "substitute" for rule in rules):
            assert all(torch.equal(r, made[tree.name](X + k)) for k, r in enumerate(results))


@pytest.mark.parametrize("breaks", ["any", "declared", "none"])
@pytest.mark.parametrize("name", TREES)
def test_one_rule(name: str, breaks: str) -> None:
    tree = TREES[name]
    for what, verb in itertools.product(sorted({c.name for c in tree.walk()}), VERBS):
        for scope, by in itertools.product(("process", "region", "block"), ("object", "name", "glob")):
            check(tree, [Rule(verb, by, what, scope)], breaks)
        if verb in ("allow", "forbid", "substitute"):
            check(tree, [Rule(verb, "object", what, "mark")], breaks)


@pytest.mark.parametrize("name", ["chain 2", *[pytest.param(name, marks=pytest.mark.later) for name in ("chain 3", "two calls", "shared")]])
def test_two_rules(name: str) -> None:
    """Who wins: all pairs of verbs, selectors and scopes for one function; and rules for two functions of one call chain."""
    tree = TREES[name]
    verbs = ("trace", "disable", "disable_frame", "allow")
    scopes, kinds = ("process", "region", "block"), ("object", "name", "glob")
    for one, other in itertools.permutations(verbs, 2):
        for (s1, by1), (s2, by2) in itertools.product(itertools.product(scopes, kinds), repeat=2):
            check(tree, [Rule(one, by1, "b", s1), Rule(other, by2, "b", s2)], "any")
    for one, other in itertools.product(verbs, repeat=2):
        for first, second in itertools.combinations(sorted({c.name for c in tree.walk()}), 2):
            check(tree, [Rule(one, "object", first), Rule(other, "object", second)], "any")


def test_the_model_is_small() -> None:
    assert sum(1 for _ in Path(__file__).with_name("model.py").open()) <= 150
