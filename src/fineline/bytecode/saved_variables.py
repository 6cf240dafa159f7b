"""Finds the variables that an inlined comprehension saves on the stack while it uses their slots (PEP 709), and where it restores them.

The compiler writes ``LOAD_FAST_AND_CLEAR`` for each of them, then makes the container. The end of the loop restores them, and so does a handler around
the whole comprehension, which raises the exception again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fineline.bytecode.instructions import ITERATOR_AGAIN, Handler, Instruction

# Instructions between the ones that save variables and the first one that the handler covers.
_AFTER_SAVES = frozenset({"MAKE_CELL", "SWAP"})
# Instructions between an iterator and its loop in an inlined comprehension.
BEFORE_LOOP = frozenset({"LOAD_FAST_AND_CLEAR", "MAKE_CELL", "SWAP", "BUILD_LIST", "BUILD_SET", "BUILD_MAP"})


class Restore(NamedTuple):
    """A saved value becomes the variable in ``slot``; execution continues at instruction ``after``."""

    slot: int
    after: int


class SavedVariable(NamedTuple):
    """Instruction ``save`` saves a variable, which then lies at a ``place`` on the stack; ``restores``: on each of the ways out."""

    save: int
    place: int
    restores: tuple[Restore, ...]


NO_SAVED_VARIABLES: Mapping[int, tuple[SavedVariable, ...]] = MappingProxyType({})


def saved_variables(instructions: Sequence[Instruction], handlers: Sequence[Handler]) -> Mapping[int, tuple[SavedVariable, ...]]:
    """Returns the variables that each comprehension saves, by the first instruction of its handler.

    Comprehensions of another form have no entry; asynchronous ones, for example.
    """
    if not any([name == "LOAD_FAST_AND_CLEAR" for name, _ in instructions]):
        return NO_SAVED_VARIABLES
    first: dict[int, Handler] = {}
    for h in handlers:
        if h.target not in first or h.start < first[h.target].start:
            first[h.target] = h
    return {target: found for target, h in first.items() if (found := _saved_around(instructions, h))}


def for_loop_at(instructions: Sequence[Instruction], at: int) -> int | None:
    """Returns the FOR_ITER that reads the iterator that is on the stack before an instruction; None if something else does."""
    while (instruction := instructions[at]).name in BEFORE_LOOP or instruction == ITERATOR_AGAIN:
        at += 1
    return at if instructions[at].name == "FOR_ITER" else None


def _saved_around(instructions: Sequence[Instruction], h: Handler) -> tuple[SavedVariable, ...]:
    """Returns the variables that the comprehension of a handler saves; none if it is another handler."""
    saves: dict[int, int] = {}
    at = h.start - 1
    while at >= 0 and (instructions[at].name in _AFTER_SAVES or instructions[at].name == "LOAD_FAST_AND_CLEAR"):
        if instructions[at].name == "LOAD_FAST_AND_CLEAR":
            saves[instructions[at].arg] = at
        at -= 1
    loop = for_loop_at(instructions, h.start)
    if not saves or loop is None:
        return ()
    # The container that is being made lies above them.
    places = range(h.depth - 1 - len(saves), h.depth - 1)
    raised = _restores(instructions, h.target, h.depth + 1 + h.lasti, places)
    ended = _restores(instructions, instructions[loop].arg, h.depth, places)
    if raised is None or ended is None or {restore.slot for restore in raised.values()} != set(saves):
        return ()
    ways = (ended, raised)
    return tuple([SavedVariable(saves[raised[p].slot], p, tuple([way[p] for way in ways if p in way])) for p in places])


def _restores(instructions: Sequence[Instruction], at: int, height: int, places: range) -> dict[int, Restore] | None:
    """Returns where the values at ``places`` of a stack of some ``height`` become variables; those that are only dropped are left out.

    None if the code from ``at`` on does something else before all of them are off the stack.
    """
    stack, left, found = [*range(height)], set(places), {}
    while left:
        name, arg = instructions[at]
        at += 1
        match name:
            case "SWAP":
                stack[-1], stack[-arg] = stack[-arg], stack[-1]
            case "POP_TOP":
                left.discard(stack.pop())
            case "STORE_FAST":
                place = stack.pop()
                if place in left:
                    left.remove(place)
                    found[place] = Restore(arg, at)
            case _:
                return None
    return found
