"""Writes explanations as JSON, HTML or text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fineline.import_thread import LateModule
from fineline.report.page_facts import FunctionReport
from fineline.report.streams import encodable, write_text

if TYPE_CHECKING:
    from fineline.report import page
else:
    # It needs Jinja2.
    page = LateModule("fineline.report.page")


def write_report(path: Path, reports: Sequence[FunctionReport], facts: Callable[[], Mapping[str, object]]) -> None:
    """Writes to ``path``: JSON if its name ends in ``.json``, HTML for ``.html`` or ``.htm``, otherwise text. "-" is standard output."""
    if path.suffix == ".json":
        text = json.dumps(facts(), indent=1) + "\n"
    elif path.suffix in (".html", ".htm"):
        text = page.page(reports)
    else:
        text = _text(reports)
    write_text(path, text)


def shown_in_notebook(report: FunctionReport) -> str:
    """Returns the HTML by which a notebook shows the page of a function."""
    return encodable(page.frame(page.page([report])))


def _text(reports: Sequence[FunctionReport]) -> str:
    texts: list[str] = []
    process = ""
    for report in reports:
        if report.process != process:
            process = report.process
            texts.append(f"{process}:")
        texts.append(report.text)
    return "\n\n".join(texts or ["No compiled function was called."]) + "\n"
