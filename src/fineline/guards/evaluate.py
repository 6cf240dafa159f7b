"""The reference evaluator of guard programs: the meaning of every step, in plain Python.

The native evaluator must agree with this one on every program; tests compare the two.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from types import CellType, FunctionType, GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.asynchronous import let_pass
from fineline.guards.facts import ambient_facts, class_name, describe_difference, storage_of, tensor_agrees, tensor_facts, tensor_number
from fineline.guards.postfix import check_code, is_integer, run
from fineline.guards.steps import ACCESS, CHECKS, Step
from fineline.guards.texts import value_text
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.report.misses import Change

SOURCELESS = frozenset({"root", "pin", "type_attr", "type_lacks", "distinct", "storages", "ambient", "relation"})

_ABSENT = object()
_MRO: MemberDescriptorType = type.__dict__["__mro__"]
_TYPE_DICT: GetSetDescriptorType = type.__dict__["__dict__"]


class ReferenceProgram:
    """A guard program, evaluated step by step."""

    def __init__(self, n_roots: int, steps: Iterable[Step], outputs: Sequence[int]) -> None:
        self.n_roots = n_roots
        self.steps = tuple(steps)
        self.outputs = tuple(outputs)
        validate(n_roots, self.steps, self.outputs)

    def check(self, roots: tuple) -> tuple | None:
        """Returns the values of the output registers, or None on a miss."""
        registers: dict[int, object] = {}
        if self._run(roots, registers) >= 0:
            return None
        return tuple([registers[number] for number in self.outputs])

    def failing(self, roots: tuple) -> int:
        """Returns the index of the first failing step, -1 if all pass."""
        return self._run(roots, {})

    def costs(self, roots: tuple) -> tuple[tuple[float, ...], float]:
        """Returns the nanoseconds of each step, -1 for those after a failed one, and of a warm check, -1 if a step fails.

        Steps are evaluated once, because some run users' code.
        """
        costs = [-1.0] * len(self.steps)
        registers: dict[int, object] = {}
        all_held = True
        for index, step in enumerate(self.steps):
            began = time.perf_counter_ns()
            held = self._run(roots, registers, (step,)) < 0
            costs[index] = float(time.perf_counter_ns() - began)
            all_held = all_held and held
            # Steps after a wrong number of items can be evaluated; those after a wrong type rely on it.
            if not held and step[0] not in ("len", "keys", "absent"):
                break
        # This evaluator remembers nothing.
        return tuple(costs), sum(costs) if all_held else -1.0

    def explain(self, roots: tuple) -> tuple[Change, ...]:
        """Returns what the first failing step says has changed; nothing if all pass."""
        registers: dict[int, object] = {}
        index = self._run(roots, registers)
        return () if index < 0 else explain_failure(self.steps[index], registers.get(self.steps[index][2]), registers)

    def _run(self, roots: tuple, registers: dict[int, object], steps: tuple[Step, ...] | None = None) -> int:
        if len(roots) != self.n_roots:
            raise ValueError(f"the guard program takes {self.n_roots} roots, not {len(roots)}")
        for index, (op, dst, src, payload) in enumerate(self.steps if steps is None else steps):
            try:
                if op in ACCESS:
                    registers[dst] = read_step(op, registers.get(src), payload, roots)
                elif not holds_step(op, src, payload, registers):
                    return index
            except Exception as e:  # any exception in a guard is a miss
                let_pass(e)
                return index
        return -1


def validate(n_roots: int, steps: Sequence[Step], outputs: Iterable[int]) -> None:
    """Raises ValueError for a program that writes a register twice, reads one before it is written, or reads a missing root."""
    written: set[int] = set()
    for op, dst, src, payload in steps:
        if op not in ACCESS and op not in CHECKS:
            raise ValueError(f"unknown guard step {op!r}")
        reads = set() if op in SOURCELESS else {src}
        if op == "same":
            reads.add(payload)
        elif op == "distinct":
            reads.update(*payload)
        elif op == "storages":
            reads.update(payload[0])
        elif op == "relation":
            leaves, code, _ = payload
            reads.update(register for _, register, _ in leaves)
            if not all(kind in ("number", "offset") or (kind in ("size", "stride") and index >= 0) for kind, _, index in leaves):
                raise ValueError("a relation has a leaf of no known kind")
            check_code(code, len(leaves))
        if not written.issuperset(reads):
            raise ValueError(f"guard step {op!r} reads a register that is not written before it")
        if op == "root" and not 0 <= payload < n_roots:
            raise ValueError(f"there is no root {payload}")
        if op in ACCESS:
            if not 0 <= dst < len(steps) or dst in written:
                raise ValueError(f"guard step {op!r} has a bad or used destination: {dst}")
            written.add(dst)
    if not written.issuperset(outputs):
        raise ValueError("an output register is never written")


def read_step(op: str, value: Any, payload: Any, roots: tuple) -> object:
    """Returns the value that an access step reads; raises if there is none."""
    match op:
        case "root":
            return roots[payload]
        case "pin":
            return payload
        case "dict":
            return raw_dict(value)
        case "key":
            found = dict.get(value, payload, _ABSENT)
            if found is _ABSENT:
                raise KeyError(payload)
            return found
        case "index":
            if payload < 0:
                raise IndexError(payload)
            base: Any = next(t for t in (tuple, list, deque) if is_a(value, t))
            return base.__getitem__(value, payload)
        case "cell":
            if type(value) is not CellType:
                raise TypeError("not a cell")
            return value.cell_contents
        case "member":
            if value is None:  # __get__ would read from the class
                raise TypeError("None has no members")
            return type(payload).__get__(payload, value, type(value))
        case "type_attr":
            found = raw_type_attr(*payload)
            if found is _ABSENT:
                raise AttributeError(payload[1])
            return found
    raise ValueError(op)


def holds_step(op: str, src: int, payload: Any, registers: dict[int, object]) -> bool:
    """Returns whether a check step passes."""
    value: Any = registers.get(src)
    match op:
        case "is":
            return value is payload
        case "type":
            return type(value) is payload
        case "eq":
            return same_constant(value, payload)
        case "len":
            return bool(raw_len(value) == payload)
        case "keys":
            keys = list(OrderedDict.keys(value) if is_a(value, OrderedDict) else dict.keys(value))
            return len(keys) == len(payload) and all(map(same_constant, keys, payload))
        case "absent":
            return not dict.__contains__(value, payload)
        case "type_lacks":
            return raw_type_attr(*payload) is _ABSENT
        case "function":
            if type(value) is not FunctionType:
                return False
            code, defaults, kwdefaults = payload
            return value.__code__ is code and value.__defaults__ is defaults and value.__kwdefaults__ is kwdefaults
        case "same":
            return value is registers[payload]
        case "distinct":
            return repeated(payload, registers) is None
        case "tensor":
            return is_a(value, torch.Tensor) and tensor_agrees(payload, tensor_facts(value))
        case "storages":
            numbers, pattern = payload
            tensors = [registers[number] for number in numbers]
            storages = [storage_of(t) or ("tensor", id(t)) for t in tensors]
            return all([is_a(t, torch.Tensor) for t in tensors]) and [storages.index(storage) for storage in storages] == list(pattern)
        case "ambient":
            return bool(ambient_facts() == payload)
        case "weak":
            return value is not None and bool(payload() is value)
        case "set_eq":
            return same_constant(raw_set(value), payload)
        case "predicate":
            return bool(payload[0](value))
        case "relation":
            leaves, code, _ = payload
            return bool(run(code, [read_leaf(leaf, registers) for leaf in leaves]))
    raise ValueError(op)


def repeated(payload: tuple[tuple[int, ...], tuple[int, ...]], registers: Mapping[int, object]) -> int | None:
    """Returns a register whose object makes a ``distinct`` step fail; None if the step passes."""
    ones, others = payload
    seen = IdentitySet()
    for reg in ones:
        if registers[reg] in seen:
            return reg
        seen.add(registers[reg])
    return next((reg for reg in others if registers[reg] in seen), None)


def read_leaf(leaf: tuple[str, int, int], registers: Mapping[int, object]) -> int | float:
    """Returns the number that a leaf of a relation reads; raises if the stack machine cannot represent it."""
    kind, register, index = leaf
    found: Any = registers[register]
    if kind != "number":
        found = tensor_number(found, kind, index)
    if not is_integer(found) and not (kind == "number" and type(found) is float):
        raise TypeError("not a number")
    return found


def raw_dict(value: object) -> dict:
    """Returns the ``__dict__`` of an instance, module or function, without calling a class that overrides it."""
    if is_a(value, threading.local):  # one dict per thread, stored elsewhere than that of other instances
        local: dict = threading.local.__getattribute__(value, "__dict__")
        return local
    for klass in _MRO.__get__(type(value)):
        found = _TYPE_DICT.__get__(klass).get("__dict__")
        if is_a(found, (GetSetDescriptorType, MemberDescriptorType)):
            result = found.__get__(value, type(value))
            if is_a(result, dict):
                return result
    raise TypeError(f"{type(value).__name__} has no instance dict")


def raw_type_attr(klass: type, name: str) -> object:
    """Returns the attribute ``name`` from the MRO, not bound; a private marker if there is none."""
    for base in _MRO.__get__(klass):
        found = _TYPE_DICT.__get__(base).get(name, _ABSENT)
        if found is not _ABSENT:
            return found
    return _ABSENT


SIZED: tuple = (list, tuple, dict, set, frozenset, deque)


def raw_len(value: object) -> int:
    """Returns the length as C sees it, even if a subclass defines ``__len__``."""
    for builtin in SIZED:
        if is_a(value, builtin):
            return int(builtin.__len__(value))
    raise TypeError(f"no raw length for {type(value).__name__}")


class Length(property):
    """A descriptor of the length of a list, tuple, dict, set or deque, for sources of lengths that are symbolic."""

    __name__ = "__len__()"
    MEMBER_TEXTS = MappingProxyType({"": "len({of})"})


LENGTH = Length(raw_len)


# A set with more elements is compared by C if all of them are texts.
FEW_NAMES = 4
_NAMES = frozenset({str})


def raw_set(value: Any) -> frozenset:
    """Returns the elements of a set or frozenset, even if a subclass defines ``__iter__``."""
    elements = set.__iter__(value) if is_a(value, set) else frozenset.__iter__(value)
    return frozenset(elements)


def same_constant(a: object, b: object) -> bool:
    """Returns whether type and value are equal; floats are compared bit by bit, and types count inside containers too."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    # Thousands of names, such as those of all modules that a library has seen: 0.2 ms by C's comparison, 6 ms by keys.
    if type(a) is frozenset and len(a) > FEW_NAMES and _holds_names(a) and _holds_names(b):  # type: ignore[arg-type]
        return a == b
    return constant_key(a) == constant_key(b)


def _holds_names(elements: frozenset) -> bool:
    return set(map(type, elements)) == _NAMES


def constant_key(value: Any) -> tuple:
    """Returns a key; the keys of two constants are equal exactly if no program can distinguish the constants."""
    if type(value) is float:
        return (float, struct.pack("<d", value))
    if is_a(value, np.generic):
        return (type(value), value.tobytes())
    if type(value) is complex:
        return (complex, struct.pack("<dd", value.real, value.imag))
    if is_a(value, tuple):
        return (type(value), tuple([constant_key(item) for item in tuple.__iter__(value)]))
    if is_a(value, frozenset):
        return (type(value), frozenset([constant_key(item) for item in frozenset.__iter__(value)]))
    if is_a(value, Tensor):
        # Tensors may be keys of a dict; == would run an operator.
        return (type(value), id(value))
    if type(value) in (slice, range):
        return (type(value), constant_key(value.start), constant_key(value.stop), constant_key(value.step))
    return (type(value), value)


def explain_failure(step: Step, value: object, registers: Mapping[int, object] | None = None) -> tuple[Change, ...]:
    """Returns why ``step`` failed, for the value of its source register (None if it has none) and all registers written before it."""
    op, _, _, payload = step
    match op:
        case "tensor" if is_a(value, torch.Tensor):
            return describe_difference(payload, tensor_facts(value))
        case "ambient":
            return describe_difference(payload, ambient_facts())
    return (_change_of(op, payload, value, registers or {}),)


def _change_of(op: str, payload: Any, value: object, registers: Mapping[int, object]) -> Change:
    match op:
        case "tensor":
            return Change("", f"a {class_name(payload)}", value_text(value))
        case "is" | "eq" | "set_eq":
            return _change(payload, value)
        case "type":
            return _change(payload, type(value))
        case "weak":
            return _change(payload(), value)
        case "len" if is_a(value, SIZED):
            return Change("length", str(payload), str(raw_len(value)))
        case "keys" if is_a(value, dict):
            old, new = value_text(list(payload)), value_text(list(dict.keys(value)))
            return Change("keys", old, new) if old != new else _state(f"other objects as keys, {new}")
        case "key" | "type_attr":
            return _state("it is gone")
        case "absent":
            return _state(f"{value_text(payload)} is there now")
        case "type_lacks":
            return _state("it is defined now")
        case "function":
            was, text = f"function {payload[0].co_qualname}", value_text(value)
            return Change("", was, text) if text != was else _state(f"other code or defaults of {text}")
        case "same":
            return _state(f"which objects are one changed, for {value_text(value)}")
        case "distinct":
            reg = repeated(payload, registers)
            return _state(f"which objects are one changed, for {value_text(registers.get(-1 if reg is None else reg))}")
        case "storages":
            return _state("which tensors share memory changed")
        case "predicate":
            return _state(f"no longer true: {payload[1]}; it is {value_text(value)}")
        case "relation":
            numbers = [_leaf_text(leaf, registers) for leaf in payload[0]]
            found = f", and {'it is' if len(numbers) == 1 else 'they are'} {', '.join(numbers)}" if numbers else ""
            return _state(f"{payload[2]}{found}")
    return _state(f"{value_text(value)} does not have it")


def _state(now: str) -> Change:
    """Returns a change that is told by what there is now."""
    return Change("", "", now)


def _leaf_text(leaf: tuple[str, int, int], registers: Mapping[int, object]) -> str:
    try:
        return str(read_leaf(leaf, registers))
    except Exception as e:  # the value is not a number, or not a tensor with that dimension
        let_pass(e)
        return value_text(registers.get(leaf[1]))


def _change(before: object, now: object) -> Change:
    """Describes a change from one value to another; if both have the same text, says that they are two objects."""
    old, new = value_text(before), value_text(now)
    return Change("", old, new if old != new else f"another {new.removeprefix('an ').removeprefix('a ')}")
