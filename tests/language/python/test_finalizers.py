"""Objects that are told by ``__del__`` that nothing refers to them: once for each, at the end of the call at the latest."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline

HEARD: list[Any] = []


class Told:
    def __init__(self, value: Any) -> None:
        self.value = value
        HEARD.append("begins")

    def __del__(self) -> None:
        HEARD.append(self.value)


class Derived(Told):
    pass


def deleted(x: Any) -> Any:
    told = Told(x.shape[0])
    y = x * told.value
    del told
    return y


def across_a_break(x: Any) -> Any:
    told = Derived(3)  # noqa: F841
    y = x * 2
    print(end="")
    return y + 1


def in_a_loop(x: Any) -> Any:
    for k in range(3):
        x = x * Derived(k + 1).value + 1
    return x


def held(x: Any) -> Any:
    told = [Told("held")]
    return (told[0].value, x.sin() * 2)


def never_kept(x: Any) -> Any:
    Told("alone")
    return x.sin() * 2


@pytest.mark.parametrize("fn", [deleted, across_a_break, in_a_loop, held, never_kept], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"options": {"first_call": "compiled"}}], ids=str)
def test_each_end_is_told_once(fn: Any, how: dict[str, Any]) -> None:
    compiled = fineline.compile(fn, backend="eager", **how)
    for n in (3, 3, 4, 4, 5):
        runs = []
        for call in (fn, compiled):
            HEARD.clear()
            out = call(torch.ones(n))
            runs.append((sorted(map(str, HEARD)), str(out)))
        assert runs[0] == runs[1]
