"""The state from which each run of a call begins: copies of the arguments, the contents of modules, random numbers."""

from __future__ import annotations

import copy
import random
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fineline.identity import IdentityMap, IdentitySet
from fineline.torch_facts.random_state import put_back, random_states

# Attributes of modules that are put back: others may be shared with other objects.
_PLAIN = (bool, int, float, str, type(None))


class World:
    """The arguments of a call, and what it may change: the modules that the callable and its arguments reach, and random states."""

    def __init__(self, fn: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._given = tuple(args), dict(kwargs)
        modules = IdentitySet(_modules([fn, *args, *kwargs.values()]))
        self._modules = [_ModuleState(module) for module in modules]
        tensors = IdentitySet(t for state in self._modules for t in state.tensors())
        self._tensors = [_TensorState(t) for t in tensors]
        self._random = random_states(), random.getstate()

    def put_back(self) -> tuple[tuple, dict[str, Any]]:
        """Restores what the last run has changed; returns new copies of the arguments."""
        for module in self._modules:
            module.put_back()
        for tensor in self._tensors:
            tensor.put_back()
        put_back(self._random[0])
        random.setstate(self._random[1])
        copied: tuple[tuple, dict[str, Any]] = _copied(self._given)
        return copied

    @property
    def paths(self) -> Mapping[int, str]:
        """Returns the paths of the modules in the outermost ones, by identity; these are kept alive here."""
        found: dict[int, str] = {}
        for module in self._modules:
            for name, inner in module.module.named_modules():
                found.setdefault(id(inner), name)
        return found

    @property
    def has_new_gradients(self) -> bool:
        """Returns whether the last run has given a gradient to a module's tensor that had none, or another one."""
        return any(tensor.has_new_gradient for tensor in self._tensors)

    def tensors(self) -> list[Tensor]:
        """Returns copies of the contents of the modules' tensors."""
        return [t.detach().clone() for module in self._modules for t in module.tensors()]

    def gradients(self) -> list[Tensor | None]:
        """Returns copies of the gradients of the modules' tensors."""
        return [None if t.grad is None else t.grad.detach().clone() for module in self._modules for t in module.tensors()]


class _ModuleState:
    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._tables = {name: dict(getattr(module, name)) for name in ("_parameters", "_buffers")}
        self._plain = {name: v for name, v in vars(module).items() if type(v) in _PLAIN}

    def tensors(self) -> list[Tensor]:
        return [t for name in self._tables for t in getattr(self.module, name).values() if t is not None]

    def put_back(self) -> None:
        for name, table in self._tables.items():
            own = getattr(self.module, name)
            if own != table:
                own.clear()
                own.update(table)
        vars(self.module).update(self._plain)


class _TensorState:
    def __init__(self, t: Tensor) -> None:
        self._tensor, self._before = t, t.detach().clone()
        self._gradient = None if t.grad is None else (t.grad, t.grad.detach().clone())

    @property
    def has_new_gradient(self) -> bool:
        if self._gradient is None or self._tensor.grad is None:
            return self._tensor.grad is not None
        return self._tensor.grad is not self._gradient[0] or not torch.equal(self._tensor.grad, self._gradient[1])

    def put_back(self) -> None:
        with torch.no_grad():
            self._tensor.detach().copy_(self._before)
            if self._gradient is None:
                self._tensor.grad = None
            else:
                self._tensor.grad = self._gradient[0]
                self._gradient[0].copy_(self._gradient[1])


def _modules(values: Sequence[Any]) -> Iterator[nn.Module]:
    """Yields the modules that values are, contain, or refer to as functions do: by ``self``, a closure, defaults, or names of globals."""
    seen: IdentitySet = IdentitySet()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, nn.Module):
            yield from value.modules()
            waiting.append(value.forward)
        elif isinstance(value, types.MethodType):
            waiting += [value.__self__, value.__func__]
        elif isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
            named = [value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__]
            functions = [v for v in named if isinstance(v, types.FunctionType) and v.__module__ == value.__module__]
            waiting += [*cells, *(value.__defaults__ or ()), *[v for v in named if isinstance(v, nn.Module)], *functions]
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _copied(given: Any) -> Any:
    """Copies arguments: tensors with their kind (leaves, results), each once; modules, functions and what can't be copied stay."""
    copies: IdentityMap[Any] = IdentityMap()

    def one(value: Any) -> Any:
        if value not in copies:
            copies[value] = _copy_of(value)
        return copies[value]

    return tree_map(one, given)


def _copy_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        with torch.no_grad():
            fresh = value.detach().clone()
        return fresh.requires_grad_(value.requires_grad)
    if isinstance(value, (nn.Module, types.FunctionType, types.MethodType, type)):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
