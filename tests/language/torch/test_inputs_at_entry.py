"""What a backend is told of inputs that the code changes: each graph begins with them as they were when it began.

Results that are views of inputs, inputs that share memory, and changes of an input's metadata leave the same world behind as eagerly.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline
from fineline.backends.registry import lookup_backend
from tests.oracle import Program, Step, check, t


def unsqueezed(x):
    y = x + 1
    x.unsqueeze_(0)
    return x * y


def transposed(x):
    y = x * 2
    x.t_()
    return y.t() + x


def resized(x):
    y = x.sum()
    x.resize_(6)
    return x[:3] + y


def detached(x):
    y = x * 2
    x.detach_()
    return y + x


def asked_for_a_gradient(x):
    y = x * 2
    x.requires_grad_()
    return x * y


def swapped_and_written(x):
    x.transpose_(0, 1)
    x.add_(1)
    return x.view_as(x)


def other_data(x):
    x.data = x.data * 2
    return x + 1


def other_memory(x):
    x.set_(torch.ones(4))
    return x + 1


def a_view(x):
    return x.view(-1), x[:, 1:], x.t()


def a_view_of_what_was_written(x):
    x.add_(1)
    return x[:, 1:]


def written_through_a_view(x):
    x[0].add_(1)
    return x * 2


def view_first_write_later(x):
    y = x.view(-1)
    x.mul_(2)
    return y


def itself(x):
    return x


def a_view_beside(x, y):
    y.mul_(2)
    return x + y


def both_written(x, y):
    x.add_(1)
    y.mul_(2)
    return x[:, :2] + 1, y * 3


ONE = [unsqueezed, transposed, resized, asked_for_a_gradient, swapped_and_written, other_data, other_memory, a_view]
ONE += [a_view_of_what_was_written, written_through_a_view, view_first_write_later, itself, detached]
TWO = [a_view_beside, both_written]
PROGRAMS = [
    Program(f.__name__, lambda f=f: f, [Step(n, args=lambda n: (t(n),)) for n in range(3)], breaks=True, min_graphs=0) for f in ONE
]


def beside(n: int) -> tuple[torch.Tensor, ...]:
    base = t(n)
    return base, base[0]


# No backend is given a graph that writes into one of two inputs that lie on each other.
PROGRAMS += [Program(f.__name__, lambda f=f: f, [Step(n, args=beside) for n in range(3)], breaks=True, min_graphs=0) for f in TWO]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_program(program, twin):
    check(program, twin)


class Recording:
    """A backend that writes down how its example inputs look, and how the inputs of each call do."""

    def __init__(self, name: str) -> None:
        self.inner = lookup_backend(name, None, None)
        self.told: list[list[tuple[Any, ...]]] = []
        self.met: list[list[tuple[Any, ...]]] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        told = [look(x) for x in inputs if isinstance(x, torch.Tensor)]
        compiled = self.inner(gm, inputs)

        def run(*args: Any) -> Any:
            self.told.append(told)
            self.met.append([look(x) for x in args if isinstance(x, torch.Tensor)])
            return compiled(*args)

        return run


def look(x: torch.Tensor) -> tuple[Any, ...]:
    hints = [[n.node.hint if isinstance(n, torch.SymInt) else n for n in numbers] for numbers in (x.shape, x.stride())]
    return (*map(tuple, hints), x.dtype, x.requires_grad, type(x).__name__.replace("FakeTensor", "Tensor"))


@pytest.mark.parametrize("how", [{}, {"options": {"first_call": "compiled"}}, {"dynamic": True}], ids=["live", "fake", "dynamic"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", [*ONE, *TWO], ids=lambda f: f.__name__)
def test_what_the_backend_is_told(f, backend, how):
    recording = Recording(backend)
    compiled = fineline.compile(f, backend=recording, **how)
    for n in range(3):
        ours, theirs = [beside(n) if f in TWO else (t(n),) for _ in range(2)]
        a, b = compiled(*ours), f(*theirs)
        a, b = [x if isinstance(x, tuple) else (x,) for x in (a, b)]
        for x, y in zip((*a, *ours), (*b, *theirs), strict=True):
            assert look(x) == look(y) and x.storage_offset() == y.storage_offset() and torch.equal(x, y)
        assert shared((*a, *ours)) == shared((*b, *theirs))
    assert recording.told == recording.met


def shared(tensors: Any) -> list[int]:
    memory = [x.untyped_storage()._cdata for x in tensors]
    return [memory.index(m) for m in memory]


@pytest.mark.parametrize("f", [unsqueezed, resized, other_memory], ids=lambda f: f.__name__)
def test_one_graph_is_refused_with_the_line(f):
    x = t(0)
    with pytest.raises(fineline.errors.Unsupported, match="test_inputs_at_entry.py"):
        fineline.compile(f, backend="eager", fullgraph=True)(x)
    assert look(x) == look(t(0)) and torch.equal(x, t(0))
