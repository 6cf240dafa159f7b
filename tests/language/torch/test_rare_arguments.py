"""Arguments of kinds that operators are seldom given, sets of objects from before, and names that imports do not find."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()

Pair = namedtuple("Pair", "a b")
Size = namedtuple("Size", "rows columns")


@table.snippet()
def operators_on_named_tuples(x):
    return torch.cat(Pair(x, x * 2)), x.new_zeros(Size(2, 3)) + 1, torch.stack(Pair(a=x, b=x + 1), 0)


@table.snippet(args=lambda i: (t(i, 2, 3, 4),))
def ranges_for_dimensions(x):
    return x.permute(range(2, -1, -1)), x.sum(range(1, 3)), torch.zeros(range(2, 4)) + 1


@table.snippet(args=lambda i: (t(i, 2, 3),))
def types_of_tensors(x):
    return x.type(torch.DoubleTensor), x.type("torch.IntTensor"), x.type(torch.float16) * 2, x.to(torch.int64).type(), x.type_as(x.double())


@table.snippet(args=lambda i: (t(i, 4, 5),))
def indices_of_many_kinds(x):
    keys = [True, None, ..., slice(1, None, 2), [0, 2], (slice(None), [1, 1]), torch.tensor([1, 0]), range(2), Pair(0, 1), [True, False, True, False]]
    found = [x[key] for key in keys]
    y = x.clone()
    y[range(2)] = 1
    y[Pair(0, 1)] = 5
    return found, y


@table.program()
def sets_of_objects_from_before():
    class One:
        pass

    known = {One(), One()}
    first = next(iter(known))

    def fn(x):
        return x + len(known), first in known, One() in known, sorted([type(o).__name__ for o in known])

    return fn, known


@table.snippet()
def imports_of_many_kinds(x):
    def missing_name():
        from collections import nothing_such  # noqa: F401

    def missing_module():
        import no_such_module_at_all  # noqa: F401

    def found():
        from collections import abc
        from os import path as p

        from torch import nn as layers
        from torch.nn import (
            functional,
            of_nothing,  # noqa: F401
        )

        return abc, p, layers, functional

    said = []
    for fn in (missing_name, missing_module, found):
        try:
            fn()
        except ImportError as e:
            said.append((type(e).__name__, str(e), e.name))
    return x + 1, said


@fineline.allow_in_graph
def held(pair, by_name, where):
    return {"sum": pair.a + pair.b, "part": by_name["x"][where], "both": Pair(pair.a * 2, pair.b)}


@table.snippet(args=lambda i: (t(3),))
def one_node_that_takes_and_gives_containers(x):
    made = held(Pair(x, x + 1), {"x": x * 3}, slice(0, 2))
    return made["sum"] + 1, made["part"], made["both"].a, made


@table.snippet()
def ordered_dicts_in_and_out(x):
    d = OrderedDict(a=x, b=x + 1)
    d.move_to_end("a")
    d |= {"c": x * 2}
    e = {**d, "a": 3}
    return list(d), d.popitem(last=False)[0], list(reversed(d)), e["c"] + 1, d == OrderedDict(c=d["c"], a=d["a"]), d


@table.snippet()
def text_of_many_kinds(x):
    n = x.shape[0]
    spec = ">5"
    return x + 1, f"{n:{spec}}|{n!r:>4}|{'é'!a}|{n:,}|{1.5:{n}.{1}f}", "%s-%r" % (n, "a"), "%(a)d" % {"a": n}, "{0} {a.real}".format(n, a=n)


@table.snippet(args=lambda i: (t(3), [1, 2, 3]))
def deletions_and_slices(x, given):
    own = list(range(10))
    del own[::3]
    own[2:4] = (9, 9, 9)
    own[:0] = x.shape
    own *= 2
    given[1:] = own[:2]
    del given[0]
    a, *b, c = own
    (d, e), [f] = (1, 2), [3]
    return x * c, own, given, b, d + e + f, own.index(9, 3), own.count(9)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_seldom_given(program: Program, twin: str) -> None:
    check(program, twin)
