# %% event
import threading
import torch
import fineline

class Settings:
    def __init__(self):
        self.scale = 2.0

settings, began, may_go = Settings(), threading.Event(), threading.Event()

@torch.library.custom_op("example::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

@slow.register_fake
def _(x):
    began.set()
    may_go.wait()                # so that the line below comes in the middle of the capture
    return torch.empty_like(x)

compiled = fineline.compile(lambda x: slow(x * settings.scale) * settings.scale, backend="eager", wait=False)
x = torch.ones(3)
compiled(x)
began.wait()
settings.scale = 3.0             # the capture has read the other value, and reads it once more
may_go.set()
fineline.wait()
print(*[event for event in fineline.report(compiled).events if event.kind == "restart"])
