"""Branches that only raise, in one graph; apart from the tests, where pytest would write another code for each ``assert``."""

from __future__ import annotations

from typing import Any

import torch

from tests.oracle import Table, t

ONE = {"max_graphs": 1, "options": {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}}
table = Table()
# All parts of a condition are computed, also those that Python would leave out.
UNCOUNTED = ("captured", "reference", "borders", "dynamic", "fake")


def signed(place: int) -> tuple[torch.Tensor]:
    """Positive numbers, but for the second call's."""
    return (torch.tensor([[1.0, 2, 3], [1.0, -2, 3], [2.0, 1, 1], [4.0, 5, 6]][place]),)


@table.snippet(args=signed, calls=4, **ONE)
def an_assertion_on_a_number(x):
    n = x.min().item()
    assert n > 0, f"{n} of {x.tolist()}"
    return x * n, n > 0


@table.snippet(args=signed, calls=4, **ONE)
def numbers_that_are_refused(x):
    n = int(x.sum())
    if n <= 2:
        raise ValueError(n)
    if not (x > 0).all().item() or n > 99:
        raise KeyError("unreachable")
    return torch.zeros(n) + n


@table.snippet(args=signed, calls=4, **ONE)
def truths_that_are_kept(x):
    fine, wrong = bool((x > 0).all()), not (x > 0).all()
    assert fine and not wrong
    assert not wrong, "never met"
    return x + 1, fine, wrong


@table.snippet(args=signed, calls=4, **ONE)
def an_assertion_on_a_span(x):
    assert 0 < x.min().item() < 100, "out of range"
    return x / 2


@table.snippet(args=signed, calls=4, **ONE)
def assertions_of_several_parts(x):
    n, m = x.min().item(), int(x.max())
    assert n > 0 or m > 10, "or"
    assert (n > 0 and m < 99) or m > 100
    assert not (n < 0 and m < 4) and (m == 2 or m == 3 or m == 6)
    assert 0 < n < 5 or (m > 5 and not n == 3), f"{n} of {x.tolist()}"
    return x * n + m


@table.snippet(args=signed, calls=4, twins=UNCOUNTED, **ONE)
def parts_that_are_tensors(x):
    assert (x > 0).all() or x[0] == 1 or len(x) == 2
    if not ((x < 0).any() or torch.isfinite(x).all()) or isinstance(x, list):
        raise ValueError(x)
    assert (x.min() > 0 if x[0] == 1 else x.max() < 7), "chosen"
    return x + 1


@table.snippet(args=signed, calls=4, twins=UNCOUNTED, **ONE)
def a_part_that_may_not_be_computed(x):
    n = int(x.min())
    assert n <= 0 or 6 // n > 1
    assert n == 0 or 6 / n > 1 or x[n] > 0, "more than six"
    return x * n


@table.snippet(args=signed, calls=4, twins=UNCOUNTED, **ONE)
def a_condition_inside_of_what_is_handled(x):
    n = x.min().item()
    try:
        if n < 0 and x.sum() > 1:
            raise KeyError("first")
        assert n > 1 or x[0] < 2 or n == 9
    except KeyError as e:
        return x, str(e)
    return x - n


@table.program(args=signed, calls=4, **ONE)
def what_a_failing_assertion_leaves():
    seen: list[Any] = []

    def fn(x):
        seen.append("before")
        y = torch.rand(3) + torch.dropout(x, 0.5, True)
        assert x.min().item() > 0, seen
        seen.append("behind")
        return y * torch.rand(3)

    return fn, seen


@table.snippet(args=signed, calls=4, **ONE)
def a_failing_assertion_is_handled(x):
    try:
        n = x.min().item()
        assert n > 0
        return x * n
    except AssertionError:
        return x - 1
    finally:
        x = x + 1


@table.snippet(args=signed, calls=4, **ONE)
def an_assertion_without_gradients(x):
    with torch.no_grad():
        assert (x > 0).all(), "negative"
        y = x.sin()
    return y + x.min().item()


@table.snippet(args=lambda place: (signed(place)[0].requires_grad_(),), calls=4, grad=True, **ONE)
def gradients_behind_an_assertion(x):
    assert x.sum().item() > 3
    return (x * x).sum()


# The graph writes, and may have to take that back: only where no graph may end.
writing = Table()


@writing.snippet(args=signed, calls=4)
def writes_around_an_assertion(x):
    x.add_(0.5)
    assert (x > 0).all(), "negative"
    x.mul_(2)
    return x + 1


@writing.snippet(args=signed, calls=4)
def a_part_is_written_before_a_number_is_refused(x):
    x[:2] *= 3
    n = x.min().item()
    if n < 0:
        raise ValueError(x.tolist())
    x[1:].zero_()
    return x.clone().add_(n), torch.rand(2)


@writing.program(args=signed, calls=4)
def statistics_are_updated_before_an_assertion():
    norm = torch.nn.BatchNorm1d(3, momentum=0.5)

    def fn(x):
        y = norm(torch.stack([x, x + 1]))
        assert norm.running_mean.min().item() > 0 and y.isfinite().all()
        return y * 2

    return fn, norm


@writing.snippet(args=lambda place: (torch.tensor(place != 1), t(place)), calls=3)
def a_flag_is_passed_in(flag, x):
    x += 1
    assert flag, "no"
    return x * 2
