"""Built-in rules that a user's ``trace`` rule overrules: capture traces into a function that it would skip, or record as one node."""

from __future__ import annotations

import types
from typing import Any

from fineline.builtins.handlers import HANDLERS
from fineline.builtins.marks import own_function
from fineline.kinds import is_a
from fineline.objects.lru_caches import LRU_TYPE
from fineline.policy.marks import dynamo_kind
from fineline.policy.rule import Rule
from fineline.torch_facts.callables import classify_torch

SKIPPED = ("data", "effect")


def looked_into(fn: Any, rule: Rule) -> types.FunctionType | None:
    """Returns the Python function that capture traces into because of ``rule``; None if it does so by default, or there is not Python code.

    A function that is skipped by default needs any rule; one that is a node by default needs a rule for its name or the object itself.
    """
    if is_a(fn, LRU_TYPE):
        wrapped = getattr(fn, "__wrapped__", None)
        return wrapped if is_a(wrapped, types.FunctionType) else None
    if not is_a(fn, types.FunctionType) or fn in HANDLERS or own_function(fn) is not None:
        return None
    kind = classify_torch(fn)
    if kind in SKIPPED or (kind == "op" and rule.selector.kind in ("object", "name")):
        return fn
    if kind in (None, "python") and (fn.__module__ or "").startswith("torch._dynamo") and dynamo_kind(fn) == "opaque":
        return fn
    return None
