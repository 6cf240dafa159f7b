"""NumPy's own answer: the call is made with samples, arrays of ones that are laid out as the arrays of the graph.

The answer decides the type, dtype, sizes and strides of the result, and whether it shares memory with an operand. What PyTorch computes has to
agree, or the call is a graph break.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from fineline.bytecode.asynchronous import let_pass
from fineline.guards.facts import storage_of
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects.c_access import may_compare
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.symbolic.floats import hint
from fineline.tensor_ops.arrays.traced import DTYPES, TORCH_DTYPES, NotTraced, is_input
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import is_value

# In bytes: larger samples take too long.
MOST = 2**27


class Sample(NamedTuple):
    """An array that is like an operand, and the operand."""

    array: Any
    operand: Any


class Samples:
    """The samples for the operands of one call."""

    def __init__(self, interp: Interp) -> None:
        self._interp = interp
        self.of: list[Sample] = []
        self._left = MOST

    def like(self, v: Any) -> Any:
        """Returns the argument of NumPy's call for ``v``, an argument of the user's call."""
        t = type(v)
        if t is np.ndarray:
            sample = self._like_array(v)
            self.of.append(Sample(sample, v))
            return sample
        if t is list or t is tuple:
            return t([self.like(x) for x in v])
        if t is slice:
            return slice(self.like(v.start), self.like(v.stop), self.like(v.step))
        if t in SYMBOLIC:
            number = hint(v)
            if number is None:
                raise NotTraced("gets a number that only the graph knows")
            return number
        if is_a(v, np.dtype) and v.isbuiltin == 1:
            identify(self._interp.trace, v)
            return v
        if not is_value(v) or not may_compare(self._interp.trace, v):
            raise NotTraced(f"gets a {t.__name__}")
        return v

    def _like_array(self, a: Any) -> Any:
        arrays = self._interp.tensors.arrays
        traced = arrays.traced.get(a)
        if traced is not None:
            fake = self._interp.backing.memory(self._interp, traced.tensor)
            if traced.scalar:
                return a.dtype.type(1)
            return self._laid_out(a.shape, [hint(n) for n in fake.stride()], a.dtype)
        constant = arrays.constant(self._interp, a)
        if a.dtype.name not in TORCH_DTYPES or not (constant or is_input(self._interp, a)):
            raise NotTraced("gets an array that no graph can hold")
        if any([stride < 0 or stride % a.itemsize for stride in a.strides]):
            raise NotTraced("gets an array that no tensor can have the memory of")
        sample = self._laid_out(a.shape, [stride // a.itemsize for stride in a.strides], a.dtype)
        if constant and sample.size:
            sample[...] = a
        return sample

    def _laid_out(self, sizes: tuple[int, ...], strides: list[Any], dtype: Any) -> Any:
        if None in strides:
            raise NotTraced("gets an array with strides that only the graph knows")
        count = 1 + sum([(n - 1) * stride for n, stride in zip(sizes, strides, strict=True)]) if 0 not in sizes else 0
        self._left -= count * dtype.itemsize
        if self._left < 0:
            raise NotTraced(f"gets arrays of more than {MOST} bytes")
        base = np.ones(max(count, 1), dtype)
        return np.lib.stride_tricks.as_strided(base[:count], sizes, [n * dtype.itemsize for n in strides])

    def protect(self) -> None:
        """Makes a call that writes into a sample raise."""
        for sample in self.of:
            if is_a(sample.array, np.ndarray):
                sample.array.flags.writeable = False

    def answer(self, fn: Any, args: list, kwargs: dict) -> Any:
        """Returns what NumPy gives."""
        try:
            with np.errstate(all="ignore"):
                return fn(*args, **kwargs)
        except Exception as e:  # raised again by the call itself
            let_pass(e)
            raise NotTraced(f"raises {type(e).__name__}") from None

    def owner(self, answer: Any) -> Any:
        """Returns the sample with whose memory an array of the answer lies; None if it has memory of its own."""
        found = [s for s in self.of if is_a(s.array, np.ndarray) and s.array.size and answer.size and np.may_share_memory(answer, s.array)]
        return found[0] if found else None


def layout(t: Tensor) -> tuple[tuple, tuple, Any]:
    """Returns the sizes, the strides and the offset of a fake tensor, as plain numbers."""
    return tuple([hint(n) for n in t.shape]), tuple([hint(n) for n in t.stride()]), hint(t.storage_offset())


def strides_agree(answer: Any, strides: tuple) -> bool:
    """Returns whether an array has these strides, where its sizes make them matter."""
    if answer.size < 2:
        return True
    pairs = zip(answer.shape, answer.strides, strides, strict=True)
    return all([n == 1 or stride == other * answer.itemsize for n, stride, other in pairs])


def agrees(answer: Any, fake: Tensor) -> bool:
    """Returns whether a tensor has the dtype and the sizes of NumPy's answer."""
    return DTYPES.get(fake.dtype) == answer.dtype.name and layout(fake)[0] == answer.shape


def same_memory(answer: Any, fake: Tensor, sample: Any, operand: Tensor) -> bool:
    """Returns whether a tensor lies in the memory of ``operand`` where NumPy's answer lies in that of ``sample``."""
    if storage_of(fake) != storage_of(operand):
        return False
    at = answer.__array_interface__["data"][0] - sample.__array_interface__["data"][0]
    return (layout(fake)[2] - layout(operand)[2]) * answer.itemsize == at and strides_agree(answer, layout(fake)[1])
