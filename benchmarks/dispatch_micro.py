"""Nanoseconds per call of a dispatcher whose guard program walks a model of 200 modules, native against reference, sizes fixed against any."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fineline.guards.facts import ambient_facts, tensor_facts
from fineline.guards.relation import Leaf, Relation
from fineline.guards.steps import Step
from fineline.region.guard_dispatch import Evaluator, make_dispatcher, make_guard_program

ROUNDS = 30
HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
)  # fmt: skip


class Block(nn.Module):
    """A leaf with one parameter; the model is a list of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.eps = 1e-5


class Model(nn.Module):
    """``blocks`` modules, one of which is the container itself."""

    def __init__(self, blocks: int, width: int = 8) -> None:
        super().__init__()
        for i in range(blocks - 1):
            self.add_module(f"block{i}", Block(width))


class Builder:
    """Writes down the steps that a capture of the model would need."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.outputs: list[int] = []
        self.registers = 0

    def access(self, op: str, src: int, payload: Any) -> int:
        self.steps.append((op, self.registers, src, payload))
        self.registers += 1
        return self.registers - 1

    def check(self, op: str, src: int, payload: Any) -> None:
        self.steps.append((op, -1, src, payload))

    def module(self, reg: int, module: nn.Module) -> None:
        self.check("type", reg, type(module))
        self.steps.append(("type_lacks", -1, -1, (type(module), "__getattribute_override__")))
        attributes = self.access("dict", reg, None)
        self.check("absent", attributes, "forward")
        self.check("eq", self.access("key", attributes, "training"), module.training)
        for name in HOOKS:
            self.check("len", self.access("key", attributes, name), 0)
        if "eps" in module.__dict__:
            self.check("eq", self.access("key", attributes, "eps"), 1e-5)
        parameters = self.access("key", attributes, "_parameters")
        self.check("absent", parameters, "bias")
        for name, parameter in module._parameters.items():
            assert parameter is not None
            tensor = self.access("key", parameters, name)
            self.check("tensor", tensor, tensor_facts(parameter))
            self.outputs.append(tensor)
        children = self.access("key", attributes, "_modules")
        self.check("keys", children, tuple(module._modules))
        for name, child in module._modules.items():
            assert child is not None
            self.module(self.access("key", children, name), child)


def build(model: nn.Module, *inputs: torch.Tensor, any_rows: bool = False) -> Builder:
    """The guard program of ``call(model, *inputs)``; with ``any_rows`` the inputs' may be any number, the same for all."""
    builder = Builder()
    builder.check("ambient", -1, ambient_facts())
    builder.module(builder.access("root", -1, 0), model)
    for position, value in enumerate(inputs, 1):
        reg = builder.access("root", -1, position)
        facts = tensor_facts(value)
        builder.check("tensor", reg, facts._replace(sizes=(None, *facts.sizes[1:])) if any_rows else facts)
        builder.outputs.append(reg)
    first, *others = builder.outputs[-len(inputs) :]
    if any_rows:
        more_than_one = (("leaf", 0), ("const", 1), ("gt", None))
        builder.check("relation", -1, Relation((Leaf("size", first, 0),), more_than_one, "more than one row"))
        for other in others:
            leaves = (Leaf("size", first, 0), Leaf("size", other, 0))
            builder.check("relation", -1, Relation(leaves, (("leaf", 0), ("leaf", 1), ("eq", None)), "as many rows"))
    return builder


def nanoseconds(call: Callable[[], Any], repeat: int) -> float:
    """The best of many short rounds: other work on the machine only ever adds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(repeat):
            call()
        best = min(best, (time.perf_counter_ns() - start) / repeat)
    return best


def measure(evaluator: Evaluator, modules: int, repeat: int, any_rows: bool) -> dict[str, float]:
    """Times for an unchanged call, a new input each call, and an unguarded attribute written before each call."""
    model = Model(modules)
    inputs = [torch.zeros(4, 8) for _ in range(3)]
    builder = build(model, *inputs, any_rows=any_rows)
    dispatcher = make_dispatcher(lambda args, kwargs: "miss", evaluator)
    program = make_guard_program(4, builder.steps, builder.outputs, evaluator)
    dispatcher.set_entries([(4, (), program, lambda *values: len(values))])
    if dispatcher(model, *inputs) != len(builder.outputs):
        raise RuntimeError("the guard program does not hold for the model it was made for")

    fresh = [torch.zeros(4, 8) for _ in range(4)]
    turn = [0]

    def alternate() -> None:
        turn[0] = (turn[0] + 1) % 4
        dispatcher(model, fresh[turn[0]], *inputs[1:])

    def write() -> None:
        turn[0] += 1
        model.__dict__["calls"] = turn[0]
        dispatcher(model, *inputs)

    return {
        "steps": len(builder.steps),
        "unchanged": nanoseconds(lambda: dispatcher(model, *inputs), repeat),
        "new input": nanoseconds(alternate, repeat),
        "attribute written": nanoseconds(write, repeat),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=int, default=200)
    arguments = parser.parse_args()
    for evaluator, repeat in (("native", 2000), ("reference", 5)):
        for any_rows in (False, True):
            times = measure(evaluator, arguments.modules, repeat, any_rows)  # type: ignore[arg-type]
            print(
                f"{evaluator:10} {'any rows' if any_rows else 'fixed':9}",
                "  ".join(f"{name} {value:,.0f}" for name, value in times.items()),
            )


if __name__ == "__main__":
    main()
