"""What `import fineline` costs after `import torch`, up to a compiled function and up to its first call, and `import torch._dynamo`.

    python -m benchmarks.import_time [--check]

Each in processes of its own, in seconds of processor time, with warm bytecode files: the first process writes them and does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.results import save

ROUNDS = 5
TARGET = 0.15
COMPILED = "import fineline; f = fineline.compile(lambda x: x + 1, backend='eager'); fineline.Policy(disallow=['aten::nonzero'])"
CASES = {
    "import fineline": "import fineline",
    "and compile a function": COMPILED,
    "and call it": f"{COMPILED}; f(torch.ones(3))",
    "import torch._dynamo": "import torch._dynamo",
}


def seconds(code: str, environment: dict[str, str]) -> float:
    timed = f"import time, torch; t = time.process_time(); {code}; print(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True, env=environment).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when a compiled function costs more than 0.15 s before its first call")
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        environment.setdefault("PYTHONPYCACHEPREFIX", cache)
        for name, code in CASES.items():
            results[name] = statistics.median([seconds(code, environment) for _ in range(ROUNDS + 1)][1:])
    for name, value in results.items():
        print(f"{name:<25}{value:>7.3f} s{value / results['import torch._dynamo']:>8.3f} of import torch._dynamo", flush=True)
    save("import_time", results)
    return 1 if options.check and results["and compile a function"] > TARGET else 0


if __name__ == "__main__":
    sys.exit(main())
