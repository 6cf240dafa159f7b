# %% event
import torch
import fineline

seen = []

def step(x):
    seen.append(x.shape)         # an effect: code beside the capture would see it twice
    return x.sin() * 2

compiled = fineline.compile(step, backend="eager", wait=False)
x = torch.ones(3)
compiled(x)                      # runs eagerly; its capture begins after it, in a thread
fineline.wait()
compiled(x)                      # is captured while it waits
print(*[event for event in fineline.report(compiled).events if event.kind == "restart"])
