"""What the capturing call itself returns: the interpreter's own generators give way to real ones, as later calls return them."""

from __future__ import annotations

from types import CellType
from typing import Any

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS
from fineline.capture.capture import Capture
from fineline.capture.frame import InterpretedGenerator


def real_result(cap: Capture, v: Any, seen: dict[int, Any] | None = None) -> Any:
    """``v`` with the generators that have not begun, in it and in containers made here, replaced by what their functions return."""
    t = type(v)
    if t is not InterpretedGenerator and t not in (tuple, list, dict):
        return v
    seen = {} if seen is None else seen
    if id(v) in seen:
        return seen[id(v)]
    if t is InterpretedGenerator:
        seen[id(v)] = _called_again(v) if v.state == "new" and v.frame is not None and v.frame.function is not None else v
    elif id(v) in cap.sources:
        seen[id(v)] = v
    elif t is tuple:
        items = [real_result(cap, x, seen) for x in v]
        seen[id(v)] = v if all(a is b for a, b in zip(items, v, strict=True)) else tuple(items)
    else:
        seen[id(v)] = v
        for k, x in list(enumerate(v) if t is list else v.items()):
            new = real_result(cap, x, seen)
            if new is not x:
                v[k] = new
    return seen[id(v)]


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
