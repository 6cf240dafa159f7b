"""Tensors of wrapper subclasses: classes that consist of other tensors, and compute operators in ``__torch_dispatch__``."""

from __future__ import annotations

import enum
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


# Operators that PyTorch's compilers add, which do not scale.
UNSCALED = frozenset({"aten::detach", "aten::alias", "aten::ones_like", "aten::clone"})


class Scaled(Tensor):
    """A tensor and a factor, the context. No ``__torch_function__``."""

    data_in: Tensor
    factor: Any
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data_in: Tensor, factor: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, data_in.shape, strides=data_in.stride(), dtype=torch.float32, device=data_in.device, storage_offset=data_in.storage_offset()
        )

    def __init__(self, data_in: Tensor, factor: Any) -> None:
        self.data_in, self.factor = data_in, factor

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__} of {self.factor}"

    def __tensor_flatten__(self) -> Any:
        return ["data_in"], self.factor

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["data_in"], context)

    @classmethod
    def number(cls, factor: Any) -> Any:
        return factor

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        factors = [a.factor for a in args if isinstance(a, Scaled)]
        plain = tree_map_only(Scaled, lambda x: x.data_in.to(torch.float32), args)
        result = fn(*plain, **(kwargs or {}))
        if fn.name() in UNSCALED:
            return return_and_correct_aliasing(fn, args, kwargs or {}, cls(result, factors[0]))
        return tree_map_only(Tensor, lambda x: cls(x * cls.number(factors[0]), factors[0]), result)


class ByKey(Scaled):
    """A class that says for itself which contexts are alike."""

    @classmethod
    def number(cls, factor: Any) -> Any:
        return factor["factor"]

    @staticmethod
    def __metadata_guard__(before: Any, now: Any) -> bool:
        return bool(before["factor"] == now["factor"])


class InTable(Scaled):
    """A context that can be changed in place."""

    @classmethod
    def number(cls, factor: Any) -> Any:
        return factor["factor"]


class Half(Tensor):
    """Two inner tensors of unlike types, with a ``__torch_function__`` of its own."""

    low: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, low: Tensor, scale: Tensor, dtype: torch.dtype) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, low.shape, dtype=dtype, device=low.device)

    def __init__(self, low: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        self.low, self.scale = low, scale

    def __repr__(self) -> str:  # type: ignore[override]
        return "Half"

    def __tensor_flatten__(self) -> Any:
        return ["low", "scale"], self.dtype

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["low"], inner["scale"], context)

    def dequantize(self) -> Tensor:  # type: ignore[override]
        return self.low.to(self.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is F.linear:
            x, w = args[:2]
            return F.linear(x, w.dequantize(), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return fn(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is torch.ops.aten.detach.default:
            (x,) = args
            return return_and_correct_aliasing(fn, args, kwargs or {}, cls(x.low.detach(), x.scale.detach(), x.dtype))
        return fn(*tree_map_only(Half, Half.dequantize, args), **(kwargs or {}))


def two(place: int, *shape: int, grad: bool = False) -> Any:
    return TwoTensor(t(place, *shape), t(place + 100, *shape)).requires_grad_(grad)


def half(place: int, *shape: int, scale: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Any:
    return Half((t(place, *(shape or (3, 4))) * 10).to(torch.int8), t(place + 1, *(scale or (1,))), dtype)


def twos(n: int = 1, **how: Any) -> Any:
    return lambda place: tuple([two(10 * place + k, **how) for k in range(n)])


EXPRESSIONS: dict[str, Any] = {
    "operators": lambda x, y: (x * 2).sin() + y,
    "with_plain": lambda x, y: x.cos() * torch.ones(3, 4) + 1,
    "methods": lambda x, y: (x.sum(0), y.mean(), x.max(dim=1)),
    "views": lambda x, y: (x.view(12), y.t(), x[0], x[:, 1:], y.split(2, 1)),
    "matmul": lambda x, y: x @ y.t() + x.shape[0],
    "inner": lambda x, y: x.a + y.b,
    "inner_of_result": lambda x, y: ((x * 2).a, (x + y).b.sum()),
    "inner_twice": lambda x, y: (x.a, x.a + 1, x),
    "itself": lambda x, y: (y, x),
    "class": lambda x, y: (type(x + y).__name__, isinstance(x, TwoTensor), type(x.a).__name__),
    "metadata": lambda x, y: (x.shape, x.dtype, x.numel(), (x + 1).stride(), len(y), x.requires_grad),
    "nothing": lambda x, y: 3,
    "functional": lambda x, y: F.layer_norm(F.relu(x), (4,)),
    "in_containers": lambda x, y: {"k": [x + 1, (y, x * y)]},
    "flatten": lambda x, y: x.__tensor_flatten__()[0],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("grad", [False, True])
def test_expressions(name: str, grad: bool, twin: str) -> None:
    few = 0 if name in ("itself", "nothing", "flatten", "metadata", "class") else 1
    made = Table()
    made.snippet(args=twos(2, grad=grad), min_graphs=few, max_graphs=1)(EXPRESSIONS[name])
    check(made.programs[0], twin)


@table.snippet(args=twos())
def input_written(x: Any) -> Any:
    x.mul_(2)
    return x + 1


@table.snippet(args=twos())
def result_written(x: Any) -> Any:
    y = x + 1
    y.add_(x)
    y[0] = 3
    return y * 2, y


@table.snippet(args=twos())
def inner_of_result_written(x: Any) -> Any:
    y = x + 1
    y.a.zero_()
    return y * 2, y


@table.snippet(args=twos())
def inner_of_input_written(x: Any) -> Any:
    x.a.mul_(2)
    return x + 1


@table.snippet(args=twos())
def inner_read_before_a_write(x: Any) -> Any:
    a = x.a
    x.add_(2)
    return a + 1, x.b


@table.snippet(args=twos())
def view_written(x: Any) -> Any:
    y = x.view(12)
    y.mul_(3)
    return x.a + 1, x


@table.snippet(args=twos(), max_graphs=1)
def base_of_a_view(x: Any) -> Any:
    y, made = x.view(12), TwoTensor(x.a * 1, x.b * 2)
    z = made.view(12)
    return y._base is x, z._base is made, y._base + z._base, z[0]._base is made, (x * 2)._base


@table.snippet(
    args=lambda place: (t(place) if place % 2 else t(place)[:], two(place) if place % 2 else two(place)[:]),
    recompiles=(1,), must_recompile=True, calls=4, breaks=True, backward=False, min_graphs=0,
)  # fmt: skip
def base_of_a_view_of_what_may_be_one(x: Any, y: Any) -> Any:
    """The base of a view is no view."""
    v, w = x.view(12), y.view(12)
    return v._base is x, w._base is y, v + 1, w + 1


@table.snippet(args=twos())
def inner_of_a_view_written(x: Any) -> Any:
    x.view(12).a.mul_(3)
    return x + 1


@table.snippet(args=lambda place: (x := two(place), x.a if place % 2 else t(place)), recompiles=(1,), calls=4)
def input_and_its_inner_tensor(x: Any, a: Any) -> Any:
    x.mul_(2)
    return a + 1


@table.snippet(args=lambda place: (x := two(place), x.a[0] if place % 2 else t(place, 4)), recompiles=(1,), calls=4, min_graphs=0)
def inner_tensor_written_through_a_view(x: Any, a: Any) -> Any:
    a.mul_(2)
    return x + 1


@table.snippet(args=lambda place: (TwoTensor(a := t(place), a if place % 2 else t(place + 1)),), recompiles=(1,), calls=4, min_graphs=0)
def one_tensor_twice(x: Any) -> Any:
    x.add_(1)
    return x * 2


@table.snippet(args=lambda place: (TwoTensor(a := t(place), a.view(3, 4) if place % 2 else t(place + 1)),), recompiles=(1,), calls=4, min_graphs=0)
def two_inner_tensors_of_one_memory(x: Any) -> Any:
    x.add_(1)
    return x * 2


@table.snippet(args=lambda place: (x := two(place), x.view(3, 4) if place % 2 else two(place + 1)), recompiles=(1,), calls=4, min_graphs=0)
def two_inputs_of_one_memory(x: Any, y: Any) -> Any:
    x.mul_(2)
    return y + 1


@table.snippet(args=twos(), breaks=True)
def inner_tensor_replaced(x: Any) -> Any:
    y = x + 1
    x.a = torch.zeros(3, 4)
    return x * 2, y


@table.snippet(args=twos(), breaks=True)
def inner_tensor_written_and_replaced(x: Any) -> Any:
    x.a.add_(1)
    y = x * 2
    x.a = x.a * 3
    return x * 2, y, x.a.sum()


@table.snippet(args=lambda place: (TwoTensor(two(place), two(place + 1)),), breaks=True)
def inner_tensor_of_an_inner_one_written_and_replaced(x: Any) -> Any:
    x.a.b.mul_(2)
    y = x.sin()
    x.a.b = x.a.b + 1
    return y, x + 1


@table.snippet(args=lambda place: (TwoTensor(two(place), two(place + 1)),), breaks=True)
def inner_tensor_of_an_inner_one_replaced(x: Any) -> Any:
    x.a.b = x.a.b + 1
    return x + 1, x.a * 2


@table.snippet(args=twos(), min_graphs=0, breaks=True)
def inner_tensor_of_a_result_replaced(x: Any) -> Any:
    y = x + 1
    y.a = torch.zeros(3, 4)
    return y * 2


@table.snippet(args=twos(), min_graphs=0, breaks=True)
def result_returned_with_another_inner_tensor(x: Any) -> Any:
    y = x + 1
    y.a = torch.zeros(3, 4)
    return y


@table.snippet(args=twos())
def result_with_an_attribute(x: Any) -> Any:
    y = x + 1
    y.title = "y"
    return y * 2, y


@table.snippet(args=lambda place: (Scaled(t(place), 2.0 + place // 2),), calls=5, recompiles=(2, 4), must_recompile=True)
def context(x: Any) -> Any:
    return (x + 1).cos(), x


@table.snippet(args=lambda place: (Scaled(t(place), [1, 1.0, True, 0.0, -0.0][place]),), calls=5, recompiles=(1, 2, 3, 4), must_recompile=True)
def equal_contexts_of_other_types(x: Any) -> Any:
    return x / 2


@table.snippet(args=lambda place: (ByKey(t(place), {"factor": 2 + place // 2, "other": place}),), calls=4, recompiles=(2,), must_recompile=True)
def context_with_its_own_guard(x: Any) -> Any:
    # Of a result itself, compilers keep the context that they were given.
    return x.sin().data_in


def _changed(state: Any) -> None:
    state.factor["factor"] += 1


@table.program(args=lambda place: (), change={2: _changed}, calls=4, recompiles=(2,), must_recompile=True)
def context_changed_in_place() -> Any:
    x: Any = InTable(t(1), {"factor": 2})
    return lambda: x.sin(), x


@table.program(args=lambda place: (), calls=3, min_graphs=0, breaks=True)
def context_changed_by_the_code() -> Any:
    x: Any = InTable(t(1), {"factor": 2})

    def fn() -> Any:
        y = x + 1
        x.factor["factor"] += 1
        return x * 2, y

    return fn, x


@table.snippet(args=lambda place: (Scaled(t(place), object()),), min_graphs=0, breaks=True)
def context_that_equals_no_copy(x: Any) -> Any:
    return torch.ops.aten.alias(t(1)) + 1, x.shape


@table.snippet(
    args=lambda place: (Scaled(t(place).to([torch.float32, torch.float64, torch.bfloat16][place // 2]), 2.0),), calls=6, recompiles=(2, 4), must_recompile=True
)
def dtype_of_an_inner_tensor(x: Any) -> Any:
    return x.sin()


@table.snippet(args=lambda place: (half(place, scale=[(1,), (3, 1), (4,)][place // 2]),), calls=6, recompiles=(2, 4))
def shape_of_an_inner_tensor(x: Any) -> Any:
    return torch.sin(x) + 1, x.scale.shape


@table.snippet(args=lambda place: (two(place), t(place), Scaled(t(place), 1.0))[place : place + 1], calls=3, recompiles=(1, 2), must_recompile=True)
def other_classes(x: Any) -> Any:
    return x.exp() + 1


@table.snippet(args=lambda place: (two(place, grad=place % 2 == 1),), calls=4, recompiles=(1,), must_recompile=True)
def gradients_required(x: Any) -> Any:
    return (x * x).sum() if x.requires_grad else x + 1


@table.snippet(args=lambda place: (two(place, place % 3 + 2, 4 + place),), calls=5, recompiles=(1, 2))
def sizes(x: Any) -> Any:
    return x.reshape(-1) * x.shape[0], x.a.sum(0)


@table.snippet(args=lambda place: (two(place, place % 3 + 2, 4 + place, grad=True) * 2,), calls=5, recompiles=(1, 2))
def sizes_of_a_result(x: Any) -> Any:
    return (x @ x.t()).sum() + x.shape[1]


def _replaced(state: Any) -> None:
    state.a = t(7)


def _replaced_by_double(state: Any) -> None:
    state.data_in = t(7, dtype=torch.float64)


@table.program(args=lambda place: (), change={2: _replaced}, calls=4)
def inner_tensor_replaced_between_calls() -> Any:
    x = two(1)
    return lambda: x.sin() + x.a, x


@table.program(args=lambda place: (), change={2: _replaced_by_double}, calls=4, recompiles=(2,), must_recompile=True)
def inner_tensor_of_another_type_between_calls() -> Any:
    x = Scaled(t(1), 2.0)
    return lambda: x.sin(), x


@table.program(args=lambda place: (), calls=4)
def nested_in_each_other() -> Any:
    x = TwoTensor(TwoTensor(t(1), t(2)), TwoTensor(t(3), t(4)))
    return lambda: (x.sin() + 1, x.a * 2, x.a.b + 1), x


@table.program(args=lambda place: (), change={2: lambda state: _replaced(state.b)}, calls=4)
def nested_and_replaced() -> Any:
    x = TwoTensor(TwoTensor(t(1), t(2)), TwoTensor(t(3), t(4)))
    return lambda: (x.mul_(2) + 1, x), x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2, bias=False)
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(t(i, *p.shape))
        self.first.weight = nn.Parameter(TwoTensor(self.first.weight.detach(), t(9, 4, 4)))
        self.first.bias = nn.Parameter(TwoTensor(self.first.bias.detach(), t(8, 4)))

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x).relu())


@table.program(args=lambda place: (t(place),), calls=4)
def parameters() -> Any:
    return Model()


def _step(model: Any) -> None:
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p.sub_(p.grad * 0.1)
                p.grad = None


@table.program(args=lambda place: (t(place),), calls=5, change={1: _step, 2: _step, 3: _step})
def parameters_in_training() -> Any:
    return Model()


@table.program(args=lambda place: (t(place),), calls=4)
def step_of_an_optimizer() -> Any:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def fn(x: Tensor) -> Any:
        optimizer.step()
        return x + 1

    for p in model.parameters():
        p.grad = torch.ones_like(p)
    return fn, model


@table.program(args=lambda place: (t(place, 2, 4),), calls=3)
def quantized_weight() -> Any:
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.bias.copy_(t(5, 3))
    model.weight = nn.Parameter(half(3), requires_grad=False)
    return model


def _patched(state: Any) -> None:
    cls = type(state)
    before = cls.__torch_dispatch__.__func__
    sin, cos = torch.ops.aten.sin.default, torch.ops.aten.cos.default
    cls.__torch_dispatch__ = classmethod(lambda cls, fn, types, args=(), kwargs=None: before(cls, cos if fn is sin else fn, types, args, kwargs))


@table.program(args=lambda place: (), change={2: _patched}, calls=4, recompiles=(2,), must_recompile=True)
def class_patched_between_calls() -> Any:
    class Patched(Scaled):
        pass

    x = Patched(t(1), 2.0)
    return lambda: x.sin() + x, x


def _making(x: Any) -> Any:
    s = Scaled(x * 2, 3.0)
    return s, s.data_in, x


MAKING: dict[str, Any] = {
    "read_only": lambda x: Scaled(x * 2, 3.0).data_in + 1,
    "returned": lambda x: Scaled(x * 2, 3.0),
    "returned_with_its_parts": _making,
    "of_an_input": lambda x: (s := Scaled(x, 3.0), s.data_in is x, x + 1),
    "operand": lambda x: Scaled(x * 2, 3.0).sin() + 1,
    "operand_and_result": lambda x: (s := Scaled(x * 2, (1, 3.0)[1]), s.sin(), s.data_in),
    "two": lambda x: TwoTensor(x, x + 1) * 2,
    "two_of_views": lambda x: (TwoTensor(x[1:], x[1:] * 2).sum(0), x),
    "nested": lambda x: (y := TwoTensor(TwoTensor(x, x + 1), TwoTensor(x * 2, x * 3)), y.sin()),
    "by_key": lambda x: (s := ByKey(x, {"factor": 2}), s.data_in + 1),
    "mutable_context": lambda x: (s := InTable(x, {"factor": 2}), s.data_in + 1),
    "in_a_container": lambda x: {"k": [TwoTensor(x, x), TwoTensor(x + 1, x)]},
    "class_of": lambda x: (type(TwoTensor(x, x)).__name__, TwoTensor(x, x).shape, x + 1),
}


@pytest.mark.parametrize("name", MAKING)
def test_making(name: str, twin: str) -> None:
    made = Table()
    made.snippet(args=lambda place: (t(place),), max_graphs=None if name == "nested" else 1, breaks=name == "nested")(MAKING[name])
    check(made.programs[0], twin)


@table.snippet(args=lambda place: (t(place),))
def made_and_written(x: Tensor) -> Any:
    w = TwoTensor(x, x + 1)
    w.mul_(2)
    return w.b, x


@table.snippet(args=lambda place: (t(place),), min_graphs=0)
def made_written_and_returned(x: Tensor) -> Any:
    w = TwoTensor(x, x + 1)
    w.mul_(2)
    return w


@table.snippet(args=lambda place: (t(place),))
def made_of_what_is_written_later(x: Tensor) -> Any:
    w = TwoTensor(x, x + 1)
    x.mul_(2)
    return w + 1, w


@table.snippet(args=lambda place: (t(place),))
def made_and_changed_after_its_use(x: Tensor) -> Any:
    w = TwoTensor(x, x + 1)
    y = w * 2
    w.a = x * 5
    return w, y


@table.snippet(args=lambda place: (t(place),))
def made_and_changed_before_its_use(x: Tensor) -> Any:
    w = TwoTensor(x, x + 1)
    w.a = x * 5
    return w * 2


@table.snippet(args=lambda place: (t(place),))
def made_with_an_attribute(x: Tensor) -> Any:
    w: Any = TwoTensor(x, x + 1)
    w.note = [x]
    return w, w * 2


@table.snippet(args=lambda place: (t(place, place % 3 + 2, 4),), calls=5, recompiles=(1, 2))
def made_of_varying_sizes(x: Tensor) -> Any:
    return TwoTensor(x, x + 1).sum(0), TwoTensor(x * 2, x)


@table.snippet(args=lambda place: (t(place), 2.0 + place), calls=4, recompiles=(1, 2), breaks=True)
def made_with_a_number_that_varies(x: Tensor, n: float) -> Any:
    return Scaled(x * 2, n).sin()


@table.snippet(args=lambda place: (t(place, grad=True),), breaks=True)
def made_of_what_requires_a_gradient(x: Tensor) -> Any:
    return TwoTensor(x * 2, x + 1).detach() * 2


@table.program(args=lambda place: (t(place),))
def constructor_with_an_effect() -> Any:
    made: list[Any] = []

    class Counted(Scaled):
        def __init__(self, data_in: Tensor, factor: Any) -> None:
            super().__init__(data_in, factor)
            made.append(factor)

    return lambda x: (Counted(x * 2, 3.0), Counted(x, 4.0).data_in), made


@table.snippet(args=lambda place: (t(place), [t(place, 5, 4)[1:4], t(place, 5, 4)[2:5]][place // 2]), calls=4, recompiles=(2,), must_recompile=True)
def offsets_in_memory(x: Tensor, y: Tensor) -> Any:
    z = y[1:] + x[1:]
    return z * y.storage_offset(), y[1:].storage_offset(), z[1:].storage_offset(), x.storage_offset()


class Peaked(Scaled):
    """Reads numbers: the context of a result is the greatest of them."""

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = fn(*tree_map_only(Scaled, lambda x: x.data_in, args), **(kwargs or {}))
        return tree_map_only(Tensor, lambda x: cls(x, x.detach().abs().max().item()), result)


class Listed(Peaked):
    """Reads numbers without an operator."""

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = fn(*tree_map_only(Scaled, lambda x: x.data_in, args), **(kwargs or {}))
        return tree_map_only(Tensor, lambda x: cls(x, max(x.tolist()[0])), result)


@table.snippet(args=lambda place: (Peaked(t(place), 1.0), t(place)), breaks=True, calls=4, recompiles=(1, 2, 3), min_graphs=0)
def dispatch_that_reads_numbers(x: Any, y: Tensor) -> Any:
    y = y + 1
    return (x * 2).factor, y


@table.snippet(args=lambda place: (Listed(t(place), 1.0), t(place)), breaks=True, calls=4, recompiles=(1, 2, 3), min_graphs=0)
def dispatch_that_reads_a_list(x: Any, y: Tensor) -> Any:
    y = y + 1
    return (x * 2).factor, y


def beside_an_array(place: int) -> tuple:
    memory = t(place, 4, 4).numpy()
    return torch.from_numpy(memory[:2]), Scaled(t(place + 1, 2, 4), 2)


def in_an_array(place: int) -> tuple:
    memory = t(place, 4, 4).numpy()
    return torch.from_numpy(memory[:2]), Scaled(torch.from_numpy(memory[1:3]), 2)


@table.snippet(args=beside_an_array, backward=False)
def written_in_the_memory_of_an_array(x: Any, y: Any) -> Any:
    x.add_(1)
    return y + x


@table.snippet(args=in_an_array, backward=False, min_graphs=0)
def written_where_an_inner_tensor_lies(x: Any, y: Any) -> Any:
    z = y * 1
    x.add_(1)
    return y + 1, z


class Doubled(Scaled):
    """Changes an argument of an operator, each time that it sees one."""

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if fn is F.linear:
            args = (args[0] * 2, *args[1:])
        with torch._C.DisableTorchFunctionSubclass():
            return fn(*args, **(kwargs or {}))


@table.snippet(args=lambda place: (t(place, 3, 4), Doubled(t(place + 1, 2, 4), 2)), backward=False)
def an_override_that_sees_each_operator_once(x: Any, w: Any) -> Any:
    return F.linear(x, w), (F.linear(w, w) + 1).sin()


def at_an_offset(place: int) -> tuple:
    memory = torch.arange(40.0)[4 * place : 4 * place + 12].view(3, 4)
    return (TwoTensor(memory, memory),)


@table.snippet(args=at_an_offset, recompiles=(1, 2), backward=False)
def offset_of_a_view_of_an_inner_tensor(x: Any) -> Any:
    return x.a[1:].storage_offset(), x.a[1:] + 1


@table.snippet(args=lambda place: (t(place, 2, 2),), backward=False, min_graphs=0, breaks=True)
def made_in_inference_mode(x: Any) -> Any:
    with torch.inference_mode():
        return TwoTensor(x, x + 1)


class Owner:
    pass


OWNER = Owner()


class Owned(TwoTensor):
    """A weak reference of the class's own."""

    def __init__(self, a: Tensor, b: Tensor, *more: Any) -> None:
        super().__init__(a, b, *more)
        self.owner = weakref.ref(OWNER)

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        return cls(fn(args[0].a, *args[1:]), fn(args[0].b, *args[1:]))

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Owned(inner["a"], inner["b"])


@table.snippet(args=lambda place: (Owned(t(place), t(place + 1)),), backward=False)
def a_weak_reference_in_an_attribute(x: Any) -> Any:
    return x * 2


FACTORS = {"low": 2.0}


class Level(enum.Enum):
    LOW = 1

    @property
    def factor(self) -> float:
        return FACTORS["low"]


class ByLevel(Scaled):
    """Its context is what a member of an enum answers."""

    def __tensor_flatten__(self) -> Any:
        return ["data_in"], self.factor.factor

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["data_in"], Level.LOW)

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = tree_map_only(cls, lambda x: x.data_in * x.factor.factor, args)
        return fn(*plain, **(kwargs or {}))


@table.program(args=lambda place: (ByLevel(t(place), Level.LOW),), change={2: lambda factors: factors.update(low=5.0)}, recompiles=(2,), backward=False)
def a_context_that_an_enum_answers() -> Any:
    FACTORS["low"] = 2.0
    return (lambda x: x.sin()), FACTORS


class Tied(TwoTensor):
    """Consists of one tensor or of two."""

    def __tensor_flatten__(self) -> Any:
        return (["a"], True) if self.a is self.b else (["a", "b"], False)

    @staticmethod
    def __tensor_unflatten__(inner: Any, tied: Any, size: Any, stride: Any) -> Any:
        return Tied(inner["a"], inner["a"] if tied else inner["b"])

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        factor = 100.0 if args[0].a is args[0].b else 1.0
        return fn(args[0].a, *args[1:]) * factor


def tied_or_not(place: int) -> tuple:
    a = t(place)
    return (Tied(a, a if place == 2 else t(place + 1)),)


@table.snippet(args=tied_or_not, recompiles=(2,), backward=False)
def inner_tensors_that_are_one(x: Any) -> Any:
    return x.sin()


class NoUnflatten(TwoTensor):
    __tensor_unflatten__ = None  # type: ignore[assignment]


class Raising(TwoTensor):
    """Raises for some operators."""

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Raising(inner["a"], inner["b"], size, stride)

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        if fn is torch.ops.aten.cos.default:
            raise ValueError("no cosine")
        return super().__torch_dispatch__(fn, types, args, kwargs)


class NoTensors(TwoTensor):
    def __tensor_flatten__(self) -> Any:
        return ["a", "nothing"], None


class RaisingFlatten(TwoTensor):
    def __tensor_flatten__(self) -> Any:
        raise ValueError("not to be taken apart")


def _of(cls: Any) -> Any:
    return lambda place: (cls(t(place), t(place + 1)),)


@table.snippet(args=_of(Raising), backward=False)
def dispatch_that_raises(x: Any) -> Any:
    try:
        return x.cos()
    except ValueError as e:
        return str(e), x + 1


@table.snippet(args=_of(Raising), min_graphs=0, backward=False)
def dispatch_that_raises_out_of_the_call(x: Any) -> Any:
    y = x + 1
    return y.cos()


@pytest.mark.parametrize("cls", [NoTensors, RaisingFlatten, NoUnflatten])
def test_bad_protocol(cls: Any, twin: str) -> None:
    def make() -> Any:
        # In a closure, whose contents the tests do not take apart.
        x = [cls(t(0), t(1))]
        return lambda y: ((x[0] + y).a, (x[0] * y).b), None

    made = Table()
    made.program(args=lambda place: (t(place),), min_graphs=0, breaks=True)(make)
    check(made.programs[0], twin)


def test_a_class_that_cannot_be_put_together_is_told() -> None:
    compiled, x = fineline.compile(lambda x: x.cos() + 1, backend="eager"), NoUnflatten(t(0), t(1))
    for _ in range(2):
        compiled(x)
    breaks = fineline.report(compiled).breaks
    assert breaks and {event.id for event in breaks} == {"FL504"} and all(["NoUnflatten" in event.reason for event in breaks])
    assert all(["has no __tensor_unflatten__" in event.reason for event in breaks])


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
