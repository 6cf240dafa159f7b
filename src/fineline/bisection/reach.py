"""What a call reaches besides its arguments: modules, optimizers, tensors, and the containers and attributes that it may change."""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fineline.api import recipe_of
from fineline.identity import IdentitySet

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType)
_DICTS = frozenset({dict, OrderedDict, defaultdict})
_LISTS = frozenset({list, deque})
# Parts of a module's path that users do not write.
_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
# Objects of these packages are left alone: they are machinery, and may belong to other code too.
_OTHERS = sys.stdlib_module_names | {"torch", "fineline", "numpy"}


class Reach:
    """What functions and modules reach: by attributes, closures, defaults, items of containers, and the names of globals in their code.

    Attributes and items are put back as they were. ``tensors``: by the path on which they are found.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self._roots = list(roots)
        self.modules: list[nn.Module] = []
        self._places: list[_Place] = []
        self.tensors: dict[str, Tensor] = {}
        for path, value in self._walk():
            if isinstance(value, Tensor):
                self.tensors[path] = value
            elif isinstance(value, nn.Module):
                self.modules.append(value)
            if (place := _place(value)) is not None:
                self._places.append(place)

    def put_back(self) -> None:
        for place in self._places:
            place.put_back()

    def current(self) -> dict[str, Tensor]:
        """Returns the tensors that are reached now: a call may have put others in their places."""
        return {path: value for path, value in self._walk() if isinstance(value, Tensor)}

    def _walk(self) -> Iterator[tuple[str, Any]]:
        """Yields the objects that are reached, each once, with the path on which it is found; outer objects before inner ones."""
        seen: IdentitySet = IdentitySet()
        waiting = deque([("", root) for root in self._roots])
        while waiting:
            path, value = waiting.popleft()
            if isinstance(value, _ATOMS) or value in seen:
                continue
            seen.add(value)
            yield path, value
            waiting += [(_joined(path, name), inner) for name, inner in _inside(value)]


class _Place:
    """Contents of an object that are put back. ``put``: writes these items into it."""

    def __init__(self, read: Callable[[], list[Any]], put: Callable[[list[Any]], None]) -> None:
        self._read, self._put, self._before = read, put, read()

    def put_back(self) -> None:
        now = self._read()
        if len(now) != len(self._before) or any(a is not b for a, b in zip(now, self._before, strict=True)):
            self._put(self._before)


def _place(value: Any) -> _Place | None:
    """Returns what is put back of an object itself; None if nothing is."""
    if type(value) in _DICTS:
        return _of_dict(value)
    if type(value) in _LISTS or type(value) is set:
        return _Place(lambda: list(value), lambda items: _refill(value, items))
    if isinstance(value, types.FunctionType):
        cells = list(value.__closure__ or ())
        return _Place(lambda: list(map(_content, cells)), lambda items: _fill(cells, items)) if cells else None
    return _of_dict(vars(value)) if _has_attributes(value) else None


def _of_dict(table: dict[Any, Any]) -> _Place:
    def read() -> list[Any]:
        return [word for item in table.items() for word in item]

    def put(words: list[Any]) -> None:
        table.clear()
        table.update(zip(words[::2], words[1::2], strict=True))

    return _Place(read, put)


def _refill(container: Any, items: list[Any]) -> None:
    container.clear()
    (container.update if type(container) is set else container.extend)(items)


def _fill(cells: list[types.CellType], items: list[Any]) -> None:
    for cell, item in zip(cells, items, strict=True):
        if item is not _EMPTY and _content(cell) is not item:
            cell.cell_contents = item


_EMPTY = object()


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _has_attributes(value: Any) -> bool:
    """Returns whether the attributes of an object are followed and put back: of modules, optimizers, and instances of users' classes."""
    if isinstance(value, (nn.Module, Optimizer)):
        return True
    home = str(type(value).__module__).partition(".")[0]
    return home not in _OTHERS and isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, Tensor)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what an object refers to, with the name that it has there."""
    value = recipe_of(value)[0] if callable(value) else value
    if type(value) in _DICTS:
        yield from [(str(key) if isinstance(key, (str, int)) else "", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple, set, deque)):
        yield from [(str(i), item) for i, item in enumerate(value)]
    elif isinstance(value, types.MethodType):
        yield from [("", value.__self__), ("", value.__func__)]
    elif isinstance(value, functools.partial):
        yield from [("", value.func), ("", value.args), ("", value.keywords)]
    elif isinstance(value, types.FunctionType):
        code = value.__code__
        yield from zip(code.co_freevars, map(_content, value.__closure__ or ()), strict=True)
        yield from [("", item) for item in value.__defaults__ or ()]
        yield from [(name, v) for name in _names(code) if (v := value.__globals__.get(name)) is not None and _is_followed(v)]
    elif _has_attributes(value):
        if isinstance(value, nn.Module):
            yield "", value.forward
        elif callable(value):
            yield "", type(value).__call__
        yield from [("" if name in _TABLES else name, item) for name, item in vars(value).items()]


def _names(code: types.CodeType) -> Iterator[str]:
    """Yields the names of globals and attributes in a code object, and in those of functions that it makes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_followed(value: Any) -> bool:
    """Returns whether a global is followed: not the functions of PyTorch and of other machinery."""
    home = getattr(value, "__module__", None) if isinstance(value, types.FunctionType) else None
    return str(home).partition(".")[0] not in _OTHERS


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
