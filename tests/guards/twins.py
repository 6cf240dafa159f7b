"""The two evaluators side by side: every check is made by both, and they must agree on hit, values and failing step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from fineline.guards.evaluate import ReferenceProgram
from fineline.guards.steps import ACCESS, Step

native = pytest.importorskip("fineline._native")


class Twins:
    """One guard program, twice."""

    def __init__(self, n_roots: int, steps: Iterable[Step], outputs: Iterable[int] | None = None) -> None:
        steps = tuple(steps)
        outputs = tuple([step[1] for step in steps if step[0] in ACCESS] if outputs is None else outputs)
        self.reference = ReferenceProgram(n_roots, steps, outputs)
        self.native = native.GuardProgram(n_roots, steps, outputs)

    def holds(self, *roots: Any) -> bool:
        """Whether the program hits on these roots."""
        expected = self.reference.check(roots)
        failing = self.reference.failing(roots)
        assert (expected is None) == (failing >= 0)
        # More than once: the first call learns, the later ones use what it learnt.
        for _ in range(3):
            values = self.native.check(roots)
            assert (values is None) == (expected is None), self.reference.explain(roots) or "native misses"
            if expected is not None:
                assert values is not None
                assert [id(value) for value in values] == [id(value) for value in expected]
        assert self.native.failing(roots) == failing
        return expected is not None

    def hits(self) -> int:
        """How often the native program answered from its tables."""
        return int(self.native.statistics()["hits"])


class Steps:
    """Writes steps with registers numbered in order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.registers = 0

    def get(self, op: str, src: int = -1, payload: Any = None) -> int:
        self.steps.append((op, self.registers, src, payload))
        self.registers += 1
        return self.registers - 1

    def check(self, op: str, src: int = -1, payload: Any = None) -> None:
        self.steps.append((op, -1, src, payload))

    def attributes(self, src: int, cls: type) -> int:
        """The dict of an instance, as a capture reads it: the type first."""
        self.check("type", src, cls)
        return self.get("dict", src)

    def twins(self, n_roots: int) -> Twins:
        return Twins(n_roots, self.steps)
