"""Calls that a mark decides: disabled functions, explicit graph breaks, compiled functions met inside a capture."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from fineline.capture.frame import Frame
from fineline.capture.signals import Border
from fineline.kinds import is_a
from fineline.policy.marks import DYNAMO_NAMES, MARKS, Mark, torch_mark

_TORCH_DISABLE = "_disable_dynamo.<locals>.inner"


def mark_of(vm: Any, target: Any, args: Any = ()) -> Callable | None:
    """The handler for a call of ``target``, if a mark decides it."""
    if MARKS:
        mark = MARKS.get(target)
        if mark is None and MARKS.holders:
            if is_a(target, types.FunctionType):
                mark = MARKS.of_holder(target, args[0]) if args else None
            elif not is_a(target, type):
                mark = next((m for m in map(MARKS.get, type(target).__mro__) if m is not None), None)
        if mark is not None:
            return functools.partial(_disabled, mark=mark)
    if is_a(target, types.FunctionType):
        found = torch_mark(target)
        if found == "disable":
            return _disabled
        if found == "wrapped":
            return _unwrapped
    return None


def dynamo_function(fn: types.FunctionType) -> Callable | None:
    """The handler for a function of torch._dynamo."""
    return _DYNAMO.get(DYNAMO_NAMES.get(fn.__name__, "opaque"))


def _disabled(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any, mark: Mark | None = None) -> Frame | None:
    if not vm.cap.active:
        return vm.finish(f, vm.native(fn, tuple(args), kwargs), then, data)
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    reason = f"{name} is disabled" + (f": {mark.reason}" if mark is not None and mark.reason else "")
    rule = f"disable({name}) at {mark.place}" if mark is not None else "torch.compiler.disable"
    plain = fn
    if mark is not None and mark.target is not None:
        plain = mark.target
    elif mark is None and getattr(fn, "__code__", None) is not None and fn.__code__.co_qualname == _TORCH_DISABLE:
        # PyTorch's own wrapper would load its compiler only to switch it off: the original runs just as well.
        plain = fn.__wrapped__
    if mark is not None and mark.verb == "disable_frame" and vm.run_frame is not None:
        plain = vm.run_frame(plain)
    if plain is not fn:
        vm.cap.pin(plain, name)
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
