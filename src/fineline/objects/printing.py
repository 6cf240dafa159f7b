"""Printing in C: checks whether it runs Python code, and replaces the symbolic numbers that it prints."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch

from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC, settle_all, settled

_FORMATS = (str.format, str.format_map)
_ATTRIBUTE = re.compile(r"\{[^{}:!]*\.")


def asks(fn: Any, given: Any) -> bool:
    """Returns whether the format method ``fn`` reads attributes of its arguments, because the format contains a field with one."""
    return fn in _FORMATS and is_a(given[0], str) and _ATTRIBUTE.search(given[0]) is not None


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
        # Symbolic numbers have no hash, so that sets contain none.
        items = value
    else:
        return value
    found = [written_out(x, (*within, id(value))) for x in items]
    return value if all([x is y for x, y in zip(found, items, strict=True)]) else _like(value, t, found)


def _like(value: Any, t: type, items: list) -> Any:
    """Returns a container like ``value`` with these ``items``, without calling the user's class."""
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
