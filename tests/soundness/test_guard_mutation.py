"""Every kind of thing that a function can read: change it between calls, and change it back; the guards must see both.

A case is a function that makes ``(fn, args, change)`` afresh: ``change`` is a context manager that changes what ``fn`` reads on entry and
reverts it on exit. The compiled function must agree with eager before, during and after; after the revert it must not capture again.
The cases lie in ``mutations/``, by the kind of thing that is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fineline
from tests.soundness.freeze import Freezer, differences
from tests.soundness.mutations import (
    ambient,
    classes,
    constants,
    containers,
    data_classes,
    descriptors,
    functions,
    identity,
    membership,
    modules,
    names,
    networks,
    process,
    protocols,
    surroundings,
    tensors,
    wrappers,
)
from tests.soundness.mutations.ambient import fn_around
from tests.soundness.mutations.cases import Cases

KINDS = (
    ambient, classes, constants, containers, data_classes, descriptors, functions,
    identity, membership, modules, names, networks, process, protocols, surroundings, tensors, wrappers,
)  # fmt: skip
CASES = Cases()
for _kind in KINDS:
    for _name, _make in _kind.CASES.items():
        CASES[_name] = _make


class Counter:
    """A backend that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.n += 1
        return graph.forward


def outcome(fn: Any, args: Any, around: Any) -> Any:
    """What a call gives or raises, with the gradients of what it gives, as a tree."""
    given = args() if callable(args) else args
    given, kwargs = given if len(given) == 2 and isinstance(given[1], dict) and isinstance(given[0], tuple) else (given, {})
    leaves = [a for a in given if isinstance(a, Tensor) and a.requires_grad and a.is_leaf]
    torch.manual_seed(0)
    try:
        with around():
            value = fn(*given, **kwargs)
    except Exception as e:
        return ("raised", type(e).__name__, str(e))
    parts = [value]
    if isinstance(value, Tensor) and value.requires_grad and value.layout is torch.strided and not value.is_meta:
        inputs = leaves or reachable(value)
        parts += torch.autograd.grad(value.abs().sum(), inputs, allow_unused=True) if inputs else []
    return Freezer().world(parts)


def reachable(value: Tensor) -> list[Tensor]:
    """The leaves that a gradient of ``value`` flows to."""
    found, seen, stack = [], set(), [value.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if hasattr(node, "variable"):
                found.append(node.variable)
            stack += [n for n, _ in node.next_functions]
    return found


# Their sets are made at a graph break, once the ids in them have varied. A length that has varied there is a number like others: the first
# capture with it serves all lengths.
LENGTHS_AT_BREAKS = {"tensor_ids", "no_longer_tensor_ids"}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_and_so_is_its_revert(name: str, evaluator: str) -> None:
    if evaluator == "dynamo":
        pytest.skip("holds for fineline")
    fn, args, change = CASES[name]()
    around = fn_around.pop(fn, contextlib.nullcontext) if not isinstance(fn, nn.Module) else contextlib.nullcontext
    count = Counter()
    options = {"evaluator": "native" if evaluator == "captured" else "reference", "recompile_limit": 100}
    compiled = fn if evaluator == "identity" else fineline.compile(fn, backend=count, options=options)

    def agree(when: str) -> Any:
        expected = outcome(fn, args, around)
        found = outcome(compiled, args, around)
        assert list(differences(expected, found)) == [], when
        return expected

    def settle(when: str) -> Any:
        """Calls until nothing is captured any more: state that the call itself changes may take two, as what can't be captured at first."""
        for n in range(4):
            before = count.n
            result = agree(when)
            if count.n == before and (n or count.n):
                return result
        raise AssertionError(f"{when}: captures on every call")

    first = settle("before")
    with change:
        changed = settle("changed")
        assert list(differences(first, changed)), "the case changes nothing"
    captured = count.n
    again = agree("reverted")
    if name in LENGTHS_AT_BREAKS:
        assert count.n <= captured + 1, "captured more than once after the revert"
        captured, again = count.n, agree("reverted, once more")
    assert count.n == captured, "captured again after the revert"
    assert list(differences(first, again)) == []


@pytest.mark.parametrize("name", CASES)
def test_no_program_of_another_instance_is_taken_for_what_it_is_not(name: str, evaluator: str) -> None:
    """Three functions of one ``def`` statement, or modules of one class: one is as it was made, one changed from the start, one is changed later."""
    if evaluator == "dynamo":
        pytest.skip("holds for fineline")
    count, options = Counter(), {"evaluator": "native" if evaluator == "captured" else "reference", "recompile_limit": 100}
    made = []

    def instance() -> tuple[Callable[[str], None], Any]:
        fn, args, change = CASES[name]()
        around = fn_around.pop(fn, contextlib.nullcontext) if not isinstance(fn, nn.Module) else contextlib.nullcontext
        compiled = fn if evaluator == "identity" else fineline.compile(fn, backend=count, options=options)
        made.append((fn, compiled))

        def agree(when: str) -> None:
            expected = outcome(fn, args, around)
            assert list(differences(expected, outcome(compiled, args, around))) == [], when

        return agree, change

    first, _ = instance()
    first("the first one")
    first("the first one, again")
    second, change = instance()
    with change:
        second("another one, changed")
        second("another one, changed, again")
        first("the first one, while another one is changed")
    second("another one, reverted")
    third, change = instance()
    third("a third one")
    with change:
        third("a third one, changed")
        second("another one, while a third one is changed")
    third("a third one, reverted")
    first("the first one, at last")


def test_the_table_is_long() -> None:
    assert len(CASES) >= 90
