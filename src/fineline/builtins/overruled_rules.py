"""Built-in rules that a user's rule overrules: what capture skips, or takes for one node, and a ``trace`` rule has it look into."""

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
    """Returns the function in Python that is run through because ``rule`` says so; None: by default it is, or there is nothing to look into.

    What is one node by default is looked into only if the rule is about that very function: a glob or a file restores what is skipped.
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
