"""Reasons of errors and graph breaks call things by the names that users write, and bear an id whose title fits the rule that decided."""

from __future__ import annotations

import functools
import math
import re

import pytest
import torch

import fineline
from fineline import Policy
from fineline.errors import BadRule, FinelineError
from fineline.policy.selector import describe
from fineline.refusals import REFUSALS

X = torch.arange(4.0) + 1


@torch.library.custom_op("names_in_reasons::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@scaled.register_fake
def _(x):
    return torch.empty_like(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Tripled(Doubled):
    pass


class Model(torch.nn.Module):
    def forward(self, x):
        return helper(x) + 1


def helper(x):
    return x.cos()


def by_op(x):
    return torch.ops.names_in_reasons.scaled(x) + 1


def by_overload(x):
    return torch.ops.names_in_reasons.scaled.default(x) + 1


def by_definition(x):
    return scaled(x) + 1


def applies(x):
    return Doubled.apply(x) + 1


def applies_derived(x):
    return Tripled.apply(x) + 1


def subtracts(x):
    return x - 1


def subtracts_reversed(x):
    return 1 - x


def matrix_product(x):
    return x @ x


def linear(x):
    return torch.linalg.norm(x) + 1


def calls_helper(x):
    return helper(x.sin()) + 1


# What names no thing of the user's, nor one that PyTorch or Python documents.
INSIDES = re.compile(r"pybind11|PyCapsule|torch\._C\b|<built-in|object at 0x|\bzu?[fiu]\d|\bs\d+\b|CustomOpDef|autograd\.function\.Function")

# The program, the policy, the id of the graph break, what its reason says.
BREAKS = {
    "a rule for a file of PyTorch's meets a custom operator": (by_op, Policy(disable=["torch/**"]), "FL400", "torch.ops.names_in_reasons.scaled is disabled"),
    "a custom operator's overload": (by_overload, Policy(disable=["names_in_reasons::*"]), "FL400", "torch.ops.names_in_reasons.scaled.default is disabled"),
    "a custom operator's definition": (by_definition, Policy(disallow=[scaled]), "FL429", "torch.ops.names_in_reasons.scaled.default is disallowed"),
    "an autograd function": (applies, Policy(disable=[Doubled]), "FL400", f"{__name__}.Doubled.apply is disabled"),
    "one that inherits": (applies_derived, Policy(disable=[Tripled]), "FL400", f"{__name__}.Tripled.apply is disabled"),
    "an infix operator disabled": (subtracts, Policy(disable=[torch.sub]), "FL400", "operator.sub is disabled"),
    "... disallowed": (subtracts, Policy(disallow=[torch.sub]), "FL429", "operator.sub is disallowed"),
    "... constant": (subtracts, Policy(constant=[torch.sub]), "FL450", "operator.sub is assumed constant, which an operator can be only"),
    "... substituted": (matrix_product, Policy(substitute={torch.matmul: torch.dot}), "FL451", "torch.dot takes the place of an operator"),
    "... from the right": (subtracts_reversed, Policy(disable=[torch.sub]), "FL400", "operator.sub is disabled"),
    "a namespace of PyTorch's": (linear, Policy(disallow=[torch.linalg.norm]), "FL429", "torch.linalg.norm is disallowed"),
    "a constant function of a tensor": (calls_helper, Policy(constant=[helper]), "FL450", f"{__name__}.helper is assumed constant, and called with a Tensor"),
    "a function": (calls_helper, Policy(disable=[helper]), "FL400", "helper is disabled"),
    "a shape by data": (lambda x: x[x > 1].sum(), None, "FL508", "operator.getitem"),
    "a method": (lambda x: x.nonzero().sum(), None, "FL508", "torch.Tensor.nonzero"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_graph_break_names_what_the_user_wrote(name):
    fn, policy, id, reason = BREAKS[name]
    explained = fineline.explain(fn, policy=policy)(X)
    fineline.reset()
    found = [b for b in explained.breaks if b.id == id]
    assert found and all(reason in b.reason for b in found), [(b.id, b.reason) for b in explained.breaks]
    for event in explained.events:
        assert not INSIDES.search(event.reason), event
        assert "fineline/" not in event.where


# What an id's title may say of each verb.
TITLES = {"FL400": "disabled", "FL429": "disallowed", "FL450": "constant", "FL451": "substitute"}


def test_the_titles_fit_the_verbs():
    assert all(word in REFUSALS[id].title for id, word in TITLES.items())


# What the code decides by, and how the error shows it.
DECISIONS = {
    "a float": (lambda x: x * 2 if x.sum().item() > 3 else x, "item() > 3.0"),
    "a size": (lambda x: x * 2 if x.nonzero().size(0) > 2 else x, "nonzero().size(0) > 2"),
    "a subscript's size": (lambda x: x * 2 if x[x > 1].shape[0] == 2 else x, "x[...].size(0) == 2"),
    "an int": (lambda x: x * 2 if int(x.sum()) + 4 > 2 else x, "math.trunc(item()) + 4 > 2"),
    "a list": (lambda x: x * 2 if x.tolist()[1] > 2 else x, "item() > 2.0"),
    "an expression": (lambda x: x * 2 if x.unique().numel() % 2 == 0 else x, "unique().size(0) % 2 == 0"),
    "a quotient": (lambda x: x * 2 if x.max().item() / x.min().item() > 2 else x, "truediv(item(), item()) > 2.0"),
    "an index": (lambda x: [x][int(x[0]) - 1], "the value of"),
    "a count": (lambda x: [x + i for i in range(int(x[2]))], "the value of"),
    "with a size that varies": (lambda x, y: x.sum() if y.sum().item() > x.shape[0] else x, "item() > "),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_on_data_shows_what_was_read(name):
    fn, text = DECISIONS[name]
    for dynamic in (None, True):
        with pytest.raises(FinelineError) as caught:
            fineline.compile(fn, backend="eager", fullgraph=True, dynamic=dynamic)(*(X, X)[: fn.__code__.co_argcount])
        fineline.reset()
        assert text in caught.value.reason and not INSIDES.search(caught.value.reason), caught.value.reason


def test_a_varying_size_is_shown_as_the_user_reads_it():
    with pytest.raises(FinelineError, match=re.escape("item() > float(x.size(0))")):
        fineline.compile(DECISIONS["with a size that varies"][0], backend="eager", fullgraph=True, dynamic=True)(X, X)


REFUSED = {
    "an autograd function": (lambda: fineline.compile(applies, backend="eager", policy=Policy(forbid=[Doubled]))(X), f"{__name__}.Doubled.apply"),
    "a custom operator": (lambda: fineline.compile(by_op, backend="eager", policy=Policy(forbid=[scaled]))(X), "torch.ops.names_in_reasons.scaled"),
    "nothing to look into": (lambda: Policy(trace=[scaled]), "torch.ops.names_in_reasons.scaled is not Python code"),
    "an infix operator": (lambda: fineline.compile(subtracts, backend="eager", policy=Policy(forbid=[torch.sub]))(X), "operator.sub"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_names_what_the_user_wrote(name):
    fails, text = REFUSED[name]
    with pytest.raises((FinelineError, BadRule)) as caught:
        fails()
    fineline.reset()
    assert text in caught.value.reason and not INSIDES.search(caught.value.reason), caught.value.reason


def test_a_rule_about_the_region_itself_shows_no_line_of_finelines():
    explained = fineline.explain(Model(), policy=Policy(constant=[Model]))(X)
    assert not [event for event in explained.events if "/fineline/" in event.where and "/tests/" not in event.where]


NAMES = [
    (torch.linalg.inv, "torch.linalg.inv"), (torch.fft.rfft2, "torch.fft.rfft2"), (torch.special.expit, "torch.special.expit"),
    (torch.nn.functional.gelu, "torch.nn.functional.gelu"), (torch.einsum, "torch.einsum"), (torch.Tensor.item, "torch.Tensor.item"),
    (torch.ops.names_in_reasons.scaled, "torch.ops.names_in_reasons.scaled"), (scaled, "torch.ops.names_in_reasons.scaled"),
    (torch.ops.aten.add.Tensor, "torch.ops.aten.add.Tensor"), (Doubled.apply, f"{__name__}.Doubled.apply"),
    (functools.partial(math.pow, 2), "functools.partial(math.pow, ...)"), ([].append, "list.append"), (len, "builtins.len"),
    (torch.jit.script(helper), "helper"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_callable_has_the_name_that_users_write(value, name):
    assert describe(value) == name
