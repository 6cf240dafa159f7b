"""The shape of a frame stack at a graph break, without its live values: enough to rebuild the frames.

`frame_snapshot` makes it from the interpreter's frames, `frame_restore` makes frames from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from fineline.bytecode.code import CodeInfo
from fineline.frames.frame import FramePlaces
from fineline.guards.evaluate import same_constant
from fineline.kinds import is_a


# -- values ----------------------------------------------------------------------------------------------------------------
class Root(NamedTuple):
    """A live value: the program passes it as its argument ``number``."""

    number: int


class Const(NamedTuple):
    value: Any


class Made(NamedTuple):
    """A tuple, list or dict that the interpreter made."""

    type: type
    items: tuple


class GeneratorRef(NamedTuple):
    number: int


class Reduced(NamedTuple):
    """A C iterator that is made again. ``number``: the number of its shape."""

    number: int


class Carried(NamedTuple):
    """A C iterator that is a live value. ``number``: the number of the value."""

    number: int


class Object(NamedTuple):
    """An object made in the capture that contains a suspended generator or an iterator, and is rebuilt from its parts."""

    number: int


ValueShape = Root | Const | Made | GeneratorRef | Reduced | Carried | Object


# -- what holds values -----------------------------------------------------------------------------------------------------
class DeliveryShape(NamedTuple):
    """Where a result goes. ``data``: values."""

    function: Callable[..., Any]
    data: tuple
    then: DeliveryShape | None


class FrameShape(NamedTuple):
    """A frame. ``generator`` and ``back``: their numbers, or -1."""

    info: CodeInfo
    globals: dict
    builtins: dict
    ip: int
    local: tuple[ValueShape, ...]
    stack: tuple[ValueShape, ...]
    then: DeliveryShape | None
    on_stop: DeliveryShape | None
    kwnames: tuple
    namespace: ValueShape
    generator: int
    back: int
    whole: bool


class GeneratorShape(NamedTuple):
    """A generator. ``frame``: the number of its frame, or -1."""

    state: str
    handled: ValueShape
    outer: ValueShape
    frame: int
    called_at: tuple[CodeType, int] | None
    code: CodeType


class IteratorShape(NamedTuple):
    """An iterator: a call, and the state to set."""

    make: Any
    args: tuple
    state: Any


class ObjectShape(NamedTuple):
    """An object. ``parts``: values, by name in a dict or in a tuple."""

    kind: str
    type: type
    parts: Any


# -- the whole -------------------------------------------------------------------------------------------------------------
class Shapes(NamedTuple):
    """The shapes of all that is rebuilt. Numbers in other shapes are indices of these tuples."""

    frames: tuple[FrameShape, ...]
    generators: tuple[GeneratorShape, ...]
    iterators: tuple[IteratorShape, ...]
    objects: tuple[ObjectShape, ...]


class LiveValues(NamedTuple):
    """The values that a program passes to the code after the graph break.

    ``names``: the names of the values, in order. ``containers``: the numbers of those that iterators go through. ``carried``: the numbers
    of those that are iterators.
    """

    names: tuple[str, ...]
    containers: tuple[int, ...]
    carried: tuple[int, ...]


class Resumption(NamedTuple):
    """How the interpreter continues: in the frame ``top``, after the result of the eager call is delivered to ``then``."""

    top: int
    depth: int
    handled: ValueShape
    then: DeliveryShape | None


class Number(NamedTuple):
    """A place in a frame state that holds a number.

    ``where``: a variable ("local") or the "stack" of a frame, a field of an "object", or the next number ("at") or the end ("stop") of an
    iterator over a range. ``holder``: the number of the frame or object. ``slot``: the place there, or the number of the iterator.
    """

    where: str
    holder: int
    slot: int | str


NumberPlaces = frozenset[Number]


class LoopNumbers(NamedTuple):
    """The numbers in which the iterations of a loop differ: they are live values.

    ``names``: the names of these live values. ``lone``: the numbers of iterators over ranges to which only a loop refers.
    """

    places: NumberPlaces
    names: tuple[str, ...]
    lone: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrameState:
    """Frames, generators and the exception being handled; live values are numbered from 0.

    ``chain``: the code and the instruction of each frame, the innermost first. ``stack``: the same of all frames, also those of
    suspended generators, in the order of ``shapes``. ``place``: the user's file and line.
    """

    shapes: Shapes
    values: LiveValues
    resumption: Resumption
    numbers: LoopNumbers
    chain: tuple[tuple[CodeInfo, int], ...]
    stack: FramePlaces
    place: tuple[str, int]

    def same(self, other: FrameState) -> bool:
        """Returns whether both describe the same frames at the same place; the live values may differ."""
        return (
            alike(self.shapes, other.shapes) and alike(self.values, other.values) and alike(self.resumption, other.resumption)
        )

    def called_frames(self) -> list[FrameShape]:
        """Returns the frames but for the outermost one, the innermost first."""
        found, frames, at = list[FrameShape](), self.shapes.frames, self.resumption.top
        while frames[at].back >= 0:
            found.append(frames[at])
            at = frames[at].back
        return found

    @property
    def serves_iterations(self) -> bool:
        """Returns whether the state is for all iterations of a loop: their numbers, or the iterator itself, are live values."""
        return bool(self.numbers.places or self.values.carried)

    @property
    def has_handlers(self) -> bool:
        """Returns whether some frame would handle an exception raised here."""
        return any(
            s.info.handler_at(s.ip - 1) is not None or s.on_stop is not None or s.generator >= 0 for s in self.shapes.frames
        )


def roots_of(spec: Any) -> Iterator[int]:
    """Yields the numbers of the live values in a part of a frame state."""
    if type(spec) is Root:
        yield spec.number
    elif type(spec) is not Const and is_a(spec, tuple):
        for part in spec:
            yield from roots_of(part)


def alike(a: Any, b: Any) -> bool:
    """Returns whether two parts of frame states are equal, without running user code."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is Const:
        return same_constant(a.value, b.value)
    if is_a(a, (tuple, list)):
        return len(a) == len(b) and all(map(alike, a, b))
    if type(a) is dict:
        return len(a) == len(b) and all(
            same_constant(j, k) and alike(x, y) for (j, x), (k, y) in zip(a.items(), b.items(), strict=True)
        )
    return type(a) in (int, str, bool) and a == b
