"""nn.Modules: calls with hooks of all kinds, containers, buffers, modes, patched forwards, and PyTorch's own layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


def filled(module: nn.Module, seed: int = 1) -> nn.Module:
    """Parameters that depend on nothing but the arguments."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    return module


class Net(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.second = nn.Linear(width, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) * scale


def hooked() -> Any:
    """-> (net, state) where the state is [log, net, handles]."""
    torch.utils.hooks.RemovableHandle.next_id = 0  # a count of the process, visible in handles
    net = filled(Net())
    return net, [[], net, []]


# -- hooks -----------------------------------------------------------------------------------------------------------
@table.program(grad=True)
def forward_hooks() -> Any:
    net = filled(Net())
    net.first.register_forward_hook(lambda m, args, out: out * 2)
    net.register_forward_hook(lambda m, args, out: None)
    net.second.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    net.register_forward_pre_hook(lambda m, args: args[0] * 3)
    return net, net


@table.program()
def hooks_with_kwargs() -> Any:
    net = filled(Net())
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {**kwargs, "scale": 5.0}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["scale"], with_kwargs=True)
    return net, net


@table.program(recompiles=(1, 2), calls=3)
def hooks_that_write() -> Any:
    net, seen = filled(Net()), {"out": None, "n": 0}

    def keep(module, args, out):
        seen["out"] = out.detach()
        seen["n"] += 1

    net.first.register_forward_hook(keep)
    net.second.register_forward_hook(keep, prepend=True)
    return net, (net, seen)


@table.program()
def hook_keeps_activations() -> Any:
    net, kept = filled(Net()), {}
    for name, module in net.named_modules():
        module.register_forward_hook(lambda m, args, out, name=name: kept.__setitem__(name, out))

    def fn(x):
        y = net(x)
        return y, kept["first"].sum(), list(kept)

    fn(t(0))
    return fn, (net, kept)


@table.program(min_graphs=1)
def always_call_hook() -> Any:
    net, log = filled(Net()), []
    net.register_forward_hook(lambda m, args, out: log.append(out is None), always_call=True)

    def fn(x):
        try:
            return net(x, scale=[])
        except TypeError as error:
            called = list(log)
            log.clear()
            return x * 2, type(error).__name__, called

    fn(t(0))
    log.clear()
    return fn, net


def _add_hook(state: Any) -> None:
    state[2].append(state[1].first.register_forward_hook(lambda m, args, out: out * 2))


@table.program(calls=6, recompiles=(2, 4), must_recompile=False, change={2: _add_hook, 4: lambda s: s[2].pop().remove()})
def hook_added_and_removed_later() -> Any:
    return hooked()


def _add_global_hook(state: Any) -> None:
    nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1 if type(m) is nn.Linear else None)


@table.program(calls=4, recompiles=(2,), must_recompile=True, change={2: _add_global_hook})
def global_hook_added_later() -> Any:
    return hooked()


@table.program(breaks=True, min_graphs=0, grad=True)
def backward_hooks() -> Any:
    net = filled(Net())
    net.first.register_full_backward_hook(lambda m, gi, go: tuple(None if g is None else g * 2 for g in gi))
    net.second.register_full_backward_pre_hook(lambda m, go: tuple(g * 3 for g in go))
    return net, net


@table.program(recompiles=(1, 2), breaks=True)
def hook_registered_inside() -> Any:
    net = filled(Net())

    def fn(x):
        handle = net.first.register_forward_hook(lambda m, args, out: out * 2)
        y = net(x)
        handle.remove()
        return y, len(net.first._forward_hooks)

    return fn, net.first.weight


# -- containers ------------------------------------------------------------------------------------------------------
class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})
        self.chain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4)))
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4) * k) for k in range(2)])
        self.table = nn.ParameterDict({"x": nn.Parameter(torch.ones(4)), "y": nn.Parameter(torch.ones(4))})

    def forward(self, x):
        for k, block in enumerate(self.blocks[1:]):
            x = block(x) + k
        x = self.blocks[-1](x) + self.blocks[0](x) * len(self.blocks)
        for name, module in self.named.items():
            x = module(x) if name != "z" and name in self.named else x
        x = self.chain(x) + self.chain[0](x)
        for w in self.weights:
            x = x * (w + 1)
        x = x + self.weights[0] + self.table["x"] + sum(p.sum() for p in self.table.values())
        return x, list(self.named), [type(m).__name__ for m in self.chain], "x" in self.table


@table.program(grad=True)
def containers() -> Any:
    net = filled(Containers())
    return net, net


@table.program(calls=4, change={2: lambda net: net.blocks.append(filled(nn.Linear(4, 4)))}, recompiles=(2,), must_recompile=True)
def container_grows() -> Any:
    net = filled(Containers())
    return net, net


@table.program()
def walking_over_modules() -> Any:
    net = filled(Containers())

    def fn(x):
        total = sum(p.square().sum() for p in net.parameters())
        names = [n for n, _ in net.named_parameters()]
        kinds = [type(m).__name__ for m in net.modules()]
        children = [n for n, c in net.named_children()]
        return x * total, names, kinds, children, len(list(net.buffers())), next(net.parameters()).dtype

    return fn, net


# -- buffers, state, modes -------------------------------------------------------------------------------------------
class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("none", None)
        self.register_buffer("steps", torch.tensor(0), persistent=False)
        self.last = None
        self.names = []

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            self.steps += 1
        else:
            self.mean = self.mean * 0.5
        self.last = x * 2
        self.names.append(self._get_name())
        return x - self.mean if self.none is None else x, self.names[-1]


@table.program(recompiles=(1,))
def buffers_mutated() -> Any:
    net = Running()

    def fn(x):
        net.names.clear()
        return net(x)

    return fn, net


@table.program(calls=5, recompiles=(2,), change={2: lambda net: net.eval(), 3: lambda net: net.train()})
def train_and_eval() -> Any:
    net = filled(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)))
    return net, net


@table.program()
def mode_switched_inside() -> Any:
    net = filled(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))

    def fn(x):
        net.eval()
        y = net(x)
        net.train()
        return y, net(x), net[1].training

    return fn, net


@table.program(calls=3, recompiles=(1, 2))
def counter_on_self() -> Any:
    class Counting(Net):
        def forward(self, x):
            self.calls += 1
            return super().forward(x) * self.calls

    net = filled(Counting())
    return net, net


@table.program()
def state_dict_read_inside() -> Any:
    net = filled(Net())

    def fn(x):
        state = net.state_dict()
        return x @ state["first.weight"].T, list(state)

    return fn, net


@table.program(calls=4, change={2: lambda net: net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()})})
def weights_loaded_later() -> Any:
    net = filled(Net())
    return net, net


def _new_weight(net: Any) -> None:
    net.first.weight = nn.Parameter(net.first.weight.detach() + 1)


@table.program(calls=4, change={2: _new_weight})
def parameter_replaced_later() -> Any:
    net = filled(Net())
    return net, net


@table.program(calls=4, change={2: lambda net: setattr(net, "first", nn.Identity())}, recompiles=(2,), must_recompile=True)
def submodule_replaced_later() -> Any:
    net = filled(Net())
    return net, net


@table.program(calls=4, change={2: lambda net: net.requires_grad_(False)}, recompiles=(2,))
def parameters_frozen_later() -> Any:
    net = filled(Net())
    return net, net


# -- forwards and attributes -----------------------------------------------------------------------------------------
@table.program(calls=4, change={2: lambda net: setattr(net.first, "forward", lambda x: x * 7)}, recompiles=(2,), must_recompile=True)
def forward_patched_on_an_instance() -> Any:
    net = filled(Net())
    return net, net


PATCHES = {2: lambda s: setattr(s[1], "forward", lambda self, x: x - 1), 3: lambda s: setattr(s[1], "forward", s[2])}


@table.program(calls=5, recompiles=(2, 3), change=PATCHES)
def forward_patched_on_the_class() -> Any:
    class Inner(nn.Module):
        def forward(self, x):
            return x * 2

    net = nn.Sequential(Inner(), nn.ReLU())
    return net, [net, Inner, Inner.forward]


@table.program(grad=True)
def tied_weights() -> Any:
    net = filled(Net())
    net.second.weight = net.first.weight
    shared = nn.Sequential(net, net)
    return shared, shared


@table.program(grad=True)
def functional_call() -> Any:
    net = filled(Net())

    def fn(x):
        new = {name: p * 2 for name, p in net.named_parameters()}
        return torch.func.functional_call(net, new, (x,)), net(x)

    return fn, net


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4)

    def __getattr__(self, name):
        if name == "scale":
            return 3.0
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base, name)

    @property
    def table(self):
        if not hasattr(self, "_table"):
            self._table = torch.arange(4.0)
        return self._table

    def forward(self, x):
        return self.base(x) * self.scale + self.table + self.weight.sum() + self.out_features


@table.program(recompiles=(1,))
def attributes_made_on_demand() -> Any:
    net = filled(Lazy())
    return net, net


@table.snippet()
def modules_made_inside(x):
    relu = nn.ReLU()
    chain = nn.Sequential(relu, nn.Flatten(0), nn.Softmax(-1))
    return chain(x), nn.LayerNorm(4, elementwise_affine=False)(x), nn.GELU()(x)


@table.program()
def modules_returned() -> Any:
    net = filled(Net())

    def fn(x):
        return net.first(x), net.first, {"m": net}, net.second.forward

    return fn, net


@table.program(calls=4, args=lambda i: (filled(nn.Linear(4, 2), i), t(i)))
def module_as_an_argument() -> Any:
    def fn(module, x):
        return module(x) + module.bias, isinstance(module, nn.Linear), module.in_features

    return fn


@table.program()
def bound_method_of_a_module() -> Any:
    class Model(Net):
        def encode(self, x, *, double=False):
            return self.first(x) * (2 if double else 1)

        @staticmethod
        def halve(x):
            return x / 2

        @classmethod
        def build(cls):
            return cls.__name__

    net = filled(Model())

    def fn(x):
        return net.encode(net.halve(x), double=True), net.build(), Model.halve(x), nn.Module.__call__(net, x)

    return fn, net


@table.program()
def attributes_of_modules() -> Any:
    net = filled(Net())

    def fn(x):
        net.extra = x * 2
        net.note = "n"
        has = hasattr(net, "extra"), hasattr(net, "missing"), getattr(net, "missing", 3)
        y = net.extra + 1
        del net.note
        return y, has, "first" in dict(net.named_children()), net.get_parameter("first.bias") is net.first.bias

    fn(t(0))
    return fn, net


# -- PyTorch's layers ------------------------------------------------------------------------------------------------
def _tokens(i: int) -> tuple[Any, ...]:
    return (t(i, 2, 5, 8),)


@table.program(args=_tokens, grad=True)
def recurrent_layers() -> Any:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(12, 4, batch_first=True)
            self.cell = nn.LSTMCell(4, 3)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            z, last = self.gru(y)
            return z, h, c, last, self.cell(z[:, 0])

    net = filled(Model())
    return net, net


@table.program(args=_tokens, tolerance=1e-6)
def attention() -> Any:
    net = filled(nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.0))

    def fn(x):
        out, weights = net(x, x, x)
        masked, _ = net(x, x, x, need_weights=False, attn_mask=torch.ones(5, 5).tril() == 0)
        return out, weights, masked

    return fn, net


@table.program(args=_tokens, tolerance=1e-6, calls=5, recompiles=(2,), change={2: lambda net: net.eval()})
def transformer_layers() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = filled(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    return net, net


@table.program(args=lambda i: (t(i, 2, 3, 8, 8),), grad=True, tolerance=1e-6)
def convolutions_and_norms() -> Any:
    net = filled(nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.GroupNorm(2, 4),
        nn.ConvTranspose2d(4, 2, 2),
        nn.InstanceNorm2d(2, affine=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3), nn.LogSoftmax(-1),
    ))  # fmt: skip
    return net, net


@table.program(args=lambda i: (torch.tensor([[0, 1, i], [3, 2, 1]]), torch.tensor([i % 2, 1])), grad=True)
def embeddings_and_losses() -> Any:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 4, padding_idx=0)
            self.bag = nn.EmbeddingBag(5, 4, mode="mean")
            self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

        def forward(self, ids, target):
            logits = self.embed(ids).mean(1) + self.bag(ids)
            return {"loss": self.loss(logits, target), "logits": logits}

    net = filled(Model())
    return net, net


@table.program(grad=True)
def parametrized_weights() -> Any:
    net = filled(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2)))
    return net, net


class Moves(nn.Module):
    """It takes itself, and a module inside, to where the argument is."""

    def __init__(self):
        super().__init__()
        self.l, self.n = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        y = self.l(x)
        self.to(x.device)
        self.n.to(device=x.device, dtype=x.dtype)
        return self.n(self.l(y)) * 2


# By the second call there are gradients to be taken along.
@table.program(calls=4, change={2: lambda m: m.l.requires_grad_(False)}, recompiles=(1, 2), max_graphs=3)
def module_to_where_it_is():
    torch.manual_seed(0)
    module = Moves()
    return module, module


@table.program(calls=3, change={1: lambda m: m.double(), 2: lambda m: m.float()}, recompiles=(1, 2), breaks=True)
def module_to_another_type():
    module = Moves()

    def fn(x):
        module.to(x.dtype)
        return module(x) + 1

    return fn, module


PADDED = ((5, 3, 2), (5, 2, 1), (4, 4, 3))


def _padded(place):
    x = t(0, 3, 5, 8).detach()
    return x, torch.arange(5) >= torch.tensor(PADDED[place])[:, None]


# Fakes of nested tensors, which AOTAutograd makes too, warn once more that these are a prototype.
NESTED_TWINS = ("captured", "reference", "borders", "limit1", "dynamic", "strict", "counted")


# PyTorch asks there whether it is compiled, so as to leave out what gives zeros for the padding, and no more of it than is needed.
@table.program(args=_padded, calls=3, breaks=True, recompiles=(1, 2), backward=False, grad=False, twins=NESTED_TWINS)
def encoder_with_padding():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = filled(nn.TransformerEncoder(layer, 2)).eval()

    def fn(x, padding):
        with torch.no_grad():
            return net(x, src_key_padding_mask=padding)

    return fn, net


@table.program(
    args=lambda place: (_padded(place)[0], _padded(place)[1].flip(1)), calls=3, breaks=True, recompiles=(1, 2), backward=False, grad=False,
    twins=NESTED_TWINS,
)  # fmt: skip
def encoder_with_padding_at_the_left():
    return encoder_with_padding()


@table.snippet(args=lambda place: (t(place), t(place + 5)), calls=4)
def data_of_itself(x, y):
    z = x * 2
    x.data = x
    x.data = x.contiguous()
    return z + x, x._version, y.sum()



class Buffered(nn.Module):
    def __init__(self, x):
        super().__init__()
        self.held, self.short = nn.Buffer(x * 2), nn.Buffer(x.cos(), persistent=False)

    def forward(self, x):
        return x * self.held + self.short


@table.snippet(max_graphs=1, options={"fullgraph": True})
def buffers_made_inside(x):
    one = nn.Buffer(torch.ones(4), persistent=False)
    module = Buffered(x)
    y = module(x * one)
    return y, one, isinstance(one, nn.Buffer), type(one), one.persistent, sorted(dict(module.named_buffers())), sorted(module.state_dict()), nn.Buffer()


@table.snippet(breaks=True, args=lambda place: (t(place, grad=True),))
def buffer_of_what_requires_a_gradient(x):
    one = nn.Buffer(x)
    return one * 2, one.is_leaf, isinstance(nn.Buffer(x.detach()), nn.Buffer)


class Marked(torch.Tensor):
    pass


def marked(place: int) -> tuple:
    x = t(place).as_subclass(Marked)
    y = t(place + 1)
    if place % 2:
        x, y = nn.Parameter(x, requires_grad=False), nn.Buffer(y)
    return x, y


@table.program(args=marked, calls=4, recompiles=(1,), must_recompile=True)
def parameters_and_buffers_by_their_marks():
    def fn(x, y):
        told = isinstance(x, nn.Parameter), isinstance(y, (int, (str, nn.Buffer))), isinstance(y, nn.Parameter), isinstance(x, int | nn.Parameter)
        return (y * 2 if isinstance(y, nn.Buffer) else y * 3), told

    return fn




@pytest.mark.parametrize("program", table.programs, ids=str)
def test_modules(program: Program, twin: str) -> None:
    check(program, twin)


def test_lazy_modules_are_made_at_the_first_call():
    """That call runs eagerly, and its graph, which fits the next one, is captured after it. The oracle can't look at what has no shape."""
    def made():
        return nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))

    graphs: list[int] = []

    def backend(gm, inputs):
        graphs.append(sum(n.op.startswith("call") for n in gm.graph.nodes))
        return gm.forward

    plain, module = made(), made()
    compiled, counts = fineline.compile(module, backend=backend), []
    for k in range(4):
        x = t(k, 3, 4)
        torch.manual_seed(k)
        expected = plain(x)
        torch.manual_seed(k)
        found = compiled(x)
        assert torch.equal(found, expected) and found.requires_grad
        assert [type(part) for part in module] == [type(part) for part in plain] == [nn.Linear, nn.ReLU, nn.BatchNorm1d, nn.Linear]
        assert not any(part._forward_pre_hooks for part in module)
        for name, value in plain.state_dict().items():
            assert torch.equal(module.state_dict()[name], value), name
        counts.append(list(graphs))
    # The linear layer, relu; the normalisation and its count of batches; the other linear layer.
    assert counts == [[5], [5], [5], [5]]


def test_a_lazy_module_that_cannot_be_made():
    module = nn.Sequential(nn.LazyConv2d(4, 1))

    def fn(x):
        try:
            return module(x)
        except (RuntimeError, ValueError) as e:
            return x.sin(), str(e)

    compiled = fineline.compile(fn, backend="eager")
    for _ in range(2):
        found, expected = compiled(t(0, 3)), fn(t(0, 3))
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
    assert torch.equal(compiled(t(0, 1, 3, 2, 2)), fn(t(0, 1, 3, 2, 2))) and type(module[0]) is nn.Conv2d


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_call_that_makes_parameters_where_no_graph_may_break(backend):
    module, seen = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)), []

    def fn(x):
        seen.append(len(seen))
        return module(x.mul_(2)).relu()

    compiled, x = fineline.compile(fn, backend=backend, fullgraph=True), torch.ones(3)
    compiled(x)
    assert torch.equal(x, torch.full((3,), 2.0)) and seen == [0] and [type(part) for part in module] == [nn.Linear, nn.ReLU, nn.Linear]
    assert "FL440 LazyModuleMixin._infer_parameters makes the parameters" in str(fineline.report(compiled))
    assert torch.equal(compiled(x), module(torch.full((3,), 4.0)).relu()) and seen == [0, 1]
    assert "1 graph, 5 operators, 0 graph breaks" in str(fineline.report(compiled))
