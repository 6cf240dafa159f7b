"""OptimizedModule stands in for the original in everything but what a call runs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import inspect
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

import fineline
from fineline.region.optimized_module import OptimizedModule, TorchOptimizedModule


class Region:
    """A region that counts its calls."""

    def __init__(self, mod: nn.Module, note: str) -> None:
        self.mod, self.note, self.calls = mod, note, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.mod(*args, **kwargs)


class Net(nn.Module):
    """Parameters, a buffer, a submodule, a plain attribute, a property and a method that returns self."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("count", torch.zeros(()))
        self.width = 3

    @property
    def doubled(self) -> int:
        return self.width * 2

    def forward(self, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
        self.count += 1
        return self.lin(x) * self.scale + shift


def make_region(mod: nn.Module, note: str) -> Region:
    return Region(mod, note)


def optimized(mod: nn.Module) -> OptimizedModule:
    rebuild = functools.partial(make_region, note="options")
    return OptimizedModule(mod, rebuild(mod), rebuild)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def test_a_call_goes_to_the_region(net: Net) -> None:
    opt = optimized(net)
    x = torch.randn(2, 3)
    assert torch.equal(opt(x, shift=1.0), net.lin(x) * 2 + 1)
    assert opt._fineline_region.calls == 1
    assert net.count == 1


def test_no_python_frame_lies_between_call_and_region(net: Net) -> None:
    def caller(*args: Any) -> str:
        return inspect.currentframe().f_back.f_code.co_name  # type: ignore[union-attr]

    assert OptimizedModule(net, caller)() == "test_no_python_frame_lies_between_call_and_region"


def test_it_is_a_module_and_the_original_is_untouched(net: Net) -> None:
    before = dict(vars(net))
    opt = optimized(net)
    assert isinstance(opt, nn.Module)
    assert opt._orig_mod is net
    assert vars(net) == before
    assert type(net) is Net


def test_parameters_are_the_same_objects(net: Net) -> None:
    opt = optimized(net)
    assert [n for n, _ in opt.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert all(a is b for a, b in zip(opt.parameters(), net.parameters(), strict=True))
    assert opt.count is net.count
    assert next(opt.children()) is net.lin


def test_state_dict_has_the_originals_keys_and_loads(net: Net) -> None:
    opt = optimized(net)
    assert list(opt.state_dict()) == list(net.state_dict()) == ["scale", "count", "lin.weight", "lin.bias"]
    opt.load_state_dict({k: torch.ones_like(v) for k, v in Net().state_dict().items()})
    assert net.scale == 1
    parent = nn.Sequential(opt)
    assert list(parent.state_dict()) == ["0.scale", "0.count", "0.lin.weight", "0.lin.bias"]
    parent.load_state_dict({k: torch.zeros_like(v) for k, v in parent.state_dict().items()})
    assert net.scale == 0


def test_train_and_eval_both_ways(net: Net) -> None:
    opt = optimized(net)
    assert opt.eval() is opt
    assert (net.training, net.lin.training, opt.training) == (False, False, False)
    net.train()
    assert opt.training
    opt.training = False
    assert not net.training
    nn.Sequential(opt).train()
    assert net.lin.training


@pytest.mark.parametrize("method", ["double", "float", "cpu", "eval", "train", "requires_grad_", "share_memory"])
def test_methods_that_return_the_module_return_the_stand_in(net: Net, method: str) -> None:
    opt = optimized(net)
    assert getattr(opt, method)() is opt


def test_conversion_reaches_the_original(net: Net) -> None:
    opt = optimized(net)
    assert opt.to(torch.float64) is opt
    assert net.lin.weight.dtype == torch.float64
    seen: list[nn.Module] = []
    assert opt.apply(seen.append) is opt
    assert seen == [net.lin, net]


def test_attributes_read_write_delete(net: Net) -> None:
    opt = optimized(net)
    assert (opt.width, opt.doubled) == (3, 6)
    opt.width = 5
    assert (net.width, opt.doubled) == (5, 10)
    opt.extra = nn.Linear(1, 1)
    assert net.extra is opt.extra and "extra" in dict(net.named_children())
    del opt.extra
    assert not hasattr(net, "extra") and not hasattr(opt, "extra")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = opt.nothing
    assert {"width", "lin", "doubled", "_orig_mod"} <= set(dir(opt))
    assert vars(opt) is vars(net)


def test_hooks_registered_on_it_are_the_originals(net: Net) -> None:
    opt = optimized(net)
    log: list[str] = []
    handle = opt.register_forward_hook(lambda m, a, out: log.append(type(m).__name__))
    opt(torch.randn(1, 3))
    handle.remove()
    opt(torch.randn(1, 3))
    assert log == ["Net"]


def test_containers() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    opt = optimized(inner)
    assert len(opt) == 3
    assert opt[1] is inner[1]
    assert list(opt) == list(inner)
    assert inner[0] in opt
    opt[1] = nn.Tanh()
    assert isinstance(inner[1], nn.Tanh)
    del opt[2]
    assert len(inner) == 2
    opt.append(nn.ReLU())
    assert len(inner) == 3
    named = optimized(nn.ModuleDict({"a": nn.ReLU()}))
    assert "a" in named and list(named.keys()) == ["a"]


def test_a_module_without_length_is_true_and_says_what_it_lacks(net: Net) -> None:
    opt = optimized(net)
    assert opt
    assert not optimized(nn.Sequential())
    with pytest.raises(TypeError, match="'Net' has no len"):
        len(opt)
    with pytest.raises(TypeError, match="'Net' object is not subscriptable"):
        opt[0]
    with pytest.raises(TypeError, match="'Net' object is not iterable"):
        iter(opt)


def test_deepcopy_is_apart_and_has_a_region_of_its_own(net: Net) -> None:
    opt = optimized(net)
    twin = copy.deepcopy(opt)
    assert twin._orig_mod is not net
    with torch.no_grad():
        twin.scale.zero_()
    assert net.scale == 2
    twin(torch.randn(1, 3))
    assert twin._fineline_region is not opt._fineline_region
    assert twin._fineline_region.mod is twin._orig_mod
    assert twin._fineline_region.note == "options"
    assert (twin.count, net.count) == (1, 0)


def test_deepcopy_keeps_sharing(net: Net) -> None:
    pair = copy.deepcopy([net, optimized(net)])
    assert pair[1]._orig_mod is pair[0]


def test_copy_shares_parameters(net: Net) -> None:
    twin = copy.copy(optimized(net))
    assert twin._orig_mod is not net
    assert twin.lin is net.lin
    assert twin._fineline_region.mod is twin._orig_mod


def test_pickle_and_torch_save(net: Net) -> None:
    opt = optimized(net)
    x = torch.randn(2, 3)
    want = opt(x)
    again = pickle.loads(pickle.dumps(opt))
    buffer = io.BytesIO()
    torch.save(opt, buffer)
    buffer.seek(0)
    for other in (again, torch.load(buffer, weights_only=False)):
        assert type(other) is type(opt) and isinstance(other, OptimizedModule)
        assert torch.equal(other(x), want)
        assert other._fineline_region.calls == 1


def test_without_a_rebuilding_function_copies_are_refused(net: Net) -> None:
    with pytest.raises(TypeError, match="rebuilds"):
        copy.deepcopy(OptimizedModule(net, net))


def test_forward_can_be_wrapped_in_place_and_given_back(net: Net) -> None:
    opt = optimized(net)
    inner = opt.forward
    opt.forward = lambda *args: inner(*args) + 100
    assert opt(torch.zeros(1, 3)).min() > 50
    assert "forward" not in vars(net)
    del opt.forward
    assert opt.forward is inner and object.__getattribute__(opt, "__call__") is opt._fineline_region
    opt.forward = inner
    assert object.__getattribute__(opt, "__call__") is opt._fineline_region


def test_forward_looks_like_the_original_s(net: Net) -> None:
    opt = optimized(net)
    assert inspect.signature(opt.forward) == inspect.signature(net.forward)
    assert inspect.getfullargspec(opt.forward) == inspect.getfullargspec(net.forward)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__code__"):
        assert getattr(opt.forward, name) == getattr(net.forward, name)
    assert opt.forward.__wrapped__ == net.forward
    assert not hasattr(opt.forward, "__func__"), "who calls that passes the region by"
    x = torch.randn(2, 3)
    assert torch.equal(opt.forward(x), net(x)) and opt._fineline_region.calls == 1


def test_copies_of_forward(net: Net) -> None:
    opt = optimized(net)
    x = torch.randn(2, 3)
    want = net(x)
    assert copy.copy(opt.forward) is opt.forward
    for other in (copy.deepcopy(opt.forward), pickle.loads(pickle.dumps(opt.forward))):
        assert torch.equal(other(x), want) and other is not opt.forward
        with torch.no_grad():
            other._orig_mod.scale.zero_()
    assert torch.equal(opt(x), want)


def test_the_empty_name_is_the_stand_in(net: Net) -> None:
    opt = optimized(net)
    assert opt.get_submodule("") is opt and opt.get_submodule("lin") is net.lin


def test_replacing_the_original_makes_a_new_region(net: Net) -> None:
    opt = optimized(net)
    other = Net()
    opt._orig_mod = other
    assert opt._fineline_region.mod is other
    assert opt.scale is other.scale


def test_signature_and_repr(net: Net) -> None:
    opt = optimized(net)
    assert list(inspect.signature(opt).parameters) == ["x", "shift"]
    assert repr(opt).startswith("OptimizedModule(\n  (_orig_mod): Net(\n    (lin): Linear(")


def test_functional_call_swaps_parameters(net: Net) -> None:
    opt = optimized(net)
    x = torch.randn(1, 3)
    out = torch.func.functional_call(opt, {"scale": torch.tensor(0.0)}, (x,))
    assert torch.equal(out, torch.zeros(1, 3))
    assert net.scale == 2


def test_it_is_freed_without_a_collection(net: Net) -> None:
    opt = optimized(Net())
    gone = weakref.ref(opt._orig_mod)
    gc.disable()
    try:
        del opt
        assert gone() is None
    finally:
        gc.enable()


class Stepping(nn.Module):
    """Compiles methods of its own, as training code does."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(2, 2)
        self.step = fineline.compile(self._step, backend="eager")
        self.forward = fineline.compile(self.forward, backend="eager")

    def _step(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.l(x) + 1


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))], ids=["copied", "pickled"])
def test_compiled_methods_of_a_copy_are_its_own(twin_of: Any) -> None:
    stepping, x = Stepping(), torch.ones(1, 2)
    before = stepping.step(x), stepping(x)
    twin = twin_of(stepping)
    assert torch.equal(twin.step(x), before[0])
    with torch.no_grad():
        twin.l.weight.zero_()
        twin.l.bias.zero_()
    assert not twin.step(x).any()
    assert torch.equal(twin(x), torch.ones(1, 2))
    assert torch.equal(stepping.step(x), before[0])
    assert torch.equal(stepping(x), before[1])
    assert copy.copy(stepping.step) is stepping.step


# -- as libraries ask ------------------------------------------------------------------------------------------------------------
class Odd(nn.Module):
    """Answers for attributes that it does not have, as PEFT's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(3, 3)
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("base_"):
                self.__dict__["asked"] += 1
                return name
            raise

    def forward(self, *args: torch.Tensor, **how: Any) -> torch.Tensor:
        return self.base(*args)


def by_pytorch_s_name(mod: nn.Module) -> OptimizedModule:
    own = fineline.compile(mod, backend="eager")
    return TorchOptimizedModule(mod, own._fineline_region, dataclasses.replace(own._fineline_rebuild, modules=TorchOptimizedModule))


MAKERS = {"fineline": lambda mod: fineline.compile(mod, backend="eager"), "torch": by_pytorch_s_name}
ASKED: dict[str, Any] = {
    "signature of the class's forward": lambda m: inspect.signature(type(m).forward),
    "signature of __class__.forward": lambda m: inspect.signature(m.__class__.forward),
    "full argument specification": lambda m: inspect.getfullargspec(type(m).forward),
    "signature of forward": lambda m: inspect.signature(m.forward),
    "names of the parameters": lambda m: list(inspect.signature(type(m).forward).parameters)[1:],
    "source of forward": lambda m: inspect.getsource(type(m).forward),
    "document of forward": lambda m: type(m).forward.__doc__,
    "the class's forward, called": lambda m: type(m).forward(m, torch.ones(1, 3)),
    "__class__.forward, called": lambda m: m.__class__.forward(m, torch.ones(1, 3)),
    "forward, called": lambda m: m.forward(torch.ones(1, 3)),
    "__call__, called": lambda m: m.__call__(torch.ones(1, 3)),
    "__getattr__ of a module": lambda m: [m.__getattr__(name) is getattr(m, name) for name, _ in m.__dict__["_modules"].items()],
    "__getattr__ of the type": lambda m: [type(m).__getattr__(m, name) is getattr(m, name) for name in m.__dict__["_modules"]],
    "__getattr__ of what is not there": lambda m: raised(lambda: m.__getattr__("nothing")),
    "an attribute that is not there": lambda m: raised(lambda: m.nothing),
    "what the module answers itself": lambda m: getattr(m, "base_model", None),
    "hasattr": lambda m: [hasattr(m, name) for name in ("lin", "nothing", "scale", "base_layer")],
    "loading what is too little": lambda m: [len(keys) for keys in m.load_state_dict({}, strict=False)],
    "loading what is unknown": lambda m: m.load_state_dict({"other": torch.ones(1)}, strict=False).unexpected_keys,
    "type hints of forward": lambda m: str(inspect.signature(type(m).forward).return_annotation),
}


def raised(call: Any) -> str:
    with pytest.raises(AttributeError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("door", MAKERS)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("cls", [Net, Odd])
def test_it_answers_as_the_module_does(cls: type, asked: str, door: str) -> None:
    torch.manual_seed(0)
    plain = cls()
    torch.manual_seed(0)
    opt = MAKERS[door](cls())
    for _ in range(2):
        ours, theirs = ASKED[asked](opt), ASKED[asked](plain)
        assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs
    assert getattr(opt, "asked", 0) == getattr(plain, "asked", 0)


@pytest.mark.parametrize("door", MAKERS)
@pytest.mark.parametrize("called", [False, True])
def test_torch_fx_traces_through_it(door: str, called: bool) -> None:
    plain, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    opt = MAKERS[door](plain)
    if called:
        opt(x)
    traced = torch.fx.symbolic_trace(opt)
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert torch.equal(traced(x), plain(x)) and torch.equal(opt(x), plain(x))
    parent = torch.fx.symbolic_trace(nn.Sequential(opt, nn.Tanh()))
    assert torch.equal(parent(x), plain(x).tanh())


def test_classes_of_stand_ins() -> None:
    one, two, other = [fineline.compile(m, backend="eager") for m in (Net(), Net(), Odd())]
    assert type(one) is type(two) is not type(other)
    for opt in (one, other):
        assert isinstance(opt, OptimizedModule) and issubclass(type(opt), OptimizedModule)
        assert (type(opt).__name__, type(opt).__module__) == ("OptimizedModule", "fineline.region.optimized_module")
    assert type(type(one)(Odd(), lambda: None)) is type(other)
    assert list(inspect.signature(OptimizedModule.forward).parameters) == ["self", "args", "kwargs"]

    class Mine(OptimizedModule):
        pass

    mine = Mine(Net(), Region(Net(), ""))
    assert isinstance(mine, Mine) and type(mine).__name__ == "Mine"

    def gone() -> weakref.ref:
        class Local(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x

        fineline.compile(Local(), backend="eager")
        return weakref.ref(Local)

    ref = gone()
    # The class of stand-ins goes first.
    gc.collect(), gc.collect()
    assert ref() is None


def test_the_class_s_forward_in_captured_code(net: Net) -> None:
    opt, x = fineline.compile(net, backend="eager"), torch.randn(2, 3)
    outer = fineline.compile(lambda x: type(opt).forward(opt, x) * 2, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(outer(x), net(x) * 2)


# -- names of parameters ----------------------------------------------------------------------------------------------------------
class Versioned(nn.Module):
    """Has what a state may hold: a module with a version, a buffer that is not saved, and a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.lin, self.more = nn.BatchNorm1d(3), nn.Linear(3, 3), "some"
        self.register_buffer("unsaved", torch.zeros(1), persistent=False)

    def get_extra_state(self) -> str:
        return self.more

    def set_extra_state(self, state: str) -> None:
        self.more = state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(self.norm(x))


@pytest.fixture
def stock() -> Any:
    """What torch.compile's own modules answer."""
    torch._dynamo.reset()
    return lambda mod: torch.compile(mod, backend="eager")


NAMES: dict[str, Any] = {
    "state_dict": lambda m: list(m.state_dict()),
    "state_dict with a prefix": lambda m: list(m.state_dict(prefix="a.")),
    "state_dict's versions": lambda m: dict(m.state_dict()._metadata),
    "state_dict of a parent": lambda m: list(nn.Sequential(m).state_dict()),
    "named_parameters": lambda m: [name for name, _ in m.named_parameters()],
    "named_parameters, not recursive": lambda m: [name for name, _ in m.named_parameters(recurse=False)],
    "named_parameters of a parent": lambda m: [name for name, _ in nn.Sequential(m).named_parameters()],
    "parameters": lambda m: len(list(m.parameters())),
    "named_buffers": lambda m: [name for name, _ in m.named_buffers()],
    "named_modules": lambda m: [name for name, _ in m.named_modules()],
    "named_modules of a parent": lambda m: [name for name, _ in nn.Sequential(m).named_modules(prefix="p")],
    "modules": lambda m: len(list(m.modules())),
    "named_children": lambda m: [name for name, _ in m.named_children()],
    "_modules": lambda m: (list(m._modules), list(m._parameters), list(m._buffers)),
    "get_submodule": lambda m: type(m.get_submodule("_orig_mod.norm")),
    "get_submodule without the prefix": lambda m: type(m.get_submodule("norm")),
    "get_parameter": lambda m: m.get_parameter("_orig_mod.lin.weight").shape,
    "get_buffer": lambda m: m.get_buffer("_orig_mod.norm.running_mean").shape,
    "deepcopy": lambda m: list(copy.deepcopy(m).state_dict()),
    "pickle": lambda m: list(pickle.loads(pickle.dumps(m)).state_dict()),
    "dynamo_ctx of a module": lambda m: list(m.dynamo_ctx(nn.Linear(1, 1)).state_dict()),
    "functional_call": lambda m: torch.func.functional_call(m, {n: p * 0 for n, p in m.named_parameters()}, torch.ones(2, 3)),
    "missing keys": lambda m: m.load_state_dict({}, strict=False).missing_keys,
    "unexpected keys": lambda m: m.load_state_dict({"_orig_mod.other": 1, "other": 1}, strict=False).unexpected_keys,
    "not a state": lambda m: str(pytest.raises(TypeError, m.load_state_dict, 3).value),
}


@pytest.mark.parametrize("asked", NAMES)
def test_under_pytorch_s_names_the_parts_are_called_as_there(stock: Any, asked: str) -> None:
    ours, theirs = NAMES[asked](MAKERS["torch"](Versioned())), NAMES[asked](stock(Versioned()))
    assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs


@pytest.mark.parametrize("door", MAKERS)
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_states_are_loaded_with_and_without_the_prefix(stock: Any, door: str, assign: bool, nested: bool) -> None:
    source = Versioned()
    with torch.no_grad():
        source.lin.weight.fill_(7.0)
        source.norm.num_batches_tracked.fill_(5)
    source.more = "other"
    for saved in (source, stock(source), *[make(source) for make in MAKERS.values()]):
        plain = Versioned()
        opt = MAKERS[door](plain)
        state = (nn.Sequential(saved) if nested else saved).state_dict()
        result = (nn.Sequential(opt) if nested else opt).load_state_dict(state, assign=assign)
        assert (result.missing_keys, result.unexpected_keys) == ([], [])
        assert (plain.lin.weight == 7).all() and plain.norm.num_batches_tracked == 5 and plain.more == "other"
        assert list(state) == list((nn.Sequential(saved) if nested else saved).state_dict()), "what is loaded stays as it is"


def test_a_module_of_that_name_keeps_its_own() -> None:
    parent = nn.Module()
    parent._orig_mod = nn.Linear(2, 2)
    opt = fineline.compile(parent, backend="eager")
    opt.load_state_dict({"_orig_mod.weight": torch.ones(2, 2), "_orig_mod.bias": torch.zeros(2)})
    assert (parent._orig_mod.weight == 1).all()


# -- how it was compiled ----------------------------------------------------------------------------------------------------------
def test_the_way_it_was_compiled_is_there_for_others(net: Net) -> None:
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    opt = fineline.compile(net, backend=backend, name="mine")
    x = torch.randn(2, 3)
    step = opt.dynamo_ctx(net.forward)
    assert torch.equal(step(x), net(x)) and len(graphs) == 1
    # The same method with the same backend: another region, the same program.
    assert torch.equal(opt.dynamo_ctx(step)(x), net(x)) and len(graphs) == 1
    assert opt.get_compiler_config() is None and step.get_compiler_config() is None
    other = opt.dynamo_ctx(Net())
    assert isinstance(other, OptimizedModule) and other(x).shape == x.shape and len(graphs) == 2
    for made in (fineline.compile(net, mode="reduce-overhead"), fineline.compile(torch.sin, options={"triton.cudagraphs": True})):
        assert made.get_compiler_config()["triton.cudagraphs"] is True
    with pytest.raises(TypeError):
        opt.dynamo_ctx(3)
