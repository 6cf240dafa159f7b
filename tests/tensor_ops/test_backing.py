"""The two backings of a capture alone: the user's tensors, and fakes that stand for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import DimDynamic

from fineline.backends.lock import TRACERS
from fineline.fake.fake_tensors import Path, Rows, unsymbolic
from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.interp.interpreter import Interpreter
from fineline.region.options import Options
from fineline.tensor_ops.backing import FakeBacking, LiveBacking, computing
from fineline.tracing.interp import Backing
from fineline.tracing.lessons import Lessons

MAKERS: dict[str, Callable[[], Backing]] = {"live": LiveBacking, "fake": lambda: FakeBacking(unsymbolic())}
both = pytest.mark.parametrize("mode", MAKERS)


class Other(Tensor):
    """A class of tensors that no fake stands for."""

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def interpreter(mode: str) -> Interpreter:
    interp = Interpreter(Options(), Lessons())
    interp.use(MAKERS[mode]())
    return interp


def in_handler() -> None:
    try:
        pass
    except RuntimeError:
        pass


def run(mode: str, fn: Any, *args: Any, handled: bool = False) -> Any:
    """Runs one operator. ``handled``: the code around it handles the errors that it raises."""
    interp = interpreter(mode)
    if handled:
        frame = interp.push_function(None, in_handler, [], None)
        assert frame is not None
        frame.covered = True
    return interp.backing.run(interp, fn, args, None)


def raises(text: str) -> Callable[[Tensor], Tensor]:
    def fn(x: Tensor) -> Tensor:
        raise NotImplementedError(text)

    return fn


# -- what is known of a mode ------------------------------------------------------------------------------------------------
@both
def test_properties_of_a_mode(mode: str) -> None:
    backing = MAKERS[mode]()
    assert backing.real is not backing.may_be_symbolic and backing.real is (mode == "live")
    assert not backing.switches and not backing.restartable and not backing.is_symbolic


def test_some_number_is_symbolic_when_the_fakes_say_so() -> None:
    fakes = unsymbolic()
    backing = FakeBacking(fakes)
    fakes.symbolic = True
    assert backing.is_symbolic


@pytest.mark.parametrize("backing", [LiveBacking(True, True), FakeBacking(unsymbolic(), True)], ids=list(MAKERS))
def test_code_inside_can_not_change_the_mode(backing: Backing) -> None:
    assert backing.restartable and backing.switches is backing.real
    inner = backing.inner()
    assert type(inner) is type(backing) and not inner.switches and not inner.restartable


def test_code_inside_runs_on_the_same_fakes() -> None:
    interp, x = interpreter("fake"), torch.ones(2)
    assert interp.backing.inner().memory(interp, x) is interp.backing.memory(interp, x)


@both
def test_the_interpreter_changes_its_table_of_constants_too(mode: str) -> None:
    interp, before = interpreter(mode), torch.ones(1)
    interp.tensors.known.add(before, set())
    assert interp.tensors.known.has(before, set())
    interp.use(MAKERS[mode]())
    assert not interp.tensors.known.has(before, set())


# -- operators --------------------------------------------------------------------------------------------------------------
@both
def test_an_operator_runs(mode: str) -> None:
    x = torch.arange(3.0)
    result = run(mode, torch.add, x, 1)
    assert result.shape == x.shape and type(result) is (Tensor if mode == "live" else FakeTensor)
    assert mode == "fake" or result.tolist() == [1, 2, 3]


@both
def test_a_write_happens_at_once_or_not_at_all(mode: str) -> None:
    x = torch.zeros(2)
    assert run(mode, Tensor.add_, x, 1) is x and x.tolist() == ([1, 1] if mode == "live" else [0, 0])


@both
def test_an_operator_on_fakes_has_no_effect_in_either_mode(mode: str) -> None:
    x = torch.zeros(2)
    MAKERS[mode]().run_on_fakes(Tensor.add_, (x, 1), None)
    assert x.tolist() == [0, 0]
    with pytest.raises(RuntimeError):
        MAKERS[mode]().run_on_fakes(torch.mm, (torch.ones(2, 3), torch.ones(2, 3)), None)


@both
def test_the_backend_has_failed_on_an_operator_without_a_fake_kernel(mode: str) -> None:
    interp = interpreter(mode)
    interp.lessons.graphs = replace(interp.lessons.graphs, no_fake_kernel=frozenset({"sin"}))
    with pytest.raises(GraphBreak) as caught:
        interp.backing.run(interp, torch.sin, (torch.ones(1),), None)
    assert caught.value.error == "FL516" and "does not run on fake tensors" in caught.value.reason


@pytest.mark.parametrize("handled", [False, True], ids=["nobody handles it", "handled"])
def test_an_error_that_shapes_decide_is_raised_as_it_is(handled: bool) -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        run("live", torch.mm, torch.ones(2, 3), torch.ones(2, 3), handled=handled)


@pytest.mark.parametrize("handled", [False, True], ids=["nobody handles it", "handled"])
def test_an_error_that_numbers_decide_is_a_graph_break_where_code_handles_it(handled: bool) -> None:
    with pytest.raises(GraphBreak if handled else torch.linalg.LinAlgError) as caught:
        run("live", torch.linalg.cholesky, -torch.eye(2), handled=handled)
    if handled:
        assert caught.value.error == "FL523" and type(caught.value.raised) is torch.linalg.LinAlgError


@pytest.mark.parametrize(
    ("fn", "args", "kind", "error", "text"),
    [
        (raises("no kernel"), (torch.ones(1),), GraphBreak, "FL516", "does not run on fake tensors: no kernel"),
        (torch.quantize_per_tensor, (torch.ones(1), 0.1, 0, torch.qint8), GraphBreak, "FL516", "gives a quantized tensor"),
        (Tensor.__bool__, (torch.ones(1),), GraphBreak, "FL508", "depends on a tensor's values"),
        (torch.nonzero, (torch.ones(1),), GraphBreak, "FL508", "the shape of torch.nonzero's result depends on a tensor's values"),
        (torch.mm, (torch.ones(2, 3), torch.ones(2, 3)), Restart, "FL515", "raises RuntimeError"),
        (torch.add, (torch.ones(1).as_subclass(Other), 1), Restart, "FL515", "a tensor of class Other"),
    ],
    ids=["no kernel", "quantized", "number", "size", "error", "no fake"],
)  # fmt: skip
def test_fakes_can_not_run_it(fn: Any, args: tuple, kind: type, error: str, text: str) -> None:
    interp = interpreter("fake")
    with pytest.raises(kind) as caught:
        interp.backing.run(interp, fn, args, None)
    told = caught.value.reason if kind is GraphBreak else caught.value.text
    assert caught.value.error == error and text in told and not interp.eager.computing


# -- memory -----------------------------------------------------------------------------------------------------------------
@both
def test_memory_of_a_tensor_is_its_own_or_that_of_its_fake(mode: str) -> None:
    interp, x = interpreter(mode), torch.ones(2)
    memory = interp.backing.memory(interp, x)
    assert (memory is x) is (mode == "live") and memory is interp.backing.memory(interp, x) and memory.shape == x.shape
    assert interp.backing.memory(interp, None) is None and not interp.eager.computing


def test_where_there_is_no_fake_the_capture_starts_again() -> None:
    interp = interpreter("fake")
    with pytest.raises(Restart) as caught:
        interp.backing.memory(interp, torch.ones(1).as_subclass(Other))
    assert (caught.value.error, caught.value.text) == ("FL515", "a tensor of class Other") and not interp.eager.computing


def test_a_fake_may_be_made_among_operators_that_are_not_the_users() -> None:
    interp = interpreter("fake")
    with computing(interp):
        interp.backing.memory(interp, torch.ones(1))
        assert interp.eager.computing


@both
def test_length(mode: str) -> None:
    interp = interpreter(mode)
    assert interp.backing.length(interp, torch.ones(3, 2)) == 3
    with pytest.raises(TypeError, match="len"):
        interp.backing.length(interp, torch.ones(()))


@both
def test_operators_get_tensors_or_their_fakes(mode: str) -> None:
    interp, x = interpreter(mode), torch.ones(2)
    given = (x, [1, {"x": x}])
    found = interp.backing.operands(given)
    memory = interp.backing.memory(interp, x)
    assert found[0] is memory and found[1][1]["x"] is memory and (found is given) is (mode == "live")


@both
def test_fakes_for_the_body_of_an_operator(mode: str) -> None:
    interp, x = interpreter(mode), torch.ones(2)
    fakes = interp.backing.body_fakes(rows=False)
    assert (fakes.twin(x) is interp.backing.memory(interp, x)) is (mode == "fake")
    rows = interp.backing.body_fakes(rows=True)
    assert type(rows) is Rows and rows.around is (None if mode == "live" else fakes)


# -- numbers ----------------------------------------------------------------------------------------------------------------
@both
def test_constant_tensors(mode: str) -> None:
    interp, mutated = interpreter(mode), set[int]()
    a = interp.backing.run(interp, torch.tensor, ([1, 2],), None)
    interp.tensors.known.add(a, mutated, interp.backing.fold(interp, torch.tensor, ([1, 2],), None))
    b = interp.backing.run(interp, torch.add, (a, 1), None)
    interp.tensors.known.add(b, mutated, interp.backing.fold(interp, torch.add, (a, 1), None))
    assert interp.tensors.known.all_known((a, b), mutated) and interp.tensors.known.numbers(b).tolist() == [2, 3]
    interp.backing.run(interp, Tensor.add_, (b, 1), None)
    assert interp.tensors.known.has(a, mutated) and not interp.tensors.known.has(b, mutated) and interp.tensors.known.number(a, mutated) is None


def test_a_tensor_of_one_symbolic_number_is_known_on_fakes() -> None:
    interp, mutated = interpreter("fake"), set[int]()
    shapes = interp.backing.body_fakes(rows=False).shapes
    assert shapes is not None and not interp.tensors.known
    n = shapes.create_unspecified_symint_and_symbol(3, Path("n"), DimDynamic.DYNAMIC)
    t = interp.backing.run(interp, torch.tensor, (n,), None)
    interp.tensors.known.computed(torch.tensor, (n,), None, t, mutated)
    assert interp.tensors.known and interp.tensors.known.number(t, mutated) == n
    interp.backing.run(interp, Tensor.add_, (t, 1), None)
    assert interp.tensors.known.number(t, mutated) is None
    interp.tensors.known.clear()
    assert not interp.tensors.known


@both
def test_truth_of_a_number_is_that_of_the_tensor_or_unknown(mode: str) -> None:
    backing, t = MAKERS[mode](), torch.tensor(1, requires_grad=False)
    assert backing.may_have_truth(t, True) and backing.may_have_truth(t, False) is (mode == "fake")


def test_numbers_that_were_read_are_forgotten_before_memory_is_written() -> None:
    fakes = unsymbolic()
    interp, epoch = interpreter("live"), fakes.mode.epoch
    backing = FakeBacking(fakes)
    backing.forget_numbers()
    assert fakes.mode.epoch == epoch
    backing.run(interp, getattr, (torch.ones(1), "data"), None)
    backing.forget_numbers()
    assert fakes.mode.epoch == epoch + 1
    interp.backing.forget_numbers()


# -- the world outside ------------------------------------------------------------------------------------------------------
def test_random_numbers_may_have_been_drawn() -> None:
    live, interp = LiveBacking(), interpreter("fake")
    assert live.may_have_drawn() and not interp.backing.may_have_drawn()
    state = torch.get_rng_state()
    interp.backing.run(interp, torch.rand, (2,), None)
    assert interp.backing.may_have_drawn() and torch.equal(state, torch.get_rng_state())


@both
def test_a_capture_on_fakes_holds_the_lock_of_the_tracers(mode: str) -> None:
    taken: list[bool] = []

    def try_lock() -> None:
        taken.append(TRACERS._lock.acquire(blocking=False))
        if taken[0]:
            TRACERS._lock.release()

    def capture() -> str:
        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()
        return "done"

    assert MAKERS[mode]().hold(capture) == "done" and taken == [mode == "live"]
