"""The backend ``eager``: the captured graph, run operator by operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule


def eager(gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The graph's own Python code."""
    if kwargs:
        warnings.warn(f'backend="eager" has no modes and no options; it ignores {kwargs}', stacklevel=2)
    forward: Callable[..., Any] = gm.forward
    return forward
