"""Makes frame states from the interpreter's frames at a graph break: decides which values are alive, and which are part of the shape."""

from __future__ import annotations

import itertools
import sys
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence, Set
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
from fineline.cpython.iterator_states import NoState, iterator_state
from fineline.cpython.polyfill_iterators import Lazy, RangeIterator
from fineline.cpython.reference_counts import reference_counts
from fineline.frames.frame import NULL, Frame, InterpretedGenerator, stack
from fineline.frames.graph_breaks import Delivery, GraphBreak, NotReconstructible
from fineline.frames.stub_frames import is_own
from fineline.identity import AddressMap, AddressSet
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a, is_users_class
from fineline.objects.c_access import ITERATORS
from fineline.objects.carried_iterators import CARRIED, READERS, STANDING, LiveIterator, carriable, iterators_in, readers_in
from fineline.objects.iterator_stand_ins import KINDS, WRITTEN, table_recipe
from fineline.objects.list_iterators import reversed_recipe
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.plain_values import VALUES, is_value
from fineline.tracing.segment_trace import SegmentTrace

# An absent value, and the most frequent value of a frame's other fields.
_NOTHING = Const(NULL)
_NONE = Const(None)
# The packages whose functions and getters frames hold.
_PACKAGES = ("interp", "builtins", "tensor_ops", "objects", "tracing", "symbolic", "frames", "cpython")
_ENGINE = tuple([f"fineline.{package}." for package in _PACKAGES])
NONE: Mapping[Any, Any] = MappingProxyType({})
NOWHERE = ("", 0)
SEQUENCE_ITERATORS: tuple[type, ...] = (type(iter(())), type(iter([])))
# Stand-ins for C iterators, which the interpreter runs.
TAKEN_APART = frozenset([t for t in KINDS if issubclass(t, Lazy)])
# The types of the numbers in which the iterations of a loop differ.
COUNTERS = (int, float)
RANGE_ITERATOR: type = type(iter(range(0)))
DEQUE_ITERATOR: type = type(iter(deque()))
ShapeT = TypeVar("ShapeT")


class Snapshot:
    """A frame state, with the objects that are alive in it until the call continues.

    ``roots``: the live values. ``containers``: those that iterators go through. ``decomposed``: objects that are rebuilt from their parts.
    Addresses, valid until the program is written: ``held``, of objects that are not rebuilt, and ``rebuilt``, of objects that are.
    """

    __slots__ = ("containers", "decomposed", "held", "rebuilt", "roots", "state")

    def __init__(
        self, state: FrameState, roots: list[Any], containers: list[Any], decomposed: list[Any], held: AddressSet, rebuilt: AddressSet
    ) -> None:
        self.state = state
        self.roots, self.containers, self.decomposed = roots, containers, decomposed
        self.held, self.rebuilt = held, rebuilt

    def pass_on(self) -> None:
        """Advances the live iterators to the position of the code, for the eager code, after the program has been written."""
        for at in self.state.values.carried:
            self.roots[at] = self.roots[at].moved()

    def release(self) -> None:
        """Drops all live objects: the caller that runs the rest of the call may still hold the snapshot."""
        self.roots, self.containers, self.decomposed = [], [], []


def take_snapshot(
    interp: Interpreter,
    graph_break: GraphBreak,
    place: tuple[str, int] = NOWHERE,
    constants: bool = True,
    held: AddressSet | None = None,
    loop_numbers: Mapping[Any, NumberPlaces] = NONE,
) -> Snapshot:
    """Returns the state of the interpreter's frames at a graph break, with the objects that are alive in it.

    ``place``: the user's file and line. ``constants``: values known to be the same in each run are part of the state; otherwise local
    values are live. ``held``: iterators, generators and their holders that are not rebuilt, because others refer to them too.
    ``loop_numbers``: by chain of frames, the places of numbers that are live values instead of part of the shape.
    """
    frames = list(stack(interp.frame))
    chain = tuple([(f.info, f.ip) for f in frames])
    # The eager call itself may advance an iterator.
    held = (held or AddressSet()) if constants else _held_besides(frames)
    builder = FrameStateBuilder(interp, graph_break, constants, held, loop_numbers.get(chain, frozenset()))
    return builder.build(interp, graph_break, frames, chain, place)


def _held_besides(frames: list[Frame]) -> AddressSet:
    """Returns the iterators to which more than ``frames`` refers. If a program is written, its writer finds them instead."""
    found: list[Any] = []
    for frame in frames:
        found += [v for v in (*frame.local, *frame.stack) if type(v) in ITERATORS]
    places = Counter(map(id, found))
    # One reference for each place and for each entry of ``found``.
    return AddressSet([v for v, count in zip(found, reference_counts(found), strict=True) if count > 2 * places[id(v)]])


class _Numbered(Generic[ShapeT]):
    """Shapes in the order in which their objects are found. An object may contain itself, so it gets its number before its shape."""

    __slots__ = ("numbers", "shapes")

    def __init__(self) -> None:
        self.shapes: list[ShapeT] = []
        # The frames keep these objects alive.
        self.numbers: AddressMap[int] = AddressMap()

    def reserve(self, v: Any) -> int:
        at = self.numbers[v] = len(self.shapes)
        self.shapes.append(None)  # type: ignore[arg-type]
        return at


class _Roots:
    """The live values, with their names in the program. ``hint``: the name of the next one."""

    __slots__ = ("carried", "hint", "names", "numbers", "values", "varying")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.names: list[str] = []
        # The numbers of the values, which ``values`` keeps alive, and of the iterators among them.
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
        """Adds a number that varies, even if another live value is equal: the two may differ in the next iteration."""
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
    """Finds the objects made in the capture that contain a suspended generator or an iterator: they are rebuilt from their parts."""

    __slots__ = ("_trace", "known")

    def __init__(self, trace: SegmentTrace) -> None:
        self._trace = trace
        # The frames keep these objects alive.
        self.known: AddressMap[bool] = AddressMap()

    def holds(self, v: Any) -> bool:
        known = self.known.get(v)
        if known is not None:
            return known
        self.known[v] = False
        if v in self._trace.sources or is_a(v, Tensor):
            return False
        # The code after the graph break takes the items of a C iterator, or of its stand-in, and needs it in parts.
        if is_a(v, InterpretedGenerator) or type(v) in ITERATORS or type(v) in TAKEN_APART:
            self.known[v] = True
            return True
        found = _parts(v)
        if found is None or (found[0] == "instance" and v not in self._trace.made):
            # An object that existed before contains no generator of this capture; a search would go through a whole model.
            return False
        inside = found[1]
        parts = inside.values() if is_a(inside, dict) else inside
        held = self.known[v] = any([self.holds(x) for x in parts])
        return held


# What may read C iterators.
_READER_TYPES = READERS | WRITTEN | {CellType}


class _Iterators:
    """The C iterators, described by their containers and positions, so that their next items are guarded like any value."""

    __slots__ = ("_alone", "_kept", "_read", "_trace", "containers", "lone", "table")

    def __init__(self, trace: SegmentTrace) -> None:
        self._trace = trace
        self.table: _Numbered[IteratorShape] = _Numbered()
        # The containers that they go through.
        self.containers: list[Any] = []
        # Iterators that other C iterators read, and that are rebuilt from their parts with these. The frames keep them alive.
        self._read = AddressSet()
        # Iterators over ranges to which only a loop refers: by identity, and by their numbers.
        self._alone = AddressSet()
        self.lone: set[int] = set()
        # Keeps the iterators' states alive, for their identity.
        self._kept: list[Any] = []

    def note_readers(self, frames: Iterable[Frame]) -> None:
        """Notes the iterators that others in the variables and stacks of ``frames`` read."""
        for frame in frames:
            if not _READER_TYPES.isdisjoint(map(type, frame.local)) or not _READER_TYPES.isdisjoint(map(type, frame.stack)):
                self._read.update([it for reader in readers_in((*frame.local, *frame.stack)) for it in iterators_in(reader)])

    def note_alone(self, held: list[Any]) -> None:
        """Notes the iterators over ranges to which only ``held`` refers, a frame's variables or its stack."""
        if RANGE_ITERATOR in map(type, held):
            # Two references: the stack's or the variable's, and the argument's.
            found = [i for i in range(len(held)) if type(held[i]) is RANGE_ITERATOR and sys.getrefcount(held[i]) == 2]
            self._alone.update([held[i] for i in found])

    def shape(self, it: Any, builder: FrameStateBuilder) -> Reduced | Carried:
        """Returns the shape of an iterator, which other shapes may contain by its number."""
        try:
            return self._shape(it, builder)
        except RuntimeError as e:
            # C does not describe an iterator over a dict or a set that has grown or shrunk.
            raise NotReconstructible(f"a {type(it).__name__} of which C says: {e}") from None
        except NoState as e:
            raise NotReconstructible(str(e)) from None

    def _shape(self, it: Any, builder: FrameStateBuilder) -> Reduced | Carried:
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
        reduced: Any = iterator_state(it) if recipe is None else (recipe.make, recipe.args)
        self._kept.append(reduced)
        state = reduced[2] if len(reduced) > 2 else None
        # A chain will also iterate over the containers that it has not reached yet.
        later = ()
        if type(it) is itertools.chain and state and type(state[0]) in SEQUENCE_ITERATORS:
            later = iterator_state(state[0])[1][0]
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
    """Walks over frames and all that they contain, and makes a frame state. Each part gets a number where it is first found."""

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
        # Even if no instruction reads a generator again, its ``finally`` runs when its variable goes away.
        self._keeps_suspended = bool(interp.stand_ins.refs)
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
        iterators.note_readers([gen.frame for ref in interp.stand_ins.refs if type(gen := ref()) is InterpretedGenerator and gen.frame])
        # The outermost first, so that a value gets its name from the user's own function.
        for frame in reversed(frames):
            self._frame(frame)
        top, handled = self._frames.numbers[frames[0]], self.value(interp.exceptions.handled)
        then = self._delivery(graph_break.then)
        tables: Any = (self._frames, self._generators, iterators.table, self._objects)
        shapes = Shapes(*[tuple(table.shapes) for table in tables])
        containers = tuple([roots.numbers[c] for c in iterators.containers if c in roots.numbers])
        state = FrameState(
            shapes,
            LiveValues(tuple(roots.names), containers, tuple(roots.carried.values())),
            Resumption(top, interp.limits.depth, handled, then),
            LoopNumbers(self.loop_numbers, tuple(roots.varying), frozenset(iterators.lone)),
            chain,
            tuple([(shape.info, shape.ip) for shape in shapes.frames]),
            place,
        )
        # The frames keep these objects alive until the program is written.
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
        info = f.info
        whole = bool(self._inspected) and info.code in self._inspected
        live = info.live_after(f.ip)
        self._check_running_iterator(f, live)
        local = self._variables(f, at, live, whole or self._keeps_all)
        self.roots.hint = f"{info.code.co_name}_value"
        self._iterators.note_alone(f.local)
        self._iterators.note_alone(f.stack)
        stack = self._stack(f, at, whole or self._keeps_all)
        self._frames.shapes[at] = FrameShape(
            info, f.globals, f.builtins, f.ip, local, stack, self._delivery(f.then), self._delivery(f.extras.on_stop), f.kwnames,
            self.value(f.extras.namespace),
            self._generator(f.extras.generator) if f.extras.generator is not None else -1,
            self._frame(f.back) if f.back is not None else -1,
            f.extras.whole and whole,
        )  # fmt: skip
        return at

    def _check_running_iterator(self, f: Frame, live: Set[int]) -> None:
        """Refuses an iterator whose own method runs if the eager call gets it: it would get a C iterator, which has no such fields."""
        code = f.info.code
        if is_own(code) and "." in code.co_qualname and 0 in live and type(f.local[0]) in KINDS:
            if f.local[0] in self._passed:
                raise NotReconstructible("an iterator that is giving its next item")
            self.suspended.known[f.local[0]] = True

    def _variables(self, f: Frame, at: int, live: Set[int], whole: bool) -> tuple:
        """Returns the variables that are ``live``, or all of them if ``whole``; the others are empty."""
        local: list[Any] = []
        roots, in_loop, keeps_suspended = self.roots, bool(self.loop_numbers), self._keeps_suspended
        for i, name in enumerate(f.info.slots):
            # The bases of a class list it as long as it lives.
            stays = whole or i in live or type(f.local[i]) is CellType or (is_a(f.local[i], type) and f.local[i] in self._trace.classes.local)
            if stays or (keeps_suspended and self.suspended.holds(f.local[i])):
                roots.hint = name
                local.append(self._local(f.local, i, at=Number("local", at, i) if in_loop else None))
            else:
                local.append(_NOTHING)
        return tuple(local)

    def _stack(self, f: Frame, at: int, whole: bool) -> tuple:
        """Returns the values on the stack; unless ``whole``, those are empty that only become variables that nothing reads."""
        in_loop, dead = bool(self.loop_numbers), frozenset() if whole else f.info.dead_on_stack(f.ip)
        if self._keeps_suspended:
            dead = frozenset([i for i in dead if not self.suspended.holds(f.stack[i])])
        places = range(len(f.stack))
        return tuple([_NOTHING if i in dead else self._local(f.stack, i, at=Number("stack", at, i) if in_loop else None) for i in places])

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
    def _local(self, held: Sequence[Any], i: int, inside: bool = False, at: Number | None = None) -> Any:
        """Returns the part for ``held[i]``, in a variable, on the stack or in a tuple. A tuple is rebuilt, unless another holder could notice.

        The caller does not pass the value itself: the caller of a Python function also refers to the arguments if the process has a hook for
        the evaluation of frames (PEP 523). torch.compile leaves its hook behind after an error, and debuggers have one.
        """
        v = held[i]
        if at in self.loop_numbers and (type(v) in COUNTERS or type(v) in SYMBOLIC):
            return self.roots.vary(v)
        if not (self._constants or inside) and v is not NULL and type(v) in VALUES:
            return self.roots.number(v)
        if type(v) is not tuple or v in self._trace.sources or v in self._trace.made:
            return self.value(v)
        # Three references: of ``held``, of ``v``, and of the argument, which is not ``v``, as a variable lends its own from CPython 3.14 on.
        if sys.getrefcount(held[i]) > 3 and not self.suspended.holds(v):
            return self.roots.number(v)
        return Made(tuple, tuple([self._local(v, k, True) for k in range(len(v))]))

    def _delivery(self, then: Delivery | None) -> DeliveryShape | None:
        return None if then is None else DeliveryShape(then.function, tuple([self._datum(v) for v in then.data]), self._delivery(then.then))

    def _datum(self, v: Any) -> Any:
        """Returns the part for a datum of a delivery. A tuple there is the interpreter's own, even if ``made`` contains its address."""
        own = type(v) is tuple and v not in self._trace.sources
        return Made(tuple, tuple([self.value(x) for x in v])) if own else self.value(v)

    def value(self, v: Any) -> Any:
        """Returns the part of the state for ``v``: a constant, a description by which it is rebuilt, or a live value."""
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
        if not sourced and v not in trace.made and v not in trace.classes.parts:
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
        """Returns the part for an object that the interpreter made, not the user's code; None for other objects."""
        if t is tuple:
            return Made(tuple, tuple([self.value(x) for x in v]))
        if t is list:
            return Made(list, tuple([self.value(x) for x in v]))
        if t is dict:
            return Made(dict, tuple([(k, self.value(x)) for k, x in v.items()]))
        if t is FunctionType or (t is not MethodType and callable(v) and str(getattr(v, "__module__", "")).startswith(_ENGINE)):
            # A getter or a delivery function is as constant as its guarded class. A method is bound to an object that each call makes.
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
        """Returns the shape of an iterator over a range: its next number and its stop, as live values if they ``vary``."""
        if type(it) is RangeIterator:
            self._decomposed += [it, it.__dict__]
            at, stop, step = it.at, it.stop, it.step
        else:
            _, (whole,), passed = iterator_state(it)
            at, stop, step = whole.start + (passed or 0) * whole.step, whole.stop, whole.step
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
    if is_users_class(t) and t.__dictoffset__ and t.__new__ is object.__new__:
        return "instance", object.__getattribute__(v, "__dict__")
    return None
