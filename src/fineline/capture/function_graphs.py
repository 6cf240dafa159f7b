"""An autograd.Function as two graphs: its forward, captured as it runs, and its backward, on gradients that stand for those to come."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.utils._python_dispatch import _disable_current_modes

from fineline.backends.invoke import undisturbed
from fineline.capture import protocols
from fineline.capture.capture import PLAIN_TENSORS, is_value
from fineline.capture.signals import Refused
from fineline.graph.function_node import function_node
from fineline.graph.module import CapturedGraph, graph_module
from fineline.graph.randomness import put_back, random_states
from fineline.kinds import is_a

# Whoever sets one of these says something that the graphs do not.
BEYOND_BACKWARD = ("jvp", "vjp", "vmap", "generate_vmap_rule", "clear_saved_tensors_on_access", "boxed_grads_call")
_ONCE = once_differentiable(lambda ctx: None).__code__
_OF_CONTEXT = frozenset(
    {
        "needs_input_grad",
        "to_save",
        "dirty_tensors",
        "non_differentiable",
        "materialize_grads",
        "saved_for_forward",
        "_fineline_saved",
        "_fineline_asked",
    }
)
_DEEPEST = 4


class _Beyond:
    """What a real ``ctx`` has, and this one has not."""

    def __get__(self, obj: Any, cls: type) -> Any:
        raise Refused


class Context(FunctionCtx):
    """The ``ctx`` of a function that is being captured."""

    to_save: Any = None
    dirty_tensors: Any = None
    non_differentiable: Any = None
    saved_for_forward: Any = None
    materialize_grads = True
    _fineline_saved: tuple = ()
    _fineline_asked = False
    metadata = next_functions = name = register_hook = register_prehook = saved_variables = requires_grad = _Beyond()
    _raw_saved_tensors = _input_metadata = _is_pure_view = _materialize_non_diff_grads = _sequence_nr = _Beyond()

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs

    @property
    def saved_tensors(self) -> tuple:
        self._fineline_asked = True
        return self._fineline_saved


class FunctionGraphs:
    """What became of one application of a function."""

    def __init__(self, target: Callable, forward: CapturedGraph, backward: CapturedGraph, given: list[Tensor], results: tuple) -> None:
        self.target, self.forward, self.backward, self.given = target, forward, backward, given
        self._results = results

    def apply(self) -> Any:
        """The results, which have been computed already, with the history that they have when the graphs run."""
        results = self._results
        return self.target(lambda *args: results, self.backward, *self.given)


def capture_function(vm: Any, cls: Any, args: list) -> FunctionGraphs | None:
    """Both graphs of ``cls.apply(*args)``; None if it does what these can't hold. Nothing has happened then."""
    given = [a for a in args if is_a(a, Tensor)]
    if vm.trial is None or vm.opaque is not None or vm.options.force_borders or not _usual(vm, cls, args, given):
        return None
    states = random_states()
    try:
        return _capture(vm, cls, args, given)
    except (Refused, Exception):
        # The function itself runs instead. If it raises, the user sees it then.
        put_back(states)
        return None


def _usual(vm: Any, cls: Any, args: list, given: list[Tensor]) -> bool:
    cap = vm.cap
    return (
        all([getattr(cls, name, None) is getattr(Function, name, None) for name in BEYOND_BACKWARD])
        and all([is_a(fn, types.FunctionType) for fn in (cls.forward, cls.setup_context, cls.backward)])
        and id(cls) not in cap.made
        and cls not in cap.classes
        and all([type(t) in PLAIN_TENSORS and t.layout is torch.strided for t in given])
        and all([is_value(a) for a in args if not is_a(a, Tensor)])
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_function_stack()
    )


def _capture(vm: Any, cls: Any, args: list, given: list[Tensor]) -> FunctionGraphs:
    ctx = Context(tuple([is_a(a, Tensor) and a.requires_grad for a in args]))
    vm.cap.kept.append(ctx)
    setup = cls.setup_context if cls.setup_context is not Function.setup_context else None
    trial = vm.trial(vm, {"arg": given}, {id(ctx)})
    out = trial.attempt(protocols.apply_under_no_grad, [cls.forward, setup, ctx, tuple(args)])
    outs = out if type(out) is tuple else (out,)
    saved, kept, passed = _context_tensors(ctx, outs)
    recorder = trial.recorder
    if _state_changes(recorder) > 2 or not all([type(t) in PLAIN_TENSORS and recorder.known(t) and not t.__dict__ for t in outs]):
        raise Refused
    nodes = [tuple([_node(recorder, t) for t in group]) for group in (outs, saved, kept)]
    recorder.graph.create_node("output", "output", ((nodes[0] if type(out) is tuple else nodes[0][0], *nodes[1:]),), {}, "output")
    with undisturbed(), _disable_current_modes():
        backward, once = _backward(vm, cls, ctx, outs, saved, kept, args)
    indices = tuple([i for i, t in enumerate(outs) if any([t is other for other in passed])])
    target = function_node(cls.__name__, indices, ctx._fineline_asked, once)
    return FunctionGraphs(target, graph_module(recorder.graph, f"{cls.__name__}_forward", {}), backward, given, (out, saved, kept))


def _node(recorder: Any, t: Tensor) -> Any:
    node = recorder.find(t)
    if node is None:
        raise Refused
    return node


def _context_tensors(ctx: Context, outs: tuple) -> tuple[tuple, tuple, tuple]:
    """The tensors that ``ctx`` holds: those saved, those kept otherwise, and the results that are not differentiable."""
    saved = () if ctx.to_save is None else ctx.to_save
    passed = () if ctx.non_differentiable is None else ctx.non_differentiable
    if type(saved) is not tuple or type(passed) is not tuple or ctx.dirty_tensors or ctx.materialize_grads is not True:
        raise Refused
    if ctx.saved_for_forward is not None or not all([any([t is out for out in outs]) for t in passed]):
        raise Refused
    kept: dict[int, Tensor] = {}
    for name, value in ctx.__dict__.items():
        if name not in _OF_CONTEXT and not _tensors_in(value, kept):
            raise Refused
    ctx._fineline_saved = saved
    return tuple([t for t in saved if t is not None]), tuple(kept.values()), passed


def _tensors_in(value: Any, found: dict[int, Tensor], depth: int = 0) -> bool:
    """Collects the tensors of a value that ``ctx`` holds; -> whether all else in it is constant."""
    if is_a(value, Tensor):
        found[id(value)] = value
        return True
    if type(value) in (tuple, list, dict) and depth < _DEEPEST:
        parts = [*value.keys(), *value.values()] if type(value) is dict else value
        return all([_tensors_in(part, found, depth + 1) for part in parts])
    return is_value(value)


def _backward(vm: Any, cls: Any, ctx: Context, outs: tuple, saved: tuple, kept: tuple, args: list) -> tuple[CapturedGraph, bool]:
    run = cls.backward
    once = run.__code__ is _ONCE
    if once:
        # The node takes its place.
        run = run.__closure__[run.__code__.co_freevars.index("fn")].cell_contents
    held = dict(ctx.__dict__)
    with torch.no_grad():
        grads = [torch.zeros_like(t) for t in outs]
        trial = vm.trial(vm, {"grad": grads, "saved": saved, "kept": kept}, {id(ctx)}, later=True)
        found = trial.attempt(protocols.run_under_no_grad, [run, ctx, *grads])
    if (
        any([held.get(name) is not value for name, value in ctx.__dict__.items() if name != "_fineline_asked"])
        or _state_changes(trial.recorder) > 2
    ):
        raise Refused
    gradients = found if type(found) is tuple else (found,)
    if len(gradients) != len(args) or any([g is not None and not is_a(a, Tensor) for g, a in zip(gradients, args, strict=True)]):
        raise Refused
    if not ctx._fineline_asked:
        _drop(trial.recorder, len(grads), len(saved))
    results = [None if g is None else _node(trial.recorder, g) for g, a in zip(gradients, args, strict=True) if is_a(a, Tensor)]
    trial.recorder.graph.create_node("output", "output", (tuple(results),), {}, "output")
    return graph_module(trial.recorder.graph, f"{cls.__name__}_backward", {}), once


def _drop(recorder: Any, first: int, count: int) -> None:
    """Takes inputs away that nobody asked for."""
    for node, _ in recorder.inputs[first : first + count]:
        recorder.graph.erase_node(node)


def _state_changes(recorder: Any) -> int:
    """How often a graph sets the grad mode."""
    return sum([node.op == "call_function" and node.target is torch._C._set_grad_enabled for node in recorder.graph.nodes])
