"""Calls that a mark decides: disabled functions, explicit graph breaks, compiled functions met inside a capture."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from fineline.capture.frame import Frame
from fineline.capture.signals import Border
from fineline.policy.marks import DYNAMO_NAMES, MARKS, torch_mark


_TORCH_DISABLE = "_disable_dynamo.<locals>.inner"


def mark_of(vm: Any, target: Any) -> Callable | None:
    """The handler for a call of ``target``, if a mark decides it."""
    if MARKS:
        mark = MARKS.get(target)
        if mark is None and not isinstance(target, (type, types.FunctionType)):
            mark = MARKS.get(type(target))
        if mark is not None:
            return _disabled
    if isinstance(target, types.FunctionType):
        found = torch_mark(target)
        if found == "disable":
            return _disabled
        if found == "wrapped":
            return _unwrapped
    return None


def dynamo_function(fn: types.FunctionType) -> Callable | None:
    """The handler for a function of torch._dynamo."""
    return _DYNAMO.get(DYNAMO_NAMES.get(fn.__name__, "opaque"))


def _disabled(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    mark = MARKS.get(fn) or MARKS.get(type(fn))
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    reason = f"{name} is disabled" + (f": {mark.reason}" if mark is not None and mark.reason else "")
    rule = f"disable({name}) at {mark.place}" if mark is not None else "torch.compiler.disable"
    if mark is not None and mark.verb == "disable_frame" and vm.run_frame is not None:
        border = Border(vm.run_frame, (mark.target, tuple(args), kwargs or {}), None, "FL400", reason)
    else:
        # PyTorch's own wrapper would load its compiler only to switch it off: the original runs just as well.
        plain = fn.__wrapped__ if mark is None and getattr(fn, "__code__", None) is not None and fn.__code__.co_qualname == _TORCH_DISABLE else fn
        border = Border(plain, tuple(args), kwargs, "FL400", reason)
    border.rule = rule
    raise border.to(then, data)


def _unwrapped(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    return vm.call(f, fn.__dict__["_torchdynamo_orig_callable"], args, kwargs, then, data)


def _nothing() -> None:
    """What runs at an explicit graph break."""


def explicit_break(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    if not vm.cap.active:
        return vm.finish(f, None, then, data)
    msg = args[0] if args else (kwargs or {}).get("msg")
    border = Border(_nothing, (), None, "FL401", f"graph_break({msg!r})" if msg else "graph_break()")
    raise border.to(then, data)


def _give(value: Any) -> Callable:
    def give(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
        return vm.finish(f, value, then, data)

    return give


def _identity(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    return vm.finish(f, args[0], then, data)


def _opaque(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    raise Border(fn, tuple(args), kwargs, "FL402", f"{fn.__qualname__} belongs to another compiler").to(then, data)


def _patched_init(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """``nn.Module.__init__`` once torch.compile has run in the process: the original; the rest is that compiler's bookkeeping."""
    init = fn.__closure__[fn.__code__.co_freevars.index("init")].cell_contents
    return vm.call(f, init, args, kwargs, then, data)


_DYNAMO: dict[str, Callable] = {
    "graph_break": explicit_break, "true": _give(True), "nothing": _give(None), "identity": _identity, "opaque": _opaque, "patched_init": _patched_init,
}  # fmt: skip
