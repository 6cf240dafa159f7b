"""The words for every id, from the table in ``refusals.toml``: a title, why fineline refuses, and what to do next."""

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


# By the loader of the package: in a zip archive or a frozen program there is no such file.
_TEXT = pkgutil.get_data("fineline", "refusals.toml") or b""
_TABLE = tomllib.loads(_TEXT.decode())
REFUSALS: Mapping[str, Refusal] = MappingProxyType({id: Refusal(**words) for id, words in _TABLE.items()})
