"""Graphs that fail where they did not at their capture, in blocks and under handlers: these are left, or run, as in eager code."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

import fineline
from tests.oracle import TWINS, Program, Table, check, t

table = Table()

with forward_ad.dual_level():
    # PyTorch loads decompositions at their first use, and warns of what they are made with.
    forward_ad.make_dual(torch.ones(2), torch.ones(2))[torch.tensor([0])] * 2


def without_gradients(x, i, given):
    with torch.no_grad():
        y = given(x)[i]
    return y * 2


def with_autocast(x, i, given):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = given(x)
        return y[i] @ y[i].t()


def in_inference_mode(x, i, given):
    with torch.inference_mode():
        return given(x)[i] + 1


def under_vmap(x, i, given):
    y = given(x)
    return torch.func.vmap(lambda v: (y[i] * v).sum())(x)


def under_grad(x, i, given):
    y = given(x)
    return torch.func.grad(lambda v: (v[i] * 2).sum())(y)


def at_a_dual_level(x, i, given):
    y = given(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, y)
        return forward_ad.unpack_dual(dual[i] * 2).tangent


def with_random_state_apart(x, i, given):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return given(x)[i] * torch.rand(2, 1)


def with_another_default(x, i, given):
    torch.set_default_dtype(torch.float64)
    try:
        return given(x)[i] * 2 + torch.ones(1)
    finally:
        torch.set_default_dtype(torch.float32)


def that_is_handled(x, i, given):
    try:
        return given(x)[i] * 2
    except IndexError as e:
        return x + 1, str(e)


def that_a_caller_handles(x, i, given):
    try:
        return inner(x, i, given)
    except IndexError:
        return x + 1


def inner(x, i, given):
    return given(x)[i] * 2


BLOCKS = (
    without_gradients, with_autocast, in_inference_mode, under_vmap, under_grad, at_a_dual_level, with_random_state_apart,
    with_another_default, that_is_handled, that_a_caller_handles,
)  # fmt: skip


def args(place: int) -> tuple[torch.Tensor, torch.Tensor]:
    return t(place, 4, 4), torch.tensor([0, 9 if place in (2, 4) else 1])


def register(block: Callable, kind: str) -> None:
    def make() -> Any:
        seen = torch.zeros(4)

        def given(x):
            if kind == "written":
                seen.add_(1)
            return torch.nn.functional.dropout(x, 0.5) if kind == "random" else x * 2

        return lambda x, i: block(x, i, given), seen

    make.__name__ = f"{block.__name__}_{kind}"
    table.program(calls=6, args=args, breaks=True, repeats=True, recompiles=(2, 4), backward=False)(make)


for block in BLOCKS:
    for kind in ("plain", "written", "random"):
        register(block, kind)


LARGE = 2**15


@torch.library.custom_op("failing::noted", mutates_args=())
def noting(x: torch.Tensor) -> torch.Tensor:
    NOTES.append("noted")
    if x.sum() > 1000:
        raise ValueError("too much")
    return x.clone()


noting.register_fake(torch.empty_like)
NOTES: list[str] = []


@fineline.allow_in_graph
def allowed(x):
    return x * 3


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.size = x.shape[0]
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def much_written(x, state):
    state["cache"].add_(1)


def written_with_a_history(x, state):
    state["tracked"].mul_(state["weight"])


def written_by_foreach(x, state):
    torch._foreach_add_([state["cache"], state["small"]], 1)


def custom(x, state):
    state["small"].add_(torch.ops.failing.noted(x)[0])


def allowed_call(x, state):
    state["small"].add_(allowed(x)[0])


def a_function(x, state):
    state["small"].add_(Doubled.apply(x)[0])


def drawn(x, state):
    state["cache"].add_(torch.rand(LARGE))


def a_slot_written(x, state):
    state["small"].grad = x[0] * 2
    state["cache"].add_(1)


LASTING = (much_written, written_with_a_history, written_by_foreach, custom, allowed_call, a_function, drawn, a_slot_written)


def before_it(x, i, log, does):
    does()
    log.append("begun")
    try:
        y = x[i] * 2
    except IndexError:
        y = x + 1
    finally:
        log.append("left")
    return y


def inside_of_it(x, i, log, does):
    try:
        log.append("begun")
        does()
        y = x[i].sum()
        log.append("done")
    except IndexError as e:
        log.append(type(e).__name__)
        y = x.sum()
    return y


def behind_it(x, i, log, does):
    try:
        y = x[i] * 2
        log.append("done")
    except IndexError:
        y = x + 1
    does()
    return y


def between_two(x, i, log, does):
    y = x
    for k in (i * 0, i):
        try:
            y = y + x[k].sum()
            does()
        except IndexError:
            log.append("out")
    return y


class Handled:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("entered")

    def __exit__(self, kind, *rest):
        self.log.append(str(kind))
        return True


def in_a_context(x, i, log, does):
    with Handled(log):
        does()
        return F.embedding(i, x)
    return x


def register_lasting(way: Callable, effect: Callable) -> None:
    def make() -> Any:
        NOTES.clear()
        log: list[str] = []
        weight = torch.full((4,), 1.5, requires_grad=True)
        state = {"cache": torch.zeros(LARGE), "small": torch.zeros(4), "weight": weight, "tracked": weight * 2}
        return lambda x, i: way(x, i, log, lambda: effect(x, state)), (log, state, NOTES)

    make.__name__ = f"{effect.__name__} {way.__name__}"
    table.program(calls=6, args=args, breaks=True, repeats=True, recompiles=(1, 2, 3, 4, 5), backward=False)(make)


for way in (before_it, inside_of_it, behind_it, between_two, in_a_context):
    for effect in LASTING:
        register_lasting(way, effect)


def with_a_number(place: int) -> tuple[torch.Tensor, int]:
    return t(place, 4, 4), (1, 2, 9, 3, 9)[place]


# A tensor of a number that varies is made by other operators.
WITHOUT_COUNTED = tuple(name for name in TWINS if name != "counted")


@table.snippet(calls=5, args=with_a_number, breaks=True, repeats=True, recompiles=(1, 2, 4), backward=False, twins=WITHOUT_COUNTED)
def a_number_that_varies(x, k):
    try:
        return x + F.embedding(torch.tensor([k]), x).sum()
    except IndexError:
        return x * 3


# What AOTAutograd makes of it runs for integers, too.
WITHOUT_AOT = tuple(name for name in WITHOUT_COUNTED if not name.startswith("aot"))


@table.snippet(calls=5, args=with_a_number, breaks=True, repeats=True, recompiles=(1, 2, 4), backward=False, twins=WITHOUT_AOT)
def a_type_that_has_no_kernel(x, k):
    try:
        F.silu(torch.tensor(k))
    except NotImplementedError:
        return x * 3
    return x * k


@table.snippet(calls=5, args=with_a_number, breaks=True, repeats=True, recompiles=(1, 2, 4), backward=False, twins=WITHOUT_COUNTED)
def a_number_in_a_new_tensor(x, k):
    log = []
    try:
        y = x.gather(0, x.new_tensor([[k]], dtype=torch.int64))
    except RuntimeError:
        y = x
        log.append(k)
    finally:
        log.append("left")
    return y, log


@table.snippet(calls=5, args=with_a_number, breaks=True, repeats=True, recompiles=(1, 2, 4), backward=False)
def a_number_as_a_size(x, k):
    try:
        return x.index_select(0, torch.arange(k, k + 1)) * k
    except IndexError:
        return x.sum() + k



@table.snippet(args=lambda place: (t(place), t(place + 1)), breaks=True, repeats=True, backward=False)
def where_only_the_run_sees_it(x, y):
    """Of types that do not fit a fake says nothing."""
    for _ in range(2):
        try:
            total = torch.zeros(4)
            found = (x[0] > -9).nonzero().squeeze(-1)
            return total.index_add_(0, found, y[0][found].bfloat16())
        except RuntimeError as e:
            text = str(e)
    return x * 2, text


class Noted:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, *error):
        self.log.append("out")


@table.program(calls=6, args=args, breaks=True, repeats=True, recompiles=(2, 4), backward=False)
def in_blocks_entered_before_a_graph_break():
    log, large = [], torch.zeros(2**15)

    def fn(x, i):
        with Noted(log), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            fineline.graph_break()
            y = y[i] @ x
            # More than is kept to be put back.
            large.add_(1)
            return y

    return fn, (log, large)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_failing_graphs(program: Program, twin: str) -> None:
    check(program, twin)


@torch.library.custom_op("failing::interrupted", mutates_args=())
def interrupted(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 10:
        raise KeyboardInterrupt
    return x.clone()


interrupted.register_fake(torch.empty_like)


@pytest.mark.parametrize("draws", [False, True])
def test_an_interrupt_leaves_the_blocks(draws: bool) -> None:
    def fn(x):
        with torch.no_grad(), torch.autocast("cpu"):
            y = torch.nn.functional.dropout(x) if draws else x
            return interrupted(y * 0 + x * 2) + x.sin()

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.full((2,), 50.0))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_an_interrupt_behind_a_graph_break_leaves_the_blocks() -> None:
    log: list[Any] = []

    def fn(x):
        with Noted(log), torch.no_grad(), torch.autocast("cpu"):
            y = x * 2
            fineline.graph_break()
            z = interrupted(y)
            fineline.graph_break()
            return z + 1

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.full((2,), 50.0))
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0)) and log == ["in", "out"] * 4


def test_no_handler_takes_what_comes_from_a_graph_that_cannot_run_again() -> None:
    """It was raised somewhere behind the graph break: what the code has done since is not known."""
    log: list[Any] = []
    large = torch.zeros(2**15)

    def fn(x):
        for n in range(2):
            try:
                with Noted(log):
                    fineline.graph_break()
                    large.add_(1)
                    x = x * 4
            except:  # noqa: E722
                return n
        return x

    def backend(graph, inputs):
        def run(*args):
            outputs = graph.forward(*args)
            if any(y.numel() == 2 and y.sum() > 10 for y in outputs):
                raise ValueError("too much")
            return outputs

        return run

    compiled = fineline.compile(fn, backend=backend)
    for _ in range(2):
        compiled(torch.full((2,), 0.1))
    with pytest.raises(ValueError, match="too much"):
        compiled(torch.full((2,), 1.0))
    assert log == ["in", "out"] * (len(log) // 2)


def test_a_handler_takes_what_a_custom_operator_raises() -> None:
    log: list[Any] = []
    large = torch.zeros(2**15)

    def fn(x):
        for n in range(2):
            try:
                with Noted(log):
                    fineline.graph_break()
                    large.add_(1)
                    x = bounded(x * 4)
            except ValueError:
                return n
        return x

    compiled = fineline.compile(fn, backend="eager")
    for number in (0.1, 0.1, 1.0, 1.0, 50.0):
        written = large.clone()
        expected = fn(torch.full((2,), number))
        by_eager, seen = large - written, [*log]
        log.clear(), large.copy_(written)
        found = compiled(torch.full((2,), number))
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected)) and log == seen and torch.equal(large - written, by_eager)
        log.clear()


@pytest.mark.parametrize("behind", [False, True])
def test_a_failed_call_keeps_nothing(behind: bool) -> None:
    large = torch.zeros(2**15)

    def fn(x):
        with torch.no_grad(), torch.autocast("cpu"):
            if behind:
                fineline.graph_break()
            large.add_(1)
            return bounded(x * 2) + x.sin()

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    x = torch.full((2,), 50.0)
    alive = weakref.ref(x)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="too much"):
            compiled(x)
        del x
        assert alive() is None
    finally:
        gc.enable()


@torch.library.custom_op("failing::bounded", mutates_args=())
def bounded(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 10:
        raise ValueError("too much")
    return x.clone()


bounded.register_fake(torch.empty_like)


def test_the_error_tells_where_it_was_raised() -> None:
    def fn(x):
        with torch.autocast("cpu"):
            return bounded(x * 2) + x.sin()

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    with pytest.raises(ValueError, match="too much") as caught:
        compiled(torch.full((2,), 50.0))
    assert "bounded" in [frame.name for frame in caught.traceback] and not torch.is_autocast_enabled("cpu")


@contextlib.contextmanager
def timed(times):
    times.append(0)
    yield
    times.append(1)


def test_contexts_that_handle_nothing_cut_no_graph() -> None:
    times: list[int] = []

    def fn(x, i, cache):
        with torch.no_grad(), torch.autocast("cpu", enabled=False), timed(times), torch.profiler.record_function("fn"):
            cache.add_(1)
            y = torch.ops.failing.noted(x)
            cache.mul_(2)
            return F.embedding(i, y[i])

    explained = fineline.explain(fn)(t(1, 4, 4), torch.tensor([0]), torch.zeros(LARGE))
    assert explained.graph_count == 1 and not explained.breaks


def test_what_raises_again_cuts_no_graph() -> None:
    """As libraries put it around whole models: transformers does."""
    state = {"n": 0}

    def fn(x, i, cache):
        state["n"] += 1
        try:
            try:
                cache.add_(1)
                return F.embedding(i, torch.ops.failing.noted(x)[i])
            except TypeError as e:
                raise ValueError("wrong") from e
        finally:
            state["n"] -= 1

    explained = fineline.explain(fn)(t(1, 4, 4), torch.tensor([0]), torch.zeros(LARGE))
    assert explained.graph_count == 1 and not explained.breaks


def test_where_no_graph_may_end_it_is_refused() -> None:
    def fn(x, i, cache):
        cache.add_(1)
        try:
            return x[i]
        except IndexError:
            return x

    with pytest.raises(fineline.errors.FinelineError, match="FL525"):
        fineline.compile(fn, fullgraph=True, backend="eager")(t(1, 4, 4), torch.tensor([1]), torch.zeros(LARGE))
