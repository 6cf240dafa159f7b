# %% event
import torch
import fineline

compiled = fineline.compile(lambda x: x.sin() * 2, backend="aot_eager", wait=False)
x = torch.ones(3)
compiled(x)
fineline.wait()
compiled(x)
print(*[event for event in fineline.report(compiled).events if event.kind == "waited"])
