"""What is new in Python 3.14.

Template strings (PEP 750), lazy annotations (PEP 649), `except` without parentheses (PEP 758), loops over generators that the compiler writes, and the
library in C: partial objects that bind, and with places left open, strict maps, heaps with the largest item first.
"""

import annotationlib
import functools
import heapq
import inspect
import operator
import warnings
from string.templatelib import Interpolation, Template
from typing import Any

import pytest
import torch

import fineline
from fineline import graph_break
from tests.oracle import Program, Table, check, t

table = Table()


# -- template strings ----------------------------------------------------------------------------------------------------
def written(template: Template) -> str:
    """Writes a template as an f-string would be."""
    parts = []
    for part in template:
        if isinstance(part, Interpolation):
            value = {None: lambda v: v, "r": repr, "s": str, "a": ascii}[part.conversion](part.value)
            parts.append(format(value, part.format_spec))
        else:
            parts.append(part)
    return "".join(parts)


@table.snippet(breaks=True)
def parts_of_templates(x):
    name, n = "a", 3
    found = t"{name}: {n + 1:>{n}}!{name!r}"
    return x + 1, found.strings, found.values, [(i.expression, i.conversion, i.format_spec) for i in found.interpolations]


@table.snippet(breaks=True)
def templates_without_values(x):
    return x * 2, t"".strings, t"only".strings, (t"a" t"{1}").strings


@table.snippet(breaks=True)
def templates_that_are_written(x):
    n = 4
    return x + n, written(t"{n:03} of {n!r:>4}"), written(t"{t'{n}'.values[0]}")


@table.snippet(args=lambda i: (t(i), [2, 3, 2][i]), breaks=True, recompiles=(1,))
def templates_of_numbers_that_vary(x, n):
    return t"{n} times".values[0] * 2 + x, t"{n}".interpolations[0].expression


@table.snippet(breaks=True)
def templates_of_tensors(x):
    y = x * 2
    found = t"{y} and {x.shape[0]}"
    return found.values[0] + 1, found.values[1], found.interpolations[0].expression


@table.snippet(breaks=True)
def templates_that_leave(x):
    y = x + 1
    return y, t"a {y} b {3}", Template("a", Interpolation(y, "y", None, "")).values[0] * 2


# -- annotations ---------------------------------------------------------------------------------------------------------
def forward(a: Later, b: Missing) -> list[Later]:  # noqa: F821
    return a


class Later:
    first: Later
    second: Missing = None  # noqa: F821


class Fields:
    size: int
    name: str = "n"


# The first read puts them into the class.
assert Fields.__annotations__


@table.snippet()
def functions_with_annotations_that_are_not_read(x):
    def made(a: NoSuchName, b: x.no_such_attribute = 2) -> NoSuchName:  # noqa: F821
        c: NoSuchName = a * b  # noqa: F821
        return c

    return made(x), forward(x, None)


@table.snippet(breaks=True)
def annotations_that_are_read(x):
    return x + len(Fields.__annotations__), Fields.__annotations__["size"] is int, [*Fields.__annotations__]


@table.snippet(breaks=True)
def annotations_that_have_no_value(x):
    try:
        return x + 1, forward.__annotations__
    except NameError as error:
        return x + 2, str(error)


@table.snippet(breaks=True)
def annotations_by_their_format(x):
    texts = annotationlib.get_annotations(forward, format=annotationlib.Format.STRING)
    return x * 2, texts, str(inspect.signature(written))


@table.snippet(breaks=True, recompiles=(1, 2))
def a_class_with_annotations_made_inside(x):
    class Made:
        held: int
        other: Undefined  # noqa: F821

        def scaled(self, y: Made) -> Made:
            return y * 3

    return Made().scaled(x), Made.__annotate__ is None, Made.__name__


# The dict of the annotations has no origin that a program could name, as on other versions.
@table.snippet(breaks=True, recompiles=(1, 2), min_graphs=0)
def annotations_of_a_function_made_inside(x):
    n = 3

    def made(a: int, b: "text" = n) -> [n]:  # noqa: F821
        return a * b

    return made(x), made.__annotations__, made.__annotate__(annotationlib.Format.VALUE)["return"]


@table.snippet()
def variables_with_annotations(x):
    y: Undefined[x.none] = x + 1  # noqa: F821
    z: int
    y.attribute_is_not_set = 2
    return y * 2


# -- statements ----------------------------------------------------------------------------------------------------------
def failing(kind: type[BaseException]) -> None:
    raise kind("failed")


@table.snippet()
def several_types_without_parentheses(x):
    told = []
    for kind in (ValueError, KeyError, TypeError):
        try:
            try:
                failing(kind)
            except ValueError, KeyError:
                told.append(kind.__name__)
        except TypeError:
            told.append("outside")
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError, TypeError:
        told.append("group")
    return x + len(told), told


@table.snippet()
def conditions_in_a_protected_block(x):
    told = []
    for a, b in ((0, 1), (2, 0), (0, 0)):
        try:
            c = a or b
            d = a and b or c
            told.append((c, d, not a, 1 if b else 2))
            told.append(1 // (a or b))
        except ZeroDivisionError:
            told.append("zero")
        finally:
            told.append(a is None or b)
    return x * 2, told


# -- loops that the compiler writes for calls ------------------------------------------------------------------------------
@table.snippet()
def calls_that_become_loops(x):
    n = 5
    found = any(k > 3 for k in range(n)), all(k < 3 for k in range(n)), tuple(k * n for k in range(3))
    try:
        return x + n, found, all(k for k in [1, 2]), any(k for k in ()), tuple(k for k in ())
    finally:
        assert any(k == 2 for k in range(n))


@table.snippet()
def loops_over_tensors(x):
    parts = tuple(x * k for k in range(3))
    return parts, all(p.dim() == 1 for p in parts), any(p is x for p in parts)


@table.snippet()
def names_that_are_shadowed(x):
    any, tuple = lambda given: [*given], list  # noqa: A001
    return x + 1, any(k for k in range(3)), tuple(k for k in range(2))


@table.snippet()
def loops_that_raise(x):
    told = []
    for call in (lambda: any(1 // k for k in (0,)), lambda: tuple(1 // k for k in (1, 0)), lambda: all(k.none for k in (1,))):
        try:
            call()
        except (ZeroDivisionError, AttributeError) as error:
            told.append(str(error))
    return x + len(told), told


@table.snippet(breaks=True, recompiles=(1, 2))
def graph_breaks_in_loops_of_the_compiler(x):
    found = tuple(float(x.sum()) * k for k in range(2))
    return x * 2, found, any(bool(y.sum() > 100) for y in (x, x + 1))


# -- frames --------------------------------------------------------------------------------------------------------------
@table.snippet()
def variables_end_from_the_last_on(x):
    log: list[Any] = []

    def gen(name):
        try:
            yield
        finally:
            log.append(name)

    def ends():
        a, b, c = gen("a"), gen("b"), gen("c")
        next(c), next(a), next(b)

    ends()
    return x + 1, log


# -- the library ---------------------------------------------------------------------------------------------------------
def told(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


class Partials:
    bound = functools.partial(told, 1, k=2)
    of_class = classmethod(functools.partial(told, 3))
    of_none = staticmethod(functools.partial(told, 4))
    opened = functools.partial(told, functools.Placeholder, 5)
    __getitem__ = functools.partial(told, 6)
    __call__ = functools.partial(told, "called")


@table.snippet(breaks=True)
def partials_that_bind(x):
    held = Partials()
    method = held.bound
    found = method(x), held.bound(7), held.of_class(), held.of_none(x, n=1), held.opened(8), held["key"], held(9), Partials.bound(1)
    return x + 1, type(method).__name__, [(["held" if v is held else v for v in args], kwargs) for args, kwargs in found]


@table.snippet()
def places_left_open(x):
    minus = functools.partial(operator.sub, functools.Placeholder, 2)
    both = functools.partial(told, functools.Placeholder, x, functools.Placeholder, 3)
    again = functools.partial(both, 1, k=4)
    return minus(x), both(5, 6, 7, n=8), again(9), functools.partial(minus, x)()


OUTSIDE = functools.partial(told, functools.Placeholder, 1)


@table.snippet(breaks=True)
def too_few_for_the_places_left_open(x):
    try:
        return x * 2, OUTSIDE(x), OUTSIDE()
    except TypeError as error:
        return x * 3, str(error)


OPENED = (functools.partial(told, functools.Placeholder, 2), functools.partial(told, 1, 2), functools.partial(told, functools.Placeholder, 3))


@table.snippet(args=lambda i: (t(i), OPENED[i]), recompiles=(1, 2))
def places_left_open_that_change(x, fn):
    return x * 2, fn(3, 4)


@table.snippet()
def strict_maps(x):
    log = []

    def items(n):
        for k in range(n):
            log.append((n, k))
            yield x * k

    told_ = [list(map(operator.add, items(2), items(2), strict=True)), list(map(abs, items(2), strict=True)), next(map(told, items(3), [1], strict=True))]
    for lengths in ((2, 1), (1, 2), (1, 1, 2), (2, 2, 1), (0, 1)):
        try:
            list(map(told, *[items(n) for n in lengths], strict=True))
        except ValueError as error:
            log.append(str(error))
    return told_, log, map(told, [1, 2], "ab", strict=True), map(told, [1, 2], "a", strict=0), len(list(map(told, [1, 2], "a", strict=False)))


@table.snippet(breaks=True)
def strict_maps_at_graph_breaks(x):
    it = map(told, [x, 1, 2], "ab", strict=True)
    first = next(it)
    graph_break()
    second = next(it)[0][0] * 2
    try:
        next(it)
    except ValueError as error:
        return x * 2, first, second, str(error)


class Scored:
    def __init__(self, score):
        self.score = score

    def __lt__(self, other):
        return self.score < other.score


@table.snippet()
def heaps_with_the_largest_first(x):
    heap = [Scored(n) for n in (3, 1, 4, 1, 5)]
    heapq.heapify_max(heap)
    heapq.heappush_max(heap, Scored(9))
    found = heapq.heappop_max(heap), heapq.heapreplace_max(heap, Scored(2)), heapq.heappushpop_max(heap, Scored(6))
    numbers = [2, 7, 1]
    heapq.heapify_max(numbers)
    smallest = heapq.nsmallest(2, [Scored(n) for n in (3, 1, 2)])
    return x * found[0].score, [v.score for v in found], [v.score for v in heap], heapq.heappop_max(numbers), numbers, [v.score for v in smallest]


@table.snippet(args=lambda i: (t(i), [None, 1, None][i]), recompiles=(1,))
def asked_for_none(x, v):
    return x * (2 if operator.is_none(v) else 3), operator.is_not_none(v), operator.is_not_none(x)


@table.snippet()
def sums_and_reductions(x):
    mixed = sum([1e16, 1, -1e16]), sum([1e16 + 0j, 1, 0.5, -1e16]), sum(iter([0.5, 2**70])), sum([x, x], start=1.0)
    return x + 1, mixed, functools.reduce(operator.add, [1, 2], initial=3), functools.reduce(operator.mul, [x, x], initial=x)


@table.snippet(breaks=True)
def no_truth_of_not_implemented(x):
    try:
        return x * 2 if NotImplemented else x
    except TypeError as error:
        return x * 3, str(error)


def test_a_return_in_finally_warns_as_python_does(recwarn: pytest.WarningsRecorder) -> None:
    """The warning of PEP 765 is the compiler's: captured code, which is compiled already, gives it no more."""
    names: dict[str, Any] = {}
    with pytest.warns(SyntaxWarning, match="'return' in a 'finally' block"):
        exec(compile("def fn(x):\n try:\n  y = x / 0 if x.dim() else x\n  raise KeyError\n finally:\n  return x * 2", "<finally>", "exec"), names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = fineline.compile(names["fn"], backend="eager")
        for place in range(2):
            assert torch.equal(compiled(t(place)), names["fn"](t(place)))
    assert not recwarn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_python_3_14(program: Program, twin: str) -> None:
    check(program, twin)
