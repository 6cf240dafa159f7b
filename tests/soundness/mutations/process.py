"""Guard mutations of what a process holds: imported modules, settings of the interpreter and of its library, random state."""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import decimal
import gc
import locale
import logging
import math
import os
import random
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tests.soundness.mutations.cases import Cases, X, attr, attr_name, doing, setting

CASES = Cases()
case = CASES.add
MODULE = "fineline_test_module"


def module(n: int) -> types.ModuleType:
    m = types.ModuleType(MODULE)
    m.n = n
    m.__path__ = []
    return m


def imported() -> int:
    try:
        import fineline_test_module

        return fineline_test_module.n
    except ImportError:
        return 4


def imported_name() -> int:
    try:
        from fineline_test_module import n

        return n
    except ImportError:
        return 4


def imported_by_name() -> int:
    try:
        return __import__(MODULE).n
    except ImportError:
        return 4


def warned() -> int:
    try:
        warnings.warn("told", UserWarning, stacklevel=1)
    except UserWarning:
        return 3
    return 2


def environment() -> Any:
    return doing(lambda: os.environ.__setitem__("FINELINE_X", "abc"), lambda: os.environ.pop("FINELINE_X"))


@contextlib.contextmanager
def filters(action: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        yield


@contextlib.contextmanager
def with_module(n: int | None) -> Iterator[None]:
    sys.modules[MODULE] = module(2)
    try:
        if n is None:
            del sys.modules[MODULE]
        else:
            sys.modules[MODULE] = module(n)
        yield
    finally:
        sys.modules[MODULE] = FIRST


FIRST = module(2)
LOGGER = logging.getLogger("fineline_test")


for _name, _read, _change in [
    ("module_imported", lambda x: x * imported(), lambda: with_module(7)),
    ("module_imported_and_gone", lambda x: x * imported(), lambda: with_module(None)),
    ("module_name_imported", lambda x: x * imported_name(), lambda: with_module(7)),
    ("module_name_imported_changed", lambda x: x * imported_name(), lambda: attr(FIRST, "n", 7)),
    ("module_name_imported_deleted", lambda x: x * imported_name(), lambda: attr(FIRST, "n")),
    ("module_imported_by_name", lambda x: x * imported_by_name(), lambda: with_module(7)),
    ("module_looked_up", lambda x: x * sys.modules[MODULE].n, lambda: with_module(7)),
    ("module_asked_for", lambda x: x * (2 if MODULE in sys.modules else 3), lambda: with_module(None)),
    ("constant_of_math", lambda x: x * math.pi, lambda: attr(math, "pi", 3)),
    ("function_of_math", lambda x: x * math.floor(2.5), lambda: attr(math, "floor", math.ceil)),
    ("builtin_added", lambda x: x * (2 if "later" in vars(builtins) else 3), lambda: attr(builtins, "later", 1)),
    ("environment_item", lambda x: x * len(os.environ["FINELINE_X"] if "FINELINE_X" in os.environ else "ab"), lambda: environment()),
    ("environment_by_getenv", lambda x: x * len(os.getenv("FINELINE_X", "ab")), lambda: environment()),
    ("environment_asked_for", lambda x: x * (2 if "FINELINE_X" in os.environ else 3), lambda: environment()),
    ("recursion_limit", lambda x: x * sys.getrecursionlimit(), lambda: setting(sys.setrecursionlimit, 5000, sys.getrecursionlimit())),
    ("arguments_of_the_process", lambda x: x * len(sys.argv), lambda: doing(lambda: sys.argv.append("x"), sys.argv.pop)),
    ("search_path", lambda x: x * len(sys.path), lambda: doing(lambda: sys.path.append("x"), sys.path.pop)),
    ("switch_interval", lambda x: x * sys.getswitchinterval(), lambda: setting(sys.setswitchinterval, 0.5, sys.getswitchinterval())),
    ("collector_enabled", lambda x: x * (2 if gc.isenabled() else 3), lambda: doing(gc.disable, gc.enable)),
    ("name_of_the_thread", lambda x: x * len(threading.current_thread().name), lambda: attr_name(threading.current_thread(), "name", "t")),
    ("decimal_precision", lambda x: x * decimal.getcontext().prec, lambda: attr_name(decimal.getcontext(), "prec", 5)),
    ("random_seed", lambda x: x * random_now(), lambda: attr_name(SEED, "n", 7)),
    ("random_seed_of_numpy", lambda x: x * float(numpy_now()), lambda: attr_name(SEED, "n", 7)),
    ("random_instance", lambda x: x * random.Random(SEED.n).random(), lambda: attr_name(SEED, "n", 7)),
    ("random_seed_of_torch", lambda x: x * torch.rand(1, generator=torch.Generator().manual_seed(SEED.n)), lambda: attr_name(SEED, "n", 7)),
    ("context_variable", lambda x: x * VARIABLE.get(), lambda: held(VARIABLE, 7)),
    ("context_variable_without_a_value", lambda x: x * UNSET_VARIABLE.get(3), lambda: held(UNSET_VARIABLE, 7)),
    ("context_variable_with_a_default", lambda x: x * DEFAULT_VARIABLE.get(), lambda: held(DEFAULT_VARIABLE, 7)),
    ("context_variable_that_is_set", lambda x: (UNSET_VARIABLE.reset(UNSET_VARIABLE.set(5)), x * UNSET_VARIABLE.get(3)), lambda: held(UNSET_VARIABLE, 7)),
    ("initial_seed", lambda x: x * (torch.initial_seed() % 5 + 1), lambda: attr(torch, "initial_seed", lambda: 3)),
    ("level_of_a_logger", lambda x: x * LOGGER.level, lambda: setting(LOGGER.setLevel, 10, 0)),
    ("logger_enabled", lambda x: x * (2 if LOGGER.isEnabledFor(20) else 3), lambda: setting(LOGGER.setLevel, 10, 0)),
    ("logging_disabled", lambda x: x * (2 if LOGGER.isEnabledFor(40) else 3), lambda: setting(logging.disable, 50, 0)),
    ("level_of_the_root_logger", lambda x: x * LOGGER.getEffectiveLevel(), lambda: setting(logging.getLogger().setLevel, 10, logging.getLogger().level)),
    ("handlers_of_a_logger", lambda x: x * (1 + len(LOGGER.handlers)),
     lambda: doing(lambda: LOGGER.addHandler(NULL), lambda: LOGGER.removeHandler(NULL))),
    ("warning_filters", lambda x: x * warned(), lambda: filters("error")),
    ("warning_filters_read", lambda x: x * len(warnings.filters), lambda: filters("error")),
    ("warning_function", lambda x: x * warned(), lambda: attr(warnings, "warn", lambda *a, **k: exec("raise UserWarning"))),
    ("decimal_point", lambda x: x * len(locale.localeconv()["decimal_point"]), lambda: attr(locale, "localeconv", lambda: {"decimal_point": "abc"})),
    ("current_directory", lambda x: x * len(os.getcwd()), lambda: setting(os.chdir, "/", os.getcwd())),
    ("trace_function", lambda x: x * (2 if sys.gettrace() is None else 3), lambda: doing(lambda: sys.settrace(lambda *a: None), lambda: sys.settrace(None))),
    ("print_options", lambda x: x * len(np.array2string(np.ones(1) / 3)), lambda: np.printoptions(precision=2)),
    ("errors_of_numpy", lambda x: x * len(np.geterr()["divide"]), lambda: np.errstate(divide="raise")),
    ("add_of_tensors_patched", lambda x: x + 1, lambda: attr(torch.Tensor, "__add__", lambda a, b: a * 7)),
    ("method_of_tensors_patched", lambda x: x.relu(), lambda: attr(torch.Tensor, "relu", lambda a: a * 7)),
    ("property_of_tensors_patched", lambda x: x.T, lambda: attr(torch.Tensor, "T", property(lambda a: a * 7))),
    ("matmul_of_tensors_patched", lambda x: x @ x.t(), lambda: attr(torch.Tensor, "__matmul__", lambda a, b: a * 7)),
    ("item_of_tensors_patched", lambda x: x[0], lambda: attr(torch.Tensor, "__getitem__", lambda a, b: a * 7)),
    ("comparison_of_tensors_patched", lambda x: x > 1, lambda: attr(torch.Tensor, "__gt__", lambda a, b: a * 7)),
    ("iteration_of_tensors_patched", lambda x: torch.stack(list(x)), lambda: attr(torch.Tensor, "__iter__", lambda a: iter([a[0] * 7]))),
    ("length_of_tensors_patched", lambda x: x * len(x), lambda: attr(torch.Tensor, "__len__", lambda a: 7)),
    ("truth_of_tensors_patched", lambda x: x * 2 if x.sum() > 0 else x, lambda: attr(torch.Tensor, "__bool__", lambda a: False)),
    ("reflected_of_tensors_patched", lambda x: 1 - x, lambda: attr(torch.Tensor, "__rsub__", lambda a, b: a * 7)),
    ("in_place_of_tensors_patched", lambda x: in_place(x), lambda: attr(torch.Tensor, "__iadd__", lambda a, b: a * 7)),
    ("torch_function_patched", lambda x: torch.relu(x - 3), lambda: attr(torch, "relu", torch.neg)),
    ("torch_nn_functional_patched", lambda x: torch.nn.functional.softmax(x, 0), lambda: attr(torch.nn.functional, "softmax", lambda x, d: x * 7)),
    ("activation_inside_patched", lambda x: torch.nn.functional.dropout(x, 0.0), lambda: attr(torch.nn.functional, "dropout", lambda x, p: x * 7)),
    ("class_of_torch_replaced", lambda x: torch.nn.ReLU()(x - 3), lambda: attr(torch.nn, "ReLU", torch.nn.Sigmoid)),
    ("operator_packet_patched", lambda x: torch.ops.aten.relu(x - 3), lambda: attr(torch.ops.aten, "relu", torch.ops.aten.neg)),
    ("query_patched", lambda x: x * (2 if torch.cuda.is_available() else 3), lambda: attr(torch.cuda, "is_available", lambda: not torch.cuda.device_count())),
    ("version_patched", lambda x: x * len(torch.__version__), lambda: attr(torch, "__version__", "1")),
    ("dtype_alias_replaced", lambda x: x.to(torch.double), lambda: attr(torch, "double", torch.int32)),
]:
    def _process_case(read=_read, change=_change):
        sys.modules[MODULE] = FIRST
        return (lambda x: read(x)), (X,), change()

    CASES[f"process_{_name}"] = _process_case


@contextlib.contextmanager
def held(var: contextvars.ContextVar[int], value: int) -> Iterator[None]:
    token = var.set(value)
    yield
    var.reset(token)


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
VARIABLE.set(2)
UNSET_VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("unset")
DEFAULT_VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("default", default=2)
SEED = types.SimpleNamespace(n=2)
NULL = logging.NullHandler()


def random_now() -> float:
    random.seed(SEED.n)
    return random.random()


def numpy_now() -> float:
    np.random.seed(SEED.n)
    return np.random.rand()


def in_place(x: Any) -> Any:
    y = x.clone()
    y += 1
    return y
