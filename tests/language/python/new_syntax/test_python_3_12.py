"""Type parameters and aliases (PEP 695), nested f-strings (PEP 701), and comprehensions in the frame around them (PEP 709)."""

import sys

import pytest
import torch

import fineline
from fineline.errors import Unsupported
from tests.oracle import Program, Table, check, t

table = Table()


# -- type parameters -----------------------------------------------------------------------------------------------------
def first[T](xs: list[T]) -> T:
    return xs[0]


class Box[T: (int, float)]:
    def __init__(self, held: T) -> None:
        self.held = held

    def scaled[S: torch.Tensor](self, x: S) -> S:
        return x * self.held

    @classmethod
    def of[U](cls: type[U], held: float) -> U:
        return cls(held)


class Deeper[T](Box[float]):
    def scaled[S](self, x: S) -> S:
        return super().scaled(x) + super(Deeper, self).scaled(x)


class Called[*Rest, **Params]:
    pass


type Pair[T] = tuple[T, T]
type Number = int | float


@table.snippet()
def calls_of_generic_functions(x):
    return first([x + 1, x]), Box(2.0).scaled(x), Box[int](3).scaled(x), Deeper.of(2.0).scaled(x), Deeper[int].of(1.5).held


@table.snippet()
def parameters_of_classes_and_functions(x):
    return x + len(Box.__type_params__), first.__type_params__[0].__name__, [p.__name__ for p in Called.__type_params__]


@table.snippet(breaks=True)
def aliases_that_are_read(x):
    return x + 1, Pair.__name__, Number.__value__ is Number.__value__, isinstance(2, Number.__value__), Pair[int].__args__


@table.snippet(breaks=True, recompiles=(1, 2))
def a_generic_function_made_inside(x):
    def twice[T: torch.Tensor](a: T, /) -> T:
        return a * 2

    def either[A, B: int](a):
        return a + 1

    (parameter,) = twice.__type_params__
    return either(twice(x)), parameter.__name__, parameter.__bound__ is torch.Tensor, twice.__annotations__["a"] is parameter


@table.snippet(breaks=True, recompiles=(1, 2))
def an_alias_made_inside(x):
    type Vector[T] = list[T]
    type Own = Vector[int]
    return x * 2, Vector.__name__, Vector.__value__.__origin__, Own.__value__.__args__


@table.snippet(breaks=True, recompiles=(1, 2))
def a_generic_class_made_inside(x):
    class Own[T]:
        def __init__(self, held: T) -> None:
            self.held = held

        def given[S](self, s: S) -> S:
            return s * self.held

    return Own[int](3).given(x), Own.__type_params__[0].__name__


# -- f-strings -----------------------------------------------------------------------------------------------------------
@table.snippet()
def strings_with_quotes_and_nesting(x):
    n, names = x.dim(), {"a": 1}
    return x + n, f"{names["a"]} {f"{f"{n + 1}"}"} {"\n".join(["p", f"{n!r:>{n + 4}}"])} {n=} {'\N{BULLET}'}", f"{
        n  # counts the dimensions
        :03d}"


# -- comprehensions ------------------------------------------------------------------------------------------------------
@table.snippet()
def variables_around_a_comprehension(x):
    n = 5
    a = [n * x for n in range(2)]
    b = {n: m for n, m in zip("ab", a)}
    c = {n for n in (1, 2)}
    d = [[n + m for m in range(n)] for n in range(3)]
    return a, b, c, d, n


@table.snippet()
def a_variable_without_a_value_stays_so(x):
    k = 2
    del k
    found = [k + x for k in range(2)]
    try:
        k
    except UnboundLocalError as e:
        return found, str(e)


@table.snippet()
def a_comprehension_that_raises(x):
    n = "outer"
    try:
        return [x / x.size(n - 3) for n in range(3)]
    except IndexError as e:
        return x + 1, n, str(e), e.__traceback__.tb_lineno


@table.snippet()
def cells_of_comprehensions(x):
    n = x + 1
    fns = [lambda: n for n in range(3)]
    more = [lambda: m * n for m in range(3)]
    return [f() for f in fns], [f() for f in more], n


@table.snippet(breaks=True, recompiles=(1, 2))
def graph_breaks_in_comprehensions(x):
    n = 7
    a = [float(x.sum()) + n for n in range(3)]
    b = {n: [float(x.sum()) for m in range(n) if m or n] for n in range(3) if float(x[0, 0]) < 1e9}
    return x * 2, a, b, n


def broken(n):
    fineline.graph_break()
    return n


def variables_of_the_caller():
    return sorted(sys._getframe(1).f_locals)


@table.snippet(breaks=True, args=lambda place: (t(place), (2, 3, 0)[place]), recompiles=(1, 2))
def variables_that_nothing_reads_after_a_comprehension(x, n):
    for item in range(n):
        x = x * broken(item + 2)
    found = [[x * broken(item) for item in range(n)] for k in range(2)]
    k = {item: k for item in "ab" for k in [broken(1)]}
    return x, found, k


@table.snippet(breaks=True, args=lambda place: (t(place), (2, 3, 0)[place]), recompiles=(1, 2))
def variables_that_only_a_handler_reads_after_a_comprehension(x, n):
    k = x + 1
    try:
        found = [x / broken(k - 2) for k in range(n)]
    except ZeroDivisionError:
        return k * 2
    except TypeError:
        found = []
    try:
        more = [int("?" * broken(k)) for k in range(n)]
    except ValueError as e:
        return found, k * 3, str(e)
    return found, more


@table.snippet(breaks=True)
def a_generator_that_ends_after_a_comprehension(x):
    ended = []

    def items():
        try:
            yield x + 1
        finally:
            ended.append("items")

    g = items()
    first = next(g)
    found = [x * broken(g) for g in range(2)]
    return first, found, [*ended]


@table.snippet()
def names_in_comprehensions(x):
    n = 3
    return x + 1, [sorted(locals()) for m in range(1)], [n for n in [*locals()] if n != "x"], n


@table.snippet()
def a_class_in_each_round(x):
    return [(lambda self=i: x + self)() for i in range(3)], [*(i for i in [j for j in range(2)])]


# -- generators ----------------------------------------------------------------------------------------------------------
class Bare:
    def __iter__(self):
        return self

    def __next__(self):
        return 1


def delegating(to):
    try:
        got = yield from to
    except StopIteration as e:
        got = ("caught", e.value)
    yield got


@table.snippet()
def stops_thrown_into_generators(x):
    def new():
        yield 1

    def under_way():
        yield 1
        yield 2

    found = []
    for make, steps, error in ((new, 0, StopIteration), (under_way, 1, StopIteration), (under_way, 1, ValueError)):
        g = make()
        for _ in range(steps):
            next(g)
        try:
            g.throw(error("own"))
        except Exception as e:
            found.append((type(e), str(e), type(e.__cause__)))
    g = delegating(Bare())
    next(g)
    return x + 1, found, g.throw(StopIteration(5)), [*g]


@table.snippet()
def errors_thrown_through_delegation(x):
    def inner():
        try:
            yield 1
        except KeyError:
            yield "inner"
        return x + 1

    g = delegating(inner())
    first, second = next(g), g.throw(KeyError())
    return first, second, next(g), [*g]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_python_3_12(program: Program, twin: str) -> None:
    check(program, twin)


def test_variables_that_a_callee_looks_up_after_a_comprehension() -> None:
    """A graph break in the comprehension drops what nothing reads after it, until a function that looks at variables is known."""

    def fn(x, k):
        item = "saved"  # noqa: F841
        found = [x * broken(k) for k in range(2) for item in "a"]
        return found, variables_of_the_caller()

    compiled, x = fineline.compile(fn, backend="eager"), torch.ones(3)
    with pytest.raises(Unsupported, match="FL439"):
        compiled(x, x)
    for k in (x, 3):
        found, names = compiled(x, k)
        assert names == ["found", "item", "k", "x"]
        torch.testing.assert_close(found, [x * 0, x])
