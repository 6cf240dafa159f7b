"""Deferred texts: of values that only the graph knows, and of objects that print with an address, which is another at each call.

A program makes those that are still alive after its graph.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from types import CodeType, FunctionType, MappingProxyType, MethodType
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
from fineline.fx.recorder import NotForGraph
from fineline.guards.source import Source
from fineline.identity import AddressMap
from fineline.kinds import is_a, is_users_class
from fineline.objects.c_access import is_structseq
from fineline.objects.type_info import raw_lookup, type_info
from fineline.policy.selector import describe
from fineline.report.operator_counter import Tally
from fineline.symbolic.arithmetic import SYMBOLIC, unknown
from fineline.tracing.identity_guards import METHOD
from fineline.tracing.interp import Call, Interp
from fineline.tracing.plain_values import SINGLETONS, VALUES
from fineline.tracing.segment_trace import SegmentTrace

# For these, the classes' own methods make the text. A library may have replaced them: the new ones are in another file.
_TENSORS = frozenset({Tensor, torch.nn.Parameter})
_METHODS = ("__str__", "__repr__", "__format__")
_FILES = frozenset({torch._tensor.__file__, torch.nn.parameter.__file__})
_TUPLES = (tuple, torch.Size)
# Objects whose text contains the texts of others, as C prints them.
_WITH_PARTS = (tuple, list, dict, MethodType, functools.partial)
# What C prints of an object apart from its address, and the methods that make the text: a write to one of these changes the text.
_NAMING = frozenset({"__qualname__", "__module__", "__class__", *_METHODS})
# A format specification that raises for no number or for all; "c", for one, is excluded.
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?#?0?\d*[,_]?(\.\d+)?[bdeEfFgGnosxX%]?")
_PERCENT = re.compile(r"%[-#0 +]*\d*(\.\d+)?[dsrfFeEgG%]")
# The argument of each function that contains the format.
_PATTERNS: Mapping[Callable, int] = MappingProxyType({str: 1, repr: 1, format: 1, operator.mod: 0, str.format: 0})
_WHOLE = re.compile(r"%[-#0 +]*\d*(\.\d+)?d")
_SAMPLES: Mapping[type, Any] = MappingProxyType({torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True})


def another_in_python(text: Any) -> Any:
    """Returns a new str or bytes object equal to ``text``, unless it has one letter: CPython shares these."""
    return "".join([text, ""]) if type(text) is str else bytes(bytearray(text))


if TYPE_CHECKING:
    another = another_in_python
else:
    try:
        from fineline._native import another
    except ImportError:
        another = another_in_python


class Text(NamedTuple):
    """A text that ``fn(*args)`` makes. ``value``: the text, which the user's code continues with; in fake mode, its stand-in."""

    value: Any
    # None: the value comes from a graph break, and may be bytes.
    fn: Callable[..., str] | None
    args: tuple
    # The place in the user's code that makes it.
    where: str
    place: tuple[CodeType, int] | None
    # The state, apart from its arguments, that the text depends on.
    state: tuple

    @property
    def described(self) -> str:
        items = [x for a in self.args for x in _items(a)]
        plain = all([is_a(x, (Tensor, str)) or type(x) in SYMBOLIC or type(x) in SINGLETONS or type(x) in VALUES for x in items])
        return f"the text of {'a tensor' if plain else 'an object'}, made at {self.where}"


class Stale(NotReconstructible):
    """A text that would be different if it were made after the graph."""

    error = "FL417"


def waiting(interp: Interp, f: Frame, fn: Callable, args: Any) -> str | None:
    """Returns the text of ``fn(*args)``, deferred, if only the graph knows its contents; None: it has to be made now."""
    return _noted(interp, f, fn, tuple(args)) if interp.trace.active and _may_wait(interp, f, fn, args) else None


def formatted(interp: Interp, f: Frame, args: list, kwargs: dict | None) -> str | None:
    """Returns the text of ``str.format(*args, **kwargs)``, deferred; None if it has to be made now."""
    if kwargs:
        pattern = _numbered(args[0], len(args) - 1, kwargs) if type(args[0]) is str and args[0] not in interp.trace.deferred.texts else None
        if pattern is None:
            return None
        args = [pattern, *args[1:], *kwargs.values()]
    return waiting(interp, f, str.format, args)


def _numbered(pattern: str, positional: int, names: Iterable[str]) -> str | None:
    """Returns the format with numbers in place of names, which follow the ``positional`` arguments; None if it has other fields than names and numbers."""
    at = {name: str(n) for n, name in enumerate(names, positional)}
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError:
        return None
    if not all([field is None or field in at or (field.isdecimal() and int(field) < positional) for _, field, _, _ in parts]):
        return None
    literals = [literal.replace("{", "{{").replace("}", "}}") for literal, *_ in parts]
    fields = ["" if field is None else f"{{{at.get(field, field)}{f'!{how}' if how else ''}:{spec}}}" for _, field, spec, how in parts]
    return "".join([part for pair in zip(literals, fields, strict=True) for part in pair])


def joined(interp: Interp, f: Frame, parts: tuple) -> str:
    """Returns the concatenation of texts, some of them deferred, as a deferred text."""
    text = _noted(interp, f, _join, parts)
    assert text is not None
    return text


def _join(*parts: str) -> str:
    return "".join(parts)


def _may_wait(interp: Interp, f: Frame, fn: Callable, args: Any) -> bool:
    trace = interp.trace
    if is_a(trace.recorder, Part) or interp.nested.any() or interp.nested.modes or is_own(f.info.code):
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
    given = [x for n, a in enumerate(args) if n != at for x in _items(a)]
    if fn is operator.mod and _WHOLE.search(args[0]) and any(map(_fractional, given)):
        # Infinity is not an integer.
        return False
    late = [_late(interp, x, (f.info.code, f.ip - 1) in interp.lessons.numbers.specialized_texts) for x in given]
    return None not in late and any(late)


def _is_tuple(a: Any) -> bool:
    """Returns whether the text of ``a`` consists of those of its items: a tuple, or a structseq such as ``torch.return_types.max``."""
    return type(a) in _TUPLES or (is_a(a, tuple) and is_structseq(type(a)))


def _items(a: Any) -> tuple:
    return a if _is_tuple(a) else (a,)


def _fractional(x: Any) -> bool:
    return type(x) is torch.SymFloat or (is_a(x, Tensor) and x.is_floating_point())


def _plain(trace: SegmentTrace, fn: Callable, patterns: Any) -> bool:
    """Returns whether the format is known, and raises an error either for all numbers or for none."""
    if not patterns:
        return True
    pattern = patterns[0]
    if type(pattern) is not str or pattern in trace.deferred.texts:
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
    """Returns whether ``x`` is still unknown, or varies and its text is not ``read``; None: no program can make its text later."""
    trace, t = interp.trace, type(x)
    if x in trace.deferred.texts:
        return True
    if t in SYMBOLIC:
        return unknown(x) or not read
    if t in SINGLETONS or (t in VALUES and t is not slice):
        trace.deferred.settle(x)
        return False
    if t not in _TENSORS and not (t is FakeTensor and not interp.backing.real):
        return True if _prints_in_c(x) and _is_available(trace, x) else None
    known = x in trace.sources or trace.recorder.known(x)
    if x.layout is not torch.strided or x.is_nested or x.device.type == "meta" or not known or _written(trace, x):
        return None
    return True if all([_own(trace, interp.type_of(x), name) for name in _METHODS]) else None


def _prints_in_c(x: Any, within: tuple[int, ...] = ()) -> bool:
    """Returns whether the text of ``x`` consists of names, addresses and constants, as C prints them."""
    t = type(x)
    if t in SINGLETONS or (t in VALUES and t is not slice):
        return True
    if t in _WITH_PARTS:
        return id(x) not in within and all([_prints_in_c(part, (*within, id(x))) for part in _parts(x)])
    if is_users_class(t):
        return not is_a(x, Tensor) and all([raw_lookup(t, name) is getattr(object, name) for name in _METHODS])
    return t is FunctionType or t is object


def _is_available(trace: SegmentTrace, x: Any) -> bool:
    """Returns whether a program has, or makes, the object ``x``, whose text C makes; guards that."""
    t = type(x)
    if _renamed(trace, x) or t in trace.classes.local or trace.guards.interp.type_of(x) is not t:
        # The last: it stands for an object of C's.
        return False
    if t in _WITH_PARTS:
        return _guard_parts(trace, x) and all([_is_constant(trace, part) or _is_available(trace, part) for part in _parts(x)])
    if is_users_class(t) and not all([type_info(trace, t).look(trace, name)[1] is getattr(object, name) for name in _METHODS]):
        return False
    return type(x) not in VALUES and (x in trace.sources or x in trace.made)


def _guard_parts(trace: SegmentTrace, x: Any) -> bool:
    """Guards which parts ``x`` has; returns whether its text is made of theirs."""
    t, src = type(x), trace.sources.get(x)
    try:
        if t is functools.partial:
            trace.load_partial(x)
        elif t is MethodType and src is not None:
            trace.load_members(x, src, METHOD)
        elif t is list or t is dict:
            trace.expand(x)
    except NotForGraph:
        return False
    return (src is not None or t is tuple or t is MethodType or x in trace.made) and not (t is functools.partial and x.keywords)


def _is_constant(trace: SegmentTrace, x: Any) -> bool:
    if type(x) in SINGLETONS or (type(x) in VALUES and type(x) is not slice and x not in trace.deferred.texts):
        trace.deferred.settle(x)
        return True
    return False


def _parts(x: Any) -> tuple:
    """Returns the objects whose texts are parts of the text of ``x``."""
    if type(x) is MethodType:
        return x.__func__, x.__self__
    if type(x) is functools.partial:
        return x.func, *x.args
    return (*x, *x.values()) if type(x) is dict else tuple(x) if type(x) is list or _is_tuple(x) else ()


def _nested(x: Any, within: tuple[int, ...] = ()) -> list:
    """Returns ``x`` and all its parts, down to the innermost."""
    return [x, *[inner for part in _parts(x) if id(part) not in within for inner in _nested(part, (*within, id(x)))]]


def _renamed(trace: SegmentTrace, x: Any) -> bool:
    """Returns whether the captured code has written to what C prints of ``x``, or to a class's methods that print."""
    if not _NAMING.isdisjoint(trace.mutations.class_attributes) or trace.mutations.wrote(x):
        return True
    return any([(owner is x or owner is type(x)) and descr.__name__ in _NAMING for owner, _, descr, _ in trace.mutations.slots.values()])


def _own(trace: SegmentTrace, t: type, name: str) -> bool:
    method = type_info(trace, t).look(trace, name)[1]
    return method is object.__str__ or (is_a(method, FunctionType) and method.__code__.co_filename in _FILES)


def _written(trace: SegmentTrace, t: Tensor) -> bool:
    """Returns whether the graph has already written to the memory of ``t``, or the program is going to set one of its attributes."""
    interp = trace.guards.interp
    memory = interp.backing.memory(interp, t)
    return memory.untyped_storage()._cdata in trace.recorder.writes.storages or any([owner is t for owner, *_ in trace.mutations.slots.values()])


def _state(trace: SegmentTrace, args: tuple) -> tuple:
    interp = trace.guards.interp
    items = [x for a in args for x in _items(a)]
    given = [x for x in items if is_a(x, Tensor)]
    printed = [x.__qualname__ if is_a(x, FunctionType) else id(x) for item in items if not is_a(item, Tensor) for x in _nested(item)]
    return torch.get_default_dtype(), *printed, *[(x.requires_grad, interp.backing.memory(interp, x).untyped_storage()._cdata) for x in given]


def _noted(interp: Interp, f: Frame, fn: Callable, args: tuple) -> str | None:
    # On fakes, no user code runs.
    live = interp.backing.real
    interp.eager.outside, interp.eager.computing = "eager" if live else "", not live
    try:
        with interp.eager.pause.interrupted():
            value = interp.native(fn, args, None) if live else _stand_in(interp, f, fn, args)
    except Exception as e:
        let_pass(e)
        # The eager call at the graph break raises it.
        return None
    finally:
        interp.eager.outside, interp.eager.computing = "", False
    if type(value) is not str or not value:
        return None
    # CPython shares texts of one letter.
    value = "".join([value, ""])
    forget_dead(interp.trace.deferred.texts)
    interp.trace.deferred.texts[value] = Text(value, fn, args, f"{f.file}:{f.line}", (f.info.code, f.ip - 1), _state(interp.trace, args))
    return value


def given(interp: Interp, v: Any, src: Source) -> Any:
    """Registers a text, or bytes, that varies from call to call, and guards only its type while it is just moved; returns its stand-in."""
    trace = interp.trace
    value = another(v)
    if value is v or src.checked:
        return trace.read(v, src)
    trace.deferred.put_off(value, src)
    interp.trace.deferred.texts[value] = Text(value, None, (), src.text(), None, ())
    return value


def _stand_in(interp: Interp, f: Frame, fn: Callable, args: tuple) -> str:
    """Returns the stand-in for a text in fake mode; raises if such a text cannot be made."""
    if fn is not _join and (fn is not format or args[1:] not in ((), ("",))):
        fn(*[tuple([_sample(interp, x) for x in a]) if _is_tuple(a) else _sample(interp, a) for a in args])
    return f"<text {len(interp.trace.deferred.texts)} made at {f.file}:{f.line}>"


def _sample(interp: Interp, x: Any) -> Any:
    if not is_a(x, Tensor):
        return _SAMPLES.get(type(x), x)
    like = torch.zeros([1] * x.dim(), dtype=x.dtype)
    return torch.nn.Parameter(like, False) if type(x) is torch.nn.Parameter else like


def known_next_time(interp: Interp, text: Text) -> None:
    """Handles a deferred text that is about to be read: if it contains only varying numbers, these become constants in the next attempt.

    A text from a graph break is guarded from here on, and is no longer deferred.
    """
    if text.fn is None:
        # The text exists, and becomes a guarded value.
        interp.trace.deferred.settle(text.value)
        del interp.trace.deferred.texts[text.value]
        return
    places = set()
    found = [text]
    while found:
        text = found.pop()
        if text.fn is None:
            return
        places.add(text.place)
        for x in [x for a in text.args for x in _items(a)]:
            if x in interp.trace.deferred.texts:
                found.append(interp.trace.deferred.texts[x])
            elif unknown(x) or not (type(x) in SYMBOLIC or type(x) in SINGLETONS or type(x) in VALUES):
                return
    if interp.lessons.numbers.specialize_texts(places):
        raise Restart("FL417", f"a text of numbers, made at {text.where}, is read", again=True)


def make_first(call: Call, given: Iterable[Any]) -> None:
    """Breaks the graph before a call in a graph that would take a deferred text, among the arguments ``given``, to make the text first."""
    interp = call.interp
    for text in [interp.trace.deferred.texts[a] for a in given if a in interp.trace.deferred.texts]:
        known_next_time(interp, text)
        if text.value not in interp.trace.deferred.texts:
            continue
        reason = f"{text.described}, is given to {describe(call.fn)}"
        raise GraphBreak(read, (text.value,), None, "FL417", reason).to(call.again())


def read(text: str) -> None:
    """Does nothing: the eager call at a graph break that makes a text because it is needed next."""


def begin_segment(interp: Interp) -> None:
    """Starts the trace of a new segment. It keeps the dict of deferred texts, because the running loop uses it."""
    texts = interp.trace.deferred.texts
    texts.clear()
    interp.trace = SegmentTrace(interp)
    interp.trace.deferred.texts = texts


def forget_dead(texts: AddressMap[Text]) -> None:
    """Removes the texts to which only this table refers."""
    for text in [text for text in texts.values() if sys.getrefcount(text.value) == 2]:
        del texts[text.value]


def call_of(trace: SegmentTrace, value: str) -> tuple[Callable, tuple]:
    """Returns the call by which a program makes ``value`` after its graph."""
    text = trace.deferred.texts[value]
    assert text.fn is not None
    items = [x for a in text.args for item in _items(a) for x in _nested(item)]
    changed = any([_written(trace, x) if is_a(x, Tensor) else _renamed(trace, x) for x in items])
    if changed or text.state != _state(trace, text.args) or PRINT_OPTS.__dict__ in trace.mutations.written:
        raise Stale(f"the text made at {text.where}, of what has been changed since", text.place)
    return text.fn, text.args
