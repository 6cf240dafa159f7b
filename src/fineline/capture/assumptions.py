"""Branches of which one arm only raises: the other is taken for granted in the graph, and checked behind it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.bytecode.code import CodeInfo
from fineline.capture.frame import Frame
from fineline.capture.signals import Border
from fineline.guards.facts import ambient_facts
from fineline.kinds import is_a
from fineline.policy.selector import describe

# How far an arm is looked into.
FAR = 80
_LEAVES = frozenset({"RETURN_VALUE", "YIELD_VALUE", "FOR_ITER", "SEND", "RERAISE", "BEFORE_WITH", "PUSH_EXC_INFO"})


def only_raises(info: CodeInfo, ip: int) -> bool:
    """Whether the code at ``ip`` runs straight into a ``raise``."""
    for name, _ in info.instructions[ip : ip + FAR]:
        if name == "RAISE_VARARGS":
            return True
        if "JUMP" in name or name in _LEAVES:
            return False
    return False


def assume(vm: Any, info: CodeInfo, t: Tensor, if_true: int, if_false: int) -> bool | None:
    """The truth of ``t``, which each run of the graph is going to show; None if it can't be taken for granted.

    When it turns out to be another, all of the segment is run again, in Python: nothing that could be seen may have happened before.
    """
    cap = vm.cap
    if cap.recorder.once or not cap.recorder.known(t) or type(t) not in (Tensor, FakeTensor) or t.numel() != 1 or t.device.type != "cpu":
        return None
    if vm.options.force_borders or cap.start_ambient.saved_tensor_hooks:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(t) or not (only_raises(info, if_true) or only_raises(info, if_false)):
        return None
    if vm.fakes is not None:
        truth = only_raises(info, if_false)
    else:
        # Not an operator of the user's, for those who count these.
        with torch._C._DisableTorchDispatch():
            truth = bool(t.detach())
    if not only_raises(info, if_false if truth else if_true) or ambient_facts() != cap.start_ambient or writes_outside(vm, ()):
        return None
    cap.assumed.append((t, truth))
    return truth


def settle_first(vm: Any, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any, rule: str = "") -> None:
    """``fn`` becomes a node that must not run twice: what branches took for granted is checked before, by a graph that ends here."""
    cap = vm.cap
    if cap.assumed:
        text = f"{describe(fn)} may have effects, behind a branch taken for granted"
        border = Border(_nothing, (), None, "FL514", text)
        border.rule = rule
        raise border.to(_go_on, (fn, args, kwargs, then, data))
    cap.recorder.once = True


def _nothing() -> None:
    """What runs where branches have been checked."""


def _go_on(vm: Any, f: Frame, value: None, state: tuple) -> Frame | None:
    fn, args, kwargs, then, data = state
    result: Frame | None = vm.call(f, fn, list(args), kwargs, then, data)
    return result


def writes_outside(vm: Any, targets: Any) -> bool:
    """Whether the graph writes, or writing into ``targets`` would write, into tensors that existed before, or into what is checked."""
    cap = vm.cap
    inputs = {_storage(vm.memory(src.value)) for _, src in cap.recorder.inputs if is_a(src.value, Tensor)}
    if not inputs.isdisjoint(cap.recorder.mutated):
        return True
    inputs.update([_storage(t) for t, _ in cap.assumed])
    return any([is_a(t, Tensor) and (id(t) in cap.sources or _storage(vm.memory(t)) in inputs) for t in targets])


def _storage(t: Tensor) -> int:
    return t.untyped_storage()._cdata if t.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(t) else 0
