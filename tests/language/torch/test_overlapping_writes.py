"""Writes that eager code refuses at each size, and behind compilers that make them: into memory that the operator reads, or that lies on itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import TWINS, Program, Step, Table, check

table = Table()


def item_set(y):
    y[1:] = y[:-1]


def item_added(y):
    y[:-1] += y[1:]


def with_indices(y):
    y[torch.arange(y.shape[0])] = y


def transposed(y):
    square = y[:4].view(2, 2)
    square.add_(square.t())


def disjoint(y):
    y[:2] = y[2:4]
    y[:2].add_(y[2:4])


def all_of_it(y):
    y.mul_(y)
    y[:].add_(y)
    torch.mul(y, 2, out=y)


def with_gaps(y):
    y[::2].add_(y[::2] * 1)
    y[0:4:2].mul_(y[1:5:2])


def expanded(y):
    return y[:1].expand(y.shape[0])


def item_of_expanded(y):
    expanded(y)[:] = y


BODIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda y: y[1:].add_(y[:-1]),
    "copy_": lambda y: y[1:].copy_(y[:-1]),
    "lerp_": lambda y: y[1:].lerp_(y[:-1], 0.5),
    "clamp_": lambda y: y[1:].clamp_(min=y[:-1]),
    "mul out": lambda y: torch.mul(y[:-1], 2, out=y[1:]),
    "cumsum out": lambda y: torch.cumsum(y[:-1], 0, out=y[1:]),
    "where out": lambda y: torch.where(y[1:] > 0, y[1:], y[:-1], out=y[1:]),
    "cat out": lambda y: torch.cat([y[:2], y[2:]], out=y),
    "gather out": lambda y: torch.gather(y, 0, torch.arange(y.shape[0]), out=y),
    "scatter_": lambda y: y.scatter_(0, torch.arange(y.shape[0]), y),
    "index_copy_": lambda y: y.index_copy_(0, torch.arange(y.shape[0]), y),
    "foreach": lambda y: torch._foreach_add_([y[1:]], [y[:-1]]),
    "an item set": item_set,
    "an item added to": item_added,
    "an item set by indices": with_indices,
    "transposed": transposed,
    "disjoint": disjoint,
    "all of it": all_of_it,
    "with gaps": with_gaps,
    "expanded: mul_": lambda y: expanded(y).mul_(0.5),
    "expanded: copy_": lambda y: expanded(y).copy_(y),
    "expanded: clamp_": lambda y: expanded(y).clamp_(max=1),
    "expanded: addcmul_": lambda y: expanded(y).addcmul_(y, y),
    "expanded: out": lambda y: torch.add(y, y, out=expanded(y)),
    "expanded: foreach": lambda y: torch._foreach_mul_([expanded(y)], 2),
    "expanded: an item set": item_of_expanded,
    "expanded: fill_": lambda y: expanded(y).fill_(3),
    "expanded: zero_": lambda y: expanded(y).zero_(),
    "expanded: masked_fill_": lambda y: expanded(y).masked_fill_(y > 2, 3),
    "expanded: tril_": lambda y: y[:1].expand(3, 3).tril_(),
    "expanded: foreach zero": lambda y: torch._foreach_zero_([expanded(y)]),
    "expanded: full out": lambda y: torch.full((y.shape[0],), 3.0, out=expanded(y)),
    "expanded: one item": lambda y: operator.setitem(expanded(y), 2, y[3]),
    "expanded: a view of one item": lambda y: expanded(y)[2].mul_(3),
    "expanded: items by a mask": lambda y: operator.setitem(expanded(y), y > 4, 7),
    "strides of one": lambda y: y.as_strided((3, 2), (1, 1)).mul_(2),
    "strides of one, filled": lambda y: y.as_strided((3, 2), (1, 1)).fill_(2),
    "windows": lambda y: y.unfold(0, 2, 1).mul_(2),
}

# Eager code makes these writes, and AOTAutograd's graph other operators for them: a new tensor, and a copy.
WRITTEN = frozenset({"disjoint", "all of it", "with gaps", "expanded: one item", "expanded: a view of one item"})


def register(name: str, handled: bool) -> None:
    def make():
        body = BODIES[name]

        def under_a_handler(x):
            y = x * 2
            try:
                body(y)
            except RuntimeError:
                return y + 1, "refused"
            return y, "written"

        def plain(x):
            y = x * 2
            body(y)
            return y

        return under_a_handler if handled else plain

    make.__name__ = name if handled else f"{name}, unhandled"
    steps = [Step(place, lambda place: (torch.arange(float(5 + place)),)) for place in range(4)]
    options: dict[str, Any] = {"recompiles": frozenset({1, 2, 3}), "breaks": True, "repeats": True, "backward": False, "min_graphs": 0}
    if name in WRITTEN:
        options["twins"] = tuple([twin for twin in TWINS if twin != "counted"])
    table.programs.append(Program(make.__name__, make, steps, options={"backend": "aot_eager"}, **options))


for each in BODIES:
    register(each, True)
for each in BODIES:
    if each in ("add_", "mul out", "an item set", "scatter_") or each.startswith(("expanded", "strides", "windows")):
        register(each, False)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_overlapping_writes(program: Program, twin: str) -> None:
    check(program, twin)
