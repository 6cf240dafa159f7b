"""Nothing happens silently: operators captured + eager + skipped are the operators that ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fineline

X = torch.rand(3, 4)


class Count(TorchDispatchMode):
    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += 1
        return func(*args, **(kwargs or {}))


@fineline.disable
def eager(x):
    return x.sin() + x.cos()


@fineline.disable(recursive=False)
def frame_only(x):
    return plain(x.sin()) * 2


def plain(x):
    return (x * 2).relu()


def whole(x):
    return plain(x) + 1


def with_break(x):
    y = plain(x)
    if y.sum() > 0:
        y = eager(y)
    return frame_only(y).tanh()


def with_block(x):
    with fineline.disable():
        y = plain(x) + 1
    return y * 2


def given_up(x):
    out = iter([plain(x), x + 1])
    next(out)
    return {frozenset({1}): plain(next(out))}, type("Odd", (), {})().__class__.__name__


async def wait(x):
    return x + 1


def coroutine(x):
    wait(x).close()
    return x * 2


def composite(x):
    return nn.functional.multi_head_attention_forward(
        x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1), 4, 2, torch.rand(12, 4), None, None, None, False, 0.0, torch.rand(4, 4), None
    )[0]


@pytest.mark.parametrize("fn", [whole, with_break, with_block, given_up, composite], ids=lambda fn: fn.__name__)
def test_each_operator_is_accounted_for(fn: Callable) -> None:
    with Count() as count:
        fn(X)
    told = fineline.explain(fn)(X)
    assert sum(told.ran.values()) == count.total and told.ran["captured"] > 0


def test_kinds() -> None:
    assert fineline.explain(whole)(X).ran == {"captured": 3, "eager": 0, "skipped": 0}
    told = fineline.explain(lambda x: eager(plain(x)))(X)
    assert told.ran == {"captured": 2, "eager": 0, "skipped": 3}
    told = fineline.explain(with_block)(X)
    assert told.ran == {"captured": 1, "eager": 0, "skipped": 3}
    told = fineline.explain(coroutine)(X)
    assert told.ran["skipped"] == 0 and [e.id for e in told.events if e.kind == "skipped"] == ["FL405"]


def skips(told: Any) -> list[tuple[str, str, int]]:
    return [(e.id, e.file, e.line) for e in told.events if e.kind == "skipped"]


def test_what_is_not_looked_into_is_told() -> None:
    def both(x):
        return eager(eager(x))

    told = fineline.explain(both)(X)
    assert skips(told) == [("FL400", __file__, eager.__wrapped__.__code__.co_firstlineno)] * 2
    assert all("eager" in e.reason and e.rule.startswith("disable(") for e in told.events if e.kind == "skipped")
    text = str(told).partition("skipped, not traced into:")[2]
    assert "eager is disabled  (2 times)" in text and f"rule disable({__name__}.eager)" in text
    told = fineline.explain(with_block)(X)
    assert skips(told) == [("FL430", __file__, with_block.__code__.co_firstlineno + 1)] and told.ran["skipped"] == 3
    told = fineline.explain(frame_only)(X)
    assert told.ran == {"captured": 2, "eager": 0, "skipped": 2} and skips(told)
    assert not skips(fineline.explain(whole, policy=fineline.Policy(disallow=torch.relu))(X))
    assert fineline.explain(whole, policy=fineline.Policy(disallow=torch.relu))(X).ran == {"captured": 2, "eager": 1, "skipped": 0}


def test_a_region_that_captures_nothing_is_skipped() -> None:
    async def waits(x):
        return x + 1

    told = fineline.explain(waits)(X)
    assert [(e.id, e.reason) for e in told.events] == [("FL405", f"{waits.__qualname__} is an async function")]
    with fineline.disable(reason="not now"):
        told = fineline.explain(whole)(X)
    here = test_a_region_that_captures_nothing_is_skipped.__code__.co_firstlineno
    assert told.ran == {"captured": 0, "eager": 0, "skipped": 3} and [e.kind for e in told.events] == ["skipped"]
    assert [(rule.place, rule.reason, n) for rule, n in told.rules.items()] == [(f"{__file__}:{here + 6}", "not now", 1)]


def test_programs_that_run_again_count_as_what_they_are() -> None:
    @fineline.disable(recursive=False)
    def repeated(x):
        for _ in range(4):
            x = plain(x)
        return x

    told = fineline.explain(lambda x: repeated(x))(X)
    assert told.ran == {"captured": 8, "eager": 0, "skipped": 0}


def test_blocks_and_graph_breaks_are_among_the_rules() -> None:
    def f(x):
        for _ in range(2):
            fineline.graph_break("here")
            with fineline.disable():
                x = x + 1
        return x * 2

    told = fineline.explain(f)(X)
    here = f.__code__.co_firstlineno
    assert {rule.key: n for rule, n in told.rules.items()} == {
        f"graph_break('here') at {__file__}:{here + 2}": 2, f"disable(with block) at {__file__}:{here + 3}": 2,
    }  # fmt: skip
