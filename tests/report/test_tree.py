"""``explain``'s rules and call tree: "which rules fired, which never matched", "the call tree with each frame's colour"."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy
from fineline.interp.interpreter import Interpreter
from fineline.interp.opcodes.flow import LONG_LOOP
from fineline.report.events import LISTENERS
from fineline.report.tree import Node, joined

X = torch.arange(4.0)


def inner(x):
    return x.sin().cos()


@fineline.disable(recursive=False)
def frame(x):
    return inner(x) + 1


@fineline.disable
def off(x):
    return inner(x)


@fineline.allow_in_graph
def opaque(x):
    return inner(x) * 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(3):
            x = self.linear(x)
        x = opaque(off(frame(x)))
        if x.sum() > 0:
            x = x + 1
        return sum(inner(x) for _ in range(2))


def test_the_call_tree_with_each_frames_colour():
    tree = fineline.explain(Net())(X).tree
    assert (tree.name, tree.colour, tree.file, tree.line) == ("Net.forward", "captured", __file__, Net.forward.__code__.co_firstlineno)
    assert [(n.name, n.colour, n.operators) for n in tree.children] == [
        *[("Linear.forward", "captured", 1)] * 3,
        ("frame", "eager", 0),
        ("off", "eager", 0),
        ("opaque", "opaque", 0),
        ("bool", "eager", 0),
        ("Net.forward.<locals>.<genexpr>", "captured", 0),
    ]
    assert [(n.name, n.colour, n.operators) for n in tree.children[3].children] == [("inner", "captured", 2)]  # in a graph of its own
    assert [n.name for n in tree.children[-1].children] == ["inner", "inner"]
    assert [(n.name, n.colour) for n in tree.children[4].children] == [("inner", "eager")]
    assert all(n.file and not n.file.startswith(fineline.__path__[0]) for n in tree)
    lines = str(tree).splitlines()
    assert lines[1].startswith("  captured Linear.forward, 1 operator  ") and lines[1].endswith("(3 times)")
    rows = tree.as_list()
    assert (rows[4]["name"], rows[5]["name"]) == ("frame", "inner") and [row["parent"] for row in rows[:6]] == [-1, 0, 0, 0, 0, 4]


def test_the_operators_of_the_tree_are_those_of_the_graphs():
    e = fineline.explain(Net())(X)
    captured = fineline.explain(inner)(X)
    assert captured.tree.operators == captured.operators == 2
    below = [n for n in e.tree if n.name == "inner"][0].operators  # of a region of its own, with events of its own
    assert sum(n.operators for n in e.tree) - below == e.operators + e.eager_operators


def test_what_runs_when_a_capture_is_given_up_is_eager():
    def f(x):
        for _ in range(LONG_LOOP + 10):
            x.ndim
        return inner(x)

    tree = fineline.explain(f)(X).tree
    assert [(n.name, n.colour) for n in tree] == [(f.__qualname__, "captured"), ("inner", "eager")]


def test_which_rules_fired_and_which_never_matched():
    policy = Policy(disable=["os.path.*", inner], disallow=torch.tan)
    e = fineline.explain(Net(), policy=policy)(X)
    fired = {r.selector.text: n for r, n in e.rules.items()}
    assert fired[f"{__name__}.inner"] == 3 and fired["os.path.*"] == fired["torch.tan"] == 0
    assert fired[f"{__name__}.opaque"] == fired[f"{__name__}.off"] == fired[f"{__name__}.frame"] == 1
    assert [r.selector.text for r in e.unmatched] == ["os.path.*", "torch.tan"]
    text = str(e)
    assert f"never matched: disallow(torch.tan) at {__file__}:" in text and f"3 times: disable({__name__}.inner)" in text


def test_a_forgotten_mark_shows():
    @fineline.disable
    def forgotten(x):
        return x

    e = fineline.explain(inner)(X)
    assert any("forgotten" in r.selector.text for r in e.unmatched_marks) and "never matched: .unmatched_marks" in str(e)


def test_nothing_is_watched_elsewhere():
    assert fineline.compile(inner, backend="eager")._region.watch.interpreter is Interpreter


@torch.library.custom_op("fineline_tree::plus", mutates_args=())
def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@plus.register_fake
def _(x):
    return torch.empty_like(x)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@fineline.assume_constant_result
def three():
    return 3.0


@fineline.disable
def below(x):
    return inner(x) + sum(inner(x) for _ in range(1)) + nn.functional.relu(x)


def shape(tree):
    return [(n.name, n.colour, n.operators) for n in tree.children]


@pytest.mark.parametrize("spell", [plus, lambda x: torch.ops.fineline_tree.plus(x), lambda x: torch.ops.fineline_tree.plus.default(x)])
def test_a_custom_operator_is_one_opaque_call(spell):
    def f(x):
        return spell(x) * 2

    nodes = [n for n in fineline.explain(f)(X).tree if n.colour == "opaque"]
    assert [(n.name, n.operators, n.file) for n in nodes] == [("fineline_tree::plus", 1, __file__)]


def test_autograd_functions_and_constants_are_calls():
    def f(x):
        return Double.apply(x) * three()

    grown = fineline.explain(f)(torch.ones(3, requires_grad=True)).tree
    assert shape(grown) == [("Double.apply", "captured", 1), (f"{__name__}.three", "constant", 0)] and grown.operators == 1
    assert [n[:2] for n in shape(fineline.explain(f)(X).tree) if n[0].startswith(("Double", __name__))] == [
        ("Double.forward", "captured"), (f"{__name__}.three", "constant"),
    ]  # fmt: skip


def test_the_users_functions_below_an_eager_call_are_there():
    tree = fineline.explain(lambda x: below(x) + 1)(X).tree
    [eager] = tree.children
    assert (eager.name, eager.colour) == ("below", "eager")
    assert [n.name for n in eager] == ["below", "inner", "below.<locals>.<genexpr>", "inner"] and all(n.colour == "eager" for n in eager)


def test_a_profiler_of_the_users_is_left_alone():
    import sys

    seen = []

    def profile(frame, what, arg):
        seen.append(what)

    sys.setprofile(profile)
    try:
        tree = fineline.explain(lambda x: below(x) + 1)(X).tree
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert tree.children[0].children == [] and seen


def test_an_eager_call_that_raises_leaves_no_profiler_and_no_call_under_way():
    import sys

    @fineline.disable
    def fails(x):
        inner(x)
        raise ValueError

    def f(x):
        try:
            fails(x)
        except ValueError:
            return inner(x)

    tree = fineline.explain(f)(X).tree
    assert sys.getprofile() is None
    assert [(n.name.rpartition(".")[2], n.colour) for n in tree] == [("f", "captured"), ("fails", "eager"), ("inner", "eager"), ("inner", "captured")]


def test_a_tree_survives_json():
    tree = fineline.explain(Net())(X).tree
    again = Node.from_list(json.loads(json.dumps(tree.as_list())))
    assert again == tree and again.as_list() == tree.as_list()


def test_a_tree_may_be_deeper_than_the_stack():
    """The calls of a recursive function, of which each calls the next."""
    depth = 3 * sys.getrecursionlimit()

    def chain():
        root = node = Node("f", "a.py", 1, "captured")
        for _ in range(depth):
            node.children.append(Node("f", "a.py", 1, "captured", seconds=1.0))
            [node] = node.children
        node.colour = "eager"
        return root

    one, other = chain(), chain()
    assert one == other and len(list(one)) == depth + 1 and str(one).count("\n") == depth
    again = Node.from_list(json.loads(json.dumps(one.as_list())))
    assert again == one and joined([one, again]).children[0].seconds == 2.0
    [*_, last] = other
    last.operators = 1
    assert one != other and len(joined([one, other]).children) == 2


def test_what_is_resumed_has_one_node():
    """Generators by turns, two of one function, and coroutines: each is one call, however often it is resumed and by whom."""

    def ones():
        for _ in range(3):
            yield inner(X)

    def twos():
        for _ in range(3):
            yield X

    async def step():
        await asyncio.sleep(0)
        return inner(X)

    async def steps():
        for _ in range(2):
            yield await step()

    async def main():
        return [x async for x in steps()]

    @fineline.disable
    def by_turns(x):
        list(zip(ones(), twos(), ones()))
        return x

    @fineline.disable
    def asynchronous(x):
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
        return x

    tree = fineline.explain(lambda x: asynchronous(by_turns(x)) + 1)(X).tree
    turns, other = tree.children
    names = [(node.name.rpartition(".")[2], len(node.children)) for node in turns]
    assert names[0] == ("by_turns", 3) and [name for name in names if name[0] in ("ones", "twos")] == [("ones", 3), ("twos", 0), ("ones", 3)]
    names = [node.name.rpartition(".")[2] for node in other]
    assert (names.count("main"), names.count("steps"), names.count("step"), names.count("inner")) == (1, 1, 2, 2)


def test_equal_captures_are_one_tree_with_their_sums():
    """A function that is captured again makes the same calls: their times and programs count, so that the order is that of all captures."""
    seconds = {"first": 0.02, "second": 0.0}

    @fineline.disable
    def first():
        time.sleep(seconds["first"])

    @fineline.disable
    def second():
        time.sleep(seconds["second"])

    def f(x, n):
        first()
        second()
        return inner(x) + n

    before, LISTENERS.trees = LISTENERS.trees, True
    try:
        compiled = fineline.compile(f, backend="eager", dynamic=False)
        compiled(X, 1)
        [one] = [node for node in fineline.report(compiled).tree if node.name == "inner"]
        seconds["first"], seconds["second"] = 0.0, 0.05
        compiled(X, 2)
        told = fineline.report(compiled)
    finally:
        LISTENERS.trees = before
    assert [(node.name.rpartition(".")[2], node.operators) for node in told.tree] == [("f", 1), ("first", 0), ("second", 0), ("inner", 2)]
    times = {node.name.rpartition(".")[2]: node.seconds for node in told.tree}
    assert times["first"] >= 0.02 and times["second"] >= 0.05
    [again] = [node for node in told.tree if node.name == "inner"]
    assert set(again.programs) > set(one.programs) and again.programs == [program.measures.key for program in told.kept if program.operators > 1]
    # The tree of a region is read again and again, while it grows.
    assert [node.seconds for node in fineline.report(compiled).tree] == [node.seconds for node in told.tree]
