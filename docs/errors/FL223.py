# %% failing
import pathlib, tempfile, torch, fineline

path = pathlib.Path(tempfile.mkdtemp()) / "linear.captures"
compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
compiled(torch.ones(2, 3))
fineline.save(compiled, path)
fineline.load(path, torch.nn.ReLU())

# %% fixed
import torch, fineline

linear = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
relu = fineline.compile(torch.nn.ReLU(), backend="eager")   # each has a file of its own
print(relu(linear(torch.ones(2, 3))).shape)
