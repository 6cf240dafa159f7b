"""Section 1 of the control surface, sentence by sentence: each test quotes the one that it is about."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy
from fineline.backends.aot_eager import aot_eager
from fineline.errors import BadRule, Forbidden
from tests.policy.doors import Probe, same

X = torch.arange(4.0)
HERE = "tests/policy/test_sentences_rules.py"


def helper(x):
    return x.cos()


def outer(x):
    return helper(x * 2) + 1


class Layer(nn.Module):
    def forward(self, x):
        return x.cos()


class Plain:
    def method(self, x):
        return x.cos()

    @staticmethod
    def static(x):
        return x.cos()

    @classmethod
    def cls(cls, x):
        return x.cos()


LAYER, PLAIN = Layer(), Plain()


# -- rules decide ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fn", "policy"),
    [
        (outer, Policy(disable=helper)),
        (lambda x: LAYER(x * 2) + 1, Policy(disable=Layer)),
        (lambda x: torch.cos(x * 2) + 1, Policy(disallow=torch.cos)),
        (lambda x: (x * 2, math.gamma(3.0))[0] + 1, Policy(disable=math.gamma)),
    ],
    ids=["function", "module", "operator", "C function"],
)
def test_rules_decide(door, fn, policy):
    """Each time capture meets something (a function frame, a module call, an operator, a C function), a *rule* decides what
    happens."""
    assert door.graphs(fn, X, policy=policy) == [["mul"], ["add"]]
    assert len(door.graphs(fn, X)) == 1


def test_what_a_rule_has(door):
    """A rule has a selector, a verb, an optional reason, and the place where it was declared (file and line)."""
    line = sys._getframe().f_lineno + 1
    (rule,) = Policy(disable=helper, reason="strings").rules
    assert (rule.verb, rule.selector.text, rule.reason) == ("disable", f"{__name__}.helper", "strings")
    assert rule.place == f"{__file__}:{line}" and Policy(disable=helper).rules[0].reason == ""

    def own(x):
        return x

    line = sys._getframe().f_lineno + 1
    marked = door.disable(own, reason="its own")
    rule = fineline.why(marked).rule
    assert (rule.verb, rule.reason, rule.place) == ("disable", "its own", f"{__file__}:{line}") and "own" in rule.selector.text


# -- the table of verbs ------------------------------------------------------------------------------------------------------
def test_trace(door):
    """| trace | look inside (the default); also overrides a built-in skip | `dont_skip_tracing` |"""
    assert door.graphs(outer, X) == [["mul", "cos", "add"]] and fineline.why(helper).verb == "trace"
    assert door.graphs(outer, X, policy=Policy(disable="*.helper", trace=helper)) == [["mul", "cos", "add"]]

    def skipped(x):
        return x.cos()

    def f(x):
        return skipped(x * 2) + 1

    skipped.__module__ = "torch._dynamo.somewhere"  # a built-in rule: it belongs to another compiler
    assert door.graphs(f, X) == [["mul"], ["add"]]
    look = torch._dynamo.dont_skip_tracing() if door.kind == "torch" else Policy(trace=skipped)
    with look:
        assert door.graphs(f, X) == [["mul", "cos", "add"]]


def test_trace_overrides_a_builtin_skip():
    """| trace | look inside (the default); also overrides a built-in skip | `dont_skip_tracing` |"""
    skip = torch._dynamo.disable(helper)  # PyTorch's own mark, which a built-in rule understands
    assert fineline.why(skip).scope == "built-in"
    probe = Probe()
    compiled = fineline.compile(lambda x: skip(x * 2) + 1, backend=probe, policy=Policy(trace=skip))
    same(compiled(X), outer(X))
    assert probe.graphs == [["mul", "cos", "add"]]


def test_disable(door):
    """| disable | run it in Python, with everything it calls; nothing of it is captured | `torch.compiler.disable`, `torch._dynamo.disable` |"""
    seen = []

    def inner(x):
        seen.append(door.is_compiling())
        return x.cos()

    for disable in (door.disable, torch._dynamo.disable):
        hidden = disable(lambda x: inner(x).sin())
        assert door.graphs(lambda x: hidden(x * 2) + 1, X) == [["mul"], ["add"]] and set(seen) == {False}  # noqa: B023


def test_disable_not_recursive(door):
    """| disable, not recursive | its own frame runs in Python; what it calls is captured again | `disable(recursive=False)`, the old `skip` |"""
    for disable in (functools.partial(door.disable, recursive=False), torch._dynamo.decorators.skip):
        hidden = disable(lambda x: helper(x.sin()).tan())
        assert door.graphs(lambda x: hidden(x * 2) + 1, X) == [["mul"], ["cos"], ["add"]]  # noqa: B023


def test_disallow(door):
    """| disallow | this operator is in no graph: the graph breaks, it runs eagerly, capture goes on behind it | `disallow_in_graph` |"""
    door.disallow_in_graph(torch.cos)
    assert door.graphs(outer, X) == [["mul"], ["add"]]


def test_allow(door):
    """| allow | one opaque call in the graph; the front end does not look inside, the backend still traces through it | `allow_in_graph` |"""
    opaque = door.allow_in_graph(lambda x: x.sin().cos())
    opaque.__name__ = "opaque"
    assert door.graphs(lambda x: opaque(x * 2) + 1, X) == [["mul", "opaque", "add"]]


def test_forbid(door):
    """| forbid | meeting it during capture is an error | `forbid_in_graph` |"""

    @door.forbid_in_graph
    def never(x):
        return x

    same(never(X), X)
    with pytest.raises(Forbidden):
        door.compile(lambda x: never(x), backend="eager")(X)


def test_constant(door):
    """| constant | run at capture time, the result is baked in | `assume_constant_result` |"""
    calls = []

    @door.assume_constant_result
    def settings():
        calls.append(1)
        return 3.0

    compiled = door.compile(lambda x: x * settings(), backend="eager", fullgraph=True)
    for _ in range(3):
        same(compiled(X), X * 3)
    assert len(calls) == 1


def test_substitute(door):
    """| substitute | capture this other function in its place | `substitute_in_graph` |"""

    def slow(x):
        return sum(float(v) for v in x)

    @door.substitute_in_graph(slow)
    def fast(x):
        return x.sum()

    probe = Probe()
    same(door.compile(lambda x: slow(x) * x, backend=probe, fullgraph=True)(X), X * 6)
    assert probe.graphs == [["sum", "mul"]]


# -- selectors ---------------------------------------------------------------------------------------------------------------
SELECTED = [
    ("function", helper, lambda x: helper(x * 2) + 1),
    ("method", PLAIN.method, lambda x: PLAIN.method(x * 2) + 1),
    ("method of the class", Plain.method, lambda x: PLAIN.method(x * 2) + 1),
    ("staticmethod", Plain.__dict__["static"], lambda x: Plain.static(x * 2) + 1),
    ("classmethod", Plain.__dict__["cls"], lambda x: Plain.cls(x * 2) + 1),
    ("class", Plain, lambda x: PLAIN.method(x * 2) + 1),
    ("module class", Layer, lambda x: LAYER(x * 2) + 1),
    ("module instance", LAYER, lambda x: LAYER(x * 2) + 1),
    ("dotted glob", f"{__name__}.hel*", lambda x: helper(x * 2) + 1),
    ("file", HERE, lambda x: helper(x * 2) + 1),
    ("file glob", "tests/policy/**", lambda x: helper(x * 2) + 1),
    ("Python module", sys.modules[__name__], lambda x: helper(x * 2) + 1),
]


@pytest.mark.parametrize(("selector", "fn"), [s[1:] for s in SELECTED], ids=[s[0] for s in SELECTED])
def test_selectors(door, selector, fn):
    """Selectors: a function, method, staticmethod or classmethod, class, `nn.Module` class or instance, Python module, operator
    (`torch.sub`, `torch.ops.aten.add`, `torch.ops.aten.add.Tensor`), or a string: a dotted glob (`"mypkg.io.*"`), a file glob (contains a
    slash or ends in `.py`: `"src/mypkg/metrics.py"`, `"mypkg/data/**"`), an operator glob (`"torch.ops.fbgemm.*"`, `"fbgemm::*"`)."""
    assert door.graphs(fn, X, policy=Policy(disable=selector, trace=fn)) == [["mul"], ["add"]]


@pytest.mark.parametrize(
    "selector",
    [torch.sub, torch.ops.aten.sub, torch.ops.aten.sub.Tensor, "torch.ops.aten.sub*", "aten::sub*", "aten::sub.Tensor", "torch.sub"],
)
def test_operator_selectors(door, selector):
    """Selectors: a function, method, staticmethod or classmethod, class, `nn.Module` class or instance, Python module, operator"""
    assert door.graphs(lambda x: (x * 2 - x).cos(), X, policy=Policy(disallow=selector)) == [["mul"], ["cos"]]


def test_lists_and_tuples(door):
    """A list or tuple of selectors is accepted wherever one is, and what comes back has the same shape."""

    def a(x):
        return x.sin()

    def b(x):
        return x.cos()

    made = door.disable([a, (b,)])
    assert type(made) is list and type(made[1]) is tuple and made[0] is not a and len(made) == 2
    assert door.graphs(lambda x: made[0](made[1][0](x) * 2), X) == [["mul"]]
    for declare in (door.allow_in_graph, door.forbid_in_graph, door.assume_constant_result):
        given = [a, (b,)]
        assert declare(given) is given
        assert fineline.why(b).place.rpartition(":")[0] == __file__
    pair = (torch.sin, [torch.cos])
    assert door.disallow_in_graph(pair) is pair
    assert door.graphs(lambda x: (x.sin() * 2).cos(), X) == [["mul"]]
    assert Policy(disable=[a, (b,)]) == Policy(disable=(a, b))


# -- scopes ------------------------------------------------------------------------------------------------------------------
def test_scopes_from_inside_out(door):
    """Scopes, from inside out: a mark on the object (decorator or call) · the current block (`with policy:`) · the compiled region
    (`compile(..., policy=...)`) · the process (`fineline.set_policy`, `[tool.fineline]` in pyproject.toml read by the command line) ·
    fineline's built-in rules."""

    def own(x):
        return x.cos()

    def f(x):
        return own(x * 2) + 1

    compiled, probe = door.compile(f, backend=(probe := Probe())), probe

    def seen(fn=compiled):
        probe.graphs.clear()
        same(fn(X), f(X))
        return probe.graphs[:]

    split, whole = [["mul"], ["add"]], [["mul", "cos", "add"]]
    assert fineline.why(own).scope == "built-in" and seen() == whole
    fineline.set_policy(Policy(disable=own))
    assert fineline.why(own).scope == "process" and seen() == split
    region = Policy(trace=own)
    assert fineline.why(own, policy=region).scope == "region"
    assert seen(door.compile(f, backend=probe, policy=region)) == whole
    with Policy(disable=own):
        assert fineline.why(own, policy=region).scope == "block"
        assert seen(door.compile(f, backend=probe, policy=region)) == split
    door.allow_in_graph(own)
    with Policy(disable=own):
        assert fineline.why(own, policy=region).scope == "mark"
        assert seen() == [["mul", "own", "add"]]


def test_the_most_specific_wins(door):
    """The most specific selector wins (object, then class, then exact name, then file, then glob by length); between equals the inner
    scope; between those the later declaration."""
    ranked = [LAYER, Layer, f"{__name__}.Layer", HERE, f"{__name__}.L*", f"{__name__[:-3]}*"]
    f = lambda x: LAYER(x * 2) + 1
    for above, below in zip(ranked, ranked[1:], strict=False):
        # The inner scope has the less specific one.
        with Policy(disable=below, trace=f):
            assert door.graphs(f, X, policy=Policy(trace=above)) == [["mul", "cos", "add"]], (above, below)
        with Policy(trace=[below, f]):
            assert door.graphs(f, X, policy=Policy(disable=above)) == [["mul"], ["add"]], (above, below)
    for selector in ranked:
        with Policy(disable=selector) | Policy(trace=f):
            assert door.graphs(f, X, policy=Policy(trace=selector)) == [["mul"], ["add"]], selector
        both = Policy(disable=selector) | Policy(trace=selector)
        assert door.graphs(f, X, policy=both) == [["mul", "cos", "add"]], selector


def test_why(door, tmp_path):
    """`fineline.why(target)` returns the decision, the rule, its reason and its place, and so does `fineline why mypkg.io.load` on
    the command line."""
    policy = Policy(disable=helper, reason="strings")
    line = sys._getframe().f_lineno - 1
    decision = fineline.why(helper, policy=policy)
    assert (decision.verb, decision.rule, decision.reason, decision.place) == ("disable", policy.rules[0], "strings", f"{__file__}:{line}")
    marked = door.disable(lambda x: x, reason="mine")
    assert fineline.why(marked).reason == "mine"
    if door.kind == "torch":
        return
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "io.py").write_text("import torch\n\n@torch.compiler.disable(reason='a file')\ndef load(x):\n    return x\n")
    command = [sys.executable, "-m", "fineline", "why", "mypkg.io.load"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ}).stdout
    assert out.startswith("mypkg.io.load: disable") and "a file" in out and f"{tmp_path}/mypkg/io.py:3" in out


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return helper(g) * x


def test_a_regions_rules_travel_to_threads(door):
    """A region's rules and options travel with the region: into other threads and into the backward pass."""
    compiled = door.compile(outer, backend=(probe := Probe()), policy=Policy(disable=helper))
    got = []
    thread = threading.Thread(target=lambda: got.append(compiled(X)))
    thread.start()
    thread.join()
    same(got[0], outer(X))
    assert probe.graphs == [["mul"], ["add"]]
    compiled(X)
    assert len(probe.graphs) == 2


def test_a_regions_rules_travel_into_the_backward_pass(door):
    """A region's rules and options travel with the region: into other threads and into the backward pass."""
    ran, graphs = [], []
    policy = Policy(disable=Scaled.backward, disallow=torch.cos)

    def backend(gm, inputs):
        graphs.extend(str(n.target) for n in gm.graph.nodes)
        return aot_eager(gm, inputs)

    def f(x):
        ran.append(1)
        return Scaled.apply(x * 3).sum()

    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    door.compile(f, backend=backend, policy=policy)(ours).backward()
    f(theirs).backward()
    same(ours.grad, theirs.grad)
    assert not any("cos" in name for name in graphs)


def test_this_region_alone_and_this_block_alone(door):
    """policy = fineline.Policy(
        disable=["mypkg/data/**", "mypkg.tokenizer.*", load_batch],
        disallow=["torch.ops.fbgemm.*", torch.ops.aten.nonzero],
        allow=[fused_rope], forbid=[torch.Tensor.item],
    )
    step = fineline.compile(train_step, policy=policy)      # this region alone
    with policy: ...                                         # this block, this thread"""
    policy = Policy(
        disable=["tests/policy/**", f"{__name__}.*", helper], disallow=["torch.ops.aten.*", torch.ops.aten.nonzero], allow=[math.gcd],
        forbid=[torch.Tensor.item], trace=outer,
    )  # fmt: skip
    assert {rule.verb for rule in policy.rules} == {"disable", "disallow", "allow", "forbid", "trace"}
    policy = Policy(disable=helper)
    assert door.graphs(outer, X, policy=policy) == [["mul"], ["add"]] and len(door.graphs(outer, X)) == 1
    compiled = door.compile(outer, backend=(probe := Probe()))
    with policy:
        thread = threading.Thread(target=compiled, args=(X,))
        thread.start()
        thread.join()
        assert probe.graphs == [["mul", "cos", "add"]]
        compiled(X)
    compiled(X)
    assert probe.graphs == [["mul", "cos", "add"], ["mul"], ["add"]]


def test_a_key_for_each_verb():
    """`Policy(disable=, disable_frame=, disallow=, allow=, forbid=, constant=, substitute=, trace=)` takes a key for each verb; it is
    immutable, comparable and
    hashable, and composes with `|`."""
    keys = ("disable", "disable_frame", "allow", "forbid", "constant", "trace")
    for key in keys:
        (rule,) = Policy(**{key: helper}).rules
        assert rule.verb == key
    assert [r.verb for r in Policy(disallow=torch.sin, substitute={helper: lambda x: x}).rules] == ["disallow", "substitute"]
    a, b = Policy(disable=helper), Policy(trace=outer)
    with pytest.raises(AttributeError):
        a.rules = ()
    assert a == Policy(disable=helper) != b and hash(a) == hash(Policy(disable=helper))
    assert (a | b).rules == a.rules + b.rules and {a | b: 1}[Policy(disable=helper) | Policy(trace=outer)] == 1


@pytest.mark.parametrize(
    "selector",
    [
        "mypkg.nothing",
        f"{__name__}.nothing",
        "mypkg.*",
        f"{__name__}.nothing*",
        f"{__name__}.Layer.nothing*",
        "torch.nn.modules.nothing*.forward",
        "fineline.nothing?",
        "xml.sax.nothing*",
        "xml.sax.saxutils.zebra*",
        "tests/policy/__pycache__/**",
        "no/such/file.py",
        "tests/nothing/**",
        "fbgemm_nothing::*",
        "torch.ops.aten.nothing",
        3,
    ],
    ids=str,
)
def test_a_rule_for_what_does_not_exist(selector):
    """A rule that names something that does not exist
    raises at once; a rule that never matched is reported by `explain` and by the audit."""
    with pytest.raises(BadRule):
        Policy(disable=selector)


@pytest.mark.parametrize(
    "selector",
    [
        f"{__name__}.help*", f"{__name__}.Layer.for*", f"{__name__}.h?lper", "*.nothing", "torch.nn.modules.lin*", "fineline.pol*.*",
        "xml.sax.saxut*", "xml.sax.saxutils.esc*", "xml.sax.saxutils.XML*.characters", "_pydecimal.Dec*", "torch.ops.aten.sub*",
    ],
)  # fmt: skip
def test_a_glob_for_what_exists(selector):
    """In a module that is loaded, or in one that is not."""
    assert Policy(disable=selector).rules


def test_a_rule_that_never_matched(door, tmp_path):
    """a rule that never matched is reported by `explain` and by the audit"""

    def never(x):
        return x

    said = fineline.explain(outer, policy=Policy(disable=[helper, never]))(X)
    assert [rule.selector.text.rpartition(".")[2] for rule in said.unmatched] == ["never"]
    assert "never matched: disable(" in str(said) and "1 time: disable(" in str(said)
    if door.kind == "torch":
        return
    (tmp_path / "rules.toml").write_text('disable = ["torch.nn.functional.gelu"]\n')
    (tmp_path / "go.py").write_text('import torch\nprint(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)))\n')
    command = [sys.executable, "-m", "fineline", "audit", "--policy", "rules.toml", "go.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, check=True)
    assert "never matched" in done.stdout and "gelu" in done.stdout, json.dumps(done.stdout)
