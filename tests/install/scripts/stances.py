"""Serving: warm up, then never compile again; switch it off for debugging."""

import torch
from torch._dynamo.testing import CompileCounter

cnt = CompileCounter()


@torch.compile(backend=cnt, dynamic=False)
def serve(x):
    return torch.relu(x) * 2


for size in (1, 2, 4):
    serve(torch.ones(size))
assert cnt.frame_count == 3
torch.compiler.set_stance("fail_on_recompile")
serve(torch.ones(2))
try:
    serve(torch.ones(3))
except RuntimeError as e:
    assert "recompile" in str(e).lower()
else:
    raise AssertionError("it was compiled")
torch.compiler.set_stance("eager_on_recompile")
assert torch.equal(serve(torch.ones(3)), torch.full((3,), 2.0)) and cnt.frame_count == 3
with torch.compiler.set_stance("force_eager"):
    assert torch.equal(serve(torch.ones(2)), torch.full((2,), 2.0))
torch.compiler.set_stance("default")


@torch.compiler.set_stance("default", force_backend="eager")
def debug(x):
    return serve(x)


debug(torch.ones(5))
assert cnt.frame_count == 3
serve(torch.ones(5))
assert cnt.frame_count == 4
