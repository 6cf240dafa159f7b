"""Finds the zoo of models and runs its bench script, one model and one front end at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.results import RESULTS, ROOT

ZOO = Path(os.environ.get("FINELINE_ZOO", ROOT / "models"))

LIST = "import json, zoo; print(json.dumps([[e.name, e.kind, e.train] for e in zoo.REGISTRY.values()]))"


def runs(modes: list[str], models: list[str] | None) -> list[tuple[str, str]]:
    """The (model, mode) pairs to measure: a training step has no inference run, and not every model trains."""
    if not (ZOO / "bench.py").exists():
        sys.exit(f"The zoo is not at {ZOO}: set FINELINE_ZOO to the folder that holds its bench.py and zoo.py.")
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    out = subprocess.run([sys.executable, "-c", LIST], cwd=ZOO, env=env, capture_output=True, text=True, check=True).stdout
    entries = json.loads(out.splitlines()[-1])
    unknown = set(models or ()) - {name for name, _, _ in entries}
    if unknown:
        sys.exit(f"The zoo has no {', '.join(sorted(unknown))}; it has {', '.join(name for name, _, _ in entries)}.")
    wanted = [entry for entry in entries if not models or entry[0] in models]
    return [(name, mode) for mode in modes for name, kind, train in wanted if (train if mode == "train" else kind != "step")]


def run(model: str, mode: str, front_end: str, reps: int, timeout: float) -> dict[str, Any]:
    """What the bench script records of one model in a fresh process; its output is kept under ``results/logs``."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "record.jsonl"
        command = [sys.executable, str(ZOO / "bench.py"), "--models", model, "--mode", mode, "--frontend", front_end, "--out", str(out)]
        command += ["--reps", str(reps), "--timeout", str(timeout), "--logs", str(RESULTS / "logs")]
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if not out.exists():
            return {"model": model, "mode": mode, "frontend": front_end, "status": "crash", "error": done.stderr[-500:]}
        record: dict[str, Any] = json.loads(out.read_text().splitlines()[-1])
        return record
