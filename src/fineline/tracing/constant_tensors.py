"""Tensors whose numbers are as fixed as a guarded value: computed from constants alone, or read and guarded after a graph break."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.fake.fake_tensors import Fakes
from fineline.identity import AddressMap, IdentitySet
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import unknown
from fineline.torch_facts.callables import classify_torch

# Deterministic operators without writes: applied to constant tensors, they return constant tensors.
_NAMES = (
    "_is_all_true _is_any_true "
    "abs add all amax amin any arange as_tensor bool cat ceil clamp clone contiguous cumsum detach div double eq expand eye flatten float "
    "float_power floor floor_divide fmod full full_like ge gt int isfinite isinf isnan le linspace log log2 logical_and logical_not "
    "logical_or long lt max maximum mean min minimum mul ne neg ones ones_like pow prod remainder reshape round scalar_tensor sign sqrt "
    "squeeze stack sub sum tensor to true_divide trunc unsqueeze view where zeros zeros_like"
)
_OPERATORS = "abs add and_ eq floordiv ge getitem gt invert le lt mod mul ne neg not_ or_ pow sub truediv"
FOLDED = IdentitySet(
    fn
    for owners, names in (((torch, Tensor, torch._C.TensorBase), _NAMES), ((operator,), _OPERATORS))
    for owner in owners
    for name in names.split()
    if (fn := getattr(owner, name, None)) is not None
)
# Functions whose result for a constant tensor is a constant.
READERS = IdentitySet(
    getattr(owner, name)
    for owner, names in ((Tensor, "__bool__ __float__ __index__ __int__ allclose equal is_nonzero item tolist"), (torch, "allclose equal is_nonzero"))
    for name in names.split()
)
# Operators on tensors of one integer that can be computed with symbolic integers, by name.
_WHOLE: Mapping[str, Callable] = MappingProxyType(
    {
        **dict.fromkeys(("tensor", "as_tensor", "scalar_tensor", "clone", "contiguous", "detach", "long", "squeeze"), operator.pos),
        **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "floordiv")},
        **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
        "floor_divide": operator.floordiv, "maximum": torch.sym_max, "minimum": torch.sym_min,
    }
)
# The largest number that guards compute without an overflow.
_LARGEST = 2**62
# The most numbers in a constant tensor: larger ones are rarely read, and the table would keep all their numbers alive.
MOST = 64
# Classes of calls after which constant tensors stay constant: they write into no tensor.
HARMLESS = ("op", "data", "metadata", "query")


class ConstantTensors:
    """The tensors whose numbers are known, by identity, each with its version: a write into the tensor or the base of a view changes that."""

    def __init__(self) -> None:
        # Each tensor, which this table keeps alive, its version, and the tensor with the numbers.
        self._held: AddressMap[tuple[Tensor, int, Tensor]] = AddressMap()

    def __bool__(self) -> bool:
        return bool(self._held)

    def _memory(self, t: Tensor) -> Tensor:
        """Returns the tensor whose version and storage show whether ``t`` was written to."""
        return t

    def add(self, t: Any, mutated: set[int], value: Any = None) -> None:
        """Adds a constant tensor. ``value``: the tensor with the numbers, if ``t`` is a fake."""
        if type(value if type(t) is FakeTensor else t) is not Tensor or t.numel() > MOST:
            return
        if t.layout is torch.strided and t.device.type == "cpu" and not t.is_inference():
            if not torch._C._functorch.is_functorch_wrapped_tensor(t):
                memory = self._memory(t)
                self._held[t] = (t, memory._version, t if value is None else value)
                # A mutated storage that was noted under this address no longer exists.
                mutated.discard(memory.untyped_storage()._cdata)

    def has(self, t: Tensor, mutated: Collection[int]) -> bool:
        """Returns whether the numbers in ``t`` are known. ``mutated``: the storages that captured code wrote to."""
        held = self._held.get(t)
        if held is None:
            return False
        t = self._memory(t)
        return held[1] == t._version and not (mutated and t.untyped_storage()._cdata in mutated)

    def numbers(self, a: Any) -> Any:
        """Returns ``a`` with each constant tensor replaced by the tensor that has its numbers."""
        if is_a(a, Tensor):
            return self._held[a][2]
        return type(a)([self.numbers(x) for x in a]) if type(a) in (tuple, list) else a

    def all_known(self, values: Any, mutated: Collection[int]) -> bool:
        """Returns whether all tensors among ``values`` are constant."""
        for v in values:
            if is_a(v, Tensor):
                if not self.has(v, mutated):
                    return False
            elif type(v) in (tuple, list) and not self.all_known(v, mutated):
                return False
        return True

    def carry(self, fn: Any, mutated: Collection[int]) -> None:
        """Keeps, at a graph break that calls ``fn``, the constant tensors that later programs can also rely on."""
        if self._held and (classify_torch(fn) or "") not in HARMLESS:
            self._held = AddressMap()
        elif self._held:
            # The entry and the call of `getrefcount` hold references. A tensor without others can no longer be read.
            alive = [held for held in self._held.values() if sys.getrefcount(held[0]) > 2 + (held[2] is held[0])]
            # A tensor whose version has changed is not constant later either.
            self._held = AddressMap([(held[0], held) for held in alive if not mutated or self.has(held[0], mutated)])

    def clear(self) -> None:
        self._held.clear()

    def number(self, t: Any, mutated: Collection[int]) -> Any:
        """Returns the symbolic number that a tensor of one number holds; None if it is unknown."""
        return None

    def computed(self, fn: Any, args: Any, kwargs: dict | None, result: Any, mutated: set[int]) -> None:
        """Adds the result of an operator, if it is one integer or truth value that is computed from symbolic integers."""


class FakeConstants(ConstantTensors):
    """The constant tensors of a capture on fakes, and tensors that hold one symbolic number."""

    def __init__(self, fakes: Fakes) -> None:
        super().__init__()
        self._fakes = fakes
        self._symbolic: AddressMap[tuple[Tensor, int, torch.SymInt]] = AddressMap()

    def __bool__(self) -> bool:
        return bool(self._held or self._symbolic)

    def _memory(self, t: Tensor) -> Tensor:
        return self._fakes.twin(t)

    def clear(self) -> None:
        super().clear()
        self._symbolic.clear()

    def number(self, t: Any, mutated: Collection[int]) -> Any:
        held = self._symbolic.get(t)
        if held is None or held[1] != held[0]._version or held[0].untyped_storage()._cdata in mutated:
            return None
        return held[2]

    def computed(self, fn: Any, args: Any, kwargs: dict | None, result: Any, mutated: set[int]) -> None:
        if type(result) is not FakeTensor or result.dim() or result.dtype not in (torch.int64, torch.bool) or len(args) > 2:
            return
        rounding = {k: v for k, v in (kwargs or {}).items() if k not in ("dtype", "device")}
        compute = _WHOLE.get(getattr(fn, "__name__", ""))
        values = [self._whole(a, mutated) for a in args]
        if None in values or torch.SymInt not in map(type, values) or any(map(unknown, values)):
            return
        if fn in (torch.div, Tensor.div) and rounding in ({"rounding_mode": "trunc"}, {"rounding_mode": "floor"}):
            # For non-negative numbers, both roundings are the same.
            natural = bool(values[0] >= 0 and values[1] > 0)
            compute, rounding = (operator.floordiv, {}) if natural else (None, {})
        elif fn not in FOLDED and fn is not torch._refs.tensor:
            return
        number = compute(*values) if compute is not None and not rounding else None
        if number is not None and (type(number) is not torch.SymInt or _fits(number)):
            self._symbolic[result] = result, result._version, number
            mutated.discard(result.untyped_storage()._cdata)

    def _whole(self, a: Any, mutated: set[int]) -> Any:
        if type(a) in (int, torch.SymInt):
            return a
        if not is_a(a, Tensor) or a.dim() or a.dtype is not torch.int64:
            return None
        return self.numbers(a).item() if self.has(a, mutated) else self.number(a, mutated)


def _fits(number: torch.SymInt) -> bool:
    """Returns whether a tensor holds ``number`` without wrapping around; guards that, unless the number is a symbol that was read unchanged."""
    return bool(number.node.expr.is_Symbol) or bool(number <= _LARGEST and number >= -_LARGEST)
