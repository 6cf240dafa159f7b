"""Log records and warnings: one eager call each, that finds the user's code on the stack; what is switched off is guarded, and breaks nothing."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check

table = Table()


class Printing(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        print(record.name, record.levelname, record.getMessage(), record.funcName, record.lineno, error)


def logger(level: int = logging.DEBUG) -> logging.Logger:
    """In no list of loggers, which other tests' handlers are in; asked before, as the first question takes a lock."""
    log = logging.Logger("here", level)
    log.addHandler(Printing())
    for n in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.isEnabledFor(n)
    return log


def asked(log: logging.Logger, level: int) -> None:
    log.setLevel(level)
    for n in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.isEnabledFor(n)


@table.program(calls=5, breaks=True, max_graphs=2)
def warning() -> Any:
    log = logger()

    def fn(x):
        y = x + 1
        log.warning("odd size %d", x.shape[0])
        return y * 2

    return fn


@table.program(calls=4, breaks=True, max_graphs=3)
def all_ways() -> Any:
    log = logger()

    def inner(x):
        log.info("inside %s", [1, 2], stacklevel=2)
        return x.sin()

    def fn(x):
        y = inner(x)
        try:
            raise ValueError("oops")
        except ValueError:
            log.exception("caught")
            log.log(logging.ERROR, "again", exc_info=True)
        return y.cos()

    return fn


@table.program(calls=4, max_graphs=2, change={2: lambda s: asked(s, logging.ERROR)}, recompiles=(2,), breaks=True)
def level_set_between_calls() -> Any:
    log = logger(logging.INFO)

    def fn(x):
        y = x + 1
        log.debug("not heard")
        if log.isEnabledFor(logging.WARNING):
            y = y * 3
        return y

    return fn, log


@table.program(calls=4, max_graphs=1)
def switched_off() -> Any:
    log = logger(logging.ERROR)

    def fn(x):
        for _ in range(3):
            x = x + 1
            log.warning("not heard %s", x)
        return x

    return fn


@table.program(calls=4, breaks=True)
def text_of_tensors() -> Any:
    log = logger()

    def fn(x):
        y = x.sum()
        log.warning("the sum is %.1f", y)
        log.info(f"and {y:.2f}")
        return x / y

    return fn


@table.program(calls=3, breaks=True, change={1: lambda s: s.handlers.clear(), 2: lambda s: s.addFilter(lambda r: "no" not in r.msg)})
def handlers_and_filters_that_change() -> Any:
    log = logger()
    log.propagate = False
    log.addHandler(logging.NullHandler())

    def fn(x):
        log.error("yes")
        y = x * 2
        log.error("no")
        return y + 1

    return fn, log


@table.program(calls=3, breaks=True, max_graphs=3)
def warnings_name_their_callers() -> Any:
    def old(x):
        warnings.warn("gone soon", DeprecationWarning, stacklevel=2)
        return x.sin()

    def fn(x):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            y = old(x + 1)
            warnings.warn("odd")
            print([(str(w.message), w.category.__name__, w.lineno, os.path.basename(w.filename)) for w in heard])
        return y.cos()

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_logging(program: Program, twin: str) -> None:
    check(program, twin)


def test_rules_stand_above() -> None:
    """A user's rule may drop the call, forbid it, or have it looked into."""
    log = logger()

    def fn(x):
        y = x + 1
        log.warning("heard")
        return y * 2

    X = torch.ones(2)
    assert fineline.why(logging.Logger._log).verb == "disable" and fineline.why(logging.Logger._log).scope == "built-in"
    assert [b.id for b in fineline.explain(fn)(X).breaks] == ["FL411"]

    def dropped(self, level, msg, args, exc_info=None, extra=None, stack_info=False, stacklevel=1):
        pass

    nothing = fineline.explain(fn, policy=fineline.Policy(substitute={logging.Logger._log: dropped}))(X)
    assert not nothing.breaks
    looked = fineline.explain(fn, policy=fineline.Policy(trace=logging.Logger._log))(X)
    assert looked.breaks and not [b for b in looked.breaks if "Logger._log" in b.reason]
    with pytest.raises(fineline.errors.Forbidden):
        fineline.compile(fn, backend="eager", policy=fineline.Policy(forbid=[logging.Logger._log]))(X)
