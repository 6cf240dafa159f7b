"""What an installed wheel must do in an environment of its own (`make test-wheel`): the core is there, reads this PyTorch, and checks calls."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from torch import nn

import fineline
from fineline.guards.native_core import CORE, FAILURE


def main() -> None:
    found = Path(str(fineline.__file__))
    assert found.is_relative_to(sys.prefix), f"{found} is not the wheel's"
    assert CORE is not None, FAILURE
    for name in ("py.typed", "refusals.toml", "cli/startup/sitecustomize.py", "report/assets/page.html"):
        assert (found.parent / name).exists(), name
    assert not (found.parent / "native").exists(), "sources in the wheel"
    assert fineline.explain(nn.GELU())(torch.ones(3))._repr_html_().startswith("<iframe "), "the report's page"
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    other = copy.deepcopy(model)
    compiled = fineline.compile(model, backend="aot_eager")
    for step in range(4):
        x = torch.randn(3 + step % 2, 4)
        results = [fn(x).square().mean() for fn in (compiled, other)]
        for result in results:
            result.backward()
        torch.testing.assert_close(*results)
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)

    def branches(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    compiled_branches = fineline.compile(branches)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled_branches(x), branches(x))
    assert len(fineline.report(compiled_branches).breaks) == 1
    print(f"fineline {fineline.__version__} from {found.parent.name}/, with its core, beside PyTorch {torch.__version__}: as eager code")


if __name__ == "__main__":
    main()
