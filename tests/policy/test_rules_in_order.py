"""The rules alone: which one decides. The more specific selector, then the inner scope, then the later declaration."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import operator
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fineline.policy.decide import Rules, rules_now
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.rule import BLOCK, MARK, PROCESS, REGION, SCOPES, Rule
from fineline.policy.scope_stack import SCOPE
from fineline.policy.selector import of_object

ME, FILE = __name__, "tests/policy/test_rules_in_order.py"
ADD = torch.ops.aten.add
# What `torch.add` is called in all its spellings.
NAME = of_object(torch.add).key


def target(x: Any = None) -> Any:
    return x


def other(x: Any = None) -> Any:
    return x


class Base:
    def run(self) -> None: ...

    @staticmethod
    def alone() -> None: ...

    @classmethod
    def made(cls) -> None: ...

    class Part:
        def run(self) -> None: ...


class Child(Base):
    def own(self) -> None: ...


class Called:
    def __call__(self) -> None: ...


base, child, called = Base(), Child(), Called()


@functools.lru_cache
def cached(x: Any = None) -> Any:
    return x


def rule(what: Any, verb: str = "disable", scope: int = REGION) -> Rule:
    """One rule, as a policy declares it."""
    (found,) = Policy(**{verb: [what]}).rules
    return found._replace(scope=scope)


def decides(rules: Any, fn: Any, *args: Any) -> Rule | None:
    return Rules(rules).decide(fn, args)


# -- the more specific selector, whatever the scopes and the order ---------------------------------------------------------------
# From the most specific one down, what selects a call of ``base.run``, and of ``target``.
METHOD: dict[str, Any] = {
    "method": base.run, "object": base, "class": Base, "exact name": f"{ME}.Base.run", "name around it": f"{ME}.Base", "file": FILE,
    "long glob": f"{ME}.Base.r*", "short glob": f"{ME}.B*",
}  # fmt: skip
FUNCTION: dict[str, Any] = {
    "object": target, "exact name": f"{ME}.target", "file": FILE, "long glob": f"{ME}.targ*", "glob over files": "tests/policy/**", "short glob": "tests.*",
}  # fmt: skip
PAIRS = [
    pytest.param(ladder, fn, args, higher, lower, id=f"{fn.__qualname__}: {higher} over {lower}")
    for ladder, fn, args in ((METHOD, Base.run, (base,)), (FUNCTION, target, ()))
    for higher, lower in itertools.combinations(ladder, 2)
]


@pytest.mark.parametrize(("ladder", "fn", "args", "higher", "lower"), PAIRS)
def test_the_more_specific_selector_decides(ladder: dict, fn: Any, args: tuple, higher: str, lower: str) -> None:
    for outer, inner in ((BLOCK, PROCESS), (PROCESS, BLOCK)):
        winner, loser = rule(ladder[higher], scope=outer), rule(ladder[lower], "trace", scope=inner)
        for given in ((winner, loser), (loser, winner)):
            assert decides(given, fn, *args) is winner
    assert decides([loser], fn, *args) is loser


@pytest.mark.parametrize("what", [target, f"{ME}.target", FILE, f"{ME}.t*"], ids=["object", "name", "file", "glob"])
def test_between_equals_the_one_that_comes_later_decides(what: Any) -> None:
    """Policies are given from outside in, and each has its rules in the order of their declaration."""
    first, second, third = rule(what), rule(what, "trace"), rule(what, "allow") if what is not FILE else rule(what, "forbid")
    assert decides([first, second], target) is second
    assert decides([second, first], target) is first
    assert decides([first, second, third], target) is third


def test_between_globs_of_one_length_the_later_one_decides() -> None:
    first, second = rule(f"{ME}.t*"), rule(f"{ME}.*t", "trace")
    assert decides([first, second], target) is second and decides([second, first], target) is first


# -- what a rule is about -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "fn", "args", "is_meant"),
    [
        (target, target, (), True),
        (target, other, (), False),
        (base, Base.run, (base,), True),
        (base, Base.run, (Base(),), False),
        (base, target, (base,), False),
        (base.run, Base.run, (base,), True),
        (base.run, Base.run, (child,), False),
        (Base, Base.run, (base,), True),
        (Base, Base.run, (child,), True),
        (Child, Base.run, (base,), False),
        (Child, Base.run, (child,), True),
        (Base, Child.own, (child,), False),
        (Base, Base.alone, (), True),
        (Base, Base.made.__func__, (Child,), True),
        (Base, Base.Part.run, (Base.Part(),), True),
        (Base, Base, (), True),
        (Base, Child, (), True),
        (Child, Base, (), False),
        (Base, target, (base,), False),
        (Called, called, (), True),
        (called, called, (), True),
        (called, Called(), (), False),
        (f"{ME}.Base", Base.run, (child,), True),
        (f"{ME}.Base.run", Base.run, (child,), True),
        (ME, target, (), True),
        (ME, cached, (), True),
        (f"{ME}.cached", cached, (), True),
        ("operator", operator.add, (), False),
        ("_operator", operator.add, (), True),
        ("math.s*", math.sqrt, (4,), True),
        ("math.s*", math.cos, (4,), False),
        (FILE, Base.run, (base,), True),
        (FILE, os.path.join, (), False),
        ("tests/policy/*.py", target, (), True),
        ("tests/*.py", target, (), False),
        ("tests/**", target, (), True),
        (f"{ME}.*.run", Base.run, (base,), True),
        (f"{ME}.*.run", target, (), False),
    ],
    ids=lambda v: getattr(v, "__qualname__", None) or (v if isinstance(v, str) else ""),
)
def test_what_a_selector_is_about(what: Any, fn: Any, args: tuple, is_meant: bool) -> None:
    made = rule(what)
    assert decides([made], fn, *args) is (made if is_meant else None)


def test_no_rule_decides_about_what_none_selects() -> None:
    assert decides([], target) is None and decides([rule(other)], target) is None


@pytest.mark.parametrize("what", [ME, f"{ME}.*"], ids=["module", "glob"])
def test_to_disallow_is_about_what_capture_does_not_look_into(what: str) -> None:
    assert decides([rule(what, "disallow")], target) is None
    assert decides([rule("math.*", "disallow")], math.sqrt, 4).verb == "disallow"


# -- classes: the nearest one that a rule is about -----------------------------------------------------------------------------------
def test_of_classes_the_nearest_decides() -> None:
    outer, inner = rule(Base), rule(Child, "trace")
    for given in ((outer, inner), (inner, outer)):
        rules = Rules(given)
        assert rules.decide(Base.run, (child,)) is inner and rules.decide(Base.run, (base,)) is outer
        assert rules.decide(Child, ()) is inner and rules.decide(Base, ()) is outer


def test_a_name_for_a_module_ranks_below_a_name_in_it() -> None:
    outer, inner = rule(ME), rule(f"{ME}.Base", "trace")
    for given in ((outer, inner), (inner, outer)):
        rules = Rules(given)
        assert rules.decide(Base.run, (base,)) is inner and rules.decide(target, ()) is outer


def test_a_module_that_is_loaded_later(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unit_later.py").write_text("def f(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rules = Rules([made := rule("unit_later.f")])
    assert "unit_later" not in sys.modules
    module = importlib.import_module("unit_later")
    del sys.modules["unit_later"]
    with pytest.MonkeyPatch.context() as loaded:
        loaded.setitem(sys.modules, "unit_later", module)
        assert rules.decide(module.f, ()) is made


# -- operators -----------------------------------------------------------------------------------------------------------------------
# From the most specific one down, what selects a call of `torch.add` that comes down to ``aten::add.Tensor``.
OPERATOR: dict[str, Any] = {
    "overload": ADD.Tensor, "operator": ADD, "function": torch.add, "long glob": "torch.ops.aten.ad*", "short glob": "aten::*",
}  # fmt: skip


@pytest.mark.parametrize(("higher", "lower"), [*itertools.combinations(OPERATOR, 2)])
def test_the_more_specific_operator_decides(higher: str, lower: str) -> None:
    winner, loser = rule(OPERATOR[higher], "disallow", PROCESS), rule(OPERATOR[lower], "forbid", BLOCK)
    for given in ((winner, loser), (loser, winner)):
        assert Rules(given).decide_operator(NAME, {"aten::add", "aten::add.Tensor"}) is winner
    assert Rules([loser]).decide_operator(NAME, {"aten::add", "aten::add.Tensor"}) is loser


@pytest.mark.parametrize(
    ("name", "reached", "function", "is_meant"),
    [
        (NAME, {"aten::add", "aten::add.Scalar"}, None, True),
        ("sub", {"aten::sub", "aten::sub.Tensor"}, None, False),
        (None, {"aten::add.Tensor", "aten::add"}, None, True),
        (NAME, set(), None, True),
    ],
    ids=["another overload", "another operator", "without a name", "by name alone"],
)
def test_what_an_operator_rule_is_about(name: str | None, reached: set, function: str | None, is_meant: bool) -> None:
    made = rule(ADD, "disallow")
    assert Rules([made]).decide_operator(name, reached, function) is (made if is_meant else None)


def test_a_function_that_an_argument_makes_another_operator() -> None:
    made = rule(torch.nn.functional.relu, "disallow")
    name = made.selector.key
    assert made.selector.kind == "operator" and Rules([made]).decide_operator("relu_", {"aten::relu_"}, name) is made
    assert Rules([made]).decide_operator("relu_", {"aten::relu_"}) is None


@pytest.mark.parametrize(("what", "answer"), [(target, False), (torch.add, False), (ADD, True), ("aten::*", True)], ids=["python", "function", "operator", "glob"])
def test_whether_a_trial_run_is_needed(what: Any, answer: bool) -> None:
    assert Rules([rule(what, "forbid")]).by_dispatch is answer


# -- marks: the innermost scope --------------------------------------------------------------------------------------------------------
@pytest.fixture
def marked() -> Iterator[Any]:
    """Marks a function as a decorator would; the marks end with the test."""
    done = []

    def mark(obj: Any, verb: str = "trace") -> Rule:
        MARKS.set(obj, Rule(verb, of_object(obj), scope=MARK))
        done.append(obj)
        return MARKS.get(obj)

    holders = MARKS.holders
    yield mark
    for obj in done:
        MARKS.drop(obj)
    MARKS.holders = holders


@pytest.mark.parametrize("what", [target, f"{ME}.target", FILE, f"{ME}.*"], ids=["object", "name", "file", "glob"])
def test_a_mark_decides_over_all_rules_about_its_function(marked: Any, what: Any) -> None:
    mark = marked(target)
    assert decides([rule(what, scope=BLOCK)], target) is mark and mark.scope == MARK


def test_a_mark_on_a_class_ranks_below_a_rule_for_an_object(marked: Any) -> None:
    MARKS.holders, mark = True, marked(Base)
    assert decides([rule(Base)], Base.run, base) is mark
    made = rule(Base.run)
    assert decides([made], Base.run, base) is made
    for what in (base, base.run):
        made = rule(what)
        assert decides([made], Base.run, base) is made


# -- scopes ------------------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def scopes() -> Iterator[None]:
    """What a test says of the process and of blocks ends with it."""
    yield
    SCOPE.process = None
    SCOPE.set_blocks(())


def test_rules_now_goes_from_outside_in(scopes: None) -> None:
    process, region, outer, inner = [Policy(**{verb: target}) for verb in ("disable", "trace", "forbid", "allow")]
    SCOPE.process = process
    with outer, inner:
        rules = rules_now(region)
    assert [(r.verb, SCOPES[r.scope]) for r in rules.all] == [("disable", "process"), ("trace", "region"), ("forbid", "block"), ("allow", "block")]
    assert rules.decide(target).verb == "allow"


@pytest.mark.parametrize("within", [(), ("process",), ("process", "region"), ("process", "region", "block")], ids=lambda names: " ".join(names) or "none")
def test_the_inner_scope_decides_between_equals(scopes: None, within: tuple) -> None:
    policies = {name: Policy(**{verb: target}) if name in within else None for name, verb in (("process", "disable"), ("region", "trace"), ("block", "forbid"))}
    SCOPE.process = policies["process"]
    SCOPE.set_blocks((policies["block"],))
    rules = rules_now(policies["region"])
    found = rules.decide(target) if rules is not None else None
    assert (None if found is None else SCOPES[found.scope]) == (within[-1] if within else None)


def test_there_are_no_rules_where_nobody_has_declared_any(scopes: None) -> None:
    if not MARKS:
        assert rules_now(None) is None
    assert rules_now(Policy(disable=target)) is not None


# -- which rule declares a graph break ------------------------------------------------------------------------------------------------------
def test_rules_about_breaks_are_told_apart_by_id_and_place() -> None:
    glob, named, exact = [Policy(breaks={"FL401": what}).rules[0] for what in (f"{ME}.*", f"{ME}.target", target)]
    elsewhere = Policy(breaks={"FL402": target}).rules[0]
    for given in itertools.permutations((glob, named, exact, elsewhere)):
        rules = Rules(given)
        assert rules.decide_break("FL401", target.__code__, ME) is exact
        assert rules.decide_break("FL401", other.__code__, ME) is glob
        assert rules.decide_break("FL402", target.__code__, ME) is elsewhere
        assert rules.decide_break("FL403", target.__code__, ME) is rules.decide_break("FL402", other.__code__, ME) is None
        assert rules.decide(target) is None


# -- counts ----------------------------------------------------------------------------------------------------------------------------------
def test_how_often_each_rule_has_decided() -> None:
    made, never, fired = rule(target), rule(other), Counter()
    rules = Rules([made, never], fired)
    assert fired == {made: 0, never: 0}
    rules.decide(target), rules.decide(target), rules.known(target)
    assert rules.known(target) is made and fired[made] == 0
    rules.settle()
    assert (fired[made], fired[never]) == (2, 0)
    rules.settle()
    assert fired[made] == 2


@pytest.mark.parametrize(("verb", "scope", "answer"), [("forbid", REGION, True), ("allow", BLOCK, True), ("disable", BLOCK, False), ("forbid", 0, False)])
def test_whether_a_call_may_become_an_error(verb: str, scope: int, answer: bool) -> None:
    assert Rules([rule(target, verb, scope)]).refuse is answer


def test_what_is_told_of_a_function_that_cannot_be_looked_into() -> None:
    rules = Rules([made := rule(f"{ME}.*", "trace"), rule(other)])
    assert rules.unused_trace_rule(target, ()) == f"; there is nothing to look into for {made}" and rules.unused_trace_rule(other, ()) == ""
    assert rules.fired[made] == 0


@pytest.mark.parametrize(("file", "module", "is_meant"), [(__file__, ME, True), (os.__file__, "os", False), (None, None, False)], ids=["mine", "another", "none"])
def test_the_rule_for_all_code_of_a_file(file: str | None, module: str | None, is_meant: bool) -> None:
    made = rule(FILE)
    assert Rules([made]).decide_file(file, module) is (made if is_meant else None)


def test_the_rule_for_a_pattern_of_names() -> None:
    made = rule(f"{ME}.t*")
    assert Rules([made]).decide_names(f"{ME}.target", __file__) is made and Rules([made]).decide_names(f"{ME}.other", __file__) is None
