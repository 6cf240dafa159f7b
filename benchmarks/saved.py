"""First calls of a second process: programs from a file, beside torch.compile with warm caches, in the same run.

    python -m benchmarks.saved [--models bert,gpt,llama,t5] [--rounds 3] [--check]

Inductor, one thread, without gradients. A first process of each front end fills the caches: fineline saves a file, torch.compile leaves AOTAutograd's
and Inductor's caches on disk. Then new processes import everything, build the model and run it eagerly; what is measured is compiling (for fineline
`load`) and the first call. The rounds alternate between the front ends; the numbers are medians. Aim: three times as fast.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.results import ROOT, save

AIM = 3.0
PROGRAM = """
import json, logging, sys, time
import torch
logging.disable(logging.WARNING)
torch.set_num_threads(1)
front, at, path, saves = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "save"
import torch._dynamo, torch._inductor.compile_fx
import fineline, fineline.region.region, fineline.saving.document
from examples.models import EXAMPLES
example = EXAMPLES[at]
model, inputs = example.build(), example.inputs(0)
with torch.no_grad():
    expected = model(**inputs)
    began = time.perf_counter()
    compiled = fineline.load(path, model) if front == "fineline" and not saves else (fineline if front == "fineline" else torch).compile(model)
    made = time.perf_counter()
    found = compiled(**inputs)
    ended = time.perf_counter()
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-3, atol=1e-4)
    if saves and front == "fineline":
        assert fineline.save(compiled, path) == 1
    captured = sum(event.kind == "graph" for event in fineline.report(compiled).events) if front == "fineline" else None
print(json.dumps({"made": made - began, "first": ended - made, "captured": captured}))
"""


def run(front: str, at: int, folder: Path, saves: bool) -> dict[str, float]:
    """Runs one process; returns its numbers."""
    # Each front end has caches of its own.
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    own = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / front), "PYTHONPATH": paths}
    arguments = [front, str(at), str(folder / f"{at}.captures"), "save" if saves else "load"]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, env=own)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bert,gpt,llama,t5", help="first letters of the models' names, by comma")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with an error if the aim is missed")
    options = parser.parse_args()
    names = ["bert", "gpt", "llama", "t5"]
    rows = {}
    print(f"{'model':<8}{'load':>10}{'first call':>12}{'together':>10}{'torch.compile':>15}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for at, model in enumerate(names):
            if not model.startswith(tuple(options.models.split(","))):
                continue
            for front in ("fineline", "torch.compile"):
                run(front, at, folder, saves=True)
            rounds = [(run("fineline", at, folder, False), run("torch.compile", at, folder, False)) for _ in range(options.rounds)]
            assert all([own["captured"] == 0 for own, _ in rounds])
            load, first = [statistics.median([own[part] for own, _ in rounds]) for part in ("made", "first")]
            other = statistics.median([theirs["made"] + theirs["first"] for _, theirs in rounds])
            ratio = statistics.median([(theirs["made"] + theirs["first"]) / (own["made"] + own["first"]) for own, theirs in rounds])
            rows[model] = {"load": load, "first": first, "torch.compile": other, "ratio": ratio}
            print(f"{model:<8}{load:>9.2f}s{first:>11.2f}s{load + first:>9.2f}s{other:>14.2f}s{ratio:>7.1f}x", flush=True)
    save("saved", rows)
    missed = [model for model, row in rows.items() if row["ratio"] < AIM]
    print(f"aim: {AIM:.0f}x; missed by: {', '.join(missed) or 'none'}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
