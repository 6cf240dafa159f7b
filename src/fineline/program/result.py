"""What the capturing call leaves behind: the interpreter's generators and iterators give way to Python's own, as later calls make them."""

from __future__ import annotations

import copy
import gc
import itertools
from types import CellType
from typing import Any

from fineline.capture.frame import InterpretedGenerator
from fineline.capture.polyfill_itertools import Tee
from fineline.capture.stand_ins import recipe_of
from fineline.kinds import is_a

TUPLE_ITERATOR = type(iter(()))


def real_result(vm: Any, v: Any) -> Any:
    """``v``; whatever stands in for a generator or an iterator of C's, in it or anywhere else, is replaced."""
    alive = [obj for obj in [ref() for ref in vm.stand_ins] if obj is not None]
    if not alive:
        return v
    # id -> (stand-in, what takes its place); under 0 all stand-ins.
    seen: dict[int, Any] = {0: alive}
    v = _real(v, seen)
    for obj in alive:
        for holder in gc.get_referrers(obj):
            _replace(holder, obj, _real(obj, seen))
    return v


def _replace(holder: Any, old: Any, new: Any) -> None:
    if type(holder) is CellType:
        holder.cell_contents = new
    elif is_a(holder, dict):
        for key in [k for k, x in dict.items(holder) if x is old]:
            dict.__setitem__(holder, key, new)
    elif is_a(holder, list) and gc.is_tracked(holder):
        for i in [i for i, x in enumerate(list.__iter__(holder)) if x is old]:
            list.__setitem__(holder, i, new)


def _real(v: Any, seen: dict[int, Any]) -> Any:
    if id(v) in seen:
        return seen[id(v)][1]
    if type(v) is tuple:
        items = tuple([_real(x, seen) for x in v])
        new: Any = v if all(a is b for a, b in zip(items, v, strict=True)) else items
    elif type(v) is InterpretedGenerator:
        called = v.call()
        new = called[0](*called[1], **called[2]) if called is not None else real_generator(v)
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
                new.__setstate__(_real(state, seen))
    seen[id(v)] = (v, new)
    return new


def _real_iterator(it: Any, seen: dict[int, Any]) -> Any:
    """An iterator over a tuple, which may hold stand-ins."""
    _, args, *state = it.__reduce__()
    items = _real(args[0], seen)
    if items is args[0]:
        return it
    new = iter(items)
    new.__setstate__(*state)
    return new


def _real_tee(v: Tee, seen: dict[int, Any]) -> Any:
    """A tee; those of one source are made together, as they share what some of them have yet to give."""
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
    """One of Python's own that stands where ``gen`` does, and goes on in it."""
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
            except GeneratorExit:
                gen.close()
                raise
            except BaseException as e:
                step, given = gen.throw, e
        new = False
        try:
            item = step(given)
        except StopIteration as stop:
            return stop.value
