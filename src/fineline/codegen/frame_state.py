"""The shape of a frame stack at a graph break, with its live values taken out: enough to make the frames again."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Set
from types import CellType, CodeType, FunctionType, GeneratorType, MappingProxyType, MethodType
from typing import Any, NamedTuple

from torch import Tensor

from fineline.bytecode.code import CodeInfo
from fineline.cpython.polyfill_iterators import Lazy, RangeIterator
from fineline.frames.frame import NULL, Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak, NotReconstructible
from fineline.frames.stub_frames import is_own
from fineline.guards.evaluate import same_constant
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.objects.c_calls import ITERATORS
from fineline.objects.carried_iterators import CARRIED, READERS, STANDING, LiveIterator, carriable, iterators_in
from fineline.objects.iterator_stand_ins import KINDS, table_recipe
from fineline.objects.list_iterators import reversed_recipe
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.mutation_log import EMPTY, contents
from fineline.tracing.segment_trace import HEAP_TYPE, VALUES, SegmentTrace, is_value


class Root(NamedTuple):
    """A live value: the program passes it as its argument ``number``."""

    number: int


class Const(NamedTuple):
    value: Any


class Made(NamedTuple):
    """A tuple, list or dict of the interpreter's own."""

    type: type
    items: tuple


# What is not there, and what most frames have for the rest of their fields.
_NOTHING = Const(NULL)
_NONE = Const(None)


class GeneratorRef(NamedTuple):
    number: int


class Reduced(NamedTuple):
    """An iterator of C's, by what makes it again; ``number`` tells which."""

    number: int


class Carried(NamedTuple):
    """An iterator of C's that is a live value itself: ``number`` is the value's."""

    number: int


class Object(NamedTuple):
    """An object made in the capture that holds a suspended generator: made again part by part."""

    number: int


class ObjectShape(NamedTuple):
    kind: str
    type: type
    parts: Any


class DeliveryShape(NamedTuple):
    function: Callable[..., Any]
    data: tuple
    then: DeliveryShape | None


class FrameShape(NamedTuple):
    info: CodeInfo
    globals: dict
    builtins: dict
    ip: int
    local: tuple
    stack: tuple
    then: DeliveryShape | None
    on_stop: DeliveryShape | None
    kwnames: tuple
    namespace: Any
    generator: int
    back: int
    whole: bool


class GeneratorShape(NamedTuple):
    state: str
    handled: Any
    outer: Any
    frame: int
    called_at: Any
    code: CodeType


# The packages whose functions and getters frames hold.
_ENGINE = tuple([f"fineline.{room}." for room in ("interp", "builtins", "tensor_ops", "objects", "tracing", "symbolic", "frames", "cpython")])
NONE: Mapping[Any, Any] = MappingProxyType({})
SEQUENCE_ITERATORS: tuple[type, ...] = (type(iter(())), type(iter([])))
COMPARED = ("frames", "generators", "iterators", "objects", "names", "top", "depth", "handled", "then", "container_roots")


def roots_of(spec: Any) -> Iterator[int]:
    """Yields the numbers of the live values in a part of a frame state."""
    if type(spec) is Root:
        yield spec.number
    elif type(spec) is not Const and is_a(spec, tuple):
        for part in spec:
            yield from roots_of(part)


def alike(a: Any, b: Any) -> bool:
    """Returns whether two parts of frame states are equal; nothing of the user's is asked."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is Const:
        return same_constant(a.value, b.value)
    if is_a(a, (tuple, list)):
        return len(a) == len(b) and all(map(alike, a, b))
    if type(a) is dict:
        return len(a) == len(b) and all(same_constant(j, k) and alike(x, y) for (j, x), (k, y) in zip(a.items(), b.items(), strict=True))
    return type(a) in (int, str, bool) and a == b


def _held_besides(frame: Frame | None) -> Set[int]:
    """Iterators that not only frames hold, where no program is written that would tell."""
    found: list[Any] = []
    while frame is not None:
        found += [v for v in (*frame.local, *frame.stack) if type(v) in ITERATORS]
        frame = frame.back
    places = Counter(map(id, found))
    # Each place has a reference, and so has each entry of the list here; two are the comprehension's and the argument's.
    return {id(v) for v in found if sys.getrefcount(v) > 2 * places[id(v)] + 2}


class Number(NamedTuple):
    """A place in a frame state that holds a number.

    ``where``: a variable ("local") or the "stack" of a frame, a field of an "object"; of an iterator over a range, which number is next
    ("at") or where it stops ("stop"). ``holder``: the number of the frame or object. ``slot``: the place there, or the number of the iterator.
    """

    where: str
    holder: int
    slot: int | str


LoopNumbers = frozenset[Number]
# What stands for an iterator of C's that the interpreter runs.
TAKEN_APART = frozenset([t for t in KINDS if issubclass(t, Lazy)])
# What tells the iterations of a loop apart.
COUNTERS = (int, float)
RANGE_ITERATOR: type = type(iter(range(0)))
DEQUE_ITERATOR: type = type(iter(deque()))


class FrameState:
    """Frames, generators and the exception being handled; live values are numbered from 0."""

    def __init__(
        self,
        interp: Interpreter,
        graph_break: GraphBreak,
        constants: bool = True,
        held: Set[int] = frozenset(),
        loop_numbers: Mapping[Any, LoopNumbers] = NONE,
    ) -> None:
        """Takes a snapshot. ``constants``: values known to be the same in each run are part of the state; otherwise a local value may be anything.

        ``held``: iterators, generators and their holders that stay what they are, as something else holds them too. ``loop_numbers``: where numbers
        are alive that would be part of the shape, by the chain of frames.
        """
        self._constants = constants
        self.frames: list[FrameShape] = []
        self.generators: list[GeneratorShape] = []
        self.iterators: list[tuple[Any, tuple, Any]] = []
        self.containers: list[Any] = []
        self.objects: list[ObjectShape] = []
        self.decomposed: list[Any] = []
        self.roots: list[Any] = []
        self.names: list[str] = []
        self._trace: SegmentTrace = interp.trace
        self._looked_at, self._keeps_all = interp.lessons.inspected_functions, graph_break.keeps_variables
        # The call itself may move an iterator on.
        self.held = held if constants else _held_besides(interp.frame)
        self._passed = self.held | set(map(id, graph_break.args_))
        self._root_at: dict[int, int] = {}
        self._frame_at: dict[int, int] = {}
        self._generator_at: dict[int, int] = {}
        self._iterator_at: dict[int, int] = {}
        # The live values that are iterators.
        self.carried: list[int] = []
        self._carried_at: dict[int, int] = {}
        # By identity: those that others of C's read, which are made again part by part with these.
        self._read: set[int] = set()
        self._object_at: dict[int, int] = {}
        self._holds: dict[int, bool] = {}
        self._kept: list[Any] = []
        # No instruction may read a generator again, and yet its ``finally`` runs when its variable goes.
        self._generators = bool(interp.stand_ins)
        self._hint = "value"
        self.place: tuple[str, int] = ("", 0)
        f = interp.frame
        stack = []
        while f is not None:
            stack.append(f)
            f = f.back
        self.chain = tuple([(f.info, f.ip) for f in stack])
        self.loop_numbers: LoopNumbers = loop_numbers.get(self.chain, frozenset())
        # Iterators over ranges that nothing but a loop holds: by identity, and by their numbers.
        self._alone: set[int] = set()
        self.lone: set[int] = set()
        # The names of the numbers that are alive because iterations differ in them.
        self.numbers: list[str] = []
        for frame in (*stack, *[gen.frame for ref in interp.stand_ins if type(gen := ref()) is InterpretedGenerator and gen.frame is not None]):
            if not READERS.isdisjoint(map(type, frame.local)) or not READERS.isdisjoint(map(type, frame.stack)):
                self._read |= {id(it) for v in (*frame.local, *frame.stack) if type(v) in READERS for it in iterators_in(v)}
        # The outermost first, so that a value gets its name from the user's own function.
        for frame in reversed(stack):
            self._frame_number(frame)
        assert interp.frame is not None
        self.top = self._frame_at[id(interp.frame)]
        self.depth = interp.depth
        self.handled = self._spec(interp.handled)
        self.then = self._delivery(graph_break.then)
        self.container_roots = [self._root_at[id(c)] for c in self.containers if id(c) in self._root_at]
        # The place alone: the code of each frame, and how far it is.
        self.stack = tuple([(s.info, s.ip) for s in self.frames])
        # By identity, which holds until the program is written.
        self.reduced: Set[int] = frozenset([*self._iterator_at, *self._carried_at, *self._generator_at, *self._object_at])
        del self._trace, self._root_at, self._frame_at, self._generator_at, self._iterator_at, self._kept
        del self._carried_at, self._read, self._object_at, self._holds, self._passed, self._alone, self._looked_at, self._keeps_all

    def _frame_number(self, f: Frame) -> int:
        at = self._frame_at.get(id(f))
        if at is not None:
            return at
        at = self._frame_at[id(f)] = len(self.frames)
        self.frames.append(None)  # type: ignore[arg-type]
        info = f.info
        live = info.live_behind(f.ip)
        whole = bool(self._looked_at) and info.code in self._looked_at
        if is_own(info.code) and "." in info.code.co_qualname and 0 in live and type(f.local[0]) in KINDS:
            if id(f.local[0]) in self._passed:
                # After the graph break there is C's iterator in its place, which has none of the fields.
                raise NotReconstructible("an iterator that is giving its next item")
            self._holds[id(f.local[0])] = True
        local = []
        in_loop, generators = bool(self.loop_numbers), self._generators
        for i, name in enumerate(info.slots):
            if whole or self._keeps_all or i in live or type(f.local[i]) is CellType or (generators and self._holds_suspended(f.local[i])):
                self._hint = name
                local.append(self._local(f.local[i], at=Number("local", at, i) if in_loop else None))
            else:
                local.append(_NOTHING)
        self._hint = f"{info.code.co_name}_value"
        # References: of the stack or the variable, and that of the question.
        for held in (f.local, f.stack):
            if RANGE_ITERATOR in map(type, held):
                self._alone |= {id(held[i]) for i in range(len(held)) if type(held[i]) is RANGE_ITERATOR and sys.getrefcount(held[i]) == 2}
        stack = tuple([self._local(f.stack[i], at=Number("stack", at, i) if in_loop else None) for i in range(len(f.stack))])
        self.frames[at] = FrameShape(
            info, f.globals, f.builtins, f.ip, tuple(local), stack, self._delivery(f.then), self._delivery(f.on_stop), f.kwnames, self._spec(f.namespace),
            self._generator_number(f.generator) if f.generator is not None else -1,
            self._frame_number(f.back) if f.back is not None else -1, f.whole and whole,
        )  # fmt: skip
        return at

    def _generator_number(self, gen: InterpretedGenerator) -> int:
        at = self._generator_at.get(id(gen))
        if at is not None:
            return at
        if id(gen) in self._trace.sources:
            raise NotReconstructible("a generator that existed before the call")
        if gen.given is not None:
            raise NotReconstructible("a generator that eager code has been given", gen.called_at)
        at = self._generator_at[id(gen)] = len(self.generators)
        self.generators.append(None)  # type: ignore[arg-type]
        frame = self._frame_number(gen.frame) if gen.frame is not None else -1
        self.generators[at] = GeneratorShape(gen.state, self._spec(gen.handled), self._spec(gen.outer), frame, gen.called_at, gen.gi_code)
        return at

    def _local(self, v: Any, inside: bool = False, at: Number | None = None) -> Any:
        """Returns what a variable or the stack holds. A tuple is taken apart, unless something else holds it as well and may find another."""
        if at in self.loop_numbers and (type(v) in COUNTERS or type(v) in SYMBOLIC):
            return self._number(v)
        if not (self._constants or inside) and v is not NULL and type(v) in VALUES:
            return self._root(v)
        if type(v) is not tuple or id(v) in self._trace.sources or id(v) in self._trace.made:
            return self._spec(v)
        # References: from where it was found, of ``v``, and that of the question.
        if sys.getrefcount(v) > 3 and not self._holds_suspended(v):
            return self._root(v)
        return Made(tuple, tuple([self._local(v[i], True) for i in range(len(v))]))

    def _delivery(self, then: Delivery | None) -> DeliveryShape | None:
        return None if then is None else DeliveryShape(then.function, tuple([self._datum(v) for v in then.data]), self._delivery(then.then))

    def _datum(self, v: Any) -> Any:
        """Returns what a delivery goes on with. A tuple there is the interpreter's own, whatever has been made where it lies."""
        own = type(v) is tuple and id(v) not in self._trace.sources
        return Made(tuple, tuple([self._spec(x) for x in v])) if own else self._spec(v)

    def _spec(self, v: Any) -> Any:
        if v is None or v is NULL:
            return _NONE if v is None else _NOTHING
        trace = self._trace
        local = v in trace.classes
        varies = (trace.lazy and id(v) in trace.lazy) or (trace.texts and id(v) in trace.texts)
        if not local and not varies and type(v) not in (tuple, frozenset) and is_value(v):
            return Const(v)
        if is_a(v, InterpretedGenerator) and id(v) not in self._passed:
            return GeneratorRef(self._generator_number(v)) if type(v.given) is not GeneratorType else self._root(v.given)
        t = type(v)
        if id(v) not in trace.sources and id(v) not in trace.made:
            if t is tuple:
                return Made(tuple, tuple([self._spec(x) for x in v]))
            if t is list:
                return Made(list, tuple([self._spec(x) for x in v]))
            if t is dict:
                return Made(dict, tuple([(k, self._spec(x)) for k, x in v.items()]))
            if t is FunctionType or (t is not MethodType and callable(v) and str(getattr(v, "__module__", "")).startswith(_ENGINE)):
                # A getter or a continuation: as fixed as the class, guarded, that it was found in. A method is bound to what each call makes.
                return Const(v)
            if (t in ITERATORS or t is RangeIterator or t in STANDING) and id(v) not in self._passed:
                return self._iterator(v)
        elif t is DEQUE_ITERATOR:
            # It alone knows whether the deque has changed.
            return self._root(v)
        elif (t in ITERATORS or t is RangeIterator or t in STANDING) and id(v) not in trace.sources and id(v) not in self._passed:
            return self._iterator(v)
        if id(v) not in trace.sources and id(v) not in self._passed and self._holds_suspended(v):
            return self._object(v)
        return self._root(v)

    def _root(self, v: Any) -> Root:
        at = self._root_at.get(id(v))
        if at is None:
            at = self._root_at[id(v)] = len(self.roots)
            self.roots.append(v)
            self.names.append(self._hint)
        return Root(at)

    def _number(self, v: Any) -> Root:
        """Adds a root for a number that varies, also if another root is equal: it may differ in the next iteration."""
        self.roots.append(v)
        self.names.append(self._hint)
        self.numbers.append(self._hint)
        return Root(len(self.roots) - 1)

    def _parts(self, v: Any) -> tuple[str, Any] | None:
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

    def _holds_suspended(self, v: Any) -> bool:
        known = self._holds.get(id(v))
        if known is not None:
            return known
        self._holds[id(v)] = False
        if id(v) in self._trace.sources or is_a(v, Tensor):
            return False
        if is_a(v, InterpretedGenerator) or self._is_iterator(v):
            self._holds[id(v)] = True
            return True
        found = self._parts(v)
        if found is None or (found[0] == "instance" and id(v) not in self._trace.made):
            # What existed before holds no generator of this capture: of a model, all would be looked through.
            return False
        parts = found[1].values() if is_a(found[1], dict) else found[1]
        held = self._holds[id(v)] = any([self._holds_suspended(x) for x in parts])
        return held

    def _is_iterator(self, v: Any) -> bool:
        """Returns whether ``v`` is an iterator of C's or stands for one: the continuation takes its items, and needs it in parts."""
        t = type(v)
        return t in ITERATORS or t in TAKEN_APART

    def _object(self, v: Any) -> Object:
        at = self._object_at.get(id(v))
        if at is None:
            at = self._object_at[id(v)] = len(self.objects)
            self.objects.append(None)  # type: ignore[arg-type]
            self.decomposed.append(v)
            if self._trace.symbols is not None:
                self._trace.symbols.inlined.keep(v)
            found = self._parts(v)
            assert found is not None
            kind, parts = found
            if kind == "instance":
                self.decomposed.append(parts)
            if is_a(parts, dict):
                specs: Any = {k: self._field(x, Number("object", at, k)) for k, x in parts.items()}
            else:
                specs = tuple([self._spec(x) for x in parts])
            self.objects[at] = ObjectShape(kind, type(v), specs)
        return Object(at)

    def _field(self, v: Any, at: Number) -> Any:
        if at in self.loop_numbers and (type(v) in COUNTERS or type(v) in SYMBOLIC):
            self._hint = str(at.slot)
            return self._number(v)
        return self._spec(v)

    def _carried(self, it: Any) -> Carried:
        at = self._carried_at.get(id(it))
        if at is None:
            at = self._carried_at[id(it)] = len(self.roots)
            self.roots.append(LiveIterator(it))
            self.names.append(f"{self._hint.removesuffix('_value')}_iterator{len(self.carried) or ''}")
            self.carried.append(at)
        return Carried(at)

    def _iterator(self, it: Any) -> Reduced | Carried:
        """Iterators go by what they iterate over and how far they are; what they give next is then guarded like any value."""
        if type(it) in STANDING or (type(it) in CARRIED and self._is_carriable(it)):
            return self._carried(it)
        at = self._iterator_at.get(id(it))
        if at is None:
            at = self._iterator_at[id(it)] = len(self.iterators)
            self.iterators.append(None)  # type: ignore[arg-type]
            if id(it) in self._alone:
                self.lone.add(at)
            vary = [Number(where, 0, at) in self.loop_numbers for where in ("at", "stop")]
            if type(it) is RangeIterator or (any(vary) and at in self.lone):
                self.iterators[at] = self._rest_of_range(it, *vary)
                return Reduced(at)
            recipe = reversed_recipe(self._trace, it) or table_recipe(it)
            reduced: Any = it.__reduce__() if recipe is None else (recipe.make, recipe.args)
            self._kept.append(reduced)
            state = reduced[2] if len(reduced) > 2 else None
            # What a chain has not come to yet will be iterated over too.
            later = state[0].__reduce__()[1][0] if type(it) is itertools.chain and state and type(state[0]) in SEQUENCE_ITERATORS else ()
            self.containers += [a for a in (*reduced[1], *later) if id(a) in self._trace.sources or id(a) in self._trace.made]
            self.iterators[at] = (reduced[0], tuple([self._spec(a) for a in reduced[1]]), self._spec(state))
        return Reduced(at)

    def _is_carriable(self, it: Any) -> bool:
        if id(it) not in self._read and carriable(it, self._is_written, self._holds_suspended):
            return True
        inner = set(map(id, iterators_in(it)))
        if not inner.isdisjoint(self._carried_at):
            raise NotReconstructible("an iterator that the code reads both by itself and through another one")
        self._read |= inner
        return False

    def _is_written(self, container: Any) -> bool:
        return id(container) in self._trace.mutations.written

    def pass_on(self) -> None:
        """Moves the live iterators to where the code is, for eager code to find; the program has been written."""
        for at in self.carried:
            self.roots[at] = self.roots[at].moved()

    def drop_live_values(self) -> None:
        """Holds nothing any more that was alive at the graph break: the shape outlives the call."""
        self.roots, self.containers, self.decomposed = [], [], []

    def _rest_of_range(self, it: Any, *vary: bool) -> tuple:
        if type(it) is RangeIterator:
            self.decomposed += [it, it.__dict__]
            at, stop, step = it.at, it.stop, it.step
        else:
            _, (whole,), passed = it.__reduce__()
            at, stop, step = whole.start + passed * whole.step, whole.stop, whole.step
        numbers = [self._number(n) if alive else self._spec(n) for n, alive in zip((at, stop), vary, strict=True)]
        return RangeIterator, (*numbers, Const(step)), Const(None)

    def build(self, interp: Interpreter, values: tuple) -> tuple[Delivery | None, list, list]:
        """Gives ``interp`` these frames, with ``values`` for the live values; -> where the result goes, what is being iterated over, what was made."""
        gens = []
        for _ in self.generators:
            gen = InterpretedGenerator.__new__(InterpretedGenerator)
            gens.append(gen)
        frames = []
        for shape in self.frames:
            f = Frame(shape.info, interp.link(shape.info), shape.globals, shape.builtins, [], None)
            f.ip, f.kwnames, f.whole = shape.ip, shape.kwnames, shape.whole
            frames.append(f)

        iterators: dict[int, Any] = {}
        carried = {at: CARRIED[type(values[at])](values[at]) for at in self.carried}
        objects: dict[int, Any] = {}

        def held(at: int) -> Any:
            if at in objects:
                return objects[at]
            kind, t, parts = self.objects[at]
            if kind == "instance":
                obj = objects[at] = object.__new__(t)  # type: ignore[var-annotated]
                object.__getattribute__(obj, "__dict__").update({k: value(x) for k, x in parts.items()})
            elif kind == "dict":
                obj = objects[at] = {}
                obj.update({k: value(x) for k, x in parts.items()})
            elif kind == "cell":
                obj = objects[at] = CellType()
                obj.cell_contents = value(parts[0])
            elif kind == "method":
                obj = objects[at] = MethodType(value(parts[0]), value(parts[1]))
            elif t is list:
                obj = objects[at] = []
                obj.extend([value(x) for x in parts])
            else:
                obj = objects[at] = tuple([value(x) for x in parts])
            return obj

        def iterator(at: int) -> Any:
            if at not in iterators:
                fn, args, state = self.iterators[at]
                it = iterators[at] = fn(*[value(a) for a in args])
                if value(state) is not None:
                    it.__setstate__(value(state))
            return iterators[at]

        def value(spec: Any) -> Any:
            if type(spec) is Const:
                return spec.value
            if type(spec) is Root:
                return values[spec.number]
            if type(spec) is GeneratorRef:
                return gens[spec.number]
            if type(spec) is Object:
                return held(spec.number)
            if type(spec) is Reduced:
                return iterator(spec.number)
            if type(spec) is Carried:
                return carried[spec.number]
            if spec.type is dict:
                return {k: value(x) for k, x in spec.items}
            return spec.type([value(x) for x in spec.items])

        def delivery(shape: DeliveryShape | None) -> Delivery | None:
            return None if shape is None else Delivery(shape.function, delivery(shape.then), *[value(x) for x in shape.data])

        for f, shape in zip(frames, self.frames, strict=True):
            f.local = [value(s) for s in shape.local]
            f.stack = [value(s) for s in shape.stack]
            f.then, f.on_stop = delivery(shape.then), delivery(shape.on_stop)
            f.namespace = value(shape.namespace)
            f.back = frames[shape.back] if shape.back >= 0 else None
            f.generator = gens[shape.generator] if shape.generator >= 0 else None
        for gen, g in zip(gens, self.generators, strict=True):
            gen.state, gen.handled, gen.outer = g.state, value(g.handled), value(g.outer)
            gen.frame = frames[g.frame] if g.frame >= 0 else None
            gen.drive, gen.called_at, gen.gi_code, gen.given = interp.drive, g.called_at, g.code, None
            gen.__name__, gen.__qualname__ = g.code.co_name, g.code.co_qualname
        interp.frame = frames[self.top]
        made = [*objects.values(), *carried.values(), *[it for it in iterators.values() if type(it) is RangeIterator]]
        interp.stand_ins += map(weakref.ref, [*gens, *[obj for obj in made if type(obj) in KINDS]])
        interp.depth = self.depth
        interp.handled = value(self.handled)
        built = (
            delivery(self.then),
            [values[i] for i in self.container_roots],
            [
                *made,
                *[object.__getattribute__(o, "__dict__") for o in made if type(o).__dictoffset__ and type(o) is not MethodType],
            ],
        )
        # The functions above are a cycle: what they hold would stay until a collection.
        values = ()
        for table in (gens, iterators, carried, objects):
            table.clear()
        return built

    def same(self, other: FrameState) -> bool:
        """Returns whether both stand for the same frames at the same place, whatever is alive in them."""
        return all(alike(getattr(self, name), getattr(other, name)) for name in COMPARED)

    def called_frames(self) -> list[FrameShape]:
        """Returns the frames but for the outermost one, the innermost first."""
        found, at = list[FrameShape](), self.top
        while self.frames[at].back >= 0:
            found.append(self.frames[at])
            at = self.frames[at].back
        return found

    @property
    def has_handlers(self) -> bool:
        """Returns whether some frame would handle an exception raised here."""
        return any(s.info.handler_at(s.ip - 1) is not None or s.on_stop is not None or s.generator >= 0 for s in self.frames)
