"""Instruction handlers for moving values about: stack, variables, containers, jumps, functions."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.code import CodeInfo
from fineline.capture import blocks as blocks  # its import registers its handlers
from fineline.capture import natives, protocols
from fineline.capture.attributes import delete_attr, load_attr, load_method, store_attr, type_info
from fineline.capture.capture import SINGLETONS, VALUES
from fineline.capture.frame import NULL, Frame, InterpretedGenerator
from fineline.capture.instructions import HANDLERS, Handler, handler
from fineline.capture.operators import binary_subscr, delete_subscr, store_dict_item, store_subscr
from fineline.capture.signals import Border, Finished
from fineline.capture.specials import iterate, length, load_cell, step_eagerly


# -- stack and constants ---------------------------------------------------------------------------------------------
@handler
def NOP(vm: Any, f: Frame, arg: int) -> Frame | None:
    return None


for _name in ("RESUME", "PRECALL", "COPY_FREE_VARS", "MAKE_NOTHING"):
    HANDLERS[_name] = NOP


@handler
def POP_TOP(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.pop()
    return None


@handler
def PUSH_NULL(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append(NULL)
    return None


@handler
def COPY(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append(f.stack[-arg])
    return None


@handler
def SWAP(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    s[-1], s[-arg] = s[-arg], s[-1]
    return None


@handler
def LOAD_CONST(vm: Any, f: Frame, arg: int) -> Frame | None:
    value = f.info.code.co_consts[arg]
    if vm.cap.lazy:
        # It may be the very number that was passed in.
        vm.cap.settle(value)
    f.stack.append(value)
    return None


# -- variables -------------------------------------------------------------------------------------------------------
@handler
def LOAD_FAST(vm: Any, f: Frame, arg: int) -> Frame | None:
    v = f.local[arg]
    if v is NULL:
        raise UnboundLocalError(f"cannot access local variable '{f.info.slots[arg]}' where it is not associated with a value")
    f.stack.append(v)
    return None


@handler
def STORE_FAST(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.local[arg] = f.stack.pop()
    return None


@handler
def DELETE_FAST(vm: Any, f: Frame, arg: int) -> Frame | None:
    if f.local[arg] is NULL:
        raise UnboundLocalError(f"cannot access local variable '{f.info.slots[arg]}' where it is not associated with a value")
    f.local[arg] = NULL
    return None


@handler
def MAKE_CELL(vm: Any, f: Frame, arg: int) -> Frame | None:
    v = f.local[arg]
    cell = types.CellType() if v is NULL else types.CellType(v)
    vm.cap.made.add(id(cell))
    f.local[arg] = cell
    return None


@handler
def LOAD_CLOSURE(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append(f.local[arg])
    return None


def _unbound(f: Frame, arg: int) -> Exception:
    name = f.info.slots[arg]
    if name in f.info.code.co_cellvars:
        return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    return NameError(f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope", name=name)


@handler
def LOAD_DEREF(vm: Any, f: Frame, arg: int) -> Frame | None:
    try:
        f.stack.append(load_cell(vm, f.local[arg]))
    except ValueError:
        cell = f.local[arg]
        if vm.cap.active and id(cell) in vm.cap.sources and id(cell) not in vm.cap.journal.written:
            vm.cap.guards.check(vm.cap.sources[id(cell)], "predicate", (_cell_is_empty, "is an empty cell"), "empty")
        raise _unbound(f, arg) from None
    return None


def _cell_is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


@handler
def LOAD_CLASSDEREF(vm: Any, f: Frame, arg: int) -> Frame | None:
    name = f.info.slots[arg]
    if f.namespace is not None and name in f.namespace:
        f.stack.append(f.namespace[name])
        return None
    return LOAD_DEREF(vm, f, arg)


def _write_cell(vm: Any, cell: types.CellType) -> None:
    src = vm.cap.sources.get(id(cell))
    if src is not None:
        vm.cap.journal.note(cell, src)


@handler
def STORE_DEREF(vm: Any, f: Frame, arg: int) -> Frame | None:
    cell = f.local[arg]
    _write_cell(vm, cell)
    cell.cell_contents = f.stack.pop()
    return None


@handler
def DELETE_DEREF(vm: Any, f: Frame, arg: int) -> Frame | None:
    cell = f.local[arg]
    _write_cell(vm, cell)
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        raise _unbound(f, arg) from None
    del cell.cell_contents
    return None


def global_value(vm: Any, f: Frame, name: str) -> Any:
    """A global or builtin by name, guarded."""
    cap = vm.cap
    g = f.globals
    if not cap.active:
        if name in g:
            return g[name]
        if name in f.builtins:
            return f.builtins[name]
        raise NameError(f"name '{name}' is not defined", name=name)
    cache = cap.global_values.get(id(g))
    if cache is None:
        cache = cap.global_values[id(g)] = {}
    if name in cache:
        return cache[name]
    src = cap.sources.get(id(g))
    if src is None:
        src = cap.pin(g, f"globals of {g.get('__name__')}")
    if name in g:
        value = cap.read_key(g, src, name, g[name])
    else:
        cap.read_absent(g, src, name)
        if name not in f.builtins:
            raise NameError(f"name '{name}' is not defined", name=name)
        b = cap.pin(f.builtins, "builtins")
        value = cap.read_key(f.builtins, b, name, f.builtins[name])
    cache[name] = value
    return value


@handler
def LOAD_GLOBAL(vm: Any, f: Frame, arg: int) -> Frame | None:
    if arg & 1:
        f.stack.append(NULL)
    name = f.info.names[arg >> 1]
    cache = vm.cap.global_values.get(id(f.globals))
    if cache is not None and name in cache:
        f.stack.append(cache[name])
        return None
    f.stack.append(global_value(vm, f, name))
    return None


@handler
def LOAD_NAME(vm: Any, f: Frame, arg: int) -> Frame | None:
    name = f.info.names[arg]
    if f.namespace is not None and name in f.namespace:
        f.stack.append(_name_in(vm, f, name))
    else:
        f.stack.append(global_value(vm, f, name))
    return None


def _name_in(vm: Any, f: Frame, name: str) -> Any:
    """A name of a class body, whose namespace may come from before a border."""
    cap = vm.cap
    src = cap.sources.get(id(f.namespace))
    return f.namespace[name] if src is None else cap.read_key(f.namespace, src, name, f.namespace[name])


@handler
def STORE_GLOBAL(vm: Any, f: Frame, arg: int) -> Frame | None:
    _global_write(vm, f, f.info.names[arg])
    f.globals[f.info.names[arg]] = f.stack.pop()
    return None


def _global_write(vm: Any, f: Frame, name: str) -> None:
    cap = vm.cap
    if cap.active:
        src = cap.pin(f.globals, f"globals of {f.globals.get('__name__')}")
        cap.journal.note(f.globals, src, name)
        cap.global_values.pop(id(f.globals), None)


@handler
def DELETE_GLOBAL(vm: Any, f: Frame, arg: int) -> Frame | None:
    name = f.info.names[arg]
    if name not in f.globals:
        raise NameError(f"name '{name}' is not defined", name=name)
    global_value(vm, f, name)
    if vm.cap.active:
        vm.cap.guard_presence(f.globals, vm.cap.pin(f.globals, f"globals of {f.globals.get('__name__')}"), name)
    _global_write(vm, f, name)
    del f.globals[name]
    return None


@handler
def SETUP_ANNOTATIONS(vm: Any, f: Frame, arg: int) -> Frame | None:
    if "__annotations__" not in f.namespace:
        store_dict_item(vm.cap, f.namespace, "__annotations__", vm.cap.fresh({}))
    return None


@handler
def STORE_NAME(vm: Any, f: Frame, arg: int) -> Frame | None:
    store_dict_item(vm.cap, f.namespace, f.info.names[arg], f.stack.pop())
    return None


@handler
def DELETE_NAME(vm: Any, f: Frame, arg: int) -> Frame | None:
    name = f.info.names[arg]
    if name not in f.namespace:
        raise NameError(f"name '{name}' is not defined", name=name)
    return vm.call(f, dict.__delitem__, [f.namespace, name], None, vm.discard)


# -- attributes and items --------------------------------------------------------------------------------------------
@handler
def LOAD_ATTR(vm: Any, f: Frame, arg: int) -> Frame | None:
    return load_attr(vm, f, f.stack.pop(), f.info.names[arg])


@handler
def LOAD_METHOD(vm: Any, f: Frame, arg: int) -> Frame | None:
    return load_method(vm, f, f.stack.pop(), f.info.names[arg])


@handler
def STORE_ATTR(vm: Any, f: Frame, arg: int) -> Frame | None:
    obj = f.stack.pop()
    return store_attr(vm, f, obj, f.info.names[arg], f.stack.pop())


@handler
def DELETE_ATTR(vm: Any, f: Frame, arg: int) -> Frame | None:
    return delete_attr(vm, f, f.stack.pop(), f.info.names[arg])


@handler
def BINARY_SUBSCR(vm: Any, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    return binary_subscr(vm, f, f.stack.pop(), key)


@handler
def STORE_SUBSCR(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    key, obj, value = s.pop(), s.pop(), s.pop()
    return store_subscr(vm, f, obj, key, value)


@handler
def DELETE_SUBSCR(vm: Any, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    return delete_subscr(vm, f, f.stack.pop(), key)


# -- containers ------------------------------------------------------------------------------------------------------
def _popn(f: Frame, n: int) -> list:
    if not n:
        return []
    items = f.stack[-n:]
    del f.stack[-n:]
    return items


@handler
def BUILD_TUPLE(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append(tuple(_popn(f, arg)))
    return None


@handler
def BUILD_LIST(vm: Any, f: Frame, arg: int) -> Frame | None:
    items = _popn(f, arg)
    vm.cap.made.add(id(items))
    f.stack.append(items)
    return None


def keyed(vm: Any, key: Any, among: Any) -> None:
    """``key`` is about to be hashed, and compared with others."""
    cap = vm.cap
    if cap.active and type(key) is not str and not natives.key_plain(cap, key, among):
        vm.fail("FL419", f"a {type(key).__name__} with its own __hash__ or __eq__ is a key", False)


@handler
def BUILD_SET(vm: Any, f: Frame, arg: int) -> Frame | None:
    items = _popn(f, arg)
    for k in items:
        keyed(vm, k, items)
    out = set(items)
    vm.cap.made.add(id(out))
    f.stack.append(out)
    return None


@handler
def BUILD_MAP(vm: Any, f: Frame, arg: int) -> Frame | None:
    items = _popn(f, 2 * arg)
    for k in items[::2]:
        keyed(vm, k, items[::2])
    out = dict(zip(items[::2], items[1::2], strict=True))
    vm.cap.made.add(id(out))
    f.stack.append(out)
    return None


@handler
def BUILD_CONST_KEY_MAP(vm: Any, f: Frame, arg: int) -> Frame | None:
    keys = f.stack.pop()
    out = dict(zip(keys, _popn(f, arg), strict=True))
    vm.cap.made.add(id(out))
    f.stack.append(out)
    return None


@handler
def BUILD_STRING(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append("".join(_popn(f, arg)))
    return None


@handler
def BUILD_SLICE(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append(slice(*_popn(f, arg)))
    return None


def _growing(vm: Any, container: Any) -> Any:
    """What a comprehension adds to: behind a border it is a live value of before."""
    cap = vm.cap
    src = cap.sources.get(id(container))
    if src is not None and cap.active:
        cap.expand(container)
        cap.journal.note(container, src)
    return container


@handler
def LIST_APPEND(vm: Any, f: Frame, arg: int) -> Frame | None:
    v = f.stack.pop()
    list.append(_growing(vm, f.stack[-arg]), v)
    return None


@handler
def SET_ADD(vm: Any, f: Frame, arg: int) -> Frame | None:
    v = f.stack.pop()
    keyed(vm, v, f.stack[-arg])
    set.add(_growing(vm, f.stack[-arg]), v)
    return None


@handler
def MAP_ADD(vm: Any, f: Frame, arg: int) -> Frame | None:
    v = f.stack.pop()
    k = f.stack.pop()
    keyed(vm, k, f.stack[-arg])
    dict.__setitem__(_growing(vm, f.stack[-arg]), k, v)
    return None


@handler
def LIST_TO_TUPLE(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.stack.append(tuple(f.stack.pop()))
    return None


@handler
def LIST_EXTEND(vm: Any, f: Frame, arg: int) -> Frame | None:
    return vm.call(f, list.extend, [f.stack[-arg - 1], f.stack.pop()], None, vm.discard)


@handler
def SET_UPDATE(vm: Any, f: Frame, arg: int) -> Frame | None:
    return vm.call(f, set.update, [f.stack[-arg - 1], f.stack.pop()], None, vm.discard)


@handler
def DICT_UPDATE(vm: Any, f: Frame, arg: int) -> Frame | None:
    source = f.stack.pop()
    target = f.stack[-arg]
    if isinstance(source, dict) and vm.cap.active and natives.plain(vm.cap, source):
        return vm.call(f, dict.update, [target, source], None, vm.discard)
    if not hasattr(source, "keys"):
        raise TypeError(f"'{type(source).__name__}' object is not a mapping")
    return vm.call(f, protocols.merged, [target, source], None, vm.discard)


@handler
def DICT_MERGE(vm: Any, f: Frame, arg: int) -> Frame | None:
    source = f.stack.pop()
    target = f.stack[-arg]
    fn = f.stack[-arg - 2]
    if not hasattr(source, "keys"):
        raise TypeError(f"{natives.described_call(fn)} argument after ** must be a mapping, not {type(source).__name__}")
    if isinstance(source, dict) and (not vm.cap.active or natives.plain(vm.cap, source)):
        if vm.cap.active:
            vm.cap.expand(source)
        for key in source:
            if not isinstance(key, str):
                raise TypeError("keywords must be strings")
            if key in target:
                raise TypeError(f"{natives.described_call(fn)} got multiple values for keyword argument '{key}'")
        dict.update(_growing(vm, target), source)
        return None
    return vm.call(f, protocols.merged, [target, source], None, vm.discard)


@handler
def UNPACK_SEQUENCE(vm: Any, f: Frame, arg: int) -> Frame | None:
    seq = f.stack.pop()
    t = type(seq)
    if t is tuple or t is list or t is torch.Size:
        if t is list:
            vm.cap.expand(seq)
        if len(seq) == arg:
            f.stack.extend(reversed(seq))
            return None
        raise ValueError(
            f"too many values to unpack (expected {arg})"
            if len(seq) > arg
            else f"not enough values to unpack (expected {arg}, got {len(seq)})"
        )
    if not isinstance(seq, (Tensor, InterpretedGenerator)) and not hasattr(t, "__iter__") and not hasattr(t, "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {t.__name__} object")
    return vm.call(f, protocols.unpack, [seq, arg], None, _spread)


def _spread(vm: Any, f: Frame, items: list, data: Any) -> Frame | None:
    f.stack.extend(reversed(items))
    return None


@handler
def UNPACK_EX(vm: Any, f: Frame, arg: int) -> Frame | None:
    return vm.call(f, protocols.listed, [f.stack.pop()], None, _spread_star, arg)


def _spread_star(vm: Any, f: Frame, items: list, arg: int) -> Frame | None:
    before, after = arg & 0xFF, arg >> 8
    if len(items) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    end = len(items) - after
    middle = items[before:end]
    vm.cap.made.add(id(middle))
    f.stack.extend(reversed(items[end:]))
    f.stack.append(middle)
    f.stack.extend(reversed(items[:before]))
    return None


# -- iteration -------------------------------------------------------------------------------------------------------
@handler
def GET_ITER(vm: Any, f: Frame, arg: int) -> Frame | None:
    return iterate(vm, f, f.stack.pop())


@handler
def GET_YIELD_FROM_ITER(vm: Any, f: Frame, arg: int) -> Frame | None:
    return iterate(vm, f, f.stack.pop())


@handler
def FOR_ITER(vm: Any, f: Frame, arg: int) -> Frame | None:
    it = f.stack[-1]
    t = type(it)
    if t is InterpretedGenerator:
        return vm.resume(f, it, None, None, arg, _exhausted)
    cap = vm.cap
    if t in natives.ITERATORS and id(it) not in cap.sources and natives.plain(cap, it):
        try:
            f.stack.append(next(it))
        except StopIteration:
            f.stack.pop()
            f.ip = arg
        return None
    if type(it).__name__ == "Stepped" and hasattr(it, "ended"):
        # Second visit: the border behind the first one has taken a step.
        f.stack.pop()
        if cap.active:
            _loaded(cap, it, "ended")
        if it.ended:
            f.stack.pop()
            f.ip = arg
        else:
            f.stack.append(it.value if not cap.active else _loaded(cap, it))
        return None
    method = getattr(t, "__next__", None)
    if isinstance(method, types.FunctionType):
        frame = vm.call(f, method, [it], None, None, arg)
        if frame is not None:
            frame.on_stop = _exhausted
        return frame
    f.ip -= 1
    raise Border(step_eagerly, (it,), None, "FL416", f"the next item of a {t.__name__}")


def _loaded(cap: Any, step: Any, name: str = "value") -> Any:
    src = cap.sources.get(id(step))
    value = getattr(step, name)
    return value if src is None else cap.load(value, cap.guards.access(src, "member", type(step).__dict__[name], value))


def _exhausted(vm: Any, f: Frame, value: Any, arg: int) -> Frame | None:
    f.stack.pop()
    f.ip = arg
    return None


@handler
def GET_LEN(vm: Any, f: Frame, arg: int) -> Frame | None:
    return length(vm, f, f.stack[-1])


# -- jumps -----------------------------------------------------------------------------------------------------------
@handler
def JUMP_FORWARD(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.ip = arg
    return None


# Backward jumps without a tensor operator in between (about 0.2 s of interpretation) after which a loop is left to CPython.
LONG_LOOP = 100_000
HANDLERS["JUMP_BACKWARD_NO_INTERRUPT"] = JUMP_FORWARD


@handler
def JUMP_BACKWARD(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.ip = arg
    vm.jumps += 1
    if vm.jumps > LONG_LOOP and vm.cap.active:
        vm.long_loop(f)
    return None


def truth(vm: Any, f: Frame, v: Any, then: Any = None, data: Any = None) -> Frame | None:
    """``bool(v)``."""
    cap = vm.cap
    t = type(v)
    if t in SINGLETONS or t in VALUES:
        if cap.lazy:
            cap.settle(v)
        return vm.finish(f, bool(v), then, data)
    if isinstance(v, Tensor):
        if cap.active:
            raise Border(bool, (v,), None, "FL502", "a branch on a tensor's value").to(then, data)
        return vm.finish(f, bool(v), then, data)
    if t in natives.CONTAINERS:
        return length(vm, f, v, _length_truth, (then, data))
    if isinstance(getattr(t, "__bool__", None), types.FunctionType) or isinstance(getattr(t, "__len__", None), types.FunctionType):
        return vm.call(f, protocols.truth, [v], None, then, data)
    if isinstance(v, (list, dict, tuple, set, frozenset)):
        return length(vm, f, v, _length_truth, (then, data))
    if hasattr(t, "__bool__") or (hasattr(t, "__len__") and not isinstance(v, type)):
        if (cap.active and id(v) not in cap.made) or t not in natives.VIEWS:
            raise Border(bool, (v,), None, "FL412", f"the truth of a {t.__name__}").to(then, data)
        return vm.finish(f, bool(v), then, data)
    if cap.active and t.__flags__ & (1 << 9) and not isinstance(v, type):
        from_type(cap, t)
    return vm.finish(f, True if t not in natives.VIEWS else bool(v), then, data)


def from_type(cap: Any, t: type) -> None:
    """An object is true because its class has neither ``__bool__`` nor ``__len__``."""
    info = type_info(cap, t)
    info.look(cap, "__bool__")
    info.look(cap, "__len__")


def _length_truth(vm: Any, f: Frame, n: int, state: tuple) -> Frame | None:
    return vm.finish(f, n != 0, *state)


def _jump_if(wanted: bool, keep: bool) -> Handler:
    def jump(vm: Any, f: Frame, arg: int) -> Frame | None:
        s = f.stack
        v = s[-1]
        if v is True or v is False:
            if v is wanted:
                if not keep:
                    s.pop()
                f.ip = arg
            else:
                s.pop()
            return None
        if keep:
            # The value itself stays; only its truth decides.
            return truth(vm, f, v, _jump_kept, (wanted, arg)) if not isinstance(v, Tensor) else _tensor_truth(vm, f, v, wanted, arg)
        s.pop()
        f.ip -= 1
        return truth(vm, f, v)

    return jump


def _tensor_truth(vm: Any, f: Frame, v: Tensor, wanted: bool, arg: int) -> Frame | None:
    if not vm.cap.active:
        return _jump_kept(vm, f, bool(v), (wanted, arg))
    return vm.call(f, protocols.truth_of, [v], None, _jump_kept, (wanted, arg))


def _jump_kept(vm: Any, f: Frame, value: Any, state: tuple) -> Frame | None:
    wanted, arg = state
    if bool(value) is wanted:
        f.ip = arg
    else:
        f.stack.pop()
    return None


def _jump_if_none(wanted: bool) -> Handler:
    def jump(vm: Any, f: Frame, arg: int) -> Frame | None:
        if (f.stack.pop() is None) is wanted:
            f.ip = arg
        return None

    return jump


for _way in ("FORWARD", "BACKWARD"):
    HANDLERS[f"POP_JUMP_{_way}_IF_TRUE"] = _jump_if(True, False)
    HANDLERS[f"POP_JUMP_{_way}_IF_FALSE"] = _jump_if(False, False)
    HANDLERS[f"POP_JUMP_{_way}_IF_NONE"] = _jump_if_none(True)
    HANDLERS[f"POP_JUMP_{_way}_IF_NOT_NONE"] = _jump_if_none(False)
HANDLERS["JUMP_IF_TRUE_OR_POP"] = _jump_if(True, True)
HANDLERS["JUMP_IF_FALSE_OR_POP"] = _jump_if(False, True)


# -- calls -----------------------------------------------------------------------------------------------------------
@handler
def KW_NAMES(vm: Any, f: Frame, arg: int) -> Frame | None:
    f.kwnames = f.info.code.co_consts[arg]
    return None


@handler
def CALL(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    args = s[-arg:] if arg else []
    del s[len(s) - arg :]
    self = s.pop()
    fn = s.pop()
    if fn is NULL:
        fn = self
    else:
        args.insert(0, self)
    kwargs = None
    names = f.kwnames
    if names:
        f.kwnames = ()
        n = len(names)
        kwargs = dict(zip(names, args[-n:], strict=True))
        del args[-n:]
    return vm.call(f, fn, args, kwargs)


@handler
def CALL_FUNCTION_EX(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    kwargs = s.pop() if arg & 1 else None
    args = s.pop()
    fn = s.pop()
    if s and s[-1] is NULL:
        s.pop()
    if type(args) is not tuple:
        if not hasattr(type(args), "__iter__") and not hasattr(type(args), "__getitem__") and not isinstance(args, InterpretedGenerator):
            raise TypeError(f"{natives.described_call(fn)} argument after * must be an iterable, not {type(args).__name__}")
        return vm.call(f, protocols.listed, [args], None, _call_listed, (fn, kwargs))
    if kwargs is not None:
        if vm.cap.active:
            vm.cap.expand(kwargs)
        kwargs = dict(kwargs)
    return vm.call(f, fn, list(args), kwargs)


def _call_listed(vm: Any, f: Frame, args: list, state: tuple) -> Frame | None:
    fn, kwargs = state
    if kwargs is not None and vm.cap.active:
        vm.cap.expand(kwargs)
    return vm.call(f, fn, list(args), dict(kwargs) if kwargs is not None else None)


@handler
def MAKE_FUNCTION(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    code = s.pop()
    fn = types.FunctionType(code, f.globals, code.co_name, None, s.pop() if arg & 8 else None)
    fn.__qualname__ = code.co_qualname
    if arg & 4:
        pairs = s.pop()
        fn.__annotations__ = dict(zip(pairs[::2], pairs[1::2], strict=True)) if isinstance(pairs, tuple) else pairs
    if arg & 2:
        fn.__kwdefaults__ = s.pop()
    if arg & 1:
        fn.__defaults__ = s.pop()
    consts = code.co_consts
    if consts and isinstance(consts[0], str) and code.co_flags & 0x1:
        fn.__doc__ = consts[0]
    module = f.globals.get("__name__")
    if fn.__module__ != module:
        fn.__module__ = module  # type: ignore[assignment]
    vm.cap.made.add(id(fn))
    s.append(fn)
    return None


@handler
def RETURN_VALUE(vm: Any, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    vm.depth -= 1
    if f.generator is not None:
        on_stop, data = f.on_stop, f.data
        back = vm.leave_generator(f, "closed")
        if back is None:
            raise Finished(value)
        if on_stop is not None:
            return on_stop(vm, back, value, data) or back
        raise StopIteration(value)
    back = f.back
    if back is None:
        raise Finished(value)
    vm.frame = back
    if f.then is None:
        back.stack.append(value)
        return back
    return f.then(vm, back, value, f.data) or back


@handler
def RETURN_GENERATOR(vm: Any, f: Frame, arg: int) -> Frame | None:
    gen = InterpretedGenerator(f, vm.drive)
    f.generator = gen
    vm.cap.made.add(id(gen))
    vm.depth -= 1
    back, f.back = f.back, None
    if back is None:
        raise Finished(gen)
    vm.frame = back
    then, data = f.then, f.data
    if then is None:
        back.stack.append(gen)
        return back
    return then(vm, back, gen, data) or back


@handler
def YIELD_VALUE(vm: Any, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    then, data = f.then, f.data
    back = vm.leave_generator(f, "suspended")
    if back is None:
        raise Finished(value)
    if then is None:
        back.stack.append(value)
        return back
    return then(vm, back, value, data) or back


@handler
def SEND(vm: Any, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    receiver = f.stack[-1]
    if type(receiver) is InterpretedGenerator:
        return vm.resume(f, receiver, value, None, arg, sent)
    if value is None:
        if type(receiver) in natives.ITERATORS and id(receiver) not in vm.cap.sources:
            try:
                f.stack.append(next(receiver))
            except StopIteration as stop:
                return sent(vm, f, stop.value, arg)
            return None
        method = getattr(type(receiver), "__next__", None)
        args = [receiver]
    else:
        method = getattr(type(receiver), "send", None)
        args = [receiver, value]
    if isinstance(method, types.FunctionType):
        frame = vm.call(f, method, args, None, None, arg)
        if frame is not None:
            frame.on_stop = sent
        return frame
    try:
        f.stack.append(next(receiver) if value is None else receiver.send(value))
    except StopIteration as stop:
        return sent(vm, f, stop.value, arg)
    if vm.cap.active:
        vm.fail("FL416", f"yield from a {type(receiver).__name__}", False)
    return None


def sent(vm: Any, f: Frame, value: Any, arg: int) -> Frame | None:
    f.stack.pop()
    f.stack.append(value)
    f.ip = arg
    return None


def link(info: CodeInfo, opaque: Any) -> list:
    """The instructions with their handlers; those in ``opaque`` run eagerly."""
    out = []
    for k, (name, arg) in enumerate(info.instructions):
        h = HANDLERS.get(name)
        if h is None:
            h = _unknown(name)
        if opaque and (info.code, k) in opaque:
            h = OPAQUE.get(name, h)
        out.append((h, arg))
    return out


def _unknown(name: str) -> Handler:
    def unknown(vm: Any, f: Frame, arg: int) -> Frame | None:
        raise SystemError(f"fineline has no handler for the instruction {name}")

    return unknown


def _opaque_call(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    args = s[-arg:] if arg else []
    del s[len(s) - arg :]
    self, fn = s.pop(), s.pop()
    if fn is NULL:
        fn = self
    else:
        args.insert(0, self)
    names, kwargs = f.kwnames, {}
    if names:
        f.kwnames = ()
        kwargs = dict(zip(names, args[-len(names) :], strict=True))
        del args[-len(names) :]
    raise Border(fn, tuple(args), kwargs, "FL420", f"{natives.describe(fn)} could not be captured the first time")


def _opaque_call_ex(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    kwargs = s.pop() if arg & 1 else None
    args = s.pop()
    fn = s.pop()
    if s and s[-1] is NULL:
        s.pop()
    raise Border(_spread_call, (fn, args, kwargs or {}), None, "FL420", f"{natives.describe(fn)} could not be captured the first time")


def _spread_call(fn: Any, args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def _opaque_attr(vm: Any, f: Frame, arg: int) -> Frame | None:
    raise Border(getattr, (f.stack.pop(), f.info.names[arg]), None, "FL420", "this attribute could not be captured the first time")


def _opaque_method(vm: Any, f: Frame, arg: int) -> Frame | None:
    obj = f.stack.pop()
    f.stack.append(NULL)
    raise Border(getattr, (obj, f.info.names[arg]), None, "FL420", "this attribute could not be captured the first time")


def _opaque_subscr(vm: Any, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    raise Border(_getitem, (f.stack.pop(), key), None, "FL420", "this item could not be captured the first time")


def _getitem(obj: Any, key: Any) -> Any:
    return obj[key]


def _opaque_iter(vm: Any, f: Frame, arg: int) -> Frame | None:
    raise Border(iter, (f.stack.pop(),), None, "FL420", "this iteration could not be captured the first time")


OPAQUE: dict[str, Handler] = {
    "CALL": _opaque_call,
    "CALL_FUNCTION_EX": _opaque_call_ex,
    "LOAD_ATTR": _opaque_attr,
    "LOAD_METHOD": _opaque_method,
    "BINARY_SUBSCR": _opaque_subscr,
    "GET_ITER": _opaque_iter,
}
