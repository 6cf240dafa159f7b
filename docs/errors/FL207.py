# %% failing
import fineline

fineline.set_stance("eager")

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager")
with fineline.set_stance("force_eager"):
    print(step(torch.ones(3)))
