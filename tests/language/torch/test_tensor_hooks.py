"""Hooks on tensors: on those that the graph makes, which are sub-graphs of it, and on those from outside, which the program registers."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import fineline
from tests.language.torch.test_modes_around_calls import hidden
from tests.oracle import Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}
SCALE = 3.0
BY = {"a": 2.0}
tests_own = sys.modules[__name__]


def doubled(grad):
    return grad * 2


def from_zero(i):
    """Arguments whose handles have the same numbers in each run."""
    RemovableHandle.next_id = 100 * i
    return (t(i, grad=True),)


# -- on tensors that the graph makes -----------------------------------------------------------------------------------
@table.snippet(grad=True, max_graphs=1, options=FULL)
def changes_the_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sum()


@table.snippet(grad=True, max_graphs=1, options=FULL)
def a_function_of_the_module(x):
    y = x.sin()
    y.register_hook(doubled)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def closures_over_tensors(x):
    y = x * 2
    scale = x.detach() + 3
    y.register_hook(lambda g: g * scale)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def closures_over_other_functions(x):
    factor = 4.0

    def inner(g):
        return g * factor

    def hook(g):
        return inner(g) + 1

    y = x * 2
    y.register_hook(hook)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def several_hooks(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)
    z = y.exp()
    z.register_hook(lambda g: g.clamp(-1, 1))
    return z * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def gives_nothing(x):
    y = x * 2
    y.register_hook(lambda g: None)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def the_handle_is_removed(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    z = y * 3
    handle.remove()
    handle.remove()
    return z


@table.snippet(grad=True, max_graphs=1, options=FULL)
def one_of_two_is_removed(x):
    y = x * 2
    first = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 5)
    first.remove()
    return y * y


@table.snippet(grad=True, max_graphs=1, options=FULL)
def the_handle_is_a_context(x):
    y = x * 2
    with y.register_hook(lambda g: g * 10):
        z = y * 3
    return z


@table.snippet(grad=True, max_graphs=1, options=FULL)
def of_what_is_returned(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y


@table.snippet(grad=True, max_graphs=1, options=FULL)
def after_other_uses(x):
    y = x * 2
    z = y.sin()
    y.register_hook(lambda g: g * 10)
    return z


@table.snippet(grad=True, max_graphs=1, options=FULL)
def before_a_write_in_place(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.mul_(3)
    return y + 1


@table.snippet(grad=True, max_graphs=1, options=FULL)
def after_a_write_in_place(x):
    y = x * 2
    y.mul_(3)
    y.register_hook(lambda g: g * 10)
    return y + 1


@table.snippet(grad=True, max_graphs=1, options=FULL)
def a_partial(x):
    y = x * 2
    y.register_hook(functools.partial(torch.mul, other=3.0) if x.dim() == 7 else functools.partial(scaled, 3.0))
    return y + 1


def scaled(by, g):
    return g * by


@table.snippet(grad=True, max_graphs=1, options=FULL | {"dynamic": True}, args=lambda i: (t(i, 3 + i, 4, grad=True),))
def of_sizes_that_vary(x):
    n = x.shape[0]
    y = x * 2
    y.register_hook(lambda g: g * n)
    return y * 3


@table.snippet(grad=True, max_graphs=1, tolerance=1e-6, options=FULL)
def of_a_base_whose_views_are_returned(x):
    y = x * 2
    view = y.view(-1)
    y.register_hook(lambda g: g * 10)
    return view, y, y.t(), y.sin()


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_what_is_written_into_later(x, z):
    y = x * 2
    scale = x.detach().clone()
    y.register_hook(lambda g: g * scale + z.detach())
    scale.add_(3)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_tensors_with_gradients(x, z):
    y = x * 2
    y.register_hook(lambda g: g * z * y.cos())
    return y * z


@table.snippet(grad=True, max_graphs=1, options=FULL)
def registered_without_gradients(x):
    y = x * 2
    unused = x * 5
    with torch.no_grad():
        y.register_hook(lambda g: g * 10)
        unused.register_hook(lambda g: g * 3)
    return y.sin()


@table.snippet(grad=True, max_graphs=1, options=FULL)
def a_hook_that_draws_no_gradient_of_its_own(x):
    y = torch.stack([x, x * 2])
    y.register_hook(lambda g: torch.where(g > 0, g, torch.zeros_like(g)) / g.shape[0])
    a, b = y.unbind()
    return a * b


def halved(g, by=2):
    return g[: len(g) // by]


def registered(x, hook):
    y = x * 2
    y.register_hook(hook)
    return y * 3


# AOTAutograd traces the backward pass, and fails on such a hook then.
@table.program(raw=True, grad=True, max_graphs=3, backward=False, twins=("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict"))
def errors_name_the_hook(compile: Any) -> Any:
    hooks = halved, lambda g: g[:1], functools.partial(halved, by=2)
    compiled = [hidden(compile(functools.partial(registered, hook=hook))) for hook in hooks]

    def fn(x):
        texts = []
        for one in compiled:
            try:
                one(x).sum().backward()
            except RuntimeError as e:
                texts.append(str(e))
        return texts

    return fn


# -- such hooks that run as they are ----------------------------------------------------------------------------------
@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_a_variable_that_is_assigned_later(x):
    y = x * 2
    y.register_hook(lambda g: g * z)
    z = y.detach().cos()
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_a_variable_that_is_assigned_again(x):
    y, by = x * 2, 2.0
    y.register_hook(lambda g: g * by)
    by = 5.0
    return y * by


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_a_variable_of_a_loop(x):
    y = x
    for by in (1.0, 2.0, 3.0):
        y = y * 2
        y.register_hook(lambda g: g * by)  # noqa: B023
    return y


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_a_variable_that_another_function_assigns(x):
    by = 2.0

    def later():
        nonlocal by
        by = 7.0

    y = x * 2
    y.register_hook(lambda g: g * by)
    later()
    return y * 3


def made(by):
    def hook(g):
        return g * by

    def change(to):
        nonlocal by
        by = to

    return hook, change


@table.snippet(grad=True, max_graphs=1, options=FULL, recompiles=(1,))
def reads_a_variable_of_a_function_that_has_returned(x):
    hook, change = made(2.0)
    y = x * 2
    y.register_hook(hook)
    change(6.0)
    return y * 3


@table.program(grad=True, max_graphs=1, options=FULL, recompiles=(1, 2))
def reads_an_attribute_that_is_set_after_it() -> Any:
    class Holder:
        by = 1.0

    holder = Holder()

    def fn(x):
        y = x * 2
        holder.by = 2.0
        y.register_hook(lambda g: g * holder.by)
        z = y * 3
        holder.by = 4.0
        return z

    return fn, holder


@table.program(grad=True, max_graphs=1, options=FULL, change={1: lambda s: s.update(by=5.0), 2: lambda s: s.update(by=6.0)})
def reads_what_changes_between_calls() -> Any:
    state = {"by": 2.0}

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: g * state["by"])
        return y * 3

    return fn, state


class Scaling(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("by", torch.full((4,), 2.0))
        self.factor = 3.0

    def forward(self, x):
        y = self.layer(x)
        y.register_hook(self.scale)
        return y.relu()

    def scale(self, grad):
        return grad * self.by * self.factor


@table.program(grad=True, calls=4, max_graphs=1, options=FULL, change={1: lambda m: m.by.fill_(4.0), 2: lambda m: setattr(m, "factor", 5.0)})
def a_method_of_the_module() -> Any:
    torch.manual_seed(0)
    module = Scaling()
    return module, module


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_an_item_that_is_set_after_it(x):
    y, by = x * 2, [2.0]
    y.register_hook(lambda g: g * by[0])
    by[0] = 5.0
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def reads_a_key_that_is_set_after_it(x):
    BY["a"] = 2.0
    y = x * 2
    y.register_hook(lambda g: g * BY["a"])
    BY["a"] = 5.0
    return y * 3


@table.program(grad=True, max_graphs=1, options=FULL)
def a_method_that_it_calls_reads_what_is_set_after_it() -> Any:
    class Holder:
        def __init__(self) -> None:
            self.by = 1.0

        def scale(self, g):
            return g * self.by

    holder = Holder()

    def fn(x):
        holder.by = 2.0
        y = x * 2
        y.register_hook(lambda g: holder.scale(g))
        holder.by = 4.0
        return y * 3

    return fn, holder


def changed_before_the_backward_pass(hook: Any, change: Any, name: str) -> None:
    """Adds a program that registers ``hook``, and calls ``change`` between the compiled call and the backward pass."""

    def make(compile):
        def inner(x, by):
            y = x * 2
            hook(y, by)
            return y * 3

        compiled, by = hidden(compile(inner)), Changing()

        def fn(x):
            by.reset()
            y = compiled(x, by)
            change(by)
            y.sum().backward()
            by.reset()
            return y.detach(), x.grad.clone()

        return fn, by

    make.__name__ = name
    table.program(raw=True, grad=True, max_graphs=1, backward=False)(make)


class Changing:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        global SCALE
        SCALE = 3.0
        self.by, self.items, self.later, self.keyed = 2.0, [2.0], None, {"by": 2.0}

    def scale(self, g):
        return g * self.by


def set_scale(by):
    global SCALE
    SCALE = 7.0


def set_items(by):
    by.items[0] = 7.0


def set_key(by):
    by.keyed["by"] = 7.0


def set_attribute(by):
    by.by = 7.0


def keep_a_setter(y, by):
    factor = 2.0

    def later():
        nonlocal factor
        factor = 7.0

    by.later = later
    y.register_hook(lambda g: g * factor)


changed_before_the_backward_pass(lambda y, by: y.register_hook(lambda g: g * SCALE), set_scale, "a_global_before_the_backward_pass")
changed_before_the_backward_pass(
    lambda y, by: y.register_hook(lambda g: g * tests_own.SCALE), set_scale, "a_module_s_attribute_before_the_backward_pass"
)
changed_before_the_backward_pass(lambda y, by: y.register_hook(lambda g: g * by.items[0]), set_items, "an_item_before_the_backward_pass")
changed_before_the_backward_pass(lambda y, by: y.register_hook(lambda g: g * by.keyed["by"]), set_key, "a_key_before_the_backward_pass")
changed_before_the_backward_pass(lambda y, by: y.register_hook(lambda g: g * by.by), set_attribute, "an_attribute_before_the_backward_pass")
changed_before_the_backward_pass(
    lambda y, by: y.register_hook(lambda g: g * getattr(by, "by")), set_attribute, "a_named_attribute_before_the_backward_pass"  # noqa: B009
)
changed_before_the_backward_pass(lambda y, by: y.register_hook(by.scale), set_attribute, "a_method_before_the_backward_pass")
changed_before_the_backward_pass(keep_a_setter, lambda by: by.later(), "a_variable_before_the_backward_pass")


@table.program(raw=True, grad=True, max_graphs=1, backward=False)
def a_gradient_before_the_backward_pass(compile: Any) -> Any:
    def inner(x, z):
        y = x * 2
        y.register_hook(lambda g: g * z.grad)
        return y * 3

    compiled = hidden(compile(inner))

    def fn(x, z):
        z.grad = torch.ones_like(z)
        y = compiled(x, z)
        z.grad = torch.full_like(z, 7.0)
        y.sum().backward()
        return y.detach(), x.grad.clone()

    return fn


@table.program(raw=True, grad=True, max_graphs=1, backward=False)
def several_calls_before_the_backward_passes(compile: Any) -> Any:
    table, seen = {"by": 2.0}, []

    def inner(x, n):
        y = x * 2
        items = [n, y.detach().cos()]
        y.register_hook(lambda g: g * items[0] * table["by"] + items[1])
        y.register_hook(lambda g: g + 1)
        y.register_hook(lambda g: seen.append(g.norm()))
        z = y.exp()
        items[0] = n + 1
        return z

    compiled = hidden(compile(inner))

    def fn(x):
        table["by"] = 2.0
        seen.clear()
        first, second = compiled(x, 3.0), compiled(x * 2, 3.0)
        first.sum().backward(retain_graph=True)
        table["by"] = 5.0
        second.sum().backward()
        first.sum().backward()
        return first.detach(), second.detach(), x.grad.clone(), [*seen]

    return fn, (table, seen)


@table.program(raw=True, grad=True, max_graphs=1, backward=False)
def removed_before_the_backward_pass(compile: Any) -> Any:
    def inner(x, table):
        y = x * 2
        first = y.register_hook(lambda g: g * table["by"])
        with y.register_hook(lambda g: g * table["none"]):
            z = y * 3
        return z, first, y.register_hook(lambda g: table["seen"].append(g))

    compiled = hidden(compile(inner))

    def fn(x):
        table = {"by": 2.0, "seen": []}
        z, first, last = compiled(x, table)
        z.sum().backward(retain_graph=True)
        first.remove()
        z.sum().backward(retain_graph=True)
        last.remove()
        table["by"] = 7.0
        z.sum().backward()
        return z.detach(), x.grad.clone(), table

    return fn


class Scaled:
    def __init__(self) -> None:
        self.by = 2.0

    def __call__(self, g):
        self.by += 1
        return g * self.by


@table.program(grad=True, calls=4, max_graphs=1, options=FULL, change={2: lambda hook: setattr(hook, "by", 9.0)})
def an_object_as_a_hook() -> Any:
    hook = Scaled()

    def fn(x):
        y = x * 2
        y.register_hook(hook)
        y.register_hook(lambda g: g + 1)
        return y.sin()

    return fn, hook


@table.program(grad=True, max_graphs=1, options=FULL)
def notes_norms() -> Any:
    seen: list[Any] = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g.norm()))
        return y.exp().sum() * len(seen[:0] + [1])

    return fn, seen


@table.program(raw=True, grad=True, max_graphs=3, backward=False)
def errors_of_hooks_that_run_as_they_are(compile: Any) -> Any:
    table = {"by": 2}

    def half(g):
        return g[: len(g) // table["by"]]

    def double(g):
        return g.double() * table["by"]

    def number(g):
        return table["by"]

    compiled = [hidden(compile(functools.partial(registered, hook=hook))) for hook in (half, double, number)]

    def fn(x):
        texts = []
        for one in compiled:
            try:
                one(x).sum().backward()
            except (RuntimeError, TypeError) as e:
                texts.append((type(e), str(e)))
        return texts

    return fn


def apart(g):
    return torch.nn.functional.gelu(g) + math.pi


@table.snippet(grad=True, max_graphs=1, tolerance=1e-6, options=FULL)
def functions_of_modules_and_constants(x):
    y, sizes = x * 2, (2, 3.0)
    y.register_hook(lambda g, by=2.0: apart(g).to(torch.float32) * by * sizes[1] + torch.ones(sizes[0], 1, 1, dtype=torch.float32)[0])
    return y * 3


@table.snippet(grad=True, breaks=True)
def assigned_after_a_graph_break(x):
    y, by = x * 2, [2.0]
    y.register_hook(lambda g: g * by[0])
    z = y * 3 if y.sum() < 1e9 else y
    by[0] = 5.0
    return z


@table.program(grad=True, max_graphs=1, options=FULL)
def notes_gradients() -> Any:
    seen: list[Any] = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g))
        return y * 3

    return fn, seen


@table.snippet(grad=True, max_graphs=1, options=FULL)
def branches_on_the_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g * 2 if g.sum() > 0 else g)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def writes_into_the_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g.mul_(3))
    return (y * 3).sum()


@table.snippet(grad=True, breaks=True)
def of_a_view(x):
    y = x.view(-1)
    y.register_hook(lambda g: g * 10)
    return y


@table.snippet(breaks=True, recompiles=(1,), args=from_zero)
def the_handle_is_returned(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    return y * 3, handle


@table.snippet(breaks=True, recompiles=(1, 2), args=from_zero)
def the_number_of_the_handle(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    return y * 3, type(handle.id)


@table.snippet(breaks=True, recompiles=(1,), args=from_zero)
def alive_at_a_graph_break(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    z = y * 3 if x.sum() < 1e9 else y
    handle.remove()
    return z


@table.snippet(grad=True, breaks=True)
def registered_before_a_graph_break(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y * 3 if y.sum() < 1e9 else y


@table.snippet(breaks=True, min_graphs=0)
def of_what_requires_no_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y


@table.snippet(grad=True, breaks=True)
def of_a_keyword(x):
    y = x * 2
    y.register_hook(hook=lambda g: g * 10)
    return y * 3


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.mix = nn.Linear(4, 4), nn.Linear(4, 4)
        self.handles: list[Any] = []

    def forward(self, x):
        y = x
        for n in range(2):
            y = self.layer(y).tanh()
            self.watch(y, n)
        return y

    def watch(self, y, n):
        y.register_hook(lambda g: self.mix(g) * n + g)


@table.program(grad=True, max_graphs=1, options=FULL)
def calls_a_module_with_parameters() -> Any:
    torch.manual_seed(0)
    module = Mixing()
    return module, module


class Keeping(Mixing):
    def watch(self, y, n):
        RemovableHandle.next_id = 10
        self.handles.append(y.register_hook(lambda g: g * 3))


@table.program(grad=True, breaks=True, recompiles=(1,), min_graphs=0)
def handles_kept_in_a_module() -> Any:
    torch.manual_seed(0)
    module = Keeping()
    return module, module


@table.snippet(grad=True, breaks=True, min_graphs=0)
def inside_of_a_checkpoint(x):
    def inner(v):
        y = v.sin()
        y.register_hook(lambda g: g * 3)
        return y * 2

    return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False) + 1


@table.snippet(grad=True, breaks=True, min_graphs=0)
def inside_of_an_autograd_function(x):
    y = Hooked.apply(x * 2)
    y.register_hook(doubled)
    return y + 1


class Hooked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@table.snippet(grad=True, breaks=True, min_graphs=0, recompiles=(1,))
def handled_errors(x):
    y = x * 2
    try:
        y.detach().register_hook(doubled)
    except RuntimeError as e:
        y.register_hook(lambda g: g * 5)
        return y, str(e)


@table.snippet(grad=True, max_graphs=1, options=FULL)
def changes_a_state(x):
    def hook(g):
        with torch.enable_grad():
            return g * 2

    y = x * 2
    y.register_hook(hook)
    return y * 3


@table.snippet(grad=True, max_graphs=1, options=FULL)
def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.mT
        y.register_hook(lambda g: g * 2)
    return y.float().sum()


@table.snippet(grad=True, breaks=True)
def a_vmap_around_it(x):
    def inner(row):
        y = row * 2
        y.register_hook(doubled)
        return y

    try:
        return torch.vmap(inner)(x) * 2
    except RuntimeError as e:
        return type(e), x * 2


@table.program(grad=True, breaks=True, recompiles=(1,))
def a_variable_that_a_later_part_assigns() -> Any:
    def fn(x):
        by = 2.0
        y = x * 2
        y.register_hook(lambda g: g * by)
        z = y * 3 if y.sum() < 1e9 else y
        by = 9.0
        return z * 2

    return fn


# -- on tensors from outside -------------------------------------------------------------------------------------------
@table.snippet(max_graphs=1, args=from_zero, options=FULL)
def of_an_argument(x):
    x.register_hook(lambda g: g * 10)
    return x * 3


@table.snippet(max_graphs=1, args=from_zero, options=FULL)
def several_of_an_argument(x):
    scale = x.detach().cos()
    x.register_hook(lambda g: g * scale)
    y = x * 3
    x.register_hook(doubled)
    return y


@table.snippet(max_graphs=1, args=from_zero, options=FULL)
def of_an_argument_with_its_handle(x):
    handle = x.register_hook(lambda g: g * 10)
    return x * 3, [handle]


@table.snippet(max_graphs=1, args=from_zero, options=FULL)
def of_an_argument_and_removed(x):
    handle = x.register_hook(lambda g: g * 10)
    other = x.register_hook(lambda g: g + 1)
    y = x * 3
    handle.remove()
    return y, other


@table.snippet(max_graphs=1, args=lambda i: (t(i, grad=True) * 2,), options=FULL)
def of_an_argument_with_a_history(x):
    x.register_hook(lambda g: g * 10)
    return x * 3


@table.snippet(max_graphs=1, args=from_zero, options=FULL)
def reads_a_variable_that_is_assigned_again_and_belongs_to_an_argument(x):
    by = 2.0
    x.register_hook(lambda g: g * by)
    y = x * 3
    by = 5.0
    return y


@table.program(max_graphs=1, args=from_zero, options=FULL)
def notes_gradients_of_an_argument() -> Any:
    seen: list[Any] = []

    def fn(x):
        x.register_hook(lambda g: seen.append(g * 2))
        return x * 3

    return fn, seen


@table.program(args=from_zero, options=FULL, calls=4, recompiles=(1,), change={2: lambda s: s.clear()})
def handles_kept_outside() -> Any:
    handles: dict[str, Any] = {}

    def fn(x):
        if "last" in handles:
            handles["count"] = 1
        handles["last"] = x.register_hook(doubled)
        return x * 3

    return fn, handles


@table.snippet(max_graphs=1, args=from_zero, options=FULL)
def after_the_gradient_is_accumulated(x):
    x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
    return x * 3


@table.snippet(breaks=True, min_graphs=0, args=lambda i: (t(i, grad=True) * 2,))
def after_the_gradient_of_no_leaf(x):
    try:
        x.register_post_accumulate_grad_hook(lambda p: None)
    except RuntimeError as e:
        return x * 3, str(e)


@table.snippet(breaks=True, recompiles=(1,), args=lambda i: (t(i, grad=True) * 2,))
def of_an_argument_that_is_written_into(x):
    x.register_hook(lambda g: g * 10)
    x.mul_(2)
    return x * 3


@table.snippet(breaks=True, args=from_zero)
def of_an_argument_before_a_graph_break(x):
    handle = x.register_hook(lambda g: g * 10)
    y = x * 3 if x.sum() < 1e9 else x
    handle.remove()
    return y


@table.snippet(breaks=True, recompiles=(1,), args=from_zero)
def of_an_argument_that_removes_itself(x):
    handle = x.register_hook(lambda g: (handle.remove(), g * 2)[1])
    return x * 3


@table.program(max_graphs=1, options=FULL)
def of_a_parameter() -> Any:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)

    def fn(x):
        with layer.weight.register_hook(lambda g: g * 10):
            y = layer(x)
        layer.bias.register_hook(doubled)
        return y

    return fn, layer


@table.program(grad=True, calls=4, recompiles=(1, 2), change={1: lambda s: s.update(by=5.0), 2: lambda s: s.update(by=6.0)}, options=FULL)
def keeps_what_changes_between_calls_by_a_default_argument() -> Any:
    state = {"by": 2.0}

    def fn(x):
        y = x * 2
        y.register_hook(lambda g, by=state["by"]: g * by)
        return y * 3

    return fn, state


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_hooks(program: Program, twin: str) -> None:
    check(program, twin)


# -- what users are told -----------------------------------------------------------------------------------------------------
RULES = fineline.Policy(disable=[doubled])


@pytest.mark.parametrize(
    ("hook", "options", "id", "reason", "rule"),
    [
        (lambda g: g * BY["a"], FULL, "FL520", "it reads the global BY", ""),
        (lambda g: print(end="") or g, {"breaks": "declared"}, "FL520", "print can't be captured", ""),
        (doubled, {"policy": RULES}, "FL400", "doubled is disabled", str(RULES.rules[0])),
    ],
    ids=["a global", "an effect", "a rule"],
)
def test_a_hook_that_runs_eagerly_has_an_event(hook: Any, options: dict[str, Any], id: str, reason: str, rule: str) -> None:
    def fn(x):
        y = x * 2
        y.register_hook(hook)
        return y * 3

    compiled = fineline.compile(fn, backend="eager", **options)
    for _ in range(2):
        compiled(t(1, grad=True)).sum().backward()
    (event,) = [event for event in fineline.report(compiled).events if event.kind == "eager"]
    assert (event.id, event.file, event.line, event.rule) == (id, __file__, fn.__code__.co_firstlineno + 2, rule)
    assert "a hook runs eagerly in the backward pass" in event.reason and reason in event.reason
