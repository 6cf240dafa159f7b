"""Printing in C: checks whether it runs Python code, and values for the symbolic numbers that it prints."""

from __future__ import annotations

import collections
import enum
import re
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch

from fineline.exception_slots import ARGS
from fineline.kinds import is_a
from fineline.objects.type_info import in_python, type_info
from fineline.symbolic.arithmetic import SYMBOLIC, settle_all, settled
from fineline.tracing.classes_made_anew import HEAP_TYPE
from fineline.tracing.identity_guards import VIEWS
from fineline.tracing.segment_trace import SegmentTrace

_NAMES = ("__str__", "__repr__", "__format__")
# Methods in Python that print nothing but what the members hold: of enumerations, named tuples and counters.
_PLAIN = (vars(enum), vars(collections))
_FORMATS = (str.format, str.format_map)
_ATTRIBUTE = re.compile(r"\{[^{}:!]*\.")


def prints_plainly(trace: SegmentTrace, a: Any, within: tuple[int, ...] = ()) -> bool:
    """Returns whether C makes a text of ``a``, which it may compare, without running user code in Python."""
    t = type(a)
    if t in SYMBOLIC or id(a) in within:
        return True
    if t.__flags__ & HEAP_TYPE and not all([_in_c(trace, t, name) for name in _NAMES]):
        return False
    if is_a(a, dict):
        items: Any = [*dict.keys(a), *dict.values(a)]
    elif is_a(a, (list, tuple, set, frozenset, deque)):
        items = a
    elif t is slice:
        items = a.start, a.stop, a.step
    else:
        # There is no other one to be printed in the place of these.
        items = ARGS.__get__(a) if is_a(a, BaseException) else a if t in VIEWS else [*a.items()] if t is types.MappingProxyType else ()
        if any([written_out(x) is not x for x in items]):
            return False
    return all([prints_plainly(trace, x, (*within, id(a))) for x in items])


def asks(fn: Any, given: Any) -> bool:
    """Returns whether ``fn`` is to read attributes of what it is ``given``, as a pattern says."""
    return fn in _FORMATS and is_a(given[0], str) and _ATTRIBUTE.search(given[0]) is not None


def _in_c(trace: SegmentTrace, t: type, name: str) -> bool:
    method = type_info(trace, t).look(trace, name)[1]
    return not in_python(method) or (is_a(method, types.FunctionType) and any([method.__globals__ is names for names in _PLAIN]))


def written_out(value: Any, within: tuple[int, ...] = ()) -> Any:
    """Returns ``value`` with plain numbers instead of symbolic ones, also deep in containers, for code that only makes a text of it."""
    t = type(value)
    if t in SYMBOLIC:
        return settled(value)
    if t is slice:
        return settle_all(value)
    if id(value) in within:
        return value
    if is_a(value, dict):
        items: Any = list((OrderedDict if is_a(value, OrderedDict) else dict).values(value))
    elif is_a(value, (tuple, list, deque)):
        # Symbolic numbers have no hash: there are none in sets.
        items = value
    else:
        return value
    found = [written_out(x, (*within, id(value))) for x in items]
    return value if all([x is y for x, y in zip(found, items, strict=True)]) else _like(value, t, found)


def _like(value: Any, t: type, items: list) -> Any:
    """Returns a container like ``value`` that holds ``items``, without a call of the user's class."""
    if t is torch.Size:
        return torch.Size(items)
    if is_a(value, tuple):
        return tuple.__new__(t, items)
    base: Any = next(kind for kind in (list, deque, defaultdict, OrderedDict, dict) if is_a(value, kind))
    made = base.__new__(t)
    if base is list:
        list.extend(made, items)
    elif base is deque:
        deque.__init__(made, items, value.maxlen)
    else:
        if base is defaultdict:
            defaultdict.__init__(made, value.default_factory)
        for k, x in zip(base.keys(value), items, strict=True):
            base.__setitem__(made, k, x)
    return made
