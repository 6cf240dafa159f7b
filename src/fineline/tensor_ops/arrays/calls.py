"""Calls of NumPy and operators on arrays: they are computed now if all is constant, are nodes of the graph, or break it.

An in-place operator and ``out=`` compute the result first, and write it into the tensor that has the array's memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.asynchronous import let_pass
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.guards.facts import storage_of
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects import c_calls
from fineline.symbolic.arithmetic import SYMBOLIC, settled
from fineline.tables import attributes
from fineline.tensor_ops.arrays import samples, traced
from fineline.tensor_ops.arrays.arguments import arrays_in, check_arguments, check_number
from fineline.tensor_ops.arrays.constants import FUNCTIONS as FOLDED
from fineline.tensor_ops.arrays.constants import METHODS as FOLDED_METHODS
from fineline.tensor_ops.arrays.constants import SHARING, computed, may_compute, ruled, tensor_from
from fineline.tensor_ops.arrays.creation import MAKERS, has_maker, make
from fineline.tensor_ops.arrays.functions import FUNCTIONS, IN_PLACE, INFIX, ArrayFunction
from fineline.tensor_ops.arrays.recording import run
from fineline.tensor_ops.arrays.samples import Samples
from fineline.tensor_ops.arrays.traced import NotTraced, is_array, is_traced, may_trace
from fineline.torch_facts.callables import TENSOR_ATTRS, classify_torch
from fineline.tracing.interp import Call, Handler, Interp

_AS_ARRAY = tuple(attributes(np, "asarray asanyarray"))


# -- computing ---------------------------------------------------------------------------------------------------------
def _row(fn: Any, args: list) -> ArrayFunction:
    """Returns the row of a function or operator that can be a part of the graph with these operands."""
    row = FUNCTIONS.get(fn)
    if row is None:
        raise NotTraced("is not among the functions that graphs can contain")
    kinds = {a.dtype.kind for a in arrays_in(args)}
    if not kinds <= set(row.kinds):
        raise NotTraced("gives something else in PyTorch for this dtype")
    return row


def _compute(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    """Records the operators that compute a call of NumPy on arrays; returns the stand-in for the result, or a list or tuple of those."""
    ufunc = INFIX.get(fn, fn)
    # A function without a row may have effects.
    row = _row(ufunc, [*args, *kwargs.values()])
    like = Samples(interp)
    given, named = [like.like(a) for a in args], {k: like.like(v) for k, v in kwargs.items()}
    called, fn = fn, ufunc
    if type(called) is MethodDescriptorType and is_a(given[0], np.generic):
        called, given = getattr(given[0], called.__name__), given[1:]
    if called is np.power and is_a(given[0], np.generic):
        raise NotTraced("of a scalar gives something else than the operator")
    # A call that writes into an operand, as by a positional ``out``, raises.
    like.protect()
    answer = like.answer(called, given, named)
    _check(like, answer)
    check_arguments(row, args, kwargs, answer)
    traced.begin(interp)
    return _deliver(interp, like, answer, run(interp, row, fn, args, kwargs))


def _check(like: Samples, answer: Any) -> None:
    """Raises if no program can make NumPy's answer from tensors."""
    if type(answer) in (list, tuple):
        for part in answer:
            _check(like, part)
    elif not is_a(answer, (np.ndarray, np.generic)) or answer.dtype.name not in traced.TORCH_DTYPES or not answer.dtype.isnative:
        raise NotTraced(f"gives a {type(answer).__name__}")
    elif is_a(answer, np.ndarray) and answer.size and not answer.flags.writeable and like.owner(answer) is None:
        raise NotTraced("gives an array that may not be written")


def _deliver(interp: Interp, like: Samples, answer: Any, result: Any) -> Any:
    """Returns stand-ins for what PyTorch has computed, which has to agree with NumPy's answer."""
    if type(answer) in (list, tuple):
        if type(result) not in (list, tuple) or len(result) != len(answer):
            raise NotTraced("gives another number of arrays in PyTorch")
        parts = [_deliver(interp, like, a, r) for a, r in zip(answer, result, strict=True)]
        return interp.trace.fresh(parts) if type(answer) is list else tuple(parts)
    for sample in like.of:
        if answer is sample.array and is_a(answer, np.ndarray):
            return sample.operand
    memory = interp.backing.memory
    if not is_a(result, Tensor) or not samples.agrees(answer, memory(interp, result)):
        raise NotTraced("gives another dtype or other sizes in PyTorch")
    scalar = is_a(answer, np.generic)
    fake = memory(interp, result)
    if fake.is_conj() or fake.is_neg():
        result = interp.tensors.operator(interp, torch.resolve_neg, [interp.tensors.operator(interp, torch.resolve_conj, [result], None, True)], None, True)
        fake = memory(interp, result)
    owner = like.owner(answer) if not scalar else None
    if owner is not None:
        if not samples.same_memory(answer, fake, owner.array, memory(interp, traced.tensor_of(interp, owner.operand))):
            raise NotTraced("gives an array with other memory in PyTorch")
        return traced.add(interp, result)
    own = [memory(interp, traced.tensor_of(interp, s.operand)) for s in like.of]
    aliases = any([storage_of(fake) == storage_of(t) for t in own])
    if aliases or not (scalar or samples.strides_agree(answer, samples.layout(fake)[1])):
        result = _copy(interp, answer, result)
    return traced.add(interp, result, scalar)


def _copy(interp: Interp, answer: Any, result: Tensor) -> Tensor:
    """Returns a copy with the strides of NumPy's answer."""
    kwargs = {"memory_format": torch.contiguous_format} if is_a(answer, np.generic) or answer.flags.c_contiguous else None
    copy: Tensor = interp.tensors.operator(interp, Tensor.clone, [result], kwargs, True)
    if is_a(answer, np.generic) or samples.strides_agree(answer, samples.layout(interp.backing.memory(interp, copy))[1]):
        return copy
    # Such as `a[:, [1, 0]]`: contiguous, with its dimensions in another order.
    order = sorted(range(answer.ndim), key=lambda dim: -int(answer.strides[dim]))
    turned = interp.tensors.operator(interp, Tensor.permute, [result, order], None, True)
    turned = interp.tensors.operator(interp, Tensor.clone, [turned], {"memory_format": torch.contiguous_format}, True)
    back = [order.index(dim) for dim in range(answer.ndim)]
    copy = interp.tensors.operator(interp, Tensor.permute, [turned, back], None, True)
    if not samples.strides_agree(answer, samples.layout(interp.backing.memory(interp, copy))[1]):
        raise NotTraced("gives an array with other strides in PyTorch")
    return copy


def _attempt(interp: Interp, fn: Any, args: Any, kwargs: dict, compute: Callable[..., Any]) -> tuple | None:
    """Returns the result of ``compute`` in a tuple of one. None: no array is or can be a part of the graph here; an array in the graph needs a graph break."""
    values = (*args, *kwargs.values())
    if not any([is_array(interp, v) for v in values]) and not has_maker(fn, values):
        return None
    if not may_trace(interp):
        return None
    recorder = interp.trace.recorder
    before = recorder.calls
    try:
        result = compute(interp, fn, list(args), kwargs)
        recorder.array_calls += recorder.calls - before
        return (result,)
    except NotTraced as e:
        reason = str(e)
    except (GraphBreak, NotForGraph) as e:
        reason = f"can't be computed by PyTorch: {e.reason if is_a(e, GraphBreak) else e}"
    except Exception as e:
        # An error of torch._numpy: that of NumPy has another type or text.
        let_pass(e)
        reason = f"raises {type(e).__name__} in PyTorch"
    if any([is_traced(interp, v) for v in values]):
        raise GraphBreak(_of_scalar(interp, fn, args), tuple(args), kwargs or None, "FL453", f"{describe(fn)} {reason}")
    return None


def _of_scalar(interp: Interp, fn: Any, args: Any) -> Any:
    """Returns the method that eager code calls for ``fn``, a method of arrays, if the first operand stands for a scalar of NumPy."""
    if type(fn) not in _METHOD_TYPES or not args:
        return fn
    found = interp.tensors.arrays.traced.get(args[0])
    if found is None or not found.scalar:
        return fn
    if not hasattr(args[0].dtype.type, fn.__name__):
        raise GraphBreak(getattr, (args[0], fn.__name__), None, "FL453", f"{describe(fn)} of a scalar in the graph, which has no such method")
    return getattr(args[0].dtype.type, fn.__name__)


def describe(fn: Any) -> str:
    """Returns the name of a function or operator, for messages."""
    row = FUNCTIONS.get(fn)
    return row.name if row is not None else c_calls.describe(fn)


# -- writing -----------------------------------------------------------------------------------------------------------
def _write(interp: Interp, target: Any, value: Any) -> None:
    """Records a write of ``value``, an array of the same sizes that was just computed, into an array."""
    t, source = traced.tensor_of(interp, target), traced.tensor_of(interp, value)
    interp.tensors.operator(interp, Tensor.copy_, [t, _apart(interp, source, t, outside=False)], None, True)


def _apart(interp: Interp, value: Tensor, target: Tensor, outside: bool = True) -> Tensor:
    """Returns ``value``, or a copy of it if it may lie in the memory that is written: NumPy reads all of it before it writes.

    ``outside``: both may be inputs. Each array from outside is a tensor with a storage of its own, though it may share its memory with another
    one, or with a tensor.
    """
    memory, arrays, sources = interp.backing.memory, interp.tensors.arrays, interp.trace.sources
    of_value, of_target = storage_of(memory(interp, value)), storage_of(memory(interp, target))
    if of_value != of_target:
        shown = [storage_of(memory(interp, t)) for held in arrays.shown.values() for t in held if t in sources] if outside else []
        if of_value not in shown and of_target not in shown:
            return value
    copy: Tensor = interp.tensors.operator(interp, Tensor.clone, [value], None, True)
    return copy


def _is_read_late(target: Any, value: Any) -> bool:
    """Returns whether NumPy assigns ``value`` item by item if both have memory in common: to one dimension with another stride, as in ``a[:, 1] = a[0]``."""
    return is_a(target, np.ndarray) and target.ndim == 1 and value.ndim > 0 and target.size > 1 and target.strides[0] != value.strides[-1]


def _into(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    """Handles ``fn(*args, out=target)``: returns the target."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out")
    target = out[0] if type(out) is tuple and len(out) == 1 else out
    _check_target(interp, target)
    _row(fn, [*args, *kwargs.values()])
    like = Samples(interp)
    given = [like.like(a) for a in args]
    like.answer(fn, given, {k: like.like(v) for k, v in (*kwargs.items(), ("out", target))})
    traced.begin(interp)
    _target_of(interp, target)
    value = _compute(interp, fn, args, kwargs)
    if not is_a(value, np.ndarray) or value.shape != target.shape or not np.can_cast(value.dtype, target.dtype, "same_kind"):
        raise NotTraced("writes an array of another dtype or other sizes")
    if value.dtype != target.dtype and type(fn) is not np.ufunc:
        # Functions that reduce compute in the dtype of the target.
        raise NotTraced("writes into an array of another dtype than the result's")
    _write(interp, target, value)
    return target


def _check_target(interp: Interp, target: Any) -> None:
    found = interp.tensors.arrays.traced.get(target)
    if type(target) is not np.ndarray or (found is not None and found.scalar):
        raise NotTraced("writes into an object that is not an array")
    if found is None and not traced.is_input(interp, target) and not traced.may_include(interp, target):
        raise NotTraced("writes into an array that can't be a part of the graph")


def _target_of(interp: Interp, target: Any) -> Tensor:
    """Returns the tensor of the graph with the memory of an array that `_check_target` lets through."""
    if interp.tensors.arrays.constant(interp, target):
        traced.include(interp, target)
    return traced.tensor_of(interp, target)


def _in_place(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    """Handles an in-place operator."""
    op = IN_PLACE[fn]
    found = interp.tensors.arrays.traced.get(args[0])
    if found is not None and found.scalar:
        return _compute(interp, op, args, kwargs)
    return _into(interp, INFIX[op], args, {"out": args[0]})


def _fill(interp: Interp, fn: Any, args: list, kwargs: dict) -> None:
    """Handles ``a.fill(value)``."""
    if len(args) != 2 or kwargs:
        raise NotTraced("has other arguments than a value")
    _set_item(interp, fn, [args[0], ..., args[1]], kwargs)


def _copy_to(interp: Interp, fn: Any, args: list, kwargs: dict) -> None:
    """Handles ``np.copyto(target, value)``."""
    if len(args) != 2 or kwargs:
        raise NotTraced("has other arguments than two arrays")
    like = Samples(interp)
    like.answer(fn, [like.like(a) for a in args], {})
    _set_item(interp, operator.setitem, [args[0], ..., args[1]], {})


def _sort(interp: Interp, fn: Any, args: list, kwargs: dict) -> None:
    """Handles ``a.sort()``."""
    target = args[0]
    _check_target(interp, target)
    like = Samples(interp)
    like.answer(fn, [like.like(a) for a in args], {k: like.like(v) for k, v in kwargs.items()})
    traced.begin(interp)
    _target_of(interp, target)
    _write(interp, target, _compute(interp, np.sort, args, kwargs))


def _fill_diagonal(interp: Interp, fn: Any, args: list, kwargs: dict) -> None:
    """Handles ``np.fill_diagonal(target, value)``: NumPy takes the items of an array of another length over and over."""
    if len(args) != 2 or kwargs or args[0].ndim != 2 or np.shape(args[1]) not in ((), (min(args[0].shape),)):
        raise NotTraced("has other arguments than a matrix and the items of its diagonal")
    target, value = args
    _check_target(interp, target)
    traced.begin(interp)
    diagonal = interp.tensors.operator(interp, Tensor.diagonal, [_target_of(interp, target)], None, True)
    _set_item(interp, operator.setitem, [traced.add(interp, diagonal), ..., value], {})


def _set_item(interp: Interp, fn: Any, args: list, kwargs: dict) -> None:
    """Handles ``a[key] = value``."""
    target, key, value = args
    _check_target(interp, target)
    key = _of_arrays(interp, key)
    like = Samples(interp)
    sample = like.like(target)
    given = like.like(key), like.like(value)
    like.answer(operator.setitem, [sample, *given], {})
    _check_key(interp, key, True, is_a(given[1], np.ndarray) and given[1].ndim > 0)
    if is_a(given[1], (np.ndarray, np.generic)):
        if given[1].dtype.kind == "c" and sample.dtype.kind != "c":
            raise NotTraced("writes complex numbers into real ones, of which NumPy warns")
    elif type(given[1]) not in (bool, int, float):
        raise NotTraced(f"writes a {type(given[1]).__name__}")
    elif sample.dtype.kind in "biu" and type(value) is torch.SymFloat:
        raise NotTraced("writes a float that varies into ints")
    else:
        check_number(value, sample.dtype)
    if type(value) not in (np.ndarray, *SYMBOLIC):
        # PyTorch converts some numbers otherwise, or not at all.
        cell = np.empty((), sample.dtype)
        cell[()] = value
        value = cell.item()
    traced.begin(interp)
    t = _target_of(interp, target)
    item = value
    if type(value) is np.ndarray:
        source = traced.tensor_of(interp, value)
        item = _apart(interp, source, t)
        if item is not source and _is_read_late(sample[given[0]], given[1]):
            raise NotTraced("writes items of an array into the array itself, some before NumPy reads them")
    interp.tensors.operator(interp, operator.setitem, [t, _key(interp, key), item], None, True)


def _get_item(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    """Handles ``a[key]``."""
    a, key = args
    found = interp.tensors.arrays.traced.get(a)
    if found is not None and found.scalar:
        raise NotTraced("of a scalar")
    key = _of_arrays(interp, key)
    like = Samples(interp)
    sample, given = like.like(a), like.like(key)
    _check_key(interp, key, False, False)
    answer = like.answer(operator.getitem, [sample, given], {})
    _check(like, answer)
    traced.begin(interp)
    result = interp.tensors.operator(interp, operator.getitem, [traced.tensor_of(interp, a), _key(interp, key)], None, True)
    return _deliver(interp, like, answer, result)


def _check_key(interp: Interp, key: Any, written: bool, many: bool) -> None:
    """Raises if PyTorch takes an index otherwise than NumPy. ``written``: items are written; ``many``: not all of them get the same value."""
    parts = key if type(key) is tuple else (key,)
    if any([type(part) is np.ndarray for part in parts]):
        advanced = [n for n, part in enumerate(parts) if type(part) in (np.ndarray, int, torch.SymInt)]
        if advanced[-1] - advanced[0] >= len(advanced):
            raise NotTraced("has indices apart from each other, whose dimension NumPy puts first")
    for part in parts:
        if type(part) is slice:
            if type(part.step) is int and part.step < 0:
                raise NotTraced("goes backward, which no tensor does")
        elif type(part) is np.ndarray:
            if part.dtype.kind == "b":
                if not written or many or type(key) is tuple:
                    raise NotTraced("gives as many items as data decides")
            elif part.dtype.kind not in "i" or part.ndim == 0 or (written and many and not _are_different(interp, part)):
                raise NotTraced("has an array as an index" if not written else "has an array as an index, which may write an item twice")
        elif part is not None and part is not ... and type(part) not in (int, torch.SymInt):
            raise NotTraced(f"has a {type(part).__name__} as an index")


def _are_different(interp: Interp, indices: Any) -> bool:
    """Returns whether constant indices are of different items, whatever the size is: PyTorch writes those that are equal in any order."""
    if not interp.tensors.arrays.constant(interp, indices):
        return False
    return np.unique(indices).size == indices.size and ((indices >= 0).all() or (indices < 0).all())


def _of_arrays(interp: Interp, key: Any) -> Any:
    """Returns an index with arrays in place of lists of ints, as NumPy takes them."""
    if type(key) is tuple:
        return tuple([_of_arrays(interp, part) for part in key])
    if type(key) is not list or not _are_ints(key):
        return key
    interp.trace.expand(key)
    array = np.array(key)
    interp.tensors.arrays.made(interp.trace, array)
    return array


def _are_ints(key: list) -> bool:
    return bool(key) and all([_are_ints(part) if type(part) is list else type(part) is int for part in key])


def _key(interp: Interp, key: Any) -> Any:
    if type(key) is tuple:
        return tuple([_key(interp, part) for part in key])
    return traced.tensor_of(interp, key) if type(key) is np.ndarray else key


# -- operators and handlers --------------------------------------------------------------------------------------------
def operate(interp: Interp, f: Frame, op: Any, *operands: Any) -> bool:
    """Pushes the result of an operator with an array among its operands; returns whether it did."""
    if np.ndarray not in map(type, operands):
        return False
    found = None if any([is_traced(interp, v) for v in operands]) else computed(interp, op, operands, None)
    if found is None:
        found = _attempt(interp, op, operands, {}, _compute)
    if found is not None:
        f.stack.append(found[0])
    return found is not None


def may_list_numbers(interp: Interp, a: Any) -> bool:
    """Returns whether captured code can iterate over the numbers of an array of one dimension: those of one from outside are read by eager code."""
    if a.ndim != 1:
        return False
    return may_trace(interp) if is_traced(interp, a) else may_compute(interp) and interp.tensors.arrays.constant(interp, a)


def rows(interp: Interp, a: Any) -> list | None:
    """Returns the arrays in an array over which code iterates, if the graph or constants hold them."""
    trace_it = is_traced(interp, a) or is_array(interp, a)
    if a.ndim < 2 or (trace_it and not may_trace(interp)):
        return None
    found = []
    try:
        n = settled(length(interp, a)) if trace_it else len(a)
        for i in range(n):
            args = (a, i)
            item = _attempt(interp, operator.getitem, args, {}, _get_item) if trace_it else computed(interp, operator.getitem, args, None)
            if item is None:
                return None
            found.append(item[0])
    except GraphBreak:
        return None
    return found


def write_item(interp: Interp, a: Any, key: Any, value: Any) -> bool:
    """Writes ``a[key] = value`` into a constant array, or one of the graph; returns whether it did."""
    if type(a) is not np.ndarray:
        return False
    known = any([is_traced(interp, v) for v in (a, key, value)])
    if not known and not interp.tensors.arrays.lies_in_shared(a) and computed(interp, operator.setitem, (a, key, value), None) is not None:
        return True
    try:
        return _attempt(interp, operator.setitem, (a, key, value), {}, _set_item) is not None
    except GraphBreak as b:
        raise b.discard() from None


def _kind_of_call(call: Call) -> Callable[..., Any]:
    fn = call.fn
    if call.kwargs and "out" in call.kwargs and call.kwargs["out"] is not None:
        return _into
    if fn in _IN_PLACE_METHODS:
        return _in_place_method
    if fn in _INFIX_METHODS:
        return _infix_method
    return make if fn in MAKERS else _COMPUTING.get(fn, _compute)


def _infix_method(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    op, reflected = _INFIX_METHODS[fn]
    return _compute(interp, op, args[::-1] if reflected else args, kwargs)


def _in_place_method(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    return _in_place(interp, _IN_PLACE_METHODS[fn], args, kwargs)


def _call(call: Call) -> Frame | None:
    """Handles a function of NumPy, or a method of an array."""
    interp = call.interp
    # An array that shares memory with a tensor may be the ``out`` of the call.
    shared = any([type(v) is np.ndarray and interp.tensors.arrays.lies_in_shared(v) for v in call.values()])
    if call.trace.active and has_maker(call.fn, call.values()):
        made = _attempt(interp, call.fn, call.args, call.kwargs or {}, make)
        if made is not None:
            return call.finish(made[0])
    if interp.varying.numbers_vary(interp, call.frame, call.values()) and not any([is_traced(interp, v) for v in call.values()]):
        raise call.graph_break("FL448", f"{c_calls.describe(call.fn)} asks for a number that varies")
    if call.fn in _AS_ARRAY and len(call.args) == 1 and not call.kwargs and is_a(call.args[0], Tensor) and call.trace.active:
        return _numpy(call)
    folds = call.fn in _FOLDING and not shared and not any([is_traced(interp, v) for v in call.values()])
    found = computed(interp, call.fn, call.args, call.kwargs) if folds else None
    if found is None and call.trace.active:
        found = _attempt(interp, call.fn, call.args, call.kwargs or {}, _kind_of_call(call))
    if found is None and (own := _of_scalar(interp, call.fn, call.args)) is not call.fn:
        raise GraphBreak(own, tuple(call.args), call.kwargs, "FL453", f"{describe(call.fn)} of a scalar in the graph")
    return call.finish(found[0]) if found is not None else c_calls.call_c(call)


def _numpy(call: Call) -> Frame | None:
    """Handles ``x.numpy()``, ``x.__array__()`` and ``np.asarray(x)``."""
    interp, x = call.interp, call.args[0] if call.args else None
    if len(call.args) == 1 and not call.kwargs and is_a(x, Tensor) and call.trace.active and shows_memory(interp, x) and may_trace(interp):
        traced.begin(interp)
        try:
            return call.finish(traced.add(interp, _alias(interp, x)))
        except (NotTraced, NotForGraph) as e:
            raise call.graph_break("FL453", f"the array {e}") from None
    if call.fn in _AS_ARRAY:
        return c_calls.call_c(call)
    return call.interp.tensors.call(call, classify_torch(call.fn))


def _alias(interp: Interp, t: Tensor) -> Any:
    """Returns a tensor with the memory of ``t``; a write into one of them does not change the version of the other, as with arrays."""
    return interp.tensors.attribute(interp, t, "data", TENSOR_ATTRS["data"])


def shows_memory(interp: Interp, x: Any) -> bool:
    """Returns whether the array of a tensor shows its memory as it is, and no rule of the user's is about it."""
    return traced.shows_memory(x) and not ruled(interp, Tensor.numpy, [x], None)


def _tensor(call: Call) -> Frame | None:
    """Handles the functions of PyTorch that make a tensor from an array."""
    args, interp = call.args, call.interp
    if args and type(args[0]) is np.ndarray and call.trace.active and not ruled(interp, call.fn, args, call.kwargs):
        found = interp.tensors.arrays.traced.get(args[0])
        if found is not None and not found.scalar:
            return call.finish(_of_traced(call, found.tensor))
        made = tensor_from(interp, call.fn, args[0], args[1:], call.kwargs or {}) if found is None else None
        if made is not None:
            return call.finish(made)
    return interp.tensors.call(call, classify_torch(call.fn))


def _of_traced(call: Call, t: Tensor) -> Any:
    """Returns the tensor that a function makes from an array of the graph."""
    options = {k: v for k, v in (call.kwargs or {}).items() if v is not None}
    if len(call.args) > 1 or not options.keys() <= {"dtype", "device"}:
        raise call.graph_break("FL453", f"{c_calls.describe(call.fn)} of an array in the graph, with other options than dtype and device")
    tensors, interp = call.interp.tensors, call.interp
    if call.fn in SHARING and interp.backing.memory(interp, t).storage_offset() != 0:
        # In eager code it lies at the start of a storage of its own.
        raise call.graph_break("FL453", f"{c_calls.describe(call.fn)} of an array that lies inside of another one")
    result = _alias(interp, t) if call.fn in SHARING else tensors.operator(interp, Tensor.clone, [t], None, True)
    return tensors.operator(interp, Tensor.to, [result], options, True) if options else result


def attribute(interp: Interp, a: Any, name: str) -> Any:
    """Returns an attribute of an array of the graph, or a view of a constant; NotImplemented for a method, and for what no array has."""
    arrays = interp.tensors.arrays
    if name == "__class__" or type(vars(np.ndarray).get(name)) in _METHOD_TYPES:
        return NotImplemented
    if a not in arrays.traced:
        if name not in _VIEWS or a not in interp.trace.made:
            return NotImplemented
        arrays.made(interp.trace, view := getattr(a, name))
        return view
    scalar = arrays.traced.get(a).scalar
    if name in _OF_TYPE:
        return getattr(a, name)
    if name in _OF_SIZES:
        return _OF_SIZES[name](a, () if scalar else traced.sizes_of(interp, traced.tensor_of(interp, a)))
    if name == "T":
        found = (a,) if scalar else _attempt(interp, np.transpose, [a], {}, _compute)
        if found is not None:
            return found[0]
    raise GraphBreak(getattr, (a, name), None, "FL453", f".{name} of an array in the graph")


def length(interp: Interp, a: Any) -> Any:
    """Returns the length of an array of the graph, which may be a symbol."""
    if not a.ndim:
        raise GraphBreak(len, (a,), None, "FL453", "the length of an array without dimensions")
    return traced.sizes_of(interp, traced.tensor_of(interp, a))[0]


# Attributes that are arrays with the memory of their array.
_VIEWS = frozenset({"T", "mT", "real", "imag"})
_OF_TYPE = frozenset({"dtype", "ndim", "itemsize"})
_OF_SIZES: Mapping[str, Callable[[Any, tuple], Any]] = MappingProxyType(
    {
        "shape": lambda a, sizes: sizes,
        "size": lambda a, sizes: math.prod(sizes),
        "nbytes": lambda a, sizes: math.prod(sizes) * a.itemsize,
    }
)
_OPERATORS = {fn.__name__.strip("_"): fn for fn in INFIX}
_INFIX_METHODS: Mapping[Any, tuple[Any, bool]] = MappingProxyType(
    {
        method: (fn, reflected)
        for base, fn in _OPERATORS.items()
        for name, reflected in ((f"__{base}__", False), (f"__r{base}__", True))
        for method in attributes(np.ndarray, name)
    }
)
_IN_PLACE_METHODS: Mapping[Any, Any] = MappingProxyType(
    {method: fn for fn, op in IN_PLACE.items() for method in attributes(np.ndarray, f"__i{op.__name__.strip('_')}__")}
)
_COMPUTING: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        method: compute
        for owner, name, compute in (
            (np.ndarray, "__getitem__", _get_item), (np.ndarray, "__setitem__", _set_item), (np.ndarray, "fill", _fill), (np.ndarray, "sort", _sort),
            (np, "copyto", _copy_to), (np, "fill_diagonal", _fill_diagonal),
        )
        for method in attributes(owner, name)
    }
)
_FOLDING = frozenset([*FOLDED, *FOLDED_METHODS])
# Methods that the interpreter does itself, for all objects.
_OF_OBJECTS = frozenset({"__getattribute__", "__setattr__", "__delattr__", "__init__", "__repr__", "__str__"})
_METHOD_TYPES = (MethodDescriptorType, WrapperDescriptorType)
# Any other function of NumPy's dispatch, and method of arrays, breaks the graph at an array that is a part of it.
_DISPATCHED = [v for module in (np, *attributes(np, "linalg fft")) for v in vars(module).values() if type(v).__name__ == "_ArrayFunctionDispatcher"]
_METHODS = [v for name, v in vars(np.ndarray).items() if type(v) in _METHOD_TYPES and name not in _OF_OBJECTS]
HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        **dict.fromkeys([*_DISPATCHED, *_METHODS, *FOLDED, *FOLDED_METHODS, *_INFIX_METHODS, *_IN_PLACE_METHODS, *_AS_ARRAY, *MAKERS], _call),
        **dict.fromkeys([torch.tensor, *SHARING], _tensor),
        **dict.fromkeys([*attributes(torch._C.TensorBase, "numpy"), *attributes(Tensor, "__array__")], _numpy),
    }
)
