"""Control-flow operators: each is one node of the graph, and the functions that it runs are sub-graphs.

A function that no graph can hold is not an error: the operator then runs as in eager code, between two graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.flex_attention import flex_attention
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.utils import _hop_compile_and_call
from torch._higher_order_ops.while_loop import while_loop, while_loop_op
from torch.utils._pytree import tree_leaves

from fineline.frames.frame import Frame, stack
from fineline.frames.graph_breaks import Delivery, NotCapturable
from fineline.kinds import is_a
from fineline.objects.copying import mark_made
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.subgraphs.bodies import Bodies, Body, computed
from fineline.tensor_ops.torch_functions import ask, overridden, overrides, show_operator
from fineline.tensor_ops.unbacked import item
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.mutation_log import EMPTY
from fineline.tracing.subgraph_rules import BRANCH, MODIFIER, ROW, SubGraphRules

INTEGERS = frozenset({int, torch.SymInt})
# The place of the call among the variables of the function that shows it to a mode.
_GIVEN = ask.__code__.co_varnames.index("given")
_OF_TORCH = "torch._higher_order_ops", "torch.nn.attention"


def alone(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs a control-flow operator in eager code, as PyTorch's public functions do; returns its result."""
    if op is cond_op:
        return torch.cond(*args)
    if op is while_loop_op:
        return while_loop(*args[:3])
    return _hop_compile_and_call(lambda *args, **kwargs: op(*args, **kwargs), args, kwargs)


class OperatorCall:
    """One call of a control-flow operator: captures its bodies, runs it on their graphs, and records its node."""

    def __init__(self, interp: Interp, op: Any, inner: bool) -> None:
        self.interp, self.op = interp, op
        # Whether PyTorch's own code calls it, which expects a result with the structure of the body's result, not a flat tuple.
        self.inner = inner

    def capture(self, bodies: Bodies, rules: SubGraphRules, name: str, fn: Any, args: Any, holes: Any = ()) -> Body:
        try:
            return bodies.capture(rules, fn, args, holes=holes)
        except NotCapturable as e:
            raise NotCapturable(f"{name} can't be a graph: {e}", e.error, e.rule) from None

    def run(self, args: tuple, graphs: Mapping[int, str], nodes: Mapping[int, Any]) -> Any:
        """Runs the operator and records its node; returns its results.

        ``graphs``: the names of the arguments that are graphs, by position; ``nodes``: the nodes of arguments that are known, by position.
        """
        interp = self.interp
        result = computed(interp, self.op, args)
        part = interp.trace.recorder.part
        fx = tuple([part(graphs[i], a) if i in graphs else nodes[i] if i in nodes else interp.trace.to_fx(a) for i, a in enumerate(args)])
        if not any([type(v) in SYMBOLIC for v in result]):
            return interp.tensors.keep(interp, self.op, "call_function", self.op, fx, {}, result)
        interp.tensors.record(interp, "call_function", self.op, fx, {}, result)
        interp.trace.symbols.given(result, next(reversed(interp.trace.recorder.graph.nodes)))
        return result

    def needs(self, shapes: bool, text: str) -> None:
        """Raises `NotCapturable` unless the operator may return a number, or if ``shapes`` a size, that only the graph knows."""
        symbols = self.interp.trace.symbols
        if symbols is None or not (symbols.shaped if shapes else symbols.scalars):
            raise NotCapturable(text, "FL508" if shapes else "FL502")

    def given(self, body: Body, results: Any) -> Any:
        if not self.inner:
            return tuple(results)
        value = body.rebuilt(results)
        mark_made(self.interp.trace, value)
        return value


def _cond(call: OperatorCall, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    interp, bodies = call.interp, Bodies(call.interp, rows=True)
    if bodies.twin(pred).dtype != torch.bool or pred.numel() != 1:
        raise NotCapturable("the condition is not a single bool")
    if not is_a(operands, (tuple, list)):
        raise NotCapturable("the operands are not a tuple")
    interp.trace.expand(operands, True)
    if call.inner and not all([is_a(leaf, Tensor) for leaf in tree_leaves(operands)]):
        raise NotCapturable("the operands are something else than tensors")
    then = call.capture(bodies, BRANCH, "true_fn", true_fn, operands)
    other = call.capture(bodies, BRANCH, "false_fn", false_fn, operands)
    if not all([is_a(leaf, Tensor) or type(leaf) in INTEGERS for leaf in then.flat]):
        raise NotCapturable("a branch gives something else than tensors and integers")
    held = [type(a) in INTEGERS for a in then.flat]
    for i, (a, b) in enumerate(zip(then.flat, other.flat, strict=False)):
        if type(a) in INTEGERS and type(b) in INTEGERS:
            if _same_number(a, b):
                then.keep(i)
                other.keep(i)
                continue
            call.needs(False, "an integer that it gives depends on a tensor's values")
            for body, n in ((then, a), (other, b)):
                if torch.SymInt in (type(a), type(b)):
                    # PyTorch's operator does not accept branches that return different expressions for one number.
                    body.hold(i, n, bodies.fakes)
                else:
                    body.give(i, n)
    if not then.same_structure(other):
        raise NotCapturable("the branches give different structures")
    for a, b in zip(then.outputs, other.outputs, strict=True):
        if is_a(a, Tensor) and not bodies.alike(a, b):
            if (a.dtype, a.device, a.dim()) != (b.dtype, b.device, b.dim()):
                raise NotCapturable("the branches give tensors of different types, devices, or numbers of dimensions")
            call.needs(True, "the branches give tensors of different sizes or strides")
    lifted, nodes = bodies.lifted()
    if len(then.outputs) != 1 and torch._C._functorch.is_functorch_wrapped_tensor(pred):
        raise NotCapturable("inside of vmap PyTorch's own rule for it gives one result only")
    graphs = [bodies.module(body, name) for body, name in ((then, "true_fn"), (other, "false_fn"))]
    results = call.run((pred, *graphs, tuple(lifted)), {1: "true_fn", 2: "false_fn"}, {3: tuple(nodes)})
    places = [i for i, leaf in enumerate(then.leaves) if leaf is EMPTY]
    value = then.rebuilt([item(interp, v) if held[i] and is_a(v, Tensor) else v for i, v in zip(places, results, strict=True)])
    mark_made(interp.trace, value)
    return value


def _same_number(a: Any, b: Any) -> bool:
    if torch.SymInt in (type(a), type(b)):
        return type(a) is type(b) and bool(a.node.expr == b.node.expr)
    return bool(a == b)


def _while_loop(call: OperatorCall, cond_fn: Any, body_fn: Any, carried: Any, additional: Any) -> Any:
    bodies = Bodies(call.interp)
    if any([type(v) in INTEGERS for v in carried]):
        call.needs(False, "an integer that it carries depends on tensors' values")
    _only_tensors(call, carried, also=INTEGERS)
    found = []
    for name, fn in (("cond_fn", cond_fn), ("body_fn", body_fn)):
        holes = [bodies.carried(t) for t in carried]
        found.append(call.capture(bodies, BRANCH, name, fn, [*holes, *additional], holes))
    test, body = found
    if len(test.leaves) != 1 or not test.outputs or not _one_bool(test.outputs[0]):
        raise NotCapturable("cond_fn does not give one bool in a tensor without dimensions")
    for i, v in enumerate(carried):
        if type(v) in INTEGERS and i < len(body.flat) and type(body.flat[i]) is int:
            body.give(i, body.flat[i])
    _carries(bodies, body, carried, len(carried))
    lifted, nodes = bodies.lifted()
    graphs = bodies.module(test, "cond_fn", single=True), bodies.module(body, "body_fn")
    fx = tuple([call.interp.trace.to_fx(t) for t in carried])
    results = call.run((*graphs, tuple(carried), tuple(lifted)), {0: "cond_fn", 1: "body_fn"}, {2: fx, 3: tuple(nodes)})
    return call.given(body, results)


def _scan(call: OperatorCall, combine_fn: Any, init: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    bodies = Bodies(call.interp, rows=True)
    _only_tensors(call, init, xs)
    holes = [*[bodies.like(t) for t in init], *[bodies.row(x) for x in xs]]
    body = call.capture(bodies, ROW, "combine_fn", combine_fn, [*holes, *additional_inputs], holes)
    _carries(bodies, body, init)
    return _over(call, bodies, body, "combine_fn", (list(init), list(xs)))


def _map(call: OperatorCall, fn: Any, xs: Any, args: Any) -> Any:
    bodies = Bodies(call.interp)
    _only_tensors(call, xs)
    holes = [bodies.row(x) for x in xs]
    body = call.capture(bodies, ROW, "f", fn, [*holes, *args], holes)
    bodies.apart([*xs, *body.recorder.operands], "f uses tensors that share memory")
    return _over(call, bodies, body, "body", (list(xs),), last=list)


def _associative_scan(call: OperatorCall, combine_fn: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    bodies = Bodies(call.interp)
    _only_tensors(call, xs)
    holes = [bodies.row(x) for x in (*xs, *xs)]
    body = call.capture(bodies, ROW, "combine_fn", combine_fn, [*holes, *additional_inputs], holes)
    _carries(bodies, body, [bodies.row(x) for x in xs], len(xs))
    return _over(call, bodies, body, "combine_fn", (list(xs),))


def _over(call: OperatorCall, bodies: Bodies, body: Body, name: str, given: tuple, last: Callable = tuple) -> Any:
    """Runs and records an operator that runs ``body`` over rows; returns its result."""
    if len(body.outputs) < len(body.leaves) or not body.outputs:
        raise NotCapturable(f"{name} gives something else than tensors")
    lifted, nodes = bodies.lifted()
    args = (bodies.module(body, name), *given, last(lifted))
    return call.given(body, call.run(args, {0: name}, {len(args) - 1: last(nodes)}))


def _flex_attention(
    call: OperatorCall, query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any, kernel_options: Any, *buffers: Any
) -> Any:
    if any(buffers):
        raise NotCapturable("it is given buffers of its own")
    scores, masks = Bodies(call.interp), Bodies(call.interp)
    places = [scores.scalar(torch.int32, query) for _ in range(4)]
    score = scores.scalar(query.dtype, query, scores.twin(query).requires_grad)
    scored = call.capture(scores, MODIFIER, "score_mod", score_mod, [score, *places], [score, *places])
    places = [masks.scalar(torch.int32, query) for _ in range(4)]
    masked = call.capture(masks, MODIFIER, "mask_mod", block_mask[-1], places, places)
    for name, body in (("score_mod", scored), ("mask_mod", masked)):
        if len(body.leaves) != 1 or len(body.outputs) != 1 or body.outputs[0].dim():
            raise NotCapturable(f"{name} does not give one number in a tensor without dimensions")
    (score_values, score_nodes), (mask_values, mask_nodes) = scores.lifted(), masks.lifted()
    mask = masks.module(masked, "mask_mod", single=True)
    trace = call.interp.trace
    fx_mask = (*[trace.to_fx(a) for a in block_mask[:-1]], trace.recorder.part("mask_mod", mask))
    args = (
        *(query, key, value, scores.module(scored, "score_mod", single=True), (*block_mask[:-1], mask), scale, kernel_options),
        *(tuple(score_values), tuple(mask_values)),
    )
    return call.run(args, {3: "score_mod"}, {4: fx_mask, 7: tuple(score_nodes), 8: tuple(mask_nodes)})


def _one_bool(v: Any) -> bool:
    return type(v) is torch.SymBool or (is_a(v, Tensor) and v.dtype == torch.bool and not v.dim())


def _only_tensors(call: OperatorCall, *operands: Any, also: frozenset[type] = frozenset()) -> None:
    for given in operands:
        call.interp.trace.expand(given, True)
        if type(given) not in (tuple, list) or not given or not all([is_a(t, Tensor) or type(t) in also for t in given]):
            raise NotCapturable("its operands are something else than tensors")


def _carries(bodies: Bodies, body: Body, before: Any, count: int | None = None) -> None:
    """Raises `NotCapturable` if the values that one step passes to the next differ in structure or metadata from those before."""
    n = len(before)
    if any([leaf is not EMPTY for leaf in body.leaves[:n]]) or len(body.leaves) < n or (count is not None and len(body.leaves) != count):
        raise NotCapturable("it gives another number of tensors than it is given")
    for a, b in zip(before, body.outputs, strict=False):
        if is_a(a, Tensor) != is_a(b, Tensor) or (is_a(a, Tensor) and not bodies.alike(a, b, strides=False)):
            raise NotCapturable("it gives tensors of other sizes, types or devices than it is given")


def _caller(f: Frame, op: Any) -> Frame:
    """Returns the frame whose code calls ``op``, which function modes may have got first and passed on."""
    shown = [one for one in stack(f) if one.info.code is ask.__code__ and one.local[_GIVEN][0] is op]
    return shown[-1].back or f if shown else f


def _counted(interp: Interp, f: Frame, count: Any, then: Delivery | None, args: tuple, kwargs: dict | None) -> Frame | None:
    """Shows torch.cond to the mode that has seen its condition counted."""
    return show_operator(interp, f, cond_op, args, kwargs, then)


def _operator(capture: Callable) -> Handler:
    def handler(call: Call) -> Frame | None:
        op, args = call.fn, call.args
        if not call.trace.active:
            return call.run_natively()
        if (
            op is cond_op
            and len(args) == 4
            and not is_a(args[0], Tensor)
            and (type(args[0]) in SYMBOLIC or is_a(args[0], (bool, int, float)))
        ):
            call.trace.expand(args[3])
            return call.instead(args[1] if args[0] else args[2], list(args[3]))
        caller = _caller(call.frame, op)
        inner = (caller.globals.get("__name__") or "").startswith(_OF_TORCH)
        if call.interp.nested.modes and not any(map(overrides, tree_leaves((args, call.kwargs)))) and overridden(call.interp, ()):
            if op is not cond_op or not inner or caller is not call.frame:
                return show_operator(call.interp, call.frame, op, args, call.kwargs, call.then)
            if is_a(args[0], Tensor) and args[0].numel() == 1:
                # In eager code PyTorch's function asks for this before it compiles the operator, so that the mode sees it.
                return call.interp.call(call.frame, Tensor.numel, [args[0]], None, Delivery(_counted, call.then, tuple(args), call.kwargs))
        try:
            value = capture(OperatorCall(call.interp, op, inner), *args, **(call.kwargs or {}))
        except NotCapturable as e:
            run, given = (alone, (op, *args)) if inner else (op, tuple(args))
            raise e.graph_break(run, given, call.kwargs, op.name()) from None
        return call.finish(value)

    return handler


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        op: _operator(capture)
        for op, capture in (
            (cond_op, _cond),
            (while_loop_op, _while_loop),
            (scan_op, _scan),
            (map_impl, _map),
            (associative_scan_op, _associative_scan),
            (flex_attention, _flex_attention),
        )
    }
)
