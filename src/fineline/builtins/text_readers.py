"""Instructions and calls that read a deferred text: they wait for it at a graph break before them."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from fineline.builtins.containers import map_of, set_of
from fineline.builtins.handlers import HANDLERS
from fineline.builtins.marks import RECORDING
from fineline.builtins.operators import BINARY, COMPARE
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.kinds import is_a
from fineline.objects.attribute_reads import raw_lookup
from fineline.objects.c_calls import RUNNING, describe
from fineline.objects.callable_table import UNKNOWN, spec_of
from fineline.objects.deferred_texts import Text, forget_dead, joined, known_next_time, read, waiting
from fineline.objects.lru_caches import LRU_TYPE
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.torch_facts.callables import classify_torch
from fineline.tracing.classes_made_anew import HEAP_TYPE
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import SINGLETONS

# Instruction -> how many operands it looks at, from the top of the stack; those not named here only move them about.
_OPERANDS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("BINARY_OP", "BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "COMPARE_OP", "CONTAINS_OP", "MATCH_KEYS"), 2),
        **dict.fromkeys(("IS_OP", "CHECK_EG_MATCH"), 2),
        **dict.fromkeys(("MATCH_CLASS", "CALL_FUNCTION_EX"), 3),
        **dict.fromkeys(("UNARY_NOT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "LOAD_ATTR", "STORE_ATTR"), 1),
        **dict.fromkeys(("DELETE_ATTR", "GET_ITER", "GET_YIELD_FROM_ITER", "GET_AWAITABLE", "UNPACK_SEQUENCE", "UNPACK_EX", "SET_ADD"), 1),
        **dict.fromkeys(("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "BEFORE_WITH", "GET_LEN", "MATCH_SEQUENCE"), 1),
        **dict.fromkeys(("MATCH_MAPPING", "CHECK_EXC_MATCH", "IMPORT_FROM", "IMPORT_STAR", "IMPORT_NAME"), 1),
        **{f"POP_JUMP_{way}_IF_{truth}": 1 for way in ("FORWARD", "BACKWARD") for truth in ("TRUE", "FALSE")},
        **{f"JUMP_IF_{truth}_OR_POP": 1 for truth in ("TRUE", "FALSE")},
    }
)
# ... as many as their argument says.
_COUNTED = frozenset({"BUILD_SET", "BUILD_SLICE", "BUILD_STRING", "RAISE_VARARGS"})
# Of these, what answers in their place of texts that vary: what comes of such is a value as well.
_ANSWERING: Mapping[str, Callable[[int], Callable]] = MappingProxyType(
    {
        "BINARY_SUBSCR": lambda arg: operator.getitem,
        "BINARY_OP": lambda arg: BINARY[arg % INPLACE_FROM][0],
        "COMPARE_OP": lambda arg: COMPARE[arg][0],
        "CONTAINS_OP": lambda arg: _not_within if arg else _within,
    }
)
class Keeping(NamedTuple):
    """A call that does what an instruction does with keys: how many operands that takes off the stack, and whether it gives something."""

    fn: Callable
    args: list
    taken: int
    gives: bool


# What puts texts into containers as keys: from the stack and the instruction's argument, the call that does so.
_KEEPING: Mapping[str, Callable[[list, int], Keeping]] = MappingProxyType(
    {
        "STORE_SUBSCR": lambda s, arg: Keeping(operator.setitem, [s[-2], s[-1], s[-3]], 3, False),
        "BUILD_MAP": lambda s, arg: Keeping(map_of, s[len(s) - 2 * arg :], 2 * arg, True),
        "BUILD_SET": lambda s, arg: Keeping(set_of, s[len(s) - arg :], arg, True),
        "MAP_ADD": lambda s, arg: Keeping(dict.__setitem__, [s[-2 - arg], s[-2], s[-1]], 2, False),
        "SET_ADD": lambda s, arg: Keeping(set.add, [s[-1 - arg], s[-1]], 1, False),
    }
)
_TOLD = frozenset({str, bytes, int, slice, *SYMBOLIC})
# In these C looks up texts.
_HOLDERS = frozenset({dict, OrderedDict, defaultdict, set, frozenset, list, tuple})
# Of more, it would take too long to ask at each instruction whether they are still held.
_FEW = 8
# Where the object lies on the stack that an instruction asks with what is beside it, and the method.
_RECEIVERS: Mapping[str, int] = MappingProxyType({"BINARY_OP": -2, "BINARY_SUBSCR": -2, "STORE_SUBSCR": -2, "DELETE_SUBSCR": -2, "CONTAINS_OP": -1})
_METHODS: Mapping[str, str] = MappingProxyType(
    {"BINARY_SUBSCR": "__getitem__", "STORE_SUBSCR": "__setitem__", "DELETE_SUBSCR": "__delitem__", "CONTAINS_OP": "__contains__"}
)
_TELL_APART = ("IS_OP", "COMPARE_OP")
# What asks of a text whether it is empty, and leaves nothing of it.
_TRUTHS = frozenset({"UNARY_NOT", *[f"POP_JUMP_{way}_IF_{truth}" for way in ("FORWARD", "BACKWARD") for truth in ("TRUE", "FALSE")]})
# Arguments of BINARY_OP: texts in a row, and a pattern that is filled in.
_ADDITIONS = (0, 13)
_REMAINDERS = (6, 19)
# From this one on they are those of statements like ``a += b``, which do the same to texts.
INPLACE_FROM = 13
# What is given a text and looks at no more than its type; the others of these answer for it themselves.
_KEEP = (isinstance, callable, type, list.append, str, repr, format, hash, id)
# What looks at its first two arguments alone.
_SET = (setattr, object.__setattr__)
# What the interpreter answers itself, and yet looks at no more of a text than goes into its answer, or into the world.
_ALONE = frozenset({len, hash, *RECORDING})
_CALLED = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    LRU_TYPE,
)  # fmt: skip


def attend(interp: Interp, f: Frame) -> bool:
    """Sees to it that the next instruction reads no text that has not been made; -> whether that instruction is done."""
    texts = interp.texts
    if len(texts) < _FEW:
        forget_dead(texts)
    name, arg = f.info.instructions[f.ip]
    n = arg if name in _COUNTED else _OPERANDS.get(name, 0)
    s = f.stack
    # The keys of a dict are every other operand; what it is to hold under them is only moved.
    operands = s[len(s) - 2 * arg :: 2] if name == "BUILD_MAP" else s[-2:-1] if name == "MAP_ADD" else s[-n:] if n else ()
    if not texts or not any([x in texts for x in operands]) or not interp.trace.active:
        return False
    if name in _TELL_APART and any([type(x) in SINGLETONS for x in operands]):
        # None is no text, whatever that says.
        return False
    if name in _RECEIVERS and _is_in_python(name, arg, s[_RECEIVERS[name]]):
        # A method in Python is given it like any function.
        return False
    if all([type(x) is str for x in operands]):
        f.ip += 1
        new = None
        if name == "BUILD_STRING" or (name == "BINARY_OP" and arg in _ADDITIONS):
            new = joined(interp, f, tuple(operands))
        elif name == "BINARY_OP" and arg in _REMAINDERS:
            new = waiting(interp, f, operator.mod, operands)
        if new is not None:
            s[-n:] = [new]
            return True
        f.ip -= 1
    text = next(texts[x] for x in operands if x in texts)
    if text.fn is None and name in _ANSWERING and (all([type(x) in _TOLD for x in operands]) or _is_key(interp, f, text, operands)):
        del s[-n:]
        f.ip += 1
        raise GraphBreak(_ANSWERING[name](arg), tuple(operands), None, "FL448", f"{name} reads {text.where}, which varies")
    if text.fn is None and name in _KEEPING and _is_key(interp, f, text, operands):
        kept = _KEEPING[name](s, arg)
        del s[len(s) - kept.taken :]
        f.ip += 1
        graph_break = GraphBreak(kept.fn, tuple(kept.args), None, "FL448", f"{name} reads {text.where}, which varies")
        raise graph_break if kept.gives else graph_break.discard()
    if text.fn is None and name in _TRUTHS and (src := interp.trace.deferred.numbers.get(text.value)) is not None:
        s[-1] = filled = bool(text.value)
        interp.trace.guards.check(src, "predicate", (operator.truth, "is not empty") if filled else (operator.not_, "is empty"), "truth")
        return False
    known_next_time(interp, text)
    if text.value not in texts:
        return attend(interp, f)
    if interp.opaque is not None:
        if interp.fakes is not None:
            raise Restart("FL515", f"{name} reads the text of a tensor")
        interp.opaque.read = True
        return False
    # The instruction comes again behind it, and finds the text on the stack.
    raise GraphBreak(read, (text.value,), None, "FL417", f"the text of a tensor, made at {text.where}, is read by {name}").discard()


def _is_in_python(name: str, arg: int, receiver: Any) -> bool:
    """Returns whether a method that is written in Python does what an instruction says."""
    method = f"__{BINARY[arg % INPLACE_FROM][1]}__" if name == "BINARY_OP" else _METHODS[name]
    return type(raw_lookup(type(receiver), method)) is types.FunctionType


def _is_key(interp: Interp, f: Frame, text: Text, operands: Sequence[Any]) -> bool:
    """Returns whether a container is asked for a text from a graph break that had others in its place before: a program for each would never end."""
    if not all([type(x) in _TOLD or type(x) in _HOLDERS for x in operands]):
        return False
    return bool(interp.asked(f, [text.value], interp.few_keys))


def read_by(interp: Interp, fn: Any, args: list, kwargs: dict | None) -> None:
    """Sees to it that a call in C, or one that capture answers itself, is given no text that has not been made."""
    texts = interp.texts
    given = args[:2] if _among(fn, _SET) else [*args, *(kwargs or {}).values()]
    if interp.trace.active and any([a in texts for a in given]) and not _among(fn, _KEEP) and _reads(fn):
        text = next(texts[a] for a in given if a in texts)
        if text.fn is None and _by_itself(fn):
            raise GraphBreak(fn, tuple(args), kwargs, "FL417", f"{describe(fn)} reads {text.where}, which varies")
        known_next_time(interp, text)
        if text.value not in texts:
            read_by(interp, fn, args, kwargs)
            return
        reason = f"the text of a tensor, made at {text.where}, is read by {describe(fn)}"
        raise GraphBreak(fn, tuple(args), kwargs, "FL417", reason)


def _by_itself(fn: Any) -> bool:
    """Returns whether all that a function does with a text is in what it gives: what the interpreter answers itself decides what comes next."""
    if fn in HANDLERS or fn in _ALONE:
        return fn in _ALONE
    return spec_of(fn).effect == "pure"


def _within(item: Any, container: Any) -> bool:
    return item in container


def _not_within(item: Any, container: Any) -> bool:
    return item not in container


def _among(fn: Any, functions: tuple) -> bool:
    # Other descriptors may compare equal.
    return any([fn is one for one in functions])


def _reads(fn: Any) -> bool:
    """Returns whether it does: what only leads to other calls, which come here in turn, and what breaks the graph anyway, need not wait."""
    if is_a(fn, type):
        return not (type(fn) is type and fn.__flags__ & HEAP_TYPE and fn.__new__ is object.__new__ and spec_of(fn) is UNKNOWN)
    if not is_a(fn, _CALLED):
        return False
    if is_a(fn, types.FunctionType):
        return fn in HANDLERS or classify_torch(fn) not in (None, "python")
    owner = getattr(fn, "__self__", None)
    if owner is not None and not is_a(owner, (type, types.ModuleType)):
        return False
    return fn in HANDLERS or classify_torch(fn) is not None or spec_of(fn).effect in RUNNING or is_a(fn, LRU_TYPE)
