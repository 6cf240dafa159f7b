"""``error_on_graph_break``: blocks in which a graph break is an error, or is allowed again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fineline.kinds import is_a
from fineline.policy.policy import Policy
from fineline.policy.scope_stack import SCOPE

P = ParamSpec("P")
R = TypeVar("R")


class Strictness(Policy):
    """A block without rules, which captured code enters and leaves like any policy."""

    __slots__ = ("flag",)
    flag: bool

    def __init__(self, flag: bool) -> None:
        object.__setattr__(self, "rules", ())
        object.__setattr__(self, "flag", flag)

    def _key(self) -> tuple:
        return (self.flag,)

    def __eq__(self, other: object) -> bool:
        return is_a(other, Strictness) and self.flag is other.flag

    __hash__ = Policy.__hash__

    def __repr__(self) -> str:
        return f"error_on_graph_break({self.flag})"

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fn)
        def with_strictness(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return fn(*args, **kwargs)

        return with_strictness


STRICT, LENIENT = Strictness(True), Strictness(False)


def error_on_graph_break(error_on_graph_break: bool) -> Strictness:
    """Returns a context manager and decorator that sets whether a graph break is an error. ``fullgraph=True`` overrides it.

    It works inside captured code and around calls of it.
    """
    return STRICT if error_on_graph_break else LENIENT


def breaks_here(breaks: str) -> str:
    """Returns which graph breaks are allowed at the current place of a capture, in a region with the option ``breaks``."""
    if breaks != "none":
        for block in reversed(SCOPE.blocks):
            if is_a(block, Strictness):
                return "none" if block.flag else breaks
    return breaks
