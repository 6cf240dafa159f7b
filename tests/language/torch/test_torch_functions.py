"""Code of ``__torch_function__`` that is captured: what it sees, what it calls, and the class of what it gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fineline
from tests.oracle import Program, Step, Table, check, t

table = Table()


class Kept(Tensor):
    """Overrides nothing: results keep the class."""


class Doubling(Tensor):
    """Adds the second argument of an addition twice."""

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.add or fn is Tensor.add:
            plain = [a.as_subclass(Tensor) if isinstance(a, Tensor) else a for a in args]
            return torch.add(plain[0], plain[1] * 2, **(kwargs or {})).as_subclass(cls)
        return super().__torch_function__(fn, types, args, kwargs or {})


class Inner(Doubling):
    """A subclass of an overriding class, which is asked first."""

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.sub or fn is Tensor.__rsub__:
            return NotImplemented
        return super().__torch_function__(fn, types, args, kwargs)


class Named(Tensor):
    """Carries a title from the arguments to the result."""

    title = "-"

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(fn, types, args, kwargs or {})
        if isinstance(result, Named):
            result.title = "+".join([a.title for a in args if isinstance(a, Named)])
        return result


class Seeing(Tensor):
    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(f"{fn.__name__} of {[kind.__name__ for kind in types]}, {len(args)}, {sorted(kwargs or {})}")
        return super().__torch_function__(fn, types, args, kwargs or {})


class Refusing(Tensor):
    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError(f"not {fn.__name__}")


class Silent(Tensor):
    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def of(cls: type[Tensor]) -> Any:
    return lambda place: (t(place).as_subclass(cls),)


def two(first: type[Tensor], second: type[Tensor]) -> Any:
    return lambda place: (t(place).as_subclass(first), t(place + 1).as_subclass(second))


BODIES: dict[str, Any] = {
    "operators": lambda x: torch.add(x, x).sin() * 2 - x / 3,
    "infix": lambda x: (x + 1, 1 + x, 2 - x, x - 2, -x, abs(x), 2 * x, x**2, x @ x.mT),
    "compared": lambda x: (x > 0, x == x, 0 < x, (x > 0).sum()),
    "in_functions": lambda x: F.layer_norm(F.relu(x), (4,)) + F.softmax(x, -1),
    "in_lists": lambda x: torch.cat([x, x * 2]).sum() + torch.stack((x, x))[0],
    "parts": lambda x: (x[0], x[:, 1:], x[..., None], x[x.shape[0] - 1]),
    "several": lambda x: [a + 1 for a in x.chunk(2, 1)] + [*x.unbind(0)],
    "with_plain": lambda x: x + torch.ones(3, 4) + torch.arange(4),
    "metadata": lambda x: (x.shape, x.dtype, x.dim(), x.numel(), len(x), x.is_floating_point(), x.stride()),
    "sizes_in_operators": lambda x: x.reshape(-1, x.shape[0]) * x.size(1),
    "classes": lambda x: (type(x + 1).__name__, isinstance(x.sin(), Tensor), isinstance(x * 1, type(x))),
    "of_another_class": lambda x: (x.as_subclass(Tensor) + 1, (x * 2).as_subclass(Kept).cos()),
    "iterated": lambda x: [row * 2 for row in x],
    "unpacked": lambda x: [a - b for a, b, c in [x]],
    "views": lambda x: x.view(4, 3).transpose(0, 1).contiguous().flatten(),
    "reduced": lambda x: (x.sum(), x.mean(0), x.max(1), x.std()),
    "into": lambda x: torch.mul(x, 2, out=torch.empty(3, 4)),
}


@pytest.mark.parametrize("cls", [Kept, Doubling, Inner, Named], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("body", BODIES)
def test_bodies(body: str, cls: type[Tensor], twin: str) -> None:
    own = Table()
    own.snippet(args=of(cls), tolerance=1e-6, min_graphs=0)(BODIES[body])
    check(own.programs[0], twin)


@table.snippet(args=of(Doubling))
def written(x):
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0] = 3
    y[1:] += x[1:]
    return y


@table.snippet(args=of(Doubling))
def an_argument_is_written(x):
    x.mul_(2)
    x[0, 0] = 1
    return x + 1


@table.snippet(args=two(Doubling, Inner))
def the_class_below_is_asked_first(x, y):
    return x + y, y + x, type(torch.mul(x, y)).__name__


@table.snippet(args=two(Doubling, Inner), min_graphs=0)
def no_class_has_the_operator(x, y):
    return x + y, 1 - y


@table.snippet(args=two(Doubling, Inner), min_graphs=0)
def one_class_leaves_it_to_the_other(x, y):
    return torch.sub(x, y), type(torch.sub(y, x)).__name__


@table.snippet(args=of(Named), min_graphs=0)
def attributes_of_results(x):
    x.title = "x"
    y = x.sin() * 2
    z = y + x
    return z, z.title, y.title


@table.snippet(args=of(Refusing), min_graphs=0)
def raised(x):
    try:
        return x + 1
    except ValueError as e:
        return str(e)


@table.snippet(args=of(Silent), min_graphs=0, breaks=True)
def no_class_has_it(x):
    return x.sin()


@table.snippet(args=of(Doubling))
def switched_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
        kind = type(y).__name__
    return y, kind, x + y


@table.snippet(args=of(Doubling))
def switched_off_for_modes_too(x):
    with torch._C.DisableTorchFunction():
        y = torch.add(x, 1)
    return y, y + x


@table.snippet(args=of(Doubling), breaks=True)
def a_graph_break_where_it_is_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
        fineline.graph_break()
        y = y + x
    return y, x + y


@table.snippet(args=of(Doubling), breaks=True)
def a_graph_break_between(x):
    y = x + 1
    fineline.graph_break()
    return y + x


@table.snippet(grad=True)
def made_inside(x):
    y = (x * 2).as_subclass(Doubling)
    return (y + 1).sum()


@table.snippet(grad=True)
def a_loss(x):
    return (x.as_subclass(Doubling) + x).sin().as_subclass(Tensor).sum()


@table.program()
def module_with_parameters_of_a_class():
    class Weight(nn.Parameter):
        pass

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    for k, layer in enumerate((model[0], model[2])):
        layer.weight = Weight(t(k, *layer.weight.shape))
        layer.bias = nn.Parameter(t(k, *layer.bias.shape))
    return lambda x: model(x), model


@table.program()
def module_that_gets_tensors_of_a_class():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    for k, p in enumerate(model.parameters()):
        p.data = t(k, *p.shape)
    return lambda x: model(x.as_subclass(Kept)), model


class Listing(Tensor):
    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(fn, "__qualname__", str(fn)) + f" {fn}")
        return super().__torch_function__(fn, types, args, kwargs or {})


@table.snippet(args=of(Listing), max_graphs=1)
def texts_of_the_functions(x):
    Listing.seen.clear()
    return (x * x.shape[0]).sin(), x.dtype, list(Listing.seen)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)


@table.snippet(args=lambda place: (t(place, place % 3 + 2, 4 + place).as_subclass(Seeing),), calls=5, recompiles=(1, 2))
def sizes_that_vary(x):
    Seeing.seen.clear()
    y = (x * x.shape[0]).reshape(-1)[: x.shape[1]] + x.numel()
    return y, list(Seeing.seen)


@table.snippet(args=of(Kept), tolerance=1e-6)
def lists_of_tensors(x):
    grids = torch.meshgrid([x[0], x[1]], indexing="ij")
    return torch.einsum("ij,ij->i", [x, x]), grids, torch.block_diag(x[:1], x[:1]), torch.cartesian_prod(x[0], x[1])


@table.snippet()
def written_through_a_view_of_another_class(x):
    y = x.as_subclass(Kept)
    y += 1
    y[0] = 0
    z = y.as_subclass(Tensor)
    z.mul_(2)
    return x.sum(), y, z


@table.snippet(breaks=True)
def a_leaf_of_another_class(x):
    y = (x * 1).detach().as_subclass(Kept)
    y.requires_grad_(True)
    return (y * 2).sum()


# -- what the method sees ------------------------------------------------------------------------------------------------------
class OfInstance(Tensor):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Tensor.__torch_function__(fn, types, args, kwargs or {})


class OwnMethods(Seeing):
    @property
    def ndim(self) -> int:
        return 7

    def __add__(self, other: Any) -> Any:
        return ("added", super().__add__(other))

    def __getitem__(self, key: Any) -> Any:
        return ("item", super().__getitem__(key))

    def relu(self) -> Any:
        return self * 3


SEEN: dict[str, Any] = {
    "branch": lambda x: x + 1 if x.sum() > 0 else x - 1,
    "branch_of_itself": lambda x: x.sin() if x.sum() else x.cos(),
    "numbers": lambda x: (int(x.sum()), float(x[0, 0]), x[0, 1].item(), x.sum().item()),
    "listed": lambda x: x[0].tolist(),
    "written": lambda x: f"{x[0]:}|{x.sum()!r}",
    "contained": lambda x: (1 in x, x[0, 0] in [x[0, 0]]),
    "index": lambda x: x[torch.tensor([0, 1])] + torch.ones(2, 4)[x[0].long() * 0, 0],
    "keywords": lambda x: torch.sum(input=x, dim=0, keepdim=True) + F.dropout(x, p=0.5, training=False),
    "of_functions": lambda x: (torch.is_tensor(x), torch.numel(x), torch.is_floating_point(x), torch.equal(x, x)),
    "assigned": lambda x: (setattr(x, "title", 3), x.title)[1],
    "copied": lambda x: (x.clone(), x.detach(), x.contiguous(), x.to(torch.float64), x.double(), x.numpy().shape),
    "parts": lambda x: (x.T, x.mT, x.real, x.data, x.grad, x.names),
    "random": lambda x: (torch.rand_like(x), torch.randn_like(x).shape, torch.zeros_like(x), x.new_zeros(2)),
    "matrices": lambda x: (torch.einsum("ij,kj->ik", x, x), torch.linalg.norm(x), x @ torch.ones(4, 2)),
    "broadcast": lambda x: [a.shape for a in torch.broadcast_tensors(x, torch.ones(3, 1))],
    "split": lambda x: [torch.split(x, 2), x.split([1, 2]), torch.meshgrid(x[0], x[1], indexing="ij")],
    "pooled": lambda x: (F.max_pool2d(x[None], 2), F.pad(x, (1, 1)), F.interpolate(x[None, None], scale_factor=2.0)),
    "checked": lambda x: torch._assert(x.shape[0] == 3, "text"),
    "structures": lambda x: (x.max(1), torch.sort(x), x.min(0).indices, torch.topk(x, 2).values),
    "unfolded": lambda x: (x.unflatten(1, (2, 2)), x.refine_names(None, None).shape, x.rename(None).shape),
    "gradient": lambda x: torch.autograd.grad((x.as_subclass(Tensor).requires_grad_() ** 2).sum(), [x], allow_unused=True) if x.requires_grad else x,
}


@pytest.mark.parametrize("cls", [Seeing, OwnMethods, OfInstance], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("body", SEEN)
def test_what_is_seen(body: str, cls: type[Tensor], twin: str) -> None:
    def make() -> Any:
        def fn(x):
            Seeing.seen.clear()
            return SEEN[body](x), list(Seeing.seen)

        return fn, Seeing.seen

    marks: dict[str, Any] = {"recompiles": frozenset({1}), "breaks": True, "min_graphs": 0, "tolerance": 1e-6}
    check(Program(body, make, [Step(place, args=of(cls)) for place in range(3)], **marks), twin)


# -- classes that change -----------------------------------------------------------------------------------------------------------
def changing() -> Any:
    class Factor(Tensor):
        factor = 2

        @classmethod
        def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_function__(fn, types, args, kwargs or {})
            return result if fn is not torch.sin else result.as_subclass(Tensor) * cls.factor

    class State:
        cls = Factor

    state = State()
    state.given = t(1).as_subclass(Factor)
    return lambda x: torch.sin(state.given) + x, state


def _other_factor(state: Any) -> None:
    state.cls.factor = 3


def _no_override(state: Any) -> None:
    state.cls.__torch_function__ = torch._C._disabled_torch_function_impl


def _plain(state: Any) -> None:
    state.given = t(2)


CHANGES = {"an_attribute": _other_factor, "no_override": _no_override, "a_plain_tensor": _plain}


@pytest.mark.parametrize("change", CHANGES)
def test_classes_that_change(change: str, twin: str) -> None:
    steps = [Step(place, change=CHANGES[change] if place == 2 else None) for place in range(4)]
    check(Program(change, changing, steps, recompiles=frozenset({2})), twin)


# Writes through which the engine asks autograd about a tensor, or about what it is a view of: no class sees that.
WRITTEN: dict[str, Any] = {
    "itself": lambda x: x.add_(1),
    "a_view": lambda x: x.as_subclass(Tensor).add_(1),
    "a_part": lambda x: x.as_subclass(Tensor)[1:].mul_(2),
    "a_part_of_its_own_class": lambda x: x[1:].mul_(2),
    "what_shares_memory": lambda x: x.as_subclass(Tensor).detach().add_(2),
    "what_it_is_given": lambda x: x.copy_(x.as_subclass(Tensor).detach() * 2),
}


class Bare(Tensor):
    """Gives plain tensors."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(fn.__name__)
        with torch._C.DisableTorchFunctionSubclass():
            return fn(*args, **(kwargs or {}))


@pytest.mark.parametrize("cls", [Seeing, Bare], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("body", WRITTEN)
def test_only_what_the_code_calls_is_seen(body: str, cls: Any, twin: str) -> None:
    def make() -> Any:
        def fn(x):
            cls.seen.clear()
            y = WRITTEN[body](x)
            return y, list(cls.seen)

        return fn, cls.seen

    made: list[Any] = [lambda place: (t(place).as_subclass(cls),), lambda place: (t(place, grad=True).mul(2).as_subclass(cls),)]
    for number, args in enumerate(made):
        steps = [Step(place, args=args) for place in range(3)]
        check(Program(f"{body} {cls.__name__} {number}", make, steps, recompiles=frozenset({1}), min_graphs=0, breaks=True), twin)


def test_a_view_of_a_class_without_a_history(twin: str) -> None:
    def fn(x):
        with torch.no_grad():
            y = x.as_subclass(Kept)
            return y, x.as_subclass(Kept).requires_grad_()

    steps = [Step(place, args=lambda place: (t(place, grad=True),)) for place in range(3)]
    check(Program("a_view_of_a_class_without_a_history", lambda: fn, steps, min_graphs=0, breaks=True), twin)


def test_a_base_whose_class_raises(twin: str) -> None:
    class Raising(Tensor):
        @classmethod
        def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                plain = args[0].as_subclass(Tensor)
            raise ValueError(f"{fn.__name__} of {plain.shape}")

    def fn(x):
        y = Tensor._make_subclass(Raising, x)
        try:
            y += 1
        except ValueError as e:
            return str(e)
        return y

    check(Program("a_base_whose_class_raises", lambda: fn, [Step(place) for place in range(3)], min_graphs=0, breaks=True), twin)


def test_classes_that_stop_and_begin_to_override(twin: str) -> None:
    def make() -> Any:
        class Changing(Tensor):
            pass

        state = SimpleNamespace(cls=Changing, x=t(1).as_subclass(Changing))

        def fn(y):
            try:
                return state.x + y.as_subclass(Kept)
            except TypeError as e:
                return str(e)

        return fn, state

    def silent(state: Any) -> None:
        state.cls.__torch_function__ = torch._C._disabled_torch_function_impl

    def again(state: Any) -> None:
        del state.cls.__torch_function__

    changes = {1: silent, 3: again, 4: silent}
    steps = [Step(place, change=changes.get(place)) for place in range(6)]
    check(Program("stop_and_begin", make, steps, recompiles=frozenset({1, 3, 4}), min_graphs=0, breaks=True), twin)


def test_sizes_that_vary_are_read_unseen(twin: str) -> None:
    def make() -> Any:
        def fn(x):
            Seeing.seen.clear()
            y = x.as_subclass(Tensor)
            fineline.graph_break()
            return y.shape[0] * 2, [y.stride(0) + 1], x, list(Seeing.seen)

        return fn, Seeing.seen

    steps = [Step(place, args=lambda place: (t(place, 5 - place, 3).as_subclass(Seeing),)) for place in range(4)]
    check(Program("sizes_that_vary", make, steps, recompiles=frozenset({1}), min_graphs=0, breaks=True), twin)
