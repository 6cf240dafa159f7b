"""Refuses to trace graphs in a thread that runs beside calls."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

import torch
import torch._functorch.aot_autograd as aot_autograd
from torch._inductor import compile_fx, select_algorithm


class _Refusing(threading.local):
    """Whether this thread is in a block in which tracing is refused. Not by its number, which a forked child gives to new threads: the patches stay there."""

    on = False


_HERE = _Refusing()


class TracingBegins(BaseException):
    """A compiler begins to trace a graph in a thread that runs beside calls."""


@contextmanager
def tracing_refused() -> Iterator[None]:
    """Raises `TracingBegins` where AOTAutograd begins to trace in this thread; lets no compiler here touch the random states.

    While AOTAutograd traces, all threads see FX's patches of ``nn.Module`` and its flags, by which some functions of PyTorch refuse to run. At its
    end it puts back random states: what other threads have drawn meanwhile would be drawn again. What comes from its caches is not traced.
    """

    def instead(other: Callable[[], AbstractContextManager[object]], mine: Callable[[], AbstractContextManager[object]]) -> Callable:
        return lambda: mine() if _HERE.on else other()

    utils = compile_fx.dynamo_utils
    with (
        mock.patch.object(aot_autograd, "preserve_rng_state", instead(aot_autograd.preserve_rng_state, _refuse)),
        mock.patch.object(select_algorithm, "preserve_rng_state", instead(select_algorithm.preserve_rng_state, nullcontext)),
        mock.patch.object(utils, "preserve_rng_state", instead(utils.preserve_rng_state, nullcontext)),
        # It is off already, and is off again at the end, whatever guards AOTAutograd has left.
        torch._C._DisablePythonDispatcher(),
    ):
        _HERE.on = True
        try:
            yield
        except TracingBegins as e:
            # AOTAutograd's frame holds a guard of the Python dispatcher: it may switch that on when it is freed, or off only then.
            traceback.clear_frames(e.__traceback__)
            raise
        finally:
            _HERE.on = False


def _refuse() -> AbstractContextManager[object]:
    raise TracingBegins
