"""Each error of the control surface, raised once: it names the user's line, the reason, the rule and its place, and what to do next."""

from __future__ import annotations

import re
import sys

import pytest
import torch

import fineline
from fineline import Policy
from fineline.errors import FinelineError
from fineline.policy.files import load_policy

X = torch.arange(4.0)
WEIGHT = torch.ones(4)


def helper(x):
    return x.cos()


def outer(x):
    return helper(x * 2) + 1


def uses_a_weight(x):
    return x * WEIGHT


def calls_it(x):
    return uses_a_weight(x)


def sines(x):
    return x.sin() + 1


def sets_a_stance(x):
    fineline.set_stance("default")
    return x * 2


def prints(x):
    print(end="")
    return x * 2


def marks(x):
    fineline.allow_in_graph(lambda x: x)
    return x * 2


def has_a_block(x):
    with fineline.disable():
        y = x * 2
    return y + 1


def checks(x):
    if (x < 0).any():
        raise ValueError("negative")
    return helper(x)


HIDDEN = fineline.disable(helper, reason="reads a file")
HIDDEN_BY_TORCH = torch.compiler.disable(helper)


def calls_hidden(x):
    return HIDDEN(x)


def calls_hidden_by_torch(x):
    return HIDDEN_BY_TORCH(x)


def run(fn, **how):
    return lambda tmp: fineline.compile(fn, backend="eager", **how)(X)


def under_a_stance(tmp):
    with fineline.set_stance("fail_on_recompile"):
        fineline.compile(outer, backend="eager")(X)


def policy_file(tmp):
    path = tmp / "rules.toml"
    path.write_text("\ndisable = 3\n")
    return load_policy(path)


def by_file(tmp):
    path = tmp / "rules.toml"
    path.write_text('reason = "slow"\ndisable = ["tests.policy.test_error_texts.helper"]\n')
    return run(outer, fullgraph=True, policy=load_policy(path))(tmp)


ME = re.escape(__file__)
RULE = rf" at {ME}:\d+"
NONE = None  # a declaration: there is no rule yet

# What raises; the id; words of the reason; the line that it names (a text in it); the rule; words of the next step.
CASES = {
    "forbidden": (run(outer, policy=Policy(forbid=helper, reason="no")), "FL105", "helper: no", "helper(x * 2)", rf"forbid\(.*helper\){RULE}: no",
                  "remove the rule or mark"),
    "a stance set inside": (run(sets_a_stance), "FL105", "set_stance", "fineline.set_stance", "built-in", "Move the call out"),
    "undeclared": (run(prints, breaks="declared"), "FL106", "print", "print(end", r"disable\(builtins.print\) at fineline/cpython/", "Policy(disable="),
    "undeclared, read values": (run(lambda x: x * x.sum().item(), breaks="declared"), "FL106", "item", "item()", r"disallow\(torch.Tensor.item\) at",
                                "Policy(disallow="),
    "contract": (run(calls_it, policy=Policy(allow=uses_a_weight)), "FL107", "WEIGHT", "return x * WEIGHT", rf"allow\(.*uses_a_weight\){RULE}",
                 "as an argument, or remove the rule or mark"),
    "recompile": (under_a_stance, "FL108", "no program", "def outer", rf'set_stance\("fail_on_recompile"\){RULE}', "before set_stance"),
    "stance": (lambda tmp: fineline.set_stance("nope"), "FL207", "'nope' is not a stance; there are default", 'set_stance("nope")', NONE, "one of the names"),
    "stance and backend": (lambda tmp: fineline.set_stance("force_eager", force_backend="eager"), "FL207", "force_backend goes", "set_stance(", NONE,
                           'force_backend requires "default"'),
    "selects nothing": (lambda tmp: Policy(disable=3), "FL211", "type int", "Policy(disable=3)", NONE, "its name"),
    "disables nothing": (lambda tmp: fineline.disable(3), "FL211", "type int", "disable(3)", NONE, "Policy(disable=...)"),
    "marks nothing": (lambda tmp: fineline.forbid_in_graph("a.b"), "FL211", "type str", 'forbid_in_graph("a.b")', NONE, "itself"),
    "does not exist": (lambda tmp: Policy(disable="no.such"), "FL212", "there is no no.such", 'disable="no.such"', NONE, "Correct the name"),
    "glob": (lambda tmp: Policy(disable="fineline.zebra*"), "FL212", "begins with 'zebra'", "fineline.zebra*", NONE, "Correct the name"),
    "disallowed function": (lambda tmp: Policy(disallow=helper), "FL213", "helper", "disallow=helper", NONE, "Use disable instead"),
    "disallowed by a mark": (lambda tmp: fineline.disallow_in_graph(helper), "FL213", "helper", "disallow_in_graph(helper)", NONE, "Use disable instead"),
    "substitute": (lambda tmp: Policy(substitute={helper: lambda x, y: x}), "FL214", "takes (x, y)", "substitute={", NONE, "same signature"),
    "policy file": (policy_file, "FL215", "not an integer", "rules.toml:2", NONE, "Correct the line"),
    "disallowed": (run(sines, policy=Policy(disallow=torch.sin, reason="slow"), fullgraph=True), "FL102", "FL429", "x.sin()",
                   rf"disallow\(torch.sin\){RULE}: slow", "Remove the rule"),
    "a block": (run(has_a_block, fullgraph=True), "FL102", "FL430", "with fineline.disable()", rf"disable\(with block\){RULE}", "Remove the block"),
    "a mark made inside": (run(marks, fullgraph=True), "FL102", "FL433", "allow_in_graph(lambda", r"disable\(functions of fineline's that declare\) at fineline",
                           "outside of the region"),
    "effects behind a check": (run(checks, policy=Policy(allow=helper), fullgraph=True), "FL102", "FL514", "return helper(x)",
                               rf"allow\(.*helper\){RULE}", "before the check"),
    "disabled": (run(outer, policy=Policy(disable=helper), fullgraph=True), "FL103", "helper is disabled", "helper(x * 2)",
                 rf"disable\(.*helper\){RULE}", "Remove the rule or mark"),
    "disabled by a mark": (run(calls_hidden, fullgraph=True), "FL103", "reads a file", "HIDDEN(x)", rf"disable\(.*helper\){RULE}: reads a file",
                           "Remove the rule or mark"),
    "disabled by torch": (run(calls_hidden_by_torch, fullgraph=True), "FL103", "helper is disabled", "HIDDEN_BY_TORCH(x)",
                          rf"disable\(.*helper\){RULE}: torch.compiler.disable", "Remove the rule or mark"),
    "disabled by a file": (by_file, "FL103", "slow", "helper(x * 2)", r"disable\(.*helper\) at .*rules.toml:2: slow", "Remove the rule or mark"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_error_says_where_why_by_which_rule_and_what_next(name, tmp_path):
    fails, id, reason, line, rule, step = CASES[name]
    try:
        with pytest.raises(FinelineError) as caught:
            fails(tmp_path)
    finally:
        fineline.reset()
    error = caught.value
    assert error.id == id and reason in error.reason
    if ":" in line and line.startswith("rules"):
        assert error.where.endswith(line)
    else:
        file, number = error.where.rsplit(":", 1)
        assert file == __file__
        with open(file) as f:
            assert line in f.read().splitlines()[int(number) - 1]
    assert error.rule is None if rule is NONE else re.search(rule, error.rule)
    assert step in error.next_step
    text = str(error)
    assert [label for label in ("at:", "why:", "rule:", "next:") if label in text] == ["at:", "why:", *(["rule:"] if rule else []), "next:"]


BREAKS = {
    "FL429": (sines, Policy(disallow=torch.sin), "x.sin()", rf"disallow\(torch.sin\){RULE}"),
    "FL430": (has_a_block, None, "with fineline.disable()", rf"disable\(with block\){RULE}"),
    "FL433": (marks, None, "allow_in_graph(lambda", ""),
    "FL514": (checks, Policy(allow=helper), "return helper(x)", rf"allow\(.*helper\){RULE}"),
    "FL400": (outer, Policy(disable=helper), "helper(x * 2)", rf"disable\(.*helper\){RULE}"),
}


@pytest.mark.parametrize("id", BREAKS)
def test_a_graph_break_says_as_much(id):
    fn, policy, line, rule = BREAKS[id]
    said = fineline.explain(fn, policy=policy)(X)
    fineline.reset()
    found = next(b for b in said.breaks if b.id == id)
    with open(found.file) as f:
        assert found.file == sys.modules[__name__].__file__ and line in f.read().splitlines()[found.line - 1]
    assert found.reason and re.search(rule, found.rule)
    assert found.reason in str(said)
