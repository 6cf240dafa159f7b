"""`wait=False` with Inductor, its process, and the processes that this starts: forks beside them, Ctrl-C, the end, threads, comparisons with eager code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fineline.background.work_queue import LAST
from tests.background.gates import LONGEST
from tests.background.test_processes import PROGRAM, needs_fork

needs_proc = pytest.mark.skipif(not os.path.exists("/proc"), reason="it looks into /proc")
# Waits until the process that compiles runs, in one that has begun to compile `step`.
STARTED = """
import os, signal, sys, threading
from fineline.background.queue import QUEUE
while QUEUE.process is None or QUEUE.process.pid is None:
    time.sleep(0.01)
"""


def started(code: str, folder: Path, first: str = "") -> subprocess.Popen[str]:
    """Starts a program that has begun to compile `step` with Inductor, with empty caches, in a session of its own, as in a terminal."""
    text = first + PROGRAM.format(seconds=0, backend="'inductor'") + STARTED + textwrap.dedent(code)
    own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", text], text=True, start_new_session=True, env=own, **pipes)


def ran(code: str, folder: Path) -> str:
    """Runs such a program; returns what it prints."""
    process = started(code, folder)
    out, err = process.communicate(timeout=10 * LONGEST)
    assert process.returncode == 0, out + err
    return out


def members(session: int) -> set[int]:
    """Returns the processes of a session that run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, *_, of = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has ended
        if int(of) == session and state != "Z":
            found.add(int(path.parent.name))
    return found


def all_end(session: int) -> bool:
    """Waits until the processes of a session have ended; returns whether they have."""
    deadline = time.monotonic() + LONGEST
    while members(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not members(session)


@needs_fork
@needs_proc
def test_forks_beside_its_process(tmp_path: Path) -> None:
    """A child that works compiles for itself; one that only calls and exits leaves the parent's process alone."""
    out = ran(
        """
        import multiprocessing

        def calls():
            assert torch.equal(compiled(x), step(x)) and QUEUE.process.pid is None

        def compiles():
            calls()
            assert fineline.wait(500) and compiled.ready() and QUEUE.process.pid not in (None, pid)
            torch.testing.assert_close(compiled(x), step(x))
            taken = [event.id for event in fineline.report(compiled).events if event.kind == "takeover"]
            assert taken == ["FL007"], taken

        def forked(target, leave):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    target()
                    status = 0
                finally:
                    leave(status)
            return child

        pid = QUEUE.process.pid
        children = [forked(calls, os._exit), forked(calls, sys.exit), forked(compiles, sys.exit)]
        others = [multiprocessing.get_context("fork").Process(target=target) for target in (calls, compiles)]
        for other in others:
            other.start()
        for _ in range(50):
            assert torch.equal(compiled(x), step(x)) or compiled.ready()
        statuses = [os.waitpid(child, 0)[1] for child in children]
        for other in others:
            other.join()
        print(statuses, [other.exitcode for other in others], flush=True)
        assert QUEUE.process.pid == pid and os.waitpid(-1, os.WNOHANG) == (0, 0)
        assert fineline.wait() and compiled.ready()
        torch.testing.assert_close(compiled(x), step(x))
        print(*[event.id for event in fineline.report(compiled).events if event.kind in ("takeover", "waited")], pid)
        """,
        tmp_path,
    )
    statuses, rest = out.splitlines()
    assert statuses == "[0, 0, 0] [0, 0]", out
    ids, pid = rest.rsplit(" ", 1)
    assert ids == "FL007" and all_end(int(pid))


# What the program does while the process compiles, and how it ends: by the signal of Ctrl-C, or at its end.
ENDS = {"a wait": ("fineline.wait()", True), "calls": ("while True: compiled(x)", True), "the end": ("began = time.monotonic()", False)}


@needs_proc
@pytest.mark.parametrize("compiler", [False, True], ids=["at once", "beside a C++ compiler"])
@pytest.mark.parametrize("how", ENDS)
def test_the_program_ends_at_once_and_so_does_its_process(how: str, compiler: bool, tmp_path: Path) -> None:
    code, interrupted = ENDS[how]
    program = f"""
        print(QUEUE.process.pid, flush=True)
        sys.stdin.readline()

        def ctrl_c():
            global began
            began = time.monotonic()
            os.killpg(0, signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        if {interrupted}:
            threading.Timer(0.2, ctrl_c).start()
        {code}
        """
    # Before fineline's threads, which the interpreter ends in the opposite order.
    first = "import atexit, time\natexit.register(lambda: print(time.monotonic() - began, [t.name for t in threading.enumerate()]))\n"
    process = started(program, tmp_path, first=first)
    assert process.stdin is not None and process.stdout is not None
    pid = int(process.stdout.readline())
    # A C++ compiler may have ended again when this has seen it: there are several, one after the other.
    deadline = time.monotonic() + LONGEST
    while not (there := len(members(pid)) > compiler) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert there
    out, err = process.communicate("go on\n", timeout=LONGEST)
    seconds, threads = out.split(" ", 1)
    assert float(seconds) < LAST and threads.strip() == "['MainThread']", out
    if interrupted:
        assert process.returncode == -signal.SIGINT and err.rstrip().endswith("KeyboardInterrupt"), err
    else:
        assert (process.returncode, err) == (0, "")
    assert all_end(pid)


def test_threads_that_call_at_once(tmp_path: Path) -> None:
    """Each call has the results of eager code, before and after the compiled graph takes over; the graph is captured and compiled once."""
    out = ran(
        """
        from fineline.background.compile_process import CompileProcess
        from torch._dynamo.utils import counters

        def net(x, w):
            return torch.tanh(x @ w + 1).softmax(-1).sum(0) * x.shape[0]

        orders, compile_in_process = [], CompileProcess.compile
        def counted(process, job):
            orders.append(job.name)
            return compile_in_process(process, job)
        CompileProcess.compile = counted

        assert fineline.wait()
        counters.clear()
        compiled, wrong, done, go = fineline.compile(net, wait=False), [], [], threading.Barrier(4)
        w = torch.randn(6, 6)

        def calls(n):
            go.wait()
            a, b = torch.randn(5, 6).requires_grad_(), w.clone().requires_grad_()
            ran = 0
            while ran < 20 or not done:
                ran += 1
                found, expected = compiled(a, b), net(a, b)
                for one, other in zip((found, *torch.autograd.grad(found.sum(), (a, b))), (expected, *torch.autograd.grad(expected.sum(), (a, b)))):
                    if not torch.allclose(one, other, rtol=1e-4, atol=1e-5):
                        wrong.append((n, ran))
            for _ in range(20):
                found, expected = compiled(a, b), net(a, b)
                if not torch.allclose(found, expected, rtol=1e-4, atol=1e-5):
                    wrong.append((n, "after"))

        threads = [threading.Thread(target=calls, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        # Not before one has called.
        while not fineline.report(compiled).programs:
            time.sleep(0.01)
        assert fineline.wait() and compiled.ready()
        done.append(True)
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert counters["aot_autograd"]["autograd_cache_hit"] == 1 and not counters["aot_autograd"]["autograd_cache_miss"], counters
        print(orders, *[event.id for event in fineline.report(compiled).events])
        """,
        tmp_path,
    )
    assert out == "['net'] FL001 FL007\n"


def test_which_graphs_a_call_waits_for(tmp_path: Path) -> None:
    """Only for those that no cache holds: a view, a tensor with a gradient and a varying size are compiled in the process, also after such a graph."""
    out = ran(
        """
        from torch.testing._internal.two_tensor import TwoTensor

        def net(x, w):
            return ((x @ w).relu() * 2).sum()

        def trained(make):
            compiled = fineline.compile(net, wait=False)
            for n in range(3):
                x, w = make(n), torch.eye(6).requires_grad_()
                for _ in range(2):
                    # From the first backward pass on, the leaves have gradients.
                    compiled(x, w).backward()
                    before = w.grad.clone()
                assert torch.equal(before, 2 * torch.autograd.grad(net(x, w), w)[0])
                assert fineline.wait() and compiled.ready()
            print(*[event.id for event in fineline.report(compiled).events if event.id in ("FL007", "FL008")])

        assert fineline.wait()
        trained(lambda n: torch.ones(2, 6).requires_grad_())
        trained(lambda n: TwoTensor(torch.ones(3, 6), torch.ones(3, 6)).requires_grad_())
        trained(lambda n: torch.ones(4, 6).requires_grad_())
        trained(lambda n: torch.ones(60)[n : n + 30].view(5, 6))
        trained(lambda n: torch.ones(6, 7 + n).requires_grad_().t())
        """,
        tmp_path,
    )
    first, wrapper, gradient, view, varying = out.splitlines()
    assert (first, gradient, view) == ("FL007", "FL007", "FL007") and "FL008" in wrapper and "FL008" not in varying, out
