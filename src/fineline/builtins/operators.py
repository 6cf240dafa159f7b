"""Operators: plain values are computed, tensors recorded, and for user classes the interpreter runs their special methods."""

from __future__ import annotations

import gc
import operator
import types
from collections import OrderedDict, deque
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.cpython.numpy_scalars import NUMPY_SCALARS
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.opcode_families import family
from fineline.frames.stub_frames import is_own
from fineline.fx.recorder import NotForGraph
from fineline.kinds import is_a, is_users_class
from fineline.objects import c_access, c_calls
from fineline.objects.c_access import may_print
from fineline.objects.deferred_texts import waiting
from fineline.objects.lru_caches import lasts
from fineline.objects.mapping_proxies import shown
from fineline.objects.numpy_numbers import answered
from fineline.objects.printing import written_out
from fineline.objects.type_info import MISSING, in_python, raw_lookup, special_method, type_info, watches
from fineline.symbolic.arithmetic import (
    ARITHMETIC,
    FUNCTIONS,
    NUMBERS,
    SIZES,
    SYMBOLIC,
    calculate,
    compared,
    has_symbol,
    holds,
    numbers,
    only_ints,
    only_numbers,
    settle_all,
    settled,
)
from fineline.tensor_ops.arrays.calls import operate
from fineline.tensor_ops.torch_functions import overridden
from fineline.torch_facts.wrapper_subclasses import is_ragged, stands_for_lengths
from fineline.tracing.identity_guards import guard_distinct, guard_distinct_from, guard_identity
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import SINGLETONS, VALUES
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.set_identity_guards import lookups

# By the argument of BINARY_OP: the operator, and the name of its special method. In-place operators start at 13.
BINARY = (
    (operator.add, "add"), (operator.and_, "and"), (operator.floordiv, "floordiv"), (operator.lshift, "lshift"), (operator.matmul, "matmul"),
    (operator.mul, "mul"), (operator.mod, "mod"), (operator.or_, "or"), (operator.pow, "pow"), (operator.rshift, "rshift"),
    (operator.sub, "sub"), (operator.truediv, "truediv"), (operator.xor, "xor"),
)  # fmt: skip
# Types whose operators with a number return a value of the type, not a number.
ANSWERING = NUMPY_SCALARS | {complex, str, bytes}
INPLACE = tuple([getattr(operator, f"i{name}") for _, name in BINARY])
# Operators that compare the elements of sets and views.
COMPARING = frozenset({operator.and_, operator.or_, operator.sub, operator.xor})
COMPARE = (
    (operator.lt, "__lt__", "__gt__"), (operator.le, "__le__", "__ge__"), (operator.eq, "__eq__", "__eq__"),
    (operator.ne, "__ne__", "__ne__"), (operator.gt, "__gt__", "__lt__"), (operator.ge, "__ge__", "__le__"),
)  # fmt: skip
_SEQUENCES = frozenset({list, tuple, deque, torch.Size})
SCALARS = frozenset({int, float, bool, str, complex, bytes, type(None)})
KEY_VIEWS, VALUE_VIEWS, ITEM_VIEWS = (
    frozenset(type(getattr(d, name)()) for d in (dict[str, int](), OrderedDict[str, int]())) for name in ("keys", "values", "items")
)


def _ask(interp: Interp, f: Frame, op: Any, name: str, *operands: Any) -> None:
    """Breaks the graph before an operator that reads the values of numbers, if earlier calls had other values here."""
    if interp.varying.numbers_vary(interp, f, operands):
        raise GraphBreak(op, operands, None, "FL448", f"{name} asks for a number that varies")


def _scalar(trace: SegmentTrace, a: Any, b: Any) -> bool:
    if type(a) in SCALARS and type(b) in SCALARS:
        if trace.deferred.numbers:
            if trace.deferred.unsymbolic and complex in (type(a), type(b)):
                return False
            trace.deferred.settle(a)
            trace.deferred.settle(b)
        return True
    return False


def BINARY_OP(interp: Interp, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    b = s.pop()
    a = s.pop()
    trace = interp.trace
    inplace = arg >= 13
    op, name = BINARY[arg - 13 if inplace else arg]
    if _scalar(trace, a, b):
        s.append(INPLACE[arg - 13](a, b) if inplace else op(a, b))
        return None
    if inplace:
        return inplace_operator(interp, f, a, b, arg - 13)
    return binary(interp, f, a, b, op, name)


def binary(interp: Interp, f: Frame, a: Any, b: Any, op: Any, name: str, written: Any = None) -> Frame | None:
    """Computes a binary operator. ``written``: the in-place operator of an augmented assignment, which errors name."""
    trace = interp.trace
    written = written or op
    if op is operator.mod and type(a) is str and (text := waiting(interp, f, op, (a, b))) is not None:
        f.stack.append(text)
        return None
    if type(a) in SYMBOLIC or type(b) in SYMBOLIC:
        _keep_ragged(op, a, b)
        if type(a) in NUMBERS and type(b) in NUMBERS:
            if trace.deferred.numbers:
                trace.deferred.settle(a)
                trace.deferred.settle(b)
            if op not in ARITHMETIC or not has_symbol(op, (a, b)):
                _ask(interp, f, op, name, a, b)
            f.stack.append(c_calls.of_few_parts(interp, calculate(op, a, b), op, (a, b)))
            return None
        if not is_a(a, Tensor) and not is_a(b, Tensor):
            if operate(interp, f, op, a, b):
                return None
            if not ANSWERING.isdisjoint((type(a), type(b))):
                _ask(interp, f, op, name, a, b)
            a, b = settled(a), settled(b)
        elif trace.active:
            if _asks_classes(interp, a, b):
                return interp.call(f, protocols.binary, [a, b, f"__{name}__", f"__r{name}__", written])
            f.stack.append(interp.tensors.operator(interp, op, [a, b], None))
            return None
    if not trace.active and not python_method(trace, a, b, f"__{name}__", f"__r{name}__"):
        f.stack.append(interp.native(written, (a, b), None))
        return None
    if trace.active and (is_a(a, Tensor) or is_a(b, Tensor)):
        other = b if is_a(a, Tensor) else a
        if _asks_classes(interp, a, b):
            return interp.call(f, protocols.binary, [a, b, f"__{name}__", f"__r{name}__", written])
        if not python_method(trace, other, None, f"__{name}__", f"__r{name}__") or is_a(other, Tensor):
            f.stack.append(interp.tensors.operator(interp, op, [a, b], None))
            return None
        if watches(trace, type(other)):
            # The tensor's method reads __torch_function__ and other attributes.
            raise GraphBreak(op, (a, b), None, "FL412", f"{name} of a tensor and a {type(other).__name__}, whose __getattribute__ sees it")
    if python_method(trace, a, b, f"__{name}__", f"__r{name}__"):
        return interp.call(f, protocols.binary, [a, b, f"__{name}__", f"__r{name}__", written])
    if trace.deferred.unsymbolic:
        _ask(interp, f, op, name, a, b)
    fills = op is operator.mod and is_a(a, (str, bytes, bytearray))
    if _joins(trace, op, a, b) or (c_access.may_compare(trace, a) and c_access.may_compare(trace, b) and (not fills or may_print(trace, b))):
        _expand(interp, f, op, a, b, deep=op is not operator.add)
        if op in COMPARING:
            guard_distinct(trace, [list(v) if is_a(v, dict) else v for v in (a, b)], True)
        result = written(a, written_out(b) if fills else b)
        if type(result) is types.UnionType and not (lasts(trace, a) and lasts(trace, b)):
            raise GraphBreak(op, (a, b), None, "FL412", "a union of what the call made")
        if type(result) not in VALUES:
            trace.made.add(result)
        f.stack.append(result)
        return None
    if operate(interp, f, op, a, b):
        return None
    raise GraphBreak(op, (a, b), None, "FL412", f"{name} of a {type(a).__name__} and a {type(b).__name__}")


def _is_sequence(trace: SegmentTrace, v: Any) -> bool:
    """Returns whether ``v`` is a sequence whose items are known: a structseq is if the captured code has got it from an operator, or has made it."""
    return type(v) in _SEQUENCES or (v not in trace.sources and c_access.is_structseq(type(v)))


def _joins(trace: SegmentTrace, op: Any, a: Any, b: Any) -> bool:
    """Returns whether the operator only combines elements: C reads no element of sequences, and of dicts and sets only the plain keys."""
    if op is operator.add or op is operator.iadd:
        return _is_sequence(trace, a) and _is_sequence(trace, b)
    if op is operator.mul or op is operator.imul:
        count, repeated = (a, b) if type(a) is int else (b, a)
        if type(count) is not int or type(repeated) not in _SEQUENCES:
            return False
        if trace.deferred.numbers:
            trace.deferred.settle(count)
        return True
    keyed = op in (operator.or_, operator.ior) and type(a) in c_access.CONTAINERS and type(b) in c_access.CONTAINERS
    return keyed and all([is_a(k, Tensor) or c_access.may_compare(trace, k) for k in (*a, *b)])


def _expand(interp: Interp, f: Frame, op: Any, a: Any, b: Any, deep: bool = True) -> None:
    if interp.varying.unsteady and any([is_a(v, c_calls.MANY) and interp.varying.contents_vary(interp, f, v) for v in (a, b)]):
        raise GraphBreak(op, (a, b), None, "FL448", f"{op.__name__} reads a container that holds more or less each time")
    try:
        interp.trace.expand(a, deep)
        interp.trace.expand(b, deep)
    except NotForGraph as e:
        raise GraphBreak(op, (a, b), None, "FL413", str(e)) from None


def python_method(trace: SegmentTrace, a: Any, b: Any, *names: str) -> bool:
    """Returns whether the class of ``a`` or ``b`` implements one of the methods ``names`` in Python. Guards the answer."""
    for x in (a, b):
        t = type(x)
        if is_users_class(t) and not is_a(x, Tensor):
            for n in names:
                if in_python(special_method(trace, t, n)):
                    return True
    return False


def call_special(interp: Interp, f: Frame, method: Any, obj: Any, name: str, *args: Any, then: Delivery | None = None) -> Frame | None:
    """Calls ``method``, the special method ``name`` of ``obj``, which is written in Python."""
    if is_a(method, types.FunctionType):
        return interp.call(f, method, [obj, *args], None, then)
    return interp.call(f, protocols.ask, [obj, name, *args], None, then)


def _asks_classes(interp: Interp, *operands: Any) -> bool:
    """Returns whether an infix operator calls a ``__torch_function__``: Python then calls the operands' methods one after the other."""
    return interp.nested.opaque is None and overridden(interp, operands)


def inplace_operator(interp: Interp, f: Frame, a: Any, b: Any, which: int) -> Frame | None:
    trace = interp.trace
    op, name = BINARY[which]
    iop = INPLACE[which]
    iname = f"__i{name}__"
    if is_a(a, Tensor) and trace.active:
        if _asks_classes(interp, a, b):
            return interp.call(f, protocols.inplace, [a, b, iname, f"__{name}__", f"__r{name}__", op, iop])
        f.stack.append(interp.tensors.operator(interp, iop, [a, b], None))
        return None
    method = raw_lookup(type(a), iname)
    if trace.active and is_users_class(type(a)):
        type_info(trace, type(a)).look(trace, iname)
    if in_python(method) or (is_a(a, protocols.SEQUENCES) and python_method(trace, b, None, f"__r{name}__")):
        return interp.call(f, protocols.inplace, [a, b, iname, f"__{name}__", f"__r{name}__", op, iop])
    if method is MISSING:
        return binary(interp, f, a, b, op, name, iop)
    if not trace.active:
        f.stack.append(interp.native(iop, (a, b), None))
        return None
    return interp.call(f, method, [a, b], None, Delivery(_inplace_done, None, a, b, op, name, iop))


def _inplace_done(interp: Interp, f: Frame, result: Any, then: None, *operation: Any) -> Frame | None:
    if result is NotImplemented:
        return binary(interp, f, *operation)
    f.stack.append(result)
    return None


def _unary(name: str, op: Any) -> Any:
    def unary(interp: Interp, f: Frame, arg: int) -> Frame | None:
        a = f.stack.pop()
        trace = interp.trace
        if op is operator.invert and type(a) in (bool, torch.SymBool) and "bools" in CURRENT.warns_of and trace.active:
            raise GraphBreak(op, (settled(a),), None, "FL437", "~ of a bool, about which Python warns")
        if type(a) in SYMBOLIC:
            if is_ragged(a):
                raise GraphBreak(op, (a,), None, "FL508", "an operator on the size of a ragged dimension")
            f.stack.append(calculate(op, a))
            return None
        if type(a) in SCALARS or (not trace.active and not python_method(trace, a, None, name)):
            if trace.deferred.unsymbolic and type(a) is complex:
                _ask(interp, f, op, name, a)
            if trace.deferred.numbers:
                trace.deferred.settle(a)
            f.stack.append(op(a))
            return None
        if is_a(a, Tensor):
            if _asks_classes(interp, a):
                return interp.call(f, protocols.ask, [a, name])
            f.stack.append(interp.tensors.operator(interp, op, [a], None))
            return None
        method = special_method(trace, type(a), name)
        if in_python(method):
            return call_special(interp, f, method, a, name)
        if c_access.may_compare(trace, a):
            f.stack.append(op(a))
            return None
        if operate(interp, f, op, a):
            return None
        raise GraphBreak(op, (a,), None, "FL412", f"{name} of a {type(a).__name__}")

    return unary


def UNARY_NOT(interp: Interp, f: Frame, arg: int) -> Frame | None:
    v = f.stack[-1]
    if v is True or v is False:
        f.stack[-1] = not v
        return None
    f.stack.pop()
    return _PUSH_NOT.of(interp.boolean, interp, f, v)


def _push_not(interp: Interp, f: Frame, value: Any, then: None) -> None:
    f.stack.append(FUNCTIONS[operator.not_](value) if type(value) in SYMBOLIC else not value)


_PUSH_NOT = Delivery(_push_not)


# A symbol is compared with each of at most so many keys; for a larger container it is specialized.
MOST_COMPARED = 16
_KEYS = frozenset({int, float, bool, str, type(None)})
# Types of what may be, or contain, the size of a ragged dimension.
MAY_BE_RAGGED = frozenset({torch.SymInt, torch.Size})
# Types of what equals no size and no sequence of sizes.
_NO_SIZES = frozenset({type(None), str})
# Types whose ``==`` compares only with their own kind, and runs no code of other objects.
_OWN_KIND = frozenset({int, float, complex, bool, str, bytes, type(None), types.BuiltinFunctionType})
# No number equals one of these.
NO_NUMBERS = frozenset(
    {type(None), type(...), str, bytes, tuple, list, dict, set, frozenset, slice, range, torch.Size, torch.dtype, torch.device}
)


def COMPARE_OP(interp: Interp, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    b = s.pop()
    a = s.pop()
    op, name, rname = COMPARE[arg]
    if interp.trace.deferred.unsymbolic and (answer := answered(interp.trace, op, a, b)) is not None:
        s.append(answer)
        return None
    if _scalar(interp.trace, a, b):
        s.append(op(a, b))
        return None
    return compare(interp, f, a, b, op, name, rname)


def compare(interp: Interp, f: Frame, a: Any, b: Any, op: Any, name: str, rname: str) -> Frame | None:
    trace = interp.trace
    if not trace.active:
        # PyTorch's own symbols, such as the size of a ragged dimension, are no numbers here, as captured code takes symbols for.
        if SYMBOLIC.isdisjoint((type(a), type(b))) and python_method(trace, a, b, name, rname, "__eq__"):
            return interp.call(f, protocols.compare, [a, b, name, rname, op])
        f.stack.append(interp.native(op, (a, b), None))
        return None
    if type(a) in MAY_BE_RAGGED or type(b) in MAY_BE_RAGGED or (trace.containers.wrappers.met and type(a) in SIZES and type(b) in SIZES):
        if any(map(stands_for_lengths, numbers((a, b)))) and type(a) not in _NO_SIZES and type(b) not in _NO_SIZES:
            if op not in (operator.eq, operator.ne) or not _comparable(trace, a, b):
                raise GraphBreak(op, (a, b), None, "FL508", "an operator on the size of a ragged dimension")
            _expand(interp, f, op, a, b)
            f.stack.append(_alike(a, b) is (op is operator.eq))
            return None
    if (type(a) in SYMBOLIC or type(b) in SYMBOLIC) and not is_a(a, Tensor) and not is_a(b, Tensor):
        if type(a) in NUMBERS and type(b) in NUMBERS:
            if trace.deferred.numbers:
                trace.deferred.settle(a)
                trace.deferred.settle(b)
            f.stack.append(compared(op, a, b))
            return None
        if name in ("__eq__", "__ne__") and not NO_NUMBERS.isdisjoint((type(a), type(b))):
            f.stack.append(name == "__ne__")
            return None
        a, b = settled(a), settled(b)
    if interp.backing.may_be_symbolic and type(a) in SIZES and type(b) in SIZES and only_numbers(a) and only_numbers(b) and (holds(a) or holds(b)):
        # C compares the numbers one by one, and each comparison of a symbol adds a guard.
        _expand(interp, f, op, a, b)
        f.stack.append(op(a, b))
        return None
    if is_a(a, Tensor) or is_a(b, Tensor):
        if name in ("__eq__", "__ne__") and not (is_a(a, (Tensor, int, float, complex)) and is_a(b, (Tensor, int, float, complex))):
            # The other operand is not a number: Tensor.__eq__ returns NotImplemented, and Python compares identities.
            if a is None or b is None or is_a(a, str) or is_a(b, str):
                f.stack.append(op(a, b))
                return None
        if _asks_classes(interp, a, b):
            return interp.call(f, protocols.compare, [a, b, name, rname, op])
        f.stack.append(interp.tensors.operator(interp, op, [a, b], None))
        return None
    if python_method(trace, a, b, name, rname) or (name == "__ne__" and python_method(trace, a, b, "__eq__")):
        return interp.call(f, protocols.compare, [a, b, name, rname, op])
    if name in ("__eq__", "__ne__") and _compared_by_identity(a, b):
        # Checked before the conditions below, because nothing else in their classes matters.
        guard_identity(trace, a, b)
        f.stack.append(op(a, b))
        return None
    if trace.deferred.unsymbolic and complex in (type(a), type(b)):
        _ask(interp, f, op, name, a, b)
    if c_access.may_compare(trace, a) and c_access.may_compare(trace, b):
        _expand(interp, f, op, a, b)
        guard_distinct(trace, (a, b))
        f.stack.append(op(a, b))
        return None
    for base in (list, tuple):
        if is_a(a, base) and is_a(b, base):
            a, b, name = (b, a, rname) if _asked_first(b, a) else (a, b, name)
            return interp.call(f, getattr(base, name), [a, b])
    if is_a(a, dict) and is_a(b, dict) and name in ("__eq__", "__ne__"):
        a, b = (b, a) if _asked_first(b, a) else (a, b)
        return interp.call(f, special_method(trace, type(a), name), [a, b])
    if operate(interp, f, op, a, b):
        return None
    raise GraphBreak(op, (a, b), None, "FL412", f"comparing a {type(a).__name__} with a {type(b).__name__}")


def _keep_ragged(op: Any, a: Any, b: Any) -> None:
    """Breaks the graph if an operand is the size of a ragged dimension: it stands for a tensor, and no guard can tell what an operator answers."""
    if is_ragged(a) or is_ragged(b):
        raise GraphBreak(op, (a, b), None, "FL508", "an operator on the size of a ragged dimension")


def _comparable(trace: SegmentTrace, a: Any, b: Any) -> bool:
    """Returns whether ``a`` and ``b``, among which are sizes of ragged dimensions, are sizes of this segment's tensors, or consist of such sizes."""
    sizes = trace.symbols is not None and only_numbers((a, b)) and only_ints((a, b))
    return sizes and all([trace.symbols.has_lengths(n) for n in numbers((a, b)) if stands_for_lengths(n)])


def _alike(a: Any, b: Any) -> bool:
    """Returns whether two sizes, or sequences of sizes, are equal, guarded as far as C compares them."""
    if type(a) not in SIZES or type(b) not in SIZES:
        return type(a) not in SIZES and type(b) not in SIZES and bool(settled(compared(operator.eq, a, b)))
    return (type(a) is list) is (type(b) is list) and len(a) == len(b) and all(map(_alike, a, b))


def _asked_first(right: Any, left: Any) -> bool:
    """Returns whether Python calls the method of the right operand first: its class is a subclass of the left one's."""
    return type(right) is not type(left) and is_a(right, type(left))


def _compared_by_identity(a: Any, b: Any) -> bool:
    """Returns whether ``==`` compares identities: one class has no ``__eq__``, and the other none or one for its own kind only."""
    plain, other = type(a).__eq__ is object.__eq__, type(b).__eq__ is object.__eq__
    return (plain and (other or type(b) in _OWN_KIND)) or (other and type(a) in _OWN_KIND)


def IS_OP(interp: Interp, f: Frame, arg: int) -> None:
    s = f.stack
    b = s.pop()
    a = s.pop()
    trace = interp.trace
    if trace.active:
        numbers = type(a) in NUMBERS and type(b) in NUMBERS
        if (type(a) in SYMBOLIC or type(b) in SYMBOLIC) and (not numbers or is_own(f.info.code) or interp.type_of(a) is not interp.type_of(b)):
            # In a polyfill, ``is`` is only a shortcut before a comparison. A number of one type is none of another type, as in ``i is True``.
            pass
        elif type(a) in VALUES or type(b) in VALUES or numbers:
            a, b = settled(a), settled(b)
            if trace.deferred.numbers:
                trace.deferred.settle(a)
                trace.deferred.settle(b)
        elif a is not None and b is not None and type(a) not in SINGLETONS and type(a) not in SYMBOLIC:
            guard_identity(trace, a, b)
    s.append((a is b) is not bool(arg))


def CONTAINS_OP(interp: Interp, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    container = s.pop()
    item = s.pop()
    return contains(interp, f, container, item, _PUSH_NOT if arg else None)


def _few_keys(trace: SegmentTrace, container: Any) -> bool:
    """Returns whether a symbol can be compared with each key of ``container``, instead of being specialized."""
    if not is_a(container, (dict, set, frozenset)) or python_method(trace, container, None, "__contains__", "__iter__"):
        return False
    return len(container) <= MOST_COMPARED and {type(k) for k in container} <= _KEYS


def contains(interp: Interp, f: Frame, container: Any, item: Any, then: Delivery | None = None) -> Frame | None:
    trace = interp.trace
    t = type(container)
    if interp.varying.unsteady and is_a(container, (list, set, deque)) and interp.varying.contents_vary(interp, f, container):
        raise GraphBreak(_contains(then), (container, item), None, "FL448", f"`in` a {t.__name__} that holds more or less each time")
    if interp.backing.may_be_symbolic and t in SIZES and (holds(item) or holds(container)):
        return interp.call(f, protocols.contains_item, [container, item], None, then)
    if interp.backing.may_be_symbolic and trace.active and type(item) in (torch.SymInt, torch.SymFloat) and _few_keys(trace, container):
        try:
            trace.expand(container, ordered=False)
        except NotForGraph as e:
            raise GraphBreak(_contains(then), (container, item), None, "FL413", str(e)) from None
        return interp.call(f, protocols.contains_item, [tuple(container), item], None, then)
    if interp.backing.may_be_symbolic and not in_python(raw_lookup(t, "__contains__")):
        item, container = settle_all(item), settle_all(container)
    if not trace.active:
        if python_method(trace, container, None, "__contains__", "__iter__"):
            return interp.call(f, protocols.contains, [container, item], None, then)
        return interp.finish(f, interp.native(operator.contains, (container, item), None), then)
    if is_a(container, dict) and not python_method(trace, container, None, "__contains__"):
        if not c_access.may_hash(trace, item, container):
            raise GraphBreak(_contains(then), (container, item), None, "FL412", "a key with its own __hash__ or __eq__")
        present = dict.__contains__(container, item)
        src = trace.sources.get(container)
        if src is not None and container not in trace.containers.expanded:
            if (container in trace.mutations.written and trace.mutations.is_dirty(container, item)) or trace.is_ordered(container):
                pass
            elif present:
                value = dict.__getitem__(container, item)
                trace.guards.access(src, "key", item, value)
            else:
                trace.read_absent(container, src, item)
        return interp.finish(f, present, then)
    if is_a(container, Tensor):
        try:
            interp.tensors.sign(interp, operator.contains, (container, item))
        except GraphBreak as b:
            b.fn = _contains(then)
            raise
        raise GraphBreak(_contains(then), (container, item), None, "FL502", "`in` a tensor reads its values")
    if python_method(trace, container, None, "__contains__", "__iter__"):
        return interp.call(f, protocols.contains, [container, item], None, then)
    if is_a(item, Tensor) and is_a(container, (list, tuple)):
        return interp.call(f, protocols.contains_item, [container, item], None, then)
    if t is types.MappingProxyType:
        try:
            return contains(interp, f, shown(trace, container), item, then)
        except NotForGraph as e:
            raise GraphBreak(_contains(then), (container, item), None, "FL413", str(e)) from None
    keyed = t in (set, frozenset) and c_access.may_hash(trace, item, container)
    if keyed and t is set and container not in trace.sources:
        refused = lookups(trace, container).refused
        if refused is not None:
            raise GraphBreak(_contains(then), (container, item), None, "FL413", refused)
        return interp.finish(f, item in container, then)
    if keyed or (c_access.may_compare(trace, container) and c_access.may_compare(trace, item)):
        try:
            trace.expand(container, True, ordered=False)
        except NotForGraph as e:
            raise GraphBreak(_contains(then), (container, item), None, "FL413", str(e)) from None
        guard_distinct_from(trace, item, container)
        return interp.finish(f, item in container, then)
    if is_a(container, (list, tuple)) or t in VALUE_VIEWS:
        return interp.call(f, protocols.contains_item, [container, item], None, then)
    if t in KEY_VIEWS and container not in trace.sources:
        return contains(interp, f, gc.get_referents(container)[0], item, then)
    if t in ITEM_VIEWS and container not in trace.sources:
        return interp.call(f, protocols.contains_pair, [gc.get_referents(container)[0], item], None, then)
    raise GraphBreak(_contains(then), (container, item), None, "FL412", f"`in` a {t.__name__}")


def _contains(then: Delivery | None) -> Any:
    return operator.contains if then is None else _contains_not


def _contains_not(container: Any, item: Any) -> bool:
    return item not in container


HANDLERS = family(
    globals(),
    UNARY_NEGATIVE=_unary("__neg__", operator.neg),
    UNARY_POSITIVE=_unary("__pos__", operator.pos),
    UNARY_INVERT=_unary("__invert__", operator.invert),
)
