# %% event
import torch
import fineline

def as_captured(gm, example_inputs):
    return gm.forward

compiled = fineline.compile(lambda x: x.sin() * 2, backend=as_captured, wait=False)
x = torch.ones(3)
compiled(x)                  # captured; the graph runs as it was captured
fineline.wait()              # usually you go on instead
compiled(x)                  # the compiled graph takes over
print(*[event for event in fineline.report(compiled).events if event.kind == "takeover"])
