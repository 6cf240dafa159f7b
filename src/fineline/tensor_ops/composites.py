"""Composite Python operators of libraries: one watched run shows whether the numbers in tensors may decide the sizes of their results.

A composite operator only runs its Python code. If this code reads no number from a tensor, and calls no operator whose result sizes depend
on such numbers, the sizes of the result follow from the sizes of the arguments, as with a fake kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.library import _impls
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from fineline.identity import IdentityMap
from fineline.kinds import is_a, is_wrapper_class
from fineline.report.operator_counter import Tally
from fineline.torch_facts.spellings import is_custom
from fineline.torch_facts.unguarded_sizes import Foresight

_KEY = "CompositeImplicitAutograd"
# If the operator has a kernel for one of these keys, code other than the composite may run.
_OTHER_KEYS = ("CPU", "CUDA", "Autograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# C methods that give access to the numbers in a tensor without calling an operator.
_READERS = frozenset(["data_ptr", "numpy", "storage", "tolist", "untyped_storage", "_to_dlpack", "_to_dlpack_versioned"])

# Those of them that return numbers.
_NUMBERS = frozenset(["numpy", "tolist", "_to_dlpack", "_to_dlpack_versioned"])


def is_composite(op: OpOverload) -> bool:
    """Returns whether an operator is registered as a composite in Python and has no kernel of its own."""
    name = op.name()
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return f"{name.replace('::', '/')}/{_KEY}" in _impls and not any([has_kernel(name, key) for key in _OTHER_KEYS])


class _Operators(TorchDispatchMode):
    def __init__(self, watch: CompositeWatch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if any(map(is_wrapper_class, types)):
            # The class calls operators on its inner tensors, which this mode then sees.
            return NotImplemented
        self._watch.sees_operator(func, args, kwargs)
        return func(*args, **(kwargs or {}))


@contextmanager
def _without_tallies() -> Iterator[None]:
    """A block in which no mode that counts operators is on.

    A mode that is entered here comes under them: they see the operator on the wrapper, as in eager code, and it sees those on the inner tensors.
    """
    modes = [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]
    above = [torch._C._pop_torch_dispatch_stack(None) for mode in modes if is_a(mode, Tally)]
    try:
        yield
    finally:
        for mode in reversed(above):
            torch._C._push_on_torch_dispatch_stack(mode)


class CompositeWatch:
    """A context that watches a run of a composite operator; ``foresight`` then says whether the sizes of its result follow from guards.

    ``by_data(fn, args, kwargs)`` returns whether the numbers in tensors may decide the sizes of an operator's result. ``fake``: the run is on
    fakes, whose numbers cannot be read.
    """

    def __init__(self, by_data: Callable[[Any, tuple, Mapping[str, Any] | None], bool], fake: bool) -> None:
        self.foresight = Foresight.FORESEEN
        self._fake = fake
        self._by_data = by_data
        self._operators = _Operators(self)

    def __enter__(self) -> CompositeWatch:
        self._operators.__enter__()
        if self._fake:
            return self
        # Another profile function is set, so the calls cannot be watched.
        if sys.getprofile() is not None:
            self.foresight = Foresight.UNFORESEEN
        else:
            sys.setprofile(self._hears)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if sys.getprofile() == self._hears:
            sys.setprofile(None)
        self._operators.__exit__(kind, error, trace)

    def sees_operator(self, func: Any, args: tuple, kwargs: Mapping[str, Any] | None) -> None:
        # Nothing is known about operators of other libraries.
        if type(func) is not OpOverload or is_custom(func) or torch.Tag.data_dependent_output in func.tags or self._by_data(func, args, kwargs):
            self.foresight = Foresight.UNFORESEEN

    def _hears(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in _READERS:
            self.foresight = Foresight.UNFORESEEN


class Composition(TorchDispatchMode):
    """Runs a composite operator on fakes, and records the operators that its code calls: they may run again on other tensors, and the code may not."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self._op = op
        self._calls: list[tuple[Any, Any, Any]] = []
        self._given: Any = ()
        self._result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._given = args, kwargs
        with self:
            self._result = self._op(*args, **kwargs)
        return self._result

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._calls.append((func, (args, dict(kwargs or {})), out))
        return out

    def on(self, args: tuple, kwargs: dict[str, Any], plain: Callable[[Any], Any]) -> Any:
        """Returns what these operators give on other tensors; raises KeyError if they use a tensor of unknown origin. ``plain``: gives numbers for symbols."""
        made: IdentityMap[Any] = IdentityMap()

        def take(fakes: Any, tensors: Any) -> None:
            for fake, t in zip(tree_leaves(fakes), tree_leaves(tensors), strict=True):
                if is_a(fake, torch.Tensor):
                    made[fake] = t

        def real(value: Any) -> Any:
            return tree_map(lambda x: made[x] if is_a(x, torch.Tensor) else plain(x), value)

        take(self._given, (args, kwargs))
        for func, given, out in self._calls:
            own, named = real(given)
            take(out, func(*own, **named))
        return real(self._result)


class NumberWatch(CompositeWatch):
    """Watches an operator on tensors of wrapper subclasses: whether the class reads numbers in the inner tensors, which no guard checks."""

    def __enter__(self) -> NumberWatch:
        with _without_tallies():
            super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with _without_tallies():
            super().__exit__(kind, error, trace)

    def sees_operator(self, func: Any, args: tuple, kwargs: Mapping[str, Any] | None) -> None:
        if type(func) is OpOverload and not is_custom(func):
            super().sees_operator(func, args, kwargs)

    def _hears(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in _NUMBERS:
            self.foresight = Foresight.UNFORESEEN
