"""Symbolic expressions as guards, as Python and as graph nodes: all compute what the expression is under PyTorch's own functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as fn
from torch.utils._sympy.numbers import int_oo

from fineline.guards.relation import Leaf, nodes_of, python_text, relation_of
from fineline.guards.term import Unsupported
from tests.guards.twins import Twins

X, Y, Z = sympy.symbols("x y z", integer=True)
F = sympy.Symbol("f", real=True)
N = sympy.Symbol("n", integer=True, positive=True)
SYMBOLS = (X, Y, Z, F, N)
NAMES = {symbol: symbol.name for symbol in SYMBOLS}
LEAVES = {symbol: Leaf("number", position) for position, symbol in enumerate(SYMBOLS)}


def guard(expr: sympy.Basic) -> Callable[..., bool] | None:
    """Whether a call's five numbers pass the guard that is made of ``expr``."""
    relation = relation_of(expr, LEAVES, NAMES)
    if relation is None:
        return None
    twins = Twins(5, [*[("root", i, -1, i) for i in range(5)], ("relation", -1, -1, relation)])
    return lambda *values: twins.holds(*values)


def graph(expr: sympy.Basic) -> Callable[..., Any]:
    """``expr`` as a graph of five inputs."""
    made = fx.Graph()
    env = {symbol: made.placeholder(symbol.name) for symbol in SYMBOLS}
    made.output(nodes_of(expr, env, made))
    made.lint()

    def run(*values: Any) -> Any:
        found = dict(zip(env.values(), values))
        for node in made.nodes:
            if node.op == "call_function":
                found[node] = node.target(*[found.get(arg, arg) for arg in node.args])
        result = node.args[0]
        return found.get(result, result)

    return run


def python(expr: sympy.Basic) -> Callable[..., Any]:
    text = python_text(expr, NAMES)
    return lambda *values: eval(text, {"math": math, "torch": torch}, {s.name: value for s, value in zip(SYMBOLS, values)})


def truth(expr: sympy.Basic, values: tuple) -> Any:
    """What ``expr`` is, for numbers in place of its symbols; None if it is nothing that Python has."""
    try:
        found = expr.xreplace({symbol: sympy.sympify(value) for symbol, value in zip(SYMBOLS, values)})
        found = found.replace(fn.Identity, lambda inner: inner)
    except Exception:  # sympy's and PyTorch's functions refuse in many ways
        return None
    if found in (sympy.true, sympy.false):
        return bool(found)
    if found is int_oo or found is -int_oo or not found.is_number:
        return None
    if found.is_Integer:
        return int(found)
    return float(found) if found.is_Float and math.isfinite(float(found)) else None


TABLE: list[tuple[Any, str]] = [
    (sympy.Eq(X, 8), "x == 8"),
    (sympy.Eq(X, 2 * Y), "x == 2 * y"),
    (sympy.Eq(fn.Mod(X, 8), 0), "x % 8 == 0"),
    (sympy.Eq(fn.PythonMod(X - Y, Z), 0), "(x - y) % z == 0"),
    (X - 2 * Y - 1 >= 0, "x - 2 * y - 1 >= 0"),
    (-X - 3 < Y, "-x - 3 < y"),
    (X * Y * Z <= 100, "x * y * z <= 100"),
    (3 * X * (Y + 1) ** 2 > 5, "3 * x * (y + 1) ** 2 > 5"),
    (sympy.Eq(-X * Y, 4), "-(x * y) == 4"),
    (sympy.Eq(X / 2 + Y / 3, Z), "2 * y + 3 * x == 6 * z"),
    (sympy.Lt(X / 2, sympy.Rational(7, 3)), "3 * x < 14"),
    (sympy.Gt(1 / N, sympy.Rational(1, 3)), "1 / n > 0.3333333333333333"),
    (sympy.Eq(X**2 / 4, 9), "x ** 2 == 36"),
    (fn.FloorDiv(X + 2, 3) > Y, "(x + 2) // 3 > y"),
    (fn.CeilDiv(X, 3) > Y, "(x + 2) // 3 > y"),
    (fn.CleanDiv(X, 3) > Y, "x // 3 > y"),
    (sympy.Eq(sympy.floor(X / 3), Y), "x // 3 == y"),
    (sympy.Eq(sympy.ceiling(X / 3), Y), "-(-x // 3) == y"),
    (sympy.Eq(sympy.ceiling(X / 3 + sympy.Rational(1, 2)), Y), "-((-2 * x - 3) // 6) == y"),
    (sympy.Eq(fn.ModularIndexing(X, 4, 8), 3), "x // 4 % 8 == 3"),
    (sympy.Eq(fn.ModularIndexing(X, 1, 8), 3), "x % 8 == 3"),
    (fn.IntTrueDiv(X, Y) > 0.5, "x / y > 0.5"),
    (fn.FloatTrueDiv(F, 3) > 0.5, "f / 3.0 > 0.5"),
    (fn.FloatPow(F, 2.0) > 0.5, "f ** 2.0 > 0.5"),
    (fn.FloatPow(fn.ToFloat(X), sympy.Integer(2)) > 0.5, "float(x) ** 2.0 > 0.5"),
    (fn.PowByNatural(sympy.Integer(2), N) > 5, "2 ** n > 5"),
    (F * F > 0.5, "f * f > 0.5"),
    (fn.Max(X, Y, 3) > fn.Min(X, Z), "max(3, x, y) > min(x, z)"),
    (sympy.Max(X, Y) > sympy.Min(X, Z), "max(x, y) > min(x, z)"),
    (sympy.Eq(sympy.Abs(X), 2), "abs(x) == 2"),
    (sympy.Eq(fn.TruncToInt(F), 2), "math.trunc(f) == 2"),
    (sympy.Eq(fn.FloorToInt(fn.IntTrueDiv(X, 2)), 2), "math.floor(x / 2) == 2"),
    (sympy.Eq(fn.CeilToInt(fn.IntTrueDiv(X, 2)), 2), "math.ceil(x / 2) == 2"),
    (sympy.Eq(fn.RoundToInt(F), 2), "round(f) == 2"),
    (sympy.Eq(fn.TruncToFloat(F), 2.0), "float(math.trunc(f)) == 2.0"),
    (fn.OpaqueUnaryFn_sqrt(fn.ToFloat(X)) > 2, "math.sqrt(float(x)) > 2"),
    (sympy.sqrt(F) > 2, "math.sqrt(f) > 2"),
    (fn.OpaqueUnaryFn_log2(fn.ToFloat(X)) > 2, "math.log2(float(x)) > 2"),
    (fn.OpaqueUnaryFn_cos(F) > 0.5, "math.cos(f) > 0.5"),
    (sympy.Piecewise((X, X > Y), (Y, sympy.true)) > 3, "(x if x > y else y) > 3"),
    (fn.Where(X > Y, X, sympy.Integer(3)) > 3, "(x if x > y else 3) > 3"),
    (fn.Identity(X) + Y > 3, "y + x > 3"),
    (sympy.And(X > 2, Y > X), "x > 2 and y > x"),
    (sympy.Gt(fn.BitwiseFn_bitwise_and(X, Y), 2), "x & y > 2"),
    (sympy.Eq(fn.BitwiseFn_bitwise_or(X, Y), 7), "x | y == 7"),
    (sympy.Lt(fn.BitwiseFn_bitwise_xor(X, sympy.Integer(5)) * 2, Y), "2 * (x ^ 5) < y"),
    (sympy.Or(sympy.And(X > 2, Y > X), sympy.Not(sympy.Eq(Z, 1))), "z != 1 or (x > 2 and y > x)"),
    (X < int_oo, "x < math.inf"),
    (sympy.true, "True"),
]
FIVE = [
    (0, 0, 0, 0.0, 1), (8, 4, 2, 2.5, 2), (4, 8, 1, -2.5, 5), (-7, 3, -2, 1.5, 3), (2, -1, 4, 0.7, 4), (6, 9, 5, 2.0, 6),
    (36, 2, 7, 5.9, 9), (-1, -2, -3, -0.4, 7), (12, 0, 6, 4.1, 8), (5, 5, 5, 5.0, 5),
]  # fmt: skip


def check(expr: sympy.Basic, values: tuple, exact: bool = True) -> None:
    """``exact``: nothing that is computed on the way is too large for a guard."""
    expected = truth(expr, values)
    holds = guard(expr)
    held = None if holds is None else holds(*values)
    if expected is None:
        return
    try:
        found = python(expr)(*values), graph(expr)(*values)
    except ZeroDivisionError:  # PyTorch's functions take zero divided by zero for zero
        found, exact = (expected, expected), False
    assert found == (expected, expected), (expr, values)
    assert held is None or held == bool(expected) or (not exact and not held), (expr, values, expected)


@pytest.mark.parametrize(("expr", "text"), TABLE, ids=[text for _, text in TABLE])
def test_expressions(expr: sympy.Basic, text: str) -> None:
    assert python_text(expr, NAMES) == text
    relation = relation_of(expr, LEAVES, NAMES)
    assert relation is not None and relation.text == text
    assert sum(truth(expr, values) is not None for values in FIVE) >= 3
    for values in FIVE:
        check(expr, values)


def test_what_the_stack_machine_has_not() -> None:
    for expr, text in [
        (fn.OpaqueUnaryFn_atan(fn.ToFloat(X)) > 2, "math.atan(float(x)) > 2"),
        (sympy.Gt(fn.RoundDecimal(F, sympy.Integer(1)), 2), "round(f, 1) > 2"),
        (sympy.Eq(X, 2**63), "x == 9223372036854775808"),
    ]:
        assert relation_of(expr, LEAVES, NAMES) is None
        assert python_text(expr, NAMES) == text
        for values in FIVE:
            check(expr, values)


@pytest.mark.parametrize("expr", [sympy.sin(X) > 0, sympy.Pow(2, X) > 3, sympy.pi > X, sympy.Eq(sympy.nan, F, evaluate=False)])
def test_what_has_no_meaning_in_python(expr: sympy.Basic) -> None:
    assert relation_of(expr, LEAVES, NAMES) is None
    with pytest.raises(Unsupported):
        python_text(expr, NAMES)
    with pytest.raises(Unsupported):
        graph(expr)


def test_leaves_are_in_the_order_of_the_text() -> None:
    leaves = {X: Leaf("size", 3, 0), Y: Leaf("size", 5, 1), Z: Leaf("stride", 5, 0)}
    relation = relation_of(sympy.Eq(Y, 2 * X + Y * Z), leaves, {X: "a.size(0)", Y: "b.size(1)", Z: "b.stride(0)"})
    assert relation is not None
    assert relation.text == "b.size(1) == 2 * a.size(0) + b.size(1) * b.stride(0)"
    assert relation.leaves == (leaves[Y], leaves[X], leaves[Z])


def test_shared_expressions_are_computed_once() -> None:
    made = fx.Graph()
    env = {symbol: made.placeholder(symbol.name) for symbol in (X, Y)}
    cache: dict = {}
    first = nodes_of(fn.FloorDiv(X, 2) * Y, env, made, cache)
    assert nodes_of(fn.FloorDiv(X, 2) * Y, env, made, cache) is first
    nodes_of(fn.FloorDiv(X, 2) + 1, env, made, cache)
    assert [node.name for node in made.nodes] == ["x", "y", "floordiv", "mul", "add"]
    assert nodes_of(sympy.Integer(3), env, made, cache) == 3 and nodes_of(X, env, made, cache) is env[X]
    whole, real = nodes_of(X + 1, env, made, cache), nodes_of(X + sympy.Float(1.0), env, made, cache)
    assert whole is not real  # though the constants are equal


@pytest.mark.parametrize(("expr", "text"), TABLE, ids=[text for _, text in TABLE])
def test_nodes_compute_symbolically(expr: sympy.Basic, text: str) -> None:
    """On symbolic numbers the graph gives an expression back, as it does when a compiler runs it."""
    env = ShapeEnv()
    sizes = [env.create_unbacked_symint() for _ in range(3)]
    positive = env.create_unbacked_symint()
    torch._check(positive > 0)
    result = graph(expr)(*sizes, env.create_unbacked_symfloat(), positive)
    assert isinstance(result, (bool, torch.SymBool))


# -- random expressions -------------------------------------------------------------------------------------------------
def attempt(make: Callable, *args: Any) -> Any:
    """What ``make`` makes; its first argument where sympy refuses or makes no number of it."""
    try:
        made = make(*args)
    except Exception:
        return args[0]
    return args[0] if made.has(sympy.nan, sympy.zoo, sympy.oo, sympy.I, int_oo) else made


constants = st.integers(-4, 6).map(sympy.Integer)
names = st.sampled_from([X, Y, Z])


def whole(inner: st.SearchStrategy) -> st.SearchStrategy:
    two = [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, fn.FloorDiv, fn.PythonMod, fn.Max, fn.Min, fn.CeilDiv,
        lambda a, b: fn.Mod(sympy.Abs(a), sympy.Abs(b) + 1), lambda a, b: fn.PowByNatural(a, fn.PythonMod(b, 4)), fn.CleanDiv,
    ]  # fmt: skip
    return st.one_of(
        st.builds(attempt, st.sampled_from(two), inner, inner),
        st.builds(attempt, st.sampled_from([sympy.Abs, lambda a: -a, lambda a: a**2, fn.Identity]), inner),
        st.builds(attempt, st.just(fn.ModularIndexing), inner, inner, inner),
        st.builds(lambda a, b, c: attempt(lambda p, q: sympy.Piecewise((p, c), (q, True)), a, b), inner, inner, st.deferred(lambda: flags)),
    )


integers: st.SearchStrategy = st.recursive(st.one_of(names, constants), whole, max_leaves=6)
fractions = st.builds(lambda a, n: a / n, integers, st.sampled_from([1, 2, 4, 8]))
comparisons = st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])
flags: st.SearchStrategy = st.builds(lambda compare, a, b: compare(a, b), comparisons, names, constants)


def flag(compared: st.SearchStrategy) -> st.SearchStrategy:
    one = st.builds(lambda compare, a, b, c: attempt(lambda _, p, q: compare(p, q), c, a, b), comparisons, compared, compared, flags)
    return st.recursive(
        one,
        lambda inner: st.one_of(
            st.builds(attempt, st.sampled_from([sympy.And, sympy.Or]), inner, inner), st.builds(attempt, st.just(sympy.Not), inner)
        ),
        max_leaves=3,
    )


reals = st.recursive(
    st.one_of(
        st.just(F), integers.map(fn.ToFloat), st.builds(attempt, st.just(fn.IntTrueDiv), integers, integers),
        st.floats(-4, 4, width=16).map(sympy.Float),
    ),
    lambda inner: st.one_of(
        st.builds(attempt, st.sampled_from([lambda a, b: a + b, lambda a, b: a * b, fn.FloatTrueDiv, fn.FloatPow]), inner, inner),
        st.builds(attempt, st.just(lambda a: fn.OpaqueUnaryFn_sqrt(sympy.Abs(a))), inner),
    ),
    max_leaves=2,
)  # fmt: skip
rounded = st.builds(
    attempt, st.sampled_from([fn.TruncToInt, fn.FloorToInt, fn.CeilToInt, fn.RoundToInt, fn.TruncToFloat, fn.ToFloat]), reals
)
small = st.tuples(*[st.integers(-9, 9)] * 3, st.floats(-9, 9, width=16), st.integers(1, 9))
large = st.sampled_from([0, 1, -1, 7, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
many = settings(max_examples=100, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@many
@given(st.one_of(flag(integers), flag(fractions), integers), st.lists(small, min_size=3, max_size=3))
def test_random_integers(expr: sympy.Basic, calls: list) -> None:
    for values in calls:
        check(expr, values)


@many
@given(flag(st.one_of(reals, rounded, integers)), st.lists(small, min_size=3, max_size=3))
def test_random_floats(expr: sympy.Basic, calls: list) -> None:
    for values in calls:
        check(expr, values)


@many
@given(flag(integers), st.tuples(large, large, large, st.just(0.0), st.just(1)))
def test_random_large_integers(expr: sympy.Basic, values: tuple) -> None:
    check(expr, values, exact=False)
