# %% failing
import torch
import fineline

weight = torch.eye(3).to_sparse_csr().requires_grad_()

step = fineline.compile(lambda x: weight @ x + 1, backend="aot_eager")
for _ in range(2):
    step(torch.ones(3, 1))
print(fineline.report(step))

# %% fixed
import torch
import fineline

weight = torch.eye(3).requires_grad_()

step = fineline.compile(lambda x: weight @ x + 1, backend="aot_eager")
for _ in range(2):
    print(step(torch.ones(3, 1)).detach())
