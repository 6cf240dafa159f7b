"""Lists, dicts, sets, tuples: methods, slices, order, mutation of arguments, unpacking, subclasses."""

from __future__ import annotations

import collections
import operator
import weakref
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Thing:
    pass


THINGS = {Thing() for _ in range(3)}
ALIVE = weakref.WeakSet(THINGS)


class OwnDict(dict):
    pass


class Counted(dict):
    def __init__(self) -> None:
        self.stored: list[Any] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        self.stored.append(key)
        super().__setitem__(key, value)


@table.snippet(options={"fullgraph": True})
def dicts_of_keys(x):
    made = [cls.fromkeys(["a", "b"], x * 2) for cls in (dict, OwnDict, Counted, collections.OrderedDict, collections.defaultdict)]
    return made, [type(d) for d in made], made[2].stored, OwnDict.fromkeys({"c": 1})


class Hinting:
    def __init__(self, hint: Any, size: Any = None) -> None:
        self.hint, self.size = hint, size

    def __length_hint__(self) -> Any:
        if self.hint is None:
            raise TypeError("no hint")
        return self.hint


class Sized(Hinting):
    def __len__(self) -> Any:
        if self.size is None:
            raise TypeError("no size")
        return self.size


@table.snippet(options={"fullgraph": True})
def hints_of_a_length(x):
    def tried(*args):
        try:
            return operator.length_hint(*args)
        except (TypeError, ValueError) as e:
            return type(e), str(e)

    given = [[1, 2], x, "abc", iter([1, 2, 3]), {1: 2}, Hinting(4), Hinting(NotImplemented), Hinting(None), Sized(3, 2), Sized(3), Sized(1, -1), object()]
    wrong = [(Hinting("a"),), (Hinting(-1),), (Hinting(True),), (x, "a"), (object(), True), (object(), None)]
    return x * tried(given), [tried(v) for v in given], [tried(v, 7) for v in given], [tried(*args) for args in wrong]


@table.snippet(breaks=True)
def hints_that_c_gives(x):
    it = iter(range(5))
    next(it)
    return x * operator.length_hint(it), operator.length_hint(zip([1], [2])), operator.length_hint(reversed([1, 2]))


@table.snippet()
def slices_that_hold_tensors(x, y):
    parts = [slice(x * 2, None), slice(0, [y + 1], x.shape)]
    return parts, slice(1, 2), {"at": slice(None, None, y)}


@table.snippet(breaks=True, args=lambda place: (t(place), torch.tensor(place)), recompiles=(1, 2))
def slices_bounded_by_tensors(x, n):
    low, high = n.clamp(0, 1), n + 1
    return x[low:high, :] * 2, x[slice(low, None)]


class Index:
    def __init__(self, n: int) -> None:
        self.n = n

    def __index__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Index({self.n})"


@table.snippet(
    breaks=True, args=lambda place: (t(place), slice(torch.tensor(place), None), (slice(Index(place), 3),)), recompiles=(1, 2)
)
def slices_from_outside_that_hold_tensors_and_objects(x, low, both):
    return x[low] * 2, x[both], low.start + 1


@table.snippet(args=lambda place: (t(place), {1: place, "a": place}), recompiles=(1, 2))
def keys_that_are_equal_are_one(x, d):
    d[True] = x.dim() + 5
    first = x * d[1], x * d[1.0]
    d[(1, 2.0)] = x
    second = d[(True, 2)] * 2
    d["a"] = d.pop(True)
    return first, second, 1 in d, (1, 2) in d, x + d["a"]


@table.snippet(args=lambda place: (t(place), {1: 0, (1, 2): "old"}))
def keys_that_are_equal_are_written(x, kept):
    kept[True] = x * 3
    kept[2.0] = x * 4
    found = kept[1] + kept[2]
    kept[(True, 2.0)] = found
    return found, kept[(1.0, 2)] * 2, len(kept)


@table.snippet()
def sizes_of_sets_of_objects(x):
    ALIVE_BEFORE = len(ALIVE)
    return x * len(THINGS), ALIVE_BEFORE, bool(THINGS), x + len(frozenset(THINGS))


@table.snippet()
def list_methods(x):
    a = [3, 1, 2]
    a.append(4)
    a.extend((5, 6))
    a.insert(1, 9)
    a.remove(5)
    last, third = a.pop(), a.pop(2)
    a.sort(reverse=True)
    b = a.copy()
    a.reverse()
    a.clear()
    return [x * v for v in b], last, third, b.index(9), b.count(3), a, b * 2, b + [0]


@table.snippet()
def list_errors(x):
    told = []
    one = [1]
    actions = (lambda: [].pop(), lambda: one.remove(2), lambda: one.index(5), lambda: one[3], lambda: one["a"], lambda: (1,)[5])
    for action in (*actions, lambda: one + (2,)):
        try:
            action()
        except (IndexError, ValueError, TypeError) as error:
            told.append(str(error))
    return x + len(told), told


@table.snippet()
def slices(x):
    a = list(range(10))
    b = a[::2], a[7:2:-2], a[-3:], a[:], a[slice(1, 8, 3)]
    a[2:5] = [x, x * 2]
    a[::3] = [0] * len(a[::3])
    del a[-2:]
    del a[0]
    a[1:1] = ["in"]
    told = []
    try:
        a[::2] = [1]
    except ValueError as error:
        told.append(str(error))
    return a, b, told, "abcdef"[1:-1:2], (1, 2, 3)[::-1], x[1:, ::2]


@table.snippet()
def dict_methods(x):
    d = {"a": x, "b": 2}
    d.setdefault("c", []).append(x * 2)
    d.update({"b": 3}, e=5)
    d.update([("f", 6)])
    popped = d.pop("a")
    missing = d.pop("zz", None), d.get("zz"), d.get("zz", 0)
    item = d.popitem()
    copied = d.copy()
    copied["b"] = 100
    return popped + d["b"], d, missing, item, dict.fromkeys("ab", 0), d | {"g": 1}, list(d.items()), "b" in d.keys(), 5 in d.values()


@table.snippet()
def dict_order(x):
    d = {"b": 1, "a": 2}
    d["c"] = 3
    d["b"] = 4
    del d["a"]
    d["a"] = 5
    return {k: x * v for k, v in d.items()}, list(d), list(reversed(d)), max(d), sorted(d.items(), key=lambda kv: -kv[1])


@table.snippet()
def dict_errors(x):
    told = []
    for action in (lambda: {}["k"], lambda: {}.pop("p"), lambda: {}.popitem(), lambda: {[]: 1}, lambda: {"a": 1} < {}):
        try:
            action()
        except (KeyError, TypeError) as error:
            told.append(str(error))
    return x + len(told), told


@table.snippet()
def dict_changed_while_iterated(x):
    d = {"a": 1, "b": 2}
    try:
        for key in d:
            d[key + "!"] = x
    except RuntimeError as error:
        return x * len(d), str(error)


@table.snippet()
def dict_views(x):
    d = {"a": 1, "b": 2}
    keys, values, items = d.keys(), d.values(), d.items()
    d["c"] = 3
    return x * sum(values), list(keys), len(items), keys & {"a", "z"}, keys - {"a"}, ("a", 1) in items, list(keys | {"q"})[-1] == "q"


@table.snippet()
def list_changed_while_iterated(x):
    a, out = [1, 2, 3, 4], []
    for v in a:
        if v == 2:
            a.remove(v)
        if v == 4:
            a.append(5)
        out.append(x * v)
    return out, a


@table.snippet()
def set_methods(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(9)
    s |= {7}
    s.update([8], (9,))
    other = frozenset([2, 3, 20])
    told = []
    try:
        s.remove(100)
    except KeyError as error:
        told.append(error.args)
    return x * len(s), s & other, s - other, s ^ other, s | other, other <= s, s.isdisjoint({0}), sorted(s), told, s.intersection([1])


@table.snippet()
def tuples(x):
    p = x, (1, 2)
    (a, (b, c)) = p
    q = p + (3,) * 2
    return a * b + c, q, q.index(3), q.count(3), len(()), (1, 2) < (1, 3), tuple("ab"), () == ()


@table.snippet()
def unpacking(x):
    first, *middle, last = [x, 1, 2, x * 2]
    *init, end = "abc"
    (a, b), [c, *d] = (1, 2), (3,)
    row0, row1, row2 = x
    i, box = 0, [0, 0]
    i, box[i] = 1, 5
    return first + last, middle, init, end, a + b + c, d, row0 + row1 - row2, i, box


@table.snippet()
def unpacking_errors(x):
    told = []
    for values in ([1], [1, 2, 3], 5):
        try:
            a, b = values
        except (ValueError, TypeError) as error:
            told.append(str(error))
    try:
        a, b, *c = [1]
    except ValueError as error:
        told.append(str(error))
    return x * len(told), told


@table.snippet()
def assignments_to_many_targets(x):
    a = b = c = [x]
    a.append(1)
    d, e = f = (1, 2)
    g = {}
    g["k"], g["l"] = g["m"] = x, 3
    a[0], g["n"] = g["k"] * 2, a[0]
    return b, c is a, d + e, f, g


@table.snippet()
def swaps(x, y):
    x, y = y, x
    items = [1, 2, 3]
    items[0], items[2] = items[2], items[0]
    return x - y, items


@table.snippet()
def nested_containers(x):
    tree = {"a": [{"b": (x, [x * 2])}], "c": {}}
    tree["a"][0]["b"][1].append(3)
    tree["c"]["self"] = tree
    return tree, tree["c"]["self"]["a"][0]["b"][0] + 1


@table.snippet()
def identity_inside_a_result(x):
    inner = [x]
    outer = [inner, inner, {"k": inner}, (inner,)]
    outer.append(outer)
    return outer, inner, x, x * 2


@table.snippet()
def sort_with_keys(x):
    words = ["ccc", "a", "BB", "dd"]
    words.sort(key=len)
    pairs = sorted([(2, "b"), (1, "z"), (2, "a")], key=lambda p: (-p[0], p[1]))
    rows = sorted(range(3), key=lambda i: (i * 7) % 3, reverse=True)
    return torch.stack([x[i] for i in rows]), words, pairs, sorted("hello", key=str.upper), min(words, key=len), max([1, -5], key=abs)


@table.snippet()
def sort_whose_key_raises(x):
    a = [3, 1, 2]
    try:
        a.sort(key=lambda v: [][v])
    except IndexError as error:
        return x * 2, a, str(error)


@table.snippet()
def list_subclass(x):
    class Stack(list):
        pushes = 0

        def push(self, v):
            self.pushes += 1
            self.append(v)
            return self

        def __getitem__(self, key):
            return super().__getitem__(-1 if key == "top" else key)

    s = Stack([x]).push(x * 2)
    s += [3]
    return s["top"], s[1] + 1, s, s.pushes, len(s), type(s + [1]) is list, isinstance(s, list)


@table.snippet()
def dict_subclass(x):
    class Defaulting(dict):
        def __missing__(self, key):
            self[key] = value = x * len(key)
            return value

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError as error:
                raise AttributeError(name) from error

    d = Defaulting(a=1)
    return d["bb"] + d["a"], d.bb, d, d.get("zzz"), list(d)


@table.snippet()
def dict_subclass_that_overrides(x):
    class Upper(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key.upper(), value)

        def __contains__(self, key):
            return super().__contains__(key.upper())

        def keys(self):
            return ["only"]

    d = Upper(a=1)
    d["b"] = x
    d.update(c=2)
    return d["B"] * 2, list(d), "b" in d, d.keys(), len(d)


@table.snippet()
def tuple_and_str_subclasses(x):
    class P(tuple):
        def total(self):
            return sum(self)

    class Name(str):
        def shout(self):
            return Name(self.upper() + "!")

    p = P([1, 2, 3])
    return x * p.total(), p, p[1:], type(p[1:]) is tuple, Name("a").shout(), Name("k") == "k", {"k": 1}[Name("k")]


@table.snippet()
def int_and_float_subclasses(x):
    class Meters(int):
        def __add__(self, other):
            return Meters(int(self) + int(other))

    m = Meters(3) + 4
    return x * m, m, type(m - 1) is int, isinstance(m, int), m == 7


@table.snippet(args=lambda i: ([t(i), t(i + 1)], {"k": t(i + 2)}, {1, 2}))
def arguments_are_changed(a, d, s):
    a.append(a[0] + a[1])
    a[0] = a[0] * 2
    d["new"] = d.pop("k") * 2
    d["list"] = a
    s.add(len(a))
    return len(s)


@table.snippet(args=lambda i: ([t(i), [1, 2, 3]],))
def nested_argument_is_changed(a):
    x, numbers = a
    numbers.reverse()
    numbers[1:] = []
    del a[1]
    a += [numbers, x * numbers[0]]
    return a[1] is numbers


@table.snippet(args=lambda i: ([t(i)] * [2, 3, 2][i],), recompiles=(1,))
def length_of_an_argument_changes(a):
    return sum(a[1:], a[0])


@table.snippet(args=lambda i: (dict([("a", t(i)), ("b", t(i + 1))] if i != 1 else [("b", t(i)), ("a", t(i + 1))]),), recompiles=(1,))
def order_of_an_argument_changes(d):
    return list(d), list(d.values())[0] * 2


@table.program()
def list_from_outside_is_rewritten() -> Any:
    history: list[Any] = [torch.zeros(3, 4)]

    def fn(x):
        history[-1] = history[-1] + x
        history[:] = [history[-1]]
        return history[0] * 2

    return fn, history


@table.program(recompiles=(1,))
def dict_from_outside_is_rewritten() -> Any:
    cache: dict[str, Any] = {"k": None, "v": None}

    def fn(x):
        old = cache["k"]
        cache["k"] = x * 2
        cache["v"] = cache.pop("v")
        return old if old is None else old + x

    return fn, cache


@table.program(recompiles=(1,))
def custom_containers_from_outside() -> Any:
    class Cache(dict):
        hits = 0

    class Layers(list):
        name = "layers"

    cache, layers = Cache(w=t(1)), Layers([t(2), t(3)])

    def fn(x):
        cache["last"] = x
        for layer in layers:
            x = x * layer + cache["w"]
        return x, layers.name, cache.hits

    return fn, (cache, layers)


@table.snippet()
def deque_and_others_compared(x):
    return x * 2, [1, 2] == [1, 2], [1] != (1,), {1: 2} == {1: 2.0}, {1} == frozenset([1]), collections.deque([1]) == collections.deque([1])


class Ordered(collections.OrderedDict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.keys_seen = [*self]


class Noting(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, (value, "set"))


@table.snippet(args=lambda place: (t(place), {"a": place, "b": [place]}), recompiles=(1, 2, 3))
def ordered_dicts_of_classes_of_their_own(x, d):
    made = Ordered(d), Ordered(d, c=3), Ordered([(1, 2), (3, 4)]), Ordered(), Noting(d), Noting(Noting(d))
    made[0].move_to_end("a")
    return x * len(made[0].keys_seen), [(m, [*m], [*reversed(m)]) for m in made], made[0] == made[1]


@table.snippet(args=lambda place: (t(place), {Key(k): k for k in range(2)}), breaks=True, recompiles=(1, 2, 3), min_graphs=0)
def keys_that_hash_their_own_way(x, d):
    d[Key(0)] = "new"
    copied = dict(d)
    copied.setdefault(Key(8), x)
    return x * len(d), {**d}, [*d], Key(1) in d, d.get(Key(5)), copied, d | {Key(3): 4}


class Key:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return hash(self.n)

    def __eq__(self, other):
        return isinstance(other, Key) and self.n == other.n


class Looking(dict):
    """Shows other items than it holds."""

    def __getitem__(self, key):
        return "looked up"

    def keys(self):
        return ["shown"]


class Walked(dict):
    def __iter__(self):
        return iter(["walked"])

    def __getitem__(self, key):
        return "looked up"


class Ordered(collections.OrderedDict):
    def __getitem__(self, key):
        return "looked up"


@table.program(calls=4, change={1: lambda held: held.update(b=2), 3: lambda held: dict.__setitem__(held, "a", 5)}, recompiles=(1, 3))
def what_c_reads_of_dict_subclasses() -> Any:
    def given(**kwargs):
        return kwargs

    held = Looking(a=1)

    def fn(x):
        d = {"z": 1}
        d |= held
        mine = Looking(t=x)
        merged = {**held, **Walked(a=2), **Ordered(c=3)}, {} | held, dict(held, k=2), dict(mine), d, collections.Counter(held)
        more = given(**held), given(**Walked(a=2)), given(**mine), given(q=x * 2, **Ordered(c=3)), collections.OrderedDict(held)
        return x + len(d), merged, more, dict(**held), held.copy()

    return fn, held


# A copy of a dict, of which a number that varies has just been written over.
COPIES = {
    "spread": lambda held: {**held},
    "copied": lambda held: held.copy(),
    "made_of": dict,
    "in_a_comprehension": lambda held: {k: v for k, v in held.items()},  # noqa: C416
    "values": lambda held: list(held.values()),
}
for name, copied in COPIES.items():

    @table.program(calls=5, recompiles=(1, 2, 3, 4), max_graphs=2)
    def a_number_written_over(copied=copied):
        held = {"step": 0, "rate": 0.1, "scale": 0.0}

        def fn(x):
            held["step"] += 1
            held["scale"] = 1 - 0.9 ** held["step"]
            return x + held["scale"], copied(held)

        return fn, held

    table.programs[-1].name = f"a_number_written_over_{name}"


class NewList(list):
    def __new__(cls, *args: Any, **kwargs: Any) -> NewList:
        return super().__new__(cls)


class NewDeque(collections.deque):
    def __new__(cls, *args: Any, note: str) -> NewDeque:
        made = super().__new__(cls)
        made.note = note
        return made

    def __init__(self, *args: Any, note: str) -> None:
        super().__init__(*args)


BASES = (list, set, dict, collections.OrderedDict, collections.defaultdict, collections.deque, bytearray)
MADE = (*BASES, *[type(f"My{base.__name__}", (base,), {}) for base in BASES], NewList)
CALLS = (
    lambda kind: kind(a=1),
    lambda kind: kind(5),
    lambda kind: kind(None),
    lambda kind: kind(list, []),
    lambda kind: kind(list, {1: 2}, a=3),
    lambda kind: kind([(1, 2)]),
    lambda kind: kind([(1, 2)], a=3),
    lambda kind: kind([], [], []),
    lambda kind: kind([1, 2, 3], maxlen=2),
    lambda kind: kind([1, 2, 3], 2),
    lambda kind: kind("abc"),
)


@table.snippet(breaks=True)
def containers_called_with_all_kinds_of_arguments(x):
    found = []
    for kind in MADE:
        for call in CALLS:
            try:
                made = call(kind)
                found.append((made, getattr(made, "default_factory", None), getattr(made, "maxlen", None)))
            except (TypeError, ValueError) as error:
                found.append(repr(error))
    return x * 2, found


@table.snippet(breaks=True, min_graphs=0)
def a_deque_with_a_new_of_its_own(x):
    made = NewDeque([x, 2], note="here")
    print(end="")
    return made, made.note


@table.program(recompiles=(2,), change={2: lambda state: state[0].update(c=3)})
def views_from_outside():
    plain, ordered = {"a": 1, "b": 2}, collections.OrderedDict(x=1)
    views = [plain.keys(), plain.values(), plain.items(), ordered.keys(), ordered.values(), ordered.items()]
    return lambda x: (x * sum(map(len, views)), [*views[0]], "a" in views[0], len(views[3])), (plain, views)

@pytest.mark.parametrize("program", table.programs, ids=str)
def test_containers(program: Program, twin: str) -> None:
    check(program, twin)
