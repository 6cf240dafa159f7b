"""Operators that need the value of a number that varies: PyTorch asks for it when it runs the operator, differentiates it, or compiles the graph.

The program then specializes on the number. An operator that has asked for several values runs eagerly, between two graphs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.asynchronous import let_pass
from fineline.fake.fake_tensors import Fakes, NotFakeable
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Restart
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import SYMBOLIC, numbers
from fineline.symbolic.floats import hint
from fineline.tensor_ops.backing import computing
from fineline.tensor_ops.speculation import leaves_of
from fineline.tensor_ops.tensor_operator import TensorOperator
from fineline.torch_facts.wrapper_subclasses import stands_for_lengths

_FLOATS = frozenset({torch.SymFloat})


def free_numbers(call: TensorOperator) -> list:
    """Returns the numbers among an operator's arguments that may have another value in the next call, except unbacked ones."""
    trace, found = call.interp.trace, []
    if trace.symbols is not None:
        free = [n for n in numbers(call.all_args) if type(n) is not torch.SymBool and not stands_for_lengths(n)]
        found = [n for n in free if n.node.has_hint() and not n.node.expr.is_number]
    if trace.deferred.unsymbolic:
        found += [n for n in call.all_args if type(n) is complex and (src := trace.deferred.numbers.get(n)) is not None and "eq" not in src.checked]
    return found


class AskedNumbers:
    """Specializes on the numbers that vary among the arguments of one operator, if the operator or the backend asks for their values."""

    __slots__ = ("_call", "_earlier", "_fakes", "_frame", "_numbers", "_used")

    def __init__(self, call: TensorOperator, frame: Frame, free: list, used: bool) -> None:
        """Breaks the graph if earlier calls asked for other values. ``used``: the caller needs the result, so a graph break is not possible."""
        interp = call.interp
        self._call, self._frame, self._numbers, self._used = call, frame, free, used
        if not used and interp.varying.asks_outside(interp, frame):
            raise call.graph_break("FL448", "asks for a number that varies")
        # Fakes on which the backend's questions are asked during capture. Inside a transform of torch.func, the result has no history of its own.
        inside = torch._C._functorch.get_dynamic_layer_stack_depth()
        self._fakes: Fakes | None = interp.backing.body_fakes(rows=False) if interp.lessons.numbers.backend_asks and not (inside or interp.backing.real) else None
        # The histories of the operands. The nodes of the result's history that come after them belong to this operator.
        self._earlier: list[Any] = []
        if self._fakes is not None:
            self._fakes.mode.kept_floats = False
            try:
                self._earlier = [t.grad_fn for t in _tensors(self._fakes.inside(list(call.all_args)))]
            except NotFakeable:
                # The operator will not run on fakes either.
                self._fakes = None

    def settle(self, result: Any) -> None:
        """Specializes on the numbers that the backend would ask for; restarts the capture if a number that was asked for varies from call to call."""
        call, interp = self._call, self._call.interp
        asked = [n for n in self._numbers if type(n) is complex or n.node.expr.is_number]
        if self._fakes is not None and len(asked) < len(self._numbers):
            with computing(interp):
                kinds = self._asked_by_backend(self._fakes, result)
            call.settle(kinds)
            asked = [n for n in self._numbers if type(n) is complex or n.node.expr.is_number or type(n) in kinds]
        if asked and self._varies([hint(n) for n in asked]) and not self._used and not interp.backing.real:
            raise Restart("FL448", f"{describe(call.fn)} asks for a number that varies", again=True)

    def _varies(self, values: list) -> bool:
        varying = self._call.interp.varying
        return varying.values_vary(self._call.interp, self._frame, values, varying.few_keys)

    def _asked_by_backend(self, fakes: Fakes, result: Any) -> frozenset[type]:
        """Returns the types of symbolic numbers whose values the backend will ask for: found by differentiating the operator on fakes."""
        try:
            fakes.differentiate(_tensors(fakes.inside(result)), self._earlier)
        except Exception as e:
            let_pass(e)
            return SYMBOLIC
        return _FLOATS if fakes.mode.kept_floats else frozenset()


def _tensors(value: Any) -> list[Tensor]:
    """Returns the tensors in ``value``, at any depth of nested tuples and lists."""
    return [leaf for leaf in leaves_of((value,)) if is_a(leaf, Tensor)]
