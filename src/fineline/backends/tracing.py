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


@contextmanager
def tracing_context(example_inputs: Sequence[Any]) -> Iterator[None]:
    """A tracing context for one graph.

    Without one, both disk caches (AOTAutograd's and Inductor's) are bypassed: they look for a ``ShapeEnv`` there. Real
    inputs are faked here with static sizes, so that AOTAutograd finds them faked already and makes no size symbolic.
    """
    fake_mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # The mode remembers what it faked only as long as the fakes live.
    fakes = [fake_mode.from_tensor(t, static_shapes=True) for t in example_inputs if _is_real(t, fake_mode)]
    with tracing(TracingContext(fake_mode)):
        yield
    del fakes


def own_copy(gm: GraphModule) -> GraphModule:
    """A graph that a compiler may rewrite: the captured one is kept for ``explain`` and for the next backend."""
    return GraphModule(gm, copy.deepcopy(gm.graph), type(gm).__name__)


def _is_real(value: Any, fake_mode: FakeTensorMode) -> bool:
    return isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not fake_mode
