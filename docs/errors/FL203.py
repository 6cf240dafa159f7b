# %% failing
import torch
import fineline

fineline.compile(lambda x: x + 1, backend=["eager"])

# %% fixed
import torch
import fineline

print(fineline.compile(lambda x: x + 1, backend="eager")(torch.ones(3)))
