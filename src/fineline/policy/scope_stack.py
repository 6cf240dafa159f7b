"""The rules in force at a call: the process's policy, and the blocks that this thread is in."""

from __future__ import annotations

import threading
from typing import Protocol

from fineline.guards.policy_epoch import RULEBOOK
from fineline.policy.rule import Rule


class Block(Protocol):
    """A policy, which has rules."""

    @property
    def rules(self) -> tuple[Rule, ...]: ...


class Scope:
    """The process's policy and each thread's stack of blocks; a block is a policy, or None for one in which nothing is captured."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._process: Block | None = None

    @property
    def blocks(self) -> tuple[Block | None, ...]:
        """Returns the policies of the blocks that this thread is in, the outermost first."""
        return getattr(self._local, "blocks", ())

    @property
    def disabled_by(self) -> Rule | None:
        """Returns the rule of the innermost block in which nothing is captured; None outside of such blocks."""
        rules = getattr(self._local, "disabled_by", ())
        return rules[-1] if rules else None

    @property
    def process(self) -> Block | None:
        return self._process

    @process.setter
    def process(self, policy: Block | None) -> None:
        self._process = policy
        RULEBOOK.changed()

    def set_blocks(self, blocks: tuple[Block | None, ...]) -> None:
        """Sets the blocks that this thread is in."""
        self._set(blocks)

    def enter(self, policy: Block | None) -> None:
        self._set((*self.blocks, policy))

    def disable(self, rule: Rule) -> None:
        """Enters, on this thread, a block in which nothing is captured."""
        self._local.disabled_by = (*getattr(self._local, "disabled_by", ()), rule)
        self.enter(None)

    def enable(self) -> None:
        """Leaves the block that `disable` has entered."""
        self._local.disabled_by = self._local.disabled_by[:-1]
        self.leave()

    def leave(self) -> None:
        self._set(self.blocks[:-1])

    def _set(self, blocks: tuple[Block | None, ...]) -> None:
        self._local.blocks = blocks
        RULEBOOK.set_blocks(blocks)


SCOPE = Scope()
