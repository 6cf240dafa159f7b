"""Runs random programs of modules under twins, and makes smaller those that differ.

python -m tests.soundness.module_fuzz --seed 0 --programs 1000 --minutes 10 --twins captured,fake,dynamic

With ``--turns`` each program runs under one of the twins, the next one under the next: so more programs run in a given time.
"""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import gc
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from tests.oracle import Different, Program, check, eager
from tests.soundness.module_parts import process_kept
from tests.soundness.module_programs import RandomProgram, Statement, generate
from tests.soundness.module_signals import fuzz

CHEAP = ("captured", "fake", "dynamic", "limit1", "reference", "strict", "borders")
TOLERANCE = {"aot": 1e-5, "aot_fake": 1e-5, "aot_dynamic": 1e-5}


MISSING = ("NameError", "TypeError: 'NoneType'", "NotImplementedError")  # eagerly: the program has lost what it is about
# The results of one of AOTAutograd's graphs have one backward: gradients are zeros where eager code has none, and what one result needs goes
# with another's.
ONE_BACKWARD = re.compile(
    r"/grad\[1\]: 2 parts != \d+ parts: \('NoneType', 'None'\) != \('tensor'"
    r"|backward: '\d+ differentiated' != 'RuntimeError: Trying to backward through the graph a second time"
)


class Invalid(Exception):
    """Eager code can't make the program, or does not do the same twice."""


def difference(program: Program, twin: str) -> str | None:
    """How a twin differs from eager code."""
    try:
        with process_kept():
            eager(program)
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    program.tolerance = TOLERANCE.get(twin, 0.0)
    try:
        with process_kept():
            # What AOTAutograd compiles keeps nothing for a second backward; the sum's order is within the tolerance.
            check(dataclasses.replace(program, one_by_one=False) if twin in TOLERANCE else program, twin)
    except Different as found:
        return str(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def has_one_backward(random_program: RandomProgram, twin: str, how: str) -> bool:
    """Whether all that differs is what follows from one backward for all results of a graph."""
    if not twin.startswith("aot") or ONE_BACKWARD.search(how.split("\n  ")[1] if "\n  " in how else how) is None:
        return False
    program = random_program.program()
    program.backward = False
    return difference(program, twin) is None


def kind(how: str) -> str:
    """Where a difference shows, without names and numbers."""
    line = re.sub(r"^call \d+, ", "", how.split("\n  ")[1] if "\n  " in how else how)
    return re.sub(r"[\d\[\]#]+|u\d+", "", line).split(": ")[0]


def differs(candidate: RandomProgram, twin: str, wanted: str) -> bool:
    """Whether a program that eager code can run differs in the same place."""
    try:
        program = candidate.program()
        how = difference(program, twin)
        made = program.expected is not None and not any(call.error.startswith(MISSING) for call in program.expected)
        return how is not None and made and kind(how) == wanted and difference(candidate.program(), "identity") is None
    except (Invalid, SyntaxError):
        return False


def bodies(statements: list[Statement]) -> Iterator[list[Statement]]:
    yield statements
    for statement in statements:
        for _, body in statement.clauses:
            yield from bodies(body)


def smaller(random_program: RandomProgram) -> Iterator[RandomProgram]:
    """Each program that lacks a call, a statement, a clause, or a statement around others."""
    if random_program.calls > 1:
        fewer = copy.deepcopy(random_program)
        fewer.calls -= 1
        yield fewer
    for place, body in enumerate(list(bodies(random_program.tree))):
        for index in reversed(range(len(body))):
            for edit in edits(body[index]):
                candidate = copy.deepcopy(random_program)
                edit(list(bodies(candidate.tree))[place], index)
                yield candidate


def edits(statement: Statement) -> Iterator[Callable[[list[Statement], int], None]]:
    def drop(body: list[Statement], index: int) -> None:
        del body[index]

    yield drop
    for which in range(len(statement.clauses)):

        def unwrap(body: list[Statement], index: int, which: int = which) -> None:
            body[index : index + 1] = body[index].clauses[which][1]

        yield unwrap
        if len(statement.clauses) > 1 and which:

            def without(body: list[Statement], index: int, which: int = which) -> None:
                del body[index].clauses[which]

            yield without


def shrink(random_program: RandomProgram, twin: str, seconds: float = 60) -> RandomProgram:
    """A program that differs still, and from which nothing can be taken."""
    end = time.monotonic() + seconds
    wanted = kind(difference(random_program.program(), twin) or "")
    while True:
        for candidate in smaller(random_program):
            if time.monotonic() > end:
                return random_program
            if differs(candidate, twin, wanted):
                random_program = candidate
                break
        else:
            return random_program


class Count:
    """How many programs ran, by twin, and what was found."""

    def __init__(self) -> None:
        self.ran: collections.Counter[str] = collections.Counter()
        self.found: list[tuple[int, str, str]] = []
        self.invalid: list[tuple[int, str]] = []
        self.one_backward = 0
        self.raised = self.calls = 0

    def one(self, seed: int, twins: Sequence[str]) -> list[tuple[str, str]]:
        """The twins that differ for a seed, with how."""
        found: list[tuple[str, str]] = []
        random_program = generate(seed)
        program = random_program.program()
        try:
            for twin in twins:
                if (how := difference(program, twin)) is not None:
                    if difference(random_program.program(), "identity") is not None:
                        raise Invalid("eager code does not do the same twice")
                    if has_one_backward(random_program, twin, how):
                        self.one_backward += 1
                    else:
                        found.append((twin, how))
                self.ran[twin] += 1
        except Invalid as error:
            self.invalid.append((seed, str(error)))
            return []
        if program.expected is not None:
            self.calls += len(program.expected)
            self.raised += sum(call.raised for call in program.expected)
        self.found += [(seed, twin, how) for twin, how in found]
        return found

    def __str__(self) -> str:
        ran = ", ".join(f"{twin} {number}" for twin, number in self.ran.items())
        beside = f" (and {self.one_backward} in what one backward for all results makes)" if self.one_backward else ""
        return f"{ran}; {len(self.found)} differ{beside}, {len(self.invalid)} invalid; {self.raised} of {self.calls} eager calls raised"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soundness.module_fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--twins", default=",".join(CHEAP))
    parser.add_argument("--show", action="store_true", help="print each program")
    parser.add_argument("--turns", action="store_true", help="a twin for each program, in turn")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--signals", action="store_true", help="interrupt calls at random moments, and look at the calls behind these")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    twins = options.twins.split(",")
    if options.signals:
        return 1 if fuzz(options.seed, options.programs, options.minutes, twins, generate) else 0
    # What the imports have made stays: the collector need not look at it for each program.
    gc.collect()
    gc.freeze()
    count, start = Count(), time.monotonic()
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() - start > 60 * options.minutes:
            break
        if options.show:
            print(generate(seed).text())
        for twin, how in count.one(seed, [twins[seed % len(twins)]] if options.turns else twins):
            print(f"--- seed {seed}, twin {twin}\n{how}", flush=True)
            if not options.no_shrink:
                least = shrink(generate(seed), twin)
                print(least.text().split("SIGUSR1, on_signal)\n")[1], difference(least.program(), twin), sep="\n", flush=True)
    seconds = time.monotonic() - start
    print(f"{count}\n{seconds:.0f} s, {sum(count.ran.values()) / seconds:.1f} programs and twins per second")
    for seed, why in count.invalid[:20]:
        print(f"invalid: seed {seed}: {why}")
    return 1 if count.found else 0


if __name__ == "__main__":
    sys.exit(main())
