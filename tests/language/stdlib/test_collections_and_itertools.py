"""functools, itertools, collections and copy."""

from __future__ import annotations

import asyncio
import bisect
import collections
import copy
import dataclasses
import functools
import heapq
import itertools
import logging
import math
import os
import re
import struct
import threading
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


@functools.lru_cache(maxsize=None)
def cached_number(n: int) -> int:
    return n * n


@functools.lru_cache
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.singledispatch
def describe(value: Any) -> Any:
    return "other", value


@describe.register
def _(value: int) -> Any:
    return "int", value + 1


@describe.register(list)
@describe.register(tuple)
def _(value: Any) -> Any:
    return "sequence", [describe(v) for v in value]


@describe.register
def _(value: torch.Tensor) -> Any:
    return "tensor", value * 2


@table.snippet()
def partial(x, y):
    f = functools.partial(torch.add, alpha=3)
    g = functools.partial(f, x)
    h = functools.partial(lambda a, b, *, c=1: a * b + c, c=2)
    return f(x, y), g(y), h(x, b=y), h(x, y, c=5), g.args[0] is x, f.keywords, functools.partial(h, x).func is h.func


@table.snippet()
def partialmethod(x):
    class A:
        def f(self, v, k):
            return v * k

        triple = functools.partialmethod(f, k=3)

    return A().triple(x)


@table.snippet()
def reduce(x):
    xs = [x * k for k in (1, 2, 3)]
    total = functools.reduce(lambda a, b: a + b, xs, torch.zeros_like(x))
    try:
        functools.reduce(max, [])
    except TypeError as error:
        return total, functools.reduce(torch.mul, xs), str(error)


@table.snippet()
def lru_cache_called(x):
    return x * cached_number(4) + fibonacci(12)


@table.snippet()
def lru_cache_inside(x):
    calls = []

    @functools.lru_cache(maxsize=2)
    def f(n):
        calls.append(n)
        return n * 2

    y = x * f(1) + f(2) + f(1)
    f.cache_clear()
    return y + f(1), calls


@table.snippet()
def wraps(x):
    def deco(f):
        @functools.wraps(f)
        def inner(*args):
            "inner doc"
            return f(*args) + 1

        return inner

    @deco
    def named(v):
        "outer doc"
        return v * 2

    return named(x), named.__name__, named.__doc__, named.__wrapped__(x)


@table.snippet()
def single_dispatch(x):
    class S:
        @functools.singledispatchmethod
        def f(self, v):
            return "default"

        @f.register
        def _(self, v: str):
            return "str"

    return describe(x), describe(3), describe([1, (x, "s")]), describe(True), describe(None), S().f("a"), S().f(1)


@table.snippet()
def total_ordering(x):
    @functools.total_ordering
    class V:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    return x * 2, V(1) <= V(1), V(2) > V(1), V(1) >= V(2), max(V(3), V(5)).n


@table.snippet()
def cmp_to_key(x):
    order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    return [x * k for k in order], order


@table.snippet(args=lambda place: (torch.ones(3) + place, place + 3), recompiles=(1, 2))
def copies_of_numbers(x, n):
    @dataclasses.dataclass
    class Sizes:
        first: int
        all: list

    sizes = Sizes(n, [n, (n, {"n": n})])
    deep, shallow = copy.deepcopy(sizes.all), copy.copy(sizes.all)
    return x * deep[0] + deep[1][1]["n"], deep, shallow[1] is sizes.all[1], dataclasses.asdict(sizes), copy.deepcopy(n) + copy.copy(n)


@table.snippet()
def itertools_finite(x):
    rows = list(x)
    return (
        [r * 2 for r in itertools.chain(rows, [x[0]])],
        [a + b for a, b in itertools.product(rows[:2], repeat=2)],
        list(itertools.combinations(range(4), 2)),
        list(itertools.permutations("abc", 2)),
        [sum(p) for p in itertools.pairwise(rows)],
        list(itertools.zip_longest([1, 2, 3], "ab", fillvalue=None)),
        list(itertools.chain.from_iterable([[1], [2, 3]])),
        list(itertools.compress("abcd", [1, 0, 1, 0])),
        list(itertools.combinations_with_replacement("ab", 2)),
    )


@table.snippet()
def arrangements_of_generated_items(x):
    def rows():
        yield from (x, x + 1, x * 2)

    return (
        [a * b for a, b in itertools.product(rows(), (k for k in (2, 3)))],
        [a - b for a, b in itertools.permutations(rows(), 2)],
        [a + b for a, b in itertools.combinations(rows(), 2)],
        [a * b for a, b in itertools.combinations_with_replacement(rows(), 2)],
        list(itertools.product(repeat=2)),
        list(itertools.permutations((k for k in "ab"), 3)),
    )


@table.snippet()
def arrangements_under_way_escape(x):
    made = [
        itertools.product([x, 1], "ab"),
        itertools.permutations(iter([x, 1, 2])),
        itertools.combinations((x, 1, 2, 3), 2),
        itertools.combinations_with_replacement((k for k in (x, 1)), 2),
        itertools.pairwise(map(abs, (x, 1, 2))),
        itertools.repeat(x, 3),
    ]
    first = [next(it) for it in made]
    return x * 2, made, first, next(made[1])


@table.snippet(breaks=True)
def arrangements_at_graph_breaks(x):
    pairs, orders, chosen, twice, same = (
        itertools.product([x, 1], (k for k in "ab")),
        itertools.permutations([x, 1, 2]),
        itertools.combinations((k for k in (x, 1, 2)), 2),
        itertools.combinations_with_replacement([x, 1], 2),
        itertools.repeat(x, 3),
    )
    first = [next(it) for it in (pairs, orders, chosen, twice, same)]
    torch._dynamo.graph_break()
    second = [next(it)[0] * 2 for it in (pairs, orders, chosen, twice, same)]
    torch._dynamo.graph_break()
    return x * 2, first, second, list(pairs), orders, list(chosen), next(twice), list(same)


@table.snippet(recompiles=(1,))
def itertools_lazy(x):
    taken = list(itertools.islice(itertools.count(2, 3), 4))
    ring = itertools.cycle("ab")
    names = [next(ring) for _ in range(5)]
    powers = list(itertools.accumulate([x, x, x], lambda a, b: a * b))
    low = list(itertools.takewhile(lambda n: n < 3, range(9)))
    high = list(itertools.dropwhile(lambda n: n < 7, range(9)))
    return x * taken[-1], names, powers, low, high, list(itertools.repeat(x, 2)), list(itertools.accumulate([1, 2, 3], initial=5))


@table.snippet()
def itertools_with_functions(x):
    groups = [(k, list(g)) for k, g in itertools.groupby(sorted(["bb", "a", "c", "dd"], key=len), key=len)]
    a, b = itertools.tee(iter(x), 2)
    return (
        list(itertools.starmap(torch.mul, [(x, 2), (x, x)])),
        groups,
        [r + s for r, s in zip(a, b)],
        list(itertools.filterfalse(lambda n: n % 2, range(6))),
    )


@table.snippet()
def deque(x):
    d = collections.deque([x], maxlen=3)
    for k in range(4):
        d.append(x * k)
    d.appendleft(x + 1)
    d.rotate(1)
    last = d.pop()
    d.extend([last, last])
    return d, d[0] + last, len(d), d.maxlen, list(reversed(d))[0] is last, d.popleft().sum()


@table.snippet()
def default_dict(x):
    d = collections.defaultdict(list)
    for k in range(4):
        d[k % 2].append(x * k)
    made = d["new"]
    counts = collections.defaultdict(int, a=1)
    counts["b"] += 2
    nested = collections.defaultdict(lambda: collections.defaultdict(float))
    nested["p"]["q"] += 1.5
    return d, made, counts, nested["p"]["q"], "zz" in d, d.get("none"), {k: sum(v, x) for k, v in d.items() if v}


@table.snippet()
def ordered_dict(x):
    d = collections.OrderedDict(a=x, b=x * 2)
    d["c"] = x * 3
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    key, value = d.popitem()
    same = collections.OrderedDict(a=1, b=2) == collections.OrderedDict(b=2, a=1)
    return d, key, value + 1, list(reversed(d)), same, list(d) == ["c", "b"]


@table.snippet()
def counter(x):
    c = collections.Counter("abracadabra")
    c.update("zz")
    c.subtract({"a": 1})
    both = c + collections.Counter(b=3)
    return x * c["a"], c.most_common(2), both, c["missing"], sum(c.values()), sorted(c.elements())[:3], c & collections.Counter(a=1)


@table.snippet()
def chain_map(x):
    base, top = {"a": 1, "b": 2}, {"b": 5}
    m = collections.ChainMap(top, base)
    m["c"] = 7
    child = m.new_child({"a": 9})
    return x * m["b"] + child["a"], dict(m), top, base, list(child), len(child.maps)


@table.snippet()
def user_containers(x):
    class D(collections.UserDict):
        def __setitem__(self, key, value):
            super().__setitem__(key.lower(), value)

    class L(collections.UserList):
        def total(self):
            return sum(self.data)

    d = D(A=x)
    d["B"] = x * 2
    return d["a"] + d["b"], list(d), L([x, x * 2]).total(), len(L([1]) + [2])


@table.snippet()
def mapping_abcs(x):
    class M(collections.abc.Mapping):
        def __init__(self, **items):
            self.items_ = items

        def __getitem__(self, key):
            return self.items_[key]

        def __iter__(self):
            return iter(self.items_)

        def __len__(self):
            return len(self.items_)

    m = M(a=x, b=2)

    def f(a, b):
        return a * b

    return f(**m), dict(m)["a"] + m.get("z", 1), "a" in m, isinstance({}, collections.abc.Mapping), list(m.keys()), {**m}["b"]


@table.snippet()
def math_functions(x):
    n = len(x)
    values = (math.sqrt(n), math.floor(2.7), math.ceil(2.1), math.pi, math.prod([1, 2, n]), math.gcd(12, 18), math.log2(8), math.inf > 1)
    return x * values[0] + values[4], values, math.isclose(0.1 + 0.2, 0.3), math.isnan(float("nan")), math.hypot(3, 4), math.comb(5, 2)


@table.program(recompiles=(1, 2))
def lru_cache_whose_content_is_a_tensor() -> Any:
    @functools.lru_cache(maxsize=4)
    def mask(n):
        return torch.ones(n, n).tril()

    def fn(x):
        return x @ mask(4) + mask(4).sum()

    return fn


@table.program()
def deque_from_outside() -> Any:
    recent: collections.deque[Any] = collections.deque([torch.zeros(3, 4)], maxlen=1)

    def fn(x):
        previous = recent[-1]
        recent.append(x * 2)
        return x + previous

    return fn, recent


@table.program(recompiles=(1, 2))
def counter_from_outside() -> Any:
    counts: Any = collections.Counter()

    def fn(x):
        counts["calls"] += 1
        counts.update(["a", "b"])
        return x * counts["calls"]

    return fn, counts


@table.program(recompiles=(1,))
def default_dict_from_outside() -> Any:
    seen: Any = collections.defaultdict(lambda: 5)

    def fn(x):
        return x * seen["k"]

    return fn, seen


@table.program(change={1: lambda p: p.keywords.update(k=4), 2: lambda p: p.keywords.update(k=2)}, recompiles=(1,))
def partial_from_outside() -> Any:
    def scaled(x, k):
        return x * k

    p = functools.partial(scaled, k=2)
    return (lambda x: p(x)), p


async def doubled(x):
    await asyncio.sleep(0)
    return x * 2


@table.snippet(breaks=True, min_graphs=0, twins=("captured", "reference", "borders", "limit1"))
def coroutine_run_inside(x):
    y = x + 1
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(doubled(y))
        task.note = 3
        z = loop.run_until_complete(task)
        return z + 1, task.done(), task.note, hasattr(task, "other")
    finally:
        loop.close()


class PerThread(threading.local):
    def __init__(self, v):
        self.v = v


@table.program(breaks=True, change={2: lambda state: setattr(state[1], "v", 5)}, recompiles=(2,))
def dict_of_what_each_thread_has() -> Any:
    state = threading.local(), PerThread(3)

    def fn(x):
        y = x + 1
        told = []
        for local in (*state, threading.local(), PerThread(x)):
            local.a = y
            told += [sorted(local.__dict__), vars(local)["a"] * 2]
            for change in (lambda local=local: setattr(local, "__dict__", {}), lambda local=local: delattr(local, "__dict__")):
                try:
                    change()
                except AttributeError as error:
                    told.append(str(error))
            local.__dict__.pop("a")
            told.append(hasattr(local, "a"))
        return y, told, state[1].v

    return fn, state


# In a module without features of the future.
WITHOUT: dict[str, Any] = {}
EVALUATED = """
def fn(x):
    names = {}
    exec("n: int = 3", names)
    code = compile("def f(a: int): return a", "made", "exec")
    exec(code, names)
    exec("def g(a: int): return a", names)
    return x * names["n"], names["f"].__annotations__, names["g"].__annotations__, names["__annotations__"], eval(" len('abc')"), code.co_flags
"""
exec(compile(EVALUATED, "<evaluated>", "exec", dont_inherit=True), WITHOUT)
WITH: dict[str, Any] = {}
exec(compile("from __future__ import annotations\n" + EVALUATED, "<evaluated>", "exec", dont_inherit=True), WITH)


@table.program(breaks=True, min_graphs=0)
def features_of_the_future() -> Any:
    return WITH["fn"]


@table.program(breaks=True, min_graphs=0)
def no_features_of_the_future() -> Any:
    return WITHOUT["fn"]


# -- bisect and heapq --------------------------------------------------------------------------------------------------
@table.snippet(min_graphs=0, breaks=True)
def a_heap_of_tensors_with_scores(x):
    heap = []
    for k in range(5):
        heapq.heappush(heap, (float(k * 7 % 5), k, x * k))
        if len(heap) > 3:
            heapq.heappop(heap)
    return [v for _, _, v in heapq.nlargest(2, heap, key=lambda entry: entry[0])], heapq.nsmallest(2, [3, 1, 2]), heap


@table.snippet(args=lambda place: (t(place), [5, 1, 4 + place]), recompiles=range(9), min_graphs=0, breaks=True)
def a_heap_from_outside(x, heap):
    heapq.heapify(heap)
    least = heapq.heappop(heap)
    heapq.heappush(heap, least + 10)
    return x * least, heapq.heappushpop(heap, 0), heapq.heapreplace(heap, 3)


@table.program(recompiles=(1, 2), change={1: lambda s: s.append(2), 2: lambda s: s.append(3)})
def bisect_with_a_key_that_reads_what_changes() -> Any:
    least = [1]

    def fn(x):
        return x * bisect.bisect_left(range(9), 1, key=lambda k: k >= least[-1])

    return fn, least


@table.snippet(args=lambda place: (t(place), place), calls=6, recompiles=range(6), min_graphs=0, breaks=True)
def a_number_that_varies_among_sorted_ones(x, n):
    numbers = [1, 3, 5]
    bisect.insort(numbers, n)
    return x * bisect.bisect(numbers, n), bisect.bisect_left(numbers, 2), numbers


@table.snippet(min_graphs=0, breaks=True)
def heaps_that_refuse(x):
    seen = []
    for call in (lambda: heapq.heappush([1], "a"), lambda: heapq.heappop([]), lambda: heapq.heappush((1,), 1)):
        try:
            call()
        except (TypeError, IndexError) as e:
            seen.append(str(e))
    return x, seen


@table.snippet(min_graphs=0, breaks=True)
def a_heap_of_losses(x):
    heap = []
    for k in (3.0, 1.0, 2.0):
        heapq.heappush(heap, x.sum() * 0 + k)
    return [heapq.heappop(heap) for _ in range(3)]


# -- texts, patterns, logs ---------------------------------------------------------------------------------------------
LAYER = re.compile(r"layers\.(\d+)")


@table.snippet(max_graphs=1)
def patterns(x):
    found = [re.match(r"h(\d+)\b", "h12").group(1), re.split(r"\s*,\s*", "a , b"), LAYER.sub(r"h.\1", "layers.3.w"), re.subn("[aeiou]", "", "naive")]
    return x * int(LAYER.search("layers.3.w").group(1)), found, re.compile("z+") is re.compile("z+"), id(None) == id(None)


@table.snippet(min_graphs=0, breaks=True)
def a_function_for_each_match(x):
    seen = []

    def upper(m):
        seen.append(m.span())
        return m.group().upper()

    y = x + 1
    return y * 2, re.sub("[ab]", upper, "cab"), seen


@table.snippet(args=lambda place: (t(place), ["layers.1", "h.2", "layers.1", "layers.5"][place]), calls=4, recompiles={0, 1, 3})
def patterns_and_names_from_outside(x, name):
    m = LAYER.fullmatch(name)
    return x * 2 if m is None else x + int(m.group(1)), re.sub("h", "x", name)


@table.snippet(max_graphs=1)
def names_and_bytes(x):
    return x * 2, os.path.basename("a/b.py"), os.path.join("a", "b"), struct.unpack("<i", struct.pack("<i", 7))


class Named:
    def __init__(self, name):
        self.name = name

    def __fspath__(self):
        return self.name


@table.snippet(
    args=lambda place: (t(place), [Named("a/b"), "c/d", Named(5), Named("e")][place], [True, None, False, True][place]),
    calls=4, recompiles=range(4), min_graphs=0, breaks=True,
)  # fmt: skip
def names_that_objects_give(x, named, flag):
    return x * 2, os.path.basename(named), id(flag) == id(True)


@table.snippet(min_graphs=0, breaks=True)
def a_pattern_that_is_wrong(x):
    try:
        re.compile("(")
    except re.error as e:
        return x + 1, str(e)


@table.program(breaks=True)
def ordered_dicts_read_across_breaks():
    table = collections.OrderedDict((k, (n, n + 1)) for n, k in enumerate("abcd"))
    ways = (
        lambda d: iter(d), lambda d: iter(d.values()), lambda d: iter(d.items()),
        lambda d: reversed(d), lambda d: reversed(d.values()), lambda d: reversed(d.items()),
    )  # fmt: skip

    def fn(x):
        made = collections.OrderedDict((("b", x), ("c", x + 1), ("a", x * 2)))
        made.move_to_end("b")
        found = []
        for way in ways:
            outside, inside = way(table), way(made)
            for n in range(3):
                found.append((next(outside), next(inside)))
                x = x + n
                if n:
                    fineline.graph_break()
            found.append((next(inside, "none"), [*outside]))
        return x, found

    return fn


@table.program(breaks=True)
def an_ordered_dict_that_grows_while_it_is_read():
    def fn(x):
        made = collections.OrderedDict(a=x, b=x + 1)
        it = iter(made.items())
        y = next(it)[1]
        fineline.graph_break()
        made["c"] = y * 2
        try:
            return y, next(it)
        except RuntimeError as e:
            return y, str(e)

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_stdlib(program: Program, twin: str) -> None:
    check(program, twin)


def test_a_log_that_is_off_breaks_no_graph(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("fineline.tests.stdlib")
    log.setLevel(logging.WARNING)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        log.debug("shape %s", tuple(y.shape))
        return y * 100 if log.isEnabledFor(logging.DEBUG) else y

    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=backend, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))
    assert len(graphs) == 1
    log.setLevel(logging.DEBUG)
    with pytest.raises(fineline.errors.Unsupported):
        compiled(torch.ones(2))
    loud = fineline.compile(fn, backend=backend)
    assert [loud(torch.ones(2)).tolist() for _ in range(2)] == [[200.0, 200.0]] * 2
    assert caplog.messages == ["shape (2,)"] * 2
