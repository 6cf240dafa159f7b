"""The recording of one tensor operator: finds a form that a graph can hold, breaks the graph if there is none, and runs the operator."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch import eager_transforms
from torch._ops import OpOverload, OpOverloadPacket

from fineline.cpython.numpy_scalars import DTYPE_ASKERS
from fineline.frames.frame import covered
from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.fx.graph_traits import scattered
from fineline.fx.infallible import may_raise, takes_types
from fineline.fx.recorder import NotForGraph
from fineline.guards.ambient_table import AMBIENT
from fineline.identity import IdentityMap, IdentitySet
from fineline.kinds import is_a
from fineline.objects.numpy_numbers import among, symbol_for, symbols_for
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import holds, numbers, settle_all
from fineline.tables import is_replaced
from fineline.tensor_ops import unbacked
from fineline.tensor_ops.composites import CompositeWatch, Composition, NumberWatch
from fineline.tensor_ops.data_dependent_shapes import by_data, may_be_by_data, splits
from fineline.tensor_ops.refused_writes import guard_writes, reads_what_it_writes, refusal, writes_over_itself
from fineline.tensor_ops.requires_grad import dormant
from fineline.tensor_ops.size_arguments import SUBSCRIPTS, subscript
from fineline.tensor_ops.speculation import settle_raising, writes_outside, writes_too_soon
from fineline.tensor_ops.symbolic_forms import form_of
from fineline.tensor_ops.tensor_indices import numbers_in_tensors
from fineline.torch_facts.callables import CallByReference
from fineline.torch_facts.distributed_tensors import dispatch_state, draws, is_distributed, sets_states
from fineline.torch_facts.mutation import HIDDEN_WRITES, INPLACE_FLAG, LEAF, changed_metadata, is_inplace
from fineline.torch_facts.spellings import is_custom
from fineline.torch_facts.thread_state import KERNELS, differing
from fineline.torch_facts.unguarded_sizes import Foresight
from fineline.torch_facts.wrapper_subclasses import is_jagged, is_wrapper, stands_for_lengths
from fineline.tracing.constant_tensors import FOLDED
from fineline.tracing.identity_guards import guard_answer
from fineline.tracing.interp import Interp

METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
HIDDEN = IdentityMap(HIDDEN_WRITES.items())
INPLACE_CAPABLE = IdentitySet((*HIDDEN_WRITES, *INPLACE_FLAG))
# Operators of `INPLACE_CAPABLE` that write only if an argument is true: the argument's name and position.
ON_DEMAND = IdentityMap(
    (
        *[(fn, ("inplace", at)) for fn, at in INPLACE_FLAG.items()],
        (F.embedding, ("max_norm", 3)),
        (F.embedding_bag, ("max_norm", 3)),
        (F.batch_norm, ("training", 5)),
    )
)
# Operators that choose between kernels of attention when they run, not when they are traced.
CHOOSERS = IdentitySet((torch._native_multi_head_attention, torch._transformer_encoder_layer_fwd))
# Functions by which transforms of torch.func take gradients. Their second parameter names the tensors that these are with respect to.
DIFFERENTIATORS = IdentitySet((eager_transforms._autograd_grad, torch.autograd.grad))


# Operators that give a tensor with a ragged dimension another shape, which its own size is a part of.
RESHAPERS = IdentitySet((Tensor.view, Tensor.reshape, Tensor.expand, torch.reshape))


def _call_target(fn: Any, args: Any) -> tuple[str, Any]:
    """Returns (FX opcode, target) for a callable."""
    if fn is Tensor.new and len(args) == 2 and type(args[1]) is torch.Size:
        # A graph holds the sizes as a tuple, which Tensor.new would take for the numbers of the new tensor.
        return "call_method", "new_empty"
    t = type(fn)
    written = t is types.FunctionType and fn.__qualname__.startswith(("Tensor.", "TensorBase."))
    if (t in METHODS or written) and (not args or is_a(args[0], Tensor)):
        found = getattr(Tensor, fn.__name__, None)
        if is_replaced(found):
            return "call_function", CallByReference(fn)
        if t in METHODS or found is fn:
            return "call_method", fn.__name__
        # The methods of some infix operators have the name of another method.
        for name in (f"__{fn.__name__}__", f"__i{fn.__name__.rstrip('_')}__"):
            if getattr(Tensor, name, None) is fn:
                return "call_method", name
    return "call_function", CallByReference(fn) if is_a(fn, torch.jit.ScriptFunction) or _path_leads_elsewhere(fn) else fn


def _path_leads_elsewhere(fn: Any) -> bool:
    """Returns whether somebody has replaced ``fn``, a function of PyTorch's, in the module that it is from."""
    home = str(getattr(fn, "__module__", ""))
    return home.partition(".")[0] == "torch" and is_replaced(getattr(sys.modules.get(home), getattr(fn, "__name__", ""), fn))


def _history_grows(args: Any, kwargs: dict | None) -> bool:
    """Returns whether an operator's writes become part of an autograd history."""
    if not torch.is_grad_enabled():
        return False
    given = [x for a in (*args, *(kwargs or {}).values()) for x in (a if is_a(a, (list, tuple)) else (a,))]
    return any([is_a(x, Tensor) and x.requires_grad for x in given])


def _contains_wrapper(a: Any) -> bool:
    return any(map(is_wrapper, a)) if is_a(a, (list, tuple)) else is_wrapper(a)


def run_on_backing(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any:
    """Runs an operator. If a class of its arguments reads numbers to compute it, what it returns does not follow from guards: the capture ends."""
    given = (*args, *kwargs.values()) if kwargs else args
    if not interp.backing.real or not interp.trace.containers.wrappers.met or not any(map(_contains_wrapper, given)):
        return interp.backing.run(interp, fn, args, kwargs)
    with NumberWatch(may_be_by_data, False) as watch:
        result = interp.backing.run(interp, fn, args, kwargs)
    if watch.foresight is Foresight.UNFORESEEN:
        interp.fail("FL508", f"{describe(fn)} of a tensor whose class reads the numbers in its inner tensors", True)
    return result


def _asked(argument: tuple[str, int], args: Any, kwargs: dict | None) -> bool:
    name, at = argument
    return bool(args[at] if len(args) > at else (kwargs or {}).get(name))


def targets_of(fn: Any, args: Any, kwargs: dict | None) -> Any:
    """Returns the arguments that an operator writes into."""
    if is_a(fn, (OpOverload, OpOverloadPacket)) and is_custom(fn):
        schema = (fn if is_a(fn, OpOverload) else getattr(fn, fn.overloads()[0]))._schema
        given = {**dict(zip([a.name for a in schema.arguments], args, strict=False)), **(kwargs or {})}
        return [given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    out = None if kwargs is None else kwargs.get("out")
    if fn is Tensor.requires_grad_ or not (is_inplace(fn) or fn in INPLACE_CAPABLE):
        return () if out is None else (out,)
    if fn in ON_DEMAND and not _asked(ON_DEMAND[fn], args, kwargs):
        return ()
    return [*[args[i] for i in HIDDEN.get(fn, (0,)) if i < len(args)], out]


class TensorOperator:
    """One call of an operator: the callable and arguments of the user's code, those of the run, and those of the node."""

    __slots__ = ("args", "called", "composition", "fn", "fx_args", "fx_kwargs", "interp", "kwargs", "op", "sizes", "target", "targets", "untyped")

    # The node's FX opcode and target, and the arguments that the operator writes into.
    op: str
    target: Any
    targets: Any
    fx_args: tuple
    fx_kwargs: dict
    # What is known about the sizes of its result before it runs.
    sizes: Foresight
    # Whether the fake kernel may accept types that the real kernel refuses.
    untyped: bool
    # The operators that a composite of a library has called on fakes.
    composition: Composition | None

    def __init__(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> None:
        self.interp, self.fn, self.args, self.kwargs = interp, fn, args, kwargs
        self.composition = None
        # A graph break names this call, not its replacement.
        self.called = fn, args, kwargs

    @property
    def all_args(self) -> tuple:
        return (*self.args, *(self.kwargs or {}).values())

    def graph_break(self, error: str, reason: str) -> GraphBreak:
        return GraphBreak(self.fn, tuple(self.args), self.kwargs, error, f"{describe(self.fn)} {reason}")

    # -- form in a graph -----------------------------------------------------------------------------------------------
    def lower(self) -> None:
        """Replaces the operator by a form that a graph can hold and sets the node's arguments; breaks the graph if there is none."""
        interp, trace = self.interp, self.interp.trace
        if trace.deferred.unsymbolic and self.fn not in DTYPE_ASKERS:
            self.args = symbols_for(trace, self.args)
            self.kwargs = self.kwargs and {k: symbol_for(trace, v) for k, v in self.kwargs.items()}
            self.called = self.fn, self.args, self.kwargs
        if self.fn in SUBSCRIPTS:
            self.args = [self.args[0], subscript(interp, self.args[1])]
        if trace.symbols is not None:
            self._lower_numbers()
        if interp.nested.index_modes and (places := numbers_in_tensors(self.fn, self.args)) is not None:
            self.fn, self.args = torch.ops.aten.index.Tensor, (self.args[0], places)
        for check in ENTRY_CHECKS:
            check(self)
        try:
            if self.fn in DTYPE_ASKERS and among(self.all_args):
                raise self.graph_break("FL504", "of a number of NumPy's")
            if interp.backing.may_be_symbolic:
                self.fn, self.args, self.kwargs = form_of(trace, self.fn, self.args, self.kwargs)
            self._to_fx()
        except (NotForGraph, RecursionError) as e:  # a list may hold itself
            raise GraphBreak(self.fn, tuple(self.args), self.kwargs, "FL504", str(e)) from None

    def _to_fx(self) -> None:
        trace = self.interp.trace
        self.fx_args = tuple([trace.to_fx(a) for a in self.args])
        self.fx_kwargs = {k: trace.to_fx(v) for k, v in self.kwargs.items()} if self.kwargs else {}

    def settle(self, kinds: frozenset[type]) -> None:
        """Makes the numbers of these ``kinds`` constants in the node."""
        if kinds:
            self.args = [settle_all(a, kinds) for a in self.args]
            self.kwargs = self.kwargs and {k: settle_all(v, kinds) for k, v in self.kwargs.items()}
            self._to_fx()

    def _lower_numbers(self) -> None:
        """Replaces the operator by a form that accepts unbacked symbols, and adds checks to the graph for errors that eager code raises."""
        interp = self.interp
        if interp.nested.subgraph_rules is not None and unbacked.used(self.args, self.kwargs):
            unbacked.keep_outside(interp)
        if self.fn in SUBSCRIPTS:
            try:
                self.fn, self.args = unbacked.subscript(interp, self.fn, self.args)
            except (NotForGraph, RecursionError) as e:  # a list may hold itself
                raise GraphBreak(self.fn, tuple(self.args), self.kwargs, "FL504", str(e)) from None
        if interp.trace.symbols.shapes.unbacked_symint_counter:
            unbacked.within(interp, self.fn, self.args, self.kwargs or {})

    # -- checks --------------------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Breaks the graph if it cannot hold this operator: does the checks of `CHECKS`, in order, then those for its writes and errors."""
        for check in CHECKS:
            check(self)
        fn, args, kwargs, interp = self.fn, self.args, self.kwargs, self.interp
        self.op, self.target = _call_target(fn, args)
        self.targets = targets_of(fn, args, kwargs)
        history = bool(self.targets) and fn not in HIDDEN and _history_grows(args, kwargs)
        handled = covered(interp.frame)
        interp.trace.failures.caught = interp.trace.failures.caught or handled
        self.untyped = not interp.backing.real and not takes_types(fn, args, kwargs)
        raises = handled and (self.untyped or may_raise(self.op, self.target, self.fx_args))
        if raises or (self.targets and interp.trace.failures.fragile):
            settle_raising(interp, fn, args, kwargs, raises, self.targets, history)
        if self.targets:
            self._check_writes(history, handled)

    def _check_writes(self, history: bool, handled: bool) -> None:
        """Breaks the graph if it cannot hold the operator's writes. ``history``: they become part of an autograd history."""
        interp, targets = self.interp, self.targets
        # An error that the user's code does not handle is raised as it is, and the capture makes no program.
        if handled and (refused := refusal(targets, history)):
            raise self.graph_break("FL503", refused)
        if writes_over_itself(interp, self.fn, targets, self.args):
            raise self.graph_break("FL503", "writes into memory that lies on itself")
        if not interp.backing.real and interp.trace.active and reads_what_it_writes(interp, self.fn, targets, self.args, self.kwargs):
            raise self.graph_break("FL503", "reads memory that it writes")
        if writes_too_soon(interp, targets, history):
            raise self.graph_break("FL514", "writes after a branch that is assumed")
        if interp.backing.switches and history and writes_outside(interp, targets):
            raise Restart("FL513", "a gradient goes through a write, which can't be undone")
        if history:
            guard_writes(interp, targets)

    # -- run -----------------------------------------------------------------------------------------------------------
    def run(self) -> Any:
        """Runs the operator on the capture's backing; returns the result."""
        interp = self.interp
        try:
            if self.sizes is Foresight.WATCHED:
                self.composition = None if interp.backing.real else Composition(self.fn)
                with CompositeWatch(may_be_by_data, not interp.backing.real) as watch:
                    result = interp.backing.run(interp, self.fn, self.args, self.kwargs, form=self.composition)
                self.sizes = watch.foresight
            else:
                result = run_on_backing(interp, self.fn, self.args, self.kwargs)
        except GraphBreak as b:
            raise b.calls(*self.called) from None
        if interp.lessons.graphs.dense_only and scattered(result):
            raise self.graph_break("FL522", "gives a sparse, nested or quantized tensor")
        return result

    def note_facts(self, result: Any) -> None:
        """Notes what is known about the sizes and the numbers of ``result``."""
        interp, known, mutated = self.interp, self.interp.tensors.known, self.interp.trace.recorder.writes.storages
        if self.sizes is Foresight.UNFORESEEN:
            interp.trace.recorder.unmeasure(result)
        if self.composition is not None:
            interp.trace.recorder.compose(result, self.composition)
        if self.fn in FOLDED and known.all_known(self.args, mutated) and not (interp.backing.may_be_symbolic and holds(self.args)):
            known.add(result, mutated, interp.backing.fold(interp, self.fn, self.args, self.kwargs))
        elif interp.backing.may_be_symbolic:
            known.computed(self.fn, self.args, self.kwargs, result, mutated)


def _check_density(call: TensorOperator) -> None:
    if call.interp.lessons.graphs.dense_only and any(map(scattered, call.all_args)):
        raise call.graph_break("FL522", "takes a sparse, nested or quantized tensor")


def _check_history(call: TensorOperator) -> None:
    """Breaks the graph at a gradient with respect to a tensor from before the graph: compilers trace a graph without the history of its inputs."""
    if call.fn not in DIFFERENTIATORS:
        return
    given = call.args[1] if len(call.args) > 1 else (call.kwargs or {})["inputs"]
    if type(given) in (tuple, list):
        call.interp.trace.expand(given)
    if any([t in call.interp.trace.sources for t in (given if type(given) in (tuple, list) else (given,))]):
        raise call.graph_break("FL503", "takes a gradient with respect to a tensor from before the graph")


def _check_ragged(call: TensorOperator) -> None:
    """Breaks the graph at an operator that gets the size of a ragged dimension, unless it gives another shape to a tensor that has one."""
    if not call.interp.trace.containers.wrappers.met or not any(map(stands_for_lengths, numbers(call.all_args))):
        return
    if call.fn not in RESHAPERS or not is_jagged(call.args[0]):
        raise call.graph_break("FL508", "gets the size of a ragged dimension")


def _check_metadata(call: TensorOperator) -> None:
    unheld = changed_metadata(call.fn, call.args, call.kwargs or {}, call.interp.trace.sources)
    if unheld and not (unheld == LEAF and dormant(call.interp, call.fn, call.args)):
        raise call.graph_break("FL513", unheld)


def _check_sizes(call: TensorOperator) -> None:
    recorder = call.interp.trace.recorder
    if call.sizes is Foresight.BY_DATA or (recorder.kernels.unmeasured and splits(call.fn) and not recorder.all_measured(call.args)):
        raise by_data(call.fn, call.args, call.kwargs)


def _check_kernels(call: TensorOperator) -> None:
    trace = call.interp.trace
    if trace.state.setters and call.fn in CHOOSERS and call.args[0].device.type != "cpu":
        if any([setter in KERNELS for _, setter in differing(trace.state.start, AMBIENT.now())]):
            raise call.graph_break("FL503", "runs in another state when compiled than where the code calls it")


def _check_distributed(call: TensorOperator) -> None:
    if not call.interp.trace.containers.wrappers.met:
        return
    given = [x for a in call.all_args for x in (a if type(a) in (list, tuple) else (a,)) if is_distributed(x)]
    if not given:
        return
    if draws(call.fn, call.args, call.kwargs) and any(map(sets_states, given)):
        raise call.graph_break("FL503", "draws random numbers for a DTensor, for which PyTorch sets the states of generators")
    guard_answer(call.interp.trace, dispatch_state, (), {}, dispatch_state())


# These come before the operator's arguments become inputs of the graph: a fake, or a backend's example, of such an argument may not exist.
ENTRY_CHECKS: tuple[Callable[[TensorOperator], None], ...] = (_check_density, _check_history, _check_ragged)
CHECKS: tuple[Callable[[TensorOperator], None], ...] = (_check_metadata, _check_sizes, _check_kernels, _check_distributed)
