"""The interpreter of a sub-graph's code, with the rules of its kind: it stops before the code has an effect outside."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd import forward_ad

from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import ASKED, READS, CaptureAborted, Communicates, Delivery, GraphBreak, NotCapturable
from fineline.frames.stub_frames import is_own
from fineline.fx.body_recorder import Part
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.source import Source
from fineline.identity import AddressSet, IdentitySet
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.report.events import ShownRule
from fineline.report.operator_counter import OperatorCounts
from fineline.tensor_ops.tensor_indices import numbers_in_tensors
from fineline.tensor_ops.tensors import TensorOps
from fineline.torch_facts.spellings import OWN
from fineline.tracing.interp import Backing, Call, Interp
from fineline.tracing.mutation_log import EMPTY, MutationLog, SettingsLog, Written
from fineline.tracing.node_origin import origin_of
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.subgraph_rules import SubGraphRules, Timing

# Attributes that are equal for all gradients of one shape, whatever computes them.
_FACTS_OF_GRADIENTS = frozenset(
    {
        *("shape", "size", "dim", "ndim", "numel", "nelement", "__len__", "dtype", "itemsize", "element_size", "device", "layout"),
        *("is_floating_point", "is_complex", "is_cuda", "is_cpu", "is_xpu", "is_mps", "is_scripting"),
        *("_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic"),
    }
)
# Queries whose answer may have changed when the sub-graph runs: the captured graph must be the same for either answer.
_EITHER = frozenset({torch.are_deterministic_algorithms_enabled})
# Code that reads the grad mode only to restore it.
_ASKS_TO_RESTORE = frozenset({torch.no_grad.__enter__.__code__, torch.set_grad_enabled.__init__.__code__})
# The globals of modules that count the levels of forward-mode gradients: code sets them and restores them.
_COUNTERS = IdentitySet((vars(eager_transforms), vars(forward_ad)))


class _ReadOnlyLog(MutationLog):
    """Knows the writes so far, and refuses further ones, except to counters and allowed operands."""

    def __init__(self, outer: MutationLog, rules: SubGraphRules, written: _Written) -> None:
        super().__init__()
        self.written, self.slots, self.replaced, self.seams = outer.written, outer.slots, outer.replaced, outer.seams
        self.met = outer.met
        self.settings, self.class_attributes = SettingsLog(outer.settings, rules.timing), outer.class_attributes
        self._operands, self._counters, self._counted = written, _COUNTERS if rules.lifts else IdentitySet(), list[Any]()

    def _meet(self, w: Written | None, key: Any = EMPTY) -> Written | None:
        if w is not None and self.settings.timing is Timing.LATER and w.obj not in self._counters:
            raise NotCapturable(f"it reads {w.text(key)}, which the code around it has changed")
        return super()._meet(w, key)

    def slot_written(self, obj: Any, descriptor: Any) -> bool:
        found = super().slot_written(obj, descriptor)
        if found and self.settings.timing is Timing.LATER:
            raise NotCapturable(f"it reads .{descriptor.__name__} of an object, which the code around it has changed")
        return found

    def note(self, obj: Any, src: Source, key: Any = EMPTY) -> None:
        if obj not in self._counters:
            raise NotCapturable("it changes something that is not its own")
        if obj not in self.written:
            self._counted.append(obj)
        super().note(obj, src, key)

    def note_class(self, cls: type, src: Source, name: str) -> None:
        raise NotCapturable("it changes something that is not its own")

    def note_slot(self, obj: Any, src: Source, descriptor: Any, old: Any) -> None:
        raise NotCapturable("it changes something that is not its own")

    def note_call(self, fn: Any, args: list, kwargs: dict) -> None:
        """Does nothing: the code may run at another time, or never, so that its hits do not count."""

    def note_storage(self, t: Tensor) -> None:
        if self._operands.is_operand(t.untyped_storage()._cdata):
            super().note_storage(t)

    def forget_counters(self, trace: SegmentTrace) -> None:
        """Forgets the writes to counters, which have their old values again."""
        while self._counted:
            counter = self._counted.pop()
            self.written.pop(counter, None)
            trace.namespaces.global_values.pop(counter, None)


class _Written(set):
    """The storages that operators write into. Writes to outer tensors are refused, or noted in ``touched`` if the rules allow them."""

    def __init__(self, interp: SubInterpreter, rules: SubGraphRules) -> None:
        super().__init__(interp.trace.recorder.writes.storages if rules.lifts else ())
        # Returns the tensors that hold the memory of all outer tensors; None after the code has run.
        self.given: Callable[[], list[Tensor]] | None = lambda: [interp.backing.memory(interp, t) for t in interp.recorder.given()]
        self.allowed, self.touched = rules.writes_operands, set[int]()

    def is_operand(self, storage: int) -> bool:
        """Returns whether a storage belongs to a tensor from outside the sub-graph."""
        return self.given is not None and any([t.untyped_storage()._cdata == storage for t in self.given()])

    def add(self, storage: int) -> None:
        if self.is_operand(storage):
            if not self.allowed:
                raise NotCapturable("it writes into a tensor from around it")
            self.touched.add(storage)
        super().add(storage)


class SubGraphTensors(TensorOps):
    """The operators of a sub-graph. Attributes of the tensors, such as their gradients, belong to the code around it."""

    # Whether the code has read state that may have changed when the sub-graph runs.
    either = False

    def __init__(self, rules: SubGraphRules, recorder: Part, before: TensorOps) -> None:
        super().__init__(before)
        self.rules, self.recorder = rules, recorder
        self.symbolic, self.indices = rules.makes_unbacked, rules.number_indices

    def call(self, call: Call, kind: str | None) -> Frame | None:
        fn, rules = call.fn, self.rules
        if kind == "state" and rules.states is not None and fn not in rules.states:
            raise NotCapturable(f"it calls {fn.__name__}, which changes PyTorch's state")
        if rules.later and fn in _EITHER and not call.args and not call.kwargs:
            self.either = True
            return call.finish(fn() is not rules.opposite)
        if rules.later and kind in ("metadata", "query") and getattr(fn, "__name__", "") not in _FACTS_OF_GRADIENTS:
            if not (fn is torch.is_grad_enabled and call.frame.info.code in _ASKS_TO_RESTORE):
                raise NotCapturable("it reads a state that may have changed when it runs")
        return super().call(call, kind)

    def operator(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, used: bool = False) -> Any:
        if fn is Tensor.requires_grad_ and any([args[0] is t for t in self.recorder.given()]):
            raise NotCapturable("it changes what it is given")
        if not self.rules.custom_operators or (interp.backing.real and not self.rules.on_fakes):
            self._refuse_custom(interp, fn)
        places = numbers_in_tensors(fn, args) if self.indices else None
        if places is not None:
            # The operator makes sure that no such number is read from its tensor.
            fx = interp.trace.to_fx(args[0]), interp.trace.to_fx(args[1])
            result = interp.backing.run(interp, torch.ops.aten.index, (args[0], places), None)
            return self.keep(interp, fn, "call_function", operator.getitem, fx, {}, result)
        return super().operator(interp, fn, args, kwargs, used)

    def _refuse_custom(self, interp: Interp, fn: Any) -> None:
        """Refuses operators that may do more than compute: on real values, their effects would stay if the capture fails later."""
        name = fn.name() if is_a(fn, OpOverload) else fn._qualified_op_name if is_a(fn, OpOverloadPacket) else "aten"
        if interp.nested.opaque is not None or is_a(fn, CustomOpDef) or name.partition("::")[0] not in OWN:
            if name.partition("::")[0] != "_c10d_functional":
                raise NotCapturable("it calls an operator that may do more than compute")
            if interp.backing.real:
                raise Communicates("it communicates with other processes")

    def attribute(self, interp: Interp, t: Tensor, name: str, kind: str) -> Any:
        if kind == "source":
            raise NotCapturable(f"it asks for .{name} of a tensor")
        if self.rules.later and kind == "metadata" and name not in _FACTS_OF_GRADIENTS:
            raise NotCapturable(f"it asks for .{name} of a tensor, which may have changed when it runs")
        return super().attribute(interp, t, name, kind)

    def set_attribute(self, interp: Interp, f: Frame, t: Tensor, name: str, descr: Any, value: Any, then: Delivery) -> Frame | None:
        raise NotCapturable(f"it sets .{name} of a tensor")


class SubInterpreter(Interpreter):
    """Runs the code of a sub-graph, which is recorded in its own graph: `capture_subgraph` creates it and redirects the trace to that graph."""

    tensors_class = SubGraphTensors

    recorder: Any

    def __init__(self, outer: Interpreter, rules: SubGraphRules, recorder: Part, backing: Backing, made: AddressSet) -> None:
        super().__init__(outer.options, outer.lessons, trace=outer.trace)
        self.outer, self.recorder, self.made = outer, recorder, made
        # The state of the code around the sub-graph holds inside too: rules, handled exception, varying values.
        self.rules, self.varying = outer.rules, outer.varying
        self.exceptions.handled, self.limits.depth = outer.exceptions.handled, outer.limits.depth
        self.nested.sub_interpreter, self.nested.subgraph_rules = outer.nested.sub_interpreter, rules
        if rules.shown_to_modes:
            self.nested.modes = [*outer.nested.modes]
        self.nested.called_at = origin_of(outer.trace, outer.frame) if outer.frame is not None else None
        self.use(backing)
        self.tensors.shows_layouts = outer.tensors.shows_layouts
        self.tensors = self.tensors_class(rules, recorder, self.tensors)
        recorder.writes.storages = written = _Written(self, rules)
        self.tensors.undoable = rules.writes_operands
        self.mutations = _ReadOnlyLog(outer.trace.mutations, rules, written)

    @property
    def fired(self) -> Counter[ShownRule] | None:
        return self.outer.fired

    @property
    def either(self) -> bool:
        """Returns whether the code has read state that may have changed when the sub-graph runs."""
        return is_a(self.tensors, SubGraphTensors) and self.tensors.either

    @property
    def tally(self) -> OperatorCounts | None:
        return self.outer.tally

    def attempt(self, fn: Any, args: list, kwargs: dict | None) -> Any:
        """Returns the result of the Python function ``fn``; raises `NotCapturable`, or the user's exception, if no graph can contain its code."""
        before, modes, settings = AMBIENT.now(), [id(mode) for mode in self.nested.modes], self.trace.mutations.settings
        try:
            self.push_function(None, fn, args, kwargs)
            value = self.run()
            if AMBIENT.now() != before or [id(mode) for mode in self.nested.modes] != modes:
                raise NotCapturable("it leaves PyTorch in another state")
            if settings.events:
                raise NotCapturable("it leaves a context variable with another value")
        finally:
            settings.undo()
        return value

    def end(self) -> None:
        """Ends the run, and breaks the reference cycles through the sub-graph, which stays alive."""
        self.mutations.forget_counters(self.trace)
        self.stand_ins.forget()
        self.recorder.writes.storages.given = None

    def reached(self) -> str:
        """Returns the place in the user's code that the run has reached, for messages."""
        f = self.frame
        while f is not None and is_own(f.info.code):
            f = f.back
        return f" ({f.info.code.co_filename}:{f.line})" if f is not None else ""

    def raised(self, e: BaseException, anew: bool = False, again: bool = False) -> Frame:
        if is_a(e, (NotCapturable, CaptureAborted)):
            # Passes all of the user's handlers. The capture around it is aborted with the same error.
            self.outer.outcome.abandoned = self.outcome.abandoned
            raise e
        return super().raised(e, anew, again)

    def refusal(self, error: str, text: str, f: Frame | None, rule: str = "") -> BaseException:
        return self.outer.refusal(error, text, f, rule)

    def at_graph_break(self, graph_break: GraphBreak) -> Frame:
        # In the other mode, the value may be a symbol.
        error = graph_break.error if graph_break.error in READS | ASKED else "FL520"
        raise NotCapturable(f"it breaks the graph: {graph_break.reason}", error, graph_break.rule, cause=graph_break)

    def fail(self, error: str, text: str, hint: bool) -> None:
        raise NotCapturable(text)

    def long_loop(self, f: Frame) -> None:
        raise NotCapturable("it runs a long loop without a tensor operator")

    def abandon(self, error: BaseException) -> Frame:
        raise NotCapturable(f"it raises {type(error).__name__}: {error}")

    def interrupted(self, e: BaseException) -> None:
        self.leave_immediately(e)

    def note_transient(self, e: BaseException) -> None:
        """Does nothing: the exception propagates, and nothing of the failed attempt is captured."""

    def drive(self, gen: InterpretedGenerator, verb: str, value: Any) -> Any:
        raise NotCapturable("it has C code run a generator")
