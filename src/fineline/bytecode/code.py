"""A code object decoded once: instructions by index, jump targets, lines, exception handlers, live variables."""

from __future__ import annotations
import __future__

import bisect
import dis
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType

from fineline.bytecode.instructions import Handler, Instruction, jumps
from fineline.bytecode.lowering import lower
from fineline.bytecode.saved_variables import SavedVariable, for_loop_at, saved_variables
from fineline.bytecode.version import CURRENT
from fineline.identity import IdentityMap

_EXTENDED = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap["CACHE"]
_BACKWARD = frozenset(n for n in dis.opmap if "BACKWARD" in n)
_RELATIVE = frozenset(dis.hasjrel)
_ENDS = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_READS = frozenset(
    {
        "LOAD_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "DELETE_FAST", "DELETE_DEREF", "MAKE_CELL",
        "STORE_DEREF",
    }
)  # fmt: skip
# Instructions that read a variable, which may have no value.
_VARIABLE_READS = frozenset({"LOAD_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
# The first instruction of code that restores variables.
_RESTORING = frozenset({"SWAP", "STORE_FAST"})
_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})
# Instructions that make a call and may jump by its result: the end of an iterator, or a truth value.
_DECIDING = frozenset({"FOR_ITER", "SEND", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"})

CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS = 0x1, 0x4, 0x8
CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
# The flags that `from __future__ import` sets in code, which code compiled from it inherits.
CO_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names} - {inspect.CO_NESTED})


# First and last line, first and last column; each may be unknown.
Position = tuple[int | None, int | None, int | None, int | None]
NOWHERE: Position = (None, None, None, None)
# Functions that read all variables of their caller.
_ALL_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})


def decoded(code: CodeType) -> tuple[list[Instruction], list[int], dict[int, int]]:
    """Returns the instructions of a code object, the offset of each, and the index of the instruction at each offset."""
    raw = code.co_code
    index_of: dict[int, int] = {}
    found: list[tuple[int, int, int]] = []
    # The offset at which each instruction begins, its EXTENDED_ARG prefixes included.
    starts: list[int] = []
    extended, start = 0, None
    for offset in range(0, len(raw), 2):
        op = raw[offset]
        if op == _CACHE:
            continue
        arg = raw[offset + 1] | extended
        if start is None:
            start = offset
        if op == _EXTENDED:
            extended = arg << 8
            continue
        extended = 0
        for at in range(start, offset + 2, 2):
            index_of[at] = len(found)
        found.append((offset, op, arg))
        starts.append(start)
        start = None
    instructions = []
    for k, (_, op, arg) in enumerate(found):
        name = dis.opname[op]
        if op in _RELATIVE:
            # A jump is relative to the instruction after this one's inline caches.
            after = starts[k + 1] if k + 1 < len(found) else len(raw)
            arg = index_of[after - 2 * arg if name in _BACKWARD else after + 2 * arg]
        instructions.append(Instruction(name, arg))
    return instructions, [offset for offset, _, _ in found], index_of


def _line_numbers(code: CodeType, offsets: list[int], index_of: dict[int, int]) -> list[int]:
    lines = [code.co_firstlineno] * len(offsets)
    for begin, end, line in code.co_lines():
        if line is None:
            continue
        for offset in range(begin, end, 2):
            k = index_of.get(offset)
            if k is not None and offsets[k] == offset:
                lines[k] = line
    return lines


class LaterFacts:
    """The facts about a code object that are computed when they are needed."""

    __slots__ = ("liveness", "positions", "swallows")

    def __init__(self) -> None:
        self.liveness: Liveness | None = None
        self.positions: list[Position] | None = None
        # Whether a handler may end without an exception, by its first instruction.
        self.swallows: dict[int, bool] = {}


class CodeInfo:
    """The facts about a code object that the interpreter needs."""

    __slots__ = (
        "_handler_starts", "_later", "code", "consts", "handlers", "instructions", "is_plain", "lines", "linked", "names", "nslots", "offsets", "pure",
        "slots",
    )  # fmt: skip

    def __init__(self, code: CodeType) -> None:
        self.code = code
        instructions, offsets, index_of = decoded(code)
        handlers = [
            Handler(index_of[e.start], index_of.get(e.end, len(offsets)), index_of[e.target], e.depth, e.lasti)
            for e in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        ]
        lines, consts = _line_numbers(code, offsets, index_of), code.co_consts
        if CURRENT.rules:
            instructions, handlers, origins, consts = lower(code, instructions, handlers, CURRENT)
            offsets, lines = [offsets[k] for k in origins], [lines[k] for k in origins]
        # The instructions, with the offset of each one's own code unit, and its line.
        self.instructions, self.offsets, self.lines = instructions, offsets, lines
        self.handlers, self.consts = handlers, consts
        self._handler_starts = [h.start for h in handlers]
        self.names = code.co_names
        extra = [c for c in code.co_cellvars if c not in code.co_varnames]
        self.slots = (*code.co_varnames, *extra, *code.co_freevars)
        self.nslots = len(self.slots)
        self.is_plain = (
            not code.co_flags & (CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)
            and not code.co_kwonlyargcount
        )
        self.linked: list | None = None
        # The result of `pure_code` in a tuple; None if it is not computed yet.
        self.pure: tuple | None = None
        self._later = LaterFacts()

    def handler_at(self, ip: int) -> Handler | None:
        """Returns the innermost exception handler that covers instruction ``ip``."""
        # The compiler writes the rows in the order of their instructions, without overlaps.
        k = bisect.bisect_right(self._handler_starts, ip) - 1
        return self.handlers[k] if k >= 0 and ip < self.handlers[k].end else None

    def handlers_at(self, ip: int) -> Iterator[Handler]:
        """Yields the handlers that cover instruction ``ip``, innermost first, without those that only restore CPython's state."""
        h = self.handler_at(ip)
        while h is not None:
            if self.instructions[h.target].name == "PUSH_EXC_INFO":
                yield h
            h = self.handler_at(h.target)

    @property
    def catches(self) -> bool:
        """Returns whether the code handles exceptions, other than by restoring variables."""
        return not all([self.restores(h) for h in self.handlers])

    def restores(self, h: Handler) -> bool:
        """Returns whether a handler only restores the variables that an inlined comprehension uses, and raises the exception again."""
        return self.instructions[h.target].name in _RESTORING

    def leaves_with(self, h: Handler) -> bool:
        """Returns whether a handler is that of a ``with`` statement, whose exit method is the last value below its depth."""
        return self.instructions[h.target + 1].name == "WITH_EXCEPT_START"

    def swallows(self, h: Handler) -> bool:
        """Returns whether a handler may end without an exception. ``finally``, or one that always raises, does not."""
        known = self._later.swallows
        found = known.get(h.target)
        if found is None:
            found = known[h.target] = self._may_end(h.target)
        return found

    def _may_end(self, target: int) -> bool:
        """Returns whether a path from ``target`` ends the handler there; the end of a handler inside it counts too."""
        seen: set[int] = set()
        todo = [target]
        while todo:
            k = todo.pop()
            if k in seen:
                continue
            seen.add(k)
            name, arg = self.instructions[k]
            if name == "POP_EXCEPT" and self.instructions[k + 1].name != "RERAISE":
                return True
            todo += [] if name in _ENDS else [k + 1]
            todo += [arg] if jumps(name) else []
        return False

    def loop_over(self, ip: int) -> int | None:
        """Returns the FOR_ITER that reads the iterator that is on the stack before instruction ``ip``; None if something else does."""
        return for_loop_at(self.instructions, ip)

    @property
    def _liveness(self) -> Liveness:
        liveness = self._later.liveness
        if liveness is None:
            liveness = self._later.liveness = Liveness(self)
        return liveness

    def live_at(self, ip: int) -> frozenset[int]:
        """Returns the slots whose value may still be read when execution continues at instruction ``ip``.

        Cells are always live: a closure may hold them.
        """
        return self._liveness.at(ip)

    def dead_on_stack(self, ip: int) -> frozenset[int]:
        """Returns the places on the stack, while the instruction before ``ip`` makes a call, of values that are never read.

        These are variables that a comprehension has saved: their slots are not live where it restores them.
        """
        dead: list[int] = []
        handler = self.handler_at(ip - 1) if self._liveness.saved else None
        while handler is not None:
            dead += self._liveness.dead_saved(handler.target)
            handler = self.handler_at(handler.target)
        return frozenset(dead)

    def position_at(self, offset: int) -> Position:
        """Returns the source position of the instruction at an ``offset`` in the code; `NOWHERE` for -1."""
        if offset < 0:
            return NOWHERE
        positions = self._later.positions
        if positions is None:
            # A code object yields its positions only in order, from the first one.
            positions = self._later.positions = [*self.code.co_positions()]
        return positions[offset // 2] if offset // 2 < len(positions) else NOWHERE

    def live_after(self, ip: int) -> frozenset[int]:
        """Returns the slots that are live at instruction ``ip`` while the instruction before it makes a call."""
        live, before, handler = self.live_at(ip), self.instructions[ip - 1], self.handler_at(ip - 1)
        if before.name in _DECIDING:
            # The instruction may jump instead of continuing at ``ip``.
            live |= self.live_at(before.arg)
        if handler is not None:
            # The call may raise, and the handler may not cover ``ip``.
            live |= self.live_at(handler.target)
        return live

    def reads_slot(self, slot: int) -> bool:
        """Returns whether any instruction reads the variable in ``slot``."""
        return any(i.arg == slot and i.name in _READS for i in self.instructions)


class Liveness:
    """The slots whose value may still be read, for each instruction of a code object: computed together, given one by one.

    ``saved``: the variables that comprehensions save, by the first instruction of the handlers that restore them.
    """

    __slots__ = ("_bits", "_nslots", "_slots", "saved")

    def __init__(self, info: CodeInfo) -> None:
        self.saved = saved_variables(info.instructions, info.handlers)
        self._bits, self._nslots = _liveness(info, self.saved), info.nslots
        self._slots: dict[int, frozenset[int]] = {}

    def at(self, ip: int) -> frozenset[int]:
        found = self._slots.get(ip)
        if found is None:
            bits = self._bits[ip]
            found = self._slots[ip] = frozenset([slot for slot in range(self._nslots) if bits >> slot & 1])
        return found

    def dead_saved(self, target: int) -> list[int]:
        """Returns the places on the stack of the variables that a comprehension has saved and that no instruction reads again."""
        return [v.place for v in self.saved.get(target, ()) if not any([self._bits[r.after] >> r.slot & 1 for r in v.restores])]


def _liveness(info: CodeInfo, saved: Mapping[int, tuple[SavedVariable, ...]]) -> list[int]:
    """Computes, for each instruction, the set of live slots as bits: a backward data flow that includes exception edges.

    An instruction is visited again only when the live slots after it have changed.
    """
    n = len(info.instructions)
    if _ALL_READERS.intersection(info.names):
        return [(1 << info.nslots) - 1] * (n + 1)
    held = {*info.code.co_cellvars, *info.code.co_freevars}
    always = sum([1 << slot for slot, name in enumerate(info.slots) if name in held])
    if "super" in info.names:
        # ``super()`` without arguments reads the first parameter, without an instruction that shows it.
        always |= 1
    after: list[list[int]] = []
    before: list[list[int]] = [[] for _ in range(n + 1)]
    for k, (name, arg) in enumerate(info.instructions):
        following = [] if name in _ENDS else [k + 1]
        if jumps(name):
            following.append(arg)
        handler = info.handler_at(k)
        if handler is not None:
            following.append(handler.target)
        after.append(following)
        for at in following:
            before[at].append(k)
    restores = {v.save: v.restores for variables in saved.values() for v in variables}
    for k, found_again in restores.items():
        for restore in found_again:
            before[restore.after].append(k)
    live = [0] * (n + 1)
    todo, waits = [*range(n)], [True] * n + [False]
    while todo:
        k = todo.pop()
        waits[k] = False
        name, arg = info.instructions[k]
        found = 0
        for at in after[k]:
            found |= live[at]
        if name == "STORE_FAST":
            handler = info.handler_at(k)
            found = found & ~(1 << arg) if handler is None else live[k + 1] & ~(1 << arg) | live[handler.target]
        elif k in restores:
            # The value is read where it is a variable again.
            found = found & ~(1 << arg) | any([live[at] >> slot & 1 for slot, at in restores[k]]) << arg
        elif name in _VARIABLE_READS:
            found |= 1 << arg
        if found != live[k]:
            live[k] = found
            for at in before[k]:
                if not waits[at]:
                    waits[at] = True
                    todo.append(at)
    return [bits | always for bits in live]


def global_names(code: CodeType) -> list[str]:
    """Returns the global names that ``code`` and code inside it use; ``co_names`` also contains attributes and modules."""
    info = CODES[code]
    found: dict[str, None] = {}
    for name, arg in info.instructions:
        if name in _OF_GLOBALS:
            found[info.names[arg >> 1 if name == "LOAD_GLOBAL" else arg]] = None
    for inner in code.co_consts:
        if type(inner) is CodeType:
            found.update(dict.fromkeys(global_names(inner)))
    return [*found]


def names_in(code: CodeType) -> set[str]:
    """Returns the names of globals and attributes in ``code`` and the code inside it."""
    return {*code.co_names, *[name for inner in code.co_consts if type(inner) is CodeType for name in names_in(inner)]}


class CodeTable:
    """Decoded code objects by identity (code objects compare equal by content, file names apart).

    An entry keeps its code object alive; code objects are few and small.
    """

    def __init__(self) -> None:
        self._infos: IdentityMap[CodeInfo] = IdentityMap()

    def __getitem__(self, code: CodeType) -> CodeInfo:
        info = self._infos.get(code)
        if info is None:
            info = self._infos[code] = CodeInfo(code)
        return info


CODES = CodeTable()
