"""Numbers, NumPy, einops-like Python, dataclasses and caches in a compiled function."""

import dataclasses
import functools

import numpy as np
import torch


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    sizes: tuple = (2, 3)


@functools.lru_cache(None)
def table(n):
    return torch.arange(n, dtype=torch.float32)


def softplus(x):
    return np.log1p(np.exp(x))


@torch.compile(backend="eager")
def f(x, config, names):
    parts = {name: x[..., i] * config.scale for i, name in enumerate(names)}
    out = torch.stack([parts[name] for name in sorted(parts)], -1)
    return out.reshape(*config.sizes) + table(3), len(parts)


@torch.compile(backend="eager")
def g(x):
    return softplus(x) * 2


x = torch.randn(2, 3)
for scale in (2.0, 3.0, 2.0):
    out, n = f(x, Config(scale), ["c", "a", "b"])
    assert n == 3 and torch.allclose(out, x[:, [1, 2, 0]] * scale + torch.arange(3.0))
a = np.linspace(0, 1, 5)
assert isinstance(g(a), np.ndarray) and np.allclose(g(a), softplus(a) * 2)
