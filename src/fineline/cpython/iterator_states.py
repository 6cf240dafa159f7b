"""The state of iterators in C: what they are made of, and how an iterator is put into a state.

The iterators of itertools warn from Python 3.12 on when they are asked, and from 3.14 on they have no state that can be read or set.
"""

from __future__ import annotations

import builtins
import gc
import itertools
from collections.abc import Callable
from types import FunctionType
from typing import Any

# Whether the iterators of itertools have a state. If not, captured code makes stand-ins in Python instead of them.
STATES_OF_ITERTOOLS: bool = hasattr(itertools.chain, "__setstate__")
REVERSED_LIST: type = type(reversed([]))


class NoItems:
    """A sequence that is empty."""

    def __getitem__(self, index: int) -> Any:
        raise IndexError


# The type of iterators over what has only ``__getitem__``, and over arrays of NumPy.
SEQUENCE_ITERATOR: type = type(iter(NoItems()))


class NoState(TypeError):
    """C does not say where an iterator is."""


def _without_warnings(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``fn`` with C's warnings left out, whatever the filters are, which are the user's and shared by all threads.

    C drops a warning whose module has no name, as it drops those of code that runs when the interpreter ends (`warn_explicit` in
    `Python/_warnings.c`). What ``fn`` calls may be written in C only: code in Python has its own module.
    """
    # C imports what it needs with the builtins of its caller.
    return FunctionType(fn.__code__, {"__name__": None, "__builtins__": builtins}, fn.__name__)


_reduced = _without_warnings(lambda it: it.__reduce__())
set_iterator_state: Callable[[Any, Any], None] = _without_warnings(lambda it, state: it.__setstate__(state))


def _times_left(it: itertools.repeat[Any]) -> tuple[int, ...]:
    try:
        return (it.__length_hint__(),)
    except TypeError:
        # It has no end.
        return ()


def iterator_state(it: Any) -> tuple[Any, ...]:
    """Returns what an iterator in C is made by: a callable, its arguments and, if it has been advanced, a state for `set_iterator_state`."""
    if not STATES_OF_ITERTOOLS and type(it) is itertools.repeat:
        # The last of its referents, after its class.
        return itertools.repeat, (gc.get_referents(it)[-1], *_times_left(it))
    if not STATES_OF_ITERTOOLS and type(it).__module__ == "itertools":
        raise NoState(f"Python does not tell where a {type(it).__name__} is")
    found: tuple[Any, ...] = _reduced(it)
    if len(found) == 2 and type(it) is REVERSED_LIST and (held := gc.get_referents(it)):
        # From Python 3.13 on, C no longer names the list of one that has given all items, or that was made when the list was empty.
        return reversed, (held[0],), -1
    return found
