"""Maps the errors of a graph's own checks to those that the user's code would raise."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Inductor repeats the checks, with messages like "u0 <= 3".
_COMPILED_CHECK = re.compile(r"\bu\d+\b")


def as_user(errors: Mapping[str, type[Exception]], error: BaseException) -> BaseException:
    """Returns the error that the user's code would raise, if ``error`` comes from one of the graph's own checks; otherwise ``error``."""
    own = [cls(text) for text, cls in errors.items() if text in str(error)]
    if not own and len(errors) == 1 and _COMPILED_CHECK.search(str(error)):
        own = [cls(text) for text, cls in errors.items()]
    return own[0] if own else error
