"""Pickles of plain values, which libraries take for the keys of their caches."""

from __future__ import annotations

import pickle

import pytest

from tests.oracle import Program, Table, check, t

table = Table()
# On fakes equal texts become one constant.
LIVE = ("captured", "borders", "counted", "reference")


@table.snippet(args=lambda p: (t(p), {"a": p // 2, "b": (1.5, None, [b"x"])}), recompiles=(2,))
def plain_values(x, options):
    return x + 1, pickle.dumps({}), pickle.dumps(options), pickle.dumps((), 2), pickle.dumps([1, 2], protocol=4)


@table.program(calls=4, recompiles=(1,))
def keys_of_a_cache():
    cache = {}

    def cached(x, **kwargs):
        key = ("cached", pickle.dumps(kwargs))
        if key not in cache:
            cache[key] = kwargs.get("scale", 1) * 2
        return x * cache[key]

    return lambda x: (cached(x), cached(x, scale=3), cached(x, scale=4), cached(x)), cache


@table.snippet(args=lambda p: (t(p), "ab" * p, "".join(["ab"] * p)), breaks=True, recompiles=(1, 2), twins=LIVE)
def the_same_text_or_an_equal_one(x, a, b):
    y = x + 1
    return y, pickle.dumps([a, b])


@table.snippet(args=lambda p: (t(p), [1]), breaks=True)
def what_holds_itself_and_functions_and_sizes(x, a):
    a.append(a)
    y = x + 1
    return y, pickle.dumps(a), pickle.dumps(print), pickle.dumps(x.shape)


@table.snippet()
def arguments_that_do_not_fit(x):
    with pytest.raises(TypeError):
        pickle.dumps()
    with pytest.raises(TypeError):
        pickle.dumps(1, 5, 6)
    return x + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)
