"""Random numbers that another thread draws while a call is captured: no capture that is taken back puts the generator back behind them."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F

from tests.oracle import Program, Table, check

table = Table()


def in_thread(run):
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def of_a_thread(name, draw):
    """Draws in a thread that the compiled code starts, between two draws of its own."""

    def make():
        def fn(x):
            y = x + torch.rand(4)
            z = in_thread(lambda: draw(x))
            return y + z, torch.rand(2)

        return fn

    make.__name__ = name
    table.program(breaks=True, calls=4, recompiles=(1, 2, 3), min_graphs=0, steady=False)(make)


# Not Tensor.bernoulli(): PyTorch's own torch.get_rng_state() in one thread and that in another wait for each other for ever.
of_a_thread("rand", lambda x: torch.rand(4))
of_a_thread("randn_like", torch.randn_like)
of_a_thread("randint", lambda x: torch.randint(9, (4,)))
of_a_thread("randperm", lambda x: torch.randperm(4))
of_a_thread("normal_", lambda x: torch.empty(4).normal_())
of_a_thread("multinomial", lambda x: torch.ones(8).multinomial(4))
of_a_thread("dropout", lambda x: F.dropout(torch.ones(4), 0.5))
of_a_thread("seeded", lambda x: torch.manual_seed(x.dim()) and torch.rand(4))
of_a_thread("in a thread of the thread", lambda x: in_thread(lambda: torch.rand(4)))


@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3), min_graphs=0, steady=False)
def in_two_threads_in_a_row(x):
    y = x * in_thread(lambda: torch.rand(4))
    return y.sin() + in_thread(lambda: torch.rand(4)) * torch.rand(4)


@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3), min_graphs=0, steady=False)
def in_a_loop(x):
    for k in range(3):
        x = x.sin() + in_thread(lambda: torch.rand(4)) * k  # noqa: B023  (called at once)
    return x


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_draws_in_threads(program: Program, twin: str) -> None:
    check(program, twin)
