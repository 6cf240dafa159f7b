# %% failing
import torch
import fineline

fineline.compile(torch.relu, backend="eagre")

# %% fixed
import torch
import fineline

print(fineline.compile(lambda x: torch.relu(x), backend="eager")(torch.ones(3)))
