"""``fineline.bisect``: culprits, policies, verdicts, numbers of captures, and what it leaves as it was."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fineline
from tests.bisection import backends


class Block(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.lin, self.act = nn.Linear(8, 8), act

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.lin(x)) / 8


class Net(nn.Module):
    """Blocks with a graph break after each third one; those at ``places`` have another activation."""

    def __init__(self, blocks: int, places: dict[int, nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(places.get(i) or nn.ReLU()) for i in range(blocks)])

    def forward(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i % 3 == 2:
                print(end="")
        return x


class Tanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


def attend(x: Tensor) -> Tensor:
    return torch.softmax(x, -1) @ x


def scaled(x: Tensor) -> Tensor:
    y = torch.cat([x, x])[:, :3]
    return torch.mul(y, 2).sum()


def line_of(function: Callable, text: str) -> int:
    code = function.__code__
    with open(code.co_filename) as file:
        lines = file.readlines()
    return next(n for n in range(code.co_firstlineno, len(lines) + 1) if text in lines[n - 1])


@pytest.fixture(autouse=True)
def steady() -> Iterator[None]:
    """Numbers are the same each time, and graphs that fail log nothing."""
    torch.manual_seed(0)
    log = logging.getLogger("fineline")
    level = log.level
    log.setLevel("ERROR")
    yield
    log.setLevel(level)


def mends(found: fineline.bisection.hunt.Bisection, f: Callable, args: list, backend: Any) -> bool:
    """Returns whether a user who compiles with the policy gets eager code's result."""
    fast = fineline.compile(f, backend=backend, policy=found.policy)
    fast(*args)
    return torch.allclose(fast(*args), f(*args), atol=1e-6)


def test_an_operator_of_one_module() -> None:
    """The result prints the function and the line, and its policy mends it."""
    net, x = Net(12, {7: nn.GELU()}), torch.randn(4, 8) * 3
    found = fineline.bisect(net, [x], backend=backends.tanh_gelu)
    [culprit] = found.culprits
    line = line_of(Block.forward, "self.act(self.lin(x))")
    assert (found.status, culprit.graph, culprit.module) == ("mended", 2, "blocks.7.act (GELU)")
    assert (culprit.function, culprit.file, culprit.line) == ("Block.forward", __file__, line)
    assert f"  torch.nn.functional.gelu\n    in Block.forward, {__file__}:{line}\n    module blocks.7.act (GELU)\n    graph 2\n" in str(found)
    assert repr(found.policy) == "Policy(disallow=[torch.nn.functional.gelu])" and found.policy_text == 'disallow = ["torch.nn.functional.gelu"]\n'
    assert found.fault.startswith("the result: the largest difference is ") and "allowed are" in found.fault
    wrong = fineline.compile(net, backend=backends.tanh_gelu)
    wrong(x)
    assert not torch.allclose(wrong(x), net(x), atol=1e-6) and mends(found, net, [x], backends.tanh_gelu)


def test_the_number_of_captures_grows_with_the_logarithm() -> None:
    """It is that of the runs, of which each is one capture."""
    compiled = []

    def counting(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        compiled.append(gm)
        return backends.tanh_gelu(gm, inputs)

    captures = {}
    for blocks in (6, 24):
        found = fineline.bisect(Net(blocks, {blocks - 2: nn.GELU()}), [torch.randn(4, 8) * 3], backend=counting)
        assert found.status == "mended" and len(found.runs) == found.captures
        captures[blocks] = found.captures
    # 24 blocks have 72 operators in eight graphs, 6 blocks 18 operators in two.
    assert captures[24] - captures[6] <= 3 and captures[24] <= 18
    # Of the first three runs one compiles nothing; then each halves the graphs.
    assert len(compiled) < 8 * captures[24]


@pytest.mark.parametrize("backend, error", [(backends.raising, "NotImplementedError"), (backends.raising_when_run, "RuntimeError")], ids=["compiling", "run"])
def test_a_backend_that_fails(backend: Callable, error: str) -> None:
    def step(x: Tensor) -> Tensor:
        return attend(x.relu() + 1).sum() * 2

    found = fineline.bisect(step, [torch.randn(4, 4)], backend=backend)
    [culprit] = found.culprits
    assert found.status == "mended" and error in found.fault
    assert (culprit.function, culprit.line) == ("attend", attend.__code__.co_firstlineno + 1)
    assert [operator.name for operator in culprit.operators] == ["torch.softmax"] and mends(found, step, [torch.randn(4, 4)], backend)


def test_two_operators_that_are_wrong_only_together() -> None:
    def step(x: Tensor) -> Tensor:
        y = torch.cos(x) * 2
        y = torch.sin(y) + 1
        y = y.relu().exp()
        return torch.cos(y) - x

    found = fineline.bisect(step, [torch.randn(5)], backend=backends.fused_wrong)
    [culprit] = found.culprits
    assert [operator.name for operator in culprit.operators] == ["torch.sin", "torch.cos"] and culprit.between == 3
    assert [operator.place.line for operator in culprit.operators if operator.place] == [step.__code__.co_firstlineno + n for n in (2, 4)]
    assert "torch.sin and torch.cos together, with 3 between them" in str(found)
    assert found.status == "mended" and mends(found, step, [torch.randn(5)], backends.fused_wrong)


def test_several_culprits() -> None:
    """Each is found, and the policy keeps all of them eager."""
    net, x = Net(9, {1: nn.GELU(), 7: nn.SiLU()}), torch.randn(4, 8) * 3
    found = fineline.bisect(net, [x], backend=backends.two_wrong)
    assert found.status == "mended" and {culprit.module for culprit in found.culprits} == {"blocks.1.act (GELU)", "blocks.7.act (SiLU)"}
    assert mends(found, net, [x], backends.two_wrong)


def test_the_rule_that_keeps_the_fewest_operators_eager() -> None:
    """Multiplications are right everywhere but in one function."""

    def step(x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.mul(x, 0.5)
        return x + scaled(x)

    backend = backends.wrong_for("mul", 3)
    found = fineline.bisect(step, [torch.randn(4, 8)], backend=backend)
    assert [(rule.verb, rule.name) for rule in found.rules] == [("disable", f"{__name__}.scaled")]
    assert found.culprits[0].function == "scaled" and found.status == "mended" and mends(found, step, [torch.randn(4, 8)], backend)


def test_a_function_in_a_function() -> None:
    def inner(x: Tensor) -> Tensor:
        return torch.mul(x[:, :3], 2)

    def step(x: Tensor) -> Tensor:
        return inner(torch.mul(torch.mul(x, 2), 2)) + 1

    backend = backends.wrong_for("mul", 3)
    found = fineline.bisect(step, [torch.randn(4, 8)], backend=backend)
    assert found.culprits[0].function.endswith("inner") and mends(found, step, [torch.randn(4, 8)], backend)
    # A policy file does not name functions in functions.
    assert found.policy_text == ""


def test_gradients_are_compared() -> None:
    net, x = Net(4, {2: Tanh()}), torch.randn(4, 8)
    found = fineline.bisect(net, [x], backend=backends.wrong_backward)
    assert found.status == "mended" and found.culprits[0].function == "Tanh.forward" and found.fault.startswith("the gradients[")
    assert found.culprits[0].module == "blocks.2.act (Tanh)"


def test_arguments_that_are_written_are_compared() -> None:
    def step(x: Tensor, out: Tensor) -> None:
        out.add_(F.gelu(x))

    found = fineline.bisect(step, [torch.randn(8) * 3, torch.zeros(8)], backend=backends.tanh_gelu)
    assert found.status == "mended" and "the arguments[0][1]" in found.fault


def test_a_check_decides() -> None:
    net, x = Net(6, {4: nn.GELU()}), torch.randn(4, 8) * 3
    right = net(x).detach()
    asked = []

    def check(result: Tensor) -> bool:
        asked.append(result)
        return torch.allclose(result, right, atol=1e-6)

    found = fineline.bisect(net, [x], backend=backends.tanh_gelu, check=check)
    assert found.status == "mended" and found.fault == "the check returns False" and found.culprits[0].module == "blocks.4.act (GELU)"
    assert len(asked) == found.captures + 2

    def asserting(result: Tensor) -> None:
        assert torch.allclose(result, right, atol=1e-6), "too far"

    found = fineline.bisect(net, [x], backend=backends.tanh_gelu, check=asserting)
    assert found.status == "mended" and found.fault == "the check fails: too far"
    found = fineline.bisect(net, [x], backend=backends.tanh_gelu, check=lambda result: True)
    assert (found.status, found.culprits, found.policy, found.captures) == ("right", (), None, 3)


def test_what_is_flaky_or_wrong_anyway() -> None:
    net, x = Net(3, {1: nn.GELU()}), torch.randn(4, 8) * 3
    answers = iter([True, False] * 50)
    found = fineline.bisect(net, [x], backend=backends.tanh_gelu, check=lambda result: next(answers))
    assert found.status == "flaky" and str(found).startswith("the check is flaky: in eager code it says right, and then the check returns False")
    # Steady in eager code, and not where graphs are compiled.
    answers = iter([True, True, True, True, False] + [False] * 50)
    found = fineline.bisect(net, [x], backend=backends.tanh_gelu, check=lambda result: next(answers))
    assert found.status == "flaky" and "with all graphs compiled it says right, and then the check returns False" in found.fault
    found = fineline.bisect(net, [x], backend=backends.tanh_gelu, check=lambda result: False)
    assert found.status == "eager" and found.policy is None
    found = fineline.bisect(net, [x], backend=backends.Unsteady())
    assert found.status == "flaky" and found.policy is None
    draws = random.Random(0)
    found = fineline.bisect(lambda x: x * draws.random(), [x], backend="eager")
    assert found.status == "flaky" and "two eager calls differ" in found.fault


def test_what_is_left_as_it_was() -> None:
    """Arguments, parameters, buffers, gradients, numbers of modules and random states."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.calls = nn.BatchNorm1d(8), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return F.gelu(self.norm(F.dropout(x.add_(1))) * 3)

    net, x = Noisy(), torch.randn(16, 8)
    before = x.clone(), {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    found = fineline.bisect(net, [x], backend=backends.tanh_gelu)
    assert found.status == "mended" and [rule.name for rule in found.rules] == ["torch.nn.functional.gelu"]
    assert torch.equal(x, before[0]) and torch.equal(torch.get_rng_state(), before[2]) and net.calls == 0
    assert all(torch.equal(value, before[1][name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_a_compiled_callable() -> None:
    """It is captured as it was compiled; under fullgraph=True the rule's graph break is a declared one."""
    net, x = Net(2, {1: nn.GELU()}), torch.randn(4, 8) * 3
    found = fineline.bisect(fineline.compile(net, backend=backends.tanh_gelu, fullgraph=True), [x])
    assert found.status == "mended" and found.culprits[0].module == "blocks.1.act (GELU)"
    with pytest.raises(fineline.errors.BadArgument, match="needs a backend="):
        fineline.bisect(net, [x])
    with pytest.raises(fineline.errors.BadArgument, match="args is a list or a tuple, not a Tensor"):
        fineline.bisect(net, x, backend="eager")  # type: ignore[arg-type]
    with pytest.raises(fineline.errors.BadArgument, match="check is a function"):
        fineline.bisect(net, [x], backend="eager", check=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_rounding_is_no_fault(backend: str) -> None:
    found = fineline.bisect(Net(3, {1: nn.GELU()}), [torch.randn(4, 8)], backend=backend)
    assert found.status == "right" and found.policy is None and "nothing to find" in str(found)


def test_operators_between_which_the_graph_is_not_cut() -> None:
    """Writes in place keep a graph whole; the rule that mends the result tells which operator it is."""

    def step(x: Tensor) -> Tensor:
        y = x * 2
        z = torch.tanh(y)
        y.add_(F.gelu(z * 3))
        return torch.sin(y) + z

    found = fineline.bisect(step, [torch.randn(8)], backend=backends.tanh_gelu)
    [culprit] = found.culprits
    assert found.status == "mended" and [operator.name for operator in culprit.operators] == ["torch.nn.functional.gelu"]
    assert culprit.line == step.__code__.co_firstlineno + 3 and found.captures < 25


def test_gradients_that_are_zero_but_for_rounding() -> None:
    """That of a bias before a batch norm is noise, of the size of the roundings of other gradients."""

    def noisy(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        def run(*args: Any) -> Any:
            outs = gm.forward(*args)
            return tuple([out * (1 + 1e-7) for out in outs])

        return run

    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8))
    assert fineline.bisect(net, [torch.randn(32, 8) * 5], backend=noisy).status == "right"


def test_random_numbers_that_double_precision_draws_otherwise() -> None:
    """Then double precision decides nothing."""

    class Random(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(x) + F.dropout(x) + torch.randn_like(x)

    found = fineline.bisect(Random(), [torch.randn(4, 8)], backend=backends.tanh_gelu)
    assert found.status == "mended" and found.rules[0].name == "torch.nn.functional.gelu"


def test_a_training_step() -> None:
    """It goes backward itself; the gradients that it leaves in its model are compared."""
    net = Net(3, {1: Tanh()})

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    found = fineline.bisect(step, [torch.randn(4, 8)], backend=backends.wrong_backward)
    assert found.status == "mended" and found.culprits[0].function == "Tanh.forward" and found.fault.startswith("the gradients[")


class Buffered(nn.Module):
    """Puts another tensor in the place of a buffer, and notes calls in a list and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(8))
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(self.seen))
        self.total = self.total + x
        return F.gelu(self.total * 3) if len(self.seen) > 1 else self.total * 3


def test_what_is_put_back() -> None:
    """Buffers that are other tensors afterwards, lists, closures, optimizers; so that only the second call of the module may be wrong."""
    net = Buffered()

    def step(x: Tensor) -> Tensor:
        net(x)
        result: Tensor = net(x)
        return result

    found = fineline.bisect(step, [torch.randn(8)], backend=backends.tanh_gelu)
    assert found.status == "mended" and found.culprits[0].function == "Buffered.forward" and net.seen == [] and not net.total.any()


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_an_optimizer_is_put_back(kind: str) -> None:
    net, x = Net(3, {1: nn.GELU()}), torch.randn(4, 8) * 3
    opt: torch.optim.Optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))
    before = {name: value.clone() for name, value in net.state_dict().items()}

    class Trainer:
        """The optimizer and the module are found through an attribute of a user's object."""

        def __init__(self) -> None:
            self.opt, self.net, self.steps = opt, net, 0

        def step(self, x: Tensor) -> Tensor:
            self.steps += 1
            self.opt.zero_grad()
            loss = self.net(x).square().mean() * self.steps
            loss.backward()
            self.opt.step()
            return loss.detach()

    trainer = Trainer()
    for backend, status in ((backends.tanh_gelu, "mended"), ("aot_eager", "right")):
        found = fineline.bisect(trainer.step, [x], backend=backend)
        assert found.status == status, found
    assert trainer.steps == 0 and not opt.state and all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_steps_of_adam_on_gradients_that_are_rounding() -> None:
    """Their sign decides the step: what inputs that are a rounding off change is no fault."""
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8))
    opt = torch.optim.Adam(net.parameters(), lr=0.1)

    def noisy(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        def run(*args: Any) -> Any:
            outs = gm.forward(*args)
            return tuple([out * (1 + 1e-7) for out in outs])

        return run

    def step(x: Tensor) -> Tensor:
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    assert fineline.bisect(step, [torch.randn(32, 8) * 5], backend=noisy).status == "right"


def test_gradients_before_a_normalization() -> None:
    """The sum of its results is the same for all inputs: a gradient of ones would be zero before it."""
    net = nn.Sequential(nn.Linear(8, 8), Tanh(), nn.Linear(8, 8), nn.LayerNorm(8))
    found = fineline.bisect(net, [torch.randn(16, 8)], backend=backends.wrong_backward)
    assert found.status == "mended" and found.culprits[0].module == "1 (Tanh)" and found.fault.startswith("the gradients['0.weight']: ")


def test_a_parameter_that_is_a_global() -> None:
    """Its gradient is compared, and put back."""
    found = fineline.bisect(scaled_by_a_global, [torch.randn(8)], backend=backends.wrong_backward)
    assert found.status == "mended" and found.fault.startswith("the gradients['SCALE']: ") and SCALE.grad is None


SCALE = nn.Parameter(torch.linspace(0.5, 1.0, 8))


def scaled_by_a_global(x: Tensor) -> Tensor:
    return torch.tanh(x * SCALE)


class Box:
    def __init__(self, y: Tensor) -> None:
        self.y, self.box = y, self


def test_results_in_objects() -> None:
    """Attributes of users' objects and fields of data classes are compared, and gone backward through."""
    for make in (Box, lambda y: {"there": (y, [y])}):
        found = fineline.bisect(lambda x, make=make: make(F.gelu(x * 3)), [torch.randn(8)], backend=backends.tanh_gelu)
        assert found.status == "mended", found
        found = fineline.bisect(lambda x, make=make: make(torch.tanh(x)), [torch.randn(8).requires_grad_()], backend=backends.wrong_backward)
        assert found.status == "mended" and found.fault.startswith("the gradients['argument 0']: ")


def test_callables_that_are_compiled_inside() -> None:
    """Eager code is that of all of them."""
    net, x = Net(2, {1: nn.GELU()}), torch.randn(4, 8) * 3
    fast = fineline.compile(net, backend=backends.tanh_gelu)
    fast(x)
    found = fineline.bisect(lambda x: fast(x * 2), [x], backend=backends.tanh_gelu)
    assert found.status == "mended" and found.rules[0].name == "torch.nn.functional.gelu"


def test_numbers_of_autocast() -> None:
    """Float32 gradients of bfloat16 operators are no more exact than these."""

    def rounded(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        def change(node: torch.fx.Node) -> None:
            if node.target is F.gelu:
                node.target = lambda x, **kwargs: F.gelu(x.float(), **kwargs)

        return backends.edited(gm, change)

    net, x = Net(6, {1: nn.GELU(), 4: nn.GELU()}), torch.randn(64, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fineline.bisect(net, [x], backend=rounded).status == "right"


def test_arguments_that_share_memory() -> None:
    """Their copies do, too, and have their strides; of a storage only what they use is copied."""
    given = torch.randn(4, 8)
    seen = []

    fineline.bisect(
        lambda *args: args, [given[1:3], given[2], torch.randn(1000)[16:24].expand(2, 8)], backend="eager",
        check=lambda args: seen.append((args[0].data_ptr() + 32 == args[1].data_ptr(), args[2].stride(), args[2].untyped_storage().nbytes())),
    )  # fmt: skip
    assert set(seen) == {(True, (0, 1), 32)}


def test_what_is_said_where_there_is_nothing_to_find() -> None:
    def raising(x: Tensor) -> Tensor:
        raise ValueError("no")

    found = fineline.bisect(raising, [torch.randn(8)], backend="eager")
    assert found.status == "right" and "eager code raises ValueError: no, and so does compiled code" in str(found)
    with fineline.set_stance("force_eager"):
        found = fineline.bisect(Net(1, {}), [torch.randn(4, 8)], backend="eager")
    assert found.status == "right" and "no graph has been compiled" in str(found)
    draws = random.Random(0)
    found = fineline.bisect(lambda x: x * draws.random(), [torch.randn(8)], backend="eager")
    assert str(found).endswith("> is not the same each time: " + found.fault + "\n  0 runs")


def test_a_backend_that_draws_other_random_numbers() -> None:
    """That is no fault of an operator; a check decides all the same."""

    def others(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        return lambda *args: (torch.rand(1), gm.forward(*args))[1]

    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU())
    found = fineline.bisect(net, [torch.randn(4, 8)], backend=others)
    assert (found.status, found.culprits, found.policy) == ("random", (), None) and "draws other random numbers than eager code" in str(found)
    assert fineline.bisect(net, [torch.randn(4, 8)], backend=others, check=lambda y: y.shape == (4, 8)).status == "right"


def test_an_expanded_buffer() -> None:
    """Its items can't be written one by one."""
    net = Net(2, {1: nn.GELU()})
    net.register_buffer("shift", torch.ones(8).expand(4, 8))
    found = fineline.bisect(lambda x: net(x + net.shift), [torch.randn(1, 8).expand(4, 8)], backend=backends.tanh_gelu)
    assert found.status == "mended"


def test_a_module_without_sizes() -> None:
    """Its parameters are made by the first call, and can't be put back."""
    with pytest.raises(fineline.errors.BadArgument, match="'0.weight' has no size yet"):
        fineline.bisect(nn.Sequential(nn.LazyLinear(8)), [torch.randn(4, 8)], backend="eager")


def test_two_culprits_in_one_graph() -> None:
    net, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)), torch.randn(4, 8) * 3
    found = fineline.bisect(net, [x], backend=backends.two_wrong)
    assert found.status == "mended" and [culprit.module for culprit in found.culprits] == ["1 (GELU)", "3 (SiLU)"]
    assert found.captures <= 18 and mends(found, net, [x], backends.two_wrong)
