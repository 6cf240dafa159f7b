"""Guard mutations of torch.nn.Modules: hooks, parameters, children, forward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.soundness.mutations.cases import Cases, X, attr, attr_class, attr_name, doing, double, item, triple

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


def hook_removed(m: Any, add: str, fn: Any, **how: Any) -> Any:
    """What is there from the start goes, and comes back with the same number."""
    handle = getattr(m.layer, add)(fn, **how)
    hooks = handle.hooks_dict_ref()
    return doing(handle.remove, lambda: hooks.__setitem__(handle.id, fn))


def ordered(hooks: Any) -> Any:
    first = next(iter(hooks))
    return doing(lambda: hooks.move_to_end(first), lambda: hooks.move_to_end(first, last=False))


def hook_that_adds(module, args, output):
    return output + 1


def two_hooks(m: Any) -> Any:
    m.layer.register_forward_hook(hook)
    m.layer.register_forward_hook(hook_that_adds)
    return ordered(m.layer._forward_hooks)


def as_parameter(m: Any) -> Any:
    """The buffer becomes a parameter of the same name."""
    def there() -> None:
        del m.scale
        m.scale = nn.Parameter(torch.tensor(5.0))

    def back() -> None:
        del m.scale
        m.register_buffer("scale", torch.tensor(2.0))

    return doing(there, back)


def frozen(m: Any) -> Any:
    return doing(lambda: m.requires_grad_(False), lambda: m.requires_grad_(True))


for _name, _make, _read, _change in [
    ("forward_hook_removed", lambda: Net().eval(), lambda x, m: m(x), lambda m: hook_removed(m, "register_forward_hook", hook)),
    ("forward_pre_hook_removed", lambda: Net().eval(), lambda x, m: m(x), lambda m: hook_removed(m, "register_forward_pre_hook", pre_hook)),
    ("backward_hook_removed", lambda: Net().eval(), lambda x, m: m(x.clone().requires_grad_()),
     lambda m: hook_removed(m, "register_full_backward_hook", lambda m, gi, go: (gi[0] * 7,))),
    ("hooks_in_another_order", lambda: Net().eval(), lambda x, m: m.layer(x), lambda m: two_hooks(m)),
    ("hook_prepended", lambda: Net().eval(), lambda x, m: m(x), lambda m: removable(lambda: m.layer.register_forward_hook(hook, prepend=True))),
    ("hook_called_always", lambda: Net().eval(), lambda x, m: m(x), lambda m: removable(lambda: m.layer.register_forward_hook(hook, always_call=True))),
    ("hook_on_every_child", lambda: Net().eval(), lambda x, m: m(x), lambda m: removable(lambda: m.blocks[1].register_forward_hook(hook))),
    ("global_hook_with_another", lambda: Net().eval(), lambda x, m: m(x),
     lambda m: removable(lambda: _modules.register_module_forward_hook(hook, always_call=True))),
    ("hooks_counted", lambda: Net().eval(), lambda x, m: x * (1 + len(m.layer._forward_hooks)), lambda m: removable(lambda: m.layer.register_forward_hook(hook))),
    ("training_read", lambda: Net().eval(), lambda x, m: x * (2 if m.training else 3), lambda m: doing(m.train, m.eval)),
    ("training_of_a_child_read", lambda: Net().eval(), lambda x, m: x * (2 if m.drop.training else 3), lambda m: doing(m.drop.train, m.drop.eval)),
    ("training_attribute", lambda: Net().eval(), lambda x, m: m(x), lambda m: attr(m.drop, "training", True)),
    ("buffer_becomes_a_parameter", lambda: Net().eval(), lambda x, m: m(x), lambda m: as_parameter(m)),
    ("buffer_dtype", lambda: Net().eval(), lambda x, m: m(x), lambda m: attr_name(m, "scale", torch.tensor(5.0, dtype=torch.float64))),
    ("parameters_frozen", lambda: Net().eval(), lambda x, m: m(x), lambda m: frozen(m)),
    ("parameters_counted", lambda: Net().eval(), lambda x, m: x * len(list(m.parameters())), lambda m: attr_name(m.layer, "bias", None)),
    ("parameters_summed", lambda: Net().eval(), lambda x, m: sum([p.sum() for p in m.parameters()]) + x, lambda m: attr_name(m.layer, "bias", None)),
    ("names_of_parameters", lambda: Net().eval(), lambda x, m: x * len([n for n, _ in m.named_parameters()]), lambda m: attr_name(m.layer, "bias", None)),
    ("children_counted", lambda: Net().eval(), lambda x, m: x * len(list(m.children())), lambda m: item(m._modules, "extra", nn.ReLU())),
    ("modules_in_another_order", lambda: nn.Sequential(nn.Tanh(), nn.ReLU(), nn.Sigmoid()), lambda x, m: m(x - 3), lambda m: reversed_modules(m)),
    ("module_deleted", lambda: nn.Sequential(nn.Tanh(), nn.ReLU(), nn.Sigmoid()), lambda x, m: m(x - 3), lambda m: item(m._modules, "2")),
    ("module_set_to_none", lambda: Net().eval(), lambda x, m: x if m.layer is None else m.layer(x), lambda m: item(m._modules, "layer", None)),
    ("module_asked_for", lambda: Net().eval(), lambda x, m: x * (2 if hasattr(m, "extra") else 3), lambda m: item(m._modules, "extra", nn.ReLU())),
    ("buffer_asked_for", lambda: Net().eval(), lambda x, m: x * (2 if hasattr(m, "extra") else 3), lambda m: item(m._buffers, "extra", torch.ones(1))),
    ("buffers_counted", lambda: Net().eval(), lambda x, m: x * len(list(m.buffers())), lambda m: item(m._buffers, "extra", torch.ones(1))),
    ("state_dict_read", lambda: Net().eval(), lambda x, m: x * len(m.state_dict()), lambda m: item(m._buffers, "extra", torch.ones(1))),
    ("parameter_list", lambda: nn.ParameterList([torch.ones(3)]), lambda x, m: sum([x * p for p in m]),
     lambda m: doing(lambda: m.append(torch.ones(3)), lambda: (delattr(m, "1"), setattr(m, "_size", 1)))),
    ("parameter_dict", lambda: nn.ParameterDict({"a": torch.ones(3)}), lambda x, m: sum([x * p for p in m.values()]),
     lambda m: doing(lambda: m.update({"b": torch.ones(3)}), lambda: m.pop("b"))),
    ("epsilon_of_a_norm", lambda: nn.LayerNorm(3), lambda x, m: m(x), lambda m: attr(m, "eps", 5.0)),
    ("shape_of_a_norm", lambda: nn.LayerNorm(3, elementwise_affine=False), lambda x, m: m(x), lambda m: attr(m, "normalized_shape", (2, 3))),
    ("statistics_of_a_norm", lambda: nn.BatchNorm1d(3).eval(), lambda x, m: m(x), lambda m: attr_name(m, "running_mean", torch.ones(3))),
    ("statistics_missing", lambda: nn.BatchNorm1d(3).eval(), lambda x, m: m(x), lambda m: both_statistics(m)),
    ("stride_of_a_convolution", lambda: nn.Conv1d(2, 1, 1), lambda x, m: m(x), lambda m: attr(m, "stride", (2,))),
    ("mode_of_a_convolution", lambda: nn.Conv1d(2, 1, 3, padding=1), lambda x, m: m(x), lambda m: attr(m, "padding_mode", "circular")),
    ("in_place_flag", lambda: nn.ReLU(), lambda x, m: two_results(x - 3, m), lambda m: attr(m, "inplace", True)),
    ("slope_of_an_activation", lambda: nn.LeakyReLU(0.1), lambda x, m: m(x - 3), lambda m: attr(m, "negative_slope", 0.5)),
    ("approximation_of_an_activation", lambda: nn.GELU(), lambda x, m: m(x - 3), lambda m: attr(m, "approximate", "tanh")),
    ("forward_of_sequences_patched", lambda: nn.Sequential(nn.Tanh()), lambda x, m: m(x), lambda m: attr(nn.Sequential, "forward", lambda self, x: x * 7)),
    ("iteration_of_sequences_patched", lambda: nn.Sequential(nn.Tanh()), lambda x, m: m(x), lambda m: attr(nn.Sequential, "__iter__", lambda self: iter([]))),
    ("length_of_sequences_patched", lambda: nn.Sequential(nn.Tanh()), lambda x, m: x * len(m), lambda m: attr(nn.Sequential, "__len__", lambda self: 7)),
    ("item_of_sequences_patched", lambda: nn.Sequential(nn.Tanh()), lambda x, m: m[0](x), lambda m: attr(nn.Sequential, "__getitem__", lambda self, i: triple)),
    ("getattr_of_modules_patched", lambda: Net().eval(), lambda x, m: m(x), lambda m: attr(nn.Module, "__getattr__", lambda self, n: missing(self, n))),
    ("parametrized", lambda: nn.Linear(3, 3), lambda x, m: m(x), lambda m: parametrized(m)),
    ("attribute_of_the_class", lambda: Net().eval(), lambda x, m: m(x), lambda m: attr(Net, "drop", property(lambda self: double))),
    ("attribute_hides_a_module", lambda: Net().eval(), lambda x, m: m(x), lambda m: item(m.__dict__, "layer", double)),
    ("attribute_hides_a_buffer", lambda: Net().eval(), lambda x, m: m(x), lambda m: item(m.__dict__, "scale", 9)),
    ("optimizer_state", lambda: stepped(), lambda x, o: x * len(o.state), lambda o: doing(lambda: o.state.__setitem__("k", {}), lambda: o.state.pop("k"))),
    ("optimizer_groups", lambda: stepped(), lambda x, o: x * len(o.param_groups), lambda o: doing(lambda: o.param_groups.append({}), o.param_groups.pop)),
    ("gradient_of_a_parameter", lambda: nn.Linear(3, 3), lambda x, m: x * (2 if m.weight.grad is None else 3),
     lambda m: attr_name(m.weight, "grad", torch.ones(3, 3))),
]:
    def _module_case(make=_make, read=_read, change=_change):
        torch.manual_seed(0)
        m = make()
        return (lambda x: read(x, m)), (X,), change(m)

    CASES[f"module_{_name}"] = _module_case


def reversed_modules(m: Any) -> Any:
    def turn() -> None:
        pairs = list(m._modules.items())[::-1]
        m._modules.clear()
        m._modules.update(pairs)

    return doing(turn, turn)


def both_statistics(m: Any) -> Any:
    mean, var = m.running_mean, m.running_var

    def put(a: Any, b: Any) -> None:
        m.running_mean, m.running_var = a, b

    return doing(lambda: put(None, None), lambda: put(mean, var))


def two_results(x: Any, m: Any) -> Any:
    y = m(x)
    return y, x + 0


def missing(m: Any, name: str) -> Any:
    return 7 if name == "scale" else {**m.__dict__["_parameters"], **m.__dict__["_buffers"], **m.__dict__["_modules"]}[name]


class Twice(nn.Module):
    def forward(self, w: Any) -> Any:
        return w * 2


def parametrized(m: Any) -> Any:
    from torch.nn.utils import parametrize

    return doing(lambda: parametrize.register_parametrization(m, "weight", Twice()),
                 lambda: parametrize.remove_parametrizations(m, "weight", leave_parametrized=False))  # fmt: skip


def stepped() -> Any:
    return torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.5)
