"""Guard mutations of special methods: added to a class later, replaced on it, on its base, on its metaclass."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from tests.soundness.mutations.cases import Cases, X, attr

CASES = Cases()
case = CASES.add


def attempt(get: Any, other: Any = 3) -> Any:
    try:
        return get()
    except Exception:
        return other


def called(cls: Any, *args: Any) -> Any:
    return cls(*args)


def managed(o: Any) -> int:
    try:
        with o as v:
            return v
    except Exception:
        return 3


def deleted(o: Any) -> int:
    o.n = 1
    try:
        del o.n
    except Exception:
        return 3
    return 2


def stored(o: Any) -> int:
    o.extra = 1
    return 2 if vars(o).pop("extra", None) is None else 3


def stored_item(o: Any) -> int:
    try:
        o[0] = 5
    except Exception:
        return 3
    return 2


def added_in_place(o: Any) -> int:
    try:
        o += 1
    except Exception:
        return 3
    return o if isinstance(o, int) else 2


def first(o: Any) -> int:
    for v in o:
        return v
    return 9


def delegated(o: Any, given: Any = None) -> int:
    def outer() -> Any:
        yield from o

    steps = outer()
    return next(steps) if given is None else (next(steps), steps.send(given))[1]


# name, what reads it, the method before (or None: there is none), and after (or ...: it is deleted)
for _name, _read, _before, _after in [
    ("iter", lambda x, o: x * attempt(lambda: first(o)), None, lambda s: iter([7])),
    ("iter", lambda x, o: x * attempt(lambda: list(o)[0]), lambda s: iter([5]), lambda s: iter([7])),
    ("next", lambda x, o: x * attempt(lambda: next(o)), lambda s: 5, lambda s: 7),
    ("next", lambda x, o: x * first(o), lambda s: 5, lambda s: 7),
    ("next", lambda x, o: x * delegated(o), lambda s: 5, lambda s: 7),
    ("next", lambda x, o: x * next(v for v in o), lambda s: 5, lambda s: 7),
    ("next", lambda x, o: x * next(zip(o, o))[0], lambda s: 5, lambda s: 7),
    ("send", lambda x, o: x * delegated(o, 1), lambda s, v: 5, lambda s, v: 7),
    ("getitem", lambda x, o: x * attempt(lambda: o[0]), None, lambda s, i: 7),
    ("getitem", lambda x, o: x * attempt(lambda: o[0]), lambda s, i: 5, lambda s, i: 7),
    ("getitem", lambda x, o: x * attempt(lambda: next(iter(o))), lambda s, i: 5, lambda s, i: 7),
    ("setitem", lambda x, o: x * stored_item(o), None, lambda s, i, v: None),
    ("len", lambda x, o: x * attempt(lambda: len(o)), None, lambda s: 7),
    ("len", lambda x, o: x * attempt(lambda: len(o)), lambda s: 5, lambda s: 7),
    ("len", lambda x, o: x * (2 if o else 3), lambda s: 5, lambda s: 0),
    ("bool", lambda x, o: x * (2 if o else 3), lambda s: True, lambda s: False),
    ("bool", lambda x, o: x * (2 if not o else 3), lambda s: False, ...),
    ("bool", lambda x, o: x * (2 if all([o]) else 3), None, lambda s: False),
    ("bool", lambda x, o: x * len([v for v in filter(None, [o, 1])]), None, lambda s: False),
    ("index", lambda x, o: x * attempt(lambda: [4, 5, 6][o]), None, lambda s: 1),
    ("index", lambda x, o: x * attempt(lambda: [4, 5, 6][o]), lambda s: 2, lambda s: 1),
    ("index", lambda x, o: x * attempt(lambda: operator.index(o)), lambda s: 2, lambda s: 1),
    ("index", lambda x, o: x * attempt(lambda: sum(range(o))), lambda s: 2, lambda s: 5),
    ("index", lambda x, o: x * attempt(lambda: len([1, 2, 3][:o])), lambda s: 2, lambda s: 1),
    ("index", lambda x, o: x[o].sum() + x, lambda s: 0, lambda s: 1),
    ("int", lambda x, o: x * attempt(lambda: int(o)), lambda s: 2, lambda s: 1),
    ("float", lambda x, o: x * attempt(lambda: float(o)), lambda s: 2.0, lambda s: 1.0),
    ("float", lambda x, o: x * attempt(lambda: math.sqrt(o)), lambda s: 4.0, lambda s: 9.0),
    ("complex", lambda x, o: x * attempt(lambda: complex(o)), lambda s: 2j, lambda s: 1j),
    ("round", lambda x, o: x * attempt(lambda: round(o)), None, lambda s: 1),
    ("floor", lambda x, o: x * attempt(lambda: math.floor(o)), lambda s: 2, lambda s: 1),
    ("abs", lambda x, o: x * attempt(lambda: abs(o)), None, lambda s: 1),
    ("neg", lambda x, o: x * attempt(lambda: -o), lambda s: 2, lambda s: 1),
    ("neg", lambda x, o: x * attempt(lambda: -o), None, lambda s: 1),
    ("add", lambda x, o: x * attempt(lambda: o + 1), None, lambda s, v: 7),
    ("add", lambda x, o: x * attempt(lambda: sum([o], o)), lambda s, v: 5, lambda s, v: 7),
    ("add", lambda x, o: x * attempt(lambda: functools.reduce(operator.add, [o, 1])), lambda s, v: 5, lambda s, v: 7),
    ("radd", lambda x, o: x * attempt(lambda: 1 + o), None, lambda s, v: 7),
    ("rmul", lambda x, o: attempt(lambda: x * o, x), None, lambda s, v: v - 7),
    ("iadd", lambda x, o: x * added_in_place(o), None, lambda s, v: 7),
    ("matmul", lambda x, o: x * attempt(lambda: o @ 1), None, lambda s, v: 7),
    ("lt", lambda x, o: x * attempt(lambda: 2 if o < 1 else 4), None, lambda s, v: True),
    ("lt", lambda x, o: x * attempt(lambda: 1 if min(1, o) is o else 2), None, lambda s, v: True),
    ("gt", lambda x, o: x * attempt(lambda: 1 if max(1, o) is o else 2), lambda s, v: True, lambda s, v: False),
    ("gt", lambda x, o: x * attempt(lambda: 2 if 1 < o else 4), None, lambda s, v: True),
    ("eq", lambda x, o: x * (2 if 1 == o else 4), None, lambda s, v: True),
    ("eq", lambda x, o: x * (2 if (1, o) == (1, 1) else 4), None, lambda s, v: True),
    ("eq", lambda x, o: x * (2 if {"a": o} == {"a": 1} else 4), None, lambda s, v: True),
    ("ne", lambda x, o: x * (2 if o != o else 4), None, lambda s, v: True),
    ("ne", lambda x, o: x * (2 if o != 1 else 4), None, lambda s, v: False),
    ("hash", lambda x, o: x * attempt(lambda: hash(o) % 7 + 1 if hash(o) < 100 else 9), None, lambda s: 5),
    ("call", lambda x, o: x * attempt(lambda: o()), None, lambda s: 7),
    ("call", lambda x, o: x * attempt(lambda: o()), lambda s: 5, lambda s: 7),
    ("call", lambda x, o: x * attempt(lambda: list(map(o, [1]))[0]), lambda s, v: 5, lambda s, v: 7),
    ("str", lambda x, o: x * len(str(o)), lambda s: "ab", lambda s: "abc"),
    ("str", lambda x, o: x * len(f"{o}"), lambda s: "ab", lambda s: "abc"),
    ("repr", lambda x, o: x * len(f"{o!r}"), lambda s: "ab", lambda s: "abc"),
    ("repr", lambda x, o: x * len(str([o])), lambda s: "ab", lambda s: "abc"),
    ("repr", lambda x, o: x * len(str(o)), lambda s: "ab", lambda s: "abc"),
    ("format", lambda x, o: x * len(f"{o:4}"), lambda s, f: "ab", lambda s, f: "abc"),
    ("enter", lambda x, o: x * attempt(lambda: managed(o)), None, lambda s: 7),
    ("enter", lambda x, o: x * managed(o), lambda s: 5, lambda s: 7),
    ("setattr", lambda x, o: x * stored(o), None, lambda s, n, v: None),
    ("delattr", lambda x, o: x * deleted(o), None, lambda s, n: 1 / 0),
    ("getattr", lambda x, o: x * attempt(lambda: o.missing), None, lambda s, n: 7),
    ("getattr", lambda x, o: x * attempt(lambda: o.missing), lambda s, n: 5, lambda s, n: 7),
    ("getattribute", lambda x, o: x * attempt(lambda: o.missing), None, lambda s, n: 7),
    ("dir", lambda x, o: x * len(dir(o)), lambda s: ["a"], lambda s: ["a", "b"]),
    ("init", lambda x, o: x * len(vars(called(type(o)))), None, lambda s: s.__dict__.update(a=1, b=2)),
    ("new", lambda x, o: x * (2 if isinstance(called(type(o)), type(o)) else 4), None, lambda c: 7),
    ("class_getitem", lambda x, o: x * attempt(lambda: type(o)[0]), None, classmethod(lambda c, i: 7)),
    ("init_subclass", lambda x, o: x * type("Sub", (type(o),), {}).flag, classmethod(lambda c: setattr(c, "flag", 5)),
     classmethod(lambda c: setattr(c, "flag", 7))),
    ("reversed", lambda x, o: x * attempt(lambda: next(reversed(o))), None, lambda s: iter([7])),
    ("copy", lambda x, o: x * attempt(lambda: __import__("copy").copy(o)), lambda s: 5, lambda s: 7),
    ("reduce_ex", lambda x, o: x * len(vars(__import__("copy").copy(o))), None, lambda s, p: (type(s), (), {"a": 1, "b": 2})),
    ("torch_function", lambda x, o: attempt(lambda: __import__("torch").add(x, o), x), None,
     classmethod(lambda c, f, t, a=(), k=None: a[0] * 7)),
    ("array", lambda x, o: x * attempt(lambda: int(__import__("numpy").asarray(o).sum())), lambda s, *a, **k: __import__("numpy").ones(2),
     lambda s, *a, **k: __import__("numpy").ones(5)),
    ("contains", lambda x, o: x * attempt(lambda: 2 if 1 in o else 4), None, lambda s, v: True),
    ("divmod", lambda x, o: x * attempt(lambda: divmod(o, 1)[0]), None, lambda s, v: (7, 1)),
    ("pow", lambda x, o: x * attempt(lambda: pow(o, 1)), lambda s, v, m=None: 5, lambda s, v, m=None: 7),
    ("length_hint", lambda x, o: x * operator.length_hint(o, 3), None, lambda s: 7),
    ("trunc", lambda x, o: x * attempt(lambda: math.trunc(o)), lambda s: 5, lambda s: 7),
    ("bytes", lambda x, o: x * len(bytes(o)), lambda s: b"ab", lambda s: b"abc"),
    ("fspath", lambda x, o: x * attempt(lambda: len(__import__("os").fspath(o))), lambda s: "ab", lambda s: "abc"),
    ("iter", lambda x, o: x * attempt(lambda: (lambda a, b: b)(*o)), lambda s: iter([5, 6]), lambda s: iter([5, 7])),
    ("iter", lambda x, o: x * attempt(lambda: (lambda a, b: b)(*o)), None, lambda s: iter([5, 7])),
    ("init_subclass", lambda x, o: x * attempt(lambda: type("Sub", (type(o),), {}).flag), None, classmethod(lambda c: setattr(c, "flag", 7))),
    ("keys", lambda x, o: x * attempt(lambda: (lambda a: a)(**o)), None, lambda s: ["a"]),
]:
    _method = _name if _name in ("keys", "send") else f"__{_name}__"
    _number = sum(k.startswith(f"special_{_name}_") for k in CASES) + 1

    def _special_case(read=_read, method=_method, before=_before, after=_after):
        extra = {"__exit__": lambda s, *e: None} if method == "__enter__" else {}
        extra = {**extra, "__getitem__": lambda s, k: 7} if method == "keys" else extra
        extra = {**extra, "__iter__": lambda s: s} if method in ("__next__", "send") else extra
        extra = {**extra, "__next__": lambda s: 1} if method == "send" else extra
        base = type("Base", (), {} if before is None else {method: before})
        o = type("Child", (base,), extra)()
        # What was there is replaced on the base; what was not comes to the class itself.
        owner = type(o) if before is None else base
        return (lambda x: read(x, o)), (X,), attr(owner, method, *([] if after is ... else [after]))

    CASES[f"special_{_name}_{_number}"] = _special_case

# Of subclasses of builtin types, whose C code knows better.
for _name, _base, _value, _read, _after in [
    ("list_len", list, [1, 2], lambda x, o: x * len(o), lambda s: 7),
    ("list_iter", list, [1, 2], lambda x, o: x * sum(o), lambda s: iter([7])),
    ("list_getitem", list, [1, 2], lambda x, o: x * o[0], lambda s, i: 7),
    ("list_bool", list, [1, 2], lambda x, o: x * (2 if o else 3), lambda s: False),
    ("list_eq", list, [1, 2], lambda x, o: x * (2 if o == [1, 2] else 3), lambda s, v: False),
    ("list_append", list, [1, 2], lambda x, o: x * appended(o), lambda s, v: None),
    ("list_contains", list, [1, 2], lambda x, o: x * (2 if 1 in o else 3), lambda s, v: False),
    ("list_reversed", list, [1, 2], lambda x, o: x * next(reversed(o)), lambda s: iter([7])),
    ("dict_getitem", dict, {1: 2}, lambda x, o: x * o[1], lambda s, k: 7),
    ("dict_get", dict, {1: 2}, lambda x, o: x * o.get(1), lambda s, k: 7),
    ("dict_contains", dict, {1: 2}, lambda x, o: x * (2 if 1 in o else 3), lambda s, k: False),
    ("dict_iter", dict, {1: 2}, lambda x, o: x * sum(o), lambda s: iter([7])),
    ("dict_keys", dict, {1: 2}, lambda x, o: x * sum(o.keys()), lambda s: [7]),
    ("dict_items", dict, {1: 2}, lambda x, o: x * sum([v for _, v in o.items()]), lambda s: [(1, 7)]),
    ("dict_len", dict, {1: 2}, lambda x, o: x * len(o), lambda s: 7),
    ("dict_setitem", dict, {1: 2}, lambda x, o: x * put(o), lambda s, k, v: None),
    ("tuple_getitem", tuple, (1, 2), lambda x, o: x * o[0], lambda s, i: 7),
    ("tuple_iter", tuple, (1, 2), lambda x, o: x * sum(o), lambda s: iter([7])),
    ("tuple_len", tuple, (1, 2), lambda x, o: x * len(o), lambda s: 7),
    ("set_contains", set, {1, 2}, lambda x, o: x * (2 if 1 in o else 3), lambda s, v: False),
    ("set_iter", set, {1, 2}, lambda x, o: x * sum(o), lambda s: iter([7])),
    ("set_or", set, {1, 2}, lambda x, o: x * len(o | {5}), lambda s, v: {1}),
    ("int_add", int, 2, lambda x, o: x * (o + 1), lambda s, v: 7),
    ("int_bool", int, 2, lambda x, o: x * (2 if o else 3), lambda s: False),
    ("int_eq", int, 2, lambda x, o: x * (2 if o == 2 else 3), lambda s, v: False),
    ("int_lt", int, 2, lambda x, o: x * (2 if o < 5 else 3), lambda s, v: False),
    ("int_int", int, 2, lambda x, o: x * int(o), lambda s: 7),
    ("int_str", int, 2, lambda x, o: x * len(str(o)), lambda s: "abc"),
    ("int_rmul", int, 2, lambda x, o: x * (3 * o), lambda s, v: 7),
    ("float_mul", float, 2.0, lambda x, o: x * (o * 2), lambda s, v: 7),
    ("float_float", float, 2.0, lambda x, o: x * float(o), lambda s: 7.0),
    ("str_len", str, "ab", lambda x, o: x * len(o), lambda s: 7),
    ("str_eq", str, "ab", lambda x, o: x * (2 if o == "ab" else 3), lambda s, v: False),
    ("str_upper", str, "ab", lambda x, o: x * len(o.upper()), lambda s: "abc"),
    ("str_add", str, "ab", lambda x, o: x * len(o + "c"), lambda s, v: "q"),
    ("str_str", str, "ab", lambda x, o: x * len(f"{o}"), lambda s: "q"),
    ("str_hash", str, "ab", lambda x, o: x * {"ab": 2}.get(o, 3), lambda s: 1),
]:
    def _builtin_case(read=_read, base=_base, value=_value, after=_after, name=_name.split("_")[1]):
        method = name if name in ("append", "get", "keys", "items", "upper") else f"__{name}__"
        cls = type("Child", (base,), {"__hash__": base.__hash__})
        o = cls(value)
        return (lambda x: read(x, o)), (X,), attr(cls, method, after)

    CASES[f"special_of_a_{_name}"] = _builtin_case


def appended(o: Any) -> int:
    o.append(1)
    n = len(o)
    del o[2:]
    return n


def put(o: Any) -> int:
    o[5] = 1
    n = len(o)
    o.pop(5, 0)
    return n


# Of a metaclass.
for _name, _read, _after in [
    ("call", lambda x, c: x * (2 if isinstance(c(), c) else 3), lambda c: 7),
    ("len", lambda x, c: x * attempt(lambda: len(c)), lambda c: 7),
    ("bool", lambda x, c: x * (2 if c else 3), lambda c: False),
    ("iter", lambda x, c: x * attempt(lambda: first(c)), lambda c: iter([7])),
    ("getitem", lambda x, c: x * attempt(lambda: c[0]), lambda c, i: 7),
    ("getattr", lambda x, c: x * attempt(lambda: c.missing), lambda c, n: 7),
    ("instancecheck", lambda x, c: x * (2 if isinstance(1, c) else 3), lambda c, v: True),
    ("subclasscheck", lambda x, c: x * (2 if issubclass(int, c) else 3), lambda c, v: True),
    ("add", lambda x, c: x * attempt(lambda: c + 1), lambda c, v: 7),
    ("repr", lambda x, c: x * len(f"{c}"), lambda c: "q"),
    ("new", lambda x, c: x * len(made_class(c).__name__), lambda m, n, b, d: type.__new__(m, "Longer", b, d)),
]:
    def _meta_case(read=_read, name=_name, after=_after):
        meta = type("Meta", (type,), {})
        cls = meta("Child", (), {})
        return (lambda x: read(x, cls)), (X,), attr(meta, f"__{name}__", after)

    CASES[f"special_{_name}_of_a_metaclass"] = _meta_case


def made_class(c: Any) -> Any:
    class Sub(c):
        pass

    return Sub
