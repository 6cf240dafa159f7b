"""Tensors with a ragged dimension: `torch.nested` in the layout `torch.jagged`."""

from __future__ import annotations

import inspect
from itertools import accumulate
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import _symbolic_trace
from torch.nested._internal import nested_tensor
from torch.utils.checkpoint import checkpoint

import fineline
from tests.oracle import Program, Table, check, t

table = Table()

# The lengths of the rows in each call: the same, others of the same sum and number, other sums, another number of rows.
LENGTHS = ((2, 5, 3), (2, 5, 3), (4, 4, 2), (3, 6, 2), (2, 2, 4, 3))
# The first program is for one number of rows. Of values, the first two are for one sum of lengths, and for any.
VARYING, SUMS = (4,), (2, 3, 4)


@pytest.fixture(scope="module", autouse=True)
def told() -> None:
    """From torch 2.14 on, the first tensor that a process makes of values and offsets logs a warning."""
    torch.nested.nested_tensor_from_jagged(torch.ones(2, 1), torch.tensor([0, 2]))


def rows(place: int, lengths: tuple[int, ...] | None = None, grad: bool = False, width: int = 4) -> Any:
    lengths = lengths or LENGTHS[place]
    return torch.nested.nested_tensor([t(10 * place + i, n, width) for i, n in enumerate(lengths)], layout=torch.jagged, requires_grad=grad)


def packed(place: int) -> tuple[Tensor, Tensor]:
    lengths = LENGTHS[place]
    return t(place, sum(lengths), 4), torch.tensor([0, *accumulate(lengths)])


def nested(place: int) -> tuple:
    return (rows(place),)


EXPRESSIONS: dict[str, Any] = {
    "elementwise": lambda x: (x * 2 + x).sin(),
    "with_number": lambda x: 1 - x / 3,
    "methods": lambda x: x.relu().abs().clone(),
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "sum_of_rows": lambda x: x.sum(1) + 1,
    "sum_of_columns": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(1) * 2,
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.5).sin(),
    "values": lambda x: x.values().sin() + 1,
    "offsets": lambda x: x.offsets() * 2,
    "parts_of_result": lambda x: ((y := x * 2).values() + 1, y.offsets(), y.offsets() is x.offsets()),
    "metadata": lambda x: (x + 1, x.dim(), x.dtype, x.layout, x.is_nested, x.size(0), x.size(-1), x.requires_grad),
    "transposed": lambda x: x.unflatten(-1, [2, 2]).transpose(1, 2) * 3,
    "lengths": lambda x: (x.lengths(), x * 2),
    "with_dense": lambda x: x * torch.ones(4) + torch.arange(4.0),
    "itself": lambda x: (x, x + 1),
    "classes": lambda x: (type(x).__name__, isinstance(x, Tensor), type(x * 2).__name__),
}


REDUCTIONS = ("sum_of_rows", "sum_of_columns", "mean")


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("grad", [False, True])
def test_expressions(name: str, grad: bool, twin: str) -> None:
    if twin == "counted" or (grad and twin.startswith("aot") and name in REDUCTIONS):
        pytest.skip("the class asks about itself by operators; AOTAutograd cannot go backward through its reductions, and warns")
    made, few = Table(), twin != "borders"  # values that are alive at a graph break are dense
    made.snippet(args=lambda place: (rows(place, grad=grad),), calls=5, recompiles=VARYING if few else SUMS, min_graphs=0 if name == "classes" else 1, max_graphs=2)(
        EXPRESSIONS[name]
    )
    check(made.programs[0], twin)


@table.program(args=nested, calls=5, recompiles=VARYING, max_graphs=2)
def linear_layers() -> Any:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 4))
    return (lambda x: model(x) + x), model


@table.program(args=nested, calls=5, recompiles=VARYING, breaks=True)
def attention() -> Any:
    qkv = nn.Linear(4, 12)

    def step(x: Any) -> Any:
        q, k, v = [y.unflatten(-1, [2, 2]).transpose(1, 2) for y in qkv(x).chunk(3, -1)]
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)

    return step, qkv


@table.snippet(args=packed, calls=5, recompiles=SUMS, max_graphs=3)
def made_from_values(values: Tensor, offsets: Tensor) -> Any:
    x = torch.nested.nested_tensor_from_jagged(values.sin(), offsets)
    return x * 2


@table.program(args=packed, calls=5, recompiles=SUMS, max_graphs=3)
def made_and_taken_apart() -> Any:
    linear = nn.Linear(4, 3)

    def step(values: Tensor, offsets: Tensor) -> Any:
        return linear(torch.nested.nested_tensor_from_jagged(values, offsets)).relu().values() * 2

    return step, linear


@table.snippet(args=lambda place: (t(place, 10, 4, grad=True), torch.tensor([0, 2, 7, 10])), max_graphs=1)
def values_that_are_views(values: Tensor, offsets: Tensor) -> Any:
    x = torch.nested.nested_tensor_from_jagged(values, offsets)
    return x.values(), x.values()[1:], (x * 2).values(), values[0]


def alike(place: int) -> tuple:
    x = rows(place, (2, 5, 3))
    return x, x * 3


@table.snippet(args=alike, max_graphs=1)
def two_of_the_same_lengths(x: Any, y: Any) -> Any:
    return x + y * 2


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)), rows(place + 1, (2, 5, 3))), max_graphs=1)
def two_of_their_own_lengths(x: Any, y: Any) -> Any:
    return x.sin(), y * 2


@table.snippet(args=lambda place: alike(place) if place != 1 else (rows(1, (2, 5, 3)), rows(2, (2, 5, 3))), recompiles=(1,), min_graphs=0)
def lengths_that_fit_or_not(x: Any, y: Any) -> Any:
    try:
        return x + y
    except RuntimeError:
        return x.sin()


@table.snippet(args=nested, calls=5, recompiles=VARYING, max_graphs=2)
def rectangular_sizes(x: Any) -> Any:
    batch, _, width = x.shape
    y = x * x.shape[0] + x.size()[-1]
    return y.sin(), batch, width, len(x), x.shape[-1:], y.size(0), y.dim(), torch.ones(x.size(0), x.shape[-1])


@table.snippet(args=lambda place: (rows(place, width=4 + place % 2),), calls=4, recompiles=(1,), max_graphs=2)
def widths_that_vary(x: Any) -> Any:
    return x * x.shape[-1], torch.zeros(x.size(-1)) + len(x)


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)),), max_graphs=1)
def size_of_the_ragged_dimension(x: Any) -> Any:
    y = x.sin()
    other = rows_here(y)
    same = y.shape[1] == x.size(1), x.shape == y.shape, x.shape != y.shape, x.size() == y.size(), x.shape[:2] == tuple(y.shape)[:2]
    return y * 2, same, x.shape[1] == 5, 5 != x.shape[1], x.shape == (3, 5, 4), x.shape == other.shape, x.shape[:1] == other.shape[:1], x.shape == None  # noqa: E711


def rows_here(y: Any) -> Any:
    return torch.nested.nested_tensor_from_jagged(y.values() * 2, y.offsets() * 1)


@table.snippet(args=nested, calls=5, recompiles=VARYING, max_graphs=2)
def shapes_that_decide(x: Any) -> Any:
    y = x * 2
    assert x.size() == y.size()
    if x.shape == y.shape and x.shape[1] not in (4, len(x)):
        return (x + y).cos()
    return x


@table.snippet(args=lambda place: alike(place) if place % 2 else (rows(place, (2, 5, 3)), rows(place + 9, (2, 5, 3))), calls=4, recompiles=(1,), max_graphs=2)
def shapes_alike_or_not(x: Any, y: Any) -> Any:
    return x * 2 + y if x.shape == y.shape else (x.sin(), y * 3)


def made_of_offsets(place: int) -> tuple:
    values, offsets = t(place, 10, 4), torch.tensor([0, 2, 7, 10])
    return values, offsets, offsets if place % 2 else offsets.clone()


@table.snippet(args=made_of_offsets, calls=4, recompiles=(1,), max_graphs=2)
def shapes_of_offsets(values: Tensor, offsets: Tensor, others: Tensor) -> Any:
    x, y = torch.nested.nested_tensor_from_jagged(values, offsets), torch.nested.nested_tensor_from_jagged(values * 2, others)
    return (x.sin() if x.shape == y.shape else x.cos()), x.size(1) == y.size(1)


def offsets_of_rows(place: int) -> tuple:
    x = rows(place, (2, 5, 3))
    return x, t(place, 10, 4), x.offsets() if place % 2 else x.offsets().clone()


@table.snippet(args=offsets_of_rows, calls=4, recompiles=(1,), max_graphs=2)
def shapes_of_rows_and_offsets(x: Any, values: Tensor, offsets: Tensor) -> Any:
    y = torch.nested.nested_tensor_from_jagged(values, offsets)
    return x.sin() if x.shape == y.shape else (x * 2, y * 3)


@table.program(args=nested, calls=5, recompiles=VARYING, max_graphs=2, raw=True)
def sizes_that_leave(compile: Any) -> Any:
    def step(x: Any) -> Any:
        y = x.sin() * 2
        return y, y.shape[1], x.shape, [x.size(1)], f"{y.size(1)}"

    compiled = compile(step)
    # The oracle compares what functions hold.
    hidden = iter(lambda: compiled, None)

    def outside(x: Any) -> Any:
        y, size, shape, (other,), text = next(hidden)(x)
        return y, size == x.shape[1], size == y.shape[1], shape == x.shape, other == size, type(size), type(shape), shape[0], shape[2], text[0]

    return outside, None


@table.snippet(args=nested, calls=5, recompiles=VARYING, breaks=True)
def sizes_across_a_graph_break(x: Any) -> Any:
    y = x * 2
    size, shape = y.shape[1], x.shape
    fineline.graph_break()
    return y + x, size == y.shape[1], shape == y.shape, size == x.size(1), shape[0]


@table.snippet(args=nested, calls=5, recompiles=VARYING, max_graphs=2)
def reshaped(x: Any) -> Any:
    y = x.sin()
    wide = y.unflatten(-1, [2, 2])
    return y.view(x.shape) * 2, y.reshape(x.size(0), x.size(1), 2, 2), wide.view(x.shape) + 1, y.expand(x.shape).cos()


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)),), breaks=True)
def arithmetic_on_the_ragged_size(x: Any) -> Any:
    y, n = x.sin(), x.shape[1]
    found: list[Any] = [(n * 2) == (y.shape[1] * 2), {n: 1}[y.size(1)], n in {n: 1}]
    for fn in (int, float, lambda v: v + 1, lambda v: max(v, 3), lambda v: v < 5, lambda v: torch.zeros(v), range, lambda v: v + 1.5, lambda v: -v):
        try:
            fn(n)
        except (AttributeError, ValueError, RuntimeError, TypeError) as e:
            found.append(type(e).__name__)
    return y * 2, found


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)),), max_graphs=1)
def sizes_in_containers(x: Any) -> Any:
    y = x * 2
    sizes = [x.shape[1], y.shape[-1]]
    sizes.append(y.size(1))
    return y, sizes[0] == sizes[-1], sizes == [y.shape[1], 4, x.shape[1]], (x.shape, 1) == (y.shape, 1), x.shape[1] in sizes, 7 in sizes


def same_rows(place: int) -> tuple:
    return (rows(place, (2, 5, 3)),)


# A capture on real values, which starts again on fakes, unless it has written.
@table.snippet(args=same_rows, options={"dynamic": False}, max_graphs=1)
def shapes_on_real_values(x: Any) -> Any:
    y = x.sin()
    return (y * x.shape[0] if x.shape == y.shape else y), y.size(1), torch.ones(x.size(-1))


@table.snippet(args=same_rows, max_graphs=1)
def truths_of_sizes(x: Any) -> Any:
    y, n = x * 2, x.shape[1]
    assert n
    turned = y.transpose(1, 2)
    return (y + 1 if n else y), (n or 3) == y.size(1), bool(n), not n, turned.shape == x.shape, turned.size(2) == n, [d for d in x.shape if d != n]


@table.snippet(args=lambda place: (rows(place, (2, 5, 3), grad=True),), breaks=True)
def sizes_given_to_a_checkpoint(x: Any) -> Any:
    return checkpoint(lambda y, n: (y * 2).view(y.size(0), n, 4), x, x.shape[1], use_reentrant=False) + 1


@table.snippet(args=same_rows, options={"dynamic": False}, breaks=True)
def shapes_after_a_write(x: Any) -> Any:
    x.mul_(2)
    size = x.shape[1]
    x.add_(1)
    return x * 3, size == x.shape[1], x.shape


OTHER_ROWS = {1: lambda state: state.update(x=rows(7, (2, 5, 3))), 2: lambda state: state.update(y=state["x"] * 3)}


@table.program(args=lambda place: (t(place),), change=OTHER_ROWS, recompiles=(1, 2), max_graphs=3, calls=4)
def shapes_of_rows_in_a_dict() -> Any:
    x = rows(9, (2, 5, 3))
    state = {"x": x, "y": x * 2}

    def step(t: Tensor) -> Any:
        x, y = state["x"], state["y"]
        return (x * 2 + y if x.size() == y.size() else x.cos()), t + x.size(0)

    return step, state


@table.snippet(args=lambda place: (rows(place, (2, 5, 3), grad=True),), max_graphs=1)
def shapes_in_a_checkpoint(x: Any) -> Any:
    def body(y: Any) -> Any:
        z = y.sin() * y.shape[0]
        return z + y if z.shape == y.shape else z

    return checkpoint(body, x, use_reentrant=False) * 2


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)),), max_graphs=1)
def written(x: Any) -> Any:
    x.mul_(2)
    return x + 1


@table.program(args=lambda place: (rows(place, (2, 5, 3)),), change={1: lambda state: state.update(x=rows(7, (2, 5, 3)))}, max_graphs=2, recompiles=(1,))
def read_from_a_dict() -> Any:
    state = {"x": rows(9, (2, 5, 3))}
    return (lambda x: (state["x"] * 2, x.cos())), state


@table.program(args=lambda place: (rows(place, (2, 5, 3)),), change={2: lambda state: state.append(1)}, recompiles=(2,), max_graphs=2)
def beside_a_number() -> Any:
    state: list[int] = []
    return (lambda x: x * len(state)), state


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)), place), breaks=True, recompiles=(1, 2))
def across_a_graph_break(x: Any, place: int) -> Any:
    y = x * 2
    print(place)
    return y + x


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)) if place != 1 else torch.nested.nested_tensor([t(1, 3, 4)] * 3),), recompiles=(1,), min_graphs=0)
def of_either_layout(x: Any) -> Any:
    return x * 2


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)) if place != 1 else t(1, 3, 4),), recompiles=(1,))
def ragged_or_dense(x: Any) -> Any:
    return x.sin() * 2


@table.snippet(args=lambda place: (torch.nested.narrow(t(place, 3, 5, 4), 1, torch.tensor([0, 1, 0]), torch.tensor([3, 2, 5]), layout=torch.jagged),))
def rows_with_holes(x: Any) -> Any:
    return x.sin() * 2


@table.snippet(args=lambda place: (rows(place, (2, 5, 3)),), breaks=True)
def what_stands_for_the_lengths(x: Any) -> Any:
    y, n = x.sin(), x.shape[1]
    told = f"{n}"[:1], str(x.shape)[:12], bool(n), 1 if n else 2, type(n), isinstance(n, int), isinstance(n, torch.SymInt)
    return y * 2, told




def test_the_first_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch keeps for all later ones is made at the capture, and the logger is asked once: neither is a graph break."""
    monkeypatch.setattr(nested_tensor, "_dummy_instance", None)
    for fn in vars(_symbolic_trace).values():
        if hasattr(fn, "cache_clear") and not inspect.signature(fn).parameters:
            fn.cache_clear()

    def fn(values: Any, offsets: Any) -> Any:
        return torch.nested.nested_tensor_from_jagged(values * 2, offsets).sin().values()

    compiled = fineline.compile(fn, backend="eager")
    for place in range(2):
        assert torch.equal(compiled(*packed(place)), fn(*packed(place)))
    report = fineline.report(compiled)
    assert len(report.graphs) == 1 and not report.breaks


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    if twin == "counted":
        pytest.skip("the class asks about itself by operators")
    check(program, twin)
