"""``disable``: its forms, what it keeps, and what is captured around it."""

from __future__ import annotations

import gc
import inspect
import pickle
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import fineline

X = torch.arange(3.0)


class Probe:
    def __init__(self):
        self.ops = []

    def __call__(self, gm, inputs):
        self.ops.append([n.name for n in gm.graph.nodes if n.op.startswith("call_")])
        return gm.forward

    def flat(self):
        return [name for graph in self.ops for name in graph]


def captured(fn, *args, times=3):
    """The operators of all graphs, after some calls that equal eager."""
    probe = Probe()
    c = fineline.compile(fn, backend=probe)
    for _ in range(times):
        assert torch.equal(c(*args), fn(*args))
    return probe.flat()


@fineline.disable
def at_module_level(x):
    """Says what it does."""
    return x.cos()


@fineline.disable(reason="slow")
def with_reason(x, y=2):
    return x.cos() * y


@fineline.disable(recursive=False)
def frame_only(x):
    return helper(x.cos())


def helper(x):
    return x.sin()


@pytest.mark.parametrize("fn", [at_module_level, with_reason])
def test_decorators(fn) -> None:
    assert captured(lambda x: fn(x * 2) + 1, X) == ["mul", "add"]


def test_metadata_and_pickle() -> None:
    assert at_module_level.__name__ == "at_module_level" and at_module_level.__doc__ == "Says what it does."
    assert list(inspect.signature(with_reason).parameters) == ["x", "y"]
    for fn in (at_module_level, with_reason, frame_only):
        assert pickle.loads(pickle.dumps(fn)) is fn


def test_the_original_is_still_traced() -> None:
    def f(x):
        return x.sin()

    g = fineline.disable(f)
    assert g is not f
    assert captured(lambda x: f(x) + 1, X) == ["sin", "add"]
    assert captured(lambda x: g(x) + 1, X) == ["add"]


class Methods:
    factor = 2

    @fineline.disable
    def plain(self, x):
        return x.cos() * self.factor

    @staticmethod
    @fineline.disable
    def static_inside(x):
        return x.cos()

    @fineline.disable
    @staticmethod
    def static_outside(x):
        return x.cos()

    @classmethod
    @fineline.disable
    def class_inside(cls, x):
        return x.cos() * cls.factor

    @fineline.disable
    @classmethod
    def class_outside(cls, x):
        return x.cos() * cls.factor


@pytest.mark.parametrize("name", ["plain", "static_inside", "static_outside", "class_inside", "class_outside"])
def test_methods(name) -> None:
    obj = Methods()
    assert captured(lambda x: getattr(obj, name)(x * 2) + 1, X) == ["mul", "add"]
    assert torch.equal(getattr(obj, name)(X), getattr(obj, name)(X))


@fineline.disable
class Marked:
    def __init__(self, k):
        self.k = torch.tensor(float(k)).exp()

    def method(self, x):
        return x.cos() * self.k

    @property
    def prop(self):
        return self.k.sin()

    @classmethod
    def cls_method(cls, x):
        return x.tan()

    @staticmethod
    def static(x):
        return x.tan()

    def __call__(self, x):
        return x.tan()


MARKED = Marked(3)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: MARKED.method(x * 2) + 1,
        lambda x: Marked.cls_method(x * 2) + 1,
        lambda x: Marked.static(x * 2) + 1,
        lambda x: MARKED(x * 2) + 1,
        lambda x: x * 2 * MARKED.prop + 1,
        lambda x: Marked(2).k * (x * 2) + 1,
    ],
)
def test_a_marked_class_keeps_its_methods_out(fn) -> None:
    assert set(captured(fn, X)) <= {"mul", "mul_0", "mul_1", "add"}


def test_a_subclass_has_its_own_methods_captured() -> None:
    class Sub(Marked):
        def own(self, x):
            return x.sin()

    s = Sub(1)
    assert captured(lambda x: s.own(x) + 1, X) == ["sin", "add"]
    assert captured(lambda x: s.method(x) + 1, X) == ["add"]


def test_a_marked_class_is_the_same_class() -> None:
    class A:
        pass

    assert fineline.disable(A) is A and isinstance(A(), A)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x * 2) + 1


def test_a_marked_module_instance_runs_eagerly_with_its_hooks() -> None:
    net = Net()
    keys = list(net.state_dict())
    seen = []
    net.inner.register_forward_hook(lambda m, a, out: seen.append(float(out.sum())))
    assert fineline.disable(net.inner) is net.inner
    assert list(net.state_dict()) == keys and type(net.inner) is nn.Linear
    assert captured(net, X) == ["mul", "add"]
    assert len(seen) == 6


def test_a_marked_module_class() -> None:
    @fineline.disable
    class Layer(nn.Module):
        def forward(self, x):
            return x.cos()

    m = nn.Sequential(nn.ReLU(), Layer(), nn.ReLU())
    assert not any("cos" in name for name in captured(m, X))


def test_marks_keep_nothing_alive() -> None:
    m = fineline.disable(nn.ReLU())
    gone = weakref.ref(m)
    gc.disable()
    try:
        del m
        assert gone() is None
    finally:
        gc.enable()


def test_what_is_not_callable_is_refused() -> None:
    with pytest.raises(TypeError, match="callable"):
        fineline.disable(3)


# -- not recursive ----------------------------------------------------------------------------------------------------
def test_what_the_frame_calls_is_captured() -> None:
    probe = Probe()
    c = fineline.compile(lambda x: frame_only(x * 2) + 1, backend=probe)
    for _ in range(3):
        assert torch.equal(c(X), (X * 2).cos().sin() + 1)
    assert probe.flat() == ["mul", "sin", "add"]


def test_modules_methods_and_closures_that_the_frame_calls() -> None:
    net = Net()
    state = []

    class Box:
        def scaled(self, x):
            return x * 5

    box = Box()

    @fineline.disable(recursive=False)
    def middle(x):
        y = x.tan()
        state.append(fineline.is_compiling())

        def local(z):
            return z.sin() - y

        total = local(x)
        for v in (net(x), box.scaled(x)):
            total = total + v
        return total

    probe = Probe()
    f = lambda x: middle(x + 1).exp()
    c = fineline.compile(f, backend=probe)
    for i in range(4):
        assert torch.equal(c(X + i), f(X + i))
    assert probe.flat() == ["add", "sin", "sub", "mul", "linear", "add", "mul", "exp"]
    assert not any(state)


def test_the_frames_exceptions_are_those_of_eager() -> None:
    @fineline.disable(recursive=False)
    def middle(x):
        try:
            return fails(x)
        except ValueError as e:
            raise KeyError("middle") from e

    def fails(x):
        x.sin()
        raise ValueError("inner")

    c = fineline.compile(lambda x: middle(x), backend="eager")
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            c(X)
        assert isinstance(caught.value.__cause__, ValueError)


def stepped(x, n=2):
    """Says what it gives."""
    got = None
    try:
        for i in range(n):
            got = yield helper(x + i if got is None else got).cos()
    except ValueError:
        yield helper(x).tan()
    finally:
        ENDED.append(n)
    return helper(x)


ENDED: list[int] = []


def gone_through(gen):
    it = gen(X)
    first, second = next(it), it.send(X * 3)
    try:
        next(it)
    except StopIteration as end:
        return first, second, end.value, it.__name__, inspect.isgenerator(it)


def thrown_into(gen):
    it = gen(X)
    next(it)
    y = it.throw(ValueError("into it"))
    it.close()
    return y


def not_begun(gen):
    it = gen(X)
    try:
        it.send(3)
    except TypeError as e:
        return str(e), inspect.getgeneratorstate(it), list(it)


def let_go(gen):
    return next(gen(X))


def called_wrongly(gen):
    try:
        gen(X, 2, 3)
    except TypeError as e:
        return str(e)


@pytest.mark.parametrize("use", [gone_through, thrown_into, not_begun, let_go, called_wrongly, lambda gen: (list(gen(X)), sum(gen(X, 3)))])
def test_what_the_steps_of_a_generator_call_is_captured(use) -> None:
    hidden = fineline.disable(stepped, recursive=False)
    probe = Probe()
    c = fineline.compile(lambda: use(hidden), backend=probe)
    for _ in range(3):
        ENDED.clear()
        expected = str(use(stepped)), list(ENDED)
        ENDED.clear()
        assert (str(c()), ENDED) == expected
    assert use is called_wrongly or probe.flat().count("sin") == 1
    x = torch.ones(3)
    it = fineline.compile(lambda x: hidden(x), backend="eager")(x)
    next(it)
    alive = weakref.ref(x)
    del it, x
    assert alive() is None


def test_marked_class_and_instance_not_recursive() -> None:
    net = fineline.disable(Net(), recursive=False)
    assert captured(lambda x: net(x.sin()).cos(), X) == ["sin", "linear", "cos"]


class Calls(Net):
    """A module whose call does more than its forward."""

    def __call__(self, x):
        return super().__call__(x) * 5


def with_own_call_impl() -> Net:
    net = Net()
    net._call_impl = lambda x: net.forward(x) * 7
    return net


@pytest.mark.parametrize("make", [Net, Calls, with_own_call_impl])
@pytest.mark.parametrize("everywhere", [False, True])
def test_all_that_a_call_of_a_module_does_happens_without_its_frame(make, everywhere) -> None:
    """Hooks on all modules, too, which are registered before a call."""
    net, seen = fineline.disable(make(), recursive=False), []
    fn = lambda x: net(x * 2)
    compiled = fineline.compile(fn, backend="eager")
    for _ in range(3):
        with nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m))) if everywhere else nullcontext():
            assert torch.equal(compiled(X), fn(X))
        assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
        seen.clear()


def test_a_region_called_from_a_disabled_function_is_captured() -> None:
    probe = Probe()
    inner = fineline.compile(lambda x: x.sin(), backend=probe)

    @fineline.disable
    def outer(x):
        return inner(x)

    c = fineline.compile(lambda x: outer(x) + 1, backend="eager")
    assert torch.equal(c(X), X.sin() + 1) and torch.equal(c(X), X.sin() + 1)
    assert probe.flat() == ["sin"]


def test_torchs_own_marks() -> None:
    @torch.compiler.disable
    def f(x):
        return x.cos()

    assert captured(lambda x: f(x * 2) + 1, X) == ["mul", "add"]


@pytest.mark.parametrize("mark", [lambda fn: torch.compiler.disable(fn, recursive=False), lambda fn: torch._dynamo.decorators.skip(fn)])
def test_torchs_own_marks_of_one_frame(mark) -> None:
    f = mark(lambda x: helper(x.cos()))
    assert fineline.why(f).verb == "disable_frame"
    assert captured(lambda x: f(x * 2) + 1, X) == ["mul", "sin", "add"]


@pytest.mark.parametrize("mark", ["_torchdynamo_disable", "note"])
def test_a_mark_holds_for_what_was_captured_before_it(mark) -> None:
    def f(x):
        def helper(a):
            return a.cos()

        y = helper(x)
        setattr(helper, mark, True)
        return y + helper(x * 2).sin()

    inside = [] if mark == "_torchdynamo_disable" else ["cos_0"]
    assert sorted(captured(f, X)) == sorted(["cos", "mul", *inside, "sin", "add"])
