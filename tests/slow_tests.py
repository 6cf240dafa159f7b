"""Tests that take long: `make test` leaves them to CI, which runs a part of them for each commit (``--later``).

    python -m tests.slow_tests durations.txt    writes tests/later.txt anew from what ``pytest --durations=0 -vv`` printed

A test function is listed if all its cases together take longer than `MOST`; it leaves the list where it has become faster.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

LISTED = Path(__file__).parent / "later.txt"
# In seconds, on a machine with other work. With those above it, the default run took 25 minutes of two processes where it is to take 10.
MOST = 9.0
# What says most about whether a change is right runs each time, however long it takes.
KEPT = ("tests/models/test_zoo.py", "tests/soundness/", "tests/test_layers.py")
_LINE = re.compile(r"([\d.]+)s (?:call|setup|teardown)\s+(\S+?::[\w:]+)")


def listed() -> frozenset[str]:
    """Returns the names of the test functions that the default run leaves out, as pytest spells them without parameters."""
    return frozenset(line.split()[1] for line in LISTED.read_text().splitlines() if not line.startswith("#"))


def name_of(nodeid: str) -> str:
    """Returns the name of a test's function, as it is listed."""
    return nodeid.partition("[")[0]


def slow(report: str) -> dict[str, float]:
    """Returns the seconds of each test function that takes long, by its name."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in report.splitlines():
        if found := _LINE.match(line):
            seconds[name_of(found[2])] += float(found[1])
    return {name: took for name, took in seconds.items() if took > MOST and not name.startswith(KEPT)}


def main(report: str) -> None:
    """Writes the list. Tests that did not run, because they are on it already, stay."""
    found = slow(report)
    # A test that is skipped has a setup.
    ran = {name_of(match[2]) for match in map(_LINE.match, report.splitlines()) if match and " call " in match[0]}
    before = {name: float(took) for took, name in (line.split() for line in LISTED.read_text().splitlines() if not line.startswith("#"))}
    lines = {name: took for name, took in before.items() if name not in ran} | found
    head = f"# Test functions that take more than {MOST:.0f} s in one process: python -m tests.slow_tests writes this file.\n"
    LISTED.write_text(head + "".join(f"{lines[name]:.0f} {name}\n" for name in sorted(lines)))


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text())
