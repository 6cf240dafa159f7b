"""Programs that read numbers from tensors, or whose sizes depend on them, in one graph: as eager, whatever the numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

import fineline
from tests.oracle import Program, Table, check, t
from tests.unbacked import assertions

table = Table()
SYMBOLS = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
ONE = {"max_graphs": 1, "options": SYMBOLS}


def whole(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def drawn(place: int) -> tuple[torch.Tensor]:
    """Two small integers, others at each call."""
    return (whole(place + 2, 2 * place + 3),)


def switched(place: int) -> tuple[torch.Tensor]:
    """Floats of which more and more are negative, and in the end none."""
    return (torch.tensor([[1.0, -1, 2, 3], [0.5, -2, -3, 4], [-1.0, -2, -3, -4], [1.0, 2, 3, 4]][place]),)


# -- numbers -------------------------------------------------------------------------------------------------------------
@table.snippet(args=drawn, **ONE)
def a_number_is_multiplied_and_returned(x):
    n = x.sum().item()
    return x * n, n, n + 1, -n, n // 2, n % 2, 7 / n, abs(n), divmod(n, 3), n**2, min(n, 6), max(n, 6)


@table.snippet(args=drawn, **ONE)
def numbers_are_converted(x):
    y = x / 4
    return int(x[0]), float(x[1]), int(y[1]), float(y[0]), x[0].item() * 0.1, (x > 2).all().item(), int((x > 2).any()), x[0].item() > 2


@table.snippet(args=switched, calls=4, **ONE)
def floats_are_added_in_order(x):
    a, b = x[0].item(), x[1].item()
    return 0.1 + a + 0.2 + b * 3, (a + 0.1) * (b - 0.3) / 7, x * (a / 3)


@table.snippet(args=drawn, twins=("captured", "reference", "borders", "dynamic", "fake"), **ONE)
def lists_of_numbers(x):
    a, b = x.tolist()
    return x.tolist(), (x.view(2, 1) * 2.5).tolist(), torch.zeros(a, b), torch.split(torch.ones(a + b), [a, b])


@table.snippet(args=drawn, **ONE)
def bounds_of_a_slice_in_tensors(x):
    span = torch.tensor(min(x.shape[0], 3))
    return torch.arange(12)[6 - span : 6 + span, None], torch.arange(20)[x[0] - 1 : x[1], ...]


@table.snippet(args=drawn, **ONE)
def types_are_those_of_numbers(x):
    n, f = x[0].item(), (x[0] / 2).item()
    return type(n) is int, isinstance(n, int), isinstance(n, float), isinstance(f, float), x + n


@table.snippet(args=lambda place: (whole(place + 1, 3), torch.zeros(5)), **ONE)
def numbers_are_sizes_and_positions(x, y):
    n = x[0].item()
    y[:n] = 2
    return torch.arange(n), torch.ones(x[0], 2), y[: x[0]] * 2, y.narrow(0, 0, n), y[n], x.new_zeros(n * 2).view(2, -1), len(torch.ones(n))


@table.snippet(args=drawn, **ONE)
def what_is_written_between_reads(x):
    before = x[0].item()
    x.add_(1)
    return before, x[0].item(), x * before


@table.program(args=drawn, **ONE)
def numbers_are_kept_in_attributes():
    class Net:
        def __init__(self) -> None:
            self.seen: list[Any] = []
            self.last = 0

        def __call__(self, x):
            self.last = x.sum().item()
            self.seen.append(self.last)
            return x * self.last

    net = Net()

    def fn(x):
        return net(x)

    return fn, net


@table.program(args=drawn, **ONE)
def numbers_in_nested_regions():
    @fineline.nested_compile_region
    def inner(x, n):
        return x * n + x.sum().item()

    def fn(x):
        return inner(x, 2) + inner(x, x[0].item())

    return fn


# -- sizes ---------------------------------------------------------------------------------------------------------------
@table.snippet(args=switched, calls=4, **ONE)
def masks_and_positions(x):
    y = x[x > 0]
    return y * 2, x.nonzero(), torch.masked_select(x, x < 0), torch.where(x > 0)[0], y.shape, y.numel(), len(y), torch.argwhere(x < 0), y.sum()


@table.snippet(args=switched, calls=4, **ONE)
def unique_and_repeated(x):
    values, where, counts = torch.unique(x.sign(), return_inverse=True, return_counts=True)
    again = torch.repeat_interleave(x, (x > 0).long() + 1)
    return values, where, counts, again, torch.unique_consecutive(x.sign()), torch.cat([again, x])


@table.snippet(args=lambda place: (switched(place)[0].requires_grad_(),), calls=4, grad=True, **ONE)
def gradients_through_a_mask(x):
    return (x[x > 0] * 3).sum() + (x * (x > 0).sum().item()).sum()


@table.snippet(args=lambda place: (t(place, 6, 4), torch.arange(6) * (place + 1) % 3, t(9, 3, 4, 4)), tolerance=1e-6, **ONE)
def experts(x, chosen, weights):
    out = torch.zeros_like(x)
    for e in range(3):
        rows = torch.where(chosen == e)[0]
        out.index_add_(0, rows, x[rows] @ weights[e])
    return out


@table.snippet(args=switched, calls=4, **ONE)
def a_write_through_a_mask(x):
    x[x > 1] = 7
    x[x < 0] *= 2
    return x


# -- checks --------------------------------------------------------------------------------------------------------------
@table.snippet(args=lambda place: (whole(3, 6, 2, -1)[place], t(0, 5)), calls=4, **ONE)
def checks_are_made(n, x):
    n = n.item()
    torch._check(n >= 0)
    torch._check(n < x.shape[0], lambda: f"{n} is too large")
    return x[:n], torch.zeros(n)


@table.snippet(args=lambda place: (whole(3, 9, 2, -1)[place], t(0, 5)), calls=4, **ONE)
def a_failing_check_is_handled(n, x):
    n = n.item()
    try:
        torch._check(n <= 8)
        torch._check_index(n > 2, lambda: "too small")
    except (RuntimeError, IndexError) as e:
        return x, type(e), str(e)
    return x * n


@table.snippet(args=lambda place: (whole(4, 5, 4)[place], t(0, 4)), **ONE)
def a_check_for_one_value(n, x):
    n = n.item()
    torch._check(n == x.shape[0], lambda: "another size")
    return torch.ones(n) + x


@table.snippet(args=lambda place: (whole(3, 0, 2)[place], t(0, 5)), **ONE)
def division_by_zero(n, x):
    return x * (7 // n.item()), x.sum() / n.item()


@table.snippet(args=lambda place: (whole(3, 1, 4)[place], t(0, 5)), **ONE)
def a_check_behind_a_write(n, x):
    x.add_(1)
    n = n.item()
    torch._check(n > 2, lambda: "too small")
    return x * n


@table.snippet(args=lambda place: (whole(1, 2, 7)[place] - (place == 2) * 14, t(0, 5)), **ONE)
def positions_out_of_range(n, x):
    return x[n.item()] * 2


@table.snippet(args=lambda place: (torch.tensor(float(place)), t(0, 5)), **ONE)
def random_numbers_before_a_check(n, x):
    y = torch.dropout(x, 0.5, True)
    torch._check(n.item() < 2)
    return y * n.item()


# -- decisions: borders --------------------------------------------------------------------------------------------------
@table.snippet(args=drawn, breaks=True, recompiles={1, 2}, options=SYMBOLS)
def a_branch_on_a_number(x):
    n = x.sum().item()
    y = x + n
    if n > 6:
        y = y * 2
    return y * n if n else y, not n > 8, n


@table.snippet(args=switched, calls=4, breaks=True, recompiles={1, 2, 3}, options=SYMBOLS)
def a_branch_on_a_size(x):
    y = x[x > 0]
    if y.shape[0] == 0:
        return x
    return y.max() * x, y + 1, y.shape[0]


@table.snippet(args=drawn, breaks=True, recompiles={1, 2}, options=SYMBOLS)
def numbers_that_text_and_loops_need(x):
    n = x[0].item()
    return [x + i for i in range(n)], f"{n}", [10, 20, 30, 40, 50][n], {n: 1}


@table.snippet(args=drawn, breaks=True, recompiles={1, 2}, options=SYMBOLS)
def a_border_between(x):
    n, y = x[0].item(), x[x > 3]
    fineline.graph_break()
    return y * n, y.shape[0] + n, x[1].item()


@table.snippet(args=lambda place: (torch.tensor([[1, 0], [1, place]]),), breaks=True, recompiles={1, 2}, options=SYMBOLS)
def layouts_that_depend_on_values(x):
    y = x.nonzero()
    return (y + 1 if y.is_contiguous() else y * 2), y.stride()


WRITING = [dataclasses.replace(p, breaks=True, options=SYMBOLS) for p in assertions.writing.programs]


@pytest.mark.parametrize("program", [*table.programs, *assertions.table.programs, *WRITING], ids=str)
def test_program(program: Program, twin: str) -> None:
    if program.twins and twin not in program.twins:
        pytest.skip("in the graph it takes more operators than eagerly")
    if twin == "borders":
        # Numbers that are alive at a border come from outside.
        program = dataclasses.replace(program, recompiles=frozenset(range(4)))
    check(program, twin)


STRICT = [dataclasses.replace(p, max_graphs=1) for p in table.programs + assertions.table.programs + assertions.writing.programs if not p.breaks]


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"evaluator": "reference"}, {"first_call": "compiled"}], ids=str)
@pytest.mark.parametrize("program", STRICT, ids=str)
def test_fullgraph_asks_for_it(program: Program, how: dict[str, Any]) -> None:
    check(dataclasses.replace(program, options={"fullgraph": True, **how}), "captured")


def test_pytorchs_question_for_unbacked_sizes_is_answered() -> None:
    """As PyTorch's own code asks it, such as flex_attention (2.14): code that computes the same either way."""

    def fn(x: torch.Tensor) -> Any:
        y = x[x > 0]
        asked = [x, (x, 3), y, [y], y.shape[0]]
        return y * 2, [has_free_unbacked_symbols(a) for a in asked]

    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    for place in (0, 1, 0):
        (x,) = switched(place)
        out, answers = compiled(x)
        assert torch.equal(out, fn(x)[0]) and answers == [False, False, True, True, True]
    plain = fineline.compile(lambda x: (x * 2, has_free_unbacked_symbols(x)), backend="eager", breaks="none")
    assert plain(torch.ones(2))[1] is False
