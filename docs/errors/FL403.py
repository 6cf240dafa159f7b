# %% failing
import torch
import fineline

step = fineline.compile(lambda x: x.relu() + 1, backend="eager", options={"force_graph_breaks": True})
print(fineline.explain(step)(torch.ones(3)))

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x.relu() + 1, backend="eager")
print(step(torch.ones(3)))
