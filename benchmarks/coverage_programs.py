"""Programs over all kinds of tensors and places, for ``benchmarks.coverage``: each compiles itself with a given front end, and gives one call.

A program that needs a package which is not installed raises ImportError when it is made.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.func import functional_call, grad, vmap
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

from benchmarks import library_programs
from benchmarks.zoo import ZOO

Compile = Callable[[Any], Any]
Call = Callable[[], Any]


@dataclass(frozen=True)
class Program:
    """``make`` compiles the program and returns what makes one call of it; ``processes`` run it side by side."""

    name: str
    make: Callable[[Compile], Call]
    processes: int = 1


PROGRAMS: dict[str, Program] = {}


def program(name: str, processes: int = 1) -> Callable[[Callable[[Compile], Call]], Callable[[Compile], Call]]:
    def register(make: Callable[[Compile], Call]) -> Callable[[Compile], Call]:
        PROGRAMS[name] = Program(name, make, processes)
        return make

    return register


class MLP(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.up(x).relu()
        out: torch.Tensor = self.down(hidden)
        return out


def group() -> None:
    """Joins the process group of the processes that torchrun started."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")


def group_size() -> int:
    group()
    return int(os.environ["WORLD_SIZE"])


@program("DTensor: tensor parallel MLP", processes=2)
def tensor_parallel(compile: Compile) -> Call:
    mesh = init_device_mesh("cpu", (group_size(),))
    model = parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x, compiled = torch.randn(4, 16), compile(model)
    return lambda: compiled(x).sum().backward()


@program("FSDP2: two blocks, each compiled", processes=2)
def fully_sharded(compile: Compile) -> Call:
    mesh = init_device_mesh("cpu", (group_size(),))
    blocks = nn.Sequential(MLP(), MLP())
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(blocks, mesh=mesh)
    compiled = [compile(block) for block in blocks]
    x = torch.randn(4, 16)
    return lambda: compiled[1](compiled[0](x)).sum().backward()


@program("DDP around the module", processes=2)
def data_parallel(compile: Compile) -> Call:
    group()
    x, compiled = torch.randn(4, 16), compile(nn.parallel.DistributedDataParallel(MLP()))
    return lambda: compiled(x).sum().backward()


@program("functional all_reduce", processes=2)
def functional_collective(compile: Compile) -> Call:
    size = group_size()

    def mean(x: torch.Tensor) -> torch.Tensor:
        return all_reduce(x.sin(), "sum", list(range(size))) / size

    x, compiled = torch.randn(4, 16), compile(mean)
    return lambda: compiled(x)


@program("all_reduce in place", processes=2)
def collective(compile: Compile) -> Call:
    size = group_size()

    def mean(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        dist.all_reduce(y)
        return y / size

    x, compiled = torch.randn(4, 16), compile(mean)
    return lambda: compiled(x)


def quantized(compile: Compile, config: str) -> Call:
    quantization = importlib.import_module("torchao.quantization")
    model = MLP(64).eval()
    quantization.quantize_(model, getattr(quantization, config)())
    x, compiled = torch.randn(8, 64), compile(model)

    @torch.no_grad()
    def call() -> Any:
        return compiled(x)

    return call


@program("torchao: int8 weights")
def int8_weights(compile: Compile) -> Call:
    return quantized(compile, "Int8WeightOnlyConfig")


@program("torchao: int8 activations and weights")
def int8(compile: Compile) -> Call:
    return quantized(compile, "Int8DynamicActivationInt8WeightConfig")


@program("jagged nested tensor, Linear")
def jagged(compile: Compile) -> Call:
    rows = torch.nested.nested_tensor([torch.randn(n, 16) for n in (2, 5, 3)], layout=torch.jagged)
    compiled = compile(MLP())
    return lambda: compiled(rows)


class Doubled(torch.Tensor):
    """Adds twice its second argument."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.add:
            args = (args[0], super().__torch_function__(torch.mul, types, (args[1], 2)))
        return super().__torch_function__(func, types, args, kwargs or {})


@program("__torch_function__ subclass")
def overriding(compile: Compile) -> Call:
    x = torch.randn(4).as_subclass(Doubled)
    compiled = compile(lambda x: torch.add(x, x).sin() * 2)
    return lambda: compiled(x)


@program("wrapper subclass: TwoTensor")
def wrapper(compile: Compile) -> Call:
    x = TwoTensor(torch.randn(4), torch.randn(4))  # type: ignore[no-untyped-call]
    compiled = compile(lambda x: (x.sin() + x * 2).cos())
    return lambda: compiled(x)


class Cosines(TorchFunctionMode):
    """Calls cos where the code says sin."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.cos(*args) if func is torch.sin else func(*args, **(kwargs or {}))


@program("function mode around the call")
def mode_around(compile: Compile) -> Call:
    x, compiled = torch.randn(4), compile(lambda x: torch.sin(x) + 1)

    def call() -> Any:
        with Cosines():
            return compiled(x)

    return call


@program("function mode inside")
def mode_inside(compile: Compile) -> Call:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with Cosines():
            y = torch.sin(x) + 1
        return y * 2

    x, compiled = torch.randn(4), compile(inside)
    return lambda: compiled(x)


@program("NumPy on a tensor's array")
def arrays(compile: Compile) -> Call:
    def normalized(x: torch.Tensor) -> torch.Tensor:
        a = x.numpy()
        b = np.sin(a) * 2 + a.mean()
        return torch.from_numpy(b / np.linalg.norm(b)) + 1

    x, compiled = torch.randn(4), compile(normalized)
    return lambda: compiled(x)


@program("vmap(grad) with targets")
def per_sample(compile: Compile) -> Call:
    model = nn.Linear(4, 3)
    params = dict(model.named_parameters())

    def loss(params: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
    compiled = compile(lambda params, x, y: vmap(grad(loss), (None, 0, 0))(params, x, y))
    return lambda: compiled(params, x, y)


@program("per-sample gradients of a ResNet")
def resnet(compile: Compile) -> Call:
    transformers = importlib.import_module("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[2, 2, 2, 2], layer_type="basic", num_labels=3)
    model = transformers.ResNetForImageClassification(config).eval()
    params, buffers = dict(model.named_parameters()), dict(model.named_buffers())

    def loss(params: Any, buffers: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = functional_call(model, (params, buffers), (x[None],)).logits
        return nn.functional.cross_entropy(logits, y[None])

    x, y = torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2,))
    compiled = compile(lambda params, buffers, x, y: vmap(grad(loss), (None, None, 0, 0))(params, buffers, x, y))
    return lambda: compiled(params, buffers, x, y)


@program("x-transformers encoder-decoder")
def x_transformer(compile: Compile) -> Call:
    x_transformers = importlib.import_module("x_transformers")
    sizes = {"num_tokens": 64, "depth": 2, "heads": 2, "max_seq_len": 32}
    model = x_transformers.XTransformer(dim=32, tie_token_emb=True, **{f"{side}_{k}": v for side in ("enc", "dec") for k, v in sizes.items()})
    source, target, mask = torch.randint(0, 64, (1, 32)), torch.randint(0, 64, (1, 32)), torch.ones(1, 32).bool()
    compiled = compile(model)
    return lambda: compiled(source, target, mask=mask)


@program("12 equal blocks, each compiled")
def blocks(compile: Compile) -> Call:
    compiled = nn.Sequential(*[compile(MLP()) for _ in range(12)])
    x = torch.randn(2, 16)
    return lambda: compiled(x)


# Of each library, one of its programs in ``library_programs``.
LIBRARIES = {
    "einops: rearrange, reduce, repeat, einsum": "einops_functions",
    "einx: id, mean, add, dot, softmax": "einx_functions",
    "tensordict: values of a module": "tensordict_with_a_module",
    "tensorclass": "a_tensorclass",
    "torchmetrics: multiclass accuracy": "torchmetrics_module",
    "kornia: blur, Sobel, grayscale": "kornia_filters",
    "e3nn: tensor product": "e3nn_tensor_product",
    "pyro: loss of a model and its guide": "pyro_loss",
    "gpytorch: exact marginal likelihood": "gpytorch_exact_likelihood",
    "peft: LoRA": "peft_lora",
    "accelerate: prepared layer": "accelerate_prepared",
    "jaxtyping with beartype": "jaxtyping_with_beartype",
    "beartype": "beartype_checks",
}


def library(name: str, make_function: library_programs.Make) -> Program:
    def make(compile: Compile) -> Call:
        fn, args = make_function()
        # Libraries keep tables that their first call fills.
        fn(*args)
        compiled = compile(fn)
        return lambda: compiled(*args)

    return Program(name, make)


PROGRAMS.update((name, library(name, library_programs.PROGRAMS[made].make)) for name, made in LIBRARIES.items())


def zoo_model(name: str) -> Program:
    """A model of the zoo, in inference but for whole training steps."""

    def make(compile: Compile) -> Call:
        zoo = importlib.import_module("zoo")
        built = zoo.build(name)
        compiled = compile(built.fn)

        def call() -> Any:
            zoo.seed_all()
            with torch.set_grad_enabled(built.entry.kind == "step"):
                return compiled(*built.args, **built.kwargs)

        return call

    return Program(name, make)


def zoo_names() -> list[str]:
    sys.path.insert(0, str(ZOO))
    return list(importlib.import_module("zoo").REGISTRY)
