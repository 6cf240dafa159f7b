"""``fullgraph=True``: a graph break is an error that names the place, and leaves the world as it was."""

from __future__ import annotations

import pickle
import random

import pytest
import torch
from torch import nn

import fineline
from fineline.errors import BackendFailed, RecompileLimit, Unsupported


def full(fn, **kw):
    return fineline.compile(fn, backend="eager", fullgraph=True, **kw)


def here(fn, offset: int) -> str:
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno + offset}"


def test_without_a_break_it_runs() -> None:
    f = full(lambda x: x.sin() + 1)
    x = torch.randn(3)
    assert torch.equal(f(x), x.sin() + 1)
    assert torch.equal(f(x + 1), (x + 1).sin() + 1)


def test_the_error_names_line_reason_and_next_step() -> None:
    def f(x):
        y = x * 2
        print("not to be seen")
        return y

    with pytest.raises(Unsupported) as caught:
        full(f)(torch.ones(2))
    e = caught.value
    assert e.id == "FL102"
    assert e.where == here(f, 2)
    assert "print" in e.reason and "FL411" in e.reason
    assert "fullgraph=True" in e.next_step and "fineline/" not in str(e).replace(e.rule, "")
    assert str(pickle.loads(pickle.dumps(e))) == str(e)


def test_nothing_was_printed(capsys) -> None:
    def f(x):
        print("not to be seen")
        return x

    with pytest.raises(Unsupported):
        full(f)(torch.ones(2))
    assert capsys.readouterr().out == ""


def test_the_break_is_found_at_depth() -> None:
    def inner(x):
        return 1 if x.sum() > 0 else 0

    def f(x):
        return [inner(x) for _ in range(2)]

    with pytest.raises(Unsupported) as caught:
        full(f)(torch.ones(2))
    assert caught.value.where == here(inner, 1)


def test_a_disabled_functions_reason_is_quoted() -> None:
    @fineline.disable(reason="talks to a database")
    def load(x):
        return x

    def f(x):
        return load(x) + 1

    with pytest.raises(Unsupported) as caught:
        full(f)(torch.ones(2))
    e = caught.value
    assert e.id == "FL103" and e.where == here(f, 1)
    assert "talks to a database" in e.reason
    assert "disable(" in e.rule and __file__ in e.rule


def test_an_explicit_break_is_one() -> None:
    def f(x):
        fineline.graph_break("for a reason")
        return x

    with pytest.raises(Unsupported, match="for a reason"):
        full(f)(torch.ones(2))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.log: list[int] = []

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.extra = x
        return x * 2 if x.sum() > 0 else x


def test_writes_are_put_back() -> None:
    m = Counting()
    f = full(m)
    for _ in range(3):
        with pytest.raises(Unsupported):
            f(torch.ones(2))
        assert m.calls == 0 and m.log == [] and not hasattr(m, "extra")


def test_globals_and_closures_are_put_back() -> None:
    state = {"a": 1, "b": [1, 2]}
    count = 0

    def f(x):
        nonlocal count
        count += 1
        state["a"] = 2
        state["c"] = 3
        del state["b"]
        return 1 if x.sum() else 0

    with pytest.raises(Unsupported):
        full(f)(torch.ones(2))
    assert count == 0 and state == {"a": 1, "b": [1, 2]} and list(state) == ["a", "b"]


def test_random_state_is_put_back() -> None:
    def f(x):
        return 1 if (x + torch.rand(2)).sum() else 0

    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with pytest.raises(Unsupported):
        full(f)(torch.ones(2))
    assert torch.equal(torch.rand(4), expected)


def test_with_blocks_are_left() -> None:
    def f(x):
        with torch.no_grad():
            return 1 if x else 0

    with pytest.raises(Unsupported):
        full(f)(torch.ones(()))
    assert torch.is_grad_enabled()


def test_the_users_handlers_do_not_swallow_it() -> None:
    def f(x):
        try:
            return 1 if x else 0
        except Exception:
            return "handled"

    with pytest.raises(Unsupported):
        full(f)(torch.ones(()))

    def g(x):
        try:
            return 1 if x else 0
        except:  # noqa: E722
            return "handled"

    with pytest.raises(Unsupported):
        full(g)(torch.ones(()))


def test_it_is_an_error_each_time_and_the_region_goes_on() -> None:
    def f(x, stop):
        if stop:
            return 1 if x else 0
        return x * 2

    c = full(f)
    for _ in range(20):
        with pytest.raises(Unsupported):
            c(torch.ones(()), True)
    assert c(torch.ones(()), False) == 2
    assert c(torch.ones(()), False) == 2


def test_a_value_no_graph_can_hold_is_an_error() -> None:
    class Odd:
        def __reduce__(self):
            raise TypeError("never")

    def f(x):
        return x + 1, (i for i in range(3))

    c = full(f)
    try:
        c(torch.ones(2))
    except Unsupported as e:
        assert e.where.startswith(__file__)


def test_the_recompile_limit_is_an_error() -> None:
    c = full(lambda x, n: x * n, options={"recompile_limit": 2}, dynamic=False)
    c(torch.ones(2), "a" * 0 or 1)
    c(torch.ones(2), 2)
    with pytest.raises(RecompileLimit) as caught:
        c(torch.ones(2), 3)
    assert caught.value.id == "FL104" and "n: " in caught.value.reason
    assert torch.equal(c(torch.ones(2), 2), torch.ones(2) * 2)


def test_a_failed_backend_leaves_no_writes() -> None:
    log = []

    def f(x):
        log.append(1)
        return x + random.random() * 0

    def broken(gm, inputs):
        raise RuntimeError("no")

    def g(x):
        log.append(1)
        return x + 1

    with pytest.raises(BackendFailed):
        fineline.compile(g, backend=broken)(torch.ones(2))
    assert log == []


@pytest.mark.parametrize("how", [{"fullgraph": True}, {"breaks": "declared"}], ids=str)
def test_tensors_written_in_place_are_put_back(how: dict) -> None:
    net = nn.BatchNorm1d(3)
    grown = torch.zeros(4, 3)

    def f(x):
        y = net(x)
        x.mul_(2)
        grown[1:3].add_(1)
        print("not to be seen")
        return y

    x = torch.rand(5, 3)
    before = [t.clone() for t in (x, grown, *net.buffers())]
    with pytest.raises(Unsupported):
        fineline.compile(f, backend="eager", **how)(x)
    assert all(torch.equal(a, b) for a, b in zip(before, (x, grown, *net.buffers())))
