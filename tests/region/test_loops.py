"""Loops with graph breaks in them: the iterations go through the same programs, as far as they can, and are right where they can't."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import fineline
from tests.oracle import Program, Table, check, t

table = Table()

with forward_ad.dual_level():
    # PyTorch loads decompositions at their first use, and warns of what they are made with.
    forward_ad.make_dual(torch.ones(2), torch.ones(2)).sin()


def lengths(place: int) -> tuple[torch.Tensor]:
    return (torch.arange(6.0) + place % 7,)


ANY: dict[str, Any] = {"calls": 8, "args": lengths, "breaks": True, "recompiles": tuple(range(8)), "backward": False}


@table.snippet(**ANY)
def while_a_tensor_says_so(x):
    while x.sum() < 200:
        x = x * 1.5 + 1
    return x


@table.snippet(**ANY)
def until_a_break(x):
    while True:
        x = x * 1.5 + 1
        if x.max().item() > 50:
            break
    return x


@table.snippet(**ANY)
def over_a_range(x):
    total = 0.0
    for i in range(9):
        x = x * 1.25 + i
        total += x.sum().item()
    return x, total, i


@table.snippet(**ANY)
def over_ranges_of_all_kinds(x):
    seen = []
    for i in range(9, -9, -2):
        for k in range(i, 5, 3):
            x = x + i * k
            seen.append((i, k, x[0].item()))
    for _ in range(0):
        x.sum().item()
    return x, seen


@table.snippet(**ANY)
def with_a_counter(x):
    i, k = 0, 10
    while i < 12 and k != 3:
        x = x + i * k
        k = k - 1 if x.sum().item() > 100 else k
        i += 1
    return x, i, k


@table.snippet(**ANY)
def that_is_left_and_gone_on_with(x):
    for i in range(20):
        x = x + i
        if x[0].item() > 40:
            break
        if i % 3:
            continue
        x = x * 2
    else:
        x = x - 1000
    return x, i


@table.snippet(**ANY)
def of_things_that_grow(x):
    seen = []
    for _ in range(6):
        x = torch.cat([x, x[-1:] + 1])
        seen.append(x.shape[0])
        seen.append(x.sum().item())
    return x, seen


LAYERS = [torch.nn.Linear(6, 6) for _ in range(5)]


@table.snippet(**ANY)
def over_layers_by_their_number(x):
    for i in range(len(LAYERS)):
        x = LAYERS[i](x)
        if x.sum().item() > 1e6:
            return x
    return x * 2


@table.snippet(**ANY)
def over_layers(x):
    for layer in LAYERS:
        x = layer(x)
        if x.sum().item() > 1e6:
            return x
    return x * 2


@table.snippet(**ANY)
def where_the_types_change(x):
    for i in range(8):
        if i == 4:
            x = x.double()
        if i == 6:
            x = x.view(2, 3)
        x = x + i
        x.sum().item()
    return x


@table.snippet(**ANY)
def that_swap(x):
    a, b = x, x * 2
    n, m = 1, 1
    for _ in range(7):
        a, b = b, a + 1
        n, m = m, n + m
        a.sum().item()
    return a, b, n, m


@table.snippet(**ANY)
def that_may_share(x):
    held, other = [x], [x + 1]
    for i in range(6):
        held.append(held[-1] + i)
        if held[-1].sum().item() > 60:
            other = held
        other.append(x)
    return held, other, held is other


@table.snippet(**ANY)
def in_try(x):
    caught = 0
    for i in range(8):
        try:
            if x[i % 6].item() > 4:
                raise ValueError(i)
            x = x + 1
        except ValueError as e:
            caught += e.args[0]
            x = x - 2
        finally:
            x = x * 1.125
    return x, caught


@table.snippet(**ANY)
def in_functions_and_generators(x):
    def gen(n):
        for i in range(n):
            yield i, x[i % 6].item()

    def inner(y, n):
        for k in range(n):
            y = y + k
            y.sum().item()
        return y

    for i, v in gen(7):
        x = inner(x * 0.5 + v, i)
    return x


@table.snippet(**ANY)
def whose_iterator_somebody_else_has(x):
    numbers = iter(range(12))
    pairs = zip(numbers, numbers)
    out = []
    for i in numbers:
        x = x + i
        if x[0].item() > 20:
            next(numbers, None)
        out.append(next(pairs, None))
    return x, out, list(numbers)


@table.snippet(**ANY)
def over_a_range_of_its_own_size(x):
    n = int(x[0].item()) + 2
    for i in range(n):
        x = x + i
        x.sum().item()
    for i in range(x.shape[0]):
        x = x * i + x[i].item()
    return x


@table.snippet(**ANY)
def with_modes(x):
    x = x.clone().requires_grad_()
    out = []
    for i in range(6):
        with torch.set_grad_enabled(i % 2 == 0):
            y = x * i
            y.sum().item()
            out.append((y.requires_grad, torch.is_grad_enabled()))
    return out


@table.snippet(**ANY)
def with_numbers_of_other_types(x):
    n: Any = 1
    for i in range(8):
        n = n + i if i < 3 else n * 0.5 if i < 5 else bool(n) if i == 5 else str(n) if i == 6 else None
        x = x + 1
        x.sum().item()
    return x, n


@table.snippet(**ANY)
def in_comprehensions(x):
    return [[(x + i * j).sum().item() for i in range(4)] for j in range(3)], {i: x[i].item() for i in range(5)}


@table.snippet(**ANY)
def with_large_numbers(x):
    for i in range(2**62, 2**62 + 5):
        x = x + i % 7
        x.sum().item()
    for i in range(2**70, 2**70 + 3):
        x = x + i % 5
        x.sum().item()
    return x, i


@table.snippet(calls=4, breaks=True, recompiles=tuple(range(4)))
def that_are_trained_through(x, y):
    total = 0.0
    for i in range(6):
        x = (x * y).sin() + i
        if x.detach().sum().item() > 0:
            x = x * 2
    while total < 3:
        total = total + x.detach().abs().mean().item() + 1
        y = y + x
    return x + y


@table.snippet(**ANY)
def that_count_in_a_cell(x):
    n = 0

    def bump(y):
        nonlocal n
        n += 1
        return y + n

    for _ in range(9):
        x = bump(x)
        x.sum().item()
    return x, n


class Box:
    def __init__(s):
        s.i = 0
        s.seen = []


@table.snippet(**ANY)
def that_count_in_an_attribute(x):
    b = Box()
    for _ in range(9):
        b.i += 1
        x = x + b.i
        if x[0].item() > 20:
            b.seen.append(b.i)
    return x, b.i, b.seen


@table.snippet(**ANY)
def whose_numbers_are_keys(x):
    d = {}
    for i in range(9):
        d[i] = x + i
        d[f"k{i}"] = x[0].item()
    return d


@table.snippet(**ANY)
def whose_numbers_are_in_texts(x):
    out = []
    for i in range(9):
        x = x + i
        out.append(f"layer{i}:{x.sum().item():.2f}")
    return x, out


@table.snippet(**ANY)
def over_a_reversed_range(x):
    out = []
    for i in reversed(range(9)):
        x = x * 0.5 + i
        out.append((i, x.sum().item()))
    return x, out


@table.snippet(**ANY)
def that_index_too_far(x):
    try:
        for i in range(9):
            x = x + x[i]
            x.sum().item()
    except IndexError as e:
        return x, i, str(e)


@table.snippet(**ANY)
def that_write_rows(x):
    buf = torch.zeros(9)
    for i in range(9):
        buf[i] = x.sum() + i
        x = x + buf[i]
        x.sum().item()
    return buf, x


@table.snippet(**ANY)
def that_write_into_an_argument(x):
    for i in range(9):
        x.add_(i)
        x[i % 6] += 1
        x.sum().item()
    return x


@table.snippet(**ANY)
def that_draw_numbers(x):
    for i in range(9):
        x = x + torch.rand(6) * i
        if x.sum().item() < 0:
            break
        x = torch.nn.functional.dropout(x, 0.2 + i / 20)
    return x


@table.snippet(**ANY)
def with_a_rate_that_decays(x):
    lr = 0.1
    tot = 0
    for i in range(12):
        x = x - lr * x
        lr *= 0.9
        tot += i
        if x.abs().sum().item() < 1e-3:
            break
    return x, lr, tot, i


@table.snippet(**ANY)
def with_numbers_that_overflow(x):
    n = 1
    for i in range(60):
        n *= 3
        x = x + n % 7
        x.sum().item()
    return x, n


def helper(x, i, k=2):
    y = x * i
    if y.sum().item() > 50:
        y = y / k
    return y + i


@table.snippet(**ANY)
def in_functions_with_numbers_for_arguments(x):
    for i in range(9):
        x = helper(x, i)
        x = helper(x, i + 1, k=3)
    return x


@table.snippet(**ANY)
def over_an_enumerated_generator(x):
    def g(n):
        for i in range(n):
            yield x * i

    for i, y in enumerate(g(9)):
        x = x + y
        if x[0].item() > 100:
            break
    return x, i


@table.snippet(**ANY)
def that_swap_lists(x):
    a, b = [x], [x + 1]
    for i in range(9):
        a, b = b, a
        a.append(x + i)
        (x + i).sum().item()
    return a, b


@table.snippet(**ANY)
def with_signed_zeros(x):
    v = -1.0
    for i in range(9):
        v = v * 0.0 if i % 3 == 0 else v - 0.5
        x = x + v
        x.sum().item()
    return x, v, str(v)


@table.snippet(**ANY)
def of_other_shapes_at_each_iteration(x):
    for i in range(1, 9):
        x = torch.cat([x, torch.zeros(i)])[: 12 - i]
        x.sum().item()
    return x, x.shape


@table.snippet(**ANY)
def of_views(x):
    base = torch.zeros(9, 6)
    for i in range(9):
        row = base[i]
        row.add_(x)
        x = base.sum(0) + i
        x.sum().item()
    return base, x


@table.snippet(**ANY)
def over_ranges_within(x):
    for i in range(6):
        for j in range(i):
            x = x + j
            x.sum().item()
        for j in range(i, 0, -1):
            x = x - j * i
            x[0].item()
    return x


@table.snippet(**ANY)
def that_count_in_a_module(x):
    m = torch.nn.Linear(6, 6)
    with torch.no_grad():
        m.weight.fill_(0.1)
        m.bias.fill_(0.0)
    m.steps = 0
    for i in range(9):
        m.steps += 1
        x = m(x) + m.steps
        x.sum().item()
    return x.detach(), m.steps


@table.snippet(calls=4, args=lambda place: (t(place, grad=True),), breaks=True, recompiles=(0, 1, 2, 3))
def with_hooks_on_what_autograd_saves(x):
    saved = []
    for i in range(7):
        # Neither on tensors that stand for others, nor twice where an iteration is captured again.
        with torch.autograd.graph.saved_tensors_hooks(lambda a, i=i: (saved.append((i, type(a))), a)[1], lambda a: a):
            x = x.sin() * x
            if x.sum() > 1e9:
                break
    return x, saved


@table.snippet(calls=3, args=lambda place: (t(place),), breaks=True, recompiles=(0, 1, 2), min_graphs=0)
def at_a_level_of_forward_gradients(x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        for i in range(7):
            dual = dual.sin() * 1.5 + i
            fineline.graph_break()
        return forward_ad.unpack_dual(dual)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_loops(program: Program, twin: str) -> None:
    check(program, twin)
