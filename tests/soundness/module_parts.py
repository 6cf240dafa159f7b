"""What random programs of modules call and are given: exceptions, blocks, threads, signals, inputs; and the handlers put back behind them."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

import fineline

__all__ = [
    "Bang", "Boom", "Box", "Double", "Pair", "Part", "Scope", "arguments", "aside", "attempt", "both", "fail", "hidden", "in_thread", "noted", "own", "ring",
    "scope",
]  # fmt: skip


class Boom(Exception):
    """What programs raise on purpose."""


class Bang(Boom):
    """A kind of Boom, so that handlers have to tell the two apart."""


@dataclasses.dataclass
class Box:
    t: torch.Tensor
    n: int = 2
    items: list[Any] = dataclasses.field(default_factory=list)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Scope:
    """A block that tells when it begins and ends, and holds back the exceptions it is told to."""

    def __init__(self, log: list[Any], name: str, *held_back: type[BaseException]) -> None:
        self.log, self.name, self.held_back = log, name, held_back

    def __enter__(self) -> Scope:
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None}")
        return kind is not None and issubclass(kind, self.held_back)


@contextlib.contextmanager
def scope(log: list[Any], name: str) -> Iterator[str]:
    log.append(f"enter {name}")
    try:
        yield name
    except Boom as error:
        log.append(f"{name} saw {error}")
        raise
    finally:
        log.append(f"exit {name}")


@fineline.disable
def aside(x: torch.Tensor) -> torch.Tensor:
    """Runs eagerly: a graph break."""
    return x * 2 + 1


@fineline.disable
def noted(log: list[Any], tag: str) -> int:
    log.append(f"noted {tag}")
    return len(log)


@fineline.disable
def ring() -> None:
    """Delivers a signal here and now."""
    signal.raise_signal(signal.SIGUSR1)


def fail(tag: str, when: object = True) -> None:
    if when:
        raise Boom(tag)


def in_thread(run: Callable[[], Any]) -> Any:
    """What ``run`` gives or raises in a thread of its own."""
    return both(run)[0]


def both(*runs: Callable[[], Any]) -> list[Any]:
    """What each gives in a thread of its own, all at once; an exception as its type and text."""
    results: list[Any] = [None] * len(runs)
    gate = threading.Barrier(len(runs))

    def call(place: int) -> None:
        gate.wait(60)
        try:
            results[place] = runs[place]()
        except Exception as error:
            results[place] = (type(error).__name__, str(error))

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@contextlib.contextmanager
def attempt(log: list[Any]) -> Iterator[None]:
    """A change to a program's state; earlier changes may have made it impossible."""
    try:
        yield
    except Exception as error:
        log.append(f"no change: {type(error).__name__} {error}")


@contextlib.contextmanager
def process_kept() -> Iterator[None]:
    """Gives back what programs change for the process; the numbers of their hooks begin anew, so that two runs are equal."""
    handler, number = signal.getsignal(signal.SIGUSR1), RemovableHandle.next_id
    RemovableHandle.next_id = 0
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, handler)
        RemovableHandle.next_id = number


class Part(torch.nn.Module):
    """What the modules of programs have in common."""

    scale = 2

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4))
        self.square = torch.nn.Parameter(torch.randn(4, 4))
        self.register_buffer("seen", torch.zeros(4))
        self.count = 0
        self.items = [1, 2]
        self.mode = "a"
        self.factor = 0.5
        self.last: Any = None


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def own(module: Any) -> type[Any]:
    """The class of a module, if it is the program's: other programs use PyTorch's."""
    kind = type(module)
    if not issubclass(kind, Part) or kind is Part:
        raise TypeError("not a class of this program")
    return kind


def arguments(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def hidden(compiled: Any) -> contextvars.ContextVar[Any]:
    """Holds what is compiled where the oracle does not look: run eagerly, it is another object."""
    return contextvars.ContextVar("hidden", default=compiled)
