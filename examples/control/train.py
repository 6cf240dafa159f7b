"""Trains a small language model on a few sentences; written for plain PyTorch."""

from __future__ import annotations

import argparse
import json

import torch
from textkit.metrics import Norms, Spikes, accuracy
from textkit.model import Model
from textkit.tokenizer import Tokenizer
from torch import nn

TEXTS = ["The cat sat on the mat.", "The dog sat on the log.", "A cat and a dog sat.", "The log lay on the mat."]
WORDS, WIDTH, LENGTH = 64, 16, 8

tokenizer = Tokenizer(WORDS)


def forward(model: nn.Module, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = tokenizer.encode(texts, LENGTH)
    logits, targets = model(tokens[:, :-1]), tokens[:, 1:]
    right = accuracy(logits, targets)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return loss, right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--options", type=json.loads, help="options of torch.compile, as JSON")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model(WORDS, WIDTH)
    norms, spikes = Norms(), Spikes(0.05)
    model.mix.register_forward_hook(norms)
    model.out.weight.register_hook(spikes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    step = torch.compile(forward, backend=args.backend, options=args.options)
    for n in range(args.steps):
        optimizer.zero_grad()
        loss, right = step(model, TEXTS)
        loss.backward()
        optimizer.step()
        if n % 5 == 0 or n == args.steps - 1:
            print(f"step {n:3}: loss {loss.item():.3f}, accuracy {right.item():.2f}")
    print(f"norm {norms.mean():.2f}, spikes {spikes.count.item()}")


if __name__ == "__main__":
    main()
