"""A trainer that compiles whatever module it is given, in place or wrapped, and asks what it has."""

import copy
import io
import pickle

import torch
from torch import nn


class LitModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU())
        self.head = nn.Linear(8, 1)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.logged = {}

    def forward(self, x):
        return self.head(self.encoder(x))

    def training_step(self, batch, index):
        self.seen += 1
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss)
        return {"loss": loss}

    @torch._dynamo.disable
    def log(self, name, value):
        self.logged[name] = value.detach()


class Trainer:
    def __init__(self, how):
        self.how = how

    def fit(self, model):
        torch.manual_seed(0)
        if self.how == "in place":
            model.compile(backend="aot_eager")
        elif self.how == "wrapped":
            compiled = torch.compile(model, backend="aot_eager")
            assert isinstance(compiled, torch._dynamo.OptimizedModule) and compiled._orig_mod is model
            model = compiled._orig_mod
            model._compiler_ctx = {"compiler": "dynamo", "original_forward": model.forward, "original_training_step": model.training_step}
            model.training_step = torch.compile(model.training_step, backend="aot_eager")
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for i in range(4):
            batch = torch.randn(4, 8), torch.randn(4, 1)
            out = model.training_step(batch, i)
            optimizer.zero_grad()
            out["loss"].backward()
            optimizer.step()
        return model


torch.manual_seed(1)
model = LitModel()
models = {how: Trainer(how).fit(copy.deepcopy(model)) for how in ("not", "in place", "wrapped")}
for name, p in models["not"].state_dict().items():
    for other in ("in place", "wrapped"):
        assert torch.allclose(p, models[other].state_dict()[name], atol=1e-5), (name, other)
        assert torch.allclose(models["not"].logged["loss"], models[other].logged["loss"], atol=1e-5)
buffer = io.BytesIO()
torch.save(models["in place"].state_dict(), buffer)
again = LitModel()
again.load_state_dict(torch.load(io.BytesIO(buffer.getvalue())))
again.eval(), models["in place"].eval()
x = torch.randn(2, 8)
assert torch.allclose(again(x), models["in place"](x), atol=1e-6)
assert isinstance(pickle.loads(pickle.dumps(models["in place"])), LitModel)
