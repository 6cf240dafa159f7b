"""The table of callables that the interpreter answers itself, with their handlers."""

from __future__ import annotations

import operator
import typing
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fineline.builtins import (
    attribute_functions,
    classes,
    containers,
    data_parallel,
    debuggers,
    distributed_tensors,
    iteration,
    libraries,
    marks,
    random_methods,
    rule_blocks,
    texts,
)
from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.kinds import is_a, is_users_class
from fineline.objects import attention_params, c_calls, context_variables, copying, introspection
from fineline.objects.c_argument_errors import counted
from fineline.objects.copying import mark_made
from fineline.tables import is_replaced
from fineline.tensor_ops import (
    collectives,
    inference_mode,
    tensor_indices,
    tensor_types,
    torch_functions,
    unbacked,
    user_modes,
    wrapper_tensors,
)
from fineline.tensor_ops.arrays import calls as array_calls
from fineline.tensor_ops.subgraphs import checkpoint, higher_order, module_hooks, tensor_hooks
from fineline.tensor_ops.subgraphs.autograd_function import apply_function
from fineline.tensor_ops.torch_functions import overrides, silent
from fineline.torch_facts.releases import APPLY
from fineline.tracing.interp import Call, Handler, Interp


def _native_binary(call: Call) -> Frame | None:
    op, a, b = call.args
    return call.finish(op(_without_methods(call.interp, a), _without_methods(call.interp, b)))


def _without_methods(interp: Interp, v: Any) -> Any:
    """Replaces ``v``, whose methods have been called already, by an instance of a class with the same name: C raises the error about it."""
    t = type(v)
    if overrides(v):
        return silent(v)
    if is_a(v, Tensor):
        return type(interp.type_of(v).__name__, (), {})()
    if not is_users_class(t) or t.__dictoffset__ == 0 or any([not is_users_class(k) for k in t.__mro__[:-1]]):
        return v
    return type(t.__name__, (), {})()


def _split_group(call: Call) -> Frame | None:
    args = call.args
    by_type = len(args) == 2 and not call.kwargs and all(is_a(c, type) for c in (args[1] if is_a(args[1], tuple) else (args[1],)))
    if call.trace.active and not by_type:
        raise call.graph_break("FL410", f"{call.fn.__name__} with a function")
    result = call.native()
    for part in result if is_a(result, tuple) else (result,):
        mark_made(call.trace, part)
    return call.finish(result)


# Code that would act differently if it were compiled: it would skip the hooks that run in spite of an error, and the path that fills
# padding with zeros.
_AS_EVER = frozenset({torch.nn.Module._call_impl.__code__, torch.nn.TransformerEncoder.forward.__code__})


def _true(call: Call) -> Frame | None:
    return call.finish(call.frame.info.code not in _AS_EVER) if call.trace.active else call.run_natively()


def _last(call: Call) -> Frame | None:
    return call.finish(call.args[-1])


def _invert(call: Call) -> Frame | None:
    if "bools" in CURRENT.warns_of and type(call.args[0]) in (bool, torch.SymBool):
        return call.run_eagerly("FL437", "~ of a bool, about which Python warns")
    return c_calls.call_c(call)


def _type_hints(call: Call) -> Frame | None:
    """Breaks the graph at ``get_type_hints``, which compiles and evaluates text: a break inside it could not be rebuilt."""
    if call.trace.active:
        raise call.graph_break("FL410", "get_type_hints() evaluates text")
    return call.interpret()


_FAMILIES: tuple[Any, ...] = (
    array_calls, attribute_functions, checkpoint, classes, collectives, containers, copying, data_parallel, debuggers, random_methods,
    distributed_tensors, higher_order, tensor_indices, inference_mode, introspection, torch_functions, user_modes, rule_blocks, libraries, marks,
    context_variables, iteration, module_hooks, tensor_hooks, tensor_types, texts, unbacked, wrapper_tensors, attention_params,
)  # fmt: skip

_UNCOUNTED: dict[Any, Handler] = {
    **{fn: handler for family in _FAMILIES for fn, handler in family.HANDLERS.items()},
    protocols.native_binary: _native_binary,
    operator.inv: _invert,
    operator.invert: _invert,
    APPLY: apply_function,
    # A graph cannot contain a profiler's label; the profiler sees the program instead.
    torch.autograd.profiler.record_function.__enter__: _last,
    torch.autograd.profiler.record_function.__exit__: marks.gives(None),
    BaseExceptionGroup.split: _split_group,
    BaseExceptionGroup.subgroup: _split_group,
    typing.cast: _last,
    typing.get_type_hints: _type_hints,
    torch.jit.is_scripting: marks.gives(False),
    torch.jit.is_tracing: marks.gives(False),
    torch.compiler.is_compiling: _true,
    torch.compiler.is_dynamo_compiling: _true,
    torch.compiler.is_exporting: marks.gives(False),
}

# A dict and not a proxy, because most calls look here.
HANDLERS: Mapping[Any, Handler] = {fn: counted(fn, handler) for fn, handler in _UNCOUNTED.items() if not is_replaced(fn)}
