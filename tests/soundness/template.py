"""The fixed parts of a random program: prelude, classes, what may change between calls, ``make`` and ``args``."""

from __future__ import annotations

from typing import Any

CALLS = 5
PRELUDE = """\
import contextlib
import itertools
from types import SimpleNamespace

import torch

import fineline

LOG = []
ROWS = 2
G_INT = 2
G_LIST = [1, 2]
G_DICT = {"a": 1, "b": 2}


def tensor(seed, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, 3, generator=generator).requires_grad_(grad)


def fitted(value):
    # The value, with as many rows in its tensors as this call's arguments have.
    if isinstance(value, torch.Tensor):
        fits = value.shape == (ROWS, 3) or value.dim() == 0
        return value if fits else torch.ones(ROWS, 3).mul(value.detach().mean()).requires_grad_(value.requires_grad)
    if isinstance(value, list):
        value[:] = [fitted(v) for v in value]
    elif isinstance(value, dict):
        value.update({k: fitted(v) for k, v in value.items()})
    elif isinstance(value, (Base, SimpleNamespace)):
        fitted(vars(value))
    return value


class Oops(Exception):
    pass


@contextlib.contextmanager
def scope(name):
    LOG.append("+" + name)
    try:
        yield name
    finally:
        LOG.append("-" + name)


class Swallow:
    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, self.kind)

"""
EXTRAS = ["pass", "def __len__(self): return self.n % 2", "def __getattr__(self, name):\n        raise AttributeError(name)"]
SETTERS = ["self.v = value * 2", "self.__dict__['v'] = value", "self.n += 1\n        self.v = value"]
OVERRIDES = [
    "pass",
    "def m(self, a, k=2):\n        return super().m(a, k) + self.n",
    "k = 4",
    "@property\n    def p(self): return self.v.sin()",
]
CHANGES = [
    "lambda: None",
    "lambda: None",
    "lambda: None",
    "lambda: setattr(state, 'n', 5)",
    "lambda: setattr(state, 'n', 1)",
    "lambda: setattr(state.o, 'n', 4)",
    "lambda: state.items.append(1)",
    "lambda: state.ts.append(tensor(31))",
    "lambda: setattr(Base, 'k', 6)",
    "lambda: setattr(Sub, 'k', 2)",
    "lambda: setattr(state, 'o', Sub(tensor(32), 1))",
    "lambda: G_DICT.update(a=7)",
    "lambda: G_LIST.insert(0, 9)",
    "lambda: G_LIST.clear()",
    "lambda: globals().update(G_INT=6)",
    "lambda: setattr(state, 't', tensor(33, True))",
    "lambda: setattr(state.o, 'maybe', 2)",
    "lambda: state.d.update(q=tensor(34))",
    "lambda: setattr(Base, 'm', lambda self, a, k=1: a - k)",
    "lambda: state.items.clear()",
    "lambda: setattr(fn, '__defaults__', (4,))",
    "lambda: setattr(state, 'o', Base(tensor(35)))",
    "lambda: state.d.pop('a', None)",
]


def classes(extra: str, setter: str, override: str, counts: bool) -> str:
    return f"""\
def raise_oops(value):
    raise Oops(value)


class Base:
    k = 3

    def __init__(self, v, n=0):
        self.v = v
        self.n = n
        self.items = []

    def m(self, a, k=1):
        self.n += {int(counts)}
        return a * k + self.v

    @property
    def p(self):
        return self.v * self.k

    @p.setter
    def p(self, value):
        {setter}

    def __add__(self, other):
        return self.v + other

    {extra}


class Sub(Base):
    {override}

"""


def tail(lines: list[str], result: str, changes: list[str], given: list[Any], grad: bool, marks: list[str]) -> str:
    return f"""\


def make():
    cell = 1
    state = SimpleNamespace(
        n=1, t=tensor(20), ts=[tensor(21), tensor(22)], d={{"a": tensor(23)}}, o=Base(tensor(24), 2), items=[1], seen=set(), log=LOG
    )

    def fn(x, y, xs, d, n=1, r=0.5):
        nonlocal cell
        global G_INT
{chr(10).join(lines)}
        return {result}

    globals()["made"] = state
    state.changes = [
        {("," + chr(10) + "        ").join(changes)},
    ]
    return fn, state


def args(place):
    global ROWS
    n, length, alias, same, ROWS, r = {given!r}[place]
    fitted(made)
    x, y = tensor(place, {grad}), tensor(place + 10)
    if same:
        y = x
    xs = [tensor(place * 10 + k + 40) for k in range(length)]
    d = {{"a": xs[0] if alias and xs else tensor(place + 60), "b": tensor(place + 70)}}
    {(chr(10) + "    ").join(marks) or "pass"}
    return (x, y, xs, d) if n == 1 and r == 0.5 else (x, y, xs, d, n, r)
"""
