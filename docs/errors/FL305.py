# %% failing
import os
import signal
import time
import torch
import fineline
from fineline.background.queue import QUEUE

compiled = fineline.compile(lambda x: (x.sin() + x.cos()).relu() * 2, wait=False)
x = torch.ones(3)
compiled(x)
while QUEUE.process is None or QUEUE.process.pid is None:
    time.sleep(0.01)
os.kill(QUEUE.process.pid, signal.SIGKILL)            # as a system without memory does
fineline.wait()
compiled(x)

# %% fixed
import torch
import fineline

compiled = fineline.compile(lambda x: (x.sin() + x.cos()).relu() * 2, backend="aot_eager", wait=False)
x = torch.ones(3)
compiled(x)
fineline.wait()
print(compiled(x))
