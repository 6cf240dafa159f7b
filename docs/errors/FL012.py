# %% event
import pathlib, tempfile, torch, fineline

path = pathlib.Path(tempfile.mkdtemp()) / "linear.captures"
compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager")
compiled(torch.ones(2, 3))
fineline.save(compiled, path)
loaded = fineline.load(path, torch.nn.Linear(3, 3))   # as another process does
loaded(torch.ones(2, 3))
print(fineline.report(loaded))
