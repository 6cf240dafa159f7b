"""Guard mutations of containers."""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any

import torch

from tests.soundness.mutations.cases import Cases, Doubler, X, argument, attr, attr_name, doing, item

CASES = Cases()
case = CASES.add


for _name, _read, _make, _change in [
    ("dict_item", lambda x, c: x * c["a"], lambda: {"a": 2, "b": 3}, lambda c: item(c, "a", 5)),
    ("dict_item_unread", lambda x, c: x * c["a"] + len(c), lambda: {"a": 2, "b": 3}, lambda c: item(c, "c", 5)),
    ("dict_order", lambda x, c: x * list(c)[0], lambda: {1: 2, 3: 4}, lambda c: reorder(c)),
    ("ordered_dict_order", lambda x, c: x * list(c)[0], lambda: collections.OrderedDict({1: 2, 3: 4}),
     lambda c: doing(lambda: c.move_to_end(1), lambda: c.move_to_end(3))),
    ("dict_key_added", lambda x, c: x * len([k for k in c]), lambda: {"a": 2}, lambda c: item(c, "b", 5)),
    ("dict_items_loop", lambda x, c: sum([x * v for k, v in c.items()]), lambda: {"a": 2, "b": 1}, lambda c: item(c, "b", 5)),
    ("dict_get_missing", lambda x, c: x * c.get("z", 1), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_in", lambda x, c: x * (2 if "z" in c else 3), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_key_error", lambda x, c: attempt(lambda: x * c["z"], KeyError, x), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_key_type", lambda x, c: x * sum([type(k) is bool for k in c]), lambda: {1: 2}, lambda c: rekey(c, {True: 2})),
    ("dict_pop_default", lambda x, c: x * dict(c).pop("z", 1), lambda: {"a": 2}, lambda c: item(c, "z", 5)),
    ("dict_star", lambda x, c: x * named(**c), lambda: {"n": 2}, lambda c: item(c, "n", 5)),
    ("dict_union", lambda x, c: x * len(c | {"q": 1}), lambda: {"n": 2}, lambda c: item(c, "m", 5)),
    ("dict_equality", lambda x, c: x * (2 if c == {"n": 2} else 3), lambda: {"n": 2}, lambda c: item(c, "n", 5)),
    ("dict_subclass", lambda x, c: x * c["a"], lambda: type("D", (dict,), {})(a=2), lambda c: item(c, "a", 5)),
    ("dict_missing_method", lambda x, c: attempt(lambda: x * c["z"], KeyError, x), lambda: type("D", (dict,), {})(a=2),
     lambda c: attr(type(c), "__missing__", lambda s, k: 7)),
    ("default_dict_factory", lambda x, c: x * (c["z"] + len(c)) * int(c.pop("z") is None or 1),
     lambda: collections.defaultdict(lambda: 2), lambda c: attr_name(c, "default_factory", lambda: 3)),
    ("list_item", lambda x, c: x * c[0], lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_negative_item", lambda x, c: x * c[-1], lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_slice", lambda x, c: x * sum(c[:2]), lambda: [2, 3, 4], lambda c: item(c, 1, 5)),
    ("list_length", lambda x, c: x * len(c), lambda: [2, 3], lambda c: doing(lambda: c.append(1), c.pop)),
    ("list_index_error", lambda x, c: attempt(lambda: x * c[2], IndexError, x), lambda: [2, 3],
     lambda c: doing(lambda: c.append(9), c.pop)),
    ("list_nested", lambda x, c: x * c[0][1], lambda: [[2, 3]], lambda c: item(c[0], 1, 5)),
    ("list_loop", lambda x, c: sum([x * v for v in c]), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_unpacked", lambda x, c: x * first(*c), lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_in", lambda x, c: x * (2 if 5 in c else 3), lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_sorted", lambda x, c: x * sorted(c)[0], lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_equality", lambda x, c: x * (2 if c == [2, 3] else 3), lambda: [2, 3], lambda c: item(c, 0, 5)),
    ("list_truth", lambda x, c: x * (2 if c else 3), lambda: [], lambda c: doing(lambda: c.append(1), c.pop)),
    ("list_subclass_item", lambda x, c: x * c[0], lambda: type("L", (list,), {})([2, 3]), lambda c: item(c, 0, 5)),
    ("list_of_dicts", lambda x, c: x * c[0]["lr"], lambda: [{"lr": 2}], lambda c: item(c[0], "lr", 5)),
    ("list_reversed", lambda x, c: x * next(reversed(c)), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_enumerated", lambda x, c: sum([x * i * v for i, v in enumerate(c)]), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_zipped", lambda x, c: sum([x * i * v for i, v in zip(c, c)]), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_joined", lambda x, c: x * len(",".join(c)), lambda: ["a", "b"], lambda c: item(c, 1, "long")),
    ("list_max", lambda x, c: x * max(c), lambda: [2, 3], lambda c: item(c, 1, 5)),
    ("list_of_tensors", lambda x, c: torch.cat(c), lambda: [X, X + 1], lambda c: doing(lambda: c.append(X), c.pop)),
    ("set_in", lambda x, c: x * (2 if 5 in c else 3), lambda: {2}, lambda c: doing(lambda: c.add(5), lambda: c.discard(5))),
    ("set_length", lambda x, c: x * len(c), lambda: {2}, lambda c: doing(lambda: c.add(5), lambda: c.discard(5))),
    ("set_order", lambda x, c: x * list(c)[0], lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0), lambda: refill(c, 0, 8))),
    ("set_order_loop", lambda x, c: x + [v for v in c][0], lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0),
     lambda: refill(c, 0, 8))),
    ("set_union_order", lambda x, c: x + list(c | {16})[0], lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0),
     lambda: refill(c, 0, 8))),
    ("set_unpacked", lambda x, c: x * first(*c), lambda: set((0, 8)), lambda c: doing(lambda: refill(c, 8, 0), lambda: refill(c, 0, 8))),
    ("deque_item", lambda x, c: x * c[0], lambda: collections.deque([2, 3]), lambda c: doing(lambda: c.rotate(), lambda: c.rotate())),
    ("deque_length", lambda x, c: x * len(c), lambda: collections.deque([2, 3]), lambda c: doing(lambda: c.append(1), c.pop)),
    ("deque_loop", lambda x, c: sum([x * i * v for i, v in enumerate(c)]), lambda: collections.deque([2, 3]),
     lambda c: doing(lambda: c.rotate(), lambda: c.rotate())),
    ("deque_maxlen", lambda x, c: x * (c.maxlen or 9), lambda: collections.deque([2, 3]), None),
    ("dict_keys_view", lambda x, c: sum([x * k for k in c]), lambda: {2: 1}, lambda c: item(c, 5, 1)),
    ("byte_array", lambda x, c: x * c[0], lambda: bytearray(b"ab"), lambda c: doing(lambda: c.__setitem__(0, 1),
     lambda: c.__setitem__(0, 97))),
    ("byte_array_length", lambda x, c: x * len(c), lambda: bytearray(b"ab"), lambda c: doing(lambda: c.append(1), c.pop)),
    ("byte_array_loop", lambda x, c: x * sum(c), lambda: bytearray(b"ab"), lambda c: doing(lambda: c.append(1), c.pop)),
    ("mapping_proxy", lambda x, c: x * types.MappingProxyType(c)["a"], lambda: {"a": 2}, lambda c: item(c, "a", 5)),
    ("in_mapping_proxy", lambda x, c: x * (2 if "b" in types.MappingProxyType(c) else 3), lambda: {"a": [2]}, lambda c: item(c, "b", 5)),
    ("got_from_mapping_proxy", lambda x, c: x * types.MappingProxyType(c).get("b", 1), lambda: {"a": [2]}, lambda c: item(c, "b", 5)),
    ("chained", lambda x, c: x * sum(itertools.chain(c, c)), lambda: [1, 2], lambda c: item(c, 0, 5)),
    ("copied", lambda x, c: x * c.copy()[0], lambda: [1, 2], lambda c: item(c, 0, 5)),
    ("matched", lambda x, c: matched(x, c), lambda: {"kind": 1}, lambda c: item(c, "kind", 5)),
    ("formatted", lambda x, c: x * len(f"{c}"), lambda: [1, 2], lambda c: item(c, 0, 555)),
]:
    if _change is not None:
        def _make_case(read=_read, make=_make, change=_change):
            c = make()
            return (lambda x, c: read(x, c)), (X, c), change(c)

        CASES[_name] = _make_case


def reorder(d: dict) -> Any:
    def turn():
        pairs = list(d.items())[::-1]
        d.clear()
        d.update(pairs)

    return doing(turn, turn)


def rekey(d: dict, new: dict) -> Any:
    old = dict(d)

    def put(other):
        d.clear()
        d.update(other)

    return doing(lambda: put(new), lambda: put(old))


def refill(s: set, *items: Any) -> None:
    s.clear()
    for i in items:
        s.add(i)


def named(n: int) -> int:
    return n


def first(*args: int) -> int:
    return args[0]


def attempt(get: Any, error: type, other: Any) -> Any:
    try:
        return get()
    except error:
        return other


def matched(x: Any, c: Any) -> Any:
    match c:
        case {"kind": 1}:
            return x * 2
        case _:
            return x * 3


@case
def view_of_a_dict_given():
    d = {2: 1}
    return lambda x, k: sum([x * v for v in k]), (X, d.keys()), item(d, 5, 1)


@case
def mapping_proxy_given():
    d = {"a": 2}
    return lambda x, k: x * k["a"], (X, types.MappingProxyType(d)), item(d, "a", 5)


@case
def list_in_a_tuple():
    c = [2]
    return lambda x, t: x * t[0][0], (X, (c,)), item(c, 0, 5)


@case
def dict_looked_up_by_an_object():
    a, b = Doubler(), Doubler()
    d = {a: 2, b: 3}
    return argument(lambda x, k: x * d[k], a, b)


@case
def dict_lacks_an_object():
    a, b = Doubler(), Doubler()
    d = {b: 3}
    return argument(lambda x, k: x * d.get(k, 1), a, b)


@case
def object_in_a_dict():
    a, b = Doubler(), Doubler()
    d = {b: 3}
    return argument(lambda x, k: x * (2 if k in d else 3), a, b)


@case
def object_in_a_list():
    a, b = Doubler(), Doubler()
    c = [b]
    return argument(lambda x, k: x * (2 if k in c else 3), a, b)


@case
def object_in_a_set():
    a, b = Doubler(), Doubler()
    c = {b}
    return argument(lambda x, k: x * (2 if k in c else 3), a, b)


@case
def index_of_an_object():
    a, b = Doubler(), Doubler()
    c = [b, a]
    return argument(lambda x, k: x * (2 + c.index(k)), a, b)


@case
def count_of_an_object():
    a, b = Doubler(), Doubler()
    c = [b, b]
    return argument(lambda x, k: x * (2 + c.count(k)), a, b)


@case
def lists_of_objects_compared():
    a, b = Doubler(), Doubler()
    c = [b]
    return argument(lambda x, k: x * (2 if k == c else 3), [a], [b])


@case
def dict_looked_up_by_a_tensor():
    a, b = X + 1, X + 2
    d = {a: 2, b: 3}
    return argument(lambda x, k: x * d[k], a, b)
