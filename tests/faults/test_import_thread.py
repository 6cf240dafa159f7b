"""Calls on a thread of their own: what they return and raise, and imports that wait for each other."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path

import pytest

from fineline import import_thread

NEEDED = """
import importlib
from fineline.import_thread import apart

early = 1
found = apart(lambda: importlib.import_module(__name__).early)
"""


def test_what_it_returns_and_raises() -> None:
    assert import_thread.apart(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        import_thread.apart(lambda: 1 // 0)


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert import_thread.apart(threading.current_thread) is threading.current_thread()


def test_an_import_that_waits_for_the_caller_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_thread, "LONGEST", 0.2)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needed_early.py").write_text(NEEDED)
    try:
        assert importlib.import_module("needed_early").found == 1
    finally:
        sys.modules.pop("needed_early", None)
