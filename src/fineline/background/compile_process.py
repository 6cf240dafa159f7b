"""The process that compiles for this one: it fills the caches on disk, from which this process then loads the compiled graphs.

A compiler is a large Python program. In a thread of this process it would take turns with the user's code, which would be several times slower.
"""

from __future__ import annotations

import copy
import io
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

import torch._functorch.config
import torch._inductor.config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx._graph_pickler import GraphPickler, Options

from fineline.background.graph_job import GraphJob
from fineline.background.graph_state import GraphState
from fineline.background.switch_interval import SWITCHES
from fineline.kinds import is_a

log = logging.getLogger("fineline")
# The length of a message comes before it.
HEAD = struct.Struct("!Q")
# The most of what the process has printed that an error quotes.
MOST_TEXT = 2000
_START = "import sys; sys.path[:] = {path!r}; from fineline.background.compile_server import serve; serve()"


class Ended(Exception):
    """The process has ended while it compiled."""


class Order(NamedTuple):
    """What the process needs to compile a graph. ``graph``: the graph and its examples, pickled."""

    graph: bytes
    state: GraphState
    kwargs: Mapping[str, Any]
    # The environment has the folders of the caches, and settings of compilers.
    environment: Mapping[str, str]
    inductor: Mapping[str, Any]
    functorch: Mapping[str, Any]


class CompileProcess:
    """The process, which is started at its first order and ends with this one, however this one ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def compile(self, job: GraphJob) -> None:
        """Has the process compile a graph; raises `Ended` if it ends meanwhile. If it cannot compile the graph, this process does all of it."""
        try:
            with SWITCHES.shortened():
                order = _pickled(job)
            process = self._started()
        except Exception as e:
            log.debug("fineline: a graph is compiled in a thread: %s: %s", type(e).__name__, e)
            return
        assert process.stdin is not None and process.stdout is not None
        try:
            write_message(process.stdin, order)
            answer = read_message(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise self._ended(process)
        if answer:
            log.debug("fineline: a graph is compiled in a thread: %s", answer.decode())

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._printed = tempfile.TemporaryFile()  # noqa: SIM115
            # A session of its own: Ctrl-C in the terminal is for the user's program.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._printed,
                bufsize=0, start_new_session=True, env=_environment(),
            )  # fmt: skip
        return self._process

    def _ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Returns the error for a process that has ended: how, and what it has printed last."""
        code = process.wait()
        text = ""
        if self._printed is not None:
            self._printed.seek(max(0, self._printed.seek(0, io.SEEK_END) - MOST_TEXT))
            text = self._printed.read().decode(errors="replace").strip()
        self._process = None
        how = f"by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"with status {code}"
        return Ended(f"the process that compiles in the background ended {how}{': ' if text else ''}{text}")

    def kill(self) -> None:
        """Ends the process, and those that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (AttributeError, OSError):  # Windows has no process groups; or the process has ended
            process.kill()
        process.wait()

    def leave(self) -> None:
        """Forgets the process in a forked child: it works for the parent."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
            process.returncode = 0


def write_message(stream: IO[bytes], message: bytes) -> None:
    """Writes a message to an unbuffered stream."""
    rest = memoryview(HEAD.pack(len(message)) + message)
    while rest:
        rest = rest[stream.write(rest) :]


def read_message(stream: IO[bytes]) -> bytes | None:
    """Returns the next message; None at the end of the stream."""
    head = _read(stream, HEAD.size)
    return None if head is None else _read(stream, HEAD.unpack(head)[0])


def _read(stream: IO[bytes], size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        part = stream.read(size - len(found))
        if not part:
            return None
        found += part
    return bytes(found)


class _Pickler(GraphPickler):
    """Pickles fakes that are views, or have a gradient: PyTorch 2.13 fails at the mode of the base and of the gradient."""

    def reducer_override(self, obj: object) -> Any:
        if is_a(obj, FakeTensorMode):
            return _mode_of, (self._unpickle_state,)
        return super().reducer_override(obj)


def _mode_of(state: Any) -> FakeTensorMode:
    """Returns the mode of the process that loads. ``state``: that of PyTorch's unpickler."""
    mode: FakeTensorMode = state.fake_mode
    return mode


def _pickled(job: GraphJob) -> bytes:
    own = GraphModule(job.gm, copy.deepcopy(job.gm.graph), type(job.gm).__name__)
    graph = _Pickler.dumps((own, list(job.examples)), Options(ops_filter=None))
    configs = [dict(config.save_config_portable()) for config in (torch._inductor.config, torch._functorch.config)]
    return pickle.dumps(Order(graph, job.state, dict(job.backend.kwargs), _environment(), *configs))


def _environment() -> dict[str, str]:
    # Without the variable by which `fineline run` sets up the program's own processes.
    return {name: value for name, value in os.environ.items() if name != "FINELINE_RUN"}
