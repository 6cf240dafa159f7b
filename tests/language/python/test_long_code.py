"""Long code and long containers: the same results, and work that grows no faster than they do."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

import fineline
from fineline.fx.infallible import unneeded
from tests.oracle import Program, Table, check

table = Table()
HOME = str(Path(fineline.__file__).parent)


class Thing:
    pass


def compiled_from(text: str) -> Any:
    namespace: dict[str, Any] = {"torch": torch, "Thing": Thing, "THINGS": [Thing() for _ in range(200)]}
    exec(text, namespace)
    return namespace["fn"]


class Key:
    """Equal to others of its name; comparing two is noted."""

    compared: list[str] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        Key.compared.append(self.name)
        return isinstance(other, Key) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@table.program()
def many_try_statements():
    parts = "".join(f"    try:\n        if {n} % 7 == 3: raise ValueError({n})\n        a += {n}\n    except ValueError as e:\n        a -= 1\n" for n in range(60))
    return compiled_from(f"def fn(x):\n    a = 0\n{parts}    return x * a\n")


@table.program()
def many_try_statements_around_a_graph_break():
    parts = "".join(f"    try:\n        b{n} = a + {n}\n        seen.append(float(x.sum()))\n    finally:\n        a += b{n}\n" for n in range(8))
    return compiled_from(f"def fn(x):\n    a, seen = 0, []\n{parts}    return x * a, seen\n")


@table.program()
def long_dict_display():
    return compiled_from("def fn(x):\n    return {" + ", ".join(f"'k{n}': x * {n}" for n in range(40)) + ", 'k3': x, 'k39': 5}\n")


@table.program()
def long_dict_display_of_other_keys():
    keys = ["x", "(1, x.shape)", "1", "True", "1.0", "'a'", "None", "torch.float32", "x.dtype"] * 6
    return compiled_from("def fn(x):\n    d = {" + ", ".join(f"{k}: {n}" for n, k in enumerate(keys)) + "}\n    return x * len(d), [*d.values()]\n")


@table.snippet()
def dict_display_of_dicts(x):
    first = {n: x + n for n in range(20)}
    return {**first, 3: 1, **{4: 2, "a": x}, **first, 5: 3}


@table.program(calls=2, args=lambda n: (torch.ones(2) + n, {"a": n, 2: 3}), recompiles=(1,))
def dict_display_of_an_argument():
    def fn(x, given):
        return x * given["a"], {"b": 1, **given, "a": 2, **{"c": x}}

    return fn


@table.snippet()
def dict_display_with_keys_that_compare_themselves(x):
    Key.compared.clear()
    first = {Key("a"): 1}
    d = {**first, **{Key("a"): 2, Key("b"): 3}}
    return x * len(d), [k.name for k in d], [*d.values()], list(Key.compared)


@table.snippet()
def sets_that_grow_and_shrink(x):
    s, found = set(), []
    for i in range(20):
        s.add(i)
        found.append((i in s, i - 3 in s, i + 1 in s))
        s.discard(i - 2)
        if i % 5 == 0:
            s.add((i, "a"))
            s |= {100 + i}
            found.append(((i, "a") in s, 100 + i in s, len(s)))
        if i % 7 == 0:
            s.pop()
            found.append(len(s))
    return x + len(s), found


@table.program(args=lambda n: (torch.ones(2), [torch.ones(1), torch.ones(1)][: 1 + n % 2] * (2 - n % 2)), recompiles=(1,))
def a_set_of_numbers_and_tensors():
    def fn(x, given):
        s = {1}
        s.add(2)
        found = []
        for n, t in enumerate(given):
            s.add(n + 10)
            s.add(t)
            found.append((n + 10 in s, t in s, len(s)))
        return x + len(s), found

    return fn


@table.snippet()
def tuples_that_grow(x):
    a, b, c = (), [], deque()
    for i in range(10):
        a = a + (i,)
        b = b + [x, i]
        c = c + deque([i])
    return x + 1, a, b, c, (x, 1) * 2, 3 * [x], [a] * -1, (b,) * True


@table.program(args=lambda n: (torch.ones(2), 2 + n), recompiles=(1, 2))
def sequences_repeated_by_an_argument():
    def fn(x, n):
        return torch.stack([x] * n), (x, "a") * n, n * [x]

    return fn


@table.snippet()
def sequences_that_do_not_join(x):
    out = []
    for a, b in ([], ()), ((), []), ([1], 1), (deque(), []):
        try:
            out.append(a + b)
        except TypeError as e:
            out.append(str(e))
    return x + 1, out


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_table(program: Program, twin: str) -> None:
    check(program, twin)


def lines_run(fn: Callable, x: torch.Tensor) -> int:
    """How many lines of fineline's own Python run in a first call."""
    count = 0

    def line(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    compiled = fineline.compile(fn, backend="eager")
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: line if frame.f_code.co_filename.startswith(HOME) else None)
    try:
        compiled(x)
    finally:
        sys.settrace(before)
    return count


def repeated(statement: str, end: str = "return x + 1") -> Callable[[int], str]:
    def text(n: int) -> str:
        statements = "".join("    " + statement.replace("#", str(k)).replace("\n", "\n    ") + "\n" for k in range(n))
        return f"def fn(x):\n    a, l = 1, []\n{statements}    {end}\n"

    return text


def looped(statement: str, end: str = "return x + 1") -> Callable[[int], str]:
    return lambda n: f"def fn(x):\n    d, s, l, t = {{}}, set(), [], ()\n    for i in range({n}):\n        {statement}\n    {end}\n"


KINDS: dict[str, Callable[[int], str]] = {
    "try": repeated("try:\n    a = #\nexcept ValueError:\n    a = 0"),
    "raise": repeated("try:\n    raise ValueError(#)\nexcept ValueError:\n    a = 0"),
    "finally": repeated("try:\n    a = #\nfinally:\n    a += 1"),
    "try before a graph break": repeated("try:\n    a#_ = #\nexcept ValueError:\n    a = 0", "print(end='')\n    return x + a0_"),
    "with": repeated("with torch.no_grad():\n    a = #"),
    "if": repeated("if a:\n    a = # + 1\nelse:\n    a = 1"),
    "variables": repeated("a#_ = #"),
    "closures": repeated("l.append(lambda: a)"),
    "operators": repeated("x = x + #"),
    "results": lambda n: "def fn(x):\n    return [" + "x + 1, " * n + "]\n",
    "dict entries": lambda n: "def fn(x):\n    a = 1\n    return x, {" + ", ".join(f"'k{k}': a" for k in range(n)) + "}\n",
    "list elements": lambda n: "def fn(x):\n    a = 1\n    return x, [" + "a, " * n + "]\n",
    "tuple grows": looped("t = t + (i,)"),
    "list grows": looped("l += [i]; b = l[-1]; c = len(l)"),
    "dict grows": looped("d[i] = i; b = i in d; c = d.get(i)"),
    "set grows": looped("s.add(i); b = i in s"),
    "set grows and shrinks": looped("s.add(i); b = i in s; s.discard(i - 5)"),
    "objects in a set": looped("o = Thing(); b = o in s; s.add(o)"),
    "objects from outside in a set": looped("b = THINGS[i] in s; s.add(THINGS[i])"),
    "objects in a dict": looped("o = Thing(); b = o in d; d[o] = i"),
    "objects from outside in a dict": looped("b = THINGS[i] in d; d[THINGS[i]] = i"),
    "text grows": looped("t = f'{t}{i}'"),
    "calls": lambda n: "def g(a):\n    return a\n" + repeated("a = g(#)")(n),
    "deep": lambda n: f"def g(k):\n    return 0 if k == 0 else 1 + g(k - 1)\ndef fn(x):\n    return x + g({n})\n",
    "parameters": lambda n: f"ps = [torch.ones(2) for _ in range({n})]\ndef fn(x):\n    for p in ps:\n        x = x + p\n    return x\n",
    "walked modules": lambda n: f"m = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range({n})])\ndef fn(x):\n    return x * len([*m.modules()])\n",
    "modules": lambda n: f"m = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range({n})])\ndef fn(x):\n    return m(x)\n",
}  # fmt: skip


# How many steps to begin with, if not 40: from Python 3.12 on, displays of up to about 80 entries have fewer instructions for each than longer ones.
FEWEST = {"dict entries": 80} if sys.version_info >= (3, 12) else {}


@pytest.mark.parametrize("kind", KINDS)
def test_work_grows_no_faster_than_the_code(kind: str) -> None:
    for n in (4, 4):  # The first time, modules and types are looked at that are known afterwards.
        lines_run(compiled_from(KINDS[kind](n)), torch.ones(2))
    n = FEWEST.get(kind, 40)
    few, more, most = (lines_run(compiled_from(KINDS[kind](steps)), torch.ones(2)) for steps in (n, 2 * n, 4 * n))
    # Twice as many steps on top cost twice as much; were each to look at all before it, they would cost three times as much.
    assert most - more <= 2.3 * (more - few), (few, more, most)


def test_outputs_of_a_graph_are_not_searched_for_each_node() -> None:
    class Outputs(list):
        def __contains__(self, node: object) -> bool:
            raise AssertionError("reads all outputs")

    graph = Graph()
    x = graph.placeholder("x")
    given: Collection[Node] = Outputs([graph.call_method("relu", (x,)) for _ in range(5)])
    assert unneeded(graph, given, ()) == []
