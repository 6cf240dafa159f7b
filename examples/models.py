"""Four Hugging Face models built from their configurations: small widths, the depths of the published base models."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from torch import nn

VOCABULARY = 1000
LENGTH = 16


@dataclass(frozen=True)
class Example:
    """A model by name: ``build()`` gives a fresh, always equal instance; ``inputs(seed)`` its keyword arguments."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], dict[str, Any]]


def _built(cls: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(0)
        transformers.logging.set_verbosity_error()
        model: nn.Module = getattr(transformers, cls)(getattr(transformers, config)(**settings))
        return model.eval()

    return build


def _text(*, labels: int) -> Callable[[int], dict[str, Any]]:
    def inputs(seed: int) -> dict[str, Any]:
        g = torch.Generator().manual_seed(seed)

        def ids(length: int) -> torch.Tensor:
            return torch.randint(5, VOCABULARY, (2, length), generator=g)

        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[-1, LENGTH - 4 :] = 0
        given = {"input_ids": ids(LENGTH), "attention_mask": mask}
        return given | {"labels": ids(labels)} if labels else given

    return inputs


EXAMPLES = (
    Example(
        "BERT, 12 layers",
        _built(
            "BertForMaskedLM", "BertConfig", vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=12, num_attention_heads=4,
            intermediate_size=128, max_position_embeddings=128,
        ),
        _text(labels=LENGTH),
    ),
    Example(
        "GPT-2, 12 layers",
        _built("GPT2LMHeadModel", "GPT2Config", vocab_size=VOCABULARY, n_embd=64, n_layer=12, n_head=4, n_positions=128),
        # Given labels, this one warns about its loss by way of a cached function, at which every front end cuts the graph.
        _text(labels=0),
    ),
    Example(
        "Llama, 16 layers",
        _built(
            "LlamaForCausalLM", "LlamaConfig", vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=16,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        ),
        _text(labels=LENGTH),
    ),
    Example(
        "T5, 6+6 layers",
        _built(
            "T5ForConditionalGeneration", "T5Config", vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=6, num_heads=4,
            decoder_start_token_id=0,
        ),
        _text(labels=8),
    ),
)  # fmt: skip
