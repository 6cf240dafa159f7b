"""Every row of the built-in rules, and every sign that reads a tensor, meets a rule of the user's."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor

import fineline
from fineline import Policy
from fineline.errors import Forbidden, Unsupported
from tests.policy.doors import Probe, same

X = torch.ones(2)


def rows():
    for rule in fineline.builtin_rules():
        target = getattr(rule.selector.key, "obj", None)
        if target is not None and type(target) is not str:
            yield rule, target


def calls(target):
    """Calls of it with one argument, two and three: it has to be met, and never runs."""
    return [lambda x, n=n: target(*[x] * n) for n in (1, 2, 3)]


def odd_ones(verb, error):
    """The rows of which no call was refused because of a rule with that verb; a call that Python itself refuses says nothing."""
    odd = []
    for rule, target in rows():
        policy = Policy(**{verb: target})
        for call in calls(target):
            try:
                fineline.compile(call, backend="eager", policy=policy, fullgraph=True)(X)
            except error as e:
                met = str(policy.rules[0]) in str(e)
            except Exception:
                continue
            else:
                met = False
            if met:
                break
        else:
            odd.append(rule.selector.text)
    return odd


@pytest.mark.parametrize(("verb", "error"), [("forbid", Forbidden), ("disable", Unsupported)])
def test_every_row_is_overruled(verb, error):
    """The built-in rules are rows of the same table: whatever they say of a thing, a user's rule about it stands above."""
    assert odd_ones(verb, error) == []


def test_every_row_is_named_by_why():
    for rule, target in rows():
        assert fineline.why(target).scope == "built-in", rule
        for verb in ("disable", "forbid", "constant", "allow"):
            decided = fineline.why(target, policy=Policy(**{verb: target}))
            assert (decided.verb, decided.scope) == (verb, "region"), (rule, decided)


def test_a_mark_of_pytorchs_on_an_operator_hides_no_rule():
    """Libraries mark operators of PyTorch's: tensordict marks `torch._foreach_copy_` where it is imported."""
    torch._dynamo.allow_in_graph(torch.sinh)
    try:
        policy = Policy(disable=torch.sinh)
        assert fineline.why(torch.sinh).scope == "built-in" and fineline.why(torch.sinh, policy=policy).verb == "disable"
        compiled = fineline.compile(lambda x: torch.sinh(x + 1) * 2, backend="eager", policy=policy)
        compiled(torch.ones(2))
        assert "FL400 torch.sinh" in str(fineline.report(compiled))
    finally:
        torch._dynamo.trace_rules._allowed_callable_ids.remove(id(torch.sinh))


def test_every_row_has_a_substitute():
    """... which is captured in its place, with the right result."""

    def instead(*args, **kwargs):
        return X * 3

    odd = []
    for rule, target in rows():
        # As skip_signature_check=True has it.
        policy = Policy.of(tuple([r._replace(verb="substitute", replacement=instead) for r in Policy(disable=target).rules]))
        results = []
        for call in calls(target):
            try:
                results.append(fineline.compile(call, backend="eager", policy=policy)(X))
            except Exception as e:
                results.append(e)
            if type(results[-1]) is Tensor and torch.equal(results[-1], X * 3):
                break
        else:
            odd.append(rule.selector.text)
    # Signs that stand for statements, or give a truth: nobody gets what a function gives in their place.
    assert odd == ["operator.contains", "operator.delitem", "operator.setitem"]


def count(x):
    return (x > 0).sum()


def assigned(x):
    items = [1, 2, 3, 4, 5, 6]
    items[count(x)] = 7
    return x * sum(items)


def first(a, *more):
    return a


READS = {
    "bool": (Tensor.__bool__, lambda x: x * bool(x[0])),
    "if": (Tensor.__bool__, lambda x: x + 1 if x[0] > 0 else x),
    "not": (Tensor.__bool__, lambda x: x * (not x[0])),
    "and": (Tensor.__bool__, lambda x: x[0] and x[1]),
    "any": (Tensor.__bool__, lambda x: x * any([x[0] > 0])),
    "int": (Tensor.__int__, lambda x: x * int(x[0])),
    "float": (Tensor.__float__, lambda x: x * float(x[0])),
    "complex": (Tensor.__complex__, lambda x: x * complex(x[0])),
    "in": (Tensor.__contains__, lambda x: x * (1.0 in x)),
    "not in": (Tensor.__contains__, lambda x: x * (1.0 not in x)),
    "repr": (Tensor.__repr__, lambda x: (x * 2, repr(x))[0]),
    "str": (Tensor.__repr__, lambda x: (x * 2, str(x))[0]),
    "f-string": (Tensor.__format__, lambda x: (x * 2, f"{x}")[0]),
    "item": (Tensor.item, lambda x: x * x[0].item()),
    "subscript": (Tensor.__index__, lambda x: x * [1, 2, 3, 4, 5, 6][count(x)]),
    "subscript of a tuple": (Tensor.__index__, lambda x: x * (1, 2, 3, 4, 5, 6)[count(x)]),
    "subscript of text": (Tensor.__index__, lambda x: (x * 2, "abcdef"[count(x)])[0]),
    "slice": (Tensor.__index__, lambda x: x * len([1, 2, 3, 4, 5, 6][: count(x)])),
    "item set": (Tensor.__index__, lambda x: (operator.setitem([1, 2, 3, 4, 5, 6], count(x), 2), x * 2)[1]),
    "item assigned": (Tensor.__index__, lambda x: assigned(x)),
    "range": (Tensor.__index__, lambda x: x * len(range(1, count(x)))),
    "insert": (Tensor.__index__, lambda x: ([1].insert(count(x), 2), x * 2)[1]),
    "hex": (Tensor.__index__, lambda x: (x * 2, hex(count(x)))[0]),
    "operator.index": (Tensor.__index__, lambda x: x * operator.index(count(x))),
    "for": (Tensor.__iter__, lambda x: x * sum([a for a in x])),
    "unpacking": (Tensor.__iter__, lambda x: x * first(*x)),
    "starred": (Tensor.__iter__, lambda x: x * len([*x])),
    "list": (Tensor.__iter__, lambda x: x * list(x)[1]),
    "zip": (Tensor.__iter__, lambda x: x * len([*zip(x, [1, 2])])),
    "enumerate": (Tensor.__iter__, lambda x: x * len([*enumerate(x)])),
    "map": (Tensor.__iter__, lambda x: x * len([*map(abs, x)])),
    "next": (Tensor.__iter__, lambda x: x * next(iter(x))),
    "a loop that is unbind": (torch.unbind, lambda x: x * sum([a for a in x])),
}


@pytest.mark.parametrize("name", READS)
def test_a_sign_that_reads_a_tensor_is_its_method(name):
    method, fn = READS[name]
    for how in ({}, {"fullgraph": True}, {"options": {"first_call": "compiled"}}):
        with pytest.raises(Forbidden) as caught:
            fineline.compile(fn, backend="eager", policy=Policy(forbid=method), **how)(X)
        line = assigned.__code__.co_firstlineno + 2 if name == "item assigned" else fn.__code__.co_firstlineno
        assert caught.value.where == f"{__file__}:{line}"
    compiled = fineline.compile(fn, backend=Probe(), policy=Policy(disallow=method), breaks="declared")
    for x in (X, X * 2, -X):
        same(compiled(x), fn(x))
