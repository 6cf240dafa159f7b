"""The operators that a call dispatches to, found by a run on stand-ins for the arguments.

The stand-ins are fake tensors (sizes, no numbers). If these are not enough (sizes that depend on numbers), they are detached copies, and the
random state is restored. The call runs under two recorders: one before the dispatcher, which also decomposes composite operators, so that
`aten::linear` shows `aten::matmul` and that `aten::mm`; one after autograd and autocast. The recorders do not see the calls that a kernel makes
below the dispatcher, or those of a custom operator. A custom operator's kernel never runs; its fake implementation may.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from fineline.bytecode.asynchronous import let_pass
from fineline.kinds import is_a
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.releases import static_fake
from fineline.torch_facts.spellings import OWN, operator_name, overload_of, packet_of

_QUERIES = "prim"  # a fake tensor's own attributes


def dispatched(fn: Callable[..., Any], args: Any = (), kwargs: Mapping[str, Any] | None = None) -> frozenset[str]:
    """Returns the operators to which a call of an operator dispatches, itself included, each by operator and by overload.

    For example ``aten::mm`` and ``aten::mm.default``; for an alias, also the operator's one name (see `spellings`). The call
    changes no tensor and no random state. For an unknown operator it returns an empty set and runs nothing.
    """
    kwargs = dict(kwargs or {})
    packet = packet_of(fn)
    overload = _overload(fn, args, kwargs)
    static = frozenset(name for name in (operator_name(fn, args, kwargs), packet, overload) if name is not None)
    custom = packet is not None and packet.partition("::")[0] not in OWN
    if not static or custom or classify_torch(fn) == "effect":
        return static
    for stand_ins in (_fakes, _copies):
        seen: set[OpOverload] = set()
        try:
            with _quiet(), stand_ins(tuple(args), kwargs) as (given, named), _recorders(seen, stand_ins is _fakes):
                fn(*given, **named)
        except _Stop:
            pass
        except Exception as e:
            let_pass(e)
            # For example no fake implementation, sizes that depend on numbers, or an exception of eager mode.
            continue
        return static.union(*map(_names, seen))
    return static


def _overload(fn: Any, args: Any, kwargs: dict[str, Any]) -> str | None:
    """Returns the overload that a call of an operator takes, if it is one of `torch.ops` or `torch.library`."""
    if is_a(fn, OpOverloadPacket):
        try:
            return f"{fn._qualified_op_name}.{torch._C._jit_resolve_packet(fn._qualified_op_name, *args, **kwargs)}"
        except RuntimeError:  # no overload takes these arguments
            return None
    return overload_of(fn._opoverload if is_a(fn, CustomOpDef) else fn)


def _names(op: OpOverload) -> set[str]:
    return {name for name in (operator_name(op), packet_of(op), overload_of(op)) if name is not None}


class _Stop(Exception):
    """The kernel of a custom operator would run next."""


class _BeforeDispatcher(SchemaCheckMode):
    """Records operators before the dispatcher. `SchemaCheckMode` is the simplest mode allowed there; its checks are replaced."""

    def __init__(self, seen: set[OpOverload], fake: bool) -> None:
        super().__init__()
        self._dispatch_key = DispatchKey.PreDispatch
        self._seen, self._fake = seen, fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
        if _record(self._seen, func, self._fake) and composite:
            with self:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        # PyTorch's Python decompositions are for tracing; eager mode dispatches to other operators.
        with torch._C._DisablePythonDispatcher():
            return func(*args, **kwargs)


class _AfterAutograd(TorchDispatchMode):
    """Records operators after autograd and autocast, where fake tensors are."""

    def __init__(self, seen: set[OpOverload], fake: bool) -> None:
        super().__init__()
        self._seen, self._fake = seen, fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _record(self._seen, func, self._fake)
        return func(*args, **(kwargs or {}))


def _record(seen: set[OpOverload], op: OpOverload, fake: bool) -> bool:
    """Records an operator; returns whether it may be decomposed. Raises `_Stop` before the kernel of a custom operator."""
    if op.namespace != _QUERIES:
        seen.add(op)
    if op.namespace in OWN:
        return True
    if not fake or not op.has_kernel_for_dispatch_key(DispatchKey.Meta):
        raise _Stop
    return False


@contextmanager
def _recorders(seen: set[OpOverload], fake: bool) -> Iterator[None]:
    with _AfterAutograd(seen, fake), enable_python_dispatcher(), _BeforeDispatcher(seen, fake):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Disables the user's modes, `__torch_function__`, warnings and logs, and autocast's cache in a block."""
    cached, silent = torch.is_autocast_cache_enabled(), fake_tensor.log.disabled
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(_disable_current_modes())
        stack.callback(torch.set_autocast_cache_enabled, cached)
        stack.callback(setattr, fake_tensor.log, "disabled", silent)
        torch.set_autocast_cache_enabled(False)
        fake_tensor.log.disabled = True
        yield


@contextmanager
def _fakes(*call: Any) -> Iterator[Any]:
    with FakeTensorMode(allow_fallback_kernels=False) as mode:

        def fake(value: Any) -> Any:
            if is_a(value, FakeTensor):
                # A fake of another mode: make one with its hints for sizes, so that its symbols get no guards.
                size, stride = ([_plain(n) for n in numbers] for numbers in (value.size(), value.stride()))
                copy = torch.empty_strided(size, stride, dtype=value.dtype, device=value.fake_device)
                return copy.requires_grad_(value.requires_grad)
            return static_fake(mode, value) if is_a(value, Tensor) else _plain(value)

        yield tree_map(fake, call)


@contextmanager
def _copies(*call: Any) -> Iterator[Any]:
    def copy(value: Any) -> Any:
        if type(value) in (Tensor, Parameter):
            return value.detach().clone()
        if is_a(value, Tensor):
            raise _Unknown("a subclass: its operators may be the user's code")
        return _plain(value)

    devices = {value.device for value in tree_leaves(call) if is_a(value, Tensor) and value.device.type not in ("cpu", "meta")}
    with torch.no_grad(), torch.random.fork_rng(devices=()), ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.random.fork_rng(devices=(device.index,), device_type=device.type))
        yield tree_map(copy, call)


def _plain(value: Any) -> Any:
    """Returns a copy of a generator, the hint of a symbolic number (a read that makes no guard), or the value itself."""
    if is_a(value, (SymInt, SymFloat, SymBool)):
        if value.node.hint is None:
            raise _Unknown("a number that was never seen")
        return value.node.hint
    return value.clone_state() if is_a(value, torch.Generator) else value


class _Unknown(Exception):
    """An argument has no stand-in."""
