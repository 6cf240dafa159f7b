"""Runs a function in a forked copy of this process, which has its imported modules and does not affect it; finds what has failed there."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import IO


def run_in_copy(run: Callable[[], None], out: IO[bytes], errors: IO[bytes]) -> int:
    """Calls ``run`` in a copy of this process that prints to these files; returns its exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(out.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    # Do not return through the callers' frames, which would clean up what belongs to the original process.
    os._exit(_status(run))


def failure_line(errors: bytes) -> str:
    """Returns the line on standard error with the failure of a run: the first of the last refusal, or else the last line."""
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    refusals = [line for line in lines if re.match(r"[\w.]+: FL\d+: ", line)]
    return (refusals or lines or [""])[-1].removeprefix("fineline.errors.")


def _status(run: Callable[[], None]) -> int:
    """Calls ``run`` and ends as Python does: shows an exception, runs exit functions; returns the status."""
    try:
        run()
        code: object = 0
    except SystemExit as e:
        code = e.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code) & 255  # type: ignore[call-overload]
