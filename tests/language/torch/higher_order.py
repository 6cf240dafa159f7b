"""What the tests of operators that take functions share: one call's graphs, the modes of a capture, backends held against eager gradients."""

from __future__ import annotations

import torch

import fineline
from tests import oracle
from tests.oracle import t

# Another sign and another size at each call; numbers that only the graph knows are asked for.
STRICT = {
    "args": lambda place: (t(place, 3 + place, 4) + (9 if place % 2 else -9),),
    "options": {"fullgraph": True},
    "recompiles": {1},
    "breaks": True,
    "repeats": True,
}
MODES = {"live": {}, "fake": {"options": {"first_call": "compiled"}}, "dynamic": {"dynamic": True}}
BACKENDS = ["eager", "aot_eager", "inductor"]


def check_afresh(program, twin):
    if "_row" in program.name or twin == "counted":
        # PyTorch compiles these operators in eager code too. What it has kept of other calls it can't compare with rows, and it makes
        # tensors of numbers that have been others there, which would count.
        torch._dynamo.reset()
    oracle.check(program, twin)


def captured(fn, *args, **options):
    seen = []

    def probe(gm, inputs):
        gm.graph.lint()
        seen.append(gm)
        return gm.forward

    fineline.compile(fn, backend=probe, **options)(*args)
    return seen


def targets(gm):
    return [getattr(node.target, "__name__", str(node.target)) for node in gm.graph.nodes if node.op.startswith("call_")]


def same_gradients(fn, backend, *args, parameters=(), **options):
    def run(call):
        torch.manual_seed(0)
        given = [a.detach().clone().requires_grad_() for a in args]
        for p in parameters:
            p.grad = None
        out = call(*given)
        torch.manual_seed(1)
        out.sin().sum().backward()
        return [out, *[a.grad for a in given], *[p.grad for p in parameters]]

    compiled = fineline.compile(fn, backend=backend, fullgraph=True, **options)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(fn))
