"""Exceptions from outside (signal handlers, other threads, Ctrl-C) at random moments of captures and of warm calls."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from importlib.metadata import EntryPoint

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    is_in_any_mode_without_ignore_compile_internals,
    is_in_torch_dispatch_mode,
)

import fineline
from fineline.backends.registry import Registered
from fineline.bytecode.asynchronous import from_outside
from fineline.guards.facts import ambient_facts
from fineline.region.guard_dispatch import make_guard_program
from fineline.tensor_ops import inference_mode as inference_specials
from fineline.torch_facts.thread_state import hidden_states

SIZE = 48
W = torch.randn(SIZE, SIZE) / 10
PARAMETER = torch.randn(SIZE, SIZE, requires_grad=True)


class Timeout(Exception):
    """What a user's handler raises."""


class Spoken(Exception):
    """... with a text of its own."""

    def __init__(self) -> None:
        super().__init__("time is up")


# -- programs -----------------------------------------------------------------------------------------------------------
def loop(x):
    for i in range(12):
        x = (x @ W).tanh() + i
    return x


def no_grad_blocks(x):
    for i in range(5):
        with torch.no_grad():
            y = (x @ W).relu()
            with torch.enable_grad():
                z = (x * PARAMETER).sum()
        x = y + z.detach() * 0 + i
    return x


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(6):
            y = x @ W
            x = y.float() + 1
    return x


def graph_breaks(x):
    for i in range(3):
        with torch.no_grad():
            x = (x @ W).sin()
            fineline.graph_break()
            x = x.cos() + i
    return x * 2


def numbers(n):
    for i in range(n):
        with torch.no_grad():
            yield i


def generators(x):
    for i in numbers(6):
        x = (x @ W).sigmoid() + i
    return x


def handlers(x):
    try:
        for i in range(4):
            try:
                with torch.inference_mode(False):
                    x = (x @ W).tanh()
            finally:
                x = x + i
        return x
    except ValueError:
        return x * 0


def inference(x):
    with torch.inference_mode():
        y = x
        for _ in range(6):
            y = (y @ W).tanh()
        return y.sum()


def training(x):
    y = x
    for _ in range(4):
        y = (y @ PARAMETER).tanh()
    return y.sum()


def draws(x):
    y = torch.nn.functional.dropout(x, 0.0)
    for _ in range(5):
        y = (y @ W).tanh()
    return y


PROGRAMS = (loop, no_grad_blocks, autocast, graph_breaks, generators, handlers, inference, training, draws)
WAYS = {
    "static": {"backend": "eager"},
    "dynamic": {"backend": "eager", "dynamic": True},
    "fullgraph": {"backend": "eager", "fullgraph": True},
    "aot": {"backend": "aot_eager"},
    "aot_dynamic": {"backend": "aot_eager", "dynamic": True},
}


# -- moments ------------------------------------------------------------------------------------------------------------
class Alarm:
    """Raises in the main thread by a signal handler, after a while."""

    def __init__(self, kind):
        self.kind, self.fired, self.inside = kind, False, False

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.ring)
        return self

    def __exit__(self, *error):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)

    def ring(self, number, frame):
        self.fired = self.inside
        raise self.kind

    def start(self, delay):
        signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))

    def stop(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


class Thread:
    """Raises in the calling thread from another one, after a while."""

    def __init__(self, kind):
        self.kind, self.fired, self.inside = kind, False, False
        self.target, self.go = threading.get_ident(), threading.Semaphore(0)
        self.delay, self.begun, self.ended = 0.0, 0, 0

    def __enter__(self):
        self.switch = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.delay = -1.0
        self.go.release()
        self.thread.join()
        sys.setswitchinterval(self.switch)

    def run(self):
        while True:
            self.go.acquire()
            if self.delay < 0:
                return
            until = time.perf_counter() + self.delay
            while time.perf_counter() < until:
                time.sleep(0)
            if self.inside:
                self.fired = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.target), ctypes.py_object(self.kind))
            self.ended += 1

    def start(self, delay):
        self.delay = delay
        self.begun += 1
        self.go.release()

    def stop(self):
        # By a count, not by a lock: the exception may come here as well, and then this is called once more.
        while self.ended < self.begun:
            time.sleep(0)
        # What is on its way comes now.
        for _ in range(100):
            sum([1])


def interrupt(source, delay, call):
    """Calls, and is interrupted after a while; -> whether an exception has left the call, and whether one should have."""
    source.fired, raised = False, False
    stopped = False
    try:
        source.inside = True
        source.start(delay)
        call()
        source.inside = False
    except source.kind:
        raised = True
    source.inside = False
    while not stopped:
        try:
            source.stop()
            stopped = True
        except source.kind:
            raised = True
    return raised, source.fired


def state():
    return (
        ambient_facts(), hidden_states(), gc.get_threshold(), id(warnings.filters), torch.is_anomaly_enabled(), torch._guards.TracingContext.try_get(),
        torch.is_inference_mode_enabled(), torch.get_rng_state().tolist(), torch._inductor.config.fallback_random,
        is_in_torch_dispatch_mode(), is_in_torch_dispatch_mode(include_infra_modes=False), is_in_any_mode_without_ignore_compile_internals(),
    )  # fmt: skip


def check(name, before):
    now = state()
    assert now == before, f"{name}: {[(a, b) for a, b in zip(before, now, strict=True) if a != b]}"


def moments(fn, kw, source, n, warm):
    """Interrupts ``n`` calls of ``fn``; -> how many were left."""
    x = torch.randn(SIZE, SIZE)
    expected = fn(x)
    lost: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda u: lost.append(u.exc_type)
    left = 0
    try:
        shared = fineline.compile(fn, **kw)
        for _ in range(3):
            shared(x)
        times = []
        for _ in range(5):
            c = shared if warm else fineline.compile(fn, **kw)
            t = time.perf_counter()
            c(x)
            times.append(time.perf_counter() - t)
        longest = sorted(times)[2] * 1.05
        before = state()
        for i in range(n):
            c = shared if warm else fineline.compile(fn, **kw)
            lost.clear()
            delay = random.random() * longest
            raised, fired = interrupt(source, delay, lambda c=c: c(x))
            name = f"moment {i} at {delay:.6f} of {longest:.6f}"
            check(name, before)
            assert raised or not fired or lost, f"{name}: swallowed {[(e.id, e.reason) for e in c._region.reports.events]}"
            left += raised
            region = c._region
            assert region.state.thread is None and not region.state.is_locked_here and not fineline.backends.lock.TRACERS._lock._is_owned(), name
            for _ in range(2 if not warm else 1):
                torch.testing.assert_close(c(x), expected, rtol=1e-3, atol=1e-3)
            check(name, before)
    finally:
        sys.unraisablehook = hook
    return left


SOURCES = {"alarm": Alarm, "thread": Thread}
KINDS = (Timeout, KeyboardInterrupt, Spoken, SystemExit)
FEW, MANY = 3, 200


def _cases():
    for way in WAYS:
        for fn in PROGRAMS:
            for source in SOURCES:
                for warm in (False, True):
                    if way == "fullgraph" and fn is graph_breaks:
                        continue
                    if source == "thread" and not warm and way not in ("static", "fullgraph"):
                        # PyTorch's tracers end the process where another thread's exception meets one of their destructors. What a
                        # signal handler raises is kept from them; for this, Python has no means.
                        continue
                    marks = () if fn in (no_grad_blocks, graph_breaks, training) and source == "alarm" else pytest.mark.later
                    name = f"{way}-{fn.__name__}-{source}-{'warm' if warm else 'capture'}"
                    yield pytest.param(way, fn, source, warm, FEW, id=f"{name}-few", marks=marks)
                    yield pytest.param(way, fn, source, warm, MANY, id=f"{name}-many", marks=pytest.mark.later)


@pytest.mark.parametrize(("way", "fn", "source", "warm", "n"), list(_cases()))
def test_random_moments(way, fn, source, warm, n):
    kind = random.choice(KINDS)
    with contextlib.ExitStack() as stack:
        left = moments(fn, WAYS[way], stack.enter_context(SOURCES[source](kind)), n, warm)
    print(f"{way} {fn.__name__} {source} {'warm' if warm else 'capture'} {kind.__name__}: {left} of {n} left")


# -- one moment that is known -------------------------------------------------------------------------------------------
def _plain(kind):
    def handler(number, frame):
        raise kind

    return handler


def _spread(kind):
    def handler(*args):
        raise kind()

    return handler


def _forgetful(kind):
    def handler(number, frame):
        del number, frame
        raise kind

    return handler


def _through_another(kind):
    def helper():
        raise kind

    return lambda number, frame: helper()


def _by_c(kind):
    return lambda number, frame: (_ for _ in ()).throw(kind())


def _translating(kind):
    def handler(number, frame):
        try:
            {}["a"]
        except KeyError as e:
            raise kind from e

    return handler


def _method(kind):
    class Watch:
        def ring(self, number, frame):
            raise kind

    return Watch().ring


def _callable(kind):
    class Watch:
        def __call__(self, number, frame):
            raise kind

    return Watch()


def _partial(kind):
    def handler(cls, number, frame):
        raise cls

    return functools.partial(handler, kind)


def _one_shot(kind):
    def handler(number, frame):
        signal.signal(number, signal.SIG_IGN)
        raise kind

    return handler


HANDLERS = (_plain, _spread, _forgetful, _through_another, _by_c, _translating, _method, _callable, _partial, _one_shot)


@contextlib.contextmanager
def handled_by(handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


ON: list[int] = []


def ring():
    if ON:
        ON.pop()
        signal.raise_signal(signal.SIGUSR1)


@torch.library.custom_op("interrupts::moment", mutates_args=())
def moment(x: torch.Tensor) -> torch.Tensor:
    ring()
    return x + 1


@moment.register_fake
def _(x):
    ring()
    return torch.empty_like(x)


@pytest.mark.parametrize("kind", [Spoken, RuntimeError])
@pytest.mark.parametrize("make", HANDLERS)
@pytest.mark.parametrize("way", ["static", "dynamic", "aot"])
@pytest.mark.parametrize("warm", [False, True], ids=["capture", "warm"])
def test_handlers_of_every_kind(way, make, kind, warm) -> None:
    def fn(x, log):
        log.append(1)
        with torch.no_grad():
            y = moment(x) * 2
        return y + 1

    compiled, x = fineline.compile(fn, **WAYS[way]), torch.ones(3)
    if warm:
        compiled(x, [])
        compiled(x, [])
    before = state()
    with handled_by(make(kind)):
        ON.append(1)
        with pytest.raises(kind):
            compiled(x, [])
    assert not ON
    check("", before)
    for _ in range(3):
        log: list[int] = []
        assert torch.equal(compiled(x, log), x * 2 + 3) and log == [1]
    assert compiled._region.segments()


@pytest.mark.parametrize("kind", [Timeout, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["static", "dynamic"])
def test_the_blocks_before_a_graph_break_are_left(way, kind) -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def noted():
        log.append("in")
        try:
            yield
        finally:
            log.append("out")

    def fn(x):
        with noted(), torch.no_grad():
            y = x * 2
            fineline.graph_break()
            return moment(y) * 2

    for calls in range(3):
        compiled, x = fineline.compile(fn, **WAYS[way]), torch.ones(3)
        for _ in range(calls):
            compiled(x)
        before = state()
        with handled_by(_plain(kind)):
            ON.append(1)
            with pytest.raises(kind):
                compiled(x)
        check(f"after {calls} calls", before)
        assert log[-2:] == ["in", "out"] and len(log) % 4 in (0, 2)
        assert torch.equal(compiled(x), fn(x))


@pytest.mark.parametrize("kind", [Timeout, KeyboardInterrupt])
def test_a_handler_of_the_users_code_in_a_capture(kind) -> None:
    def fn(x):
        try:
            return moment(x) * 2
        except (Timeout, KeyboardInterrupt):
            return x * 0

    compiled, x = fineline.compile(fn, backend="eager"), torch.ones(3)
    with handled_by(_plain(kind)):
        ON.append(1)
        assert torch.equal(compiled(x), x * 0)
    assert torch.equal(compiled(x), x * 2 + 2) and torch.equal(compiled(x), x * 2 + 2)


def test_at_each_instruction_around_an_inference_mode() -> None:
    def fn(x):
        with torch.inference_mode():
            return (x @ x).sum()

    files = (inference_specials.__file__, torch.autograd.grad_mode.__file__)
    names = ("fresh", "generic_store", "finish", "load_attr", "raised", "unwind")

    def call(at: int) -> int:
        """Interrupts a capture at one instruction; -> how many there have been."""
        seen = 0

        def instruction(frame, event, arg):
            nonlocal seen
            if event == "opcode":
                seen += 1
                if seen == at:
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGUSR1)
            return instruction

        def trace(frame, event, arg):
            if frame.f_code.co_filename not in files and frame.f_code.co_name not in names:
                return None
            frame.f_trace_opcodes = True
            return instruction

        tracing, compiled = sys.gettrace(), fineline.compile(fn, backend="eager")
        try:
            sys.settrace(trace)
            compiled(torch.ones(2, 2))
        except Timeout:
            assert at
        finally:
            sys.settrace(tracing)
        return seen

    before = state()
    with handled_by(_plain(Timeout)):
        for at in range(1, call(0) + 1):
            call(at)
            check(f"instruction {at}", before)


@contextlib.contextmanager
def no_gradients_without_a_block():
    torch.set_grad_enabled(False)
    yield
    ring()
    torch.set_grad_enabled(True)


class Quiet(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class QuietFunctions(TorchFunctionMode):
    pass


class Interrupted:
    """A mode that an exception from outside meets before PyTorch has taken it off its stack."""

    def __init__(self, mode):
        self.mode = mode

    def __enter__(self):
        self.mode.__enter__()

    def __exit__(self, *error):
        ring()
        self.mode.__exit__(*error)


STATES = {
    "gradients": no_gradients_without_a_block,
    "dispatch mode": lambda: Interrupted(Quiet()),
    "fake mode": lambda: Interrupted(FakeTensorMode()),
    "function mode": lambda: Interrupted(QuietFunctions()),
    "anomaly": lambda: Interrupted(torch.autograd.set_detect_anomaly(True)),
}


@pytest.mark.parametrize("kind", [Timeout, KeyboardInterrupt])
@pytest.mark.parametrize("name", STATES)
def test_while_a_backend_compiles(name, kind) -> None:
    def backend(gm, inputs):
        with STATES[name]():
            pass
        return gm.forward

    compiled, x = fineline.compile(lambda x: x * 2 + 1, backend=backend), torch.ones(3)
    before = state(), _get_current_dispatch_mode_stack(), _get_current_function_mode_stack()
    with handled_by(_plain(kind)):
        ON.append(1)
        with pytest.raises(kind):
            compiled(x)
    assert (state(), _get_current_dispatch_mode_stack(), _get_current_function_mode_stack()) == before
    assert torch.equal(compiled(x), x * 2 + 1) and len(compiled._region.segments()) == 1


def _while_a_frame_is_shown(monkeypatch) -> None:
    """Python's traceback module drops exceptions there."""
    shown = traceback._extract_caret_anchors_from_line_segment  # type: ignore[attr-defined]
    monkeypatch.setattr(traceback, "_extract_caret_anchors_from_line_segment", lambda segment: (ring(), shown(segment))[1])


def _while_a_setting_is_put_back(monkeypatch) -> None:
    settings = type(torch._inductor.config)
    # From PyTorch 2.15 on, one function sets several, and returns the one that puts them back.
    several = getattr(settings, "_set_raw_values", None)
    put = settings.__setattr__

    def put_slowly(self, name, value):
        if name == "fallback_random" and not value:
            ring()
        put(self, name, value)

    def set_and_put_slowly(self, changes, **options):
        put_back = several(self, changes, **options)
        return (lambda: (ring(), put_back())) if "fallback_random" in changes else put_back

    monkeypatch.setattr(settings, "__setattr__", put_slowly)
    if several is not None:
        monkeypatch.setattr(settings, "_set_raw_values", set_and_put_slowly)


@pytest.mark.parametrize("kind", [Timeout, KeyboardInterrupt])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("moment", [_while_a_frame_is_shown, _while_a_setting_is_put_back])
def test_where_pytorch_or_python_would_lose_it(monkeypatch, moment, dynamic, kind) -> None:
    compiled, x = fineline.compile(lambda x: x * 2 + 1, backend="aot_eager", dynamic=dynamic), torch.ones(3, 3)
    before = state()
    with handled_by(_plain(kind)), monkeypatch.context() as patched:
        moment(patched)
        ON.append(1)
        with pytest.raises(kind):
            compiled(x)
    assert not ON
    check("", before)
    assert torch.equal(compiled(x), x * 2 + 1) and len(compiled._region.segments()) == 1


@pytest.mark.parametrize("kind", [Timeout, KeyboardInterrupt])
def test_while_a_backend_is_loaded(kind) -> None:
    """It is no failure of the backend's (FL303), and the next call loads it."""

    class Entry(EntryPoint):
        def load(self):
            ring()
            return lambda gm, inputs: gm.forward

    found = Registered("late", Entry("late", "nowhere:late", "group"))
    with handled_by(_plain(kind)):
        ON.append(1)
        with pytest.raises(kind):
            found.load()
        assert callable(found.load())


def test_while_a_guard_is_checked() -> None:
    """It is no guard that fails."""
    program = make_guard_program(1, [("root", 0, -1, 0), ("predicate", -1, 0, (lambda v: (ring(), True)[1], "asks"))], (0,))
    with handled_by(_plain(Timeout)):
        ON.append(1)
        with pytest.raises(Timeout):
            program.check((1,))
        assert program.check((1,)) == (1,)


class Own(Exception):
    pass


@torch.library.custom_op("interrupts::bare", mutates_args=())
def bare(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 10:
        raise Own
    return x.clone()


bare.register_fake(torch.empty_like)


@pytest.mark.parametrize("way", ["static", "aot"])
def test_what_an_operator_raises_is_not_taken_for_it(way) -> None:
    def fn(x, i):
        try:
            return x[i]
        except IndexError:
            return x * 0

    compiled = fineline.compile(fn, **WAYS[way])
    x = torch.ones(3)
    for i in (torch.tensor([0]), torch.tensor([9]), torch.tensor([9]), torch.tensor([1])):
        if way == "static":
            assert torch.equal(compiled(x, i), fn(x, i))
    raises = fineline.compile(lambda x: bare(x) + 1, **WAYS[way])
    raises(x)
    for _ in range(3):
        with pytest.raises(Own) as caught:
            raises(x * 100)
        assert not from_outside(caught.value)
        assert torch.equal(raises(x), x + 1)
