"""Lowers decoded code of any CPython version to the instruction set of `instructions`, by the rules of that version.

A rule takes a place in the code and returns the instructions that stand for the instruction there, and how many it has read. It
may read several: a pattern that 3.11 writes as one instruction becomes that instruction again, if no jump leads into its middle.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import NamedTuple

from fineline.bytecode.instructions import Handler, Instruction, jumps

Replacement = tuple[Sequence[tuple[str, int]], int]


class Reading:
    """Code that is being lowered. Jumps have the indexes of its own ``instructions`` as arguments."""

    __slots__ = ("_blocks", "code", "consts", "handlers", "instructions", "targets")

    def __init__(self, code: CodeType, instructions: list[Instruction], handlers: list[Handler]) -> None:
        self.code, self.instructions, self.handlers = code, instructions, _joined(instructions, handlers)
        # The constants of the code, and those that only lowered instructions load.
        self.consts: tuple[object, ...] = code.co_consts
        # The instructions to which something else than the instruction before them leads.
        self.targets = {arg for name, arg in instructions if jumps(name)} | {at for h in self.handlers for at in (h.start, h.end, h.target)}

        # Where the code of each handler begins, and where the first code that it handles does.
        blocks: dict[int, int] = {}
        for h in self.handlers:
            if instructions[h.target].name in ("PUSH_EXC_INFO", "CLEANUP_THROW"):
                blocks.setdefault(h.target, h.start)
        self._blocks = sorted(blocks.items())

    def follows(self, k: int, *names: str) -> bool:
        """Returns whether the instructions after ``k`` have these names and are reached only through it."""
        after = self.instructions[k + 1 : k + 1 + len(names)]
        return [name for name, _ in after] == [*names] and self.targets.isdisjoint(range(k + 1, k + 1 + len(names)))

    def is_closed(self, start: int, end: int) -> bool:
        """Returns whether the instructions from ``start`` to before ``end`` are reached only through the first of them."""
        others = range(start + 1, end)
        outside = [*self.instructions[:start], *self.instructions[end:]]
        return not any([jumps(name) and arg in others for name, arg in outside]) and not any([h.target in others for h in self.handlers])

    def repeats(self, k: int) -> bool:
        """Returns whether a jump back leads to the head of a loop, and not from a handler, which lies at the end of the code, to what follows it."""
        target = self.instructions[k].arg
        while True:
            at = bisect.bisect_right(self._blocks, (k, len(self.instructions))) - 1
            if at < 0 or target >= self._blocks[at][0]:
                return True
            # The jump leaves a handler. What it handles may itself be a part of another handler.
            k = self._blocks[at][1]
            if target > k:
                return False

    def constant(self, value: object) -> int:
        """Returns the index of a constant that the code itself does not have."""
        self.consts += (value,)
        return len(self.consts) - 1


Rule = Callable[[Reading, int], Replacement]


class Version(NamedTuple):
    """The facts about one version of CPython."""

    # The instructions that have to be lowered; all others mean what they mean in 3.11.
    rules: Mapping[str, Rule]
    # Instructions that the interpreter never runs, with the id of the refusal or graph break of the code that contains them.
    refused: Mapping[str, str]
    # Instructions at which CPython checks for asynchronous exceptions.
    checks: frozenset[str]
    # Handlers that do in bytecode what the interpreter does for all versions, by their first instruction.
    own_handlers: frozenset[Instruction] = frozenset()
    # The texts of errors that the interpreter raises, where they differ from those of 3.11: by the latter. Those with fields are for `str.format`.
    wordings: Mapping[str, str] = MappingProxyType({})
    # Whether all calls of ``locals()`` in a frame give the same dict.
    one_namespace: bool = True
    # Whether a class method binds what it wraps by the latter's ``__get__``, such as that of a property.
    class_methods_bind: bool = True
    # What CPython warns about: "parts", for the class, the value and the traceback given to ``throw`` of a generator; "bools", for ``~`` of one;
    # "partials", for a ``functools.partial`` in a class that is read through an instance.
    warns_of: frozenset[str] = frozenset({"parts", "bools"})
    # Whether a StopIteration thrown into a generator that has not begun becomes a RuntimeError too.
    converts_at_start: bool = False
    # Whether a frame that ends drops its variables from the first to the last.
    drops_the_first_first: bool = True
    # Whether ``with`` looks for ``__exit__`` before ``__enter__``.
    looks_for_exit_first: bool = False
    # Whether a note tells which element of a sequence ``dict.update`` cannot take.
    notes_elements: bool = False
    # Whether ``sum()`` adds the rounding errors of floats to the result.
    compensates_sums: bool = False
    # Whether ``issubset`` of a set stops at an iterator's item with which it has found all of its own.
    stops_at_subset: bool = False
    # Whether a sort looks for equal items in a descending run, and for what ascends after it.
    sorts_equal_runs: bool = False

    def worded(self, text: str) -> str:
        """Returns the text that this version has for one of 3.11's."""
        return self.wordings.get(text, text)


class Lowered(NamedTuple):
    """Lowered code. ``origins``: for each instruction, the index of the original one."""

    instructions: list[Instruction]
    handlers: list[Handler]
    origins: list[int]
    consts: tuple[object, ...]


def lower(code: CodeType, instructions: list[Instruction], handlers: list[Handler], version: Version) -> Lowered:
    """Returns code in the interpreter's instruction set, with the arguments of jumps and the exception table adjusted."""
    reading, rules = Reading(code, instructions, handlers), version.rules
    # For each original instruction, the index of the first of those that stand for it.
    places, made, origins = list[int](), list[tuple[str, int]](), list[int]()
    k, n = 0, len(instructions)
    while k < n:
        rule = rules.get(instructions[k].name)
        found, read = ((instructions[k],), 1) if rule is None else rule(reading, k)
        places += [len(made)] * read
        origins += [k + min(i, read - 1) for i in range(len(found))]
        made += found
        k += read
    places.append(len(made))
    out = [Instruction(name, places[arg] if jumps(name) else arg) for name, arg in made]
    rows = [
        Handler(places[h.start], places[h.end], places[h.target], h.depth, h.lasti)
        for h in reading.handlers
        if instructions[h.target] not in version.own_handlers and places[h.start] < places[h.end]
    ]
    return Lowered(out, rows, origins, reading.consts)


def _joined(instructions: list[Instruction], handlers: list[Handler]) -> list[Handler]:
    """Returns the handlers, without the gaps that the compiler leaves in them at instructions that do nothing."""
    out: list[Handler] = []
    for h in handlers:
        last = out[-1] if out else None
        if last is not None and last._replace(start=h.start, end=h.end) == h and {name for name, _ in instructions[last.end : h.start]} == {"NOT_TAKEN"}:
            out[-1] = last._replace(end=h.end)
        else:
            out.append(h)
    return out


# -- rules -------------------------------------------------------------------------------------------------------------
def becomes(*made: tuple[str, int]) -> Rule:
    """Returns the rule for an instruction that others replace, whatever its argument; without any, it is left out."""
    replacement = (made, 1)
    return lambda reading, k: replacement


def renamed(name: str) -> Rule:
    """Returns the rule for an instruction that has another name; its argument stays."""
    return lambda reading, k: (((name, reading.instructions[k].arg),), 1)


def shifted(bits: int) -> Rule:
    """Returns the rule for an instruction whose argument also holds ``bits`` for CPython alone, which come last."""
    return lambda reading, k: (((reading.instructions[k].name, reading.instructions[k].arg >> bits),), 1)
