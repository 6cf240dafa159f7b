"""Subscripts: items of containers read, written and deleted; a class called with one."""

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
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.kinds import is_a
from fineline.objects import c_calls
from fineline.objects.attribute_reads import MISSING, in_python, load_attr, raw_lookup, type_info
from fineline.objects.lru_caches import lasts
from fineline.objects.mapping_proxies import shown
from fineline.objects.numpy_numbers import symbol_for
from fineline.symbolic.arithmetic import holds, settle_all
from fineline.symbolic.floats import hint
from fineline.tensor_ops.numpy_arrays import write_item
from fineline.tensor_ops.symbolic_forms import item_of
from fineline.tracing.identity_guards import ItemFromEnd
from fineline.tracing.segment_trace import SINGLETONS, VALUES, is_value

# An index, or a key, often goes round: so many values have a program each.
FEW_KEYS = 4
BUILTIN_DICTS = (dict.__getitem__, OrderedDict.__getitem__, defaultdict.__getitem__)
BUILTIN_DICT_SET = (dict.__setitem__, OrderedDict.__setitem__)


def _programs(vm: Any, obj: Any, key: Any) -> int:
    """Returns for how many values an index that varies has a program each, before the item is read behind a graph break.

    A module in the item makes programs of its own, also where it is read behind a break: for those, a break gains nothing.
    """
    at = hint(key) if type(obj) in (list, tuple) and type(key) is torch.SymInt else None
    apart = at is not None and -len(obj) <= at < len(obj) and not _is_data(obj[at])
    return FEW_KEYS if apart else int(vm.few_keys)


def _is_data(value: Any, depth: int = 3) -> bool:
    """Returns whether ``value`` is a tensor, a plain value, or a container of those; what lies deeper is not looked at."""
    t = type(value)
    if t in SINGLETONS or t in VALUES or is_a(value, Tensor):
        return True
    items = value if t is tuple or t is list else value.values() if t is dict else None
    return items is not None and depth > 0 and all([_is_data(v, depth - 1) for v in items])


def binary_subscr(vm: Any, f: Frame, obj: Any, key: Any) -> Frame | None:
    cap = vm.cap
    t = type(obj)
    if not cap.active:
        if python_method(cap, obj, None, "__getitem__", "__missing__"):
            return subscript_of_class(vm, f, obj, key)
        f.stack.append(vm.native(operator.getitem, (obj, key), None))
        return None
    if cap.lazy:
        key = symbol_for(cap, key) if cap.numpy and is_a(obj, Tensor) else key
        cap.settle(key)
    if vm.fakes is not None and not is_a(obj, Tensor):
        if (type(key) is torch.SymInt or (type(key) is slice and holds(key))) and vm.varied(f, (key,), _programs(vm, obj, key)):
            what = "an item" if type(key) is torch.SymInt else "a slice"
            raise GraphBreak(operator.getitem, (obj, key), None, "FL448", f"{what} of a {t.__name__}, at a number that varies")
        key = settle_all(key)
    if is_a(obj, (tuple, list, str)) and not c_calls.index_plain(key) and (t is tuple or t is torch.Size or t is str or t is list):
        c_calls.read_as_index(vm, key, operator.getitem, (obj, key))
        raise GraphBreak(operator.getitem, (obj, key), None, "FL502", f"a {type(key).__name__} as an index")
    if t is tuple or t is torch.Size or t is str:
        f.stack.append(obj[key])
        return None
    if is_a(obj, Tensor):
        item = item_of(vm, obj, key)
        f.stack.append(vm.tensors.operator(vm, operator.getitem, [obj, key], None) if item is None else item)
        return None
    if t is list:
        item = _item_by_itself(vm, obj, key)
        if item is MISSING and vm.unsteady and type(key) is slice and vm.unlike(f, obj):
            raise GraphBreak(operator.getitem, (obj, key), None, "FL448", "a slice of a list that holds more or less each time")
        f.stack.append(_list_item(cap, obj, key) if item is MISSING else item)
        return None
    if is_a(obj, type):
        return _class_getitem(vm, f, obj, key)
    if t is types.MappingProxyType:
        try:
            return binary_subscr(vm, f, shown(cap, obj), key)
        except NotForGraph as e:
            raise GraphBreak(operator.getitem, (obj, key), None, "FL413", str(e)) from None
    method = type_info(cap, t).look(cap, "__getitem__")[1]
    if in_python(method):
        return call_special(vm, f, method, obj, "__getitem__", key)
    if is_a(obj, dict) and method in BUILTIN_DICTS:
        if not c_calls.key_plain(cap, key, obj):
            raise GraphBreak(operator.getitem, (obj, key), None, "FL412", "a key with its own __hash__ or __eq__")
        if not dict.__contains__(obj, key):
            cap.read_absent(obj, cap.sources.get(id(obj)), key)
            missing = type_info(cap, t).look(cap, "__missing__")[1] if t is not dict else None
            if is_a(missing, types.FunctionType):
                return vm.call(f, missing, [obj, key])
            if is_a(obj, defaultdict):
                return _default_item(vm, f, obj, key)
            obj[key]
        f.stack.append(_dict_item(cap, obj, key))
        return None
    if is_a(key, Tensor) and is_a(obj, (tuple, list)):
        c_calls.read_as_index(vm, key, operator.getitem, (obj, key))
        raise GraphBreak(operator.getitem, (obj, key), None, "FL502", "a tensor as an index")
    if is_a(obj, list) and c_calls.index_plain(key):
        f.stack.append(_list_item(cap, obj, key))
        return None
    if method is None:
        f.stack.append(obj[key])
        return None
    return vm.call(f, method, [obj, key])


def subscript_of_class(vm: Any, f: Frame, obj: Any, key: Any) -> Frame | None:
    method = raw_lookup(type(obj), "__getitem__")
    if in_python(method):
        return call_special(vm, f, method, obj, "__getitem__", key)
    return vm.call(f, protocols.subscript_missing, [obj, key, types.MethodType(raw_lookup(type(obj), "__missing__"), obj)])


def _default_item(vm: Any, f: Frame, d: defaultdict, key: Any) -> Frame | None:
    factory = d.default_factory
    cap = vm.cap
    src = cap.sources.get(id(d))
    if src is not None:
        cap.load_members(d, src, (defaultdict.__dict__["default_factory"],))
    if factory is None:
        raise KeyError(key)
    return vm.call(f, factory, [], None, _keep_default, (d, key))


def _keep_default(vm: Any, f: Frame, value: Any, state: tuple) -> None:
    d, key = state
    store_dict_item(vm.cap, d, key, value)
    f.stack.append(value)


def _dict_item(cap: Any, d: dict, key: Any) -> Any:
    value = dict.__getitem__(d, key)
    src = cap.sources.get(id(d))
    return cap.read_key(d, src, key, value) if src is not None else value


def _item_by_itself(vm: Any, obj: list, key: Any) -> Any:
    """Returns the item of a list that has only been appended to, or that holds more or less each time; MISSING if more has to be known."""
    cap = vm.cap
    src = cap.sources.get(id(obj))
    if src is None or id(obj) in cap.expanded or type(key) not in (int, slice):
        return MISSING
    if type(key) is slice:
        return _slice_by_itself(cap, obj, key, src)
    before, n = cap.journal.before(obj), list.__len__(obj)
    old = list.__len__(before)
    if -n <= key < 0 and (-key <= n - old or vm.unsteady.get(src.text()) == "length"):
        value = list.__getitem__(obj, key)
        return value if -key <= n - old else cap.read(value, cap.guards.access(src, "member", ItemFromEnd(key + n - old), value))
    return MISSING if not 0 <= key < old or n == old else cap.read(before[key], cap.guards.access(src, "index", key, before[key]))


def _slice_by_itself(cap: Any, obj: list, key: slice, src: Any) -> Any:
    """Returns the items of a slice that lies inside of a list, and does not depend on the list's length."""
    n = list.__len__(cap.journal.before(obj))
    if not all([type(k) is int and 0 <= k <= n for k in (key.start or 0, key.stop)]) or key.step not in (None, 1):
        return MISSING
    at = key.start or 0
    items = [cap.read(v, cap.guards.access(src, "index", at + i, v)) for i, v in enumerate(cap.journal.before(obj)[at : key.stop])]
    return cap.fresh(items)


def _list_item(cap: Any, obj: list, key: Any) -> Any:
    src = cap.sources.get(id(obj))
    try:
        value = list.__getitem__(obj, key)
    except IndexError:
        if src is not None and not cap.journal.wrote(obj):
            cap.guards.check(src, "len", list.__len__(obj))
        else:
            cap.expand(obj)
        raise
    if src is not None and id(obj) not in cap.expanded:
        if type(key) is int and key >= 0 and not cap.journal.wrote(obj):
            return cap.read(value, cap.guards.access(src, "index", key, value))
        cap.expand(obj)
        value = list.__getitem__(obj, key)
    if is_a(key, slice):
        cap.made.add(id(value))
    return value


def _class_getitem(vm: Any, f: Frame, cls: type, key: Any) -> Frame | None:
    cap = vm.cap
    method = type_info(cap, type(cls)).look(cap, "__getitem__")[1]
    if is_a(method, types.FunctionType) and (type(cls).__module__ != "enum" or cls in cap.classes):
        return vm.call(f, method, [cls, key])
    if method is not None:
        f.stack.append(cls[key])  # type: ignore[index]
        return None
    getter = type_info(cap, cls).look(cap, "__class_getitem__")[1]
    if is_a(getter, classmethod) and is_a(getter.__func__, types.FunctionType) and cls.__module__ != "typing":
        return load_attr(vm, f, cls, "__class_getitem__", _call_with, key)
    if lasts(cap, cls) and lasts(cap, key):
        alias = cls[key]  # type: ignore[index]
        f.stack.append(alias if is_value(alias) else cap.pin(alias, cls.__name__).value)
        return None
    raise GraphBreak(operator.getitem, (cls, key), None, "FL412", f"{cls.__name__}[...] of what the call made")


def _call_with(vm: Any, f: Frame, fn: Any, key: Any) -> Frame | None:
    return vm.call(f, fn, [key])


def store_dict_item(cap: Any, d: dict, key: Any, value: Any) -> None:
    src = cap.sources.get(id(d))
    if src is not None:
        cap.journal.note(d, src, key)
        cap.global_values.pop(id(d), None)
    if is_a(d, OrderedDict):
        OrderedDict.__setitem__(d, key, value)
    else:
        dict.__setitem__(d, key, value)


def store_subscr(vm: Any, f: Frame, obj: Any, key: Any, value: Any) -> Frame | None:
    cap = vm.cap
    t = type(obj)
    if not cap.active:
        method = raw_lookup(t, "__setitem__")
        if in_python(method) and not is_a(obj, Tensor):
            return call_special(vm, f, method, obj, "__setitem__", key, value, then=vm.discard)
        vm.native(operator.setitem, (obj, key, value), None)
        return None
    if cap.lazy:
        key = symbol_for(cap, key) if cap.numpy and is_a(obj, Tensor) else key
        cap.settle(key)
    if is_a(obj, Tensor):
        try:
            item = item_of(vm, obj, key, used=True)
            vm.tensors.operator(vm, operator.setitem, [obj, key, value] if item is None else [item, ..., value], None)
        except GraphBreak as b:
            raise b.calls(operator.setitem, (obj, key, value), None).discard() from None
        return None
    method = type_info(cap, t).look(cap, "__setitem__")[1]
    if in_python(method):
        return call_special(vm, f, method, obj, "__setitem__", key, value, then=vm.discard)
    known = id(obj) in cap.sources or id(obj) in cap.made
    if is_a(obj, dict) and method in BUILTIN_DICT_SET and known and c_calls.key_plain(cap, key, obj):
        store_dict_item(cap, obj, key, value)
        return None
    sliced = type(key) is slice and c_calls.index_plain(key) and c_calls.plain(cap, value)
    if is_a(obj, (list, deque)) and known and (type(key) is int or sliced):
        src = cap.sources.get(id(obj))
        if type(key) is slice:
            cap.expand(value)
        if src is not None:
            cap.expand(obj)
            cap.journal.note(obj, src)
        obj[key] = value
        return None
    if method is None:
        obj[key] = value
        return None
    if is_a(obj, (list, deque)):
        c_calls.read_as_index(vm, key, operator.setitem, (obj, key, value), None, vm.discard)
    if write_item(vm, obj, key, value):
        return None
    raise GraphBreak(operator.setitem, (obj, key, value), None, "FL414", f"setting an item of a {t.__name__}").discard()


def delete_subscr(vm: Any, f: Frame, obj: Any, key: Any) -> Frame | None:
    cap = vm.cap
    if not cap.active:
        method = raw_lookup(type(obj), "__delitem__")
        if in_python(method):
            return call_special(vm, f, method, obj, "__delitem__", key, then=vm.discard)
        vm.native(operator.delitem, (obj, key), None)
        return None
    method = type_info(cap, type(obj)).look(cap, "__delitem__")[1]
    if in_python(method):
        return call_special(vm, f, method, obj, "__delitem__", key, then=vm.discard)
    if method is None:
        del obj[key]
        return None
    return vm.call(f, method, [obj, key], None, vm.discard)
