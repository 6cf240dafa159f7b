"""The dict of a mappingproxy, such as a class's own dict, from which code reads single names."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from fineline.tracing.identity_guards import shown_by
from fineline.tracing.segment_trace import SegmentTrace


def shown(trace: SegmentTrace, proxy: MappingProxyType) -> Any:
    """Returns the dict of ``proxy``; later reads guard the entries that they read."""
    inner = shown_by.__get__(proxy, MappingProxyType)
    src = trace.sources.get(proxy)
    if src is not None:
        trace.load(inner, trace.guards.access(src, "member", shown_by, inner))
    return inner
