"""``allow_in_graph``: what depends on more than arguments, or acts on more, would be frozen by compilers: an error that names the line."""

from __future__ import annotations

import datetime
import io
import logging
import math
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fineline
from fineline import Policy
from fineline.errors import Unsupported

GIVEN, ARRAYS, KEPT, LIST, TEXT = random.Random(0), np.random.default_rng(0), {"n": 1.0}, [1], io.StringIO()


LOGGER = logging.getLogger("tests.policy.old")


class Held:
    v = 1.0


def both(first: object, second: object) -> object:
    return second


def refused(fn: Callable) -> float:
    try:
        fn()
    except TypeError:
        return 1.0
    return 0.0


REACHES: dict[str, Callable] = {
    "random": lambda x: x + random.random(),
    "randint": lambda x: x + random.randint(0, 100),
    "gauss": lambda x: x + random.gauss(0, 1),
    "choice": lambda x: x + random.choice([1, 2, 3]),
    "shuffle": lambda x: both(random.shuffle([1, 2, 3]), x + 1),
    "a generator from outside": lambda x: x + GIVEN.random(),
    "random.seed": lambda x: both(random.seed(0), x + 1),
    "a generator without a seed": lambda x: x + random.Random().random(),
    "SystemRandom": lambda x: x + random.SystemRandom().random(),
    "keyword arguments": lambda x: x + random.uniform(a=0, b=1),
    "in map": lambda x: x + sum(map(lambda _: random.random(), [1])),
    "out of a list": lambda x: x + [random.random][0](),
    "numpy.random": lambda x: x + np.random.rand(),
    "numpy.random.normal": lambda x: x + float(np.random.normal()),
    "numpy.random.seed": lambda x: both(np.random.seed(0), x + 1),
    "NumPy's generator from outside": lambda x: x + ARRAYS.random(),
    "NumPy's generator without a seed": lambda x: x + np.random.default_rng().random(),
    "urandom": lambda x: x + os.urandom(1)[0],
    "uuid4": lambda x: x + uuid.uuid4().int % 7,
    "secrets": lambda x: x + secrets.randbelow(100),
    "time": lambda x: x + time.time(),
    "time_ns": lambda x: x + time.time_ns() % 7,
    "perf_counter": lambda x: x + time.perf_counter(),
    "monotonic": lambda x: x + time.monotonic(),
    "localtime": lambda x: x + time.localtime().tm_sec,
    "sleep": lambda x: both(time.sleep(0), x + 1),
    "datetime.now": lambda x: x + datetime.datetime.now().microsecond,
    "date.today": lambda x: x + datetime.date.today().day,
    "print": lambda x: both(print(end=""), x.sin()),
    "stdout": lambda x: both(sys.stdout.write(""), x.sin()),
    "open": lambda x: both(open(os.devnull).close(), x.sin()),
    "logging": lambda x: both(logging.getLogger("tests.policy").warning("hi"), x.sin()),
    "an old logger": lambda x: both(LOGGER.error("hi"), x.sin()),
    "a text from outside": lambda x: both(TEXT.write("hi"), x.sin()),
    "getcwd": lambda x: x + len(os.getcwd()),
    "exists": lambda x: x + os.path.exists(os.devnull),
    "getpid": lambda x: x + os.getpid() % 3,
    "environ": lambda x: both(os.environ.__setitem__("FINELINE_TEST", "1"), x + 1),
    "a dict": lambda x: both(KEPT.__setitem__("n", 2.0), x + 1),
    "a list": lambda x: both(LIST.append(1), x + 1),
    "a class": lambda x: both(setattr(Held, "v", 2.0), x + 1),
    "an attribute of a class goes": lambda x: both(delattr(Held, "v"), x + 1),
    "type.__setattr__": lambda x: both(type.__setattr__(Held, "v", 2.0), x + 1),
    "manual_seed": lambda x: both(torch.manual_seed(0), x + 1),
    "get_rng_state": lambda x: x + torch.get_rng_state()[0],
    "set_num_threads": lambda x: both(torch.set_num_threads(torch.get_num_threads()), x + 1),
    "set_default_dtype": lambda x: both(torch.set_default_dtype(torch.float32), x + 1),
}
COMPUTES: dict[str, Callable] = {
    "torch.rand": lambda x: x + torch.rand(4) * 0,
    "dropout": lambda x: F.dropout(x, 0.5) * 0,
    "a generator of its own": lambda x: x + random.Random(0).random(),
    "NumPy's generator of its own": lambda x: x + np.random.default_rng(0).random(),
    "NumPy's old generator of its own": lambda x: x + np.random.RandomState(0).rand(),
    "a text of its own": lambda x: both(None, x + (lambda t: both(t.write("ab"), len(t.getvalue())))(io.StringIO())),
    "environ": lambda x: x + len(os.environ.get("HOME", "")),
    "join": lambda x: x + len(os.path.join("a", "b")),
    "math": lambda x: x + math.sin(1.0),
    "numpy": lambda x: x + float(np.sqrt(2.0)),
    "a dict": lambda x: x + ARGUMENT["n"],
    "a setter without arguments": lambda x: x + refused(setattr),
    "a class of its own": lambda x: x + (lambda cls: both(setattr(cls, "v", 2.0), cls.v))(type("Own", (), {})),
    "a list of its own": lambda x: x + (lambda items: both(items.append(1), len(items)))([]),
    "a date": lambda x: x + datetime.datetime(2020, 1, 1).year,
    "a lock": lambda x: (lambda lock: both((lock.acquire(), lock.release()), x + 1))(threading.Lock()),
    "item": lambda x: x * x.sum().item(),
    "no_grad": lambda x: torch.no_grad()(lambda: x.sin())(),
    "autograd": lambda x: torch.autograd.grad((y := x.detach().requires_grad_()).sum(), y)[0],
}
ARGUMENT = {"n": 1.0}
BY_LIBRARY = ("uuid4", "secrets", "exists", "environ", "an old logger", "logging")
DOORS = {"eager": {}, "aot": {"backend": "aot_eager"}, "dynamic": {"dynamic": True}, "fullgraph": {"fullgraph": True}}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REACHES)
def test_what_reaches_out_is_an_error_that_names_the_line(name: str, door: str) -> None:
    inner = REACHES[name]
    compiled = fineline.compile(lambda x: inner(x) * 2, policy=Policy(allow=[inner]), **{"backend": "eager", **DOORS[door]})
    with pytest.raises(Unsupported, match="FL107") as caught:
        for _ in range(2):
            compiled(torch.zeros(4))
    # What Python's library calls is named there.
    assert name in BY_LIBRARY or caught.value.where.startswith(f"{__file__}:")
    assert KEPT == {"n": 1.0} and LIST == [1] and Held.v == 1.0 and not TEXT.getvalue()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", COMPUTES)
def test_what_computes_from_its_arguments_is_one_call(name: str, door: str) -> None:
    inner = COMPUTES[name]
    compiled = fineline.compile(lambda x: inner(x) * 2, policy=Policy(allow=[inner]), **{"backend": "eager", **DOORS[door]})
    for value in (0.0, 1.0, 1.0):
        x = torch.full((4,), value)
        assert torch.equal(compiled(x), inner(x) * 2)


def test_under_pytorch_s_own_mark_it_is_a_graph_break() -> None:
    """PyTorch checks nothing, and libraries set it."""

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return x + random.random()

    torch._dynamo.allow_in_graph(drawn)
    compiled = fineline.compile(lambda x: drawn(x) * 2, backend="aot_eager")
    for _ in range(4):
        state = random.getstate()
        found = compiled(torch.zeros(2))
        random.setstate(state)
        assert torch.equal(found, drawn(torch.zeros(2)) * 2)


# -- assume_constant_result ------------------------------------------------------------------------------------------------
HOLDERS: dict[str, Callable] = {
    "list": lambda n: [n],
    "dict": lambda n: {"a": n},
    "set": lambda n: {n},
    "deque": lambda n: deque([n]),
    "ordered": lambda n: OrderedDict(a=n),
    "nested": lambda n: {"a": [n]},
    "a list in a tuple": lambda n: ([n],),
    "number": lambda n: n,
}


def leaf(held):
    while not isinstance(held, float):
        held = next(iter(held.values() if isinstance(held, dict) else held))
    return held


def refill(held, n):
    if isinstance(held, tuple):
        refill(held[0], n)
    elif isinstance(held, dict) and not isinstance(held["a"], float):
        refill(held["a"], n)
    elif isinstance(held, dict):
        held["a"] = n
    else:
        held.clear()
        held.add(n) if isinstance(held, set) else held.append(n)


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"fullgraph": True}, {"options": {"evaluator": "reference"}}], ids=str)
@pytest.mark.parametrize("where", ["closure", "inner", "default", "keyword", "argument"])
@pytest.mark.parametrize("kind", HOLDERS)
def test_an_assumed_constant_is_guarded_on_what_its_variables_hold(kind: str, where: str, how: dict) -> None:
    held = HOLDERS[kind](1.0)
    if kind == "number" and where in ("default", "keyword"):
        pytest.skip("another default is another function")
    ways = {
        "closure": lambda: leaf(held),
        "inner": lambda inner=None: (lambda: leaf(held))(),
        "default": lambda values=held: leaf(values),
        "keyword": lambda *, values=held: leaf(values),
        "argument": lambda values=None: leaf(values),
    }
    if where == "inner":
        deep = ways["closure"]
        ways["inner"] = lambda: deep()
    constant = fineline.assume_constant_result(ways[where])

    def fn(x):
        return x * (constant(held) if where == "argument" else constant())

    compiled = fineline.compile(fn, backend="eager", **how)
    for n in (1.0, 1.0, 3.0, 5.0, 1.0):
        if kind == "number":
            held = n
        else:
            refill(held, n)
        assert compiled(torch.ones(2)).tolist() == [n, n]


def test_what_an_assumed_constant_changes_itself_is_no_reason_to_ask_again() -> None:
    cache, calls = {}, []

    @fineline.assume_constant_result
    def constant(k):
        calls.append(k)
        return cache.setdefault(k, 2.0)

    compiled = fineline.compile(lambda x: x * constant(1), backend="eager")
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [2.0] * 3 and calls == [1]
