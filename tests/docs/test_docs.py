"""The examples of the documents, run as they stand."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

import fineline

ROOT = Path(__file__).parent.parent.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks, f"{page} has no example"
    name = "page_" + re.sub(r"\W", "_", page)
    module = types.ModuleType(name)
    # As a file of its own: rules go by file and by name.
    file = tmp_path / f"{name}.py"
    file.write_text("\n\n".join(blocks))
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)
    try:
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    finally:
        fineline.reset()
