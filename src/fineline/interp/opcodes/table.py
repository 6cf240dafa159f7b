"""The instruction handlers of all families, and the linking of code to them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from types import MappingProxyType

from fineline.builtins import operators
from fineline.bytecode.code import CodeInfo
from fineline.bytecode.pure_loops import PureLoop, pure_loop
from fineline.frames.frame import Frame
from fineline.frames.opcode_families import Handler
from fineline.frames.stub_frames import is_own
from fineline.interp.opcodes import blocks, building, flow, variables
from fineline.interp.opcodes.eager import OPAQUE
from fineline.interp.opcodes.pure_loops import handing_over
from fineline.tracing.interp import Interp
from fineline.tracing.lessons import Site

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {**variables.HANDLERS, **building.HANDLERS, **flow.HANDLERS, **blocks.HANDLERS, **operators.HANDLERS}
)


def link(info: CodeInfo, eager: Set[Site] | None) -> list:
    """Returns the handler and the argument of each instruction, and the index of the next one; those in ``eager`` run eagerly."""
    out = []
    loops, users = dict[int, PureLoop | None](), not is_own(info.code)
    for k, (name, arg) in enumerate(info.instructions):
        h = HANDLERS.get(name)
        if h is None:
            h = _unknown(name)
        if users and "JUMP_BACKWARD" in name and name != "JUMP_BACKWARD_NO_INTERRUPT":
            if arg not in loops:
                loops[arg] = pure_loop(info, arg)
            if (loop := loops[arg]) is not None:
                h = handing_over(h, loop)
        if eager and (info.code, k) in eager:
            h = OPAQUE.get(name, h)
        out.append((h, arg, k + 1))
    return out


def _unknown(name: str) -> Handler:
    def unknown(interp: Interp, f: Frame, arg: int) -> Frame | None:
        raise SystemError(f"fineline has no handler for the instruction {name}")

    return unknown
