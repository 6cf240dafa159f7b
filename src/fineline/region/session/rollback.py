"""Taking back what a run, or its newest segment, has done: nothing has happened, and the same can be captured in another way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.grad_mode import _exit_inference_mode

from fineline.guards.facts import storage_of
from fineline.kinds import is_a
from fineline.policy.scope_stack import SCOPE
from fineline.torch_facts.random_state import put_back
from fineline.torch_facts.thread_state import leave_dual_levels, put_back_hidden, restore
from fineline.tracing.interp import Interp


def may_restart(run: Any) -> bool:
    """Returns whether the segment that is being captured on the real values can be taken back: it has written into no tensor of others."""
    interp, trace = run.interp, run.interp.trace
    recorder = trace.recorder
    if run.why or not trace.active or recorder.once or not recorder.harmless():
        return False
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        # On the fakes of a user's there are no symbols.
        return False
    if trace.start_ambient.saved_tensor_hooks:
        # They have been called.
        return False
    if run.entry_point is not run.start and (interp.inference_modes or forward_ad._current_level >= 0):
        return False
    return not any([storage_of(src.value) in recorder.mutated for _, src in recorder.inputs if is_a(src.value, Tensor)])


def amid_transforms(entry: bool) -> bool:
    """Returns whether what comes next may leave a transform of torch.func, or a level of forward AD, that was entered before: nothing undoes that."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0 or (not entry and forward_ad._current_level >= 0)


def leave_inference_modes(interp: Interp) -> None:
    """Leaves what the captured code of ``interp`` has entered; nothing else does where an exception from outside comes as it is left."""
    for context in reversed(interp.inference_modes):
        _exit_inference_mode(context)
    interp.inference_modes.clear()


def take_back(run: Any, anew: bool = False) -> None:
    """Leaves the world as it was when the newest segment of ``run`` began: in fake mode, nothing else has happened.

    What a cache counts can't be taken back. ``anew``: the call is to be captured again, and is not to count there twice.
    """
    interp = run.interp
    if anew:
        run.region.state.leave_cached_calls([*interp.trace.mutations.ahead, *interp.trace.mutations.cached])
    interp.forget_generators()
    level = forward_ad._current_level
    interp.trace.mutations.undo()
    leave_dual_levels(level)
    leave_inference_modes(interp)
    restore(interp.trace.start_ambient)
    if SCOPE.blocks is not run.blocks:
        SCOPE.set_blocks(run.blocks)
    if run.hidden is not None:
        put_back_hidden(run.hidden)
    # Other threads draw from the same generators: what they have drawn meanwhile stays, where the capture itself can't have drawn.
    if interp.fakes is None or interp.fakes.mode.moved:
        put_back(interp.trace.random)
