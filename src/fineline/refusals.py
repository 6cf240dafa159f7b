"""The texts for each id, from the table in ``refusals.toml``: a title, why fineline refuses, and the next step."""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Refusal:
    """The meaning of an id: a title of a few words, the reason why fineline refuses, and the next step for the user."""

    title: str
    explanation: str
    next_step: str


# The package's loader reads it: a zip archive or a frozen program has no such file on disk.
_TEXT = pkgutil.get_data("fineline", "refusals.toml") or b""
_TABLE = tomllib.loads(_TEXT.decode())
REFUSALS: Mapping[str, Refusal] = MappingProxyType({id: Refusal(**words) for id, words in _TABLE.items()})
