"""The table of PyTorch's callables: everything that can be overridden is classed, and samples behave as their class says."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fineline.torch_facts import names
from fineline.torch_facts.callables import (
    BEYOND_GUARD,
    METADATA_WHEN_BARE,
    TENSOR_ATTRS,
    classify_torch,
)
from fineline.torch_facts.mutation import (
    DATA_SHAPED,
    HIDDEN_WRITES,
    INPLACE_FLAG,
    METADATA_MUTATORS,
    is_inplace,
)


def _listed(classes: Any) -> list[str]:
    return [name for listed in classes.values() for name in listed.split()]


def test_overridable_functions() -> None:
    """A process of its own asks: a library that another test imports may put functions in PyTorch's places (torch_geometric does)."""
    script = """
import types, torch
from fineline.torch_facts.callables import classify_torch
listed = [fn for functions in torch.overrides.get_overridable_functions().values() for fn in functions]
print(len(listed))
print([fn for fn in listed if classify_torch(fn) is None and not isinstance(fn, (types.MethodWrapperType, type))])
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    count, unknown = out.stdout.splitlines()
    assert int(count) > 1000
    assert unknown == "[]"


@pytest.mark.parametrize("owner", [Tensor, torch._C.TensorBase])
def test_methods(owner: type) -> None:
    unknown = {
        name
        for name in vars(owner)
        if callable(value := getattr(owner, name)) and not isinstance(value, types.GetSetDescriptorType) and classify_torch(value) is None
    }
    assert unknown <= {"__torch_function__", "__torch_dispatch__", "__class__"}


def test_attributes() -> None:
    attributes = {
        name
        for owner in (Tensor, torch._C.TensorBase)
        for name, value in vars(owner).items()
        if isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType, property))
    }
    assert attributes - set(TENSOR_ATTRS) == {"__cuda_array_interface__"}
    assert set(TENSOR_ATTRS.values()) == {"metadata", "op", "source"}


def test_each_name_is_listed_once() -> None:
    for classes in (
        names.FUNCTIONS, names.METHODS, names.NN, names.TORCH_PYTHON, names.C_FUNCTIONS, names.FUNCTORCH, names.AUTOGRAD, names.OPERATORS,
        names.ATTRIBUTES, *names.ELSEWHERE.values(),
    ):  # fmt: skip
        assert set(classes) <= {"op", "metadata", "data", "state", "query", "effect", "python", "source"}
        assert [n for n, count in Counter(_listed(classes)).items() if count > 1] == []


def test_each_name_exists() -> None:
    for owner, classes in (
        (torch._C._VariableFunctions, names.FUNCTIONS), (Tensor, names.METHODS), (torch._C._nn, names.NN), (torch, names.TORCH_PYTHON),
        (torch._C, names.C_FUNCTIONS), (torch._C._functorch, names.FUNCTORCH), (torch._C._autograd, names.AUTOGRAD),
    ):  # fmt: skip
        assert [n for n in _listed(classes) if not hasattr(owner, n)] == []
    for place, classes in names.ELSEWHERE.items():
        module, _, cls = place.partition(":")
        owner = getattr(sys.modules[module], cls) if cls else sys.modules[module]
        assert [n for n in _listed(classes) if not hasattr(owner, n)] == []
    assert [n for n in names.FUNCTIONAL_PYTHON.split() if not hasattr(F, n)] == []


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (torch.add, "op"),
        (torch.mm, "op"),
        (torch.spmm, "op"),
        (torch.tensor, "op"),
        (torch.split, "op"),
        (torch.einsum, "op"),
        (torch.nn.functional.relu, "op"),
        (F.max_pool2d, "op"),
        (F.pad, "python"),
        (F.rms_norm, "python"),
        (F.cross_entropy, "op"),
        (F.scaled_dot_product_attention, "op"),
        (torch.linalg.norm, "op"),
        (torch.fft.fft, "op"),
        (torch.special.expit, "op"),
        (Tensor.add_, "op"),
        (Tensor.split, "op"),
        (Tensor.__getitem__, "op"),
        (Tensor.__setitem__, "op"),
        (Tensor.__rsub__, "op"),
        (Tensor.size, "metadata"),
        (Tensor.__len__, "metadata"),
        (Tensor.item, "data"),
        (Tensor.__bool__, "data"),
        (Tensor.backward, "effect"),
        (torch.equal, "data"),
        (torch.is_floating_point, "metadata"),
        (torch.finfo, "metadata"),
        (torch.Size, "metadata"),
        (torch.broadcast_shapes, "metadata"),
        (torch.is_grad_enabled, "query"),
        (torch.overrides.has_torch_function, "query"),
        (torch.jit.is_scripting, "query"),
        (torch.compiler.is_compiling, "query"),
        (torch.cuda.is_available, "query"),
        (torch._C._set_grad_enabled, "state"),
        (torch.autocast_increment_nesting, "state"),
        (torch._C._functorch._vmap_increment_nesting, "state"),
        (torch.Tensor.register_hook, "effect"),
        (torch.compile, "effect"),
        (torch.vmap, "python"),
        (torch.Tensor, "op"),
        (torch.ops.aten.add, "op"),
        (torch.ops.aten.add.Tensor, "op"),
        (torch.ops.aten._local_scalar_dense.default, "data"),
        (torch.ops.aten.sym_size.int, "metadata"),
        (torch.ops.aten._assert_async.msg, "op"),
        (torch.nn.Linear, None),
        (torch.nn.init.normal_, None),
        (len, None),
        (5, None),
        ([], None),
    ],
)
def test_samples(fn: Any, kind: str | None) -> None:
    assert classify_torch(fn) == kind


def test_side_tables_are_of_the_right_class() -> None:
    assert {classify_torch(fn) for fn in BEYOND_GUARD} == {"metadata"}
    assert {classify_torch(fn) for fn in METADATA_WHEN_BARE} == {"op"}
    compiling = (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch.compiler.is_exporting, torch._utils.is_compiling)
    assert {classify_torch(fn) for fn in compiling} == {"query"}
    amp, grad = torch.amp.autocast_mode, torch.autograd.grad_mode
    entering = (amp._enter_autocast, amp._exit_autocast, grad._enter_inference_mode, grad._exit_inference_mode)
    assert {classify_torch(fn) for fn in entering} == {"state"}
    assert {classify_torch(fn) for fn in (*DATA_SHAPED, *HIDDEN_WRITES, *INPLACE_FLAG)} <= {"op", "python"}
    assert all(is_inplace(fn) or fn.__name__ in ("resize", "resize_as") for fn in METADATA_MUTATORS)


def test_hidden_writes_are_those_of_the_schemas() -> None:
    """An operator that writes to a positional argument says so in its name, or has a row."""
    hidden: dict[Any, set[int]] = {}
    for schema in torch._C._jit_get_all_schemas():
        fn = getattr(torch._C._VariableFunctions, schema.name.removeprefix("aten::"), None)
        written = {i for i, a in enumerate(schema.arguments) if not a.kwarg_only and a.alias_info is not None and a.alias_info.is_write}
        # `aten::sort` of a list writes to the list.
        tensors = {i for i in written if str(schema.arguments[i].type) == "Tensor" and (schema.name, schema.overload_name) != ("aten::sort", "Tensor")}
        if fn is not None and tensors and not is_inplace(fn):
            hidden.setdefault(fn, set()).update(tensors)
    assert len(hidden) > 6
    assert {fn: set(HIDDEN_WRITES.get(fn, ())) for fn in hidden} == hidden


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


@pytest.mark.parametrize("name", [n for n in names.METHODS["metadata"].split() if classify_torch(getattr(Tensor, n)) == "metadata"])
def test_metadata_methods_do_not_read_numbers(name: str) -> None:
    method: Callable[..., Any] = getattr(Tensor, name)
    answers = []
    for fill in (0.0, 1.0, float("nan")):
        x = torch.full((2, 3), fill)
        arguments = (torch.full((2, 3), fill),) if name in ("is_same_size", "is_set_to") else ()
        try:
            answers.append(method(x, *arguments))
        except (RuntimeError, NotImplementedError) as e:
            answers.append(type(e))
    assert not list(_tensors(answers))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("name", [n for n, kind in TENSOR_ATTRS.items() if kind == "metadata" and n != "volatile"])
def test_metadata_attributes_do_not_read_numbers(name: str) -> None:
    assert getattr(torch.zeros(2, 3), name) == getattr(torch.ones(2, 3), name)


@pytest.mark.parametrize("name", [n for n, kind in TENSOR_ATTRS.items() if kind == "op"])
def test_operator_attributes_give_tensors(name: str) -> None:
    x = torch.zeros(2, 3, dtype=torch.complex64)
    assert isinstance(getattr(x, name), Tensor)


def test_in_place() -> None:
    assert is_inplace(torch.ops.aten.add_.Tensor) and is_inplace(torch.ops.aten.add.out) and not is_inplace(torch.ops.aten.add.Tensor)
    assert not is_inplace(Tensor.__add__) and not is_inplace(torch.add) and not is_inplace(5)


@pytest.mark.parametrize("fn", INPLACE_FLAG, ids=lambda fn: fn.__name__)
def test_inplace_flag(fn: Callable[..., Any]) -> None:
    x = torch.ones(2, 3, 4)
    result = fn(x, 0.5, 0.5, True) if fn is F.threshold else fn(x, inplace=True)
    assert result is x


def test_functions_with_an_inplace_flag_are_all_listed() -> None:
    functions = {name: fn for name, fn in vars(F).items() if isinstance(fn, types.FunctionType)}
    flagged = {name for name, fn in functions.items() if "inplace" in inspect.signature(fn).parameters}
    assert {n for n in flagged if not n.startswith("_")} == {fn.__name__.lstrip("_") for fn in INPLACE_FLAG}


def test_import_is_cheap_and_leaves_the_rival_alone() -> None:
    script = """
import sys, time, torch
before = set(sys.modules)
from fineline.torch_facts import names
start = time.process_time()
import fineline.torch_facts.callables, fineline.torch_facts.mutation
print(time.process_time() - start, "torch._dynamo" in set(sys.modules) - before)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    seconds, dynamo = out.stdout.split()
    assert float(seconds) < 0.03
    assert dynamo == "False"
