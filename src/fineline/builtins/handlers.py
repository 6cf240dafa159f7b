"""Callables that the interpreter answers itself, in one table."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.builtins import (
    attribute_functions,
    classes,
    containers,
    debuggers,
    iteration,
    libraries,
    marks,
    random_methods,
    rule_blocks,
    texts,
)
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.objects import copying, introspection
from fineline.objects.c_argument_errors import counted
from fineline.objects.copying import mark_made
from fineline.tensor_ops import inference_mode, numpy_arrays, tensor_indices, tensor_types, unbacked, user_modes
from fineline.tensor_ops.subgraphs import checkpoint, higher_order
from fineline.tensor_ops.subgraphs.autograd_function import apply_function
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import HEAP_TYPE


def _native_binary(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    op, a, b = args
    return interp.finish(f, op(_without_methods(a), _without_methods(b)), then, data)


def _without_methods(v: Any) -> Any:
    """Returns an object of the same name for C to complain about, where the methods of ``v`` have been asked already."""
    t = type(v)
    if not t.__flags__ & HEAP_TYPE or is_a(v, Tensor) or t.__dictoffset__ == 0 or any([not k.__flags__ & HEAP_TYPE for k in t.__mro__[:-1]]):
        return v
    return type(t.__name__, (), {})()


def _split_group(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    trace = interp.trace
    if trace.active and not (len(args) == 2 and not kwargs and all(is_a(c, type) for c in (args[1] if is_a(args[1], tuple) else (args[1],)))):
        raise GraphBreak(fn, tuple(args), kwargs, "FL410", f"{fn.__name__} with a function").to(then, data)
    result = interp.native(fn, tuple(args), kwargs)
    for part in result if is_a(result, tuple) else (result,):
        mark_made(trace, part)
    return interp.finish(f, result, then, data)


# What asks whether it is compiled so as to do something else then: to leave out the hooks that an error must not stop, and the way that
# gives zeros for what is padded.
_AS_EVER = frozenset({torch.nn.Module._call_impl.__code__, torch.nn.TransformerEncoder.forward.__code__})


def _true(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not interp.trace.active:
        return interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)
    return interp.finish(f, f.info.code not in _AS_EVER, then, data)


def _last(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return interp.finish(f, args[-1], then, data)


def _type_hints(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Breaks the graph at ``get_type_hints``, which compiles and evaluates text, with values in between that could not be rebuilt."""
    if interp.trace.active:
        raise GraphBreak(fn, tuple(args), kwargs, "FL410", "get_type_hints() evaluates text").to(then, data)
    return interp.push_function(f, fn, args, kwargs, then, data)


_FAMILIES: tuple[Any, ...] = (
    numpy_arrays, attribute_functions, checkpoint, classes, containers, copying, debuggers, random_methods, higher_order, tensor_indices,
    inference_mode, introspection, user_modes, rule_blocks, libraries, marks, iteration, tensor_types, texts, unbacked,
)  # fmt: skip

_HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    {
        **{fn: handler for family in _FAMILIES for fn, handler in family.HANDLERS.items()},
        protocols.native_binary: _native_binary,
        torch.autograd.Function.__dict__["apply"].__func__: apply_function,
        # A profiler's label has no place in a graph; the profiler sees the program instead.
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
)

HANDLERS: Mapping[Any, Callable] = MappingProxyType({fn: counted(fn, handler) for fn, handler in _HANDLERS.items()})
