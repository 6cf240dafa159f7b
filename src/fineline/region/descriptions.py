"""Descriptions of guards, misses and places for users."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.fx import GraphModule

from fineline.codegen.frame_state import FrameState
from fineline.codegen.programs import ResidualProgram
from fineline.frames.frame import Frame
from fineline.frames.stub_frames import is_own, user_frame
from fineline.guards.evaluate import ReferenceProgram
from fineline.guards.facts import class_name, sizes_text
from fineline.guards.steps import CHECKS
from fineline.guards.texts import value_text
from fineline.kinds import is_a
from fineline.policy.break_rules import place_text
from fineline.report.misses import Change, Miss
from fineline.report.programs import GraphCode, Guard, KeptProgram, Measures
from fineline.stacks import StackPlace, to_the_user

ACCESSES = {
    "key": "is there", "index": "is there", "cell": "is set", "member": "is there", "dict": "has attributes",
    "root": "is given", "pin": "is the same",
}  # fmt: skip


_MOST_OF_VALUE, _MOST_NAMES = 120, 5


def guard_at(segment: ResidualProgram, at: int) -> Guard:
    op, _, _, payload = segment.steps[at]
    name = payload.text if op == "relation" else _subject(segment, at)
    return Guard(name, _claim(segment, op, payload, at), "{}:{}".format(*place) if (place := _place(segment, at)) else "")


def guards_of(segment: ResidualProgram) -> tuple[Guard, ...]:
    """Returns all guards of a program."""
    return tuple([guard_at(segment, i) for i in guard_positions(segment)])


def guard_positions(segment: ResidualProgram) -> list[int]:
    """Returns the positions of the guards among the steps of a program."""
    return [i for i in range(len(segment.steps)) if segment.steps[i][0] in CHECKS]


def describe_guards(segment: ResidualProgram) -> list[str]:
    return [str(guard) for guard in guards_of(segment)]


def describe_program(segment: ResidualProgram, measures: Measures | None = None) -> KeptProgram:
    """Returns a program as reports show it: it outlives the program, and holds nothing of it unless a compiler is at work on the graph."""
    places = tuple(segment.unbound.places)
    waits = segment.unbound.waits
    code = functools.partial(_code_of, segment.graph) if waits else functools.partial(GraphCode, *_code_of(segment.graph))
    return KeptProgram(segment.source, guards_of(segment), code, len(places), places, measures)


def _code_of(graph: GraphModule | None) -> GraphCode:
    if graph is None:
        return GraphCode()
    return GraphCode(graph.code, [(name, part.code) for name, part in graph.named_modules() if name and is_a(part, GraphModule)])


def describe_miss(segment: ResidualProgram, at: int, roots: tuple) -> Miss:
    """Describes the guard that a call failed: the user's expression, its value then and now, and where it is read."""
    of_sources = _of_sources(segment, at)
    changes = (of_sources,) if of_sources is not None else ReferenceProgram(len(roots), segment.steps[: at + 1], ()).explain(roots)
    return Miss(_subject(segment, at), changes or (Change("", "", "changed"),), *(_place(segment, at) or ()))


def _of_sources(segment: ResidualProgram, at: int) -> Change | None:
    """Returns the change behind a failed guard on several sources or on an absent attribute; None for other guards."""
    op, _, _, payload = segment.steps[at]
    sources = segment.reads.sources
    if op == "same":
        return Change("", f"the same object as {sources[payload].text()}", "another object")
    if op == "distinct":
        ones, others = payload
        texts = [sources[reg].text() for reg in (*ones[1:], *others)]
        if len(ones) == 1 or len(texts) == 1:
            return Change("", "an object of its own", f"the same object as {texts[0] if len(texts) == 1 else 'one of ' + _listed(texts)}")
        return Change("", f"different objects, as are {_listed(texts)}", "two of them are one")
    if op == "absent" and _lacks_attribute(segment, at):
        return Change("", "", "it is there now")
    if op == "storages":
        return Change("", "", f"which of {_listed([sources[reg].text() for reg in payload[0]])} share memory has changed")
    return None


def _listed(texts: list[str]) -> str:
    """Returns the first few texts in a sentence, with the number of the others."""
    shown = texts[:_MOST_NAMES] + [f"{len(texts) - _MOST_NAMES} others"] * (len(texts) > _MOST_NAMES)
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def subject(segment: ResidualProgram, at: int) -> str:
    """Returns the user's expression that guard number ``at`` is about, and where it is read."""
    place = _place(segment, at)
    return _subject(segment, at) + (" (read at {}:{})".format(*place) if place is not None else "")


def _subject(segment: ResidualProgram, at: int) -> str:
    op, _, _, payload = segment.steps[at]
    src = segment.reads.source(segment.steps[at])
    if src is not None and src.parent is not None and _lacks_attribute(segment, at):
        return f"{src.parent.text()}.{payload}"
    if src is not None:
        return str(src.text())
    if op == "type_lacks":
        return f"{payload[0].__qualname__}.{payload[1]}"
    if op == "relation":
        return "the relation"
    return "the tensors' memory" if op == "storages" else "PyTorch's state"


def _lacks_attribute(segment: ResidualProgram, at: int) -> bool:
    """Returns whether guard number ``at`` says that an object has no attribute of a name."""
    op, _, _, payload = segment.steps[at]
    src = segment.reads.source(segment.steps[at])
    return op == "absent" and src is not None and src.op == "dict" and type(payload) is str


def _place(segment: ResidualProgram, at: int) -> tuple[str, int] | None:
    place = segment.reads.place(at)
    if place is None or is_own(place[0].code):
        return None
    info, ip = place
    return info.code.co_filename, info.lines[max(ip - 1, 0)]


def _claim(segment: ResidualProgram, op: str, payload: Any, at: int) -> str:
    match op:
        case "tensor":
            grad = ", requires grad" if payload.requires_grad else ""
            return f"is a {class_name(payload)} of size {sizes_text(payload.sizes)}, {payload.dtype}, {payload.device}{grad}"
        case "type":
            return f"is of type {payload.__qualname__}"
        case "is" | "eq" | "weak":
            text = value_text(payload() if op == "weak" else payload, _MOST_OF_VALUE)
            article, _, rest = text.partition(" ")
            return f"is the same {rest}" if article in ("a", "an") else f"is {text}"
        case "set_eq":
            return f"is the set {value_text(set(payload), _MOST_OF_VALUE)}"
        case "len":
            return f"has length {payload}"
        case "keys":
            return f"has the keys {value_text(list(payload), _MOST_OF_VALUE)}"
        case "absent":
            return "is not there" if _lacks_attribute(segment, at) else f"has no {value_text(payload)}"
        case "type_lacks":
            return "is not defined"
        case "type_attr":
            return "is the same"
        case "function":
            return f"has the code of {payload[0].co_qualname}"
        case "same":
            return f"is the same object as {segment.reads.sources[payload].text()}"
        case "distinct":
            others = len(payload[0]) + len(payload[1]) - 1
            return f"is not {segment.reads.sources[[*payload[0], *payload[1]][1]].text()}" if others == 1 else f"is none of {others} other objects"
        case "storages":
            return "is shared as it was"
        case "ambient":
            return "is as it was (grad mode, autocast, default dtype and device, ...)"
        case "relation":
            return "holds"
        case "predicate":
            return str(payload[1])
    return ACCESSES.get(op, op)


def user_place(f: Frame | None, fn: Any) -> tuple[str, int]:
    """Returns file and line of the innermost user frame; those of ``fn`` if there is none."""
    f = user_frame(f)
    return (f.file, f.line) if f is not None else place_of(fn)


def selector_of(f: Frame | None) -> str:
    """Returns the name of the function of the innermost user frame, in the form that rules take."""
    f = user_frame(f)
    return place_text(f.info.code, f.globals.get("__name__")) if f is not None else ""


def call_stack(fn: Any, frame_state: FrameState | None) -> tuple[StackPlace, ...]:
    """Returns the frames from the user's call of a region to a place in it: to the function, or to where a program after a graph break begins."""
    if frame_state is None:
        name = getattr(fn, "__qualname__", "") or type(fn).__qualname__
        return (*to_the_user(), (*place_of(fn), name))
    inside = [(info.code, info.lines[max(ip - 1, 0)]) for info, ip in frame_state.stack if not is_own(info.code)]
    return (*to_the_user(), *[(code.co_filename, line, code.co_qualname) for code, line in inside])


def name_of(fn: Callable) -> str:
    """Returns the name in reports of a region of ``fn``, unless the region has a name of its own."""
    return getattr(fn, "__qualname__", "") or type(fn).__qualname__


def place_of(fn: Any) -> tuple[str, int]:
    """Returns where a callable is defined."""
    fn = fn.forward if is_a(fn, nn.Module) else fn
    while True:
        inner = getattr(fn, "__func__", None) or getattr(fn, "__wrapped__", None) or getattr(fn, "func", None)
        if inner is None or inner is fn:
            break
        fn = inner
    code = getattr(fn, "__code__", None) or getattr(vars(type(fn)).get("__call__"), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else (getattr(fn, "__qualname__", type(fn).__qualname__), 0)
