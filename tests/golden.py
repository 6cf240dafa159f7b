"""The golden files: graphs, operators, guards and graph breaks of each model and of each program. A change of the engine changes only the
lines that it explains.

    make test ARGS="tests/models/test_zoo.py --write-golden"    writes those lines of tests/models/golden.json anew
    make test ARGS="--write-golden"                             writes all lines of both files

On a later Python than 3.11, libraries have other code, and comprehensions no functions of their own; other releases of PyTorch have other code in
Python. The lines that differ there have files of their own beside each, such as golden-3.12.json and golden-torch-2.15.json, and are written there.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

import fineline
from fineline.api import regions
from fineline.region.region import Region

# The release of PyTorch that the files are written with. PyTorch's own code in Python is guarded too, and differs from release to release.
WRITTEN_WITH = (2, 13)
RUNS_ON = tuple(map(int, torch.__version__.split(".")[:2]))
# What a library has imported before is guarded too: the same model has up to 1.3 % more guards after other models than alone.
GUARDS_VARY = 0.03 if RUNS_ON == WRITTEN_WITH else 0.25
# The Python whose lines are in the files without a version.
BASE = (3, 11)
MODELS = Path(__file__).parent / "models" / "golden.json"
PROGRAMS = Path(__file__).parent / "language" / "golden.json"
COLUMNS = ("graphs", "operators", "guards", "breaks")


def counts(region: Region, graphs: Iterable[torch.fx.GraphModule], breaks: int) -> dict[str, int]:
    """Returns what calls have given: ``graphs`` are those that the backend got."""
    nodes = [sum(node.op.startswith("call") for node in gm.graph.nodes) for gm in graphs]
    guards = sum([len(segment.steps) for segment in region.segments()])
    return {"graphs": len(nodes), "operators": sum(nodes), "guards": guards, "breaks": breaks}


def of_model(compiled: Any, graphs: Iterable[torch.fx.GraphModule]) -> dict[str, int]:
    """Returns what the first call of a model has given."""
    return counts(newest_region(), graphs, len(fineline.report(compiled).breaks))


def newest_region() -> Region:
    return regions()[-1]


class Keys:
    """The keys of the programs that a process has run: a test may run several of one name."""

    def __init__(self) -> None:
        self._runs: Counter[str] = Counter()

    def next(self, name: str) -> str | None:
        """Returns the key of the program that the current test of tests/language runs; None in other tests."""
        key = _key_of_program(name)
        if key is None:
            return None
        self._runs[key] += 1
        return key if self._runs[key] == 1 else f"{key} ({self._runs[key]})"


def _key_of_program(name: str) -> str | None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    if not test.startswith("tests/language/"):
        return None
    test = test.removeprefix("tests/language/").replace("[captured-", "[").replace("-captured]", "]")
    return test if name in test else f"{test} {name}"


def _files(file: Path) -> list[Path]:
    """Returns the files with the lines of this Python and this PyTorch. A line of a later file replaces one of an earlier file."""
    python, torch_ = sys.version_info[:2], RUNS_ON
    found = [(python, BASE, f"{file.stem}-{python[0]}.{python[1]}"), (torch_, WRITTEN_WITH, f"{file.stem}-torch-{torch_[0]}.{torch_[1]}")]
    return [file, *[file.with_stem(stem) for here, usual, stem in found if here != usual]]


def _read(file: Path) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {}
    return lines


@functools.cache
def _lines(file: Path) -> Mapping[str, list[int]]:
    return functools.reduce(operator.or_, map(_read, _files(file)))


def same(known: list[int], found: list[int]) -> bool:
    """Returns whether two lines agree, but for a few guards."""
    at = COLUMNS.index("guards")
    others = [k for k in range(len(COLUMNS)) if k != at]
    return [known[k] for k in others] == [found[k] for k in others] and abs(found[at] - known[at]) <= max(GUARDS_VARY * known[at], 1)


def compare(file: Path, key: str, found: dict[str, int], write: bool) -> None:
    """Compares with the line of ``key``, or writes it."""
    if write:
        # Of several processes; in one piece.
        with _written(file).open("a") as out:
            out.write(json.dumps({key: [found[name] for name in COLUMNS]}) + "\n")
        return
    known = _lines(file).get(key)
    if known is None and RUNS_ON != WRITTEN_WITH:
        # A program of what that PyTorch has not: an option of an optimizer, for one.
        return
    assert known is not None, f"{key} has no line in {file}: {found}; make test ARGS='... --write-golden' writes it"
    line = dict(zip(COLUMNS, known, strict=True))
    hint = f"{key}: {line}, found {found}; if the change explains it: make test ARGS='... --write-golden'"
    assert same(known, [found[name] for name in COLUMNS]), hint


def _written(file: Path) -> Path:
    return file.with_suffix(".lines")


def finish() -> None:
    """Puts the lines that all processes have written into the files."""
    for file in (MODELS, PROGRAMS):
        written = _written(file)
        if not written.exists():
            continue
        *others, own = _files(file)
        lines, base = _read(own), functools.reduce(operator.or_, map(_read, others), {})
        for text in written.read_text().splitlines():
            for key, line in json.loads(text).items():
                lines.pop(key, None)
                if key not in base or not same(base[key], line):
                    lines[key] = line
        own.write_text("{\n" + ",\n".join([f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(lines.items())]) + "\n}\n")
        written.unlink()
