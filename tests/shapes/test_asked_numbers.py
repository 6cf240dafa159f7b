"""Numbers, sizes and texts that vary and are given to C code that asks for their value: a graph break there, and graphs around it."""

from __future__ import annotations

import bisect
import collections
import datetime
import decimal
import fractions
import hashlib
import html
import io
import json
import math
import os
import pprint
import queue
import reprlib
import shlex
import string
import struct
import time
import urllib.parse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fineline
from tests.oracle import Program, Step, check, t
from tests.shapes.varied import Counting, graphs_of_each_call

pytestmark = pytest.mark.filterwarnings("ignore:step")
CALLS = 14
# The first finds nothing that varies; the second gives the code a value, the third finds that another comes, the fourth what comes of it.
LEARNING = frozenset({1, 2, 3})


def body(x: torch.Tensor) -> torch.Tensor:
    return ((x * 2).sin() + 1).cos().exp().tanh().sqrt().abs().neg()


def _written(n: int, text: Callable[[int], str]) -> str:
    out = io.StringIO()
    out.write(text(n))
    return out.getvalue()


def _printed(*values: Any) -> str:
    out = io.StringIO()
    print(*values, file=out)
    return out.getvalue()


def _put(kind: Callable[[], Any], n: int) -> Any:
    q = kind()
    q.put(n)
    return q.get()


def _environment(n: int) -> None:
    os.environ["FINELINE_TEST_STEP"] = str(n)


def _told(n: int, text: str) -> None:
    warnings.warn(text % n, stacklevel=1)


def _inserted(n: int) -> list[int]:
    items = [1, 9, 30]
    bisect.insort(items, n)
    return items


# What runs eagerly, and takes the number as it is.
OPAQUE: dict[str, Any] = {
    "print": lambda n: _printed(n),
    "print_of_what_is_computed": lambda n: _printed(n / 2, n * 3 - 1, -n),
    "print_of_containers": lambda n: _printed([n, (n, 2)], {"a": n}, {1: [n]}),
    "print_by_name": lambda n: print("", file=io.StringIO(), end="." * n),
    "sleep": lambda n: time.sleep(n * 1e-6),
    "decimal": lambda n: decimal.Decimal(n) + 1,
    "fraction": lambda n: fractions.Fraction(n, 7).limit_denominator(3),
    "queue": lambda n: _put(queue.Queue, n),
    "simple_queue": lambda n: _put(queue.SimpleQueue, n),
    "timedelta": lambda n: datetime.timedelta(n),
    "date": lambda n: datetime.date.fromordinal(n),
    "insort": _inserted,
    "seeded": lambda n: torch.Generator().manual_seed(n).initial_seed(),
    "numpy_array": lambda n: np.arange(n).sum(),
    "numpy_seeded": lambda n: np.random.RandomState(n).randint(100),
}
# What the interpreter runs where it can, and can't with a number that may be any.
ASKING: dict[str, Any] = {
    "to_bytes": lambda n: n.to_bytes(2, "big"),
    "bit_length": lambda n: n.bit_length(),
    "hex_of_a_float": lambda n: (n / 2).hex(),
    "is_integer": lambda n: (n / 2).is_integer(),
    "gcd": lambda n: math.gcd(n, 12) + 1,
    "isqrt": lambda n: math.isqrt(n),
    "factorial": lambda n: math.factorial(n),
    "round_to_digits": lambda n: round(n / 3, 2),
    "hex": lambda n: hex(n),
    "chr": lambda n: chr(n + 60),
    "bytes": lambda n: bytes(n),
    "packed": lambda n: struct.pack("q", n),
    "shifted": lambda n: 1 << n,
    "masked": lambda n: n & 5,
    "xored": lambda n: n ^ 3,
    "repeated_text": lambda n: "ab" * n,
    "numpy_scalar": lambda n: np.int64(n),
    "hash": lambda n: hash(n + 0.5),
}
TEXTS: dict[str, Any] = {
    "md5": lambda n: hashlib.md5(str(n).encode()).hexdigest(),
    "encoded": lambda n: str(n).encode(),
    "and_decoded": lambda n: str(n).encode().decode().upper(),
    "written": lambda n: _written(n, str),
    "written_f": lambda n: _written(n, lambda n: f"step {n}\n"),
    "written_percent": lambda n: _written(n, lambda n: "step %d" % n),
    "written_format": lambda n: _written(n, lambda n: "{:>5}".format(n)),
    "written_join": lambda n: _written(n, lambda n: ",".join([str(n), "a"])),
    "cut": lambda n: f"step{n}"[2:],
    "length": lambda n: len(f"{n}"),
    "compared": lambda n: str(n) == "5",
    "within": lambda n: "x" in str(n),
    "number_of_a_text": lambda n: int(str(n)) + 1,
    "padded": lambda n: str(n).zfill(4),
    "split": lambda n: f"{n},{n}".partition(",")[2],
    "environment": _environment,
    "warned": lambda n: _told(n, "step %d"),
    "text_of_a_tuple": lambda n: str((n, 1)).encode(),
    "text_of_a_float": lambda n: str(n / 4).encode(),
}
ACTS = {**OPAQUE, **ASKING, **TEXTS}
# The calls after which no graph is made, where they are not four. From Python 3.12 on, `limit_denominator` branches on remainders by 7
# where it asked C for a divisor.
LEARNED: dict[str, int] = {"fraction": 7} if hasattr(fractions.Fraction, "_from_coprime_ints") else {}


def before(act: Any) -> Any:
    def fn(x: torch.Tensor, n: int) -> Any:
        return act(n), body(x)

    return fn


def between(act: Any) -> Any:
    def fn(x: torch.Tensor, n: int) -> Any:
        y = body(x)
        found = act(n)
        return found, body(y) * n

    return fn


def of_a_size(act: Any) -> Any:
    def fn(x: torch.Tensor) -> Any:
        y = body(x)
        found = act(x.shape[0])
        return found, body(y)

    return fn


@pytest.mark.parametrize("where", [before, between], ids=lambda where: where.__name__)
@pytest.mark.parametrize("act", ACTS)
def test_a_number(act: str, where: Any, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), place + 2)) for place in range(4)]
    check(Program(act, lambda: where(ACTS[act]), steps, LEARNING, breaks=True), twin)


@pytest.mark.parametrize("act", ACTS)
def test_a_size(act: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place, place + 2, 2),)) for place in range(4)]
    check(Program(act, lambda: of_a_size(ACTS[act]), steps, LEARNING, breaks=True), twin)


@pytest.mark.parametrize("where", [before, between], ids=lambda where: where.__name__)
@pytest.mark.parametrize("act", ACTS)
def test_graphs_run_in_every_call(act: str, where: Any) -> None:
    made, ran = graphs_of_each_call(where(ACTS[act]), [(torch.ones(4), n) for n in range(2, 2 + CALLS)])
    learned = LEARNED.get(act, 4)
    assert not any(made[learned:]), made
    assert set(ran[learned:]) == {ran[-1]} != {0}, ran


@pytest.mark.parametrize("act", ACTS)
def test_graphs_run_for_every_size(act: str) -> None:
    made, ran = graphs_of_each_call(of_a_size(ACTS[act]), [(torch.ones(n, 2),) for n in range(2, 2 + CALLS)])
    assert not any(made[4:]), made
    assert set(ran[4:]) == {ran[-1]} != {0}, ran


RATES = [n / 4 for n in range(40)]
NAMED = {n: n / 4 for n in range(40)}


@pytest.mark.parametrize("found", [RATES, NAMED], ids=["list", "dict"])
def test_items_at_a_number(found: Any) -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return body(body(x) * found[n])

    made, ran = graphs_of_each_call(fn, [(torch.ones(4), n) for n in range(2, 2 + CALLS)])
    assert not any(made[8:]) and set(ran[8:]) == {2}, (made, ran)


def test_an_index_that_goes_round_breaks_no_graph() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return body(body(x) * RATES[n % 3])

    made, ran = graphs_of_each_call(fn, [(torch.ones(4), n) for n in range(2, 2 + CALLS)])
    assert not any(made[8:]) and set(ran[1:]) == {1}, (made, ran)


def test_a_queue_that_grows() -> None:
    waiting: queue.Queue = queue.Queue()

    def fn(x: torch.Tensor, n: int) -> Any:
        waiting.put(n)
        return body(x)

    backend = Counting()
    fast = fineline.compile(fn, backend=backend)
    for n in range(CALLS):
        before = backend.ran
        fast(torch.ones(4), n)
        assert n < 2 or backend.ran > before
    assert list(waiting.queue) == list(range(CALLS))


def test_a_deque_with_an_end_is_not_taken_for_one_without() -> None:
    kept: Any = collections.deque()

    def fn(x: torch.Tensor, kept: Any) -> Any:
        kept.append(x + 1)
        return len(kept)

    fast = fineline.compile(fn, backend="eager")
    short: Any = collections.deque(maxlen=2)
    for _ in range(4):
        fast(torch.ones(1), kept)
        fast(torch.ones(1), short)
    assert (len(kept), len(short)) == (4, 2)


# Libraries that put texts of numbers together in lists, and ask whether they are empty.
TEXTS: dict[str, Callable[[int], Any]] = {
    "json": lambda n: json.dumps({"step": n}),
    "json_of_a_float": lambda n: json.dumps({"loss": n * 0.5}),
    "json_of_containers": lambda n: json.dumps({"a": [n, {"b": n}], "c": str(n)}),
    "json_of_a_list": lambda n: json.dumps([n, n + 1]),
    "json_of_a_number": lambda n: json.dumps(n),
    "json_of_a_text": lambda n: json.dumps(f"step {n}"),
    "json_in_order": lambda n: json.dumps({"step": n, "a": 1}, sort_keys=True),
    "json_there_and_back": lambda n: json.loads(json.dumps({"step": n})),
    "pretty": lambda n: pprint.pformat({"step": n}),
    "template": lambda n: string.Template("$a of $b").substitute(a=n, b=20),
    "query": lambda n: urllib.parse.urlencode({"step": n}),
    "quoted": lambda n: shlex.quote(f"step {n}"),
    "escaped": lambda n: html.escape(f"<{n}>"),
    "joined": lambda n: "".join(["step", str(n)]),
    "joined_from_a_generator": lambda n: ",".join(str(k) for k in (n, n + 1)),
    "abridged": lambda n: reprlib.repr([n, n]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_libraries_make(name: str, twin: str) -> None:
    make = TEXTS[name]

    def fn(x, n):
        return body(x), make(n), x * n

    steps = [Step(place, lambda place: (t(place, 4), place + 2)) for place in range(18)]
    check(Program(name, lambda: fn, steps, frozenset(range(10)), breaks=True, repeats=True), twin)


@fineline.disable
def word(n: int) -> str:
    return "" if n % 3 == 0 else f"word {n}"


@pytest.mark.parametrize("kind", ["if", "not", "while", "and", "or", "conditional"])
def test_whether_a_text_is_empty(kind: str, twin: str) -> None:
    """A text that varies is guarded on no more than that."""

    def fn(x, n):
        s = word(n)
        if kind == "if":
            return (x * 2, s) if s else (x * 3, s)
        if kind == "not":
            return (x * 2, s) if not s else (x * 3, s)
        if kind == "while":
            while s:
                x, s = x * 2, ""
            return x * 3, s
        if kind == "and":
            return (x * 2, s) if s and n else (x * 3, s)
        if kind == "or":
            return x * 2, s or "none"
        return x * (2 if s else 3), s

    steps = [Step(place, lambda place: (t(place, 4), place + 2)) for place in range(18)]
    check(Program(kind, lambda: fn, steps, frozenset(range(18 if kind == "or" else 8)), breaks=True, repeats=True), twin)
