"""Rules for places: a graph break of one kind is declared in the code that a selector is about, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import fineline
from fineline import Policy
from fineline.errors import BadRule, Undeclared, Unsupported
from fineline.policy.files import PolicyFile

X = torch.ones(3)
ME = __name__
EFFECT, READ = "FL411", "FL502"


def helper(x):
    print(end="")
    return x + 1


def other(x):
    print(end="")
    return x + 2


def reader(x):
    return x * x.sum().item()


def nested(x):
    def inner(y):
        print(end="")
        return y + 3

    return inner(x)


def listed(x):
    return x + [print(end="") or n for n in range(2)][1]


def step(x):
    return other(helper(x) * 2)


class Layer(torch.nn.Module):
    def forward(self, x):
        print(end="")
        return x.cos()

    @staticmethod
    def plain(x):
        print(end="")
        return x.sin()

    @property
    def scale(self):
        print(end="")
        return 2.0


class Wide(Layer):
    pass


layer = Layer()
NAMELESS = [lambda x: (print(end=""), x + 1)[1]]


def run(f, breaks, **how):
    """-> the results of two calls are eager's, and the breaks have the rule."""
    policy = Policy(breaks=breaks, reason="known")
    compiled = fineline.compile(f, backend="eager", breaks="declared", policy=policy, **how)
    for _ in range(2):
        assert torch.equal(compiled(X), f(X))
    report = fineline.report(compiled)
    assert report.breaks and all(b.rule in [str(rule) for rule in policy.rules] for b in report.breaks)
    assert all(times for times in report.rules.values())


HERE = {
    "a function": (helper, helper), "its name": (helper, f"{ME}.helper"), "a glob": (helper, f"{ME}.hel*"), "a module": (helper, ME),
    "the module itself": (helper, sys.modules[ME]), "a file": (helper, "tests/policy/test_break_rules.py"), "a folder": (helper, "tests/policy/"),
    "a list": (step, [helper, f"{ME}.other"]), "a function in it": (nested, nested), "... by name": (nested, f"{ME}.nested"),
    "a comprehension": (listed, listed), "... by its name": (listed, f"{ME}.listed"), "a class": (lambda x: layer(x), Layer),
    "a child class": (lambda x: Wide()(x), Layer), "what a child inherits": (lambda x: Wide()(x), Wide), "an instance": (lambda x: layer(x), layer),
    "a method": (lambda x: layer(x), Layer.forward), "a bound method": (lambda x: layer(x), layer.forward), "a static method": (Layer.plain, Layer.plain),
    "a static method's name": (Layer.plain, f"{ME}.Layer.plain"), "a property": (lambda x: x * layer.scale, Layer.scale),
    "an instance's name": (lambda x: layer(x), f"{ME}.layer.forward"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HERE)
def test_a_declared_break(kind):
    f, selector = HERE[kind]
    run(f, {EFFECT: selector})


@pytest.mark.parametrize("how", [{"dynamic": True}, {"options": {"first_call": "compiled"}}], ids=str)
def test_whatever_the_first_call_does(how):
    run(reader, {READ: [reader]}, **how)


ELSEWHERE = {
    "another function": (step, {EFFECT: [helper]}), "another reason": (helper, {READ: [helper]}), "another glob": (helper, {EFFECT: f"{ME}.o*"}),
    "another class": (lambda x: layer(x), {EFFECT: [Wide.plain]}), "its caller": (step, {EFFECT: [step]}), "another file": (helper, {EFFECT: "tests/language/"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_no_other_break_is_let_through(kind):
    f, breaks = ELSEWHERE[kind]
    with pytest.raises(Undeclared):
        fineline.compile(f, backend="eager", breaks="declared", policy=Policy(breaks=breaks))(X)


def test_fullgraph_stands_above():
    with pytest.raises(Unsupported, match="FL102"):
        fineline.compile(helper, backend="eager", fullgraph=True, policy=Policy(breaks={EFFECT: helper}))(X)


@pytest.mark.parametrize(("f", "error", "name"), [(step, EFFECT, "helper"), (nested, EFFECT, "nested"), (listed, EFFECT, "listed"), (reader, READ, "reader")])
def test_the_error_offers_the_rule(f, error, name):
    """... as it can be copied."""
    with pytest.raises(Undeclared) as caught:
        fineline.compile(f, backend="eager", breaks="declared")(X)
    text = f'Policy(breaks={{"{error}": ["{ME}.{name}"]}})'
    assert text in caught.value.next_step
    if f is not step:
        run(f, eval(text.removeprefix("Policy(breaks=").removesuffix(")")))


def test_where_no_name_leads_there_the_error_offers_the_file():
    with pytest.raises(Undeclared) as caught:
        fineline.compile(NAMELESS[0], backend="eager", breaks="declared")(X)
    assert f'{{"{EFFECT}": ["{__file__}"]}}' in caught.value.next_step


def test_the_same_rules_compare_equal():
    assert Policy(breaks={EFFECT: helper}) == Policy(breaks={EFFECT: helper}) != Policy(breaks={READ: helper})
    assert repr(Policy(breaks={EFFECT: helper})) == f"Policy(breaks={{{EFFECT}: {ME}.helper}})"
    (rule,) = Policy(breaks={EFFECT: helper}, reason="known").rules
    assert str(rule).startswith(f"break({ME}.helper, {EFFECT}) at {__file__}:") and str(rule).endswith(": known")
    # It decides nothing but breaks.
    assert fineline.why(helper, Policy(breaks={EFFECT: helper})).scope == "built-in"


@pytest.mark.parametrize(
    "breaks",
    [{"FL41": helper}, {"FL105": helper}, {EFFECT: torch.sin}, {EFFECT: "aten::*"}, {EFFECT: print}, {EFFECT: 3}, {EFFECT: "no.such"}, [EFFECT], EFFECT],
)
def test_what_declares_nothing(breaks):
    with pytest.raises(BadRule) as caught:
        Policy(breaks=breaks)
    assert caught.value.where.startswith(f"{__file__}:")


def test_in_a_file(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(f'[breaks]\n{EFFECT} = ["{ME}.helper", {{select = "{ME}.other", reason = "prints"}}]\n')
    policy = PolicyFile(path).policy()
    assert [(r.verb, r.error, r.selector.text, r.reason, r.place.rpartition(":")[2]) for r in policy.rules] == [
        ("break", EFFECT, f"{ME}.helper", "", "2"), ("break", EFFECT, f"{ME}.other", "prints", "2"),
    ]  # fmt: skip
    assert torch.equal(fineline.compile(step, backend="eager", breaks="declared", policy=policy)(X), step(X))
    for text in (f'[breaks]\nFL9 = "{ME}.helper"\n', f'[breaks]\n{EFFECT} = "aten::sub"\n', 'breaks = "any"\n', f"[breaks]\n{EFFECT} = 3\n"):
        path.write_text(text)
        with pytest.raises(BadRule):
            PolicyFile(path).policy()


def test_a_run(tmp_path):
    """Moved lines change nothing; the report has the rule."""
    script = "{}import torch\ndef f(x):\n    print(end='')\n    return x + 1\nprint(torch.compile(f, backend='eager')(torch.ones(1)))\n"
    (tmp_path / "rules.toml").write_text(f'[breaks]\n{EFFECT} = "__main__.f"\n')
    for lines in ("", "\n\n\n"):
        (tmp_path / "s.py").write_text(script.format(lines))
        words = ["run", "--policy", "rules.toml", "--breaks", "declared", "--explain", "-", "s.py"]
        done = subprocess.run([sys.executable, "-m", "fineline", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and f"1 time: break(__main__.f, {EFFECT}) at rules.toml:2" in done.stdout, done.stderr
    done = subprocess.run([sys.executable, "-m", "fineline", *words[:1], *words[3:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and f'Policy(breaks={{"{EFFECT}": ["__main__.f"]}})' in done.stderr
