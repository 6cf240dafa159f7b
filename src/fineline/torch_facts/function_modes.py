"""PyTorch's stack of function modes in this thread: which of its modes a capture runs through, and how they are taken off and put back."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType, TracebackType
from typing import Any

import torch
from torch.utils._device import DeviceContext

from fineline.kinds import is_a


def mode_stack() -> list[Any]:
    """Returns the modes, the innermost last."""
    core = torch._C
    return [core._get_function_stack_at(i) for i in range(core._len_torch_function_stack())]


def sees_operators(stack: list[Any]) -> bool:
    """Returns whether a mode does more than set the default device, on which the guards and the graphs depend in another way."""
    return not all([is_a(mode, DeviceContext) for mode in stack])


def put_on(modes: Iterable[Any]) -> None:
    """Enters modes; the last one is the innermost."""
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def take_off() -> list[Any]:
    """Leaves all modes, and returns them."""
    stack = mode_stack()
    for _ in stack:
        torch._C._pop_torch_function_stack()
    return stack


def set_stack(modes: Iterable[Any]) -> None:
    """Leaves all modes, and enters these, also if an exception from outside arrives meanwhile."""
    modes = [*modes]
    try:
        take_off()
        put_on(modes)
    except BaseException:
        take_off()
        put_on(modes)
        raise


class FunctionModesOff:
    """A block in which no function mode sees operators. After it those are on that the list ``after`` holds: at first, those that were on before."""

    __slots__ = ("_on", "after")

    def __init__(self) -> None:
        self.after: list[Any] = []
        self._on = False

    def __enter__(self) -> FunctionModesOff:
        self.after = mode_stack()
        try:
            take_off()
        except BaseException:
            set_stack(self.after)
            raise
        return self

    def put_back(self) -> None:
        """Enters the modes at once, because code of the user's runs in the rest of the block."""
        if not self._on:
            set_stack(self.after)
            self._on = True

    def __exit__(self, cls: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.put_back()


class ModeAt:
    """Reads a mode of the stack as a member."""

    MEMBER_TEXTS = MappingProxyType({"": "{of}[{at}]"})

    def __init__(self, at: int) -> None:
        self.at = at
        self.__name__ = f"mode_{at}"

    def __get__(self, obj: object, cls: type) -> Any:
        return torch._C._get_function_stack_at(self.at)


# What sources of modes begin with.
FUNCTION_MODES: object = ("the stack of function modes",)
