"""What runs in the background, and the process around it: its end, forks, signals, the process that compiles, the lines on a terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import fineline
from fineline.background.queue import QUEUE, CompileQueue, Stopped
from fineline.errors import BackendFailed
from tests.background.gates import LONGEST, Gate

X = torch.linspace(-1, 1, 6)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")


def step(x):
    return (x.sin() + x.cos()).relu() * 2


PROGRAM = """
import logging, time, torch, fineline
# It warns on machines without Triton.
logging.getLogger("torch.utils.flop_counter").setLevel("ERROR")
torch.set_num_threads(1)
def step(x):
    return (x.sin() + x.cos()).relu() * 2
def slow(gm, examples):
    time.sleep({seconds})
    return gm.forward
x = torch.ones(6)
compiled = fineline.compile(step, backend={backend}, wait=False)
assert torch.equal(compiled(x), step(x))
"""


def ran(code, seconds=50.0, backend="slow", **how):
    text = PROGRAM.format(seconds=seconds, backend=backend) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], text=True, timeout=LONGEST, **{"capture_output": True, **how})


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.later
def test_the_interpreter_ends_while_a_thread_compiles() -> None:
    began = time.monotonic()
    done = ran("print('the end')", seconds=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
    assert time.monotonic() - began < 45


def test_the_interpreter_ends_in_the_middle_of_python_code() -> None:
    done = ran(
        """
        def busy(gm, examples):
            while True:
                torch.ones(100).sum()
        fineline.compile(lambda x: x + 1, backend=busy, wait=False)(x)
        time.sleep(0.2)
        print('the end')
        """,
        seconds=0,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_the_interpreter_ends_when_a_compiler_has_just_ended(monkeypatch) -> None:
    """What stops the compiler may arrive behind it, and is no error of the thread."""
    queue = CompileQueue()

    def stopped() -> None:
        raise Stopped

    monkeypatch.setattr(queue, "_next", stopped)
    queue._work()


@pytest.mark.later
def test_an_uncaught_error_ends_the_program() -> None:
    done = ran("raise SystemExit(3)")
    assert done.returncode == 3 and done.stderr == ""


@pytest.mark.later
@pytest.mark.skipif(not os.path.exists("/proc"), reason="it looks into /proc")
@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)"], ids=["exit", "killed"])
def test_the_process_that_compiles_ends_with_this_one(end) -> None:
    done = ran(
        f"""
        import os
        from fineline.background.queue import QUEUE
        while QUEUE.process is None or QUEUE.process.pid is None:
            time.sleep(0.01)
        print(QUEUE.process.pid, flush=True)
        {end}
        """,
        backend="'inductor'",
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + LONGEST
    # One that is killed finds out when its imports are done.
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid) and done.stderr == "" and done.returncode == (0 if end == "pass" else -9)


def in_child(answer: Callable[[], bool]) -> bool:
    """Returns the answer of a forked child."""
    child = os.fork()
    if child == 0:
        right = False
        try:
            right = answer()
        finally:
            os._exit(0 if right else 1)
    return os.waitpid(child, 0)[1] == 0


@needs_fork
def test_a_forked_child_compiles_for_itself() -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    assert gate.began.wait(LONGEST)

    def calls() -> bool:
        gate.may_go = threading.Event()
        right = torch.equal(compiled(X), step(X)) and not compiled.ready() and not fineline.wait(0.01)
        gate.open()
        return right and fineline.wait(LONGEST) and compiled.ready() and torch.equal(compiled(X), step(X)) and gate.runs == 1

    assert in_child(calls)
    assert not compiled.ready() and gate.runs == 0
    gate.open()
    assert fineline.wait(LONGEST) and torch.equal(compiled(X), step(X)) and gate.runs == 1


@needs_fork
def test_a_forked_child_is_as_if_nothing_were_compiled() -> None:
    """Its threads may have the numbers of the parent's."""
    gate, interval = Gate(), sys.getswitchinterval()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    assert gate.began.wait(LONGEST) and sys.getswitchinterval() < interval

    def calls() -> bool:
        right: list[bool] = [sys.getswitchinterval() == interval]

        def compiles(n: int) -> None:
            compiled = fineline.compile(lambda x: x.exp() * n, backend="aot_eager")
            right.append(torch.equal(compiled(X), X.exp() * n))

        for n in range(1, 6):
            thread = threading.Thread(target=compiles, args=(n,))
            thread.start()
            thread.join(LONGEST)
        return all(right) and len(right) == 6

    assert in_child(calls)
    gate.open()
    assert fineline.wait(LONGEST) and sys.getswitchinterval() == interval


@needs_fork
def test_a_forked_child_that_calls_nothing_compiles_nothing() -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    assert gate.began.wait(LONGEST)
    assert in_child(lambda: "fineline-compile" not in [thread.name for thread in threading.enumerate()])
    gate.open()
    assert fineline.wait(LONGEST)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """A process that a shell has started in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_a_wait() -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        fineline.wait(LONGEST)
    assert torch.equal(compiled(X), step(X))
    gate.open()
    assert fineline.wait(LONGEST) and compiled.ready()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the platform has no SIGKILL")
@pytest.mark.parametrize("suppress", [False, True])
def test_the_process_that_compiles_is_killed(suppress, caplog) -> None:
    compiled = fineline.compile(step, wait=False, options={"suppress_errors": suppress})
    assert torch.equal(compiled(X), step(X))
    deadline = time.monotonic() + LONGEST
    while (QUEUE.process is None or QUEUE.process.pid is None) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(QUEUE.process.pid, signal.SIGKILL)
    assert fineline.wait(LONGEST)
    assert "ended by signal 9 (SIGKILL)" in caplog.text
    if suppress:
        assert torch.equal(compiled(X), step(X)) and compiled.ready()
    else:
        with pytest.raises(BackendFailed, match=r"ended by signal 9 \(SIGKILL\)") as caught:
            compiled(X)
        assert caught.value.id == "FL305"


@pytest.mark.later
def test_inductor_in_its_process(tmp_path, monkeypatch) -> None:
    """The graphs come out of the caches that the process has filled: this one has traced nothing."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(seconds=0, backend="'inductor'") + textwrap.dedent("""
            # A call that finds another capture under way is not captured.
            assert fineline.wait()
            y = x.clone().requires_grad_()
            compiled(y).sum().backward()
            assert fineline.wait() and compiled.ready()
            from torch._dynamo.utils import counters
            assert counters["aot_autograd"]["autograd_cache_hit"] == 2 and not counters["aot_autograd"]["autograd_cache_miss"], counters
            before = y.grad.clone()
            compiled(y).sum().backward()
            torch.testing.assert_close(y.grad, 2 * before)
            print(*[event.id for event in fineline.report(compiled).events if event.kind == "takeover"])
        """)],
        text=True, capture_output=True, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}, timeout=10 * LONGEST,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "FL007\n"), done.stderr


@pytest.mark.later
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the platform has no terminals")
def test_a_line_on_a_terminal_after_three_seconds() -> None:
    ours, theirs = os.openpty()
    code = "assert fineline.wait() and torch.equal(compiled(x), step(x))"
    assert ran(code, seconds=4, capture_output=False, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}).returncode == 0
    os.close(theirs)
    text = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "is being compiled in the background; its calls run eagerly until then" in text and re.search(r"was compiled for \d+ s", text)
    done = ran(code, seconds=4)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
