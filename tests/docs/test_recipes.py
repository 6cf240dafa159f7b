"""The worked examples of CONTRIBUTING.md: each applies to the source as it is, and its test fails without it and passes with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Three changes")[2].partition("\n## ")[0]
RECIPES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", TEXT, re.M | re.S))
BLOCKS = re.compile(r"^ *In `(?P<file>[\w/.]+)`:$|^ *```(?P<kind>\w+)\n(?P<body>.*?)^ *```$", re.M | re.S)
TESTS = """
import json, sys, types, zlib
import numpy as np
from tests.oracle import Different, NotCaptured, Table, check, t

results = []
for source in json.loads(sys.stdin.read()):
    table = Table()
    exec(source)
    [program] = table.programs
    try:
        check(program, "captured")
        results.append("passed")
    except (Different, NotCaptured) as e:
        results.append(str(e))
print(json.dumps(results), file=sys.stderr)
"""


def blocks(recipe: str) -> list[tuple[str, str, str]]:
    """Returns each block of a recipe: the file that it is about, the block's language, and its lines."""
    file, found = "", []
    for match in BLOCKS.finditer(recipe):
        if match["file"]:
            file = match["file"]
        else:
            found.append((file, match["kind"], textwrap.dedent(match["body"])))
    return found


def lines(diff: str, signs: str) -> str:
    """Returns the lines of a diff with one of ``signs`` in front, which are those before or after the change."""
    return "".join([line[1:] for line in diff.splitlines(keepends=True) if line[0] in signs])


def run(source: Path) -> dict[str, str]:
    """Runs the test of each recipe with the fineline in ``source``; returns what became of it."""
    programs = [body for recipe in RECIPES.values() for _, kind, body in blocks(recipe) if kind == "python"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    given = json.dumps(programs)
    done = subprocess.run([sys.executable, "-c", TESTS], env=environment, input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(zip(RECIPES, json.loads(done.stderr.splitlines()[-1]), strict=True))


def test_recipes_fail_without_their_changes_and_pass_with_them(tmp_path: Path) -> None:
    before = run(ROOT / "src")
    assert [title for title, result in before.items() if result == "passed"] == []
    shutil.copytree(ROOT / "src" / "fineline", tmp_path / "fineline")
    for recipe in RECIPES.values():
        for file, diff in [(file, body) for file, kind, body in blocks(recipe) if kind == "diff"]:
            path = tmp_path / Path(file).relative_to("src")
            text, old = path.read_text(), lines(diff, " -").rstrip("\n")
            assert text.count(old) == 1, f"{file} does not have, once:\n{old}"
            path.write_text(text.replace(old, lines(diff, " +").rstrip("\n")))
    assert run(tmp_path) == dict.fromkeys(RECIPES, "passed")


@pytest.mark.parametrize("title", RECIPES)
def test_files_and_names_of_a_recipe_exist(title: str) -> None:
    named = set(re.findall(r"`((?:src|tests)/[\w/.]+)`", RECIPES[title]))
    assert len(named) > 3 and [file for file in named if not (ROOT / file).exists()] == []
    for row in re.findall(r"^ *\|(.*`src/.*)\|$", RECIPES[title], re.M):
        files = [(ROOT / file).read_text() for file in re.findall(r"`(src/[\w/.]+)`", row)]
        names = re.findall(r"`([A-Z_]{4,})`", row)
        assert [name for name in names if not any(re.search(rf"\b{name}\b", text) for text in files)] == []


def test_there_are_three_recipes() -> None:
    assert len(RECIPES) == 3
