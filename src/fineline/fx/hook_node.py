"""The nodes of hooks on tensors that the graph makes: autograd calls them with the gradient of their tensor.

The hook is a graph of its own, or a function of the user's that runs as it is. The program gives such a function to the graph by a `ticket`, a
tensor among the inputs of the graph, which it makes in each call and tells the function once it has made that: the function may hold results of
the graph. A compiler that traces the backward pass finds an operator of the ticket there; autograd keeps the ticket until then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from fineline.guards.source import NumberedMember
from fineline.kinds import is_a


@torch.fx.has_side_effect
def register_hook(t: Tensor, name: str, hook: Callable[..., tuple[Any, ...]], *values: Any) -> None:
    """Registers ``hook`` on ``t``: a graph of the gradient and of ``values``, the tensors and numbers that the user's hook reads.

    ``name``: that of the user's hook.
    It returns the gradient that replaces the one it was given, or nothing.
    """

    def run(grad: Tensor) -> Any:
        return next(iter(hook(grad, *values)), None)

    # Autograd's errors name the hook.
    run.__name__, run.__qualname__ = name, name
    t.register_hook(run)


class TicketOf(NumberedMember):
    """A descriptor for a new ticket."""

    __slots__ = ()
    MEMBER_TEXTS = MappingProxyType({"": "the ticket of a hook"})

    @property
    def __name__(self) -> str:
        return "ticket()"

    def __get__(self, obj: Any, cls: Any = None) -> Tensor:
        # The user's modes do not see it.
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.inference_mode(False):
            return torch.empty(0, device="cpu", dtype=torch.uint8)


class _Call:
    """What autograd calls: the hook of a ticket, or the operator that calls it in a backward pass that is traced."""

    __slots__ = ("_ticket",)

    def __init__(self, ticket: Tensor) -> None:
        self._ticket = ticket

    @property
    def __name__(self) -> str:
        """The name of the hook, for autograd's errors."""
        return str(vars(self._ticket)["hook"].__name__)

    def __call__(self, grad: Tensor) -> Any:
        told = vars(self._ticket)
        return told["hook"](grad) if "hook" in told else CALL_HOOK(grad, self._ticket)


@torch.fx.has_side_effect
def register_function(t: Tensor, ticket: Tensor) -> None:
    """Registers the hook of ``ticket`` on ``t``."""
    vars(ticket)["handle"] = t.register_hook(_Call(ticket))


def tell(ticket: Tensor, hook: Any) -> RemovableHandle:
    """Tells a ticket its hook; returns the handle of the hook."""
    told = vars(ticket)
    told["hook"] = hook
    if "handle" not in told:
        # The graph is compiled: its backward pass asks this dict.
        told["hooks"] = OrderedDict()
        told["handle"] = RemovableHandle(told["hooks"])
        told["hooks"][told["handle"].id] = hook
    handle: RemovableHandle = told.pop("handle")
    return handle


def _called(grad: Tensor, ticket: Tensor) -> Tensor:
    """Returns the gradient that a hook gives, in memory of its own: the code of a compiler may write there, and into ``grad``."""
    result, given = torch.empty_like(grad), grad.clone()
    for hook in [*vars(ticket)["hooks"].values()]:
        found = hook(given)
        if found is None:
            continue
        if not is_a(found, Tensor):
            raise TypeError(f"expected Variable, but hook returned '{type(found).__name__}'")
        name = getattr(hook, "__name__", "<unknown>")
        if found.dtype != grad.dtype:
            raise RuntimeError(f"hook '{name}' has changed the type of value (was {grad.type()} got {found.type()})")
        if found.shape != grad.shape:
            raise RuntimeError(f"hook '{name}' has changed the size of value")
        given = found
    return result.copy_(given)


def _define() -> tuple[Any, Any]:
    """Returns the operator that calls the hook of a ticket, and the library that keeps it."""
    library = torch.library.Library("fineline", "FRAGMENT")
    library.define("call_hook(Tensor grad, Tensor ticket) -> Tensor")
    library.impl("call_hook", _called, "CompositeExplicitAutograd")
    torch.library.register_fake("fineline::call_hook", lambda grad, ticket: torch.empty_like(grad), lib=library)
    return torch.fx.has_side_effect(torch.ops.fineline.call_hook.default), library


# Compiled code that comes from a cache finds it here.
CALL_HOOK, _LIBRARY = _define()
