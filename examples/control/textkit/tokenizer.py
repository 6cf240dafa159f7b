"""Texts to tensors: strings and dictionaries, nothing for a graph."""

from __future__ import annotations

import re

import torch

WORD = re.compile(r"\w+|[^\w\s]")


class Tokenizer:
    """Learns its words as it meets them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.words: dict[str, int] = {"<pad>": 0}

    def ids(self, text: str) -> list[int]:
        return [self.words.setdefault(word, len(self.words)) % self.size for word in WORD.findall(text.lower())]

    def encode(self, texts: list[str], length: int) -> torch.Tensor:
        rows = [self.ids(text)[:length] for text in texts]
        return torch.tensor([row + [0] * (length - len(row)) for row in rows])
