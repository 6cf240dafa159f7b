"""The dict of a mappingproxy, such as a class's own dict, of which code reads single names."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from fineline.fx.recorder import NotForGraph
from fineline.objects.attribute_reads import TYPE_DICT
from fineline.objects.class_writes import OfClass
from fineline.tracing.identity_guards import shown_by
from fineline.tracing.segment_trace import SegmentTrace


def shown(trace: SegmentTrace, proxy: MappingProxyType) -> Any:
    """Returns what ``proxy`` shows; what is read of it then is guarded as it is read."""
    inner = shown_by.__get__(proxy, MappingProxyType)
    for obj, _, slot, _ in trace.mutations.slots.values():
        if type(slot) is OfClass and shown_by.__get__(TYPE_DICT.__get__(obj), MappingProxyType) is inner:
            raise NotForGraph("the names of a class that has been written to")
    src = trace.sources.get(id(proxy))
    if src is not None:
        trace.load(inner, trace.guards.access(src, "member", shown_by, inner))
    return inner
