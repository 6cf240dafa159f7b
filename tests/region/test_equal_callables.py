"""Equal callables share captures: instances of one class, functions of one ``def`` statement. Nothing of one is in the program of another."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fineline


class Counter:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.n += 1
        return graph.forward


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop, self.heads = nn.Dropout(0.0), heads

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = [part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)]
        x = x + self.drop(self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


def shared(compiled: Any) -> list[str]:
    """Returns the reasons of the events by which a region has taken programs of others."""
    return [event.reason for event in fineline.report(compiled).events if event.kind == "shared"]


def whole(block: nn.Module, backend: Any) -> Any:
    return fineline.compile(block, backend=backend)


def in_place(block: nn.Module, backend: Any) -> Any:
    # What ``nn.Module.compile`` does under PyTorch's names.
    block._compiled_call_impl = fineline.compile(block._call_impl, backend=backend)
    return block


def by_its_method(block: nn.Module, backend: Any) -> Any:
    block.compile(backend=backend)
    return block


def method(block: nn.Module, backend: Any) -> Any:
    return fineline.compile(block.forward, backend=backend)


@pytest.fixture
def pytorchs_names() -> Iterator[None]:
    fineline.install()
    yield
    fineline.uninstall()


@pytest.mark.usefixtures("pytorchs_names")
@pytest.mark.parametrize("how", [whole, in_place, by_its_method, method])
def test_twelve_blocks_are_captured_once(how: Callable) -> None:
    blocks, x, count = [Block() for _ in range(12)], torch.randn(2, 3, 8), Counter()
    plain = copy.deepcopy(blocks)
    compiled = [how(block, count) for block in blocks]

    def run(parts: list[Any]) -> Tensor:
        y = x
        for part in parts:
            y = part(y)
        return y

    for _ in range(3):
        expected, found = run(plain), run(compiled)
        assert torch.equal(expected, found)
        expected.sum().backward()
        found.sum().backward()
        for a, b in zip(plain, blocks, strict=True):
            assert all(torch.equal(p.grad, q.grad) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    # The first block gets a tensor that needs no gradient.
    assert count.n == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_they_learn_as_eager_modules_do(backend: str) -> None:
    if backend == "inductor":
        pytest.importorskip("torch._inductor")
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()) for _ in range(3)]
    plain, x = copy.deepcopy(blocks), torch.randn(6, 4)
    compiled = [fineline.compile(block, backend=backend) for block in blocks]
    losses = []
    for parts in (plain, compiled):
        optimizer, told = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1), []
        for _ in range(3):
            y = x
            for part in parts:
                y = part(y)
            optimizer.zero_grad()
            loss = y.square().mean()
            loss.backward()
            optimizer.step()
            told.append(loss.detach())
        losses.append(torch.stack(told))
    assert torch.allclose(*losses, atol=1e-6)
    for a, b in zip(plain, blocks, strict=True):
        assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    assert shared(compiled[2]) and not shared(compiled[0])


# -- instances that differ ---------------------------------------------------------------------------------------------------------
class Reader(nn.Module):
    """Reads attributes of each kind."""

    table = {"class": 2}

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU()
        self.number, self.text, self.nothing, self.flag = 2, "abc", None, True
        self.items, self.names, self.pair = [1, 2], {"a": 3}, (1, 2)
        self.function, self.tensor = torch.sin, torch.ones(4)
        self.register_buffer("buffer", torch.ones(4))

    def forward(self, x: Tensor) -> Any:
        y = self.act(self.linear(x)) * self.number + sum(self.items) + self.names["a"] + len(self.text) + self.pair[0]
        y = self.function(y) + self.tensor + self.buffer + self.table["class"]
        if self.nothing is not None:
            y = y * self.nothing
        return y * 3 if self.training and self.flag else y


class Other(Reader):
    pass


def doubling(module: nn.Module, args: Any, result: Tensor) -> Tensor:
    return result * 2


def tie(m: Reader) -> None:
    m.buffer = m.tensor


def parametrize(m: Reader) -> None:
    nn.utils.parametrizations.weight_norm(m.linear)


def of_itself(m: Reader) -> None:
    m.function = types.MethodType(lambda self, t: t * self.number, m)


def of_another(m: Reader) -> None:
    other = Reader()
    other.number = 11
    m.function = types.MethodType(lambda self, t: t * self.number, other)


CHANGES: dict[str, Callable[[Reader], object]] = {
    "number": lambda m: setattr(m, "number", 5),
    "number_of_another_type": lambda m: setattr(m, "number", 2.0),
    "text": lambda m: setattr(m, "text", "longer"),
    "None": lambda m: setattr(m, "nothing", 4.0),
    "flag": lambda m: setattr(m, "flag", False),
    "list": lambda m: m.items.append(7),
    "list_item": lambda m: m.items.__setitem__(0, 7),
    "dict": lambda m: m.names.update(a=7),
    "tuple": lambda m: setattr(m, "pair", (7, 2)),
    "function": lambda m: setattr(m, "function", torch.cos),
    "lambda": lambda m: setattr(m, "function", lambda t: t * 9),
    "method_of_itself": of_itself,
    "method_of_another": of_another,
    "tensor": lambda m: setattr(m, "tensor", torch.full((4,), 3.0)),
    "dtype": lambda m: setattr(m, "tensor", torch.ones(4, dtype=torch.float64)),
    "shape": lambda m: setattr(m, "tensor", torch.ones(1)),
    "strides": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.randn(4, 4).t())),
    "requires_grad": lambda m: m.requires_grad_(False),
    "parameter_for_tensor": lambda m: setattr(m, "tensor", nn.Parameter(torch.ones(4))),
    "no_bias": lambda m: setattr(m, "linear", nn.Linear(4, 4, bias=False)),
    "tied": tie,
    "mode": lambda m: m.eval(),
    "mode_of_a_part": lambda m: m.act.eval(),
    "part": lambda m: setattr(m, "act", nn.GELU()),
    "part_in_place": lambda m: setattr(m.act, "inplace", True),
    "part_compiled": lambda m: setattr(m, "act", fineline.compile(nn.GELU(), backend="eager")),
    "hook": lambda m: m.register_forward_hook(doubling),
    "hook_of_a_part": lambda m: m.act.register_forward_hook(doubling),
    "backward_hook": lambda m: m.act.register_full_backward_hook(lambda mod, a, b: (a[0] * 2,)),
    "forward_of_its_own": lambda m: setattr(m, "forward", lambda x: x * 7),
    "class": lambda m: setattr(m, "__class__", Other),
    "over_the_class": lambda m: setattr(m, "table", {"class": 9}),
    "parametrized": parametrize,
}


def compared(m: nn.Module, plain: Any, compiled: Any, x: Tensor) -> None:
    """Asserts that a module, or its method, gives what its compiled form gives, gradients included."""
    outcomes = []
    for call in (plain, compiled):
        value = call(x)
        grads = torch.autograd.grad(value.sum(), list(m.parameters()), allow_unused=True) if value.requires_grad else []
        outcomes.append([value, *grads])
    for a, b in zip(*outcomes, strict=True):
        assert (a is None) is (b is None)
        assert a is None or (a.shape, a.dtype, a.device, a.requires_grad) == (b.shape, b.dtype, b.device, b.requires_grad)
        assert a is None or torch.equal(a, b)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("how", [whole, method])
def test_an_instance_that_differs_is_not_taken_for_another(name: str, how: Callable) -> None:
    x, change = torch.randn(3, 4), CHANGES[name]
    modules = [Reader() for _ in range(4)]
    change(modules[1])
    compiled = [how(m, "eager") for m in modules]
    plain = [m.forward if how is method else m for m in modules]
    for m, p, c in zip(modules, plain, compiled, strict=True):
        compared(m, p, c, x)
    # Now the other way round: the program of a changed instance was made before that of a plain one.
    change(modules[-1])
    for m, p, c in zip(modules, plain, compiled, strict=True):
        compared(m, p, c, x)
        compared(m, p, c, x)


def test_what_one_instance_gets_between_calls_does_not_reach_another() -> None:
    x, count = torch.randn(3, 4), Counter()
    modules = [Reader() for _ in range(3)]
    compiled = [fineline.compile(m, backend=count) for m in modules]
    for m, c in zip(modules, compiled, strict=True):
        compared(m, m, c, x)
    assert count.n == 1
    with torch.no_grad():
        modules[1].linear.weight.mul_(3)
    modules[2].tensor = torch.full((4,), 7.0)
    modules[2].linear = nn.Linear(4, 4)
    for m, c in zip(modules, compiled, strict=True):
        compared(m, m, c, x)
    assert count.n == 1, "tensors and parts of the same kind are inputs"
    modules[1].number = 9
    for m, c in zip(modules, compiled, strict=True):
        compared(m, m, c, x)
    assert count.n == 2
    modules[0].number = 9
    compared(modules[0], modules[0], compiled[0], x)
    assert count.n == 2, "the program that the second one has captured fits the first one"


class Writer(nn.Module):
    """Writes to itself, keeps itself, and returns itself."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen, self.last = 0, [], None
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        self.seen.append(x.shape[0])
        self.last = x * 2
        self.total.add_(x)
        return self, self.last + self.total


def test_writes_go_to_the_instance_that_is_called() -> None:
    modules, count = [Writer() for _ in range(3)], Counter()
    compiled = [fineline.compile(m, backend=count, dynamic=False) for m in modules]
    for n, (m, c) in enumerate(zip(modules, compiled, strict=True)):
        for k in range(3):
            x = torch.full((3,), float(n + k))
            before = m.total.clone()
            own, y = c(x)
            assert own is m and m.calls == k + 1 and m.seen == [3] * (k + 1)
            assert torch.equal(m.last, x * 2) and torch.equal(m.total, before + x) and torch.equal(y, x * 2 + m.total)
    assert sum(bool(shared(c)) for c in compiled) == 2


class Identity(nn.Module):
    """Shows who it is."""

    def __init__(self, peer: Any = None) -> None:
        super().__init__()
        self.peer = peer

    def forward(self, x: Tensor) -> Any:
        return x + (1 if self is self.peer else 2), id(self) % 7, hash(self) % 5


def test_who_it_is_is_no_constant() -> None:
    x = torch.ones(2)
    modules = [Identity(), Identity()]
    modules[1].__dict__["peer"] = modules[1]
    modules.append(Identity())
    modules[2].__dict__["peer"] = modules[0]
    modules.append(Identity())
    modules[3].__dict__["peer"] = modules[3]
    compiled = [fineline.compile(m, backend="eager") for m in modules]
    for m, c in itertools.product(zip(modules, compiled, strict=True), range(2)):
        del c
        plain, call = m
        (a, *rest), (b, *others) = plain(x), call(x)
        assert torch.equal(a, b) and rest == others


# -- functions ---------------------------------------------------------------------------------------------------------------------
def scaled(factor: Any, more: Any = None) -> Callable[[Tensor], Tensor]:
    def scale(x: Tensor, plus: Any = None) -> Tensor:
        plus = more if plus is None else plus
        return x * factor + (0 if plus is None else plus)

    return scale


def test_functions_of_one_def_statement() -> None:
    x, count = torch.ones(3), Counter()
    weights = [torch.full((3,), float(n)) for n in range(4)]
    alike = [scaled(weight) for weight in weights]
    others = [scaled(2.0), scaled(3.0), scaled(weights[0], 5), scaled(weights[0], weights[1]), scaled(torch.ones(1))]
    compiled = [fineline.compile(fn, backend=count) for fn in (*alike, *others)]
    for n, (fn, c) in enumerate(zip((*alike, *others), compiled, strict=True)):
        assert torch.equal(fn(x), c(x)) and torch.equal(fn(x), c(x))
        assert n >= len(alike) or count.n == 1
    # Each of the others is another case.
    assert count.n == 6


def test_globals_and_code_of_a_function() -> None:
    x = torch.ones(2)
    source = "def f(x):\n    return x * N\n"
    made = []
    for n in (2, 3, 2):
        space: dict[str, Any] = {"N": n}
        exec(compile(source, "<here>", "exec"), space)
        made.append(space["f"])
    code = made[0].__code__
    made.append(types.FunctionType(code, {"N": 9, "__builtins__": __builtins__}, "f"))
    made.append(types.FunctionType(code, made[0].__globals__, "f"))
    compiled = [fineline.compile(f, backend="eager") for f in made]
    for f, c in zip(made, compiled, strict=True):
        assert torch.equal(f(x), c(x)) and torch.equal(f(x), c(x))
    assert shared(compiled[-1]) and not any(shared(c) for c in compiled[:-1])
    made[-1].__code__ = (lambda x: x * 100).__code__
    assert torch.equal(compiled[-1](x), x * 100) and torch.equal(compiled[0](x), x * 2)


# -- sizes, limits, options --------------------------------------------------------------------------------------------------------
def test_a_size_that_varies_is_learned_once() -> None:
    count = Counter()
    modules = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4)]
    compiled = [fineline.compile(m, backend=count) for m in modules]
    for rows in (3, 5, 7, 9):
        for m, c in zip(modules, compiled, strict=True):
            x = torch.randn(rows, 4)
            assert torch.equal(m(x), c(x))
    assert count.n == 2
    x = torch.randn(6, 4)
    fineline.mark_dynamic(x, 0)
    fresh = fineline.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend=count)
    fresh(x)
    fresh(torch.randn(8, 4))
    assert len(fineline.report(fresh).graphs_kept) + len(shared(fresh)) == 1, "a mark holds for the first capture, too"


def test_options_backends_and_rules_are_parts_of_what_is_equal() -> None:
    x, count = torch.randn(2, 4), Counter()
    first = fineline.compile(nn.Linear(4, 4), backend=count)
    first(x)
    for how in (
        {"backend": Counter()}, {"backend": count, "dynamic": True}, {"backend": count, "isolate_recompiles": True}, {"backend": count, "fullgraph": True},
        {"backend": count, "policy": fineline.Policy()}, {"backend": count, "options": {"evaluator": "reference"}},
    ):  # fmt: skip
        other = fineline.compile(nn.Linear(4, 4), **how)
        assert torch.equal(other(x), other._orig_mod(x)) and not shared(other), how
    other = fineline.compile(nn.Linear(4, 4), backend=count, name="of another name")
    other(x)
    assert shared(other) == ["a program with 1 operator, captured for Linear, instance 1"]


def test_the_limit_of_a_region_counts_the_programs_of_others() -> None:
    x = torch.randn(2)
    first, second = [fineline.compile(scaled(torch.ones(2)), backend="eager", dynamic=False, recompile_limit=2) for _ in range(2)]
    for plus in range(2):
        first(x, plus)
    for plus in range(4):
        assert torch.equal(second(x, plus), x + plus)
    events = fineline.report(second).events
    assert [event.kind for event in events] == ["shared", "shared", "limit"]


def test_a_report_says_whose_program_it_is() -> None:
    x = torch.randn(2, 4)
    modules = [nn.Linear(4, 4) for _ in range(2)]
    first, second = [fineline.compile(m, backend="eager", name=name) for m, name in zip(modules, ("encoder", "decoder"), strict=True)]
    first(x)
    second(x)
    told, own = fineline.report(second), fineline.report(first)
    assert "1 program of equal callables" in told.headline and "0 graphs" in told.headline and "of equal callables" not in own.headline
    assert "captured for encoder, instance 1" in str(told) and "FL005" in str(told)
    assert told.guards == own.guards and told.program == own.program and len(told.graphs) == 1
    # An explanation captures the call by itself.
    assert "1 graph," in fineline.explain(second)(x).headline


def test_reset_forgets_the_programs_of_all() -> None:
    x, count = torch.randn(2, 4), Counter()
    compiled = [fineline.compile(nn.Linear(4, 4), backend=count) for _ in range(2)]
    for c in compiled:
        c(x)
    fineline.reset()
    for c in compiled:
        c(x)
    assert count.n == 2 and shared(compiled[1])


# -- lives, copies, threads --------------------------------------------------------------------------------------------------------
def test_an_instance_dies_and_its_program_lives_on() -> None:
    x, count = torch.randn(2, 3, 8), Counter()
    blocks = [Block() for _ in range(3)]
    compiled = [fineline.compile(b, backend=count) for b in blocks]
    for c in compiled[:2]:
        c(x)
    gone = [weakref.ref(blocks[0]), weakref.ref(blocks[0].qkv.weight), weakref.ref(blocks[0].norms)]
    del blocks[0], compiled[0], c
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    for b, c in zip(blocks, compiled, strict=True):
        assert torch.equal(b(x), c(x))
    assert count.n == 1


def test_no_instance_is_kept_for_others_that_may_come() -> None:
    x, refs = torch.randn(2, 3), []
    last = fineline.compile(nn.Linear(3, 3), backend="eager")
    for _ in range(3):
        m = nn.Linear(3, 3)
        fineline.compile(m, backend="eager")(x)
        refs += [weakref.ref(m), weakref.ref(m.weight)]
        del m
        gc.collect()
        assert all(ref() is None for ref in refs)
    assert torch.equal(last(x), last._orig_mod(x))


def test_copies_and_pickles() -> None:
    x, count = torch.randn(2, 4), Counter()
    first = fineline.compile(nn.Linear(4, 4), backend=count)
    first(x)
    other = copy.deepcopy(first)
    nn.init.zeros_(other.weight)
    assert torch.equal(other(x), other._orig_mod(x)) and torch.equal(first(x), first._orig_mod(x)) and count.n == 1
    plain = fineline.compile(nn.Linear(4, 4), backend="eager")
    plain(x)
    again = pickle.loads(pickle.dumps(plain))
    assert torch.equal(again(x), plain(x)) and shared(again)


def test_threads() -> None:
    x, errors = torch.randn(2, 3, 8), []
    blocks = [Block() for _ in range(8)]
    compiled, start = [fineline.compile(b, backend="eager") for b in blocks], threading.Barrier(8)

    def run(n: int) -> None:
        try:
            start.wait()
            for k in range(10):
                b, c = blocks[(n + k) % 8], compiled[(n + k) % 8]
                assert torch.equal(b(x), c(x))
        except BaseException as e:  # shown by the main thread
            errors.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# -- graph breaks ------------------------------------------------------------------------------------------------------------------
class Breaking(nn.Module):
    """Breaks the graph in a callee, at a number that data decides, and in a block with a handler."""

    def __init__(self, steps: int = 1) -> None:
        super().__init__()
        self.first, self.second, self.steps, self.told = nn.Linear(4, 4), nn.Linear(4, 4), steps, []

    def part(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        print("inside")
        return self.second(y) * 2

    def forward(self, x: Tensor) -> Tensor:
        y = self.part(x) + 1
        self.told.append(float(y.sum()) > 0)
        try:
            y = y.sin() * self.steps
            print("in a block")
            if self.steps > 2:
                raise ValueError(self.steps)
        except ValueError as e:
            y = y + e.args[0]
        return self.second(y) + self.first.weight.sum()


def test_blocks_with_graph_breaks(capsys: pytest.CaptureFixture) -> None:
    x, count, per_block = torch.randn(3, 4), Counter(), []
    blocks = [Breaking() for _ in range(6)]
    plain = copy.deepcopy(blocks)
    compiled = [fineline.compile(block, backend=count) for block in blocks]
    for _ in range(3):
        for a, b, c in zip(plain, blocks, compiled, strict=True):
            before = count.n
            expected, written = a(x), capsys.readouterr().out
            found = c(x)
            assert torch.equal(expected, found) and capsys.readouterr().out == written and a.told == b.told
            expected.sum().backward()
            found.sum().backward()
            per_block.append(count.n - before)
    assert all(torch.equal(p.grad, q.grad) for a, b in zip(plain, blocks, strict=True) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    # The number is a constant in the first block, and varies in the second one; all others run these programs.
    assert sum(per_block[2:6]) == 0 and sum(per_block[6:]) <= 1
    told = fineline.report(compiled[-1])
    assert len(told.breaks) >= 3 and "up to a graph break, captured for Breaking, instance" in str(told)


def test_blocks_that_differ_after_a_graph_break(capsys: pytest.CaptureFixture) -> None:
    x = torch.randn(3, 4)
    blocks = [Breaking(), Breaking(2), Breaking(), Breaking(3), Breaking(3)]
    blocks[2].second.register_forward_hook(doubling)
    plain = copy.deepcopy(blocks)
    compiled = [fineline.compile(block, backend="eager") for block in blocks]
    for steps in (0, 5, 0, 7):
        for a, b, c in zip(plain, blocks, compiled, strict=True):
            a.steps, b.steps = a.steps + steps, b.steps + steps
            for _ in range(2):
                assert torch.equal(a(x), c(x)) and a.told == b.told
        plain[1].second, blocks[1].second = nn.Identity(), nn.Identity()


def test_the_first_of_blocks_with_graph_breaks_dies(capsys: pytest.CaptureFixture) -> None:
    x, count = torch.randn(3, 4), Counter()
    blocks = [Breaking() for _ in range(3)]
    compiled = [fineline.compile(block, backend=count) for block in blocks]
    for c in compiled[:2]:
        c(x)
    gone = [weakref.ref(blocks[0]), weakref.ref(blocks[0].first.weight)]
    del blocks[0], compiled[0], c
    gc.collect()
    assert [ref() for ref in gone] == [None] * 2
    for _ in range(2):
        for b, c in zip(blocks, compiled, strict=True):
            assert torch.equal(b(x), c(x))
    with pytest.raises(TypeError):
        compiled[0](None)
    assert torch.equal(blocks[0](x), compiled[0](x))


def test_an_error_after_a_graph_break_reaches_the_caller_of_each(capsys: pytest.CaptureFixture) -> None:
    class Failing(nn.Module):
        def __init__(self, limit: float) -> None:
            super().__init__()
            self.linear, self.limit = nn.Linear(2, 2), limit

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            print("before")
            if float(x.sum()) > 1:
                raise ValueError("too large")
            return y * 2

    modules = [Failing(1.0) for _ in range(3)]
    compiled = [fineline.compile(m, backend="eager") for m in modules]
    for x in (torch.zeros(2), torch.ones(2), torch.zeros(2), torch.ones(2)):
        for m, c in zip(modules, compiled, strict=True):
            if x.sum() > 1:
                with pytest.raises(ValueError, match="too large"):
                    c(x)
            else:
                assert torch.equal(m(x), c(x))
