"""Instructions and calls that read a deferred text: a graph break before them makes the text."""

from __future__ import annotations

import operator
import types
import warnings
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
from fineline.kinds import is_a, is_users_class
from fineline.objects.c_calls import RUNNING, describe
from fineline.objects.callable_table import UNKNOWN, spec_of
from fineline.objects.deferred_texts import Text, forget_dead, joined, known_next_time, read, waiting
from fineline.objects.lru_caches import LRU_TYPE
from fineline.objects.type_info import raw_lookup
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.torch_facts.callables import classify_torch
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import SINGLETONS

# By instruction: the number of operands that it reads, from the top of the stack. Absent instructions only move operands.
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
# Instructions that read as many operands as their argument says.
_COUNTED = frozenset({"BUILD_SET", "BUILD_SLICE", "BUILD_STRING", "RAISE_VARARGS"})
# By instruction: the function that runs eagerly instead if a text varies, so that its result is a new input.
_ANSWERING: Mapping[str, Callable[[int], Callable]] = MappingProxyType(
    {
        "BINARY_SUBSCR": lambda arg: operator.getitem,
        "BINARY_OP": lambda arg: BINARY[arg % INPLACE_FROM][0],
        "COMPARE_OP": lambda arg: COMPARE[arg][0],
        "CONTAINS_OP": lambda arg: _not_within if arg else _within,
    }
)
class Keeping(NamedTuple):
    """A call that stores keys as an instruction does. ``taken``: how many operands that pops; ``gives``: whether it pushes a result."""

    fn: Callable
    args: list
    taken: int
    gives: bool


# By instruction that stores texts as keys of a container: makes the equivalent call from the stack and the instruction's argument.
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
# Containers in which C looks up texts.
_HOLDERS = frozenset({dict, OrderedDict, defaultdict, set, frozenset, list, tuple})
# With more texts, it would take too long to check at each instruction which of them are alive.
_FEW = 8
# By instruction: the stack index of the object whose special method it calls, and the name of the method.
_RECEIVERS: Mapping[str, int] = MappingProxyType({"BINARY_OP": -2, "BINARY_SUBSCR": -2, "STORE_SUBSCR": -2, "DELETE_SUBSCR": -2, "CONTAINS_OP": -1})
_METHODS: Mapping[str, str] = MappingProxyType(
    {"BINARY_SUBSCR": "__getitem__", "STORE_SUBSCR": "__setitem__", "DELETE_SUBSCR": "__delitem__", "CONTAINS_OP": "__contains__"}
)
_TELL_APART = ("IS_OP", "COMPARE_OP")
# Instructions that test whether a text is empty, and drop it.
_TRUTHS = frozenset({"UNARY_NOT", *[f"POP_JUMP_{way}_IF_{truth}" for way in ("FORWARD", "BACKWARD") for truth in ("TRUE", "FALSE")]})
# Arguments of BINARY_OP that concatenate texts, and that fill in a pattern.
_ADDITIONS = (0, 13)
_REMAINDERS = (6, 19)
# The first argument of BINARY_OP for statements like ``a += b``, which do the same to texts.
INPLACE_FROM = 13
# Callables that read at most the type of a text, or whose handler takes care of deferred texts.
_KEEP = (isinstance, callable, type, list.append, str, repr, format, hash, id)
# Callables whose handlers break the graph themselves, with the variables of the caller as arguments.
_EVALUATE = (eval, exec)
# Callables that read only their first two arguments.
_SET = (setattr, object.__setattr__)
# Callables that have a handler, and still use a text only for their result or for a record that they write.
_ALONE = frozenset({len, hash, warnings.warn, *RECORDING})
_CALLED = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    LRU_TYPE,
)  # fmt: skip


def attend(interp: Interp, f: Frame) -> bool:
    """Ensures that the next instruction reads no deferred text. Returns whether it has executed the instruction."""
    texts = interp.trace.deferred.texts
    if len(texts) < _FEW:
        forget_dead(texts)
    name, arg = f.info.instructions[f.ip]
    n = arg if name in _COUNTED else _OPERANDS.get(name, 0)
    s = f.stack
    # The keys of a dict are every other operand; its values are only moved.
    operands = s[len(s) - 2 * arg :: 2] if name == "BUILD_MAP" else s[-2:-1] if name == "MAP_ADD" else s[-n:] if n else ()
    if not texts or not any([x in texts for x in operands]) or not interp.trace.active:
        return False
    if name in _TELL_APART and any([type(x) in SINGLETONS for x in operands]):
        # None is not a text, whatever the text contains.
        return False
    if name in _RECEIVERS and _is_in_python(name, arg, s[_RECEIVERS[name]]):
        # A method in Python gets the text like any function.
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
    if interp.nested.opaque is not None:
        if not interp.backing.real:
            raise Restart("FL515", f"{name} reads the text of a tensor")
        interp.nested.opaque.reads_numbers()
        return False
    # After the graph break the instruction runs again, with the text on the stack.
    raise GraphBreak(read, (text.value,), None, "FL417", f"{text.described}, is read by {name}").discard()


def _is_in_python(name: str, arg: int, receiver: Any) -> bool:
    """Returns whether the instruction calls a special method of ``receiver`` that is written in Python."""
    method = f"__{BINARY[arg % INPLACE_FROM][1]}__" if name == "BINARY_OP" else _METHODS[name]
    return type(raw_lookup(type(receiver), method)) is types.FunctionType


def _is_key(interp: Interp, f: Frame, text: Text, operands: Sequence[Any]) -> bool:
    """Returns whether a container is searched for a text that varies here: a program for each text would never end."""
    if not all([type(x) in _TOLD or type(x) in _HOLDERS for x in operands]):
        return False
    return interp.varying.values_vary(interp, f, [text.value], interp.varying.few_keys)


def read_by(interp: Interp, fn: Any, args: list, kwargs: dict | None) -> None:
    """Ensures that a C function, or a callable with a handler, gets no deferred text."""
    texts = interp.trace.deferred.texts
    given = args[:2] if _among(fn, _SET) else [*args, *(kwargs or {}).values()]
    if interp.trace.active and any([a in texts for a in given]) and not _among(fn, _KEEP) and _reads(fn):
        text = next(texts[a] for a in given if a in texts)
        if text.fn is None and _by_itself(fn):
            raise GraphBreak(fn, tuple(args), kwargs, "FL417", f"{describe(fn)} reads {text.where}, which varies")
        known_next_time(interp, text)
        if text.value not in texts:
            read_by(interp, fn, args, kwargs)
            return
        reason = f"{text.described}, is read by {describe(fn)}"
        raise GraphBreak(fn, tuple(args), kwargs, "FL417", reason)


def _by_itself(fn: Any) -> bool:
    """Returns whether a function uses a text only for its result. A handler may also decide what runs next."""
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
    """Returns whether a call reads its arguments, instead of only making other calls, which come here too, or breaking the graph anyway."""
    if _among(fn, _EVALUATE):
        return False
    if is_a(fn, type):
        return not (type(fn) is type and is_users_class(fn) and fn.__new__ is object.__new__ and spec_of(fn) is UNKNOWN)
    if not is_a(fn, _CALLED):
        return False
    if is_a(fn, types.FunctionType):
        return fn in HANDLERS or classify_torch(fn) not in (None, "python")
    owner = getattr(fn, "__self__", None)
    if owner is not None and not is_a(owner, (type, types.ModuleType)):
        return False
    return fn in HANDLERS or classify_torch(fn) is not None or spec_of(fn).effect in RUNNING or is_a(fn, LRU_TYPE)
