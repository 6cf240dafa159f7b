"""Where benchmarks leave their numbers, so that ``benchmarks.table`` can print them side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def save(name: str, data: Any) -> None:
    """Writes ``results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")


def load(name: str) -> Any | None:
    """Reads it back; None where that benchmark has not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
