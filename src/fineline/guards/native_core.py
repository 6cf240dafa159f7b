"""The native core, if it reads this PyTorch's objects right. It tests itself when this is imported; the Python evaluator replaces one that fails.

The core is compiled for the places of private fields. They are the same in PyTorch 2.13 and 2.14; a core built for them loads under 2.12,
captures a simple function, and reads sizes from where other fields are. Its parts that read no object of PyTorch's (`fineline.identity`,
`fineline.kinds`) are used in any case.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from typing import Protocol, cast

import torch
from torch import Tensor

# The core imports it when it makes a program: not on the thread of the test, which would wait for the one that imports this.
import fineline.guards.evaluate  # noqa: F401
from fineline.guards.facts import TensorFacts, storage_of, tensor_facts
from fineline.import_thread import apart


class GuardChecker(Protocol):
    """A guard program of the core."""

    def check(self, roots: tuple) -> tuple | None: ...
    def costs(self, roots: tuple) -> tuple[tuple[float, ...], float]: ...


class TensorLayout(Protocol):
    """The layout of a tensor as the core reads it."""

    shape: tuple
    stride: tuple
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


class MakeDispatcher(Protocol):
    """The class of the core's dispatchers: it takes either ``miss`` or ``load``."""

    def __call__(self, miss: object = ..., failed: object = ..., finish: object = ..., *, load: object = ...) -> object: ...


class NativeCore(Protocol):
    """The module `fineline._native`, as far as it reads objects of PyTorch's."""

    Layout: type
    GuardProgram: Callable[[int, tuple, tuple], GuardChecker]
    Dispatcher: MakeDispatcher
    layout_of: Callable[[object], TensorLayout]
    any_foreign: Callable[[tuple], bool]
    picture_ambient: Callable[[], bytes | None]


# The numbers that C++ has for the types of numbers.
_SCALAR_TYPES = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}


def disagreement(core: NativeCore) -> str:
    """Returns what the core reads otherwise than Python, or how it fails; "" if it agrees. It changes nothing outside of its thread."""
    try:
        # In a new thread no mode and no transform is active, and its state ends with it.
        return apart(lambda: next(_disagreements(core), ""))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _disagreements(core: NativeCore) -> Iterator[str]:
    for t in _tensors():
        facts = tensor_facts(t)
        yield from [f"a guard on {name} of a tensor with {facts}" for name in _wrong_guards(core, t, facts)]
        layout = core.layout_of(t)
        if (layout.shape, layout.stride, layout.dtype, layout.device, layout.requires_grad) != (*facts[4:6], t.dtype, t.device, t.requires_grad):
            yield f"the layout of a tensor with {facts}"
        if core.any_foreign((t,)) is t.untyped_storage().resizable():
            yield f"whose memory a tensor with {facts} is in"
    yield from _wrong_storages(core)
    yield from _wrong_memory_of_guards(core)
    yield from _wrong_pictures(core)


def _tensors() -> list[Tensor]:
    def empty(*sizes: int, dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device="cpu", requires_grad=requires_grad)

    leaf = empty(3, 4, dtype=torch.float64, requires_grad=True)
    six = empty(2, 3, 1, 4, 1, 2).permute(5, 4, 3, 2, 1, 0)
    return [
        *(empty(), empty(0, 3, dtype=torch.bool), empty(5, 4, dtype=torch.int64).t()[1:, 2:], six),
        *(leaf, leaf.t(), leaf.detach(), empty(2, dtype=torch.complex64).conj(), torch.frombuffer(bytearray(8), dtype=torch.uint8)),
    ]


def _wrong_guards(core: NativeCore, t: Tensor, facts: TensorFacts) -> Iterator[str]:
    """Yields the facts that the core finds to be others, or does not find to be others."""
    if not _passes(core, t, facts):
        yield "the metadata"
    others = {
        "dtype": facts._replace(dtype=torch.int16),
        "device": facts._replace(device=torch.device("meta")),
        "requires_grad": facts._replace(requires_grad=not facts.requires_grad),
        "keys": facts._replace(dispatch_keys=facts.dispatch_keys ^ 1 << 40),
        "sizes": facts._replace(sizes=(*facts.sizes[:-1], 7)),
        "strides": facts._replace(strides=(*(facts.strides or ())[:-1], 77)),
    }
    yield from [name for name, other in others.items() if _passes(core, t, other)]


def _passes(core: NativeCore, t: Tensor, facts: TensorFacts) -> bool:
    return core.GuardProgram(1, _on_one(("tensor", -1, 0, facts)), ()).check((t,)) is not None


def _on_one(check: tuple) -> tuple[tuple, ...]:
    return (("root", 0, -1, 0), check)


def _wrong_storages(core: NativeCore) -> Iterator[str]:
    """Yields the storages and offsets that the core reads wrongly."""
    whole = torch.empty(6, device="cpu")
    part, other = whole[4:], torch.empty(2, device="cpu")
    roots = (("root", 0, -1, 0), ("root", 1, -1, 1))
    for pattern, second in (((0, 0), part), ((0, 1), other)):
        found = core.GuardProgram(2, (*roots, ("storages", -1, -1, ((0, 1), pattern))), ()).check((whole, second)) is not None
        opposite = core.GuardProgram(2, (*roots, ("storages", -1, -1, ((0, 1), (0, 1 - pattern[1])))), ()).check((whole, second)) is not None
        if not found or opposite or (storage_of(whole) == storage_of(second)) is (pattern == (0, 1)):
            yield "which tensors share a storage"
    for kind, number in (("offset", 4), ("size", 2), ("stride", 1)):
        for expected in (number, number + 1):
            relation = ((kind, 0, 0),), (("leaf", 0), ("const", expected), ("eq", None)), ""
            if (core.GuardProgram(1, _on_one(("relation", -1, -1, relation)), ()).check((part,)) is not None) is not (expected == number):
                yield f"the {kind} of a tensor"


def _wrong_memory_of_guards(core: NativeCore) -> Iterator[str]:
    """Yields the changes that a program does not see which has passed before: it compares words of memory then."""
    changes: dict[str, Callable[[Tensor], object]] = {
        "sizes": lambda t: t.resize_(2, 3), "strides": Tensor.t_, "requires_grad": Tensor.requires_grad_, "dispatch_keys": Tensor.conj,
        "dtype": lambda t: setattr(t, "data", t.to(torch.complex128)),
    }  # fmt: skip
    for name, change in changes.items():
        t = torch.zeros((3, 3), dtype=torch.complex64, device="cpu")
        if name == "strides":
            t = t[:, :2].resize_(2, 2).as_strided((2, 2), (3, 1))
        program = core.GuardProgram(1, _on_one(("tensor", -1, 0, tensor_facts(t))), ())
        passed = [program.check((t,)) is not None for _ in range(3)]
        changed = change(t)
        if not all(passed) or program.check((changed if name == "dispatch_keys" else t,)) is not None:
            yield f"that the {name} of a tensor have changed"


def _wrong_pictures(core: NativeCore) -> Iterator[str]:
    """Yields the state of PyTorch that the core reads wrongly."""
    picture = core.picture_ambient()
    words = struct.unpack("10Q", picture or b"")
    if core.picture_ambient() != picture or words[4] != torch.get_num_threads():
        yield "the state of PyTorch"
    # It belongs to the process: to change it here would change what other threads make.
    if words[2] >> 32 != _SCALAR_TYPES.get(torch.get_default_dtype(), words[2] >> 32):
        yield "the default dtype"
    grad, autocast, inference = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()
    try:
        torch._C._set_grad_enabled(not grad)
        without = core.picture_ambient()
        torch.set_autocast_enabled("cpu", not autocast)
        under = core.picture_ambient()
    finally:
        torch._C._set_grad_enabled(grad)
        torch.set_autocast_enabled("cpu", autocast)
    with torch.inference_mode(not inference):
        pictures = {picture, without, under, core.picture_ambient()}
    if len(pictures) != 4 or core.picture_ambient() != picture:
        yield "whether a grad mode, autocast or an inference mode is active"


def _load() -> tuple[NativeCore | None, str]:
    try:
        core = cast(NativeCore, importlib.import_module("fineline._native"))
    except ImportError as error:
        return None, f"it could not be loaded: {error}"
    wrong = disagreement(core)
    return (None, f"it reads this PyTorch wrongly: {wrong}") if wrong else (core, "")


CORE, FAILURE = _load()
"""The native core, or None, and then why it is not used."""
