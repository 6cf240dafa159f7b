"""Custom autograd functions under torch.func and forward AD: their own rules count, which need not agree with what they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import Function, forward_ad
from torch.func import grad, hessian, jacfwd, jvp, vmap

import fineline
from tests.oracle import Table, check, t

table = Table()


pytestmark = pytest.mark.usefixtures("derivatives_told")


class Ruled(Function):
    """Says of itself what nobody could find out from its forward."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 7

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 0 + 3

    @staticmethod
    def vmap(info, dims, x):
        return Ruled.apply(x) * 100, dims[0]


class Generated(Function):
    generate_vmap_rule = True
    forward, setup_context, backward = Ruled.forward, Ruled.setup_context, Ruled.backward


class Plain(Function):
    forward, setup_context, backward = Ruled.forward, Ruled.setup_context, Ruled.backward


class Old(Function):
    """Its forward has the ``ctx``: torch.func has no use for it, forward AD has."""

    backward, jvp = Ruled.backward, Ruled.jvp

    @staticmethod
    def forward(ctx, x):
        return x.sin()


def tangent(function: Any, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, x * 2))).tangent * 1


def refused(fn: Any, *args: Any) -> str:
    try:
        fn(*args)
    except (NotImplementedError, RuntimeError) as e:
        return str(e)
    return ""


@table.snippet()
def a_derivative_of_its_own(x):
    return jvp(Ruled.apply, (x,), (x,)), jacfwd(Ruled.apply)(x[0]), tangent(Ruled.apply, x), tangent(Old.apply, x)


@table.snippet(grad=True)
def a_batch_of_its_own(x):
    return vmap(Ruled.apply)(x), vmap(lambda row: Ruled.apply(row * 2) + 1)(x)


@table.snippet(grad=True)
def gradients_through_a_batch(x):
    return vmap(Generated.apply)(x), grad(lambda v: vmap(Generated.apply)(v).sum())(x), vmap(grad(lambda v: Generated.apply(v).sum()))(x)


@table.snippet()
def gradients_of_gradients(x):
    return hessian(lambda v: (Generated.apply(v) * v).sum())(x[0])


@table.snippet(min_graphs=0, breaks=True)
def without_a_rule(x):
    return refused(vmap(Plain.apply), x), refused(jvp, Old.apply, (x,), (x,)), refused(tangent, Plain.apply, x), x * 2


@table.program(args=lambda place: (t(place), (lambda fn, x: fn(x), tangent, lambda fn, x: vmap(fn)(x))[place % 3]), calls=5, recompiles={1, 2})
def in_another_transform_each_time() -> Any:
    return lambda x, transform: transform(lambda v: Ruled.apply(v) + 1, x)


FACTOR = [2.0]


class Reads(Function):
    """Its rules read what may change."""

    forward, setup_context = Ruled.forward, Ruled.setup_context

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * FACTOR[0]

    @staticmethod
    def vmap(info, dims, x):
        return x * FACTOR[0], dims[0]


def _doubled(_: Any) -> None:
    FACTOR[0] *= 2


@table.program(change={0: lambda _: FACTOR.__setitem__(0, 2.0), 2: _doubled}, breaks=True, min_graphs=0)
def rules_that_read_what_changes() -> Any:
    return lambda x: (jvp(Reads.apply, (x,), (x,)), tangent(Reads.apply, x), vmap(Reads.apply)(x))


@fineline.disable
def raises(x):
    if x.shape[0] == 3:
        raise ValueError("three rows")
    return x


@table.program(args=lambda place: (t(place, 3 + place // 2, 4),), calls=5, recompiles={2, 4}, breaks=True, min_graphs=0)
def what_raises_in_forward_mode() -> Any:
    def fn(x):
        try:
            return tangent(lambda v: raises(v * 2), x)
        except ValueError as e:
            return str(e), x + 1

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_transformed_functions(program, twin):
    check(program, twin)
