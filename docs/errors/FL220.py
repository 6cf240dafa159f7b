# %% failing
import pathlib, tempfile, torch, fineline.testing

path = pathlib.Path(tempfile.mkdtemp()) / "breaks.toml"
path.write_text("version = 1\n")   # no graph break is accepted

def step(x):
    return x * x.sum().item()

fineline.testing.assert_ledger(step, [torch.ones(3)], path=path)

# %% fixed
import pathlib, tempfile, torch, fineline.testing

path = pathlib.Path(tempfile.mkdtemp()) / "breaks.toml"
path.write_text("version = 1\n")

def step(x):
    return x * x.sum()

fineline.testing.assert_ledger(step, [torch.ones(3)], path=path)
print(step(torch.ones(3)))
