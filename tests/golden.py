"""The golden file: graphs, operators, guards and graph breaks of each model's first call. A change of the engine changes only the lines it explains.

    make test ARGS="tests/models/test_zoo.py -n 0 --write-golden"    writes the file
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

import fineline
from fineline.api import regions

# What a library has imported before is guarded too: the same model has up to 1.3 % more guards after other models than alone.
GUARDS_VARY = 0.03
FILE = Path(__file__).parent / "models" / "golden.json"


def counts(compiled: Any, graphs: Iterable[torch.fx.GraphModule]) -> dict[str, int]:
    """Returns what a first call has given: ``graphs`` are those that the backend got."""
    nodes = [sum(node.op.startswith("call") for node in gm.graph.nodes) for gm in graphs]
    segments = max(regions(), key=lambda region: region.made).segments()
    breaks = len(fineline.report(compiled).breaks)
    return {"graphs": len(nodes), "operators": sum(nodes), "guards": sum(len(segment.steps) for segment in segments), "breaks": breaks}


def compare(key: str, found: dict[str, int], write: bool) -> None:
    """Compares with the line of ``key``, or writes it."""
    lines = json.loads(FILE.read_text()) if FILE.exists() else {}
    if not write:
        line = lines[key]
        hint = f"{key}: {line}; if the change explains it: make test ARGS='tests/models/test_zoo.py -n 0 --write-golden'"
        assert found | {"guards": line["guards"]} == line, hint
        assert abs(found["guards"] - line["guards"]) <= GUARDS_VARY * line["guards"], hint
        return
    lines[key] = found
    FILE.write_text("{\n" + ",\n".join([f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(lines.items())]) + "\n}\n")
