"""The job to compile one graph in the background, and its outcome."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fineline.backends.registry import Backend
from fineline.background.graph_state import GraphState
from fineline.background.turns import Turns

if TYPE_CHECKING:
    from fineline.fx.graph_module import CapturedGraph


class Owner(Protocol):
    """The graphs of a region: decides what a program runs when its job is done, in the thread of the call that finds that out."""

    def settle(self, pending: Any) -> Callable | None: ...


class User(Protocol):
    """What a program runs in place of the graph."""

    def prepare(self) -> None: ...


class Outcome(NamedTuple):
    """The end of a job: the compiled graph, or the error, or the reason why only a call that waits can compile the graph."""

    compiled: Callable | None = None
    error: BaseException | None = None
    reason: str = ""


class GraphJob:
    """A graph that a backend compiles in the background, for all programs that run it.

    ``examples``: fakes of the inputs; they keep no memory of the user's alive, and the backend cannot write into it.
    ``owner``: decides what programs run when the job is done, in the thread of the call that finds that out.
    ``turns``: those of the thread that compiles beside calls.
    """

    def __init__(
        self, backend: Backend, gm: CapturedGraph, examples: Sequence[Any], name: str, where: str,
        owner: weakref.ref[Owner], turns: Turns,
    ) -> None:  # fmt: skip
        self.name, self.where, self.backend, self.owner, self.turns = name, where, backend, owner, turns
        self.gm, self.examples, self.state = gm, examples, GraphState.now()
        self.outcome: Outcome | None = None
        # Whether the queue has it. A forked child's queue has none, and an exception from outside may keep one out of it.
        self.queued = False
        self.made_at = time.monotonic()
        # Held while the code of the graph is written, which a program runs meanwhile.
        self.writing = threading.RLock()
        self._users: weakref.WeakSet[User] = weakref.WeakSet()
        # Held while the users are listed, because other threads add some: those of equal graphs.
        self._listing = threading.RLock()

    def use(self, user: User) -> None:
        """Notes a program's graph that waits for the job."""
        with self._listing:
            self._users.add(user)

    def end(self, outcome: Outcome) -> None:
        """Notes how the job has ended, and drops what only the compile has needed."""
        self.outcome = outcome
        if outcome.compiled is not None or outcome.error is not None:
            self.examples = ()

    def renew(self) -> None:
        """Makes the job one that waits, in a forked child: the thread of the parent may have been at any point of it."""
        self.writing, self._listing, self.queued = threading.RLock(), threading.RLock(), False

    def prepare(self) -> None:
        """Has programs make what they run meanwhile, before a compiler describes and rewrites the graph."""
        with self._listing:
            users = list(self._users)
        for user in users:
            user.prepare()

    @property
    def is_wanted(self) -> bool:
        """Returns whether a program still waits for it."""
        return len(self._users) > 0
