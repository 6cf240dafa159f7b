"""``why``: "returns the decision, the rule, its reason and its place", for the user's rules and the built-in ones."""

from __future__ import annotations

import functools
import os
import sys

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy, why
from fineline.builtins.callable_rules import KINDS, builtin_rule
from fineline.errors import BadRule
from fineline.policy.rule import BUILT_IN, VERBS

X = torch.arange(4.0)
ME = __name__


def helper(x):
    return x.cos()


class Layer(nn.Module):
    def forward(self, x):
        return helper(x)

    @staticmethod
    def plain(x):
        return x


def test_the_decision_the_rule_its_reason_and_its_place():
    policy = Policy(disable=f"{ME}.helper", reason="reads a file")
    line = sys._getframe().f_lineno - 1
    d = why(helper, policy)
    assert (d.verb, d.reason, d.place, d.scope) == ("disable", "reads a file", f"{__file__}:{line}", "region")
    assert d.rule.selector.text == f"{ME}.helper" and str(d).splitlines() == [
        f"{ME}.helper: disable (it runs in Python, with everything it calls)",
        f"  rule   disable({ME}.helper), region, selects by exact name",
        "  reason reads a file",
        f"  at     {__file__}:{line}",
    ]


def verb(target, **rules):
    d = why(target, Policy(**rules))
    return d.verb, d.scope


@pytest.mark.parametrize("target", [helper, f"{ME}.helper"], ids=["object", "text"])
@pytest.mark.parametrize("selector", [helper, f"{ME}.helper", f"{ME}.*", "tests/policy/test_why.py", "tests/policy/*.py"], ids=lambda v: getattr(v, "__name__", v))
def test_by_every_selector(target, selector):
    assert verb(target, disable=selector) == ("disable", "region")
    assert verb(target) == ("trace", "built-in")


def test_methods_classes_modules_and_files():
    module = Layer()
    for target in (Layer, Layer.forward, f"{ME}.Layer", f"{ME}.Layer.forward", module, module.forward, Layer.plain):
        assert verb(target, disable=f"{ME}.Layer") == ("disable", "region")
    for target in (Layer, Layer.forward, f"{ME}.Layer", f"{ME}.Layer.forward", module, module.forward):
        assert verb(target, disable=Layer) == ("disable", "region")
    assert verb(module.forward, disable=module) == verb(module, disable=module) == ("disable", "region")
    assert verb(Layer().forward, disable=module) == ("trace", "built-in")
    for target in (sys.modules[ME], ME, __file__, "tests/policy/test_why.py"):
        assert verb(target, disable=f"{ME}.*" if target in (sys.modules[ME], ME) else "tests/policy/**") == ("disable", "region")
        assert verb(target) == ("trace", "built-in")
    assert verb("os.path", disable=os.path) == verb(os.path.join, disable=os.path) == ("disable", "region")


def test_operators():
    for target in (torch.sub, torch.Tensor.sub, "torch.sub", "torch.ops.aten.sub", "aten::sub", torch.ops.aten.sub, "aten::sub.Tensor"):
        for selector in (torch.sub, "torch.sub", torch.ops.aten.sub, "aten::su*", "torch.ops.aten.sub"):
            assert verb(target, disallow=selector) == ("disallow", "region")
        assert verb(target) == ("allow", "built-in")
    assert verb("aten::sub.Scalar", disallow="aten::sub.Tensor") == ("allow", "built-in")


def test_scopes_from_inside_out():
    assert why(helper).scope == "built-in"
    fineline.set_policy(Policy(disable=helper))
    try:
        assert why(helper).scope == "process"
        assert why(helper, Policy(forbid=helper)).verb == "forbid"
        with Policy(constant=helper):
            d = why(helper, Policy(forbid=helper))
            assert (d.verb, d.scope) == ("constant", "block")
            marked = fineline.disable(lambda x: x, reason="own")
            assert (why(marked).scope, why(marked).reason) == ("mark", "own")
    finally:
        fineline.set_policy(None)


@pytest.mark.parametrize(
    ("target", "selectors"),
    {
        "a folder": ("tests/policy/", ["tests/policy/", "tests/policy", "tests/policy/**", "tests/**"]),
        "a folder without a slash": ("./tests/policy", ["tests/policy/**"]),
        "a glob over files": ("tests/policy/*.py", ["tests/policy/*.py", "tests/policy/**", "tests/"]),
        "a glob over names": (f"{ME}.*", [f"{ME}.*", ME, "tests.policy.*", "tests/policy/test_why.py"]),
        "a longer glob": (f"{ME}.he*", [f"{ME}.*", f"{ME}.he*", "tests.*"]),
        "a package": ("tests.policy", ["tests.policy.*", "tests.policy", "tests.*"]),
        "a namespace": (torch.ops.aten, [torch.ops.aten, "aten::*", "torch.ops.aten.*"]),
        "a namespace's name": ("torch.ops.aten", [torch.ops.aten, "aten::*", "torch.ops.aten.*"]),
        "a glob over operators": ("aten::su*", [torch.ops.aten, "aten::*", "aten::su*", "aten::s*"]),
        "a builtin's name": ("print", [print, "print", "builtins.print", "builtins.*"]),
        "another": ("len", [len, "len"]),
        "an alias": ("os.path.join", [os.path.join, "os.path.join", "posixpath.join", "posixpath.*", os.path]),
    }.values(),
)  # fmt: skip
def test_what_holds_others(target, selectors):
    """`fineline.why(target)` returns the decision, of folders, globs and namespaces too."""
    for selector in selectors:
        assert verb(target, disable=[selector]) == ("disable", "region"), selector
    assert why(target).scope == "built-in"


def test_rules_about_a_part():
    """... and names the rules that are about something in it."""
    for target, rules in (
        ("tests/policy/", {"disable": "tests/policy/test_why.py"}), (f"{ME}.*", {"disable": helper}), (ME, {"disable": f"{ME}.Layer"}),
        (torch.ops.aten, {"disallow": "aten::sub"}), ("aten::*", {"disallow": torch.ops.aten.sub.Tensor}), (Layer, {"disable": f"{ME}.Layer.plain"}),
        ("tests/**", {"disable": "tests/policy/*.py"}),
    ):  # fmt: skip
        policy = Policy(**rules)
        d = why(target, policy)
        assert d.scope == "built-in" and [r.selector for r in d.inside] == [r.selector for r in policy.rules], target
        assert f"  inside {d.inside[0]}" in str(d).splitlines()
    assert not why("tests/policy/", Policy(disable="tests/language/**")).inside


def test_what_does_not_exist():
    bad = ("no.such.module", f"{ME}.nothing", "no/such/file.py", "aten::no_such_op", "nope::op", "no/such/", "no.such.*", f"{ME}.nothing*", "nope::*", "prind")
    for name in bad:
        with pytest.raises(BadRule):
            why(name)


# -- built-in rules --------------------------------------------------------------------------------------------------
def test_the_built_in_rules_are_rows_of_the_same_table_readable_and_overridable():
    rules = fineline.builtin_rules()
    assert all(r.scope == BUILT_IN and r.verb in VERBS and r.reason and r.place and r.selector.text for r in rules)
    by_name = {r.selector.text: r.verb for r in rules}
    assert by_name["torch.sub"] == "allow" and by_name["torch.Tensor.item"] == "disallow" and by_name["builtins.print"] == "disable"
    assert by_name["Python code"] == "trace" and by_name["torch._dynamo.*"] == "disable"
    assert {k for k, facts in KINDS.items() if facts.pattern} >= {"unknown", "code", "disable"}
    assert why(print).scope == "built-in" and verb(print, constant=print) == ("constant", "region")
    assert verb(torch.Tensor.item, forbid=torch.Tensor.item) == ("forbid", "region")


def test_a_row_and_the_decision_about_its_object_agree():
    odd = []
    for rule in fineline.builtin_rules():
        target = getattr(rule.selector.key, "obj", None)
        if target is not None and type(target) is not str and builtin_rule(target).verb != rule.verb:
            odd.append(rule.selector.text)
    # A method or cached function that the interpreter runs as such before it looks into the table.
    assert set(odd) <= {"torch.backends.mkldnn.MkldnnModule.is_available", "torch.backends.mps.is_available"}


def test_the_row_of_a_callable():
    """`fineline.why(len)` prints the row of the table of C callables, and the handler; for what a rule of the user's decides, neither."""
    row = "pure shallow handler_first order_independent handler:fineline.builtins.containers._len"
    assert why(len).row == why("len").row == row and str(why(len)).splitlines()[-1] == f"  row    {row}"
    assert why([].append).row == why("builtins.list.append").row == "mutator shallow moves_only appends"
    assert why(isinstance).row == "handled args:2,2 handler:fineline.builtins.classes._isinstance"
    assert why(torch.Size).row == "handler:fineline.builtins.containers._size"
    assert [why(t).row for t in (helper, torch.sub, "zlib.crc32", "os.*", torch.ops.aten, ME)] == [""] * 6
    assert why(len, Policy(disable=len)).row == "" and "row " not in str(why(helper))


@torch.compiler.disable
def by_torch(x):
    return x + 1


def looped(x):
    for v in map(torch.sin, [x]):
        x = x + v
    return x


@functools.cache
def cached(n):
    return [n]


CASES = {
    "torch.sub": (torch.sub, lambda x: torch.sub(x, 1)),
    "sigmoid": (torch.nn.functional.gelu, lambda x: torch.nn.functional.gelu(x)),
    "size": (torch.Tensor.size, lambda x: x * x.size(0)),
    "grad mode": (torch.is_grad_enabled, lambda x: x * torch.is_grad_enabled()),
    "item": (torch.Tensor.item, lambda x: x * x[1].item()),
    "seed": (torch.manual_seed, lambda x: (torch.manual_seed(3), x * 2)[1]),
    "len": (len, lambda x: x * len([1, 2])),
    "append": (list.append, lambda x: torch.stack((a := [x], a.append(x))[0])),
    "map": (map, looped),
    "print": (print, lambda x: (print(end=""), x * 2)[1]),
    "unknown": (os.getpid, lambda x: (os.getpid(), x * 2)[1]),
    "cached": (cached, lambda x: x * cached(object)[0].__name__.__len__()),
    "torch's mark": (by_torch, lambda x: by_torch(x) * 2),
    "helper": (helper, lambda x: helper(x)),
    "layer": (Layer, lambda x: Layer()(x)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rows_say_what_capture_does(name):
    target, program = CASES[name]
    d = why(target)
    e = fineline.explain(program)(X)
    assert d.scope == "built-in"
    assert bool(e.breaks or any(ev.kind == "eager" for ev in e.events)) == (d.verb in ("disable", "disallow")), (d, str(e))
    # And a user's rule stands above.
    with pytest.raises(fineline.errors.Forbidden):
        fineline.compile(program, backend="eager", policy=Policy(forbid=[target]))(X)
