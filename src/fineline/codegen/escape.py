"""Values that leave the capturing call, or reach eager code: Python's own generators and iterators replace the interpreter's, as in later calls."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import weakref
from collections import Counter, deque
from collections.abc import Iterable
from types import BuiltinMethodType, CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

from fineline.cpython.iterator_states import iterator_state, set_iterator_state
from fineline.cpython.polyfill_itertools import Tee
from fineline.cpython.reference_counts import reference_counts
from fineline.frames.frame import InterpretedGenerator, stack
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.stub_frames import is_own
from fineline.identity import AddressSet, IdentityMap
from fineline.kinds import is_a, is_users_class
from fineline.objects.iterator_stand_ins import METHODS, WRITTEN, is_method_of_stand_in, recipe_of
from fineline.tracing.interp import Interp

TUPLE_ITERATOR = type(iter(()))
# At most so many containers in a result are searched.
MOST_CONTAINERS = 1000


def real_result(interp: Interp, result: list[Any]) -> Any:
    """Replaces all stand-ins, in the only item of ``result`` and anywhere else, by Python's own generators and iterators; returns the item.

    ``result`` is a list so that no frame refers to the item itself. The search for holders of stand-ins goes through all objects, which
    takes 40 ms in a small process, and is skipped if all references to the stand-ins are known.
    """
    alive = interp.stand_ins.alive()
    if not alive:
        return result.pop()
    # By id: a stand-in and its replacement. Under 0: all stand-ins.
    seen: dict[int, Any] = {0: alive}
    v = _real(result.pop(), seen)
    _put_inside(v, alive, seen)
    _put(_with_other_holders(alive, seen), seen)
    return v


def _put_inside(v: Any, olds: list[Any], seen: dict[int, Any]) -> None:
    """Replaces ``olds``, and tuples that contain some, in the lists and dicts that a result consists of."""
    ids, waiting, met = {id(old) for old in olds}, [v], set[int]()
    while waiting and len(met) < MOST_CONTAINERS:
        holder = waiting.pop()
        if type(holder) not in (list, dict, tuple) or id(holder) in met:
            continue
        met.add(id(holder))
        held = {id(x): x for x in gc.get_referents(holder)}
        for x in held.values():
            if type(holder) is not tuple and (id(x) in ids or (type(x) is tuple and _real(x, seen) is not x)):
                _replace(holder, x, seen)
        waiting += gc.get_referents(holder)


def _with_other_holders(alive: list[Any], seen: dict[int, Any]) -> list[Any]:
    """Returns the stand-ins, and the tuples that contain some, to which more than ``seen`` and the replacements refer."""
    pairs = [pair for at, pair in seen.items() if at]
    # Without objects that stay: one may be a user object that holds a stand-in.
    replaced = [(old, new) for old, new in pairs if new is not old]
    fixed = [old for old, _ in replaced if type(old) in (tuple, frozenset)]
    olds = [*alive, *fixed]
    news = [new for _, new in replaced]
    # The replacement of a generator continues it, by methods to which it refers.
    methods = [x for new in news for x in gc.get_referents(new) if type(x) in (MethodType, BuiltinMethodType)]
    holders = {id(holder): holder for holder in (alive, olds, *pairs, *fixed, *news, *methods)}
    known = Counter([id(x) for holder in holders.values() for x in gc.get_referents(holder)])
    known.update([at for at in map(id, olds) if at in holders])
    del pairs, replaced, fixed, news, methods
    return [old for old, count in zip(olds, reference_counts(olds), strict=True) if count > known[id(old)]]


def settle(interp: Interp, graph_break: GraphBreak, built: AddressSet | None = None) -> None:
    """Replaces stand-ins before an eager call: those that the program has ``built``; None: those that more than the frames hold."""
    if built is not None:
        # The eager code may check weak references to its tensors.
        interp.trace.recorder.forget()
    alive = interp.stand_ins.alive()
    if not alive:
        return
    given = tuple([v for v in alive if v in built]) if built is not None else _held_elsewhere(interp, alive)
    seen: dict[int, Any] = {0: alive, 1: given}
    if given:
        _put(given, seen)
        graph_break.args_ = tuple([_real(a, seen) for a in graph_break.args_])
        if type(graph_break.fn) is FunctionType and graph_break.fn in METHODS:
            # The method of a stand-in that is not replaced stays the stand-in's.
            graph_break.fn = graph_break.fn if graph_break.args_ and type(graph_break.args_[0]) in WRITTEN else METHODS[graph_break.fn]
        elif type(graph_break.fn) in (FunctionType, MethodType):
            graph_break.fn = _real(graph_break.fn, seen)
        graph_break.kwargs = {k: _real(a, seen) for k, a in graph_break.kwargs.items()}
        interp.stand_ins.refs = [ref for ref in interp.stand_ins.refs if id(ref()) not in seen]


def _held_elsewhere(interp: Interp, alive: list[Any]) -> tuple[Any, ...]:
    """Returns the stand-ins to which more than the interpreter's frames refer, and that are not running."""
    frames = [*stack(interp.frame), *[v.frame for v in alive if type(v) is InterpretedGenerator and v.frame is not None and v.state != "running"]]
    # The variables of fineline's own iterator methods count too, because these read more of a stand-in than its items.
    busy = [f.extras.generator for f in frames] + [x for f in frames if is_own(f.info.code) and "." in f.info.code.co_qualname for x in f.local]
    places = Counter([id(x) for f in frames for x in (*f.local, *f.stack)])
    # One more reference: that of the list.
    found = [v for v, count in zip(alive, reference_counts(alive), strict=True) if count > places[id(v)] + 1]
    return tuple([v for v in found if not any([v is x for x in busy])])


def _put(olds: Iterable[Any], seen: dict[int, Any]) -> None:
    """Replaces ``olds`` wherever an object holds them. A replacement is made only for a holder: its end would also end what it replaces.

    The search for holders goes through all objects, which takes 40 ms in a small process. Therefore one search is for all of ``olds``.
    """
    if gc.get_freeze_count():
        # The search does not see what the user has frozen, which is a matter of speed alone.
        gc.unfreeze()
    while olds := tuple(olds):
        by_id = {id(old): old for old in olds}
        known = {id(olds), id(by_id), *map(id, seen.values())}
        fixed = []
        for holder in gc.get_referrers(*olds):
            if id(holder) in known:
                continue
            if type(holder) in (tuple, frozenset, MethodType, TUPLE_ITERATOR):
                fixed.append(holder)
            else:
                for old in {id(x): x for x in gc.get_referents(holder) if id(x) in by_id}.values():
                    _replace(holder, old, seen)
        # The immutable holders are replaced in their own holders.
        olds = fixed


def _replace(holder: Any, old: Any, seen: dict[int, Any]) -> None:
    table = _table(holder)
    if type(holder) is CellType:
        holder.cell_contents = _real(old, seen)
    elif type(holder) is functools.partial:
        state: Any = holder.__reduce__()[2]
        functools.partial.__setstate__(holder, _real(state, seen))  # type: ignore[attr-defined]
    elif table is not None:
        for key in [k for k, x in dict.items(table) if x is old]:
            dict.__setitem__(table, key, _real(old, seen))
        if type(table) is dict and any([key is old for key in table]):
            items = [(_real(key, seen) if key is old else key, x) for key, x in dict.items(table)]
            table.clear()
            table.update(items)
    elif is_a(holder, list) and gc.is_tracked(holder):
        for i in [i for i, x in enumerate(list.__iter__(holder)) if x is old]:
            list.__setitem__(holder, i, _real(old, seen))
    elif is_a(holder, deque):
        for i in [i for i, x in enumerate(deque.__iter__(holder)) if x is old]:
            deque.__setitem__(holder, i, _real(old, seen))
    elif is_a(holder, set) and any([x is old for x in set.__iter__(holder)]):
        set.remove(holder, old)
        set.add(holder, _real(old, seen))
    elif type(holder) is IdentityMap:
        # A table of the capture, in which nothing looks up ``old`` any more.
        holder.pop(old, None)
    for slot in [x for k in type(holder).__mro__ if "__slots__" in k.__dict__ for x in k.__dict__.values() if type(x) is MemberDescriptorType]:
        if _in_slot(slot, holder) is old:
            slot.__set__(holder, _real(old, seen))


def _in_slot(slot: MemberDescriptorType, holder: Any) -> Any:
    """Returns the value in a slot of ``holder``; for an empty slot, the slot itself."""
    try:
        return slot.__get__(holder)
    except AttributeError:
        return slot


def _table(holder: Any) -> dict[Any, Any] | None:
    if is_a(holder, dict):
        return holder
    t = type(holder)
    if not is_users_class(t) or not t.__dictoffset__ or is_a(holder, type):
        return None
    # If nothing has read the object's dict so far, the object stores the values itself, and this read makes the dict.
    table: dict[Any, Any] = object.__getattribute__(holder, "__dict__")
    return table


def _real(v: Any, seen: dict[int, Any]) -> Any:
    if id(v) in seen:
        return seen[id(v)][1]
    if type(v) in (tuple, frozenset):
        items = [_real(x, seen) for x in v]
        new: Any = v if all(a is b for a, b in zip(items, v, strict=True)) else type(v)(items)
    elif type(v) is InterpretedGenerator:
        new = _given_generator(v, seen)
    elif is_method_of_stand_in(v):
        new = getattr(_real(v.__self__, seen), v.__name__)
    elif type(v) is TUPLE_ITERATOR:
        new = _real_iterator(v, seen)
    elif type(v) is Tee:
        new = _real_tee(v, seen)
    else:
        recipe = recipe_of(v)
        new = v
        if recipe is not None:
            new = recipe.make(*[_real(x, seen) for x in recipe.args], **recipe.kwargs)
            for state in recipe.state:
                set_iterator_state(new, _real(state, seen))
    seen[id(v)] = (v, new)
    return new


def _given_generator(gen: InterpretedGenerator, seen: dict[int, Any]) -> Any:
    """Returns Python's own generator for a stand-in that eager code gets; code that still holds ``gen`` continues in the same generator."""
    given = gen.given() if is_a(gen.given, weakref.ref) else gen.given
    if given is not None:
        return given
    called = gen.call()
    if called is None:
        given = real_generator(gen)
        gen.given = weakref.ref(given)
        return given
    fn, args, kwargs = called
    given = gen.given = fn(*[_real(a, seen) for a in args], **{k: _real(a, seen) for k, a in kwargs.items()})
    gen.state, gen.frame = "closed", None
    return given


def _real_iterator(it: Any, seen: dict[int, Any]) -> Any:
    """Returns an iterator over the same tuple, with the stand-ins in it replaced."""
    _, args, *state = iterator_state(it)
    items = _real(args[0], seen)
    if items is args[0]:
        return it
    new = iter(items)
    set_iterator_state(new, *state)
    return new


def _real_tee(v: Tee, seen: dict[int, Any]) -> Any:
    """Returns Python's own tee. Those of one source are made together, because they share the items that some have yet to return."""
    ahead = {id(tee): _items(tee) for tee in seen[0] if type(tee) is Tee and tee.source is v.source}
    most = max(ahead.values(), key=len)
    first = itertools.tee(itertools.chain(most, _real(v.source, seen)), 1)[0]
    for tee in [tee for tee in seen[0] if id(tee) in ahead]:
        real = copy.copy(first)
        for _ in range(len(most) - len(ahead[id(tee)])):
            next(real)
        seen[id(tee)] = (tee, real)
    return seen[id(v)][1]


def _items(tee: Tee) -> list[Any]:
    items, link = [], tee.link
    while len(link) == 2:
        items.append(link[0])
        link = link[1]
    return items


def real_generator(gen: InterpretedGenerator) -> Any:
    """Returns a Python generator in the state of ``gen`` that runs the rest of ``gen``."""
    relay = _relay(gen, gen.state == "new")
    relay.__name__, relay.__qualname__ = gen.__name__, gen.__qualname__
    if gen.state == "closed":
        relay.close()
    elif gen.state != "new":
        next(relay)
    return relay


def _relay(gen: InterpretedGenerator, new: bool) -> Any:
    item: Any = None
    step: Any = gen.send
    given: Any = None
    while True:
        if not new:
            try:
                given = yield item
                step = gen.send
            except BaseException as e:
                step, given = gen.throw, e
        new = False
        try:
            item = step(given)
        except StopIteration as stop:
            return stop.value
        except GeneratorExit as e:
            if e is given:
                # Frames in its traceback refer to it, as this one does: a cycle.
                given = e.__traceback__ = None
            raise
