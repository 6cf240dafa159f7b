"""Methods of builtin containers in plain Python, for the interpreter to run where items, keys or values are not of builtin types."""
# Plain statements, because the shorter forms would call the functions defined here.
# ruff: noqa: SIM105, SIM110, SIM113, SIM118

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import Any

from torch import Size

from fineline.bytecode.version import CURRENT
from fineline.cpython.polyfill_builtins import ask_length, iterator, sequence
from fineline.cpython.protocols import MISSING, special
from fineline.kinds import is_a

_ABSENT = object()


def list_extend(self: list[Any], iterable: Iterable[Any], /) -> None:
    source = iter(iterable)
    ask_length(iterable)
    for item in source:
        list.append(self, item)


def list_iadd(self: list[Any], value: Iterable[Any], /) -> list[Any]:
    list.extend(self, value)
    return self


_NOT_ASSIGNED = CURRENT.worded("can only assign an iterable")


def list_setitem(self: list[Any], key: Any, value: Any, /) -> None:
    if is_a(key, slice):
        value = list(iterator(value, _NOT_ASSIGNED if key.step is None else "must assign iterable to extended slice"))
    list.__setitem__(self, key, value)


# Types without methods in Python: a plain subscript keeps their symbolic numbers symbolic.
_PLAIN = (list, tuple, Size)


def _size(sequence: Any) -> int:
    """Returns the length of a list or a tuple as C reads it, even if its class defines ``__len__``."""
    if type(sequence) in _PLAIN:
        return len(sequence)
    return list.__len__(sequence) if is_a(sequence, list) else tuple.__len__(sequence)


def _at(sequence: Any, i: int) -> Any:
    """Returns the item that C reads from a list or a tuple, even if its class defines ``__getitem__``."""
    if type(sequence) in _PLAIN:
        return sequence[i]
    return list.__getitem__(sequence, i) if is_a(sequence, list) else tuple.__getitem__(sequence, i)


def sequence_contains(self: Any, key: Any, /) -> bool:
    i = 0
    while i < _size(self):
        item = _at(self, i)
        if item is key or item == key:
            return True
        i += 1
    return False


def sequence_count(self: Any, value: Any, /) -> int:
    count, i = 0, 0
    while i < _size(self):
        item = _at(self, i)
        if item is value or item == value:
            count += 1
        i += 1
    return count


_NOT_IN_LIST = CURRENT.worded("{item!r} is not in list")


def list_index(self: list[Any], value: Any, start: Any = 0, stop: Any = sys.maxsize, /) -> int:
    found = _find(self, value, start, stop)
    if found < 0:
        raise ValueError(_NOT_IN_LIST.format(item=value))
    return found


def tuple_index(self: tuple[Any, ...], value: Any, start: Any = 0, stop: Any = sys.maxsize, /) -> int:
    found = _find(self, value, start, stop)
    if found < 0:
        raise ValueError("tuple.index(x): x not in tuple")
    return found


def _find(items: Any, value: Any, start: Any, stop: Any) -> int:
    i, end = _slice_index(start), _slice_index(stop)
    if i < 0:
        i = max(i + _size(items), 0)
    if end < 0:
        end = max(end + _size(items), 0)
    while i < end and i < _size(items):
        item = _at(items, i)
        if item is value or item == value:
            return i
        i += 1
    return -1


def _slice_index(value: Any) -> int:
    if not hasattr(type(value), "__index__"):
        raise TypeError("slice indices must be integers or have an __index__ method")
    return index(value)


def list_remove(self: list[Any], value: Any, /) -> None:
    i = _find(self, value, 0, sys.maxsize)
    if i < 0:
        raise ValueError("list.remove(x): x not in list")
    list.__delitem__(self, i)


def _differ_at(a: Any, b: Any) -> int:
    i = 0
    while i < _size(a) and i < _size(b):
        one, other = _at(a, i), _at(b, i)
        if not (one is other or one == other):
            return i
        i += 1
    return -1


def list_eq(self: list[Any], other: Any, /) -> Any:
    if not is_a(other, list):
        return NotImplemented
    return _size(self) == _size(other) and _differ_at(self, other) < 0 and _size(self) == _size(other)


def tuple_eq(self: Any, other: Any, /) -> Any:
    if not is_a(other, tuple):
        return NotImplemented
    return _differ_at(self, other) < 0 and _size(self) == _size(other)


def opposite(equal: Any) -> Any:
    """Returns the result of `__ne__` if that of `__eq__` is ``equal``."""
    return equal if equal is NotImplemented else not equal


def object_ne(self: Any, other: Any, /) -> Any:
    equal: Any = type(self).__eq__
    return opposite(equal(self, other))


def ordered(kind: Any, compare: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if not is_a(b, kind):
        return NotImplemented
    i = _differ_at(a, b)
    if i < 0:
        return compare(_size(a), _size(b))
    return compare(_at(a, i), _at(b, i))


def dict_(iterable: Any = (), /, **kwargs: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    dict_update(made, iterable, **kwargs)
    return made


def dict_update(self: dict[Any, Any], other: Any = (), /, **kwargs: Any) -> None:
    if is_a(other, dict) and type(other).__iter__ is dict.__iter__:
        # C reads the entries directly, even if its class defines other methods.
        for key in dict.keys(other):
            dict.__setitem__(self, key, dict.__getitem__(other, key))
    elif hasattr(other, "keys"):
        keys = other.keys()
        for key in sequence(keys, f"{type(other).__name__}.keys() returned a non-iterable (type {type(keys).__name__})"):
            dict.__setitem__(self, key, other[key])
    else:
        count = 0
        for element in other:
            pair = _pair(element, count)
            dict.__setitem__(self, pair[0], pair[1])
            count += 1
    for name in kwargs:
        dict.__setitem__(self, name, kwargs[name])


_NO_PAIR = CURRENT.worded("cannot convert dictionary update sequence element #{count} to a sequence")


def _pair(element: Any, count: int) -> Any:
    pair: Any = element if is_a(element, (list, tuple)) else _items_of_pair(element, count)
    if len(pair) != 2:
        raise ValueError(f"dictionary update sequence element #{count} has length {len(pair)}; 2 is required")
    return pair


def _items(element: Any, count: int) -> list[Any]:
    items = None
    try:
        items = list(element)
    except TypeError:
        pass
    if items is None:
        raise TypeError(_NO_PAIR.format(count=count))
    return items


def _noted_items(element: Any, count: int) -> list[Any]:
    try:
        # C asks the iterator for an iterator again.
        return list(iterator(element, _NO_PAIR))
    except TypeError as error:
        # As `add_note` does it, which would break the graph.
        notes = getattr(error, "__notes__", None)
        if notes is None:
            error.__notes__ = notes = []
        notes.append(f"Cannot convert dictionary update sequence element #{count} to a sequence")
        raise


_items_of_pair = _noted_items if CURRENT.notes_elements else _items


def ordered_dict(other: Any = (), /, **kwargs: Any) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = OrderedDict()
    ordered_dict_update(made, other, **kwargs)
    return made


def ordered_dict_update(self: OrderedDict[Any, Any], other: Any = (), /, **kwargs: Any) -> None:
    if hasattr(other, "keys"):
        for key in other.keys():
            self[key] = other[key]
    else:
        for pair in other.items() if hasattr(other, "items") else other:
            _add_pair(self, iter(pair))
    for name in kwargs:
        self[name] = kwargs[name]


def _add_pair(self: OrderedDict[Any, Any], pair: Iterator[Any]) -> None:
    parts: list[Any] = []
    for part in pair:
        if len(parts) == 2:
            raise ValueError("too many values to unpack (expected 2)")
        parts.append(part)
    if len(parts) < 2:
        raise ValueError("need more than 1 value to unpack" if parts else "need more than 0 values to unpack")
    self[parts[0]] = parts[1]


def default_dict(default_factory: Any = None, items: Any = (), /, **kwargs: Any) -> defaultdict[Any, Any]:
    made: defaultdict[Any, Any] = defaultdict(default_factory)
    dict_update(made, items, **kwargs)
    return made


def dict_fromkeys(cls: type, iterable: Iterable[Any], value: Any = None, /) -> Any:
    made = cls()
    for key in iterable:
        made[key] = value
    return made


def dict_getitem(self: dict[Any, Any], key: Any, /) -> Any:
    value = dict.get(self, key, _ABSENT)
    if value is not _ABSENT:
        return value
    missing = special(self, "__missing__")
    if missing is not MISSING:
        return missing(key)
    raise KeyError(key)


def dict_eq(self: dict[Any, Any], other: Any, /) -> Any:
    if not is_a(other, dict):
        return NotImplemented
    return dict.__len__(self) == dict.__len__(other) and _holds_all(other, self)


def _holds_all(other: dict[Any, Any], items: dict[Any, Any]) -> bool:
    for key in list(dict.keys(items)):
        value = dict.get(items, key, _ABSENT)
        if value is not _ABSENT:  # a comparison may have removed it meanwhile
            theirs = dict.get(other, key, _ABSENT)
            if theirs is _ABSENT or not (value is theirs or value == theirs):
                return False
    return True


def ordered_dict_eq(self: OrderedDict[Any, Any], other: Any, /) -> Any:
    equal = dict_eq(self, other)
    if equal is not True or not is_a(other, OrderedDict):
        return equal
    return list(OrderedDict.keys(self)) == list(OrderedDict.keys(other))


def dict_ior(self: dict[Any, Any], value: Any, /) -> dict[Any, Any]:
    dict.update(self, value)
    return self


def defaultdict_missing(self: defaultdict[Any, Any], key: Any, /) -> Any:
    factory = self.default_factory
    if factory is None:
        raise KeyError(key)
    value = factory()
    self[key] = value
    return value


def count_elements(mapping: Any, iterable: Iterable[Any], /) -> None:
    get = mapping.get
    for element in iterable:
        mapping[element] = get(element, 0) + 1


def set_(iterable: Iterable[Any] = (), /) -> set[Any]:
    made: set[Any] = set()
    set_update(made, iterable)
    return made


def set_update(self: set[Any], /, *others: Iterable[Any]) -> None:
    for other in others:
        for item in other:
            set.add(self, item)


def set_union(self: set[Any], /, *others: Iterable[Any]) -> set[Any]:
    made = set.union(self)
    set_update(made, *others)
    return made


def frozenset_union(self: frozenset[Any], /, *others: Iterable[Any]) -> frozenset[Any]:
    made = set(self)
    set_update(made, *others)
    return frozenset(made)


def set_intersection(self: set[Any], /, *others: Iterable[Any]) -> set[Any]:
    made = set.intersection(self)
    for other in others:
        if is_a(other, (set, frozenset)):
            made = made & other
            continue
        common: set[Any] = set()
        for item in other:
            if _is_in(made, item):
                common.add(item)
                if len(common) >= len(made):
                    break
        made = common
    return made


def _is_in(items: set[Any] | frozenset[Any], item: Any) -> bool:
    """Looks up an item that C hashes before: from Python 3.14 on, a lookup that hashes it adds what the item is used for to the error."""
    try:
        return item in items
    except TypeError as error:
        _, added, text = str(error).partition(" as a set element (")
        if not added:
            raise
    raise TypeError(text[:-1])


def set_difference(self: set[Any], /, *others: Iterable[Any]) -> set[Any]:
    made = set.difference(self)
    for other in others:
        set.difference_update(made, set_(other))
    return made


def set_difference_update(self: set[Any], /, *others: Iterable[Any]) -> None:
    for other in others:
        for item in other:
            set.discard(self, item)


def set_intersection_update(self: set[Any], /, *others: Iterable[Any]) -> None:
    kept = set_intersection(self, *others)
    set.clear(self)
    set.update(self, kept)


def set_symmetric_difference_update(self: set[Any], other: Iterable[Any], /) -> None:
    set.symmetric_difference_update(self, set_(other))


def set_isdisjoint(self: set[Any] | frozenset[Any], other: Iterable[Any], /) -> bool:
    for item in other:
        if item in self:
            return False
    return True


def set_issubset(self: set[Any] | frozenset[Any], other: Iterable[Any], /) -> bool:
    theirs = set_(other)
    for item in self:
        if item not in theirs:
            return False
    return True


def set_issubset_of_first(self: set[Any] | frozenset[Any], other: Iterable[Any], /) -> bool:
    """Tells whether ``other`` has all items, and asks an iterator for no more when it has."""
    if is_a(other, (set, frozenset)):
        return set_issubset(self, other)
    found: set[Any] = set()
    for item in other:
        if _is_in(self, item):
            set.add(found, item)
            if len(found) >= len(self):
                return True
    return len(found) == len(self)


def set_issuperset(self: set[Any] | frozenset[Any], other: Iterable[Any], /) -> bool:
    for item in other:
        if item not in self:
            return False
    return True


def deque_(iterable: Iterable[Any] = (), maxlen: int | None = None) -> deque[Any]:
    made: deque[Any] = deque(maxlen=maxlen)
    for item in iterable:
        made.append(item)
    return made


def deque_extend(self: deque[Any], iterable: Iterable[Any], /) -> None:
    if iterable is self:
        iterable = list(iterable)
    for item in iterable:
        deque.append(self, item)


def deque_extendleft(self: deque[Any], iterable: Iterable[Any], /) -> None:
    if iterable is self:
        iterable = list(iterable)
    for item in iterable:
        deque.appendleft(self, item)


def deque_iadd(self: deque[Any], value: Iterable[Any], /) -> deque[Any]:
    deque.extend(self, value)
    return self
