"""Branches with one arm that only raises: capture assumes the other arm, and the graph, or the program after it, checks that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributions import constraints

from fineline.bytecode.code import CodeInfo
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Restart
from fineline.fx.body_recorder import Part
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC, unknown
from fineline.tensor_ops import unbacked
from fineline.tensor_ops.speculation import writes_too_early
from fineline.tracing.interp import Interp

# The most instructions of an arm that are checked.
FAR = 80
# Code whose result reports at once that a value is wrong, so that its caller raises.
_JUDGES = frozenset(cls.check.__code__ for cls in vars(constraints).values() if is_a(cls, type) and issubclass(cls, constraints.Constraint))
_LEAVES = frozenset({"RETURN_VALUE", "YIELD_VALUE", "FOR_ITER", "SEND", "RERAISE", "BEFORE_WITH", "PUSH_EXC_INFO"})


def only_raises(info: CodeInfo, ip: int) -> bool:
    """Returns whether the code at ``ip`` leads straight to a ``raise``, possibly in its caller."""
    if info.code in _JUDGES and [name for name, _ in info.instructions[ip : ip + 2]] == ["LOAD_FAST", "RETURN_VALUE"]:
        return True
    for _ in range(FAR):
        name, arg = info.instructions[ip]
        if name == "RAISE_VARARGS":
            return True
        if ("JUMP" in name and name != "JUMP_FORWARD") or name in _LEAVES:
            return False
        ip = arg if name == "JUMP_FORWARD" else ip + 1
    return False


def assume(interp: Interp, f: Frame, v: Any, if_true: int, if_false: int) -> bool | None:
    """Returns the truth of ``v`` that capture assumes and each run of the graph checks; None if it cannot be assumed.

    If a run finds the other truth, the whole segment runs again in Python. Its effects so far must be invisible from outside, or
    are undone.
    """
    raises = only_raises(f.info, if_true), only_raises(f.info, if_false)
    if raises[0] is raises[1] or interp.options.force_graph_breaks or is_a(interp.trace.recorder, Part) or interp.nested.opaque is not None:
        return None
    truth = raises[1]
    if type(v) in SYMBOLIC:
        return _expect(interp, f, v, truth)
    if _looked_at(interp, v, truth):
        interp.trace.failures.assumed.append((v, truth))
        return truth
    if unbacked.readable(interp, v):
        return _expect(interp, f, unbacked.read(interp, bool, v), truth)
    if interp.backing.switches:
        raise Restart("FL502", "a branch on a tensor's value, of which one arm only raises")
    return None


def _looked_at(interp: Interp, t: Tensor, truth: bool) -> bool:
    """Returns whether ``t`` is a tensor of the graph that the program can check after the graph; ``truth`` is the assumed value."""
    trace = interp.trace
    if trace.recorder.traits.once or not trace.recorder.known(t) or type(t) not in (Tensor, FakeTensor) or t.numel() != 1 or t.device.type != "cpu":
        return False
    if trace.state.start.saved_tensor_hooks or torch._C._functorch.is_functorch_wrapped_tensor(t):
        return False
    if not interp.backing.may_have_truth(t, truth):
        return False
    return trace.state.is_unchanged() and not writes_too_early(interp, ())


def _expect(interp: Interp, f: Frame, v: Any, truth: bool) -> bool | None:
    """Records a check that a number which only the graph knows has this ``truth``; returns the truth, or None if a check is not possible."""
    if not unknown(v) or not may_expect(interp):
        return None
    condition = v if type(v) is torch.SymBool else v != 0
    interp.trace.symbols.expect(condition if truth else torch.sym_not(condition), f"the branch at {f.info.code.co_filename}:{f.line}", None)
    return truth


def may_expect(interp: Interp) -> bool:
    """Returns whether the graph can contain a check: its effects up to there can be undone."""
    return not (interp.trace.recorder.traits.once or interp.trace.state.start.saved_tensor_hooks or writes_too_early(interp, ()))
