"""The one oracle of the test suite: a program must leave the same world behind, run eagerly or compiled.

``check(program, twin)`` runs a program over several calls, eagerly (once, kept) and under a twin: one way of compiling it. After every
call it compares the outcome (result, or exception with its chain), arguments, state (closures, globals, modules, classes: whatever is
reachable), gradients, random state, output, warnings and ambient state, with types, values, tensor metadata and identity relations. It
counts graphs too, so that nothing passes only because it ran eagerly.

A program is made afresh for each run: ``make()`` returns ``fn`` or ``(fn, state)``; each ``Step`` is one call of ``fn``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import logging
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.attention
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import fineline
from fineline.backends.eager import as_it_is
from fineline.backends.registry import lookup_backend
from fineline.report.operator_counter import OPEN, Tally
from tests import golden
from tests.soundness.freeze import Freezer, differences

F = TypeVar("F", bound=Callable[..., Any])

TWINS: dict[str, dict[str, Any]] = {
    "captured": {},
    "reference": {"evaluator": "reference"},
    "borders": {"force_graph_breaks": True},
    "limit1": {"recompile_limit": 1},  # the others run eagerly; no programs without graph breaks, where that is an error
    "fake": {"first_call": "compiled"},
    "dynamic": {"dynamic": True},
    "strict": {"fullgraph": True},  # a call that is refused has left nothing behind, and is made eagerly
    "aot": {"backend": "aot_eager"},  # through AOTAutograd, on the real values and on fakes
    "aot_fake": {"backend": "aot_eager", "first_call": "compiled"},
    "aot_dynamic": {"backend": "aot_eager", "dynamic": True},
    "counted": {},  # as under explain: the operators that ran, by what became of them, are those that run eagerly
    # As under `fineline run --explain`, which hears of all calls and operators; and guards evaluated in Python.
    "reported": {"evaluator": "reference"},
    # Calls are captured in a thread after they have run eagerly, which must leave nothing behind; here each call waits for that.
    "background": {"wait": False},
}
EXACT = {"captured"}  # where graphs are counted
CHOICES = {"fast": ["captured"], "all": list(TWINS)}
STRICT = False  # --strict-graphs: a program not marked ``breaks`` must give exactly one graph per capture
WRITE_GOLDEN = False  # --write-golden: the lines of programs are written instead of compared
GOLDEN_KEYS = golden.Keys()
REPORT: list[str] = []  # programs that gave more graphs than one, for the summary


def t(seed: int = 0, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A tensor that depends on nothing but the arguments; shape (3, 4) unless told."""
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(shape or (3, 4), generator=generator, dtype=torch.float32)
    if not dtype.is_floating_point:
        value = value * 4
    return value.to(dtype).requires_grad_(grad)


@dataclasses.dataclass
class Step:
    """One call: first ``change`` the state, then call with what ``args`` and ``kwargs`` give for this place in the run."""

    place: int
    args: Callable[[int], tuple[Any, ...]] | None = None  # None: a tensor for each parameter without a default
    kwargs: Callable[[int], dict[str, Any]] | None = None
    change: Callable[[Any], object] | None = None
    grad: bool = False  # whether those tensors require a gradient

    def arguments(self, fn: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        kwargs = self.kwargs(self.place) if self.kwargs else {}
        if self.args:
            return self.args(self.place), kwargs
        return tuple(t(10 * self.place + k, grad=self.grad) for k in range(parameters_needed(fn))), kwargs


@dataclasses.dataclass(eq=False)
class Program:
    name: str
    make: Callable[[], Any]
    steps: list[Step]
    recompiles: frozenset[int] = frozenset()  # calls (from 0) that may capture again; no other may
    must_recompile: bool = False  # ... and those have to
    min_graphs: int = 1  # graphs with at least one operator, over all calls; 0: may run eagerly
    max_graphs: int | None = None  # over all calls, in the twins without forced borders
    breaks: bool = False  # more than one graph per capture is to be expected
    backward: bool = True  # differentiate what the call returns, where possible
    one_by_one: bool = False  # ... tensor after tensor: the operators of several threads have no order, nor has the sum of their gradients
    steady: bool = True  # has the same graph breaks in each run, and so a golden line: not where threads wait, or texts contain addresses
    tolerance: float = 0.0
    twins: tuple[str, ...] | None = None  # only these
    repeats: bool = False  # operators run twice at a capture that turns to the other mode, or tries in vain to make a graph
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the region, or ``fullgraph`` and ``dynamic``
    raw: bool = False  # ``fn`` calls fineline.compile itself: make(compile)
    expected: list[Observation] | None = None
    # ... while operators are counted
    counted: list[Observation] | None = None

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass
class Observation:
    """All that one call left behind."""

    parts: dict[str, Any]
    raised: bool
    compiled: int = 0  # graphs given to the backend during this call
    ran: int = 0  # compiled graphs called during this call
    error: str = ""


class Probe:
    """A backend that checks the contract, counts, and runs the graph as it is."""

    def __init__(self, behind: Callable[..., Any] | None = None) -> None:
        self.behind = behind  # the backend proper
        self.graphs: list[torch.fx.GraphModule] = []
        self.compiled = self.ran = 0
        self.tally: Any = None

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        assert isinstance(graph, torch.fx.GraphModule)
        graph.graph.lint()
        holes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        assert len(holes) == len(inputs), f"{len(holes)} placeholders, {len(inputs)} example inputs"
        self.graphs.append(graph)
        self.compiled += 1

        plain = as_it_is(graph) if self.behind is None else self.behind(graph, inputs)

        def run(*args: Any) -> Any:
            assert len(args) == len(holes)
            self.ran += 1
            return plain(*args)

        return run

    def added(self) -> Counter[str]:
        """The operators that eager code has not: copies that fineline adds, so that no compiler drops an operator that may raise (they have no line
        of the program), and views of another class, which PyTorch hides from modes."""
        nodes = [node for graph in self.graphs for node in graph.graph.nodes if node.op == "call_method" and "stack_trace" not in node.meta]
        views = [node for graph in self.graphs for node in graph.graph.nodes if node.target in (torch.ops.aten.alias.default, torch.ops.aten.detach.default)]
        return Counter(f"aten.{node.target}.default" for node in nodes) + Counter(str(node.target) for node in views)

    def operators(self) -> list[int]:
        return [sum(node.op.startswith("call_") for node in graph.graph.nodes) for graph in self.graphs]


def compiler_for(twin: str, probe: Probe, own: dict[str, Any] | None = None) -> Callable[[Any], Any]:
    """What compiles a program in a twin, with options of its ``own``."""
    if twin == "identity":
        return lambda fn: fn
    if twin == "dynamo":
        torch._dynamo.reset()
        return lambda fn: torch.compile(fn, backend=probe)
    import fineline

    fineline.reset()
    options = TWINS[twin] | (own or {})
    if "backend" in options:
        probe.behind = lookup_backend(options.pop("backend"))
    how = {name: options.pop(name) for name in ("dynamic", "fullgraph") if name in options}
    if twin == "strict":
        return lambda fn: or_eagerly(fn, fineline.compile(fn, backend=probe, options=options, **how))
    if twin == "counted":
        return lambda fn: tallied(fineline.compile(fn, backend=probe, options=options, **how), probe.tally)
    if twin == "reported":
        return lambda fn: reported(functools.partial(fineline.compile, fn, backend=probe, options=options, **how))
    if twin == "background":
        return lambda fn: then(fineline.compile(fn, backend=probe, options=options, **how), fineline.wait)
    return lambda fn: fineline.compile(fn, backend=probe, options=options, **how)


def then(compiled: Any, wait: Callable[[], object]) -> Callable[..., Any]:
    """Calls what is compiled, and then waits."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        finally:
            wait()

    return call


def or_eagerly(fn: Any, compiled: Any) -> Callable[..., Any]:
    """Calls what is compiled, and ``fn`` itself where that is refused."""
    from fineline.errors import FinelineError

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except FinelineError:
            pass
        return fn(*args, **kwargs)

    return call


def tallied(compiled: Any, tally: Any) -> Any:
    """Returns what is compiled as ``compiled`` is, and counts operators, as `explain` does."""
    from fineline.api import _made_of
    from fineline.region.watch import Watch

    target, recipe, _ = _made_of(compiled)
    assert recipe is not None
    return recipe.stand_in(target, recipe.make(target, watch=Watch(tally=tally)))


def reported(compile: Callable[[], Any]) -> Any:
    """Compiles as in a program of which a report is wanted."""
    from fineline.report.events import LISTENERS

    before, LISTENERS.trees = LISTENERS.trees, True
    try:
        return compile()
    finally:
        LISTENERS.trees = before


APART = frozenset({"aten._local_scalar_dense.default", "aten._assert_scalar.default"})


class Counting(Tally):
    """Counts operators, each by its name as well."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()

    def saw(self, func: Any, kind: str) -> None:
        self.ran[str(func)] += 1
        if kind == OPEN:
            self.opened[str(func)] += 1
        super().saw(func, kind)

    def watch(self, kind: str, compile_graph: Callable, plain: bool, captured: int, carried: int) -> Callable:
        # The probe runs its graphs operator by operator, so that all are seen, the reads of floats in tensors too.
        return super().watch(kind, compile_graph, True, captured, 0)

    def close(self, kind: str) -> int:
        self.opened.clear()
        return super().close(kind)

    def drop(self) -> None:
        # Keeps none that is at zero.
        self.ran -= self.opened
        self.opened.clear()
        super().drop()

    def mark(self) -> Any:
        return super().mark(), self.opened.copy()

    def take_back(self, mark: Any) -> None:
        before, opened = mark
        self.ran -= self.opened - opened
        self.opened = opened
        super().take_back(before)

    def since(self) -> dict[str, int]:
        """What ran since the last time; all of it was told apart."""
        ran, told = dict(self.ran), sum(self.counts.values())
        assert sum(ran.values()) == told, f"{sum(ran.values())} operators ran, and {dict(self.counts)} were told of"
        self.ran.clear(), self.counts.clear()
        # A value that a tensor is asked for twice is read once; marks for the profiler are no operators, and what is checked in Python
        # is checked by one in a graph.
        return {name: n for name, n in ran.items() if name not in APART and not name.startswith("profiler.")}


@contextlib.contextmanager
def heard(wanted: Callable[[Any], bool]) -> Iterator[list[str]]:
    """The events meanwhile that are ``wanted``, as text."""
    from fineline.report.events import LISTENERS

    texts: list[str] = []

    def hear(event: Any) -> None:
        if wanted(event):
            texts.append(str(event))

    LISTENERS.all = (*LISTENERS.all, hear)
    try:
        yield texts
    finally:
        LISTENERS.all = tuple([listener for listener in LISTENERS.all if listener is not hear])


def defects() -> contextlib.AbstractContextManager[list[str]]:
    """What fineline says meanwhile of its own defects; calls that meet one go on eagerly, and are right."""
    return heard(lambda event: event.id == "FL901")


def graph_breaks() -> contextlib.AbstractContextManager[list[str]]:
    """The graph breaks meanwhile."""
    return heard(lambda event: event.kind == "break")


def held(compiler: Callable[[Any], Any], kept: list[Any]) -> Callable[[Any], Any]:
    """Compiles with ``compiler``, and keeps what it gives, for the golden file."""

    def compile(fn: Any) -> Any:
        kept.append(compiler(fn))
        return kept[-1]

    return compile


def autocast_depth() -> int:
    """In how many blocks PyTorch counts itself; behind the last one it forgets the weights that it has cast."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def ambient() -> dict[str, Any]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "default dtype": str(torch.get_default_dtype()),
        "autocast depth": autocast_depth(),
        "autocast": (torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu")), torch.is_autocast_cache_enabled()),
        "autograd": autograd_state(),
        "device": str(torch.get_default_device()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "kernels": (*kernels(), torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled),
        "threads": torch.get_num_threads(),
        "modes": torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack(),
        "hooks": sum(len(hooks) for hooks in global_hooks()),
        "saved": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        "recursion": sys.getrecursionlimit(),
        "trace": (sys.gettrace() is None, sys.getprofile() is None),
        "handling": repr(sys.exc_info()[1]),
    }


def autograd_state() -> tuple[Any, ...]:
    core, functorch = torch._C, torch._C._functorch
    return (
        core._is_multithreading_enabled(), core._is_fwd_grad_enabled(), core._is_view_replay_enabled(), torch.autograd.forward_ad._current_level,
        core._autograd._saved_tensors_hooks_get_disabled_error_message(), functorch.get_inplace_requires_grad_allowed(),
        functorch.get_single_level_autograd_function_allowed(), functorch._is_vmap_fallback_enabled(), functorch.get_dynamic_layer_stack_depth(),
    )  # fmt: skip


def kernels() -> tuple[Any, ...]:
    """Which kernels of attention may be chosen, in what order, and whether sums may be less exact."""
    core = torch._C
    names = [backend.name for backend in torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True)]
    return (*names, tuple(core._get_sdp_priority_order()), core._get_math_sdp_allow_fp16_bf16_reduction())


def global_hooks() -> list[dict[Any, Any]]:
    from torch.nn.modules import module

    tables = [value for name, value in vars(module).items() if name.startswith("_global_") and name.endswith("_hooks")]
    return [table for table in tables if isinstance(table, dict)]


@contextlib.contextmanager
def ambient_kept() -> Iterator[None]:
    """Gives ambient state back, whatever the program did, and starts from fixed seeds."""
    saved = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_warn_always_enabled())
    hooks = [(table, dict(table)) for table in global_hooks()]
    modes = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    levels = torch._C._functorch.get_dynamic_layer_stack_depth()
    enabled = torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True)
    # Not `torch.manual_seed`: for each device that is not in use yet it formats the stack, a fifth of the time of most tests.
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    torch.set_warn_always(True)
    # torch.compile turns the checks of distributions off, for the rest of the process.
    torch.distributions.Distribution.set_default_validate_args(True)
    quiet = logging.NullHandler()  # what the compiler says about itself is no output of the program
    logging.getLogger("fineline").addHandler(quiet)
    try:
        with torch.enable_grad():
            yield
    finally:
        logging.getLogger("fineline").removeHandler(quiet)
        torch.set_default_dtype(saved[0])
        torch.set_num_threads(saved[1])
        torch.set_warn_always(saved[2])
        torch.set_default_device(None)
        # A program may leave a block in a generator that lasts.
        while torch._C._len_torch_function_stack() > modes[0]:
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack() > modes[1]:
            torch._C._pop_torch_dispatch_stack(None)
        while torch._C._functorch.get_dynamic_layer_stack_depth() > levels:
            torch._C._functorch.pop_dynamic_layer_stack()
        while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()
        torch.nn.attention._sdpa_kernel(enabled, set_priority=True)
        if torch.are_deterministic_algorithms_enabled():
            torch.use_deterministic_algorithms(False)
        for table, content in hooks:
            table.clear()
            table.update(content)


def random_state() -> tuple[int, int, int]:
    numpy_state = np.random.get_state(legacy=True)
    return (hash(torch.get_rng_state().numpy().tobytes()), hash(random.getstate()), hash((numpy_state[1].tobytes(), numpy_state[2])))  # type: ignore[index]


def seed_of(x: torch.Tensor) -> torch.Tensor:
    """A gradient for ``x``, of its class where that consists of other tensors: AOTAutograd accepts no other."""
    if is_traceable_wrapper_subclass(x):
        return torch.ones_like(x)
    return torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape).to(x.dtype)


def differentiate(tensors: list[torch.Tensor], one_by_one: bool = False) -> str:
    unique = list({id(x): x for x in tensors if x.requires_grad}.values())
    try:
        seeds = [seed_of(x) for x in unique]
        if one_by_one:
            for x, seed in zip(unique, seeds, strict=True):
                x.backward(seed, retain_graph=True)
        elif unique:
            torch.autograd.backward(unique, seeds)
        return f"{len(unique)} differentiated"
    except Exception as error:  # the same one must come from the compiled program
        # PyTorch counts the ragged sizes that it makes, and names them in its errors.
        return re.sub(r"\bj\d+\b", "j", f"{type(error).__name__}: {error}")


def run(program: Program, compiler: Callable[[Any], Any], probe: Probe | None = None, count: Counting | None = None) -> list[Observation]:
    """Runs the program; what is compiled, and how, is the caller's business. ``count``: what counts operators."""
    freezer, seen = Freezer(), []
    probe = probe or Probe()
    with ambient_kept(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        out, err = io.StringIO(), io.StringIO()
        made = program.make(compiler) if program.raw else program.make()  # type: ignore[call-arg]
        fn, state = made if isinstance(made, tuple) else (made, made)
        target = fn if program.raw else compiler(fn)
        for step in program.steps:
            if step.change is not None:
                step.change(state)
            args, kwargs = step.arguments(fn)
            given = {"args": [*args], "kwargs": dict(kwargs), "state": state, "fn": fn}
            before = (probe.compiled, probe.ran, len(told), len(out.getvalue()), len(err.getvalue()))
            freezer.moment(given)  # so that what was there before has its number before
            result, error = None, None
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    with count or contextlib.nullcontext():
                        result = target(*args, **kwargs)
                except Exception as caught:
                    error = caught
            parts: dict[str, Any] = {"random": random_state(), "ambient": ambient()}
            parts["world"] = freezer.moment({"result": result, "raised": error, **given})
            parts["output"] = (out.getvalue()[before[3] :], err.getvalue()[before[4] :])
            parts["warnings"] = [(w.category.__name__, str(w.message)) for w in told[before[2] :] if not about_compiling(w)]
            counts = (probe.compiled - before[0], probe.ran - before[1])
            if count is not None:
                parts["operators"] = count.since()
            if program.backward and freezer.differentiable:
                parts["backward"] = differentiate(freezer.differentiable, program.one_by_one)
                parts["world after backward"] = freezer.moment({"result": result, **given})
            seen.append(Observation(parts, error is not None, *counts, error=f"{type(error).__name__}: {error}"))
            if error is not None:
                error.__traceback__ = None
    return seen


def about_compiling(warning: warnings.WarningMessage) -> bool:
    return warning.category.__module__.startswith("fineline") or "/torch/_dynamo/" in warning.filename


IMPLIED = {"world after backward": "world"}  # no news where the other part differs too


def compare(expected: list[Observation], actual: list[Observation], tolerance: float = 0.0) -> list[str]:
    """The differences of the first call that has any, with the part of the world where they show; at most a few per part."""
    for place, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if a.raised != b.raised:
            return [f"call {place}: {'raised ' + a.error if a.raised else 'returned'} != {'raised ' + b.error if b.raised else 'returned'}"]
        found: list[str] = []
        differing = set()
        for part in dict.fromkeys([*a.parts, *b.parts]):
            if a.parts.get(part) == b.parts.get(part):
                continue
            lines = list(differences(a.parts.get(part), b.parts.get(part), tolerance))
            if lines and IMPLIED.get(part) not in differing:
                found += [f"call {place}, {part}{line}" for line in lines[:3]]
                if lines[3:]:
                    found.append(f"call {place}, {part}: and {len(lines) - 3} more")
            if lines:
                differing.add(part)
        if found:
            return found
    return []


def eager(program: Program) -> list[Observation]:
    if program.expected is None:
        program.expected = run(program, lambda fn: fn)
    return program.expected


class Different(AssertionError):
    """The compiled program is not the eager one."""


class NotCaptured(AssertionError):
    """The answers are right, but graphs, captures or hits are not as the program's marks say."""


def check(program: Program, twin: str) -> list[Observation]:
    """The program under a twin equals the program run eagerly, and was captured as its marks say."""
    probe = Probe()
    expected = eager(program)
    if twin == "counted":
        expected = program.counted = program.counted or run(program, lambda fn: fn, count=Counting())
        probe.tally = Counting()
    with defects() as found_inside, graph_breaks() as broken:
        actual = run(program, held(compiler_for(twin, probe, program.options), kept := []), probe, probe.tally)
    if twin == "counted":
        for call, same in zip(actual, expected, strict=True):
            call.parts["operators"] = operators_counted(program, call, same.parts["operators"], probe.added())
    if found := compare(expected, actual, program.tolerance):
        raise Different("\n  ".join([f"{program.name} [{twin}] is not what eager is (eager != compiled):", *found[:12]]))
    if found_inside:
        raise Different("\n  ".join([f"{program.name} [{twin}] met a defect of fineline:", *dict.fromkeys(found_inside)]))
    if twin != "identity" and (found := count(program, twin, actual, probe)):
        raise NotCaptured("\n  ".join([f"{program.name} [{twin}] is right, but not captured as it should be:", *found]))
    if twin in EXACT and kept and golden.regions() and program.steady and (key := GOLDEN_KEYS.next(program.name)):
        golden.compare(golden.PROGRAMS, key, golden.counts(golden.newest_region(), probe.graphs, len(broken)), WRITE_GOLDEN)
    return actual


def operators_counted(program: Program, call: Observation, eager: dict[str, int], added: Counter[str]) -> dict[str, int]:
    """Returns the operators of a call in the twin `counted`, less those that it may run beside those of eager code."""
    if not call.compiled:
        # What has been captured does not run operators again that raise.
        return eager
    ran = call.parts["operators"]
    # A capture on fakes ends with a run of its program, which has copies of its own.
    ran = {name: max(n - added[name], min(n, eager.get(name, 0))) for name, n in ran.items()}
    if program.repeats:
        # Those of eager code are among them.
        ran = {name: min(n, eager.get(name, n)) for name, n in ran.items()}
    return {name: n for name, n in ran.items() if n}


def count(program: Program, twin: str, calls: list[Observation], probe: Probe) -> list[str]:
    """What is wrong with the number of graphs, captures and hits."""
    found: list[str] = []
    operators = probe.operators()
    real = sum(number > 0 for number in operators)
    quiet = [place for place, call in enumerate(calls) if not call.raised]
    if not program.min_graphs or not quiet:
        return found
    counted = twin in EXACT or twin == "dynamo"
    if real < program.min_graphs and counted:
        found.append(f"{real} graphs with an operator, at least {program.min_graphs} expected: nothing was captured?")
    if twin in ("limit1", "background"):
        return found
    if twin != "borders":
        captures = sum(call.compiled > 0 for call in calls)
        if program.max_graphs is not None and len(operators) > program.max_graphs and not twin.endswith("dynamic"):
            found.append(f"{len(operators)} graphs, at most {program.max_graphs} expected")
        if len(operators) > captures and not program.breaks:
            REPORT.append(f"{program.name} [{twin}]: {len(operators)} graphs in {captures} captures, operators {operators}")
            if STRICT:
                found.append(f"{len(operators)} graphs in {captures} captures")
    for place in quiet:
        call = calls[place]
        if place > quiet[0] and place not in program.recompiles:
            if call.compiled:
                found.append(f"call {place} captured again ({call.compiled} graphs); only {sorted(program.recompiles)} may")
            elif not call.ran and counted:
                found.append(f"call {place} ran no compiled graph")
        elif program.must_recompile and place in program.recompiles and not call.compiled:
            found.append(f"call {place} had to capture again and did not")
    return found


def parameters_needed(fn: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    return sum(p.kind in kinds and p.default is p.empty for p in inspect.signature(target).parameters.values())


class GraphCalls:
    """A backend that runs the graphs as they are, and counts the calls of them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        @functools.wraps(gm.forward)
        def run(*args: Any) -> Any:
            self.count += 1
            return gm.forward(*args)

        return run


def captured_whole(program: Program) -> None:
    """The program's first call is one graph, without a break."""
    made = program.make()
    fn = made[0] if isinstance(made, tuple) else made
    args, kwargs = program.steps[0].arguments(fn)
    assert fineline.explain(fn)(*args, **kwargs).breaks == []


class Table:
    """The programs of one test file.

    ``@table.snippet()`` registers a function to be compiled as it is; ``@table.program()`` one that makes ``fn`` or ``(fn, state)``.
    Unless told, there are three calls, each with other values of the same shape: a tensor for each parameter without a default.
    ``args`` and ``kwargs`` are given the call's place; ``change`` maps a place to what is done to the state before that call.
    """

    def __init__(self) -> None:
        self.programs: list[Program] = []

    def program(
        self, *, calls: int = 3, args: Callable[[int], tuple[Any, ...]] | None = None,
        kwargs: Callable[[int], dict[str, Any]] | None = None, change: dict[int, Callable[[Any], object]] | None = None,
        recompiles: Iterable[int] = (), grad: bool = False, **marks: Any,
    ) -> Callable[[F], F]:  # fmt: skip
        steps = [Step(place, args, kwargs, (change or {}).get(place), grad) for place in range(calls)]

        def register(make: F) -> F:
            self.programs.append(Program(make.__name__, make, steps, frozenset(recompiles), **marks))
            return make

        return register

    def snippet(self, **marks: Any) -> Callable[[F], F]:
        def register(fn: F) -> F:
            def make() -> Any:
                return fn

            make.__name__ = fn.__name__
            self.program(**marks)(make)
            return fn

        return register
