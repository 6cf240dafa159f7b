"""Guard mutations of what is the same object, memory or argument as another."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.soundness.mutations.cases import Cases, Doubler, X, arguments, attr, doing, made

CASES = Cases()
case = CASES.add


_A, _B = Doubler(), Doubler()
for _name, _read, _before, _after in [
    ("is_between_arguments", lambda x, a, b: x * (2 if a is b else 3), lambda: (X, _A, _B), lambda: (X, _A, _A)),
    ("is_between_arguments_undone", lambda x, a, b: x * (2 if a is b else 3), lambda: (X, _A, _A), lambda: (X, _A, _B)),
    ("is_between_tensors", lambda x, a: x * (2 if a is x else 3), lambda: (X, X), lambda: (X, X + 0)),
    ("is_between_distinct_tensors", lambda x, a: x * (2 if a is x else 3), lambda: (X, X + 0), lambda: (X, X)),
    ("equality_of_plain_objects", lambda x, a, b: x * (2 if a == b else 3), lambda: (X, _A, _B), lambda: (X, _A, _A)),
    ("is_not_of_lists", lambda x, a, b: x * (2 if a is not b else 3), lambda: (X, [], []), lambda: (X, *[[]] * 2)),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: made(lambda *a: read(*a), before, after)


def append_and_measure(x, a, b):
    a.append(1)
    return x * len(b), a, b


def set_and_get(x, a, b):
    a["k"] = 5
    return x * b.get("k", 1), a, b


def set_and_read_attr(x, a, b):
    a.factor = 5
    return x * b.factor


def add_and_measure(x, a, b):
    a.add(9)
    return x * len(b)


def append_to_a_deque(x, a, b):
    a.append(9)
    return x * len(b)


def add_in_place(x, a, b):
    a.add_(1)
    return x * b


def attr_of_tensors(x, a, b):
    a._tag = 5
    return x * getattr(b, "_tag", 1)


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 2


def slots_set(x, a, b):
    a.n = 5
    return x * b.n


def nested_lists(x, a, b):
    a[0].append(1)
    return x * len(b[0])


def pair_of(make: Callable[[], Any]) -> tuple[Any, Any]:
    def one():
        v = make()
        return X, v, v

    return (lambda: (X, make(), make())), one


for _name, _read, _maker in [
    ("aliased_lists", append_and_measure, list),
    ("aliased_dicts", set_and_get, dict),
    ("aliased_sets", add_and_measure, set),
    ("aliased_deques", append_to_a_deque, collections.deque),
    ("aliased_objects", set_and_read_attr, Doubler),
    ("aliased_slotted_objects", slots_set, Slotted),
    ("aliased_nested_lists", nested_lists, lambda: [[]]),
    ("aliased_tensors", add_in_place, lambda: X.clone()),
    ("aliased_tensor_attributes", attr_of_tensors, lambda: X.clone()),
]:
    CASES[_name] = lambda read=_read, maker=_maker: made(lambda *a: read(*a), *pair_of(maker))
    CASES[f"no_longer_{_name}"] = lambda read=_read, maker=_maker: made(lambda *a: read(*a), *pair_of(maker)[::-1])


@case
def tensors_share_storage():
    def apart():
        base = torch.ones(4, 3)
        return X, base[:2], torch.ones(2, 3)

    def shared():
        base = torch.ones(4, 3)
        return X, base[:2], base[1:3]

    return made(add_in_place, apart, shared)


@case
def aliased_cells():
    def pair(same):
        n = m = 2

        def write(v):
            nonlocal n
            n = v

        def other():
            nonlocal m
            m += 0
            return m

        if same:
            other = types.FunctionType(other.__code__, other.__globals__, "other", None, write.__closure__)
        return X, write, other

    def fn(x, write, other):
        write(5)
        return x * other()

    return made(fn, lambda: pair(False), lambda: pair(True))


@case
def positional_or_keyword():
    def fn(x, a=1, b=2):
        return x * a - b

    s = SimpleNamespace(kw=False)

    def args():
        return ((X,), {"b": 3}) if s.kw else ((X, 3), {})

    return fn, args, attr(s, "kw", True)


@case
def keyword_order():
    def fn(x, **kw):
        return x * list(kw.values())[0]

    s = SimpleNamespace(kw={"a": 1, "b": 2})
    return fn, lambda: ((X,), s.kw), attr(s, "kw", {"b": 2, "a": 1})


@case
def argument_count():
    return arguments(lambda *a: sum(a[1:], a[0]), (X, 1), (X, 1, 2))


@case
def weight_tying():
    m = nn.Linear(3, 3, bias=False)
    n = nn.Linear(3, 3, bias=False)
    n.weight = m.weight
    return lambda x: n(m(x)) * (2 if m.weight is n.weight else 3), (X,), doing(
        lambda: setattr(n, "weight", nn.Parameter(torch.ones(3, 3))), lambda: setattr(n, "weight", m.weight)
    )
