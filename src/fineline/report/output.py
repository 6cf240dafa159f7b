"""Writes explanations where the user wants them: to a file, as JSON, HTML or text, or to a stream."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fineline.report.html import Chapter, page

# By name of a stream: its file descriptor.
STREAMS: Mapping[str, int] = MappingProxyType({"-": 1, "/dev/stdout": 1, "/dev/stderr": 2})


def write_report(path: Path, chapters: Sequence[Chapter], facts: Callable[[], Mapping[str, object]]) -> None:
    """Writes to ``path``: JSON if its name ends in ``.json``, HTML for ``.html`` or ``.htm``, otherwise text. "-" is standard output."""
    if path.suffix == ".json":
        text = json.dumps(facts(), indent=1) + "\n"
    elif path.suffix in (".html", ".htm"):
        text = page(chapters)
    else:
        text = _text(chapters)
    stream = STREAMS.get(str(path))
    if stream is None:
        path.write_text(text, encoding="utf-8")
        return
    for own in (sys.stdout, sys.stderr):
        # A program may have closed or replaced them.
        with contextlib.suppress(Exception):
            own.flush()
    try:
        with open(stream, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
    except BrokenPipeError:
        # The reader has closed the pipe: the stream is redirected, so that Python does not fail again when it exits.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream)
        os.close(nowhere)


def _text(chapters: Sequence[Chapter]) -> str:
    texts: list[str] = []
    for title, explanations in chapters:
        texts += [f"{title}:"] * bool(title) + list(map(str, explanations))
    return "\n\n".join(texts or ["No compiled function was called."]) + "\n"
