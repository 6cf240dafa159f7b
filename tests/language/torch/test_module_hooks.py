"""Hooks on modules that the captured code registers, or the code around it before each call: each handle has another number."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
from torch import nn
from torch.nn.modules import module as modules
from torch.utils.hooks import RemovableHandle

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
# The networks of programs that have a dict of hooks as an argument, too.
NETS: list[nn.Sequential] = []


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


@table.program(grad=True, breaks=True)
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
seen("of_the_state", lambda module, handle, before: list(module.__getstate__()["_forward_hooks"]))
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


# -- hooks that are left where a graph ends ----------------------------------------------------------------------------
@table.program(grad=True, breaks=True, recompiles=(1,))
def removed_after_a_graph_break() -> Any:
    net = network()

    def fn(x):
        seen = {}
        handles = [layer.register_forward_hook(lambda module, args, out, name=name: seen.update({name: out})) for name, layer in net.named_children()]
        y = net(x)
        print("break")
        y = y + net(x)
        for handle in handles:
            handle.remove()
        return y, seen, net(x)

    return fn, net


@table.program(grad=True, breaks=True, recompiles=(1,))
def of_a_module_that_breaks_the_graph() -> Any:
    class Prints(nn.Module):
        def forward(self, x):
            print("break")
            return x.sin()

    net = nn.Sequential(nn.Linear(4, 4), Prints(), nn.Linear(4, 2))

    def fn(x):
        with net.register_forward_pre_hook(lambda module, args: (args[0] + 1,)), net[1].register_forward_hook(lambda module, args, out: out * 3):
            return net(x)

    return fn, net


@table.program(grad=True, breaks=True, recompiles=(1, 2))
def that_break_the_graph_themselves() -> Any:
    net = network()

    def prints(module, args, kwargs, out):
        print("break", len(kwargs))
        return out + 1

    def fn(x):
        with net.register_forward_hook(prints, with_kwargs=True), net.register_forward_hook(lambda module, args, out: out * 2):
            return net(x)

    return fn, net


def again(at: int, **how: Any) -> Any:
    """Returns a change of ``(network, handles)`` that registers a hook anew.

    After a graph break amid several hooks, PyTorch's code holds their numbers: programs with forced graph breaks are captured again.
    """
    def change(state: Any) -> None:
        net, handles = state
        handles[at].remove()
        # The same in each run: backends register hooks, too.
        RemovableHandle.next_id = handles[at].id + 10
        handles[at] = net[0].register_forward_hook(doubled, **how)

    return change


def doubled(module, args, *rest):
    return rest[-1] * (1 + len(rest))


@table.program(args=from_zero, recompiles=(1, 2))
def that_return_leaves() -> Any:
    net = network()

    def fn(x):
        first = net[0].register_forward_hook(lambda module, args, out: out * 2, prepend=True)
        second = net[0].register_forward_hook(lambda module, args, kwargs, out: out + 2, with_kwargs=True)
        return net(x), second.remove(), first

    return fn, net


# -- hooks that are registered anew before each call -------------------------------------------------------------------
def hooked(count: int = 1) -> Any:
    net = network()
    return net, [net[0].register_forward_hook(doubled) for _ in range(count)]


EACH = {place: again(0) for place in range(1, 4)}


@table.program(grad=True, calls=4, max_graphs=1, recompiles=(1,), change=EACH)
def registered_before_each_call() -> Any:
    net, handles = hooked()

    def fn(x):
        return net(x)

    return fn, (net, handles)


def collect(state: Any) -> None:
    net, seen, handles = state
    while handles:
        handles.pop().remove()
    found = []
    seen[:] = [found]
    for layer in net:
        handles.append(layer.register_forward_hook(lambda module, args, out: found.append(out.detach())))
    handles.append(net.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True))
    handles.append(net.register_forward_hook(lambda module, args, out: None, always_call=True))


@table.program(grad=True, calls=4, recompiles=(1, 2), change=dict.fromkeys(range(1, 4), collect))
def with_other_closures() -> Any:
    net, seen = network(), []

    def fn(x):
        return net(x)

    return fn, (net, seen, [])


@table.program(grad=True, calls=4, recompiles=(1, 2, 3), max_graphs=3, change={1: again(0), 2: again(0, with_kwargs=True), 3: again(1)})
def registered_in_another_way() -> Any:
    net, handles = hooked(2)

    def fn(x):
        return net(x)

    return fn, (net, handles)


@table.program(grad=True, calls=4, recompiles=(1, 2), change=EACH)
def removed_in_the_code() -> Any:
    net, handles = hooked(3)

    def fn(x):
        y = net(x)
        handles[0].remove()
        y = y - net(x)
        handles[0].remove()
        return y

    return fn, (net, handles)


@table.program(grad=True, calls=4, max_graphs=1, recompiles=(1,), change=EACH)
def removed_before_the_module_is_called() -> Any:
    net, handles = hooked()

    def fn(x):
        handles[0].remove()
        return net(x)

    return fn, (net, handles)


@table.program(grad=True, calls=4, max_graphs=1, recompiles=range(1, 4), change={place: again(1) for place in range(1, 4)})
def of_several_that_stay() -> Any:
    net, handles = hooked(2)

    def fn(x):
        with net[0].register_forward_hook(doubled, prepend=True, with_kwargs=True):
            y = net(x)
        return y + net(x)

    return fn, (net, handles)


def on_the_other(state: Any) -> None:
    nets, handles = state
    handles[0] = nets[1][0].register_forward_hook(doubled)
    nets[0][0].register_forward_hook(doubled)


@table.program(grad=True, recompiles=(1, 2), change={1: on_the_other, 2: on_the_other})
def removed_from_another_module() -> Any:
    nets = network(), network()
    handles = [nets[0][0].register_forward_hook(doubled)]

    def fn(x):
        handles[0].remove()
        return nets[0](x) - nets[1](x)

    return fn, (nets, handles)


@table.program(grad=True, calls=4, max_graphs=1, recompiles=range(1, 4), change=EACH)
def of_modules_that_share_their_hooks() -> Any:
    net, handles = hooked(2)
    nets = [net[0], copy.copy(net[0])]

    def fn(x):
        return nets[0](x) - nets[1](x * 2)

    return fn, (net, handles)


@table.program(grad=True, calls=4, breaks=True, recompiles=range(4), change=EACH)
def that_break_the_graph_and_are_registered_before_each_call() -> Any:
    net, handles = hooked()
    net[0].register_forward_hook(lambda module, args, out: print("break"))
    net[0].register_forward_hook(doubled, with_kwargs=True)

    def fn(x):
        return net(x)

    return fn, (net, handles)


def read(name: str, look: Any, **marks: Any) -> None:
    """Adds a program that returns what ``look`` gives for a hooked layer and its handle, after a call of the layer."""
    def make() -> Any:
        RemovableHandle.next_id = 1000
        net, handles = hooked()

        def fn(x):
            y = net(x)
            return y, look(net[0], handles[0]), net(x)

        return fn, (net, handles)

    make.__name__ = f"read_after_the_call_{name}"
    table.program(calls=4, breaks=True, args=from_zero, recompiles=range(1, 4), change=EACH, **marks)(make)


read("numbers", lambda layer, handle: list(layer._forward_hooks))
read("namespace", lambda layer, handle: [key for key in vars(layer)["_forward_hooks"]])
read("handle", lambda layer, handle: handle.id)
read("dict_of_the_handle", lambda layer, handle: list(handle.hooks_dict_ref()))
read("copy", lambda layer, handle: list(copy.deepcopy(layer)._forward_hooks))
read("state", lambda layer, handle: list(layer.__getstate__()["_forward_hooks"]))
read("length", lambda layer, handle: len(layer._forward_hooks))


@table.program(calls=4, breaks=True, args=lambda i: (*from_zero(i), NETS[-1][0]._forward_hooks), recompiles=range(1, 4), change=EACH)
def read_from_an_argument() -> Any:
    RemovableHandle.next_id = 1000
    net, handles = hooked()
    NETS.append(net)

    def fn(x, hooks):
        return net(x), list(hooks)

    return fn, (net, handles)


def test_hooks_that_stay_cost_little_at_each_call() -> None:
    """Their numbers are guarded, which C checks: nothing in Python is called."""
    net, _ = hooked()
    fn = lambda x: net(x)
    compiled = fineline.compile(fn, backend="eager")
    compiled(t(0))
    [region] = [region for region in fineline.api.regions() if region.fn is fn]
    assert [payload for op, _, _, payload in region.segments()[0].steps if op == "member" and type(payload).__module__.startswith("fineline.")] == []


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)
