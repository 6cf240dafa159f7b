"""Loops with graph breaks in them: graphs, first call and later calls, beside torch.compile in the same run.

    python -m benchmarks.loops [--backend eager|inductor] [--calls 20]

CPU seconds of this process; later calls are medians. torch.compile runs a function with such a loop eagerly, and compiles what it calls.
Ratios are torch.compile's time by fineline's: above 1, fineline is faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import fineline


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 32))

    def forward(self, x: Tensor, steps: int = 50) -> Tensor:
        for i in range(steps):
            scale = 1 - i / steps
            x = x - 0.1 * scale * self.layers(x)
            if not torch.isfinite(x).all():
                raise FloatingPointError(i)
        return x


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(100, 32), nn.Linear(32, 100)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)

    def forward(self, tokens: Tensor, most: int = 40) -> Tensor:
        for _ in range(most):
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            found = self.head(self.layer(self.embed(tokens), mask, is_causal=True))[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, found], 1)
            if (found == 0).all():
                break
        return tokens


class Solver(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        a = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
        self.register_buffer("a", a @ a.T / 64 + torch.eye(64))

    def forward(self, b: Tensor) -> Tensor:
        x, r = torch.zeros_like(b), b
        p, rr = r, r @ r
        while rr > 1e-6:
            ap = self.a @ p
            alpha = rr / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            before, rr = rr, r @ r
            p = r + rr / before * p
        return x


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "denoise, 50 steps": (Denoiser, lambda k: torch.randn(8, 32, generator=torch.Generator().manual_seed(k))),
    "decode, 40 tokens": (Decoder, lambda k: torch.randint(1, 100, (2, 4), generator=torch.Generator().manual_seed(k))),
    "solve, while": (Solver, lambda k: torch.randn(64, generator=torch.Generator().manual_seed(k))),
}


def measure(compiled: Callable, model: nn.Module, inputs: Callable[[int], Tensor], calls: int) -> tuple[float, float, bool]:
    """-> CPU seconds of the first call and of a later one, and whether all are equal to eager within rounding."""
    first, later, equal = 0.0, [], True
    for k in range(calls):
        x = inputs(k)
        began = time.process_time()
        out = compiled(x)
        took = time.process_time() - began
        if k == 0:
            first = took
        elif k >= calls // 2:
            later.append(took)
        equal &= torch.allclose(out, model(x), rtol=1e-4, atol=1e-4)
    return first, statistics.median(later), equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="eager", choices=["eager", "inductor"])
    parser.add_argument("--calls", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"backend {args.backend}: first call and later calls, CPU s; graphs")
    for name, (make, inputs) in MODELS.items():
        torch.manual_seed(0)
        model = make().eval()
        took: dict[str, tuple[float, float]] = {}
        for front, compile_with in (("eager", None), ("torch.compile", torch.compile), ("fineline", fineline.compile)):
            graphs = []
            lookup = torch._dynamo.lookup_backend if front == "torch.compile" else None

            def backend(gm: torch.fx.GraphModule, examples: list, lookup: Callable | None = lookup, graphs: list = graphs) -> Callable:
                graphs.append(gm)
                found = lookup(args.backend) if lookup is not None else fineline.backends.registry.lookup_backend(args.backend)
                return found(gm, examples)

            with torch.no_grad():
                compiled = model if compile_with is None else compile_with(model, backend=backend)
                first, later, equal = measure(compiled, model, inputs, args.calls)
            took[front] = first, later
            told = "equal" if equal else "NOT EQUAL"
            print(f"  {name:20} {front:14} {first:8.3f} {later:9.5f} {len(graphs):4} graphs  {told}")
        ratios = [rival / own for rival, own in zip(took["torch.compile"], took["fineline"], strict=True)]
        print(f"  {'':20} {'ratio':14} {ratios[0]:7.2f}x {ratios[1]:8.2f}x")
        torch._dynamo.reset()
        fineline.reset()


if __name__ == "__main__":
    main()
