"""The programs of all regions of one kind of callable, and the conditions under which another region may try them."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from torch import Tensor

from fineline.backends.registry import Backend
from fineline.codegen.frame_state import FrameState
from fineline.codegen.programs import UnboundProgram
from fineline.frames.frame import BreakCounts
from fineline.kinds import is_a
from fineline.policy.dim_marks import DIMS
from fineline.region.dynamic_dims import DynamicDims, marked
from fineline.region.options import Options
from fineline.region.session.entry_frame import instance_of
from fineline.report.events import Event, ShownRule

# So many programs of one kind are tried for a call, the latest used first: each takes about a millisecond for a transformer block.
MOST_TRIED = 16
# The options that change no program: what reports call the region, and the function from which the others get their values.
_WITHOUT_EFFECT = frozenset({"name", "settings"})
_PLAIN = frozenset({type(None), bool, int, float, str})


class Circumstances(NamedTuple):
    """What a program depends on besides its guards. ``shape``: the number and the names of the arguments; ``marks``: those of their sizes."""

    shape: tuple[int, tuple[str, ...]]
    backend: Backend
    options: Options
    marks: tuple

    def are(self, other: Circumstances) -> bool:
        """Returns whether both are the same; objects that Python code could compare are the same only if they are one object."""
        mine, theirs = self.backend, other.backend
        same = mine.source is theirs.source or (mine.name == theirs.name and mine.source.source is theirs.source.source)
        return (
            same and self.shape == other.shape and self.marks == other.marks and _same(mine.kwargs, theirs.kwargs)
            and all([_same(getattr(self.options, f.name), getattr(other.options, f.name)) for f in fields(Options) if f.name not in _WITHOUT_EFFECT])
        )  # fmt: skip


class SharedWay(NamedTuple):
    """A way on after a program that ends at a graph break: what another region needs to make its own entry point, and the programs there.

    ``varying``: the values that vary there, as long as the region that has captured the program is alive.
    """

    state: FrameState
    raised: bool
    declared: bool
    passed: Mapping
    breaks: tuple[BreakCounts, ...]
    varying: weakref.ref[DynamicDims]
    programs: SharedPrograms


class Capture(NamedTuple):
    """What other regions get with a program, besides its code. ``text``: it and its region, in words.

    ``fired``: the rules that decided something in its capture. ``events``: the graph breaks and other code outside graphs. ``through``: makes
    the eager call at the graph break, after which the program continues in these ``ways``.
    """

    text: str
    fired: Counter[ShownRule]
    events: tuple[Event, ...]
    through: Callable[..., Any] | None = None
    ways: tuple[SharedWay, ...] = ()


class SharedProgram(NamedTuple):
    """A program that other regions may run."""

    unbound: weakref.ref[UnboundProgram]
    when: Circumstances
    capture: Capture


class SharedPrograms:
    """The programs of one kind of callable that start at one place, each for as long as a region has it.

    No instance is kept alive for others that may come.
    """

    def __init__(self, kind: tuple[object, ...] = ()) -> None:
        """``kind``: the objects whose addresses are the key; none after a graph break."""
        self._kind = kind
        # The latest used first. Threads replace it as a whole: one that is lost is captured again.
        self._all: tuple[SharedProgram, ...] = ()
        self._members = 0

    def join(self) -> Member:
        """Makes a new region of this kind one of those that share the programs."""
        self._members += 1
        return Member(self, self._members)

    def add(self, unbound: UnboundProgram, when: Circumstances, capture: Capture) -> None:
        own = weakref.ref(self)

        def gone(ref: weakref.ref[UnboundProgram]) -> None:
            shared = own()
            if shared is not None:
                shared._all = tuple([known for known in shared._all if known.unbound is not ref])

        self.use(SharedProgram(weakref.ref(unbound, gone), when, capture))

    def use(self, program: SharedProgram) -> None:
        """Makes a program the latest used one."""
        self._all = (program, *[known for known in self._all if known is not program][: MOST_TRIED - 1])

    def under(self, when: Circumstances) -> Iterator[tuple[SharedProgram, UnboundProgram]]:
        """Yields the programs that were captured under such circumstances."""
        for program in self._all:
            unbound = program.unbound()
            if unbound is not None and not unbound.withdrawn and program.when.are(when):
                yield program, unbound


class Member(NamedTuple):
    """A region among those that share programs. ``number``: which it is, in the order of their first calls, from 1."""

    programs: SharedPrograms
    number: int


def shared_by(fn: Callable) -> Member | None:
    """Makes the region of ``fn`` one of those that share the programs of equal callables; None if no other callable is like it."""
    instance = instance_of(fn)
    if instance is None:
        return None
    if is_a(fn, MethodType):
        kind: tuple[object, ...] = (fn.__func__, type(instance))
    elif is_a(fn, FunctionType):
        # No guard is on the globals of an instance. A function without attributes is known to be no wrapper.
        # Any: whether mypy 2.4 knows `__builtins__` depends on what its cache holds.
        function: Any = fn
        kind = (function.__code__, function.__globals__, function.__builtins__, bool(function.__dict__))
    else:
        kind = (type(instance),)
    key = tuple([id(part) for part in kind])
    # A variable holds the programs until the region does.
    found = SharedPrograms(kind)
    found = _BY_KIND.setdefault(key, found)
    return found.join()


def circumstances(shape: tuple[int, tuple[str, ...]], backend: Backend, options: Options, values: tuple) -> Circumstances | None:
    """Returns the circumstances of a call with these ``values``; None if no other call is under the same: containers hold marked tensors."""
    inside = [v for v in values if type(v) in (list, tuple, dict)]
    if inside and marked(inside, False):
        return None
    marks = tuple([tuple(DIMS.of(v).items()) if is_a(v, Tensor) else () for v in values])
    return Circumstances(shape, backend, replace(options), marks)


def _same(a: Any, b: Any) -> bool:
    if type(a) is dict and type(b) is dict:
        return a.keys() == b.keys() and all([_same(v, b[k]) for k, v in a.items()])
    return a is b or (type(a) is type(b) and type(a) in _PLAIN and bool(a == b))


# By the addresses of the objects that the kind consists of, which its programs hold; an entry disappears with the last region of its kind.
_BY_KIND: weakref.WeakValueDictionary[tuple[int, ...], SharedPrograms] = weakref.WeakValueDictionary()
