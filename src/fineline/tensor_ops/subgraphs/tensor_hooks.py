"""Hooks on tensors, which autograd calls with their gradients.

A hook on a tensor from before the segment is registered by the program, as the code does it: only a backward pass can tell when. A hook on a tensor
that the graph makes is a node, and its function a sub-graph: compilers see it in the backward pass. It runs later than its capture, and no guard
runs before it: a hook that may read what changes until then, or does more than compute, runs in the backward pass as it is.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from fineline.bytecode.code import CODES, names_in
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import NotCapturable
from fineline.frames.stub_frames import is_own, user_stack
from fineline.fx.hook_node import TicketOf, register_function, register_hook
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.objects.hook_order import remove_existing, remove_number
from fineline.report.events import Event
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.subgraphs.bodies import Bodies
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.mutation_log import Reads, Registration
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value
from fineline.tracing.subgraph_rules import HOOK

# What a hook may find under the name of a global: code seldom assigns the name of a function again.
_MEMBERS = (FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)
# Functions by which code reads what its names do not tell.
_READERS = (getattr, hasattr, setattr, delattr, vars, dir, globals, locals, eval, exec, __import__)
_STORES = ("STORE_DEREF", "DELETE_DEREF")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
# The attributes of a tensor that code from the registration of a hook to the backward pass does not change.
_LASTING = {name for name in dir(Tensor) if name[0] != "_"} - {"data", "grad", "grad_fn", "is_leaf", "requires_grad", "retains_grad"}


def _register(call: Call) -> Frame | None:
    """Handles ``register_hook`` and ``register_post_accumulate_grad_hook``."""
    interp, trace = call.interp, call.trace
    t, hook = [*call.args, *(call.kwargs or {}).values(), None, None][:2]
    plain = len(call.args) == 2 and not call.kwargs and type(t) in PLAIN_TENSORS and not interp.nested.modes
    if not trace.active or interp.nested.opaque is not None or not plain or interp.nested.subgraph_rules is not None:
        return interp.tensors.call(call, "effect")
    if not t.requires_grad or (call.fn is not Tensor.register_hook and not t.is_leaf):
        # Its code raises an error.
        return call.interpret()
    if t in trace.sources:
        return call.finish(_outside(call, t, hook))
    if call.fn is not Tensor.register_hook or t.is_leaf or t._is_view():
        raise call.graph_break("FL503", "a hook on a leaf, or on a view, that the captured code has made: no compiler keeps it")
    try:
        return call.finish(_in_graph(call, t, hook))
    except NotCapturable as e:
        if not interp.options.exported:
            return call.finish(_as_function(call, t, hook, e))
        raise e.graph_break(call.fn, tuple(call.args), None, "a graph can't contain this hook on a tensor that it makes") from None


def _outside(call: Call, t: Tensor, hook: Any) -> RemovableHandle:
    """Registers a hook on a tensor from before the segment; returns the handle."""
    made = Registration(t, call.fn.__name__, hook, _registered(call, t, hook), _called_at(call))
    call.trace.mutations.note_hook(made)
    return made.handle


def _registered(call: Call, t: Tensor, hook: Any) -> RemovableHandle:
    """Registers the hook itself, on a real tensor: this call goes on with it. Nothing reads the handle of one on fakes."""
    interp = call.interp
    return interp.native(call.fn, (t, hook), None) if interp.backing.real else RemovableHandle.__new__(RemovableHandle)


def _in_graph(call: Call, t: Tensor, hook: Any) -> RemovableHandle:
    """Makes a node of a hook on a tensor that the graph makes; returns the handle."""
    interp, trace = call.interp, call.trace
    held = _Held(interp, hook)
    reads = Reads(frozenset(held.names), held.cells)
    if reads.changed(trace.mutations.writes()):
        raise NotCapturable("it reads what changes in the code around it")
    bodies = Bodies(interp)
    grad = bodies.gradient(t)
    body = bodies.capture(HOOK, hook, [grad], holes=[grad], made=held.made)
    if len(body.flat) != 1 or not (body.flat[0] is None or is_a(body.flat[0], Tensor)):
        raise NotCapturable("it returns neither a tensor nor None")
    _, nodes = bodies.lifted()
    graph = bodies.module(body, "hook")
    part = trace.recorder.part("hook", graph)
    # Autograd's own word for a hook without a name, such as a partial.
    name = getattr(hook, "__name__", "<unknown>")
    interp.tensors.keep(interp, register_hook, "call_function", register_hook, (trace.to_fx(t), name, part, *nodes), {}, None)
    made = Registration(t, "register_hook", hook, _registered(call, t, hook), _called_at(call))
    made.node, made.reads = next(reversed(trace.recorder.graph.nodes)), reads
    trace.mutations.note_hook(made)
    return made.handle


def _as_function(call: Call, t: Tensor, hook: Any, why: NotCapturable) -> RemovableHandle:
    """Makes a node of a hook on a tensor that the graph makes, which runs as it is in the backward pass; returns the handle."""
    interp, trace = call.interp, call.trace
    member = TicketOf(len(trace.mutations.hooks.by_handle))
    ticket = member.__get__(None)
    trace.load(ticket, trace.guards.access(trace.pin(register_function, "hooks"), "member", member, ticket))
    given = (trace.to_fx(t), trace.to_fx(ticket))
    interp.tensors.keep(interp, register_function, "call_function", register_function, given, {}, None)
    made = Registration(ticket, None, hook, _registered(call, t, hook), _called_at(call))
    stack = user_stack(call.frame)
    file, line, _ = stack[-1]
    made.event = Event("eager", why.error, f"a hook runs eagerly in the backward pass: {why.reason}", file, line, why.rule, detail={"stack": stack})
    trace.mutations.note_hook(made)
    return made.handle


def _called_at(call: Call) -> tuple[CodeType, int] | None:
    f = call.frame
    return None if is_own(f.info.code) else (f.info.code, f.ip - 1)


class _Held:
    """The functions and variables that a hook reads when it runs.

    Raises `NotCapturable` if it may read something that can change before the backward pass, when no guard runs: a global that is not a function,
    an object's attribute, a container's item, or a variable that other code can assign.
    """

    def __init__(self, interp: Interp, hook: Any) -> None:
        self.names: set[str] = set()
        self.cells: list[CellType] = []
        # Functions and cells that the segment may have made.
        self.made: list[Any] = []
        self._interp = interp
        self._seen = IdentitySet()
        if type(hook) not in (FunctionType, types.MethodType, functools.partial):
            raise NotCapturable("it is no function")
        self._see(hook)

    def _see(self, v: Any) -> None:
        if v in self._seen:
            return
        self._seen.add(v)
        if type(v) is FunctionType:
            self.made.append(v)
            if not _is_torchs(v):
                self._see_function(v)
        elif type(v) is types.MethodType:
            self.made.append(v)
            self._see(v.__func__)
            self._see(v.__self__)
        elif type(v) is functools.partial:
            self.made.append(v)
            self._see(v.func)
            for x in (*v.args, *v.keywords.values()):
                self._see(x)
        elif type(v) is tuple:
            for x in v:
                self._see(x)
        elif type(v) is types.BuiltinFunctionType and not is_value(v):
            self._see(v.__self__)
        elif any([v is reader for reader in _READERS]):
            raise _changing(f"it calls {v.__name__}")
        elif (is_a(v, type) and _is_users(v)) or (type(v) is types.ModuleType and not _is_constant(v)) or not _is_fixed(v):
            raise _changing(f"it holds a {type(v).__name__}")

    def _see_function(self, fn: FunctionType) -> None:
        if fn.__dict__:
            raise _changing("it reads a function with attributes")
        self.names |= names_in(fn.__code__)
        self._see_code(fn, fn.__code__)
        for x in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self._see(x)
        for cell in fn.__closure__ or ():
            try:
                self._see(cell.cell_contents)
            except ValueError:
                raise NotCapturable("it reads a variable that has no value yet") from None
            if not _settled(self._interp, cell):
                raise _changing("it reads a variable that other code may assign")
            self.cells.append(cell)
            self.made.append(cell)

    def _see_code(self, fn: FunctionType, code: CodeType) -> None:
        """Follows the globals that ``code``, the code of ``fn`` or code inside it, reads, and the attributes of modules among them."""
        module: ModuleType | None = None
        info = CODES[code]
        for op, arg in info.instructions:
            if op in _GLOBALS:
                name = info.names[arg >> 1 if op == "LOAD_GLOBAL" else arg]
                module = self._see_member(name, fn.__globals__.get(name, vars(builtins).get(name)))
            elif op not in _ATTRIBUTES:
                if op == "IMPORT_NAME" or (module is not None and not _is_constant(module)):
                    raise _changing("it reads a module")
                module = None
            elif module is not None:
                module = self._see_member(info.names[arg], vars(module).get(info.names[arg]), _is_constant(module))
            elif info.names[arg] not in _LASTING:
                raise _changing(f"it reads the attribute {info.names[arg]}")
        for inner in code.co_consts:
            if type(inner) is CodeType:
                self._see_code(fn, inner)

    def _see_member(self, name: str, v: Any, constant: bool = False) -> ModuleType | None:
        """Follows the value of a global, or of a module's attribute; returns it if it is a module."""
        if type(v) is ModuleType:
            return v
        if not (constant and is_value(v)) and not is_a(v, _MEMBERS):
            raise _changing(f"it reads the global {name}")
        self._see(v)
        return None


def _changing(reads: str) -> NotCapturable:
    """Returns the exception for a hook that ``reads`` what may change until it runs, when no guard is checked."""
    return NotCapturable(f"{reads}, and what it finds there may change before the backward pass; a default argument of the hook keeps a value")


def _is_torchs(fn: FunctionType) -> bool:
    """Returns whether ``fn`` is one of PyTorch's functions, and not one that such a function has made around other values."""
    module = fn.__module__ or ""
    return module.startswith("torch.") and vars(sys.modules.get(module, builtins)).get(fn.__name__) is fn


def _is_users(cls: type) -> bool:
    return is_users_class(cls) and not str(cls.__module__).startswith("torch.") and cls.__module__ != "torch"


def _is_constant(module: ModuleType) -> bool:
    """Returns whether the names of ``module`` keep their values: nobody assigns them."""
    return module.__name__.partition(".")[0] in ("torch", "math", "cmath", "operator")


def _is_fixed(v: Any) -> bool:
    """Returns whether nothing changes what a hook reads of ``v``; a tensor is read when the hook runs."""
    return type(v) in PLAIN_TENSORS or type(v) in SYMBOLIC or is_value(v)


def _settled(interp: Interp, cell: CellType) -> bool:
    """Returns whether no code can assign the variable in ``cell`` again.

    That is known only of a variable of a frame under way: of others, the functions that may assign it are not at hand.
    """
    f, owned = interp.frame, False
    while f is not None:
        for name, v in zip(f.info.slots, f.local, strict=False):
            if v is cell:
                if not _is_final(f, name):
                    return False
                owned = owned or name in f.info.code.co_cellvars
        f = f.back
    return owned


def _is_final(f: Frame, name: str) -> bool:
    """Returns whether the rest of a frame's code, and functions in it, leave the variable ``name`` as it is."""
    if any([_stores(inner, name) for inner in f.info.code.co_consts if type(inner) is CodeType and name in inner.co_freevars]):
        return False
    # A jump back from the rest of the code leads to a store before it.
    back = min([i.arg for i in f.info.instructions[f.ip :] if "BACKWARD" in i.name], default=f.ip)
    return not any([at >= min(back, f.ip) for at in _stores(f.info.code, name)])


def _stores(code: CodeType, name: str) -> list[int]:
    """Returns the instructions that assign the variable ``name`` of a cell, in ``code`` and the code inside it."""
    info = CODES[code]
    inside = [at for inner in code.co_consts if type(inner) is CodeType and name in inner.co_freevars for at in _stores(inner, name)]
    return [at for at, i in enumerate(info.instructions) if i.name in _STORES and info.slots[i.arg] == name] + inside


def _remove(call: Call) -> Frame | None:
    """Handles ``remove`` of a handle: no backward pass has run since the segment has registered the hook."""
    trace, handle = call.trace, call.args[0] if call.args else None
    hook = trace.mutations.hooks.of_modules.get(handle) if trace.active else None
    if hook is not None and len(call.args) == 1 and not call.kwargs:
        remove_number(trace, hook.handle.id, hook.dicts)
        return call.finish(None)
    src = trace.sources.get(handle) if trace.active else None
    if src is not None and len(call.args) == 1 and not call.kwargs and remove_existing(call.interp, handle, src):
        return call.finish(None)
    made = trace.mutations.hooks.by_handle.get(handle) if trace.active else None
    if made is None or len(call.args) > 1 or call.kwargs:
        return call.interpret() if trace.active else call.run_natively()
    if handle.__dict__:
        call.native()
    if made.node is None:
        trace.mutations.hooks.events.append((made, True))
    elif made.reads is not None:
        made.reads = None
        graph = trace.recorder.graph
        graph.erase_node(made.node)
    return call.finish(None)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        Tensor.register_hook: _register,
        Tensor.register_post_accumulate_grad_hook: _register,
        RemovableHandle.remove: _remove,
    }
)
