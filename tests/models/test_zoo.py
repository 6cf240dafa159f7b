"""Real models: results, gradients, arguments and buffers as in eager on inputs not seen at capture, and no more graphs than the rival."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fineline
from tests import golden

ZOO = Path(os.environ.get("FINELINE_ZOO", Path(__file__).resolve().parents[2] / "models"))

# model -> graphs that torch.compile 2.13 makes at the first call: (inference, training); 1 where it is not named.
RIVAL_GRAPHS = {
    "hf_longformer_mlm": (17, 17),
    "hf_switch_transformers": (28, 28),
    "hf_detr": (1, 6),
    "pyg_gcn": (6, 6),
    "gen_gpt2_greedy": (15, 0),
    "step_bert_adamw": (0, 3),
    "step_dcgan": (0, 6),
    "step_lstm_lm_tbptt": (0, 3),
}
# model -> operators in those graphs, where torch.compile leaves others to eager code: more operators may be more graphs.
RIVAL_OPERATORS = {"hf_switch_transformers": (785, 795)}
# How each model is compiled, by twin.
HOW: dict[str, dict[str, Any]] = {"captured": {}, "fake": {"options": {"first_call": "compiled"}}, "dynamic": {"dynamic": True}}
IN_TWINS = tuple(HOW)


def zoo_modules() -> tuple[Any, Any]:
    if str(ZOO) not in sys.path:
        sys.path.insert(0, str(ZOO))
    return importlib.import_module("zoo"), importlib.import_module("bench")


MODULES = zoo_modules()
CASES = [
    pytest.param(name, mode, id=f"{name}-{mode}")
    for name, entry in MODULES[0].REGISTRY.items()
    for mode in ("infer", "train")
    if (entry.train if mode == "train" else entry.kind != "step")
]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_zoo(name: str, mode: str, twin: str, request: pytest.FixtureRequest) -> None:
    zoo, bench = MODULES
    entry = zoo.REGISTRY[name]
    train = mode == "train"
    grad = contextlib.nullcontext if train or "backward" in entry.tags else torch.no_grad
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list) -> Any:
        graphs.append(gm)
        return gm.forward

    def build(seed: int = 0) -> Any:
        built = zoo.build(name, seed)
        for m in built.modules if train and entry.kind != "step" else ():
            if isinstance(m, torch.nn.Module):
                m.train()
        return built

    def call(fn: Any, built: Any, seed: int) -> Any:
        zoo.seed_all(seed)
        with grad():
            out = fn(*built.args, **built.kwargs)
        seen = bench.snapshot(out)
        if train and entry.kind != "step":
            bench.default_loss(out).backward()
        return seen

    plain, other = build(), build()
    compiled = fineline.compile(other.fn, backend=backend, **HOW[twin])
    first = 0
    for seed in (1, 2, 3):
        assert not bench.compare(call(plain.fn, plain, seed), call(compiled, other, seed), *entry.tol)[0], f"call {seed}"
        if not first:
            first = len(graphs)
            if twin == "captured":
                golden.compare(golden.MODELS, f"{name}-{mode}", golden.of_model(compiled, graphs), request.config.getoption("--write-golden"))
    operators = sum(node.op.startswith("call") for gm in graphs[:first] for node in gm.graph.nodes)
    assert 0 < first <= max(RIVAL_GRAPHS.get(name, (1, 1))[train], 1) or operators > RIVAL_OPERATORS.get(name, (operators, operators))[train]
    assert not bench.compare(bench.snapshot([plain.args, plain.kwargs]), bench.snapshot([other.args, other.kwargs]), *entry.tol)[0], "arguments"
    assert not bench.compare(bench.state(plain), bench.state(other), *entry.tol)[0], "parameters, gradients, buffers"
    known = len(graphs)
    fresh = build(1), build(1)
    for built, new in zip((plain, other), fresh, strict=True):
        built.args, built.kwargs = new.args, new.kwargs
        with torch.no_grad():
            for m in built.modules:
                for p in m.parameters() if isinstance(m, torch.nn.Module) else ():
                    if p.is_floating_point():
                        p.mul_(1.01)
    assert not bench.compare(call(plain.fn, plain, 4), call(compiled, other, 4), *entry.tol)[0], "new values"
    if first == 1:
        assert len(graphs) == known, "new values of the same shapes were captured again"
