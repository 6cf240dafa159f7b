"""The state of iterators in C: what they are made of, and how an iterator is put into a state.

The iterators of itertools warn from Python 3.12 on when they are asked, and from 3.14 on they do not answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import FunctionType
from typing import Any


def _without_warnings(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``fn`` with C's warnings left out, whatever the filters are, which are the user's and shared by all threads.

    C drops a warning whose module has no name, as it drops those of code that runs when the interpreter ends (`warn_explicit` in
    `Python/_warnings.c`). What ``fn`` calls may be written in C only: code in Python has its own module.
    """
    return FunctionType(fn.__code__, {"__name__": None}, fn.__name__)


# What an iterator in C is made by: a callable, its arguments and, if it has been advanced, a state for `set_iterator_state`. TypeError: C does not say.
iterator_state: Callable[[Any], tuple[Any, ...]] = _without_warnings(lambda it: it.__reduce__())
set_iterator_state: Callable[[Any, Any], None] = _without_warnings(lambda it, state: it.__setstate__(state))
# Whether the iterators of itertools have a state that can be read and set.
STATES_OF_ITERTOOLS: bool = hasattr(itertools.chain, "__setstate__")
