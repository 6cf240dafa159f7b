"""The call tree behind graph breaks, in every mode, and in the bodies of operators."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fineline
from fineline.report.events import LISTENERS

X = torch.arange(1.0, 5.0)


def leaf(x):
    return x.sin()


def broken(x):
    fineline.graph_break()
    return leaf(x) * 2


def after_one(x):
    y = broken(x)
    return leaf(y) + 1


def deep(x):
    return after_one(x) + leaf(x)


def loop(x):
    for _ in range(2):
        x = broken(x)
    return x


def number(x):
    n = x.sum().item()
    return leaf(x) * n


def handler(x):
    try:
        return broken(x)
    finally:
        leaf(x)


def with_block(x):
    with contextlib.nullcontext():
        y = broken(x)
    return leaf(y)


def generated(x):
    def parts():
        for _ in range(2):
            fineline.graph_break()
            yield leaf(x)

    return sum(parts())


def branch(x):
    return leaf(broken(x) if x.sum() > 0 else x)


def comprehension(x):
    return sum([broken(x) for _ in range(2)])


def sorting(x):
    return sum(sorted([x, x * 2], key=lambda t: broken(t).sum().item()))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return leaf(x) * 2

    @staticmethod
    def backward(ctx, grad):
        return leaf(grad)


class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Doubled.apply(x) + 1

    @staticmethod
    def backward(ctx, grad):
        return grad


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return Doubled.apply(grad)


class Two(torch.autograd.Function):
    """Which of its gradients come decides what its backward does: each way is a graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x + 1

    @staticmethod
    def backward(ctx, first, second):
        come = [leaf(grad) for grad in (first, second) if grad is not None]
        return sum(come) if come else None


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return leaf(grad)


def body(x):
    return leaf(x) * 2


def function(x):
    return Doubled.apply(x) + 1


def function_in_backward(x):
    return Inner.apply(x)


def function_of_two(x):
    return Two.apply(x)[0]


def function_run_once(x):
    return Once.apply(x)


def function_in_function(x):
    return Outer.apply(x)


def cond(x):
    return torch.cond(x.sum() > 0, body, leaf, (x,))


def cond_in_cond(x):
    return torch.cond(x.sum() > 0, cond, leaf, (x,))


def checkpointed(x):
    return checkpoint(body, x, use_reentrant=False)


def mapped(x):
    return torch.vmap(body)(x)


def gradient(x):
    return torch.func.grad(lambda y: body(y).sum())(x)


def while_loop(x):
    return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, body(y)), (torch.tensor(0), x))[1]


@torch.compiler.nested_compile_region
def region(x):
    return body(x)


def nested(x):
    return region(x) + region(x)


# -> the calls, without those of PyTorch's own.
def calls(node, files=(__file__,)):
    inside = [found for child in node.children for found in calls(child, files)]
    whole = node.name.endswith(("forward", "backward"))
    return [(node.name if whole else node.name.rpartition(".")[2], inside)] if node.file in files else inside


LEAF = ("leaf", [])
BODY = ("body", [LEAF])
BROKEN = ("broken", [LEAF])
BREAKS = {
    after_one: [BROKEN, LEAF],
    deep: [("after_one", [BROKEN, LEAF]), LEAF],
    loop: [BROKEN, BROKEN],
    number: [LEAF],
    handler: [BROKEN, LEAF],
    with_block: [BROKEN, LEAF],
    generated: [("parts", [LEAF, LEAF])],
    branch: [BROKEN, LEAF],
    comprehension: [("<listcomp>", [BROKEN, BROKEN])],
}
BODIES = {
    function: [("apply", [("Doubled.forward", [LEAF]), ("Doubled.backward", [LEAF])])],
    function_in_function: [("apply", [("Outer.forward", [("Doubled.forward", [LEAF])]), ("Outer.backward", [])])],
    function_in_backward: [("apply", [("Inner.forward", []), ("Inner.backward", [("apply", [("Doubled.forward", [LEAF]), ("Doubled.backward", [LEAF])])])])],
    function_of_two: [("apply", [("Two.forward", []), *[("Two.backward", [("<listcomp>", ways)]) for ways in ([LEAF, LEAF], [LEAF], [])]])],
    function_run_once: [("apply", [("Once.forward", []), ("Once.backward", [LEAF])])],
    cond: [BODY, LEAF],
    cond_in_cond: [("cond", [BODY, LEAF]), LEAF],
    checkpointed: [BODY],
    mapped: [BODY],
    gradient: [("<lambda>", [BODY])],
    while_loop: [("<lambda>", []), ("<lambda>", [BODY])],
    nested: [("region", [BODY]), ("region", [BODY])],
}


def captured(tree):
    """The calls that were captured, without those that ran outside of the graphs: they are not the same in every mode."""
    for node in tree:
        node.children[:] = [child for child in node.children if child.colour == "captured"]
    return calls(tree)


@pytest.mark.parametrize("dynamic", [None, True], ids=["live", "symbolic"])
@pytest.mark.parametrize("fn", BREAKS, ids=lambda fn: fn.__name__)
def test_calls_behind_a_graph_break_are_beneath_their_caller(fn, dynamic):
    told = fineline.explain(fn, dynamic=dynamic)(X.clone())
    assert captured(told.tree) == [(fn.__name__, BREAKS[fn])]
    assert sum(node.operators for node in told.tree) == told.operators + told.eager_operators


@pytest.mark.parametrize("fn", BREAKS, ids=lambda fn: fn.__name__)
def test_calls_in_a_first_call_that_is_compiled(fn):
    compiled = fineline.compile(fn, backend="eager", options={"first_call": "compiled"})
    told = fineline.explain(compiled)(X.clone())
    assert captured(told.tree) == [(fn.__name__, BREAKS[fn])]


@pytest.mark.parametrize("dynamic", [None, True], ids=["live", "symbolic"])
@pytest.mark.parametrize("fn", BODIES, ids=lambda fn: fn.__name__)
def test_calls_in_bodies_are_beneath_their_operator(fn, dynamic):
    told = fineline.explain(fn, dynamic=dynamic)(X.clone().requires_grad_(fn is checkpointed or fn.__name__.startswith("function")))
    assert captured(told.tree) == [(fn.__name__, BODIES[fn])]
    assert "leaf, 1 operator" in str(told.tree) and not told.breaks


class Prints(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print(end="")
        return leaf(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_a_body_that_no_graph_can_hold_leaves_no_calls():
    told = fineline.explain(lambda x: leaf(Prints.apply(x)))(X.clone().requires_grad_())
    assert [name for name, _ in captured(told.tree)[0][1]] == ["leaf"]


@pytest.mark.parametrize("dynamic", [None, True], ids=["live", "symbolic"])
def test_the_operators_of_a_backward_are_counted_where_it_is_written(dynamic):
    told = fineline.explain(function, dynamic=dynamic)(X.clone().requires_grad_())
    found = [node for node in told.tree if node.name == "Doubled.backward"]
    assert [(node.colour, node.file, node.line) for node in found] == [("captured", __file__, Doubled.backward.__code__.co_firstlineno)]
    assert [node.operators for node in found[0]] == [0, 1]
    assert f"captured Doubled.backward  {__file__}" in str(told)


class Switches(torch.autograd.Function):
    """What its backward does to PyTorch's state no graph can hold: the whole call is one node."""

    @staticmethod
    def forward(ctx, x):
        return leaf(x)

    @staticmethod
    def backward(ctx, grad):
        torch.set_grad_enabled(True)
        return leaf(grad)


def test_an_opaque_call_of_a_function_has_no_calls_in_it():
    told = fineline.explain(lambda x: Switches.apply(x) + 1)(X.clone().requires_grad_())
    (call,) = [node for node in told.tree if node.name == "Switches.apply"]
    assert (call.colour, call.operators, call.children) == ("opaque", 1, [])


def test_a_capture_that_is_made_anew_is_there_once():
    """On fakes, and then on the real values."""

    def f(x):
        y = body(x)
        return y + int(torch.ones(3).to_sparse().values().numel())

    told = fineline.explain(f, dynamic=True)(X)
    assert captured(told.tree)[0][1][:1] == [BODY] and [name for name, _ in captured(fineline.explain(f, dynamic=True)(X).tree)[0][1]].count("body") == 1


def test_a_later_call_goes_on_where_an_earlier_one_has_left():
    """... behind the graph break, where the program of the first call leads to one that is not there yet."""

    def f(x, items):
        y = broken(x)
        return leaf(y) if len(items) > 1 else y

    before, LISTENERS.trees = LISTENERS.trees, True
    try:
        compiled = fineline.compile(f, backend="eager")
    finally:
        LISTENERS.trees = before
    for items in ([1], [1, 2]):
        compiled(X, items)
    tree = fineline.report(compiled).tree
    fineline.reset()
    assert captured(tree) == [("f", [("broken", [LEAF, LEAF]), LEAF])]
