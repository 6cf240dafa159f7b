"""The facts about tensors and the surroundings: what they notice, and how a difference is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fineline.guards.ambient_table import AMBIENT, AmbientTable
from fineline.guards.evaluate import ReferenceProgram, explain_failure
from fineline.guards.facts import TENSOR_NAMES, AmbientFacts, TensorFacts, ambient_facts, describe_difference, tensor_facts
from fineline.report.misses import Change, listed
from tests.guards.twins import Steps


class Subclass(torch.Tensor):
    """Answers everything it is asked through ``__torch_function__``, wrongly."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was seen")


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def switched(get: Callable[[], Any], put: Callable[[Any], None], value: Any) -> Iterator[None]:
    old = get()
    put(value)
    try:
        yield
    finally:
        put(old)


SURROUNDINGS: dict[str, Callable[[], AbstractContextManager]] = {
    "grad_mode": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "forward_grad_mode": lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False),
    "multithreading": lambda: torch.autograd.set_multithreading_enabled(False),
    "view_replay": lambda: torch.autograd._force_original_view_tracking(True),
    "autocast_cpu": lambda: torch.autocast("cpu"),
    "autocast_cpu_dtype": lambda: switched(
        lambda: torch.get_autocast_dtype("cpu"), lambda d: torch.set_autocast_dtype("cpu", d), torch.float16
    ),
    "autocast_cuda_dtype": lambda: switched(
        lambda: torch.get_autocast_dtype("cuda"), lambda d: torch.set_autocast_dtype("cuda", d), torch.bfloat16
    ),
    "autocast_cache": lambda: switched(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    "default_dtype": lambda: switched(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default_device": lambda: torch.device("meta"),
    "deterministic": lambda: switched(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "deterministic_fill": lambda: switched(
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on),
        False,
    ),
    "sdp_flash": lambda: switched(torch._C._get_flash_sdp_enabled, torch._C._set_sdp_use_flash, False),
    "sdp_mem_efficient": lambda: switched(torch._C._get_mem_efficient_sdp_enabled, torch._C._set_sdp_use_mem_efficient, False),
    "sdp_math": lambda: switched(torch._C._get_math_sdp_enabled, torch._C._set_sdp_use_math, False),
    "sdp_cudnn": lambda: switched(torch._C._get_cudnn_sdp_enabled, torch._C._set_sdp_use_cudnn, False),
    "sdp_overrideable": lambda: switched(torch._C._get_overrideable_sdp_enabled, torch._C._set_sdp_use_overrideable, False),
    "sdp_math_reduction": lambda: switched(
        torch._C._get_math_sdp_allow_fp16_bf16_reduction, torch._C._set_math_sdp_allow_fp16_bf16_reduction, True
    ),
    "sdp_order": lambda: switched(torch._C._get_sdp_priority_order, torch._C._set_sdp_priority_order, [0, 2, 1, 3, 4]),
    "cudnn": lambda: switched(torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled, False),
    "mkldnn": lambda: switched(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, False),
    "threads": lambda: switched(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1),
    "matmul_precision_cpu": lambda: switched(
        lambda: torch.backends.mkldnn.matmul.fp32_precision,
        lambda precision: setattr(torch.backends.mkldnn.matmul, "fp32_precision", precision),
        "bf16",
    ),
    "torch_function_state": torch._C.DisableTorchFunctionSubclass,
    "torch_function_modes": Functions,
    "torch_dispatch_modes": Dispatches,
    "saved_tensor_hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "functorch_levels": lambda: functorch_level(),
    "dual_level": torch.autograd.forward_ad.dual_level,
}


@contextmanager
def functorch_level() -> Iterator[None]:
    torch._C._functorch._vmap_increment_nesting(2, "error")
    try:
        yield
    finally:
        torch._C._functorch._vmap_decrement_nesting()


@pytest.mark.parametrize("name", list(SURROUNDINGS))
def test_ambient_facts_notice(name: str) -> None:
    steps = Steps()
    before = ambient_facts()
    steps.check("ambient", -1, before)
    twins = steps.twins(0)
    assert twins.holds()
    for _ in range(3):
        with SURROUNDINGS[name]():
            assert name in listed(describe_difference(before, ambient_facts()))
            assert not twins.holds()
        assert twins.holds()


@pytest.mark.parametrize("name", list(SURROUNDINGS))
def test_ambient_facts_hold_inside(name: str) -> None:
    with SURROUNDINGS[name]():
        steps = Steps()
        steps.check("ambient", -1, ambient_facts())
        twins = steps.twins(0)
        assert twins.holds()
    assert not twins.holds()
    with SURROUNDINGS[name]():
        assert twins.holds()


@pytest.mark.parametrize("name", list(SURROUNDINGS))
def test_known_ambient_facts_are_those_of_now(name: str) -> None:
    for _ in range(3):
        assert AMBIENT.now() == ambient_facts()
        with SURROUNDINGS[name]():
            assert AMBIENT.now() == ambient_facts()
    assert AMBIENT.now() == ambient_facts()


def test_ambient_facts_are_read_once_for_each_state() -> None:
    pytest.importorskip("fineline._native")
    table = AmbientTable()
    before = table.now()
    with torch.no_grad():
        inside = table.now()
        assert inside is table.now() and not inside.grad_mode
    assert table.now() is before and before.grad_mode


def test_threads_begin_alike() -> None:
    found: list[tuple] = []
    thread = threading.Thread(target=lambda: found.append(ambient_facts()))
    thread.start()
    thread.join()
    assert describe_difference(ambient_facts(), found[0]) == ()


TENSOR_CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "sizes": lambda t: t.resize_(3, 2),
    "strides": lambda t: t.t_(),
    "requires_grad": lambda t: t.requires_grad_(),
    "dtype": lambda t: setattr(t, "data", t.double()),
    "data of another size": lambda t: setattr(t, "data", torch.zeros(5)),
    "swapped": lambda t: torch.utils.swap_tensors(t, torch.zeros(7)),
    "class": lambda t: setattr(t, "__class__", nn.Parameter),
    "more dimensions than fit inline": lambda t: t.resize_(1, 1, 1, 1, 1, 1, 4),
}


@pytest.mark.parametrize("name", list(TENSOR_CHANGES))
def test_tensor_facts_notice(name: str) -> None:
    t = torch.zeros(2, 2)
    steps = Steps()
    steps.check("tensor", steps.get("root", -1, 0), tensor_facts(t))
    twins = steps.twins(1)
    assert twins.holds(t)
    TENSOR_CHANGES[name](t)
    assert not twins.holds(t)
    assert twins.holds(torch.zeros(2, 2))


ANY: dict[str, tuple[TensorFacts, list[torch.Tensor], list[torch.Tensor]]] = {
    "a size": (
        tensor_facts(torch.zeros(2, 3))._replace(sizes=(None, 3)),
        [torch.zeros(2, 3), torch.zeros(5, 3), torch.zeros(0, 3), torch.zeros(1, 3)],
        [torch.zeros(2, 4), torch.zeros(3), torch.zeros(2, 3, 1), torch.zeros(3, 2).T, torch.zeros(2, 3, dtype=torch.int64)],
    ),
    "sizes and strides": (
        tensor_facts(torch.zeros(2, 3))._replace(sizes=(None, None), strides=(None, 1)),
        [torch.zeros(2, 3), torch.zeros(7, 5), torch.zeros(7, 9)[:, :5]],
        [torch.zeros(2, 3).T, torch.zeros(2), torch.zeros(2, 3, requires_grad=True)],
    ),
    "strides": (
        tensor_facts(torch.zeros(2, 3))._replace(strides=(None, None)),
        [torch.zeros(2, 3), torch.zeros(3, 2).T],
        [torch.zeros(3, 2)],
    ),
    "a size of a sparse tensor": (
        tensor_facts(torch.eye(2).to_sparse())._replace(sizes=(None, 2)),
        [torch.eye(2).to_sparse(), torch.zeros(3, 2).to_sparse()],
        [torch.zeros(3, 3).to_sparse(), torch.zeros(3, 2)],
    ),
    "a size of a subclass": (
        tensor_facts(torch.zeros(2).as_subclass(Subclass))._replace(sizes=(None,)),
        [torch.zeros(2).as_subclass(Subclass), torch.zeros(3).as_subclass(Subclass)],
        [torch.zeros(2), torch.zeros(2, 2).as_subclass(Subclass)],
    ),
    "many dimensions": (
        tensor_facts(torch.zeros(1, 2, 1, 2, 1, 2, 1))._replace(sizes=(1, 2, 1, 2, 1, 2, None)),
        [torch.zeros(1, 2, 1, 2, 1, 2, 1)],
        [torch.zeros(1, 2, 1, 2, 1, 2, 3), torch.zeros(1, 2, 1, 2, 1, 3, 1)],
    ),
}


@pytest.mark.parametrize("name", list(ANY))
def test_any_size(name: str) -> None:
    facts, pass_, fail = ANY[name]
    steps = Steps()
    steps.check("tensor", steps.get("root", -1, 0), facts)
    twins = steps.twins(1)
    for _ in range(3):
        assert all([twins.holds(t) for t in pass_])
        assert not any([twins.holds(t) for t in fail])
    for t in pass_:
        assert all([twins.holds(t) for _ in range(3)])


def test_any_size_of_one_tensor() -> None:
    """A table that has been learnt goes on holding when a size that may be any changes, and no longer when another does."""
    t = torch.zeros(2, 3)
    steps = Steps()
    steps.check("tensor", steps.get("root", -1, 0), tensor_facts(t)._replace(sizes=(None, 3)))
    twins = steps.twins(1)
    assert twins.holds(t) and twins.hits() == 2
    t.resize_(5, 3)
    assert twins.holds(t) and twins.hits() == 5
    t.resize_(5, 4)
    assert not twins.holds(t)
    t.resize_(4, 3)
    assert twins.holds(t)


def test_tensor_facts_notice_a_lazy_conjugate() -> None:
    """Nothing but the dispatch keys tells it from a plain tensor."""
    t = torch.zeros(2, dtype=torch.complex64)
    steps = Steps()
    steps.check("tensor", steps.get("root", -1, 0), tensor_facts(t))
    twins = steps.twins(1)
    assert twins.holds(t)
    t.data = t.data.conj()
    assert t.is_conj() and not twins.holds(t)


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "scalar": lambda: torch.tensor(1.0),
    "empty": lambda: torch.zeros(0, 3),
    "transposed": lambda: torch.zeros(2, 3).T,
    "many dimensions": lambda: torch.zeros(1, 2, 1, 2, 1, 2, 1),
    "parameter": lambda: nn.Parameter(torch.zeros(2)),
    "with grad_fn": lambda: torch.zeros(2, requires_grad=True) * 2,
    "inference": lambda: torch.inference_mode()(torch.zeros)(2),
    "conjugate": lambda: torch.zeros(2, dtype=torch.complex64).conj(),
    "negative": lambda: torch._neg_view(torch.zeros(2)),
    "meta": lambda: torch.zeros(2, device="meta"),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "csr": lambda: torch.eye(2).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
    "subclass": lambda: torch.zeros(2).as_subclass(Subclass),
    "functional": lambda: torch._to_functional_tensor(torch.zeros(2)),
    "bool": lambda: torch.zeros(2, dtype=torch.bool),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(TENSORS))
def test_tensor_facts_of_every_kind(name: str) -> None:
    t = TENSORS[name]()
    steps = Steps()
    steps.check("tensor", steps.get("root", -1, 0), tensor_facts(t))
    twins = steps.twins(1)
    assert twins.holds(t) and twins.holds(TENSORS[name]())
    for other in TENSORS:
        assert twins.holds(TENSORS[other]()) == (other == name), other


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(TENSORS))
def test_storages_of_every_kind(name: str) -> None:
    t, other = TENSORS[name](), TENSORS[name]()
    steps = Steps()
    registers = tuple([steps.get("root", -1, i) for i in range(3)])
    steps.check("storages", -1, (registers, (0, 1, 0)))
    twins = steps.twins(3)
    assert twins.holds(t, other, t)
    assert not twins.holds(t, t, t)
    assert not twins.holds(t, other, other)


def test_differences_are_named() -> None:
    assert len(TENSOR_NAMES) == len(tensor_facts(torch.zeros(1))) and len(AmbientFacts._fields) == len(ambient_facts())
    old, new = tensor_facts(torch.zeros(2, 3)), tensor_facts(torch.zeros(4, 3, dtype=torch.float64))
    assert listed(describe_difference(old, new)) == "dtype torch.float32 -> torch.float64, sizes (2, 3) -> (4, 3)"
    assert describe_difference(old, old) == ()
    any_size = old._replace(sizes=(None, 3), strides=(None, None))
    assert describe_difference(any_size, tensor_facts(torch.zeros(4, 3))) == ()
    assert listed(describe_difference(any_size, tensor_facts(torch.zeros(4, 5)))) == "sizes (?, 3) -> (4, 5)"
    assert listed(describe_difference(any_size, tensor_facts(torch.zeros(4)))) == "sizes (?, 3) -> (4,), strides (?, ?) -> (1,)"
    assert listed(describe_difference((1, 2), (1, 3))) == "[1] 2 -> 3"
    assert listed(describe_difference((1,), (1, 3))) == "1 facts -> 2 facts"


def test_failures_are_explained() -> None:
    old = tensor_facts(torch.zeros(2))
    assert listed(explain_failure(("tensor", -1, 0, old), torch.zeros(3))) == "sizes (2,) -> (3,)"
    assert listed(explain_failure(("eq", -1, 0, 1), 2)) == "1 -> 2"
    assert listed(explain_failure(("len", -1, 0, 1), [])) == "length 1 -> 0"
    assert listed(explain_failure(("key", 1, 0, "a"), {})) == "it is gone"
    assert listed(explain_failure(("absent", -1, 0, "a"), {"a": 1})) == "'a' is there now"
    assert listed(explain_failure(("tensor", -1, 0, old), None)) == "a Tensor -> None"
    with torch.no_grad():
        facts = ambient_facts()
    assert listed(explain_failure(("ambient", -1, -1, facts), None)).startswith("grad_mode False -> True")
    program = ReferenceProgram(1, [("root", 0, -1, 0), ("type", -1, 0, int)], ())
    assert program.explain(("a",)) == (Change("", "int", "str"),) and program.explain((1,)) == ()
