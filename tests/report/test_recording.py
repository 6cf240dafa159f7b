"""The time of each frame, and the costs of programs: noted while a capture is watched, and only then."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections import deque
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

import fineline
from fineline.cli.event_log import Heard
from fineline.codegen.programs import ProgramText
from fineline.guards.evaluate import ReferenceProgram
from fineline.guards.facts import ambient_facts
from fineline.guards.native_core import CORE
from fineline.region.watch import UNWATCHED
from fineline.report.clock import CallClock
from fineline.report.events import LISTENERS
from fineline.report.programs import UNKNOWN
from fineline.report.recording import Recording
from fineline.report.tree import Node

X = torch.ones(3)
SLEEP = 0.02


def seconds(tree: Node, name: str) -> float:
    return sum(node.seconds for node in tree if node.name.endswith(name))


@fineline.disable
def sleeps():
    time.sleep(SLEEP)


def calls_what_sleeps():
    sleeps()


def outer(x):
    calls_what_sleeps()
    return inner(x) + 1


def inner(x):
    return x.sin()


def test_time_belongs_to_the_frame_that_runs() -> None:
    told = fineline.explain(outer)(X)
    assert seconds(told.tree, ".sleeps") + seconds(told.tree, "sleeps") > SLEEP
    assert seconds(told.tree, "calls_what_sleeps") < SLEEP + seconds(told.tree, "sleeps") and 0 < seconds(told.tree, "inner") < told.seconds
    assert sum(node.seconds for node in told.tree) <= told.seconds


def test_time_with_exceptions_and_generators_counts_once() -> None:
    def items(x):
        for i in range(3):
            yield x * i

    def raises(x):
        raise ValueError(x.sum())

    def f(x):
        try:
            raises(x)
        except ValueError:
            x = sum(items(x))
        return x

    told = fineline.explain(f)(X)
    names = {node.name.rpartition(".")[2]: node.seconds for node in told.tree}
    assert names.keys() >= {"f", "raises", "items"} and all(spent > 0 for spent in names.values())
    assert sum(node.seconds for node in told.tree) <= told.seconds


def test_a_backend_is_timed_and_no_frame_is_charged_with_it() -> None:
    def backend(gm: Any, examples: list) -> Any:
        time.sleep(SLEEP)
        return gm.forward

    told = fineline.explain(fineline.compile(outer, backend=backend))(X)
    measured = [program.measures for program in told.kept if program.give_code().code]
    assert all(measures is not None and measures.backend >= SLEEP and measures.writing < measures.backend for measures in measured)
    assert seconds(told.tree, "inner") < SLEEP


def test_the_clock_leaves_a_block_that_raises() -> None:
    clock, node = CallClock(), Node("f", "", 0, "captured")
    with pytest.raises(ValueError), clock.running(lambda: node):
        raise ValueError
    spent = node.seconds
    time.sleep(0.001)
    clock.charge()
    assert node.seconds == spent > 0


@pytest.mark.parametrize("make", [ReferenceProgram, *([CORE.GuardProgram] if CORE is not None else [])])
def test_each_step_has_a_cost_up_to_a_wrong_type(make: Any) -> None:
    steps = (
        ("ambient", -1, -1, ambient_facts()), ("root", 0, -1, 0), ("type", -1, 0, list), ("len", -1, 0, 2), ("index", 1, 0, 0), ("eq", -1, 1, 7),
    )  # fmt: skip
    program = make(1, steps, ())
    costs, check = program.costs(([7, 8],))
    assert min(costs) > 0 and 0 < check < 1e9
    # A wrong length, after which the list still has an item; a wrong type, on which the next steps rely.
    costs, check = program.costs(([7],))
    assert min(costs) > 0 and check == -1
    assert [cost > 0 for cost in program.costs((7,))[0]] == [True, True, True, False, False, False]
    assert [cost > 0 for cost in program.costs(([],))[0]] == [True] * 5 + [False]


@pytest.mark.parametrize("make", [ReferenceProgram, *([CORE.GuardProgram] if CORE is not None else [])])
def test_steps_that_may_run_users_code_run_once(make: Any) -> None:
    """A predicate, a comparison with a key of a user's class, and a step on what only Python can read."""
    seen: list[str] = []

    class Key:
        def __hash__(self) -> int:
            # Not a text's, which is another in each process: with some, the search for the second key meets the first one twice.
            return 1

        def __eq__(self, other: object) -> bool:
            seen.append("eq")
            return False

    def holds(value: object) -> bool:
        seen.append("holds")
        return True

    steps = (
        ("root", 0, -1, 0), ("type", -1, 0, dict), ("root", 1, -1, 1), ("predicate", -1, 1, (holds, "holds")), ("key", 2, 0, 1),
        ("index", 3, 2, 0), ("eq", -1, 3, 7),
    )  # fmt: skip
    program = make(2, steps, ())
    roots = ({Key(): 1, 1: deque([7])}, 5)
    seen.clear()
    assert program.check(roots) == () and sorted(seen) == ["eq", "holds"]
    seen.clear()
    costs, check = program.costs(roots)
    assert sorted(seen) == ["eq", "holds"] and min(costs) > 0 and check >= costs[3] + costs[4]


class Wrapper(torch.Tensor):
    """A tensor subclass that counts the calls of its own code."""

    calls = 0

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        Wrapper.calls += 1
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return Wrapper(parts["inner"])

    @staticmethod
    def __metadata_guard__(one: Any, other: Any) -> bool:
        Wrapper.calls += 1
        return True

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*tree_map_only(cls, lambda t: t.inner, args), **(kwargs or {}))
        return tree_map_only(torch.Tensor, cls, out)


def test_measuring_runs_users_code_as_often_as_one_warm_call() -> None:
    def f(x):
        return x * 2

    def counted(call: Any) -> int:
        Wrapper.calls = 0
        call(Wrapper(torch.ones(3)))
        return Wrapper.calls

    compiled = fineline.compile(f, backend="eager")
    first, warm = counted(compiled), counted(compiled)
    assert 0 < warm and counted(fineline.explain(f)) <= first + warm


def test_a_guards_cost_has_its_reads_and_what_has_changed_is_unknown() -> None:
    recording = Recording()
    program = ReferenceProgram(1, (("root", 0, -1, 0), ("index", 1, 0, 0), ("eq", -1, 1, 7), ("len", -1, 0, 2)), ())
    with recording.making_program():
        measures = recording.note_program(ProgramText("one", ""), program, ([7, 8],), (2, 3))
    costs, _ = program.costs(([7, 8],))
    assert measures.guards[0] > 0 < measures.guards[1] and len(measures.guards) == 2 and min(costs) > 0 and measures.check > 0
    with recording.making_program():
        changed = recording.note_program(ProgramText("other", ""), program, ([9, 8],), (2, 3))
    assert changed.check == UNKNOWN and changed.guards[0] > 0 and changed.guards[1] == UNKNOWN and changed.key != measures.key


def test_what_a_call_changes_stays_changed_once() -> None:
    seen: list[int] = []

    def f(x):
        seen.append(1)
        return x + len(seen)

    told = fineline.explain(f)(X)
    assert seen == [1] and told.kept[0].measures is not None and told.kept[0].measures.check == UNKNOWN


def test_nothing_is_noted_elsewhere() -> None:
    compiled = fineline.compile(outer, backend="eager")
    compiled(X)
    assert compiled._region.watch is UNWATCHED and UNWATCHED.recording is None
    told = fineline.report(compiled)
    assert told.tree is None and all(program.measures is None for program in told.kept) and told.kept[0].guards


def test_a_report_of_a_whole_program_keeps_texts_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs, graphs and what they hold die with their callables: memory stays flat over many."""
    heard = Heard()
    monkeypatch.setattr(LISTENERS, "all", (heard.hear,))
    monkeypatch.setattr(LISTENERS, "trees", True)
    dead: list[weakref.ref] = []

    def use_one(dynamic: bool) -> None:
        weight = torch.ones(3)

        def f(x):
            x = (x * weight).sin()
            print(end="")
            return x.cos() + weight

        compiled = fineline.compile(f, backend="eager", dynamic=dynamic)
        compiled(X)
        segments = compiled._region.segments()
        assert len(segments) == 2
        found = [(segment, segment.unbound, segment.unbound.text, segment.graph) for segment in segments]
        dead.extend([weakref.ref(obj) for obj in (weight, f, compiled._region, *itertools.chain(*found))])

    for i in range(10):
        use_one(bool(i % 2))
    gc.collect()
    assert len(dead) == 110 and [ref() for ref in dead if ref() is not None] == []
    [told] = heard.explanations()
    assert len(told.kept) == len(told.codes) == 20 and len(told.costs) == 10 and told.cost.graphs == 10
    assert all("def forward" in code for code in told.codes) and all(program.measures is not None for program in told.kept)


def test_a_segment_that_is_captured_again_counts_once() -> None:
    told = fineline.explain(fineline.compile(outer, backend="eager", dynamic=True))(X)
    [node] = [node for node in told.tree if node.name == "inner"]
    assert len(node.programs) == 1 and node.programs[0] in [program.measures.key for program in told.kept if program.measures is not None]
