"""The words for every id, from the table in ``refusals.toml``: a title, why fineline refuses, and what to do next."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType


@dataclass(frozen=True)
class Refusal:
    """What an id stands for: a title of a few words, why fineline refuses, and the next step for the user."""

    title: str
    explanation: str
    next_step: str


_TABLE = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))
REFUSALS: Mapping[str, Refusal] = MappingProxyType({id: Refusal(**words) for id, words in _TABLE.items()})
