"""Compares what the ranks of a process group decide in their captures: ranks that decide differently wait for each other for ever, or get wrong results."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.fx import Graph, Node

from fineline.errors import RanksDiffer
from fineline.fx.recorder import LAYOUT
from fineline.report.events import Event

_DECIDING = ("break", "eager", "skipped", "limit")


class Decision(NamedTuple):
    """A decision of a capture. ``key`` is the same on ranks that decide alike; ``text`` is for the message."""

    key: str
    text: str


def decisions_of(graph: Graph, events: Sequence[Event], ending: str) -> list[Decision]:
    """Returns the decisions in one segment: what is in its graph, why code runs outside of graphs, and how the segment ends."""
    found = [Decision(*_operator(node)) for node in graph.nodes if node.op not in ("placeholder", "output")]
    for event in events:
        if event.kind in _DECIDING:
            place = f"{os.path.basename(event.file)}:{event.line}"
            found.append(Decision(f"{event.kind} {event.id} {place}", f"{event.kind} {event.id} at {event.where}: {event.reason}"))
    return [*found, Decision(ending, ending)]


def _operator(node: Node) -> tuple[str, str]:
    name = f"operator {node.target if isinstance(node.target, str) else getattr(node.target, '__name__', node.target)}"
    layout: Any = node.meta.get(LAYOUT)
    if "_c10d_functional" in str(node.target) and hasattr(layout, "shape"):
        # Other operators may have other sizes on each rank.
        name += f" of {tuple(layout.shape)} {layout.dtype}"
    return name, name


class RankCheck:
    """The comparison of a region's first call between the ranks of the default process group."""

    def __init__(self, name: str, where: str) -> None:
        self._name, self._where = name, where
        self._begun = self._over = False
        self._seen = 0

    @property
    def is_open(self) -> bool:
        """Returns whether the first call is under way."""
        return self._begun and not self._over

    def begin(self) -> bool:
        """Begins the check if this is the first call, and there are other ranks; returns whether it does."""
        if self._begun or not dist.is_initialized() or dist.get_world_size() == 1:
            return False
        self._begun = True
        return True

    def compare(self, graph: Graph, events: Sequence[Event], ending: str) -> None:
        """Compares a segment with those of the other ranks; raises `RanksDiffer`. ``events``: all of the region."""
        new, self._seen = events[self._seen :], len(events)
        self._exchange(decisions_of(graph, new, ending), True)

    def end(self, events: Sequence[Event], error: BaseException | None) -> None:
        """Ends the check with the first call. If that has raised an ``error``, the other ranks hear of it, and this one does not wait for them."""
        if self._over:
            return
        self._over = True
        ending = "the call returns" if error is None else f"the call raises {type(error).__name__}"
        try:
            self._exchange(decisions_of(Graph(), events[self._seen :], ending), error is None)
        except dist.DistError:
            if error is None:
                raise

    def _exchange(self, decisions: list[Decision], waits: bool) -> None:
        store = dist.distributed_c10d._get_default_store()
        rank, size = dist.get_rank(), dist.get_world_size()
        lines = [Decision(f"capture of {self._name}", f"capture of {self._name} at {self._where}"), *decisions]
        # Each rank counts for itself, so that the others see what it does instead of what they do.
        n = store.add(f"fineline/count/{rank}", 1)
        store.set(f"fineline/{n}/{rank}/text", "\n".join([f"{key}\t{text}".replace("\n", " ") for key, text in lines]))
        store.set(f"fineline/{n}/{rank}", hashlib.sha256("\n".join([d.key for d in lines]).encode()).hexdigest())
        if not waits:
            return
        digests = []
        for other in range(size):
            try:
                store.wait([f"fineline/{n}/{other}"])
            except dist.DistError as e:
                self._over = True
                reason = f"rank {other} has not reached the latest decision of rank {rank}: {lines[-1].text}, in {lines[0].text}"
                raise RanksDiffer(reason, where=self._where) from e
            digests.append(store.get(f"fineline/{n}/{other}"))
        odd = next((other for other in range(size) if digests[other] != digests[0]), None)
        if odd is not None:
            self._over = True
            sides = [_lines(store.get(f"fineline/{n}/{r}/text")) for r in (0, odd)]
            raise RanksDiffer(_difference(self._name, odd, *sides), where=self._where)


def _lines(text: bytes) -> list[Decision]:
    return [Decision(*line.split("\t", 1)) for line in text.decode().split("\n")]


def _difference(name: str, odd: int, first: list[Decision], other: list[Decision]) -> str:
    """Returns a text with the first decision that differs on both ranks."""
    at = next((i for i, (a, b) in enumerate(zip(first, other, strict=False)) if a.key != b.key), min(len(first), len(other)))
    texts = [lines[at].text if at < len(lines) else "nothing more" for lines in (first, other)]
    return f"the ranks decide differently in the first call of {name}, after {at} equal decisions: rank 0: {texts[0]}; rank {odd}: {texts[1]}"
