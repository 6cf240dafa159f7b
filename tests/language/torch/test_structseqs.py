"""Structseqs, tuples of C's with names for their items, which some operators return: made, read and passed on in captured code."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

import fineline
from tests.language.torch.test_torch_functions import Kept, Named
from tests.oracle import Table, check, t

table = Table()
MAX: Any = torch.return_types.max


def _values(found: Any) -> Any:
    return found.values + found[1]


BODIES: dict[str, Any] = {
    "returned": lambda x: x.max(1),
    "passed": lambda x: _values(torch.max(x, 1)),
    "unpacked": lambda x: (lambda values, indices: values + indices)(*x.sort(1)),
    "indexed": lambda x: (x.topk(2)[0], x.topk(2)[-1], x.topk(2)[:1]),
    "lengths": lambda x: (len(x.max(1)), x.max(1).n_fields, len(x.max(1).values), bool(x.max(1))),
    "classes": lambda x: (isinstance(x.max(1), tuple), isinstance(x.max(1), MAX), type(x.max(1)).__name__, isinstance(x.max(1), torch.return_types.min)),
    "made": lambda x: (MAX((x, x + 1)), MAX([x * 2, 1]).values),
    "made_of_a_generator": lambda x: MAX(a * 2 for a in x.max(1)),
    "made_alike": lambda x: (lambda found: type(found)([a + 1 for a in found]))(x.min(1)),
    "kept": lambda x: (lambda found: [found, found, {"a": found}])(MAX((x + 1, x))),
    "mapped": lambda x: (tree_map(lambda a: a * 2, x.sort(1)), [*map(torch.sin, x.sort(1))]),
    "in_tuples": lambda x: (x.max(1) + (1,), (0, *x.max(1))),
    "attributes": lambda x: (getattr(x.max(1), "values"), hasattr(x.max(1), "nothing"), [name for name in ("values", "count") if hasattr(MAX, name)]),
    "text": lambda x: (repr(x.max(1)), x + 1),
    "texts": lambda x: (lambda found: (str(found), f"{found}!", "%s" % (found,), repr(torch.sort(x, 1)), found.values + 1))(x.max(1)),
    "of_time": lambda x: (time.struct_time(range(9)).tm_year, x + time.struct_time([*range(9)])[1], time.struct_time((1,) * 9)),
    "of_svd": lambda x: torch.linalg.svd(x.abs() + 1).S,
    "as_a_key": lambda x: {x.max(1): 1}.popitem()[1] + x,
    "iterated": lambda x: [a + 1 for a in x.max(1)],
}


@pytest.mark.parametrize("body", BODIES)
def test_bodies(body: str, twin: str) -> None:
    own = Table()
    own.snippet(breaks=True, recompiles=(1,), tolerance=1e-6)(BODIES[body])
    check(own.programs[0], twin)


WRONG: dict[str, Any] = {
    "too_few": lambda: MAX((1,)),
    "too_many": lambda: MAX(range(3)),
    "no_sequence": lambda: MAX(3),
    "nothing": lambda: MAX(),
    "another_name": lambda: MAX((1, 2)).nothing,
    "written": lambda: setattr(MAX((1, 2)), "values", 3),
    "deleted": lambda: MAX((1, 2)).__delattr__("values"),
    "names": lambda: MAX(sequence=(1, 2)),
}


@pytest.mark.parametrize("body", WRONG)
def test_errors(body: str, twin: str) -> None:
    own, make = Table(), WRONG[body]

    @own.snippet(breaks=True)
    def fn(x: Any) -> Any:
        try:
            return make(), x + 1
        except (TypeError, AttributeError) as e:
            return x * 2, type(e).__name__, str(e)

    check(own.programs[0], twin)


class Both(Kept):
    def both(self) -> Any:
        found = self.max(1)
        return MAX((found.values * 2, found.indices))


class Sorted(Named):
    """Takes the structseqs that operators return apart, and makes them again."""

    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(fn, types, args, kwargs)
        if isinstance(found, tuple) and hasattr(found, "values"):
            return type(found)((found.values + 1, found.indices))
        return found


@table.snippet(args=lambda place: (t(place).as_subclass(Both),))
def from_a_method_of_a_class(x):
    a, b = x.both()
    return x.both(), a + 1, type(a).__name__, b, x.sort(0), type(x.topk(1)).__name__


@table.snippet(args=lambda place: (t(place).as_subclass(Sorted),))
def from_an_override(x):
    x.title = "x"
    found = x.sort(1)
    return found, found.values * 2, torch.topk(x, 2).values.title


@table.snippet(args=lambda place: (t(place).as_subclass(Kept).max(1),))
def given_with_a_class(found):
    return found.values * 2, type(found.values).__name__, found, len(found)


@table.snippet(args=lambda place: (t(place).max(1),))
def given(found):
    values, indices = found
    return values * found.indices, found, isinstance(found, MAX)


@table.snippet(args=lambda place: (time.gmtime(place * 1000),), recompiles=(1, 2), min_graphs=1)
def given_of_time(found):
    return torch.ones(2) * found.tm_sec, found.tm_min, len(found)


@table.snippet(breaks=True)
def alive_at_a_graph_break(x):
    found, made = x.max(1), MAX((x, [1]))
    fineline.graph_break()
    made.indices.append(2)
    return found.values + 1, made, found


@table.snippet(args=lambda place: (t(place, 3 + place, 4),), calls=4, recompiles=(1,))
def sizes_that_vary(x):
    found = MAX((x.sin(), x.shape[0]))
    return found, found.values * found.indices


@table.snippet(grad=True)
def with_gradients(x):
    found = MAX((x.sin(), x.max(1).values))
    return found.values.sum() + found[1].sum(), found


@table.snippet(max_graphs=1, options={"fullgraph": True})
def added(x):
    found = x.max(1)
    both = (found + (x, 1), (1,) + tuple(found), x.min(1) + found, MAX((x, 2)) + ())
    found += (3,)
    return both, found, type(found) is tuple


@table.snippet(args=lambda place: (t(place).max(1),), breaks=True)
def given_and_added(found):
    both = found + (1,)
    return both[0] * 2, both, found + found


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Any, twin: str) -> None:
    check(program, twin)


def test_tensors_are_no_structseqs() -> None:
    from fineline.objects.c_access import is_structseq

    assert is_structseq(MAX) and is_structseq(time.struct_time)
    assert not is_structseq(Tensor) and not is_structseq(tuple) and not is_structseq(torch.Size)
