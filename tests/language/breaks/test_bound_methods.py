"""Methods that C code binds: of Cython's functions, of pybind11's, of C types; called, kept and carried over graph breaks."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fineline
from tests.oracle import Program, Step, check, t


def number(a: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(a), dtype=torch.float32)


def rest(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = (x.cos() * 2).exp().log()
    return x


class Drawing(np.random.RandomState):
    pass


class Holder:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.bound = self.rng.uniform


def _twice(draw: Any) -> torch.Tensor:
    return number(draw(size=4)) + number(draw(size=4))


def _scaled(self: Any, by: float) -> float:
    return by * 2


# What CPython's C API makes of a function in a class: pybind11 puts such there.
instance_method: Any = ctypes.pythonapi.PyInstanceMethod_New
instance_method.restype, instance_method.argtypes = ctypes.py_object, [ctypes.py_object]


def _times(descriptor: Any, obj: Any, cls: type, x: torch.Tensor) -> torch.Tensor:
    return x * obj.by


class Fused:
    """A descriptor that C asks, and that gives another callable at each read, as Cython's fused functions do."""

    __get__ = functools.partial(functools.partial, _times)


class Described:
    by = 3
    scaled = instance_method(_scaled)
    times = Fused()


METHODS: dict[str, Any] = {
    "uniform": lambda s: number(s.rng.uniform(low=-1.0, high=1.0, size=(4,))),
    "normal": lambda s: number(s.rng.normal(0, 1, 4)),
    "integers": lambda s: number(s.rng.integers(0, 4, 4)),
    "an_integer": lambda s: int(s.rng.integers(3, 4)),
    "choice": lambda s: number(s.rng.choice([1.0, 2, 3], 4)),
    "permutation": lambda s: number(s.rng.permutation(4)),
    "shuffled": lambda s: (lambda a: (s.rng.shuffle(a), number(a))[1])([1.0, 2, 3, 4]),
    "of_a_random_state": lambda s: number(s.state.uniform(size=4)),
    "of_a_subclass": lambda s: number(s.drawing.uniform(size=4)),
    "kept_as_an_attribute": lambda s: number(s.holder.bound(size=4)),
    "of_an_attribute": lambda s: number(s.holder.rng.uniform(size=4)),
    "kept_in_a_variable": lambda s: _twice(s.rng.uniform),
    "kept_in_a_dict": lambda s: _twice({"u": s.rng.uniform}["u"]),
    "kept_in_a_list": lambda s: sum([number(draw(size=4)) for draw in [s.rng.uniform, s.rng.normal]]),
    "partial": lambda s: number(functools.partial(s.rng.normal, size=4)()),
    "partial_of_before": lambda s: number(s.partial()),
    "methodcaller": lambda s: number(operator.methodcaller("uniform", size=4)(s.rng)),
    "methodcaller_of_before": lambda s: number(s.caller(s.rng)),
    "unbound": lambda s: number(np.random.Generator.uniform(s.rng, size=4)),
    "by_its_name": lambda s: number(getattr(s.rng, "uniform")(size=4)),  # noqa: B009
    "mapped": lambda s: sum([number(a) for a in map(s.rng.uniform, [0, 0], [1, 1])]),
    "made_in_the_call": lambda s: number(np.random.default_rng(3).uniform(size=4)),
    "of_what_a_method_gives": lambda s: number(s.rng.spawn(1)[0].uniform(size=4)),
    "of_a_bit_generator": lambda s: s.rng.bit_generator.random_raw() % 1,
    "of_a_seed_sequence": lambda s: number(np.random.SeedSequence(5).generate_state(4) % 7),
    "of_a_hash": lambda s: (lambda h: (h.update(b"a"), len(h.digest()))[1])(hashlib.md5()),
    "of_python_s_generator": lambda s: s.random.getrandbits(3),
    "of_torch_s_generator": lambda s: torch.Generator().manual_seed(3).initial_seed(),
    "of_pybind": lambda s: (lambda f: (f.set_result(3), f.wait())[1])(torch.futures.Future()),
    "instance_method": lambda s: s.described.scaled(1.5),
    "instance_method_kept": lambda s: (lambda m: (s.rng.uniform(), m(1.5))[1])(s.described.scaled),
    "of_a_descriptor_of_its_own": lambda s: (lambda m: number(s.rng.uniform(size=4)) + m(torch.ones(4)))(s.described.times),
    "compared": lambda s: s.rng.uniform == s.rng.uniform,
}


class Sources:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.state = np.random.RandomState(0)
        self.drawing = Drawing(0)
        self.holder = Holder()
        self.partial = functools.partial(self.rng.normal, size=4)
        self.caller = operator.methodcaller("uniform", size=4)
        self.random = random.Random(0)
        self.described = Described()


def program(act: Any) -> Any:
    def make() -> Any:
        sources = Sources()

        def inner(x: torch.Tensor) -> torch.Tensor:
            return x * 2 + act(sources)

        def fn(x: torch.Tensor) -> torch.Tensor:
            return rest(inner(x.sin()))

        return fn

    return make


@pytest.mark.parametrize("method", METHODS)
def test_results(method: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place, 4),)) for place in range(4)]
    check(Program(method, program(METHODS[method]), steps, frozenset({1, 2, 3}), breaks=True, repeats=True), twin)


@pytest.mark.parametrize("method", METHODS)
def test_the_first_call_is_captured(method: str) -> None:
    told = fineline.explain(program(METHODS[method])())(torch.ones(4))
    assert not [event for event in told.events if event.id in ("FL409", "FL901")]
    assert told.ran["captured"] >= 12


# Iterators of which fineline has its own in Python: each is made of the list that the call is given.
ITERATORS: dict[str, Callable[[list], Any]] = {
    "map": lambda v: map(str, v),
    "filter": lambda v: filter(None, v),
    "zip": lambda v: zip(map(str, v), v),
    "enumerate": lambda v: enumerate(map(str, v)),
    "chain": lambda v: itertools.chain(map(str, v), [0]),
    "islice": lambda v: itertools.islice(map(str, v), 9),
    "accumulate": lambda v: itertools.accumulate(map(str, v)),
    "cycle": lambda v: itertools.cycle(map(str, v)),
    "a generator": lambda v: (str(k) for k in v),
    "a list's": lambda v: iter(v),
    "a range": lambda v: iter(range(v[0])),
}
eagerly = fineline.disable(lambda call: call())


def alone(it: Any, x: torch.Tensor) -> Any:
    following = it.__next__
    del it
    fineline.graph_break()
    return x + 1, [following(), following()]


def beside_the_object(it: Any, x: torch.Tensor) -> Any:
    following = it.__next__
    fineline.graph_break()
    return x + 1, [following(), next(it), following.__self__ is it]


def in_a_list(it: Any, x: torch.Tensor) -> Any:
    found = [it.__next__, 0]
    del it
    fineline.graph_break()
    found[1] = found[0]()
    fineline.graph_break()
    return x + 1, found[1], next(found[0].__self__)


def of_eager_code(it: Any, x: torch.Tensor) -> Any:
    following = it.__next__
    first = eagerly(following)
    return x + 1, first, following()


def in_a_generator(it: Any, x: torch.Tensor) -> Any:
    def given() -> Any:
        following = it.__next__
        yield following()
        yield from itertools.islice(following.__self__, 2)

    found = given()
    first = next(found)
    fineline.graph_break()
    return x + 1, first, list(found)


@pytest.mark.parametrize("use", [alone, beside_the_object, in_a_list, of_eager_code, in_a_generator], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("kind", ITERATORS)
def test_methods_of_iterators(kind: str, use: Callable, twin: str) -> None:
    def make() -> Callable:
        into = ITERATORS[kind]
        return lambda x, values: use(into(values), x)

    lists = ([3, 2, 7], [7, 2, 3], [4, 9, 2], [9, 1, 5], [8, 8, 8])
    steps = [Step(place, lambda place: (t(place, 3), list(lists[place]))) for place in range(len(lists))]
    check(Program(f"{use.__name__} of {kind}", make, steps, frozenset(range(len(lists))), min_graphs=0, breaks=True, backward=False), twin)
