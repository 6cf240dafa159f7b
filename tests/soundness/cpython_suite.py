"""CPython's own tests, each compiled: ``python -m tests.soundness.cpython_suite test_dict test_iter ... [--twin borders] [--only NAME]``.

A test method that passes is called from a compiled function, twice; it must pass then as well, and no event may tell of a defect.
What asks for reference counts, frames or the time of an object's death fails for known reasons: this is a place to look, and no part of CI.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib
import io
import signal
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import fineline
from tests.oracle import TWINS, defects

SECONDS = 10  # of processor time
WAITING = 120  # of any time, for a test that waits


class Late(BaseException):
    """A test takes longer than `SECONDS`."""


def _late(*_: Any) -> None:
    raise Late


def cases(suite: Any) -> Iterator[unittest.TestCase]:
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases(part)
        elif not isinstance(part, doctest.DocTestCase):
            yield part


def outcome(case: unittest.TestCase, call: Callable[[Callable], None]) -> str:
    """Runs one test with what it sets up; -> "" if it passes."""
    method, text = getattr(case, case._testMethodName), ""
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(WAITING)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            case.setUp()
            try:
                call(method)
            finally:
                case.tearDown()
                case.doCleanups()
    except unittest.SkipTest:
        text = "skipped"
    except (Exception, Late) as error:
        text = f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    return text


def between_operators(x: torch.Tensor, method: Callable) -> torch.Tensor:
    y = x + 1
    method()
    return y * 2


def run_module(name: str, twin: str, only: str) -> tuple[int, int]:
    """-> how many tests ran, and how many of them failed compiled."""
    ran = failed = 0
    x = torch.ones(3)
    seen = set()
    for case in cases(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"test.{name}"))):
        if type(case) not in seen:
            seen.add(type(case))
            type(case).setUpClass()
        if only not in case.id() or outcome(case, lambda method: method()):
            continue
        ran += 1
        fineline.reset()
        options = dict(TWINS[twin])
        how = {key: options.pop(key) for key in ("dynamic", "fullgraph") if key in options}
        compiled = fineline.compile(between_operators, backend="eager", options=options, **how)
        with defects() as heard:
            for call in range(2):
                fresh = type(case)(case._testMethodName)
                text = outcome(fresh, lambda method, compiled=compiled: compiled(x, method))
                if text and not outcome(type(case)(case._testMethodName), lambda method: method()):
                    failed += 1
                    print(f"{case.id()}, call {call}: {text}", flush=True)
                    break
        for text in dict.fromkeys(heard):
            print(f"{case.id()}: {text[:500]}", flush=True)
    return ran, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", help="names of modules in CPython's test package")
    parser.add_argument("--twin", default="captured", choices=list(TWINS))
    parser.add_argument("--only", default="", help="run the tests with this in their names alone")
    given = parser.parse_args()
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _late)
    for name in given.modules:
        ran, failed = run_module(name, given.twin, given.only)
        print(f"{name} [{given.twin}]: {failed} of {ran} fail compiled", flush=True)


if __name__ == "__main__":
    main()
