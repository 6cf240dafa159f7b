"""Guard mutations of look-ups by identity and equality: whether an object is among others may change with which object it is."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import operator
import threading
import types
from types import SimpleNamespace
from typing import Any

import torch

from tests.soundness.mutations.cases import Cases, Doubler, X, argument, attr, attr_name, made

CASES = Cases()
case = CASES.add


class Slots:
    __slots__ = ()


Named = collections.namedtuple("Named", "a n")
Data = dataclasses.make_dataclass("Data", ["a"])


class Equal:
    """Equal to another by its number."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Equal) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


def found(get: Any, error: type = Exception) -> int:
    try:
        get()
    except error:
        return 3
    return 2


def matched(a: Any, b: Any) -> int:
    held = SimpleNamespace(kept=b)
    match a:
        case held.kept:
            return 2
    return 3


def updated(container: Any, how: str, other: Any) -> Any:
    getattr(container, how)(other)
    return container


def stored(d: dict, key: Any) -> dict:
    d[key] = 3
    return d


_A, _B, _C = Doubler(), Doubler(), Doubler()
# Once with the argument among the others, and once not.
for _name, _read in [
    ("in_a_list_made", lambda x, a, b, c: x * (2 if a in [b, c] else 3)),
    ("not_in_a_list_made", lambda x, a, b, c: x * (2 if a not in [b, c] else 3)),
    ("in_a_tuple_made", lambda x, a, b, c: x * (2 if a in (b,) else 3)),
    ("in_a_nested_tuple_made", lambda x, a, b, c: x * (2 if (a, 1) in [(b, 1), (c, 1)] else 3)),
    ("in_a_set_made", lambda x, a, b, c: x * (2 if a in {b} else 3)),
    ("in_a_dict_made", lambda x, a, b, c: x * (2 if a in {b: 1} else 3)),
    ("in_values_made", lambda x, a, b, c: x * (2 if a in {1: b}.values() else 3)),
    ("in_items_made", lambda x, a, b, c: x * (2 if (1, a) in {1: b}.items() else 3)),
    ("in_keys_made", lambda x, a, b, c: x * (2 if a in {b: 1}.keys() else 3)),
    ("in_a_deque_made", lambda x, a, b, c: x * (2 if a in collections.deque([b, c]) else 3)),
    ("in_an_iterator_made", lambda x, a, b, c: x * (2 if a in iter([b, c]) else 3)),
    ("in_a_generator_made", lambda x, a, b, c: x * (2 if a in (v for v in (b, c)) else 3)),
    ("in_a_mapped_list_made", lambda x, a, b, c: x * (2 if a in map(lambda v: v, [b, c]) else 3)),
    ("in_by_operator", lambda x, a, b, c: x * (2 if operator.contains([b], a) else 3)),
    ("in_by_method", lambda x, a, b, c: x * (2 if [b].__contains__(a) else 3)),
    ("is_by_operator", lambda x, a, b, c: x * (2 if operator.is_(a, b) else 3)),
    ("equal_by_operator", lambda x, a, b, c: x * (2 if operator.eq(a, b) else 3)),
    ("equal_by_method", lambda x, a, b, c: x * (3 if a.__eq__(b) is NotImplemented else 2)),
    ("unequal", lambda x, a, b, c: x * (2 if a != b else 3)),
    ("ids_in_a_set", lambda x, a, b, c: x * len({id(v) for v in (a, b, c)})),
    ("index_in_a_list_made", lambda x, a, b, c: x * [c, b, a].index(a)),
    ("index_missing_in_a_list_made", lambda x, a, b, c: x * found(lambda: [b, c].index(a), ValueError)),
    ("index_in_a_tuple_made", lambda x, a, b, c: x * (c, b, a).index(a)),
    ("count_in_a_list_made", lambda x, a, b, c: x * [a, b, c].count(a)),
    ("count_in_a_tuple_made", lambda x, a, b, c: x * (a, b, c).count(a)),
    ("remove_from_a_list_made", lambda x, a, b, c: x * found(lambda: [b, c].remove(a), ValueError)),
    ("remove_from_a_set_made", lambda x, a, b, c: x * found(lambda: {b, c}.remove(a), KeyError)),
    ("discard_from_a_set_made", lambda x, a, b, c: x * discarded({b, c}, a)),
    ("get_from_a_dict_made", lambda x, a, b, c: x * {b: 2}.get(a, 3)),
    ("item_of_a_dict_made", lambda x, a, b, c: x * {a: 2, b: 3}[a]),
    ("pop_from_a_dict_made", lambda x, a, b, c: x * {b: 2}.pop(a, 3)),
    ("setdefault_in_a_dict_made", lambda x, a, b, c: x * {b: 2}.setdefault(a, 3)),
    ("length_of_a_dict_made", lambda x, a, b, c: x * len({a: 1, b: 2})),
    ("length_of_a_set_made", lambda x, a, b, c: x * len({a, b, c})),
    ("length_of_a_frozenset_made", lambda x, a, b, c: x * len(frozenset([a, b, c]))),
    ("length_of_a_counter_made", lambda x, a, b, c: x * len(collections.Counter([a, b, c]))),
    ("length_of_keys_made_unique", lambda x, a, b, c: x * len(dict.fromkeys([a, b, c]))),
    ("sets_made_intersect", lambda x, a, b, c: x * (2 + len({a} & {b}))),
    ("sets_made_are_disjoint", lambda x, a, b, c: x * (2 if {a}.isdisjoint([b, c]) else 3)),
    ("set_made_is_a_subset", lambda x, a, b, c: x * (2 if {a} <= {b, c} else 3)),
    ("set_unpacked_into_a_set", lambda x, a, b, c: x * len({*[a, b], c})),
    ("set_comprehension", lambda x, a, b, c: x * len({v for v in (a, b, c)})),
    ("dict_comprehension", lambda x, a, b, c: x * len({v: 1 for v in (a, b, c)})),
    ("dict_unpacked_into_a_dict", lambda x, a, b, c: x * len({**{a: 1}, **{b: 2}})),
    ("set_of_tuples_made", lambda x, a, b, c: x * len({(a, 1), (b, 1)})),
    ("set_of_a_list_made", lambda x, a, b, c: x * len(set([a, b, c]))),
    ("dict_of_pairs_made", lambda x, a, b, c: x * len(dict([(a, 1), (b, 2)]))),
    ("dict_of_zipped_made", lambda x, a, b, c: x * len(dict(zip([a, b], [1, 2])))),
    ("set_of_an_iterator_made", lambda x, a, b, c: x * len(set(iter([a, b, c])))),
    ("frozenset_of_an_iterator_made", lambda x, a, b, c: x * len(frozenset(reversed([a, b, c])))),
    ("keys_from_an_iterator", lambda x, a, b, c: x * len(dict.fromkeys(iter([a, b, c])))),
    ("counter_of_an_iterator", lambda x, a, b, c: x * len(collections.Counter(iter([a, b, c])))),
    ("sets_made_cut_by_operator", lambda x, a, b, c: x * (2 + len(operator.sub({a}, {b})))),
    ("sets_made_joined", lambda x, a, b, c: x * len({a} | {b})),
    ("sets_made_subtracted", lambda x, a, b, c: x * (2 + len({a} - {b}))),
    ("sets_made_differ", lambda x, a, b, c: x * (2 + len({a} ^ {b}))),
    ("sets_made_joined_by_method", lambda x, a, b, c: x * len({a}.union([b], [c]))),
    ("sets_made_subtracted_by_method", lambda x, a, b, c: x * (2 + len({a}.difference([b])))),
    ("sets_made_intersected_by_method", lambda x, a, b, c: x * (2 + len({a}.intersection([b])))),
    ("set_made_updated", lambda x, a, b, c: x * len(updated({a}, "update", [b, c]))),
    ("set_made_cut_down", lambda x, a, b, c: x * (2 + len(updated({a}, "difference_update", [b, c])))),
    ("set_made_kept_in_common", lambda x, a, b, c: x * (2 + len(updated({a}, "intersection_update", [b, c])))),
    ("set_made_cut_in_place", lambda x, a, b, c: x * (2 + len(operator.isub({a}, {b})))),
    ("set_made_joined_in_place", lambda x, a, b, c: x * (2 + len(operator.ior({a}, {b})))),
    ("keys_made_intersect", lambda x, a, b, c: x * (2 + len({a: 1}.keys() & {b}))),
    ("keys_made_equal", lambda x, a, b, c: x * (2 if {a: 1}.keys() == {b} else 3)),
    ("items_made_intersect", lambda x, a, b, c: x * (2 + len({1: a}.items() & {(1, b)}))),
    ("items_made_equal", lambda x, a, b, c: x * (2 if {1: a}.items() == {1: b}.items() else 3)),
    ("dicts_made_joined", lambda x, a, b, c: x * len({a: 1} | {b: 1})),
    ("dict_made_updated", lambda x, a, b, c: x * len(updated({a: 1}, "update", {b: 2}))),
    ("dict_made_stored_into", lambda x, a, b, c: x * stored({a: 2}, b)[a]),
    ("ordered_dicts_made_equal", lambda x, a, b, c: x * (2 if collections.OrderedDict(k=a) == collections.OrderedDict(k=b) else 3)),
    ("deques_made_equal", lambda x, a, b, c: x * (2 if collections.deque([a]) == collections.deque([b]) else 3)),
    ("slices_made_equal", lambda x, a, b, c: x * (2 if slice(a) == slice(b) else 3)),
    ("namespaces_made_equal", lambda x, a, b, c: x * (2 if SimpleNamespace(k=a) == SimpleNamespace(k=b) else 3)),
    ("cells_compared", lambda x, a, b, c: x * (2 if types.CellType(a) == types.CellType(b) else 3)),
    ("named_tuples_made_equal", lambda x, a, b, c: x * (2 if Named(a, 1) == Named(b, 1) else 3)),
    ("data_classes_made_equal", lambda x, a, b, c: x * (2 if Data(a) == Data(b) else 3)),
    ("found_by_count_of", lambda x, a, b, c: x * (2 + operator.countOf([b, c], a))),
    ("found_by_index_of", lambda x, a, b, c: x * operator.indexOf([c, b, a], a)),
    ("is_not_by_operator", lambda x, a, b, c: x * (2 if operator.is_not(a, b) else 3)),
    ("unequal_by_method", lambda x, a, b, c: x * (3 if a.__ne__(b) is NotImplemented else 2)),
    ("max_by_equality", lambda x, a, b, c: x * max([b, c], key=lambda v: 5 if v is a else 4).factor * (2 if a is b else 3)),
    ("grouped", lambda x, a, b, c: x * len([k for k, _ in itertools.groupby([a, b, c])])),
    ("sorted_by_identity", lambda x, a, b, c: x * [1, 2][sorted([0, 1], key=lambda i: (b, c)[i] is not a)[0]] * (1 if a is b else 2)),
    ("lists_made_equal", lambda x, a, b, c: x * (2 if [a] == [b] else 3)),
    ("tuples_made_equal", lambda x, a, b, c: x * (2 if (a, 1) == (b, 1) else 3)),
    ("dicts_made_equal", lambda x, a, b, c: x * (2 if {"k": a} == {"k": b} else 3)),
    ("sets_made_equal", lambda x, a, b, c: x * (2 if {a} == {b} else 3)),
    ("tuples_made_in_order", lambda x, a, b, c: x * (2 if (a, 1) < (b, 2) else 3) if a is b else x * found(lambda: (a, 1) < (b, 2), TypeError)),
    ("matched_by_value", lambda x, a, b, c: x * matched(a, b)),
    ("cached_by_object", lambda x, a, b, c: x * cached_pair(a, b)),
    ("any_is", lambda x, a, b, c: x * (2 if any(a is v for v in (b, c)) else 3)),
    ("filtered_by_identity", lambda x, a, b, c: x * (1 + len([v for v in (b, c) if v is not a]))),
    ("methods_compared", lambda x, a, b, c: x * (2 if a.__call__ == b.__call__ else 3)),
    ("methods_in_a_set", lambda x, a, b, c: x * len({a.__call__, b.__call__})),
    ("partials_compared", lambda x, a, b, c: x * (2 if functools.partial(a).func is functools.partial(b).func else 3)),
]:
    def _pair_case(read=_read):
        return made(lambda *v: read(*v), lambda: (X, _A, _B, _C), lambda: (X, _B, _B, _C))

    def _apart_case(read=_read):
        return made(lambda *v: read(*v), lambda: (X, _B, _B, _C), lambda: (X, _A, _B, _C))

    CASES[f"object_{_name}"] = _pair_case
    CASES[f"object_no_longer_{_name}"] = _apart_case


def closed_over(k):
    def inner(x):
        return x * k

    return inner


# What is no plain instance: functions made by one def, methods, containers, generators, modules, classes.
for _name, _make in [
    ("closures", lambda: closed_over(2)),
    ("methods", lambda: Doubler().__call__),
    ("builtin_methods", lambda: [].append),
    ("lists", lambda: []),
    ("dicts", lambda: {}),
    ("slotted", lambda: Slots()),
    ("classes", lambda: type("C", (), {})),
    ("python_modules", lambda: types.ModuleType("m")),
    ("partials", lambda: functools.partial(len)),
    ("networks", lambda: torch.nn.ReLU()),
    ("exceptions", lambda: ValueError()),
    ("generators", lambda: (v for v in ())),
    ("iterators", lambda: iter([])),
    ("properties", lambda: property()),
    ("plain_objects", lambda: object()),
    ("locks", lambda: threading.Lock()),
]:
    for _how, _read in [
        ("is", lambda x, a, b: x * (2 if a is b else 3)),
        ("in_a_list", lambda x, a, b: x * (2 if a in [b] else 3)),
        ("set_length", lambda x, a, b: x * len({a, b})),
    ]:
        def _two_case(read=_read, make=_make):
            a, b = make(), make()
            return made(lambda *v: read(*v), lambda: (X, a, b), lambda: (X, b, b))

        def _one_case(read=_read, make=_make):
            a, b = make(), make()
            return made(lambda *v: read(*v), lambda: (X, b, b), lambda: (X, a, b))

        if _name in ("lists", "dicts") and not _how.startswith("is"):
            continue
        CASES[f"{_name}_{_how}"] = _two_case
        CASES[f"{_name}_no_longer_{_how}"] = _one_case


def discarded(s: set, v: Any) -> int:
    s.discard(v)
    return len(s)


@functools.cache
def cached_pair(a: Any, b: Any) -> int:
    return 2 if a is b else 3


# Tensors are told apart by identity in sets and as keys, and by value in lists.
for _name, _read in [
    ("set_of_tensors_made", lambda x, a: x * len({x, a})),
    ("dict_of_tensors_made", lambda x, a: x * {x: 2}.get(a, 3)),
    ("tensor_in_a_set_made", lambda x, a: x * (2 if x in {a} else 3)),
    ("tensor_in_a_dict_made", lambda x, a: x * (2 if x in {a: 1} else 3)),
    ("tensor_is_any", lambda x, a: x * (2 if any(x is v for v in [a]) else 3)),
    ("tensor_ids", lambda x, a: x * len({id(x), id(a)})),
    ("tensor_set_to", lambda x, a: x * (2 if x.is_set_to(a) else 3)),
    ("tensor_in_a_list_made_or_error", lambda x, a: x * found(lambda: 2 if x in [a] else 3)),
    ("lists_of_tensors_compared", lambda x, a: x * found(lambda: [x] == [a])),
    ("index_of_a_tensor_made", lambda x, a: x * found(lambda: [a].index(x))),
]:
    CASES[_name] = lambda read=_read: made(lambda *v: read(*v), lambda: (X, X + 0), lambda: (X, X))
    CASES[f"no_longer_{_name}"] = lambda read=_read: made(lambda *v: read(*v), lambda: (X, X), lambda: (X, X + 0))


# Objects that say themselves when they are equal.
for _name, _read, _before, _after in [
    ("equal_object_in_a_list", lambda x, v: x * (2 if v in [Equal(1)] else 3), Equal(1), Equal(2)),
    ("equal_object_in_a_dict", lambda x, v: x * {Equal(1): 2}.get(v, 3), Equal(1), Equal(2)),
    ("equal_object_in_a_set", lambda x, v: x * (2 if v in {Equal(1)} else 3), Equal(1), Equal(2)),
    ("equal_object_index", lambda x, v: x * [Equal(1), Equal(2)].index(v), Equal(1), Equal(2)),
    ("equal_object_count", lambda x, v: x * [Equal(1), Equal(2)].count(v), Equal(1), Equal(9)),
    ("equal_object_in_a_tuple_compared", lambda x, v: x * (2 if (v,) == (Equal(1),) else 3), Equal(1), Equal(2)),
    ("number_in_a_list_made", lambda x, v: x * (2 if v in [1, 2] else 3), 1, 7),
    ("string_in_a_string", lambda x, v: x * (2 if v in "abc" else 3), "a", "z"),
    ("string_prefix", lambda x, v: x * (2 if v.startswith(("a", "b")) else 3), "ab", "z"),
    ("nan_in_a_list", lambda x, v: x * (2 if v in [v] else 3) if v != v else x, float("nan"), 1.0),
    ("type_in_a_dict", lambda x, v: x * {int: 2, bool: 3}[type(v)], 1, True),
    ("dtype_in_a_dict", lambda x, v: x * {x.dtype: 2}.get(v, 3), X.dtype, X.double().dtype),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: argument(lambda x, v: read(x, v), before, after)


@case
def number_of_an_equal_object():
    e = Equal(1)
    return lambda x: x * (2 if e in [Equal(1)] else 3), (X,), attr(e, "n", 5)


@case
def equality_replaced_on_the_class():
    cls = type("E", (), {"__hash__": object.__hash__})
    a, b = cls(), cls()
    return lambda x: x * (2 if a in [b] else 3), (X,), attr(cls, "__eq__", lambda s, o: True)


@case
def number_of_an_equal_object_in_sets():
    e = Equal(1)
    return lambda x: x * (2 + len({e}.intersection([Equal(1)]))), (X,), attr(e, "n", 5)


@case
def number_of_an_equal_object_in_joined_sets():
    e = Equal(1)
    return lambda x: x * len({e} | {Equal(1)}), (X,), attr(e, "n", 5)


@case
def number_of_an_equal_object_among_keys():
    e = Equal(1)
    return lambda x: x * (2 + len({e: 1}.keys() & {Equal(1)})), (X,), attr(e, "n", 5)


@case
def number_of_an_equal_object_among_numbers():
    e = Equal(1)
    return lambda x: x * (2 if 1 in {e} else 3), (X,), attr(type(e), "__eq__", lambda s, o: True)


@case
def equality_replaced_on_a_base():
    base = type("Base", (), {})
    cls = type("E", (base,), {})
    a, b = cls(), cls()
    return lambda x: x * [b, a].index(a), (X,), attr(base, "__eq__", lambda s, o: True)


@case
def hash_replaced_on_the_class():
    cls = type("E", (), {"__hash__": lambda s: 1, "__eq__": lambda s, o: True})
    a, b = cls(), cls()
    return lambda x: x * len({a, b}), (X,), attr(cls, "__hash__", lambda s: id(s))


@case
def hash_removed_from_the_class():
    cls = type("E", (), {"__hash__": lambda s: 1})
    a = cls()
    return lambda x: x * found(lambda: {a: 1}, TypeError), (X,), attr(cls, "__hash__", None)


@case
def contains_replaced_on_the_class():
    cls = type("E", (), {"__contains__": lambda s, o: True})
    a = cls()
    return lambda x: x * (2 if 1 in a else 3), (X,), attr(cls, "__contains__", lambda s, o: False)


@case
def contains_added_to_a_list_class():
    cls = type("L", (list,), {})
    a = cls([1])
    return lambda x: x * (2 if 1 in a else 3), (X,), attr(cls, "__contains__", lambda s, o: False)


@case
def contains_removed_and_iteration_answers():
    cls = type("E", (), {"__contains__": lambda s, o: False, "__iter__": lambda s: iter([1])})
    a = cls()
    return lambda x: x * (2 if 1 in a else 3), (X,), attr(cls, "__contains__")


@case
def equality_of_a_metaclass():
    meta = type("Meta", (type,), {"__hash__": type.__hash__})
    a, b = meta("A", (), {}), meta("B", (), {})
    return lambda x: x * (2 if a in [b] else 3), (X,), attr(meta, "__eq__", lambda s, o: True)


@case
def equality_of_a_metaclass_in_sets():
    meta = type("Meta", (type,), {"__hash__": lambda c: 1})
    a, b = meta("A", (), {}), meta("B", (), {})
    return lambda x: x * len({a, b}), (X,), attr(meta, "__eq__", lambda s, o: True)


@case
def hash_of_a_metaclass():
    meta = type("Meta", (type,), {"__hash__": lambda c: 1, "__eq__": lambda c, o: True})
    a, b = meta("A", (), {}), meta("B", (), {})
    return lambda x: x * len({a, b}), (X,), attr(meta, "__hash__", lambda c: id(c))


@case
def equality_of_an_enumeration():
    class Kind(enum.Enum):
        A = 1
        B = 2

    return lambda x: x * (2 if Kind.A in [Kind.B] else 3), (X,), attr(Kind, "__eq__", lambda s, o: True)


@case
def contains_of_a_metaclass():
    meta = type("Meta", (type,), {"__contains__": lambda s, o: True})
    a = meta("A", (), {})
    return lambda x: x * (2 if 1 in a else 3), (X,), attr(meta, "__contains__", lambda s, o: False)


@case
def equality_of_an_int_subclass():
    cls = type("N", (int,), {"__hash__": int.__hash__})
    n = cls(1)
    return lambda x: x * (2 if n in [1, 2] else 3), (X,), attr(cls, "__eq__", lambda s, o: False)


@case
def equality_of_a_string_subclass_as_a_key():
    cls = type("S", (str,), {"__hash__": str.__hash__})
    s = cls("a")
    return lambda x: x * {"a": 2}.get(s, 3), (X,), attr(cls, "__eq__", lambda s, o: False)


@case
def hash_of_a_frozen_key():
    cls = type("K", (), {"__hash__": lambda s: hash(s.n), "__eq__": lambda s, o: s.n == o.n})
    a, b = cls(), cls()
    a.n, b.n = 1, 2
    d = {b: 2}
    return lambda x: x * d.get(a, 3), (X,), attr_name(a, "n", 2)
