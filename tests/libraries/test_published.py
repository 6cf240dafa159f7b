"""Published libraries as they are: what is in graphs and what runs eagerly, at the first call and at the second.

The libraries keep tables that their first calls fill: after an eager call, a capture meets them as they stay.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import fineline
from benchmarks.coverage import CountingBackend, eager_operators

# A program is made once for each of the runs: (function, arguments).
Make = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


class Expected(NamedTuple):
    """What a program's first call is cut into, and what its second call adds."""

    library: str
    graphs: int = 1
    breaks: int = 0
    # Operators that run eagerly at the first call, and at the second.
    eager: int = 0
    second: int = 0
    # Whether the second call is captured again, because the library counts its calls.
    again: bool = False


PROGRAMS: dict[str, tuple[Make, Expected]] = {}


def program(library: str, **expected: Any) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        PROGRAMS[make.__name__] = make, Expected(library, **expected)
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

    sizes = {f"{part}_{name}": n for part in ("enc", "dec") for name, n in (("num_tokens", 64), ("depth", 2), ("heads", 2), ("max_seq_len", 16))}
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


@program("torchmetrics", graphs=2, breaks=1, eager=1, again=True)
def torchmetrics_module():
    """How many classes there are depends on the numbers (bincount); the metric counts its updates."""
    from torchmetrics.classification import MulticlassAccuracy

    metric = MulticlassAccuracy(num_classes=3)

    def fn(p, target):
        metric.update(p, target)
        return metric.compute()

    return fn, (torch.randn(8, 3), torch.randint(0, 3, (8,)))


@program("torchmetrics", graphs=2, breaks=1, eager=1, second=1)
def torchmetrics_function():
    from torchmetrics.functional.classification import multiclass_f1_score

    return lambda p, target: multiclass_f1_score(p, target, num_classes=3, validate_args=False), (torch.randn(8, 3), torch.randint(0, 3, (8,)))


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

    return lambda x, angle: kornia.geometry.rotate(x, angle) + kornia.geometry.hflip(x), (torch.rand(2, 3, 8, 8), torch.tensor([10.0, 20.0]))


@program("e3nn", second=1)
def e3nn_tensor_product():
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "2x0e + 1x1o", "3x0e + 2x1o")
    return product, (torch.randn(5, 10), torch.randn(5, 5))


@program("e3nn", second=1)
def e3nn_spherical_harmonics_and_gate():
    from e3nn import nn as layers
    from e3nn import o3

    gate = layers.Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
    linear = o3.Linear("4x0e+2x1o", gate.irreps_in)

    def fn(x, v):
        return gate(linear(x)), o3.spherical_harmonics([0, 1, 2], v, normalize=True, normalization="component")

    return fn, (torch.randn(5, 10), torch.randn(5, 3))


@program("pyro", graphs=14, breaks=27, eager=11, second=20)
def pyro_loss():
    """Pyro asks after each site whether a number is nan, and looks for its caller to say where. Its store of parameters is filled at the first call."""
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


@program("gpytorch", graphs=6, breaks=3, eager=3, second=3)
def gpytorch_exact_likelihood():
    """The kernel is an autograd function under an ``except``, whose forward is captured by itself; the code compares its inputs with those of before."""
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


@program("accelerate", breaks=1)
def accelerate_prepared():
    """The object that holds the state of all takes over their `__dict__`."""
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


@program("torchao")
def torchao_int4_weights():
    """``Int4WeightOnlyConfig`` has no layout for a CPU (torchao 0.18); this configuration packs for its kernel."""
    from torchao.quantization import quantize_

    config = pytest.importorskip("torchao.prototype.quantization.int4.inference_workflow").PrototypeInt4WeightOnlyConfig(group_size=32)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).to(torch.bfloat16).eval()
    quantize_(model, config)
    return model, (torch.randn(3, 64, dtype=torch.bfloat16),)


@program("torchao")
def torchao_int4_weights_and_int8_activations():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
    return model, (torch.randn(3, 64),)


@program("jaxtyping")
def jaxtyping_with_beartype():
    beartype = pytest.importorskip("beartype").beartype
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


def made(make: Make) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(0)
    return make()


def called(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    torch.manual_seed(1)
    return fn(*args)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_first_and_second_call(name: str) -> None:
    make, expected = PROGRAMS[name]
    pytest.importorskip(expected.library, exc_type=ImportError)
    fn, args = made(make)
    # What each call gives: some count their calls.
    eager = [called(fn, args), called(fn, args), called(fn, args)]
    fn, args = made(make)
    called(fn, args)
    backend = CountingBackend()
    compiled = fineline.compile(fn, backend=backend)
    first = called(compiled, args)
    [region] = [region for region in fineline.api.regions() if region.fn is fn]
    breaks = [event for event in region.reports.events if event.kind == "break"]
    operators = sum([node.op.startswith("call") for gm in region.graphs.graphs for node in gm.graph.nodes])
    graphs, backend.counted.captured = backend.counted.graphs, 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        second = called(compiled, args)
    torch.testing.assert_close((first, second), (eager[1], eager[2]), rtol=0, atol=0)
    assert (graphs, len(breaks), backend.counted.graphs > graphs) == (expected.graphs, expected.breaks, expected.again)
    fn, args = made(make)
    called(fn, args)
    # The first call makes its operators one by one.
    ran = fineline.explain(fn)(*args).ran
    assert ran["eager"] == expected.eager and ran["captured"] > ran["eager"]
    if not expected.again:
        assert eager_operators(profile.events()) == expected.second and backend.counted.captured >= operators
        assert backend.counted.captured == operators or expected.breaks


COLD = """
import torch
import fineline
import einops, einx

x = torch.randn(2, 8, 5)


def by_einops(x):
    return einops.reduce(einops.rearrange(x, "b (h d) n -> b h n d", h=2), "b h n d -> b h d", "mean")


def by_einx(x):
    return einx.mean("b h [n] d", einx.id("b (h d) n -> b h n d", x, h=2))


for fn in (by_einops, by_einx):
    graphs, counts = [], []

    def backend(gm, inputs):
        graphs.append(sum(n.op.startswith("call") for n in gm.graph.nodes))
        return gm.forward

    compiled = fineline.compile(fn, backend=backend)
    for k in range(4):
        found = compiled(x)
        counts.append(list(graphs))
        assert torch.equal(found, fn(x))
    region, = [region for region in fineline.api.regions() if region.fn is fn]
    print(counts, [e.id for e in region.reports.events if e.kind in ("break", "eager", "recompile")])
"""


def test_tables_that_the_first_call_fills() -> None:
    """In a new process. They cost no graph break, and no capture after the first.

    A table in an opaque call, as that of einx, makes the first call run eagerly; it is captured after that.
    """
    pytest.importorskip("einops")
    pytest.importorskip("einx")
    run = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[[4], [4], [4], [4]] []", "[[2], [2], [2], [2]] ['FL454']"]
