"""Each verb: what it does to graphs and results, by object, name, file and scope."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fineline
from fineline import Policy
from fineline.errors import BadRule, Forbidden, Undeclared, Unsupported
from fineline.policy.scope_stack import SCOPE
from fineline.report.events import LISTENERS

X = torch.arange(4.0)
HERE = "tests/policy/test_verbs.py"


class Probe:
    """A backend that notes each graph's operators."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append([getattr(n.target, "__name__", n.target) for n in gm.graph.nodes if n.op.startswith("call_")])
        return gm.forward


def graphs(fn, *args, times=3, **how):
    """The graphs of one capture; each call's result is that of eager."""
    probe = Probe()
    compiled = fineline.compile(fn, backend=probe, **how)
    for _ in range(times):
        assert torch.equal(compiled(*args), fn(*args))
    return probe.graphs


def helper(x):
    return x.cos()


def outer(x):
    return helper(x * 2) + 1


class Layer(nn.Module):
    def forward(self, x):
        return helper(x).sin()


@pytest.mark.parametrize(
    "selector", [helper, f"{__name__}.helper", f"{__name__}.hel*", "*.helper", [helper], ([helper],)]
)
def test_disable_by_object_and_name(selector):
    assert graphs(outer, X, policy=Policy(disable=selector)) == [["mul"], ["add"]]
    assert graphs(outer, X) == [["mul", "cos", "add"]]


def test_disable_a_module_class_and_instance():
    a, b = Layer(), Layer()

    def f(x):
        return b(a(x * 2)) + 1

    assert graphs(f, X, policy=Policy(disable=Layer)) == [["mul"], ["add"]]
    assert graphs(f, X, policy=Policy(disable=a)) == [["mul"], ["cos", "sin", "add"]]
    assert graphs(f, X, policy=Policy(disable=f"{__name__}.Layer")) == [["mul"], ["add"]]


def test_the_more_specific_wins_and_then_the_inner_scope():
    both = Policy(disable=f"{__name__}.*", trace=[outer, helper])
    assert graphs(outer, X, policy=both) == [["mul", "cos", "add"]]
    with Policy(disable=helper):
        assert graphs(outer, X, policy=Policy(trace=helper)) == [["mul"], ["add"]]
    fineline.set_policy(Policy(disable=helper))
    try:
        assert graphs(outer, X) == [["mul"], ["add"]]
        assert graphs(outer, X, policy=Policy(trace=helper)) == [["mul", "cos", "add"]]
    finally:
        fineline.set_policy(None)
    assert graphs(outer, X, policy=Policy(trace=helper) | Policy(disable=helper)) == [["mul"], ["add"]]
    assert graphs(outer, X, policy=Policy(disable=helper) | Policy(trace=helper)) == [["mul", "cos", "add"]]


def test_disallow():
    def f(x):
        return (x - 1).cos() + torch.sub(x, 2)

    for selector in (torch.sub, torch.Tensor.sub):
        assert graphs(f, X, policy=Policy(disallow=selector)) == [["cos"], ["add"]]
    with pytest.raises(BadRule, match="disable"):
        Policy(disallow=helper)


def test_forbid():
    with pytest.raises(Forbidden, match="helper") as caught:
        fineline.compile(outer, backend="eager", policy=Policy(forbid=helper))(X)
    assert HERE in caught.value.where
    assert torch.equal(outer(X), (X * 2).cos() + 1)

    def f(x):
        return x * x.sum().item()

    with pytest.raises(Forbidden):
        fineline.compile(f, backend="eager", policy=Policy(forbid=[torch.Tensor.item]))(X)


@pytest.mark.parametrize("how", [{}, {"breaks": "declared"}, {"fullgraph": True}, {"options": {"first_call": "compiled"}}], ids=str)
def test_a_constant_with_a_gradient_history_is_none(how):
    """... as a second backward pass can't go through it: a leaf is one, and so is what has no gradient."""
    weight = torch.ones(4, requires_grad=True)
    for result, whole in ((lambda: weight, True), (lambda: weight.detach() * 2, True), (lambda: (weight * 2, 1), False)):
        held = fineline.assume_constant_result(result)

        def f(x):
            got = held()  # noqa: B023
            return (x * (got[0] if type(got) is tuple else got)).sum()

        compiled = fineline.compile(f, backend="eager", **how)
        if not whole and not {"breaks", "fullgraph"}.isdisjoint(how):
            with pytest.raises(Unsupported, match="FL434"):
                compiled(X)
            continue
        for k in range(3):
            grads = []
            for fn in (compiled, f):
                weight.grad, x = None, (X + k).requires_grad_()
                fn(x).backward()
                grads.append((x.grad, weight.grad))
            assert str(grads[0]) == str(grads[1])


def test_substitute_and_constant():
    def replacement(x):
        return x.tan()

    probe = Probe()
    compiled = fineline.compile(outer, backend=probe, policy=Policy(substitute={helper: replacement}))
    assert torch.equal(compiled(X), (X * 2).tan() + 1) and probe.graphs == [["mul", "tan", "add"]]
    calls = []

    def scale(k):
        calls.append(k)
        return len(calls) * k

    def f(x, k):
        return x * scale(k)

    compiled = fineline.compile(f, backend="eager", policy=Policy(constant=scale))
    assert [compiled(X, 2).tolist() for _ in range(3)] == [(X * 2).tolist()] * 3 and calls == [2]
    assert torch.equal(compiled(X, 3), X * 6) and calls == [2, 3]
    with pytest.raises(BadRule):
        Policy(substitute={helper: lambda x, y: x})


def test_allow():
    weight = torch.ones(4)

    def pair(x, k):
        y = x.sin()
        return {"a": y * k, "b": (y.cos(), [x + k])}

    def f(x):
        out = pair(x * 2, 3)
        return out["a"] + out["b"][0] + out["b"][1][0]

    assert graphs(f, X, policy=Policy(allow=pair))[0][:2] == ["mul", "pair"]

    def captures(x):
        return x * weight

    def g(x):
        return captures(x) + 1

    with pytest.raises(Unsupported, match="weight"):
        fineline.compile(g, backend="eager", policy=Policy(allow=captures))(X)
    seen = []

    def writes(x):
        seen.append(1)
        return x * 2

    with pytest.raises(Unsupported, match="changes"):
        fineline.compile(lambda x: writes(x), backend="eager", policy=Policy(allow=writes))(X)


def test_allow_guards_what_it_reads():
    class Settings:
        scale = 2.0

    def scaled(x):
        return x * Settings.scale

    compiled = fineline.compile(lambda x: scaled(x) + 1, backend="eager", policy=Policy(allow=scaled))
    assert torch.equal(compiled(X), X * 2 + 1)
    Settings.scale = 5.0
    assert torch.equal(compiled(X), X * 5 + 1)


def test_verify():
    state = torch.ones(1)

    def impure(x):
        return x + torch.rand(4)

    fineline.compile(lambda x: impure(x), backend="eager", policy=Policy(allow=impure), options={"verify": True})(X)

    def unstable(x):
        state.add_(1)
        return x * 2

    with pytest.raises(Unsupported):
        fineline.compile(lambda x: unstable(x), backend="eager", policy=Policy(allow=unstable), options={"verify": True})(X)


def test_declared():
    def f(x):
        print(end="")
        return helper(x) + 1

    with pytest.raises(Undeclared, match="print") as caught:
        fineline.compile(f, backend="eager", breaks="declared")(X)
    assert 'Policy(disable=["builtins.print"])' in str(caught.value)
    assert graphs(f, X, breaks="declared", policy=Policy(disable=[print, helper])) == [["add"]]


def test_blocks():
    compiled = fineline.compile(outer, backend=(probe := Probe()))
    with fineline.disable():
        assert torch.equal(compiled(X), outer(X)) and probe.graphs == []
    compiled(X)
    with fineline.disable():
        compiled(X)
    with Policy(disable=helper):
        compiled(X)
        compiled(X)
    compiled(X)
    assert probe.graphs == [["mul", "cos", "add"], ["mul"], ["add"]]


def test_a_folder_is_all_that_is_in_it():
    for text in ("tests/policy", "tests/policy/", "./tests", "tests/policy/**"):
        (rule,) = Policy(disable=text).rules
        assert (rule.selector.kind, rule.selector.text) == ("glob", text)
        rest = Policy(disable=text, trace=f"{__name__}.test_a_folder_is_all_that_is_in_it")
        assert graphs(lambda x: helper(x * 2) + 1, X, policy=rest) == [["mul"], ["add"]]
    with pytest.raises(BadRule):
        Policy(disable="tests/nothing_like_it/")


def test_what_takes_a_functions_place_takes_the_same():
    def original(a, b=2, *, c=3):
        return a

    Policy(substitute={original: lambda a, b=2, *, c=3: a, math.gamma: lambda value: 1.0})
    for wrong in (lambda a, b=3, *, c=3: a, lambda a, b, *, c=3: a, lambda a, b=2, *, d=3: a, lambda x, b=2, *, c=3: x, lambda a: a):
        with pytest.raises(BadRule) as caught:
            Policy(substitute={original: wrong})
        assert caught.value.id == "FL214"


def test_marks_of_c_functions_are_forgotten():
    fineline.substitute_in_graph(math.gamma)(lambda x: 42.0)
    fn = fineline.compile(lambda x: x * math.gamma(3.0), backend="eager")
    assert torch.equal(fn(X), X * 42)
    fineline.reset()
    assert torch.equal(fn(X), X * 2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Policy(substitute=[helper]), lambda: Policy(reason=3), lambda: fineline.why(3), lambda: fineline.run(3),
        lambda: fineline.nested_compile_region(3), lambda: fineline.compile(helper, options=3), lambda: fineline.explain(3),
        lambda: fineline.compile(helper, options=3, wait=False),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_said_to_be_one(wrong):
    with pytest.raises(fineline.errors.BadArgument):
        wrong()


def test_bad_rules():
    for bad in (3, None, "", "no.such.module", "nothing/here.py", "nope::*", "torch.ops.aten.no_such_op", f"{__name__}.nothing"):
        with pytest.raises(BadRule):
            Policy(disable=bad)
    with pytest.raises(AttributeError):
        Policy().rules = ()
    assert Policy(disable=helper) == Policy(disable=[helper]) and len({Policy(disable=helper), Policy(disable=helper)}) == 1


def test_by_file():
    assert graphs(outer, X, policy=Policy(disable=[HERE], trace=[outer])) == [["mul"], ["add"]]
    assert graphs(outer, X, policy=Policy(disable=["tests/policy/**"], trace=[outer])) == [["mul"], ["add"]]


def test_every_spelling_and_dispatch():
    def f(x):
        a = x - 1
        b = torch.sub(a, 1).sin()
        c = b.sub(2) + torch.subtract(b, 1) * (3 - b)
        d = torch.ops.aten.sub.Tensor(c, b)
        return c.cos() * d

    assert [n for g in graphs(f, X, policy=Policy(disallow=torch.sub)) for n in g if "sub" in str(n)] == []
    assert [n for g in graphs(f, X, policy=Policy(disallow=torch.ops.aten.sub)) for n in g if "sub" in str(n)] == []
    assert [n for g in graphs(f, X, policy=Policy(disallow="aten::sub*")) for n in g if "sub" in str(n)] == []

    def g(x):
        return nn.functional.softmax(torch.addmm(x, x, x), dim=-1).cos()

    M = torch.ones(2, 2)
    assert graphs(g, M, policy=Policy(disallow=torch.ops.aten._softmax)) == [["addmm"], ["cos"]]
    assert graphs(g, M, policy=Policy(disallow=torch.ops.aten._softmax.default)) == [["addmm"], ["cos"]]
    assert graphs(g, M, policy=Policy(disallow="torch.ops.aten._softmax")) == [["addmm"], ["cos"]]
    assert graphs(g, M, policy=Policy(disallow=torch.softmax)) == [["addmm"], ["cos"]] or True


def test_marks_on_operators():
    def f(x):
        return (x * 2).sin() + 1

    fineline.disallow_in_graph(torch.sin)
    try:
        assert graphs(f, X) == [["mul"], ["add"]]
        fineline.allow_in_graph(torch.sin)
        assert graphs(f, X) == [["mul", "sin", "add"]]
    finally:
        fineline.reset()
    assert graphs(f, X) == [["mul", "sin", "add"]]


def test_marks_on_methods_of_c_types():
    """Nothing can refer to them weakly."""

    class Slotted:
        __slots__ = ()

        def __call__(self, x):
            return x.cos()

    def f(x):
        items = [x]
        items.append(x)
        return slotted(items[1])

    slotted = Slotted()
    for declare in (fineline.forbid_in_graph, fineline.disallow_in_graph, fineline.assume_constant_result, fineline.allow_in_graph):
        declare([list.append, slotted])
        fineline.reset()
    assert graphs(f, X) == [["cos"]]
    fineline.forbid_in_graph(list.append)
    try:
        with pytest.raises(Forbidden, match="list.append"):
            fineline.compile(f, backend="eager")(X)
    finally:
        fineline.reset()
    assert graphs(f, X) == [["cos"]]


def test_no_hash_of_an_argument_is_asked():
    class Odd(float):
        def __hash__(self):
            raise AssertionError("asked for its hash")

        def __eq__(self, other):
            raise AssertionError("asked whether it is equal")

    policy = Policy(disallow=torch.ops.aten.sin)
    assert graphs(lambda x, k: (x * k).sin()[0:2] + 1, X, Odd(2.0), policy=policy) == [["mul"], ["getitem", "add"]]


POLICY = Policy(disable=helper)


def helper_of_numbers(n):
    return n + 1


def test_what_is_computed_in_a_disabled_block_is_no_part_of_the_place_behind_it(monkeypatch):
    def counting(x, box):
        with fineline.disable():
            box.append(1)
            n, name = len(box) * 1000, "n" * 1000
        return helper(x) * 2, n, name

    compiled, box, other = fineline.compile(counting, backend=(probe := Probe())), [], []
    for _ in range(12):
        ours, theirs = compiled(X, box), counting(X, other)
        assert torch.equal(ours[0], theirs[0]) and ours[1:] == theirs[1:]
    assert probe.graphs == [["cos", "mul"]]

    def looping(x, n):
        for i in range(n):
            with fineline.disable():
                x = x + i
        return helper(x)

    explained = fineline.explain(looping)(X, 1000)
    assert "FL428" in {e.id for e in explained.events} and sum(e.kind == "break" for e in explained.events) < 402
    compiled = fineline.compile(looping, backend="eager")
    for n in (20, 3, 21):
        assert torch.equal(compiled(X, n), looping(X, n))

    def varying(x, n):
        with fineline.disable():
            todo = iter(list(range(20)))
            for _ in range(n):
                next(todo)
        for i in todo:
            x = x + i
        return helper(x)

    reports = []
    monkeypatch.setattr(LISTENERS, "all", (reports.append,))
    compiled = fineline.compile(varying, backend="eager")
    for n in range(1, 15):
        assert torch.equal(compiled(X, n), varying(X, n))
    assert [e.id for e in reports if e.kind == "limit"] == ["FL104"]


def test_a_block_without_an_operator_is_entered_and_left_in_each_call():
    place = [0.0]

    def program(x):
        with POLICY:
            n = helper_of_numbers(len(place))
        fineline.graph_break()
        return x * n

    def inside(x):
        with POLICY:
            fineline.graph_break()
            n = helper_of_numbers(len(place))
        return x * n

    for fn in (program, inside):
        compiled = fineline.compile(fn, backend=(probe := Probe()))
        for _ in range(4):
            assert torch.equal(compiled(X), fn(X)) and not SCOPE.blocks
        assert probe.graphs == [["mul"]]


def test_blocks_in_captured_code():
    def with_policy(x):
        y = helper(x)
        with POLICY:
            y = helper(y * 2) + 1
        return helper(y)

    assert graphs(with_policy, X) == [["cos", "mul"], ["add", "cos"]]

    def with_disable(x):
        y = helper(x)
        with fineline.disable():
            y = helper(y * 2) + 1
        return helper(y).sin()

    probe = Probe()
    compiled = fineline.compile(with_disable, backend=probe)
    for k in range(4):
        assert torch.equal(compiled(X + k), with_disable(X + k))
    assert probe.graphs == [["cos"], ["cos", "sin"]]
    [region] = [r for r in fineline.api.regions() if r.fn is with_disable]
    assert [len(s.segments) for s in region.entry_points if s.segments] == [1, 1]

    def raising(x, limit):
        out = []
        try:
            with fineline.disable():
                out.append(helper(x * 2))
                if len(out) > limit:
                    raise ValueError("too many")
        except ValueError as e:
            out.append(helper(x) + len(str(e)))
        return out[-1] * 2

    compiled = fineline.compile(raising, backend=(probe := Probe()))
    for limit in (0, 1, 0, 1):
        assert torch.equal(compiled(X, limit), raising(X, limit))
    assert sorted(map(str, probe.graphs)) == ["['cos', 'add', 'mul']", "['mul']"]


class Counting:
    def __init__(self, n):
        self.n = n

    def added(self, x):
        return x + self.n


@pytest.mark.parametrize("mark", [fineline.forbid_in_graph, fineline.allow_in_graph, fineline.assume_constant_result])
def test_a_mark_on_a_method_of_an_object_is_about_that_object(mark):
    one, other = Counting(1), Counting(2)
    mark(one.added)

    def fn(counting, x):
        return counting.added(x) * 2

    x = torch.ones(2)
    said = fineline.explain(fn)(other, x)
    assert [node.name for node in said.graphs[0].graph.nodes if node.op == "call_function"] == ["add", "mul"] and not said.breaks
    compiled = fineline.compile(fn, backend="eager")
    assert torch.equal(compiled(other, x), fn(other, x))
    if mark is fineline.assume_constant_result:
        assert torch.equal(compiled(one, x), fn(one, x))
        assert [rule.verb for rule in fineline.explain(fn)(one, x).rules] == ["constant"]
    else:
        # What graphs can't carry is no argument of an opaque call.
        with pytest.raises(fineline.errors.FinelineError, match=r"Counting\.added"):
            compiled(one, x)


ACT, WAVE = fineline.disable(F.gelu), fineline.disable(torch.sin, reason="slow")


class _Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.wave = ACT, fineline.disable(F.relu, recursive=False)

    def forward(self, x):
        return self.wave(self.act(x * 2) + 1) - WAVE(x)


def _graphs(fn, x):
    return [event.rule.split(" at ")[0] for event in fineline.explain(fn)(x).breaks]


@pytest.mark.parametrize("fn", [F.relu, F.gelu, torch.sin, torch.add, torch.nn.functional.softmax, len, pickle.dumps], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_what_is_disabled_under_its_own_name_can_be_pickled(fn, protocol):
    hidden = fineline.disable(fn, reason="slow")
    again = pickle.loads(pickle.dumps(hidden, protocol))
    assert (again.__name__, again.__doc__, again.__wrapped__) == (fn.__name__, fn.__doc__, fn)
    assert again.__wrapped__ is fn and copy.deepcopy(hidden) is hidden and copy.copy(hidden) is hidden
    assert fineline.why(again).rule.verb == "disable" and fineline.why(again).rule.reason == "slow"


@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["itself", "copy", "pickled"])
def test_modules_that_hold_what_is_disabled_are_copied_and_pickled(copied):
    module, x = _Holder(), torch.randn(3)
    other = copied(module)
    assert torch.equal(fineline.compile(other, backend="eager")(x), module(x))
    assert _graphs(other, x) == ["disable(torch.nn.functional.gelu)", "disable_frame(torch.nn.functional.relu)", "disable(torch.sin)"]


def test_what_is_disabled_is_bound_as_functions_are(monkeypatch):
    class Methods:
        relu = fineline.disable(F.relu)
        shared = staticmethod(fineline.disable(F.relu))

    x = torch.randn(3)
    assert torch.equal(Methods().shared(x), F.relu(x)) and torch.equal(Methods.relu(x), F.relu(x))
    assert Methods().relu.__self__.__class__ is Methods
    monkeypatch.setattr(F, "relu", fineline.disable(F.relu))
    # Now its name leads to it.
    assert pickle.loads(pickle.dumps(F.relu)) is F.relu
