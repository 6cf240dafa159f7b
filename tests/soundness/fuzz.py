"""Random programs for as long as you like: ``python -m tests.soundness.fuzz --minutes 60 [--twins all] [--seed 0] [--kinds arrays,modes]``.

Each round takes a new seed. A program that fails is made smaller, printed with what differs, and the next round goes on. The program
that is running lies in a file, in case it brings the process down. Ends with the number of programs and findings (exit status 1 if any).
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky

from tests import oracle
from tests.soundness.generator import kinds_of, program_of, programs
from tests.soundness.tensor_kinds import KINDS, PLAIN

RUNNING = Path(tempfile.gettempdir()) / f"fineline-fuzz-running-{os.getpid()}.py"


class Fuzz:
    def __init__(self, twins: list[str], shrink: bool, kinds: list[str] | None = None) -> None:
        self.twins = twins
        self.kinds = kinds or [PLAIN, *KINDS]
        self.ran: collections.Counter[str] = collections.Counter()
        self.phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
        self.programs = self.calls = self.captures = self.hits = 0
        self.findings: collections.Counter[str] = collections.Counter()
        self.until = float("inf")
        self.last = ("", "")

    def one(self, source: str) -> None:
        """Runs one program under every twin; raises at the first difference."""
        if time.process_time() > self.until:
            return
        RUNNING.write_text(source)
        program = program_of(source)
        self.programs += 1
        self.ran.update(kinds_of(source))
        for twin in self.twins:
            faulthandler.dump_traceback_later(600, exit=True)  # seconds that pass: a machine with other work may take minutes for one
            try:
                calls = oracle.check(program, twin)
            except AssertionError as error:
                if oracle.compare(oracle.eager(program), oracle.run(program, lambda fn: fn)):
                    return  # eager code does not do the same twice
                self.last = (source, str(error))
                raise
            except Exception as error:  # the oracle itself lets no exception of a program through
                self.last = (source, f"{twin}: {type(error).__name__}: {error}")
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()
            self.calls += len(calls)
            self.captures += sum(call.compiled > 0 for call in calls)
            self.hits += sum(call.ran > 0 and not call.compiled for call in calls)

    def round(self, number: int, examples: int) -> None:
        @seed(number)
        @settings(
            max_examples=examples, phases=self.phases, database=None, deadline=None, derandomize=False, report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck), print_blob=False,
        )  # fmt: skip
        @given(source=programs(self.kinds))
        def run(source: str) -> None:
            self.one(source)

        self.last = ("", "")
        try:
            run()
        except (Exception, Flaky) as error:
            source, text = self.last
            if not source:
                raise error
            key = re.sub(r"\d+", "#", "\n".join(text.splitlines()[:2]).replace("[", " ["))[:160]
            self.findings[key] += 1
            if self.findings[key] == 1:
                body = source[source.index("class Base") :]
                print(f"\n{'=' * 30} finding, round {number}\n{body}\n# " + "\n# ".join(text.splitlines()), flush=True)
            else:
                print(f"round {number}: seen before: {key.splitlines()[-1]}", flush=True)

    def report(self) -> str:
        done = f"{self.programs} programs, {self.calls} compiled calls ({self.captures} captured, {self.hits} served by captured programs)"
        done += f", kinds: {', '.join(f'{name} {count}' for name, count in sorted(self.ran.items()))}"
        return f"{done}; {sum(self.findings.values())} rounds with a finding, {len(self.findings)} different"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soundness.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of processor time [%(default)s]")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="of the first round")
    parser.add_argument("--examples", type=int, default=200, help="programs per round")
    parser.add_argument("--twins", default="captured,borders,limit1,fake,dynamic,strict", help="fast, all, or a list with commas")
    parser.add_argument("--kinds", default=",".join([PLAIN, *KINDS]), help="what programs are about, a list with commas [%(default)s]")
    parser.add_argument("--no-shrink", action="store_true", help="print findings as they are")
    parser.add_argument("--replay", metavar="FILE", help="run one program from a file instead")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    fuzz = Fuzz(oracle.CHOICES.get(options.twins) or options.twins.split(","), not options.no_shrink, options.kinds.split(","))
    if options.replay:
        fuzz.one(Path(options.replay).read_text())
        print("no difference")
        return 0
    fuzz.until = time.process_time() + options.minutes * 60
    number = options.seed
    while time.process_time() < fuzz.until:
        fuzz.round(number, options.examples)
        number += 1
        print(f"[seed {number - 1}] {fuzz.report()}", flush=True)
    return 1 if fuzz.findings else 0


if __name__ == "__main__":
    sys.exit(main())
