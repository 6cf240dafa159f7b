"""Hooks on modules that the captured code registers itself: each handle has another number."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.nn.modules import module as modules

from tests.oracle import Program, Table, check

table = Table()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


@table.program(grad=True, max_graphs=1, options={"fullgraph": True})
def outputs_of_a_layer() -> Any:
    net = network()

    def fn(x):
        seen = []
        handle = net[0].register_forward_hook(lambda module, args, out: seen.append(out.sin()))
        y = net(x)
        handle.remove()
        return y, seen, net(x)

    return fn, net


@table.program(grad=True, max_graphs=1, options={"fullgraph": True})
def in_a_block() -> Any:
    net = network()

    def fn(x):
        with net[2].register_forward_pre_hook(lambda module, args: (args[0] * 2,)), net.register_forward_hook(lambda module, args, out: out.cos()):
            y = net(x)
        return y + net(x)

    return fn, net


@table.program(grad=True, max_graphs=1, options={"fullgraph": True})
def with_all_arguments() -> Any:
    net = network()

    def fn(x):
        order = []
        first = net.register_forward_hook(lambda module, args, out: order.append(1))
        second = net.register_forward_hook(lambda module, args, kwargs, out: order.append(len(kwargs)), with_kwargs=True, prepend=True, always_call=True)
        third = net.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
        try:
            y = net(x)
        finally:
            for handle in (second, first, third, first):
                handle.remove()
        return y, order

    return fn, net


@table.program(grad=True, max_graphs=1, options={"fullgraph": True})
def on_all_layers() -> Any:
    net = network()

    def fn(x):
        shapes, handles = {}, []
        for name, layer in net.named_children():
            handles.append(layer.register_forward_hook(lambda module, args, out, name=name: shapes.update({name: out.shape})))
        net(x)
        while handles:
            handles.pop().remove()
        return net(x), shapes

    return fn, net


@table.program(grad=True, min_graphs=0)
def a_hook_that_raises() -> Any:
    net = network()

    def fails(module, args):
        raise ValueError("the hook")

    def fn(x):
        try:
            with net[1].register_forward_pre_hook(fails):
                return net(x)
        except ValueError as e:
            return net(x), str(e)

    return fn, net


@table.program(grad=True, max_graphs=1, recompiles=(1, 2))
def on_all_modules() -> Any:
    net = network()

    def fn(x):
        with modules.register_module_forward_hook(lambda module, args, out: out * 2):
            y = net(x)
        return y + net(x)

    return fn, net


@table.program(grad=True, breaks=True, recompiles=(1, 2))
def across_a_graph_break() -> Any:
    net = network()

    def fn(x):
        with net[0].register_forward_hook(lambda module, args, out: out * 2):
            y = net(x)
            print("break")
            y = y + net(x)
        return y + net(x)

    return fn, net


@table.program(grad=True, max_graphs=1, options={"fullgraph": True})
def classes_of_handles() -> Any:
    net = network()

    def fn(x):
        removed = net[0].register_forward_hook(lambda module, args, out: out * 2)
        y = net(x)
        removed.remove()
        return y, len(net[0]._forward_hooks), type(removed)

    return fn, net


@table.program(grad=True, breaks=True, recompiles=(1, 2))
def hooks_that_stay() -> Any:
    net = network()

    def fn(x):
        if len(net[0]._forward_hooks) < 2:
            net[0].register_forward_hook(lambda module, args, out: out * 2)
        return net(x), len(net[0]._forward_hooks)

    return fn, net


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)
