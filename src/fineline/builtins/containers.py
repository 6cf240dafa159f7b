"""Handlers of calls that initialise containers, or read their length, truth or an item."""

from __future__ import annotations

import builtins
import collections
import operator
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.builtins.subscripts import store_dict_item
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.guards.evaluate import LENGTH, SIZED, raw_len
from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.objects import c_access, c_calls
from fineline.objects.carried_iterators import STANDING
from fineline.objects.iterator_stand_ins import KINDS
from fineline.objects.mapping_proxies import shown
from fineline.objects.type_info import in_python, type_info
from fineline.symbolic.arithmetic import only_numbers, settle_all
from fineline.tensor_ops.torch_functions import call_override, overridden
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.segment_trace import SegmentTrace

TENSOR_LEN = Tensor.__len__


def _container_init(call: Call) -> Frame | None:
    """Handles ``list.__init__`` and similar methods of an object that this segment made: updates the empty container."""
    trace = call.trace
    obj, rest = call.args[0], call.args[1:]
    if not trace.active or (not rest and not call.kwargs):
        return call.run_natively()
    base, update = next(row for row in UPDATES if is_a(obj, row[0]))
    if len(obj) or obj not in trace.made or (base is collections.deque and (len(rest) > 1 or call.kwargs)):
        raise call.graph_break("FL411", f"{type(obj).__name__}.__init__ of a container that is in use")
    # C checks the arguments, in a call in which the iterable is empty. It also sets the default factory.
    before, iterable, others = _split_arguments(base, rest)
    named = None if issubclass(base, dict) else call.kwargs
    base.__init__(obj, *before, *[() for _ in iterable], *others, **(named or {}))
    kwargs = call.kwargs if issubclass(base, dict) else None
    return call.instead(update, [obj, *iterable], kwargs) if iterable or kwargs else call.finish(None)


def _split_arguments(base: type, args: list) -> tuple[list, list, list]:
    """Returns the arguments of a container's ``__init__`` in three parts: those before the iterable, the iterable if it is there, and those after it."""
    place = 1 if base is collections.defaultdict else 0
    return args[:place], args[place : place + 1], args[place + 1 :]


UPDATES: tuple[tuple[Any, Any], ...] = (
    (list, list.extend),
    (collections.defaultdict, dict.update),
    (collections.OrderedDict, collections.OrderedDict.update),
    (dict, dict.update),
    (set, set.update),
    (collections.deque, collections.deque.extend),
)


def _bool(call: Call) -> Frame | None:
    if len(call.args) != 1 or call.kwargs:
        return call.finish(bool(*call.args, **(call.kwargs or {})))
    return call.interp.boolean(call.interp, call.frame, call.args[0], call.then)


def _len(call: Call) -> Frame | None:
    if len(call.args) != 1:
        return call.finish(len(*call.args))
    return length(call.interp, call.frame, call.args[0], call.then)


def length(interp: Interp, f: Frame, obj: Any, then: Delivery | None = None) -> Frame | None:
    trace = interp.trace
    t = type(obj)
    if trace.active:
        if is_a(obj, Tensor) and type_info(trace, interp.type_of(obj)).look(trace, "__len__")[1] is TENSOR_LEN:
            if overridden(interp, (obj,)):
                return call_override(interp, f, TENSOR_LEN, (obj,), None, then)
            if trace.recorder.kernels.unmeasured and not trace.recorder.measured(obj):
                raise GraphBreak(len, (obj,), None, "FL508", "the tensor's length depends on a tensor's values")
            return interp.finish(f, interp.backing.length(interp, obj), then)
        if t is np.ndarray and obj in interp.tensors.arrays.traced:
            return interp.finish(f, interp.tensors.array_length(interp, obj), then)
        if t is np.ndarray and obj.ndim:
            return interp.call(f, protocols.array_length, [obj], None, then)
        if t in c_access.CONTAINERS or c_access.is_structseq(t):
            return interp.finish(f, _read_length(trace, obj, then), then)
        if is_users_class(t):
            method = type_info(trace, t).look(trace, "__len__")[1]
            if in_python(method):
                return interp.call(f, protocols.length, [obj], None, then)
            return interp.finish(f, _read_length(trace, obj, then), then)
        return c_calls.call_c(Call(interp, f, len, [obj], None, then))
    return interp.finish(f, len(obj), then)


def _read_length(trace: SegmentTrace, obj: Any, then: Delivery | None) -> Any:
    """Returns the length of a container: guarded, or as a symbol if the length varies from call to call."""
    src = trace.sources.get(obj)
    if src is not None and obj not in trace.containers.expanded and not is_a(obj, (str, bytes)):
        wrote = trace.mutations.wrote(obj)
        if trace.symbols is not None and is_a(obj, (list, collections.deque) if wrote else SIZED) and trace.symbols.varying.length(src):
            # A container that was written to, but not read as a whole, has only grown.
            before = raw_len(trace.mutations.before(obj))
            return trace.read(before, trace.guards.access(src, "member", LENGTH, before)) + (raw_len(obj) - before)
        if wrote and is_a(obj, (list, collections.deque)):
            trace.guards.check(src, "len", raw_len(trace.mutations.before(obj)))
        elif wrote or is_a(obj, (types.MappingProxyType, bytearray)):
            try:
                trace.expand(obj, ordered=False)
            except NotForGraph as e:
                raise GraphBreak(len, (obj,), None, "FL413", str(e)) from None
        elif is_a(obj, SIZED):
            trace.guards.check(src, "len", len(obj))
        else:
            raise GraphBreak(len, (obj,), None, "FL413", f"len of a {type(obj).__name__} from outside")
    return len(obj)


def _tuple_new(call: Call) -> Frame | None:
    """Handles ``tuple.__new__(cls, iterable)``, as named tuples call it: lists the items of the iterable first."""
    trace, args = call.trace, call.args
    if len(args) == 2 and not call.kwargs and is_a(args[0], type) and (trace.active or c_calls.polyfill_needed(args)):
        return call.instead(protocols.listed, [args[1]], None, _tuple_filled, call.fn, args[0])
    return c_calls.call_c(call)


def _size(call: Call) -> Frame | None:
    """Handles ``torch.Size(iterable)``."""
    if call.trace.active and len(call.args) == 1 and not call.kwargs:
        return call.instead(protocols.listed, call.args, None, _size_filled)
    return c_calls.call_c(call) if call.args or call.kwargs else call.finish(torch.Size())


def _size_filled(interp: Interp, f: Frame, items: list, then: Delivery | None) -> Frame | None:
    if not only_numbers(items):
        raise GraphBreak(torch.Size, (items,), None, "FL410", "torch.Size of something that is not a number")
    return interp.finish(f, torch.Size(items), then)


def _tuple_filled(interp: Interp, f: Frame, items: list, then: Delivery | None, fn: Any, cls: type) -> Frame | None:
    result = fn(cls, items)
    interp.trace.made.add(result)
    return interp.finish(f, result, then)


def _get(call: Call) -> Frame | None:
    """Handles ``dict.get`` and ``dict.setdefault``, which read one key: no other key is guarded."""
    trace, args = call.trace, call.args
    plain = trace.active and not call.kwargs and len(args) in (2, 3) and type(args[0]) is dict
    src = trace.sources.get(args[0]) if plain else None
    if not plain or (src is None and args[0] not in trace.made):
        return c_calls.call_c(call)
    d, key = args[0], settle_all(args[1])
    if not c_access.may_hash(trace, key, d):
        return c_calls.call_c(call)
    if dict.__contains__(d, key):
        return call.finish(trace.read_key(d, src, key, dict.__getitem__(d, key)))
    default = args[2] if len(args) == 3 else None
    trace.read_absent(d, src, key)
    if call.fn is dict.setdefault:
        store_dict_item(trace, d, key, default)
    return call.finish(default)


def _get_shown(call: Call) -> Frame | None:
    """Handles ``mappingproxy.get``: calls ``get`` of the proxy's dict."""
    trace, args = call.trace, call.args
    if not trace.active or call.kwargs or len(args) not in (2, 3) or type(args[0]) is not MappingProxyType:
        return c_calls.call_c(call)
    inner = shown(trace, args[0])
    if not is_a(inner, dict) or type_info(trace, type(inner)).look(trace, "get")[1] is not dict.get:
        return c_calls.call_c(call)
    return call.instead(dict.get, [inner, *args[1:]])


def _length_hint(call: Call) -> Frame | None:
    """Handles ``operator.length_hint``. An iterator that a stand-in may replace is asked itself what it has left."""
    if not call.trace.active:
        return call.run_natively()
    if type(call.args[0]) in KINDS or type(call.args[0]) in STANDING:
        raise call.graph_break("FL410", "a length hint of an iterator under way")
    return call.instead(protocols.length_hint, call.args)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        operator.length_hint: _length_hint,
        tuple.__new__: _tuple_new,
        torch.Size: _size,
        builtins.len: _len,
        builtins.bool: _bool,
        dict.get: _get,
        dict.setdefault: _get,
        MappingProxyType.get: _get_shown,
        **{t.__init__: _container_init for t, _ in UPDATES},
    }
)


def set_of(*items: Any) -> set:
    return set(items)


def map_of(*items: Any) -> dict:
    """Returns a dict. ``items``: keys and values, alternating."""
    return dict(zip(items[::2], items[1::2], strict=True))
