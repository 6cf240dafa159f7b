"""Every sentence of the specification's sections 1 to 3 is quoted by a test, and by one that goes through both doors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = ROOT / "docs" / "spec" / "control.md"

pytestmark = pytest.mark.oracle

# What is not to be shown through each door by itself, by how the sentence begins, and why.
ONE_DOOR = {
    "Policy(disable=": "PyTorch has no policies",
    "it is immutable": "PyTorch has no policies",
    "A rule that names something": "PyTorch has no policies",
    "Same signatures as PyTorch's": "it holds the doors against each other",
    "install() / uninstall()": "it is about the second door itself",
    "region defaults can be given": "it is about the second door itself",
    "Code that carries PyTorch's own marks": "it is about PyTorch's names while the second door is shut",
}


def plain(text: str) -> str:
    """Without markup, and all white space alike."""
    return " ".join(text.replace("->", "→").replace("`", "").replace("*", "").split())


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, list items, rows of tables without their heads, and pieces of code."""
    for place, part in enumerate(text.split("```")):
        if place % 2:
            yield part.partition("\n")[2]
            continue
        rows = re.findall(r"(?m)^\|.*\|$", part)
        yield from (row for row in rows if not set(row) <= set("|- ") and f"{row}\n|---" not in part)
        prose = re.sub(r"(?m)^(\||##).*$", "", part)
        yield from re.split(r"\n\s*\n|\n(?=- )", prose)


def sentences(block: str) -> Iterator[str]:
    """Cut where a full stop or a semicolon stands, but neither in parentheses nor in code."""
    if block.startswith("|") or "\n    " in block:
        yield plain(block)
        return
    start, depth, code = 0, 0, False
    for place, letter in enumerate(block := block.strip().removeprefix("- ") + " "):
        code ^= letter == "`"
        depth += (letter == "(") - (letter == ")") if not code else 0
        if letter in ".;" and block[place + 1].isspace() and not depth and not code or place == len(block) - 1:
            if piece := plain(block[start : place + 1]).rstrip(".;"):
                yield piece
            start = place + 1


def specified() -> list[str]:
    text = SPECIFICATION.read_text()
    sections = re.split(r"(?m)^## (?=\d)", text)
    return [s for part in sections if part[0] in "123" for block in blocks(part.partition("\n")[2]) for s in sentences(block)]


def quotes() -> dict[str, bool]:
    """What tests say that they are about, and whether they go through both doors."""
    found = {}
    # What has the syntax of a newer Python tests Python, and quotes nothing.
    for file in [path for path in (ROOT / "tests").rglob("test_*.py") if "new_syntax" not in path.parts]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and (said := ast.get_docstring(node, clean=False)):
                both = any(a.arg in ("door", "installed") for a in node.args.args)
                found[plain(said)] = found.get(plain(said), False) or both
    return found


def test_every_sentence_is_quoted():
    known = quotes()
    wanted = specified()
    assert len(wanted) >= 80
    missing = [s for s in wanted if not any(s in said for said in known)]
    assert not missing, "\n".join(missing)


def test_every_sentence_is_shown_through_both_doors():
    known = [said for said, both in quotes().items() if both]
    missing = [s for s in specified() if not any(s in said for said in known) and not s.startswith(tuple(ONE_DOOR))]
    assert not missing, "\n".join(missing)


def test_what_one_door_has_is_specified():
    assert [start for start in ONE_DOOR if not any(s.startswith(start) for s in specified())] == []
