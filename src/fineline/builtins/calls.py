"""Calls: dispatch on the type of the callable, which a handler answers, a frame runs, the graph records, or Python calls."""

from __future__ import annotations

import functools
import types
from collections import defaultdict, deque
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_space

from fineline.builtins import distributed_tensors
from fineline.builtins.debuggers import NAMES as STOPPING
from fineline.builtins.debuggers import stop, stops
from fineline.builtins.handlers import HANDLERS
from fineline.builtins.libraries import NAMES
from fineline.builtins.marks import (
    KNOWN_BY_CODE,
    KNOWN_CODE,
    dynamo_function,
    explicit_break,
    gives,
    known_function,
    marked_by_torch,
    own_function,
)
from fineline.builtins.overruled_rules import looked_into
from fineline.builtins.pure_calls import run_pure
from fineline.builtins.text_readers import read_by
from fineline.bytecode.pure_code import MAYBE_PLAIN
from fineline.frames.frame import NULL, Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.stub_frames import is_own
from fineline.fx.recorder import NotForGraph
from fineline.guards.source import root_of
from fineline.kinds import is_a, is_users_class, is_wrapper_class
from fineline.objects import c_access, c_calls
from fineline.objects.attribute_reads import BINDERS, load_attr
from fineline.objects.c_argument_errors import refused
from fineline.objects.callable_table import UNKNOWN, spec_of
from fineline.objects.carried_iterators import STANDING
from fineline.objects.instances import make_instance, make_structseq
from fineline.objects.iterator_stand_ins import KINDS
from fineline.objects.lru_caches import LRU_TYPE, call_cached
from fineline.objects.type_info import C_METHOD_TYPES, C_OTHER, MISSING, c_class_method, c_method, in_python, raw_lookup, type_info
from fineline.policy.marks import graph_break, is_compiling, is_dynamo_compiling, torch_mark
from fineline.symbolic.arithmetic import holds
from fineline.tensor_ops import collectives
from fineline.tensor_ops.rules import call_ruled
from fineline.tensor_ops.subgraphs.nested_regions import call_nested, is_nested
from fineline.tensor_ops.torch_functions import NO_OVERRIDE, call_override, is_made_in_python, overridden
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.distributed_tensors import is_placement_class
from fineline.torch_facts.releases import APPLY
from fineline.tracing.identity_guards import F_CODE, METHOD, identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.local_classes import SameCode, is_method
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import F_CLOSURE, F_DEFAULTS, F_GLOBALS, F_KWDEFAULTS, PARTIAL, SegmentTrace

# Stands in a ``functools.partial`` for an argument that each call gives, from Python 3.14 on.
_PLACEHOLDER = getattr(functools, "Placeholder", object())
# The qualified names of functions for which the handler depends on more than the name.
REPLACED = NAMES | collectives.NAMES | distributed_tensors.NAMES
PARTIAL_CALL = functools.partial.__call__
MODULE_CALL = nn.Module.__call__
CALL_IMPL = nn.Module._call_impl
NO_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")
# Not the ``__globals__`` of one of its functions, because a library may have replaced that function.
MODULE_GLOBALS = module_space.__dict__
PLAIN = frozenset({dict, list, set, frozenset, tuple, deque, defaultdict})
ANSWERS_TRUE = gives(True)
VALUE_TYPES = frozenset({torch.finfo, torch.iinfo, torch.Size, torch.device})


def see_function(trace: SegmentTrace, fn: types.FunctionType) -> None:
    """Guards a function that is about to run: code, defaults, globals; its closure cells become sources."""
    if fn in trace.functions.guarded:
        return
    trace.functions.guarded.add(fn)
    src = trace.sources.get(fn)
    if src is None:
        if fn in trace.made:
            return
        src = trace.pin(fn, fn.__qualname__)
        if is_own(fn.__code__):
            return
    guards = trace.guards
    if root_of(src).op == "root" and (fn.__defaults__ or fn.__kwdefaults__ or is_method(src)):
        # Each call may create the function and its defaults again, so the guards compare them one by one.
        code = guards.access(src, "member", F_CODE, fn.__code__)
        if is_method(src):
            # A library may compile the method's class from source text again at each call.
            guards.check(code, "predicate", (SameCode(fn.__code__), "is the same code"))
        else:
            guards.check(code, "is", fn.__code__)
        for descr, value in ((F_DEFAULTS, fn.__defaults__), (F_KWDEFAULTS, fn.__kwdefaults__)):
            held = guards.access(src, "member", descr, value)
            if is_value(value):
                guards.check(held, "eq", value)
            else:
                trace.load(value, held)
        if fn.__kwdefaults__:
            trace.expand(fn.__kwdefaults__)
    else:
        guards.check(src, "function", (fn.__code__, fn.__defaults__, fn.__kwdefaults__))
    if src.op not in ("type_attr", "pin", "instance"):
        g = fn.__globals__
        inner = guards.access(src, "member", F_GLOBALS, g)
        if is_method(src) and g not in trace.sources:
            trace.adopt(g, inner)
        else:
            guards.check(inner, "is", g)
    for i, cell in enumerate(fn.__closure__ or ()):
        known = trace.sources.get(cell)
        if cell not in trace.made and (known is None or src.op not in ("type_attr", "pin")):
            closure = guards.access(src, "member", F_CLOSURE, fn.__closure__)
            inner = guards.access(closure, "index", i, cell)
            if known is None:
                trace.adopt(cell, inner)
            elif known is not inner:
                guards.check(inner, "same", known.reg)
    if fn.__defaults__ and not is_value(fn.__defaults__):
        defaults = guards.access(src, "member", F_DEFAULTS, fn.__defaults__)
        trace.load(fn.__defaults__, defaults)
    if fn.__kwdefaults__:
        kwdefaults = guards.access(src, "member", F_KWDEFAULTS, fn.__kwdefaults__)
        trace.load(fn.__kwdefaults__, kwdefaults)
        trace.expand(fn.__kwdefaults__)


def bind_arguments(interp: Interp, fn: types.FunctionType, code: types.CodeType, args: list, kwargs: dict | None) -> list:
    """Returns the local variables of a call, parameters first, as CPython binds them."""
    argcount, kwonly, flags = code.co_argcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_varnames
    total = argcount + kwonly
    local: list[Any] = [NULL] * total
    n = len(args)
    local[: min(n, argcount)] = args[:argcount]
    varargs = flags & 0x4
    varkw = flags & 0x8
    extra: dict[str, Any] = {}
    ok = n <= argcount or bool(varargs)
    if kwargs:
        for key, value in kwargs.items():
            try:
                at = names.index(key, code.co_posonlyargcount, total)
            except ValueError:
                ok = ok and bool(varkw) and is_a(key, str)
                extra[key] = value
                continue
            ok = ok and local[at] is NULL
            local[at] = value
    defaults = fn.__defaults__ or ()
    first = argcount - len(defaults)
    for i in range(min(n, argcount), argcount):
        if local[i] is NULL:
            if i < first:
                ok = False
            else:
                local[i] = defaults[i - first]
    if kwonly:
        kwdefaults = fn.__kwdefaults__ or {}
        for i in range(argcount, total):
            if local[i] is NULL:
                if names[i] in kwdefaults:
                    local[i] = kwdefaults[names[i]]
                else:
                    ok = False
    if not ok:
        # Binding fails before the body runs, so this call only raises CPython's TypeError.
        fn(*args, **(kwargs or {}))
    if varargs:
        local.append(tuple(args[argcount:]))
    if varkw:
        interp.trace.made.add(extra)
        local.append(extra)
    return local


def call_value(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None = None, then: Delivery | None = None) -> Frame | None:
    """Calls ``fn``; returns a new frame, or None when the result has been delivered."""
    if interp.rules is not None and interp.nested.opaque is None and interp.trace.active and type(fn) is not types.MethodType:
        rule = interp.rules.decide(fn, args)
        if rule is not None:
            try:
                if rule.verb != "trace" and not (rule.verb in EAGER_VERBS and runs_no_code(fn)):
                    return call_ruled(Call(interp, f, fn, args, kwargs, then), rule)
                inside = looked_into(fn, rule)
                if inside is not None:
                    identify(interp.trace, fn)
                    interp.trace.pin(inside, inside.__qualname__)
                    return interp.push_function(f, inside, args, kwargs, then)
            except GraphBreak as b:
                b.to(then)
                raise
    return call_unruled(interp, f, fn, args, kwargs, then)


# Verbs whose targets run eagerly.
EAGER_VERBS = ("disable", "disable_frame")
OBJECT_INIT: Any = object.__init__


def runs_no_code(fn: Any) -> bool:
    """Returns whether ``fn`` is a user class whose call runs no code, so that a rule has nothing to keep out of captures."""
    init = getattr(fn, "__init__", None)
    return type(fn) is type and is_users_class(fn) and init is OBJECT_INIT and fn.__new__ is object.__new__


def call_unruled(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None = None, then: Delivery | None = None) -> Frame | None:
    """Calls ``fn`` without asking the rules; returns a new frame, or None when the result has been delivered."""
    try:
        if interp.trace.deferred.texts:
            read_by(interp, fn, args, kwargs)
        if interp.nested.modes and (fn in HANDLERS or fn is torch.device) and (asked := _ask_mode(interp, f, fn, args, kwargs, then)) is not NO_OVERRIDE:
            return asked
        t = type(fn)
        if t is types.FunctionType:
            return call_function(interp, f, fn, args, kwargs, then)
        if t is types.MethodType:
            return call_method(interp, f, fn, args, kwargs, then)
        return CALLERS.get(t, call_object)(Call(interp, f, fn, args, kwargs, then))
    except GraphBreak as b:
        b.to(then)
        raise
    except NotForGraph as e:
        raise GraphBreak(fn, tuple(args), kwargs, "FL413", str(e)).to(then) from None


def _ask_mode(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Delivery | None) -> Frame | None:
    """Calls the mode that the code has entered, if it sees ``fn``, for which there is a handler; else returns `NO_OVERRIDE`."""
    if classify_torch(fn) in (None, "python", "query", "effect") or not interp.trace.active or not overridden(interp, args):
        return NO_OVERRIDE
    return call_override(interp, f, fn, args, kwargs, then)


def call_function(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Delivery | None) -> Frame | None:
    trace = interp.trace
    # Most functions have run before. Since then, one may have got a mark, or its address may belong to a function with other code.
    if trace.functions.run_through.get(fn) is fn.__code__ and not fn.__dict__:
        handler = None
    else:
        handler = HANDLERS.get(fn) or (_not_run_through(interp, fn) if trace.active else _left_alone(fn))
    if handler is None:
        # Most calls are of methods, which fail the first condition.
        if (not args or type(args[0]) in MAYBE_PLAIN) and trace.active and (value := run_pure(interp, fn, args, kwargs)) is not NULL:
            return interp.finish(f, value, then)
        return interp.push_function(f, fn, args, kwargs, then)
    # A handler is for this function and not for its code, so the guard is on the identity.
    if handler not in KNOWN_BY_CODE:
        identify(trace, fn)
    return handler(Call(interp, f, fn, args, kwargs, then))


def _not_run_through(interp: Interp, fn: types.FunctionType) -> Handler | None:
    """Returns the handler of a Python function that capture does not trace into; None if it does."""
    if fn is graph_break:
        return explicit_break
    if fn is is_compiling or fn is is_dynamo_compiling:
        return ANSWERS_TRUE
    kind = classify_torch(fn)
    if kind is not None and kind != "python":
        return _torch_function
    if fn.__qualname__ in STOPPING and stops(fn):
        return stop
    # Rules decide about these functions, and rules have a scope: the answer is not stored.
    ruled = fn.__code__ in KNOWN_CODE or fn.__qualname__ in REPLACED
    if ruled and (known := known_function(interp, fn)) is not None:
        return known
    if fn.__dict__ or (fn.__module__ is not None and fn.__module__.startswith("fineline.")):
        own = own_function(fn) or (call_nested if is_nested(fn) else None)
        if own is not None:
            return own
    if fn.__module__ is not None and fn.__module__.startswith("torch._dynamo"):
        return dynamo_function(fn)
    if fn.__dict__:
        return marked_by_torch(interp, fn)
    if not ruled:
        interp.trace.functions.look_into(fn)
    return None


def _left_alone(fn: types.FunctionType) -> Handler | None:
    """Returns the handler of a function whose code the interpreter does not run even when it captures nothing; None if it runs it."""
    if fn is graph_break:
        return explicit_break
    if fn.__qualname__ in STOPPING and stops(fn):
        return stop
    # If the interpreter ran the code of PyTorch's wrapper, PyTorch's compiler would then compile the interpreter's frames.
    return Call.run_natively if torch_mark(fn) is not None or (fn.__module__ or "").startswith("torch._dynamo") else None


def _torch_function(call: Call) -> Frame | None:
    return call.interp.tensors.call(call, classify_torch(call.fn))


def call_method(interp: Interp, f: Frame, fn: types.MethodType, args: list, kwargs: dict | None, then: Delivery | None) -> Frame | None:
    trace = interp.trace
    func, self = fn.__func__, fn.__self__
    src = trace.sources.get(fn)
    if src is not None:
        trace.load_members(fn, src, METHOD)
    return call_value(interp, f, func, [self, *args], kwargs, then)


def call_builtin(call: Call) -> Frame | None:
    """Calls a C function, or a C method bound to its object."""
    fn = call.fn
    handler = HANDLERS.get(fn)
    if handler is not None:
        return handler(call)
    owner = fn.__self__
    if owner is not None and not is_a(owner, types.ModuleType):
        if is_a(owner, type):
            descr = c_class_method(owner, fn)
            if descr is APPLY:
                return call.instead(descr, [owner, *call.args], call.kwargs)
            if type(descr) is types.ClassMethodDescriptorType or is_a(descr, classmethod):
                return c_calls.call_c(call, fn if spec_of(fn) is not UNKNOWN else descr)
            of_class = c_method(type(owner), fn)
            if descr is MISSING and type(of_class) is types.MethodDescriptorType and of_class.__get__(owner) == fn:
                return call.instead(of_class, [owner, *call.args], call.kwargs)
        elif not is_a(owner, Tensor):
            descr = c_method(type(owner), fn)
            if type(descr) is types.MethodDescriptorType:
                return call.instead(descr, [owner, *call.args], call.kwargs)
        else:
            descr = c_method(type(owner), fn)
            if type(descr) is types.MethodDescriptorType:
                return call.interp.tensors.call(call.of(descr, [owner, *call.args]), classify_torch(descr))
    kind = classify_torch(fn)
    if kind is not None:
        return call.interp.tensors.call(call, kind)
    return c_calls.call_c(call)


def call_descriptor(call: Call) -> Frame | None:
    """Calls an unbound C method with its object as first argument."""
    fn, args = call.fn, call.args
    if args and KINDS.get(type(args[0])) is fn.__objclass__:
        own = raw_lookup(type(args[0]), fn.__name__)
        if is_a(own, types.FunctionType) and is_own(own.__code__):
            return call.instead(own, args, call.kwargs)
        if type(args[0]) in STANDING:
            raise call.graph_break("FL410", f"{fn.__name__} of a {STANDING[type(args[0])].__name__}")
    if fn is PARTIAL_CALL and args and is_a(args[0], functools.partial):
        return call_partial(call.of(args[0], args[1:]))
    handler = HANDLERS.get(fn)
    if handler is not None:
        if call.interp.nested.modes and (asked := _ask_mode(call.interp, call.frame, fn, args, call.kwargs, call.then)) is not NO_OVERRIDE:
            return asked
        return handler(call)
    kind = classify_torch(fn)
    if kind is not None and not (fn is torch.Size.numel and call.interp.backing.may_be_symbolic and holds(args)):
        return call.interp.tensors.call(call, kind)
    return c_calls.call_c(call)


def call_method_wrapper(call: Call) -> Frame | None:
    # Not the method that the object's type has under that name: super() may have skipped it.
    descr = call.fn.__objclass__.__dict__.get(call.fn.__name__)
    if type(descr) is types.WrapperDescriptorType:
        return call.instead(descr, [call.fn.__self__, *call.args], call.kwargs)
    return c_calls.call_c(call)


def call_partial(call: Call) -> Frame | None:
    """Calls the function of a ``functools.partial``. A subclass may have attributes of its own by the names of C's."""
    call.trace.load_partial(call.fn)
    func, fixed, keywords = [member.__get__(call.fn) for member in PARTIAL]
    given = iter(call.args)
    left_open = [arg is _PLACEHOLDER for arg in fixed]
    if sum(left_open) > len(call.args):
        return refused(call)
    args = [next(given) if is_open else arg for arg, is_open in zip(fixed, left_open, strict=True)]
    return call.instead(func, [*args, *given], {**keywords, **(call.kwargs or {})})


def call_type(call: Call) -> Frame | None:
    cls, args, trace = call.fn, call.args, call.trace
    handler = HANDLERS.get(cls)
    if handler is not None:
        return handler(call)
    if (cls in VALUE_TYPES or is_placement_class(cls)) and all([is_value(a) and c_access.may_compare(trace, a) for a in call.values()]):
        return call.run_in_c()
    if not trace.active:
        if not is_users_class(cls) or (c_calls.polyfill_needed(args, call.kwargs) is False and not _has_python_init(cls)):
            return call.run_natively()
    if trace.active and c_access.is_structseq(cls):
        return make_structseq(call)
    if not is_users_class(cls) or spec_of(cls) is not UNKNOWN:
        return c_calls.call_c(call)
    if issubclass(cls, Tensor) or cls.__module__.startswith("torch._C") or cls.__module__ == "torch":
        kind = classify_torch(cls)
        if kind is not None and kind != "python":
            return call.interp.tensors.call(call, kind)
        if cls is nn.Buffer and trace.active:
            # It makes a tensor of the class of its argument.
            return call.instead(nn.Buffer.__new__, [cls, *args], call.kwargs)
        if issubclass(cls, Tensor) and not (trace.active and (is_wrapper_class(cls) or is_made_in_python(cls))):
            raise call.graph_break("FL421", f"making a {cls.__name__}")
    kind_of_call, meta_call = type_info(trace, type(cls)).look(trace, "__call__")
    if is_a(meta_call, type):
        # A class is not a descriptor: typing.TypedDict has ``__call__ = dict``.
        return call.instead(meta_call, args, call.kwargs)
    if is_a(meta_call, types.FunctionType):
        handler = HANDLERS.get(meta_call)
        if handler is not None:
            return handler(call)
        return call.instead(meta_call, [cls, *args], call.kwargs)
    if in_python(meta_call):
        return call.callee().of(BINDERS[kind_of_call], call.interp, call.frame, meta_call, cls, type(cls))
    return make_instance(call)


def _has_python_init(cls: type) -> bool:
    return is_a(raw_lookup(cls, "__init__"), types.FunctionType) or is_a(raw_lookup(cls, "__new__"), (types.FunctionType, staticmethod))


def call_object(call: Call) -> Frame | None:
    """Calls an instance with ``__call__``; for an nn.Module without hooks it calls ``forward`` directly."""
    interp, trace, obj = call.interp, call.trace, call.fn
    args, kwargs = call.args, call.kwargs
    if not trace.active and not is_a(obj, InterpretedGenerator) and not is_a(raw_lookup(type(obj), "__call__"), types.FunctionType):
        return call.run_natively()
    if interp.eager.call_out is not None and call.frame is interp.eager.frame and is_a(obj, nn.Module):
        return call.finish(interp.native(interp.eager.call_out(obj, args, kwargs), (), None))
    if is_a(obj, type):
        return call_type(call)
    if is_a(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) and trace.active:
        return interp.tensors.call(call, classify_torch(obj) or "effect")
    if c_access.hashable(obj):
        handler = HANDLERS.get(obj)
        kind = classify_torch(obj) or ("op" if is_a(obj, torch.jit.ScriptFunction) else "python")
        if handler is not None or kind != "python":
            identify(trace, obj)
        if handler is not None:
            return handler(call)
        if kind != "python":
            return interp.tensors.call(call, kind)
    if spec_of(obj) is not UNKNOWN:
        identify(trace, obj)
        return c_calls.call_c(call)
    inner = getattr(type(obj), "fineline_original", None)
    if type(inner) is str:
        # Capture traces into a region that captured code calls: the outer region's graph gets its operators.
        return call.callee().of(load_attr, interp, call.frame, obj, inner)
    info = type_info(trace, type(obj))
    kind, method = info.look(trace, "__call__")  # type: ignore[assignment]
    if is_a(obj, nn.Module) and method is MODULE_CALL and trace.active and no_hooks(trace, obj):
        return call.callee().of(load_attr, interp, call.frame, obj, "forward")
    if is_a(method, types.FunctionType):
        return call.instead(method, [obj, *args], kwargs)
    if is_a(method, staticmethod):
        return call.instead(interp.class_value(method.__func__), args, kwargs)
    if kind == C_OTHER:
        if not c_access.hashable(method):
            # A method that C++ bindings made, for example of a TorchScript module.
            raise call.graph_break("FL410", f"{type(obj).__name__}.__call__ is C code that fineline knows nothing of")
        if type(method) not in C_METHOD_TYPES:
            # A function with a cache, and from Python 3.14 on a partial object.
            return call.callee().of(BINDERS[kind], interp, call.frame, method, obj, type(obj))  # type: ignore[index]
        return call_descriptor(call.of(method, [obj, *args]))
    if kind:
        return call.callee().of(load_attr, interp, call.frame, obj, "__call__")
    if is_a(obj, types.ModuleType):
        # From Python 3.12 on, the error names a function that the module has by the same name.
        return call.run_eagerly("FL437", "a module is called")
    raise TypeError(f"'{type(obj).__name__}' object is not callable")


def no_hooks(trace: SegmentTrace, m: nn.Module) -> bool:
    """Returns whether a call of ``m`` only calls its ``forward``: ``m`` has no hooks and no compiled call. Guards the answer."""
    d = m.__dict__
    if "_call_impl" in d or type_info(trace, type(m)).look(trace, "_call_impl")[1] is not CALL_IMPL:
        return False
    src = trace.dict_source(m, d)
    if d.get("_compiled_call_impl") is not None or not _no_global_hooks(trace):
        return False
    guards, written = trace.guards, trace.mutations.written
    for name in NO_HOOKS:
        hooks = d.get(name)
        if hooks is None or len(hooks):
            return False
        if src is None or d in trace.containers.expanded or (d in written and trace.mutations.is_dirty(d, name)):
            continue
        of_module = guards.access(src, "key", name, hooks)
        if hooks in written:
            # By another path, from a handle: what was written is guarded there.
            trace.load(hooks, of_module)
        else:
            guards.check(of_module, "len", 0)
    if src is not None:
        if "_compiled_call_impl" in d:
            trace.read_key(d, src, "_compiled_call_impl", None)
        else:
            trace.read_absent(d, src, "_compiled_call_impl")
        trace.read_absent(d, src, "_call_impl")
    return torch._C._get_tracing_state() is None


def _no_global_hooks(trace: SegmentTrace) -> bool:
    if any(MODULE_GLOBALS[name] for name in GLOBAL_HOOKS):
        return False
    if not trace.functions.hooks_seen:
        trace.functions.hooks_seen = True
        g = trace.pin(MODULE_GLOBALS, "torch.nn.modules.module")
        for name in GLOBAL_HOOKS:
            hooks = MODULE_GLOBALS[name]
            trace.guards.check(trace.guards.access(g, "key", name, hooks), "len", 0)
    return True


def call_generic(call: Call) -> Frame | None:
    # An instance without a ``__dict__`` cannot store that it was made as a dict[str, int].
    return call.instead(call.fn.__origin__, call.args, call.kwargs) if call.fn.__origin__ in PLAIN else call_object(call)


# Functions and methods in Python are absent: they are the most frequent, and `call_unruled` makes no `Call` for them.
CALLERS: dict[type, Handler] = {
    types.BuiltinFunctionType: call_builtin,
    types.MethodDescriptorType: call_descriptor,
    types.WrapperDescriptorType: call_descriptor,
    types.ClassMethodDescriptorType: call_descriptor,
    types.MethodWrapperType: call_method_wrapper,
    functools.partial: call_partial,
    type: call_type,
    types.GenericAlias: call_generic,
    LRU_TYPE: call_cached,
}
