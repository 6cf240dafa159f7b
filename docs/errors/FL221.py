# %% failing
import pathlib, tempfile, torch, fineline

path = pathlib.Path(tempfile.mkdtemp()) / "linear.captures"
compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
compiled(torch.ones(2, 3))
fineline.save(compiled, path)
path.write_bytes(path.read_bytes()[:-10])              # a copy that was interrupted
fineline.load(path, torch.nn.Linear(3, 3))

# %% fixed
import torch, fineline

compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
print(compiled(torch.ones(2, 3)).shape)                # captured, and to be saved again
