"""The state from which each run of a call begins: copies of the arguments, and what the call reaches, as it was."""

from __future__ import annotations

import copy
import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from fineline.bisection.reach import Reach
from fineline.errors import BadArgument
from fineline.fx.tensor_copies import copies_of, is_expanded
from fineline.report.differences import tensors_in
from fineline.torch_facts.random_state import RandomStates, put_back, random_states

_KEPT = (nn.Module, torch.optim.Optimizer, types.FunctionType, types.MethodType, type)


class World:
    """The arguments of a call, and what it may change: the modules, optimizers, tensors and containers that it reaches, and random states."""

    def __init__(self, fn: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._given = tuple(args), dict(kwargs)
        self._reach = Reach([fn, *[leaf for leaf in tree_leaves(self._given) if isinstance(leaf, _KEPT)]])
        lazy = next((name for name, t in self._reach.tensors.items() if is_lazy(t)), None)
        if lazy is not None:
            raise BadArgument(f"{lazy!r} has no size yet, so it can't be put back", next_step="Call the module once before, to give its parameters their sizes.")
        self._tensors = {name: _TensorState(t) for name, t in self._reach.tensors.items()}
        self._random = random_states(), random.getstate()

    def put_back(self) -> tuple[tuple, dict[str, Any]]:
        """Restores what the last run has changed; returns new copies of the arguments."""
        self._reach.put_back()
        for tensor in self._tensors.values():
            tensor.put_back()
        put_back(self._random[0])
        random.setstate(self._random[1])
        copied: tuple[tuple, dict[str, Any]] = copied_value(self._given, copies_of)
        return copied

    def perturb(self, args: object) -> None:
        """Changes each number of the arguments and of the tensors that are reached by one rounding, up or down."""
        for t in [*tensors_in(args), *[state.tensor for state in self._tensors.values()]]:
            if t.is_floating_point() and t.layout is torch.strided and not is_expanded(t):
                # As many up as down, in no order that rows or columns have.
                signs = torch.arange(t.numel(), device=t.device).mul_(7).remainder_(5).sub_(2).sign().view(t.shape)
                t.data.copy_(t.data * (1 + signs * torch.finfo(t.dtype).eps))

    @property
    def paths(self) -> Mapping[int, str]:
        """Returns the paths of the modules in the outermost ones, by identity; these are kept alive here."""
        found: dict[int, str] = {}
        for module in self._reach.modules:
            for name, inner in module.named_modules():
                found.setdefault(id(inner), name)
        return found

    @property
    def has_new_gradients(self) -> bool:
        """Returns whether the last run has given a gradient to a tensor that is reached and had none, or another one."""
        return any(tensor.has_new_gradient for tensor in self._tensors.values())

    def tensors(self) -> dict[str, Tensor]:
        """Returns copies of the contents of the tensors that are reached now, by name."""
        return {name: t.detach().clone() for name, t in self._reach.current().items()}

    def gradients(self) -> dict[str, Tensor | None]:
        """Returns copies of the gradients of the tensors that are reached."""
        gradients = {name: state.tensor.grad for name, state in self._tensors.items() if state.tensor.is_leaf}
        return {name: None if grad is None else grad.detach().clone() for name, grad in gradients.items()}

    @property
    def random(self) -> RandomStates:
        """Returns the random states from which each run begins."""
        return self._random[0]


class _TensorState:
    def __init__(self, t: Tensor) -> None:
        self.tensor, self._before = t, t.detach().clone()
        own = t.grad if t.is_leaf else None
        self._gradient = None if own is None else (own, own.detach().clone())

    @property
    def has_new_gradient(self) -> bool:
        own = self.tensor.grad if self.tensor.is_leaf else None
        if self._gradient is None or own is None:
            return own is not None
        return own is not self._gradient[0] or not torch.equal(own, self._gradient[1])

    def put_back(self) -> None:
        with torch.no_grad():
            # Without a new version: a history of the user's may need the tensor as it is.
            if self.tensor.shape != self._before.shape or is_expanded(self.tensor):
                self.tensor.data = self._before.clone()
            else:
                self.tensor.data.copy_(self._before)
            if self._gradient is not None:
                self._gradient[0].data.copy_(self._gradient[1])
            if self.tensor.is_leaf:
                self.tensor.grad = None if self._gradient is None else self._gradient[0]


def copied_value(value: Any, copies: Callable[[Sequence[Tensor]], Sequence[Tensor]]) -> Any:
    """Returns a copy of a value, with ``copies`` of the tensors in it; modules, optimizers and functions stay, and what can't be copied does."""
    tensors = list(tensors_in(value))
    memo: dict[int, Any] = {id(t): copied for t, copied in zip(tensors, copies(tensors), strict=True)}
    return _copied(value, memo)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, _KEPT):
        return value
    made: Any
    if type(value) is list or type(value) is tuple:
        made = type(value)([_copied(item, memo) for item in value])
    elif type(value) is dict:
        made = {key: _copied(item, memo) for key, item in value.items()}
    else:
        try:
            made = copy.deepcopy(value, memo)
        except Exception:
            made = value
    memo[id(value)] = made
    return made
