"""A training loop: autocast, GradScaler, clipping, a scheduler, gradient accumulation, evaluation in between."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(3)])
        self.head = nn.Linear(16, 4)

    def forward(self, x, y=None):
        for layer in self.layers:
            x = x + layer(x)
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits, y) if y is not None else None
        return {"logits": logits, "loss": loss}


def train(compile):
    torch.manual_seed(0)
    model = Net()
    model = compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    losses = []
    for step in range(8):
        model.train()
        x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x, y)
            loss = out["loss"] / 2
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
        model.eval()
        with torch.inference_mode():
            losses.append((loss.item(), model(x)["logits"].float().sum().item()))
    return torch.tensor(losses), model.state_dict()


plain, state = train(lambda model: model)
compiled, other = train(lambda model: torch.compile(model, backend="aot_eager"))
assert torch.allclose(plain, compiled, atol=1e-2), (plain, compiled)
assert {name.removeprefix("_orig_mod.") for name in other} == set(state)
