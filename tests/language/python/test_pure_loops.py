"""Loops over plain values: CPython runs the iterations that are left, and nothing tells that from a run by the interpreter."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from typing import Any

import pytest
import torch

import fineline
from fineline.interp.opcodes import pure_loops
from tests.oracle import Program, Table, check, t

table = Table()
NUMBER = 3
LIST = [3, 1, 2]
SEEN: list[Any] = []


def put(**values: Any) -> Any:
    return lambda fn: globals().update(values)


@table.snippet()
def integers(x):
    total = 0
    for i in range(50):
        total += i * 2 % 7
    return x + total, i


@table.snippet()
def text_and_floats(x):
    text, number = "", 0.5
    for i, c in enumerate("hello there"):
        text += f"{c}{i:>2}" if i % 2 else c.upper()
        number = number * 1.5 - i
    return x * number, text


@table.snippet()
def a_list_grows(x):
    items, other = [], [7]
    alias = items
    for i in range(30):
        items.append(i * i)
        if i % 5 == 0:
            alias += [-i]
            other.insert(0, i)
    return x + len(items), items is alias, items, other


@table.snippet()
def a_dict_changes(x):
    counts = {"z": 0}
    for word in "a b a c b a z q".split():
        counts[word] = counts.get(word, 0) + 1
        if word == "q":
            del counts["z"]
    counts["z"] = -1
    return x + len(counts), counts, list(counts)


@table.snippet()
def sets_keep_their_order(x):
    seen = {8, 16, 0}
    for i in range(40):
        seen.add(i * 8 % 37)
        seen.discard(i)
    made = set()
    for i in (3, 11, 19):
        made = {*made, i, i * 8}
    return x + len(seen), list(seen), list(made)


@table.snippet()
def containers_made_in_the_loop(x):
    row, last = None, None
    for i in range(6):
        row, last = [i, i + 1], {i: str(i)}
        pair = (row[0], last[i])
    return x + row[0], row, last, pair


@table.snippet()
def a_container_in_a_container(x):
    rows, index = [], {}
    for i in range(8):
        row = [i]
        rows.append(row)
        index.setdefault(i % 3, []).append(i)
    rows[-1].append(5)
    return x + len(rows), rows, row, index


@table.snippet()
def containers_nested_deeply(x):
    deep: list = []
    for i in range(200):
        deep = [deep, i]
    deeper, n = deep, 0
    for k in range(10):
        x = x + 1
        for i in range(3):
            deeper = [deeper, i]
    while deeper:
        deeper = deeper[0]
        n += 1
    return x + n, deep[0][0][1]


@table.snippet()
def new_containers_that_hold_old_ones(x):
    old, alias, rows = [1], {"k": [2]}, []
    for i in range(5):
        pair = [old, alias["k"], i]
        alias["k"].append(i)
        rows.append(pair)
        alias[i] = old
    old.append("seen in all")
    return x + len(rows), rows, alias, rows[3][0] is old, alias[2] is rows[0][0]


@table.snippet()
def a_list_that_holds_itself(x):
    items: list = []
    for i in range(3):
        items.append(items)
    return x + len(items), items[2] is items


@table.snippet()
def the_list_that_is_walked_changes(x):
    items = [1, 2, 3]
    for i in items:
        if len(items) < 12:
            items.append(i + 3)
    return x + len(items), items


@table.snippet()
def two_loops_over_one_iterator(x):
    it, first, rest = iter(range(10)), [], []
    for i in it:
        first.append(i)
        if i == 4:
            break
    for i in it:
        rest.append(i)
    return x + len(rest), first, rest, next(it, "end")


@table.snippet()
def an_iterator_that_the_code_holds(x):
    it, pairs = iter([1, 2, 3, 4, 5, 6, 7]), []
    for a in it:
        pairs.append((a, next(it, None)))
    return x + len(pairs), pairs


@table.snippet()
def many_iterators(x):
    found = []
    for a, b in zip(range(9), "abcdefghi"):
        found.append(f"{a}{b}")
    for a, (b, c) in enumerate(zip((1, 2, 3, 4), [5, 6, 7, 8])):
        found.append(a * b + c)
    for a in reversed(range(5)):
        found.append(a)
    for a in reversed([1, 2, 3]):
        found.append(a)
    for a in {"k": 1, "l": 2, "m": 3}:
        found.append(a)
    for a, b in {"k": 1, "l": 2, "m": 3}.items():
        found.append((a, b))
    for a in itertools.chain(range(3), "ab"):
        found.append(a)
    for a in map(str, range(4)):
        found.append(a)
    for a in deque([4, 5, 6]):
        found.append(a)
    for a in b"bytes":
        found.append(a)
    for a in range(1 << 70, (1 << 70) + 4):
        found.append(a)
    for a in frozenset((1, 2, 3)):
        found.append(a)
    return x + len(found), found


@table.snippet()
def break_continue_else(x):
    told = []
    for i in range(20):
        if i % 3 == 1:
            continue
        if i == 15:
            break
        told.append(i)
    else:
        told.append("no break")
    for i in range(4):
        told.append(-i)
    else:
        told.append("no break")
    return x + len(told), told, i


@table.snippet()
def nested(x):
    grid, count = [], 0
    for i in range(9):
        for j in range(9):
            if j > i:
                break
            for k in (1, 2):
                count += i * j * k
            grid.append((i, j))
    return x + count, grid, i, j, k


@table.snippet()
def while_loops(x):
    n, steps = 27, 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    while True:
        n += 3
        if n > 50:
            break
    k = 5
    while k:
        k -= 1
    else:
        steps += 1000
    return x + steps, n, k


@table.snippet()
def a_number_of_another_type(x):
    a: Any = 1
    for i in range(10):
        a = a / 2 if i < 5 else str(a) if i == 5 else a + "!"
    return x + len(a), a


@table.snippet()
def comprehensions(x, n=3):
    squares = [i * n for i in range(20) if i % 3]
    table = {i: str(i) for i in squares}
    nested = [[i * j for j in range(i)] for i in range(5)]
    flat = [i + j + n for i in range(4) for j in range(4) if i != j]
    found = {i % 7 for i in squares}
    return x + sum(flat), squares, table, nested, list(found), sum(i * i for i in range(9))


@table.snippet()
def lists_and_dicts_of_loops(x):
    squares = [i * i for i in range(20) if i % 3]
    pairs = [(i, j) for i in range(4) for j in "abc"]
    return x + len(squares), {i: str(i) for i in squares}, pairs, [[i, j] for i, j in zip(squares, [1, 2, 3, 4])]


@table.snippet()
def a_comprehension_in_a_loop(x):
    rows = 0
    for i in range(6):
        rows += len([j for j in range(i)]) + sum(k for k in range(i))
    return x + rows


@table.snippet()
def variables_of_a_closure(x):
    scale, total = 3, 0

    def add(n):
        nonlocal total
        for i in range(n):
            total += i * scale
        return [i * scale for i in range(n)]

    def read(n):
        found = 0
        for i in range(n):
            found += i * scale
        return found

    first = add(5), read(6)
    scale = 4
    return x + total, first, add(5), read(6)


@table.snippet()
def a_variable_bound_on_the_way(x):
    told = []
    for i in range(8):
        if i == 5:
            late = i * 2
        told.append(i)
    for k in range(1):
        if k == 1:
            never = k
    try:
        told.append(never)
    except UnboundLocalError as e:
        told.append(str(e))
    return x + late, told


@table.snippet()
def a_variable_that_is_not_bound(x):
    told = []
    try:
        for i in range(8):
            told.append(i)
            if i == 4:
                told.append(missing)
            if i == 6:
                missing = i
    except UnboundLocalError as e:
        told.append(str(e))
    return x + len(told), told, i


@table.snippet()
def an_exception_on_the_way(x):
    told, count = [], {"n": 0}
    try:
        for i in range(10):
            told.append(i)
            count["n"] += 1
            count[str(i)] = 10 // (5 - i)
    except ZeroDivisionError as e:
        told.append(str(e))
    return x + len(told), told, count, i


@table.snippet()
def handlers_in_the_loop(x):
    told = []
    for i in range(6):
        try:
            told.append(6 // (i % 3))
        except ZeroDivisionError:
            told.append(None)
        finally:
            told.append("end")
    return x + len(told), told


@table.program()
def an_exception_that_leaves() -> Any:
    def fn(x):
        told = []
        for i in range(9):
            told.append([3, 1, 2, 0][i])
        return x + 1

    return fn


@table.snippet()
def returned_from(x):
    def first(n):
        for i in range(100):
            if i * i > n:
                return i
        return None

    for i in range(50):
        if i > 7:
            return x + i, first(50), first(10**9)
    return x


@table.snippet()
def tensors_in_the_loop(x):
    total, out = 0, x
    for i in range(6):
        total += i
        out = out + i
    parts = [x, x + 1]
    for part in parts:
        total += 2
    for part in (x, out):
        out = part + out
    return out + total, len(parts)


@table.snippet()
def a_tensor_among_the_variables(x):
    a: Any = 1
    for i in range(5):
        a = a + 1
    b: Any = x
    for i in range(5):
        b += 1
    for i in range(5):
        a = a * b if i == 3 else a
    return a + 1, b


@table.snippet()
def loops_inside_of_loops_with_tensors(x):
    seen = []
    for i in range(4):
        k = 0
        for j in range(i + 2):
            k += j
            seen.append(j)
        x = x + k
    return x, seen


@table.snippet()
def behind_a_break(x):
    items = [1]
    for i in range(4):
        items.append(i)
    fineline.graph_break()
    for i in range(4):
        items.append(-i)
    it = iter(range(6))
    first = next(it)
    fineline.graph_break()
    for i in it:
        items.append(i + first)
    return x + len(items), items


@table.snippet()
def a_break_in_the_loop(x):
    items = []
    for i in range(4):
        items.append(i)
        fineline.graph_break()
        x = x + i
        for j in range(3):
            items.append(i * j)
    return x, items


class Owner:
    def __init__(self):
        self.items = []
        self.count = 0

    def fill(self, n):
        for i in range(n):
            self.items.append(i)
            self.count += i
        items = self.items
        for i in range(n):
            items.append(-i)
        return len(items)


@table.snippet()
def attributes(x):
    owner = Owner()
    return x + owner.fill(5), owner.items, owner.count


@table.program(args=lambda i: (t(i), [1, 2, 3] if i < 2 else [1, 2, 9, 4]), calls=4, recompiles=(2, 3))
def a_list_as_argument() -> Any:
    def fn(x, values):
        total = 0
        for v in values:
            total += v
        for i in range(4):
            values.append(i + total)
        for i in range(2):
            values.pop()
        return x + total, values

    return fn


@table.program(args=lambda i: (t(i), i + 4), calls=4, recompiles=(1, 2, 3))
def a_number_as_argument() -> Any:
    def fn(x, n):
        total, items = 0, []
        for i in range(n):
            total += i
            items.append(n)
        return x + total, items

    return fn


@table.program(args=lambda i: (t(i), 100 + i), calls=5, recompiles=(1,))
def a_number_that_is_only_moved() -> Any:
    def fn(x, n):
        items = []
        for i in range(4):
            items.append(n)
        return x + 1, items

    return fn


@table.program(change={1: put(NUMBER=5), 2: put(NUMBER=3)}, calls=4, recompiles=(1, 2))
def a_global_that_changes() -> Any:
    globals()["NUMBER"] = 3

    def fn(x):
        total = 0
        for i in range(6):
            if i > 3:
                total += NUMBER
        return x + total

    return fn


def helper(n):
    return n + NUMBER


def other_helper(n):
    return n * 100


HELPER = helper


@table.program(change={1: put(helper=other_helper), 2: put(helper=HELPER)}, calls=4, recompiles=(1, 2))
def a_function_that_is_patched() -> Any:
    globals().update(helper=HELPER, NUMBER=3)

    def fn(x):
        total = 0
        for i in range(6):
            total += helper(i)
        return x + total

    return fn


def noted(n):
    SEEN.append(n)
    return n


@table.snippet()
def a_function_with_an_effect(x):
    SEEN.clear()
    total = 0
    for i in range(5):
        total += noted(i)
    return x + total, list(SEEN)


@table.snippet()
def a_global_that_is_written(x):
    global NUMBER
    NUMBER, told = 3, []
    for i in range(5):
        NUMBER += i
        told.append(NUMBER)
    NUMBER = 3
    return x + told[-1], told


@table.snippet()
def printed(x):
    for i in range(4):
        print(i)
    return x + i


@table.snippet()
def objects_in_the_loop(x):
    items: list = []
    for i in range(4):
        items.append(len)
        items.append(object)
        items.append(Owner)
    return x + len(items), items[0] is len, items[2] is Owner


@table.snippet()
def identity_of_what_is_made(x):
    rows = [0]
    keep = rows
    for i in range(4):
        rows = rows + [i]
    table = {}
    same = table
    for i in range(4):
        table[i] = i
    return x + len(rows), keep is rows, same is table, keep, same


@table.program()
def many_variables_and_a_long_loop() -> Any:
    space: dict[str, Any] = {}
    lines = "".join(f"    v{k} = {k}\n" for k in range(300))
    body = "".join(f"        v{k} = v{k} + v{(k + 7) % 300} % 3 if v{k} < 900 else {k}\n" for k in range(300))
    exec(f"def fn(x):\n{lines}    for i in range(6):\n{body}        if i > 4: continue\n    return x + v0, v7, v299, i\n", space)
    return space["fn"]


@table.snippet()
def iterators_within_iterators(x):
    rest = iter(range(20))
    told = [a + b for a, b in zip(rest, (1, 2, 3))]
    for k, v in enumerate(rest):
        told.append(k * v)
        if k == 4:
            break
    numbered = enumerate("abcdef")
    for k, v in numbered:
        if k == 2:
            break
    told += [next(rest), *numbered]
    pairs = zip(rest, rest)
    for a, b in pairs:
        told.append(a * b)
    return x + len(told), told, list(rest)


@table.snippet()
def unpacked_and_sliced(x):
    told = []
    for a, *b in ((1, 2, 3), (4, 5), (6,)):
        told += [a, *b]
        told[1:2] = [a, a]
        last = told[-1:]
    for n in range(5):
        if (m := n * 2) > 3 > n:
            told.append(m)
        assert n < 5, "n is small"
    return x + len(told), told, last, m


@table.snippet()
def a_recursion_in_the_loop(x):
    total = 0
    for i in range(12):
        total += depth(i)
    return x + total


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


@table.snippet()
def in_a_generator(x):
    def gen():
        total = 0
        for i in range(5):
            total += i
        yield total
        for i in range(5):
            total += i
            yield i
        while total < 90:
            total += 7
        yield total

    return x + 1, list(gen())


@table.snippet()
def booleans_and_none(x):
    found, flag = None, False
    for i in range(9):
        if found is None and i > 4:
            found = i
        flag = not flag and (found or i)
    return x + found, flag


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_pure_loops(program: Program, twin: str) -> None:
    check(program, twin)


LOOPS = [
    integers, text_and_floats, a_list_grows, while_loops, break_continue_else, nested, a_variable_bound_on_the_way, booleans_and_none,
    in_a_generator, lists_and_dicts_of_loops,
]  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS, ids=lambda fn: fn.__name__)
def test_the_interpreter_takes_the_first_iterations_only(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handed, run = [], pure_loops._run_iterations

    def noted(interp: Any, f: Any, pure: Any) -> None:
        run(interp, f, pure)
        handed.append(f.ip == pure.end)

    monkeypatch.setattr(pure_loops, "_run_iterations", noted)
    fineline.compile(loop, backend="eager")(torch.ones(2))
    assert handed and all(handed)


def test_a_debugger_sees_each_line() -> None:
    lines = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        return trace

    def fn(x: torch.Tensor) -> torch.Tensor:
        total = 0
        for i in range(5):
            total += i
        lines.append(total)
        return x + total

    sys.settrace(trace)
    try:
        result = fineline.compile(fn, backend="eager")(torch.ones(2))
    finally:
        sys.settrace(None)
    assert lines == [10] and torch.equal(result, torch.full((2,), 11.0))
