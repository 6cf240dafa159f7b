"""PyTorch's optimizers, each with the settings that its own tests use, in compiled training steps: parameters and states as in eager code."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules
from torch.testing._internal.common_optimizers import optim_db

import fineline
from tests.oracle import TWINS, Program, Step, check, t

# As is_compiling() is true, they ask for a step's number less often.
IN_TWINS = tuple(twin for twin in TWINS if twin != "counted")
# How an optimizer computes -> the settings that ask for it.
WAYS: dict[str, dict[str, Any]] = {"default": {}, "foreach": {"foreach": True}, "single": {"foreach": False}, "fused": {"fused": True}}


def built(cls: type, settings: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.copy_(t(k, *p.shape))
    # Muon takes matrices alone.
    matrices = [p for p in model.parameters() if p.ndim == 2 or cls.__name__ != "Muon"]
    fresh = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in settings.items()}
    return model, cls(matrices, **fresh)


def programs() -> list:
    return list(_programs())


def _programs() -> Iterator[Any]:
    for info in optim_db:
        cls = info.optim_cls
        # SparseAdam takes sparse gradients alone.
        inputs = [] if cls is torch.optim.SparseAdam else list(enumerate(info.optim_inputs_func(device="cpu")))
        # The first are the defaults, and the last sets the most.
        for (k, given), way in itertools.product(inputs[:: len(inputs) - 1 or 1], WAYS):
            # is_compiling() spares ``capturable`` a check of the device: eager code refuses it here.
            if given.kwargs.get("capturable") or (k and way != "default"):
                continue
            settings = {**given.kwargs, **WAYS[way]}
            try:
                built(cls, settings)
            except (TypeError, ValueError, RuntimeError):
                continue
            yield pytest.param(cls, settings, id=f"{cls.__name__}-{k}-{way}")


@pytest.mark.parametrize(("cls", "settings"), programs())
def test_steps(cls: type, settings: dict[str, Any], twin: str) -> None:
    def make() -> Any:
        model, optimizer = built(cls, settings)

        def fn(x: torch.Tensor) -> torch.Tensor:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            if cls is torch.optim.LBFGS:
                return optimizer.step(closure)
            loss = closure()
            optimizer.step()
            return loss.detach()

        return fn, (model, optimizer)

    def slower(state: Any) -> None:
        for group in state[1].param_groups:
            group["lr"] = group["lr"] * 0.5

    steps = [Step(k, change=slower if k == 3 else None) for k in range(5)]
    name = f"{cls.__name__} {settings}"
    check(Program(name, make, steps, frozenset(range(5)), breaks=True, backward=False, tolerance=1e-6), twin)


SCHEDULES: dict[str, Any] = {
    "steps": lambda o: schedules.StepLR(o, 2),
    "milestones": lambda o: schedules.MultiStepLR(o, [1, 3]),
    "linear": lambda o: schedules.LinearLR(o, total_iters=3),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.9),
    "polynomial": lambda o: schedules.PolynomialLR(o, 4),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 3),
    "warm restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 2),
    "cyclic": lambda o: schedules.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=9),
    "lambda": lambda o: schedules.LambdaLR(o, lambda epoch: 0.95**epoch),
    "plateau": lambda o: schedules.ReduceLROnPlateau(o, patience=1),
    "sequential": lambda o: schedules.SequentialLR(o, [schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)], [3]),
    "chained": lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o), schedules.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str, twin: str) -> None:
    def make() -> Any:
        model, optimizer = built(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
        schedule = SCHEDULES[name](optimizer)

        def fn(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step(*([loss.item()] if name == "plateau" else []))
            return loss.detach()

        return fn, (model, optimizer, schedule)

    steps = [Step(k) for k in range(6)]
    check(Program(name, make, steps, frozenset(range(6)), breaks=True, backward=False), twin)


# Fake tensors, and AOTAutograd, refuse an operator that these call.
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("cls", "settings"), [(torch.optim.Adam, {"foreach": True}), (torch.optim.Adagrad, {"fused": True})])
def test_what_compilers_refuse_runs_between_graphs(cls: type, settings: dict[str, Any], backend: str) -> None:
    runs = []
    for compile in (lambda fn: fn, lambda fn: fineline.compile(fn, backend=backend)):
        model, optimizer = built(cls, settings)

        def fn(x: torch.Tensor, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = compile(fn)
        runs.append([*[step(t(k)) for k in range(4)], *model.parameters()])
    for a, b in zip(*runs, strict=True):
        torch.testing.assert_close(a, b)


LOADED = """
import sys, torch
if sys.argv[1] == "loaded":
    import torch._dynamo
import fineline

model = torch.nn.Linear(4, 1)
x = torch.ones(3, 4)

def names(optimizer, calls):
    seen = []

    def backend(gm, inputs):
        seen.append([n.name for n in gm.graph.nodes if n.op.startswith("call")])
        return gm.forward

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure)

    compiled = fineline.compile(step, backend=backend)
    for _ in range(calls):
        compiled(x)
    return seen

print([names(torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=4), 12), names(torch.optim.Adam(model.parameters()), 3)])
"""


def test_graphs_are_the_same_where_torch_dynamo_is_loaded() -> None:
    # As it is loaded, it disables parts of the optimizers, for its own limits.
    runs = [
        subprocess.run([sys.executable, "-c", LOADED, way], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
        for way in ("alone", "loaded")
    ]
    assert not runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    lbfgs, adam = ast.literal_eval(runs[0].stdout)
    # The lists of past steps that LBFGS keeps make no programs; what it calls is one.
    assert lbfgs == [["linear", "square", "mean"]]
    assert len(adam) > 1
