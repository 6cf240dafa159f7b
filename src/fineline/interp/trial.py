"""An interpreter for code that may turn out not to fit into a graph: it stops before anything happens that could be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import CaptureAborted, GraphBreak, NotCapturable
from fineline.fx.body_recorder import Part
from fineline.guards.source import Source
from fineline.identity import AddressSet
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.policy.rule import Rule
from fineline.tensor_ops.tensors import TensorOps
from fineline.torch_facts.spellings import OWN
from fineline.tracing.interp import Call, Interp
from fineline.tracing.mutation_log import EMPTY, MutationLog
from fineline.tracing.node_origin import origin_of

# What is the same for all gradients of one shape, whoever computes them.
_FACTS_OF_GRADIENTS = frozenset(
    {
        *("shape", "size", "dim", "ndim", "numel", "nelement", "__len__", "dtype", "itemsize", "element_size", "device", "layout"),
        *("is_floating_point", "is_complex", "is_cuda", "is_cpu", "is_xpu", "is_mps", "is_scripting"),
        *("_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic"),
    }
)
# The answer may be another one by then: what is made of it must come out the same with either.
_EITHER = frozenset({torch.are_deterministic_algorithms_enabled})
# These ask for the grad mode only to put it back.
_ASKS_TO_RESTORE = frozenset({torch.no_grad.__enter__.__code__, torch.set_grad_enabled.__init__.__code__})


class _ReadOnly(MutationLog):
    """Knows what has been written so far; the next write is refused."""

    def __init__(self, mutations: MutationLog, given: set[int]) -> None:
        super().__init__()
        self.written, self.slots, self.replaced, self.given = mutations.written, mutations.slots, mutations.replaced, given
        self.seams = mutations.seams

    # Those that code sets and sets back.
    counters: frozenset[int] = frozenset()

    def note(self, obj: Any, src: Source, key: Any = EMPTY) -> None:
        if id(obj) not in self.counters:
            raise NotCapturable
        super().note(obj, src, key)

    def note_slot(self, obj: Any, src: Source, descriptor: Any, old: Any) -> None:
        raise NotCapturable

    def note_hit(self, fn: Any, args: list, kwargs: dict) -> None:
        """Does nothing: the code may run at another time, or never, so that its hits do not count."""

    def note_storage(self, t: Tensor) -> None:
        if t.untyped_storage()._cdata in self.given:
            super().note_storage(t)


class _Memory(set):
    """The storages that operators write into. It records writes into ``given`` tensors if it ``may`` allow them, and refuses them otherwise."""

    def __init__(self, given: Iterable[Tensor], may: bool) -> None:
        super().__init__()
        self.given = {t.untyped_storage()._cdata for t in given}
        self.may, self.touched = may, set[int]()

    def add(self, storage: int) -> None:
        if storage in self.given:
            if not self.may:
                raise NotCapturable
            self.touched.add(storage)
        super().add(storage)


class TrialTensors(TensorOps):
    """Operators of PyTorch's own, of tensors. ``later``: the code is going to run at another time than its capture, as a backward does."""

    symbolic = False
    # Whether the code has asked for what may be otherwise when it runs: one that is ``opposite`` gets the other answer.
    either = False
    # What the code may change of PyTorch's state.
    states = frozenset({torch._C._set_grad_enabled})

    def __init__(self, later: bool, opposite: bool, before: TensorOps) -> None:
        super().__init__(before)
        self.later, self.opposite = later, opposite

    def call(self, call: Call, kind: str | None) -> Frame | None:
        fn = call.fn
        if kind == "state" and fn not in self.states:
            raise NotCapturable
        if self.later and fn in _EITHER and not call.args and not call.kwargs:
            self.either = True
            return call.finish(fn() is not self.opposite)
        if self.later and kind in ("metadata", "query") and getattr(fn, "__name__", "") not in _FACTS_OF_GRADIENTS:
            if not (fn is torch.is_grad_enabled and call.frame.info.code in _ASKS_TO_RESTORE):
                raise NotCapturable
        return super().call(call, kind)

    def operator(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, used: bool = False) -> Any:
        if interp.nested.opaque is not None or is_a(fn, CustomOpDef):
            raise NotCapturable
        name = fn.name() if is_a(fn, OpOverload) else fn._qualified_op_name if is_a(fn, OpOverloadPacket) else "aten"
        if name.partition("::")[0] not in OWN:
            # Nobody knows what it does besides.
            raise NotCapturable
        return super().operator(interp, fn, args, kwargs, used)

    def attribute(self, interp: Interp, t: Tensor, name: str, kind: str) -> Any:
        if kind == "source" or (self.later and kind == "metadata" and name not in _FACTS_OF_GRADIENTS):
            raise NotCapturable
        return super().attribute(interp, t, name, kind)

    def set_attribute(self, interp: Interp, t: Tensor, name: str, descr: Any, value: Any) -> None:
        raise NotCapturable


class Trial(Interpreter):
    """Runs code on tensors that it is ``given`` into a graph of its own, and knows nothing else of what the capture has made so far."""

    def __init__(
        self,
        outer: Interpreter,
        given: Mapping[str, Iterable[Tensor]],
        made: AddressSet,
        later: bool = False,
        writes: bool = False,
        opposite: bool = False,
        again: bool = False,
    ) -> None:
        """Sets up a trial. ``later``: the code is going to run at another time. ``writes``: it may write into its arguments.

        ``again``: it may be differentiated itself.
        """
        super().__init__(outer.options, outer.lessons, trace=outer.trace)
        self.outer, self.nested.in_backward = outer, again
        # A function in it may have to be differentiated as that one says; but not those in its own backward.
        self.nested.make_trial = outer.nested.make_trial if again and not outer.nested.in_backward else None
        self.use(outer.backing.inner())
        self.exceptions.handled, self.limits.depth, self.rules = outer.exceptions.handled, outer.limits.depth, outer.rules
        self.nested.called_at = origin_of(outer.trace, outer.frame) if outer.frame is not None else None
        self.tensors.shows_layouts = outer.tensors.shows_layouts
        self.tensors = TrialTensors(later, opposite, self.tensors)
        self.recorder: Any = Part()
        for name, tensors in given.items():
            for t in tensors:
                self.recorder.placeholder(t, name, None)
        self.given, self.made = [t for tensors in given.values() for t in tensors], made
        memory = self.recorder.writes.storages = _Memory([self.backing.memory(self, t) for t in self.given], writes)
        self.tensors.undoable, self.mutations = writes, _ReadOnly(outer.trace.mutations, memory.given)

    @property
    def fired(self) -> Counter[Rule] | None:
        return self.outer.fired

    @property
    def either(self) -> bool:
        """Returns whether the code has asked for what may be otherwise when it runs."""
        return is_a(self.tensors, TrialTensors) and self.tensors.either

    def attempt(self, fn: Any, args: list) -> Any:
        """Returns what ``fn`` gives; `NotCapturable`, or an exception of the user's, if that is nothing for a graph."""
        trace = self.trace
        before = (trace.recorder, trace.mutations, trace.made, trace.guards.interp)
        assumed, grad_mode = len(trace.failures.assumed), torch.is_grad_enabled()
        attributes = [dict(t.__dict__) for t in self.given]
        trace.recorder, trace.mutations, trace.made, trace.guards.interp = self.recorder, self.mutations, self.made, self
        try:
            self.push_function(None, fn, args, None)
            value = self.run()
        finally:
            trace.recorder, trace.mutations, trace.made, trace.guards.interp = before
            torch._C._set_grad_enabled(grad_mode)
            taken = trace.failures.take_back(assumed)
            changed = [(t.__dict__, was) for t, was in zip(self.given, attributes, strict=True) if not _same(t.__dict__, was)]
            for now, was in changed:
                now.clear()
                now.update(was)
        if taken or changed or len(self.recorder.inputs) != len(self.given):
            raise NotCapturable
        return value

    def raised(self, e: BaseException, anew: bool = False, again: bool = False) -> Frame:
        if is_a(e, (NotCapturable, CaptureAborted)):
            # Past all handlers of the user's. The capture around it is given up with the same error.
            self.outer.outcome.abandoned = self.outcome.abandoned
            raise e
        return super().raised(e, anew, again)

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        return self.outer.refusal(error, text, f, rule)

    def at_graph_break(self, graph_break: GraphBreak) -> Frame:
        raise NotCapturable(graph_break)

    def fail(self, error: str, text: str, hint: bool) -> None:
        raise NotCapturable

    def long_loop(self, f: Frame) -> None:
        raise NotCapturable

    def abandon(self, error: BaseException) -> Frame:
        raise NotCapturable

    def interrupted(self, e: BaseException) -> None:
        self.leave_at_once(e)

    def fleeting(self, e: BaseException) -> None:
        """Does nothing: the exception propagates, and nothing of the failed attempt is captured."""

    def drive(self, gen: InterpretedGenerator, verb: str, value: Any) -> Any:
        raise NotCapturable


def _same(a: dict, b: dict) -> bool:
    return len(a) == len(b) and all([b.get(k, EMPTY) is v for k, v in a.items()])
