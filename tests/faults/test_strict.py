"""``fullgraph=True`` and ``breaks="none"``: what is refused leaves the world as it was, whatever the code had done by then."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import pytest
import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

import fineline
from fineline.errors import Unsupported
from tests.oracle import ambient, random_state, t
from tests.soundness.freeze import Freezer

PROGRAMS: dict[str, Any] = {}
RAN: list[str] = []
CALLS = 0


def program(make: Any) -> Any:
    """``make`` gives a function that is refused, its arguments, and what else it may change."""
    PROGRAMS[make.__name__] = make
    return make


def refused(x: torch.Tensor) -> bool:
    return True if x.sum() > 0 else False  # noqa: SIM210  (a branch, which bool() is not)


@torch.library.custom_op("fineline_strict::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    RAN.append("noisy")
    print("noisy")
    return x + 1


@noisy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


# -- tensors -------------------------------------------------------------------------------------------------------------
@program
def a_write_into_an_input() -> Any:
    def fn(x):
        x[1:2].add_(1)
        x.t().zero_()
        return refused(x)

    return fn, t(), None


@program
def a_write_by_a_sign() -> Any:
    def fn(x):
        x += 1
        x[:, 1:] *= 2
        x[0] = 5
        return refused(x)

    return fn, t(), None


@program
def a_write_that_brings_a_gradient() -> Any:
    w = torch.ones(4, requires_grad=True)

    def fn(x):
        x.mul_(w)
        return refused(x)

    return fn, t(), w


@program
def a_write_into_a_tensor_with_a_history() -> Any:
    w = torch.ones(4, requires_grad=True)

    def fn(x):
        x.mul_(w)
        return refused(x)

    return fn, t() * w, w


@program
def statistics_of_a_norm() -> Any:
    norm = nn.BatchNorm1d(4)

    def fn(x):
        return norm(x), refused(x)

    return fn, t(), norm


@program
def a_result_in_its_place() -> Any:
    out = torch.zeros(3, 4)

    def fn(x):
        torch.add(x, 1, out=out)
        return refused(x)

    return fn, t(), out


@program
def gradients() -> Any:
    p, q = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    q.grad = torch.ones(4)

    def fn(x):
        p.grad = x[0] * 2
        q.grad.zero_()
        q.grad = None
        return refused(x)

    return fn, t(), [p, q]


@program
def an_attribute_of_a_tensor() -> Any:
    def fn(x):
        x.note = 1
        return refused(x)

    return fn, t(), None


# -- Python's objects ----------------------------------------------------------------------------------------------------
@program
def containers() -> Any:
    state: dict[str, Any] = {"list": [1], "set": {1, 2}, "dict": {"a": 1, "b": 2}}

    def fn(x):
        state["list"].append(x * 2)
        state["set"].add(5)
        del state["dict"]["a"]
        state["dict"].update(a=x, z=1)
        state["new"] = state.pop("list")
        return refused(x)

    return fn, t(), state


@program
def attributes_and_slots() -> Any:
    class Plain:
        pass

    class Slotted:
        __slots__ = ("y", "z")

    a, b = Plain(), Slotted()
    a.y, a.z, b.y = 1, [1], 1

    def fn(x):
        a.y += 1
        a.w = x
        del a.z
        b.y += 1
        b.z = x
        return refused(x)

    return fn, t(), [a, b]


@program
def variables_around_it() -> Any:
    n = [0]
    count = 0

    def fn(x):
        global CALLS
        nonlocal count
        count += 1
        CALLS += 1
        n[0] = count
        return refused(x)

    return fn, t(), [n, fn]


@program
def blocks_and_handlers() -> Any:
    log: list[str] = []

    class Block:
        def __enter__(self):
            log.append("in")

        def __exit__(self, *error):
            log.append("out")

    def fn(x):
        try:
            with Block(), torch.no_grad(), torch.autocast("cpu"):
                return refused(x)
        finally:
            log.append("finally")
            x.add_(1)

    return fn, t(), log


@program
def a_generator_that_is_under_way() -> Any:
    log: list[str] = []

    def steps(x):
        try:
            yield x * 2
            yield x * 3
        finally:
            log.append("closed")

    def fn(x):
        it = steps(x)
        return refused(next(it)), it

    return fn, t(), log


# -- what goes on around -------------------------------------------------------------------------------------------------
@program
def random_numbers() -> Any:
    def fn(x):
        return refused(x + torch.rand(3, 4) + torch.dropout(x, 0.5, True))

    return fn, t(), None


@program
def pythons_random_numbers() -> Any:
    def fn(x):
        return x * 2 if random.random() < 0.5 else x + 1

    return fn, t(), None


@program
def output() -> Any:
    def fn(x):
        y = x + 1
        print("not to be seen")
        return y

    return fn, t(), None


@program
def an_operator_with_effects() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        # PyTorch sets it up at its first call, and at its first on fakes.
        noisy(t())
        with FakeTensorMode() as mode, enable_python_dispatcher():
            noisy(mode.from_tensor(t()))
    RAN.clear()

    def fn(x):
        return refused(noisy(x))

    return fn, t(), RAN


@program
def numbers_that_stay_symbols() -> Any:
    log: list[Any] = []

    def fn(x):
        n = x.sum().item()
        x.add_(1)
        log.append(n)
        return x if n > 3 else n

    return fn, t(), log


@program
def numbers_that_text_needs() -> Any:
    log: list[Any] = []

    def fn(x):
        log.append(1)
        x.mul_(2)
        return len(f"{x.sum().item()}")

    return fn, t(), log


@pytest.mark.parametrize("how", [{"fullgraph": True}, {"breaks": "none"}, {"fullgraph": True, "dynamic": True}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_has_happened(name: str, how: dict[str, Any]) -> None:
    fn, x, state = PROGRAMS[name]()
    compiled = fineline.compile(fn, backend="eager", **how)
    freezer = Freezer()

    def world() -> tuple:
        versions = (x._version, x.grad_fn, x.requires_grad)
        return freezer.moment({"x": x, "state": state, "fn": fn}), ambient(), random_state(), random.getstate(), versions, CALLS

    world()
    before = world()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for _ in range(2):
            with pytest.raises(Unsupported) as caught:
                compiled(x)
    assert world() == before and not out.getvalue()
    assert caught.value.where.startswith(__file__), caught.value.where


def test_an_earlier_graph_can_still_go_backward() -> None:
    w, x = torch.ones(4, requires_grad=True), t()
    loss = (w * x).sum()

    def fn(x):
        x.add_(1)
        return refused(x)

    with pytest.raises(Unsupported):
        fineline.compile(fn, backend="eager", fullgraph=True)(x)
    loss.backward()
    assert torch.equal(w.grad, x.sum(0))


def test_an_operator_with_effects_runs_once() -> None:
    def fn(x):
        return noisy(x) * x.sum().item()

    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        RAN.clear()
        with contextlib.redirect_stdout(io.StringIO()):
            assert torch.equal(compiled(t()), (t() + 1) * t().sum().item())
        assert RAN == ["noisy"]


def test_what_is_decided_is_named() -> None:
    def fn(x):
        n = x.item()
        y = x + 1
        return y if n > 3 else -y

    with pytest.raises(Unsupported) as caught:
        fineline.compile(fn, backend="eager", fullgraph=True)(torch.tensor(4))
    e = caught.value
    assert e.id == "FL102" and "FL518" in e.reason and "> 3" in e.reason and "torch._check" in e.next_step
    assert e.where == f"{__file__}:{fn.__code__.co_firstlineno + 3}"


def test_an_operator_that_fakes_do_not_run() -> None:
    @torch.library.custom_op("fineline_strict::unknown", mutates_args=())
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert torch.equal(fineline.compile(unknown, backend="eager", fullgraph=True)(t()), t() + 1)
    with pytest.raises(Unsupported) as caught:
        fineline.compile(lambda x: unknown(x) * x.sum().item(), backend="eager", fullgraph=True)(t())
    assert "in fake mode" in caught.value.reason and "unknown" in caught.value.reason


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("flag", [False, True])
def test_a_refusal_behind_a_graph_break_leaves_the_blocks_that_were_entered_before(flag: bool, dynamic: bool | None) -> None:
    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad(), fineline.error_on_graph_break(False), torch.autocast("cpu"):
            x = x + 1
            fineline.graph_break()
            with fineline.error_on_graph_break(flag):
                return print(x.sum() > 0)

    compiled = fineline.compile(fn, backend="eager", dynamic=dynamic, breaks="any" if flag else "declared")
    before = ambient(), fineline.policy.scope_stack.SCOPE.blocks
    for size in (3, 3, 4, 5):
        with pytest.raises(Unsupported):
            compiled(torch.ones(size))
        assert (ambient(), fineline.policy.scope_stack.SCOPE.blocks) == before
