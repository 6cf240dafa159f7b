"""The fixed parts of a random program: prelude, classes, what may change between calls, ``make`` and ``args``."""

from __future__ import annotations

from typing import Any

CALLS = 5
PRELUDE = """\
import contextlib
import itertools
from contextvars import ContextVar
from types import SimpleNamespace

import numpy as np
import torch

import fineline

LOG = []
ROWS = 2
G_INT = 2
G_LIST = [1, 2]
G_DICT = {"a": 1, "b": 2}


def tensor(seed, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, 3, generator=generator, device="cpu").requires_grad_(grad)


def fitted(value):
    # The value, with as many rows in its tensors as this call's arguments have.
    if isinstance(value, torch.Tensor):
        if value.shape == (ROWS, 3) or value.dim() == 0:
            return value
        try:
            new = torch.ones(ROWS, 3, device="cpu").mul(value.detach().mean()).requires_grad_(value.requires_grad)
            return new if type(new) is type(value) else new.as_subclass(type(value))
        except Exception:  # a subclass that cannot
            return tensor(99)
    if isinstance(value, np.ndarray):
        return value if value.shape[:1] in ((), (ROWS,)) else np.resize(value, (ROWS, 3))
    if isinstance(value, list):
        value[:] = [fitted(v) for v in value]
    elif isinstance(value, dict):
        value.update({k: fitted(v) for k, v in value.items()})
    elif isinstance(value, (Base, SimpleNamespace)):
        fitted(vars(value))
    return value


def attempt(change):
    # Earlier changes may have made this one impossible.
    def run():
        try:
            change()
        except Exception as error:
            LOG.append(type(error).__name__)

    return run


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
    "None",
    "None",
    "None",
    "setattr(state, 'n', 5)",
    "setattr(state, 'n', 1)",
    "setattr(state.o, 'n', 4)",
    "state.items.append(1)",
    "state.ts.append(tensor(31))",
    "setattr(Base, 'k', 6)",
    "setattr(Sub, 'k', 2)",
    "setattr(state, 'o', Sub(tensor(32), 1))",
    "G_DICT.update(a=7)",
    "G_LIST.insert(0, 9)",
    "G_LIST.clear()",
    "globals().update(G_INT=6)",
    "setattr(state, 't', tensor(33, True))",
    "setattr(state.o, 'maybe', 2)",
    "state.d.update(q=tensor(34))",
    "setattr(Base, 'm', lambda self, a, k=1: a - k)",
    "state.items.clear()",
    "setattr(fn, '__defaults__', (4,))",
    "setattr(state, 'o', Base(tensor(35)))",
    "state.d.pop('a', None)",
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


FOR_KINDS = """\
    state.a, state.around = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3), []
"""
# What is compiled is hidden from the oracle: run eagerly, it is another object.
COMPILED = """
    compiled = ContextVar("compiled", default=compiler[0](fn))

    def call(*given):
        with contextlib.ExitStack() as stack:
            for mode in list(state.around):
                stack.enter_context(mode)
            return compiled.get()(*given)
"""
TWICE = """
def twin_of(state):
    return MADE[state is MADE[0]]


def make(*compiler):
    calls, states = zip(*[make_one(*compiler) for _ in range(2)])

    def both(*given):
        results = []
        for call in calls:
            try:
                results.append(call(*given))
            except Exception as error:
                results.append((type(error).__name__, str(error)))
        return results

    def changed(place):
        return lambda: states[place % 2].changes[place]()

    return both, SimpleNamespace(states=states, changes=[changed(place) for place in range(len(states[0].changes))])
"""


def tail(
    lines: list[str], result: str, changes: list[str], given: list[Any], grad: bool, marks: list[str],
    made: list[str], special: bool, twice: bool, raw: bool,
) -> str:  # fmt: skip
    return f"""\


MADE = []


def {"make_one" if twice else "make"}(*compiler):
    cell = 1
    state = SimpleNamespace(
        n=1, t=tensor(20), ts=[tensor(21), tensor(22)], d={{"a": tensor(23)}}, o=Base(tensor(24), 2), items=[1], seen=set(), log=LOG
    )
{FOR_KINDS if special else ""}
    with contextlib.suppress(Exception):  # two kinds may not go together
        {(chr(10) + "        ").join(made) or "pass"}

    def fn(x, y, xs, d, n=1, r=0.5):
        nonlocal cell
        global G_INT
{chr(10).join(lines)}
        return {result}

    MADE.append(state)
    state.changes = [
        {("," + chr(10) + "        ").join(changes)},
    ]
{COMPILED if raw else ""}
    return {"call" if raw else "fn"}, state

{TWICE if twice else ""}

def args(place):
    global ROWS
    n, length, alias, same, ROWS, r = {given!r}[place]
    with torch._C.DisableTorchFunction():
        for state in MADE:
            fitted(state)
    x, y = tensor(place, {grad}), tensor(place + 10)
    if same:
        y = x
    xs = [tensor(place * 10 + k + 40) for k in range(length)]
    d = {{"a": xs[0] if alias and xs else tensor(place + 60), "b": tensor(place + 70)}}
    {(chr(10) + "    ").join(marks) or "pass"}
    return (x, y, xs, d) if n == 1 and r == 0.5 else (x, y, xs, d, n, r)
"""
