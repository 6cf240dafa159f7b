"""The interpreter that runs the body of a control-flow operator: on fakes, and not past the first thing that no graph can hold."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

from fineline.fake.fake_tensors import Fakes, NotFakeable
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import ASKED, READS, GraphBreak, NotCapturable, Restart
from fineline.frames.stub_frames import is_own
from fineline.fx.body_recorder import BodyRecorder
from fineline.guards.facts import AMBIENT
from fineline.interp.trial import Trial
from fineline.tensor_ops.backing import FakeBacking
from fineline.tensor_ops.subgraphs.bodies import NoBody
from fineline.tensor_ops.tensor_indices import numbers_in_tensors
from fineline.tensor_ops.tensors import TensorOps
from fineline.torch_facts.thread_state import RESTORED, hidden_states, leave_dual_levels, put_back_hidden, restore
from fineline.tracing.interp import Interp

# Modules whose variables count levels of forward-mode gradients.
_COUNTERS = frozenset(map(id, (vars(eager_transforms), vars(forward_ad))))


class BodyTensors(TensorOps):
    """Operators on fakes: what hangs on the tensors, such as their gradients, belongs to the code around the body."""

    states = RESTORED

    def __init__(self, indices: bool, recorder: BodyRecorder, before: TensorOps) -> None:
        super().__init__(before)
        self.indices, self.recorder = indices, recorder

    def operator(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, used: bool = False) -> Any:
        if fn is Tensor.requires_grad_ and any([args[0] is t for t in self.recorder.given()]):
            interp.fail("FL520", "it changes what it is given", False)
        places = numbers_in_tensors(fn, args) if self.indices else None
        if places is not None:
            # The operator sees to it that no such number is read from its tensor.
            fx = interp.trace.to_fx(args[0]), interp.trace.to_fx(args[1])
            result = interp.backing.run(interp, torch.ops.aten.index, (args[0], places), None)
            return self.keep(interp, fn, "call_function", operator.getitem, fx, {}, result)
        return super().operator(interp, fn, args, kwargs, used)

    def attribute(self, interp: Interp, t: Tensor, name: str, kind: str) -> Any:
        if kind == "source":
            interp.fail("FL520", f"it asks for .{name} of a tensor", False)
        return super().attribute(interp, t, name, kind)

    def set_attribute(self, interp: Interp, t: Tensor, name: str, descr: Any, value: Any) -> None:
        interp.fail("FL520", f"it sets .{name} of a tensor", False)


class _Written(set):
    """The memory that a body writes into: only its own."""

    def __init__(self, interp: BodyInterpreter) -> None:
        super().__init__()
        self.interp = interp

    def add(self, storage: int) -> None:
        if any([self.interp.backing.memory(self.interp, t).untyped_storage()._cdata == storage for t in self.interp.recorder.given()]):
            self.interp.refuse_because("it writes into a tensor from around it")
        super().add(storage)


class BodyInterpreter(Trial):
    """The interpreter that a body runs on."""

    recorder: BodyRecorder

    def __init__(self, outer: Any, fakes: Fakes, indices: bool) -> None:
        super().__init__(outer, {}, outer.trace.made.copy())
        self.use(FakeBacking(fakes))
        self.recorder = BodyRecorder(outer.trace.recorder)
        self.tensors = BodyTensors(indices, self.recorder, self.tensors)
        self.nested.make_trial, self.nested.make_body = outer.nested.make_trial, outer.nested.make_body
        self.recorder.writes.storages = _Written(self)
        self.mutations.counters = _COUNTERS
        self.why, self.error, self.rule = "it changes something that is not its own", "FL520", ""

    def settled(self, fn: Any, args: list) -> Any:
        """Calls ``attempt``, and restores PyTorch's state after it."""
        before, hidden = AMBIENT.now(), hidden_states()
        nested, level = eager_transforms.JVP_NESTING, forward_ad._current_level
        try:
            return self.attempt(fn, args)
        except NotFakeable as e:
            raise NoBody(f"it uses {e}") from None
        except Restart as e:
            raise NoBody(e.text + self.reached()) from None
        except (NotCapturable, GraphBreak):
            raise NoBody(self.why + self.reached(), self.error, self.rule) from None
        finally:
            self.nested.leave_inference_modes()
            restore(before)
            put_back_hidden(hidden)
            reached, forward_ad._current_level = forward_ad._current_level, level
            leave_dual_levels(reached)
            eager_transforms.JVP_NESTING = nested
            self.stand_ins.forget()

    def number(self, n: Any) -> Any:
        """Returns the node of a symbolic number that the body gives."""
        trace = self.trace
        before, trace.recorder = trace.recorder, self.recorder
        try:
            return trace.symbols.node(n)
        except Restart as e:
            raise NoBody(e.text) from None
        finally:
            trace.recorder = before

    def run(self, throw: BaseException | None = None) -> Any:
        before = AMBIENT.now()
        value = super().run(throw)
        if AMBIENT.now() != before:
            self.refuse_because("it leaves PyTorch in another state")
        return value

    def reached(self) -> str:
        """Returns where it has come to."""
        f = self.frame
        while f is not None and is_own(f.info.code):
            f = f.back
        return f" ({f.info.code.co_filename}:{f.line})" if f is not None else ""

    def refuse_because(self, why: str) -> None:
        self.why = why
        raise NotCapturable

    def at_graph_break(self, graph_break: GraphBreak) -> Frame:
        self.why = f"it breaks the graph: {graph_break.reason}"
        # In the other mode this may be a number.
        self.error = graph_break.error if graph_break.error in READS | ASKED else "FL520"
        self.rule = graph_break.rule
        raise NotCapturable

    def fail(self, error: str, text: str, hint: bool) -> None:
        self.refuse_because(text)
