"""A cache of the facts about the process and the thread, by the native core's picture of them."""

from __future__ import annotations

from collections.abc import Callable

from fineline.guards.facts import AmbientFacts, ambient_facts
from fineline.guards.native_core import CORE

picture_ambient: Callable[[], bytes | None] = (lambda: None) if CORE is None else CORE.picture_ambient
# A process has few pictures, each of a few hundred bytes.
_MOST_PICTURES = 100


class AmbientTable:
    """A cache of ambient facts, by the native core's picture of the state: equal pictures mean equal facts.

    A capture needs the facts four times for each graph, and to read them takes longer than to run an operator.
    """

    def __init__(self) -> None:
        self._by_picture: dict[bytes, AmbientFacts] = {}

    def now(self) -> AmbientFacts:
        """Returns the same as `ambient_facts`."""
        picture = picture_ambient()
        known = self._by_picture.get(picture) if picture is not None else None
        if known is not None:
            return known
        facts = ambient_facts()
        # They belong to the picture only if nothing changed while Python ran.
        if picture is not None and picture_ambient() == picture:
            if len(self._by_picture) >= _MOST_PICTURES:
                self._by_picture.clear()
            self._by_picture[picture] = facts
        return facts


AMBIENT = AmbientTable()
