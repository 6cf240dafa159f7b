"""What the first call of a compiled function costs over CPython, where the function is Python code with hardly a tensor.

    python -m benchmarks.python_code [--steps 100 400 1600] [--kinds loop try] [--torch-compile]

Each kind of code is run with several numbers of steps; a kind whose cost per step grows is marked. With ``--torch-compile`` the same first
calls go through torch.compile with its eager backend, in the same process, for the least number of steps (it takes long).
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import fineline
from benchmarks.results import save

STEPS = [100, 400, 1600]
# From one number of steps to the next, the cost of a step may grow by so much before it is marked.
GROWTH = 1.8


def repeated(statement: str) -> Callable[[int], str]:
    """Returns what writes a function with the statement once for each step; ``#`` is the step."""

    def text(n: int) -> str:
        statements = "".join("    " + statement.replace("#", str(k)).replace("\n", "\n    ") + "\n" for k in range(n))
        return f"def fn(x):\n    a, l, d = 1, [], {{}}\n{statements}    return x + 1\n"

    return text


def looped(statement: str, before: str = "") -> Callable[[int], str]:
    """Returns what writes a function with the statement in a loop over the steps."""
    return lambda n: f"{before}\ndef fn(x):\n    a, l, d, s, t = 0, [], {{}}, set(), ''\n    for i in range({n}):\n        {statement}\n    return x + 1\n"


POINT = "class Point:\n    def __init__(self, a):\n        self.a = a\n    def moved(self):\n        return Point(self.a + 1)\n"
KINDS: dict[str, Callable[[int], str]] = {
    "loop over integers": looped("a += i * 2 % 7"),
    "text": looped("t += str(i)"),
    "list": looped("l.append(i); a += l[-1]"),
    "dict": looped("d[i] = a; a = d.get(i - 1, 0)"),
    "set": looped("s.add(i); a = i in s"),
    "tuple that grows": looped("a = (*a, i) if i else ()"),
    "comprehension": lambda n: f"def fn(x):\n    return x + len([i * 2 for i in range({n}) if i % 3])\n",
    "generator": lambda n: f"def fn(x):\n    return x + sum(i * 2 for i in range({n}))\n",
    "instances": looped("a = Point(i).moved().a", POINT),
    "nested calls": looped("a = f(i)", "def g(k):\n    return k + 1\ndef f(k):\n    return g(k) * 2"),
    "recursion": lambda n: f"def g(k):\n    return 0 if k == 0 else 1 + g(k - 1)\ndef fn(x):\n    return x + sum([g(20) for _ in range({n // 20})])\n",
    "loop that is called": lambda n: f"def g(n):\n    a = 0\n    for i in range(n):\n        a += i * 2 % 7\n    return a\ndef fn(x):\n    return x + g({n})\n",
    "text that is called": lambda n: f"def g(n):\n    return '-'.join([str(i) for i in range(n)])\ndef fn(x):\n    return x + len(g({n}))\n",
    "assignments": repeated("a#_ = a + #"),
    "branches": repeated("if a:\n    a = # + 1\nelse:\n    a = 1"),
    "try": repeated("try:\n    a = #\nexcept ValueError:\n    a = 0"),
    "raise": repeated("try:\n    raise ValueError(#)\nexcept ValueError:\n    a = 0"),
    "with": repeated("with torch.no_grad():\n    a = #"),
    "calls": lambda n: "def g(a):\n    return a\n" + repeated("a = g(#)")(n),
    "closures": repeated("l.append(lambda: a)"),
    "list elements": lambda n: "def fn(x):\n    a = 1\n    return x + len([" + "a, " * n + "])\n",
    "dict entries": lambda n: "def fn(x):\n    a = 1\n    return x + len({" + ", ".join(f"'k{k}': a" for k in range(n)) + "})\n",
    "attributes": lambda n: f"{POINT}p = Point(0)\nfor k in range({n}):\n    setattr(p, f'a{{k}}', k)\n" + repeated("a = p.a#")(n),
    "attributes written": lambda n: f"{POINT}p = Point(0)\n" + repeated("p.a# = #")(n),
    "objects written": lambda n: f"{POINT}ps = [Point(k) for k in range({n})]\ndef fn(x):\n    for p in ps:\n        p.a = 5\n    return x + 1\n",
    "parameters": lambda n: f"ps = [torch.ones(2) for _ in range({n})]\ndef fn(x):\n    for p in ps:\n        x = x + p\n    return x\n",
    "modules": lambda n: f"m = torch.nn.Sequential(*[torch.nn.ReLU() for _ in range({n})])\ndef fn(x):\n    return m(x)\n",
}


def function(text: str) -> Callable[[torch.Tensor], Any]:
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(text, "<kind>", "exec"), namespace)
    fn: Callable[[torch.Tensor], Any] = namespace["fn"]
    return fn


def first_call(text: str, compiler: Callable[[Callable], Callable]) -> float:
    """The seconds of processor time that a first call takes; what is there already is no matter for the collector."""
    fn, x = compiler(function(text)), torch.ones(2)
    gc.collect()
    gc.freeze()
    start = time.process_time()
    fn(x)
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS], metavar="KIND")
    parser.add_argument("--torch-compile", action="store_true", help="the least number of steps through torch.compile as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    compilers: dict[str, Callable] = {"CPython": lambda fn: fn, "fineline": lambda fn: fineline.compile(fn, backend="eager")}
    for compiler in compilers.values():
        first_call(KINDS["try"](3), compiler)
    steps = sorted(options.steps)
    print(f"{'first call':<22}" + "".join(f"{n:>9} steps" for n in steps) + "   over CPython")
    results: dict[str, float] = {}
    for kind in options.kinds:
        texts = [KINDS[kind](n) for n in steps]
        times = [min(first_call(text, compilers["fineline"]) for _ in range(3)) for text in texts]
        plain = min(first_call(texts[-1], compilers["CPython"]) for _ in range(5))
        grows = any([b / a > GROWTH * m / n for a, b, n, m in zip(times, times[1:], steps, steps[1:], strict=False)])
        line = f"{kind:<22}" + "".join(f"{1e3 * t:>12.1f} ms" for t in times) + f"{times[-1] / plain:>12.0f} x" + (", not linear" if grows else "")
        results[f"{kind}: over CPython"] = times[-1] / plain
        if options.torch_compile:
            torch.compiler.reset()
            other = first_call(texts[0], lambda fn: torch.compile(fn, backend="eager"))
            results[f"{kind}: torch.compile over fineline"] = other / times[0]
            line += f", torch.compile at {steps[0]} steps {1e3 * other:.1f} ms"
        print(line, flush=True)
    save("python_code", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
