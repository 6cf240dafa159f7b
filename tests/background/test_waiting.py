"""`compile(wait=False)`: calls run eagerly while a graph is compiled in the background, and a later call takes the compiled graph."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import weakref

import pytest
import torch
from torch._inductor import compile_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

import fineline
from fineline.backends.aot_eager import aot_eager
from fineline.backends.lock import TRACERS
from fineline.background.queue import CAPTURES, QUEUE
from fineline.errors import BackendFailed, BadArgument
from tests.background.gates import LONGEST, Gate, captured

X = torch.linspace(-1, 1, 6)


def step(x):
    return (x.sin() + x.cos()).relu() * 2


def events(compiled, kind):
    return [(event.kind, event.id) for event in fineline.report(compiled).events if event.kind == kind]


def test_calls_run_eagerly_until_a_later_call_takes_the_compiled_graph() -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    assert not compiled.ready()
    for _ in range(3):
        assert torch.equal(compiled(X), step(X))
    assert gate.began.wait(LONGEST)
    assert gate.runs == 0 and not compiled.ready() and not fineline.wait(0) and not fineline.wait(0.01)
    assert events(compiled, "takeover") == []
    gate.open()
    assert fineline.wait() and compiled.ready()
    assert gate.runs == 0 and events(compiled, "takeover") == []
    for n in range(1, 4):
        assert torch.equal(compiled(X), step(X))
        assert gate.runs == n
    assert events(compiled, "takeover") == [("takeover", "FL007")]
    assert gate.graphs == 1 and gate.threads == ["fineline-compile"]


def test_a_program_calls_the_compiled_graph_itself_once_it_has_taken_over() -> None:
    gate = Gate()
    gate.open()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X), compiled(X), fineline.wait(LONGEST), compiled(X)
    [program] = compiled._region.segments()
    assert program.run.run.__globals__["graph"].__qualname__ == "Gate.__call__.<locals>.run"


@pytest.mark.parametrize("how", [{"wait": False}, {"options": {"wait": False}}], ids=["argument", "option"])
def test_both_ways_to_ask(how) -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, **how)
    assert torch.equal(compiled(X), step(X)) and gate.runs == 0
    gate.open()
    assert fineline.wait(LONGEST) and compiled.ready()


def test_through_pytorchs_door() -> None:
    gate = Gate()
    fineline.install()
    try:
        compiled = torch.compile(step, backend=gate, options={"wait": False})
        assert torch.equal(compiled(X), step(X)) and gate.runs == 0 and not compiled.ready()
        gate.open()
        assert fineline.wait(LONGEST) and torch.equal(compiled(X), step(X)) and gate.runs == 1
    finally:
        fineline.uninstall()


def test_a_call_waits_unless_asked_not_to() -> None:
    gate = Gate()
    gate.open()
    compiled = fineline.compile(step, backend=gate)
    compiled(X)
    assert gate.threads == [threading.current_thread().name] and compiled.ready()


@pytest.mark.parametrize("wrong", [lambda: fineline.compile(step, wait="no"), lambda: fineline.wait(-1), lambda: fineline.wait("long"), lambda: fineline.wait(True)])
def test_wrong_arguments(wrong) -> None:
    with pytest.raises(BadArgument):
        wrong()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.lin(x).relu()


class Ready(Net):
    ready = "its own"


def test_modules() -> None:
    gate, net = Gate(), Net()
    compiled = fineline.compile(net, backend=gate, wait=False)
    assert not compiled.ready() and not hasattr(net, "ready")
    assert torch.equal(compiled(X), net(X)) and not compiled.ready()
    gate.open()
    assert fineline.wait(LONGEST) and compiled.ready() and torch.equal(compiled(X), net(X))
    assert fineline.compile(Ready(), backend=gate, wait=False).ready == "its own"


def test_recompiles_do_not_wait_either() -> None:
    gate = Gate()
    gate.open()
    compiled = fineline.compile(step, backend=gate, wait=False, dynamic=False)
    compiled(X), fineline.wait(LONGEST), compiled(X)
    gate.may_go.clear()
    other = torch.ones(3)
    assert torch.equal(compiled(other), step(other)) and torch.equal(compiled(other), step(other))
    assert not compiled.ready() and torch.equal(compiled(X), step(X)) and gate.runs == 2
    gate.open()
    assert fineline.wait(LONGEST) and compiled.ready() and torch.equal(compiled(other), step(other)) and gate.runs == 3


def test_sizes_that_vary() -> None:
    compiled = fineline.compile(step, backend="aot_eager", wait=False)
    for n in (3, 4, 5, 6, 4):
        x = torch.linspace(0, 1, n)
        assert torch.equal(compiled(x), step(x))
        assert fineline.wait(LONGEST)
        assert torch.equal(compiled(x), step(x)) and torch.equal(compiled(x), step(x))
    assert compiled.ready() and len(fineline.report(compiled).programs) <= 3


def test_what_a_backend_assumes_about_sizes_is_guarded_by_another_capture() -> None:
    """No call waits for it: the backend compiles the graph in the thread that captures."""
    small: list[tuple[str, bool]] = []

    def assuming(gm, examples):
        small.append((threading.current_thread().name, bool(examples[0].shape[0] < 100)))
        return gm.forward

    compiled = fineline.compile(step, backend=assuming, wait=False)
    for n in (3, 4, 5, 6, 200, 7):
        x = torch.linspace(0, 1, n)
        for _ in range(3):
            assert torch.equal(compiled(x), step(x)) and fineline.wait(LONGEST)
    beside, capturing = "fineline-compile", "fineline-capture"
    assert small == [(beside, True), (beside, True), (capturing, True), (capturing, False)]
    assert [event.id for event in fineline.report(compiled).events if event.kind in ("waited", "restart")] == [] and compiled.ready()


def test_graph_breaks() -> None:
    def broken(x):
        y = x.sin()
        if y.sum().item() > 100:
            y = y + 1
        return y.cos()

    gate = Gate()
    compiled = fineline.compile(broken, backend=gate, wait=False)
    assert torch.equal(captured(compiled, X), broken(X))
    # No thread can make the eager call between the graphs in place of the user's: the second call is captured while it waits.
    assert events(compiled, "graph") == [] and not compiled.ready()
    assert torch.equal(compiled(X), broken(X)) and events(compiled, "graph") == 2 * [("graph", "FL001")] and gate.runs == 0
    gate.open()
    assert fineline.wait(LONGEST) and torch.equal(compiled(X), broken(X)) and gate.runs == 2 == gate.graphs


@pytest.mark.parametrize(("delay", "begins"), [(LONGEST, False), (0.05, True)], ids=["to_the_end", "not_for_long"])
def test_a_compiler_waits_for_a_call_that_captures(monkeypatch, delay, begins) -> None:
    monkeypatch.setattr("fineline.background.queue.DELAY", delay)
    seen = []

    @fineline.disable
    def look():
        # The first call runs eagerly, and has no graph that could be compiled.
        seen.append(gate.began.wait(LONGEST if begins and seen else 0.2))

    def broken(x):
        y = x.sin()
        look()
        return y.cos()

    gate = Gate()
    compiled = fineline.compile(broken, backend=gate, wait=False)
    captured(compiled, X)
    assert torch.equal(compiled(X), X.sin().cos()) and seen == [False, begins]
    gate.open()
    for _ in range(2):
        assert fineline.wait(LONGEST) and torch.equal(compiled(X), X.sin().cos())
    assert len(events(compiled, "graph")) == gate.graphs == 2


# -- errors ------------------------------------------------------------------------------------------------------------
def test_an_error_is_logged_and_raised_by_a_later_call(caplog) -> None:
    gate = Gate(ValueError("no such kernel"))
    compiled = fineline.compile(step, backend=gate, wait=False)
    assert torch.equal(compiled(X), step(X))
    gate.open()
    with caplog.at_level(logging.ERROR, "fineline"):
        assert fineline.wait(LONGEST)
    assert "no such kernel" in caplog.text and "in the background failed" in caplog.text
    for _ in range(2):
        with pytest.raises(BackendFailed, match="no such kernel") as caught:
            compiled(X)
        assert caught.value.id == "FL301" and isinstance(caught.value.__cause__, ValueError)


def test_an_error_may_leave_calls_eager() -> None:
    gate = Gate(ValueError("no such kernel"))
    compiled = fineline.compile(step, backend=gate, options={"suppress_errors": True, "wait": False})
    gate.open()
    compiled(X)
    assert fineline.wait(LONGEST) and compiled.ready()
    for _ in range(3):
        assert torch.equal(compiled(X), step(X))
    assert events(compiled, "eager") == [("eager", "FL301")]


def test_an_error_in_the_middle_of_a_block_leaves_it() -> None:
    def blocks(x, seen):
        with torch.no_grad():
            y = x.sin()
            seen.append(1)
            if y.sum().item() > 100:
                y = y + 1
            return y.cos()

    gate = Gate(ValueError("no such kernel"))
    compiled = fineline.compile(blocks, backend=gate, wait=False)
    captured(compiled, X, []), compiled(X, [])
    gate.open()
    assert fineline.wait(LONGEST)
    with pytest.raises(BackendFailed):
        compiled(X, [])
    assert torch.is_grad_enabled()


# -- the values --------------------------------------------------------------------------------------------------------
def test_a_backend_gets_no_memory_of_the_users() -> None:
    def writes(x):
        x.add_(1)
        return x * 2

    gate = Gate(inside=lambda gm, examples: gm(*examples) and None)
    compiled, x, y = fineline.compile(writes, backend=gate, wait=False), X.clone(), X.clone()
    assert torch.equal(compiled(x), writes(y)) and torch.equal(compiled(x), writes(y))
    gate.open()
    assert fineline.wait(LONGEST) and torch.equal(x, y)
    assert torch.equal(compiled(x), writes(y)) and torch.equal(x, y) and gate.examples == [("FakeTensor", (6,))]


def test_inputs_are_not_kept_alive() -> None:
    gate, x = Gate(), X.clone()
    compiled, there = fineline.compile(step, backend=gate, wait=False), weakref.ref(x)
    captured(compiled, x)
    assert gate.began.wait(LONGEST)
    del x
    gc.collect()
    assert there() is None
    gate.open()
    fineline.wait(LONGEST)


def test_a_compiler_that_traces_is_called_by_a_call() -> None:
    """All threads see what AOTAutograd patches, and it would put back random states that calls have changed since."""
    gate, a, b = Gate(inside=aot_eager), X.clone().requires_grad_(), X.clone().requires_grad_()

    def noisy(x):
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(6)

    compiled = fineline.compile(noisy, backend=gate, wait=False)
    torch.manual_seed(0)
    expected = [noisy(b) for _ in range(6)]
    torch.manual_seed(0)
    found = [compiled(a), compiled(a)]
    gate.open()
    assert fineline.wait(LONGEST)
    found += [compiled(a) for _ in range(4)]
    assert all(map(torch.equal, found, expected))
    assert gate.threads == ["fineline-compile", threading.current_thread().name] and gate.runs == 6 - 2
    assert [event.id for event in fineline.report(compiled).events if event.kind in ("waited", "takeover")] == ["FL008", "FL007"]
    sum(found).sum().backward(), sum(expected).sum().backward()
    assert torch.equal(a.grad, b.grad)


def test_a_report_leaves_the_graph_to_the_compiler() -> None:
    """Its code is written when somebody reads it; without a compiler at work, at once."""
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    assert gate.began.wait(LONGEST)
    [segment] = compiled._region.segments()
    [meanwhile] = fineline.report(compiled).kept
    assert segment.unbound.waits and segment.graph in meanwhile.give_code.args
    gate.open()
    assert fineline.wait(LONGEST) and not segment.unbound.waits
    [after] = fineline.report(compiled).kept
    assert segment.graph not in after.give_code.args and "def forward" in after.give_code().code == meanwhile.give_code().code


def test_compilers_in_the_thread_do_not_put_back_random_states() -> None:
    def restoring(gm, examples):
        with compile_fx.dynamo_utils.preserve_rng_state():
            began.set()
            assert go_on.wait(LONGEST)

    began, go_on = threading.Event(), threading.Event()
    gate = Gate(inside=restoring)
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    gate.open()
    assert began.wait(LONGEST)
    torch.manual_seed(3)
    torch.rand(2)
    state = torch.get_rng_state()
    go_on.set()
    assert fineline.wait(LONGEST) and torch.equal(torch.get_rng_state(), state)


def test_gradients() -> None:
    gate, a, b = Gate(), X.clone().requires_grad_(), X.clone().requires_grad_()
    compiled = fineline.compile(step, backend=gate, wait=False)
    for _ in range(2):
        compiled(a).sum().backward(), step(b).sum().backward()
        assert torch.equal(a.grad, b.grad)
        gate.open()
        assert fineline.wait(LONGEST)
    assert gate.runs == 1


def test_the_state_of_the_call() -> None:
    def state(gm, examples):
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_inference_mode_enabled()))

    seen, gate = [], Gate(inside=state)
    compiled = fineline.compile(torch.nn.Linear(6, 6), backend=gate, wait=False)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        first = compiled(X)
    gate.open()
    assert fineline.wait(LONGEST) and seen == [(False, True, torch.bfloat16, False)]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(X), first) and gate.runs == 1


def test_a_state_of_the_whole_process_that_only_calls_have() -> None:
    def attend(q):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    gate, q = Gate(), torch.randn(1, 2, 4, 8)
    gate.open()
    compiled = fineline.compile(attend, backend=gate, wait=False)
    # The threads get no job before the block has ended, and so begin in vain.
    for _ in range(4):
        with CAPTURES.held(), QUEUE.held(), sdpa_kernel(SDPBackend.MATH):
            first = compiled(q)
        assert fineline.wait(LONGEST)
    assert gate.graphs == 0
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.equal(compiled(q), first)
    assert gate.threads == [threading.current_thread().name] and events(compiled, "waited") == [("waited", "FL008")]


# -- programs that nothing waits for -----------------------------------------------------------------------------------
def test_a_dropped_program_is_not_compiled() -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    with QUEUE.held():
        captured(compiled, X)
        compiled._region.forget()
        gc.collect()
    assert fineline.wait(LONGEST) and gate.graphs == 0 and not compiled.ready()
    gate.open()
    assert torch.equal(compiled(X), step(X)) and fineline.wait(LONGEST) and compiled.ready() and gate.graphs == 1


def test_reset_while_a_graph_is_compiled() -> None:
    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    assert gate.began.wait(LONGEST)
    fineline.reset()
    assert not compiled.ready()
    gate.open()
    for _ in range(2):
        assert torch.equal(compiled(X), step(X)) and fineline.wait(LONGEST)
    assert compiled.ready() and gate.graphs == 2


def test_equal_graphs_are_compiled_once() -> None:
    gate = Gate()

    def loop(x):
        for _ in range(3):
            x = x.sin() * 2
            print(end="")
        return x

    fineline.register_backend(gate, name="gate_of_equal_graphs")
    compiled = fineline.compile(loop, backend=gate, wait=False)
    # The capture beside calls ends at the graph break; the next call is captured while it waits.
    assert torch.equal(compiled(X), loop(X)) and fineline.wait(LONGEST) and torch.equal(compiled(X), loop(X))
    gate.open()
    assert fineline.wait(LONGEST) and torch.equal(compiled(X), loop(X)) and compiled.ready()


def test_nothing_is_captured_while_a_compiler_runs_in_the_thread() -> None:
    """A capture waits for PyTorch's tracers, and would see what they change for all threads. Calls do not wait for it."""
    busy, gate = Gate(), Gate()
    gate.open()
    other, compiled = fineline.compile(lambda x: x + 1, backend=busy, wait=False), fineline.compile(step, backend=gate, wait=False)
    other(X)
    assert busy.began.wait(LONGEST)
    assert torch.equal(compiled(X), step(X)) and not fineline.wait(0.05)
    assert torch.equal(compiled(X), step(X)) and events(compiled, "graph") == [] and not compiled.ready()
    busy.open()
    assert fineline.wait(LONGEST) and events(compiled, "graph") == [("graph", "FL001")]
    assert torch.equal(compiled(X), step(X)) and compiled.ready() and gate.runs == 1


# -- threads -----------------------------------------------------------------------------------------------------------
def test_threads() -> None:
    gate, wrong = Gate(), []
    compiled = fineline.compile(step, backend=gate, wait=False)

    def work(n):
        for i in range(50):
            x = torch.full((6,), float(n + i))
            if not torch.equal(compiled(x), step(x)):
                wrong.append((n, i))
            if (n, i) == (0, 20):
                gate.open()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    assert fineline.wait(LONGEST) and not wrong and compiled.ready()
    assert torch.equal(compiled(X), step(X)) and gate.runs >= 1


def test_the_compiled_graph_takes_over_while_another_thread_makes_the_captured_one() -> None:
    class Lock:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            # As another thread may do as soon as the lock is free.
            pending.take_over(torch.sin)

    gate = Gate()
    compiled = fineline.compile(step, backend=gate, wait=False)
    with QUEUE.held():
        captured(compiled, X)
        pending = compiled._region.segments()[0].unbound.constants["graph"]
        # As if the capture had not made it.
        pending._captured = None
        pending.job.writing = Lock()
        assert torch.equal(pending.captured(X)[0], step(X)) and pending.final is torch.sin
    gate.open()
    assert fineline.wait(LONGEST)


def test_programs_wait_for_a_job_while_it_begins() -> None:
    gate, interval = Gate(), sys.getswitchinterval()
    compiled, wrong, added = fineline.compile(step, backend=gate, wait=False), [], []

    class User:
        def prepare(self) -> None:
            pass

    def begins() -> None:
        while not added:
            try:
                job.prepare()
            except RuntimeError as e:
                wrong.append(e)

    with QUEUE.held():
        captured(compiled, X)
        job = compiled._region.segments()[0].unbound.constants["graph"].job
        users = [User() for _ in range(30_000)]
        thread = threading.Thread(target=begins)
        sys.setswitchinterval(1e-6)
        try:
            thread.start()
            for user in users:
                job.use(user)
        finally:
            added.append(True)
            thread.join(LONGEST)
            sys.setswitchinterval(interval)
    gate.open()
    assert fineline.wait(LONGEST) and not wrong


def test_a_thread_may_wait_while_others_call() -> None:
    gate, done = Gate(), []
    compiled = fineline.compile(step, backend=gate, wait=False)
    compiled(X)
    thread = threading.Thread(target=lambda: done.append(fineline.wait(LONGEST)))
    thread.start()
    compiled(X)
    assert not done
    gate.open()
    thread.join(LONGEST)
    assert done == [True]


def test_the_rest_of_a_call_runs_eagerly_while_a_compiler_runs(monkeypatch) -> None:
    """Sizes that PyTorch itself represents by symbols are compared as in eager code there."""

    @fineline.disable
    def a_compiler_begins() -> None:
        monkeypatch.setattr(TRACERS, "is_held_in_background", True)

    def fn(x):
        y = x.sin()
        a_compiler_begins()
        n, m = x.size(1), y.shape[1]
        same = m == n, x.shape == y.shape, n != m, n >= 2, 2 <= m, n in (1, m), [n, 1].index(m), n is m
        return y * 2, *same, n * 2, m * 2 == 2 * n, isinstance(n, int), type(n), str(n), [n] == [m], {"n": n} == {"n": m}, bool(n == m), not n == m

    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(5, 4)], layout=torch.jagged)
    compiled = fineline.compile(fn, backend="eager", wait=False)
    captured(compiled, rows)
    monkeypatch.setattr(TRACERS, "is_held_in_background", False)
    found = compiled(rows)
    assert [event.id for event in fineline.report(compiled).events if event.kind == "skipped" and event.reason.startswith("a compiler runs")] == ["FL406"]
    monkeypatch.setattr(TRACERS, "is_held_in_background", False)
    assert [(type(v), str(v)) for v in found[1:]] == [(type(v), str(v)) for v in fn(rows)[1:]]
