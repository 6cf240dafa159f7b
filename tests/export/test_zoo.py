"""Real models as exported graphs: what they give on new inputs, loaded again, is what the model gives."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import fineline
from tests.models.test_zoo import MODULES, RIVAL_GRAPHS, one_thread  # noqa: F401

# A branch on a tensor's value, a size that depends on values, or `.data =`: more graphs than one in any case.
BREAK = {name for name, (infer, _) in RIVAL_GRAPHS.items() if infer > 1}
NAMES = [name for name, entry in MODULES[0].REGISTRY.items() if entry.kind != "step"]
ATEN: dict[str, dict[str, Any]] = {
    "hf_bert_mlm": {"tracing_mode": "symbolic"}, "torch_nn_transformer": {"tracing_mode": "fake"}, "df_unet2d_ddpm": {},
}  # fmt: skip
# What environments of other versions lack: `zoo` in pyproject.toml, by the names in the zoo's registry.
LIBRARIES = {"transformers": "transformers", "diffusers": "diffusers", "torch-geometric": "torch_geometric"}
CASES = [(name, {}) for name in NAMES] + [(name, {"aten_graph": True, **how}) for name, how in ATEN.items() if name in NAMES]


@pytest.mark.parametrize(("name", "how"), CASES, ids=str)
def test_zoo(name: str, how: dict[str, Any]) -> None:
    zoo, bench = MODULES
    pytest.importorskip(LIBRARIES.get(zoo.REGISTRY[name].pkg, "torch"))
    plain, other = zoo.build(name, 0), zoo.build(name, 0)
    before = bench.snapshot(bench.state(other))
    with torch.no_grad():
        if name in BREAK:
            with pytest.raises(AssertionError, match="(?s)^FL102.*at:.*next:"):
                fineline.export(other.fn, *other.args, **other.kwargs, **how)
            return
        gm, guards = fineline.export(other.fn, *other.args, **other.kwargs, **how)
        assert guards and not bench.compare(before, bench.snapshot(bench.state(other)), 0, 0)[0], "the model is as it was"
        gm = pickle.loads(pickle.dumps(gm))
        for seed in (1, 2):
            inputs = [zoo.build(name, seed) for _ in range(2)]
            zoo.seed_all(seed)
            theirs = plain.fn(*inputs[0].args, **inputs[0].kwargs)
            zoo.seed_all(seed)
            ours = gm(*inputs[1].args, **inputs[1].kwargs)
            assert type(ours) is type(theirs)
            assert not bench.compare(bench.snapshot(theirs), bench.snapshot(ours), *plain.entry.tol if hasattr(plain, "entry") else zoo.REGISTRY[name].tol)[0]
