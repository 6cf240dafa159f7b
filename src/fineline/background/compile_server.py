"""The main function of the process that compiles for another one (`CompileProcess`)."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from typing import IO, Any

import torch._functorch.config
import torch._inductor.config
from torch._inductor.utils import clear_caches
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._graph_pickler import GraphPickler
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.backends.inductor import inductor
from fineline.background.compile_process import Order, read_message, write_message

# A low priority: the user's program comes first, but on a busy machine this process still gets a tenth of a core.
NICENESS = 10


def serve() -> None:
    """Compiles what the other process orders, until that ends."""
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    # What compilers print must not get between the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(os.fdopen(sys.stdin.fileno(), "rb", buffering=0), orders), daemon=True).start()
    while True:
        write_message(answers, _answer(orders.get()).encode())


def _read(stream: IO[bytes], orders: queue.SimpleQueue[bytes]) -> None:
    while (order := read_message(stream)) is not None:
        orders.put(order)
    # The other process has ended. This one may be compiling, and has started other processes.
    os.killpg(0, signal.SIGKILL)


def _answer(order: bytes) -> str:
    """Compiles a graph into the caches on disk; returns why that is not possible, "" if it has been done."""
    try:
        _compile(pickle.loads(order))
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""


def _compile(order: Order) -> None:
    os.environ.clear()
    os.environ.update(order.environment)
    for config, values in ((torch._inductor.config, order.inductor), (torch._functorch.config, order.functorch)):
        config.load_config(dict(values))
    # Both processes use the same folders, which the other one may have cleared.
    clear_caches()
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with order.state.in_this_process():
        gm, examples = _loaded(order.graph, mode)
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
            inductor(gm, examples, **order.kwargs)


def _loaded(graph: bytes, mode: FakeTensorMode) -> Any:
    return GraphPickler.loads(graph, mode)
