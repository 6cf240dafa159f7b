# %% failing
import torch
import fineline

fineline.mark_dynamic(torch.ones(4, 3), 2)

# %% fixed
import torch
import fineline

x = torch.ones(4, 3)
fineline.mark_dynamic(x, 1)
print(fineline.compile(lambda x: x + 1, backend="eager")(x))
