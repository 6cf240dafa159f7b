"""The instruction handlers of all families, and the linking of code to them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from types import MappingProxyType

from fineline.builtins import operators
from fineline.bytecode.code import CodeInfo
from fineline.bytecode.pure_loops import PureLoop, pure_loop
from fineline.bytecode.version import CURRENT
from fineline.frames.opcode_families import Handler
from fineline.frames.stub_frames import is_own
from fineline.interp.opcodes import blocks, building, flow, variables
from fineline.interp.opcodes.eager import OPAQUE
from fineline.interp.opcodes.pure_loops import handing_over
from fineline.tracing.lessons import Site

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {**variables.HANDLERS, **building.HANDLERS, **flow.HANDLERS, **blocks.HANDLERS, **operators.HANDLERS}
)


class NotInterpreted(Exception):
    """Code has an instruction that the interpreter does not run: the id of the graph break, and the instruction."""


def link(info: CodeInfo, eager: Set[Site] | None) -> list:
    """Returns the handler and the argument of each instruction, and the index of the next one; those in ``eager`` run eagerly."""
    out = []
    loops, users = dict[int, PureLoop | None](), not is_own(info.code)
    for k, (name, arg) in enumerate(info.instructions):
        h = HANDLERS.get(name)
        if h is None:
            raise NotInterpreted(CURRENT.refused[name], name)
        if users and "JUMP_BACKWARD" in name and name != "JUMP_BACKWARD_NO_INTERRUPT":
            if arg not in loops:
                loops[arg] = pure_loop(info, arg)
            if (loop := loops[arg]) is not None:
                h = handing_over(h, loop)
        if eager and (info.code, k) in eager:
            h = OPAQUE.get(name, h)
        out.append((h, arg, k + 1))
    return out
