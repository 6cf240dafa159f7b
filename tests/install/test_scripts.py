"""Scripts as people write them for torch.compile, run on fineline without an edit; each checks itself, and holds with PyTorch's own too."""

from __future__ import annotations

import logging
import runpy
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch.testing._internal.common_utils

import fineline
from fineline.report.events import LISTENERS

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
NEEDS = {"generate_loop": "transformers"}


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["script"])
    # With CI=true in the environment, PyTorch's test runner would write XML with a package of PyTorch's own CI.
    monkeypatch.setattr(torch.testing._internal.common_utils, "IS_CI", False)
    fineline.install()
    yield
    fineline.uninstall()
    fineline.reset()
    torch._dynamo.reset()
    torch._logging.set_logs()
    logging.getLogger("torch").setLevel(logging.NOTSET)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script):
    pytest.importorskip(NEEDS.get(script.stem, "torch"))
    heard: list = []
    before = LISTENERS.all
    LISTENERS.all = (*before, heard.append)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as done:
        assert not done.code
    finally:
        LISTENERS.all = before
    assert any(event.kind == "graph" for event in heard)
