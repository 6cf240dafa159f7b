"""A run in a copy of this process: what is imported by now need not be imported again, and nothing that happens there comes back."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import IO


def run_in_copy(run: Callable[[], None], out: IO[bytes], errors: IO[bytes]) -> int:
    """Returns the exit status of ``run``, as that of a program of its own, which prints to these files."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(out.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    # Not through the frames of who called: what they would clean up is not the copy's.
    os._exit(_status(run))


def _status(run: Callable[[], None]) -> int:
    """Runs to the end what Python itself would, and says what it would."""
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
