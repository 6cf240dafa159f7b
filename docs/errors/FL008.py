# %% event
import torch
import fineline
from fineline.background.queue import QUEUE
from torch.nn.attention import SDPBackend, sdpa_kernel

compiled = fineline.compile(lambda x: x.sin() * 2, backend="aot_eager", wait=False)
x = torch.ones(3)
with QUEUE.held(), sdpa_kernel(SDPBackend.MATH):      # as if other graphs were compiled before it
    compiled(x)
fineline.wait()
with sdpa_kernel(SDPBackend.MATH):                    # the kernels are those of all threads: none is set between the calls
    print(compiled(x))
print(*[event for event in fineline.report(compiled).events if event.kind == "waited"])
