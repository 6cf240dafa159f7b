"""Keeps AOTAutograd from graphs that it would get wrong, in whichever backend: a user's one may reach it in many ways, when it compiles or later.

AOTAutograd tells the tracing context what it compiles. A context that refuses to be told stops it before it has run anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch._guards import TracingContext, tracing
from torch.fx import GraphModule

from fineline.backends.eager import as_it_is

# Parts of AOTAutograd's own errors: where it compiles a function and no module, it raises them before it tells the tracing context.
_ERRORS = "Encountered a set_ on a graph input", "cannot mutate tensors with frozen storage"


class BeyondAOT(RuntimeError):
    """Raised where AOTAutograd begins to compile a graph that it would get wrong. Its text is the reason."""


class _Refusing(TracingContext):
    """A tracing context in which AOTAutograd compiles nothing."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        super().__init__(None)

    def __setattr__(self, name: str, value: object) -> None:
        # The first is set before anything is traced, the second where a function is compiled and no module.
        if name in ("params_flat", "fw_metadata") and value is not None:
            raise BeyondAOT(self._reason)
        super().__setattr__(name, value)


def aot_refused(reason: str) -> AbstractContextManager[object]:
    """Raises `BeyondAOT` in the block where AOTAutograd begins to compile; ``reason``: why it may not, "" if it may."""
    return tracing(_Refusing(reason)) if reason else nullcontext()


def kept_from_aot(compiled: Callable, gm: GraphModule, reason: str) -> Callable:
    """Wraps what a backend has made of ``gm``: if a run of it reaches AOTAutograd, the graph runs as it was captured from then on."""
    if not reason or isinstance(getattr(compiled, "__self__", None), GraphModule):
        return compiled
    chosen = compiled

    def run(*inputs: object) -> object:
        nonlocal chosen
        try:
            with aot_refused(reason):
                return chosen(*inputs)
        except (BeyondAOT, AssertionError, RuntimeError) as error:
            if not isinstance(error, BeyondAOT) and not any([text in str(error) for text in _ERRORS]):
                raise
            chosen = as_it_is(gm)
            return chosen(*inputs)

    return run
