"""Conditions with ``and`` and ``or`` on values that only the graph knows, with arms that raise: the graph computes all their parts."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.code import CodeInfo
from fineline.frames.frame import NULL, Frame
from fineline.frames.graph_breaks import DataDependentBranch, Delivery, Restart
from fineline.fx.body_recorder import Part
from fineline.interp.opcodes.assertion_branches import may_expect, only_raises
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC, decided, unknown
from fineline.tensor_ops import unbacked
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.mutation import is_inplace
from fineline.tracing.interp import Interp

# The most instructions of such a condition.
MOST = 200
# The instructions without side effects; calls are checked one by one.
_HARMLESS = frozenset(
    {
        "LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD", "LOAD_CLOSURE", "COMPARE_OP", "CONTAINS_OP", "IS_OP",
        "UNARY_NOT", "UNARY_NEGATIVE", "BINARY_OP", "BINARY_SUBSCR", "BUILD_TUPLE", "BUILD_SLICE", "SWAP", "COPY", "POP_TOP", "PUSH_NULL", "PRECALL",
        "KW_NAMES", "CALL", "NOP", "RESUME", "EXTENDED_ARG", "JUMP_FORWARD",
    }
    | {f"POP_JUMP_FORWARD_IF_{what}" for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")}
)  # fmt: skip
# The first argument of BINARY_OP that means an in-place operator.
_IN_PLACE = 13
_BUILTINS = (abs, bool, float, int, isinstance, len, max, min)


def _end(info: CodeInfo, start: int) -> int | None:
    """Returns where all paths from ``start`` that do not raise meet; None if none raises, or if one does more than compute conditions."""
    waiting, seen, raising = {start}, 0, False
    while True:
        at = min(waiting)
        waiting.discard(at)
        if not waiting and seen:
            return at if raising else None
        name, arg = info.instructions[at]
        seen += 1
        if seen > MOST or name not in _HARMLESS or (name == "BINARY_OP" and arg >= _IN_PLACE):
            return None
        for after in (arg,) if name == "JUMP_FORWARD" else (arg, at + 1) if "JUMP" in name else (at + 1,):
            if "JUMP" in name and only_raises(info, after):
                raising = True
            else:
                waiting.add(after)


def merge(interp: Interp, f: Frame, v: Any, wanted: bool) -> Frame | None:
    """Starts a condition whose first part is ``v``, on which ``f`` is about to jump; returns None if this is not such a condition."""
    nested = interp.nested
    if nested.condition is not None or nested.opaque is not None or nested.modes or is_a(interp.trace.recorder, Part) or interp.options.force_graph_breaks:
        return None
    possible = unknown(v) or (is_a(v, Tensor) and (unbacked.readable(interp, v) or (interp.backing.switches and v.numel() == 1)))
    start = f.ip - 1
    end = _end(f.info, start) if possible and may_expect(interp) else None
    if end is None:
        return None
    if not interp.backing.may_be_symbolic:
        raise Restart("FL502", "a condition on a tensor's value, of which some ways raise")
    merged = nested.condition = IfConversion(interp, f, start, end)
    return merged.condition(interp, f, v, (start, wanted)) or f


class IfConversion:
    """A condition that is being computed in ``f``: the condition under which each part is reached, and the instruction where the paths meet."""

    def __init__(self, interp: Interp, f: Frame, start: int, end: int) -> None:
        self.f, self.end = f, end
        self.ops = f.ops
        # The condition under which the current instruction is reached; None: never.
        self.reach: Any = True
        # Later instructions that are jump targets: the condition under which each is reached, and the stack there.
        self.waiting: dict[int, tuple[Any, list]] = {}
        mode = interp.trace.symbols.fakes.mode
        self.effects = mode.drew, mode.wrote
        mode.drew = mode.wrote = False
        f.ops = [*f.ops]
        for at in range(start, end + 1):
            f.ops[at] = (self.step, at, at + 1)

    def leave(self, interp: Interp) -> None:
        mode = interp.trace.symbols.fakes.mode
        self.effects, mode.drew, mode.wrote = (mode.drew, mode.wrote), mode.drew or self.effects[0], mode.wrote or self.effects[1]
        self.f.ops, interp.nested.condition = self.ops, None

    def fail(self, interp: Interp, why: str) -> Frame:
        self.leave(interp)
        return interp.undecided(DataDependentBranch(f"a condition with parts that only the graph knows, where {why}"))

    def step(self, interp: Interp, f: Frame, at: int) -> Frame | None:
        """Runs one instruction of the condition."""
        if at in self.waiting:
            reach, stack = self.waiting.pop(at)
            if self.reach is None:
                f.stack[:], self.reach = stack, False
            elif len(stack) != len(f.stack) or not all(map(operator.is_, stack, f.stack)):
                return self.fail(interp, "its ways differ in more than where they lead")
            self.reach = _either(self.reach, reach)
        if at == self.end:
            self.leave(interp)
            if any(self.effects):
                return self.fail(interp, "one has effects")
            f.ip = at
            return f
        name, arg = f.info.instructions[at]
        if name == "JUMP_FORWARD":
            self.wait(f, arg, self.reach)
            self.go_on(f)
            return None
        if "JUMP" in name:
            v = f.stack.pop()
            if name.endswith("NONE"):
                return self.jump(interp, f, (v is None) is (not name.endswith("NOT_NONE")), None, (at, True))
            return self.condition(interp, f, v, (at, name.endswith("TRUE")))
        if name == "CALL" and not _harmless(f.stack[-2 - arg], f.stack[-1 - arg]):
            return self.fail(interp, "one calls what may have effects")
        op, arg, _ = self.ops[at]
        return self._unframed(interp, f, op(interp, f, arg))

    def _unframed(self, interp: Interp, f: Frame, new: Frame | None) -> Frame | None:
        if interp.nested.condition is self and new is not None and new is not f:
            return self.fail(interp, "one runs code that may have effects")
        return new

    def condition(self, interp: Interp, f: Frame, v: Any, place: tuple[int, bool]) -> Frame | None:
        if is_a(v, Tensor) and unbacked.readable(interp, v):
            v = unbacked.read(interp, bool, v)
        if type(v) in SYMBOLIC:
            known = decided(v)
            return self.jump(interp, f, known if known is not None else v if type(v) is torch.SymBool else v != 0, None, place)
        return self._unframed(interp, f, Delivery(self.jump, None, place).of(interp.truth, interp, f, v))

    def jump(self, interp: Interp, f: Frame, v: Any, then: None, place: tuple[int, bool]) -> Frame | None:
        """Takes both branches of a jump on ``v``: a branch that only raises becomes a check in the graph."""
        at, wanted = place
        target = f.info.instructions[at].arg
        reach, self.reach = self.reach, None
        for to, when in ((target, v if wanted else _not(v)), (at + 1, _not(v) if wanted else v)):
            under = _both(reach, when)
            if under is False:
                continue
            if only_raises(f.info, to):
                if under is True:
                    return self.fail(interp, "it always raises")
                interp.trace.symbols.expect(_not(under), f"the condition at {f.info.code.co_filename}:{f.line}", None)
            elif to == at + 1:
                self.reach = under
            else:
                self.wait(f, to, under)
        if self.reach is None:
            self.go_on(f)
        return None

    def wait(self, f: Frame, at: int, reach: Any) -> None:
        known = self.waiting.get(at)
        self.waiting[at] = (reach if known is None else _either(known[0], reach), [*f.stack])

    def go_on(self, f: Frame) -> None:
        self.reach = None
        f.ip = min(self.waiting)


def _harmless(fn: Any, self: Any) -> bool:
    fn = self if fn is NULL else fn
    known = classify_torch(fn) in ("op", "metadata", "data", "query") and not is_inplace(fn)
    return known or any([fn is builtin for builtin in _BUILTINS])


def _not(v: Any) -> Any:
    return not v if type(v) is bool else torch.sym_not(v)


def _both(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return b if a is True else a if b is True else a & b


def _either(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return b if a is False else a if b is False else a | b
