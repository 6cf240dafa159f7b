"""Subscripts: items of containers are read, written and deleted; classes are parameterized."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch
from torch import Tensor

from fineline.builtins.operators import call_special, python_method
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.objects import c_access, c_calls
from fineline.objects.attribute_reads import load_attr
from fineline.objects.lru_caches import lasts
from fineline.objects.mapping_proxies import shown
from fineline.objects.numpy_numbers import symbol_for
from fineline.objects.type_info import MISSING, in_python, raw_lookup, special_method, type_info
from fineline.symbolic.arithmetic import holds, settle_all
from fineline.symbolic.floats import hint
from fineline.tensor_ops.arrays.calls import write_item
from fineline.tensor_ops.symbolic_forms import item_of
from fineline.tensor_ops.torch_functions import call_override, overridden
from fineline.tracing.identity_guards import ItemFromEnd
from fineline.tracing.interp import Interp, call_it
from fineline.tracing.plain_values import SINGLETONS, VALUES, is_value
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.varying_reads import FEW_KEYS

BUILTIN_DICTS = (dict.__getitem__, OrderedDict.__getitem__, defaultdict.__getitem__)
BUILTIN_DICT_SET = (dict.__setitem__, OrderedDict.__setitem__)


def _programs(interp: Interp, obj: Any, key: Any) -> int:
    """Returns how many values of an index that varies have a program each, before the item is read at a graph break.

    An item that contains a module needs a program of its own even if a graph break reads it, so a break gains nothing.
    """
    at = hint(key) if type(obj) in (list, tuple) and type(key) is torch.SymInt else None
    apart = at is not None and -len(obj) <= at < len(obj) and not _is_data(obj[at])
    return FEW_KEYS if apart else interp.varying.few_keys


def _is_data(value: Any, depth: int = 3) -> bool:
    """Returns whether ``value`` is a tensor, a plain value, or a container of those, nested at most ``depth`` deep."""
    t = type(value)
    if t in SINGLETONS or t in VALUES or is_a(value, Tensor):
        return True
    items = value if t is tuple or t is list else value.values() if t is dict else None
    return items is not None and depth > 0 and all([_is_data(v, depth - 1) for v in items])


def binary_subscr(interp: Interp, f: Frame, obj: Any, key: Any) -> Frame | None:
    trace = interp.trace
    t = type(obj)
    if not trace.active:
        if python_method(trace, obj, None, "__getitem__", "__missing__"):
            return subscript_of_class(interp, f, obj, key)
        f.stack.append(interp.native(operator.getitem, (obj, key), None))
        return None
    if not is_a(obj, (Tensor, type)) and in_python(raw_lookup(t, "__getitem__")):
        # The method gets a number as it is, symbol or not.
        method = type_info(trace, t).look(trace, "__getitem__")[1]
        return call_special(interp, f, method, obj, "__getitem__", key)
    if trace.deferred.numbers:
        key = symbol_for(trace, key) if trace.deferred.unsymbolic and is_a(obj, Tensor) else key
        trace.deferred.settle(key)
    if interp.backing.may_be_symbolic and not is_a(obj, Tensor):
        if (type(key) is torch.SymInt or (type(key) is slice and holds(key))) and interp.varying.numbers_vary(interp, f, (key,), _programs(interp, obj, key)):
            what = "an item" if type(key) is torch.SymInt else "a slice"
            raise GraphBreak(operator.getitem, (obj, key), None, "FL448", f"{what} of a {t.__name__}, at a number that varies")
        key = settle_all(key)
    if is_a(obj, (tuple, list, str)) and not c_access.may_index(key) and (t is tuple or t is torch.Size or t is str or t is list):
        c_calls.read_as_index(interp, key, operator.getitem, (obj, key))
        raise GraphBreak(operator.getitem, (obj, key), None, "FL502", f"a {type(key).__name__} as an index")
    if t is tuple or t is torch.Size or t is str:
        f.stack.append(obj[key])
        return None
    if is_a(obj, Tensor):
        if interp.nested.opaque is None and overridden(interp, (obj, key)):
            method = special_method(trace, t, "__getitem__")
            return call_special(interp, f, method, obj, "__getitem__", key) if in_python(method) else call_override(interp, f, operator.getitem, (obj, key), None)
        item = item_of(interp, obj, key)
        f.stack.append(interp.tensors.operator(interp, operator.getitem, [obj, key], None) if item is None else item)
        return None
    if t is list:
        item = _item_by_itself(interp, obj, key)
        if item is MISSING and interp.varying.unsteady and type(key) is slice and interp.varying.contents_vary(interp, f, obj):
            raise GraphBreak(operator.getitem, (obj, key), None, "FL448", "a slice of a list that holds more or less each time")
        f.stack.append(_list_item(trace, obj, key) if item is MISSING else item)
        return None
    if is_a(obj, type):
        return _class_getitem(interp, f, obj, key)
    if t is types.MappingProxyType:
        try:
            return binary_subscr(interp, f, shown(trace, obj), key)
        except NotForGraph as e:
            raise GraphBreak(operator.getitem, (obj, key), None, "FL413", str(e)) from None
    method = type_info(trace, t).look(trace, "__getitem__")[1]
    if is_a(obj, dict) and method in BUILTIN_DICTS:
        if not c_access.may_hash(trace, key, obj):
            raise GraphBreak(operator.getitem, (obj, key), None, "FL412", "a key with its own __hash__ or __eq__")
        if not dict.__contains__(obj, key):
            trace.read_absent(obj, trace.sources.get(obj), key)
            missing = type_info(trace, t).look(trace, "__missing__")[1] if t is not dict else None
            if in_python(missing):
                return call_special(interp, f, missing, obj, "__missing__", key)
            if is_a(obj, defaultdict):
                return _default_item(interp, f, obj, key)
            obj[key]
        f.stack.append(_dict_item(trace, obj, key))
        return None
    if is_a(key, Tensor) and is_a(obj, (tuple, list)):
        c_calls.read_as_index(interp, key, operator.getitem, (obj, key))
        raise GraphBreak(operator.getitem, (obj, key), None, "FL502", "a tensor as an index")
    if is_a(obj, list) and c_access.may_index(key):
        f.stack.append(_list_item(trace, obj, key))
        return None
    if method is None:
        f.stack.append(obj[key])
        return None
    return interp.call(f, method, [obj, key])


def subscript_of_class(interp: Interp, f: Frame, obj: Any, key: Any) -> Frame | None:
    method = raw_lookup(type(obj), "__getitem__")
    if in_python(method):
        return call_special(interp, f, method, obj, "__getitem__", key)
    return interp.call(f, protocols.subscript_missing, [obj, key])


def _default_item(interp: Interp, f: Frame, d: defaultdict, key: Any) -> Frame | None:
    factory = d.default_factory
    trace = interp.trace
    src = trace.sources.get(d)
    if src is not None:
        trace.load_members(d, src, (defaultdict.__dict__["default_factory"],))
    if factory is None:
        raise KeyError(key)
    return interp.call(f, factory, [], None, Delivery(_keep_default, None, d, key))


def _keep_default(interp: Interp, f: Frame, value: Any, then: None, d: Any, key: Any) -> None:
    store_dict_item(interp.trace, d, key, value)
    f.stack.append(value)


def _dict_item(trace: SegmentTrace, d: dict, key: Any) -> Any:
    value = dict.__getitem__(d, key)
    src = trace.sources.get(d)
    return trace.read_key(d, src, key, value) if src is not None else value


def _item_by_itself(interp: Interp, obj: list, key: Any) -> Any:
    """Returns an item without a guard on the whole list, if the list was only appended to or its length varies; otherwise MISSING."""
    trace = interp.trace
    src = trace.sources.get(obj)
    if src is None or obj in trace.containers.expanded or type(key) not in (int, slice):
        return MISSING
    if type(key) is slice:
        return _slice_by_itself(trace, obj, key, src)
    before, n = trace.mutations.before(obj), list.__len__(obj)
    old = list.__len__(before)
    if -n <= key < 0 and (-key <= n - old or interp.varying.unsteady.get(src.text()) == "length"):
        value = list.__getitem__(obj, key)
        return value if -key <= n - old else trace.read(value, trace.guards.access(src, "member", ItemFromEnd(key + n - old), value))
    return MISSING if not 0 <= key < old or n == old else trace.read(before[key], trace.guards.access(src, "index", key, before[key]))


def _slice_by_itself(trace: SegmentTrace, obj: list, key: slice, src: Source) -> Any:
    """Returns the items of a slice that lies inside a list and does not depend on the list's length; MISSING for other slices."""
    n = list.__len__(trace.mutations.before(obj))
    if not all([type(k) is int and 0 <= k <= n for k in (key.start or 0, key.stop)]) or key.step not in (None, 1):
        return MISSING
    at = key.start or 0
    items = [trace.read(v, trace.guards.access(src, "index", at + i, v)) for i, v in enumerate(trace.mutations.before(obj)[at : key.stop])]
    return trace.fresh(items)


def _list_item(trace: SegmentTrace, obj: list, key: Any) -> Any:
    src = trace.sources.get(obj)
    try:
        value = list.__getitem__(obj, key)
    except IndexError:
        if src is not None and not trace.mutations.wrote(obj):
            trace.guards.check(src, "len", list.__len__(obj))
        else:
            trace.expand(obj)
        raise
    if src is not None and obj not in trace.containers.expanded:
        if type(key) is int and key >= 0 and not trace.mutations.wrote(obj):
            return trace.read(value, trace.guards.access(src, "index", key, value))
        trace.expand(obj)
        value = list.__getitem__(obj, key)
    if is_a(key, slice):
        trace.made.add(value)
    return value


def _class_getitem(interp: Interp, f: Frame, cls: type, key: Any) -> Frame | None:
    trace = interp.trace
    method = type_info(trace, type(cls)).look(trace, "__getitem__")[1]
    if is_a(method, types.FunctionType) and (type(cls).__module__ != "enum" or cls in trace.classes.local):
        return interp.call(f, method, [cls, key])
    if method is not None:
        f.stack.append(cls[key])  # type: ignore[index]
        return None
    getter = type_info(trace, cls).look(trace, "__class_getitem__")[1]
    if is_a(getter, classmethod) and is_a(getter.__func__, types.FunctionType) and cls.__module__ != "typing":
        return Delivery(call_it, None, [key], None).of(load_attr, interp, f, cls, "__class_getitem__")
    if lasts(trace, cls) and lasts(trace, key):
        alias = cls[key]  # type: ignore[index]
        f.stack.append(alias if is_value(alias) else trace.pin(alias, cls.__name__).value)
        return None
    raise GraphBreak(operator.getitem, (cls, key), None, "FL412", f"{cls.__name__}[...] of what the call made")


def store_dict_item(trace: SegmentTrace, d: dict, key: Any, value: Any) -> None:
    src = trace.sources.get(d)
    if src is not None:
        trace.mutations.note(d, src, key)
        trace.namespaces.forget_globals(d)
    if is_a(d, OrderedDict):
        OrderedDict.__setitem__(d, key, value)
    else:
        dict.__setitem__(d, key, value)


def store_subscr(interp: Interp, f: Frame, obj: Any, key: Any, value: Any) -> Frame | None:
    trace = interp.trace
    t = type(obj)
    if not trace.active:
        method = raw_lookup(t, "__setitem__")
        if in_python(method) and not is_a(obj, Tensor):
            return call_special(interp, f, method, obj, "__setitem__", key, value, then=interp.discard)
        interp.native(operator.setitem, (obj, key, value), None)
        return None
    if trace.deferred.numbers:
        key = symbol_for(trace, key) if trace.deferred.unsymbolic and is_a(obj, Tensor) else key
        trace.deferred.settle(key)
    if is_a(obj, Tensor):
        if interp.nested.opaque is None and overridden(interp, (obj, key, value)):
            method = special_method(trace, t, "__setitem__")
            if in_python(method):
                return call_special(interp, f, method, obj, "__setitem__", key, value, then=interp.discard)
            return call_override(interp, f, operator.setitem, (obj, key, value), None, interp.discard)
        try:
            item = item_of(interp, obj, key, used=True)
            interp.tensors.operator(interp, operator.setitem, [obj, key, value] if item is None else [item, ..., value], None)
        except GraphBreak as b:
            raise b.calls(operator.setitem, (obj, key, value), None).discard() from None
        return None
    method = type_info(trace, t).look(trace, "__setitem__")[1]
    if in_python(method):
        return call_special(interp, f, method, obj, "__setitem__", key, value, then=interp.discard)
    known = obj in trace.sources or obj in trace.made
    if is_a(obj, dict) and method in BUILTIN_DICT_SET and known and c_access.may_hash(trace, key, obj):
        store_dict_item(trace, obj, key, value)
        return None
    sliced = type(key) is slice and c_access.may_index(key) and c_access.may_walk(trace, value)
    if is_a(obj, (list, deque)) and known and (type(key) is int or sliced):
        src = trace.sources.get(obj)
        if type(key) is slice:
            trace.expand(value)
        if src is not None:
            trace.expand(obj)
            trace.mutations.note(obj, src)
        obj[key] = value
        return None
    if method is None:
        obj[key] = value
        return None
    if is_a(obj, (list, deque)):
        try:
            c_calls.read_as_index(interp, key, operator.setitem, (obj, key, value))
        except GraphBreak as b:
            raise b.discard() from None
    if write_item(interp, obj, key, value):
        return None
    raise GraphBreak(operator.setitem, (obj, key, value), None, "FL414", f"setting an item of a {t.__name__}").discard()


def delete_subscr(interp: Interp, f: Frame, obj: Any, key: Any) -> Frame | None:
    trace = interp.trace
    if not trace.active:
        method = raw_lookup(type(obj), "__delitem__")
        if in_python(method):
            return call_special(interp, f, method, obj, "__delitem__", key, then=interp.discard)
        interp.native(operator.delitem, (obj, key), None)
        return None
    method = type_info(trace, type(obj)).look(trace, "__delitem__")[1]
    if in_python(method):
        return call_special(interp, f, method, obj, "__delitem__", key, then=interp.discard)
    if method is None:
        del obj[key]
        return None
    return interp.call(f, method, [obj, key], None, interp.discard)
