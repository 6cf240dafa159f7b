"""Collectives of torch.distributed: those that write in place become functional ones with a copy, and questions about process groups get guards.

A functional collective is an operator that returns a new tensor, so a graph can hold it; `torch.distributed._functional_collectives` has
Python functions around them. A collective that no functional one does the same as runs eagerly, between two graphs.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.frames.frame import Frame
from fineline.import_thread import apart
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import holds
from fineline.tables import imported
from fineline.torch_facts.callables import classify_torch
from fineline.tracing.identity_guards import guard_answer, identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.plain_values import is_value

_FUNCTIONAL = "torch.distributed._functional_collectives"
_DIRECTORY = os.path.dirname(dist.__file__) + os.sep
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


# -- process groups --------------------------------------------------------------------------------------------------------
def standing(group: Any) -> tuple[str, int, int] | None:
    """Returns the name of a process group, this process's rank in it and its size; None if it is gone, or does not contain this process."""
    try:
        name = group.group_name
        known = torch._C._distributed_c10d._resolve_process_group(name) is group
        return (name, group.rank(), group.size()) if known and dist.get_rank(group) >= 0 else None
    except (AttributeError, RuntimeError, ValueError):
        return None


def default_standing() -> tuple[str, int, int] | None:
    """Returns the same as `standing`, of the default group."""
    return standing(dist.group.WORLD)


def standing_of_ranks(name_of: Callable, ranks: tuple[int, ...], tag: str) -> tuple[str, int, int] | None:
    """Returns the same as `standing`, of the group of these ranks. ``name_of``: PyTorch's function that finds its name."""
    try:
        return standing(torch._C._distributed_c10d._resolve_process_group(name_of([*ranks], tag)))
    except (AttributeError, RuntimeError, ValueError):
        return None


def _stands(expected: tuple, group: Any) -> bool:
    return standing(group) == expected


def _guarded_standing(call: Call, group: Any) -> tuple[str, int, int] | None:
    """Returns what is known of the group, with a guard on it; None if it is gone, does not contain this process, or has no source."""
    trace = call.trace
    found = default_standing() if group is None else standing(group)
    if found is None:
        return None
    src = trace.sources.get(group) if group is not None else None
    if src is not None and src.op != "pin":
        trace.guards.check(src, "predicate", (partial(_stands, found), f"is the process group {found[0]}, rank {found[1]} of {found[2]}"), ("standing", found))
    elif group is None or group is dist.group.WORLD:
        guard_answer(trace, default_standing, (), {}, found)
    else:
        return None
    return found


def _answers(fn: Callable, at: int, args: tuple, answer: Any, group: Any) -> bool:
    try:
        return is_a(group, dist.ProcessGroup) and bool(fn(*args[:at], group, *args[at + 1 :]) == answer)
    except (RuntimeError, ValueError):
        return False


def _asks(call: Call) -> Frame | None:
    """Handles a question about a process group: the answer is a constant, with a guard that asks again."""
    given = [i for i, a in enumerate(call.args) if is_a(a, dist.ProcessGroup)]
    named = [k for k, a in (call.kwargs or {}).items() if is_a(a, dist.ProcessGroup)]
    if not call.trace.active:
        return call.run_natively()
    if not given and not named:
        return call.interp.tensors.call(call, "query") if classify_torch(call.fn) == "query" else call.interpret()
    parameters = [*inspect.signature(call.fn).parameters]
    if named:
        at = parameters.index(named[0])
        if len(call.args) != at or len(call.kwargs or {}) != 1:
            return call.interpret()
        call = Call(call.interp, call.frame, call.fn, [*call.args, (call.kwargs or {})[named[0]]], None, call.then)
        given = [at]
    at, group = given[0], call.args[given[0]]
    src = call.trace.sources.get(group)
    others = [a for i, a in enumerate(call.args) if i != at]
    if len(given) != 1 or call.kwargs or src is None or not all([is_value(a) and not holds(a) for a in others]):
        return call.interpret()
    answer = call.fn(*call.args)
    if type(answer) not in (int, str, list):
        return call.interpret()
    check = partial(_answers, call.fn, at, tuple([None if i == at else a for i, a in enumerate(call.args)]), answer)
    text = f"is a process group for which {call.fn.__name__} gives {answer}"
    call.trace.guards.check(src, "predicate", (check, text), ("asked", call.fn, tuple(others)))
    return call.finish(call.trace.fresh(answer) if type(answer) is list else answer)


def names_groups() -> bool:
    """Returns whether collectives get the names of groups, as always but under a setting for compilers."""
    return not getattr(getattr(dist, "config", None), "compile_on_one_rank", False)


def _of_mesh(mesh: Any) -> Any:
    assert mesh.ndim == 1
    return mesh._dim_group_names[0]


def _of_dimension(place: Any) -> Any:
    return place[0]._dim_group_names[place[1]]


def _resolve(call: Call) -> Frame | None:
    """Handles `_resolve_group`: it returns a process group itself, and the name of a mesh's group.

    For a mesh it reads a setting, which a context variable holds; a guard reads that here.
    """
    group = call.args[0] if call.args else None
    if not call.trace.active:
        return call.run_natively()
    if is_a(group, dist.ProcessGroup):
        return call.finish(group) if _guarded_standing(call, group) is not None else call.interpret()
    mesh: Any
    mesh, dim = group if type(group) is tuple and len(group) == 2 else (group, None)
    if type(mesh) is not imported("torch.distributed.device_mesh:DeviceMesh") or not names_groups():
        return call.interpret()
    if type(dim) is not int and (dim is not None or mesh.ndim != 1):
        return call.interpret()
    guard_answer(call.trace, names_groups, (), {}, True)
    name_of = _of_mesh if dim is None else _of_dimension
    call.trace.pin(name_of, name_of.__name__)
    return call.instead(name_of, [group])


def _name(call: Call) -> Frame | None:
    """Handles `_group_or_group_name`: the name of a group is a constant, with a guard that the group still has it."""
    group = call.args[0] if call.args else None
    if call.trace.active and is_a(group, dist.ProcessGroup) and (found := _guarded_standing(call, group)) is not None:
        named = call.fn(group)
        return call.finish(named) if named == found[0] else call.interpret()
    return call.interpret()


def _name_by_ranks(call: Call) -> Frame | None:
    """Handles `_resolve_group_name_by_ranks_and_tag`: the name of the group of these ranks is a constant, with a guard that asks again."""
    ranks, tag = call.args if len(call.args) == 2 and not call.kwargs else (None, None)
    if not call.trace.active or type(ranks) is not list or type(tag) is not str or not all([type(rank) is int for rank in ranks]):
        return call.interpret()
    call.trace.expand(ranks)
    asked = (call.fn, tuple(ranks), tag)
    if (found := standing_of_ranks(*asked)) is None:
        return call.interpret()
    guard_answer(call.trace, standing_of_ranks, asked, {}, found)
    return call.finish(found[0])


def _size(call: Call) -> Frame | None:
    """Handles `_get_group_size_by_name`, which takes a group too."""
    group = call.args[0] if call.args else None
    if call.trace.active and is_a(group, dist.ProcessGroup) and (found := _guarded_standing(call, group)) is not None:
        return call.finish(found[2])
    return call.interp.tensors.call(call, "query") if call.trace.active else call.run_natively()


# -- the functional forms: captured instead of the functions that write in place ----------------------------------------------
# Some write without a new version of the tensor, as `data` does; the gathers and scatters give their outputs one.
def _all_reduce(tensor: Tensor, op: str, name: str) -> None:
    ops = torch.ops._c10d_functional
    reduced = ops.wait_tensor(ops.all_reduce(tensor, op, name))
    tensor.data.copy_(reduced)


def _broadcast(tensor: Tensor, src: int, name: str) -> None:
    ops = torch.ops._c10d_functional
    sent = ops.wait_tensor(ops.broadcast(tensor, src, name))
    tensor.data.copy_(sent)


def _gather(output: Tensor, tensor: Tensor, size: int, name: str) -> None:
    ops = torch.ops._c10d_functional
    output.copy_(ops.wait_tensor(ops.all_gather_into_tensor(tensor.view(-1), size, name)).view(output.shape))


def _gather_list(outputs: Any, tensor: Tensor, size: int, name: str) -> None:
    ops = torch.ops._c10d_functional
    parts = ops.wait_tensor(ops.all_gather_into_tensor(tensor.view(-1), size, name)).view(size, *tensor.shape)
    for i in range(size):
        outputs[i].copy_(parts[i])


def _scatter(output: Tensor, tensor: Tensor, op: str, size: int, name: str) -> None:
    ops = torch.ops._c10d_functional
    output.copy_(ops.wait_tensor(ops.reduce_scatter_tensor(tensor.view(-1), op, size, name)).view(output.shape))


def _exchange(output: Tensor, tensor: Tensor, given: Any, taken: Any, name: str) -> None:
    ops = torch.ops._c10d_functional
    exchanged = ops.wait_tensor(ops.all_to_all_single(tensor, given, taken, name))
    output.data.copy_(exchanged)


# -- which calls become functional ---------------------------------------------------------------------------------------------
class _Refused(Exception):
    """No functional collective does the same as this call."""


def _tensor(interp: Interp, t: Any, written: bool) -> Any:
    """Returns what stands for a tensor in the capture; raises if a functional collective would treat it differently."""
    if type(t) not in _PLAIN and (interp.backing.real or type(t) is not FakeTensor):
        raise _Refused(f"a {type(t).__name__}")
    known = interp.backing.memory(interp, t)
    if known.layout is not torch.strided or known.is_complex() or not known.is_contiguous() or known.numel() == 0:
        raise _Refused("a tensor that is sparse, complex, empty or not contiguous")
    if known.requires_grad and torch.is_grad_enabled() and written:
        raise _Refused("a write into a tensor that requires a gradient, which autograd does not see")
    return known


def _reduction(call: Call, op: Any, group: Any) -> str:
    known = type(op) is dist.ReduceOp.RedOpType and op.name in ("SUM", "PRODUCT", "MIN", "MAX")
    if not known and not (op == dist.ReduceOp.AVG and dist.get_backend(group) == "nccl"):
        raise _Refused(f"the reduction {op}")
    identify(call.trace, op)
    return str(op.name).lower()


def _same_kind(*tensors: Any) -> None:
    if any([t.dtype != tensors[0].dtype or t.device != tensors[0].device for t in tensors]):
        raise _Refused("tensors of several types")


Given = Mapping[str, Any]
Standing = tuple[str, int, int]


def _plan_all_reduce(call: Call, a: Given, at: Standing) -> tuple:
    _tensor(call.interp, a["tensor"], True)
    return _all_reduce, [a["tensor"], _reduction(call, a["op"], a["group"]), at[0]]


def _plan_broadcast(call: Call, a: Given, at: Standing) -> tuple:
    _tensor(call.interp, a["tensor"], True)
    src = a["group_src"] if a.get("group_src") is not None else a["src"]
    if type(src) is not int or (a["group"] not in (None, dist.group.WORLD) and a.get("group_src") is None) or not 0 <= src < at[2]:
        raise _Refused("a source by its rank among all processes, in a group of some")
    return _broadcast, [a["tensor"], src, at[0]]


def _plan_gather(call: Call, a: Given, at: Standing) -> tuple:
    output, tensor = _tensor(call.interp, a["output_tensor"], True), _tensor(call.interp, a["input_tensor"], False)
    _same_kind(output, tensor)
    if not tensor.dim() or tuple(output.shape) != (tensor.shape[0] * at[2], *tensor.shape[1:]):
        raise _Refused("an output of another shape than the parts have, one after the other")
    return _gather, [a["output_tensor"], a["input_tensor"], at[2], at[0]]


def _plan_gather_list(call: Call, a: Given, at: Standing) -> tuple:
    outputs, tensor = a["tensor_list"], _tensor(call.interp, a["tensor"], False)
    if type(outputs) not in (list, tuple):
        raise _Refused(f"a {type(outputs).__name__} of outputs")
    call.trace.expand(outputs)
    known = [_tensor(call.interp, t, True) for t in outputs]
    _same_kind(tensor, *known)
    if len(known) != at[2] or any([t.shape != tensor.shape for t in known]):
        raise _Refused("outputs of other shapes than the input")
    return _gather_list, [outputs, a["tensor"], at[2], at[0]]


def _plan_scatter(call: Call, a: Given, at: Standing) -> tuple:
    output, tensor = _tensor(call.interp, a["output"], True), _tensor(call.interp, a["input"], False)
    _same_kind(output, tensor)
    if not output.dim() or tuple(tensor.shape) != (output.shape[0] * at[2], *output.shape[1:]):
        raise _Refused("an input of another shape than the parts have, one after the other")
    return _scatter, [a["output"], a["input"], _reduction(call, a["op"], a["group"]), at[2], at[0]]


def _plan_exchange(call: Call, a: Given, at: Standing) -> tuple:
    output, tensor = _tensor(call.interp, a["output"], True), _tensor(call.interp, a["input"], False)
    _same_kind(output, tensor)
    splits = []
    for t, sizes in ((output, a["output_split_sizes"]), (tensor, a["input_split_sizes"])):
        length = t.shape[0] if t.dim() else 0
        if sizes is None and (type(length) is not int or length % at[2]):
            raise _Refused("a length that the number of processes does not divide")
        if sizes is not None:
            call.trace.expand(sizes, True)
        sizes = [length // at[2]] * at[2] if sizes is None else list(sizes)
        if len(sizes) != at[2] or not all([type(n) is int for n in sizes]) or sum(sizes) != length:
            raise _Refused("parts that are not as long as the tensor")
        splits.append(call.trace.fresh(sizes))
    if output.shape[1:] != tensor.shape[1:]:
        raise _Refused("tensors of several shapes")
    return _exchange, [a["output"], a["input"], *splits, at[0]]


_PLANS: Mapping[str, Callable[[Call, Given, Standing], tuple]] = MappingProxyType(
    {
        "all_reduce": _plan_all_reduce,
        "broadcast": _plan_broadcast,
        "all_gather_single": _plan_gather,
        "all_gather_into_tensor": _plan_gather,
        "all_gather": _plan_gather_list,
        "reduce_scatter_single": _plan_scatter,
        "reduce_scatter_tensor": _plan_scatter,
        "all_to_all_single": _plan_exchange,
    }
)


def _in_place(call: Call) -> Frame | None:
    """Handles a collective that writes into its argument: captures the functional form, or breaks the graph."""
    if not call.trace.active:
        return call.run_natively()
    if call.interp.nested.modes or call.interp.nested.opaque is not None or torch._C._len_torch_function_stack():
        return call.interpret()
    name = call.fn.__name__
    try:
        bound = inspect.signature(inspect.unwrap(call.fn)).bind(*call.args, **(call.kwargs or {}))
    except TypeError:
        return call.interpret()
    bound.apply_defaults()
    given = bound.arguments
    if given["async_op"] is not False:
        raise call.graph_break("FL411", f"{name} with async_op=True, whose result says when the communication is over")
    at = _guarded_standing(call, given["group"])
    if at is None or dist.distributed_c10d._world.pg_coalesce_state:
        raise call.graph_break("FL411", f"{name} in a process group that is gone, does not contain this process, or collects its operations")
    apart(partial(importlib.import_module, _FUNCTIONAL))
    try:
        form, args = _PLANS[name](call, given, at)
    except _Refused as e:
        raise call.graph_break("FL411", f"{name} of {e}" if not str(e).startswith("the ") else f"{name} with {e}") from None
    call.trace.pin(form, f"functional {name}")
    return call.instead(form, args)


# -- the handlers ---------------------------------------------------------------------------------------------------------------
_BY_NAME: Mapping[tuple[str, str], Handler] = MappingProxyType(
    {
        (_FUNCTIONAL, "_resolve_group"): _resolve,
        (_FUNCTIONAL, "_group_or_group_name"): _name,
        ("torch.distributed.distributed_c10d", "_get_group_size_by_name"): _size,
        ("torch.distributed.distributed_c10d", "_resolve_group_name_by_ranks_and_tag"): _name_by_ranks,
        **{("torch.distributed.distributed_c10d", name): _in_place for name in _PLANS},
    }
)
NAMES = frozenset(name for _, name in _BY_NAME)
"""The qualified names of functions that have a handler here, and may be wrapped by PyTorch, or be imported later."""


def collective(fn: FunctionType) -> Handler | None:
    """Returns the handler of one of PyTorch's own functions by its name; None for others, such as a user's wrapper with that name."""
    found = _BY_NAME.get((fn.__module__ or "", fn.__qualname__))
    if found is None or hasattr(fn, "__deprecated__"):
        # A deprecated function warns, and calls its successor, which has a handler.
        return None
    inner: Any = fn
    while inner is not None:
        if not is_a(inner, FunctionType) or not inner.__code__.co_filename.startswith(_DIRECTORY):
            return None
        inner = inner.__dict__.get("__wrapped__")
    return found


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    dict.fromkeys((dist.get_rank, dist.get_world_size, dist.get_process_group_ranks, dist.get_global_rank, dist.get_group_rank), _asks)
    if dist.is_available()
    else {}
)
