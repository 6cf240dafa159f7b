"""Runs of tests in environments, and what they have given: a record for each environment and each set of tests, kept as JSON."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import NamedTuple, TypedDict

from tests.versions.environments import Environment
from tests.versions.interpreters import FOLDER, ROOT, Unavailable, run

RESULTS = FOLDER / "results.json"
# The sets of tests by their folders in tests/, in the order in which failures tell most.
SETS = ("bytecode", "interp", "codegen", "guards", "policy", "soundness", "language")
# Sets that others can be chosen from too.
OTHERS = (
    "models", "region", "faults", "backends", "export", "shapes", "unbacked", "objects", "cpython", "torch_facts", "fake", "fx", "api", "install",
    "background",
)  # fmt: skip
# Exit statuses of pytest: all passed, some failed, none ran.
_PASSED, _FAILED, _NONE = 0, 1, 5


class Record(TypedDict):
    """What a set of tests has given in an environment."""

    python: str
    torch: str
    share: str
    commit: str
    date: str
    seconds: int
    passed: int
    failed: dict[str, str]
    skipped: dict[str, int]


class Chosen(NamedTuple):
    """A set of tests, or a share of it: ``language:0/3`` is its first third."""

    name: str
    share: str = "0/1"

    @classmethod
    def parse(cls, text: str) -> Chosen:
        found = re.fullmatch(rf"({'|'.join([*SETS, *OTHERS])})(?::(\d+/[1-9]\d*))?", text)
        if found is None:
            raise ValueError(text)
        return cls(found[1], found[2] or "0/1")


Results = dict[str, dict[str, Record]]


def run_set(environment: Environment, chosen: Chosen, processes: str) -> Record:
    """Runs a set of tests; raises `Unavailable` if the run itself fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        report = Path(folder, "report.xml")
        status = _pytest(environment, [f"tests/{chosen.name}", f"--share={chosen.share}", "-q", "-n", processes, f"--junitxml={report}"])
        passed, failed, skipped = read_report(report.read_text()) if report.exists() else (0, {}, Counter[str]())
    if status == _NONE:
        raise Unavailable("no tests were collected")
    if status not in (_PASSED, _FAILED) or (status == _FAILED) is not bool(failed):
        raise Unavailable(f"pytest ended with the status {status}")
    return Record(
        python=environment.facts["python"],
        torch=environment.facts["torch"],
        share=chosen.share,
        commit=run(["git", "describe", "--always", "--dirty", "--exclude", "*"]).strip(),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began),
        passed=passed,
        failed=dict(sorted(failed.items())),
        skipped=dict(sorted(skipped.items())),
    )


def run_others(environment: Environment, arguments: list[str]) -> bool:
    """Runs pytest with these arguments, which leaves no record; returns whether it passed."""
    return _pytest(environment, arguments) == _PASSED


def _pytest(environment: Environment, arguments: list[str]) -> int:
    # The cache of failed tests would be shared with those of other versions.
    command = [*environment.python, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment.variables}, check=False).returncode


def read_report(text: str) -> tuple[int, dict[str, str], Counter[str]]:
    """Returns of a JUnit report how many tests passed, the texts of those that failed, and the reasons of those left out with their numbers."""
    passed, failed, skipped = 0, dict[str, str](), Counter[str]()
    for case in ElementTree.fromstring(text).iter("testcase"):
        faults = [*case.findall("failure"), *case.findall("error")]
        omitted = case.find("skipped")
        if faults:
            failed[f"{case.get('classname')}::{case.get('name')}"] = (faults[0].get("message") or "").partition("\n")[0][:300]
        elif omitted is not None:
            # The reason why a whole file is left out is in the text.
            whole_file = re.search(r"Skipped: (.*)['\"]\)$", (omitted.text or "").strip())
            reason = whole_file[1] if whole_file is not None else (omitted.get("message") or "no reason given").partition("\n")[0]
            skipped[f"known gap: {reason}" if omitted.get("type") == "pytest.xfail" else reason] += 1
        else:
            passed += 1
    return passed, failed, skipped


def read(file: Path) -> Results:
    results: Results = json.loads(file.read_text()) if file.exists() else {}
    return results


def write(file: Path, results: Results) -> None:
    """Writes results in one piece: runs may be interrupted."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    new.replace(file)


def keep(environment: Environment, chosen: Chosen, record: Record) -> None:
    results = read(RESULTS)
    results.setdefault(environment.name, {})[chosen.name] = record
    write(RESULTS, results)


def newest(first: Results, second: Results) -> Results:
    """Returns of two results, for each environment and set, the record of the later run."""
    merged: Results = {name: dict(sets) for name, sets in first.items()}
    for name, sets in second.items():
        for chosen, record in sets.items():
            known = merged.setdefault(name, {}).get(chosen)
            if known is None or known["date"] < record["date"]:
                merged[name][chosen] = record
    return merged
