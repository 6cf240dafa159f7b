"""What the running Python's own functions do, told by trying: small differences between versions that only one polyfill each depends on."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator


class _Measured:
    """Says how often it was asked for its length."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        self.asked += 1
        return 0

    def __iter__(self) -> Iterator[object]:
        return iter(())


def _asks_length(fn: Callable[[_Measured], object]) -> bool:
    measured = _Measured()
    fn(measured)
    return measured.asked > 0


def _takes(call: Callable[[], object]) -> bool:
    """Returns whether a function takes the arguments of a call, which other versions refuse."""
    try:
        call()
    except TypeError:
        return False
    return True


# From Python 3.12 on: the order of a sort may be any truth value.
SORTS_TAKE_ANY_TRUTH: bool = _takes(lambda: [].sort(reverse=None))  # type: ignore[call-overload]
# No longer in Python 3.14.
TUPLES_ASK_FOR_LENGTHS: bool = _asks_length(tuple)
# From Python 3.14 on: `map` refuses iterables of different lengths, if asked to.
MAPS_CAN_BE_STRICT: bool = _takes(lambda: map(abs, (), strict=True))  # type: ignore[call-overload]
# From Python 3.14 on: the first value of `reduce` can be given by name.
REDUCE_NAMES_INITIAL: bool = _takes(lambda: functools.reduce(operator.add, (), initial=0))  # type: ignore[call-overload]
# From Python 3.14 on: sums of complex numbers are compensated, and in a sum of floats ints are floats, of any size.
SUMS_COMPENSATE_ALL: bool = sum([1e16 + 0j, 1, -1e16]) == 1
