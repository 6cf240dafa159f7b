"""Calls of functions wrapped by functools.lru_cache: the result is read from the user's cache and guarded, and programs repeat the hit."""

from __future__ import annotations

import functools
import gc
import types
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.code import CODES, global_names
from fineline.frames.frame import Frame
from fineline.guards.source import LASTING, Source, root_of
from fineline.guards.texts import value_text
from fineline.kinds import is_a
from fineline.objects import c_access
from fineline.objects.type_info import MISSING
from fineline.symbolic.arithmetic import SYMBOLIC, holds, settle_all
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Interp
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import SegmentTrace

LRU_TYPE = type(functools.lru_cache(lambda: None))
_INFORMATION = LRU_TYPE.__dict__["cache_info"]
_ATTRIBUTES = LRU_TYPE.__dict__["__dict__"]


class Entry:
    """Reads the result for one call from a cache as a member of the cached function. This is not a hit; raises KeyError if there is no entry.

    The dict of a cache without bound contains ``key: result``; otherwise it contains ``key: link``, and another key reuses a link once the
    cache is full. Therefore the result of a link is found in the pairs that the function refers to, unless no link can have been reused since.
    """

    def __init__(self, fn: Any, cache: dict, key: Any, most: int | None) -> None:
        self.cache, self.key, self.most = cache, key, most
        self.__name__ = f"cache[{value_text(key)}]"
        self.link: Any = None
        self.result: Any = None
        self.misses = -1

    def __get__(self, fn: Any, cls: type) -> Any:
        held = self.cache[self.key]
        if self.most is None:
            return held
        if held is not self.link or (len(self.cache) >= self.most and _INFORMATION(fn)[1] != self.misses):
            found = gc.get_referents(fn)
            self.result = next(found[i + 1] for i in range(1, len(found), 3) if found[i] is self.key or found[i] == self.key)
            self.link, self.misses = held, _INFORMATION(fn)[1]
        return self.result

    @property
    def full(self) -> bool:
        """Returns whether a miss drops another entry, or its result is not kept."""
        return self.most is not None and len(self.cache) >= self.most


class _Later:
    """Calls the function except for the first time: the capture on fakes, or an attempt before it, has already made that call."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.made = False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self.made:
            self.fn(*args, **kwargs)
        self.made = True


def call_cached(call: Call) -> Frame | None:
    """Handles a call of a cached function: delivers the cached result, or runs a function without other effects; otherwise it runs eagerly."""
    interp, trace, fn, args, kwargs = call.interp, call.trace, call.fn, call.args, call.kwargs or {}
    if not trace.active:
        return call.run_natively()
    if interp.backing.may_be_symbolic:
        inner = _behind(interp, fn, [*args, *kwargs.values()])
        if inner is not None:
            return trace.symbols.inlined.call(interp, call.frame, inner, args, kwargs, (fn, args, kwargs), call.then)
        args, kwargs = call.args, call.kwargs = [settle_all(a) for a in args], {k: settle_all(a) for k, a in kwargs.items()}
    values = [*args, *kwargs.values()]
    wrapped = _ATTRIBUTES.__get__(fn).get("__wrapped__")
    if getattr(wrapped, "__module__", None) == "typing" and all([lasts(trace, a) for a in values]):
        return call.finish(trace.pin(fn(*args, **kwargs), "type").value)
    graph_break = call.graph_break("FL418", f"{getattr(fn, '__name__', 'a function')} keeps a cache of its results")
    src = _source(trace, fn)
    # After a graph break, a root may be a function that each call creates.
    if src is None or src.op == "root" or not all([_keyed(trace, a) for a in values]):
        raise graph_break
    entry = _entry(fn, src, args, kwargs)
    if entry is None:
        raise graph_break
    identify(trace, fn)
    for a in values:
        if not is_value(a):
            identify(trace, a)
    if not values and _is_torchs(wrapped) and trace.namespaces.shadows is None and not _holds(entry, fn):
        # It runs once in a process, and this is the call: it learns a fact of the process, or warns. Not where user's code runs beside the capture.
        fn()
    caller, held, again = fn, _holds(entry, fn), _made_before(trace, fn, entry)
    if not held:
        if entry.full or not (is_a(wrapped, types.FunctionType) and closed(wrapped)):
            # After the entry is added, another program without a graph break is captured.
            trace.guards.check(trace.pin(entry.cache, f"{fn.__name__}.cache"), "absent", entry.key, ("absent", entry.key))
            raise graph_break
        trace.mutations.note_cached(fn, entry.key)
        try:
            result = fn(*args, **kwargs)
        except Exception:
            trace.mutations.cached.pop()
            interp.fail("FL418", f"the cached function {fn.__name__} raised an error, which no cache keeps", True)
            raise
        if not _holds(entry, fn):
            interp.fail("FL418", f"the cache of {fn.__name__} does not keep what it gave", True)
            return call.finish(result)
    elif interp.backing.real and not again:
        fn(*args, **kwargs)
    if interp.backing.real or again or not held:
        if held:
            trace.mutations.note_cached(fn, entry.key)
        if not interp.backing.real:
            caller = trace.pin(_Later(fn), fn.__name__).value
    result = entry.__get__(fn, LRU_TYPE)
    # In an opaque call, its node makes the call of the cached function.
    if interp.nested.opaque is None:
        trace.mutations.note_call(caller, args, kwargs)
    return call.finish(trace.read(result, trace.guards.access(src, "member", entry, result)))


def _made_before(trace: SegmentTrace, fn: Any, entry: Entry) -> bool:
    """Returns whether this call was already made in an attempt that was undone."""
    ahead = trace.mutations.ahead
    at = next((i for i, (one, key) in enumerate(ahead) if one is fn and key == entry.key), None)
    if at is not None:
        del ahead[at]
    return at is not None


def _behind(interp: Interp, fn: Any, values: list) -> types.FunctionType | None:
    """Returns the function that ``fn`` caches, if it can be captured instead because some of ``values`` are numbers that vary."""
    trace, found = interp.trace, _referents(fn)
    inner = found[-4] if len(found) > 5 else None
    if trace.symbols is None or not any(map(holds, values)) or type(inner) is not types.FunctionType or not closed(inner, False):
        return None
    if inner.__code__ in interp.lessons.numbers.specialized_caches:
        return None
    if _source(trace, fn) is None or not all([_fixed(trace, a) for a in values]):
        return None
    identify(trace, fn)
    trace.pin(inner, inner.__qualname__)
    return inner


def _fixed(trace: SegmentTrace, a: Any) -> bool:
    """Returns whether ``a`` is a number, varying or not, or another value, or an object from a cache, which nobody changes."""
    if type(a) in (tuple, torch.Size):
        return all([_fixed(trace, item) for item in a])
    src = trace.sources.get(a)
    return type(a) in SYMBOLIC or is_value(a) or (src is not None and type(src.key) is Entry)


def _source(trace: SegmentTrace, fn: Any) -> Source | None:
    src = trace.sources.get(fn)
    return trace.pin(fn, fn.__name__) if src is None and fn not in trace.made else src


def _holds(entry: Entry, fn: Any) -> bool:
    try:
        entry.__get__(fn, LRU_TYPE)
    except KeyError:
        return False
    return True


def _entry(fn: Any, src: Source, args: list, kwargs: dict) -> Entry | None:
    """Returns the entry of this call in the cache of ``fn``, whether it exists or not; None: the C object has an unknown layout."""
    found = _referents(fn)
    parameters = _ATTRIBUTES.__get__(fn).get("cache_parameters")
    if len(found) < 6 or type(found[-5]) is not dict or type(found[-3]) is not object or not is_a(parameters, types.FunctionType):
        return None
    cache, mark = found[-5], found[-3]
    typed = parameters()["typed"]
    key: Any = tuple(args)
    if kwargs:
        key = (*key, mark, *[part for item in kwargs.items() for part in item])
    if typed:
        key = (*key, *map(type, args), *map(type, kwargs.values()))
    elif len(key) == 1 and type(key[0]) in (int, str):
        key = key[0]
    for known in src.children.values():
        if type(known.key) is Entry and known.key.key == key:
            return known.key
    return Entry(fn, cache, key, _INFORMATION(fn)[2])


def entry_for(fn: Any, key: Any) -> Entry | None:
    """Returns the entry of a call without keywords, which is made as a capture makes it, if there is none; None: the C object has an unknown layout."""
    found = _referents(fn)
    if len(found) < 6 or type(found[-5]) is not dict:
        return None
    entry, wrapped = Entry(fn, found[-5], key, _INFORMATION(fn)[2]), _ATTRIBUTES.__get__(fn).get("__wrapped__")
    if not _holds(entry, fn) and not entry.full and is_a(wrapped, types.FunctionType) and closed(wrapped):
        fn(*key) if type(key) is tuple else fn(key)
    return entry


def _referents(fn: Any) -> list:
    """Returns the referents of the C object. At the end: the dict of entries, the cached function, the mark before keywords, and two others."""
    found = gc.get_referents(fn)
    if found and found[-1] is _ATTRIBUTES.__get__(fn):
        found.pop()
    return found


def _is_torchs(fn: Any) -> bool:
    return str(getattr(fn, "__module__", None)).partition(".")[0] == "torch"


def _keyed(trace: SegmentTrace, a: Any) -> bool:
    """Returns whether a cache finds ``a`` without user code and guards identify it: a plain value, or an object compared by identity."""
    if type(a) is tuple:
        return all([_keyed(trace, item) for item in a])
    if is_a(a, type) and a in trace.classes.local:
        # Each call creates another class, with another entry.
        return False
    if is_value(a):
        return a == a and c_access.may_compare(trace, a)
    t = type(a)
    if a not in trace.sources or a in trace.made or is_a(a, Tensor):
        return False
    return t.__hash__ is object.__hash__ and t.__eq__ is object.__eq__


def lasts(trace: SegmentTrace, v: Any) -> bool:
    """Returns whether ``v``, a class or a parameter of one, is the same object at each call; guards that."""
    if type(v) in (tuple, list):
        return all([lasts(trace, item) for item in v])
    if is_a(v, type):
        return v not in trace.classes.local
    if is_value(v):
        return True
    src = trace.sources.get(v)
    if src is None or root_of(src).op not in LASTING:
        return False
    identify(trace, v)
    return True


def closed(fn: types.FunctionType, values: bool = True) -> bool:
    """Returns whether a function's result depends only on its arguments and on names of modules, classes, functions and plain values.

    ``values``: whether such plain values are allowed. A function that sets globals or attributes does not qualify.

    The effects of the functions that it calls do not count: a cached function runs at any call or not at all, and its author accepts that.
    """
    if fn.__closure__:
        return False
    if any([i.name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR") for i in CODES[fn.__code__].instructions]):
        return False
    for name in global_names(fn.__code__):
        value = fn.__globals__.get(name, MISSING)
        if (
            value is not MISSING
            and not is_a(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType))
            and not callable(value)
            and not (values and is_value(value))
        ):
            return False
    return True
