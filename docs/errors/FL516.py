# %% failing
import torch
import fineline

@torch.library.custom_op("fl516::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

step = fineline.compile(lambda x: double(x.sin()) + 1, backend="eager", dynamic=True)
print(fineline.explain(step)(torch.ones(3)))

# %% fixed
import torch
import fineline

@torch.library.custom_op("fl516::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

double.register_fake(torch.empty_like)

step = fineline.compile(lambda x: double(x.sin()) + 1, backend="eager", dynamic=True)
print(step(torch.ones(3)))
