"""`DTensor`: calls that make one, place it anew, or give its parts become nodes of the graph, with the mesh and the placements as constants.

PyTorch's own code for them makes tensors in C inside of an `autograd.Function`, whose backward communicates: a graph holds the whole call instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from fineline.backends.mesh_calls import MeshCall
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import holds
from fineline.tables import imported
from fineline.torch_facts.distributed_tensors import (
    LOSSES,
    PLACEMENT,
    is_distributed,
    is_mesh,
    is_placement,
    may_switch_losses,
    set_parallel_losses,
)
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Handler
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value

_API = "torch.distributed.tensor._api"


class _Refused(Exception):
    """No node of a graph does the same as this call."""


def _mesh(call: Call, mesh: Any) -> Any:
    if mesh is not None:
        if not is_mesh(mesh) or mesh not in call.trace.sources:
            raise _Refused(f"a mesh that is a {type(mesh).__name__}, or made in the captured code")
        identify(call.trace, mesh)
    return mesh


def _placements(call: Call, given: Any) -> Any:
    if given is None:
        return None
    if type(given) not in (list, tuple):
        raise _Refused(f"a {type(given).__name__} of placements")
    call.trace.expand(given)
    if not all(map(is_placement, given)):
        raise _Refused("placements of unknown classes")
    return tuple(given)


def _no_other(call: Call, value: Any) -> Any:
    """Takes a constant as it is."""
    if not is_value(value) or holds(value):
        raise _Refused("sizes that vary")
    if call.trace.deferred.numbers:
        for n in value if is_a(value, tuple) else (value,):
            call.trace.deferred.settle(n)
    return value


def _waits(call: Call, value: Any) -> Any:
    """Takes ``async_op``: an operator in a graph waits for its result."""
    _no_other(call, value)
    return False


def _unchecked(call: Call, value: Any) -> Any:
    """Takes ``run_check``: the check compares the processes' parts, by communication that no graph holds."""
    if _no_other(call, value):
        raise _Refused("run_check=True")
    return False


_ARGUMENTS: Mapping[str, Callable[[Call, Any], Any]] = MappingProxyType(
    {
        "device_mesh": _mesh, "placements": _placements, "grad_placements": _placements, "run_check": _unchecked, "async_op": _waits,
        **dict.fromkeys(("shape", "stride", "forward_dtype", "backward_dtype"), _no_other),
    }
)  # fmt: skip


def _node(call: Call) -> Frame | None:
    """Handles a function that takes a tensor and constants: one node of the graph."""
    if not call.trace.active:
        return call.run_natively()
    if call.interp.nested.opaque is not None:
        return call.interpret()
    name = call.fn.__name__
    try:
        bound = inspect.signature(call.fn).bind(*call.args, **(call.kwargs or {}))
    except TypeError:
        return call.interpret()
    first, *others = bound.arguments.items()
    t = first[1]
    whole = name != "from_local"
    try:
        if not (is_distributed(t) if whole else type(t) in PLAIN_TENSORS):
            raise _Refused(f"a {type(t).__name__}")
        if name == "to_local" and getattr(t, "_is_param", False) and not call.interp.backing.real:
            # PyTorch marks the result as a parameter.
            raise _Refused("a parameter")
        if call.interp.nested.modes:
            raise _Refused("a function mode that sees the operators inside")
        constants = {k: _ARGUMENTS[k](call, v) for k, v in others}
        mesh = constants.pop("device_mesh", None)
        if not whole and mesh is None:
            raise _Refused("the mesh of a block around it")
        if mesh is not None and call.interp.nested.subgraph_rules is not None:
            raise _Refused("a mesh, in a graph inside of a graph")
    except _Refused as e:
        raise call.graph_break("FL411", f"{name} of a DTensor, with {e}") from None
    target = MeshCall(call.fn, mesh, constants)
    try:
        return call.finish(call.interp.tensors.operator(call.interp, target, [t], None))
    except GraphBreak as graph_break:
        # The target belongs to the node alone.
        if graph_break.fn is target:
            graph_break.fn, graph_break.args_, graph_break.kwargs = call.fn, tuple(call.args), call.kwargs or {}
        raise


def _part(call: Call) -> Frame | None:
    """Handles ``placements`` and ``device_mesh``: guards cover those of an input, and those of a result follow from them."""
    t: Any = call.args[0] if len(call.args) == 1 and not call.kwargs else None
    if not call.trace.active or not is_distributed(t) or t not in call.trace.containers.wrappers:
        return call.interpret()
    if call.fn.__name__ == "device_mesh":
        return call.finish(t._spec.mesh) if t._spec.mesh in call.trace.sources else call.interpret()
    # Code may compare one that holds a mask, but no program can make it.
    return call.finish(t._spec.placements)


def _asks(call: Call) -> Frame | None:
    """Handles a question about a placement, which C answers."""
    known = call.trace.active and all(map(is_value, call.values())) and is_placement(call.args[0] if call.args else None)
    return call.run_in_c() if known else call.run_eagerly("FL410", f"{call.fn.__name__} of what is no placement of a known class")


def _sliced(call: Call) -> Frame | None:
    """Handles ``mesh["name"]``: a mesh never changes, and its slice is a constant."""
    mesh: Any = call.args[0] if len(call.args) == 2 and not call.kwargs else None
    if not call.trace.active or not is_mesh(mesh) or mesh not in call.trace.sources:
        return call.interpret()
    try:
        names = _no_other(call, call.args[1])
        found = call.fn(_mesh(call, mesh), names)
    except (_Refused, KeyError, RuntimeError):
        return call.interpret()
    if found is not mesh:
        call.trace.pin(found, "mesh")
    return call.finish(found)


def _communicates(call: Call) -> Frame | None:
    return call.run_eagerly("FL411", f"{call.fn.__name__} makes a DTensor with the help of the other processes, or of their random generators")


def _switches(call: Call) -> Frame | None:
    """Handles the functions at the begin and the end of a block of ``loss_parallel``, which switch handlers of operators on a `DTensor`."""
    on = call.fn.__name__ == "_enable_custom_loss_ops"
    if call.args or call.kwargs or not may_switch_losses(on):
        return call.run_eagerly("FL411", "a block begins or ends in which losses on a DTensor are computed by handlers of somebody else's")
    return call.instead(set_parallel_losses, [on]) if call.trace.active else call.run_natively()


_BY_NAME: Mapping[tuple[str, str], Handler] = MappingProxyType(
    {
        **dict.fromkeys([(_API, f"DTensor.{name}") for name in ("from_local", "to_local", "redistribute", "full_tensor")], _node),
        **dict.fromkeys([(_API, f"DTensor.{name}") for name in ("placements", "device_mesh")], _part),
        **dict.fromkeys([("torch.distributed.tensor", name) for name in ("distribute_tensor", "distribute_module")], _communicates),
        (_API, "_dtensor_init_helper"): _communicates,
        ("torch.distributed.device_mesh", "DeviceMesh.__getitem__"): _sliced,
        **dict.fromkeys([(LOSSES, name) for name in ("_enable_custom_loss_ops", "_disable_custom_loss_ops")], _switches),
    }
)
NAMES = frozenset(name for _, name in _BY_NAME)
"""The qualified names of functions that have a handler here, and may be imported later."""


def distributed(fn: FunctionType) -> Handler | None:
    """Returns the handler of a function of PyTorch's, or of a method of `DTensor`; None for another function with that name."""
    found = _BY_NAME.get((fn.__module__ or "", fn.__qualname__))
    if found is None:
        return None
    owner, _, name = fn.__qualname__.rpartition(".")
    home = imported(f"{fn.__module__}:{owner}" if owner else fn.__module__)
    own = vars(home).get(name)
    return found if fn is (own.fget if is_a(own, property) else getattr(own, "__func__", own)) else None


_ASKING = ("is_shard", "is_replicate", "is_partial")
_KINDS = tuple([cls for base in PLACEMENT for cls in (base, *base.__subclasses__())])
HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {vars(cls)[name].__func__: _asks for cls in _KINDS for name in _ASKING if hasattr(vars(cls).get(name), "__func__")}
)
