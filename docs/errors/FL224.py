# %% failing
import torch, fineline

compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
fineline.save(compiled, "linear.captures")             # it has never been called

# %% fixed
import torch, fineline

compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
print(compiled(torch.ones(2, 3)).shape)                # now there is a program to save
