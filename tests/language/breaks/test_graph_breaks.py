"""Graph breaks, wherever they fall: what is alive there goes on being alive, and capture goes on behind."""

from __future__ import annotations

import contextlib
import functools
import itertools

import numpy as np
import pytest
import torch

import fineline
from fineline import graph_break
from tests.oracle import Program, Table, check, t

table = Table()


# -- what is alive there -----------------------------------------------------------------------------------------------
@table.program(breaks=True, change={2: lambda rows: rows.weight.requires_grad_(False)}, recompiles={2})
def a_view_of_a_parameter_taken_without_gradients():
    rows = torch.nn.Embedding(6, 4)

    def fn(x):
        with torch.no_grad():
            part = rows.weight[:3].unsqueeze(0)
        graph_break()
        return part.requires_grad, x * 2 + part

    return fn, rows


SCHEMA = torch.ops.aten.add.Tensor._schema


@table.snippet(breaks=True)
def a_method_that_pybind11_made(x):
    y = x.sin().cos().tanh().neg().abs()
    if SCHEMA.is_backward_compatible_with(SCHEMA):
        y = y + 1
    return y.sin().cos().tanh().neg().abs()


# -- in statements ---------------------------------------------------------------------------------------------------
@table.snippet(breaks=True)
def in_a_loop(x):
    total = x
    for k in range(3):
        total = total * 2 + k
        graph_break()
    return total


@table.snippet(breaks=True, recompiles={1, 2})
def in_what_zip_goes_through(x):
    y = x * 2 + 1
    return y, [*zip(stepping(y), [1, 2, 3], strict=True)]


@fineline.disable
def stepping(x):
    return iter([x, x + 1, x + 2])


@table.snippet(breaks=True)
def in_a_while_loop(x):
    n = 0
    while n < 3:
        x = x + n
        if n == 1:
            graph_break()
            n += 1
            continue
        n += 1
    else:
        x = x * 2
    return x, n


@table.snippet(breaks=True, grad=True)
def in_no_grad(x):
    with torch.no_grad():
        y = x * 2
        graph_break()
        z = y + x
    w = z * x
    return w, z.requires_grad, w.requires_grad, torch.is_grad_enabled()


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        graph_break()
        return self

    def __exit__(self, *error):
        self.log.append(error[0])
        graph_break()
        return True


@table.snippet(breaks=True)
def in_with_a_user_class(x):
    log = []
    with Manager(log):
        y = x * 2
        graph_break()
        raise KeyError(log[0])
    return y + 1, log


@table.snippet(breaks=True)
def in_a_context_manager_function(x):
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append("in " + name)
        graph_break()
        try:
            yield name * 2
        finally:
            log.append("out " + name)

    with scope("a") as name:
        y = x + len(name)
        graph_break()
        z = y * 2
    return z, log


@table.snippet(breaks=True)
def in_try_and_finally(x):
    log = []
    try:
        y = x * 2
        graph_break()
        log.append("body")
    except ValueError:
        log.append("never")
    else:
        graph_break()
        log.append("else")
    finally:
        y = y + 1
        graph_break()
        log.append("finally")
    return y, log


@table.snippet(breaks=True)
def in_an_except_block(x):
    try:
        y = x * 2
        raise ValueError("first")
    except ValueError as error:
        graph_break()
        z = y + len(str(error))
        try:
            raise KeyError("second")
        except KeyError as inner:
            graph_break()
            return z * 2, repr(inner), inner.__context__ is error, error


@table.snippet(breaks=True)
def in_finally_while_raising(x):
    try:
        try:
            y = x * 2
            raise ValueError("on its way")
        finally:
            graph_break()
            y = y + 1
    except ValueError as error:
        return y, str(error)


@table.snippet(breaks=True)
def raised_behind_a_border(x):
    try:
        y = x * 2
        graph_break()
        raise RuntimeError("boom")
    except RuntimeError as error:
        return y - 1, error


@table.snippet(breaks=True)
def in_a_list_comprehension(x):
    return [graph_break() or x * k for k in range(3)]


@table.snippet(breaks=True)
def in_dict_and_set_comprehensions(x):
    d = {k: x[k] * 2 for k in range(3) if graph_break() is None}
    s = {k % 2 for k in range(3) if not graph_break()}
    return d, s


@table.snippet(breaks=True)
def in_a_nested_comprehension(x):
    return [[x * i + (graph_break() or j) for j in range(2)] for i in range(2)]


@table.snippet(breaks=True)
def in_nested_calls(x):
    def inner(v, k):
        w = v * k
        graph_break()
        return w + k

    def middle(v, *rest, scale=2, **more):
        return inner(v, scale) + inner(v, rest[0]) * more["z"]

    return middle(x, 3, z=4) - x


@table.snippet(breaks=True)
def in_an_expression(x):
    return x * 2 + (graph_break() or 3) * (x - 1), {"k": [x, graph_break(), x + 1]}, f"{x.shape}{graph_break()}"


@table.snippet(breaks=True)
def in_call_arguments(x):
    def take(*args, **kwargs):
        return sum(args) + kwargs["b"] - kwargs["a"]

    extra = {"a": x}
    return take(x, *[x * 2, graph_break() or x], **extra, **{"b": graph_break() or x * 5})


class Field:
    def __get__(self, obj, cls):
        graph_break()
        return obj.v * 2


class Box:
    field = Field()

    def __init__(self, v):
        self.v = v * 2
        graph_break()
        self.n = 3

    @property
    def doubled(self):
        graph_break()
        return self.v * 2

    def __getattr__(self, name):
        graph_break()
        return name

    def __add__(self, other):
        graph_break()
        return self.v + other

    def __call__(self, other):
        graph_break()
        return self.doubled * other


@table.snippet(breaks=True)
def in_methods_and_properties(x):
    box = Box(x)
    return box.doubled, box.missing, box + 1, box(x), box.n, box


@table.snippet(breaks=True)
def in_a_descriptor(x):
    return Box(x).field * 3


@table.snippet(breaks=True, recompiles=(1, 2))
def in_a_class_body(x):
    y = x * 2 + 1

    class Holder:
        size = y.shape
        graph_break()
        base = y * 2

    return Holder.base * 3 + 1, Holder.size


@table.snippet(breaks=True)
def in_recursion(x):
    def down(n):
        if n == 0:
            graph_break()
            return x
        return down(n - 1) * n

    return down(3)


@table.snippet(breaks=True)
def in_a_decorated_function(x):
    def twice(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            graph_break()
            return fn(*args) + fn(*args)

        return wrapper

    @twice
    def f(v):
        graph_break()
        return v * 2

    return f(x), f.__name__


# -- generators and callbacks ----------------------------------------------------------------------------------------
@table.snippet(breaks=True)
def in_a_generator(x):
    def rows():
        for k in range(3):
            y = x[k] * 2
            graph_break()
            yield y

    out = []
    for row in rows():
        out.append(row + 1)
    return out


@table.snippet(breaks=True)
def in_a_generator_driven_by_list(x):
    def rows():
        for k in range(2):
            graph_break()
            yield x[k] * 2

    return list(rows()), sum(rows()), tuple(v for v in rows())


@table.snippet(breaks=True)
def outside_a_generator_half_way(x):
    def rows():
        for k in itertools.count():
            got = yield x * k
            if got:
                yield got

    g = rows()
    a = next(g)
    graph_break()
    b = next(g)
    c = g.send("hello")
    graph_break()
    return a, b + 1, c, next(g)


@table.snippet(breaks=True)
def in_yield_from(x):
    def inner():
        yield x
        graph_break()
        yield x * 2
        return "end"

    def outer():
        got = yield from inner()
        graph_break()
        yield x + len(got)

    return [v + 1 for v in outer()]


@table.snippet(breaks=True, min_graphs=1)
def in_a_sort_key(x):
    def key(k):
        graph_break()
        return -k

    y = x * 2
    return y + 1, sorted([1, 3, 2], key=key), max([4, 5], key=key)


@table.snippet(breaks=True)
def in_map_and_reduce(x):
    def f(a, b=1):
        graph_break()
        return a * 2 + b

    return list(map(f, [x, x + 1])), functools.reduce(f, [x, x, x]), [*filter(lambda v: graph_break() is None, [1, 2])]


# -- what makes a border ---------------------------------------------------------------------------------------------
@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3), args=lambda i: (t(i) - (9 if i % 2 else -9), t(i)))
def branch_on_data(x, y):
    if x.sum() > 0:
        return y * 2
    return y - 1


@table.snippet(breaks=True, calls=6, recompiles=(1, 2), args=lambda i: (torch.tensor([0.0, 1.0, 2.0][i % 3]), t(i)))
def tree_of_outcomes(x, y):
    k = int(x)
    y = y + 1
    if k == 0:
        return y
    if k == 1:
        return y * 2, "one"
    for _ in range(k):
        y = y * 3
    return y


@table.snippet(breaks=True, args=lambda i: (torch.tensor([1.5, 1.5, 2.5][i]), t(i)))
def item_used_as_a_number(x, y):
    k = x.item()
    return y * k, k + 1, type(k)


# A float that was read from a tensor varies from the first call on, and nothing is captured again for another value but zero.
@table.snippet(breaks=True, max_graphs=5, args=lambda i: (torch.tensor([1.5, 2.5, -0.5, 3.0, 0.0, 7.0][i]), t(i)), calls=6, recompiles=(4,))
def floats_that_are_read(x, y):
    k = x.item()
    y = y * k
    m = float(y.sum())
    kept = {"first": k, "both": [k, m]}
    y = y + m / 2
    n = y.mean().item()
    return y - n, kept, m - k, f"{k:.2f}", n


# Sizes that data decides vary from the first call on, too; those of 0 and 1 have programs of their own.
@table.snippet(breaks=True, max_graphs=7, args=lambda i: (torch.arange(10.0) - [2, 3, 4, 6, 8, 7][i],), calls=6, recompiles=(1, 4))
def sizes_that_data_decides(x):
    (at,) = torch.where(x > 0)
    y = x[at] * 2
    z = x[x < 0]
    y = y.sum() + len(y) + z.sum()
    rows = (x.view(5, 2) > 0).nonzero()
    return y + rows.sum(), z - 1, z.shape, rows * 2, len(rows)


@table.snippet(breaks=True, recompiles=(1, 2), args=lambda i: (torch.tensor([i, 5]), t(i)))
def tolist_and_friends(x, y):
    numbers = x.tolist()
    y = y * 2 + 1
    y = (y - 3) * 2 + y.relu() - y.sin() + y.cos()
    return y * numbers[1], numbers, int(x[0]), float(x[1]), bool(x[0]), [int(v) for v in x]


@table.snippet(breaks=True)
def printing(x):
    y = x * 2
    print("shape", tuple(y.shape))
    z = y + 1
    print("sum", f"{z.sum().item():.3f}", sep=": ", end="!\n")
    return z


# Without `counted`: NumPy's functions become operators of the graph, which eager code does not run.
ARRAYS = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "aot")


@table.snippet(breaks=True, twins=ARRAYS)
def numpy_inside(x):
    y = x * 2
    a = y.numpy()
    b = np.maximum(a, 0) + 1
    z = torch.from_numpy(b)
    return z * 3, torch.as_tensor(b[0]) + x


@table.snippet(
    breaks=True, min_graphs=1, args=lambda i: (t(i), np.arange(12, dtype=np.float32).reshape(3, 4) + i), backward=False, twins=ARRAYS,
)
def numpy_argument_and_result(x, a):
    y = x + torch.from_numpy(a)
    y = (y * 2 - 1) / 3 + y.relu() - y.sin() * y.cos()
    return (y * 2).numpy(), a.sum() > -1, a.shape


@table.snippet(breaks=True, calls=3)
def data_dependent_shapes(x):
    y = x[x[:, 0] > -9]
    n = torch.nonzero(y > -9)
    return y * 2, n.shape[1], torch.unique(torch.tensor([1, 1, 2])) + 1


@table.snippet(breaks=True, recompiles=(1, 2))
def in_a_loop_with_data(x):
    steps = 0
    while x.abs().max() > 0.5 and steps < 3:
        x = x / 2
        steps = steps + 1
        if x.sum() > 1e9:
            break
    return x * 2


@table.snippet(breaks=True, args=lambda i: (t(i) * 0 + 2,))
def early_return_in_one_branch(x):
    for k in range(4):
        x = x * 2
        if x.max() > 10:
            return x, k
    return x, None


@table.snippet(breaks=True)
def asserts_about_data(x):
    assert x.isfinite().all(), "not finite"
    y = x * 2
    assert torch.allclose(y, x + x)
    return y


@fineline.disable
def plain_python(v, log=None):
    if log is not None:
        log.append("called")
    return v + 1


@table.snippet(breaks=True)
def disabled_functions(x):
    log = []
    y = plain_python(x * 2, log)
    return plain_python(y) * 2, log, [plain_python(v, log=log) for v in x]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_borders(program: Program, twin: str) -> None:
    check(program, twin)
