"""The built-in rules about callables, in the form of user rules: the rows of the tables, and the row that fits a callable."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from fineline.builtins.handlers import HANDLERS
from fineline.builtins.libraries import fills_table, stand_in
from fineline.builtins.marks import GROWING, INITIALISING, RECORDING, own_function
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE
from fineline.identity import IdentityMap
from fineline.kinds import is_a, is_users_class
from fineline.objects import callable_table
from fineline.objects.c_access import hashable
from fineline.objects.lru_caches import LRU_TYPE
from fineline.policy.marks import DYNAMO_NAMES, dynamo_kind, graph_break, torch_mark
from fineline.policy.rule import BUILT_IN, Rule
from fineline.policy.selector import GLOB, IN_C, OBJECT, Identity, Selector, describe
from fineline.torch_facts import callables
from fineline.torch_facts.releases import APPLY, method_parts


class Kind(NamedTuple):
    """The rule for one class of callables: verb, reason, and the file with its table. ``pattern``: its text if it has no single target."""

    verb: str
    reason: str
    place: str
    pattern: str = ""


_TORCH, _NATIVE, _HANDLERS = "fineline/torch_facts/callables.py", "fineline/cpython/c_callables.py", "fineline/builtins/handlers.py"
_MARKS, _CALLS, _MARKED = "fineline/policy/marks.py", "fineline/builtins/calls.py", "fineline/builtins/marks.py"
_CACHES = "fineline/objects/lru_caches.py"

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        # PyTorch
        "op": Kind("allow", "a tensor operator is one node of the graph", _TORCH),
        "metadata": Kind("constant", "its answer follows from guarded facts: sizes, dtype, device, flags", _TORCH),
        "data": Kind("disallow", "it reads the numbers in a tensor, or its address", _TORCH),
        "state": Kind("allow", "it changes PyTorch's state, and is a node without a result", _TORCH),
        "query": Kind("constant", "it reads state of PyTorch's that is guarded", _TORCH),
        "effect": Kind("disallow", "it has effects that no node stands for", _TORCH),
        "python": Kind("trace", "Python code of PyTorch's", _TORCH),
        # C code
        "pure": Kind("trace", "C code without side effects: it runs at capture, and what it reads is guarded", _NATIVE),
        "mutator": Kind("trace", "C code that changes its first argument: the program makes the same change", _NATIVE),
        "advance": Kind("trace", "C code that advances an iterator: the program does the same", _NATIVE),
        "callback": Kind("substitute", "C code that calls Python code: the same in Python is captured in its place", _NATIVE),
        "refused": Kind("disable", "C code that can't be captured", _NATIVE),
        "handled": Kind("trace", "the interpreter knows what it does", _HANDLERS),
        "unknown": Kind("disable", "C code that fineline knows nothing of", _NATIVE, "C code in no table"),
        "cached": Kind("constant", "what its cache holds is guarded; called as it is where that is nothing", _CACHES, "functions with functools.cache"),
        "tensor class": Kind("disable", "making a tensor of another class is C code that no graph can hold", _CALLS, "tensor subclasses"),
        # PyTorch's own marks, and functions of its compiler
        "disable": Kind("disable", "it carries the mark of torch.compiler.disable", _MARKS, "functions under torch.compiler.disable"),
        "disable_frame": Kind("disable_frame", "it carries the mark of disable(recursive=False)", _MARKS, "functions under disable(recursive=False)"),
        "wrapped": Kind("substitute", "compiled by torch.compile: the original is captured in its place", _MARKS, "functions under torch.compile"),
        "graph_break": Kind("disallow", "an explicit graph break", _MARKS),
        "true": Kind("constant", "True while captured", _MARKS),
        "nothing": Kind("constant", "it says nothing to fineline", _MARKS),
        "marks_size": Kind("forbid", "it marks a size of a tensor, which is too late in captured code", _MARKS),
        "settles_size": Kind("constant", "the size is a constant from here on", _MARKS),
        "identity": Kind("constant", "it gives back what it marks", _MARKS),
        "in_block": Kind("substitute", "a block of that compiler's around a function, which is captured in its place", _MARKS),
        "patched_init": Kind("substitute", "the original nn.Module.__init__ is captured in its place", _MARKS),
        "opaque": Kind("disable", "it belongs to another compiler", _MARKS, "torch._dynamo.*"),
        "records": Kind("disable", "it writes a record that says when or where something happened", _MARKED),
        "growing": Kind("disable", "each of its calls would be a program of its own; a function that it is given is captured", _MARKED),
        "initialises": Kind("disable", "it makes the parameters of a lazy module, at its first call", _MARKED),
        "library": Kind("substitute", "what it does while compiled is not what it does in eager calls", "fineline/builtins/libraries.py"),
        # fineline's own
        "declares": Kind("disable", "it compiles or marks something, or changes what will be captured", _MARKED, "functions of fineline's that declare"),
        # Python code
        "coroutine": Kind("disable", "what it awaits is decided outside", _CALLS, "coroutine functions"),
        "code": Kind("trace", "Python code", _CALLS, "Python code"),
    }
)  # fmt: skip


def row(kind: str, target: Any = None, text: str | None = None) -> Rule:
    """Returns the rule about ``target`` for its class ``kind`` in the tables. ``text`` describes the target; None: `describe` does."""
    verb, reason, place, pattern = KINDS[kind]
    selector: Selector
    if pattern:
        selector = Selector(GLOB, "glob", ("built-in", pattern), pattern)
    else:
        selector = Selector(OBJECT, "object", Identity(target), text or describe(target))
    return Rule(verb, selector, reason, place, callable_table.spec_of(target).polyfill if kind == "callback" else None, BUILT_IN)


def rows() -> Iterator[Rule]:
    """Yields all built-in rules: first one for each callable of the tables, then those for whole classes of callables."""
    listed = IdentityMap(callables.listed())
    listed.update((fn, spec.effect) for fn, spec in callable_table.SPECS.items())
    listed.update((fn, "handled") for fn in HANDLERS if not (getattr(fn, "__module__", None) or "").startswith("fineline"))
    listed.update((fn, "records") for fn in sorted(RECORDING, key=describe))
    listed[GROWING] = "growing"
    listed[INITIALISING] = "initialises"
    for fn, kind in listed.items():
        yield row(kind, fn)
    for name, kind in DYNAMO_NAMES.items():
        yield row(kind, name, f"torch._dynamo.{name}")
    yield from [row(kind) for kind, facts in KINDS.items() if facts.pattern]


def builtin_rule(fn: Any) -> Rule:
    """Returns the built-in rule about calls of ``fn``."""
    return row(_kind(fn), fn)


def _kind(fn: Any) -> str:
    """Returns the class of a callable in the tables; it checks in the order of `builtins.calls`."""
    if is_a(fn, (types.FunctionType, types.BuiltinFunctionType)) and fn in RECORDING:
        return "records"
    if is_a(fn, (OpOverload, OpOverloadPacket)):
        return callables.classify_torch(fn) or "effect"
    if (parts := method_parts(fn)) is not None:
        return _kind(parts[0])
    if fn is APPLY:
        return "handled"
    if is_a(fn, types.FunctionType):
        return _of_function(fn)
    if is_a(fn, LRU_TYPE):
        return "cached"
    if is_a(fn, type):
        return _of_class(fn)
    if is_a(fn, IN_C):
        return _of_native(_unbound(fn)) or "unknown"
    # For example a NumPy function, whose type is NumPy's own.
    return (_of_native(fn) if hashable(fn) else None) or "code"


def _unbound(fn: Any) -> Any:
    if is_a(fn, types.BuiltinFunctionType) and not is_a(fn.__self__, (types.ModuleType, type, type(None))):
        return getattr(type(fn.__self__), fn.__name__, fn)
    return fn


def table_row(fn: Any) -> str:
    """Returns the words of a callable's row in the table of C callables, and the name of its handler; "" if it has neither."""
    fn = _unbound(fn)
    spec, handler = callable_table.spec_of(fn), HANDLERS.get(fn) if hashable(fn) else None
    words = [] if spec.effect == "unknown" else [str(spec)]
    return " ".join([*words, f"handler:{handler.__module__}.{handler.__qualname__}"] if handler is not None else words)


def _of_function(fn: types.FunctionType) -> str:
    if fn in HANDLERS:
        return "handled"
    if fn is INITIALISING:
        return "initialises"
    if fn is GROWING:
        return "growing"
    if fn is graph_break:
        return "graph_break"
    if own_function(fn) is not None:
        return "declares"
    if stand_in(fn) is not None or fills_table(fn):
        return "library"
    kind = callables.classify_torch(fn)
    if kind is not None and kind != "python":
        return kind
    if (fn.__module__ or "").startswith("torch._dynamo"):
        return dynamo_kind(fn)
    if fn.__code__.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
        return "coroutine"
    return torch_mark(fn) or kind or "code"


def _of_class(cls: type) -> str:
    found = _of_native(cls)
    if found is not None and found != "python":
        return found
    if not is_users_class(cls):
        return "unknown"
    return "tensor class" if issubclass(cls, Tensor) else "code"


def _of_native(fn: Any) -> str | None:
    if fn in HANDLERS:
        return "handled"
    kind = callables.classify_torch(fn)
    if kind is not None:
        return kind
    spec = callable_table.spec_of(fn)
    return None if spec is callable_table.UNKNOWN else spec.effect
