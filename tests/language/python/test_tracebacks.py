"""Tracebacks of exceptions that the code raises, handles, and carries over graph breaks: the user's frames and lines, at every call."""

from __future__ import annotations

import contextlib
import sys
import traceback
import types
from typing import Any

import pytest
import torch

import fineline
from fineline.stacks import PROGRAM
from tests.oracle import Program, Table, check, t

table = Table()


def passed(e: BaseException | None) -> list[Any]:
    """The frames that an exception and those linked with it have passed."""
    found: list[Any] = []
    while e is not None:
        tb, frames = e.__traceback__, []
        while tb is not None:
            frames.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        found.append((type(e).__name__, frames))
        e = e.__cause__ or e.__context__
    return found


asked = torch.compiler.disable(passed)


@table.snippet(breaks=True)
def read_behind_a_border(x):
    try:
        raise TypeError("t")
    except TypeError as e:
        x.sum().item()
        return x * 2, e.__traceback__.tb_lineno


@table.snippet(breaks=True)
def asked_for_at_a_border(x):
    try:
        raise TypeError("t")
    except TypeError as e:
        return x * 2, asked(e)


@table.snippet(breaks=True)
def printed_behind_a_border(x):
    try:
        raise TypeError("t")
    except TypeError:
        print("failed")
        traceback.print_exc(file=sys.stdout)
        return x * 2


def cleaned(x):
    try:
        raise KeyError("k")
    finally:
        print("clean")


@table.snippet(breaks=True)
def over_a_border_in_finally(x):
    try:
        cleaned(x)
    except KeyError as e:
        return x * 2, passed(e), asked(e)


@table.snippet(breaks=True)
def raised_once_more(x):
    try:
        try:
            raise ValueError
        except ValueError as e:
            print("once")
            raise e
    except ValueError as e:
        first = e.__traceback__.tb_lineno
        return x * 2, first, asked(e)


@table.snippet(breaks=True)
def causes_and_contexts(x):
    found = []
    for explicit in (True, False):
        try:
            try:
                raise KeyError("k")
            except KeyError as e:
                x.sum().item()
                if explicit:
                    raise TypeError("t") from e
                raise TypeError("u")  # noqa: B904
        except TypeError as e:
            found += [passed(e), asked(e)]
    return x * 2, found


def giving(x):
    try:
        yield x * 2
        raise ValueError
    except ValueError:
        print("giving")
        raise


@table.snippet(breaks=True)
def out_of_a_generator(x):
    try:
        for y in giving(x):
            x = y
    except ValueError as e:
        return x * 2, asked(e)


def deeper(k):
    if k > 2:
        deeper(k - 1)
    raise RuntimeError("r")


eagerly = torch.compiler.disable(deeper)
DEPTHS = (1, 1, 4, 4, 1)


def depths(place: int) -> tuple:
    return t(place), DEPTHS[place]


@table.snippet(args=depths, calls=len(DEPTHS), breaks=True, recompiles=range(len(DEPTHS)), backward=False)
def raised_in_another_way_each_time(x, k):
    """Captured code that formats it is captured once for each."""
    try:
        y = x * 2
        eagerly(k)
    except RuntimeError as e:
        lines = traceback.format_exc()
        y = y + 1
        print("hm")
        return y, lines, asked(e)


class Exit:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, e, tb):
        self.log.append(tb.tb_lineno)
        print("exit")
        self.log += [tb.tb_lineno, e.__traceback__ is tb, passed(e), asked(e)]
        return True


@table.snippet(args=depths, calls=len(DEPTHS), breaks=True, recompiles=range(len(DEPTHS)), backward=False)
def given_to_exit(x, k):
    log: list[Any] = []
    with Exit(log):
        try:
            raise KeyError
        finally:
            print("inside")
    with Exit(log):
        eagerly(k)
    return x * 2, log


@contextlib.contextmanager
def noted():
    try:
        yield
    finally:
        print("noted")


@table.snippet(args=depths, calls=len(DEPTHS), breaks=True, recompiles=range(len(DEPTHS)), backward=False)
def through_a_context_manager(x, k):
    try:
        with noted():
            if k > 1:
                raise ValueError
            eagerly(k)
    except (ValueError, RuntimeError) as e:
        return x * 2, sys.exc_info()[2].tb_lineno, asked(e)


@table.program(calls=4, breaks=True)
def one_that_was_there_before():
    """Each call adds to its traceback."""
    kept = RuntimeError("kept")

    def fn(x):
        try:
            raise kept
        except RuntimeError as e:
            return x * 2, asked(e)

    return fn, kept


@table.snippet()
def formatted_with_marks(x):
    """What an instruction is compiled from is underlined: on one line or more, counted in bytes."""
    y, told = x * 2, []
    try:
        told.append(y.shape[0] + int("q"))
    except ValueError:
        told.append(traceback.format_exc())
    try:
        told.append(("ä" + "ö",
                    1 / (y.shape[0]
                         - y.shape[0]), 1))  # fmt: skip
    except ZeroDivisionError:
        told.append(traceback.format_exc())
    try:
        [i for i in (0, 1) if {}[i] + 1]
    except KeyError:
        told.append(traceback.format_exc())
    return y, told, [text.count("^") for text in told]


@table.snippet(breaks=True)
def formatted_with_marks_behind_a_border(x):
    y, told = x * 2, []
    try:
        told.append(y.shape[0] + int("q"))
    except ValueError:
        print("border")
        told.append(traceback.format_exc())
    return y, told


@table.snippet()
def kept_in_the_result(x):
    try:
        raise KeyError
    except KeyError as e:
        return x * 2, e, e.__traceback__.tb_lineno


@fineline.disable
def failing(x):
    if x.dim():
        raise ValueError("eager")


def out_of(body):
    """The exception of an eager call leaves ``body``: a second time, and on, it comes out of a program."""
    return table.snippet(breaks=True, recompiles=(0, 1, 2), min_graphs=0)(body)


@out_of
def with_a_variable_of_an_inner_function_that_is_not_set_yet(x):
    x = x * 2
    failing(x)
    later = 2

    def inner():
        return later

    return x * inner()


@out_of
def with_a_nonlocal_variable_that_is_not_set_yet(x):
    def inner():
        nonlocal count
        count += 1

    failing(x)
    count = 1
    inner()
    return x * count


@out_of
def with_a_variable_of_an_inner_function_that_is_deleted(x):
    gone = 3

    def inner():
        return gone

    y = x * inner()
    del gone
    failing(y)
    return y


@out_of
def with_the_name_of_a_handler_that_is_left(x):
    try:
        raise KeyError(x.dim())
    except KeyError as error:

        def inner():
            return error

        y = x * len(inner().args)
    failing(y)
    return y


@out_of
def with_a_variable_that_is_set_in_one_branch(x):
    if x.dim() > 5:
        rare = 1
    failing(x)
    return (lambda: rare)()


@out_of
def with_a_tensor_in_a_cell(x):
    y = x * 2

    def inner():
        return y + 1

    failing(inner())
    return inner()


@out_of
def with_a_function_that_names_itself(x):
    def inner(n):
        return failing(x * n) if not n else inner(n - 1)

    return inner(2)


@out_of
def in_a_callee_with_an_empty_cell(x):
    def callee(y):
        failing(y)
        z = y
        return lambda: z

    return callee(x * 2)()


@out_of
def in_a_generator_with_an_empty_cell(x):
    def items():
        failing(x)
        k = 1
        yield lambda: k

    return [make() for make in items()]


@out_of
def in_a_comprehension_with_an_empty_cell(x):
    return [(failing(x), (lambda: late)) for late in (x, x)], [(lambda: early) for early in [1]]


@out_of
def with_a_cell_that_is_a_value(x):
    cell = types.CellType()
    failing(x)
    return cell


def fails_in_except(x):
    y = x * 2
    try:
        raise ValueError("bad")
    except ValueError:
        print("oops")
        raise
    return y


def fails_in_finally(x):
    y = x * 2
    try:
        cleaned(y)
    finally:
        print("oops")
    return y


@pytest.mark.parametrize("options", [{}, {"first_call": "compiled"}], ids=str)
@pytest.mark.parametrize("fn", [fails_in_except, fails_in_finally])
def test_exceptions_that_leave(fn, options) -> None:
    def frames(fn) -> list:
        with pytest.raises((ValueError, KeyError)) as caught:
            fn(torch.ones(2))
        found = traceback.extract_tb(caught.value.__traceback__)[1:]
        # The program that makes the first call at a border says so.
        return [(f.name, f.lineno) for f in found if not f.filename.startswith(PROGRAM) and f.name != "__call__"]

    compiled = fineline.compile(fn, backend="eager", options=options)
    expected = frames(fn)
    for _ in range(3):
        assert frames(compiled) == expected


@pytest.mark.parametrize("told", [traceback.format_exc, traceback.print_exc])
def test_telling_of_an_exception_is_one_break(told, capsys) -> None:
    def fn(x):
        y = x * 2
        try:
            raise KeyError
        except KeyError:
            return y * 2, told()

    assert len(fineline.explain(fn)(torch.ones(2)).breaks) == 1


def test_returned_exceptions_keep_theirs() -> None:
    def fn(x):
        try:
            raise KeyError
        except KeyError as e:
            return x * 2, e

    compiled = fineline.compile(fn, backend="eager")
    expected = passed(fn(torch.ones(2))[1])
    for _ in range(3):
        assert passed(compiled(torch.ones(2))[1]) == expected


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_tracebacks(program: Program, twin: str) -> None:
    check(program, twin)
