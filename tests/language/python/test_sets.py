"""Objects looked up by identity in sets that the function makes: which of them are one may differ at the next call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fineline
from tests.oracle import Program, Step, Table, check, t

table = Table()


class Thing:
    pass


A, B, C = Thing(), Thing(), Thing()
OUTSIDE = {A, B}
# With one element: where two lie in a set depends on their addresses, and on what was discarded.
ALONE = {A}


@pytest.mark.parametrize("numbers", [(7, 15), (15, 7), (1, 9, 17), (17, 9, 1), (9, 1, 17), (3, 11, 19, 27), (-1, -2, 7)], ids=str)
def test_the_order_of_a_set(numbers):
    """The oracle compares sets as such."""
    class Own(set):
        pass

    def fn(x, s, *numbers):
        s.add(numbers[-1])
        s.discard(100)
        for n in numbers[:-1]:
            s.add(n)
        return x + 1, {n for n in numbers}, frozenset(numbers), Own(numbers)

    compiled = fineline.compile(fn, backend="eager")
    for start in ((), (), (31,), (23, 100), (23, 100)):
        given, expected = set(start), set(start)
        found, wanted = compiled(torch.ones(2), given, *numbers), fn(torch.ones(2), expected, *numbers)
        assert [list(s) for s in (given, *found[1:])] == [list(s) for s in (expected, *wanted[1:])]


@table.snippet(args=lambda place: (t(place), [A, B, C] if place != 1 else [A, B, A]), recompiles=(1, 2))
def filled_as_it_is_asked(x, things):
    memo = set()
    for thing in things:
        if thing not in memo:
            memo.add(thing)
            x = x + len(memo)
    return x


@table.snippet(args=lambda place: (t(place), A if place == 1 else C), recompiles=(1, 2))
def the_objects_of_a_set_from_outside(x, thing):
    copied = set(OUTSIDE)
    return x * (2 if thing in copied else 3)


@table.snippet(args=lambda place: (t(place), A if place == 1 else C), recompiles=(1, 2))
def from_outside_in_a_set_of_arguments(x, thing):
    own = {thing}
    return x * (2 + sum(1 for other in OUTSIDE if other in own))


@table.snippet(args=lambda place: (t(place), A if place == 1 else C), recompiles=(1, 2))
def keys_from_outside_in_a_dict_made_here(x, thing):
    copied = dict.fromkeys(OUTSIDE, 2.0)
    return x * copied.get(thing, 3.0), thing in copied


@table.snippet(args=lambda place: (t(place), [A, B], C if place == 0 else B), recompiles=(1,))
def what_came_in_at_once(x, things, last):
    memo = {C} if last is None else {A}
    first = A in memo
    memo.pop()
    memo.update(things[1:])
    return x * (2 if last in memo else 3) + first


@table.snippet(args=lambda place: (t(place), [A, B], C if place == 0 else B), recompiles=(1,))
def one_goes_and_one_comes(x, things, last):
    memo = {things[0]}
    found = [thing in memo for thing in things]
    memo ^= set(things)
    return x * (2 if last in memo else 3), found


@table.snippet(args=lambda place: (t(place), [A, B], C if place == 0 else A), recompiles=(1,))
def discarded_and_removed(x, things, last):
    memo = set(things)
    memo.discard(things[0])
    memo.add(things[0])
    memo.remove(things[1])
    return x * (2 if last in memo else 3) + (things[1] in memo)


@table.snippet(args=lambda place: (t(place), [(A, 1), (B, 1)], (C, 1) if place == 0 else (B, 1)), recompiles=(1,))
def tuples_with_objects(x, pairs, last):
    memo = set()
    for pair in pairs:
        if pair not in memo:
            memo.add(pair)
    return x * (2 if last in memo else 3)


@table.snippet(args=lambda place: (t(place), place + 0.5, 7 if place == 2 else 8), recompiles=(1, 2))
def numbers_among_objects(x, number, other):
    memo = {A}
    memo.add(number)
    memo.add(other)
    return x * (2 if 7 in memo else 3) + (0.5 in memo)


@table.snippet(args=lambda place: (t(place), [A, B], A if place == 1 else C), recompiles=(1, 2))
def objects_made_here_among_others(x, things, thing):
    memo = set()
    for _ in range(3):
        memo.add(Thing())
    memo.update(things)
    return x * (2 if thing in memo else 3), len(memo)


@table.snippet(breaks=True, args=lambda place: (t(place), [A, B], B if place == 1 else C), recompiles=(1, 2))
def filled_before_a_break(x, things, thing):
    memo = set()
    for one in things:
        if one not in memo:
            memo.add(one)
    x = x * 2
    print("between")
    memo.add(C)
    x = x + len(memo)
    return x * (2 if thing in memo else 3) + len({*memo, thing})


@table.snippet(args=lambda place: (t(place), [A, B, A if place == 1 else C]), recompiles=(1, 2))
def made_by_a_comprehension(x, things):
    return x * len({thing for thing in things}), x + len({*things})


@table.snippet(args=lambda place: (t(place), [A, B, A if place == 1 else C]), recompiles=(1, 2))
def a_set_that_takes_another_ones_place(x, things):
    count = 0
    for thing in things:
        memo = {thing}
        count += (things[0] in memo) + 2 * (B in memo)
        del memo
    return x * count


@table.snippet(args=lambda place: (t(place), [A, B], [A.__class__.__init__, B.__repr__], B if place == 1 else C), recompiles=(1, 2))
def bound_methods(x, things, methods, thing):
    memo = {thing.__repr__ for thing in things}
    return x * (2 if thing.__repr__ in memo else 3)


@table.program(recompiles=(1, 2), change={1: lambda state: state.tie(), 2: lambda state: state.untie()})
def parameters_that_become_one():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.own = self.second.weight

        def tie(self) -> None:
            self.second.weight = self.first.weight

        def untie(self) -> None:
            self.second.weight = self.own

        def forward(self, x):
            return self.second(self.first(x)) * len(list(self.parameters())), [name for name, _ in self.named_modules()]

    torch.manual_seed(0)
    model = Model()
    return model, model


@table.program(recompiles=(1, 2), change={1: lambda state: state.put(0), 2: lambda state: state.put(1)})
def modules_that_become_one():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Identity() for _ in range(3))
            self.all = list(self.parts)

        def put(self, which: int) -> None:
            self.parts[1] = self.all[which]

        def forward(self, x):
            return x * sum(1 for _ in self.modules())

    model = Model()
    return model, model


# Whole numbers: the order of the set is that of addresses.
WEIGHTS = [torch.arange(4.0) + n for n in range(3)]


# Behind the first break no guard covers the set.
@table.snippet(args=lambda place: (torch.arange(4.0),), breaks=True, min_graphs=0, recompiles=(1, 2), steady=False)
def tensors_of_a_set_with_a_break_at_each(x):
    for w in {*WEIGHTS, x}:
        x = x + w
        if x.sum().item() > 1e9:
            x = x * 2
    return x


@table.snippet(args=lambda place: (t(place), w := t(place + 1), w if place == 2 else t(place)), calls=4, recompiles=(1, 2, 3), min_graphs=0)
def a_tensor_added_to_a_set_from_outside(x, added, asked):
    ALONE.add(added)
    found = asked in ALONE
    ALONE.discard(added)
    return x * 2, found


# -- an object that is new at each call, and sometimes one of a set from outside ---------------------------------------------------
FROZEN = frozenset({A, B})
GROWING = {A}


def grow(x, thing):
    GROWING.add(thing)
    size = len(GROWING)
    if thing is not A:
        GROWING.discard(thing)
    return x * size


def shrink(x, thing):
    GROWING.discard(thing)
    size = len(GROWING)
    GROWING.add(A)
    return x * size


def remove(x, thing):
    try:
        GROWING.remove(thing)
    except KeyError:
        return x.sin()
    GROWING.add(A)
    return x.cos()


LOOKUPS = {
    "in": lambda x, thing: x * (2 if thing in OUTSIDE else 3),
    "not in": lambda x, thing: x * (2 if thing not in OUTSIDE else 3),
    "in_frozen": lambda x, thing: x * (2 if thing in FROZEN else 3),
    "contains": lambda x, thing: x * (2 if OUTSIDE.__contains__(thing) else 3),
    "contains_unbound": lambda x, thing: x * (2 if set.__contains__(OUTSIDE, thing) else 3),
    "superset": lambda x, thing: x * (2 if FROZEN.issuperset([thing]) else 3),
    "class": lambda x, thing: x * (2 if type(thing) in FROZEN else 3),
    "two": lambda x, thing: x * ((thing in OUTSIDE) + 2 * (Thing() in OUTSIDE)),
    "add": grow,
    "discard": shrink,
    "remove": remove,
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_new_objects_in_sets_from_outside(name: str, twin: str) -> None:
    lookup, given = LOOKUPS[name], [Thing() for _ in range(9)]
    given[4], given[6] = A, A
    steps = [Step(place, lambda place: (t(place), given[place])) for place in range(9)]
    # Not one program for each object.
    check(Program(f"new_object_{name}", lambda: (lookup, None), steps, frozenset({4}), min_graphs=0), twin)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_sets(program: Program, twin: str) -> None:
    check(program, twin)
