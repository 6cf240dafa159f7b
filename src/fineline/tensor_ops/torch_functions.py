"""Calls that a ``__torch_function__`` sees, of a mode or of a tensor's class: the interpreter runs that method, which PyTorch would call from C.

What PyTorch gives the method (the function, the types, the arguments) is asked of PyTorch itself: the call begins under a mode that ends it.
Modes that the captured code enters are noted, and lie on PyTorch's stack only where no graph holds the code that runs next. The operators in
a graph are those that no method sees any more: it gets tensors of other classes as plain ones.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import FunctionType, GetSetDescriptorType, MappingProxyType, TracebackType
from typing import Any

import torch
from torch import Tensor
from torch._functorch import eager_transforms, predispatch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_map, tree_map_only

from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.fx.output_fixups import hides_class_of, overrides_only_functions
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.objects.attribute_reads import replaces
from fineline.objects.instances import TENSOR_NEW
from fineline.objects.type_info import raw_lookup, type_info
from fineline.policy.selector import describe
from fineline.tables import attributes
from fineline.torch_facts.callables import TENSOR_ATTRS, classify_torch
from fineline.torch_facts.names import FUNCTORCH
from fineline.torch_facts.thread_state import set_torch_function_state, torch_function_state
from fineline.torch_facts.wrapper_subclasses import in_graphs
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.plain_values import PLAIN_TENSORS

_DISABLED = torch._C._disabled_torch_function_impl
_ENABLED, _ALL_DISABLED = "ENABLED", "ALL_DISABLED"
_INFIX = "add and div eq floordiv ge gt idiv le lshift lt matmul mod mul ne or pow rshift sub truediv xor"
# Methods of infix operators.
_OPERAND_METHODS = frozenset({f"__{kind}{name}__" for kind in ("", "r", "i") for name in _INFIX.split()})
# Functions that change state, and that a ``__torch_function__`` sees all the same: to call one twice changes nothing.
_SETTERS = IdentitySet(attributes(torch._C, "_set_grad_enabled _set_multithreading_enabled _set_view_replay_enabled"))
# Functions in C that a ``__torch_function__`` never sees, and that must not be called twice.
_NEVER_OVERRIDDEN = IdentitySet([Tensor.as_subclass, Tensor._make_subclass, *attributes(torch._C._functorch, " ".join(FUNCTORCH.values()))])
# TorchScript's functions: no ``__torch_function__`` sees them, nor the operators inside.
_COMPILED = (torch.jit.ScriptFunction, torch._C.ScriptMethod)
# The usual types of operands: none has a ``__torch_function__`` that sees operators.
_SILENT = PLAIN_TENSORS | {int, float, bool, str, type(None), torch.dtype, torch.device, torch.SymInt, torch.SymFloat, torch.SymBool}
# Functions that ask whether a class overrides operators.
_ASKING = (torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic)


def overrides(t: Any) -> bool:
    """Returns whether the class of ``t``, a tensor or any object, has a ``__torch_function__`` that sees operators. It does not ask whether that is switched off."""
    cls = type(t)
    return cls not in PLAIN_TENSORS and getattr(cls, "__torch_function__", _DISABLED) is not _DISABLED and not in_graphs(cls)


def overridden(interp: Interp, values: Any) -> bool:
    """Returns whether a call with these arguments runs a ``__torch_function__`` now: of a mode that the code has entered, or of a tensor's class.

    Guards that the classes of the others override nothing.
    """
    overriding = any([_may_override_guarded(interp, value) for value in values if type(value) not in _SILENT])
    if interp.nested.modes:
        return torch_function_state() != _ALL_DISABLED
    return overriding and torch_function_state() == _ENABLED


def _may_override_guarded(interp: Interp, value: Any) -> bool:
    if type(value) in (list, tuple):
        return any([_may_override_guarded(interp, x) for x in value if type(x) not in (list, tuple)])
    if type(value) in PLAIN_TENSORS or not (is_a(value, Tensor) or is_users_class(type(value))):
        return False
    if overrides(value):
        return True
    if interp.trace.active:
        type_info(interp.trace, type(value)).look(interp.trace, "__torch_function__")
    return False


def _may_override(value: Any) -> bool:
    # PyTorch looks no deeper either.
    return any(map(overrides, value)) if type(value) in (list, tuple) else overrides(value)


def _in_an_instance(cls: type) -> bool:
    """Returns whether the method is that of an object, of which PyTorch warns at each call."""
    return type(raw_lookup(cls, "__torch_function__")) is FunctionType


class _OverrideCall(BaseException):
    """Carries what PyTorch gives to a ``__torch_function__``."""


class _Probe:
    """A mode that ends each call with what PyTorch gives to it."""

    def __torch_function__(self, *call: Any) -> Any:
        raise _OverrideCall(*call)


class PassingMode:
    """A mode that changes nothing."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return fn(*args, **(kwargs or {}))


def _call_on_fakes(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> tuple | None:
    """Returns what `_call_of_override` returns if plain tensors are in the place of fakes, whose class would not be asked."""
    plain: dict[int, tuple[Tensor, Tensor]] = {}

    def stand_in(fake: Tensor) -> Tensor:
        # Operators take a tensor without dimensions and gradient for a number.
        plain_one = torch.empty((0,) * fake.dim(), dtype=fake.dtype, requires_grad=fake.requires_grad)
        plain[id(plain_one)] = plain_one, fake
        return plain_one

    def back(value: Any) -> Any:
        if is_a(value, Tensor):
            return plain[id(value)][1] if id(value) in plain else value
        if type(value) is list:
            return interp.trace.fresh([back(x) for x in value])
        return tuple(map(back, value)) if type(value) is tuple else {k: back(x) for k, x in value.items()} if type(value) is dict else value

    def given(value: Any) -> Any:
        # An object that overrides operators gets its call as it is, whatever it holds.
        return tree_map_only(FakeTensor, stand_in, value, is_leaf=overrides)

    with torch._C._DisableTorchDispatch():
        call = _call_of_override(fn, given(args), given(kwargs))
    return call if call is None or not plain else tuple(map(back, call))


def _call_of_override(fn: Any, args: Any, kwargs: dict | None) -> tuple | None:
    """Returns what PyTorch gives to ``__torch_function__`` in this call; None if it does not call one."""
    torch._C._push_on_torch_function_stack(_Probe())
    try:
        # Python code of a dispatch mode would call operators that the probe ends. With an empty dict, some functions give one to the method.
        with torch._C._DisableTorchDispatch():
            fn(*args) if kwargs is None else fn(*args, **kwargs)
    except _OverrideCall as call:
        return call.args
    finally:
        torch._C._pop_torch_function_stack()
    return None


# In place of a frame: no ``__torch_function__`` sees the call, which goes on as it is.
NO_OVERRIDE: Any = object()


@functools.cache
def _overridable_functions() -> IdentitySet:
    """Returns the functions of PyTorch, in Python too, that a ``__torch_function__`` sees."""
    return IdentitySet([fn for functions in torch.overrides.get_overridable_functions().values() for fn in functions])


def _changes_state(fn: Any) -> bool:
    """Returns whether a call of ``fn``, which no ``__torch_function__`` sees, changes state, or makes or unmakes the tensors of a transform."""
    if classify_torch(fn) == "state":
        return fn not in _SETTERS
    return getattr(fn, "__module__", "") == predispatch.__name__ and hasattr(torch._C._functorch, fn.__name__)


def call_override(interp: Interp, f: Frame, fn: Any, args: Any, kwargs: dict | None, then: Delivery | None = None) -> Frame | None:
    """Calls the ``__torch_function__`` of the innermost mode, or of the arguments' classes, in place of ``fn``."""
    in_python = type(fn) is FunctionType
    if fn in _NEVER_OVERRIDDEN or is_a(fn, _COMPILED) or _changes_state(fn):
        call = None
    elif in_python and fn not in _overridable_functions():
        # Only what it calls asks the classes.
        fn = protocols.gradients if fn is eager_transforms._autograd_grad else fn
        return interp.push_function(f, fn, list(args), kwargs, then)
    else:
        call = _call_of_override(fn, args, kwargs) if interp.backing.real else _call_on_fakes(interp, fn, args, kwargs)
        if in_python and (call is None or call[0] is not fn or not (call[1] or interp.nested.modes)):
            return interp.push_function(f, fn, list(args), kwargs, then)
    if call is not None and (call[1] or interp.nested.modes) and not any(map(_in_an_instance, call[1])):
        overriding = _overriding(call)
        if overriding is not None:
            return _dispatch(interp, f, (fn, tuple(args), kwargs), call, overriding, then)
    elif not any(map(_may_override, (*args, *(kwargs or {}).values()))):
        return NO_OVERRIDE
    raise GraphBreak(fn, tuple(args), kwargs, "FL504", f"{describe(fn)} of a tensor whose class overrides operators").to(then)


def show_operator(interp: Interp, f: Frame, op: Any, args: Any, kwargs: dict | None, then: Delivery | None) -> Frame | None:
    """Calls the ``__torch_function__`` of the innermost mode in place of ``op``, which runs functions of the user's.

    PyTorch compiles such an operator in eager code too, and its compiler gives the method no class of a plain tensor. Eager code calls the method
    once more where it runs what is compiled. That is left out: only a mode that gives such an operator another result shows it.
    """
    return _dispatch(interp, f, (op, tuple(args), kwargs), (op, (), tuple(args), kwargs or {}), (), then)


def _overriding(call: tuple) -> tuple | None:
    """Returns the first argument of each class that the call names, those of subclasses first, as C calls their methods; None if one is not found."""
    _, types, args, *more = call
    values = [*args, *(more[0].values() if more else ())]
    values += [x for a in values if type(a) in (list, tuple) for x in a]
    found = [next((a for a in values if type(a) is cls), None) for cls in types if cls is not Tensor]
    return None if any([a is None for a in found]) else tuple(found)


def _dispatch(interp: Interp, f: Frame, given: tuple, call: tuple, overriding: tuple, then: Delivery | None) -> Frame | None:
    called, types, args, *more = call
    fresh = interp.trace.fresh
    if more:
        call = (called, types, args, fresh(dict(more[0])))
    fn, positional, kwargs = given
    if kwargs is not None:
        # A graph break within the method keeps it for the continuation, which makes it anew.
        given = (fn, positional, fresh(dict(kwargs)))
    chosen = ask_for_operand if getattr(given[0], "__name__", "") in _OPERAND_METHODS else ask
    return interp.call(f, chosen, [tuple(interp.nested.modes[-1:]), overriding, call, given], None, then)


def ask(modes: tuple, overriding: tuple, call: tuple, given: tuple) -> Any:
    """Returns what the mode gives, which sees no operator of its own, or else the first class that has an implementation."""
    for mode in modes:
        leave_mode()
        try:
            result = mode.__torch_function__(*call)
        finally:
            enter_mode(mode)
        if result is not NotImplemented:
            return result
    for one in overriding:
        result = one.__torch_function__(*call)
        if result is not NotImplemented:
            return result
    return without_implementation(modes, *given)


def ask_for_operand(modes: tuple, overriding: tuple, call: tuple, given: tuple) -> Any:
    """Returns what a method of an infix operator gives: C leaves the operation to the other operand where it raises a TypeError."""
    try:
        return ask(modes, overriding, call, given)
    except TypeError:
        return NotImplemented


def enter_mode(mode: Any) -> None:
    torch._C._push_on_torch_function_stack(mode)


def leave_mode() -> None:
    torch._C._pop_torch_function_stack()


def without_implementation(modes: tuple, fn: Any, args: tuple, kwargs: dict | None) -> Any:
    """Makes a call for which no mode and no class has an implementation: PyTorch raises its error. They have been asked already."""
    silent_classes = _SilentClasses()
    args, kwargs = tree_map(silent_classes.instance, args, is_leaf=overrides), tree_map(silent_classes.instance, kwargs or {}, is_leaf=overrides)
    for mode in modes:
        torch._C._push_on_torch_function_stack(_SilentMode(mode))
    try:
        return fn(*args, **kwargs)
    finally:
        for _ in modes:
            torch._C._pop_torch_function_stack()


def silent(t: Tensor) -> Tensor:
    """Returns a tensor whose class has the name of that of ``t``, and implements nothing."""
    found: Tensor = _SilentClasses().instance(t)
    return found


class _SilentMode:
    """A mode that looks like another, and has no implementation."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode

    def __repr__(self) -> str:
        return repr(self._mode)

    def __torch_function__(self, *call: Any) -> Any:
        return NotImplemented


class _SilentClasses:
    """Classes with the names and the order of others, which implement nothing."""

    def __init__(self) -> None:
        self._classes: dict[type, type] = {}

    def instance(self, t: Any) -> Any:
        if not overrides(t):
            return t
        if not is_a(t, Tensor):
            return object.__new__(self._class(type(t)))
        # The modes that are on do not see that a tensor is made.
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            return torch.empty(0).as_subclass(self._class(type(t)))

    def _class(self, cls: type) -> type:
        if cls is Tensor or not hasattr(cls, "__torch_function__"):
            return cls
        if cls not in self._classes:
            names = {name: getattr(cls, name) for name in ("__module__", "__qualname__")}
            bases = tuple([self._class(base) for base in cls.__bases__ if hasattr(base, "__torch_function__")])
            self._classes[cls] = type(cls.__name__, bases, {**names, "__torch_function__": classmethod(lambda *call: NotImplemented)})
        return self._classes[cls]


def enter_device(device: torch.device) -> torch.device:
    enter_mode(DeviceContext(device))
    return device


def leave_device(device: torch.device, *raised: object) -> None:
    leave_mode()


class OverrideBlock:
    """The Python form of PyTorch's blocks that switch ``__torch_function__`` off."""

    state: str

    def __enter__(self) -> None:
        self.before = set_torch_function_state(self.state)

    def __exit__(self, cls: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        set_torch_function_state(self.before)


class SubclassBlock(OverrideBlock):
    """``torch._C.DisableTorchFunctionSubclass``: modes still see operators."""

    state = "SUBCLASSES_DISABLED"

    def __enter__(self) -> None:
        self.before = before = set_torch_function_state(self.state)
        # Inside of a block that switches off all, it switches nothing on. The state is written out: this code is captured, which guards each name it reads.
        if before == "ALL_DISABLED":
            set_torch_function_state(before)


class WholeBlock(OverrideBlock):
    """``torch._C.DisableTorchFunction``."""

    state = "ALL_DISABLED"


def _block(cls: type[OverrideBlock]) -> Handler:
    return lambda call: call.instead(cls, []) if call.trace.active else call.run_natively()


def _device_block(fn: Any) -> Handler:
    """Handles a block of a device, for which PyTorch enters a mode from C."""
    return lambda call: call.instead(fn, call.args, call.kwargs) if call.trace.active else call.run_natively()


def _in_c(call: Call) -> Frame | None:
    return call.run_in_c()


def _get(call: Call) -> Frame | None:
    """Handles ``Tensor.shape.__get__(x)``, as PyTorch names a read of an attribute to ``__torch_function__``."""
    getter, *of = call.args
    kind = TENSOR_ATTRS.get(getter.__name__) if call.trace.active and of and is_a(of[0], Tensor) and getter.__objclass__ in Tensor.__mro__ else None
    if kind is None or replaces(type(of[0]), getter.__name__):
        return call.run_eagerly("FL410", f"{describe(call.fn)} is C code that fineline knows nothing of")
    return call.interp.tensors.load_attribute(call.interp, call.frame, of[0], getter.__name__, kind, call.then)


def _set(call: Call) -> Frame | None:
    """Handles ``Tensor.grad.__set__(x, value)``, as PyTorch names a write of an attribute to ``__torch_function__``."""
    setter, *of = call.args
    known = call.trace.active and len(of) == 2 and not call.kwargs and is_a(of[0], Tensor) and setter.__objclass__ in Tensor.__mro__
    if not known or call.interp.nested.opaque is not None:
        return call.run_eagerly("FL410", f"{describe(call.fn)} is C code that fineline knows nothing of")
    try:
        frame = call.interp.tensors.set_attribute(call.interp, call.frame, of[0], setter.__name__, setter, of[1], Delivery(_nothing, call.then))
    except GraphBreak as b:
        # Its result would be dropped, as that of a statement.
        raise call.graph_break(b.error, b.reason) from None
    return call.finish(None) if frame is None else frame


def _nothing(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    return interp.finish(f, None, then)


def _as_subclass(call: Call) -> Frame | None:
    """Makes a tensor of another class: the graph holds the view, and its output gets the class again."""
    if not call.trace.active or call.interp.nested.opaque is not None or call.kwargs or len(call.args) != 2:
        return call.interp.tensors.call(call, "op")
    t, cls = call.args
    if not (is_a(cls, type) and issubclass(cls, Tensor)):
        return call.run_natively()
    if not _fits(call, cls) and cls is not Tensor:
        raise call.graph_break("FL504", f"a view of the class {cls.__name__}")
    return _view_as_class(call, t, cls, False)


def _fits(call: Call, cls: type[Tensor]) -> bool:
    """Returns whether a tensor of that class can be made here."""
    return call.interp.nested.subgraph_rules is None and cls not in call.trace.classes.local and hides_class_of(cls)


def _view_as_class(call: Call, t: Tensor, cls: type[Tensor], detached: bool) -> Frame | None:
    """Records a view of a tensor that is of another class. ``detached``: it is no view to autograd, and has no history."""
    interp = call.interp
    before = set_torch_function_state("ALL_DISABLED")
    try:
        fx = call.trace.to_fx(t)
        result = interp.backing.view_as_class(interp, t, cls, detached)
    finally:
        set_torch_function_state(before)
    interp.tensors.record(interp, "call_function", torch.ops.aten.detach.default if detached else torch.ops.aten.alias.default, (fx,), {}, result)
    return call.finish(result)


def is_made_in_python(cls: type[Tensor]) -> bool:
    """Returns whether the constructor of a tensor's class is run through: the class overrides functions alone."""
    return cls.__module__.partition(".")[0] != "torch" and hides_class_of(cls) and overrides_only_functions(cls)


def _make_subclass(call: Call) -> Frame | None:
    """Makes a tensor of another class with the memory of one without a history."""
    if not call.trace.active or call.interp.nested.opaque is not None:
        return call.interp.tensors.call(call, classify_torch(call.fn))
    cls, t = [*call.args, None, None][:2]
    plain = is_a(t, Tensor) and (type(t) in PLAIN_TENSORS or overrides_only_functions(type(t)))
    of_class = is_a(cls, type) and issubclass(cls, Tensor) and is_made_in_python(cls) and _fits(call, cls)
    if call.kwargs or call.args[2:] not in ([], [False]) or not plain or not of_class:
        raise call.graph_break("FL504", "a tensor of another class, which requires a gradient, or overrides more than functions")
    return _view_as_class(call, t, cls, True)


def _new(call: Call) -> Frame | None:
    """Handles the constructor of `Tensor`, which a class has inherited or calls: of a tensor, it returns a view of that class."""
    cls, *of = call.args or [None]
    if call.trace.active and len(of) == 1 and type(of[0]) in (Tensor, FakeTensor) and not call.kwargs and is_a(cls, type) and issubclass(cls, Tensor):
        return call.instead(Tensor.as_subclass, [of[0], cls])
    return call.run_eagerly("FL421", "making a tensor of another class from a value that is not a tensor")


def _asks(call: Call) -> Frame | None:
    """Handles ``has_torch_function``, on the user's tensors: the class of a fake overrides nothing."""
    for a in call.args:
        for x in a if type(a) in (tuple, list) else (a,):
            if overrides(x):
                type_info(call.trace, type(x)).look(call.trace, "__torch_function__")
    if call.interp.nested.modes and call.trace.active:
        return call.finish(torch_function_state() != _ALL_DISABLED)
    return call.run_in_c()


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        torch._C.DisableTorchFunctionSubclass: _block(SubclassBlock),
        torch._C.DisableTorchFunction: _block(WholeBlock),
        GetSetDescriptorType.__get__: _get,
        GetSetDescriptorType.__set__: _set,
        torch.device.__enter__: _device_block(enter_device),
        torch.device.__exit__: _device_block(leave_device),
        **dict.fromkeys(_ASKING, _asks),
        Tensor.as_subclass: _as_subclass,
        Tensor._make_subclass: _make_subclass,
        TENSOR_NEW: _new,
        set_torch_function_state: _in_c,
        without_implementation: _in_c,
    }
)
