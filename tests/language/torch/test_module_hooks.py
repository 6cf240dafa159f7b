"""Hooks on modules that the captured code registers itself: each handle has another number."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from torch import nn
from torch.nn.modules import module as modules
from torch.utils.hooks import RemovableHandle

from tests.oracle import Program, Table, check, t

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


# -- code that sees the numbers ----------------------------------------------------------------------------------------
def seen(name: str, keys: Any) -> None:
    """Adds a program that returns what ``keys`` gives for a module, the handle of a hook on it, and the dict of its hooks from before."""
    def make() -> Any:
        net = network()

        def fn(x):
            before = net[0]._forward_hooks if name == "a_dict_from_before" else None
            handle = net[0].register_forward_hook(lambda module, args, out: out * 2)
            found = keys(net[0], handle, before)
            y = net(x)
            handle.remove()
            return y, found

        return fn

    make.__name__ = name
    table.program(grad=True, breaks=True, args=from_zero, recompiles=(1, 2), min_graphs=0)(make)


def from_zero(i: int) -> tuple[Any, ...]:
    """Arguments whose handles have the same numbers in each run."""
    RemovableHandle.next_id = 100 * i
    return (t(i, grad=True),)


seen("of_the_handle", lambda module, handle, before: handle.id)
seen("of_the_handle_by_name", lambda module, handle, before: (getattr(handle, "id"), vars(handle)["id"], operator.attrgetter("id")(handle)))
seen("of_the_dict", lambda module, handle, before: list(module._forward_hooks))
seen("of_the_items", lambda module, handle, before: [key + 1 for key, _ in module._forward_hooks.items()])
seen("of_the_namespace", lambda module, handle, before: [*module.__dict__["_forward_hooks"]] + [*vars(module)["_forward_hooks"]])
seen("a_dict_from_before", lambda module, handle, before: next(iter(before)))
seen("of_the_length", lambda module, handle, before: len(module._forward_hooks))


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
