"""``explain`` of what is compiled, and ``report``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy, errors

X = torch.ones(3)


def cosine(x):
    return x.cos()


def program(x):
    return cosine(x.sin()) + 1


class Net(nn.Module):
    def forward(self, x):
        return program(x)

    @fineline.compile(backend="eager", policy=Policy(disable=[cosine]))
    def method(self, x):
        return program(x)


POLICY = Policy(disable=[cosine], reason="mine")
MADE = {
    "function": lambda **how: fineline.compile(program, **how),
    "module": lambda **how: fineline.compile(Net(), **how),
    "forward": lambda **how: fineline.compile(Net(), **how).forward,
    "bound": lambda **how: fineline.compile(Net().forward, **how),
    "decorator": lambda **how: fineline.compile(**how)(program),
    "again": lambda **how: fineline.compile(fineline.compile(program, backend="eager"), **how),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda gm, examples: gm.forward])
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_explain_describes_the_program_that_runs(make, backend) -> None:
    compiled = make(backend=backend, policy=POLICY)
    told = fineline.explain(compiled)(X)
    assert [b.rule for b in told.breaks] == [b.rule for b in fineline.explain(program, policy=POLICY)(X).breaks] and "mine" in told.breaks[0].rule
    assert told.ran == {"captured": 2, "eager": 0, "skipped": 1}
    compiled(X)
    so_far = fineline.report(compiled)
    assert [(e.kind, e.reason, e.rule) for e in so_far.events] == [(e.kind, e.reason, e.rule) for e in told.events]
    assert so_far.guards == told.guards and len(so_far.graphs) == len(told.graphs) == 2


def test_explain_of_a_method_that_a_class_has_compiled() -> None:
    assert len(fineline.explain(Net().method)(X).breaks) == 1


def test_explain_keeps_dynamic_options_and_name() -> None:
    compiled = fineline.compile(program, backend="eager", dynamic=True, name="mine")
    told = fineline.explain(compiled)(X)
    assert told.name == "mine" and any("x.size(0)" in guard for guard in told.guards)
    small = fineline.explain(fineline.compile(program, backend="eager", policy=POLICY, options={"min_graph_operators": 9}))
    assert len(small(X).breaks) == 1


def test_explain_raises_where_the_region_does_and_what_is_given_stands_above() -> None:
    def breaks(x):
        print(end="")
        return x + 1

    compiled = fineline.compile(breaks, backend="eager", fullgraph=True)
    with pytest.raises(errors.Unsupported, match=r"explain\(fn, fullgraph=False\)"):
        fineline.explain(compiled)(X)
    assert len(fineline.explain(compiled, fullgraph=False)(X).breaks) == 1
    assert len(fineline.explain(fineline.compile(program, backend="eager"), policy=POLICY)(X).breaks) == 1
    with pytest.raises(errors.Unsupported):
        fineline.explain(breaks, fullgraph=True)(X)


def test_a_compilers_own_operators_do_not_count() -> None:
    def f(x):
        return (x.sin() + 1).cos()

    expected = {"captured": 3, "eager": 0, "skipped": 0}
    for how in ({"backend": "aot_eager"}, {"backend": "aot_eager", "dynamic": True}, {"backend": "eager", "dynamic": True}):
        assert fineline.explain(fineline.compile(f, **how))(X).ran == expected


def test_report_tells_what_has_happened_so_far() -> None:
    compiled = fineline.compile(program, backend="eager", policy=POLICY)
    assert fineline.report(compiled).events == [] and fineline.report(compiled).programs == []
    compiled(X)
    compiled(X)
    compiled(torch.ones(4))
    told = fineline.report(compiled)
    assert len(told.recompiles) == 1 and "sizes (3,) -> (4,)" in told.recompiles[0].reason and "1 recompile" in str(told)
    assert len(told.breaks) == 2 and len(told.programs) == len(compiled._region.segments()) and told.guards
    assert told.ran == {"captured": told.operators, "eager": 0, "skipped": None} and not told.counted and "that ran" not in str(told)
    assert told.tree is None and told.as_dict()["counted"] is False
    fineline.reset()
    assert fineline.report(compiled).events == []


def test_report_runs_nothing_and_refuses_what_is_not_compiled() -> None:
    compiled = fineline.compile(program, backend="eager")
    fineline.report(compiled)
    assert not compiled._region.segments()
    for other in (program, nn.ReLU()):
        with pytest.raises(errors.BadArgument, match="report takes a compiled callable"):
            fineline.report(other)


def test_the_repr_helps() -> None:
    told = fineline.explain(program)(X)
    assert repr(told) == f"<Explanation of program: 1 graph, 3 operators, 0 graph breaks, {len(told.guards)} guards; print it to read more>"
    assert repr(fineline.why(torch.sub)).startswith("<Decision on torch.sub: allow, by <Rule allow(torch.sub) at ")
    assert repr(POLICY.rules[0]) == f"<Rule {POLICY.rules[0]}, region>"


@fineline.disable
def kept(x):
    return x + 1


@torch.compiler.disable
def kept_by_torch(x):
    return x + 1


def test_parts_of_an_explanation_are_told_in_a_line() -> None:
    def f(x):
        return kept(x) * x.sum().item()

    told = fineline.explain(f)(torch.ones(3))
    line = f.__code__.co_firstlineno + 1
    name = f.__qualname__
    assert repr(told.breaks) == (
        f"[<break FL400 at {__file__}:{line} in {name}: kept is disabled>, "
        f"<break FL502 at {__file__}:{line} in {name}: item reads a tensor's values>]"
    )
    assert repr(told.tree) == f"<captured {name} at {__file__}:{line - 1}, with 2 calls in it; print it to read them>"
    assert repr(told.tree.children[1]) == f"<eager Tensor.item at {__file__}:{line}>"


def test_what_was_never_called_says_so() -> None:
    compiled = fineline.compile(kept_by_torch.__wrapped__, backend="eager")
    assert str(fineline.report(compiled)) == "kept_by_torch: nothing has been captured"


def test_a_call_under_a_mark_of_pytorchs_is_the_users_function() -> None:
    told = fineline.explain(lambda x: kept_by_torch(x) * 2)(torch.ones(3))
    [call] = told.tree.children
    assert (call.name, call.file, call.children) == ("kept_by_torch", __file__, [])


def test_pytorchs_own_marks_are_among_the_rules() -> None:
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters())

    def step(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        optimizer.zero_grad()
        return y.sin()

    compiled = fineline.compile(step, backend="eager")
    compiled(torch.ones(2, 2))
    report = fineline.report(compiled)
    [(rule, times)] = [(rule, times) for rule, times in report.rules.items() if rule.selector.text.endswith("Optimizer.zero_grad")]
    assert times == 1 and str(rule) in [event.rule for event in report.breaks] and rule.reason == "torch.compiler.disable"


def test_the_first_mark_of_the_process_counts_in_the_call_that_sets_it() -> None:
    fineline.reset()

    def mean(x: torch.Tensor) -> torch.Tensor:
        return x.mean()

    def step(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        fineline.disable(mean)(y)
        return y + 1

    explanation = fineline.explain(step)(torch.ones(3))
    assert [event.id for event in explanation.breaks] == ["FL411", "FL400"], explanation
    assert "mean" not in "".join(graph.code for graph in explanation.graphs)
