"""Instruction handlers that build and unpack containers, and make functions."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor

from fineline.builtins.containers import map_of, set_of
from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.opcode_families import family
from fineline.fx.recorder import NotForGraph
from fineline.kinds import is_a, is_users_class
from fineline.objects import c_access
from fineline.objects.type_info import MISSING, special_method, type_info
from fineline.policy.break_settings import breaks_here
from fineline.symbolic.arithmetic import settle_all
from fineline.tracing.interp import Interp


# -- containers ------------------------------------------------------------------------------------------------------
def _popn(f: Frame, n: int) -> list:
    if not n:
        return []
    items = f.stack[-n:]
    del f.stack[-n:]
    return items


def BUILD_TUPLE(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(tuple(_popn(f, arg)))


def BUILD_LIST(interp: Interp, f: Frame, arg: int) -> None:
    items = _popn(f, arg)
    interp.trace.made.add(items)
    f.stack.append(items)


def settled_keys(interp: Interp, keys: list) -> list:
    """Returns ``keys`` with numbers instead of symbols, if the options allow no graph break that would hash them."""
    return [settle_all(key) for key in keys] if interp.backing.may_be_symbolic and breaks_here(interp.options.breaks) != "any" else keys


def keyed(interp: Interp, keys: list, fn: Any, args: list) -> None:
    """Breaks the graph before ``fn`` if hashing ``keys``, or comparing them with each other, may run user code."""
    trace = interp.trace
    for key in keys if trace.active else ():
        if type(key) is not str and not c_access.may_hash(trace, key, keys):
            raise GraphBreak(fn, tuple(args), None, "FL419", f"a {type(key).__name__} with its own __hash__ or __eq__ is a key")


def _key_plain(interp: Interp, key: Any, container: Any, fn: Any, args: list) -> None:
    """Breaks the graph if hashing ``key``, or comparing it with the keys of ``container``, may run user code."""
    if interp.trace.active and type(key) is not str and not c_access.may_hash(interp.trace, key, container):
        raise GraphBreak(fn, tuple(args), None, "FL419", f"a {type(key).__name__} with its own __hash__ or __eq__ is a key").discard()


def BUILD_SET(interp: Interp, f: Frame, arg: int) -> None:
    items = settled_keys(interp, _popn(f, arg))
    keyed(interp, items, set_of, items)
    f.stack.append(interp.trace.fresh(set(items)))


def BUILD_MAP(interp: Interp, f: Frame, arg: int) -> None:
    items = _popn(f, 2 * arg)
    items[::2] = settled_keys(interp, items[::2])
    keyed(interp, items[::2], map_of, items)
    f.stack.append(interp.trace.fresh(map_of(*items)))


def BUILD_CONST_KEY_MAP(interp: Interp, f: Frame, arg: int) -> None:
    keys = f.stack.pop()
    out = dict(zip(keys, _popn(f, arg), strict=True))
    interp.trace.made.add(out)
    f.stack.append(out)


def BUILD_STRING(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append("".join(_popn(f, arg)))


def BUILD_SLICE(interp: Interp, f: Frame, arg: int) -> None:
    f.stack.append(slice(*_popn(f, arg)))


def _growing(interp: Interp, container: Any, fn: Any, args: list, read: tuple = ()) -> Any:
    """Returns the container that ``fn``, a step of a comprehension or of a call's keywords, adds to: guards an older one, and notes the write."""
    trace = interp.trace
    src = trace.sources.get(container)
    try:
        # The old items of a list need no guard when an item is appended.
        for one in (*read, *(() if type(container) is list else (container,))) if trace.active else ():
            trace.expand(one)
    except NotForGraph as e:
        raise GraphBreak(fn, tuple(args), None, "FL413", str(e)).discard() from None
    if src is not None and trace.active:
        trace.mutations.note(container, src)
    return container


def LIST_APPEND(interp: Interp, f: Frame, arg: int) -> None:
    v = f.stack.pop()
    list.append(_growing(interp, f.stack[-arg], list.append, [f.stack[-arg], v]), v)


def SET_ADD(interp: Interp, f: Frame, arg: int) -> None:
    (v,) = settled_keys(interp, [f.stack.pop()])
    args = [f.stack[-arg], v]
    _key_plain(interp, v, f.stack[-arg], set.add, args)
    set.add(_growing(interp, f.stack[-arg], set.add, args), v)


def MAP_ADD(interp: Interp, f: Frame, arg: int) -> None:
    v = f.stack.pop()
    (k,) = settled_keys(interp, [f.stack.pop()])
    args = [f.stack[-arg], k, v]
    _key_plain(interp, k, f.stack[-arg], dict.__setitem__, args)
    dict.__setitem__(_growing(interp, f.stack[-arg], dict.__setitem__, args), k, v)


def LIST_TO_TUPLE(interp: Interp, f: Frame, arg: int) -> None:
    items = f.stack.pop()
    if interp.trace.active:
        # After a graph break, the list is a live value from before it.
        interp.trace.expand(items)
    f.stack.append(tuple(items))


def LIST_EXTEND(interp: Interp, f: Frame, arg: int) -> Frame | None:
    items = f.stack.pop()
    if type(items) not in (list, tuple):
        ways = [special_method(interp.trace, type(items), name) for name in ("__iter__", "__getitem__")]
        if all([way is MISSING for way in ways]) and not is_a(items, InterpretedGenerator):
            raise TypeError(f"Value after * must be an iterable, not {type(items).__name__}")
    return interp.call(f, list.extend, [f.stack[-arg], items], None, interp.discard)


def SET_UPDATE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return interp.call(f, set.update, [f.stack[-arg - 1], f.stack.pop()], None, interp.discard)


def DICT_UPDATE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    source = f.stack.pop()
    target = f.stack[-arg]
    if type(source) is dict and source in interp.trace.made and source not in interp.trace.sources:
        # A long display is built in pieces: only the new keys are checked, as for a single entry.
        for key in source:
            _key_plain(interp, key, target, dict.update, [target, source])
        dict.update(_growing(interp, target, dict.update, [target, source]), source)
        return None
    if is_a(source, dict):
        return interp.call(f, dict.update, [target, source], None, interp.discard)
    if interp.trace.active and is_users_class(type(source)):
        type_info(interp.trace, type(source)).look(interp.trace, "keys")
    if not hasattr(type(source), "keys") and not hasattr(source, "keys"):
        raise TypeError(f"'{type(source).__name__}' object is not a mapping")
    return interp.call(f, protocols.merged, [target, source], None, interp.discard)


def DICT_MERGE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    source = f.stack.pop()
    target = f.stack[-arg]
    fn = f.stack[-arg - 2]
    if interp.trace.active and is_users_class(type(source)):
        type_info(interp.trace, type(source)).look(interp.trace, "keys")
    if not hasattr(type(source), "keys") and not hasattr(source, "keys"):
        raise TypeError(f"{protocols.described_call(fn)} argument after ** must be a mapping, not {type(source).__name__}")
    if interp.varying.unsteady and is_a(source, dict) and interp.varying.contents_vary(interp, f, source):
        reason = "keywords that have other names each time"
        raise GraphBreak(protocols.merged_keywords, (fn, target, source), None, "FL448", reason).discard()
    if is_a(source, dict) and (not interp.trace.active or c_access.may_walk(interp.trace, source)):
        target = _growing(interp, target, protocols.merged_keywords, [fn, target, source], (source,))
        for key in source:
            if key in target:
                raise protocols.given_twice(fn, key)
        dict.update(target, source)
        return None
    return interp.call(f, protocols.merged_keywords, [fn, target, source], None, interp.discard)


def UNPACK_SEQUENCE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    seq = f.stack.pop()
    t = type(seq)
    if t is tuple or t is list or t is torch.Size:
        if t is list:
            interp.trace.expand(seq)
        if len(seq) == arg:
            f.stack.extend(reversed(seq))
            return None
        if len(seq) < arg:
            raise ValueError(f"not enough values to unpack (expected {arg}, got {len(seq)})")
        text = "too many values to unpack (expected {n})"
        # Of no other type does C tell the number.
        raise ValueError((CURRENT.worded(text) if t in (tuple, list) else text).format(n=arg, got=len(seq)))
    if not is_a(seq, (Tensor, InterpretedGenerator)) and not hasattr(t, "__iter__") and not hasattr(t, "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {t.__name__} object")
    return interp.call(f, protocols.unpack, [seq, arg], None, Delivery(_spread))


def _spread(interp: Interp, f: Frame, items: list, then: None) -> None:
    f.stack.extend(reversed(items))


def UNPACK_EX(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return interp.call(f, protocols.listed, [f.stack.pop()], None, Delivery(_spread_star, None, arg))


def _spread_star(interp: Interp, f: Frame, items: list, then: None, arg: int) -> None:
    before, after = arg & 0xFF, arg >> 8
    if len(items) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    end = len(items) - after
    middle = items[before:end]
    interp.trace.made.add(middle)
    f.stack.extend(reversed(items[end:]))
    f.stack.append(middle)
    f.stack.extend(reversed(items[:before]))


def MAKE_FUNCTION(interp: Interp, f: Frame, arg: int) -> None:
    s = f.stack
    code = s.pop()
    fn = types.FunctionType(code, f.globals, code.co_name, None, s.pop() if arg & 8 else None)
    fn.__qualname__ = code.co_qualname
    if arg & 16:
        fn.__annotate__ = s.pop()  # type: ignore[attr-defined]
    if arg & 4:
        pairs = s.pop()
        fn.__annotations__ = dict(zip(pairs[::2], pairs[1::2], strict=True)) if is_a(pairs, tuple) else pairs
    if arg & 2:
        fn.__kwdefaults__ = s.pop()
    if arg & 1:
        fn.__defaults__ = s.pop()
    consts = code.co_consts
    if consts and is_a(consts[0], str) and code.co_flags & 0x1:
        fn.__doc__ = consts[0]
    module = f.globals.get("__name__")
    if fn.__module__ != module:
        fn.__module__ = module  # type: ignore[assignment]
    interp.trace.made.add(fn)
    s.append(fn)


HANDLERS = family(globals())
