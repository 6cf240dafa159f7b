# %% failing
import pathlib, tempfile, torch, fineline.testing

path = pathlib.Path(tempfile.mkdtemp()) / "breaks.toml"
fineline.testing.assert_ledger(lambda x: x * 2, [torch.ones(3)], path=path)

# %% fixed
import pathlib, tempfile, torch, fineline.testing

path = pathlib.Path(tempfile.mkdtemp()) / "breaks.toml"
fineline.testing.assert_ledger(lambda x: x * 2, [torch.ones(3)], path=path, update=True)   # once; the file is checked in
fineline.testing.assert_ledger(lambda x: x * 2, [torch.ones(3)], path=path)
print("as listed")
