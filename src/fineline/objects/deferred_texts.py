"""Texts of what only the graph knows, as long as nobody reads them: the program makes those that are still there behind it."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from types import CodeType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._tensor_str import PRINT_OPTS

from fineline.bytecode.asynchronous import let_pass
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak, NotReconstructible, Restart
from fineline.frames.stub_frames import is_own
from fineline.fx.body_recorder import Part
from fineline.guards.source import Source
from fineline.identity import AddressMap
from fineline.kinds import is_a
from fineline.objects.attribute_reads import type_info
from fineline.policy.selector import describe
from fineline.report.operator_counter import Tally
from fineline.symbolic.arithmetic import SYMBOLIC, unknown
from fineline.tracing.interp import Call, Interp
from fineline.tracing.segment_trace import SINGLETONS, VALUES, SegmentTrace

# Of these the classes' own methods make texts. A library may have put others there: then they are in another file.
_TENSORS = frozenset({Tensor, torch.nn.Parameter})
_METHODS = ("__str__", "__repr__", "__format__")
_FILES = frozenset({torch._tensor.__file__, torch.nn.parameter.__file__})
_TUPLES = (tuple, torch.Size)
# What no number makes an error of, as "c" is.
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?#?0?\d*[,_]?(\.\d+)?[bdeEfFgGnosxX%]?")
_PERCENT = re.compile(r"%[-#0 +]*\d*(\.\d+)?[dsrfFeEgG%]")
# Which argument says what the text looks like.
_PATTERNS: Mapping[Callable, int] = MappingProxyType({str: 1, repr: 1, format: 1, operator.mod: 0, str.format: 0})
_WHOLE = re.compile(r"%[-#0 +]*\d*(\.\d+)?d")
_SAMPLES: Mapping[type, Any] = MappingProxyType({torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True})


def another_in_python(text: Any) -> Any:
    """Returns a str or bytes that is equal to ``text``, and another object: those of one letter are one object."""
    return "".join([text, ""]) if type(text) is str else bytes(bytearray(text))


if TYPE_CHECKING:
    another = another_in_python
else:
    try:
        from fineline._native import another
    except ImportError:
        another = another_in_python


class Text(NamedTuple):
    """A text that ``fn(*args)`` makes. ``value``: the text itself, with which the user's code goes on; in fake mode, what stands for it."""

    value: Any
    # None: what stands here has come from a graph break, and is bytes perhaps.
    fn: Callable[..., str] | None
    args: tuple
    # Where the user's code makes it.
    where: str
    place: tuple[CodeType, int] | None
    # What it depends on beside the numbers in its arguments.
    state: tuple


class Stale(NotReconstructible):
    """A text that would be another one behind the graph."""

    error = "FL417"


def waiting(interp: Interp, f: Frame, fn: Callable, args: Any) -> str | None:
    """Returns the text that ``fn(*args)`` makes, if only the graph knows of what; None: it has to be made now."""
    return _noted(interp, f, fn, tuple(args)) if interp.trace.active and _may_wait(interp, f, fn, args) else None


def joined(interp: Interp, f: Frame, parts: tuple) -> str:
    """Texts in a row, some of which nobody has read."""
    text = _noted(interp, f, _join, parts)
    assert text is not None
    return text


def _join(*parts: str) -> str:
    return "".join(parts)


def _may_wait(interp: Interp, f: Frame, fn: Callable, args: Any) -> bool:
    trace = interp.trace
    if is_a(trace.recorder, Part) or interp.opaque is not None or interp.merged is not None or is_own(f.info.code):
        return False
    core: Any = torch._C
    modes = [core._get_dispatch_stack_at(i) for i in range(core._len_torch_dispatch_stack())]
    if core._len_torch_function_stack() or core._functorch.get_dynamic_layer_stack_depth() or not all([is_a(m, Tally) for m in modes]):
        return False
    if (f.info.code, f.ip - 1) in interp.lessons.eager_sites or PRINT_OPTS.__dict__ in trace.mutations.written:
        return False
    at = _PATTERNS[fn]
    if not _plain(trace, fn, args[at : at + 1]):
        return False
    given = [x for n, a in enumerate(args) if n != at for x in (a if type(a) in _TUPLES else (a,))]
    if fn is operator.mod and _WHOLE.search(args[0]) and any(map(_fractional, given)):
        # Infinity is no whole number.
        return False
    late = [_late(interp, x, (f.info.code, f.ip - 1) in interp.lessons.specialized_texts) for x in given]
    return None not in late and any(late)


def _fractional(x: Any) -> bool:
    return type(x) is torch.SymFloat or (is_a(x, Tensor) and x.is_floating_point())


def _plain(trace: SegmentTrace, fn: Callable, patterns: Any) -> bool:
    """Returns whether what the text looks like is known, and raises an error for any number or for none."""
    if not patterns:
        return True
    pattern = patterns[0]
    if type(pattern) is not str or pattern in trace.texts:
        return False
    if fn is format:
        return _SPEC.fullmatch(pattern) is not None
    if fn is operator.mod:
        return "%" not in _PERCENT.sub("", pattern)
    try:
        fields = [field for field in Formatter().parse(pattern) if field[1] is not None]
    except ValueError:
        return False
    return fn is str.format and all([(not name or name.isdigit()) and _SPEC.fullmatch(spec or "") for _, name, spec, _ in fields])


def _late(interp: Interp, x: Any, read: bool) -> bool | None:
    """Returns whether ``x`` is not known yet, or varies and its text is not ``read``; None: no program can make a text of it later."""
    trace, t = interp.trace, type(x)
    if x in trace.texts:
        return True
    if t in SYMBOLIC:
        return unknown(x) or not read
    if t in SINGLETONS or (t in VALUES and t is not slice):
        trace.settle(x)
        return False
    if t not in _TENSORS and not (t is FakeTensor and interp.fakes is not None):
        return None
    known = x in trace.sources or trace.recorder.known(x)
    if x.layout is not torch.strided or x.is_nested or x.device.type == "meta" or not known or _written(trace, x):
        return None
    return True if all([_own(trace, interp.type_of(x), name) for name in _METHODS]) else None


def _own(trace: SegmentTrace, t: type, name: str) -> bool:
    method = type_info(trace, t).look(trace, name)[1]
    return method is object.__str__ or (is_a(method, FunctionType) and method.__code__.co_filename in _FILES)


def _written(trace: SegmentTrace, t: Tensor) -> bool:
    """Returns whether the graph has written into the memory of ``t`` so far, or the program is to set something of it."""
    memory = trace.guards.interp.memory(t)
    return memory.untyped_storage()._cdata in trace.recorder.mutated or any([owner is t for owner, *_ in trace.mutations.slots.values()])


def _state(trace: SegmentTrace, args: tuple) -> tuple:
    memory = trace.guards.interp.memory
    given = [x for a in args for x in (a if type(a) is tuple else (a,)) if is_a(x, Tensor)]
    return torch.get_default_dtype(), *[(x.requires_grad, memory(x).untyped_storage()._cdata) for x in given]


def _noted(interp: Interp, f: Frame, fn: Callable, args: tuple) -> str | None:
    # In fake mode nothing of the user's runs.
    live = interp.fakes is None
    interp.outside, interp.computing = "eager" if live else "", not live
    try:
        with interp.pause.interrupted():
            value = interp.native(fn, args, None) if live else _stand_in(interp, f, fn, args)
    except Exception as e:
        let_pass(e)
        # A graph break raises it as the user's.
        return None
    finally:
        interp.outside, interp.computing = "", False
    if type(value) is not str or not value:
        return None
    # Those of one letter are one object.
    value = "".join([value, ""])
    forget_dead(interp.texts)
    interp.texts[value] = Text(value, fn, args, f"{f.file}:{f.line}", (f.info.code, f.ip - 1), _state(interp.trace, args))
    return value


def given(interp: Interp, v: Any, src: Source) -> Any:
    """Registers a text, or bytes, that differs from call to call: what moves it about guards its type alone. -> what stands for it."""
    trace = interp.trace
    value = another(v)
    if value is v or src.checked:
        return trace.read(v, src)
    trace.put_off(value, src)
    interp.texts[value] = Text(value, None, (), src.text(), None, ())
    return value


def _stand_in(interp: Interp, f: Frame, fn: Callable, args: tuple) -> str:
    """Returns what stands for a text in fake mode, if such a text can be made."""
    if fn is not _join and (fn is not format or args[1:] not in ((), ("",))):
        fn(*[tuple([_sample(interp, x) for x in a]) if type(a) in _TUPLES else _sample(interp, a) for a in args])
    return f"<text {len(interp.texts)} made at {f.file}:{f.line}>"


def _sample(interp: Interp, x: Any) -> Any:
    if not is_a(x, Tensor):
        return _SAMPLES.get(type(x), x)
    like = torch.zeros([1] * x.dim(), dtype=x.dtype)
    return torch.nn.Parameter(like, False) if type(x) is torch.nn.Parameter else like


def known_next_time(interp: Interp, text: Text) -> None:
    """Handles a deferred text that is about to be read: if it contains only numbers that vary, these are constants in the next attempt.

    A text that has come from a graph break is guarded from here on, and is no longer deferred.
    """
    if text.fn is None:
        # It is there: from here on it is one that is guarded.
        interp.trace.settle(text.value)
        del interp.texts[text.value]
        return
    places = set()
    found = [text]
    while found:
        text = found.pop()
        if text.fn is None:
            return
        places.add(text.place)
        for x in [x for a in text.args for x in (a if type(a) in _TUPLES else (a,))]:
            if x in interp.texts:
                found.append(interp.texts[x])
            elif is_a(x, Tensor) or unknown(x):
                return
    if not places <= interp.lessons.specialized_texts:
        interp.lessons.specialized_texts |= places
        raise Restart("FL417", f"a text of numbers, made at {text.where}, is read", again=True)


def make_first(call: Call, given: Iterable[Any]) -> None:
    """Sees to it that a call that a graph is to hold is ``given`` no text that has not been made."""
    interp = call.interp
    for text in [interp.texts[a] for a in given if a in interp.texts]:
        known_next_time(interp, text)
        if text.value not in interp.texts:
            continue
        reason = f"the text of a tensor, made at {text.where}, is given to {describe(call.fn)}"
        raise GraphBreak(read, (text.value,), None, "FL417", reason).to(call.again())


def read(text: str) -> None:
    """Runs where a text has been made because it is needed next."""


def begin_segment(interp: Interp) -> None:
    """Starts the trace of a new segment. It keeps the dict of deferred texts, because the running loop uses it."""
    interp.texts.clear()
    interp.trace = SegmentTrace(interp)
    interp.trace.texts = interp.texts


def forget_dead(texts: AddressMap[Text]) -> None:
    """Lets go of texts that nobody holds any more."""
    for text in [text for text in texts.values() if sys.getrefcount(text.value) == 2]:
        del texts[text.value]


def call_of(trace: SegmentTrace, value: str) -> tuple[Callable, tuple]:
    """Returns the call by which a program makes ``value`` behind its graph."""
    text = trace.texts[value]
    assert text.fn is not None
    tensors = [x for a in text.args for x in (a if type(a) is tuple else (a,)) if is_a(x, Tensor)]
    if text.state != _state(trace, text.args) or PRINT_OPTS.__dict__ in trace.mutations.written or any([_written(trace, t) for t in tensors]):
        raise Stale(f"the text made at {text.where}, of what has been changed since", text.place)
    return text.fn, text.args
