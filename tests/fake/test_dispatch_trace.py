"""What a call dispatches to: as eager mode does, and nothing outside is touched."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.profiler import profile
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fineline.fake.dispatch_trace import dispatched
from fineline.torch_facts.spellings import operator_name, overload_of, packet_of
from tests.torch_facts.test_spellings import variants

# The samples take a path round the operator: a method that gives back its argument, or a Python function that calls another operator.
ROUND = {
    "contiguous", "conj", "nn_functional_max_pool1d", "nn_functional_max_pool2d", "nn_functional_max_pool3d", "split_list_args",
    "__rdiv__", "norm", "norm_nuc", "norm_fro", "norm_inf",
}  # fmt: skip
# Of tensors whose class is in Python, such as the fake ones, PyTorch computes these in another way.
BEYOND_EAGER = {"linalg_eigvals": {"aten::linalg_eig"}}


def _samples() -> Iterator[Any]:
    for op in op_db:
        fresh, inplace = variants(op)
        # One spelling of a kind: a function, a method, an operator of Python differ in how they get to the dispatcher.
        for fn in {type(fn): fn for fn in (*inplace, *fresh)}.values():
            yield pytest.param(op, fn, id=f"{op.formatted_name}-{type(fn).__name__}")


def _sample(op: Any) -> Any:
    dtypes = op.supported_dtypes("cpu")
    dtype = torch.float32 if torch.float32 in dtypes else next(iter(dtypes), None)
    # Not by `op.sample_inputs`, which walks the stack with its sources each time.
    return dtype and next(iter(op.sample_inputs_func(op, "cpu", dtype, False)), None)


@pytest.mark.parametrize(("op", "fn"), list(_samples()))
def test_as_in_eager_mode(op: Any, fn: Any) -> None:
    sample = _sample(op)
    if not sample:
        pytest.skip("no samples")
    args = (sample.input, *sample.args)
    before = _numbers(args, sample.kwargs)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    seen = dispatched(fn, args, sample.kwargs)
    assert torch.equal(state[0], torch.get_rng_state()) and state[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    assert all(v == w and torch.equal(x, y) for (v, x), (w, y) in zip(before, _numbers(args, sample.kwargs), strict=True))

    own = {operator_name(fn, args, sample.kwargs), packet_of(fn), overload_of(fn)}
    with profile() as events:
        try:
            fn(*args, **sample.kwargs)
        except (RuntimeError, TypeError) as e:
            pytest.skip(f"not in eager mode: {e}")
    met = {event.name for event in events.function_events}
    met |= {name for event in met if (name := _canonical(event))}
    operators = {name for name in seen - own if "::" in name and "." not in name}
    assert operators - met <= BEYOND_EAGER.get(op.formatted_name, set())
    name = operator_name(fn, args, sample.kwargs)
    assert name in seen
    if name.startswith("aten::") and op.formatted_name not in ROUND:
        assert name in met


def _numbers(*call: Any) -> list[tuple[int, Tensor]]:
    """Each tensor's version and bytes."""
    tensors = [x for x in tree_leaves(call) if isinstance(x, Tensor)]
    return [(x._version, _bytes(x) if x.layout is torch.strided else torch.empty(0)) for x in tensors]


def _bytes(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).clone()


def _canonical(event: str) -> str | None:
    namespace, _, op = event.partition("::")
    return operator_name(getattr(torch.ops.aten, op, None)) if namespace == "aten" else None


X = torch.arange(12.0).reshape(3, 4)
W = torch.nn.Parameter(torch.ones(5, 4))


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (torch.sub, (X, 1), {"aten::sub", "aten::sub.Tensor"}),
        (Tensor.__rsub__, (X, 1), {"aten::sub", "aten::rsub", "aten::rsub.Scalar"}),
        (torch.subtract, (X, 1), {"aten::sub", "aten::subtract", "aten::subtract.Tensor", "aten::sub.Tensor"}),
        (torch.addmm, (X[0, :3], X, X.t()), {"aten::addmm", "aten::addmm.default"}),
        # Composite operators, and what they are made of.
        (F.linear, (X, W, torch.ones(5)), {"aten::linear", "aten::linear.default", "aten::t", "aten::addmm", "aten::addmm.default"}),
        (torch.matmul, (X, X.t()), {"aten::matmul", "aten::matmul.default", "aten::mm"}),
        (torch.einsum, ("ij,kj->ik", X, W), {"aten::einsum", "aten::permute", "aten::bmm"}),
        (torch.tensordot, (X, X), {"aten::tensordot", "aten::dot"}),
        (F.cross_entropy, (X, torch.tensor([0, 1, 2])), {"aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"}),
        (F.dropout, (X,), {"aten::dropout", "aten::bernoulli_"}),
        (Tensor.float, (X.double(),), {"torch.Tensor.float", "aten::to", "aten::to.dtype", "aten::_to_copy"}),
        (Tensor.__getitem__, (X, 0), {"torch.Tensor.__getitem__", "aten::select.int"}),
        (Tensor.__setitem__, (X, 0, 1.0), {"torch.Tensor.__setitem__", "aten::select.int", "aten::fill_"}),
        (F.relu, (X, True), {"aten::relu_", "aten::relu_.default"}),
        (torch.ops.aten.add, (X, X), {"aten::add", "aten::add.Tensor"}),
        (torch.ops.aten.mul.Tensor, (X, X), {"aten::mul", "aten::mul.Tensor"}),
        # Sizes or results that depend on numbers.
        (torch.nonzero, (X,), {"aten::nonzero", "aten::nonzero.default"}),
        (Tensor.__getitem__, (X, X > 3), {"aten::index.Tensor"}),
        (Tensor.item, (X[0, 0],), {"aten::item", "aten::_local_scalar_dense"}),
        # An error in eager mode, too: what is known beforehand.
        (torch.mm, (X, X), {"aten::mm"}),
        (torch.tensor, ([1, 2],), {"torch.tensor", "aten::lift_fresh"}),
        (F.scaled_dot_product_attention, (X[None, None],) * 3, {"aten::scaled_dot_product_attention"}),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_names(fn: Any, args: Any, expected: set[str]) -> None:
    before = X.clone()
    assert dispatched(fn, args) >= expected
    assert torch.equal(X, before)


def test_nothing_but_operators_is_run() -> None:
    def never(*args: Any) -> None:
        raise AssertionError

    assert dispatched(never, (X,)) == frozenset()
    assert dispatched(Tensor.register_hook, (W, never)) == frozenset()
    assert W._backward_hooks is None


@pytest.mark.parametrize("fn", [torch.rand_like, torch.multinomial, torch.bernoulli, F.dropout, Tensor.uniform_, Tensor.bernoulli_])
def test_random_state_and_numbers_stay(fn: Any) -> None:
    x, generator = torch.full((4, 4), 0.5), torch.Generator()
    state, own = torch.get_rng_state(), generator.get_state()
    args = (x, 2) if fn is torch.multinomial else (x,)
    kwargs = {} if fn in (F.dropout, torch.rand_like) else {"generator": generator}
    assert operator_name(fn) in dispatched(fn, args, kwargs)
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(generator.get_state(), own)
    assert bool((x == 0.5).all()) and x._version == 0


def test_views_parameters_and_gradients() -> None:
    base = torch.ones(4, 6, requires_grad=True)
    view = (base * 2)[1:, ::2]
    assert dispatched(Tensor.mul_, (view.detach(), 3)) == {"aten::mul_", "aten::mul_.Tensor"} <= dispatched(Tensor.mul_, (view, 3))
    assert view._version == 0 and base.grad is None
    assert dispatched(torch.mm, (view, view.t())) == dispatched(torch.mm, (view.detach(), view.detach().t()))
    with torch.no_grad():
        assert "aten::add_.Tensor" in dispatched(Tensor.add_, (W, 1))
    assert dispatched(F.linear, (view, torch.nn.Parameter(torch.ones(5, 3)))) == dispatched(F.linear, (view, torch.ones(5, 3)))
    assert W._version == 0
    out = torch.empty(3, 4)
    assert "aten::add.out" in dispatched(torch.add, (X, X), {"out": out}) and out._version == 0


def test_lists_and_dicts() -> None:
    assert "aten::cat.default" in dispatched(torch.cat, ([X, X],), {"dim": 1})
    assert "aten::_foreach_add_.Scalar" in dispatched(torch._foreach_add_, ([X, X], 1)) and X._version == 0


def test_ambient_state() -> None:
    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    class Mine(Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError

    with Counting():
        assert "aten::mul.Tensor" in dispatched(torch.mul, (X, X))
    assert Counting.calls == 0
    assert "aten::mul.Tensor" in dispatched(torch.mul, (X.as_subclass(Mine), X))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {"aten::mm", "aten::_to_copy"} <= dispatched(torch.mm, (X, W.t()))
    with torch.inference_mode():
        assert "aten::mul.Tensor" in dispatched(torch.mul, (X, X))
    seen = []

    def inside(x: Tensor) -> Tensor:
        seen.append(dispatched(torch.mul, (x, x)))
        return x * x

    assert torch.equal(torch.vmap(inside)(X), X * X)
    assert "aten::mul" in seen[0]


def test_no_warnings_and_no_logs(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dispatched(F.softmax, (X,))  # warns of the dimension that it chooses
        dispatched(torch.add, (X, X[:2]))
    assert caught == [] and capfd.readouterr() == ("", "")


def test_fake_arguments_get_no_guards() -> None:
    fake_tensor, symbolic_shapes = (
        sys.modules["torch._subclasses.fake_tensor"],
        pytest.importorskip("torch.fx.experimental.symbolic_shapes"),
    )
    env = symbolic_shapes.ShapeEnv()
    mode = fake_tensor.FakeTensorMode(shape_env=env)
    x = mode.from_tensor(torch.ones(6, 4), symbolic_context=None)
    symbolic = mode.from_tensor(
        torch.ones(7, 3), symbolic_context=symbolic_shapes.StatelessSymbolicContext([symbolic_shapes.DimDynamic.DYNAMIC] * 2)
    )
    known = len(env.guards), len(env.replacements)
    assert "aten::mm.default" in dispatched(torch.mm, (x, x.t()))
    assert {"aten::view", "aten::reshape"} <= dispatched(torch.reshape, (symbolic, (symbolic.shape[0] * 3,)))
    assert (len(env.guards), len(env.replacements)) == known


RAN: list[str] = []


@torch.library.custom_op("fineline_dispatches::bare", mutates_args=())
def bare(x: Tensor) -> Tensor:
    RAN.append("bare")
    return x.sin()


@torch.library.custom_op("fineline_dispatches::faked", mutates_args=())
def faked(x: Tensor) -> Tensor:
    RAN.append("faked")
    return x.sin()


@faked.register_fake
def _(x: Tensor) -> Tensor:
    RAN.append("fake")
    return torch.empty_like(x)


LIBRARY = torch.library.Library("fineline_dispatches", "DEF")
LIBRARY.define("made_of(Tensor x) -> Tensor")
LIBRARY.define("anywhere(Tensor x) -> Tensor")
LIBRARY.impl("made_of", lambda x: RAN.append("made_of") or x.sin(), "CompositeImplicitAutograd")
LIBRARY.impl("anywhere", lambda x: RAN.append("anywhere") or x.sin(), "CompositeExplicitAutograd")


@pytest.mark.parametrize("name", ["bare", "faked", "made_of", "anywhere"])
def test_kernels_of_custom_operators_are_not_run(name: str) -> None:
    packet = getattr(torch.ops.fineline_dispatches, name)
    RAN.clear()
    qualified = f"fineline_dispatches::{name}"
    assert dispatched(packet.default, (X,)) == {qualified, f"{qualified}.default"}
    assert dispatched(packet, (X,)) == {qualified, f"{qualified}.default"}
    assert dispatched(packet, (X, 1, 2)) == {qualified}  # takes one argument
    assert dispatched(bare, (X,)) == {"fineline_dispatches::bare", "fineline_dispatches::bare.default"}
    assert RAN == []


@pytest.mark.parametrize("name", ["bare", "faked", "made_of", "anywhere"])
def test_kernels_of_custom_operators_inside_are_not_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python function of PyTorch that comes to a custom operator, as a patched one may: what is behind it shows if it can be faked."""
    packet = getattr(torch.ops.fineline_dispatches, name)
    monkeypatch.setattr(torch._VF, "dropout", lambda x, p, training: packet(x.cos()).tan(), raising=False)
    RAN.clear()
    names = dispatched(F.dropout, (X,))
    assert {"aten::cos", f"fineline_dispatches::{name}", f"fineline_dispatches::{name}.default"} <= names
    assert ("aten::tan" in names) == (name == "faked")
    assert set(RAN) <= {"fake"}
