"""Operators by identity: each spelling meets its name, over PyTorch's own list of operators."""

from __future__ import annotations

import operator
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

from fineline.torch_facts import spelling_names as names
from fineline.torch_facts.spellings import operator_name, overload_of, packet_of
from fineline.torch_support import release

# In op_db as functions of its own, around the operator or instead of one.
FOREIGN = ("functools", "torch.testing.", "torch.masked.", "torch.signal.", "torch.cuda.jiterator")
NO_OPERATORS = {"broadcast_shapes", "linear_cross_entropy", "triplet_margin_with_distance_loss"}  # metadata; code to look into
# `max` with two tensors is `maximum`, but `max` is more than that.
NO_ALIASES = {"max": "maximum", "min": "minimum"}


def _ours(fn: Any) -> bool:
    return fn is not None and not str(getattr(fn, "__module__", None)).startswith(FOREIGN) and fn.__name__ not in NO_OPERATORS


def variants(op: Any) -> tuple[list[Any], list[Any]]:
    """The spellings that op_db lists: -> not in place, in place."""
    fresh, inplace = [], []
    for fn in (op.op, op.method_variant, op.operator_variant, *(f for a in op.aliases for f in (a.op, a.method_variant))):
        if _ours(fn):
            (inplace if fn is op.inplace_variant else fresh).append(fn)
    for fn in (op.inplace_variant, op.inplace_operator_variant, *(a.inplace_variant for a in op.aliases)):
        if _ours(fn):
            inplace.append(fn)
    return fresh, inplace


# By release: operators, those with spellings, their spellings, and those of them that write in place.
LISTED_IN = {(2, 13): (702, 628, 1045, 180)}
LISTED = {op.formatted_name: op for op in op_db if any(variants(op))}


@pytest.mark.parametrize("op", LISTED.values(), ids=LISTED)
def test_spellings_have_one_name(op: Any) -> None:
    fresh, inplace = ([fn for fn in fns if operator_name(fn) != f"aten::{NO_ALIASES.get(op.name)}"] for fns in variants(op))
    name = {operator_name(fn) for fn in fresh}
    name_inplace = {operator_name(fn) for fn in inplace}
    assert len(name) == bool(fresh) and None not in name
    assert len(name_inplace) == bool(inplace) and None not in name_inplace
    assert not name & name_inplace
    if fresh and inplace:
        assert name_inplace == {f"{n}_" for n in name}


def test_how_many_were_listed() -> None:
    counts = [variants(op) for op in LISTED.values()]
    found = (len(op_db), len(LISTED), sum(len(fresh) for fresh, _ in counts), sum(len(inplace) for _, inplace in counts))
    assert found == LISTED_IN.get(release(torch.__version__), found)


SUB = (
    torch.sub, torch.subtract, torch.rsub, Tensor.sub, Tensor.subtract, Tensor.__sub__, Tensor.__rsub__, operator.sub, operator.__sub__,
    torch._C._VariableFunctions.sub, torch._C.TensorBase.sub, torch.ops.aten.sub, torch.ops.aten.subtract, torch.ops.aten.sub.Tensor,
    torch.ops.aten.sub.Scalar, torch.ops.aten.rsub.Scalar,
)  # fmt: skip
SUB_INPLACE = (
    Tensor.sub_, Tensor.subtract_, Tensor.__isub__, operator.isub, torch.ops.aten.sub_, torch.ops.aten.sub_.Tensor,
    torch.ops.aten.subtract_.Scalar,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fns"),
    [
        ("aten::sub", SUB),
        ("aten::sub_", SUB_INPLACE),
        ("aten::sub.out", (torch.ops.aten.sub.out, torch.ops.aten.sub.Scalar_out, torch.ops.aten.subtract.out)),
        ("aten::relu", (torch.relu, F.relu, Tensor.relu, torch.ops.aten.relu, torch.ops.aten.relu.default)),
        ("aten::relu_", (torch.relu_, F.relu_, Tensor.relu_, torch.ops.aten.relu_.default)),
        ("aten::exp2", (torch.exp2, torch.special.exp2, Tensor.exp2)),
        ("aten::linalg_inv", (torch.linalg.inv, torch.inverse, Tensor.inverse, torch.ops.aten.inverse)),
        ("aten::bitwise_and", (torch.bitwise_and, operator.and_, Tensor.__and__, Tensor.__rand__, torch.ops.aten.__and__)),
        ("aten::bitwise_and_", (Tensor.bitwise_and_, operator.iand, Tensor.__iand__, torch.ops.aten.__iand__)),
        ("aten::bitwise_left_shift", (torch.bitwise_left_shift, operator.lshift, Tensor.__lshift__, Tensor.__rlshift__)),
        ("aten::div", (torch.div, torch.true_divide, operator.truediv, Tensor.__truediv__, Tensor.__rtruediv__)),
        ("aten::matmul", (torch.matmul, torch.linalg.matmul, operator.matmul, operator.imatmul, Tensor.__matmul__, Tensor.__rmatmul__)),
        ("aten::mm", (torch.mm, torch.spmm, Tensor.mm)),
        ("aten::neg", (torch.neg, operator.neg, Tensor.__neg__, torch.negative)),
        ("aten::abs", (torch.abs, abs, operator.abs, Tensor.__abs__, torch.absolute)),
        ("aten::pow", (torch.pow, pow, operator.pow, Tensor.__pow__, Tensor.__rpow__)),
        ("aten::lt", (torch.lt, torch.less, operator.lt, Tensor.__lt__)),
        ("aten::gelu", (F.gelu, torch._C._nn.gelu, torch.ops.aten.gelu)),
        ("aten::cross_entropy_loss", (F.cross_entropy, torch.ops.aten.cross_entropy_loss)),
        ("aten::im2col", (F.unfold, torch.ops.aten.im2col)),
        ("aten::unfold", (Tensor.unfold, torch.ops.aten.unfold)),
        ("aten::scaled_dot_product_attention", (F.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)),
        ("aten::numpy_T", (Tensor.T, Tensor.T.__get__, torch.ops.aten.numpy_T)),
        ("aten::adjoint", (torch.adjoint, Tensor.adjoint, Tensor.mH)),
        ("aten::max_pool2d", (F.max_pool2d, torch.max_pool2d)),
        ("aten::split", (torch.split, Tensor.split)),
        ("aten::item", (Tensor.item,)),
        ("torch.Tensor.__getitem__", (Tensor.__getitem__, operator.getitem)),
        ("torch.Tensor.__setitem__", (Tensor.__setitem__, operator.setitem)),
        ("torch.unique", (torch.unique, Tensor.unique)),
        ("torch.nn.functional.interpolate", (F.interpolate,)),
        ("torch.sparse.sum", (torch.sparse.sum,)),
        ("torch.tensor", (torch.tensor,)),
    ],
)  # fmt: skip
def test_names(name: str, fns: tuple[Any, ...]) -> None:
    assert {operator_name(fn) for fn in fns} == {name}


@pytest.mark.parametrize(
    "fn", [len, 5, "aten::sub", None, [], torch.vmap, torch.nn.Linear, torch.is_grad_enabled, Tensor.backward, lambda x: x]
)
def test_what_is_no_operator(fn: Any) -> None:
    assert operator_name(fn) is None and packet_of(fn) is None and overload_of(fn) is None


def test_inplace_argument() -> None:
    x = torch.ones(2)
    assert operator_name(F.relu, (x,)) == operator_name(F.relu, (x,), {"inplace": False}) == "aten::relu"
    assert operator_name(F.relu, (x, True)) == operator_name(F.relu, (x,), {"inplace": True}) == "aten::relu_"
    assert operator_name(F.threshold, (x, 0.1, 0.2, True)) == operator_name(torch.threshold_) == "aten::threshold_"
    assert operator_name(F.dropout2d, (x,), {"inplace": True}) == "torch.nn.functional.dropout2d_"


def test_dispatchers_names() -> None:
    assert overload_of(torch.ops.aten.add.Tensor) == "aten::add.Tensor"
    assert overload_of(torch.ops.aten.mm.default) == "aten::mm.default"
    assert overload_of(torch.ops.aten.add) is None and overload_of(torch.add) is None
    assert packet_of(torch.ops.aten.subtract) == packet_of(torch.ops.aten.subtract.Tensor) == "aten::subtract"
    assert packet_of(torch.subtract) is None


def test_each_aten_name_exists() -> None:
    aten = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    listed = [*names.ALIASES, *(a for aliases in names.ALIASES.values() for a in aliases.split())]
    listed += [n for table in (names.C_NAMES, names.FUNCTIONAL, names.INFIX, names.UNARY, names.ATTRIBUTES) for n in table.values()]
    assert {f"aten::{name}" for name in listed} <= aten
    assert not set(names.ALIASES) & {a for aliases in names.ALIASES.values() for a in aliases.split()}


def test_documented_aliases_have_one_name() -> None:
    wrong, found = [], 0
    for path, owner in (("torch", torch), ("torch.special", torch.special), ("torch.linalg", torch.linalg), ("Tensor", Tensor)):
        for key in dir(owner):
            fn = getattr(owner, key)
            doc = fn.__doc__ if callable(fn) and isinstance(fn.__doc__, str) else ""
            alias = re.search(r"Alias (?:for|of) :(?:func|meth):`~?([\w.]+)", doc)
            if alias:
                found += 1
                target: Any = Tensor if path == "Tensor" and not alias[1].startswith("torch.") else torch
                for part in alias[1].removeprefix("torch.").removeprefix("Tensor.").split("."):
                    target = getattr(target, part)
                if operator_name(fn) != operator_name(target):
                    wrong.append((path, key, alias[1]))
    assert found > 60 and wrong == []


def test_custom_operators() -> None:
    @torch.library.custom_op("fineline_spellings::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    found = (twice, torch.ops.fineline_spellings.twice, torch.ops.fineline_spellings.twice.default)
    assert {operator_name(fn) for fn in found} == {packet_of(fn) for fn in found} == {"fineline_spellings::twice"}
