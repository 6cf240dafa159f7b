"""Functions that ask for a program for each value of a number that varies: at the limit they are left out, and the graphs around them stay."""

from __future__ import annotations

import ast
import base64
import calendar
import csv
import difflib
import email.utils
import fnmatch
import functools
import io
import ipaddress
import itertools
import json
import pathlib
import posixpath
import re
import statistics
import textwrap
import types
import urllib.parse
import uuid
from typing import Any

import pytest
import torch

import fineline
from fineline.errors import RecompileLimit
from fineline.report.events import LISTENERS
from tests.oracle import Program, Step, check, t
from tests.shapes.varied import graphs_of_each_call

# Thirty calls each; with a graph break after each operator, none is left out.
IN_TWINS = ("captured", "reference", "fake")
# Before the limit is met there are eight programs, and a function inside may be left out first.
CALLS, LEARNED = 30, 22


def _dumped(n: int) -> str:
    out = io.StringIO()
    json.dump({"step": n}, out)
    return out.getvalue()


def _row(n: int) -> str:
    out = io.StringIO()
    csv.DictWriter(out, ["step"]).writerow({"step": n})
    return out.getvalue()


def named(first: int = 0, **named: int) -> tuple[int, list[str], int]:
    return first, sorted(named), sum(named.values())


def _entry(n: int) -> dict[str, int]:
    table: dict[str, int] = {}
    table.setdefault(f"step {n}", n)
    return table


LIBRARIES: dict[str, Any] = {
    "json_indented": lambda n: json.dumps({"step": n}, indent=2),
    "json_to_a_file": _dumped,
    "filled": lambda n: textwrap.fill(f"step {n} of many", width=10),
    "shortened": lambda n: textwrap.shorten(f"step {n} of many", width=12),
    "indented": lambda n: textwrap.indent(f"step {n}", "  "),
    "dedented": lambda n: textwrap.dedent(f"  step {n}"),
    "row": _row,
    "parsed": lambda n: urllib.parse.urlparse(f"http://a/{n}?q={n}").query,
    "uuid": lambda n: str(uuid.UUID(int=n)),
    "address": lambda n: str(ipaddress.ip_address(n)),
    "month": lambda n: calendar.monthrange(2000 + n, 1 + n % 12),
    "mean": lambda n: statistics.mean([n, 2]),
    "deviation": lambda n: statistics.stdev([n, 2, 5]),
    "median": lambda n: statistics.median([n, 2, 5]),
    "difference": lambda n: list(difflib.unified_diff([f"{n}"], ["b"])),
    "alike": lambda n: difflib.SequenceMatcher(None, f"step {n}", "step 7").ratio(),
    "date": lambda n: email.utils.formatdate(n),
    "base64": lambda n: base64.b64encode(str(n).encode()),
    "path": lambda n: str(pathlib.PurePosixPath("/a") / f"{n}.pt"),
    "stem": lambda n: pathlib.PurePosixPath(f"/a/{n}.pt").stem,
    "joined_path": lambda n: posixpath.join("/a", f"{n}.pt"),
    "ending": lambda n: posixpath.splitext(f"/a/{n}.pt"),
    "replaced": lambda n: re.sub("a", str(n), "banana"),
    "matched": lambda n: re.match(r"k(\d+)", f"k{n}")[1],  # type: ignore[index]
    "pattern": lambda n: fnmatch.fnmatch(f"k{n}", "k1*"),
    "literal": lambda n: ast.literal_eval(f"[{n}]"),
}
KEYS: dict[str, Any] = {
    "dict": lambda n: {f"step {n}": n, "a": 1},
    "set": lambda n: {f"step {n}", "a"},
    "dict_comprehension": lambda n: {f"step {n + k}": k for k in range(2)},
    "set_comprehension": lambda n: {f"step {n + k}" for k in range(2)},
    "from_keys": lambda n: dict.fromkeys([f"step {n}", "a"]),
    "entry": _entry,
}
KEYWORDS: dict[str, Any] = {
    "keyword_names": lambda n: named(**{f"step{n}": n}),
    "keyword_names_beside_others": lambda n: named(first=1, **{f"step{n}": n}),
    "two_keyword_names": lambda n: named(**{f"step{n}": n, f"step{n + 1}": 2}),
    "keyword_names_of_two_dicts": lambda n: named(**{f"a{n}": n}, **{f"b{n}": 2}),
    "keyword_names_of_a_class": lambda n: vars(types.SimpleNamespace(**{f"step{n}": n})),
    "keyword_names_of_a_dict": lambda n: dict({"a": 1}, **{f"step{n}": n}),
    "keyword_names_of_a_method": lambda n: "{first}".format(**{"first": n, f"step{n}": n}),
    "keyword_names_of_a_partial": lambda n: functools.partial(named, **{f"step{n}": n})(),
}
NUMBERS: dict[str, Any] = {
    "parts": lambda n: (n.real, n.imag, n.numerator, n.denominator, n.__class__, (n / 4).real, (n / 4).imag, (n / 4).__class__),
    "below_a_large_one": lambda n: (n < 1 << 80, 1 << 80 > n, n >= -1 << 80, n == 1 << 80, n != -1 << 80),
    "namespace": lambda n: types.SimpleNamespace(n=n).n + 1,
    "accumulated": lambda n: list(itertools.accumulate([n, 2, 3])),
    "starmap": lambda n: list(itertools.starmap(pow, [(n, 2)])),
    "taken": lambda n: list(itertools.takewhile(bool, [n, 0, n])),
    "dropped": lambda n: list(itertools.dropwhile(bool, [n, 0, n])),
    "filtered": lambda n: list(itertools.filterfalse(bool, [n, 0, n])),
    "grouped": lambda n: [(k, len(list(g))) for k, g in itertools.groupby([n, n, 2])],
    "grouped_by_type": lambda n: [(k, list(g)) for k, g in itertools.groupby([n, 2, 0.5], type)],
}
ACTS = {**LIBRARIES, **KEYS, **KEYWORDS, **NUMBERS}


def around(act: Any) -> Any:
    def fn(x: torch.Tensor, n: int) -> Any:
        y = x.sin() + 1
        found = act(n)
        return found, y.cos() * n

    return fn


@pytest.mark.parametrize("act", ACTS)
def test_results(act: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), 3 + 5 * place)) for place in range(CALLS)]
    check(Program(act, lambda: around(ACTS[act]), steps, frozenset(range(LEARNED)), breaks=True, repeats=True), twin)


@pytest.mark.parametrize("act", ACTS)
def test_graphs_run_in_the_end(act: str) -> None:
    made, ran = graphs_of_each_call(around(ACTS[act]), [(torch.ones(4), 3 + 5 * place) for place in range(CALLS)])
    assert not any(made[LEARNED:]) and all(ran[LEARNED:]), (made, ran)


def _number_at_a_break(x: torch.Tensor, n: Any) -> Any:
    fineline.graph_break()
    return x + 1 if n < 1 << 80 else x - 1


FAR = (3, 4, 5, 2**100, 6, -(2**100), 7, 2**80, 2**63, 2**64, 8)
BEYOND: dict[str, Any] = {
    "less": lambda x, n: x + 1 if n < 1 << 80 else x - 1,
    "greater": lambda x, n: x + 1 if n > -(1 << 70) else x - 1,
    "equal": lambda x, n: (x + 1 if n != 1 << 80 else x - 1, n == -(1 << 70), n >= -(1 << 70)),
    "the_other_way": lambda x, n: x + 1 if 1 << 80 > n else x - 1,
    "of_a_float": lambda x, n: x + 1 if int(n / 2) < 1 << 70 else x - 1,
    "computed": lambda x, n: x + 1 if n * 3 < 1 << 80 else x - 1,
    "a_part": lambda x, n: x + 1 if n.real < 1 << 80 else x - 1,
    "behind_a_break": _number_at_a_break,
}


@pytest.mark.parametrize("act", BEYOND)
def test_comparisons_with_integers_beyond_64_bits_hold_for_such_numbers_too(act: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), FAR[place])) for place in range(len(FAR))]
    check(Program(act, lambda: BEYOND[act], steps, frozenset(range(len(FAR))), breaks=True, repeats=True), twin)


def scaled(x: torch.Tensor, **named: float) -> torch.Tensor:
    return x * len(named) + sum(named.values())


def _called_with_tensors(x: torch.Tensor, n: int) -> Any:
    y = x.sin() + 1
    return scaled(y, **{f"step{n}": n}), y.cos() * n


def _called_with_two(x: torch.Tensor, n: int) -> Any:
    y = x.sin() + 1
    options = {f"step{n}": n, "last": 2}
    return scaled(y, first=1, **options) + y.cos()


def _called_with_tensors_by_name(x: torch.Tensor, n: int) -> Any:
    y = x.sin() + 1
    return sum(dict(**{f"y{n}": y, "z": y.exp()}).values()).cos()


NAMES = (_called_with_tensors, _called_with_two, _called_with_tensors_by_name)


@pytest.mark.parametrize("fn", NAMES, ids=lambda fn: fn.__name__)
def test_calls_with_tensors_by_other_names_each_time(fn: Any, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), 3 + 5 * place)) for place in range(CALLS)]
    check(Program(fn.__name__, lambda: fn, steps, frozenset(range(LEARNED)), breaks=True, repeats=True), twin)


@pytest.mark.parametrize("fn", NAMES, ids=lambda fn: fn.__name__)
def test_graphs_around_such_calls_run_in_the_end(fn: Any) -> None:
    made, ran = graphs_of_each_call(fn, [(torch.ones(4), 3 + 5 * place) for place in range(CALLS)])
    assert not any(made[LEARNED:]) and all(ran[LEARNED:]), (made, ran)


def helper(n: int) -> dict[str, int]:
    return {**{f"step {n}": 1}}


def with_a_helper(x: torch.Tensor, n: int) -> Any:
    y = x.sin() + 1
    return helper(n), y.cos() * n


def test_the_users_own_function_that_reads_the_value_is_left_out() -> None:
    made, ran = graphs_of_each_call(with_a_helper, [(torch.ones(4), 3 + 5 * place) for place in range(CALLS)])
    assert not any(made[LEARNED:]) and all(ran[LEARNED:]), (made, ran)


def test_a_graph_break_that_nobody_declared_is_made_by_none() -> None:
    """Where breaks must be declared, the limit leaves no function out: that would be one more, and an error."""
    fast = fineline.compile(around(LIBRARIES["indented"]), backend="eager", breaks="declared")
    for place in range(CALLS):
        n = 3 + 5 * place
        assert fast(torch.ones(4), n)[0] == LIBRARIES["indented"](n)


def test_the_capture_after_it_is_told(monkeypatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(LISTENERS, "all", (told.append,))
    fast = fineline.compile(around(LIBRARIES["indented"]), backend="eager")
    for place in range(CALLS):
        fast(torch.ones(4), 3 + 5 * place)
    left = next(n for n, event in enumerate(told) if event.id == "FL448" and event.kind == "eager")
    assert any(event.kind == "recompile" and "given up" in event.reason for event in told[left:])


def test_it_is_told_once_and_by_name(monkeypatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(LISTENERS, "all", (told.append,))
    fast = fineline.compile(around(LIBRARIES["indented"]), backend="eager")
    for place in range(CALLS):
        fast(torch.ones(4), 3 + 5 * place)
    left = [event.reason for event in told if event.id == "FL448" and event.kind == "eager"]
    assert left == ["indent has a program for each value, 8 so far; from the next call on it runs eagerly"]
    assert not [event for event in told if event.id == "FL104"]


def test_where_the_limit_is_an_error_it_stays_one() -> None:
    fast = fineline.compile(around(LIBRARIES["indented"]), backend="eager", options={"fail_on_recompile_limit_hit": True})
    with pytest.raises(RecompileLimit):
        for place in range(CALLS):
            fast(torch.ones(4), 3 + 5 * place)


@pytest.mark.parametrize("act", ["parts", "below_a_large_one"])
def test_numbers_that_need_no_graph_break(act: str) -> None:
    fast = fineline.compile(around(NUMBERS[act]), backend="eager", fullgraph=True)
    for place in range(CALLS):
        n = 3 + 5 * place
        assert fast(torch.ones(4), n)[0] == NUMBERS[act](n)
