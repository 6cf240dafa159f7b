"""A process that imports fineline, compiles functions and declares rules, but calls nothing yet, does not load the engine.

Each program runs in a process of its own, which has imported nothing else.
"""

from __future__ import annotations

import collections
import functools
import math
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import fineline
from fineline.tables import is_replaced

DECLARING = """
import sys
import torch
before = set(sys.modules)
import fineline

@fineline.compile
def one(x):
    return x + 1

@fineline.compile(backend="eager", dynamic=True, policy=fineline.Policy(disable=[torch.nn.Linear], disallow=["aten::nonzero"]))
def other(x):
    return x * 2

class Net(torch.nn.Module):
    @fineline.compile(options={"recompile_limit": 4})
    def forward(self, x):
        return x

net = fineline.compile(Net(), fullgraph=True)
fineline.disable(one.__wrapped__)
fineline.allow_in_graph(lambda x: x)
fineline.set_policy(fineline.Policy(forbid=[torch.Tensor.item]))
fineline.set_policy(None)
fineline.mark_dynamic(torch.ones(3, 3), 0)
fineline.register_backend(lambda gm, inputs: gm, name="own")
optimized = fineline.optimize("eager")(lambda x: x)
held = fineline.run(one)
nested = fineline.nested_compile_region(lambda x: x)
with fineline.set_stance("force_eager"), fineline.error_on_graph_break(True):
    pass
fineline.reset()
assert callable(fineline.install) and callable(fineline.export) and callable(fineline.why) and callable(fineline.explain)
new = set(sys.modules) - before
"""
# What only captures need: other packages, and fineline's own packages.
HEAVY = (
    "sympy", "mpmath", "torch.fx.experimental.symbolic_shapes", "torch._functorch._aot_autograd", "torch._dynamo", "torch._inductor", "tomlkit", "rich",
    "jinja2",
)  # fmt: skip
ENGINE = (
    "codegen", "interp", "tensor_ops", "objects", "tracing", "symbolic", "frames", "cpython", "fx", "fake", "region.session", "region.region",
    "builtins.handlers",
)  # fmt: skip


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.later
def test_declaring_loads_no_engine() -> None:
    heavy = (*HEAVY, *[f"fineline.{name}" for name in ENGINE])
    names = {path.relative_to(Path(fineline.__file__).parent).with_suffix("").as_posix() for path in Path(fineline.__file__).parent.rglob("*.py")}
    assert all([any([module == name.replace(".", "/") or module.startswith(name.replace(".", "/") + "/") for module in names]) for name in ENGINE])
    check = f"""
loaded = sorted([name for name in new if name.startswith(tuple([h + "." for h in {heavy!r}])) or name in {heavy!r}])
assert not loaded, loaded
x = torch.ones(3)
assert torch.equal(other(x), x * 2) and "fineline.interp.interpreter" in sys.modules
"""
    run(DECLARING + check)


# What a process does first with a compiled callable, other than to call it alone.
FIRST = {
    "threads": """
import threading
found, start = [], threading.Barrier(8)
def call():
    start.wait()
    found.append(c(x))
threads = [threading.Thread(target=call) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 8 and all([torch.equal(y, f(x)) for y in found]), found
assert len(fineline.report(c).programs) == 1""",
    "a report": "assert fineline.report(c).graphs == []; c(x); assert len(fineline.report(c).graphs) == 1",
    "a report of a module": "n = fineline.compile(net, backend='eager'); assert fineline.report(n).graphs == []; n(x); assert len(fineline.report(n).graphs) == 1",
    "an explanation": "assert len(fineline.explain(c)(x).graphs) == 1",
    "a reset": "fineline.reset(); assert torch.equal(c(x), f(x))",
    "run": "assert torch.equal(fineline.run(c)(x), f(x)) and fineline.report(c).graphs == []",
    "a stance": "fineline.set_stance('force_eager'); assert torch.equal(c(x), f(x)) and fineline.report(c).graphs == []",
    "a copy": "n = copy.deepcopy(fineline.compile(net, backend='eager')); assert torch.equal(n(x), n._orig_mod(x)) and copy.deepcopy(c) is c",
    "a pickle": "n = pickle.loads(pickle.dumps(fineline.compile(net, backend='eager'))); assert torch.equal(n(x), net(x))",
    "a deep stack": """
def deep(n):
    return deep(n - 1) if n else c(x)
assert torch.equal(deep(800), f(x))""",
    "another device": "with torch.device('meta'): y = c(x)\nassert y.device.type == 'cpu' and torch.equal(y, f(x))",
    "inference mode": "with torch.inference_mode(): y = c(x)\nassert torch.equal(y, f(x))",
    "an error": """
def fail(x):
    return x + x.nothing
try:
    fineline.compile(fail, backend="eager")(x)
except AttributeError as e:
    shown = [frame.name for frame in traceback.extract_tb(e.__traceback__)]
assert shown == ["<module>", "fail"], shown""",
    "freed": """
gc.collect()
gc.disable()
n = copy.deepcopy(net)
gone = weakref.ref(n)
compiled = fineline.compile(n, backend="eager")
compiled(x)
del n, compiled
assert gone() is None""",
    "an interrupt": """
import signal
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    c(x)
except KeyboardInterrupt:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
assert torch.equal(c(x), f(x)) and len(fineline.report(c).graphs) == 1""",
    "a signal's handler": """
import signal, time
found = []
signal.signal(signal.SIGALRM, lambda *_: found.append(c(x)))
signal.setitimer(signal.ITIMER_REAL, 0.1)
assert torch.equal(c(x), f(x))
while not found:
    time.sleep(0.01)
assert torch.equal(found[0], f(x)) and torch.equal(c(x), f(x))""",
    "functions replaced by others than functions": """
from unittest import mock
seen = []
class Seen:
    def __init__(self, v):
        seen.append(v)
    def put(self, v):
        seen.append(v)
def step(x):
    copy.copy(2.5)
    return x + 1
for other in (seen.append, Seen, Seen(0).put):
    with mock.patch("copy.copy", other):
        c = fineline.compile(step, backend="eager")
        for _ in range(3):
            seen.clear()
            assert torch.equal(c(x), x + 1) and seen == [2.5], (other, seen)""",
    "replaced functions": """
import functools, math, warnings
from unittest import mock
called = []
def counted(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        called.append(fn)
        return fn(*args)
    return wrapper
def step(x, log):
    log.append(copy.deepcopy([1, 2]))
    warnings.warn("told")
    return torch.nn.functional.relu(x) * math.sqrt(4.0) + torch.sin(x)
c, functional = fineline.compile(step, backend="eager"), torch.nn.functional
with mock.patch("math.sqrt", lambda v: 10.0), mock.patch("copy.deepcopy", lambda v: [7]), mock.patch("warnings.warn") as warn, \
     mock.patch.object(functional, "relu", counted(functional.relu)), mock.patch.object(torch, "sin", counted(torch.sin)):
    for _ in range(3):
        compiled, eager = [], []
        assert torch.equal(c(x, compiled), step(x, eager)) and compiled == eager == [[7]]
    assert warn.call_count == 6 and len(called) == 12
warnings.simplefilter("ignore")
for _ in range(2):
    compiled, eager = [], []
    assert torch.equal(c(x, compiled), step(x, eager)) and compiled == eager == [[1, 2]]""",
}


@pytest.mark.later
@pytest.mark.parametrize("use", FIRST.values(), ids=FIRST)
def test_the_first_use_of_a_compiled_callable(use: str) -> None:
    begin = """
import copy, gc, pickle, sys, traceback, weakref
import torch, fineline
def f(x):
    return x * 2 + 1
x, net = torch.ones(3), torch.nn.Linear(3, 3)
c = fineline.compile(f, backend="eager")
assert "sympy" not in sys.modules
"""
    run(begin + use)


OTHERS = {
    "a method of a list": [].append, "a class": type("Other", (), {}), "a method": pytest.MonkeyPatch().setattr, "a partial": functools.partial(print),
    "a function": run, "a wrapper": functools.wraps(torch.relu)(lambda x: x), "a cache": functools.cache(run), "a mock": mock.Mock(),
    "a function that mocks": mock.create_autospec(torch.relu), "a class method": pytest.MonkeyPatch.context,
}  # fmt: skip
OWN = {
    "in C": torch.sin, "of a module in C": math.floor, "in Python": torch.nn.functional.relu, "a class": collections.OrderedDict, "a method in C": dict.fromkeys,
    "a method": torch.Tensor.add, "a slot": object.__repr__, "an overload": torch.ops.aten.add.Tensor, "NumPy's": np.add,
}  # fmt: skip


@pytest.mark.parametrize(("value", "replaced"), [*[(v, True) for v in OTHERS.values()], *[(v, False) for v in OWN.values()]], ids=[*OTHERS, *OWN])
def test_what_is_replaced(value: object, replaced: bool) -> None:
    assert is_replaced(value) is replaced


def test_nothing_is_replaced_here() -> None:
    from fineline.builtins import handlers

    assert handlers.HANDLERS.keys() == handlers._UNCOUNTED.keys()
