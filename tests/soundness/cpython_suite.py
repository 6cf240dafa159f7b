"""CPython's own tests, each compiled: ``python -m tests.soundness.cpython_suite test_dict test_iter ... [--twin borders] [--only NAME]``.

A test method that passes is called from a compiled function, twice; it must pass then as well, and no event may tell of a defect.
Some tests fail for known reasons: this is a place to look, and no part of CI. The reasons, on 3.12 to 3.14 as on 3.11:

- They ask for reference counts, sizes, garbage, or the time of an object's death (``test_tuple_reuse``, ``test_free_after_iterating``, ``test_splittable_popitem``).
  ``gc.get_objects()`` shows fineline's own objects too (``test_cycle_through_dict``).
- They ask for frames of running code, or trace it (``test_frame``, the tracing tests of ``test_patma`` and ``test_exceptions``, ``gi_frame`` in
  ``test_generators``). On 3.13, ``f_locals`` that may write is refused once (FL439).
- They replace a builtin that fineline's own code calls, and all that comes after them in the process fails: ``builtins.int`` in ``test_builtin``'s
  ``TestBreakpoint``, ``iter`` in ``test_iter``.
- They give a function another C entry point, which nothing in Python shows (``TestPEP590`` of ``test_call``).
- They change a container from ``__eq__`` or ``__del__`` while C is inside it (``test_resize2``, ``test_oob_indexing_dictiter_iternextitem``).
- They ask for the address of a number, text or frozenset again after a graph break (``test_constructor_identity``), name a generator by a number
  (``test_name``), or count the calls of ``__len__`` that a ``reversed`` object makes (``test_len``).
- They loop for longer than `SECONDS`, or recurse to the limit (``Late``).

Debian's Pythons have these tests in a package of their own, such as libpython3.13-testsuite.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib
import io
import signal
import sys
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
    deep = sys.getrecursionlimit()
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
        sys.setrecursionlimit(deep)  # `Late` may have come before a test has done so
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
