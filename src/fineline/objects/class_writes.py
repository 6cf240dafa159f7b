"""Plain attributes of a class that the function sets, such as a counter that all its instances share."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fineline.objects.attribute_reads import TYPE_DICT, kind_of, raw_lookup, type_info
from fineline.tracing.segment_trace import HEAP_TYPE, SegmentTrace

# A name's value in each of them is guarded.
MOST_CLASSES = 16
CONSTANTS = frozenset({int, float, bool, str, type(None)})


class OfClass:
    """An attribute of a class, set and read as a slot is."""

    def __init__(self, cls: type, name: str) -> None:
        self.__objclass__ = type(cls)
        self.__name__ = name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return self if obj is None else TYPE_DICT.__get__(obj)[self.__name__]

    def __set__(self, obj: Any, value: Any) -> None:
        type.__setattr__(obj, self.__name__, value)


def set_on_class(trace: SegmentTrace, cls: type, name: str, value: Any) -> bool:
    """Sets an attribute of a class from outside, if it is a constant before and after; -> whether that was so."""
    own = TYPE_DICT.__get__(cls)
    plain = type(cls) is type and cls.__flags__ & HEAP_TYPE and not issubclass(cls, Tensor) and cls not in trace.classes
    if not plain or name not in own or name.startswith("__") or type(own[name]) not in CONSTANTS or type(value) not in CONSTANTS:
        return False
    if trace.lazy:
        trace.settle(value)
    # What it was is guarded, or has been written here; of subclasses too, which may be asked for it once it is written.
    classes = _below(cls)
    if len(classes) > MOST_CLASSES:
        return False
    infos = [type_info(trace, t) for t in classes]
    for info in infos:
        info.look(trace, name)
    slot = next((d for obj, _, d, _ in trace.mutations.slots.values() if obj is cls and type(d) is OfClass and d.__name__ == name), None)
    trace.mutations.set_slot(cls, trace.pin(cls, cls.__qualname__), slot or OfClass(cls, name), own[name], value)
    for info in infos:
        found = raw_lookup(info.cls, name)
        info.found[name] = kind_of(found), found
        info.behind.clear()
    return True


def _below(cls: type) -> list[type]:
    """Returns ``cls`` and its subclasses, not many more than the limit."""
    found = [cls]
    for t in found:
        derived: list[type] = type.__subclasses__(t)
        found += [d for d in derived if d not in found]
        if len(found) > MOST_CLASSES:
            break
    return found
