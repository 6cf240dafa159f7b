"""Writes that a program makes besides its graph: replayed once, in order, and none that comes to nothing."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()
COUNT = 0
SHARED: list[Any] = []


class Box:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("a", "b")


class Failure(ValueError):
    def __init__(self, text: str, value: Any) -> None:
        super().__init__(text)
        self.value = value


@table.program()
def writes_to_a_list() -> Any:
    log: list[Any] = [0]

    def fn(x):
        log.clear()
        log.append(x.shape[0])
        log.extend([1, "a"])
        log.insert(0, x * 2)
        log += [3]
        log[1:3] = [9, 8, 7]
        del log[-1]
        log.reverse()
        return x + len(log)

    return fn, log


@table.program(recompiles=(1,))
def writes_to_a_dict() -> Any:
    d: dict[Any, Any] = {"a": 1, "b": 2, "c": 3}

    def fn(x):
        d["b"] = x * 2
        d.pop("new", None)
        d.setdefault("s", []).clear()
        d["new"] = d.pop("a")
        d.update(a=1, c=5)
        return d["b"] + d["new"]

    return fn, d


@table.program(recompiles=(1, 2))
def order_of_a_dict_changes() -> Any:
    d: dict[Any, Any] = {"a": 1, "b": 2, "c": 3}

    def fn(x):
        d["a"] = d.pop("a") * 1
        d[(1, x.dtype)] = None
        first = next(iter(d))
        return x * 2, first, list(d)

    return fn, d


@table.program(recompiles=(1, 2, 3), calls=5)
def writes_to_sets_and_deques() -> Any:
    state = {"s": {1, 2}, "d": collections.deque([1], maxlen=3), "f": frozenset({1})}

    def fn(x):
        state["s"].add(5)
        state["s"].discard(1)
        state["s"] |= {7}
        state["d"].append("x")
        state["d"].appendleft("y")
        state["d"].rotate(1)
        state["f"] |= {3}
        return x * len(state["s"])

    return fn, state


@table.program(recompiles=(1,))
def writes_to_attributes() -> Any:
    box = Box(a=1, keep=[1], gone=None)

    def fn(x):
        box.a = x + 1
        box.b = box.a * 2
        box.gone = 1
        del box.gone
        box.gone = "back"
        setattr(box, "c", (box.b, 3))
        box.__dict__["d"] = 4
        return box.a + box.d

    return fn, box


@table.program(recompiles=(1,))
def writes_to_slots() -> Any:
    s = Slotted()
    s.b = 1

    def fn(x):
        s.a = x * 2
        if hasattr(s, "b"):
            s.b = s.a + 1
        return s.b

    return fn, s


@table.program(recompiles=(1, 2))
def writes_to_a_global() -> Any:
    def fn(x):
        global COUNT
        COUNT += 1
        SHARED[:] = [x * COUNT]
        return SHARED[0] + 1

    globals()["COUNT"] = 0
    SHARED.clear()
    return fn


@table.program(recompiles=(1, 2))
def writes_to_cells() -> Any:
    n, last = 0, None

    def fn(x):
        nonlocal n, last
        n += 2
        y = x * n
        last = y
        return y, last is y

    def look():
        return n, last

    return fn, look


@table.program()
def net_zero_writes() -> Any:
    box, log = Box(n=1, flag=False), [1, 2]

    def fn(x):
        box.flag, old = True, box.flag
        log.append(3)
        y = x * log.pop() + (1 if box.flag else 0)
        box.flag = old
        box.tmp = 1
        del box.tmp
        return y

    return fn, (box, log)


@table.program(calls=4, recompiles=(1,))
def a_write_seen_through_another_path() -> Any:
    inner: list[Any] = [1]
    outer = {"a": inner, "b": [inner]}

    def fn(x):
        outer["a"][0] = x * 2
        outer["b"][0].append(1)
        inner.pop()
        return outer["b"][0][0] + 1, inner is outer["a"], len(inner)

    return fn, outer


@table.program(calls=4, change={2: lambda s: s.update(n=7)}, recompiles=(2,), must_recompile=True)
def a_written_value_is_read_first() -> Any:
    state = {"n": 5, "seen": 0}

    def fn(x):
        y = x * state["n"]
        state["n"] = 0
        state["seen"] = y.sum()
        state["n"] = y.shape[0] + 2
        return y

    return fn, state


@table.program()
def tensors_kept_from_call_to_call() -> Any:
    state: dict[str, Any] = {"cache": torch.zeros(3, 4), "all": torch.ones(3, 4)}

    def fn(x):
        state["cache"] = state["cache"] * 0.5 + x
        state["all"].add_(x)
        return state["cache"] * 2

    return fn, state


@table.program(recompiles=(1, 2), calls=3)
def cache_that_grows() -> Any:
    cache: list[Any] = []

    def fn(x):
        cache.append(x * 2)
        return torch.cat(cache)

    return fn, cache


@table.snippet(args=lambda i: ({"a": t(i), "n": 1}, [t(i + 1)], Box(v=t(i + 2))))
def arguments_written(d, items, box):
    d["b"] = d["a"] * 2
    items.append(d["b"])
    box.v, box.old = items[0] + 1, box.v
    del d["n"]
    return d, box


@table.program(min_graphs=1)
def raises_after_writes() -> Any:
    log: list[Any] = []

    def fn(x):
        log.append("in")
        y = x * 2
        log.append(y)
        if len(log) > 0:
            raise Failure("stop", y + 1)
        return y

    return fn, log


@table.snippet(args=lambda place: (t(place), t(place)), breaks=True, options={"dynamic": True})
def versions(x, y):
    first = x._version
    x.add_(1)
    with torch.no_grad():
        x[0].mul_(2)
    y.detach().add_(1)
    return x * 3, first, x._version, y._version, torch.Tensor._version.__get__(y)


@table.snippet(args=lambda place: (t(place), t(place, grad=True)), breaks=True)
def what_a_write_makes_of_a_leaf(x, w):
    first = x.is_leaf
    x.add_(w)
    return x * 3, first, x.is_leaf, x.grad_fn.name()


@table.snippet(args=lambda place: (t(place),), breaks=True)
def a_version_decides(x):
    torch.add(x, 1, out=x)
    return x + 1 if x._version == 1 else x + 2


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
