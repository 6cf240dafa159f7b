"""The stand-ins of a run: the interpreter's own generators and other iterators, which replace CPython's."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from fineline.cpython import protocols
from fineline.frames.frame import InterpretedGenerator, delegate


class StandIns:
    """Refers weakly to the stand-ins, and ends suspended generators without references as CPython does."""

    __slots__ = ("dying", "refs", "running")

    def __init__(self) -> None:
        self.refs: list[weakref.ref[Any]] = []
        # Suspended generators whose last reference was dropped during an instruction; and whether another instruction follows.
        self.dying: list[InterpretedGenerator] = []
        self.running = False

    def add(self, made: Iterable[Any]) -> None:
        """Notes new stand-ins."""
        self.refs += map(weakref.ref, made)

    def alive(self) -> list[Any]:
        """Returns the stand-ins that are still referenced."""
        return [obj for obj in [ref() for ref in self.refs] if obj is not None]

    def forget(self) -> None:
        """Closes the suspended generators without running them: they continue in the program."""
        for gen in [ref() for ref in self.refs]:
            if type(gen) is InterpretedGenerator:
                gen.state, gen.frame = "closed", None

    def forget_all(self) -> None:
        """Closes the suspended generators, and those whose ``finally`` clauses were to run next."""
        self.forget()
        self.dying.clear()

    def bury(self, gen: InterpretedGenerator) -> None:
        """Ends a suspended generator without references: its handlers run before the next instruction."""
        f = gen.frame
        if f is None or (f.info.handler_at(f.ip - 1) is None and delegate(f) is None):
            gen.state, gen.frame = "closed", None
        elif self.running:
            self.dying.append(gen)
        else:
            try:
                gen.close()
            except BaseException as e:
                protocols.unraisable(e, gen)

    def bury_dying(self) -> None:
        """Ends the generators whose last reference was dropped during the last instruction of the run."""
        while self.dying:
            self.bury(self.dying.pop(0))

    def take_dying(self) -> list[InterpretedGenerator]:
        """Returns the generators whose last reference was dropped during the last instruction; the caller closes them."""
        gens = [*self.dying]
        self.dying.clear()
        return gens
