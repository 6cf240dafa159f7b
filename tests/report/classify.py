"""A small classifier with a graph break, code that a rule keeps eager, and a recompile: what pictures of the report show."""

import torch
from torch import nn


@torch.compiler.disable(reason="talks to the metrics server")
def log_activations(name, x):
    statistics = summary(x)
    return name, statistics


def summary(x):
    return {"mean": x.mean(), "max": x.amax()}


def normalize(x):
    scale = x.abs().amax().item()
    if scale > 10.0:
        x = x / scale
    return x


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1)
        return self.out(weights @ v)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = Attention(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.feed(self.second(x))


class Classifier(nn.Module):
    def __init__(self, width=32, blocks=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        log_activations("blocks", x)
        x = normalize(x)
        print(end="")
        return self.head(x.mean(dim=1)).softmax(dim=-1)


def run(compiled):
    torch.manual_seed(0)
    model = compiled(Classifier())
    with torch.no_grad():
        for length in (16, 16, 24):
            model(torch.randn(2, length, 32))


if __name__ == "__main__":
    run(lambda model: torch.compile(model, backend="eager"))
