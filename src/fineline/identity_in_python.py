"""The types of ``fineline/identity.py``, for a build without the native core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

V = TypeVar("V")
D = TypeVar("D")
_NO_DEFAULT: Any = object()


class _Map(Generic[V]):
    """The methods of both kinds of maps. ``_entries`` maps an address to the key (None if borrowed) and the value."""

    __slots__ = ("_entries",)
    _owns: bool

    def __init__(self, pairs: Iterable[tuple[Any, V]] = (), /) -> None:
        self._entries: dict[int, tuple[Any, V]] = {}
        self.update(pairs)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object, /) -> bool:
        return id(key) in self._entries

    def __getitem__(self, key: Any, /) -> V:
        if id(key) not in self._entries:
            raise _missing(key)
        return self._entries[id(key)][1]

    def __setitem__(self, key: Any, value: V, /) -> None:
        self._entries[id(key)] = key if self._owns else None, value

    def __delitem__(self, key: Any, /) -> None:
        self.pop(key)

    @overload
    def get(self, key: Any, /) -> V | None: ...
    @overload
    def get(self, key: Any, default: V | D, /) -> V | D: ...
    def get(self, key: Any, default: Any = None, /) -> Any:
        return self._entries.get(id(key), (None, default))[1]

    def setdefault(self, key: Any, default: V, /) -> V:
        return self._entries.setdefault(id(key), (key if self._owns else None, default))[1]

    @overload
    def pop(self, key: Any, /) -> V: ...
    @overload
    def pop(self, key: Any, default: V | D, /) -> V | D: ...
    def pop(self, key: Any, default: Any = _NO_DEFAULT, /) -> Any:
        if default is _NO_DEFAULT and id(key) not in self._entries:
            raise _missing(key)
        return self._entries.pop(id(key), (None, default))[1]

    def values(self) -> list[V]:
        return [value for _, value in self._entries.values()]

    def update(self, pairs: Iterable[tuple[Any, V]] | _Map[V], /) -> None:
        """Adds the entries of a map of the same kind, or pairs of a key and a value."""
        if isinstance(pairs, _Map):
            if type(pairs) is not type(self):
                raise TypeError(f"{type(self).__name__} is made of pairs, not of {type(pairs).__name__}")
            self._entries.update(pairs._entries)
            return
        for pair in pairs:
            if type(pair) is not tuple or len(pair) != 2:
                raise TypeError(f"a map is made of pairs, not of {type(pair).__name__}")
            self[pair[0]] = pair[1]

    def clear(self) -> None:
        before, self._entries = self._entries, {}
        before.clear()


class IdentityMap(_Map[V]):
    """A dict whose keys are objects by identity, which it keeps alive."""

    __slots__ = ()
    _owns = True

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._entries.values()])

    def items(self) -> list[tuple[Any, V]]:
        return list(self._entries.values())

    def at(self, addresses: AddressSet, /) -> list[V]:
        """Returns the values of the keys at ``addresses``; a key may be a new object at the address of a dead one."""
        if not isinstance(addresses, AddressSet):
            raise TypeError(f"at() takes an AddressSet, not {type(addresses).__name__}")
        return [self._entries[at][1] for at in addresses._keys if at in self._entries]

    def copy(self) -> IdentityMap[V]:
        made: IdentityMap[V] = IdentityMap()
        made.update(self)
        return made


class AddressMap(_Map[V]):
    """A dict whose keys are addresses of objects, which it does not keep alive: a new object at an address gets its entry."""

    __slots__ = ()
    _owns = False
    # Without this, iteration would read the keys 0, 1, ...
    __iter__ = None

    def addresses(self) -> AddressSet:
        """Returns the addresses of the keys."""
        made = AddressSet()
        made._keys = dict.fromkeys(self._entries)
        return made

    def copy(self) -> AddressMap[V]:
        made: AddressMap[V] = AddressMap()
        made.update(self)
        return made


class _Set:
    """The methods of both kinds of sets. ``_keys`` maps an address to the key (None if borrowed)."""

    __slots__ = ("_keys",)
    _owns: bool

    def __init__(self, keys: Iterable[Any] = (), /) -> None:
        self._keys: dict[int, Any] = {}
        self.update(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object, /) -> bool:
        return id(key) in self._keys

    def add(self, key: Any, /) -> None:
        self._keys.setdefault(id(key), key if self._owns else None)

    def update(self, keys: Iterable[Any], /) -> None:
        for key in keys:
            self.add(key)

    def discard(self, key: Any, /) -> None:
        self._keys.pop(id(key), None)

    def clear(self) -> None:
        before, self._keys = self._keys, {}
        before.clear()


class IdentitySet(_Set):
    """A set of objects by identity, which it keeps alive."""

    __slots__ = ()
    _owns = True

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._keys.values()))

    def copy(self) -> IdentitySet:
        return IdentitySet(self)


class AddressSet(_Set):
    """A set of addresses of objects, which it does not keep alive: a new object at an address counts as a member."""

    __slots__ = ()
    _owns = False

    def update(self, keys: Iterable[Any] | AddressSet, /) -> None:
        if isinstance(keys, AddressSet):
            self._keys.update(keys._keys)
        else:
            super().update(keys)

    def intersection(self, other: AddressSet, /) -> AddressSet:
        """Returns the addresses that are in both."""
        if not isinstance(other, AddressSet):
            raise TypeError(f"intersection() takes an AddressSet, not {type(other).__name__}")
        made = AddressSet()
        made._keys = {at: None for at in self._keys if at in other._keys}
        return made

    def copy(self) -> AddressSet:
        made = AddressSet()
        made.update(self)
        return made


def _missing(key: Any) -> KeyError:
    """Returns a KeyError that neither runs code of the key nor keeps it alive."""
    return KeyError(f"an object of type {type(key).__name__}")
