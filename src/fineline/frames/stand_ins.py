"""The stand-ins of a run: the generators, and other iterators, that are the interpreter's and not Python's own."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from fineline.cpython import protocols
from fineline.frames.frame import InterpretedGenerator, delegate


class StandIns:
    """Knows the stand-ins without holding them, and lets suspended generators go as CPython does."""

    __slots__ = ("dying", "refs", "running")

    def __init__(self) -> None:
        self.refs: list[weakref.ref[Any]] = []
        # Suspended generators whose last reference went during an instruction; whether there will be a next one.
        self.dying: list[InterpretedGenerator] = []
        self.running = False

    def add(self, made: Iterable[Any]) -> None:
        """Notes new stand-ins."""
        self.refs += map(weakref.ref, made)

    def alive(self) -> list[Any]:
        """Returns those that somebody holds."""
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
        """Handles the end of the last reference to a suspended generator: its handlers run before the next instruction."""
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
        """Handles those that went during the last instruction of the run."""
        while self.dying:
            self.bury(self.dying.pop(0))

    def take_dying(self) -> list[InterpretedGenerator]:
        """Returns those that went during the last instruction, which the caller closes."""
        gens = [*self.dying]
        self.dying.clear()
        return gens
