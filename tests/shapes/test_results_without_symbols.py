"""Arithmetic on numbers that vary with a result that no symbol stands for: a zero, an infinity, NaN, or what too many operators have made.

A program is for that result, not for each value of the numbers; where no guard tells the result, it is computed eagerly between two graphs.
"""

from __future__ import annotations

import colorsys
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Step, check, t
from tests.shapes.varied import graphs_of_each_call

IN_TWINS = ("captured", "reference", "fake")
CALLS, LEARNED = 10, 5


def chain(v: float) -> float:
    for _ in range(70):
        v = v * 1.5 - 0.25
    return v


def polynomial(v: float) -> float:
    total = 0.0
    for k in range(40):
        total = total * v + k
    return total


# Of an int and of a float that vary.
RESULTS: dict[str, Callable[[int, float], Any]] = {
    "times_zero": lambda n, v: (v * 0.0, 0.0 * v, n * 0.0, v * 0),
    "times_minus_zero": lambda n, v: (v * -0.0, -0.0 * n),
    "zero_through": lambda n, v: (0.0 / v, 0 / n, -0.0 / v),
    "minus_itself": lambda n, v: (v - v, n / 3 - n / 3),
    "plus_its_opposite": lambda n, v: v + -v,
    "minus_what_is_close": lambda n, v: (v + 1e300) - 1e300,
    "modulo": lambda n, v: (v % v, (n * 0.5) % 0.5, (n * 0.5) % -0.5),
    "floor": lambda n, v: (v // 1e9, 0.0 // v),
    "of_infinity": lambda n, v: (math.inf - v, math.inf * n, v - math.inf, -math.inf / v),
    "through_infinity": lambda n, v: (v / math.inf, n / -math.inf),
    "nan": lambda n, v: (math.nan * v, math.nan + n),
    "infinity_minus_itself": lambda n, v: (math.inf * v) - (math.inf * v),
    "underflow": lambda n, v: (math.exp(-n * 1000.0), (v * 1e-200) * 1e-200),
    "overflow": lambda n, v: (v * 1e200) * 1e200,
    "power": lambda n, v: (0.0**v, 1e-200 ** (v + 3)),
    "logarithm": lambda n, v: math.log(v / v),
    "function_of_zero": lambda n, v: (math.sin(v * 0.0), math.cos(v * 0.0), math.tanh(0.0 * n), math.sqrt(v * 0.0)),
    "absolute": lambda n, v: abs(v * -0.0),
    "zero_as_float": lambda n, v: float(n - n) + float(n * 0),
    "part": lambda n, v: max(v - 1e6, 0.0) / v,
    "used_again": lambda n, v: (v * 0.0 + 1.0) * v,
    "hue": lambda n, v: colorsys.rgb_to_hsv(v / 1000, 0.5, 0.25),
    "lightness": lambda n, v: colorsys.rgb_to_hls(v / 1000, 0.5, 0.25),
    "yiq": lambda n, v: colorsys.rgb_to_yiq(v / 1000, 0.5, 0.0),
}
EAGERLY: dict[str, Callable[[int, float], Any]] = {
    "chain": lambda n, v: chain(v),
    "hue_and_back": lambda n, v: colorsys.hls_to_rgb(*colorsys.rgb_to_hls(0.5, v / 1000, 0.25)),
    "chain_of_an_int": lambda n, v: chain(n / 7),
    "polynomial": lambda n, v: polynomial(v),
    "int_power": lambda n, v: 3**n % 7,
    "power_of_an_operator": lambda n, v: operator.pow(5, n) % 11,
    "built_in_power": lambda n, v: pow(7, n) % 11,
    "root_of_a_long_one": lambda n, v: math.sqrt(abs(chain(v))),
}
ACTS = {**RESULTS, **EAGERLY}


def around(act: Any) -> Callable[..., Any]:
    def fn(x: torch.Tensor, n: int, v: float) -> Any:
        y = x.sin() + 1
        found = act(n, v)
        return found, y.cos() * n

    return fn


def args(place: int) -> tuple:
    return t(place), 3 + 5 * place, 2.5 + 0.75 * place


@pytest.mark.parametrize("act", ACTS)
def test_results(act: str, twin: str) -> None:
    steps = [Step(place, args) for place in range(CALLS)]
    check(Program(act, lambda: around(ACTS[act]), steps, frozenset(range(CALLS)), breaks=act in EAGERLY, repeats=True), twin)


@pytest.mark.parametrize("act", ACTS)
def test_graphs_run_in_the_end(act: str) -> None:
    fn = around(lambda n, v: [str(found) for found in (ACTS[act](n, v),)])
    made, ran = graphs_of_each_call(fn, [(torch.ones(4), *args(place)[1:]) for place in range(CALLS)])
    assert not any(made[LEARNED:]) and all(ran[LEARNED:]), (made, ran)


@pytest.mark.parametrize("act", RESULTS)
def test_a_constant_needs_no_graph_break(act: str) -> None:
    fast = fineline.compile(around(RESULTS[act]), backend="eager", fullgraph=True)
    for place in range(CALLS):
        x, *numbers = args(place)
        # As a text, which tells a negative zero from another, and NaN from all others.
        assert str(fast(x, *numbers)[0]) == str(RESULTS[act](*numbers))


# -- where the result is another one -----------------------------------------------------------------------------------------------
def sign(v: float) -> float:
    return math.copysign(1.0, v)


SIGNS: dict[str, Callable[[float, float], Any]] = {
    "times_zero": lambda a, b: sign(a * 0.0),
    "times_minus_zero": lambda a, b: sign(-0.0 * a),
    "zero_through": lambda a, b: sign(0.0 / a),
    "underflow": lambda a, b: sign((a * 1e-200) * (b * 1e-200)),
    "quotient": lambda a, b: sign((a * 1e-200) / (b * 1e200)),
    "modulo": lambda a, b: sign((a * 2 * b) % b),
    "modulo_of_itself": lambda a, b: (a % a, sign(a % a)),
    "floor": lambda a, b: sign(0.0 // a),
    "through_infinity": lambda a, b: sign(a / math.inf),
    "difference": lambda a, b: (a - b, sign(a - b)),
    "sum": lambda a, b: (a + b, sign(a + b)),
    "of_infinity": lambda a, b: math.inf * a,
    "infinities": lambda a, b: str(math.inf * a + math.inf * b),
    "power": lambda a, b: (abs(a) * 1e-200) ** (abs(b) + 2),
    "negative_base": lambda a, b: sign((a * 1e-200) ** 3.0),
    "as_float": lambda a, b: sign(float(int(a) - int(b))),
}
PAIRS = ((1.0, 1.5), (2.0, 1.5), (2.5, 2.5), (3.0, 3.0), (-1.0, 1.5), (-2.0, -1.5), (2.0, -2.0), (3.0, -3.0), (0.0, 1.0), (-0.0, 2.0), (1.0, 0.5), (-0.5, 0.5))


@pytest.mark.parametrize("act", SIGNS)
def test_signs_of_zeros_and_infinities(act: str, twin: str) -> None:
    def fn(x: torch.Tensor, a: float, b: float) -> Any:
        return x.sin() + 1, SIGNS[act](a, b)

    def told(x: torch.Tensor, a: float, b: float) -> Any:
        try:
            return fn(x, a, b)
        except ZeroDivisionError as e:
            return str(e)

    steps = [Step(place, lambda place: (t(place), *PAIRS[place])) for place in range(len(PAIRS))]
    options = {"recompile_limit": 100}
    check(Program(act, lambda: told, steps, frozenset(range(len(PAIRS))), breaks=True, repeats=True, min_graphs=0, options=options), twin)


def test_a_zero_is_in_the_graph() -> None:
    """As what eager code would give the operator."""

    def fn(x: torch.Tensor, v: float) -> torch.Tensor:
        return x * (v * 0.0 + 1.0) + v * 0.0

    fast = fineline.compile(fn, backend="eager")
    for v in (1.0, 2.0, 3.0, -4.0, -5.0, -6.0):
        assert torch.equal(fast(torch.ones(3), v), fn(torch.ones(3), v))
