"""Random numbers of Python and NumPy: the methods that draw them, and their handler.

If a number is used only in arithmetic and operators, the program draws it in each call, before its graph runs. If control flow depends on
it, or if the method draws something other than a number, the call runs eagerly at a graph break.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType, NoneType
from typing import Any, NamedTuple

from fineline.bytecode.asynchronous import let_pass
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Restart
from fineline.guards.source import Source
from fineline.numpy_support import np
from fineline.symbolic.random_draws import Draw
from fineline.tables import attributes
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.lessons import Site


class Kind(NamedTuple):
    """A method: the class of its generator, the type of its numbers, and a function that computes their bounds from its arguments."""

    generator: type
    number: Any
    span: Callable[..., tuple | None]


# random() is less than one.
_UNIT = 0.0, math.nextafter(1.0, 0.0)


def _unit(*args: float, **kwargs: float) -> tuple[float, float] | None:
    return _UNIT if args in ((), (0, 1)) and not kwargs else None


def _anywhere(*args: float, **kwargs: float) -> None:
    return None


def _steps(*args: int, **kwargs: int) -> tuple[int, int]:
    # ``range`` takes no keyword arguments: with some, the call is not a symbol.
    numbers = range(*args, **kwargs)
    return min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])


def _below(low: int, high: int | None = None) -> tuple[int, int]:
    return (0, low - 1) if high is None else (low, high - 1)


PYTHON, NUMPY, GENERATOR = random.Random, np.random.RandomState, np.random.Generator
# Without the methods that raise for some of the numbers they draw, as some distributions do for extreme parameters.
_FLOATS: tuple[tuple[type, Callable, str], ...] = (
    (PYTHON, _unit, "random uniform"),
    (PYTHON, _anywhere, "triangular gauss normalvariate betavariate expovariate"),
    (NUMPY, _unit, "random random_sample rand uniform"),
    (NUMPY, _anywhere, "randn standard_normal normal beta exponential triangular"),
    (GENERATOR, _unit, "random uniform"),
    (GENERATOR, _anywhere, "standard_normal normal beta exponential triangular"),
)
KINDS: Mapping[Any, Kind] = MappingProxyType(
    {
        **{method: Kind(cls, float, span) for cls, span, names in _FLOATS for method in attributes(cls, names)},
        PYTHON.randint: Kind(PYTHON, int, lambda a, b: (a, b)),
        PYTHON.randrange: Kind(PYTHON, int, _steps),
        PYTHON.getrandbits: Kind(PYTHON, int, lambda k: (0, 2**k - 1)),
        **{method: Kind(NUMPY, int, _below) for method in attributes(NUMPY, "randint")},
    }
)
# Larger ints cannot be in a graph.
_MOST = 2**62
# The names that the methods themselves write into the generator's ``__dict__``.
_OWN = frozenset({"gauss_next"})


def _draw(call: Call) -> Frame | None:
    if not call.trace.active:
        return call.run_natively()
    place = call.frame.info.code, call.frame.ip - 1
    number = None if place in call.interp.lessons.numbers.breaking_draws else _number(call.interp, call.fn, call.args, call.kwargs or {}, place)
    if number is None:
        raise call.graph_break("FL410", f"{call.fn.__qualname__} draws random numbers")
    return call.finish(number)


def _number(interp: Interp, fn: Any, args: list, kwargs: dict, place: Site) -> Any:
    """Returns a symbol for the number that the program will draw; None if it cannot be a symbol."""
    kind = KINDS.get(fn)
    if kind is None or not interp.backing.restartable or interp.nested.any() or interp.nested.index_modes:
        return None
    src = interp.trace.sources.get(args[0]) if args else None
    if src is None or not _is_plain(kind.generator, args[0]):
        return None
    # Methods that draw ints warn about floats.
    numbers = (int, NoneType) if kind.number is int else (int, float, NoneType)
    if not all([type(a) in numbers for a in (*args[1:], *kwargs.values())]):
        return None
    try:
        # On a separate generator, so that the user's does not advance: this only checks the arguments.
        example = fn(_other(kind.generator), *args[1:], **kwargs)
        span = kind.span(*args[1:], **kwargs)
    except Exception as e:  # the call itself says what is wrong
        let_pass(e)
        return None
    if type(example) is not kind.number or not math.isfinite(example) or (span is not None and max(map(abs, span)) > _MOST):
        return None
    if not interp.backing.may_be_symbolic:
        if interp.may_restart():
            raise Restart("FL410", f"{fn.__qualname__} draws a number, which is a symbol in fake mode", draws=True)
        return None
    return _symbol(interp, fn, args, kwargs, place, kind, src, example, span)


def _symbol(interp: Interp, fn: Any, args: list, kwargs: dict, place: Site, kind: Kind, src: Source, example: Any, span: Any) -> Any:
    trace = interp.trace
    identify(trace, fn)
    for a in (*args[1:], *kwargs.values()):
        trace.deferred.settle(a)
    trace.guards.check(src, "predicate", (_Plain(kind.generator), "draws as its class does"), "draws")
    return trace.symbols.draws.add(Draw(fn, tuple(args), kwargs, place), example, span)


def _other(cls: type) -> Any:
    return np.random.default_rng(0) if cls is GENERATOR else cls(0)


def _is_plain(cls: type, generator: Any) -> bool:
    """Returns whether a draw runs no user code."""
    if type(generator) is not cls:
        return False
    return generator.__dict__.keys() <= _OWN if cls is PYTHON else True


class _Plain:
    """A guard predicate: `_is_plain` of the generator."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __call__(self, generator: Any) -> bool:
        return _is_plain(self.cls, generator)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        **{
            fn: _draw
            for cls in (random.Random, random.SystemRandom)
            for name, fn in vars(cls).items()
            if type(fn) is FunctionType and not name.startswith("__")
        },
        **dict.fromkeys(KINDS, _draw),
    }
)
"""Contains all that Python's two classes define in Python, because it depends on a state that each call changes."""
