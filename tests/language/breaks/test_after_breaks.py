"""What goes on behind a graph break: unpacking, iterators half way and at their end, sets, and objects that only C makes."""

from __future__ import annotations

import gc
import itertools
import operator
import re
import weakref

import pytest
import torch
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


def behind_a_border(x):
    fineline.graph_break()
    return [x + 1, 2]


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def unpacking_around_a_border(x, n):
    def call(*args, **kwargs):
        return x * args[0] + args[1], args, kwargs

    packed = (n, *behind_a_border(x))
    named = {"n": n, **{"m": behind_a_border(x)}}
    return packed[1] * packed[0], packed, call(n, *behind_a_border(x), **{"k": n}, **{"l": behind_a_border(n)}), named


def ending_with_a_border(n):
    yield n
    yield 2
    fineline.graph_break()


class EndingWithABorder:
    def __init__(self, n):
        self.n, self.given = n, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        if self.given > 2:
            fineline.graph_break()
            raise StopIteration
        return self.n + self.given


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def arguments_and_targets_from_iterators_that_end_with_a_border(x, n):
    def call(a, b, c=0):
        return x * a + b * 10 + c

    found = []
    for kind in (ending_with_a_border, EndingWithABorder):
        a, b = kind(n)
        c, *d = kind(n)
        found += [call(*kind(n)), a, b, c, d, tuple(kind(n)), (*kind(n), n), torch.Size(kind(n)), x.new_zeros(*kind(n)).shape]
    return found


SETS = [frozenset([1]), frozenset([True]), frozenset([2, (1.0, "a")])]


@table.snippet(breaks=True, args=lambda place: (t(place), SETS[place], (place, SETS[place])), recompiles=(1, 2))
def frozen_sets_of_values(x, s, both):
    fineline.graph_break()
    return x * len(s), repr(s), s, both[1], repr(both)


@fineline.disable
def counted_eagerly(n):
    for i in range(n):
        yield i + 10
    return n


@fineline.disable(recursive=False)
def counted_in_its_own_frame(n):
    for i in range(n):
        yield i + 10
    return n


@fineline.disable
def tuple_iterator(n):
    return iter((10, 11, 12)[:n])


# Empty first, and again after others.
@table.snippet(breaks=True, args=lambda place: (t(place), (0, 2, 0, 1, 3)[place]), calls=5, recompiles=(1, 2, 3, 4), min_graphs=0)
def yield_from_what_runs_eagerly(x, n):
    def delegating(make):
        given = yield from make(n)
        yield given

    found = [x * 2]
    for make in (counted_eagerly, counted_in_its_own_frame, tuple_iterator):
        steps = delegating(make)
        found += [list(delegating(make)), [v for v in delegating(make)], next(steps), next(steps, "end"), list(make(n)), next(make(n), "none")]
    return found


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def chains_around_borders(x, n):
    chained = itertools.chain([x, x * n], [x + 1], (x - n,))
    found = []
    for v in chained:
        fineline.graph_break()
        found.append(v * 2)
    return found, [behind_a_border(v)[0] * 2 for v in itertools.chain.from_iterable([[x, x + n], (x, n)])]


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), min_graphs=0)
def objects_that_only_c_makes(x, n):
    found = re.match(r"(\d)(\w)", f"{n}a")
    fineline.graph_break()
    return x * int(found.group(1)), found.groups(), found.span()


@table.snippet(breaks=True, args=lambda place: (t(place), place % 2), recompiles=(1, 2))
def methods_by_name_with_keywords(x, n):
    call = operator.methodcaller("sum", n, keepdim=True)
    fineline.graph_break()
    return call(x) * 2

@table.program(breaks=True, calls=4, recompiles=(2, 3), change={2: lambda held: held.append(torch.ones(3)), 3: lambda held: held.pop(0)})
def tensors_that_c_groups():
    held = [torch.ones(2), torch.ones(2, dtype=torch.double)]

    def fn(x):
        made = [x * 2, x + 1]
        fineline.graph_break()
        found = []
        for groups in (_group_tensors_by_device_and_dtype([made, held[:2]]), _group_tensors_by_device_and_dtype([held])):
            for (_, dtype), (lists, places) in groups.items():
                found.append((dtype, torch._foreach_mul(lists[0], 3.0), places))
        return found

    return fn, held


STEPS = 0


def step():
    global STEPS
    STEPS += 1
    return STEPS


def _from_none(_):
    global STEPS
    STEPS = 0


@table.program(breaks=True, change=dict.fromkeys(range(3), _from_none), min_graphs=0)
def globals_where_a_capture_is_given_up():
    def fn(x):
        first = x * step()
        unmakeable = re.finditer("a", "aa")
        fineline.graph_break()
        return first + step() * 10 + step() * 100, STEPS, next(unmakeable).span()

    return fn


@fineline.disable
def refuses(x):
    raise ValueError(x.shape)


@table.snippet(breaks=True, min_graphs=0)
def what_raises_where_a_capture_is_given_up(x):
    unmakeable = re.finditer("a", "aa")
    try:
        refuses(x * 2)
    except ValueError as e:
        return e.args, str(e.__context__), next(unmakeable).span()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_behind_borders(program: Program, twin: str) -> None:
    check(program, twin)


def test_what_is_alive_where_an_exception_is_handled_goes_with_the_call() -> None:
    alive = weakref.WeakSet()

    @fineline.disable
    def fail(held):
        raise KeyError(held)

    @fineline.compile(backend="eager")
    def fn(x):
        held = Ending(2)
        alive.add(held)
        for _ in held:
            try:
                fail(held)
            except KeyError:
                x = x + 1
        return x * 2

    fn(t())
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            fn(t())
        assert not alive
    finally:
        gc.enable()


@table.program(breaks=True)
def flags_of_gradients_set_in_a_loop():
    weights = [torch.ones(3), torch.zeros(3)]

    def fn(x):
        for w in weights:
            w.requires_grad = not w.requires_grad
        made = []
        for i in range(2):
            y = x * i
            y.requires_grad = True
            made += torch.autograd.grad((y * y).sum(), y)
        return x + weights[0], weights[1] * 2, made

    return fn, weights


@table.snippet(breaks=True)
def flags_of_gradients_that_cannot_be_set(x):
    said = []
    for value, flag in ((x.long(), True), (x.long(), False), (x.requires_grad_() * 2, True), (x * 2, False), (x.to(torch.cfloat).detach(), True)):
        try:
            value.requires_grad = flag
        except RuntimeError as e:
            said.append(str(e))
    return x + 1, said


class Ending:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    @fineline.disable
    def __next__(self):
        if not self.n:
            raise StopIteration
        self.n -= 1
