# %% event
import torch
import fineline

@torch.library.custom_op("fineline_docs::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:   # it might count its calls
    return x + 1

step = fineline.compile(lambda x: counted(x) * 2, backend="eager", options={"shadow": 1.0})
step(torch.ones(3))
step(torch.ones(3))
print(fineline.report(step))
