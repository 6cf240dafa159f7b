"""What the capturing call leaves behind: the interpreter's generators and iterators give way to Python's own, as later calls make them."""

from __future__ import annotations

import gc
from types import CellType
from typing import Any

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS
from fineline.capture.frame import InterpretedGenerator
from fineline.capture.stand_ins import parts_of
from fineline.kinds import is_a


def real_result(vm: Any, v: Any) -> Any:
    """``v``; whatever stands in for a generator or an iterator of C's, in it or anywhere else, is replaced."""
    seen: dict[int, Any] = {}
    alive = [obj for obj in [ref() for ref in vm.stand_ins] if obj is not None]
    if not alive:
        return v
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
        new = _called_again(v) if v.state == "new" and v.frame is not None and v.frame.function is not None else _gone_on_with(v)
    else:
        made = parts_of(v)
        new = v if made is None else made[0](*[_real(x, seen) for x in made[1]], **made[2])
    seen[id(v)] = (v, new)
    return new


def _gone_on_with(gen: InterpretedGenerator) -> Any:
    """A real generator for one that the interpreter has begun."""
    relay = _relay(gen)
    relay.__name__, relay.__qualname__ = gen.__name__, gen.__qualname__
    if gen.state == "closed":
        relay.close()
    else:
        next(relay)
    return relay


def _relay(gen: InterpretedGenerator) -> Any:
    item: Any = None
    step: Any
    while True:
        try:
            got = yield item
        except GeneratorExit:
            gen.close()
            raise
        except BaseException as e:
            step, given = gen.throw, e
        else:
            step, given = gen.send, got
        try:
            item = step(given)
        except StopIteration as stop:
            return stop.value


def _called_again(gen: InterpretedGenerator) -> Any:
    f = gen.frame
    assert f is not None and f.function is not None
    code = f.info.code
    n, k = code.co_argcount, code.co_kwonlyargcount
    values = [x.cell_contents if type(x) is CellType and f.info.slots[i] in code.co_cellvars else x for i, x in enumerate(f.local)]
    args, at = values[:n], n + k
    kwargs = {code.co_varnames[i]: values[i] for i in range(n, n + k)}
    if code.co_flags & CO_VARARGS:
        args += values[at]
        at += 1
    if code.co_flags & CO_VARKEYWORDS:
        kwargs.update(values[at])
    return f.function(*args, **kwargs)
