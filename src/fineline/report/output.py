"""Writes explanations as JSON, HTML or text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fineline.report.html import Chapter, page
from fineline.report.streams import write_text


def write_report(path: Path, chapters: Sequence[Chapter], facts: Callable[[], Mapping[str, object]]) -> None:
    """Writes to ``path``: JSON if its name ends in ``.json``, HTML for ``.html`` or ``.htm``, otherwise text. "-" is standard output."""
    if path.suffix == ".json":
        text = json.dumps(facts(), indent=1) + "\n"
    elif path.suffix in (".html", ".htm"):
        text = page(chapters)
    else:
        text = _text(chapters)
    write_text(path, text)


def _text(chapters: Sequence[Chapter]) -> str:
    texts: list[str] = []
    for title, explanations in chapters:
        texts += [f"{title}:"] * bool(title) + list(map(str, explanations))
    return "\n\n".join(texts or ["No compiled function was called."]) + "\n"
