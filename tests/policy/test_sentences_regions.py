"""Section 2 of the control surface where it is about regions, and section 3: each test quotes the sentence that it is about."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fineline
from fineline import Policy
from fineline.errors import BadArgument, Undeclared, Unsupported
from tests.policy.doors import THEIRS, Probe, same

X = torch.arange(4.0)


def helper(x):
    return x.cos()


def outer(x):
    return helper(x * 2) + 1


@fineline.disable(reason="a file")
def hidden(x):
    return x.sin()


def broken(x):
    return hidden(x * 2) + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.layers(x) * 2

    def __getitem__(self, n):
        return self.layers[n]

    def __len__(self):
        return len(self.layers)


class Owner:
    k = 3

    def method(self, x):
        return x.cos() * self.k


# -- compile -----------------------------------------------------------------------------------------------------------------
def test_forms_of_compile(door):
    """`compile(fn=None, *, backend="inductor", fullgraph=False, dynamic=None, mode=None, options=None, disable=False, policy=None,
    breaks=None)`: decorator, decorator with arguments, function, method, `nn.Module` (gives an `OptimizedModule`)."""

    @door.compile(backend="eager")
    def with_arguments(x):
        return x.cos()

    net = Net()
    made = door.compile(net, backend="eager")
    same(with_arguments(X), X.cos())
    same(door.compile(outer, backend="eager")(X), outer(X))
    same(door.compile(Owner().method, backend="eager")(X), Owner().method(X))
    same(made(X), net(X))
    assert isinstance(made, door.OptimizedModule) and callable(door.compile(outer))


def test_strictness(door):
    """`breaks` is `"any"` (default),
    `"declared"` (only breaks that a user's rule asked for; any other is an error) or `"none"` (what `fullgraph=True` means)."""

    def prints(x):
        print(end="")
        return hidden(x * 2) + 1

    assert door.graphs(prints, X) == door.graphs(prints, X, breaks="any") == [["mul"], ["add"]]
    assert door.graphs(broken, X, breaks="declared") == [["mul"], ["add"]]
    with pytest.raises(Undeclared, match="print"):
        door.compile(prints, backend="eager", breaks="declared")(X)
    for how in ({"breaks": "none"}, {"fullgraph": True}):
        with pytest.raises(Unsupported, match="a file"):
            door.compile(broken, backend="eager", **how)(X)
    with pytest.raises(ValueError):
        door.compile(broken, backend="eager", breaks="some")


# -- optimize, run, reset ------------------------------------------------------------------------------------------------------
def test_optimize(door):
    """`optimize(backend="inductor", *, nopython=False, guard_export_fn=None, guard_fail_fn=None, disable=False, dynamic=False)`,
    `optimize_assert(backend, ...)`:
    as in PyTorch's documents. `guard_export_fn` receives the guards of each capture; `guard_fail_fn` hears of a miss, with `.reason`."""
    guards, misses = [], []
    made = door.optimize(probe := Probe(), guard_export_fn=guards.append, guard_fail_fn=misses.append)(broken)
    same(made(X), broken(X))
    assert probe.graphs == [["mul"], ["add"]] and guards and not misses
    with pytest.raises(Unsupported):
        door.optimize("eager", nopython=True)(broken)(X)
    with pytest.raises(Unsupported):
        door.optimize_assert("eager")(broken)(X)
    same(door.optimize("eager", disable=True)(outer)(X), outer(X))
    made(torch.ones(7))
    assert "size" in misses[0].reason


def test_run(door):
    """`run(fn)`: use what has been captured, capture nothing new."""
    compiled = door.compile(outer, backend=(probe := Probe()))
    compiled(X)
    only = door.run(compiled)
    same(only(X), outer(X))
    same(only(torch.ones(7)), outer(torch.ones(7)))
    assert len(probe.graphs) == 1


def test_reset(door):
    """`reset()`: forget all captures and per-process marks."""
    compiled = door.compile(outer, backend=(probe := Probe()))
    door.disallow_in_graph(torch.cos)
    compiled(X)
    door.reset()
    compiled(X)
    assert probe.graphs == [["mul"], ["add"], ["mul", "cos", "add"]]


def test_optimized_module(door):
    """`OptimizedModule`: an `nn.Module` that stands in for the original: parameters are the same objects, `train()`/`eval()`, `state_dict` and its
    loading, `__getitem__`/`__len__`, attribute reads and writes, `copy.deepcopy` and pickling pass through; `_orig_mod` is the original."""
    net = Net()
    made = door.compile(net, backend="eager")
    assert isinstance(made, nn.Module) and made._orig_mod is net
    assert all(a is b for a, b in zip(made.parameters(), net.parameters(), strict=True))
    made.eval()
    assert not net.training
    made.train()
    assert net.training and made[0] is net[0] and len(made) == 2
    made.extra = 5
    assert net.extra == 5 == made.extra
    made.load_state_dict({key: torch.ones_like(value) for key, value in made.state_dict().items()})
    assert net.layers[0].weight.eq(1).all()
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin._orig_mod is not net
        same(twin(X), net(X))


def test_backends(door):
    """`register_backend(fn=None, name=None, tags=())`, `list_backends(exclude_tags=("debug", "experimental"))`: `eager`, `aot_eager`,
    `inductor` and whatever
    PyTorch plugins register under its entry-point group. A backend is a callable `(GraphModule, example_inputs) -> callable`; an
    unknown name is an
    error that lists the known ones."""
    assert {"inductor"} <= set(door.list_backends()) and {"eager", "aot_eager", "inductor"} <= set(door.list_backends(()))
    seen = []

    def sentences_backend(gm, example_inputs):
        seen.append((type(gm).__mro__, [tuple(x.shape) for x in example_inputs]))
        return gm.forward

    name = f"sentences_{door.kind}"
    door.register_backend(sentences_backend, name=name)
    assert name in door.list_backends(())
    same(door.compile(outer, backend=name)(X), outer(X))
    assert torch.fx.GraphModule in seen[0][0] and seen[0][1] == [(4,)]
    with pytest.raises(BadArgument, match=r"(?s)nothing_like_it.*inductor"):
        door.compile(outer, backend="nothing_like_it")(X)


def test_stance_and_strict_blocks(door):
    """`set_stance(...)`, `error_on_graph_break(...)`, `explain(f)(*args)`, `nested_compile_region`: as in PyTorch 2.13."""
    compiled = door.compile(broken, backend=(probe := Probe()))
    with door.set_stance("force_eager"):
        same(compiled(X), broken(X))
    assert probe.graphs == []
    with door.error_on_graph_break(True), pytest.raises(Unsupported):
        door.compile(broken, backend="eager")(X)
    said = door.explain(broken)(X)
    assert len(said.graphs) == 2 and len(said.breaks) == 1
    nested = door.nested_compile_region(helper)
    assert door.graphs(lambda x: nested(x * 2) + 1, X, fullgraph=True)[0][0] == "mul"


def test_install_and_uninstall():
    """`install()` / `uninstall()`: route PyTorch's public names to fineline and back, exactly, any number of times; region defaults
    can be given: `install(breaks="declared")`."""
    before = {name: getattr(*at) for name, at in THEIRS.items()}
    try:
        for _ in range(3):
            fineline.install(breaks="declared")
            assert torch.compile is not before["compile"]
            with pytest.raises(Undeclared):
                torch.compile(lambda x: (print(end=""), x + 1), backend="eager")(X)
            fineline.uninstall()
            fineline.uninstall()
            assert {name: getattr(*at) for name, at in THEIRS.items()} == before
    finally:
        fineline.uninstall()


def test_pytorchs_own_marks():
    """Code that carries PyTorch's own marks (`@torch.compiler.disable`, `torch.compiler.is_compiling()`,
    `torch._dynamo.mark_dynamic`, `torch._dynamo.graph_break()`,
    `@torch._dynamo.allow_in_graph`, custom operators) is understood without `install()`: libraries already contain it."""

    @torch.compiler.disable
    def off(x):
        return x.cos()

    def library(x):
        x = off(x * 2)
        torch._dynamo.graph_break()
        return x + 1 if torch.compiler.is_compiling() else x - 1

    compiled = fineline.compile(library, backend=(probe := Probe()))
    for _ in range(2):
        same(compiled(X), off(X * 2) + 1)
    assert probe.graphs == [["mul"], ["add"]]


def test_pytorchs_allow_in_graph_without_install():
    """`@torch._dynamo.allow_in_graph`, custom operators) is understood without `install()`: libraries already contain it."""

    @torch._dynamo.allow_in_graph
    def opaque(x):
        return x.sin().cos()

    compiled = fineline.compile(lambda x: opaque(x * 2) + 1, backend=(probe := Probe()))
    for _ in range(2):
        same(compiled(X), opaque(X * 2) + 1)
    assert probe.graphs == [["mul", "opaque", "add"]]


# -- nothing happens silently --------------------------------------------------------------------------------------------------
class Count(TorchDispatchMode):
    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.total += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("fn", [outer, broken, lambda x: (x.sum().item(), hidden(x * 3).tan())[1]], ids=["whole", "broken", "reads"])
def test_one_stream_of_events(door, fn):
    """Every capture yields one stream of events: captured (operators and lines), eager (why, which rule), graph break, recompile (which
    guard, which user expression), skipped. `explain`, logs, errors and reports are views of that stream; the number of operators
    captured + eager + skipped equals the number that ran."""
    with Count() as count:
        fn(X)
    said = door.explain(fn)(X)
    assert sum(said.ran.values()) == count.total and said.ran["captured"] > 0
    assert {e.kind for e in said.events} <= {"graph", "break", "eager", "skipped", "recompile", "limit", "raised"}
    assert all(e.detail["ops"] and e.detail["places"] for e in said.events if e.kind == "graph")


def test_recompiles_name_the_users_expression(door):
    """recompile (which
    guard, which user expression)"""
    misses = []

    def f(x, settings):
        return x * settings["scale"]

    made = door.optimize("eager", guard_fail_fn=misses.append)(f)
    made(X, {"scale": 2})
    made(X, {"scale": 3})
    assert "settings['scale']" in misses[0].reason.replace('"', "'")


def test_what_explain_returns(door):
    """`explain(f)(*args)` returns an object with `.graphs` (FX modules), `.breaks` (each with id, reason, file,
    line, rule), `.events`, `.guards`, `.program` (the readable source), a useful `str()` and a notebook display."""
    said = door.explain(broken)(X)
    assert all(isinstance(gm, torch.fx.GraphModule) for gm in said.graphs) and len(said.graphs) == 2
    (found,) = said.breaks
    assert (found.id, found.file, found.line) == ("FL400", __file__, broken.__code__.co_firstlineno + 1)
    assert "a file" in found.reason and found.rule.startswith("disable(") and found in said.events
    assert said.guards and all(type(guard) is str for guard in said.guards)
    assert compile(said.program, "program", "exec") and "2 graphs" in str(said) and said._repr_html_().startswith("<iframe")


def test_the_call_tree(door):
    """The call tree with each frame's colour (captured, eager, opaque) is part
    of it, so that a picture can be drawn. Forgotten marks show there: which rules fired, which never matched."""

    @door.allow_in_graph
    def opaque(x):
        return x.tan()

    @door.disable
    def forgotten(x):
        return x

    said = door.explain(lambda x: opaque(helper(broken(x))))(X)
    colours = {node.name.rpartition(".")[2]: node.colour for node in said.tree}
    assert (colours["helper"], colours["hidden"], colours["opaque"]) == ("captured", "eager", "opaque")
    fired = {rule.selector.text.rpartition(".")[2] for rule, times in said.rules.items() if times}
    assert fired == {"hidden", "opaque"} and forgotten.__name__ in {r.selector.text.rpartition(".")[2] for r in said.unmatched_marks}


def test_results_are_saved_as_the_original(door):
    """`state_dict` and its
    loading"""
    net = Net()
    made, out = door.compile(net, backend="eager"), io.BytesIO()
    torch.save(made.state_dict(), out)
    out.seek(0)
    made.load_state_dict(torch.load(out))
    same(made(X), net(X))


def test_policies_through_the_door(door):
    """`compile(fn=None, *, backend="inductor", fullgraph=False, dynamic=None, mode=None, options=None, disable=False, policy=None,
    breaks=None)`"""
    assert door.graphs(outer, X, policy=Policy(disable=helper), dynamic=False, mode=None, options=None, disable=False) == [["mul"], ["add"]]
    assert door.graphs(outer, X, disable=True) == []
