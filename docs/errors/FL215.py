# %% failing
import pathlib, tempfile
import fineline

file = pathlib.Path(tempfile.mkdtemp(), "fineline.toml")
file.write_text('disabel = "json"\n')
fineline.load_policy(file)

# %% fixed
import pathlib, tempfile
import torch
import fineline

file = pathlib.Path(tempfile.mkdtemp(), "fineline.toml")
file.write_text('disable = "json"\n')
step = fineline.compile(lambda x: x + 1, backend="eager", policy=fineline.load_policy(file))
print(step(torch.ones(3)))
