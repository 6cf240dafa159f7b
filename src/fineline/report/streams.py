"""Writes texts where the user wants them: to a file, or to a stream."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

# By name of a stream: its file descriptor.
STREAMS: Mapping[str, int] = MappingProxyType({"-": 1, "/dev/stdout": 1, "/dev/stderr": 2})


def encodable(text: str) -> str:
    """Returns a text with escapes in place of lone surrogates, such as those of a path that is not UTF-8. In JSON an escape is read as the character."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def write_text(path: Path, text: str) -> None:
    """Writes to a file or a stream."""
    text = encodable(text)
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
