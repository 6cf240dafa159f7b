"""An installation without NumPy: fineline is imported, captures, breaks graphs, captures again and reports."""

from __future__ import annotations

import subprocess
import sys

# Finds no NumPy, as if it were not installed: a finder that raised would break code that only asks whether it is there.
PROGRAM = """
import sys
from importlib.machinery import PathFinder

class WithoutNumPy(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "numpy" else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutNumPy

import random
import torch
import fineline

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.scale, self.seen = torch.nn.Linear(3, 3), 2.0, []

    def forward(self, x, shift):
        y = self.lin(x).relu() * self.scale
        if y.sum().item() > 1e6:
            y = y / y.norm()
        self.seen.append({(1, "a"): [len(self.seen), 0.5]})
        return y + torch.tensor([float(shift), 1.0, max(shift, 2)]), self.seen[-1], int("3")

net = Net()
fast = fineline.compile(net, backend="eager", dynamic=False)
for shift, scale in ((1, 2.0), (1, 2.0), (2, 2.0), (2, 3.0)):
    net.scale = scale
    net.seen.clear()
    wanted = net(torch.ones(2, 3), shift)
    net.seen.clear()
    found = fast(torch.ones(2, 3), shift)
    assert torch.equal(found[0], wanted[0]) and found[1:] == wanted[1:] and len(net.seen) == 1, (found, wanted)

@fineline.disable
def draw():
    return random.random()

def draws(x):
    return x * random.uniform(1, 2) + draw()

drawing = fineline.compile(draws, backend="eager")
for seed in (1, 2):
    random.seed(seed)
    wanted = draws(torch.ones(2))
    random.seed(seed)
    assert torch.equal(drawing(torch.ones(2)), wanted)

print(fineline.report(fast))
print(fineline.explain(draws)(torch.ones(2)))
print(fineline.why(torch.Tensor.numpy))
assert not [name for name in sys.modules if name.partition(".")[0] == "numpy"]
"""


def test_without_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "FL502" in done.stdout and "captured again" in done.stdout, done.stdout
