"""The cache with Inductor, over processes: the second one captures, traces and compiles nothing, forward and backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.saving.conftest import Project

MODULE = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

            def forward(self, x):
                return self.b(torch.tanh(self.a(x)) * 2).mean()

        def helper(x):
            return x.cos() * 2

        def step(x):
            return (x.sin() + helper(x)).relu()

        def broken(x):
            y = (x.sin() + x.cos()).relu()
            fineline.graph_break()
            return (y.exp() + y).tanh()
        """
# Both processes run this. What the first one prints has graphs, and what the second one prints has none.
CALLS = """
        from torch._dynamo.utils import counters
        from torch.testing import assert_close

        net, same = Net(), Net()
        same.load_state_dict(net.state_dict())
        regions = [fineline.compile(fn) for fn in (net, step, broken)]
        for _ in range(2):
            for compiled, eager in zip(regions, (same, step, broken)):
                a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
                found, expected = compiled(a), eager(b)
                assert_close(found, expected)
                found.sum().backward(), expected.sum().backward()
                assert_close(a.grad, b.grad)
        assert_close([p.grad for p in net.parameters()], [p.grad for p in same.parameters()])
        for compiled in regions:
            shown = [f"{e.kind} {e.id}" for e in fineline.report(compiled).events if e.kind not in ("graph_break", "forced")]
            print(*shown, *[e.reason for e in events(compiled, "stale") + events(compiled, "cache")], sep=", ")
        # What AOTAutograd has been asked to compile, and what Inductor has not found in its cache.
        print(counters["aot_autograd"]["total"], counters["inductor"]["fxgraph_cache_miss"])
        """


def test_the_second_process_captures_and_compiles_nothing(project: Project) -> None:
    """After a change of code, and with a damaged file, the next process captures what these have held, with a reason, and nothing else."""
    project.write(MODULE)
    folder, inductor = project.folder / "cache", project.folder / "inductor"
    environment = {"FINELINE_CACHE_DIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(inductor)}

    def lines() -> list[str]:
        return project.run(CALLS, **environment).splitlines()

    def libraries() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in inductor.rglob("*.so")}

    assert lines() == ["graph FL001", "graph FL001", "break FL401, graph FL001, graph FL001", "8 8"]
    # What the C++ compiler has made.
    before = libraries()
    assert before
    assert lines() == ["loaded FL012", "loaded FL012", "loaded FL012, loaded FL012", "0 0"] and libraries() == before
    project.write(MODULE.replace("cos() * 2", "cos() * 3"))
    file = next(folder.glob("*broken*"))
    file.write_bytes(file.read_bytes()[:-1])
    net, step, broken, _ = lines()
    assert net == "loaded FL012"
    assert step.startswith("stale FL014, graph FL001, ") and "users_code.helper.__code__ has changed" in step, step
    assert broken.startswith("cache FL015, break FL401, graph FL001, graph FL001, its contents do not have the hash in its second line"), (
        broken
    )


SIZES = """
        def grows(x):
            # Inductor assumes something about the size that it reduces.
            return (x.sin() + x.cos()).relu().sum(0) * x.shape[0] + x.softmax(0).amax(0)

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 4)

            def forward(self, x, y):
                return self.lin(x.tanh()).sum(0) * x.shape[0] + y.exp().mean()
        """
SIZED_CALLS = """
from torch._dynamo.utils import counters
from torch.testing import assert_close

net = Two()
for fn, calls in ((grows, [(torch.randn(n, 4),) for n in (3, 4, 5, 3, 9)]), (net, [(torch.randn(n, 4), torch.randn(2, n)) for n in (3, 4, 5, 6)])):
    compiled = fineline.compile(fn, wait=WAIT)
    for args in calls:
        for _ in range(3):
            assert_close(compiled(*args), fn(*args))
        assert fineline.wait(500)
    ids = [event.id for event in fineline.report(compiled).events]
    # No call has waited, for the compiler or for a capture.
    assert compiled.ready() and (WAIT or not {"FL008", "FL016", "FL017"} & {*ids}), (ids, fineline.report(compiled))
    print(ids.count("FL001"), ids.count("FL012") > 0)
print(counters["aot_autograd"]["autograd_cache_miss"], counters["aot_autograd"]["autograd_cache_bypass"], counters["inductor"]["fxgraph_cache_miss"])
"""


@pytest.mark.parametrize("wait", [True, False])
def test_sizes_that_vary(project: Project, wait: bool) -> None:
    """What Inductor assumes about sizes is guarded, and checked of a saved program. Without waiting, the other process compiles, and nothing is traced here."""
    project.write(SIZES)
    inductor = project.folder / "inductor"
    environment = {"FINELINE_CACHE_DIR": str(project.folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(inductor)}
    *captured, misses = project.run(f"WAIT = {wait}{SIZED_CALLS}", **environment).splitlines()
    assert [line.split()[1] for line in captured] == ["False", "False"] and (wait or misses == "0 0 0"), (captured, misses)
    before = {path: path.stat().st_mtime_ns for path in inductor.rglob("*.so")}
    assert project.run(f"WAIT = {wait}{SIZED_CALLS}", **environment).splitlines() == ["0 True", "0 True", "0 0 0"]
    assert {path: path.stat().st_mtime_ns for path in inductor.rglob("*.so")} == before


@pytest.mark.later
def test_sizes_and_whole_numbers_that_vary_in_a_saved_file(project: Project) -> None:
    """The process that loads it finds their graphs in the caches of the process that has saved it: nothing is traced or compiled."""
    project.write("""
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh())

        def scaled(x, n):
            return (x.sin() * n).cos() + n
        """)
    calls = """
        from torch._dynamo.utils import counters
        from torch.testing import assert_close

        def called(compiled, fn, *inputs):
            for args in inputs:
                own = [torch.ones(v, 4, requires_grad=True) if type(fn) is not type(scaled) else v for v in args]
                result = compiled(*own)
                assert_close(result, fn(*own))
                result.sum().backward()

        sizes, numbers = [(2,), (3,), (5,)], [(x, 2), (x, 3), (x, 5)]
        x.requires_grad_()
        """
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(project.folder / "inductor")}
    saved = project.run(
        f"""{calls}
        for fn, inputs, path in ((net, sizes, "net"), (scaled, numbers, "scaled")):
            compiled = fineline.compile(fn)
            called(compiled, fn, *inputs)
            print(fineline.save(compiled, path))
        """,
        **environment,
    )
    assert saved.split() == ["2", "2"]
    loaded = project.run(
        f"""{calls}
        for fn, inputs, path in ((net, sizes, "net"), (scaled, numbers, "scaled")):
            compiled = fineline.load(path, fn)
            called(compiled, fn, *inputs[1:])
            print(kinds(compiled))
        print(counters["aot_autograd"]["autograd_cache_miss"], counters["aot_autograd"]["autograd_cache_bypass"], counters["inductor"]["fxgraph_cache_miss"])
        """,
        **environment,
    )
    assert loaded.splitlines() == ["['loaded', 'loaded']", "['loaded', 'loaded']", "0 0 0"]
