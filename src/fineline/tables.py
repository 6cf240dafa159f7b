"""Finds the owners and attributes that the tables of callables name; an absent name gets no row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def imported(path: str) -> Any:
    """Returns a module, or a class in one (``"torch.utils.hooks:BackwardHook"``), if it is imported and exists; else None."""
    module, _, cls = path.partition(":")
    found = sys.modules.get(module)
    return getattr(found, cls, None) if cls else found


def attributes(owner: Any, names: str) -> Iterator[Any]:
    """Yields the attributes that exist and are not None. ``names``: separated by blanks; ``owner``: an object, or a path for `imported`.

    Names may be absent: notebooks hide `exit` and `quit`, ``python -S`` and frozen programs have none of the `site` builtins,
    hosts may remove others, and a build of PyTorch or NumPy may leave modules and functions out.
    """
    found = imported(owner) if isinstance(owner, str) else owner
    for name in names.split() if found is not None else ():
        if (value := getattr(found, name, None)) is not None:
            yield value
