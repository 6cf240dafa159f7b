"""Programs on published libraries, for ``benchmarks.coverage`` and ``tests/libraries``.

They are not annotated: some pass on annotations of their own, and most libraries have no types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Returns a function and the arguments of one call of it. A new one for each front end: some programs count their calls.
Make = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class LibraryProgram:
    """``make`` raises ImportError where one of the modules ``needs`` is not installed."""

    make: Make
    needs: tuple[str, ...]


PROGRAMS: dict[str, LibraryProgram] = {}


def program(*needs: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        PROGRAMS[make.__name__] = LibraryProgram(make, needs)
        return make

    return register


@program("einops")
def einops_functions():
    from einops import einsum, pack, rearrange, reduce, repeat, unpack

    def fn(x):
        y = rearrange(x, "b (h d) n -> b h n d", h=2)
        z = reduce(y, "b h n d -> b h d", "mean")
        w = repeat(z, "b h d -> b h n d", n=3)
        e = einsum(y, w, "b h n d, b h m d -> b h n m")
        packed, shapes = pack([e, e], "b * m")
        first, second = unpack(packed, shapes, "b * m")
        return first + second

    return fn, (torch.randn(2, 8, 5),)


@program("einops")
def einops_layers():
    from einops.layers.torch import EinMix, Rearrange, Reduce

    mix = EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=3, d=4)
    return nn.Sequential(Rearrange("b c h w -> b (h w) c"), mix, Reduce("b n d -> b d", "max")), (torch.randn(2, 3, 4, 4),)


@program("einx")
def einx_functions():
    """Each call of einx replaces the table of its back ends by a copy."""
    import einx

    def fn(x):
        y = einx.id("b (h d) n -> b h n d", x, h=2)
        z = einx.mean("b h [n] d", y)
        w = einx.add("b h d, d", z, z[0, 0])
        return einx.dot("b h d, b h d -> b h", w, w) + einx.softmax("b [h]", w[..., 0])

    return fn, (torch.randn(2, 8, 5),)


@program("x_transformers")
def x_transformers_encoder_and_decoder():
    from x_transformers import XTransformer

    sizes = {
        f"{part}_{name}": n for part in ("enc", "dec") for name, n in (("num_tokens", 64), ("depth", 2), ("heads", 2), ("max_seq_len", 16))
    }
    model = XTransformer(dim=32, **sizes).eval()
    tokens = torch.randint(0, 64, (2, 16))
    return lambda source, target, mask: model(source, target, mask=mask), (tokens, tokens.flip(1), torch.ones(2, 16).bool())


@program("tensordict")
def tensordict_with_a_module():
    from tensordict import TensorDict

    layer = nn.Linear(4, 3)

    def fn(given):
        held = given.clone()
        held["y"] = layer(held["x"]).relu()
        return held.select("y")["y"] + held["x"].sum()

    return fn, (TensorDict({"x": torch.randn(5, 4)}, batch_size=[5]),)


@program("tensordict")
def tensordict_modules():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    parts = [TensorDictModule(nn.Linear(4, 3), in_keys=["x"], out_keys=["h"]), TensorDictModule(nn.Tanh(), in_keys=["h"], out_keys=["y"])]
    model = TensorDictSequential(*parts)
    return lambda x: model(TensorDict({"x": x}, batch_size=[5]))["y"], (torch.randn(5, 4),)


@program("tensordict")
def a_tensorclass():
    from tensordict import tensorclass

    class Data:
        x: Tensor
        y: Tensor

    Data.__annotations__ = {"x": Tensor, "y": Tensor}
    made, layer = tensorclass(Data), nn.Linear(4, 3)

    def fn(x, y):
        given = made(x=x, y=y, batch_size=[5])
        found = made(x=layer(given.x), y=given.y * 2, batch_size=given.batch_size)
        return found.x, found.y, found[1:3].x

    return fn, (torch.randn(5, 4), torch.randn(5))


@program("torchmetrics")
def torchmetrics_module():
    from torchmetrics.classification import MulticlassAccuracy

    metric = MulticlassAccuracy(num_classes=3)

    def fn(p, target):
        metric.update(p, target)
        return metric.compute()

    return fn, (torch.randn(8, 3), torch.randint(0, 3, (8,)))


@program("torchmetrics")
def torchmetrics_function():
    from torchmetrics.functional.classification import multiclass_f1_score

    return lambda p, target: multiclass_f1_score(p, target, num_classes=3, validate_args=False), (
        torch.randn(8, 3),
        torch.randint(0, 3, (8,)),
    )


@program("kornia")
def kornia_filters():
    import kornia

    def fn(x):
        blurred = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0))
        return kornia.filters.sobel(blurred) + kornia.color.rgb_to_grayscale(x)

    return fn, (torch.rand(2, 3, 8, 8),)


@program("kornia")
def kornia_geometry():
    import kornia

    return lambda x, angle: kornia.geometry.rotate(x, angle) + kornia.geometry.hflip(x), (
        torch.rand(2, 3, 8, 8),
        torch.tensor([10.0, 20.0]),
    )


@program("e3nn")
def e3nn_tensor_product():
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "2x0e + 1x1o", "3x0e + 2x1o")
    return product, (torch.randn(5, 10), torch.randn(5, 5))


@program("e3nn")
def e3nn_spherical_harmonics_and_gate():
    from e3nn import nn as layers
    from e3nn import o3

    gate = layers.Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
    linear = o3.Linear("4x0e+2x1o", gate.irreps_in)

    def fn(x, v):
        return gate(linear(x)), o3.spherical_harmonics([0, 1, 2], v, normalize=True, normalization="component")

    return fn, (torch.randn(5, 10), torch.randn(5, 3))


@program("pyro")
def pyro_loss():
    """Its store of parameters is filled at the first call."""
    import pyro
    from pyro import distributions
    from pyro.infer import Trace_ELBO

    pyro.clear_param_store()

    def model(x):
        w = pyro.sample("w", distributions.Normal(torch.zeros(()), torch.ones(())))
        with pyro.plate("data", x.shape[0]):
            pyro.sample("seen", distributions.Normal(w, 1.0), obs=x)

    def guide(x):
        where, scale = pyro.param("where", torch.zeros(())), pyro.param("scale", torch.ones(()))
        pyro.sample("w", distributions.Normal(where, scale.abs() + 0.1))

    loss = Trace_ELBO()
    return lambda x: loss.differentiable_loss(model, guide, x), (torch.randn(6),)


@program("gpytorch")
def gpytorch_exact_likelihood():
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, y = torch.linspace(0, 1, 8), torch.randn(8)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood).train()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood.train(), model)
    return lambda x, y: -loss(model(x), y), (x, y)


@program("peft")
def peft_lora():
    import peft

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    return peft.get_peft_model(model, peft.LoraConfig(target_modules=["0", "2"], r=2)), (torch.randn(3, 4, requires_grad=True),)


@program("accelerate")
def accelerate_prepared():
    import accelerate

    accelerator, layer = accelerate.Accelerator(cpu=True), nn.Linear(4, 3)
    layer, _ = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.1))

    def fn(x):
        with accelerator.autocast():
            return layer(x).sum()

    return fn, (torch.randn(3, 4),)


@program("torchao")
def torchao_int8_weights():
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    return model, (torch.randn(3, 64),)


@program("torchao")
def torchao_int8_weights_and_activations():
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model, (torch.randn(3, 64),)


@program("torchao")
def torchao_float8_weights():
    """Float8 activations need a GPU (torchao 0.18)."""
    from torchao.quantization import Float8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).to(torch.bfloat16).eval()
    quantize_(model, Float8WeightOnlyConfig())
    return model, (torch.randn(3, 64, dtype=torch.bfloat16),)


@program("torchao", "torchao.prototype.quantization.int4.inference_workflow")
def torchao_int4_weights():
    """``Int4WeightOnlyConfig`` has no layout for a CPU (torchao 0.18); this configuration packs for its kernel."""
    from torchao.prototype.quantization.int4.inference_workflow import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import quantize_

    config = PrototypeInt4WeightOnlyConfig(group_size=32)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).to(torch.bfloat16).eval()
    quantize_(model, config)
    return model, (torch.randn(3, 64, dtype=torch.bfloat16),)


@program("torchao")
def torchao_int4_weights_and_int8_activations():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
    return model, (torch.randn(3, 64),)


@program("jaxtyping", "beartype")
def jaxtyping_with_beartype():
    from beartype import beartype
    from jaxtyping import Float, jaxtyped

    def product(x, y):
        return (x @ y).relu()

    product.__annotations__ = {"x": Float[Tensor, "b n"], "y": Float[Tensor, "n m"], "return": Float[Tensor, "b m"]}
    checked = jaxtyped(product, typechecker=beartype)
    return lambda x, y: checked(x, y) + 1, (torch.randn(3, 4), torch.randn(4, 5))


@program("beartype")
def beartype_checks():
    from beartype import beartype

    def scaled(x, n, names):
        return x.sin() * n

    scaled.__annotations__ = {"x": Tensor, "n": int, "names": list[str], "return": Tensor}
    checked = beartype(scaled)
    return lambda x: checked(x, 2, ["a"]) + 1, (torch.randn(3, 4),)
