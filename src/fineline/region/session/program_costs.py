"""Measures what the guards of a new program cost, while its capture is watched."""

from __future__ import annotations

from torch.utils._python_dispatch import _disable_current_modes

from fineline.codegen.programs import ResidualProgram
from fineline.guards.ambient_table import AMBIENT
from fineline.region.descriptions import guard_positions
from fineline.region.guard_dispatch import Evaluator, make_guard_program
from fineline.report.programs import Measures
from fineline.report.recording import Recording


def measure(recording: Recording, segment: ResidualProgram, roots: tuple, evaluator: Evaluator) -> Measures:
    """Notes what a program costs. ``roots``: the values of the call that was captured.

    The guards are those of a copy, outside of the modes that are on now: a mode that counts operators makes the check of PyTorch's state slower
    than it is in later calls.
    """
    with _disable_current_modes():
        now = AMBIENT.now()
        steps = tuple([("ambient", dst, src, now) if op == "ambient" else (op, dst, src, payload) for op, dst, src, payload in segment.steps])
        guards = make_guard_program(len(roots), steps, segment.outputs, evaluator)
        return recording.note_program(segment.unbound.text, guards, roots, guard_positions(segment))
