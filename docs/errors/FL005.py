# %% event
import torch
import fineline

blocks = [fineline.compile(torch.nn.Linear(3, 3), backend="eager") for _ in range(3)]
for block in blocks:
    block(torch.ones(2, 3))
print(fineline.report(blocks[2]))
