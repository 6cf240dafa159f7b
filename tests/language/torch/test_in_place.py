"""Writes that autograd allows into some tensors and refuses into others, and those that fail when they have written."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch

import fineline
from tests.oracle import Program, Step, check, t


def without_grad() -> torch.Tensor:
    leaf = t(1, grad=True)
    with torch.no_grad():
        return leaf[0:]


def of_inference() -> torch.Tensor:
    with torch.inference_mode():
        return t(1)


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "without a gradient": lambda: t(1),
    "a leaf": lambda: t(1, grad=True),
    "a result": lambda: t(1, grad=True) * 2,
    "a leaf's view": lambda: t(1, grad=True)[0:],
    "a result's view": lambda: (t(1, grad=True) * 2)[0:],
    "one of split": lambda: (t(1, grad=True) * 2).split(2)[0],
    "one of unbind": lambda: torch.stack([t(1, grad=True), t(2)]).unbind(0)[0],
    "a view without grad": without_grad,
    "detached": lambda: t(1, grad=True).detach(),
    "expanded": lambda: (t(1, grad=True) * 2)[:1].expand(2, 4),
    "of an inference mode": of_inference,
}


def itself(x):
    x += 1
    return x


def a_view(x):
    x[:, 1:] += 1
    return x


def with_a_method(x):
    v = x[1:]
    v.mul_(2)
    return v


def with_a_history(x):
    return x.add_(torch.ones_like(x, requires_grad=True))


def several(x):
    torch._foreach_mul_([x, x[0].clone()], 2.0)
    return x


def what_draws_numbers(x):
    return torch.nn.functional.dropout(x, 0.5, True, True)


def behind_a_break(x):
    v = x[0:]
    fineline.graph_break()
    v *= 2
    return v


def handled(write: Callable) -> Callable:
    def fn(x):
        try:
            return write(x).detach()
        except RuntimeError as e:
            return str(e), x.detach().clone()

    return fn


def program(write: Callable, kinds: tuple[str, ...]) -> Program:
    steps = [Step(i, lambda i: (KINDS[kinds[i]](),)) for i in range(len(kinds))]
    return Program(f"{write.__name__}: {', '.join(kinds)}", lambda: handled(write), steps, frozenset(range(len(kinds))), min_graphs=0, breaks=True, backward=False)


@pytest.mark.parametrize("write", [itself, a_view, with_a_method, with_a_history, several, what_draws_numbers, behind_a_break], ids=lambda f: f.__name__)
def test_each_kind_after_each_other(write: Callable, twin: str) -> None:
    # What a graph gives of an inference mode is made anew, with operators that count.
    kinds = [k for k in KINDS if (twin, k) != ("counted", "of an inference mode")]
    for first, second in itertools.product(("a leaf", "a result", "one of split", "expanded"), kinds):
        check(program(write, (first, second, first)), twin)


def through_data(x):
    x.data.mul_(0.5)
    return x.detach() + 1


def through_detach(x):
    y = x * 2
    x.detach().add_(1)
    return y.detach()


def items_through_data(x):
    x.data[0] = 2
    return x.detach()


def a_view_of_data(x):
    x.data.view(-1)[1:].add_(1)
    return x.detach()


def data_copied(x):
    x.data.copy_(torch.ones_like(x))
    return x.detach()


def with_and_without_a_history(x):
    with torch.no_grad():
        x.mul_(2)
    x.data.add_(1)
    return x.detach()


HIDDEN = [through_data, through_detach, items_through_data, a_view_of_data, data_copied, with_and_without_a_history]


@pytest.mark.parametrize("write", HIDDEN, ids=lambda f: f.__name__)
def test_writes_that_autograd_does_not_see(write: Callable, twin: str) -> None:
    """Behind AOTAutograd, too, which writes with a history."""
    kinds = ("without a gradient", "a leaf", "a leaf's view", "a result", "a result's view", "detached")
    for first in ("a leaf", "a leaf's view", "a result"):
        check(program(write, (first, *kinds, first)), twin)


@pytest.mark.parametrize("write", HIDDEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("first_call", ["live", "compiled"])
def test_such_writes_into_one_of_several_views(write: Callable, first_call: str) -> None:
    """PyTorch forbids to ask those for anything afterwards, and so the oracle can't."""
    compiled = fineline.compile(handled(write), backend="aot_eager", options={"first_call": first_call})
    for _ in range(3):
        wholes = [t(1, grad=True) * 2 for _ in range(2)]
        for whole, fn in zip(wholes, (handled(write), compiled), strict=True):
            fn(whole.split(2)[0])
        assert torch.equal(*wholes)


OVERWRITTEN: dict[str, Callable] = {
    "mul": lambda x, w: x * w,
    "mm": lambda x, w: x.mm(w),
    "linear": lambda x, w: torch.nn.functional.linear(x, w),
    "div": lambda x, w: x / w,
    "pow": lambda x, w: (x * x).pow(w),
    "where": lambda x, w: torch.where(w > 0, x * w, x),
    "lerp": lambda x, w: torch.lerp(x, w, w),
    "layer_norm": lambda x, w: torch.nn.functional.layer_norm(x, (4,), w[0], w[1]),
    "addcmul": lambda x, w: torch.addcmul(x, x, w),
    "einsum": lambda x, w: torch.einsum("ij,jk->ik", x, w),
    "maximum": lambda x, w: torch.maximum(x, w) * w,
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_what_gradients_need_is_overwritten(name: str, twin: str) -> None:
    """Eager code raises where it goes backward, and not before."""

    def make():
        weight = t(7, 4, 4, grad=True)
        # What AOTAutograd has PyTorch say while it finds out.
        warnings.filterwarnings("ignore", "Error detected in ")

        def fn(x):
            y = OVERWRITTEN[name](x, weight)
            with torch.no_grad():
                weight.mul_(0.5)
            return y

        return fn, weight

    # A write behind AOTAutograd counts another number of versions, which the error tells.
    steps = [Step(i, lambda i: (t(i, 4, 4, grad=True),)) for i in range(3)]
    check(Program(name, make, steps, frozenset(range(3)), min_graphs=0, breaks=True), twin)


def test_what_nobody_handles_is_raised_as_it_is() -> None:
    for fullgraph in (False, True):
        fn = fineline.compile(itself, backend="eager", fullgraph=fullgraph)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
                fn(t(1, grad=True))
        assert torch.equal(fn(t(1)), t(1) + 1)
