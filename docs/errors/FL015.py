# %% event
import os, pathlib, tempfile, torch, fineline

os.environ["FINELINE_CACHE_DIR"] = tempfile.mkdtemp()
try:
    compiled = fineline.compile(torch.nn.Linear(3, 3), backend="eager", policy=fineline.Policy())
    compiled(torch.ones(2, 3))
finally:
    del os.environ["FINELINE_CACHE_DIR"]
print(fineline.report(compiled))
