"""An exported graph goes to a process in which fineline can't be imported, and does there what it did here."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fineline
from tests.export.models import Batch, Net, Pair, random_and_grad_mode, structures

ROOT = Path(__file__).parent.parent.parent
X = torch.arange(4.0)

THERE = """
import sys, pickle, torch
sys.modules["fineline"] = None
how, path, inputs = sys.argv[1:]
gm = torch.load(path, weights_only=False) if how == "torch" else pickle.load(open(path, "rb"))
args = pickle.load(open(inputs, "rb"))
torch.manual_seed(5)
out = gm(*args)
again = pickle.loads(pickle.dumps(dict(gm.state_dict())))
pickle.dump((out, again, str(gm.graph)), open(inputs, "wb"))
assert not any(name == "fineline" or name.startswith("fineline.") for name in sys.modules if sys.modules[name] is not None)
"""


def there(tmp_path: Path, gm: torch.fx.GraphModule, args: tuple, how: str) -> tuple:
    path, inputs = tmp_path / "graph", tmp_path / "inputs"
    if how == "torch":
        torch.save(gm, path)
    else:
        path.write_bytes(pickle.dumps(gm))
    inputs.write_bytes(pickle.dumps(args))
    # As many threads as here: other ones divide the work, and round, in another way.
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    subprocess.run([sys.executable, "-c", THERE, how, str(path), str(inputs)], check=True, env=env, timeout=120)
    out: tuple = pickle.loads(inputs.read_bytes())
    return out


def parts(value: object) -> object:
    """What `assert_close` can compare."""
    if isinstance(value, (tuple, list)):
        return [parts(x) for x in value]
    if isinstance(value, dict):
        return {k: parts(x) for k, x in value.items()}
    if isinstance(value, (type, str)):
        return [ord(c) for c in str(value)]
    return parts(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor) else value


CASES = {
    "module": (Net(), (torch.ones(3, 4), 2.0)),
    "structures": (structures, ({"x": X, "flag": True}, Pair(1, X + 1), [0, {"deep": (X * 2,)}], Batch(X + 2, scale=0.5))),
    "random": (random_and_grad_mode, (torch.ones(3, requires_grad=True),)),
}


@pytest.mark.parametrize("how", ["torch", "pickle"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("aten", [False, True], ids=["python", "aten"])
def test_another_process(case: str, how: str, aten: bool, tmp_path: Path) -> None:
    if how == "torch" and aten:
        pytest.skip("one way is enough for both")
    f, args = CASES[case]
    f = copy.deepcopy(f)
    gm, _ = fineline.export(f, *args, aten_graph=aten)
    out, state, graph = there(tmp_path, gm, args, how)
    torch.manual_seed(5)
    torch.testing.assert_close(parts(out), parts(f(*args)), rtol=0, atol=0)
    assert graph == str(gm.graph)
    if state:
        torch.testing.assert_close(state, dict(f.state_dict()), rtol=0, atol=0)


def test_subgraphs_and_long_graphs(tmp_path: Path) -> None:
    @fineline.nested_compile_region
    def layer(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = layer(x)
        for _ in range(2000):
            x = x + 1
        return x

    gm, _ = fineline.export(f, X)
    assert any("subgraph" in str(n.target) for n in gm.graph.nodes)
    out, _, _ = there(tmp_path, gm, (X,), "pickle")
    torch.testing.assert_close(out, f(X), rtol=0, atol=0)


def test_copies_and_passes() -> None:
    gm, _ = fineline.export(random_and_grad_mode, torch.ones(3))
    for twin in (copy.deepcopy(gm), pickle.loads(pickle.dumps(copy.deepcopy(gm)))):
        torch.manual_seed(1)
        ours = twin(torch.ones(3))
        torch.manual_seed(1)
        torch.testing.assert_close(ours, random_and_grad_mode(torch.ones(3)), rtol=0, atol=0)
    # Run in another grad mode, it would leave its own behind.
    with torch.no_grad(), pytest.raises(AssertionError, match="grad mode"):
        gm(torch.ones(3))
    gm.graph.eliminate_dead_code()
    gm.recompile()
    with pytest.raises(AssertionError):
        gm(torch.ones(5))
    torch.fx.passes.shape_prop.ShapeProp(gm).propagate(torch.ones(3))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * 2

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def]
        return g * 3


def test_a_backward_of_the_users_stays_here(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(AssertionError, match="FL605"):
        fineline.export(lambda x: Doubled.apply(x) + 1, x)
    with torch.no_grad():
        gm, _ = fineline.export(lambda x: Doubled.apply(x) + 1, x)
        out, _, _ = there(tmp_path, gm, (x.detach(),), "pickle")
    torch.testing.assert_close(out, torch.full((3,), 3.0))
