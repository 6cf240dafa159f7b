"""Each id that the sources name has its words in the table, and each entry of the table is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fineline
from fineline.refusals import REFUSALS

ROOT = Path(fineline.__file__).parent


def used() -> set[str]:
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        if path.name == "refusals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"FL\d{3}", node.value):
                found.add(node.value)
    return found


def test_the_ids_in_the_sources_are_those_of_the_table() -> None:
    assert used() == set(REFUSALS)


def test_no_two_ids_have_one_title() -> None:
    titles = [entry.title for entry in REFUSALS.values()]
    assert len(set(titles)) == len(titles)
