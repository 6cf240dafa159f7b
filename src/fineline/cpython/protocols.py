"""Python's operator protocols as Python code, which the interpreter runs when user classes take part in them.

``special(obj, name)`` is the interpreter's own lookup of a method on an object's type (bound, or MISSING).
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from array import array
from collections import deque
from operator import index
from types import MethodType, MethodWrapperType
from typing import Any

import torch

from fineline.bytecode.version import CURRENT
from fineline.kinds import is_a

MISSING: Any = object()
SEQUENCES = (str, bytes, bytearray, list, tuple, deque, array)
_NO_TRUTH = CURRENT.worded("'NoneType' object is not callable")
_TOO_MANY = CURRENT.worded("too many values to unpack (expected {n})")
JOINING = ("__add__", "__mul__", "__iadd__", "__imul__")


def special(obj: Any, name: str) -> Any:
    """Looks up a special method on ``type(obj)``; the interpreter has a handler for this function."""
    for cls in type(obj).__mro__:
        if name in cls.__dict__:
            return cls.__dict__[name].__get__(obj, type(obj))
    return MISSING


def ask(obj: Any, name: str, *args: Any) -> Any:
    """Calls a special method, which may be any kind of attribute of the class."""
    return special(obj, name)(*args)


def native_binary(op: Any, a: Any, b: Any) -> Any:
    """Computes ``op(a, b)`` if neither operand has a method in Python; the interpreter has a handler for this function."""
    return op(a, b)


def set_up_annotations() -> None:
    if "__annotations__" not in locals():
        locals()["__annotations__"] = {}


def same(value: Any) -> Any:
    return value


def method_of(fn: Any, obj: Any) -> Any:
    """Returns a method, also of what can't be called: from Python 3.13 on, C makes one of whatever a class method wraps."""
    return MethodType(fn, obj) if callable(fn) else classmethod(fn).__get__(None, obj)


def of_frame(frame: Any, name: str) -> Any:
    """Returns the variables of a frame, or its line; the interpreter has a handler for this function."""
    return getattr(frame, name)


def go_on(gen: Any, value: Any, error: Any) -> Any:
    """Resumes a generator of CPython with a value or an error."""
    return gen.send(value) if error is None else gen.throw(error)


def call_spread(fn: Any, args: tuple, kwargs: dict) -> Any:
    return fn(*args, **kwargs)


def call_checkpointed(fn: Any, args: tuple, kwargs: dict, operands: list) -> Any:
    """Works like the forward pass of a checkpoint where function modes are on: they see that it asks for the devices of its operands."""
    for t in operands:
        _ = t.device
    return fn(*args, **kwargs)


def getattribute_then_getattr(obj: Any, name: str, getattribute: Any, fallback: Any) -> Any:
    try:
        return getattribute(obj, name)
    except AttributeError:
        # C clears the error before it calls the fallback.
        pass
    return fallback(obj, name)


def get_then_getattr(fallback: Any, obj: Any, name: str, getter: Any, *args: Any) -> Any:
    try:
        return getter(*args)
    except AttributeError:
        # C clears the error before it calls the fallback.
        pass
    return fallback(obj, name)


def attribute_or(get: Any, obj: Any, name: str, default: Any) -> Any:
    try:
        return get(obj, name)
    except AttributeError:
        return default


def has_attribute(get: Any, obj: Any, name: str) -> bool:
    try:
        get(obj, name)
    except AttributeError:
        return False
    return True


def binary(a: Any, b: Any, name: str, rname: str, op: Any) -> Any:
    ta, tb = type(a), type(b)
    left = special(a, name)
    # C binds a method only where it calls it.
    first = ta is not tb and (joins(a, left) or (is_a(b, ta) and getattr(tb, rname, MISSING) is not getattr(ta, rname, MISSING)))
    if first:
        right = special(b, rname)
        result = NotImplemented if right is MISSING else right(a)
        if result is not NotImplemented:
            return result
    result = NotImplemented if left is MISSING else left(b)
    if result is NotImplemented and ta is not tb and not first:
        right = special(b, rname)
        result = NotImplemented if right is MISSING else right(a)
    # A method in C of the left operand leaves the error to C.
    return native_binary(op, a, b) if result is NotImplemented else result


def inplace(a: Any, b: Any, iname: str, name: str, rname: str, op: Any, iop: Any) -> Any:
    method = special(a, iname)
    if joins(a, method):
        right = special(b, rname) if type(a) is not type(b) else MISSING
        if right is not MISSING:
            result = right(a)
            if result is not NotImplemented:
                return result
    if method is not MISSING:
        result = method(b)
        if result is not NotImplemented:
            return result
    return binary(a, b, name, rname, iop)


def joins(a: Any, method: Any) -> bool:
    """Returns whether a method joins or repeats sequences in C: it runs after the other operand's, because a sequence is not a number."""
    return is_a(method, MethodWrapperType) and is_a(a, SEQUENCES) and method.__name__ in JOINING


def compare(a: Any, b: Any, name: str, rname: str, op: Any) -> Any:
    ta, tb = type(a), type(b)
    tried = False
    if ta is not tb and is_a(b, ta):
        right = special(b, rname)
        tried = True
        if right is not MISSING:
            result = right(a)
            if result is not NotImplemented:
                return result
    left = special(a, name)
    if left is not MISSING:
        result = left(b)
        if result is not NotImplemented:
            return result
    if not tried:
        right = special(b, rname)
        if right is not MISSING:
            result = right(a)
            if result is not NotImplemented:
                return result
    if name == "__eq__":
        return a is b
    if name == "__ne__":
        return a is not b
    return native_binary(op, a, b)


def contains(container: Any, item: Any) -> bool:
    method = special(container, "__contains__")
    if method is None:
        raise TypeError(f"'{type(container).__name__}' object is not a container")
    if method is not MISSING:
        return bool(method(item))
    return contains_item(container, item)


def enter(manager: Any, *names: str) -> tuple:
    """Enters a block; returns its exit, and what the block is given. ``names``: the methods, in the order in which C binds them."""
    methods = {name: special(manager, name) for name in names}
    return methods["__exit__"], methods["__enter__"]()


def truth(obj: Any) -> bool:
    method = special(obj, "__bool__")
    if method is None:
        raise TypeError(_NO_TRUTH.format(name=type(obj).__name__))
    if method is not MISSING:
        result = method()
        if result is not True and result is not False:
            raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
        return result
    method = special(obj, "__len__")
    if method is not MISSING:
        return checked_length(method) != 0
    return True


def next_or(it: Any, default: Any) -> Any:
    try:
        return next(it)
    except StopIteration:
        return default


def unpack(it: Any, n: int) -> list:
    """Returns the items for ``a, b, c = it``."""
    out: list = []
    iterator = iter(it)
    for item in iterator:
        if len(out) == n:
            raise ValueError(_TOO_MANY.format(n=n, got=len(it)) if type(it) is dict else f"too many values to unpack (expected {n})")
        out.append(item)
    if len(out) < n:
        raise ValueError(f"not enough values to unpack (expected {n}, got {len(out)})")
    return out


def listed(it: Any) -> list:
    out = []
    for x in it:
        out.append(x)
    return out


def merged(mapping: Any, source: Any) -> Any:
    """Computes ``{**mapping, **source}`` for a source that is not a dict."""
    for key in source.keys():  # noqa: SIM118  (the mapping protocol asks for keys())
        mapping[key] = source[key]
    return mapping


def merged_keywords(fn: Any, mapping: dict, source: Any) -> None:
    """Merges the keywords of ``fn(**mapping, **source)``, as C does before it makes the call."""
    held = is_a(source, dict) and type(source).__iter__ is dict.__iter__
    for key in dict.keys(source) if held else source.keys():
        if key in mapping:
            raise given_twice(fn, key)
        mapping[key] = dict.__getitem__(source, key) if held else source[key]


def given_twice(fn: Any, key: Any) -> TypeError:
    return TypeError(f"{described_call(fn)} got multiple values for keyword argument '{key}'" if is_a(key, str) else "keywords must be strings")


def described_call(fn: Any) -> str:
    """Returns how CPython names a callable in the errors of a call."""
    qualname = getattr(fn, "__qualname__", None)
    if not is_a(qualname, str):
        return str(fn)
    module = getattr(fn, "__module__", None)
    return f"{qualname}()" if module is None or module == "builtins" else f"{module}.{qualname}()"


def spread_call(fn: Any, args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def subscript_missing(d: Any, key: Any) -> Any:
    if dict.__contains__(d, key):
        return dict.__getitem__(d, key)
    return ask(d, "__missing__", key)


def length(obj: Any) -> int:
    return checked_length(special(obj, "__len__"))


def array_length(a: Any) -> int:
    """Returns the length of an array of NumPy, which has a dimension."""
    n: int = a.shape[0]
    return n


def length_hint(obj: Any, default: Any = 0, /) -> int:
    given = index(default)
    size, hint = special(obj, "__len__"), special(obj, "__length_hint__")
    try:
        if size is not MISSING:
            return checked_length(size)
    except TypeError:
        pass
    if hint is MISSING:
        return given
    try:
        value = hint()
    except TypeError:
        return given
    if value is NotImplemented:
        return given
    if not is_a(value, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(value).__name__}")
    if value < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return int(value)


def checked_length(method: Any) -> int:
    n = index(method())
    if n < 0:
        raise ValueError("__len__() should return >= 0")
    if n > sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return n if type(n) is int else int.__pos__(n)


def absolute(a: Any, /) -> Any:
    method = special(a, "__abs__")
    if method is MISSING:
        raise TypeError(f"bad operand type for abs(): '{type(a).__name__}'")
    return method()


def truth_of(v: Any) -> bool:
    return True if v else False  # noqa: SIM210  (the interpreter would run bool() with this function)


def contains_item(items: Any, item: Any) -> bool:
    for x in items:
        if x is item or x == item:
            return True
    return False


def contains_pair(mapping: Any, pair: Any) -> bool:
    """Computes ``pair in mapping.items()``."""
    if not is_a(pair, tuple) or tuple.__len__(pair) != 2:
        return False
    key, value = pair
    if key not in mapping:
        return False
    found = mapping[key]
    return found is value or bool(found == value)


def match_keys(subject: Any, keys: tuple) -> Any:
    """Returns the values of ``keys``, or None if one is missing."""
    values = []
    seen = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.append(key)
        value = subject.get(key, MISSING)
        if value is MISSING:
            return None
        values.append(value)
    return tuple(values)


def match_class(subject: Any, cls: Any, nargs: int, names: tuple, itself: bool) -> Any:
    """Returns the attributes that a class pattern binds, or None if it does not match."""
    if not isinstance(subject, cls):
        return None
    attrs = []
    seen = []
    if nargs:
        match_args = getattr(cls, "__match_args__", MISSING)
        if match_args is MISSING:
            if not itself:
                raise TypeError(f"{cls.__name__}() accepts 0 positional sub-patterns ({nargs} given)")
            if nargs > 1:
                raise TypeError(f"{cls.__name__}() accepts 1 positional sub-pattern ({nargs} given)")
            attrs.append(subject)
        else:
            if type(match_args) is not tuple:
                raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(match_args).__name__})")
            if len(match_args) < nargs:
                raise TypeError(
                    f"{cls.__name__}() accepts {len(match_args)} positional sub-pattern{'' if len(match_args) == 1 else 's'} ({nargs} given)"
                )
            for i in range(nargs):
                name = tuple.__getitem__(match_args, i)
                if type(name) is not str:
                    raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
                if name in seen:
                    raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
                seen.append(name)
                value = getattr(subject, name, MISSING)
                if value is MISSING:
                    return None
                attrs.append(value)
    for name in names:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.append(name)
        value = getattr(subject, name, MISSING)
        if value is MISSING:
            return None
        attrs.append(value)
    return tuple(attrs)


def is_instance(obj: Any, classes: Any) -> bool:
    """Works like ``isinstance()`` for an object whose ``__class__`` is user code, and classes without checks of their own."""
    if is_a(classes, tuple):
        for cls in classes:
            if is_instance(obj, cls):
                return True
        return False
    if type(obj) is classes:
        return True
    if not is_a(classes, ABCMeta) and issubclass(type(obj), classes):
        return True
    try:
        said = obj.__class__
    except AttributeError:
        if is_a(classes, ABCMeta):
            raise
        return False
    if is_a(said, type) and said is not type(obj) and issubclass(said, classes):
        return True
    return is_a(classes, ABCMeta) and issubclass(type(obj), classes)


def is_of_class(cls: type, obj: Any, /) -> bool:
    """Works like ``type.__instancecheck__``, which asks no metaclass."""
    if is_a(obj, cls):
        return True
    try:
        said = obj.__class__
    except AttributeError:
        return False
    return is_a(said, type) and said is not type(obj) and any([base is cls for base in said.__mro__])


def iterators(iterables: Any) -> tuple:
    # Not a list: at a graph break in a later ``__iter__`` it would be a live value, which cannot contain a started generator.
    found: tuple = ()
    for x in iterables:
        it = iter(x)
        found = (*found, it)
    return found


def apply_plain(forward: Any, setup: Any, ctx: Any, args: tuple) -> Any:
    """Works like ``autograd.Function.apply`` if nothing requires a gradient."""
    if setup is None:
        return forward(ctx, *args)
    out = forward(*args)
    setup(ctx, args, out)
    return out


def gradients(outputs: Any, inputs: Any, given: Any = None, retain_graph: bool = False, create_graph: bool = True) -> tuple:
    """Returns the gradients that a transform of torch.func asks for, by calls that function modes see; a missing one is zero.

    PyTorch's own function does the same in a block that loads its compiler.
    """
    seeded = [(out, given[i] if given is not None else None) for i, out in enumerate(outputs) if out.requires_grad]
    found: Any = [None for _ in inputs]
    if seeded:
        seeds = None if given is None else tuple([seed for _, seed in seeded])
        found = torch.autograd.grad(
            tuple([out for out, _ in seeded]), inputs, seeds, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True
        )
    return tuple([torch.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, found, strict=False)])


def apply_under_no_grad(forward: Any, setup: Any, ctx: Any, args: tuple) -> Any:
    with torch.no_grad():
        return apply_plain(forward, setup, ctx, args)


def apply_unseen(forward: Any, setup: Any, ctx: Any, args: tuple) -> Any:
    """Works like ``autograd.Function.apply`` where function modes are on: C shows them no change of the grad mode."""
    _switch_gradients(False)
    try:
        return apply_plain(forward, setup, ctx, args)
    finally:
        _switch_gradients(True)


def _switch_gradients(on: bool) -> None:
    with torch._C.DisableTorchFunction():
        torch._C._set_grad_enabled(on)


def run_under_no_grad(fn: Any, *args: Any) -> Any:
    """Runs a backward as PyTorch does, unless its gradients are differentiated themselves."""
    with torch.no_grad():
        return fn(*args)


def close_abandoned(generators: list) -> None:
    """Closes suspended generators as Python does when their last reference is dropped."""
    for generator in generators:
        try:
            generator.close()
        except BaseException as e:
            unraisable(e, generator)


def close_abandoned_then_raise(generators: list, exc: BaseException) -> None:
    close_abandoned(generators)
    raise exc


def unraisable(error: BaseException, generator: Any) -> None:
    """Reports an exception that no code can catch, as Python does; the interpreter runs this eagerly."""
    dying = _raise_when_gone(error)
    dying.__name__, dying.__qualname__ = generator.__name__, generator.__qualname__
    next(dying)
    del dying


def _raise_when_gone(error: BaseException) -> Any:
    try:
        yield
    finally:
        raise error


def close_then_raise(generator: Any, exc: Any) -> None:
    generator.close()
    raise exc
