"""Real models with batch and sequence length that change: two captures for all sizes, and results as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import fineline
from tests.models.test_zoo import MODULES, RIVAL_GRAPHS

pytestmark = pytest.mark.later
# What is added to the batch, and taken from the sequence.
SIZES = [(0, 0), (1, 3), (2, 5), (3, 1), (1, 6), (4, 2)]
# Models whose own code asks for more, and is cut into graphs: here only the results count.
OTHERWISE = {
    "hf_switch_transformers": "its experts get as many tokens as the router says",
}
# Longformer is slow, and smaller below; Mamba halves the sequence until nothing is left, so that each length is a program of its own.
LEFT_OUT = {"hf_longformer_mlm", "hf_mamba"}
CASES = [name for name, entry in MODULES[0].REGISTRY.items() if entry.kind == "module" and name not in LEFT_OUT]


def resized(value: Any, batch: int, length: int | None, of: tuple[int, int | None]) -> Any:
    """The arguments with another batch size (by repetition) and a shorter sequence."""

    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or t.dim() == 0:
            return t
        if t.shape[0] == of[0]:
            t = t[torch.arange(batch) % of[0]]
        if length is not None and t.dim() > 1 and t.shape[1] == of[1]:
            t = t[:, :length]
        return t.clone()

    return tree_map(one, value)


def measure(name: str, **how: Any) -> tuple[list[int], Any]:
    """Graphs after each of the calls, each of which gave what eager gives."""
    zoo, bench = MODULES
    plain, other = zoo.build(name), zoo.build(name)
    made: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: list) -> Any:
        made.append(gm)
        return gm.forward

    compiled = fineline.compile(other.fn, backend=backend, **how)
    tensors = [t for t in tree_leaves((plain.args, plain.kwargs)) if isinstance(t, torch.Tensor) and t.dim()]
    batch = tensors[0].shape[0]
    words = [t.shape[1] for t in tensors if t.dim() == 2 and t.dtype == torch.int64]
    of = batch, words[0] if words else None
    counts = []
    for more, less in SIZES:
        args, kwargs = resized((plain.args, plain.kwargs), batch + 1 + more, words[0] - less if words else None, of)
        seen = []
        for fn in (plain.fn, compiled):
            zoo.seed_all(1)
            with torch.no_grad():
                seen.append(bench.snapshot(fn(*tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, args), **kwargs)))
        assert not bench.compare(*seen, *zoo.REGISTRY[name].tol)[0], f"batch {batch + 1 + more}, {less} less"
        counts.append(len(made))
    return counts, compiled


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_change(name: str) -> None:
    counts, _ = measure(name)
    if name not in OTHERWISE:
        assert counts[0] <= RIVAL_GRAPHS.get(name, (1, 1))[0]
        assert counts[-1] <= 2 * counts[0], f"graphs after each call: {counts}"


def test_a_model_that_its_data_cuts() -> None:
    """Longformer in small: where the first call is cut, and how large the pieces are, is told by the data."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LongformerConfig(
        attention_window=[8] * 2, num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=100,
        max_position_embeddings=80,
    )  # fmt: skip
    model = transformers.LongformerForMaskedLM(config).eval()
    made: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: list) -> Any:
        made.append(gm)
        return gm.forward

    compiled = fineline.compile(model, backend=backend)
    counts = []
    for more, less in SIZES:
        words = torch.randint(5, 99, (3 + more, 32 - less))
        attended = torch.zeros_like(words)
        attended[:, 0] = 1
        how = {"input_ids": words, "attention_mask": torch.ones_like(words), "global_attention_mask": attended}
        with torch.no_grad():
            torch.testing.assert_close(compiled(**how).logits, model(**how).logits)
        counts.append(len(made))
    # torch.compile: 17, and 39 in the end. A custom backend gets segments of few operators too.
    assert counts[0] <= 10 and counts[-1] <= 2 * counts[0], f"graphs after each call: {counts}"
