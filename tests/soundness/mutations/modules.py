"""Guard mutations of Python modules, and of functions that are not run through."""

from __future__ import annotations

import types
import typing
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import fineline
from tests.soundness.mutations.cases import Cases, X, argument, attr, double, triple

CASES = Cases()
case = CASES.add


@case
def module_attribute():
    m = types.ModuleType("m")
    m.n = 2
    return lambda x: x * m.n, (X,), attr(m, "n", 3)


@case
def module_function_patched():
    m = types.ModuleType("m")
    m.f = double
    return lambda x: m.f(x), (X,), attr(m, "f", triple)


@case
def module_getattr_added():
    m = types.ModuleType("m")
    return lambda x: x * getattr(m, "n", 1), (X,), attr(m, "__getattr__", lambda name: 4)


@case
def module_getattr_replaced():
    m = types.ModuleType("m")
    m.__getattr__ = lambda name: 4
    return lambda x: x * m.n, (X,), attr(m, "__getattr__", lambda name: 5)


@case
def functional_patched():
    import torch.nn.functional as F

    return lambda x: F.relu(x - 3), (X,), attr(F, "relu", F.gelu)


def _yes() -> bool:
    return True


def _second(a: Any, b: Any) -> Any:
    return b + 1


def _scaled(k: float) -> Any:
    held = [k]
    return lambda x: x * held[0]


# What is not run through: another function in its place has the same type, and perhaps the same code.
for _name, _read, _before, _after in [
    ("functional", lambda x, f: f(x - 3), torch.nn.functional.relu, torch.nn.functional.elu),
    ("function_answered_by_the_interpreter", lambda x, f: x * f(int, 3), typing.cast, _second),
    ("query_answered_by_the_interpreter", lambda x, f: x * (3 if f() else 2), torch.jit.is_scripting, _yes),
    ("ufunc", lambda x, f: x * f(3, 2).item(), np.add, np.subtract),
    ("graph_break", lambda x, f: x * (f() or 2), fineline.graph_break, lambda: 3),
    ("disabled_function", lambda x, f: f(x), fineline.disable(double), fineline.disable(triple)),
    ("disabled_frame", lambda x, f: f(x), fineline.disable(double, recursive=False), fineline.disable(triple, recursive=False)),
    ("disabled_closure", lambda x, f: f(x), fineline.disable(_scaled(2), recursive=False), fineline.disable(_scaled(3), recursive=False)),
    ("function_with_a_mark_of_torch", lambda x, f: f(x), torch.compiler.disable(double), torch.compiler.disable(triple)),
    ("function_that_torch_compiled", lambda x, f: f(x), torch.compile(double), torch.compile(triple)),
    ("constant_function", lambda x, f: x * f(), fineline.assume_constant_result(lambda: 2), lambda: 3),
]:
    def _held_case(read=_read, before=_before, after=_after):
        s = SimpleNamespace(f=before)
        return lambda x: read(x, s.f), (X,), attr(s, "f", after)

    CASES[f"{_name}_as_an_argument"] = lambda read=_read, before=_before, after=_after: argument(read, before, after)
    CASES[f"{_name}_as_an_attribute"] = _held_case
