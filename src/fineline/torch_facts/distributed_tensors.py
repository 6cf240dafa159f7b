"""`DTensor`: tensors of which each process holds a part. Their placements on a mesh of processes, and calls that a graph can hold.

A `DTensor` is a tensor of a wrapper subclass: it consists of the part of this process, of a mesh, which is no tensor, and of a context.
PyTorch imports the module with the class late, and so does this one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.node import has_side_effect

from fineline.import_thread import LateModule
from fineline.kinds import is_a
from fineline.tables import imported

LOSSES = "torch.distributed.tensor.parallel.loss"
if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import loss
else:
    loss = LateModule("torch.distributed.tensor.parallel.loss")

MESH = "torch.distributed.device_mesh:DeviceMesh"
_PLACEMENTS: Mapping[str, str] = MappingProxyType(
    {
        **{name: f"torch.distributed.tensor.placement_types:{name}" for name in ("Shard", "Replicate", "Partial", "_StridedShard")},
        # Of a norm: it holds the order.
        "_NormPartial": "torch.distributed.tensor._ops._math_ops:_NormPartial",
    }
)
_RANDOM = "torch.distributed.tensor._random"
CLASS = "torch.distributed.tensor:DTensor"
_DROPPING_NAMES = (
    "dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout "
    "feature_alpha_dropout_ native_dropout"
)
_DROPPING = frozenset(_DROPPING_NAMES.split())
_DRAWING_NAMES = (
    "bernoulli bernoulli_ normal normal_ uniform_ rand rand_like randint_like randn randn_like random_ exponential_ geometric_ cauchy_ "
    "log_normal_ multinomial poisson rrelu rrelu_ gumbel_softmax binomial trunc_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ "
    "xavier_normal_"
)
_DRAWING = frozenset(_DRAWING_NAMES.split())
# The base in C of all placements; none if PyTorch was built without processes.
PLACEMENT: tuple[type, ...] = (torch._C._distributed.Placement,) if hasattr(torch._C, "_distributed") else ()


def is_mesh(x: object) -> bool:
    """Returns whether ``x`` is a mesh of processes. It never changes; the names of its process groups are its own."""
    return type(x).__name__ == "DeviceMesh" and type(x) is imported(MESH)


def is_distributed(t: object) -> bool:
    """Returns whether ``t`` is a `DTensor`, not one of a class derived from it."""
    # It is asked about each operand: the name alone tells nearly always.
    return type(t).__name__ == "DTensor" and type(t) is imported(CLASS)


def is_placement(x: object) -> bool:
    """Returns whether ``x`` is a placement that never changes. One that a sharded embedding gives holds a mask, which later operators remove."""
    t = type(x)
    known = is_a(x, PLACEMENT) and t.__name__ in _PLACEMENTS and t is imported(_PLACEMENTS[t.__name__])
    return known and all([type(n) in (int, float) for n in vars(x).values()])


def is_placement_class(cls: type) -> bool:
    """Returns whether ``cls`` is a class of placements that never change."""
    return cls.__name__ in _PLACEMENTS and cls is imported(_PLACEMENTS[cls.__name__])


def holds_masks(t: Any) -> bool:
    """Returns whether a `DTensor` has placements that are no constants: an operator that looks up rows of a sharded table gives one that holds a mask."""
    return is_distributed(t) and not all(map(is_placement, t._spec.placements))


def mask_buffers(t: Any) -> list[Any]:
    """Returns the objects in the placements of a `DTensor` that hold a mask, and count the operators that have left it."""
    return [placement.mask_buffer for placement in t._spec.placements if hasattr(placement, "mask_buffer")]


def own_masks(t: Any) -> None:
    """Gives a `DTensor` that consists of fakes masks of its own: PyTorch keeps the placement in a cache, where the next operator finds its mask."""
    spec = copy.copy(t._spec)
    spec.placements = tuple([_with_own_mask(placement) for placement in spec.placements])
    t._spec = spec


def _with_own_mask(placement: Any) -> Any:
    buffer = getattr(placement, "mask_buffer", None)
    if buffer is None:
        return placement
    own = copy.copy(buffer)
    buffer.data, buffer.refcount = None, 0
    return type(placement)(placement.reduce_op, own, placement.offset_shape, placement.offset_dim)


def without_sizes(t: Any, context: Any) -> tuple:
    """Returns the context of a `DTensor` without its sizes and strides: a guard on the tensor checks them, if they are those of its context."""
    placements, meta, order, requires_grad = context
    if meta is None:
        return placements, None, order, requires_grad
    # Operators give a torch.Size, AOTAutograd a tuple.
    own = ([*map(_number, meta.shape)], [*map(_number, meta.stride)]) == layout_of(t)
    return placements, meta.dtype, own, order, requires_grad


def layout_of(t: Tensor) -> tuple[list, list]:
    """Returns the sizes and the strides of a tensor, with expressions in place of symbols, whose comparison would be a guard."""
    return [*map(_number, t.shape)], [*map(_number, t.stride())]


def _number(n: Any) -> Any:
    return n.node.expr if type(n) is torch.SymInt else n


class DispatchState(NamedTuple):
    """The state that decides how operators on a `DTensor` are computed.

    ``replicas``: whether plain tensors are taken for replicas. ``handlers``: the operators with special handlers. ``tracks_states``: whether
    draws of random numbers set the states of generators.
    """

    replicas: bool
    handlers: tuple[str, ...]
    tracks_states: bool


def dispatch_state() -> DispatchState:
    """Returns this thread's and this process's state."""
    tracker = getattr(imported(_RANDOM), "_rng_tracker", None)
    return DispatchState(torch._C._get_dtensor_allow_implicit_replication(), tuple(sorted(map(str, _handlers()))), tracker is not None)


def _handlers() -> dict[Any, Any]:
    """Returns the handlers of operators on a `DTensor`."""
    cls = imported(CLASS)
    found: dict[Any, Any] = cls._op_dispatcher._custom_op_handlers if cls is not None else {}
    return found


def parallel_losses() -> bool:
    """Returns whether a loss on a `DTensor` is computed in parallel, as in a block of ``loss_parallel``."""
    handlers = _handlers() if imported(LOSSES) is not None else {}
    return bool(handlers) and all([handlers.get(op) is handler for op, handler in loss.customized_loss_ops.items()])


def may_switch_losses(on: bool) -> bool:
    """Returns whether PyTorch's functions switch these handlers, and nothing else: others may have handlers for the same operators."""
    return parallel_losses() or (on and _handlers().keys().isdisjoint(loss.customized_loss_ops))


@has_side_effect
def set_parallel_losses(on: bool) -> None:
    """Switches the handlers of ``loss_parallel`` on or off."""
    if on != parallel_losses():
        switch = loss._enable_custom_loss_ops if on else loss._disable_custom_loss_ops
        switch()


if PLACEMENT:
    has_side_effect(torch._C._set_dtensor_allow_implicit_replication)
SWITCHES: tuple[tuple[Any, Any], ...] = (
    *[(torch._C._get_dtensor_allow_implicit_replication, torch._C._set_dtensor_allow_implicit_replication) for _ in PLACEMENT],
    (parallel_losses, set_parallel_losses),
)
"""The functions that read and set a part of `dispatch_state`, which blocks of code change. Backends that drop nodes without used results do not drop these."""


def sets_states(t: Any) -> bool:
    """Returns whether draws of random numbers for a `DTensor` set the states of generators, so that all ranks draw for the whole tensor."""
    # On a CPU each rank draws for its own part, as for other tensors.
    return t._spec.mesh.device_type != "cpu" or dispatch_state().tracks_states


def draws(fn: Any, args: Any, kwargs: dict | None) -> bool:
    """Returns whether an operator draws random numbers."""
    name = getattr(fn, "__name__", "").partition(".")[0]
    if name == "scaled_dot_product_attention":
        return bool((kwargs or {}).get("dropout_p", args[4] if len(args) > 4 else 0.0))
    if name in _DROPPING:
        # In functions and operators alike, the third argument, or the second one without a probability.
        given = {k: v for k, v in (kwargs or {}).items() if k in ("training", "train")}
        return next(iter(given.values())) if given else args[2] is not False if len(args) > 2 else True
    return name in _DRAWING


class SamePlacement:
    """A predicate: a placement equals the one that was seen at capture."""

    def __init__(self, placement: Any) -> None:
        self._placement = placement

    def __call__(self, other: Any) -> bool:
        return type(other) is type(self._placement) and bool(other == self._placement)
