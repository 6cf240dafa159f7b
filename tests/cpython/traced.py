"""Values whose special methods are Python and leave a trace, and what a call with them comes to: to compare polyfills with C."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterator
from typing import Any

LOG: list[Any] = []


class Item:
    """A value whose comparisons and arithmetic are Python, and leave a trace."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Item({self.value})"

    def __hash__(self) -> int:
        LOG.append(("hash", self.value))
        return hash(self.value)

    def __bool__(self) -> bool:
        LOG.append(("bool", self.value))
        return bool(self.value)

    def __iadd__(self, other: Any) -> Item:
        LOG.append(("iadd", self.value))
        return Item(self.value + getattr(other, "value", other))

    def __index__(self) -> int:
        return self.value


def _compare(name: str) -> Callable[[Item, Any], Any]:
    def compare(self: Item, other: Any) -> Any:
        other = getattr(other, "value", other)
        LOG.append((name, self.value, other))
        if self.value == "bad" or other == "bad":
            raise RuntimeError("bad item")
        return getattr(operator, name)(self.value, other)

    return compare


for _name in ("lt", "le", "eq", "ne", "gt", "ge", "add", "mul"):
    setattr(Item, f"__{_name}__", _compare(_name))
Item.__radd__ = lambda self, other: Item(other + self.value)  # type: ignore[attr-defined]


class Walk:
    """An iterable in Python that logs, and raises where an item is an exception."""

    def __init__(self, *items: Any, name: str = "walk") -> None:
        self.queue = list(items)
        self.name = name

    def __iter__(self) -> Iterator[Any]:
        LOG.append((self.name, "iter"))
        return Walker(self)


class Walker:
    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def __iter__(self) -> Walker:
        return self

    def __next__(self) -> Any:
        LOG.append((self.walk.name, "next"))
        if not self.walk.queue:
            raise StopIteration
        item = self.walk.queue.pop(0)
        if isinstance(item, Exception):
            raise item
        return item


class Sized(Walk):
    def __len__(self) -> int:
        LOG.append("len")
        return len(self.queue)


class BadSize(Walk):
    def __len__(self) -> int:
        raise ValueError("no size")


class Sequence:
    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        LOG.append(("get", i))
        return self.items[i]


class Backwards(Sequence):
    def __reversed__(self) -> Any:
        return iter(["r"])


class NoReverse(Sequence):
    __reversed__ = None


class Mapping:
    def keys(self) -> Any:
        return Walk("a", "b", name="keys")

    def __getitem__(self, key: str) -> str:
        LOG.append(("item", key))
        return key * 2


class BadKeys:
    def keys(self) -> int:
        return 5


class Items:
    def items(self) -> Any:
        return walk(("i", 1))

    def __iter__(self) -> Any:
        return iter([("iter", 1)])


class Missing(dict):
    def __missing__(self, key: Any) -> Any:
        LOG.append(("missing", key))
        return key


def walk(*items: Any, **kwargs: Any) -> Walk:
    return Walk(*items, **kwargs)


def gen(*items: Any) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Exception):
            raise item
        yield item


def items(*values: Any) -> list[Item]:
    return [Item(v) for v in values]


def boom(*args: Any) -> Any:
    raise RuntimeError("boom")


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        LOG.append(("call", tuple(normal(a) for a in args)))
        return fn(*args)

    return call


def stop_at_two(x: int) -> int:
    if x == 2:
        raise StopIteration
    return x


def fail_at_two(x: int) -> int:
    if x == 2:
        raise RuntimeError("two")
    return x


def normal(value: Any, depth: int = 0) -> Any:
    """A value in a form to compare: iterators by what they yield, even beyond errors and the end."""
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [normal(v, depth) for v in value]
    if isinstance(value, dict):
        return type(value).__name__, [(normal(k, depth), normal(v, depth)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(repr(v) for v in value)
    if isinstance(value, Item):
        return repr(value)
    if hasattr(value, "__next__") and not isinstance(value, Walker) and depth < 3:
        seen: list[Any] = []
        ends = 0
        while ends < 2 and len(seen) < 12:
            try:
                item = next(value)
            except StopIteration:
                ends += 1
                seen.append("end")
            except Exception as e:
                seen.append((type(e), str(e)))
            else:
                seen.append(normal(item, depth + 1))
        return seen
    if isinstance(value, (Walk, Sequence, Mapping, BadKeys, Items, Walker)) or callable(value) or hasattr(value, "__next__"):
        return type(value).__name__
    if value != value:
        return "nan"
    return type(value), value


def outcome(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]], kwargs: Callable[[], dict[str, Any]]) -> Any:
    LOG.clear()
    args = make()
    try:
        result: Any = normal(fn(*args, **kwargs()))
    except Exception as e:
        result = ("raised", type(e), str(e), type(e.__context__), type(e.__cause__))
    log = list(LOG)
    return result, log, [normal(a, 3) for a in args]
