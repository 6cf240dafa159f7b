"""Tensors in Python code: in-place operators, views, aliasing, metadata, indexing, containers, random numbers and subclasses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.oracle import TWINS, Program, Table, check, t

table = Table()
SCALE = torch.tensor([1.0, 2.0, 3.0, 4.0])


# -- writing in place ------------------------------------------------------------------------------------------------
@table.snippet()
def in_place_on_fresh(x):
    y = x * 2
    y += 1
    y.mul_(3)
    y[0] = 7.0
    y[1:, 2] -= x[1:, 0]
    return y


@table.snippet()
def in_place_on_an_argument(x, y):
    x.add_(1)
    z = x * y
    x *= 2
    return z


@table.snippet()
def argument_written_and_returned(x, y):
    x[0] = y[1]
    return x, x.relu_()


@table.snippet()
def item_assignment_of_many_kinds(x, y):
    z = torch.zeros(3, 4)
    z[0] = x[0]
    z[1:, ::2] = y[1:, ::2]
    z[..., -1] = 5
    z[z > 4] = -1.0
    z[torch.tensor([0, 2])] += 1
    z[[1, 2], [0, 1]] = torch.tensor([8.0, 9.0])
    z[None, 0] *= 2
    return z


@table.snippet()
def write_through_a_view(x):
    y = x.clone()
    row, column = y[0], y.T[1]
    row.fill_(1)
    column += 2
    y.view(-1)[-1] = 9
    return y, row, column


@table.snippet(grad=True)
def write_in_a_graph_with_gradients(x):
    y = x * 1
    y[0] = y[1] * 2
    y[2].mul_(3)
    return y.sum()


@table.snippet()
def out_arguments(x, y):
    out = torch.empty(3, 4)
    torch.add(x, y, out=out)
    got = torch.mul(x, 2, out=y)
    return out, got is y, y


@table.snippet(args=lambda i: (t(i), torch.empty(0)), breaks=True)
def out_argument_resized(x, out):
    y = x + 1
    torch.cat([y, y], out=out)
    return out.shape, out * 2


@table.snippet()
def views_share_storage(x):
    y = x + 1
    a, b = y[0], y[1]
    flat = y.reshape(-1)
    return y, a, b, flat, y.t(), y.T, y.mT, y.expand(2, 3, 4), y.view(4, 3), y.unsqueeze(0), y.narrow(1, 1, 2), y.diagonal()


@table.snippet()
def views_of_arguments_returned(x):
    return x, x[0], x.T, x.view(-1), x.detach(), x.data, x.contiguous()


def _same_or_not(i: int) -> tuple[Any, ...]:
    x = t(i)
    return (x, x) if i % 2 else (x, t(i + 5))


@table.snippet(calls=4, args=_same_or_not, recompiles=(1,))
def the_same_tensor_twice(x, y):
    x.add_(1)
    return y * 2, x is y


def _overlapping(i: int) -> tuple[Any, ...]:
    base = t(i, 6, 4)
    return (base[:3], base[1:4]) if i % 2 else (base[:3], base[3:])


def _beside(i: int) -> tuple[Any, ...]:
    base = t(i, 8, 4)
    return (base[1:4], base[5:]) if i % 2 else (base[:3], base[3:6])


@table.snippet(calls=4, args=_beside, recompiles=(1,))
def arguments_share_storage(x, y):
    x.mul_(2)
    return x + y


@table.snippet(calls=4, args=_overlapping, recompiles=(1,), min_graphs=0)
def arguments_lie_on_each_other(x, y):
    x.mul_(2)
    return x + y


@table.snippet(args=lambda i: ([t(i), t(i + 1)],))
def list_of_tensors_written(xs):
    for k, x in enumerate(xs):
        x += k
    xs[0] = xs[1] * 2
    return sum(xs)


@table.snippet()
def metadata_written(x):
    y = x + 1
    y.t_()
    z = x.clone()
    z.unsqueeze_(0).squeeze_(0).transpose_(0, 1)
    z.resize_(2, 3)
    return y, y.shape, z


@table.snippet(backward=False)
def data_swapped(x, y):
    x.data = y * 2
    z = y.clone()
    z.data.add_(1)
    return x + 1, z


# -- shapes, types, constants ----------------------------------------------------------------------------------------
@table.snippet()
def shape_arithmetic(x):
    rows, columns = x.shape
    n = x.size(0) * x.size(-1) + x.numel() + x.ndim + len(x) + x.dim()
    return x.reshape(columns, rows) * n, (rows // 2, columns**2, n % 5), x.size(), x.stride()


@table.snippet()
def size_is_a_tuple(x):
    s = x.shape
    longer = s + (2,)
    y = x.new_zeros(longer)
    tail = torch.Size([1, *s[1:]])
    return y, type(longer), s[:1] + s[1:], s == (3, 4), s.numel(), tail, tuple(s), list(s), s[::-1], 3 in s, s.index(4)


@table.snippet(calls=4, args=lambda i: (t(i, *((3, 4), (3, 4), (5, 4), (3, 4))[i]),), recompiles=(2,), must_recompile=True)
def shapes_in_conditions(x):
    if x.shape[0] > 4:
        return x[:2] * 2
    return x.sum(0)


@table.snippet()
def conversions(x):
    return (
        x.double(), x.to(torch.float16), x.int(), x.long() // 2, x.bool(), x.to("cpu"), x.type(torch.float64), x.type_as(x.int()),
        x.to(x.double()), x.to(torch.float32) is x, x.half().float(), x.float() is x,
    )  # fmt: skip


@table.snippet(calls=4, args=lambda i: (t(i, dtype=(torch.float32, torch.float32, torch.float64, torch.int64)[i]),), recompiles=(2, 3))
def dtype_in_conditions(x):
    if x.dtype is torch.float64:
        return x * 0.5
    if not x.is_floating_point():
        return x.float() + 1
    return x + torch.finfo(x.dtype).eps


@table.snippet()
def metadata_attributes(x):
    facts = (x.dtype, x.device, x.layout, x.is_cuda, x.requires_grad, x.is_leaf, x.grad_fn, x.itemsize, x.nbytes, x.is_contiguous())
    return x * len(facts), facts, x.device.type, str(x.dtype), x.is_sparse, x.storage_offset(), isinstance(x, torch.Tensor), type(x)


@table.snippet()
def global_constant(x):
    return x * SCALE + torch.tensor(2.0) + torch.tensor([1, 2, 3, 4]) + math.pi


@table.snippet()
def constructors(x):
    y = torch.arange(4) + torch.ones_like(x) + torch.full((3, 1), 2.5) + torch.eye(3, 4)
    return y * x, torch.linspace(0, 1, 3), x.new_tensor([1.0, 2.0]), torch.as_tensor([1, 2]), torch.tensor([[1], [2]])


@table.snippet()
def new_tensors_of_a_size(x):
    made = x.new(torch.Size((2, 5))), x.new(x.shape), x.new(x.size(), device="cpu"), x.new(torch.Size(())), x.new(2, 3)
    return [y.zero_() for y in made], x.new((2, 3)), x.new(list(x.shape))


@table.snippet()
def tensor_from_nested_tensors(x):
    return torch.stack([torch.stack([x[0, 0], x[0, 1]]), x[1, :2]]), torch.tensor([x.shape[0], x.shape[1]]) + x.int()[0, :2]


@table.snippet()
def arithmetic_with_python_numbers(x):
    y = 2 - x
    y = 3 / (y * y + 1)
    y = 2**y + y**2 - (-y) + abs(y) + +y
    z = (x * 10).int()
    return y, z // 3, z % 3, 7 // (z.abs() + 1), z & 3, z | 1, z ^ 5, ~z, z << 1, z >> 1, 1 - z, divmod(z.float(), 2.0)


@table.snippet()
def comparisons(x, y):
    return x == y, x != y, x < 0, 0 <= y, x.eq(x).all(), (x > 0) & (y > 0), x is x, x is not y, torch.equal(x.detach()[:0], y[:0])


@table.snippet(calls=4, args=lambda i: (t(i), (None, None, t(i), None)[i]), recompiles=(2,), must_recompile=True)
def compared_with_none(x, mask):
    if mask is None:
        return x * 2
    return x.masked_fill(mask > 0, 0.0)


@table.snippet()
def matrix_products(x, y):
    return x @ y.T, torch.einsum("ij,kj->ik", x, y), torch.einsum("ij,ij", x, y), x.T.matmul(y), torch.bmm(x[None], y.T[None])


# -- indexing and parts ----------------------------------------------------------------------------------------------
@table.snippet(args=lambda i: (t(i, 3, 4, 5), torch.tensor([i % 3, 0])))
def indexing_of_many_kinds(x, i):
    return (
        x[0], x[-1, ..., 1:3], x[:, None, 2], x[i], x[i, i], x[:, [0, 2]], x[x[:, 0, 0] > -9], x[..., ::2], x[0][1][2], x[True], x[(0, 1)],
        x[slice(0, 2)], x[i[0]], x[:, :, -2:], x[None, ...], x[[True, False, True]],
    )  # fmt: skip


@table.snippet(args=lambda i: (t(i), (1, 1, 2)[i]), recompiles=(2,))
def indexing_by_an_argument(x, k):
    return x[k], x[:k], x[-k:, k]


@table.snippet()
def iteration_over_a_tensor(x):
    total = 0
    for k, row in enumerate(x):
        first, *rest = row
        total = total + first * k + sum(rest)
    a, b, c = x
    return total, a + b * c, [r.sum() for r in reversed(list(x))], len(list(zip(x, x.T)))


@table.snippet()
def parts_of_tensors(x):
    a, b = x.split(2, dim=1)
    c, d, *_ = x.chunk(3)
    u = x.unbind(1)
    left, right = torch.tensor_split(x, 2, dim=1)
    return a * b, c + d, u[0] + u[-1], len(u), type(u), torch.hsplit(x, 2)[0], left - right, x.split([1, 3], 1)


@table.snippet()
def named_results(x):
    top = x.topk(2)
    values, order = torch.sort(x, dim=0, descending=True)
    low = x.min(dim=1)
    return top, top.values * 2, top[1], values, order, low.indices, x.max(0).values, torch.linalg.qr(x).Q.shape, type(low).__name__


@table.snippet()
def tensors_in_containers(x, y):
    pairs = {"a": (x + 1, [y]), x.shape: y * 2, torch.float32: x.dtype}
    held = [*pairs["a"][1], pairs[torch.Size([3, 4])]]
    return pairs, held, any(v is y for v in held), len({x, y, x})


@table.snippet(recompiles=(1, 2), breaks=True)
def tensors_known_by_id(x, y):
    seen = {id(x): x * 2, id(y): y + 1}
    return seen[id(x)] + seen[id(y)], len(seen)


@table.snippet(recompiles=(1, 2))
def tensor_as_a_key(x, y):
    cache = {}
    cache[x] = x * 2
    cache[y] = y * 3
    return cache[x] + cache[y], x in cache, len(cache)


# -- gradients and hooks of tensors ----------------------------------------------------------------------------------
@table.snippet(grad=True)
def detached(x):
    y = x * 2
    return y.detach() + x, y.detach().requires_grad, y.requires_grad, (y.data * 2).requires_grad


@table.snippet(backward=False)
def gradient_asked_for_inside(x):
    y = x.clone().requires_grad_()
    z = (y * 3).sum()
    return z, y.requires_grad, y.is_leaf, z.grad_fn is not None


def _with_grad(i: int) -> tuple[Any, ...]:
    x = t(i, grad=True)
    x.grad = t(i + 7)
    return (x,)


@table.snippet(args=_with_grad, backward=False)
def grad_read(x):
    return x.grad * 2, x.grad is not None


@table.snippet(args=_with_grad, backward=False)
def grad_written_in_place(x):
    with torch.no_grad():
        x.sub_(x.grad, alpha=0.1)
        x.grad.zero_()
    return x.grad


@table.snippet(args=_with_grad, backward=False)
def grad_replaced(x):
    old, x.grad = x.grad, None
    x.grad = old + x.detach()
    return x.grad


@table.snippet(args=lambda i: (t(i, grad=True),), calls=3, backward=False)
def grad_is_none(x):
    return x * 2 if x.grad is None else x * 3


@table.snippet(grad=True)
def requires_grad_read(x):
    return x * (2 if x.requires_grad else 3), (x * 1).requires_grad, x.is_leaf


# -- random numbers --------------------------------------------------------------------------------------------------
@table.snippet()
def random_numbers(x):
    y = torch.rand(3, 4) + torch.randn_like(x) + torch.randint(0, 5, (3, 4))
    return y, torch.randperm(4), torch.bernoulli(torch.full((2,), 0.5)), x.clone().uniform_(), x.clone().normal_(1.0, 2.0)


@table.snippet(grad=True)
def dropout(x):
    return F.dropout(x, 0.5), F.dropout(x, 0.5, training=False), torch.dropout(x, 0.25, True)


@table.snippet()
def seeded_inside(x):
    torch.manual_seed(4)
    return x + torch.rand(4)


@table.program(min_graphs=0, breaks=True)
def generator_object() -> Any:
    generator = torch.Generator().manual_seed(3)

    def fn(x):
        return x * 2 + torch.rand(3, 4, generator=generator)

    return fn, generator


# -- other kinds of tensors ------------------------------------------------------------------------------------------
@table.snippet(backward=False)
def complex_numbers(x, y):
    z = torch.complex(x, y) * (1 + 2j)
    return z, z.real, z.imag.abs(), z.conj(), torch.view_as_real(z), z.abs(), torch.fft.rfft(x), z.conj().is_conj()


class Plain(torch.Tensor):
    pass



@table.snippet(args=lambda i: (t(i).as_subclass(Plain),), min_graphs=0)
def subclass_without_methods(x):
    y = x * 2
    return y, type(y), isinstance(y, Plain)


@table.program(min_graphs=0, breaks=True)
def subclass_that_watches() -> Any:
    class Counted(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    def fn(x, y):
        x = x.as_subclass(Counted)
        before = Counted.calls
        z = x + y
        return z.relu(), y * 2, type(z) is Counted, Counted.calls - before

    return fn


@table.snippet(args=lambda i: (torch.nn.Parameter(t(i)), t(i)))
def parameter_argument(p, x):
    return p * x, isinstance(p, torch.nn.Parameter), type(p + 0), p.detach() + 1


@table.snippet(args=lambda i: (t(i).to_sparse(), t(i + 1)), min_graphs=0, backward=False, breaks=True)
def sparse_argument(s, x):
    return (s.to_dense() + x), s.is_sparse, torch.sparse.mm(s, x.T)


@table.snippet(args=lambda i: (t(i, 2, 3, 4, 5),), grad=True)
def memory_formats(x):
    y = x.to(memory_format=torch.channels_last) * 2
    return y, y.is_contiguous(memory_format=torch.channels_last), y.stride(), x.permute(0, 2, 3, 1).contiguous()


@table.snippet(args=lambda i: (t(i)[:, :2], t(i).T), calls=3)
def strided_arguments(x, y):
    return x + 1, y * 2, x.is_contiguous(), y.contiguous().view(-1), x.stride()


@table.snippet(args=lambda i: (torch.tensor(float(i)), t(i)))
def zero_dimensional(s, x):
    return x * s, s + 1, s.dim(), s.expand(2), torch.stack([s, s * 2])


@table.snippet(args=lambda i: (t(i), (0.5, 0.5, 0.25)[i]), recompiles=(2,))
def number_argument(x, alpha):
    return torch.add(x, x, alpha=alpha) * alpha, round(alpha * 2)


@table.snippet()
def methods_by_name(x):
    total = x
    for name in ("relu", "sigmoid", "tanh"):
        total = total + getattr(x, name)()
    return total, torch.Tensor.add(x, 1), hasattr(x, "no_such_thing"), getattr(x, "nothing", 5)


@table.snippet()
def attribute_on_a_fresh_tensor(x):
    y = x * 2
    y.note = "hello"
    return y, y.note, hasattr(x, "note")


@table.snippet()
def wrong_shapes_raise(x):
    y = x * 2
    try:
        return y @ y
    except RuntimeError as error:
        return y + 1, type(error).__name__, "shapes" in str(error)


@table.snippet()
def error_leaves_the_function(x):
    x.add_(1)
    return (x * 2).view(5, 5)


# -- old tensor types --------------------------------------------------------------------------------------------------
@table.snippet(max_graphs=1)
def converted_to_a_tensor_type(x):
    mask = (x > 0).type(torch.FloatTensor)
    same = x.type(torch.FloatTensor) is x, x.type("torch.FloatTensor") is x
    return x * mask, mask.type(torch.LongTensor), x.type(dtype=torch.DoubleTensor), same, isinstance(x, torch.FloatTensor), x.type()


@table.snippet(max_graphs=1)
def made_by_a_tensor_type(x):
    numbers = torch.LongTensor([1, 0]), torch.FloatTensor([[1, 2.5], [True, 4]]), torch.LongTensor([1.5]), torch.BoolTensor((0, 2))
    sizes = torch.FloatTensor(2, 3).zero_(), torch.DoubleTensor(x.shape).fill_(1), torch.IntTensor().shape, torch.HalfTensor([]).shape
    return x[numbers[0]] + torch.FloatTensor([i / 2 for i in range(4)]), numbers, sizes


@table.snippet(breaks=True)
def made_by_a_tensor_type_of_other_things(x):
    try:
        torch.LongTensor([[1], [2, 3]])
    except ValueError as error:
        text = str(error)
    shared = torch.FloatTensor(x)
    shared.add_(1)
    return shared, text, torch.LongTensor(range(2)) + 1


@table.program(change={1: lambda held: held.append(3), 2: lambda held: held.append(7)}, recompiles={1, 2})
def made_of_a_list_that_changes() -> Any:
    held = [1, 2]
    return lambda x: x.sum() + torch.LongTensor(held), held


# Not counted: where a number in the list varies, one program for all of them makes the tensor by other operators.
@table.program(
    calls=4,
    change={1: lambda held: held.append(3), 2: lambda held: held.__setitem__(0, 7), 3: lambda held: held.__setitem__(0, 8)},
    recompiles={1, 2},
    twins=(*set(TWINS) - {"counted"},),
)
def made_of_a_list_with_a_number_that_varies() -> Any:
    held = [1, 2]
    return lambda x: x.sum() + torch.LongTensor(held), held


@table.snippet(args=lambda k: (torch.tensor(k), torch.tensor(2.5)), breaks=True)
def made_of_tensors(a, b):
    return torch.FloatTensor([a, b, 1]) * 2


@table.program(change={1: lambda state: state.update(of=int), 2: lambda state: state.update(of=float)}, recompiles={1, 2}, max_graphs=3)
def types_of_python_as_dtypes():
    state = {"of": bool}

    def fn(x):
        of = torch.ones(3, 4, dtype=bool) & (x > 0), x.to(int), torch.zeros_like(x, dtype=float), x.sum(dtype=complex)
        return *of, x.to(state["of"]), torch.full((2,), 1, dtype=state["of"])

    return fn, state


# Its gradient is asked for with a warning: once at each call, also where an earlier program has looked at it. (On fakes at first, and again.)
@table.snippet(
    args=lambda i: (t(i) if i == 0 else t(i, grad=True) * 2,), calls=3, recompiles=(1,), backward=False,
    twins=("captured", "reference", "borders", "limit1", "strict", "aot", "counted"),
)  # fmt: skip
def the_gradient_of_what_is_no_leaf(x):
    return x * 2, x.grad is None


class Scaled(torch.nn.Parameter):
    """A parameter with something more, as libraries that quantize have them."""

    scale = 2.0

    @property
    def doubled(self) -> torch.Tensor:
        return self.data * 2


class Weighing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Scaled(t(1, 4, 4))

    def forward(self, x):
        y = x @ self.weight * self.weight.scale
        return y + self.weight.doubled.sum(), isinstance(self.weight, Scaled), self.weight.shape


def refusing(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    raise TypeError("no operators")


@table.program(calls=3, grad=True, max_graphs=2, change={1: lambda module: setattr(module.weight, "scale", 3.0)}, recompiles={1})
def parameters_of_a_class_of_ones_own():
    module = Weighing()
    return module, module


def overrides(cls: Any) -> None:
    cls.__torch_function__ = classmethod(refusing)


@table.program(calls=3, change={1: overrides}, recompiles={1, 2}, breaks=True)
def parameters_whose_class_begins_to_override():
    class Fresh(torch.nn.Parameter):
        pass

    weight = Fresh(t(1))

    def fn(x):
        try:
            return x * weight + 1
        except TypeError as e:
            return str(e)

    return fn, Fresh


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_tensors(program: Program, twin: str) -> None:
    check(program, twin)
