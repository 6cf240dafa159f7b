"""Rebuilds frames from a frame state and the live values of one call."""

from __future__ import annotations

from types import CellType, MethodType
from typing import Any

from fineline.codegen.frame_state import Carried, Const, DeliveryShape, FrameState, GeneratorRef, Object, Reduced, Root
from fineline.cpython.iterator_states import set_iterator_state
from fineline.cpython.polyfill_iterators import RangeIterator
from fineline.cpython.protocols import method_of
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery
from fineline.interp.interpreter import Interpreter
from fineline.objects.carried_iterators import CARRIED
from fineline.objects.iterator_stand_ins import KINDS


def restore(frame_state: FrameState, interp: Interpreter, values: tuple) -> tuple[Delivery | None, list, list]:
    """Rebuilds the frames of a state in ``interp``, with ``values`` as the live values.

    Returns the delivery of the eager call's result, the containers that iterators go through, and the objects that were made.
    """
    return _Restorer(frame_state, values).restore(interp)


class _Restorer:
    """Makes the objects of one frame state, each once."""

    __slots__ = ("carried", "frames", "generators", "iterators", "objects", "state", "values")

    def __init__(self, state: FrameState, values: tuple) -> None:
        self.state, self.values = state, values
        self.frames: list[Frame] = []
        self.generators = [InterpretedGenerator.__new__(InterpretedGenerator) for _ in state.shapes.generators]
        self.iterators: dict[int, Any] = {}
        self.carried = {at: CARRIED[type(values[at])](values[at]) for at in state.values.carried}
        self.objects: dict[int, Any] = {}

    def restore(self, interp: Interpreter) -> tuple[Delivery | None, list, list]:
        state, value = self.state, self.value
        self._fill_frames(interp)
        self._fill_generators(interp)
        interp.frame = self.frames[state.resumption.top]
        iterators = [it for it in self.iterators.values() if type(it) is RangeIterator]
        made = [*self.objects.values(), *self.carried.values(), *iterators]
        interp.stand_ins.add([*self.generators, *[obj for obj in made if type(obj) in KINDS]])
        interp.limits.depth = state.resumption.depth
        interp.exceptions.handled = value(state.resumption.handled)
        dicts = [
            object.__getattribute__(o, "__dict__") for o in made if type(o).__dictoffset__ and type(o) is not MethodType
        ]
        containers = [self.values[i] for i in state.values.containers]
        return self._delivery(state.resumption.then), containers, [*made, *dicts]

    def _fill_frames(self, interp: Interpreter) -> None:
        shapes, frames, value = self.state.shapes.frames, self.frames, self.value
        for shape in shapes:
            f = Frame(shape.info, interp.link(shape.info), shape.globals, shape.builtins, [], None)
            f.ip, f.kwnames = shape.ip, shape.kwnames
            frames.append(f)
        for f, shape in zip(frames, shapes, strict=True):
            f.local = [value(s) for s in shape.local]
            f.stack = [value(s) for s in shape.stack]
            f.then = self._delivery(shape.then)
            f.back = frames[shape.back] if shape.back >= 0 else None
            extras = f.own_extras()
            extras.on_stop, extras.whole = self._delivery(shape.on_stop), shape.whole
            extras.namespace = value(shape.namespace)
            extras.generator = self.generators[shape.generator] if shape.generator >= 0 else None

    def _delivery(self, shape: DeliveryShape | None) -> Delivery | None:
        return None if shape is None else Delivery(shape.function, self._delivery(shape.then), *[self.value(x) for x in shape.data])

    def _fill_generators(self, interp: Interpreter) -> None:
        value = self.value
        for gen, shape in zip(self.generators, self.state.shapes.generators, strict=True):
            gen.state, gen.handled, gen.outer = shape.state, value(shape.handled), value(shape.outer)
            gen.frame = self.frames[shape.frame] if shape.frame >= 0 else None
            gen.drive, gen.called_at, gen.gi_code, gen.given = interp.drive, shape.called_at, shape.code, None
            gen.__name__, gen.__qualname__ = shape.code.co_name, shape.code.co_qualname

    def value(self, spec: Any) -> Any:
        """Returns the object that a part of the state describes."""
        t = type(spec)
        if t is Const:
            return spec.value
        if t is Root:
            return self.values[spec.number]
        if t is GeneratorRef:
            return self.generators[spec.number]
        if t is Object:
            return self._object(spec.number)
        if t is Reduced:
            return self._iterator(spec.number)
        if t is Carried:
            return self.carried[spec.number]
        if spec.type is dict:
            return {k: self.value(x) for k, x in spec.items}
        return spec.type([self.value(x) for x in spec.items])

    def _object(self, at: int) -> Any:
        """Returns an object that is rebuilt from its parts. It is made before them, because they may contain it."""
        objects, value = self.objects, self.value
        if at in objects:
            return objects[at]
        kind, t, parts = self.state.shapes.objects[at]
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
            obj = objects[at] = method_of(value(parts[0]), value(parts[1]))
        elif t is list:
            obj = objects[at] = []
            obj.extend([value(x) for x in parts])
        else:
            obj = objects[at] = tuple([value(x) for x in parts])
        return obj

    def _iterator(self, at: int) -> Any:
        if at not in self.iterators:
            make, args, state = self.state.shapes.iterators[at]
            it = self.iterators[at] = make(*[self.value(a) for a in args])
            if self.value(state) is not None:
                set_iterator_state(it, self.value(state))
        return self.iterators[at]
