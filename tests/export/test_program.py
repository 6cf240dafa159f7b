"""The bridge: what fineline captures as a torch.export program, saved, loaded, and compiled ahead of time."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import fineline
from fineline.errors import Constrained, NotExported
from tests.export.models import Net


class Quiet(nn.Module):
    """... with what torch.export alone has no way through: a list that grows and is emptied, a name that is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        self.calls.add_(1)
        steps = [getattr(torch, name) for name in ("sin", "cos")]
        while steps:
            x = steps.pop()(x)
        with torch.no_grad():
            bias = x.mean() * x.shape[0]
        return {"y": self.lin(x) * scale + bias}


def test_saved_and_loaded() -> None:
    net = Quiet()
    program = fineline.exported_program(net, (torch.ones(3, 4),), {"scale": 2.0})
    assert set(program.state_dict) == set(net.state_dict())
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    x = torch.randn(3, 4)
    for _ in range(2):
        torch.testing.assert_close(again(x, scale=2.0), net(x, scale=2.0))
    assert again.calls == net.calls == 2


def test_sizes_that_vary() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    program = fineline.exported_program(net, (torch.ones(3, 4),), dynamic_shapes={"input": {0: Dim("n", max=64)}})
    for n in (2, 5, 60):
        torch.testing.assert_close(program.module()(torch.ones(n, 4)), net(torch.ones(n, 4)))
    for spec in ({"x": {0: Dim.DYNAMIC}}, ({0: Dim.AUTO},), {"x": (Dim.DYNAMIC(max=9), None)}):
        program = fineline.exported_program(lambda x: x * x.shape[0], (torch.ones(3, 4),), dynamic_shapes=spec)
        torch.testing.assert_close(program.module()(torch.ones(7, 4)), torch.ones(7, 4) * 7)
    with pytest.raises(Constrained, match="test_program.py"):
        fineline.exported_program(lambda x: x + 1 if x.shape[0] == 3 else x, (torch.ones(3, 4),), dynamic_shapes={"x": {0: Dim("n")}})
    x = torch.ones(3, 4)
    fineline.exported_program(lambda x: x + 1, (x,), dynamic_shapes={"x": {0: Dim.AUTO}})
    assert not fineline.policy.dim_marks.DIMS.of(x)


def test_refusals_are_those_of_export() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x + 1

    with pytest.raises(NotExported, match="FL102"):
        fineline.exported_program(broken, (torch.ones(3),))


def test_buffers_and_random_numbers() -> None:
    net = Net().eval()
    program = fineline.exported_program(net, (torch.ones(3, 4),), {"mask": torch.ones(4)})
    x = torch.randn(3, 4)
    ours, theirs = program.module()(x, mask=torch.ones(4)), net(x, mask=torch.ones(4))
    torch.testing.assert_close(ours["y"], theirs["y"])
    assert ours["scale"] == 1.0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_aot_inductor(tmp_path: Path) -> None:
    net = Quiet().eval()
    with torch.no_grad():
        program = fineline.exported_program(net, (torch.ones(3, 4),), {"scale": 2.0}, dynamic_shapes={"x": {0: Dim("n", max=64)}, "scale": None})
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
        runner = torch._inductor.aoti_load_package(package)
        for n in (3, 8):
            x = torch.randn(n, 4)
            torch.testing.assert_close(runner(x, scale=2.0), net(x, scale=2.0))
