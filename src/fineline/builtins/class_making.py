"""Handlers of calls that make classes: class statements, type(), named tuples, data classes, enums.

The captured code goes on with a class that the capture makes, if no user code runs for that except the class's body, which is interpreted. A
program makes the class again only where other code may see it (`codegen/reconstruct_classes.py`).
"""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.stub_frames import is_own
from fineline.kinds import is_a, is_users_class
from fineline.objects.introspection import global_value
from fineline.objects.type_info import ABSENT, type_info
from fineline.symbolic.arithmetic import settle_all
from fineline.tracing.identity_guards import guard_mro, identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.plain_values import SINGLETONS, VALUES, is_value
from fineline.tracing.recreated_classes import TYPE_DICT
from fineline.tracing.segment_trace import SegmentTrace

# Metaclasses that make a class from its name, bases and namespace alone.
PLAIN = (type, abc.ABCMeta)
OBJECT_INIT_SUBCLASS: Any = object.__dict__["__init_subclass__"]
# The enums of the library. Their own methods make the members of an enum that is derived from them alone.
ENUMS = tuple([vars(enum)[name] for name in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag") if name in vars(enum)])

# The modules of what annotations are beside classes: these print themselves, without code of the user's.
_OF_ANNOTATIONS = frozenset({"dataclasses", "types", "typing"})
# The names with which the text of an annotation begins, and the objects that tell the kinds of a data class's fields.
_FIRST_NAMES = re.compile(r"\s*(?:(\w+)\s*\.)?\s*(\w+)")
_FIELD_KINDS = tuple([value for value in vars(dataclasses).values() if type(value).__module__ == "dataclasses"])


class _NotHere(Exception):
    """Raised if a class cannot be made in the captured code: it is made eagerly, at a graph break."""


def natively(call: Call, reason: str) -> GraphBreak:
    """Returns the graph break at which the call makes a class eagerly."""
    classes = call.trace.classes.local
    if call.trace.active:
        call.trace.pin(classes, "made_natively")
    return GraphBreak(classes, (call.fn, *call.args), call.kwargs, "FL423", reason)


def _make(call: Call, make: Any, args: tuple, kwargs: dict[str, Any]) -> Frame | None:
    """Makes a class in the captured code, by a call that depends on nothing but its arguments and what is guarded."""
    cls = make(*args, **kwargs)
    call.trace.note_class(cls, make, args, kwargs)
    return call.finish(cls)


def _check_place(call: Call) -> None:
    if not call.interp.lessons.graphs.made_classes:
        raise _NotHere("a program cannot make it again")


def _check_bases(call: Call, bases: tuple) -> None:
    """Guards that the bases do nothing when a class is derived from them."""
    trace = call.trace
    for base in bases:
        if not is_a(base, type) or type(base) not in PLAIN:
            raise _NotHere("a base or its metaclass may run code")
        guard_mro(trace, base)
        if type_info(trace, base).look(trace, "__init_subclass__")[1] is not OBJECT_INIT_SUBCLASS:
            raise _NotHere("a base has an __init_subclass__")
        if type(base) is abc.ABCMeta:
            type_info(trace, base).look(trace, "__abstractmethods__")
        if is_users_class(base) and base not in trace.classes.made and (call.interp.nested.any() or call.interp.nested.subgraph_rules is not None):
            raise _NotHere("a base lists its subclasses, and the code is part of another graph")


def _check_space(trace: SegmentTrace, name: Any, space: dict[str, Any], is_abstract: bool) -> None:
    """Guards that the values in a class's namespace do nothing when the class is made."""
    for text in (name, *space):
        if type(text) is not str or text in trace.deferred.texts:
            raise _NotHere("its names are not plain texts")
    for v in space.values():
        t = type(v)
        if not is_users_class(t) or is_a(v, type):
            continue
        if is_abstract:
            raise _NotHere("an attribute may say that it is abstract")
        if type_info(trace, t).look(trace, "__set_name__")[0] != ABSENT and not (t is dataclasses.Field and _is_plain_field(v)):
            raise _NotHere("an attribute has a __set_name__")
    slots = space.get("__slots__", ())
    if not is_value(slots) or not is_value(space.get("__doc__")) or not is_a(space.get("__qualname__", ""), str):
        raise _NotHere("its slots, its text or its name are computed")
    trace.deferred.settle(slots)


def _is_plain_field(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING or _is_plain(field.default)


def _is_plain(v: Any) -> bool:
    return type(v) in SINGLETONS or type(v) in VALUES


def _module(call: Call) -> Any:
    """Returns the name of the module that calls: CPython would take it from the calling frame, which here is fineline's."""
    f: Frame = call.frame
    while is_own(f.info.code) and f.back is not None:
        f = f.back
    return global_value(call.interp, f, "__name__") if "__name__" in f.globals else None


# -- type() and class statements ---------------------------------------------------------------------------------------
def make_by_type(call: Call) -> Frame | None:
    """Handles type() with three arguments."""
    trace = call.trace
    name, bases, given = call.args
    if type(given) is not dict or type(bases) is not tuple:
        raise natively(call, "making a class")
    if trace.active:
        trace.expand(given)
    space = trace.fresh(dict(given))
    if "__module__" not in space:
        space["__module__"] = _module(call)
    call.args = [name, bases, space]
    try:
        if call.kwargs or not trace.active:
            raise _NotHere("it has keyword arguments")
        return _make_plainly(call, type, name, bases, space)
    except _NotHere as e:
        raise natively(call, f"making a class: {e}") from None


def _make_plainly(call: Call, make: Any, name: Any, bases: tuple, space: dict[str, Any]) -> Frame | None:
    _check_place(call)
    _check_bases(call, bases)
    # A part of the body may have run before a graph break.
    call.trace.expand(space)
    is_abstract = make is abc.ABCMeta or any([type(base) is abc.ABCMeta for base in bases])
    _check_space(call.trace, name, space, is_abstract)
    return _make(call, make, (name, bases, call.trace.fresh(dict(space))), {})


def _build_class(call: Call) -> Frame | None:
    """Handles a class statement: runs the body, then makes the class."""
    trace = call.trace
    if not trace.active:
        return call.finish(trace.classes.local.add(call.native()))
    body, name, *bases = call.args
    given = dict(call.kwargs or {})
    meta = given.pop("metaclass", type)
    try:
        _check_place(call)
        if given or (meta is not type and meta is not abc.ABCMeta):
            raise _NotHere("it has a metaclass, or keyword arguments")
        if bases != [typing.NamedTuple]:
            _check_bases(call, tuple(bases))
        made = Delivery(_class_of, call.then, meta, name, tuple(bases), space := trace.fresh({}))
        frame = call.interp.push_function(call.frame, body, [], None, made)
    except _NotHere as e:
        raise natively(call, f"the class {name} is made: {e}") from None
    except GraphBreak as b:
        if b.fn is not body:
            raise
        raise natively(call, f"the class {name} is made: {b.reason}") from None
    assert frame is not None
    frame.own_extras().namespace = space
    return frame


def _class_of(interp: Interp, f: Frame, value: Any, then: Delivery | None, meta: Any, name: str, bases: tuple, space: dict[str, Any]) -> Frame | None:
    """Makes the class of a class statement, after its body has run."""
    if bases == (typing.NamedTuple,):
        meta, bases, space["__orig_bases__"] = typing.NamedTupleMeta, (typing._NamedTuple,), bases  # type: ignore[attr-defined]
    elif meta is type and any([type(base) is abc.ABCMeta for base in bases]):
        meta = abc.ABCMeta
    call = Call(interp, f, meta, [name, bases, space], None, then)
    if not interp.trace.active:
        return call.finish(interp.trace.classes.local.add(call.native()))
    try:
        if meta not in PLAIN:
            interp.trace.expand(space)
            _check_types(interp.trace, space.get("__annotations__", {}))
            _check_space(interp.trace, name, space, False)
            return _make(call, meta, (name, bases, interp.trace.fresh(dict(space))), {})
        return _make_plainly(call, meta, name, bases, space)
    except _NotHere as e:
        raise natively(call, f"the class {name} is made: {e}") from None


def _new_class(call: Call) -> Frame | None:
    """Breaks the graph at ``types.new_class``, which calls a function of the user's with the namespace."""
    if not call.trace.active:
        return call.finish(call.trace.classes.local(call.fn, *call.args, **(call.kwargs or {})))
    raise natively(call, "new_class() makes a class")


# -- what the library makes --------------------------------------------------------------------------------------------
def _named_tuple(call: Call) -> Frame | None:
    call.kwargs = {"module": _module(call), **(call.kwargs or {})}
    if not call.trace.active:
        return call.finish(call.trace.classes.local(call.fn, *call.args, **call.kwargs))
    try:
        _check_place(call)
        args, kwargs = [_frozen(call, a) for a in call.args], {k: _frozen(call, a) for k, a in call.kwargs.items()}
    except _NotHere as e:
        raise natively(call, f"namedtuple() makes a class: {e}") from None
    return _make(call, call.fn, tuple(args), kwargs)


def _frozen(call: Call, a: Any) -> Any:
    """Returns an argument of namedtuple() as it is now: texts, truth values, or a sequence of texts or of defaults."""
    trace = call.trace
    if is_a(a, str) and type(a) is not str:
        raise _NotHere("its names are not plain texts")
    if type(a) in (list, tuple):
        trace.expand(a)
        items = tuple(a)
        if any([type(x) is not str and is_a(x, str) for x in items]):
            raise _NotHere("its names are not plain texts")
        texts = [x for x in items if type(x) is str]
    elif type(a) in SINGLETONS or type(a) is str:
        items, texts = a, [a]
    else:
        raise _NotHere("its arguments are not plain")
    if any([x in trace.deferred.texts for x in texts]):
        raise _NotHere("its names are not plain texts")
    trace.deferred.settle(a)
    return items


def _typed_tuple(call: Call) -> Frame | None:
    """Handles the call of ``typing.NamedTuple`` with a list of names and types."""
    module = _module(call)
    call = call.of(typed_tuple, [module, *call.args])
    if not call.trace.active:
        return call.finish(call.trace.classes.local(call.fn, *call.args, **(call.kwargs or {})))
    try:
        _check_place(call)
        if len(call.args) != 3 or call.kwargs or type(call.args[2]) not in (list, tuple):
            raise _NotHere("it is not made of a list")
        name, fields = call.args[1:]
        call.trace.expand(fields, True)
        if any([type(field) is not tuple or len(field) != 2 for field in fields]):
            raise _NotHere("it is not made of a list of pairs")
        _check_space(call.trace, name, dict(fields), False)
        _check_types(call.trace, dict(fields))
    except _NotHere as e:
        raise natively(call, f"NamedTuple() makes a class: {e}") from None
    return _make(call, typed_tuple, (module, name, tuple(fields)), {})


def typed_tuple(module: str, /, *args: Any, **kwargs: Any) -> Any:
    """Makes a typed named tuple as the code of ``module`` does, which it would otherwise take from the calling frame."""
    make: Any = typing.NamedTuple
    cls = make(*args, **kwargs)
    cls.__module__ = module
    return cls


def _data_class(call: Call) -> Frame | None:
    """Handles what ``dataclass`` does to a class: adds methods, whose text it compiles."""
    trace = call.trace
    if not trace.active:
        return call.finish(trace.classes.local(call.fn, *call.args, **(call.kwargs or {})))
    cls = call.args[0]
    try:
        _check_place(call)
        _check_fields(call, cls, dict(zip(inspect.signature(call.fn).parameters, call.args, strict=False)))
    except _NotHere as e:
        raise natively(call, f"a data class is made: {e}") from None
    trace.namespaces.types.clear()
    try:
        call.native()
    except BaseException:
        # It is half done.
        trace.classes.made[cls].calls.clear()
        raise
    trace.note_class(cls, call.fn, tuple(call.args), {})
    return call.finish(cls)


def _check_fields(call: Call, cls: Any, options: dict[str, Any]) -> None:
    """Guards what ``dataclass`` reads besides the class, and checks that it runs no user code."""
    trace = call.trace
    made = trace.classes.made.get(cls)
    if made is None or type(cls) is not type or call.kwargs or options.pop("slots", False):
        raise _NotHere("it exists already, or becomes another class")
    if not all([_is_plain(v) for name, v in options.items() if name != "cls"]):
        raise _NotHere("its options are no plain values")
    space = TYPE_DICT.__get__(cls)
    if list(space) != list(made.space) or any([space[name] is not v for name, v in made.space.items()]):
        raise _NotHere("its attributes have been set before")
    if any([base not in trace.classes.made for base in cls.__mro__[1:-1]]):
        raise _NotHere("it has a base from outside")
    annotations = space.get("__annotations__", {})
    _check_types(trace, annotations)
    for kind in annotations.values():
        if type(kind) is str:
            _check_annotation(call, kind, cls)
    for name in annotations:
        default = space.get(name)
        if not (_is_plain(default) or (type(default) is dataclasses.Field and _is_plain_field(default))):
            raise _NotHere(f"the default of {name} is no plain value")
        # The class's text contains it.
        trace.deferred.settle(default.default if type(default) is dataclasses.Field else default)
    for value in _FIELD_KINDS:
        trace.pin(value, "kind of field")


def _check_types(trace: SegmentTrace, annotations: dict[str, Any]) -> None:
    """Checks that annotations are texts, classes, or what the library makes for annotations."""
    trace.expand(annotations)
    for kind in annotations.values():
        plain = kind is None or is_a(kind, type) or type(kind).__module__ in _OF_ANNOTATIONS
        if not plain and (type(kind) is not str or kind in trace.deferred.texts):
            raise _NotHere("an annotation is an object of the user's")


def _check_annotation(call: Call, text: str, cls: type) -> None:
    """Guards the global that the text of an annotation begins with: ``dataclass`` looks up whether it is ``ClassVar`` or the like."""
    trace = call.trace
    space = getattr(sys.modules.get(cls.__module__), "__dict__", None)
    names = _FIRST_NAMES.match(text)
    if type(space) is not dict:
        raise _NotHere("an annotation is a text in no module")
    if names is not None:
        name = names[1] or names[2]
        src = trace.sources.get(space) or trace.pin(space, f"globals of {cls.__module__}")
        if name in space:
            trace.read_key(space, src, name, space[name])
            identify(trace, space[name])
        else:
            trace.read_absent(space, src, name)


def _enum_call(call: Call) -> Frame | None:
    cls = call.fn
    target, real = (cls, call.args) if is_a(cls, enum.EnumMeta) else (call.args[0], call.args[1:])
    if len(real) != 1 or call.kwargs:
        return _make_enum(call.of(target, real))
    if target in call.trace.classes.local:
        return call.of(enum.EnumMeta.__call__, [target, *real]).interpret()
    if call.interp.backing.may_be_symbolic:
        # The code that follows depends on the member.
        real = [settle_all(real[0])]
    if is_value(real[0]):
        call.trace.deferred.settle(real[0])
        return call.finish(target(*real))
    raise GraphBreak(target, tuple(real), None, "FL423", "looking up a member of an enum")


def _make_enum(call: Call) -> Frame | None:
    """Handles the call of an enum that makes another one, from the names of its members."""
    call.kwargs = {"module": _module(call), **(call.kwargs or {})}
    if not call.trace.active:
        raise natively(call, "making an enum")
    try:
        _check_place(call)
        if not any([call.fn is known for known in ENUMS]):
            raise _NotHere("its base is no enum of the library")
        args, kwargs = [_constant(call, a) for a in call.args], {k: _constant(call, a) for k, a in call.kwargs.items()}
    except _NotHere as e:
        raise natively(call, f"making an enum: {e}") from None
    return _make(call, call.fn, tuple(args), kwargs)


def _constant(call: Call, a: Any) -> Any:
    """Returns an argument as it is now: plain values, and containers of these."""
    trace = call.trace
    if type(a) in (list, tuple, dict):
        trace.expand(a)
        if type(a) is dict:
            return trace.fresh({_constant(call, k): _constant(call, v) for k, v in a.items()})
        return tuple([_constant(call, x) for x in a])
    if not _is_plain(a) or (type(a) is str and a in trace.deferred.texts):
        raise _NotHere("its members are not plain values")
    trace.deferred.settle(a)
    return a


MAKERS: Mapping[Any, Handler] = MappingProxyType(
    {
        builtins.__build_class__: _build_class,
        enum.EnumMeta.__call__: _enum_call,
        collections.namedtuple: _named_tuple,
        typing.NamedTuple: _typed_tuple,
        types.new_class: _new_class,
        dataclasses._process_class: _data_class,  # type: ignore[attr-defined]
    }
)
"""Handlers, by the function that makes classes."""
