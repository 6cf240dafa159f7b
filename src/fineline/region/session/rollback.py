"""Taking back what a run, or its newest segment, has done: nothing has happened, and the same can be captured in another way."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.grad_mode import _exit_inference_mode

from fineline.guards.facts import storage_of
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.policy.scope_stack import SCOPE
from fineline.torch_facts.random_state import put_back
from fineline.torch_facts.thread_state import hidden_states, leave_dual_levels, put_back_hidden, restore


def may_restart(interp: Interpreter, first: bool) -> bool:
    """Returns whether the segment that is being captured on the real values can be taken back: it has written into no tensor of others.

    ``first``: whether it is the first one of the session.
    """
    trace = interp.trace
    recorder = trace.recorder
    if not trace.active or recorder.traits.once or not recorder.harmless():
        return False
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        # On the fakes of a user's there are no symbols.
        return False
    if trace.state.start.saved_tensor_hooks:
        # They have been called.
        return False
    if not first and (interp.inference_modes or forward_ad._current_level >= 0):
        return False
    return not any([storage_of(src.value) in recorder.writes.storages for _, src in recorder.inputs if is_a(src.value, Tensor)])


def amid_transforms(entry: bool) -> bool:
    """Returns whether what comes next may leave a transform of torch.func, or a level of forward AD, that was entered before: nothing undoes that."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0 or (not entry and forward_ad._current_level >= 0)


def leave_inference_modes(interp: Interpreter) -> None:
    """Leaves what the captured code of ``interp`` has entered; nothing else does where an exception from outside comes as it is left."""
    for context in reversed(interp.inference_modes):
        _exit_inference_mode(context)
    interp.inference_modes.clear()


class Checkpoint:
    """The state of PyTorch and of fineline's rules in this thread, as the newest segment of a session began."""

    def __init__(self, hidden: bool = True) -> None:
        """``hidden``: whether to keep the states that nobody can see but by their effect."""
        self._hidden = hidden_states() if hidden else None
        self._blocks = SCOPE.blocks

    def take_back(self, interp: Interpreter) -> None:
        """Leaves the world as it was when the newest segment began: in fake mode, nothing else has happened.

        What a cache counts can't be taken back.
        """
        interp.forget_generators()
        level = forward_ad._current_level
        interp.trace.mutations.undo()
        leave_dual_levels(level)
        leave_inference_modes(interp)
        restore(interp.trace.state.start)
        if SCOPE.blocks is not self._blocks:
            SCOPE.set_blocks(self._blocks)
        if self._hidden is not None:
            put_back_hidden(self._hidden)
        # Other threads draw from the same generators: what they have drawn meanwhile stays, where the capture itself can't have drawn.
        if interp.fakes is None or interp.fakes.mode.moved:
            put_back(interp.trace.state.random)
