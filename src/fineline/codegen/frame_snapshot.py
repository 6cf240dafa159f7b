"""Frame states made from the interpreter's frames at a graph break: which values are alive, and which are part of the shape."""

from __future__ import annotations

import itertools
import sys
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Set
from types import CellType, FunctionType, GeneratorType, MappingProxyType, MethodType
from typing import Any, Generic, TypeVar

from torch import Tensor

from fineline.codegen.frame_state import (
    Carried,
    Const,
    DeliveryShape,
    FrameShape,
    FrameState,
    GeneratorRef,
    GeneratorShape,
    IteratorShape,
    LiveValues,
    LoopNumbers,
    Made,
    Number,
    NumberPlaces,
    Object,
    ObjectShape,
    Reduced,
    Resumption,
    Root,
    Shapes,
)
from fineline.cpython.polyfill_iterators import Lazy, RangeIterator
from fineline.frames.frame import NULL, Frame, InterpretedGenerator, stack
from fineline.frames.graph_breaks import Delivery, GraphBreak, NotReconstructible
from fineline.frames.stub_frames import is_own
from fineline.identity import AddressMap, AddressSet
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.objects.c_calls import ITERATORS
from fineline.objects.carried_iterators import CARRIED, READERS, STANDING, LiveIterator, carriable, iterators_in
from fineline.objects.iterator_stand_ins import KINDS, table_recipe
from fineline.objects.list_iterators import reversed_recipe
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.classes_made_anew import HEAP_TYPE
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.plain_values import VALUES, is_value
from fineline.tracing.segment_trace import SegmentTrace

# What is not there, and what most frames have for the rest of their fields.
_NOTHING = Const(NULL)
_NONE = Const(None)
# The packages whose functions and getters frames hold.
_PACKAGES = ("interp", "builtins", "tensor_ops", "objects", "tracing", "symbolic", "frames", "cpython")
_ENGINE = tuple([f"fineline.{package}." for package in _PACKAGES])
NONE: Mapping[Any, Any] = MappingProxyType({})
NOWHERE = ("", 0)
SEQUENCE_ITERATORS: tuple[type, ...] = (type(iter(())), type(iter([])))
# What stands for an iterator of C's that the interpreter runs.
TAKEN_APART = frozenset([t for t in KINDS if issubclass(t, Lazy)])
# What tells the iterations of a loop apart.
COUNTERS = (int, float)
RANGE_ITERATOR: type = type(iter(range(0)))
DEQUE_ITERATOR: type = type(iter(deque()))
ShapeT = TypeVar("ShapeT")


class Snapshot:
    """A frame state, and what is alive in it until the call goes on.

    ``roots``: the live values. ``containers``: what iterators go through. ``decomposed``: what is made again part by part. By identity, which
    holds until the program is written: ``held``, what stays what it is, and ``rebuilt``, what the code after the graph break makes again.
    """

    __slots__ = ("containers", "decomposed", "held", "rebuilt", "roots", "state")

    def __init__(
        self, state: FrameState, roots: list[Any], containers: list[Any], decomposed: list[Any], held: AddressSet, rebuilt: AddressSet
    ) -> None:
        self.state = state
        self.roots, self.containers, self.decomposed = roots, containers, decomposed
        self.held, self.rebuilt = held, rebuilt

    def pass_on(self) -> None:
        """Moves the live iterators to where the code is, for eager code to find; the program has been written."""
        for at in self.state.values.carried:
            self.roots[at] = self.roots[at].moved()

    def release(self) -> None:
        """Lets go of all that is alive: who runs the rest of the call may still hold the snapshot."""
        self.roots, self.containers, self.decomposed = [], [], []


def take_snapshot(
    interp: Interpreter,
    graph_break: GraphBreak,
    place: tuple[str, int] = NOWHERE,
    constants: bool = True,
    held: AddressSet | None = None,
    loop_numbers: Mapping[Any, NumberPlaces] = NONE,
) -> Snapshot:
    """Returns the state of the interpreter's frames at a graph break, and what is alive in it.

    ``place``: the user's file and line. ``constants``: values known to be the same in each run are part of the state; otherwise a local value
    may be anything. ``held``: iterators, generators and their holders that stay what they are, as something else holds them too. ``loop_numbers``:
    where numbers are alive that would be part of the shape, by the chain of frames.
    """
    frames = list(stack(interp.frame))
    chain = tuple([(f.info, f.ip) for f in frames])
    # The call itself may move an iterator on.
    held = (held or AddressSet()) if constants else _held_besides(frames)
    builder = FrameStateBuilder(interp, graph_break, constants, held, loop_numbers.get(chain, frozenset()))
    return builder.build(interp, graph_break, frames, chain, place)


def _held_besides(frames: list[Frame]) -> AddressSet:
    """Iterators that not only frames hold, where no program is written that would tell."""
    found: list[Any] = []
    for frame in frames:
        found += [v for v in (*frame.local, *frame.stack) if type(v) in ITERATORS]
    places = Counter(map(id, found))
    # Each place has a reference, and so has each entry of the list here; two are the comprehension's and the argument's.
    return AddressSet([v for v in found if sys.getrefcount(v) > 2 * places[id(v)] + 2])


class _Numbered(Generic[ShapeT]):
    """Shapes in the order in which their objects are found. An object may hold itself: it has its number before its shape is known."""

    __slots__ = ("numbers", "shapes")

    def __init__(self) -> None:
        self.shapes: list[ShapeT] = []
        # The frames hold these objects.
        self.numbers: AddressMap[int] = AddressMap()

    def reserve(self, v: Any) -> int:
        at = self.numbers[v] = len(self.shapes)
        self.shapes.append(None)  # type: ignore[arg-type]
        return at


class _Roots:
    """The live values, and what the program calls them. ``hint``: the name of the next one."""

    __slots__ = ("carried", "hint", "names", "numbers", "values", "varying")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.names: list[str] = []
        # Of the values, which ``values`` holds, and of the iterators among them.
        self.numbers: AddressMap[int] = AddressMap()
        self.carried: AddressMap[int] = AddressMap()
        # The names of the numbers that are alive because iterations differ in them.
        self.varying: list[str] = []
        self.hint = "value"

    def number(self, v: Any) -> Root:
        at = self.numbers.get(v)
        if at is None:
            at = self.numbers[v] = len(self.values)
            self.values.append(v)
            self.names.append(self.hint)
        return Root(at)

    def vary(self, v: Any) -> Root:
        """Adds a number that varies, also if another live value is equal: it may differ in the next iteration."""
        self.values.append(v)
        self.names.append(self.hint)
        self.varying.append(self.hint)
        return Root(len(self.values) - 1)

    def carry(self, it: Any) -> Carried:
        at = self.carried.get(it)
        if at is None:
            at = len(self.values)
            self.values.append(LiveIterator(it))
            self.names.append(f"{self.hint.removesuffix('_value')}_iterator{len(self.carried) or ''}")
            self.carried[it] = at
        return Carried(at)


class _Suspended:
    """Finds the objects made in the capture that hold a suspended generator or an iterator: they are made again part by part."""

    __slots__ = ("_trace", "known")

    def __init__(self, trace: SegmentTrace) -> None:
        self._trace = trace
        # The frames hold these objects.
        self.known: AddressMap[bool] = AddressMap()

    def holds(self, v: Any) -> bool:
        known = self.known.get(v)
        if known is not None:
            return known
        self.known[v] = False
        if v in self._trace.sources or is_a(v, Tensor):
            return False
        # The continuation takes the items of an iterator of C's, or of what stands for one, and needs it in parts.
        if is_a(v, InterpretedGenerator) or type(v) in ITERATORS or type(v) in TAKEN_APART:
            self.known[v] = True
            return True
        found = _parts(v)
        if found is None or (found[0] == "instance" and v not in self._trace.made):
            # What existed before holds no generator of this capture: of a model, all would be looked through.
            return False
        inside = found[1]
        parts = inside.values() if is_a(inside, dict) else inside
        held = self.known[v] = any([self.holds(x) for x in parts])
        return held


class _Iterators:
    """The iterators of C's. They go by what they iterate over and how far they are; what they give next is then guarded like any value."""

    __slots__ = ("_alone", "_kept", "_read", "_trace", "containers", "lone", "table")

    def __init__(self, trace: SegmentTrace) -> None:
        self._trace = trace
        self.table: _Numbered[IteratorShape] = _Numbered()
        # What they go through.
        self.containers: list[Any] = []
        # Those that others of C's read, which are made again part by part with these. The frames hold them.
        self._read = AddressSet()
        # Iterators over ranges that nothing but a loop holds: by identity, and by their numbers.
        self._alone = AddressSet()
        self.lone: set[int] = set()
        # Keeps what `__reduce__` gives, for its identity.
        self._kept: list[Any] = []

    def note_readers(self, frames: Iterable[Frame]) -> None:
        """Notes what is read by the iterators that frames hold."""
        for frame in frames:
            if not READERS.isdisjoint(map(type, frame.local)) or not READERS.isdisjoint(map(type, frame.stack)):
                found = [it for v in (*frame.local, *frame.stack) if type(v) in READERS for it in iterators_in(v)]
                self._read.update(found)

    def note_alone(self, held: list[Any]) -> None:
        """Notes the iterators over ranges that are held by nothing but ``held``: a frame's variables, or its stack."""
        if RANGE_ITERATOR in map(type, held):
            # References: of the stack or the variable, and that of the question.
            found = [i for i in range(len(held)) if type(held[i]) is RANGE_ITERATOR and sys.getrefcount(held[i]) == 2]
            self._alone.update([held[i] for i in found])

    def shape(self, it: Any, builder: FrameStateBuilder) -> Reduced | Carried:
        if type(it) in STANDING or (type(it) in CARRIED and self._is_carriable(it, builder)):
            return builder.roots.carry(it)
        at = self.table.numbers.get(it)
        if at is not None:
            return Reduced(at)
        at = self.table.reserve(it)
        if it in self._alone:
            self.lone.add(at)
        vary = [Number(where, 0, at) in builder.loop_numbers for where in ("at", "stop")]
        if type(it) is RangeIterator or (any(vary) and at in self.lone):
            self.table.shapes[at] = builder.rest_of_range(it, *vary)
            return Reduced(at)
        recipe = reversed_recipe(self._trace, it) or table_recipe(it)
        reduced: Any = it.__reduce__() if recipe is None else (recipe.make, recipe.args)
        self._kept.append(reduced)
        state = reduced[2] if len(reduced) > 2 else None
        # What a chain has not come to yet will be iterated over too.
        later = ()
        if type(it) is itertools.chain and state and type(state[0]) in SEQUENCE_ITERATORS:
            later = state[0].__reduce__()[1][0]
        trace = self._trace
        self.containers += [a for a in (*reduced[1], *later) if a in trace.sources or a in trace.made]
        args = tuple([builder.value(a) for a in reduced[1]])
        self.table.shapes[at] = IteratorShape(reduced[0], args, builder.value(state))
        return Reduced(at)

    def _is_carriable(self, it: Any, builder: FrameStateBuilder) -> bool:
        if it not in self._read and carriable(it, self._is_written, builder.suspended.holds):
            return True
        inner = iterators_in(it)
        if any([x in builder.roots.carried for x in inner]):
            raise NotReconstructible("an iterator that the code reads both by itself and through another one")
        self._read.update(inner)
        return False

    def _is_written(self, container: Any) -> bool:
        return container in self._trace.mutations.written


class FrameStateBuilder:
    """Walks over frames and all that they hold. Each part of the state it makes has a number from its first place on."""

    def __init__(
        self, interp: Interpreter, graph_break: GraphBreak, constants: bool, held: AddressSet, loop_numbers: NumberPlaces
    ) -> None:
        self._trace: SegmentTrace = interp.trace
        self._constants = constants
        self._held = held
        self._passed = held.copy()
        self._passed.update(graph_break.args_)
        self.loop_numbers = loop_numbers
        self._inspected, self._keeps_all = interp.lessons.functions.inspected, graph_break.keeps_variables
        # No instruction may read a generator again, and yet its ``finally`` runs when its variable goes.
        self._keeps_suspended = bool(interp.stand_ins)
        self.roots = _Roots()
        self.suspended = _Suspended(interp.trace)
        self._iterators = _Iterators(interp.trace)
        self._frames: _Numbered[FrameShape] = _Numbered()
        self._generators: _Numbered[GeneratorShape] = _Numbered()
        self._objects: _Numbered[ObjectShape] = _Numbered()
        self._decomposed: list[Any] = []

    def build(
        self, interp: Interpreter, graph_break: GraphBreak, frames: list[Frame], chain: tuple, place: tuple[str, int]
    ) -> Snapshot:
        """Returns the state of the interpreter's ``frames``, the innermost first."""
        iterators, roots = self._iterators, self.roots
        iterators.note_readers(frames)
        iterators.note_readers([gen.frame for ref in interp.stand_ins if type(gen := ref()) is InterpretedGenerator and gen.frame])
        # The outermost first, so that a value gets its name from the user's own function.
        for frame in reversed(frames):
            self._frame(frame)
        top, handled = self._frames.numbers[frames[0]], self.value(interp.handled)
        then = self._delivery(graph_break.then)
        tables: Any = (self._frames, self._generators, iterators.table, self._objects)
        shapes = Shapes(*[tuple(table.shapes) for table in tables])
        containers = tuple([roots.numbers[c] for c in iterators.containers if c in roots.numbers])
        state = FrameState(
            shapes,
            LiveValues(tuple(roots.names), containers, tuple(roots.carried.values())),
            Resumption(top, interp.depth, handled, then),
            LoopNumbers(self.loop_numbers, tuple(roots.varying), frozenset(iterators.lone)),
            chain,
            tuple([(shape.info, shape.ip) for shape in shapes.frames]),
            place,
        )
        # The frames hold these objects until the program is written.
        rebuilt = iterators.table.numbers.addresses()
        for others in (roots.carried, self._generators.numbers, self._objects.numbers):
            rebuilt.update(others.addresses())
        return Snapshot(state, roots.values, iterators.containers, self._decomposed, self._held, rebuilt)

    # -- frames and generators -------------------------------------------------------------------------------------------
    def _frame(self, f: Frame) -> int:
        at = self._frames.numbers.get(f)
        if at is not None:
            return at
        at = self._frames.reserve(f)
        info, in_loop = f.info, bool(self.loop_numbers)
        whole = bool(self._inspected) and info.code in self._inspected
        live = info.live_behind(f.ip)
        self._check_running_iterator(f, live)
        local = self._variables(f, at, live, whole or self._keeps_all)
        self.roots.hint = f"{info.code.co_name}_value"
        self._iterators.note_alone(f.local)
        self._iterators.note_alone(f.stack)
        places = range(len(f.stack))
        stack = tuple([self._local(f.stack[i], at=Number("stack", at, i) if in_loop else None) for i in places])
        self._frames.shapes[at] = FrameShape(
            info, f.globals, f.builtins, f.ip, local, stack, self._delivery(f.then), self._delivery(f.on_stop), f.kwnames,
            self.value(f.namespace),
            self._generator(f.generator) if f.generator is not None else -1,
            self._frame(f.back) if f.back is not None else -1,
            f.whole and whole,
        )  # fmt: skip
        return at

    def _check_running_iterator(self, f: Frame, live: Set[int]) -> None:
        """Refuses an iterator whose own method runs and that the eager call gets, as C's iterator: that has none of its fields."""
        code = f.info.code
        if is_own(code) and "." in code.co_qualname and 0 in live and type(f.local[0]) in KINDS:
            if f.local[0] in self._passed:
                raise NotReconstructible("an iterator that is giving its next item")
            self.suspended.known[f.local[0]] = True

    def _variables(self, f: Frame, at: int, live: Set[int], whole: bool) -> tuple:
        """Returns the variables that are ``live``, or all of a frame that is ``whole``; the others are left empty."""
        local: list[Any] = []
        roots, in_loop, keeps_suspended = self.roots, bool(self.loop_numbers), self._keeps_suspended
        for i, name in enumerate(f.info.slots):
            stays = whole or i in live or type(f.local[i]) is CellType
            if stays or (keeps_suspended and self.suspended.holds(f.local[i])):
                roots.hint = name
                local.append(self._local(f.local[i], at=Number("local", at, i) if in_loop else None))
            else:
                local.append(_NOTHING)
        return tuple(local)

    def _generator(self, gen: InterpretedGenerator) -> int:
        at = self._generators.numbers.get(gen)
        if at is not None:
            return at
        if gen in self._trace.sources:
            raise NotReconstructible("a generator that existed before the call")
        if gen.given is not None:
            raise NotReconstructible("a generator that eager code has been given", gen.called_at)
        at = self._generators.reserve(gen)
        frame = self._frame(gen.frame) if gen.frame is not None else -1
        handled, outer = self.value(gen.handled), self.value(gen.outer)
        self._generators.shapes[at] = GeneratorShape(gen.state, handled, outer, frame, gen.called_at, gen.gi_code)
        return at

    # -- values ----------------------------------------------------------------------------------------------------------
    def _local(self, v: Any, inside: bool = False, at: Number | None = None) -> Any:
        """Returns what a variable or the stack holds. A tuple is taken apart, unless something else holds it as well and may find another."""
        if at in self.loop_numbers and (type(v) in COUNTERS or type(v) in SYMBOLIC):
            return self.roots.vary(v)
        if not (self._constants or inside) and v is not NULL and type(v) in VALUES:
            return self.roots.number(v)
        if type(v) is not tuple or v in self._trace.sources or v in self._trace.made:
            return self.value(v)
        # References: from where it was found, of ``v``, and that of the question.
        if sys.getrefcount(v) > 3 and not self.suspended.holds(v):
            return self.roots.number(v)
        return Made(tuple, tuple([self._local(v[i], True) for i in range(len(v))]))

    def _delivery(self, then: Delivery | None) -> DeliveryShape | None:
        return None if then is None else DeliveryShape(then.function, tuple([self._datum(v) for v in then.data]), self._delivery(then.then))

    def _datum(self, v: Any) -> Any:
        """Returns what a delivery goes on with. A tuple there is the interpreter's own, whatever has been made where it lies."""
        own = type(v) is tuple and v not in self._trace.sources
        return Made(tuple, tuple([self.value(x) for x in v])) if own else self.value(v)

    def value(self, v: Any) -> Any:
        """Returns what stands for ``v`` in the state: a constant, parts to make it of, or a live value."""
        if v is None or v is NULL:
            return _NONE if v is None else _NOTHING
        trace, t = self._trace, type(v)
        local = v in trace.classes.local
        varies = (trace.deferred.numbers and v in trace.deferred.numbers) or (trace.deferred.texts and v in trace.deferred.texts)
        if not local and not varies and t not in (tuple, frozenset) and is_value(v):
            return Const(v)
        passed = v in self._passed
        if is_a(v, InterpretedGenerator) and not passed:
            return GeneratorRef(self._generator(v)) if type(v.given) is not GeneratorType else self.roots.number(v.given)
        sourced = v in trace.sources
        if not sourced and v not in trace.made:
            known = self._own_object(v, t)
            if known is not None:
                return known
        elif t is DEQUE_ITERATOR:
            # It alone knows whether the deque has changed.
            return self.roots.number(v)
        if not sourced and not passed:
            if t in ITERATORS or t is RangeIterator or t in STANDING:
                return self._iterators.shape(v, self)
            if self.suspended.holds(v):
                return self._object(v)
        return self.roots.number(v)

    def _own_object(self, v: Any, t: type) -> Any:
        """Returns what stands for an object of the interpreter's own, which the user's code has not made; None for others."""
        if t is tuple:
            return Made(tuple, tuple([self.value(x) for x in v]))
        if t is list:
            return Made(list, tuple([self.value(x) for x in v]))
        if t is dict:
            return Made(dict, tuple([(k, self.value(x)) for k, x in v.items()]))
        if t is FunctionType or (t is not MethodType and callable(v) and str(getattr(v, "__module__", "")).startswith(_ENGINE)):
            # A getter or a continuation: as fixed as the class, guarded, that it was found in. A method is bound to what each call makes.
            return Const(v)
        return None

    def _object(self, v: Any) -> Object:
        at = self._objects.numbers.get(v)
        if at is not None:
            return Object(at)
        at = self._objects.reserve(v)
        self._decomposed.append(v)
        if self._trace.symbols is not None:
            self._trace.symbols.inlined.keep(v)
        found = _parts(v)
        assert found is not None
        kind, parts = found
        if kind == "instance":
            self._decomposed.append(parts)
        if is_a(parts, dict):
            shapes: Any = {k: self._field(x, Number("object", at, k)) for k, x in parts.items()}
        else:
            shapes = tuple([self.value(x) for x in parts])
        self._objects.shapes[at] = ObjectShape(kind, type(v), shapes)
        return Object(at)

    def _field(self, v: Any, at: Number) -> Any:
        if at in self.loop_numbers and (type(v) in COUNTERS or type(v) in SYMBOLIC):
            self.roots.hint = str(at.slot)
            return self.roots.vary(v)
        return self.value(v)

    def rest_of_range(self, it: Any, *vary: bool) -> IteratorShape:
        """Returns an iterator over a range by its next number and its stop, of which those that ``vary`` are alive."""
        if type(it) is RangeIterator:
            self._decomposed += [it, it.__dict__]
            at, stop, step = it.at, it.stop, it.step
        else:
            _, (whole,), passed = it.__reduce__()
            at, stop, step = whole.start + passed * whole.step, whole.stop, whole.step
        pairs = zip((at, stop), vary, strict=True)
        numbers = [self.roots.vary(n) if alive else self.value(n) for n, alive in pairs]
        return IteratorShape(RangeIterator, (*numbers, Const(step)), _NONE)


def _parts(v: Any) -> tuple[str, Any] | None:
    """Returns (kind, parts) of an object that can be rebuilt from its parts, else None."""
    t = type(v)
    if t is MethodType:
        return "method", (v.__func__, v.__self__)
    if t in (list, tuple):
        return "sequence", list(v)
    if t is dict:
        return "dict", v
    if t is CellType:
        return None if contents(v) is EMPTY else ("cell", (v.cell_contents,))
    if t.__flags__ & HEAP_TYPE and t.__dictoffset__ and t.__new__ is object.__new__:
        return "instance", object.__getattribute__(v, "__dict__")
    return None
