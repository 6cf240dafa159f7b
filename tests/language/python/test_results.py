"""Objects that a program gives: made again at each call, with identity and order kept."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import operator
import types
import typing
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Box:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Slotted:
    __slots__ = ("a", "b")


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 3
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    value: Any = dataclasses.field(compare=False, default=None)


@dataclasses.dataclass(slots=True)
class Slim:
    x: Any
    n: int = 1


class Pair(typing.NamedTuple):
    first: Any
    second: Any = 0

    def swapped(self) -> Pair:
        return Pair(self.second, self.first)


Old = collections.namedtuple("Old", "a b")


class Output(collections.OrderedDict):
    """As transformers' ModelOutput: fields are items and attributes."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        for name, value in fields.items():
            if value is not None:
                self[name] = value

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[k] for k in self.keys())


class Attributes(dict):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    __setattr__ = dict.__setitem__


class Failure(ValueError):
    def __init__(self, text: str, value: Any) -> None:
        super().__init__(text)
        self.value = value


class Items(list):
    kind = "items"


copy.copy(Point(1))  # caches the names of its slots on the class


@table.snippet()
def plain_containers(x):
    y = x * 2
    d = {"a": y, 1: {2: [x]}, (1, "b"): None, None: 2.5}
    return [y, (y, [x]), d, {1, "s"}, frozenset({2}), bytearray(b"ab"), b"c", 1j, slice(1, y.dim())]


@table.snippet()
def special_containers(x):
    d = collections.defaultdict(list, a=[x])
    d["b"].append(x * 2)
    o = collections.OrderedDict([("z", x), ("a", 1)])
    o.move_to_end("z")
    c = collections.Counter("abca")
    q = collections.deque([x * 3, 1, 2], maxlen=2)
    m = collections.ChainMap({"a": x})
    return d, o, c, q, m["a"] + 1, types.SimpleNamespace(x=x, y=[x]), Items([x, 1])


@table.snippet()
def dataclasses_made(x):
    p = Point(x * 2)
    p.tags.append("t")
    q = dataclasses.replace(p, y=x)
    names = [field.name for field in dataclasses.fields(p)]
    return p, q, q.tags is p.tags, Frozen(1, x), Frozen(1) < Frozen(2), Slim(x + 1), dataclasses.astuple(Slim(1)), names


@table.snippet()
def named_tuples_made(x):
    p = Pair(x * 2)
    q = p._replace(second=x)
    o = Old(b=x, a=1)
    first, second = q.swapped()
    return p, q, q.swapped(), o, o._asdict(), first + second, p._fields, Pair._make([1, x])


@table.snippet()
def model_outputs(x):
    out = Output(loss=None, logits=x * 2, hidden=(x, x + 1))
    out["extra"] = out.logits + 1
    return out, out.to_tuple(), out["logits"] is out.logits, list(out), len(out)


@table.snippet()
def dict_subclass_with_attributes(x):
    a = Attributes(x=x)
    a.y = a.x * 2
    return a, a["y"] + 1, hasattr(a, "nope")


@table.snippet()
def functions_returned(x):
    y, n = x * 2, 0

    def add(v, k=3, *, z=y):
        nonlocal n
        n += 1
        return v + y * k + z + n

    add.note = "kept"
    return add, add(x), lambda: y, functools.partial(add, x, k=1), [].append, x.sum, operator.itemgetter(1)


@table.snippet()
def bound_methods_returned(x):
    p = Pair(x, x * 2)
    return p.swapped, "a-b".split, {}.get, Point.__init__, p.swapped()


@table.snippet()
def iterators_returned(x):
    items = [x * 2, x + 1, 3]
    i, e = iter(items), enumerate(items)
    next(i)
    return i, e, zip(items, "ab"), reversed(items), itertools.chain(items, [1]), itertools.islice(items, 2), range(3)


@table.snippet()
def exceptions_returned(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as inner:
            raise Failure("b", x * 2) from inner
    except Failure as error:
        error.add_note("noted")
        return error, error.value + 1, ValueError("c", x)


@table.snippet()
def classes_and_enums_returned(x):
    return x * 2, Box, Color.RED, Color["BLUE"], torch.float32, torch.nn, len, {Color.RED: x}, Ellipsis, type(x)


@table.snippet()
def identity_within_results(x):
    y = x * 2
    shared = [y]
    box = Box(s=shared, me=None)
    box.me = box
    shared.append(shared)
    return {"a": shared, "b": (shared, box), "c": y, "d": box.s is shared, "e": [box, box]}


@table.snippet(args=lambda i: ([t(i), t(i + 1)], {"k": t(i + 2)}))
def arguments_in_results(items, d):
    y = items[0] * 2
    return items, {"d": d, "first": items[0], "y": y, "view": items[1][0]}, (d["k"], items)


@table.snippet()
def instances_made(x):
    a = Box(v=x * 2, other=None)
    b = Box(v=a.v + 1, other=a)
    a.other = b
    s = Slotted()
    s.a = a
    n = object.__new__(Box)
    return a, b.other.v, s, n, isinstance(a, Box)


@table.snippet()
def order_of_made_dicts(x):
    d = {"a": x, "b": x + 1, "c": x + 2}
    d["a"] = d.pop("a")
    del d["b"]
    d["b"] = 1
    merged = {"z": 0} | d | {"a": 5}
    return d, merged, list(reversed(d)), dict(sorted(d.items(), key=lambda kv: kv[0]))


@table.snippet()
def modules_of_values_copied(x):
    deep = {"a": [x * 2, [1]], "b": Point(x)}
    shallow = copy.copy(deep)
    twin = copy.deepcopy(Point([1, 2], {"k": (1, 2)}))
    shallow["b"] = deep["a"][:]
    return shallow, deep, twin, [*deep["a"]], dict(deep) is deep


@table.snippet()
def tuple_and_str_subclasses(x):
    class_ = type(Pair(1, 2))
    shape = torch.Size((1, 2))
    return class_, shape, x.view(12), torch.Size([*x.shape, 1]), Pair(Pair(x * 1, 1), 2)


@table.program(recompiles=(1,))
def the_result_is_kept_state() -> Any:
    state = Box(last=None, items=[])

    def fn(x):
        out = {"x": x * 2}
        state.last = out
        state.items[:] = [out, out["x"]]
        return out

    return fn, state


@table.program(calls=4)
def fresh_results_at_each_call() -> Any:
    kept: list[Any] = []

    def fn(x):
        result = [x * 2, {"a": []}]
        return result

    def both(x):
        got = fn(x)
        got[1]["a"].append(1)
        return got

    return both, kept


@table.snippet()
def generator_returned(x):
    def rows():
        for row in x:
            yield row * 2

    return rows(), x * 3


@table.snippet()
def nothing_returned(x):
    x.mul_(2)


@table.snippet()
def only_arguments_returned(x, y):
    z = x * 2
    y.copy_(z)
    return y, x


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
