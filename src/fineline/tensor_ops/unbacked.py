"""Numbers that captured code reads from tensors: unbacked symbols of the graph, if the region's options allow it."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental import symbolic_shapes

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import NotCapturable
from fineline.fx.recorder import NotForGraph
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import FUNCTIONS, SYMBOLIC, numbers, settled, unknown
from fineline.torch_facts.spellings import operator_name
from fineline.tracing.identity_guards import guard_answer
from fineline.tracing.interp import Call, Handler, Interp

# Functions that read the one number of a tensor, with the function that converts it to a Python number; None: no conversion.
READERS: Mapping[Any, Any] = MappingProxyType(
    {
        Tensor.item: None,
        **{owner.__dict__[name]: fn for owner in (Tensor, torch._C.TensorBase) for name, fn in (
            ("__int__", builtins.int), ("__float__", builtins.float), ("__bool__", builtins.bool), ("__index__", operator.index),
            ("is_nonzero", builtins.bool),
        ) if name in owner.__dict__},
        torch.is_nonzero: builtins.bool,
        **{fn: fn for fn in (builtins.int, builtins.float, builtins.bool, operator.index)},
    }
)  # fmt: skip
FLOATS = frozenset(fn for fn, number in READERS.items() if number is builtins.float)
_DIFFERENTIABLE = torch.zeros((), requires_grad=True)
# The most numbers that ``tolist()`` may read as symbols, because each costs an operator.
LONGEST = 256
WITHOUT_MESSAGE = "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement request to PyTorch.)"  # fmt: skip  # noqa: E501


def readable(interp: Interp, t: Any) -> bool:
    """Returns whether the number in ``t`` can be read: it is already known, or may become an unbacked symbol."""
    symbols = interp.trace.symbols
    if symbols is not None and interp.tensors.known.number(t, interp.trace.recorder.writes.storages) is not None:
        return True
    return symbols is not None and symbols.scalars and interp.tensors.symbolic and interp.nested.opaque is None and is_a(t, Tensor) and t.numel() == 1


def read(interp: Interp, fn: Any, t: Tensor) -> Any:
    """Returns the number in ``t``, converted as ``fn``, one of the `READERS`, converts it."""
    number, convert = item(interp, t), READERS[fn]
    if convert is operator.index and type(number) not in (int, torch.SymInt):
        raise NotForGraph("an index that is not an integer")
    return number if convert is None else FUNCTIONS[convert](number)


def warn(interp: Interp, f: Frame, fn: Callable) -> Callable | None:
    """Issues, once, PyTorch's warning about a number from a tensor that requires grad; returns the function that must issue it instead, or None."""
    always = torch.is_warn_always_enabled()
    guard_answer(interp.trace, torch.is_warn_always_enabled, (), {}, always)
    if always:
        return fn
    code = compile("\n" * (f.line - 1) + "float(t)", f.file, "eval")
    try:
        eval(code, f.globals, {"float": builtins.float, "t": _DIFFERENTIABLE})
    except Warning as e:
        # PyTorch has warned and will not warn again, so that only the first call may raise.
        errors = [e.with_traceback(None)]

        def raising_once(t: Tensor) -> Any:
            if errors:
                raise errors.pop()
            return fn(t)

        return raising_once
    return None


def used(args: Any, kwargs: dict | None) -> bool:
    """Returns whether an unbacked symbol is among the arguments of an operator."""
    return any(map(unknown, numbers((*args, *(kwargs or {}).values()))))


def keep_outside(interp: Interp) -> None:
    """Ends the capture of a sub-graph that would use an unbacked symbol, if its operator does not accept these."""
    if interp.nested.subgraph_rules is not None and not interp.nested.subgraph_rules.takes_unbacked:
        raise NotCapturable("it uses a number that only the graph knows")


def item(interp: Interp, t: Tensor) -> Any:
    """Returns the number in ``t``: a known one, or a new unbacked symbol whose node is recorded."""
    known = interp.tensors.known.number(t, interp.trace.recorder.writes.storages)
    if known is not None:
        return known
    keep_outside(interp)
    trace = interp.trace
    fx = trace.to_fx(t)
    new = trace.symbols.shapes.pending_fresh_unbacked_symbols
    number = interp.backing.run(interp, Tensor.item, (t,), None, born=False)
    if type(number) not in SYMBOLIC or not new:
        # A constant, or a number that was read before.
        return number
    interp.tensors.record(interp, "call_method", "item", (fx,), {}, None)
    node = next(reversed(trace.recorder.graph.nodes))
    if type(number) is torch.SymBool:
        # The symbol is one or zero.
        node = trace.recorder.quietly("call_function", torch.sym_ite, (node, 1, 0), "sym_ite")
    return trace.symbols.read(number, node)


def listed(interp: Interp, t: Tensor) -> Any:
    """Returns ``t.tolist()`` as a list of symbols, or one symbol for a tensor without dimensions."""
    if t.dim() == 0:
        return item(interp, t)
    return interp.trace.fresh([listed(interp, row) for row in interp.tensors.operator(interp, Tensor.unbind, [t, 0], None, True)])


def listable(interp: Interp, t: Tensor) -> bool:
    """Returns whether ``tolist()`` can read ``t`` as symbols: they are enabled, and ``t`` has at most `LONGEST` elements."""
    symbols = interp.trace.symbols
    if symbols is None or not symbols.scalars or not interp.tensors.symbolic or interp.nested.opaque is not None:
        return False
    sizes = interp.backing.memory(interp, t).shape
    return not any([unknown(n) for n in sizes]) and math.prod([settled(n) for n in sizes]) <= LONGEST


def within(interp: Interp, fn: Any, args: Any, kwargs: dict) -> None:
    """Adds the checks of eager code to the graph for an operator that takes unbacked symbols: without them, compiled code could access any memory."""
    check = CHECKS.get(operator_name(fn) or f"aten::{getattr(fn, '__name__', '')}")
    if check is not None and used(args, kwargs):
        check(interp, *args, **kwargs)


def _select(interp: Interp, input: Tensor, dim: int = 0, index: Any = 0) -> None:
    size = interp.backing.memory(interp, input).shape[dim]
    for bound in (index >= -size, index < size):
        _expect(interp, bound, f"index is out of bounds for dimension {dim % input.dim()}", IndexError)


def _narrow(interp: Interp, input: Tensor, dim: int, start: Any, length: Any) -> None:
    size = interp.backing.memory(interp, input).shape[dim]
    _expect(interp, length >= 0, "narrow(): length must be non-negative.", RuntimeError)
    for bound in (start >= -size, start <= size):
        _expect(interp, bound, "start out of range", IndexError)
    if unknown(start):
        # Converts a negative start into a position from the front.
        start = torch.sym_ite(start < 0, start + size, start)
    _expect(interp, start + length <= size, "start + length exceeds dimension size", RuntimeError)


def _as_strided(interp: Interp, input: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> None:
    _expect(interp, storage_offset is None or storage_offset >= 0, "Tensor: invalid storage offset", RuntimeError)


def _expect(interp: Interp, condition: Any, text: str, error: type[Exception]) -> None:
    if unknown(condition):
        interp.trace.symbols.expect(condition, text, error)


CHECKS: Mapping[str, Callable] = MappingProxyType(
    {"aten::select": _select, "aten::narrow": _narrow, "aten::as_strided": _as_strided},
)


def subscript(interp: Interp, fn: Any, args: Any) -> tuple[Any, Any]:
    """Returns an operator for ``t[key]`` that accepts the symbols in the key, with its arguments."""
    t, key = args
    if type(key) is torch.SymInt and unknown(key):
        # C would ask this symbol for its value.
        return Tensor.select, [t, 0, key]
    return fn, [t, tuple([_with_numbers(interp, k) for k in key]) if type(key) is tuple else _with_numbers(interp, key)]


def _with_numbers(interp: Interp, key: Any) -> Any:
    """Returns an index, with numbers instead of tensors as the bounds of a slice."""
    if type(key) is not slice or not any([readable(interp, x) for x in (key.start, key.stop, key.step)]):
        return key
    return slice(*[read(interp, operator.index, x) if readable(interp, x) else x for x in (key.start, key.stop, key.step)])


# -- torch._check ------------------------------------------------------------------------------------------------------
def _check(call: Call) -> Frame | None:
    """Handles ``torch._check`` and similar functions: adds a check to the graph if the condition depends on an unbacked symbol."""
    error, condition, message = call.args
    if not unknown(condition):
        return call.interpret()
    keep_outside(call.interp)
    text = WITHOUT_MESSAGE if message is None else _constant(message)
    call.trace.symbols.expect(condition, text or WITHOUT_MESSAGE, error if text is not None else None)
    return call.finish(None)


def _constant(message: Any) -> str | None:
    """Returns the text that ``message``, a function, returns; None if its code is more than the return of a constant text."""
    code = getattr(message, "__code__", None)
    if code is None or code.co_names or code.co_freevars or code.co_argcount or len(code.co_consts) > 2:
        return None
    text = code.co_consts[-1]
    return text if type(text) is str else None


def _check_is_size(call: Call) -> Frame | None:
    # Calls the wrapped function, to leave out the deprecation warning.
    return call.of(call.fn.__wrapped__, call.args).interpret()


def _advise(call: Call) -> Frame | None:
    return call.finish(call.fn(*call.args) if all([type(a) in SYMBOLIC or type(a) is int for a in call.args]) else None)


def _has_unbacked(call: Call) -> Frame | None:
    """Handles PyTorch's question whether only the graph will know a number or a size, which flex_attention (torch 2.14) asks about tensors."""
    return call.finish(any(map(unknown, numbers(list(map(_sized, call.args))))))


def _sized(a: Any) -> Any:
    """Returns ``a`` with the sizes and strides of tensors in their place."""
    if is_a(a, Tensor):
        return [*a.size(), *a.stride()] if a._has_symbolic_sizes_strides else ()
    return list(map(_sized, a)) if type(a) in (tuple, list) else a


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        symbolic_shapes.has_free_unbacked_symbols: _has_unbacked,
        torch._check_with: _check,
        torch._check_is_size: _check_is_size,
        symbolic_shapes._advise_is_size: _advise,
        symbolic_shapes._advise_is_bounded: _advise,
    }
)
