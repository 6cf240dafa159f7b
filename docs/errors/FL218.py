# %% failing
import pathlib, tempfile, torch, fineline.testing

path = pathlib.Path(tempfile.mkdtemp()) / "breaks.toml"
path.write_text('''
version = 1

[[break]]
function = "mypkg.step"
id = "FL502"
reasons = "item reads a tensor's values"
''')
fineline.testing.assert_ledger(lambda x: x * 2, [torch.ones(3)], path=path)   # there is no key "reasons"

# %% fixed
import pathlib, tempfile, torch, fineline.testing

path = pathlib.Path(tempfile.mkdtemp()) / "breaks.toml"
path.write_text('''
version = 1

[[break]]
function = "mypkg.step"
id = "FL502"
reason = "item reads a tensor's values"
''')
fineline.testing.assert_ledger(lambda x: x * 2, [torch.ones(3)], path=path)   # an entry that is not met is no failure
print("as listed")
