# %% failing
import pathlib, sys, tempfile
import torch

folder = tempfile.mkdtemp()  # stands for site-packages, with a broken plugin in it
info = pathlib.Path(folder, "plugin-1.0.dist-info")
info.mkdir()
(info / "METADATA").write_text("Name: plugin\nVersion: 1.0\n")
(info / "entry_points.txt").write_text("[torch_dynamo_backends]\nbroken = no_such_module:backend\n")
sys.path.append(folder)

import fineline
fineline.compile(lambda x: x + 1, backend="broken")(torch.ones(3))

# %% fixed
import torch
import fineline

print(fineline.compile(lambda x: x + 1, backend="eager")(torch.ones(3)))
