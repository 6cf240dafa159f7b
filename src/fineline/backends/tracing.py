"""What AOTAutograd and Inductor need around them: a tracing context with fake inputs, and a graph of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes._tensorify_python_scalars import TensorifyState
from torch.utils._sympy.symbol import SymT, symbol_is_type


@contextmanager
def tracing_context(example_inputs: Sequence[Any]) -> Iterator[None]:
    """A tracing context for one graph.

    Without one, both disk caches (AOTAutograd's and Inductor's) are bypassed: they look for a ``ShapeEnv`` there. Real
    inputs are faked here with static sizes, so that AOTAutograd finds them faked already and makes no size symbolic.
    """
    fake_mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # The mode remembers what it faked only as long as the fakes live.
    fakes = [fake_mode.from_tensor(t, static_shapes=True) for t in example_inputs if _is_real(t, fake_mode)]
    try:
        _name_floats(fake_mode, example_inputs)
        with tracing(TracingContext(fake_mode)):
            yield
    finally:
        TensorifyState.clear()
    del fakes


def _name_floats(fake_mode: FakeTensorMode, example_inputs: Sequence[Any]) -> None:
    # AOTAutograd takes each symbol of a float for an input's, and refuses a graph in which one is of no use: those of other numbers
    # are named to it beforehand.
    given = {t.item_memo.node._expr for t in example_inputs if getattr(t, "item_memo", None) is not None}
    for symbol in fake_mode.shape_env.backed_var_to_val if fake_mode.shape_env is not None else ():
        if symbol_is_type(symbol, SymT.FLOAT) and symbol not in given:
            TensorifyState.specialize(str(symbol))


def own_copy(gm: GraphModule) -> GraphModule:
    """A graph that a compiler may rewrite: the captured one is kept for ``explain`` and for the next backend."""
    return GraphModule(gm, copy.deepcopy(gm.graph), type(gm).__name__)


def _is_real(value: Any, fake_mode: FakeTensorMode) -> bool:
    return isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not fake_mode
