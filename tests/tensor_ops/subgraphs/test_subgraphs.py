"""Capture of sub-graphs alone: what becomes one node with a graph of its own, what is refused and why, and that a refusal leaves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fineline import nested_compile_region
from fineline.frames.graph_breaks import CaptureAborted, NotCapturable
from fineline.fx.recorder import Recorder
from fineline.guards.ambient_table import AMBIENT
from fineline.interp.interpreter import Interpreter
from fineline.policy.decide import Rules
from fineline.policy.policy import Policy
from fineline.region.options import Options
from fineline.region.session.entry_frame import entry_frame
from fineline.tensor_ops.backing import FakeBacking
from fineline.tensor_ops.subgraphs.allow_in_graph import leaves, parts, tensors
from fineline.tensor_ops.subgraphs.bodies import Bodies, Body
from fineline.tensor_ops.subgraphs.capture import SubGraph, capture_subgraph
from fineline.tensor_ops.subgraphs.function_graphs import Context, capture_function, needed
from fineline.tracing.lessons import Lessons
from fineline.tracing.subgraph_rules import BACKWARD, BRANCH, CHECKPOINT, FORWARD, HOOK, KINDS, MODIFIER, REGION, ROW, SubGraphRules
from tests.hosts import Host

X, Y = torch.arange(3.0), torch.ones(3)


def interpreter(*given: Any, **options: Any) -> Interpreter:
    """One that has been ``given`` these as arguments, and can make the interpreters that bodies and trials run on."""
    interp = Interpreter(Options(**options), Lessons(), Host())
    for i, v in enumerate(given):
        interp.trace.read(v, interp.trace.guards.root(i, f"arg{i}", v))
    return interp


def run(interp: Interpreter, fn: Callable, *args: Any) -> Any:
    interp.frame = entry_frame(interp, fn, args, {})
    return interp.run()


def operators(graph: Any) -> list[str]:
    """The operators of a graph, or what a recorder has so far."""
    graph = getattr(graph, "graph", graph)
    return [getattr(n.target, "__name__", str(n.target)) for n in graph.nodes if n.op in ("call_function", "call_method")]


def untouched(interp: Interpreter) -> bool:
    return operators(interp.trace.recorder) == [] and not interp.trace.recorder.nested.parts and not interp.trace.mutations.written and interp.frame is None


# -- bodies: a callable as a graph, not run for real ------------------------------------------------------------------------------
def test_a_body_is_captured_without_running_it() -> None:
    interp = interpreter(X)
    bodies = Bodies(interp)
    hole = bodies.like(X)
    body = bodies.capture(ROW, lambda a: (a.sin() + 1, {"b": a * 2}), [hole], holes=[hole])
    gm = bodies.module(body, "body")
    assert operators(gm) == ["sin", "add", "mul"] and untouched(interp)
    a, b = gm(X)
    assert torch.equal(a, X.sin() + 1) and torch.equal(b, X * 2)
    assert body.rebuilt("pq") == ("p", {"b": "q"}) and bodies.lifted() == ([], [])


def test_tensors_from_around_a_body_are_lifted_once_for_all_bodies() -> None:
    interp = interpreter(X, Y)
    bodies = Bodies(interp)
    one = bodies.capture(ROW, lambda: X + Y, [])
    other = bodies.capture(ROW, lambda: Y * 2, [])
    values, nodes = bodies.lifted()
    assert [v is t for v, t in zip(values, (X, Y), strict=True)] == [True, True]
    assert nodes == [interp.trace.recorder.find(X), interp.trace.recorder.find(Y)]
    graphs = [bodies.module(body, "body", single=True) for body in (one, other)]
    assert [torch.equal(gm(X, Y), expected) for gm, expected in zip(graphs, (X + Y, Y * 2), strict=True)] == [True, True]


held: list = [1]


def writes_global(a: Tensor) -> Tensor:
    held.append(2)
    return a + 1


def prints(a: Tensor) -> Tensor:
    print(a)
    return a + 1


def reads_data(a: Tensor) -> Tensor:
    return a + 1 if a.sum().item() > 0 else a


def writes_given(a: Tensor) -> Tensor:
    return a.add_(1)


def raises(a: Tensor) -> Tensor:
    raise LookupError("no")


def leaves_state(a: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return a + 1


REFUSED: dict[str, tuple[Callable, str]] = {
    "writes what is not its own": (writes_global, "it changes something that is not its own"),
    "prints": (prints, "it breaks the graph: print"),
    "reads numbers": (reads_data, "it breaks the graph"),
    "writes into what it is given": (writes_given, "it writes into a tensor from around it"),
    "gives what it is given": (lambda a: a, "it uses and gives tensors that share memory"),
    "gives a view": (lambda a: a[1:], "it uses and gives tensors that share memory"),
    "gives an object": (lambda a: (a + 1, [object()]), "it gives a object"),
    "raises": (raises, "it raises LookupError: no"),
    "leaves another state": (leaves_state, "it leaves PyTorch in another state"),
    "asks for a gradient": (lambda a: (a + 1, a.grad)[0], "it asks for .grad of a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_body_says_why_and_leaves_nothing(name: str) -> None:
    fn, text = REFUSED[name]
    interp, grad = interpreter(X), torch.is_grad_enabled()
    before = (interp.trace.recorder, interp.trace.mutations, interp.trace.made, interp.trace.guards.interp)
    bodies = Bodies(interp)
    hole = bodies.like(X)
    with pytest.raises(NotCapturable, match=text.replace("(", r"\(")):
        bodies.capture(ROW, fn, [hole], holes=[hole])
    assert untouched(interp) and bodies.bodies == [] and held == [1]
    now = (interp.trace.recorder, interp.trace.mutations, interp.trace.made, interp.trace.guards.interp)
    assert all([a is b for a, b in zip(before, now, strict=True)]) and torch.is_grad_enabled() is grad


def test_a_body_may_give_what_it_is_given_where_the_operator_allows_it() -> None:
    bodies = Bodies(interpreter(X))
    hole = bodies.like(X)
    body = bodies.capture(CHECKPOINT, lambda a: (a, a[1:]), [hole], holes=[hole])
    assert len(body.outputs) == 2


def test_what_a_body_writes_into_containers_of_the_capture_is_undone() -> None:
    interp, made = interpreter(X), [1]
    interp.trace.made.add(made)
    with pytest.raises(NotCapturable, match="it changes what the code around it has made"):
        Bodies(interp).capture(ROW, lambda m: (m.append(2), X + 1)[1], [made])
    assert made == [1]


@pytest.mark.parametrize(
    ("a", "b", "strides", "answer"),
    [
        (torch.ones(2, 3), torch.zeros(2, 3), True, True),
        (torch.ones(2, 3), torch.ones(3, 2), True, False),
        (torch.ones(2, 3), torch.ones(3, 2).t(), True, False),
        (torch.ones(2, 3), torch.ones(3, 2).t(), False, True),
        (torch.ones(2), torch.ones(2, dtype=torch.int32), True, False),
    ],
    ids=["same", "sizes", "strides", "strides allowed", "types"],
)
def test_which_tensors_look_the_same(a: Tensor, b: Tensor, strides: bool, answer: bool) -> None:
    assert Bodies(interpreter()).alike(a, b, strides) is answer


def test_stand_ins_for_operands() -> None:
    bodies, t = Bodies(interpreter()), torch.ones(4, 3, requires_grad=True)
    like, row, scalar = bodies.like(t), bodies.row(t), bodies.scalar(torch.int32, t)
    assert (like.shape, row.shape, scalar.shape, scalar.dtype) == ((4, 3), (3,), (), torch.int32)
    assert like.requires_grad and row.requires_grad and not scalar.requires_grad
    with pytest.raises(NotCapturable, match="an operand is a int"):
        bodies.like(3)


def test_bodies_stand_in_no_transform() -> None:
    with pytest.raises(NotCapturable, match="inside of a transform"):
        torch.func.vmap(lambda t: (Bodies(interpreter()), t)[1])(torch.ones(2, 2))


def test_leaves_that_a_graph_does_not_give_are_kept() -> None:
    bodies = Bodies(interpreter(X))
    body, other, third = [bodies.capture(ROW, fn, []) for fn in (lambda: (X + 1, 3), lambda: (X * 2, 3), lambda: (X * 2, 4))]
    assert type(body) is Body and len(body.nodes) == 1 and body.rebuilt([7]) == (7, 3)
    assert body.same_structure(other) and not body.same_structure(third)


# -- nested_compile_region: on the values of the capture, and interpreted as any other call where no sub-graph fits ------------------
def step(a: Tensor, b: Tensor) -> Tensor:
    return (a + b).relu()


def nested(interp: Interpreter, fn: Callable, args: list) -> Any:
    """Runs a call of ``fn`` under ``nested_compile_region``: -> its result."""
    marked = nested_compile_region(fn)
    return run(interp, lambda *args: marked(*args), *args)


def test_a_region_is_one_node_of_the_graph_around_it() -> None:
    interp = interpreter(X, Y)
    value = nested(interp, step, [X, Y])
    recorder = interp.trace.recorder
    assert torch.equal(value, (X + Y).relu()) and type(recorder) is Recorder and operators(recorder) == ["invoke_subgraph"]
    (gm,) = recorder.nested.modules.values()
    assert operators(gm) == ["add", "relu"] and recorder.known(value) and operators(recorder) == ["invoke_subgraph"]


def test_equal_regions_share_a_module() -> None:
    interp = interpreter(X, Y)
    first, second, third = map(nested_compile_region, (step, step, lambda a, b: a * b))
    run(interp, lambda a, b: (first(a, b), second(a, b), third(a, b)), X, Y)
    assert len(interp.trace.recorder.nested.modules) == 2 and operators(interp.trace.recorder).count("invoke_subgraph") == 3


def test_a_region_gives_what_it_has_made() -> None:
    interp = interpreter(X, Y)
    value = nested(interp, lambda a, b: (c := a + b, [c, a, c * 2]), [X, Y])
    assert value[1][0] is value[0] and value[1][1] is X and operators(interp.trace.recorder) == ["invoke_subgraph"]
    assert [interp.trace.recorder.known(t) for t in (value[0], value[1][2], X)] == [True, True, True]


class Holder:
    def __init__(self, t: Tensor) -> None:
        self.t = t


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a,
        lambda a, b: (a.add_(b), a + 1)[1],
        lambda a, b: (c := a + b, c[1:]),
        lambda a, b: (a + b, torch.set_grad_enabled(False))[0],
        lambda a, b: Holder(a + b),
        lambda a, b: (a + b, (torch._C._set_grad_enabled(True), a.relu_())[1])[0],
    ],
    ids=["nothing made", "writes into an operand", "results share memory", "another state", "an object", "fails late"],
)
def test_where_no_region_fits_the_call_is_interpreted(fn: Callable) -> None:
    x, y = X.clone(), X.clone()
    interp, plain = interpreter(x, Y), interpreter(y, Y)
    with torch.enable_grad():
        nested(interp, fn, [x, Y])
    with torch.enable_grad():
        run(plain, fn, y, Y)
    recorder = interp.trace.recorder
    assert operators(recorder) == operators(plain.trace.recorder) and not recorder.nested.modules and not recorder.nested.shared and torch.equal(x, y)


def test_a_region_may_make_objects_that_do_not_leave_it() -> None:
    interp = interpreter(X, Y)
    assert torch.equal(nested(interp, lambda a, b: Holder(a + b).t * 2, [X, Y]), (X + Y) * 2)
    assert operators(interp.trace.recorder) == ["invoke_subgraph"]


def test_a_region_in_a_region_that_fails_leaves_no_module() -> None:
    @nested_compile_region
    def inner(a: Tensor) -> Tensor:
        return a.cos()

    def outer(a: Tensor) -> Tensor:
        b = inner(a)
        held.append(2)
        held.pop()
        return b * 2

    interp = interpreter(X)
    nested(interp, outer, [X])
    interp.trace.mutations.undo()
    assert operators(interp.trace.recorder) == ["invoke_subgraph", "getitem", "mul"] and list(interp.trace.recorder.nested.shared) == ["subgraph_0"]


def test_a_region_under_a_handler_is_interpreted() -> None:
    marked = nested_compile_region(step)

    def program(a: Tensor, b: Tensor) -> Tensor:
        try:
            return marked(a, b)
        except ValueError:
            return a

    interp = interpreter(X, Y)
    run(interp, program, X, Y)
    assert operators(interp.trace.recorder) == ["add", "relu"] and interp.trace.failures.caught


# -- all kinds: a capture that fails leaves nothing behind ------------------------------------------------------------------------------
def state_of(interp: Interpreter, made: dict) -> list:
    """All that a capture could leave: of the trace, of its recorder, of the mutation log, of the containers that the code could reach, of PyTorch."""
    trace, recorder, log = interp.trace, interp.trace.recorder, interp.trace.mutations
    return [
        [id(part) for part in (recorder, log, trace.made, trace.guards.interp)],
        [list(recorder.graph.nodes), [src for _, src in recorder.inputs]],
        [dict(graphs) for graphs in (recorder.nested.parts, recorder.nested.modules, recorder.nested.shared)],
        [recorder.calls, recorder.places[:], set(recorder.writes.storages), len(recorder.writes.held), set(recorder.kernels.unmeasured), recorder.traits.once],
        [len(log.written), dict(log.slots), dict(log.storages), log.replaced[:], log.calls[:], log.cached[:]],
        [len(trace.made), len(trace.kept), set(trace.state.setters), dict(trace.state.answers)],
        [len(trace.failures.assumed), trace.failures.caught, trace.failures.fragile],
        [interp.frame, interp.limits.depth, interp.outcome.abandoned, interp.nested.opaque],
        [held[:], dict(made), AMBIENT.now(), torch.get_rng_state().tolist(), X.tolist(), X._version],
    ]


def far(a: Tensor, last: Callable) -> Tensor:
    """Does much that a sub-graph may do, and then what none may."""
    torch._C._set_grad_enabled(not torch.is_grad_enabled())
    torch._C._set_grad_enabled(not torch.is_grad_enabled())
    b = (a + Y).sin()
    b.mul_(torch.rand(3))
    last(b)
    return b


LAST: dict[str, Callable] = {
    "writes a global": lambda b: held.append(5),
    "prints": print,
    "reads numbers": lambda b: b.sum().item(),
    "raises": raises,
    "leaves another state": lambda b: torch._C._set_grad_enabled(not torch.is_grad_enabled()),
    "writes into a tensor": lambda b: X.add_(1),
    "sets an attribute": lambda b: setattr(X, "tag", 1),
}


@pytest.mark.parametrize("rules", KINDS, ids=lambda rules: rules.kind)
@pytest.mark.parametrize("last", LAST)
def test_a_failed_capture_leaves_nothing(rules: SubGraphRules, last: str) -> None:
    interp, made = interpreter(X, Y), {"a": 1}
    run(interp, lambda x, y: (x * 2, x[1:]), X, Y)
    interp.trace.made.add(made)
    before, checked = state_of(interp, made), interp.trace.guards.reads.sources[:]
    lifts = rules.lifts and rules.on_fakes
    given = Bodies(interp).like(X) if lifts else X

    def code(a: Tensor, made: dict) -> Tensor:
        if rules.lifts:
            made["b"] = 2
        return far(a, LAST[last])

    operands = [("arg", given), *([] if rules.lifts else [("arg", Y)])] if rules is not REGION else []
    found = capture_subgraph(interp, code, [given, made], rules, operands, backing=FakeBacking(Bodies(interp).fakes) if lifts else None)
    assert type(found) is NotCapturable and found.reason
    assert [a == b for a, b in zip(before, state_of(interp, made), strict=True)] == [True] * len(before)
    assert interp.trace.guards.reads.sources[: len(checked)] == checked and not hasattr(X, "tag")


def test_a_capture_that_is_not_used_is_undone() -> None:
    interp = interpreter(X)
    state, states = torch.get_rng_state(), set(interp.trace.state.setters)
    x = X.clone()
    found = capture_subgraph(interp, lambda a: a.add_(torch.rand(3)), [x], FORWARD.but(writes_operands=True), [("arg", x)])
    assert type(found) is SubGraph
    interp.trace.state.setters.add(print)
    found.undo()
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), state) and interp.trace.state.setters == states


def test_sub_graphs_stand_where_their_rules_allow() -> None:
    interp = interpreter(X)
    seen = []

    def code() -> Tensor:
        return X + 1

    for around in (None, *KINDS):
        interp.nested.subgraph_rules = around
        seen.append([rules.kind for rules in KINDS if type(capture_subgraph(interp, code, (), rules)) is SubGraph])
    lifting = [BRANCH.kind, ROW.kind, MODIFIER.kind, CHECKPOINT.kind, HOOK.kind, REGION.kind]
    assert seen[0] == lifting and seen[1 + KINDS.index(FORWARD)] == seen[1 + KINDS.index(BACKWARD)] == seen[1 + KINDS.index(HOOK)] == []
    assert seen[1 + KINDS.index(REGION)] == lifting


# -- autograd functions -------------------------------------------------------------------------------------------------------------------
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Prints(Square):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        held.append(3)
        return grad


class Writes(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.add_(torch.rand(3))
        held.append(4)
        return y


class Vmapped(Square):
    generate_vmap_rule = True


def test_an_autograd_function_is_two_graphs() -> None:
    x = X.clone().requires_grad_()
    interp = interpreter(x)
    interp.push_function(None, step, [x, x], None)
    graphs = capture_function(interp, Square, [x])
    assert operators(graphs.forward).count("mul") == 1 and [operators(g).count("mul") for g in graphs.backwards] == [2]
    assert operators(interp.trace.recorder) == []
    out = graphs.apply(interp)
    out.backward(torch.ones(3))
    assert torch.equal(out.detach(), X * X) and torch.equal(x.grad, 2 * X)


@pytest.mark.parametrize("cls", [Prints, Writes, Vmapped], ids=["a write backward", "a write forward", "a rule of its own for vmap"])
def test_what_two_graphs_cannot_hold_leaves_nothing(cls: type) -> None:
    x = X.clone().requires_grad_()
    interp = interpreter(x)
    interp.push_function(None, step, [x, x], None)
    state = torch.get_rng_state()
    assert capture_function(interp, cls, [x]) is None
    assert operators(interp.trace.recorder) == [] and held == [1]
    assert torch.equal(x, X) and torch.equal(state, torch.get_rng_state())


def test_what_a_context_says() -> None:
    x = X.clone().requires_grad_()
    assert needed((x, X, 3)) == (True, False, False)
    ctx = Context((True,))
    assert not ctx._fineline_asked and ctx.saved_tensors == () and ctx._fineline_asked


# -- allow_in_graph ---------------------------------------------------------------------------------------------------------------------
def opaque(a: Tensor, b: Any = None) -> Tensor:
    return (a + 1).relu()


def uses_another(a: Tensor) -> Tensor:
    return a + Y


def changes_given(a: list) -> Tensor:
    a.append(1)
    return a[0] + 1


def gives_an_object(a: Tensor) -> Any:
    return [a + 1, object()]


def gives_a_number(a: Tensor) -> Any:
    return a.sum().item()


def allowing(fn: Callable) -> Interpreter:
    interp = interpreter()
    interp.rules = Rules(Policy(allow=fn).rules)
    return interp


def test_an_opaque_call_is_one_node() -> None:
    interp = allowing(opaque)
    result = run(interp, lambda x: opaque(x), X)
    (node,) = [n for n in interp.trace.recorder.graph.nodes if n.op == "call_function"]
    assert node.target is opaque and torch.equal(result, (X + 1).relu()) and interp.trace.recorder.find(result) is node
    assert interp.nested.opaque is None and interp.trace.mutations.met is None


def test_what_an_opaque_call_reads_is_guarded() -> None:
    def scales(a: Tensor) -> Tensor:
        return a * len(held)

    interp = allowing(scales)
    run(interp, lambda x: scales(x), X)
    texts = [src.text() for src in interp.trace.guards.reads.sources if "len" in src.checked]
    assert f"globals of {__name__}['held']" in texts


@pytest.mark.parametrize(
    ("fn", "arg", "text"),
    [
        (uses_another, X, "which is not one of its arguments"),
        (changes_given, [X], "it changes"),
        (gives_an_object, X, "it gives a object"),
        (gives_a_number, X, "and has read the values of a tensor"),
        (opaque, {"a": {1}}, "it is called with"),
    ],
    ids=["uses another tensor", "changes its argument", "gives an object", "gives a number", "called with a set"],
)
def test_who_breaks_the_contract_gets_an_error(fn: Callable, arg: Any, text: str) -> None:
    interp = allowing(fn)
    with pytest.raises(CaptureAborted):
        run(interp, lambda arg: fn(arg), arg)
    assert text in str(interp.outcome.abandoned) and interp.nested.opaque is None


def test_an_opaque_call_may_not_read_what_the_capture_has_changed() -> None:
    def scales(a: Tensor) -> Tensor:
        return a * sum(held)

    def program(a: Tensor) -> Tensor:
        total = sum(held)
        held.append(2)
        return scales(a * total)

    interp = allowing(scales)
    with pytest.raises(CaptureAborted):
        run(interp, program, X)
    interp.trace.mutations.undo()
    assert "held'], which the captured code has changed before" in str(interp.outcome.abandoned) and held == [1]


class Rate:
    held = 2


def test_an_opaque_call_may_not_read_what_the_capture_has_changed_of_a_class() -> None:
    def scales(a: Tensor) -> Tensor:
        return a * Rate.held

    def program(a: Tensor) -> Tensor:
        before, Rate.held = Rate.held, 3
        b = scales(a * Rate.held)
        Rate.held = before
        return b

    interp = allowing(scales)
    with pytest.raises(CaptureAborted):
        run(interp, program, X)
    interp.trace.mutations.undo()
    assert "['Rate'].held, which the captured code has changed before" in str(interp.outcome.abandoned) and Rate.held == 2


@dataclasses.dataclass(frozen=True)
class Pair:
    a: Any
    b: Any


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (X, [X]), ([X, (Y, 3)], [X, Y, 3]), ({"a": X, "b": [Y]}, [X, Y]), (Pair(X, [Y]), [X, Y]), (slice(1, None, 2), [1, None, 2]), ({X}, [{X}]),
    ],
    ids=["tensor", "list", "dict", "dataclass", "slice", "set"],
)  # fmt: skip
def test_leaves_of_what_a_graph_can_carry(value: Any, found: list) -> None:
    assert all([a is b or (type(a) is type(b) and not isinstance(a, Tensor) and a == b) for a, b in zip(leaves(value), found, strict=True)])
    assert [t is f for t, f in zip(tensors(value), [f for f in found if isinstance(f, Tensor)], strict=True)].count(False) == 0


def test_parts_are_containers_and_what_they_hold_in_order() -> None:
    inner = [3]
    assert list(parts([1, {"a": inner}])) == [[1, {"a": inner}], 1, {"a": inner}, inner, 3]
