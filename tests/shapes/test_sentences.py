"""Each sentence on sizes that vary, through both doors: fineline's names, and PyTorch's after ``install``."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo

import fineline
from fineline.backends.aot_eager import aot_eager
from fineline.backends.inductor import inductor
from fineline.errors import BadArgument, Constrained, FinelineError
from tests.policy.doors import Door, same


def captures(door: Door, fn: Any, calls: Any, **how: Any) -> int:
    """How many captures these calls take; each gives what eager gives."""
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = door.compile(fn, backend=backend, **how)
    for args in calls:
        ours, theirs = compiled(*args), fn(*args)
        same(ours, theirs)
        assert torch.utils._pytree.tree_map(type, ours) == torch.utils._pytree.tree_map(type, theirs)
    return len(graphs)


def marks(door: Door) -> Any:
    return torch._dynamo.decorators if door.kind == "torch" else fineline


def rows(n: int, mark: Any = None, *args: Any, **how: Any) -> tuple:
    x = torch.arange(4.0 * n).reshape(n, 4)
    if mark is not None:
        mark(x, *args, **how)
    return (x,)


def scaled(x):
    return x * x.shape[0], x.shape[0]


def only_three(x):
    y = x * 2
    return y + torch.ones(3, 4)


# -- dynamic ---------------------------------------------------------------------------------------------------------
def test_none_is_static_first(door):
    """`dynamic=None` (static first; the size, stride, int or float that changed becomes symbolic on the next capture, nothing else)."""
    assert captures(door, scaled, [rows(n) for n in (5, 7, 9, 30)]) == 2
    # The other dimension was not seen to change.
    calls = [(torch.ones(n, m),) for n, m in ((5, 4), (7, 4), (9, 4), (9, 5), (9, 6), (11, 7))]
    assert captures(door, scaled, calls) == 3


def test_none_number(door):
    def step(x, n, lr):
        return x * n - lr * x, n + 1, lr * 0.5

    x = torch.ones(3)
    assert captures(door, step, [(x, 3, 0.1), (x, 4, 0.1), (x, 5, 0.1), (x, 5, 0.2), (x, 6, 0.3), (x, 7, 0.7)]) == 3


def test_none_attribute_and_global(door):
    class Schedule:
        step, lr = 3, 0.5

    schedule = Schedule()
    schedule.step, schedule.lr = 3, 0.5
    graphs: list[Any] = []

    def update(x):
        schedule.step += 1
        return x * (schedule.lr / schedule.step)

    compiled = door.compile(update, backend=lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
    for n in range(6):
        schedule.lr = 0.5 / (n + 1)
        same(compiled(torch.ones(2)), torch.ones(2) * (schedule.lr / schedule.step))
    assert schedule.step == 9 and type(schedule.step) is int
    assert len(graphs) == 2


def test_true(door):
    """`dynamic`: True is for everything that comes in."""
    assert captures(door, scaled, [rows(n) for n in (5, 7, 9, 30)], dynamic=True) == 1
    assert captures(door, lambda x, n: (x * n, n), [(torch.ones(2), n) for n in (5, 7, 9)], dynamic=True) == 1


def test_false(door):
    """`dynamic`: False is for what is marked."""
    assert captures(door, scaled, [rows(n) for n in (5, 7, 9)], dynamic=False) == 3
    assert captures(door, scaled, [rows(5, marks(door).mark_dynamic, 0), rows(7), rows(9)], dynamic=False) == 1


def test_zero_and_one(door):
    """Size 0 and 1 behave as PyTorch documents: each is captured by itself."""
    assert captures(door, scaled, [rows(n) for n in (5, 1, 0, 7, 1, 0, 9)], dynamic=True) == 3


def test_generalised_before_the_limit(door):
    """Many recompiles generalise the failing guard before the limit is met."""

    def several(x, y, n, lr):
        return x.sum() * n + y.sum() * lr, x.shape[0] + y.shape[1]

    calls = [(torch.ones(3 + i % 5, 4), torch.ones(2, 5 + i % 7), 2 + i % 3, 0.5 + i % 4) for i in range(20)]
    assert captures(door, several, calls) <= 3


# -- marks -----------------------------------------------------------------------------------------------------------
def test_mark_dynamic(door):
    """`mark_dynamic(t, index, *, min=None, max=None)`"""
    mark = marks(door).mark_dynamic
    assert captures(door, scaled, [rows(5, mark, 0), rows(7), rows(9)]) == 1
    assert captures(door, scaled, [rows(5, mark, [0, 1]), (torch.ones(9, 9),)]) == 1


def test_mark_dynamic_within_bounds(door):
    """`mark_dynamic(t, index, *, min=None, max=None)`: beyond them the program does not fit."""
    assert captures(door, scaled, [rows(5, marks(door).mark_dynamic, 0, min=2, max=8), rows(8), rows(2), rows(9)]) == 2

    def branches(x):
        return x * 2 if x.shape[0] < 100 else x

    # What the bounds decide is no guard.
    assert captures(door, branches, [rows(5, marks(door).mark_dynamic, 0, max=50), rows(49), rows(7)]) == 1


def test_mark_unbacked(door):
    """`mark_unbacked`: one program for all sizes, 0 and 1 too; a decision on such a size is a border, or an error that shows the line."""
    mark = marks(door).mark_unbacked

    def plain(x):
        return (x * 2).sum(1) + x.shape[0]

    assert captures(door, plain, [rows(3, mark, 0), rows(7), rows(1), rows(0)]) == 1

    def branches(x):
        y = x * 2
        return y + 1 if x.shape[0] > 4 else y - 1

    captures(door, branches, [rows(3, mark, 0), rows(7), rows(1), rows(0)])
    with pytest.raises(FinelineError, match="FL518") as caught:
        door.compile(branches, backend="eager", fullgraph=True)(*rows(3, mark, 0))
    assert __file__ in str(caught.value)


@pytest.mark.parametrize("first", [0, 1])
def test_unbacked_sizes_that_begin_with_0_and_1(door, first):
    """One program serves all sizes, also if it was captured where PyTorch takes sizes for constants."""
    mark, layer = marks(door).mark_unbacked, torch.nn.Linear(4, 4)

    def joined(x):
        return torch.cat([x, x * 2]).reshape(-1, 2, 4).sum(1) + layer(x)

    def counted(x):
        return layer(x).relu().sum(0), x.shape[0] + 1

    for fn in (joined, counted):
        assert captures(door, fn, [rows(first, mark, 0), rows(3), rows(0), rows(1), rows(5)]) == 1


@pytest.mark.parametrize("name", ["mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked"])
def test_negative_and_out_of_range(door, name):
    """`mark_dynamic(t, index, *, min=None, max=None)`, `maybe_mark_dynamic`, `mark_static(t, index=None)`, `mark_unbacked`:
    negative indices count from the end, out of range raises"""
    mark = getattr(marks(door), name)
    x = torch.ones(5, 4)
    mark(x, -2)
    for index in (2, -3):
        with pytest.raises(BadArgument, match="FL217"):
            mark(x, index)


@pytest.mark.parametrize("name", ["mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked"])
def test_an_index_is_an_integer(door, name):
    mark = getattr(marks(door), name)
    for index in (0.5, "0", [0, 0.5], torch.ones(2), 1j):
        with pytest.raises((BadArgument, TypeError), match="FL217"):
            mark(torch.ones(5, 4), index)


@pytest.mark.parametrize("bounds", [{"min": 9, "max": 3}, {"min": 6}, {"max": 4}, {"min": -3}, {"min": 2.5}, {"max": "9"}, {"max": 0}], ids=str)
def test_bounds_that_make_no_sense(door, bounds):
    """... or that the tensor itself breaks: an error at the mark, which leaves nothing behind."""
    x = torch.ones(5, 4)
    with pytest.raises(BadArgument, match="FL208"):
        marks(door).mark_dynamic(x, 0, **bounds)
    assert captures(door, scaled, [(x,), rows(7, marks(door).mark_static)]) == 2
    for good in ({"min": 5, "max": 5}, {"min": 0}, {"max": 5}, {"min": 5}):
        marks(door).mark_dynamic(torch.ones(5, 4), 0, **good)


def test_bounds_that_a_resized_tensor_breaks():
    """... and those that PyTorch's own mark has: an error at the capture."""
    for mark in (fineline.mark_dynamic, torch._dynamo.mark_dynamic):
        (x,) = rows(5, mark, 0, max=8)
        x.resize_(9, 4)
        with pytest.raises(BadArgument, match="the size 9"):
            fineline.compile(scaled, backend="eager")(x)


def test_negative_index_is_that_dimension(door):
    """negative indices count from the end"""
    assert captures(door, scaled, [rows(5, marks(door).mark_dynamic, -2), rows(7), rows(9)]) == 1


@pytest.mark.parametrize("name", ["mark_dynamic", "maybe_mark_dynamic", "mark_unbacked"])
def test_marking_in_captured_code(door, name):
    """calling one in captured code raises (but for `mark_static`)."""
    home = marks(door)

    def f(x):
        getattr(home, name)(x, 0)
        return x

    with pytest.raises(FinelineError, match="FL105"):
        door.compile(f, backend="eager")(torch.ones(3))


def test_mark_static_in_captured_code(door):
    """calling one in captured code raises (but for `mark_static`)."""
    home = marks(door)

    def f(x):
        home.mark_static(x, 0)
        return x * x.shape[0]

    assert captures(door, f, [rows(n) for n in (5, 7, 9)], dynamic=True) == 3


@pytest.mark.parametrize("spelling", [0, [0], (0, 1)])
def test_constrained(door, spelling):
    """A dimension marked dynamic that the code constrains to one value raises and shows the line that constrains it."""
    with pytest.raises(Constrained, match="FL110") as caught:
        door.compile(only_three, backend="eager")(*rows(3, marks(door).mark_dynamic, 0))
    assert f"{__file__}:{only_three.__code__.co_firstlineno + 2}" in str(caught.value)


def test_constrained_by_a_loop(door):
    """A dimension marked dynamic and then constrained raises, with the user's line that constrained it."""

    def looped(x):
        total = x[0]
        for i in range(x.shape[0]):
            total = total + x[i]
        return total

    with pytest.raises(Constrained) as caught:
        door.compile(looped, backend="eager")(*rows(3, marks(door).mark_dynamic, 0))
    assert f"{__file__}:{looped.__code__.co_firstlineno + 2}" in str(caught.value)


def test_constrained_by_one(door):
    """Size 0 and 1 behave as PyTorch documents."""
    with pytest.raises(Constrained, match="is 1 in this call"):
        door.compile(scaled, backend="eager")(*rows(1, marks(door).mark_dynamic, 0))


def test_maybe_mark_dynamic(door):
    """`maybe_mark_dynamic`: symbolic at once, and no error where the code fixes it"""
    mark = marks(door).maybe_mark_dynamic
    assert captures(door, scaled, [rows(5, mark, 0), rows(7), rows(9)]) == 1
    assert captures(door, only_three, [rows(3, mark, 0), rows(3)]) == 1


def test_mark_static(door):
    """`mark_static` ranks below `mark_dynamic` and above `dynamic=True`."""
    home = marks(door)
    assert captures(door, scaled, [rows(n, home.mark_static, 0) for n in (5, 7, 9)], dynamic=True) == 3
    assert captures(door, scaled, [rows(n, home.mark_static) for n in (5, 7, 9)]) == 3

    def both(first: Any, second: Any) -> tuple:
        (x,) = rows(5)
        first(x, 0)
        second(x, 0)
        return (x,)

    for order in ((home.mark_static, home.mark_dynamic), (home.mark_dynamic, home.mark_static)):
        assert captures(door, scaled, [both(*order), rows(7), rows(9)]) == 1


def test_marks_of_pytorch_without_install():
    """Code that carries PyTorch's own marks (… `torch._dynamo.mark_dynamic` …) is understood without `install()`"""
    ours = Door("fineline")
    assert captures(ours, scaled, [rows(5, torch._dynamo.mark_dynamic, -2), rows(7), rows(9)]) == 1
    assert captures(ours, scaled, [rows(5, torch._dynamo.mark_dynamic, 0, min=2, max=8), rows(7), rows(9)]) == 2
    assert captures(ours, scaled, [rows(n, torch._dynamo.mark_static, 0) for n in (5, 7, 9)], dynamic=True) == 3
    assert captures(ours, only_three, [rows(3, torch._dynamo.maybe_mark_dynamic, 0)]) == 1
    with pytest.raises(Constrained):
        fineline.compile(only_three, backend="eager")(*rows(3, torch._dynamo.mark_dynamic, 0))


def test_reset_forgets_marks(door):
    """`reset()`: forget all captures and per-process marks."""
    (x,) = rows(5)
    fineline.mark_dynamic(x, 0)
    fineline.reset()
    assert captures(Door("fineline"), scaled, [(x,), rows(7), rows(9)]) == 2


def test_marks_leave_tensors_alone():
    """nothing is written on users' objects"""
    (x,) = rows(5)
    fineline.mark_dynamic(x, 0)
    assert not x.__dict__


# -- user code sees ints ---------------------------------------------------------------------------------------------
SEEN = {
    "isinstance(n, int)": lambda n: isinstance(n, int),
    "type(n) is int": lambda n: type(n) is int,
    "f-strings": lambda n: f"{n} {n:>5} {n!r}",
    "repr": lambda n: (repr(n), str([n]), "%d" % n),
    "json": lambda n: json.dumps({"n": n, "sizes": [n, n + 1]}),
    "pickle": lambda n: pickle.loads(pickle.dumps(n)),
    "numpy": lambda n: np.zeros(n).shape[0],
    "hash": lambda n: (hash(n), {n: 1}, {n}),
    "methods": lambda n: (n.bit_length(), n.__add__(1), int.__add__(n, 1)),
    "conversions": lambda n: (int(n), float(n), bool(n), complex(n), bytes(n), chr(n), bin(n), hex(n)),
}


@pytest.mark.parametrize("what", list(SEEN))
@pytest.mark.parametrize("of", ["size", "number"])
def test_ints_are_seen(door, what, of):
    """User code sees ints: isinstance(n,int), type(n) is int, f-strings and repr never show a symbol; conversions that need the value
    specialise and guard."""
    look = SEEN[what]

    def f(x, n):
        return x * 2, look(x.shape[0] if of == "size" else n)

    compiled = door.compile(f, backend="eager", dynamic=True)
    for n in (5, 7, 9, 5):
        ours, theirs = compiled(*rows(n), n), f(*rows(n), n)
        assert torch.equal(ours[0], theirs[0])
        assert ours[1] == theirs[1] and type(ours[1]) is type(theirs[1])


def test_symbols_do_not_survive(door):
    """Symbols never leak to Python objects that survive."""

    class Kept:
        pass

    kept, sizes, named = Kept(), [], {}

    def f(x, lr):
        kept.n, kept.half = x.shape[0], x.shape[0] / 2
        kept.lr = lr * 0.5
        sizes.append(x.shape)
        named["rows"] = (x.numel(), [x.size(0) + 1])
        return x + 1

    compiled = door.compile(f, backend="eager", dynamic=True)
    for n in (5, 7, 9):
        compiled(*rows(n), n / 10)
        assert (kept.n, kept.half, kept.lr, named) == (n, n / 2, n / 10 * 0.5, {"rows": (4 * n, [n + 1])})
        assert [type(v) for v in (kept.n, kept.half, kept.lr, named["rows"][0])] == [int, float, float, int]
        assert type(sizes[-1]) is torch.Size and type(sizes[-1][0]) is int
    assert json.loads(json.dumps(named)) == {"rows": [36, [10]]}


# -- floats ----------------------------------------------------------------------------------------------------------
def test_floats_are_exact(door):
    """Never silently different from eager: floats are added and multiplied in Python's order."""

    def f(x, lr):
        a = lr * 0.1 * 3 + 0.2 + 0.3 - lr / 7
        return x * a, a, a > 0.5, int(a * 10), max(a, 0.25), round(a, 3)

    for dynamic in (None, True):
        compiled = door.compile(f, backend="eager", dynamic=dynamic, options={"recompile_limit": 64})
        for lr in (0.1, 0.7, 1.1, 0.3, 2.675, -1.0, 1e-300, 1e300, 0.0, -0.0, float("nan"), float("inf"), 0.1):
            if lr != lr or abs(lr) == float("inf"):
                with pytest.raises((ValueError, OverflowError)):
                    compiled(torch.ones(2), lr)
                continue
            ours, theirs = compiled(torch.ones(2), lr), f(torch.ones(2), lr)
            assert torch.equal(ours[0], theirs[0])
            assert repr(ours[1:]) == repr(theirs[1:])


@pytest.mark.parametrize("backend", [aot_eager, inductor])
@pytest.mark.parametrize("grad", [False, True])
def test_floats_and_backends(backend, grad):
    """Where AOTAutograd takes a float as one that varies, two captures do; else each value has its own."""

    def step(x, lr):
        return x - lr * x + lr

    def bounded(x, lr):
        return x.clamp(max=lr) * lr

    # From PyTorch 2.15 on, AOTAutograd takes the bound of a clamp, too.
    for fn, possible in ((step, {2}), (bounded, {2, 4})):
        graphs: list[Any] = []

        def counted(gm: Any, inputs: Any, graphs: Any = graphs) -> Any:
            made = backend(gm, inputs)
            graphs.append(gm)
            return made

        compiled = fineline.compile(fn, backend=counted)
        for lr in (0.1, 0.2, 0.3, 0.7):
            x, y = torch.ones(3, requires_grad=grad), torch.ones(3, requires_grad=grad)
            ours, theirs = compiled(x, lr), fn(y, lr)
            torch.testing.assert_close(ours, theirs)
            if grad:
                torch.testing.assert_close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(theirs.sum(), y))
        assert len(graphs) in possible
