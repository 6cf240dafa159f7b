"""Guard mutations of torch.nn.Modules: hooks, parameters, children, forward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.soundness.mutations.cases import (
    Cases,
    X,
    attr,
    attr_class,
    attr_name,
    doing,
    item,
    triple,
)

CASES = Cases()
case = CASES.add


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("scale", torch.tensor(2.0))
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.table = nn.ModuleDict({"a": nn.Tanh()})
        self.plain = 2
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(torch.linspace(-1, 1 + i, p.numel()).reshape(p.shape))

    def forward(self, x):
        x = self.drop(self.layer(x))
        for block in self.blocks:
            x = block(x)
        if self.scale is not None:
            x = x * self.scale
        for name in self.table:
            x = self.table[name](x)
        return x * self.plain


def hook(module, args, output):
    return output * 3


def hook_with_kwargs(module, args, kwargs, output):
    return output * 4


def pre_hook(module, args):
    return (args[0] * 5,)


def pre_hook_with_kwargs(module, args, kwargs):
    return (args[0] * 6,), kwargs


@contextlib.contextmanager
def removable(add: Callable[[], Any]) -> Iterator[None]:
    handle = add()
    try:
        yield
    finally:
        handle.remove()


def global_backward_hook() -> Any:
    """PyTorch keeps a note of the kind of hook when the last one is gone: the first one leaves it."""
    add = _modules.register_module_full_backward_hook
    add(hook).remove()
    return removable(lambda: add(lambda m, given, got: tuple([g if g is None else g * 2 for g in given])))


_modules = torch.nn.modules.module
for _name, _change in [
    ("forward_hook_added", lambda m: removable(lambda: m.layer.register_forward_hook(hook))),
    ("forward_hook_with_kwargs_added", lambda m: removable(lambda: m.layer.register_forward_hook(hook_with_kwargs, with_kwargs=True))),
    ("forward_pre_hook_added", lambda m: removable(lambda: m.layer.register_forward_pre_hook(pre_hook))),
    ("forward_pre_hook_with_kwargs_added",
     lambda m: removable(lambda: m.layer.register_forward_pre_hook(pre_hook_with_kwargs, with_kwargs=True))),
    ("forward_hook_on_the_root_added", lambda m: removable(lambda: m.register_forward_hook(hook))),
    ("backward_hook_added", lambda m: removable(lambda: m.blocks[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)))),
    ("backward_pre_hook_added", lambda m: removable(lambda: m.layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,)))),
    ("global_forward_hook_added", lambda m: removable(lambda: _modules.register_module_forward_hook(hook))),
    ("global_forward_pre_hook_added", lambda m: removable(lambda: _modules.register_module_forward_pre_hook(pre_hook))),
    ("global_backward_hook_added", lambda m: global_backward_hook()),
    ("training_flag", lambda m: doing(m.drop.train, m.drop.eval)),
    ("buffer_replaced", lambda m: attr_name(m, "scale", torch.tensor(5.0))),
    ("buffer_none", lambda m: attr_name(m, "scale", None)),
    ("buffer_shape", lambda m: attr_name(m, "scale", torch.ones(3))),
    ("parameter_replaced", lambda m: attr_name(m.layer, "weight", nn.Parameter(torch.ones(3, 3)))),
    ("parameter_frozen", lambda m: doing(lambda: m.layer.weight.requires_grad_(False), lambda: m.layer.weight.requires_grad_(True))),
    ("bias_none", lambda m: attr_name(m.layer, "bias", None)),
    ("submodule_replaced", lambda m: attr_name(m, "layer", nn.Identity())),
    ("submodule_class_assigned", lambda m: attr_class(m.layer, type("L", (nn.Linear,), {"forward": lambda self, x: x}))),
    ("root_class_assigned", lambda m: attr_class(m, type("N", (Net,), {"forward": lambda self, x: x * 9}))),
    ("module_list_appended", lambda m: doing(lambda: m.blocks.append(nn.Tanh()), lambda: m.blocks._modules.pop("2"))),
    ("module_list_item", lambda m: doing(lambda: m.blocks.__setitem__(1, nn.Tanh()), lambda: m.blocks.__setitem__(1, nn.ReLU()))),
    ("module_dict_key", lambda m: doing(lambda: m.table.__setitem__("b", nn.Tanh()), lambda: m.table.pop("b"))),
    ("forward_patched_on_instance", lambda m: attr(m.layer, "forward", triple)),
    ("forward_patched_on_class", lambda m: attr(nn.ReLU, "forward", lambda self, x: x * 3)),
    ("forward_patched_on_the_root", lambda m: attr(m, "forward", triple)),
    ("call_patched_on_class", lambda m: attr(nn.ReLU, "__call__", lambda self, x: x * 3)),
    ("call_patched_on_module", lambda m: attr(nn.Module, "__call__", lambda self, x: x * 3)),
    ("call_impl_patched_on_class", lambda m: attr(nn.ReLU, "_call_impl", lambda self, x: x * 3)),
    ("call_impl_patched_on_module", lambda m: attr(nn.Module, "_call_impl", lambda self, x: x * 3)),
    ("call_impl_patched_on_instance", lambda m: attr(m.layer, "_call_impl", triple)),
    ("attribute_by_dict", lambda m: item(m.__dict__, "plain", 5)),
    ("module_getattr_patched", lambda m: attr(Net, "__getattr__", lambda self, n: nn.Module.__getattr__(self, n) if n != "scale" else 7)),
    ("functional_inside_patched", lambda m: attr(torch.nn.functional, "linear", lambda x, w, b=None: x * 2)),
]:
    def _net_case(change=_change):
        m = Net().eval()
        return m, (X,), change(m)

    CASES[_name] = _net_case


@case
def call_impl_overridden_from_the_start():
    class Odd(nn.Module):
        n = 2

        def _call_impl(self, x):
            return x * self.n

    m = Odd()
    return lambda x: m(x), (X,), attr(Odd, "n", 3)


@case
def dropout_probability():
    m = nn.Dropout(0.0)
    return m, (X,), attr(m, "p", 1.0)


@case
def module_hook_removed():
    m = Net().eval()
    handle = m.layer.register_forward_hook(hook)
    return m, (X,), doing(handle.remove, lambda: m.layer._forward_hooks.update({handle.id: hook}))


@case
def batch_norm_momentum():
    m = nn.BatchNorm1d(3)

    def fn(x):
        m.running_mean.zero_()
        m.running_var.fill_(1.0)
        y = m(x)
        return y, m.running_mean + 0

    return fn, (X,), attr(m, "momentum", 0.9)


@case
def optimizer_learning_rate():
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.5)
    return lambda x: x * opt.param_groups[0]["lr"], (X,), item(opt.param_groups[0], "lr", 0.25)
