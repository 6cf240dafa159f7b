"""PyTorch's state in which a graph is compiled, set in another thread or another process than the one that has captured the graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts
from fineline.torch_facts.distributed_tensors import parallel_losses, set_parallel_losses
from fineline.torch_facts.thread_state import OF_PROCESS, SETTERS, hidden_states, put_back_hidden, put_back_in_thread, shared_flags

# Facts that matter to captures only. A thread of fineline's own has no function modes: a backend sees none either.
_OF_CAPTURES = frozenset({"rules_of_process", "rules_of_thread", "torch_function_modes", "multithreading"})


class OtherState(Exception):
    """The state cannot be set here: other code needs another one now, or nothing can set it."""


class GraphState(NamedTuple):
    """The state at the start of a graph: the facts that are guarded, and the states that are guarded only if code reads them."""

    facts: AmbientFacts
    hidden: tuple[Any, ...]
    losses: bool

    @classmethod
    def now(cls) -> GraphState:
        return cls(AMBIENT.now(), hidden_states(), parallel_losses())

    @property
    def process_agrees(self) -> bool:
        """Returns whether the state that all threads share is the graph's."""
        now = AMBIENT.now()
        if shared_flags(hidden_states()) != shared_flags(self.hidden) or parallel_losses() != self.losses:
            return False
        return all([getattr(now, name) == getattr(self.facts, name) for name in OF_PROCESS])

    @contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Sets the state in a thread that runs nothing else; raises `OtherState` if the rest of the process has another one."""
        if not self.process_agrees:
            raise OtherState
        before, hidden = AMBIENT.now(), hidden_states()
        with ExitStack() as stack:
            if self.facts.inference_mode != before.inference_mode:
                stack.enter_context(torch.inference_mode(self.facts.inference_mode))
            if self.facts.default_device != before.default_device:
                stack.enter_context(torch.device(self.facts.default_device))
            try:
                put_back_in_thread(self.hidden)
                for name, set_ in SETTERS.items():
                    if name not in OF_PROCESS and getattr(AMBIENT.now(), name) != getattr(self.facts, name):
                        set_(getattr(self.facts, name))
                if not self._agrees():
                    raise OtherState
                yield
            finally:
                put_back_in_thread(hidden)
                for name, set_ in SETTERS.items():
                    if name not in OF_PROCESS and getattr(AMBIENT.now(), name) != getattr(before, name):
                        set_(getattr(before, name))
        if not self.process_agrees:
            raise OtherState

    @contextmanager
    def in_this_process(self) -> Iterator[None]:
        """Sets the state in a process that runs nothing else; raises `OtherState` if that is not possible."""
        facts = self.facts
        put_back_hidden(self.hidden)
        torch.set_num_threads(facts.threads)
        set_parallel_losses(self.losses)
        torch.set_default_dtype(facts.default_dtype)
        torch.use_deterministic_algorithms(facts.deterministic, warn_only=facts.deterministic_warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = facts.deterministic_fill  # type: ignore[attr-defined]
        torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled = facts.cudnn, facts.mkldnn  # type: ignore[assignment]
        torch.set_float32_matmul_precision(facts.matmul_precision_cpu)
        for name in OF_PROCESS & SETTERS.keys():
            SETTERS[name](getattr(facts, name))
        with self.in_this_thread():
            yield

    def _agrees(self) -> bool:
        now = AMBIENT.now()
        return all([getattr(now, name) == getattr(self.facts, name) for name in AmbientFacts._fields if name not in _OF_CAPTURES])
