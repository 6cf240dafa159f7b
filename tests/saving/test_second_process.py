"""Programs that one process saves, another one runs without a capture: functions, modules, graph breaks, sizes that vary."""

from __future__ import annotations

import pytest

from tests.saving.conftest import Project

MODULE = '''
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.count.add_(1)
        return torch.relu(self.linear(x)) + self.calls

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x, scale=2.0, *, flag=True):
        for block in self.blocks:
            x = block(x)
        return {"y": x * scale, "flag": flag, "n": [x.shape[0], len(self.blocks)]}

def broken(x):
    y = x.sin()
    print("between", tuple(x.shape))
    z = y.cos() * 2
    fineline.graph_break()
    return z + y

def loop(x):
    for i in range(3):
        x = x + i
        print(i)
    return x

def varies(x):
    return x.sin() * x.shape[0] + x.sum()

def handles(x):
    try:
        y = x + 1
        print("in try")
        int("no")
    except ValueError as e:
        return y * 2 - len(str(e))

def helper(x, *, power=2):
    return x ** power

def outer(k):
    def inner(x):
        return x * k + helper(x)
    return inner

def draws(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(())

def pairs(x):
    def parts():
        for i in range(2):
            yield x * i
    return [*parts()]

class Stateful:
    """Writes to itself, and to a dict of the module."""
    seen = {}

    def __init__(self):
        self.total = torch.zeros(4)

    def __call__(self, x):
        self.total = self.total + x.sum(0)
        Stateful.seen["last"] = self.total
        return self.total

CASES = {
    "net": (Net(), [((torch.ones(3, 4),), {}), ((torch.ones(3, 4),), {}), ((torch.ones(3, 4),), {"flag": False})]),
    "broken": (broken, [((torch.ones(3, 4),), {})] * 2),
    "loop": (loop, [((torch.ones(3, 4),), {})] * 2),
    "varies": (varies, [((torch.arange(4.0 * n).reshape(n, 4),), {}) for n in (2, 3, 4, 5)]),
    "handles": (handles, [((torch.ones(3, 4),), {})] * 2),
    "closure": (outer(3), [((torch.ones(3, 4),), {})] * 2),
    "draws": (draws, [((torch.ones(3, 4),), {})] * 2),
    "generator": (pairs, [((torch.ones(3, 4),), {})] * 2),
    "stateful": (Stateful(), [((torch.ones(3, 4),), {})] * 2),
}

def leaves(value):
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in torch.utils._pytree.tree_leaves(value)]
'''

SAVE = """
for name, (fn, calls) in CASES.items():
    compiled = fineline.compile(fn, backend=BACKEND)
    for args, kwargs in calls:
        compiled(*args, **kwargs)
    assert fineline.save(compiled, f"{name}.captures") == len(fineline.report(compiled).programs)
"""
LOAD = """
import copy
from torch.testing import assert_close
for name, (fn, calls) in CASES.items():
    if name == "draws" and BACKEND == "inductor":
        continue  # it draws other numbers than eager code
    eager = copy.deepcopy(fn)
    compiled = fineline.load(f"{name}.captures", fn)
    for args, kwargs in calls:
        torch.manual_seed(1)
        got = compiled(*args, **kwargs)
        torch.manual_seed(1)
        expected = eager(*args, **kwargs)
        assert_close(leaves(got), leaves(expected))
    if isinstance(fn, nn.Module):
        assert_close([*fn.state_dict().values()], [*eager.state_dict().values()])
    assert set(kinds(compiled)) == {"loaded"}, (name, fineline.report(compiled))
    assert fineline.report(compiled).operators == 0
"""


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.later), pytest.param("inductor", marks=pytest.mark.later)])
def test_nothing_is_captured_again(project: Project, backend: str) -> None:
    project.write(MODULE)
    project.run(f"BACKEND = {backend!r}{SAVE}")
    project.run(f"BACKEND = {backend!r}{LOAD}")


@pytest.mark.later
def test_a_users_backend_gets_the_graph_again(project: Project) -> None:
    project.write("""
        seen = []

        def backend(gm, examples):
            seen.append([node.name for node in gm.graph.nodes])
            return lambda *inputs: gm(*inputs)

        def step(x):
            return (x + 1).relu().sum()
        """)
    project.run("""
        compiled = fineline.compile(step, backend=backend)
        compiled(x)
        fineline.save(compiled, "step.captures")
        print(seen)
        """)
    out = project.run("""
        compiled = fineline.load("step.captures", step)
        assert seen == [] and torch.equal(compiled(x), step(x)) and torch.equal(compiled(-x), step(-x))
        assert kinds(compiled) == ["loaded"] and len(seen) == 1
        """)
    assert out == ""


@pytest.mark.later
def test_a_graph_that_aotautograd_would_get_wrong(project: Project) -> None:
    project.write("""
        from torch._functorch.aot_autograd import aot_function, make_boxed_func

        class Boxed(torch.Tensor):
            def __new__(cls, a):
                return torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype)

            def __init__(self, a):
                self.a = a

            def __tensor_flatten__(self):
                return ["a"], None

            def __tensor_unflatten__(inner, context, sizes, strides):
                return Boxed(inner["a"])

            @classmethod
            def __torch_dispatch__(cls, fn, types, args=(), kwargs=None):
                out = fn(*[x.a if isinstance(x, Boxed) else x for x in args], **(kwargs or {}))
                return args[0] if out is args[0].a else Boxed(out)

        def backend(gm, examples):
            return aot_function(gm, fw_compiler=lambda gm, examples: make_boxed_func(gm.forward))

        def step(x):
            x.add_(1)
            y = Boxed(x)
            return y, y[0]
        """)
    project.run("""
        compiled = fineline.compile(step, backend=backend)
        compiled(x)
        fineline.save(compiled, "step.captures")
        """)
    project.run("""
        compiled = fineline.load("step.captures", step)
        for _ in range(2):
            y, row = compiled(x)
            assert y.a.data_ptr() == row.a.data_ptr() == x.data_ptr()
        assert kinds(compiled) == ["loaded"]
        """)


@pytest.mark.later
def test_the_backward_pass_of_a_saved_graph(project: Project) -> None:
    project.write("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

            def forward(self, x):
                return self.b(torch.tanh(self.a(x))).mean()
        """)
    project.run("""
        net = Net()
        compiled = fineline.compile(net)
        compiled(x).backward()
        fineline.save(compiled, "net.captures")
        """)
    project.run("""
        from torch._dynamo.utils import counters
        net, same = Net(), Net()
        same.load_state_dict(net.state_dict())
        compiled = fineline.load("net.captures", net)
        compiled(x).backward()
        same(x).backward()
        torch.testing.assert_close([p.grad for p in net.parameters()], [p.grad for p in same.parameters()])
        assert kinds(compiled) == ["loaded"] and not counters["inductor"]["fxgraph_cache_miss"], counters
        """)
    # Under other settings of Inductor, its code is not used, and the reason is reported.
    out = project.run("""
        torch._inductor.config.fallback_random = True
        net = Net()
        compiled = fineline.load("net.captures", net)
        torch.testing.assert_close(compiled(x), net(x))
        print(events(compiled, "stale")[0].reason)
        """)
    assert "the settings of AOTAutograd or Inductor" in out


@pytest.mark.later
@pytest.mark.parametrize("how", ["mode='reduce-overhead'", "options={'epilogue_fusion': False, 'max_fusion_size': 3}"])
def test_a_mode_and_options_of_inductors(project: Project, how: str) -> None:
    """On the CPU, PyTorch's caches have the whole compiled graph. It is not run under other options: these are in the file, beside it."""
    project.write("""
        def step(x):
            return (x.sin() + x.cos()).relu().sum()
        """)
    project.run(f"""
        compiled = fineline.compile(step, {how})
        compiled(x.requires_grad_()).backward()
        fineline.save(compiled, "step.captures")
        """)
    project.run("""
        from torch._dynamo.utils import counters
        compiled, y = fineline.load("step.captures", step), x.clone().requires_grad_()
        compiled(x.requires_grad_()).backward()
        step(y).backward()
        torch.testing.assert_close(x.grad, y.grad)
        assert kinds(compiled) == ["loaded"] and not counters["inductor"]["fxgraph_cache_miss"], counters
        assert counters["aot_autograd"]["total"] == 0, counters
        """)


def test_one_file_for_all_instances_and_more_captures(project: Project) -> None:
    """The options come with the file. What fits no saved program is captured, with the guard that failed as the reason, and can be saved with the rest."""
    project.write("""
        class Scale(nn.Module):
            def __init__(self, by):
                super().__init__()
                self.by = by

            def forward(self, x):
                return x * self.by
        """)
    project.run("""
        compiled = fineline.compile(Scale(2.0), backend="eager", dynamic=False, options={"recompile_limit": 3})
        compiled(x)
        assert fineline.save(compiled, "scale.captures") == 1
        """)
    project.run("""
        one, other = Scale(2.0), Scale(3.0)
        compiled = fineline.load("scale.captures", one)
        assert torch.equal(compiled(x), one(x)) and kinds(compiled) == ["loaded"]
        assert torch.equal(compiled(x[:2]), one(x[:2]))
        [again] = events(compiled, "recompile")
        assert "x: sizes (3, 4) -> (2, 4)" in again.reason, again
        assert fineline.save(compiled, "scale.captures") == 2
        # An instance with another attribute fits none.
        compiled = fineline.load("scale.captures", other)
        assert torch.equal(compiled(x), other(x)) and kinds(compiled) == ["loaded", "loaded", "recompile", "graph"]
        # The limit of the saved region holds for both.
        assert torch.equal(compiled(x[:1]), other(x[:1])) and kinds(compiled)[4:] == ["limit"], kinds(compiled)
        """)
