"""Lengths, truth and initialisation of containers, as the interpreter answers them."""

from __future__ import annotations

import builtins
import collections
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.builtins.subscripts import store_dict_item
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.guards.evaluate import LENGTH, SIZED, raw_len
from fineline.kinds import is_a
from fineline.objects import c_calls
from fineline.objects.attribute_reads import in_python, type_info
from fineline.objects.mapping_proxies import shown
from fineline.symbolic.arithmetic import only_numbers, settle_all
from fineline.tensor_ops.overriding_classes import overrides
from fineline.tracing.segment_trace import HEAP_TYPE, SegmentTrace

TENSOR_LEN = Tensor.__len__


def _container_init(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``list.__init__`` and kin, of an object made here: the update of an empty container."""
    cap = vm.cap
    obj, rest = args[0], args[1:]
    if not cap.active or (not rest and not kwargs):
        return vm.finish(f, vm.native(fn, tuple(args), kwargs), then, data)
    update = next(u for t, u in UPDATES if is_a(obj, t))
    if len(obj) or id(obj) not in cap.made or (is_a(obj, collections.deque) and (len(rest) > 1 or kwargs)):
        raise GraphBreak(fn, tuple(args), kwargs, "FL411", f"{type(obj).__name__}.__init__ of a container that is in use").to(then, data)
    if is_a(obj, collections.defaultdict):
        obj.default_factory = rest[0]
        rest = rest[1:]
    return vm.call(f, update, [obj, *rest], kwargs, then, data)


UPDATES = (
    (list, list.extend),
    (collections.OrderedDict, collections.OrderedDict.update),
    (dict, dict.update),
    (set, set.update),
    (collections.deque, collections.deque.extend),
)


def _bool(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) != 1 or kwargs:
        return vm.finish(f, bool(*args, **(kwargs or {})), then, data)
    try:
        return vm.boolean(vm, f, args[0], then, data)
    except GraphBreak as b:
        raise b.to(then, data) from None


def _len(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) != 1:
        return vm.finish(f, len(*args), then, data)
    return length(vm, f, args[0], then, data)


def length(vm: Any, f: Frame, obj: Any, then: Any = None, data: Any = None) -> Frame | None:
    cap = vm.cap
    t = type(obj)
    if cap.active:
        if is_a(obj, Tensor) and type_info(cap, vm.type_of(obj)).look(cap, "__len__")[1] is TENSOR_LEN:
            if overrides(obj):
                raise GraphBreak(len, (obj,), None, "FL504", f"len of a {t.__name__}, which overrides operators").to(then, data)
            if cap.recorder.unmeasured and not cap.recorder.measured(obj):
                raise GraphBreak(len, (obj,), None, "FL508", "the tensor's length depends on a tensor's values").to(then, data)
            # Of a tensor without dimensions Python says what is wrong.
            size = vm.memory(obj).shape[0] if vm.fakes is not None and obj.dim() else len(obj)
            return vm.finish(f, size, then, data)
        if t in c_calls.CONTAINERS:
            return vm.finish(f, _read_length(cap, obj, then, data), then, data)
        if t.__flags__ & HEAP_TYPE:
            method = type_info(cap, t).look(cap, "__len__")[1]
            if in_python(method):
                return vm.call(f, protocols.length, [obj], None, then, data)
            return vm.finish(f, _read_length(cap, obj, then, data), then, data)
        return c_calls.call(vm, f, len, len, [obj], None, then, data)
    return vm.finish(f, len(obj), then, data)


def _read_length(cap: SegmentTrace, obj: Any, then: Any, data: Any) -> Any:
    """Returns the guarded length of a container, or a symbol if it is the length that varies."""
    src = cap.sources.get(id(obj))
    if src is not None and id(obj) not in cap.expanded and not is_a(obj, (str, bytes)):
        wrote = cap.journal.wrote(obj)
        if cap.symbols is not None and is_a(obj, (list, collections.deque) if wrote else SIZED) and cap.symbols.varying.length(src):
            # What has been written to, and not been read as a whole, has only grown.
            before = raw_len(cap.journal.before(obj))
            return cap.read(before, cap.guards.access(src, "member", LENGTH, before)) + (raw_len(obj) - before)
        if wrote and is_a(obj, (list, collections.deque)):
            cap.guards.check(src, "len", raw_len(cap.journal.before(obj)))
        elif wrote or is_a(obj, (types.MappingProxyType, bytearray)):
            try:
                cap.expand(obj, ordered=False)
            except NotForGraph as e:
                raise GraphBreak(len, (obj,), None, "FL413", str(e)).to(then, data) from None
        elif is_a(obj, SIZED):
            cap.guards.check(src, "len", len(obj))
        else:
            raise GraphBreak(len, (obj,), None, "FL413", f"len of a {type(obj).__name__} from outside").to(then, data)
    return len(obj)


def _tuple_new(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``tuple.__new__(cls, iterable)``, as named tuples call it: what the iterable gives is taken out of it first."""
    cap = vm.cap
    if len(args) == 2 and not kwargs and is_a(args[0], type) and (cap.active or c_calls.polyfill_needed(args)):
        return vm.call(f, protocols.listed, [args[1]], None, _tuple_filled, (fn, args[0], then, data))
    return c_calls.call(vm, f, fn, fn, args, kwargs, then, data)


def _size(vm: Any, f: Frame, cls: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``torch.Size(iterable)``."""
    if vm.cap.active and len(args) == 1 and not kwargs:
        return vm.call(f, protocols.listed, args, None, _size_filled, (then, data))
    return c_calls.call(vm, f, cls, cls, args, kwargs, then, data) if args or kwargs else vm.finish(f, torch.Size(), then, data)


def _size_filled(vm: Any, f: Frame, items: list, state: tuple) -> Frame | None:
    if not only_numbers(items):
        raise GraphBreak(torch.Size, (items,), None, "FL410", "torch.Size of what is no number").to(*state)
    return vm.finish(f, torch.Size(items), *state)


def _tuple_filled(vm: Any, f: Frame, items: list, state: tuple) -> Frame | None:
    fn, cls, then, data = state
    result = fn(cls, items)
    vm.cap.made.add(id(result))
    return vm.finish(f, result, then, data)


def _get(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``dict.get`` and ``dict.setdefault`` read one key, and no other is guarded."""
    cap = vm.cap
    plain = cap.active and not kwargs and len(args) in (2, 3) and type(args[0]) is dict
    src = cap.sources.get(id(args[0])) if plain else None
    if not plain or (src is None and id(args[0]) not in cap.made):
        return c_calls.call(vm, f, fn, fn, args, kwargs, then, data)
    d, key = args[0], settle_all(args[1])
    if not c_calls.key_plain(cap, key, d):
        return c_calls.call(vm, f, fn, fn, args, kwargs, then, data)
    if dict.__contains__(d, key):
        return vm.finish(f, cap.read_key(d, src, key, dict.__getitem__(d, key)), then, data)
    default = args[2] if len(args) == 3 else None
    cap.read_absent(d, src, key)
    if fn is dict.setdefault:
        store_dict_item(cap, d, key, default)
    return vm.finish(f, default, then, data)


def _get_shown(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``mappingproxy.get`` asks what it shows."""
    cap = vm.cap
    if not cap.active or kwargs or len(args) not in (2, 3) or type(args[0]) is not MappingProxyType:
        return c_calls.call(vm, f, fn, fn, args, kwargs, then, data)
    try:
        inner = shown(cap, args[0])
    except NotForGraph as e:
        raise GraphBreak(fn, tuple(args), None, "FL413", str(e)).to(then, data) from None
    if not is_a(inner, dict) or type_info(cap, type(inner)).look(cap, "get")[1] is not dict.get:
        return c_calls.call(vm, f, fn, fn, args, kwargs, then, data)
    return vm.call(f, dict.get, [inner, *args[1:]], None, then, data)


SPECIALS: Mapping[Any, Callable] = MappingProxyType(
    {
        tuple.__new__: _tuple_new,
        torch.Size: _size,
        builtins.len: _len,
        builtins.bool: _bool,
        dict.get: _get,
        dict.setdefault: _get,
        MappingProxyType.get: _get_shown,
        **{t.__init__: _container_init for t, _ in UPDATES},
        collections.defaultdict.__init__: _container_init,
    }
)


def set_of(*items: Any) -> set:
    return set(items)


def map_of(*items: Any) -> dict:
    """``items``: keys and values in turn."""
    return dict(zip(items[::2], items[1::2], strict=True))
