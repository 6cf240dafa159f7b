# %% failing
import torch
import fineline

model = torch.nn.LazyLinear(2)
print(fineline.explain(model)(torch.ones(3, 4)))

# %% fixed
import torch
import fineline

model = torch.nn.LazyLinear(2)
model(torch.ones(3, 4))
print(fineline.compile(model, backend="eager", fullgraph=True)(torch.ones(3, 4)).shape)
