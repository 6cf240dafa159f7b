# %% failing
import torch
import fineline

library = torch.library.Library("fl516", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2, "CPU")

step = fineline.compile(lambda x: torch.ops.fl516.double(x) + 1, backend="eager", dynamic=True)
print(fineline.explain(step)(torch.ones(3)))

# %% fixed
import torch
import fineline

library = torch.library.Library("fl516", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2, "CPU")
torch.library.register_fake("fl516::double", torch.empty_like)

step = fineline.compile(lambda x: torch.ops.fl516.double(x) + 1, backend="eager", dynamic=True)
print(step(torch.ones(3)))
