"""Undoes the newest segment of a session, so that the same code can be captured in another way."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fineline.guards.facts import storage_of
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.policy.scope_stack import SCOPE
from fineline.torch_facts.function_modes import mode_stack, set_stack
from fineline.torch_facts.random_state import put_back
from fineline.torch_facts.thread_state import hidden_states, leave_dual_levels, put_back_hidden, restore
from fineline.torch_facts.wrapper_subclasses import memory_of


def may_restart(interp: Interpreter, first: bool) -> bool:
    """Returns whether the segment that is captured on the real values can be undone: it has written into no tensor from outside.

    ``first``: whether it is the first one of the session.
    """
    trace = interp.trace
    recorder = trace.recorder
    if not trace.active or recorder.traits.once or not recorder.harmless():
        return False
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        # Under the user's own fake mode there are no symbols.
        return False
    if trace.state.start.saved_tensor_hooks:
        # The hooks have been called already.
        return False
    if not first and (interp.nested.inference_modes or forward_ad._current_level >= 0):
        return False
    inputs = [src.value for _, src in recorder.inputs if is_a(src.value, Tensor)]
    return not any([storage_of(x) in recorder.writes.storages for t in inputs for x in memory_of(t)])


def amid_transforms(entry: bool) -> bool:
    """Returns whether the code may leave a transform of torch.func, or a level of forward AD, of earlier code: nothing undoes that."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0 or (not entry and forward_ad._current_level >= 0)


def enters_transforms(interp: Interpreter) -> bool:
    """Returns whether the segment has entered a transform of torch.func that it has not left."""
    return bool(torch._C._functorch.get_dynamic_layer_stack_depth() > len(interp.trace.state.start.functorch_levels))


class Checkpoint:
    """The state of PyTorch and of fineline's rules in this thread, at the start of a session's newest segment."""

    def __init__(self, hidden: bool = True) -> None:
        """``hidden``: whether to save the states that show only by their effects."""
        self._hidden = hidden_states() if hidden else None
        self._blocks = SCOPE.blocks
        self._modes = mode_stack()

    def take_back(self, interp: Interpreter) -> None:
        """Restores all state to the start of the newest segment; a capture on fakes has no other effect.

        The counts of caches cannot be restored.
        """
        interp.stand_ins.forget()
        level = forward_ad._current_level
        # The user's modes and classes do not see the writes.
        with torch._C.DisableTorchFunction():
            interp.trace.mutations.undo()
        leave_dual_levels(level)
        interp.nested.leave_inference_modes()
        restore(interp.trace.state.start)
        if SCOPE.blocks is not self._blocks:
            SCOPE.set_blocks(self._blocks)
        if self._hidden is not None:
            put_back_hidden(self._hidden)
        # Other threads draw from the same generators: their draws stay if the capture itself cannot have drawn.
        if interp.backing.may_have_drawn():
            put_back(interp.trace.state.random)
        interp.nested.modes.clear()
        set_stack(self._modes)
