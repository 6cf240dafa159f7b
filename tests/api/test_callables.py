"""What can be compiled, how it binds, and what runs eagerly."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import pickle

import pytest
import torch
import torch._dynamo
from torch import nn

import fineline
from fineline.errors import BadArgument

X = torch.arange(3.0)


class Probe:
    def __init__(self):
        self.ops = []

    def __call__(self, gm, inputs):
        self.ops += [n.name for n in gm.graph.nodes if n.op.startswith("call_")]
        return gm.forward


def plain(x, k=2, *, shift=0):
    """Multiplies."""
    return x * k + shift


class Thing:
    """Has methods of all kinds."""

    factor = 3

    def __init__(self, k=2):
        self.k = k

    def method(self, x):
        return x * self.k

    @classmethod
    def of_class(cls, x):
        return x * cls.factor

    @staticmethod
    def static(x):
        return x * 5

    def __call__(self, x):
        return x * self.k + 1


THINGS = {
    "function": plain,
    "lambda": lambda x: x * 2,
    "bound method": Thing().method,
    "class method": Thing.of_class,
    "class method of an instance": Thing().of_class,
    "static method": Thing.static,
    "unbound, with partial": functools.partial(Thing.method, Thing(4)),
    "partial": functools.partial(plain, k=3),
    "partial of a partial": functools.partial(functools.partial(plain, k=3), shift=1),
    "instance": Thing(7),
    "torch function": torch.sin,
    "Tensor method": torch.Tensor.cos,
    "functional": nn.functional.relu,
}


@pytest.mark.parametrize("name", THINGS)
def test_each_kind_of_callable(name) -> None:
    fn, probe = THINGS[name], Probe()
    c = fineline.compile(fn, backend=probe)
    for i in range(3):
        assert torch.equal(c(X + i), fn(X + i))
    assert probe.ops
    assert c.__wrapped__ is fn


@pytest.mark.parametrize("name", ["len", "operator"])
def test_builtins_run(name) -> None:
    fn = {"len": len, "operator": functools.reduce}[name]
    args = {"len": ([1, 2],), "operator": (lambda a, b: a + b, [X, X, X])}[name]
    c = fineline.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(torch.as_tensor(c(*args)), torch.as_tensor(fn(*args)))
    assert not any(e.file.startswith(os.path.dirname(fineline.__file__)) for e in c._region.reports.events)


def test_a_class_is_refused_with_what_to_do() -> None:
    for cls in (Thing, nn.Linear, int):
        with pytest.raises(BadArgument, match="an instance") as caught:
            fineline.compile(cls)
        assert caught.value.id == "FL201"


def test_arguments_by_name_and_default() -> None:
    c = fineline.compile(plain, backend="eager")
    for _ in range(2):
        assert torch.equal(c(X), plain(X))
        assert torch.equal(c(X, 4), plain(X, 4))
        assert torch.equal(c(x=X, shift=2), plain(x=X, shift=2))
        with pytest.raises(TypeError, match="multiple values"):
            c(X, 4, k=3)
        with pytest.raises(TypeError, match="missing 1 required"):
            c()


def test_metadata_and_pickle() -> None:
    assert decorated.__name__ == "decorated" and decorated.__doc__ == "Adds." and decorated.__module__ == __name__
    assert list(inspect.signature(decorated).parameters) == ["x", "y"]
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert "decorated" in repr(decorated)


@fineline.compile(backend="eager")
def decorated(x, y=1):
    """Adds."""
    return x + y


class WithMethods:
    def __init__(self, k):
        self.k = k

    @fineline.compile(backend="eager", fullgraph=True)
    def method(self, x):
        """A method."""
        return x * self.k

    @staticmethod
    @fineline.compile(backend="eager")
    def static(x):
        return x + 1

    @classmethod
    @fineline.compile(backend="eager")
    def of_class(cls, x):
        return x * 2, cls

    @property
    @fineline.compile(backend="eager")
    def prop(self):
        return X * self.k


class Sub(WithMethods):
    def method(self, x):
        return super().method(x) + 1


def test_decorated_methods_bind() -> None:
    a, b = WithMethods(2), WithMethods(3)
    for _ in range(3):
        assert torch.equal(a.method(X), X * 2) and torch.equal(b.method(X), X * 3)
        assert torch.equal(WithMethods.method(a, X), X * 2)
        assert torch.equal(a.static(X), X + 1) and torch.equal(WithMethods.static(X), X + 1)
        assert a.of_class(X)[1] is WithMethods and Sub.of_class(X)[1] is Sub
        assert torch.equal(a.prop, X * 2)
        assert torch.equal(Sub(5).method(X), X * 5 + 1)
    assert a.method.__self__ is a and a.method.__name__ == "method" and a.method.__doc__ == "A method."


def test_modules() -> None:
    m = nn.Linear(3, 2)
    c = fineline.compile(m, backend="eager")
    assert isinstance(c, fineline.OptimizedModule) and c._orig_mod is m
    forward = fineline.compile(m.forward, backend="eager")
    for i in range(2):
        assert torch.equal(c(X + i), m(X + i)) and torch.equal(forward(X + i), m(X + i))


def test_disable_gives_the_thing_itself() -> None:
    assert fineline.compile(plain, disable=True) is plain


def test_compiling_what_is_compiled_starts_from_the_original() -> None:
    c = fineline.compile(fineline.compile(plain, backend="eager"), backend="eager")
    assert c.__wrapped__ is plain and torch.equal(c(X), plain(X))


# -- what runs eagerly ---------------------------------------------------------------------------------------------------
def only_event(c, id):
    events = c._region.reports.events
    assert [e.id for e in events] == [id] and events[0].kind == "skipped"
    assert events[0].file == __file__
    return events[0].reason


def test_async_functions() -> None:
    @fineline.compile(backend="eager")
    async def f(x):
        await asyncio.sleep(0)
        return x + 1

    for _ in range(3):
        assert torch.equal(asyncio.run(f(X)), X + 1)
    assert "async function" in only_event(f, "FL405")


def test_generator_functions() -> None:
    @fineline.compile(backend="eager")
    def f(x):
        got = yield x
        yield x + got

    for _ in range(3):
        g = f(X)
        assert next(g) is X and torch.equal(g.send(2), X + 2)
    assert "generator function" in only_event(f, "FL405")


def test_async_generators() -> None:
    @fineline.compile(backend="eager")
    async def f(x):
        yield x
        yield x + 1

    async def collect():
        return [v async for v in f(X)]

    for _ in range(2):
        assert torch.equal(asyncio.run(collect())[1], X + 1)
    assert "async" in only_event(f, "FL405")


def test_coroutines_met_inside() -> None:
    async def inner(x):
        return x + 1

    def f(x):
        c = inner(x * 2)
        try:
            c.send(None)
        except StopIteration as stop:
            return stop.value

    c = fineline.compile(f, backend="eager")
    for _ in range(3):
        assert torch.equal(c(X), X * 2 + 1)


def test_modes_make_calls_eager() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
            return fn(*args, **(kwargs or {}))

    c = fineline.compile(plain, backend="eager")
    for _ in range(2):
        with Mode():
            assert torch.equal(c(X), plain(X))
    assert "TorchDispatchMode" in only_event(c, "FL406")
    assert torch.equal(c(X), plain(X)) and c._region.segments()


@pytest.mark.parametrize("fn", [plain, Thing().method, functools.partial(plain, k=3), nn.Linear(2, 2).forward], ids=["function", "method", "partial", "forward"])
def test_it_tells_of_its_parameters(fn) -> None:
    compiled = fineline.compile(fn, backend="eager")
    assert inspect.getfullargspec(compiled) == inspect.getfullargspec(fn)
    assert inspect.signature(compiled) == inspect.signature(fn) and inspect.signature(compiled, eval_str=True) == inspect.signature(fn)
    assert getattr(compiled, "__code__", None) is getattr(fn, "__code__", None) and not hasattr(compiled, "something")


def test_a_forward_that_was_wrapped_is_run_where_its_module_is_met() -> None:
    module = fineline.compile(nn.Linear(3, 3), backend="eager")
    inner = module.forward
    probe = Probe()
    compiled = fineline.compile(lambda x: module(x) + inner(x), backend=probe)
    x = torch.ones(2, 3)
    assert torch.equal(compiled(x), module(x) * 2) and len(probe.ops) == 3
    module.forward = lambda x: inner(x) * 2
    assert torch.equal(compiled(x), module(x) * 1.5)
    del module.forward
    assert torch.equal(compiled(x), module(x) * 2)


def test_what_is_compiled_has_pytorch_s_name_too() -> None:
    assert torch.equal(fineline.compile(model=plain, backend="eager")(X), plain(X))
    with pytest.raises(BadArgument, match="both are given"):
        fineline.compile(plain, model=plain)


PYTORCH = {name: getattr(torch._dynamo, name) for name in fineline.__all__ if inspect.isfunction(getattr(torch._dynamo, name, None))}
# What is told there in another way.
OTHERS = {"optimize", "optimize_assert", "export", "explain", "reset", "run", "register_backend"}


@pytest.mark.parametrize("name", sorted(PYTORCH.keys() - OTHERS))
def test_parameters_have_pytorch_s_names(name: str) -> None:
    theirs, ours = [inspect.signature(fn).parameters for fn in (PYTORCH[name], getattr(fineline, name))]
    positional = [p.name for p in theirs.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert list(ours)[: len(positional)] == positional
    assert len(PYTORCH) > 15


def test_backends_are_registered_under_pytorch_s_name_too() -> None:
    def named_by_pytorch(gm, inputs):
        return gm.forward

    assert fineline.register_backend(compiler_fn=named_by_pytorch) is named_by_pytorch
    assert "named_by_pytorch" in fineline.list_backends()
