# %% event
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import fineline

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
try:
    model = fineline.compile(DistributedDataParallel(Net(), bucket_cap_mb=0.01), backend="aot_eager")
    model(torch.ones(2, 64)).sum().backward()
    print(*[event for event in fineline.report(model).events if event.kind == "cut"])
finally:
    dist.destroy_process_group()
