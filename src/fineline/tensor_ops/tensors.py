"""Tensor operators and attributes in captured code: each is run and recorded, answered from guarded facts, or breaks the graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import FunctionType, MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak, Restart
from fineline.frames.stub_frames import is_own
from fineline.fx.data_node import set_data
from fineline.fx.layout import layout_of
from fineline.fx.output_fixups import hides_class
from fineline.fx.recorder import NotForGraph
from fineline.guards.facts import storage_of
from fineline.guards.source import Source
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.c_access import may_compare
from fineline.objects.type_info import watches
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import SYMBOLIC, holds, numbers
from fineline.tensor_ops import unbacked
from fineline.tensor_ops.arrays import calls as array_calls
from fineline.tensor_ops.arrays.constants import Arrays
from fineline.tensor_ops.arrays.traced import type_of
from fineline.tensor_ops.asked_numbers import AskedNumbers, free_numbers
from fineline.tensor_ops.data_dependent_shapes import INFIX, by_data, data_shaped, foreseen
from fineline.tensor_ops.requires_grad import set_requires_grad
from fineline.tensor_ops.rules import call_ruled, forbid, operator_break, operator_rule
from fineline.tensor_ops.size_arguments import SIZED, sizes
from fineline.tensor_ops.speculation import settle_first
from fineline.tensor_ops.strides import confirm, offset_of, reads_strides
from fineline.tensor_ops.tensor_operator import TensorOperator, run_on_backing, targets_of
from fineline.tensor_ops.torch_functions import NO_OVERRIDE, call_override, overridden, overrides
from fineline.torch_facts.callables import BEYOND_GUARD, COVERED_QUERIES, METADATA_WHEN_BARE
from fineline.torch_facts.distributed_tensors import SWITCHES, dispatch_state, holds_masks, mask_buffers, own_masks
from fineline.torch_facts.mutation import LEAF, METADATA_NAMES
from fineline.torch_facts.spellings import is_custom
from fineline.torch_facts.unguarded_sizes import Foresight
from fineline.torch_facts.wrapper_subclasses import is_jagged, is_ragged, is_wrapper, memory_of, stands_for_lengths
from fineline.tracing.constant_tensors import READERS, ConstantTensors
from fineline.tracing.identity_guards import guard_answer
from fineline.tracing.interp import Call, Interp
from fineline.tracing.mutation_log import MutationLog
from fineline.tracing.node_origin import origin_of
from fineline.tracing.plain_values import PINNED, PLAIN_TENSORS, SINGLETONS, VALUES, is_value

# By identity: distinct C functions of torch may compare equal.
BEYOND = IdentitySet(BEYOND_GUARD)
COVERED = IdentitySet(COVERED_QUERIES)
BARE = IdentitySet(METADATA_WHEN_BARE)
_SWITCHES = IdentitySet([set_ for _, set_ in SWITCHES])
CHANGED_BY_WRITES = frozenset({"_version", "grad_fn", "output_nr", "is_leaf", "retains_grad"})


def passed(value: Any) -> Any:
    """Returns ``value``: the eager call of a forced graph break."""
    return value


# Builtins and infix operators that call a method of a tensor which reads its values: the method's name.
SIGNS: Mapping[Any, str] = MappingProxyType(
    {
        bool: "__bool__", int: "__int__", float: "__float__", complex: "__complex__", operator.index: "__index__",
        operator.contains: "__contains__", repr: "__repr__", str: "__repr__", format: "__format__",
    }
)  # fmt: skip


class TensorOps:
    """The interpreter's operations on tensors: operator calls, attribute reads and writes, reads of numbers."""

    def __init__(self, before: TensorOps | None = None) -> None:
        """Sets up the operations. ``before``: an earlier instance that this one replaces, and whose facts about tensors it keeps."""
        self.known: ConstantTensors = before.known if before is not None else ConstantTensors()
        self.arrays: Arrays = before.arrays if before is not None else Arrays()
        # Whether a backend sees the graph, and with it the layout of each operator's result.
        self.shows_layouts: bool = before.shows_layouts if before is not None else False
        # Whether writes into tensors may have to be undone.
        self.undoable: bool = before.undoable if before is not None else True

    def call(self, call: Call, kind: str | None) -> Frame | None:
        """Calls a torch callable of this ``kind`` (see `torch_facts.callables`)."""
        interp, trace, fn = call.interp, call.trace, call.fn
        args, kwargs = call.args, call.kwargs
        if not trace.active:
            return call.run_natively()
        if interp.nested.opaque is not None:
            self.wrote(interp, targets_of(fn, args, kwargs))
            return call.finish(interp.nested.opaque.run(interp, fn, args, kwargs, kind))
        if interp.rules is not None:
            rule = operator_rule(interp, fn, args, kwargs)
            if rule is not None and rule.verb not in ("trace", "allow"):
                return call_ruled(call, rule)
        if fn is torch.autograd.grad and _of_transform(call.frame, args):
            kind = "op"
        if kind != "query" and kind != "effect" and overridden(interp, call.values()):
            asked = call_override(interp, call.frame, fn, args, kwargs, call.then)
            if asked is not NO_OVERRIDE:
                return asked
        if kind == "query" and interp.nested.modes and type(fn) is FunctionType:
            # Its code may call operators, which the modes see, and asks for the modes that are on.
            return call.interpret()
        if fn in BARE and len(args) == 1 and not kwargs:
            kind = "metadata"
        if kind == "op":
            return self._operator_call(call)
        if fn is Tensor.storage_offset and len(args) == 1 and not kwargs and (offset := offset_of(interp, args[0])) is not None:
            return call.finish(offset)
        if fn in BEYOND:
            # This also holds for a tensor made in the captured code, because its base may be an input.
            raise call.graph_break("FL509", f"{describe(fn)} answers from what no guard covers")
        if kind == "metadata" or kind == "query":
            return self._answer(call, kind == "query")
        if kind == "state":
            return self._change_state(call)
        if kind == "data":
            return self._read_data(call)
        raise call.graph_break("FL503", f"{getattr(fn, '__name__', str(fn))} has effects that no graph can hold")

    def _operator_call(self, call: Call) -> Frame | None:
        """Calls an operator of PyTorch or of a library and delivers its result."""
        if is_custom(call.fn):
            if call.interp.backing.switches:
                raise Restart("FL516", f"{describe(call.fn)} may do more than compute")
            settle_first(call)
        args, kwargs = sizes(call) if call.fn in SIZED else (call.args, call.kwargs)
        return call.finish(self.operator(call.interp, call.fn, args, kwargs))

    def _answer(self, call: Call, query: bool) -> Frame | None:
        """Calls a function whose result follows from guarded facts. ``query``: it also reads PyTorch's state, and a guard repeats the call."""
        interp, trace, fn, args, kwargs = call.interp, call.trace, call.fn, call.args, call.kwargs
        unmeasured = trace.recorder.kernels.unmeasured and not trace.recorder.all_measured(args)
        if unmeasured or (len(args) > 1 and foreseen(interp, fn, args, kwargs) is not Foresight.FORESEEN):
            raise by_data(fn, args, kwargs)
        if any(not is_a(a, Tensor) and watches(trace, type(a)) for a in args):
            raise call.graph_break("FL412", f"{describe(fn)} of an object whose __getattribute__ sees it")
        # A query on tensors or symbols runs on the backing. Any other query runs without it, so that it does not see the capture's own fake mode.
        given = call.values()
        known = query and not any([is_a(a, Tensor) or holds(a) for a in given])
        for a in given:
            if type(a) in (list, tuple, dict):
                trace.expand(a, True)
        result = fn(*args, **(kwargs or {})) if known else interp.backing.run(interp, fn, args, kwargs)
        if not interp.backing.real and reads_strides(fn):
            confirm(interp, fn, args, kwargs, result)
        if query and fn not in COVERED:
            if not all([is_value(a) and may_compare(trace, a) for a in (*given, result)]):
                raise call.graph_break("FL503", f"{describe(fn)} reads state that no guard covers")
            guard_answer(trace, fn, tuple(args), kwargs or {}, result)
        return call.finish(self.constant(interp, fn, args, kwargs, _sizes(interp, fn, args, kwargs, result)))

    def _change_state(self, call: Call) -> Frame | None:
        """Calls a function that changes PyTorch's state, and records a node that repeats the change in the graph."""
        trace, fn, args, kwargs = call.trace, call.fn, call.args, call.kwargs or {}
        constants = [tuple(a) if type(a) is list else a for a in call.values()]
        if not all([type(a) in SYMBOLIC or (is_value(a) and may_compare(trace, a)) for a in constants]):
            raise call.graph_break("FL501", "a change of PyTorch's state by something that is not a constant")
        if trace.recorder.traits.leaves and fn is torch._C._set_grad_enabled and args == [True]:
            raise call.graph_break("FL513", f"a history may begin at what {LEAF}")
        if fn in _SWITCHES:
            # The change is relative to the state at the start.
            guard_answer(trace, dispatch_state, (), {}, dispatch_state())
        trace.state.before_change(fn)
        result = fn(*args, **kwargs)
        fx_args, fx_kwargs = tuple([trace.to_fx(a) for a in args]), {k: trace.to_fx(a) for k, a in kwargs.items()}
        trace.recorder.record("call_function", fn, fx_args, fx_kwargs, result, origin=origin_of(trace, call.frame))
        trace.state.setters.add(fn)
        return call.finish(result)

    def _read_data(self, call: Call) -> Frame | None:
        """Calls a function that reads the numbers in a tensor: known ones, or new symbols; breaks the graph if neither is possible."""
        interp, trace, fn, args = call.interp, call.trace, call.fn, call.args
        if fn in READERS and interp.tensors.known.all_known(args, trace.recorder.writes.storages):
            result = fn(*[interp.tensors.known.numbers(a) for a in args], **(call.kwargs or {}))
            return call.finish(trace.fresh(result) if type(result) is list else result)
        if fn in unbacked.READERS and len(args) == 1 and unbacked.readable(interp, args[0]):
            return self.number(interp, call.frame, fn, args[0], call.then)
        name = getattr(fn, "__name__", str(fn))
        if name == "tolist" and unbacked.listable(interp, args[0]):
            return call.finish(unbacked.listed(interp, args[0]))
        raise call.graph_break("FL502", f"{name} reads a tensor's values")

    def constant(self, interp: Interp, fn: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Returns ``result``, of a call whose result follows from guarded facts; notes that the captured code made it."""
        trace = interp.trace
        if trace.deferred.numbers:
            for a in (*args, *(kwargs or {}).values()):
                may_compare(trace, a)
        if is_a(result, Tensor) and not trace.recorder.known(result) and result not in trace.sources:
            trace.fault(f"{fn} was thought to answer from metadata, and made a tensor")
        if type(result) in (list, dict):
            trace.made.add(result)
        return result

    def operator(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, used: bool = False) -> Any:
        """Runs and records one tensor operator; returns its result. ``used``: the caller needs the result, so that no graph break may follow."""
        trace = interp.trace
        if interp.nested.opaque is not None:
            self.wrote(interp, targets_of(fn, args, kwargs))
            return interp.nested.opaque.run(interp, fn, args, kwargs, "op")
        if interp.rules is not None:
            self._ruled(interp, fn, args, kwargs)
        call = TensorOperator(interp, fn, args, kwargs)
        free = free_numbers(call) if (trace.symbols is not None or trace.deferred.unsymbolic) and trace.active else ()
        asked = AskedNumbers(call, interp.frame, free, used) if free and interp.frame is not None else None
        call.lower()
        if not trace.active:
            return interp.native(call.fn, tuple(call.args), call.kwargs)
        call.sizes = self.foreseen(interp, call.fn, call.args, call.kwargs)
        call.check()
        if call.targets:
            self.wrote(interp, call.targets, getattr(call.fn, "__name__", "").partition(".")[0] in METADATA_NAMES)
        result = call.run()
        if result is NotImplemented:
            # This depends on the operands' types: Python then calls the other operand's method, or raises a TypeError.
            return result
        if asked is not None:
            asked.settle(result)
        self.keep(interp, call.fn, call.op, call.target, call.fx_args, call.fx_kwargs, result, call.untyped)
        if call.targets:
            note_wrappers(interp, call.targets)
        call.note_facts(result)
        if interp.options.force_graph_breaks and not used and trace.active:
            raise GraphBreak(passed, (result,), None, "FL403", "the region has force_graph_breaks")
        return result

    # Whether numbers that only the graph knows may be symbols.
    symbolic = True
    # Whether a tensor of one number is an index without being read, as in the functions that flex_attention takes.
    indices = False

    def shapes(self, interp: Interp) -> bool:
        """Returns whether sizes may depend on a tensor's values."""
        return interp.trace.symbols is not None and interp.trace.symbols.shaped and self.symbolic

    def foreseen(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Foresight:
        """Returns what is known about the sizes of an operator's result before it runs."""
        if fn in INFIX:
            return Foresight.FORESEEN
        return Foresight.BY_DATA if data_shaped(fn, args, kwargs) and not self.shapes(interp) else foreseen(interp, fn, args, kwargs)

    def reads(self, interp: Interp, t: Any) -> bool:
        """Returns whether the number in ``t`` may be a symbol."""
        return unbacked.readable(interp, t)

    def number(self, interp: Interp, f: Frame, fn: Any, t: Tensor, then: Delivery | None) -> Frame | None:
        """Delivers the number in ``t``, converted by ``fn``, as a symbol; breaks the graph if it must warn at each call."""
        if fn in unbacked.FLOATS and t.requires_grad and torch.is_grad_enabled():
            left_to = unbacked.warn(interp, f, fn)
            if left_to is not None:
                text = "warns at each call" if left_to is fn else "warns, and warnings are errors"
                raise GraphBreak(left_to, (t,), None, "FL502", f"the float of a tensor that requires grad {text}")
        try:
            number = unbacked.read(interp, fn, t)
        except (GraphBreak, NotForGraph) as e:
            text = e.reason if is_a(e, GraphBreak) else str(e)
            raise GraphBreak(fn, (t,), None, "FL502", text) from None
        return interp.finish(f, number, then)

    def wrote(self, interp: Interp, targets: Any, reshapes: bool = False) -> None:
        """Notes that an operator, or an opaque call, writes into ``targets``; ``reshapes``: it may give them other memory."""
        if targets and not interp.backing.real:
            interp.backing.forget_numbers()
        mutations = interp.trace.mutations if interp.tensors.undoable and interp.backing.real else None
        if reshapes and mutations is not None:
            # Inputs that share a version counter with the tensor may no longer share it after the call.
            for src in interp.trace.sources.values():
                if is_a(src.value, Tensor):
                    mutations.note_version(src.value)
        for t in targets:
            for x in t if is_a(t, (list, tuple)) else (t,):
                if is_a(x, Tensor):
                    _note_mutation(interp, x, mutations)

    def sign(self, interp: Interp, fn: Any, args: tuple, call: tuple | None = None) -> None:
        """Applies the rules about a tensor's method to ``fn``, a builtin or infix operator that calls it; ``call``: the call around ``fn``."""
        if interp.nested.modes and overridden(interp, args):
            plain, given, kwargs = call or (fn, args, None)
            raise GraphBreak(plain, given, kwargs, "FL503", f"a function mode sees {SIGNS[fn]} of a tensor")
        if interp.rules is not None and interp.nested.opaque is None:
            self._ruled(interp, getattr(type(args[0]), SIGNS[fn]), args, None, call or (fn, args, None))

    def _ruled(self, interp: Interp, fn: Any, args: Any, kwargs: Any, call: tuple | None = None) -> None:
        """Applies the rules to an infix operator, or to an operator inside another call."""
        rule = operator_rule(interp, fn, args, kwargs)
        if rule is None or rule.verb in ("trace", "allow"):
            return
        if rule.verb == "forbid" or (rule.verb == "substitute" and call is not None and call[1] != args):
            # A graph break at the outer call cannot substitute an operator inside it.
            forbid(interp, fn, rule)
        plain, args, kwargs = call or (fn, args, kwargs)
        raise operator_break(rule.replacement if rule.verb == "substitute" else plain, args, kwargs, rule)

    def keep(self, interp: Interp, fn: Any, op: str, target: Any, fx_args: tuple, fx_kwargs: dict, result: Any, untyped: bool = False) -> Any:
        trace = interp.trace
        t = type(result)
        if t in PLAIN_TENSORS or result is None or is_a(result, Tensor):
            pass
        elif t in (tuple, list) or is_a(result, tuple):
            if t is list:
                trace.made.add(result)
            if not _only_tensors(result):
                interp.fail("FL505", f"{describe(fn)} gave a number beside tensors", True)
        elif t in VALUES or t in SINGLETONS or is_a(result, PINNED):
            interp.fail("FL505", f"{describe(fn)} gave a {t.__name__}, which may depend on data", True)
        else:
            interp.fail("FL506", f"{describe(fn)} gave a {t.__name__}", True)
        self.record(interp, op, target, fx_args, fx_kwargs, result, untyped)
        return result

    def record(self, interp: Interp, op: str, target: Any, fx_args: tuple, fx_kwargs: dict, result: Any, untyped: bool = False) -> None:
        """Records a node in the graph, with the line of the user's code that it comes from."""
        recorder = interp.trace.recorder
        recorder.traits.only_state = False
        interp.limits.jumps = 0
        frame = interp.frame
        origin = origin_of(interp.trace, frame) if frame is not None else None
        layout = layout_of(interp.backing.operands(result)) if interp.tensors.shows_layouts else None
        recorder.record(op, target, fx_args, fx_kwargs, result, origin=origin, layout=layout, untyped=untyped)
        if type(result) not in PLAIN_TENSORS and result is not None:
            note_wrappers(interp, result)
        while frame is not None and frame.back is not None and is_own(frame.info.code):
            frame = frame.back
        recorder.places.append((frame.info.code.co_filename, frame.line) if frame is not None else ("", 0))

    def load_attribute(self, interp: Interp, f: Frame, t: Tensor, name: str, kind: str, then: Delivery | None) -> Frame | None:
        """Delivers the value of an attribute that C computes."""
        if interp.nested.opaque is None and interp.trace.active and overridden(interp, (t,)):
            asked = call_override(interp, f, getattr, (t, name), None, then)
            if asked is not NO_OVERRIDE:
                return asked
        return interp.finish(f, self.attribute(interp, t, name, kind), then)

    def attribute(self, interp: Interp, t: Tensor, name: str, kind: str) -> Any:
        """Returns the value of an attribute that C computes; breaks the graph if neither a guard nor a node covers it."""
        trace = interp.trace
        if interp.nested.opaque is not None:
            return interp.nested.opaque.run(interp, getattr, (t, name), None, kind)
        seeing = hides_class(t) or (is_wrapper(t) and overrides(t))
        if seeing and t in trace.sources and (kind == "source" or name == "is_leaf"):
            # The guard would read the attribute, and the class would see it.
            raise GraphBreak(getattr, (t, name), None, "FL507", f".{name} of a {type(t).__name__}, which overrides operators")
        if name in CHANGED_BY_WRITES and t in trace.sources and _written(interp, t):
            # The guards check its value before the graph's writes, and in fake mode capture has not written anything.
            raise GraphBreak(getattr, (t, name), None, "FL507", f".{name} of a tensor that the graph writes into")
        if kind == "metadata":
            if trace.recorder.kernels.unmeasured and not trace.recorder.measured(t):
                raise by_data(getattr, (t, name), None)
            if name == "is_leaf" and t in trace.sources:
                # No other guard covers whether the tensor has a history.
                return trace.load(t.is_leaf, trace.guards.access(trace.sources[t], "member", torch._C.TensorBase.is_leaf, t.is_leaf))
            return _sizes(interp, getattr, (t, name), None, interp.backing.run(interp, getattr, (t, name), None))
        if kind == "op":
            if interp.rules is not None:
                self._ruled(interp, getattr(Tensor, name), (t,), None, (getattr, (t, name), None))
            try:
                fx = trace.to_fx(t)
            except (NotForGraph, RecursionError) as e:  # a list may hold itself
                raise GraphBreak(getattr, (t, name), None, "FL504", str(e)) from None
            if not trace.active:
                return getattr(t, name)
            return self.keep(interp, name, "call_function", getattr, (fx, name), {}, run_on_backing(interp, getattr, (t, name), None))
        if kind == "source":
            src = trace.sources.get(t)
            descr = tensor_descriptor(name)
            if src is None or descr is None:
                value = getattr(t, name)
                if value is None or is_a(value, bool):
                    return value
                if name == "_base" and (base := self._base(interp, value)) is not None:
                    return base
                raise GraphBreak(getattr, (t, name), None, "FL507", f".{name} of a tensor made in the captured code")
            value = getattr(t, name)
            if trace.mutations.slot_written(t, descr):
                return value
            if is_a(value, Tensor) and trace.recorder.known(value):
                return value
            return trace.load(value, trace.guards.access(src, "member", descr, value))
        raise GraphBreak(getattr, (t, name), None, "FL502", f".{name} reads a tensor's values")

    def _base(self, interp: Interp, found: Tensor) -> Tensor | None:
        """Returns the tensor whose view a result of the graph is, with a guard that it is no view itself; None if the segment does not know it."""
        base: Tensor = interp.backing.outside(found)
        if not interp.trace.recorder.known(base) or (base in interp.trace.sources and self.attribute(interp, base, "_base", "source") is not None):
            return None
        return base

    def array_attribute(self, interp: Interp, a: Any, name: str) -> Any:
        """Returns an attribute of an array of the graph, or a view of a constant; NotImplemented for a method, and for what no array has."""
        return array_calls.attribute(interp, a, name)

    def array_length(self, interp: Interp, a: Any) -> Any:
        """Returns the length of an array of the graph, which may be a symbol."""
        return array_calls.length(interp, a)

    def may_list_numbers(self, interp: Interp, a: Any) -> bool:
        """Returns whether captured code can iterate over the numbers of an array of one dimension."""
        return array_calls.may_list_numbers(interp, a)

    def array_rows(self, interp: Interp, a: Any) -> list | None:
        """Returns the arrays in an array over which code iterates; None if only eager code knows them."""
        return array_calls.rows(interp, a)

    def type_of_array(self, interp: Interp, a: Any) -> type:
        """Returns the class of an array, or of the scalar for which it stands."""
        return type_of(interp, a)

    def set_attribute(self, interp: Interp, f: Frame, t: Tensor, name: str, descr: Any, value: Any, then: Delivery) -> Frame | None:
        """Handles ``t.name = value`` for an attribute that C stores. ``then``: where the result of a call goes that does it."""
        if interp.trace.active and overridden(interp, (t, value)):
            asked = call_override(interp, f, descr.__set__, (t, value), None, then)
            if asked is not NO_OVERRIDE:
                return asked
        self._set_attribute(interp, t, name, descr, value)
        return None

    def _sets_data(self, interp: Interp, t: Tensor, src: Source, value: Any) -> bool:
        """Makes a node of ``t.data = value``, on a tensor from before the segment; returns False, without an effect, if no graph can hold it."""
        trace = interp.trace
        if not is_a(value, Tensor) or not _may_set_data(interp, t, value):
            return False
        if not trace.load(t.is_leaf, trace.guards.access(src, "member", torch._C.TensorBase.is_leaf, t.is_leaf)):
            return False
        held, given = interp.backing.memory(interp, t), interp.backing.memory(interp, value)
        if interp.backing.may_be_symbolic and str((held.shape, held.stride())) != str((given.shape, given.stride())):
            # The program would read its symbols from the new sizes.
            raise interp.only_live(GraphBreak(setattr, (t, "data", value), None, "FL515", "the .data of an input gets other sizes").discard())
        args = trace.to_fx(t), trace.to_fx(value)
        trace.mutations.set_data(t, held, given)
        self.keep(interp, set_data, "call_function", set_data, args, {}, None)
        return True

    def _set_attribute(self, interp: Interp, t: Tensor, name: str, descr: Any, value: Any) -> None:
        trace = interp.trace
        src = trace.sources.get(t)
        if hides_class(t):
            # The guards and the program would read and write it, and the class would see that.
            raise GraphBreak(setattr, (t, name, value), None, "FL504", f"setting .{name} of a {type(t).__name__}, which overrides operators").discard()
        if name == "grad" and src is not None:
            if not interp.backing.real and value is not None and value not in trace.sources:
                raise interp.only_live(GraphBreak(setattr, (t, name, value), None, "FL515", "a gradient is set").discard())
            trace.mutations.set_slot(t, src, descr, t.grad, value)
            return
        if name == "requires_grad" and is_a(value, bool):
            set_requires_grad(interp, t, src, value)
            return
        if name == "data" and value is t:
            # Module.to() does this when it changes nothing: PyTorch copies the tensor's metadata from itself, or raises.
            t.data = value
            return
        if name == "data" and trace.active and _is_data_of(interp, value, t):
            # ``t.data -= x`` ends with this assignment, after its write in place.
            return
        if name == "data" and src is not None and trace.active and self._sets_data(interp, t, src, value):
            return
        # This also holds for a tensor made in the captured code: compilers that trace the graph do not see that its memory is replaced.
        raise GraphBreak(setattr, (t, name, value), None, "FL507", f"setting .{name} of a tensor").discard()


def _of_transform(f: Frame | None, args: list) -> bool:
    """Returns whether a call of `torch.autograd.grad` is that of a transform of torch.func, which function modes have seen."""
    while f is not None:
        if f.info.code is protocols.gradients.__code__:
            asked = args[1] if len(args) > 1 and type(args[1]) in (tuple, list) else ()
            return len(asked) == len(f.local[1]) and all(map(operator.is_, asked, f.local[1]))
        f = f.back
    return False


def _may_set_data(interp: Interp, t: Tensor, value: Any) -> bool:
    """Returns whether a graph can hold ``t.data = value``."""
    alike = [type(x) in PLAIN_TENSORS and x.layout is torch.strided and not x.is_inference() for x in (t, value)]
    if not all(alike) or (t.dtype, t.device) != (value.dtype, value.device) or t._is_view():
        return False
    inner = interp.nested.opaque is not None or interp.nested.subgraph_rules is not None
    return not inner and not torch._C._functorch.get_dynamic_layer_stack_depth() and not _written(interp, t)


def note_wrappers(interp: Interp, given: Any) -> None:
    """Notes what the tensors of wrapper subclasses among an operator's results, or those that it wrote into, consist of."""
    if is_wrapper(given):
        if holds_masks(given) and given not in interp.trace.containers.wrappers:
            _note_masks(interp, given)
        if not interp.trace.note_result(given):
            interp.fail("FL503", f"an operator replaced the inner tensors or the context of a {type(given).__name__}", True)
    elif is_a(given, (tuple, list)):
        for item in given:
            note_wrappers(interp, item)


def _note_masks(interp: Interp, t: Tensor) -> None:
    if not interp.backing.real:
        own_masks(t)
        return
    for buffer in mask_buffers(t):
        interp.trace.mutations.note_mask(buffer)


def _sizes(interp: Interp, fn: Any, args: Any, kwargs: Any, found: Any) -> Any:
    """Returns what a call gives that reads sizes or strides; breaks the graph if one is made of that of a ragged dimension.

    This size itself is a symbol, in a capture on fakes.
    """
    if not is_ragged(found):
        return found
    symbols, text = interp.trace.symbols, f"{describe(fn)} reads the size of a ragged dimension"
    if is_jagged(args[0]) and (fn is Tensor.size or (fn is getattr and args[1] == "shape")):
        if symbols is not None and all([symbols.note_lengths(args[0], n) for n in numbers(found) if stands_for_lengths(n)]):
            return found
        if interp.backing.real and interp.nested.subgraph_rules is None and not interp.nested.any() and interp.may_restart():
            raise Restart("FL508", text)
    raise GraphBreak(fn, args, kwargs, "FL508", text)


def _is_data_of(interp: Interp, value: Any, t: Tensor) -> bool:
    """Returns whether ``value`` is the result of ``t.data``, with the same memory, shape, strides and dtype as ``t``."""
    recorder = interp.trace.recorder
    node = recorder.find(value) if type(value) in PLAIN_TENSORS else None
    if node is None or node.target is not getattr or node.args != (recorder.find(t), "data"):
        return False
    mine, theirs = interp.backing.memory(interp, t), interp.backing.memory(interp, value)
    return storage_of(mine) == storage_of(theirs) and (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)


def _note_mutation(interp: Interp, t: Tensor, mutations: MutationLog | None) -> None:
    recorder = interp.trace.recorder
    for x in memory_of(_memory(interp, t)):
        if x.layout is torch.strided:
            if mutations is not None:
                mutations.note_version(x) if is_wrapper(x) else mutations.note_storage(x)
            recorder.writes.add(x.untyped_storage())


def _memory(interp: Interp, t: Tensor) -> Tensor:
    """Returns the tensor that owns the memory of ``t`` for the capture: below functorch's wrappers, and in fake mode its fake."""
    while torch._C._functorch.is_functorch_wrapped_tensor(t):
        t = torch._C._functorch.get_unwrapped(t)
    return interp.backing.memory(interp, t)


def _written(interp: Interp, t: Tensor) -> bool:
    """Returns whether the graph has, or may have, written into the memory of ``t`` so far."""
    storages = interp.trace.recorder.writes.storages
    return any([x.layout is not torch.strided or x.untyped_storage()._cdata in storages for x in memory_of(_memory(interp, t))])


def tensor_descriptor(name: str) -> Any:
    for cls in Tensor.__mro__:
        d = cls.__dict__.get(name)
        if d is not None:
            return d if not is_a(d, property) else torch._C.TensorBase.__dict__.get(name)
    return None


def _only_tensors(items: Any) -> bool:
    return all(is_a(x, Tensor) or x is None or (is_a(x, (tuple, list)) and _only_tensors(x)) for x in items)
