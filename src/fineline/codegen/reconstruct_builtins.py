"""Expressions that rebuild builtin objects: containers, functions, iterators, views and wrappers."""

from __future__ import annotations

import functools
import gc
import itertools
import operator
import re
import types
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.backends.cuda import SDPAParams

from fineline.codegen.program_text import ProgramText
from fineline.cpython.iterator_states import NoState, iterator_state, set_iterator_state
from fineline.cpython.protocols import method_of
from fineline.frames.frame import InterpretedGenerator
from fineline.frames.graph_breaks import NotReconstructible, Uncompiled
from fineline.frames.graph_limits import GraphLimits
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects.attention_params import attention_fields
from fineline.objects.c_access import ITERATORS
from fineline.objects.c_calls import VIEWS
from fineline.objects.carried_iterators import STANDING, LiveIterator, advanced
from fineline.objects.iterator_stand_ins import METHODS, Recipe, is_method_of_stand_in, table_recipe
from fineline.objects.list_iterators import reversed_recipe
from fineline.objects.type_info import MISSING, c_class_method, c_method, raw_lookup
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import GETTERS
from fineline.tracing.tracebacks import Entry, entries_after_segment

# -- containers ------------------------------------------------------------------------------------------------------------
# The most items of which all orders are tried: 120 of them take 40 us.
MOST_ORDERED = 5
_HASHED_IN_C = frozenset({int, float, complex, bool, str, bytes, type(None)})


def _tuple(r: ProgramText, v: tuple) -> str:
    r.busy.add(v)
    text = r.pack(v)
    r.busy.discard(v)
    return text if is_value(v) else r.statement("pack", text, v)


def _list(r: ProgramText, v: list) -> str:
    r.check_made(v)
    name = r.statement("items", "[]", v)
    if v:
        at = len(r.lines)
        parts = r.items(v)
        if len(r.lines) == at and not names(name, parts):
            r.lines[-1] = f"{name} = [{parts}]"
        else:
            r.lines.append(f"{name} += [{parts}]")
    return name


def _constant(r: ProgramText, v: Any) -> str:
    return r.constant(v, type(v).__name__)


def _array_of(t: torch.Tensor) -> Any:
    """Returns the array with the memory of a tensor of no transform; inside of one, ``t.numpy()`` makes a tensor of the transform, without memory."""
    with torch._C._DisableFuncTorch():
        return t.numpy()


def _array(r: ProgramText, v: Any) -> str:
    arrays = r.trace.guards.interp.tensors.arrays
    if (found := arrays.traced.get(v)) is not None:
        tensor = r.expr(found.tensor)
        # The program may make an array later than eager code, in a transform that the graph has entered.
        inside = torch._C._are_functorch_transforms_active()
        array = f"{r.constant(_array_of, 'array_of')}({tensor})" if inside else f"{tensor}.numpy()"
        return r.statement("array", f"{array}{'[()]' if found.scalar else ''}", v)
    if arrays.lies_in_shared(v):
        raise Uncompiled("FL409", "an array with the memory of a tensor", GraphLimits(constant_arrays=False))
    if v.base is None:
        r.check_made(v)
        return r.statement("array", f"{r.constant(v.copy(order='K'), 'array')}.copy(order='K')", v)
    if type(v.base) is not np.ndarray or not v.flags.writeable:
        raise Uncompiled("FL409", "an array that may not be written, or has the memory of another object", GraphLimits(constant_arrays=False))
    at = v.__array_interface__["data"][0] - v.base.__array_interface__["data"][0]
    kind = r.constant(v.dtype, "dtype")
    return r.statement("view", f"{r.constant(np.ndarray, 'ndarray')}({v.shape}, {kind}, {r.expr(v.base)}, {at}, {v.strides})", v)


def _dict(r: ProgramText, v: dict) -> str:
    r.check_made(v)
    owner = r.trace.namespaces.owners.get(v)
    if owner is not None:
        return dict_of(r.expr(owner), type(owner))
    name = r.statement("table", "{}", v)
    at = len(r.lines)
    pairs = r.pairs(v)
    if len(r.lines) == at and not names(name, pairs):
        r.lines[-1] = f"{name} = {{{pairs}}}"
    else:
        r.lines.append(f"{name}.update({{{pairs}}})")
    return name


def names(name: str, text: str) -> bool:
    """Returns whether an expression uses the variable of the container that it fills, which then contains itself."""
    return re.search(rf"\b{name}\b", text) is not None


def dict_of(name: str, t: type) -> str:
    """Returns the expression of an instance's dict, which does not run a user's ``__getattribute__``."""
    return f'object.__getattribute__({name}, "__dict__")' if is_a(t.__getattribute__, types.FunctionType) else f"{name}.__dict__"


def _set(r: ProgramText, v: set) -> str:
    r.check_made(v)
    return r.statement("group", f"set({r.pack(insertions(set.__iter__(v)))})", v)


def insertions(items: Iterable[Any]) -> list:
    """Returns the items of a set in an order in which to insert them into an empty one, so that the new one yields them in the same order."""
    given = list(items)
    return order_of_insertion(given, (), (), given)


def order_of_insertion(new: list, before: Collection[Any], gone: Collection[Any], after: Iterable[Any]) -> list:
    """Returns ``new`` in an order in which to insert them into ``before``, without what is ``gone``, so that it yields its items as ``after`` does.

    Where hashes collide, the order of the items depends on it. Returns them as they are if no order does, or if the hash of one may be the user's code.
    """
    expected = list(after)
    if len(expected) < 2 or not all([type(x) in _HASHED_IN_C for x in (*before, *expected)]):
        return new
    for order in itertools.permutations(new) if len(new) <= MOST_ORDERED else (new, new[::-1]):
        made = set(before)
        made.difference_update(gone)
        made.update(order)
        if all(map(operator.is_, made, expected)):
            return list(order)
    return new


def _namespace(r: ProgramText, v: types.SimpleNamespace) -> str:
    name = r.statement("namespace", f"{r.constant(types.SimpleNamespace, 'SimpleNamespace')}()", v)
    r.fill_dict(f"{name}.__dict__", v.__dict__)
    return name


# -- functions and what wraps them -----------------------------------------------------------------------------------------
def _function(r: ProgramText, v: types.FunctionType) -> str:
    if v in METHODS:
        return r.constant(METHODS[v], v.__name__)
    if v not in r.trace.made:
        return r.constant(v, v.__name__)
    closure = ""
    if v.__closure__:
        cells = r.pack(v.__closure__)
        known = r.known(v)
        if known is not None:
            return known
        closure = f", None, {cells}"
    make, code, namespace = r.constant(types.FunctionType, "FunctionType"), r.constant(v.__code__, "code"), r.constant(v.__globals__, "globals")
    name = r.statement(v.__name__, f"{make}({code}, {namespace}, {v.__name__!r}{closure})", v)
    fresh = types.FunctionType(v.__code__, v.__globals__, v.__name__, None, v.__closure__)
    if v.__defaults__ is not None:
        r.lines.append(f"{name}.__defaults__ = {r.expr(v.__defaults__)}")
    if v.__kwdefaults__ is not None:
        r.lines.append(f"{name}.__kwdefaults__ = {{{r.pairs(v.__kwdefaults__)}}}")
    for attr in ("__qualname__", "__doc__", "__module__"):
        if getattr(v, attr) != getattr(fresh, attr):
            r.lines.append(f"{name}.{attr} = {r.expr(getattr(v, attr))}")
    if getattr(v, "__annotate__", None) is not None:
        # They are computed when they are first read (PEP 649).
        r.lines.append(f"{name}.__annotate__ = {r.expr(v.__annotate__)}")  # type: ignore[attr-defined]
    elif v.__annotations__:
        r.lines.append(f"{name}.__annotations__ = {r.constant(v.__annotations__, 'annotations')}.copy()")
    r.fill_dict(f"{name}.__dict__", v.__dict__)
    return name


def _method(r: ProgramText, v: types.MethodType) -> str:
    if is_method_of_stand_in(v):
        return r.statement("method", f"getattr({r.expr(v.__self__)}, {v.__name__!r})", v)
    make = r.constant(types.MethodType, "MethodType") if callable(v.__func__) else r.constant(method_of, "method_of")
    return r.statement("method", f"{make}({r.expr(v.__func__)}, {r.expr(v.__self__)})", v)


def _cell(r: ProgramText, v: types.CellType) -> str:
    r.check_made(v)
    name = r.statement("cell", f"{r.constant(types.CellType, 'CellType')}()", v)
    held = contents(v)
    if is_a(held, type) and held in r.busy:
        r.open_cell(name, held)
    elif held is not EMPTY:
        text = r.expr(held)
        r.lines.append(f"{name}.cell_contents = {text}")
    return name


def _partial(r: ProgramText, v: functools.partial) -> str:
    name = r.statement("partial", f"{r.constant(functools.partial, 'partial')}({r.call((v.func, *v.args), v.keywords)})", v)
    r.name_part(v.keywords, f"{name}.keywords")
    # Not its __dict__: a read makes one, and Python then does not merge this partial into a partial of it.
    state: Any = v.__reduce__()[2]
    r.fill_dict(f"{name}.__dict__", state[3])
    return name


# -- views and iterators ---------------------------------------------------------------------------------------------------
def _view(r: ProgramText, v: Any) -> str:
    # The only referent of a view is its container.
    shown = r.expr(gc.get_referents(v)[0])
    way = type(v).__name__.rpartition("_")[2]
    return r.statement("view", f"{r.constant(MappingProxyType, 'proxy')}({shown})" if type(v) is MappingProxyType else f"{shown}.{way}()", v)


def _reduced(r: ProgramText, v: Any) -> str:
    recipe = reversed_recipe(r.trace, v) or table_recipe(v)
    if recipe is not None:
        return iterator(r, v, recipe)
    try:
        fn, args, *rest = iterator_state(v)
    except NoState as e:
        raise NotReconstructible(str(e)) from None
    if fn is iter and type(iter(args[0])) is not type(v):
        raise NotReconstructible(f"a {type(v).__name__} that is under way")
    if type(fn) is functools.partial:
        # operator.methodcaller with keyword arguments.
        return iterator(r, v, Recipe(fn.func, (*fn.args, *args), fn.keywords))
    return iterator(r, v, Recipe(fn, args, state=tuple([state for state in rest[:1] if state is not None])))


def _live_iterator(r: ProgramText, v: LiveIterator) -> str:
    """Writes an iterator that is alive at a graph break; nothing else that the program makes may hold it."""
    it = v.iterator
    known = r.known(it)
    if known is not None:
        return known
    if type(it) not in STANDING:
        name = _reduced(r, it)
        r.forget(it)
        return name
    source = r.expr(it.iterator)
    return r.statement("iterator", f"{r.constant(advanced, 'advanced')}({source}, {it.moves})", v) if it.moves else source


def iterator(r: ProgramText, v: Any, recipe: Recipe) -> str:
    """Writes a C iterator by its recipe, and returns its variable."""
    make, written = recipe.make, r.trace.mutations.written
    if any([x in written and list(map(id, written[x].before)) != list(map(id, x)) for x in recipe.args if is_a(x, (dict, set, frozenset, deque))]):
        # The iterator would be made over the old contents, and fail after the writes.
        raise NotReconstructible("an iterator over a dict, set or deque that was written to")
    given = [*[r.loose(x) for x in recipe.args], *[f"{k}={r.expr(x)}" for k, x in recipe.kwargs.items()]]
    name = r.statement("iterator", f"{r.constant(make, make.__name__)}({', '.join(given)})", v)
    # After the writes, because the list may be too short for the position before.
    states = [r.loose(state) for state in recipe.state]
    if getattr(make, "__module__", None) == "itertools":
        r.late += [f"{r.constant(set_iterator_state, 'set_iterator_state')}({name}, {state})" for state in states]
    else:
        r.late += [f"{name}.__setstate__({state})" for state in states]
    return name


def _trace(r: ProgramText, v: types.TracebackType) -> str:
    """Rebuilds a traceback entry by entry, the innermost first, as an exception collects them."""
    own: list[types.TracebackType] = []
    seams = r.trace.mutations.seams
    tb: types.TracebackType | None = v
    while tb is not None and r.known(tb) is None and tb not in r.trace.sources and (not own or own[-1] not in seams):
        own.append(tb)
        tb = tb.tb_next
    seam = seams.get(own[-1])
    text = r.expr(tb) if seam is None else f"{r.constant(entries_after_segment, 'entries_after_segment')}({r.param(seam)})"
    for tb in reversed(own):
        text = r.statement("trace", f"{r.constant(Entry(tb), 'entry')}({text})", tb)
    return text


def _frame(r: ProgramText, v: types.FrameType) -> str:
    raise NotReconstructible("the frame of a running function", r.trace.functions.frames.get(v))


def _reference(r: ProgramText, v: weakref.ref) -> str:
    target = v()
    if target is None:
        raise NotReconstructible("a weak reference to what is gone")
    return r.statement("reference", f"{r.constant(weakref.ref, 'ref')}({r.expr(target)})", v)


def _bound_in_c(r: ProgramText, v: Any) -> str:
    """Rebuilds a method in C with its object. Its name leads to another method where a class defines one in Python, and `super` gave this one."""
    owner = v.__self__
    cls, given = (owner, f"None, {r.expr(owner)}") if is_a(owner, type) else (type(owner), r.expr(owner))
    if cls is owner:
        descr = c_class_method(owner, v)
    else:
        descr = v.__objclass__.__dict__[v.__name__] if type(v) is types.MethodWrapperType else c_method(cls, v)
    first = raw_lookup(cls, v.__name__)
    if is_a(owner, types.ModuleType) or first is descr or first is MISSING:
        return r.statement("method", f"getattr({r.expr(owner)}, {v.__name__!r})", v)
    get = r.constant(type(descr).__get__, "get")
    return r.statement("method", f"{get}({r.constant(descr, v.__name__)}, {given})", v)


def _generator(r: ProgramText, v: InterpretedGenerator) -> str:
    """Rebuilds a generator that has not started, by a call of its function."""
    if type(v.given) is types.GeneratorType:
        return r.expr(v.given)
    called = v.call()
    if called is None:
        raise NotReconstructible("a generator that has begun and is not finished", v.called_at)
    fn, args, kwargs = called
    return r.statement(v.__name__, f"{r.expr(fn)}({r.call(args, kwargs)})", v)


def _attention(r: ProgramText, v: SDPAParams) -> str:
    return r.statement("params", f"{r.constant(SDPAParams, 'SDPAParams')}(*{r.pack(attention_fields(v))})", v)


MAKERS: Mapping[type, Callable[[ProgramText, Any], str]] = MappingProxyType(
    {
        tuple: _tuple,
        torch.Size: lambda r, v: r.statement("size", f"{r.constant(torch.Size, 'Size')}({r.pack(v)})", v),
        list: _list,
        dict: _dict,
        np.ndarray: _array,
        **dict.fromkeys([type(np.dtype(code)) for code in np.typecodes["All"] if np.dtype(code).isbuiltin], _constant),
        set: _set,
        frozenset: lambda r, v: r.statement("group", f"{r.constant(frozenset, 'frozenset')}({r.pack(insertions(v))})", v),
        slice: lambda r, v: f"slice({r.expr(v.start)}, {r.expr(v.stop)}, {r.expr(v.step)})",
        types.SimpleNamespace: _namespace,
        types.FunctionType: _function,
        types.CellType: _cell,
        types.MethodType: _method,
        **dict.fromkeys((types.BuiltinFunctionType, types.MethodWrapperType), _bound_in_c),
        functools.partial: _partial,
        super: lambda r, v: r.statement("parent", f"super({r.expr(v.__thisclass__)}, {r.expr(v.__self__)})", v),
        weakref.ref: _reference,
        types.TracebackType: _trace,
        types.FrameType: _frame,
        property: lambda r, v: r.statement("prop", f"property({r.expr(v.fget)}, {r.expr(v.fset)}, {r.expr(v.fdel)}, {v.__doc__!r})", v),
        **dict.fromkeys((classmethod, staticmethod), lambda r, v: r.statement("wrapper", f"{type(v).__name__}({r.expr(v.__func__)})", v)),
        **dict.fromkeys((*VIEWS, MappingProxyType), _view),
        **dict.fromkeys((*ITERATORS, *GETTERS), _reduced),
        SDPAParams: _attention,
        InterpretedGenerator: _generator,
        LiveIterator: _live_iterator,
    }
)
"""By type: the function that writes the statements for an object into a program's text, and returns the object's expression."""
