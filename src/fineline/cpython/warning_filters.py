"""What Python does with a warning: whether it shows it at most once, and a function that issues it for a place in the code."""

from __future__ import annotations

import re
import sys
import types
import warnings
from typing import Any

_ONCE = ("default", "module", "once", "ignore")


def is_shown_once(text: str, category: type[Warning], module: str, line: int) -> bool:
    """Returns whether Python shows a warning at most once, itself and on the standard error, or never; not if it raises it, or cannot tell."""
    return _shown_by_python() and _action(text, category, module, line) in _ONCE


def _shown_by_python() -> bool:
    """Returns whether nothing replaces the functions of the module that show warnings, as a list that records them does."""
    names: Any = vars(warnings)
    replaced = names.get("showwarning") is not names.get("_showwarning_orig") or names.get("formatwarning") is not names.get("_formatwarning_orig")
    shows = names.get("_showwarnmsg_impl")
    # From Python 3.14 on, a context may have filters of its own.
    return not replaced and type(shows) is types.FunctionType and not getattr(sys.flags, "context_aware_warnings", False)


def _action(text: str, category: type[Warning], module: str, line: int) -> str:
    """Returns the action of the first filter that matches, as `warn_explicit` in C finds it; an empty text if a filter is of other types."""
    for item in [*warnings.filters]:
        action, message, base, where, at = item if type(item) is tuple and len(item) == 5 else ("", None, Warning, None, 0)
        if not (type(base) is type and type(at) is int and type(message) in _PATTERNS and type(where) in _PATTERNS):
            return ""
        if issubclass(category, base) and at in (0, line) and _matches(message, text) and _matches(where, module):
            return action
    return str(getattr(warnings, "defaultaction", "default"))


_PATTERNS = (type(None), str, re.Pattern)


def _matches(pattern: Any, text: str) -> bool:
    return pattern is None or (pattern == text if type(pattern) is str else pattern.match(text) is not None)


def issue(text: str, category: type[Warning], file: str, line: int, namespace: dict[str, Any]) -> None:
    """Issues a warning for a line of the module with this ``namespace``, where Python notes what it has shown."""
    shown = namespace.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, file, line, namespace["__name__"], shown)
