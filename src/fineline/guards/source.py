"""Where a value comes from, as a path of guard steps from a call's arguments and pinned objects."""

from __future__ import annotations

from collections.abc import Iterable
from types import GetSetDescriptorType, MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch

from fineline.bytecode.code import CodeInfo
from fineline.guards.facts import TensorFacts
from fineline.guards.relation import Relation
from fineline.guards.steps import Step
from fineline.guards.texts import value_text
from fineline.identity import AddressMap
from fineline.kinds import is_a

_CONSTANT_KEYS = (str, int, float, bool, bytes, type(None))
# The most characters of a key in a text.
MOST_OF_KEY = 200
# The objects with such sources are the same at each call of one region. Other regions may run its programs for another "instance".
LASTING = frozenset({"pin", "instance"})
_TYPE_DICT: GetSetDescriptorType = type.__dict__["__dict__"]
# The dicts in which a module stores its submodules, parameters and buffers by name.
MODULE_TABLES = ("_modules", "_parameters", "_buffers")
# Never written to: a source that has children has a dict of its own.
_NO_CHILDREN: dict[object, Source] = {}
_NO_CHECKS: Any = frozenset()


class Source:
    """One access path; ``reg`` is the register that holds its value when the guard program runs."""

    __slots__ = ("checked", "children", "key", "op", "parent", "reg", "value")

    def __init__(self, reg: int, parent: Source | None, op: str, key: Any, value: Any) -> None:
        self.reg = reg
        self.parent = parent
        self.op = op
        self.key = key
        self.value = value
        # Most sources have no children and few checks: a table is made for the first entry.
        self.children: dict[object, Source] = _NO_CHILDREN
        self.checked: set[object] = _NO_CHECKS

    def variable(self) -> str | None:
        """Returns the name of the variable in a function's closure cell, or None. `close` ends this: it forgets the function."""
        closure = self.parent
        function = closure.parent.value if self.op == "index" and closure is not None and closure.parent is not None else None
        code = getattr(function, "__code__", None)
        return code.co_freevars[self.key] if code is not None else None

    def text(self) -> str:
        """Returns the path as a user would write it."""
        op, parent = self.op, self.parent
        if op == "root" or op in LASTING:
            return str(self.key)
        if op == "type_attr":
            return f"{self.key[0].__qualname__}.{self.key[1]}"
        assert parent is not None
        if op == "dict":
            return f"{parent.text()}.__dict__"
        if op == "key":
            if parent.op == "dict" and parent.parent is not None and is_a(self.key, str):
                return f"{parent.parent.text()}.{self.key}"
            if parent.key in MODULE_TABLES and parent.parent is not None and parent.parent.parent is not None:
                return f"{parent.parent.parent.text()}.{self.key}"
            return f"{parent.text()}[{value_text(self.key, MOST_OF_KEY)}]"
        if op == "index":
            return f"{parent.text()}[{self.key}]"
        if op == "cell":
            return self.key or f"{parent.text()}.cell_contents"
        return member_text(self.key, parent.text())


def member_text(descriptor: object, of: str) -> str:
    """Returns the text of a member. If its class is fineline's own, ``MEMBER_TEXTS`` has the text for users."""
    name = getattr(descriptor, "__name__", "?")
    texts = _TYPE_DICT.__get__(getattr(descriptor, "__objclass__", type(descriptor))).get("MEMBER_TEXTS")
    text = texts.get(name, texts.get("")) if is_a(texts, MappingProxyType) else None
    return f"{of}.{name}" if text is None else str(text).format(of=of, at=getattr(descriptor, "at", 0))


def root_of(src: Source) -> Source:
    """Returns the source that a path begins with."""
    while src.parent is not None:
        src = src.parent
    return src


class NumberedMember(NamedTuple):
    """A descriptor for one of several values that an object gives, used as a member in a source; ``n`` distinguishes these."""

    n: int


class UnseenMember:
    """A member of a tensor, or a predicate about one: no ``__torch_function__`` sees the read, as none sees the other guards."""

    MEMBER_TEXTS = MappingProxyType({"": "{of}.{at}"})

    def __init__(self, read: Any) -> None:
        self._read = read
        self.__name__ = self.at = getattr(read, "__name__", "?")

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        with torch._C.DisableTorchFunction():
            return self._read.__get__(obj, cls)

    def __call__(self, value: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return self._read(value)


class Position(Protocol):
    """A frame, as far as reads are noted: the instruction that it is at."""

    @property
    def info(self) -> CodeInfo | None: ...
    @property
    def ip(self) -> int: ...


class Reader(Protocol):
    """An interpreter, whose instructions read what guards check."""

    @property
    def frame(self) -> Position | None: ...
    def fail(self, error: str, text: str, hint: bool) -> None: ...


class _Nowhere:
    """Replaces the interpreter of a capture that has ended."""

    frame = None

    def fail(self, error: str, text: str, hint: bool) -> None:
        pass


_NOWHERE = _Nowhere()


class _NoFrame:
    """The frame of guard steps that belong to no instruction."""

    info, ip = None, 0


_NO_FRAME: Position = _NoFrame()


class Reads:
    """The sources by their registers, and the instruction that made each guard step.

    Lists in parallel, without a tuple for each step: a call with 85 graph breaks has 24,000, and the garbage collector visits each object.
    """

    __slots__ = ("infos", "ips", "sources")

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.infos: list[CodeInfo | None] = []
        self.ips: list[int] = []

    def source(self, step: Step) -> Source | None:
        """Returns the source that ``step`` reads or checks; the first of several; None if there is none."""
        op, reg, parent, payload = step
        if op == "relation" and payload.leaves:
            reg = payload.leaves[0].register
        elif op == "distinct":
            reg = payload[0][0]
        reg = reg if reg >= 0 else parent
        return self.sources[reg] if reg >= 0 else None

    def place(self, at: int) -> tuple[CodeInfo, int] | None:
        """Returns the code and the instruction that need step number ``at``, or None."""
        info = self.infos[at]
        return None if info is None else (info, self.ips[at])


class GuardBuilder:
    """Collects guard steps in the order of the reads that need them, each once."""

    def __init__(self, interp: Reader) -> None:
        self.steps: list[Step] = []
        self.reads = Reads()
        self.interp: Any = interp
        # Addresses are safe, because guards hold the pinned objects.
        self._pins: AddressMap[Source] = AddressMap()
        self._roots: dict[int, Source] = {}
        self._type_attrs: dict[tuple[int, str], Source] = {}
        self._lacks: set[tuple[int, str]] = set()
        self._distinct: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        # The number of the step for the region's own instance; -1 if there is none.
        self.instance_at = -1
        # Whether a function mode may be on when the guards are evaluated.
        self.seen = False
        # The facts of tensors, by their registers.
        self.tensors: dict[int, TensorFacts] = {}

    def close(self) -> None:
        """Ends reading: cuts the references between sources and to the interpreter, because they would be cycles.

        Nodes of graphs may refer to sources, and only a garbage collection frees graphs: sources must not keep user objects alive.
        """
        self.interp = _NOWHERE
        for src in self.reads.sources:
            src.children, src.checked, src.value = _NO_CHILDREN, _NO_CHECKS, None

    def _add(self, step: Step, placed: bool = True) -> None:
        """Adds a guard step. ``placed``: the current instruction reads the value. `access` and `check`, which add most, do it themselves."""
        frame, reads = (placed and self.interp.frame) or _NO_FRAME, self.reads
        self.steps.append(step)
        reads.infos.append(frame.info)
        reads.ips.append(frame.ip)

    def _new(self, parent: Source | None, op: str, key: object, payload: object, value: object) -> Source:
        sources = self.reads.sources
        src = Source(len(sources), parent, op, key, value)
        sources.append(src)
        self._add((op, src.reg, parent.reg if parent is not None else -1, payload))
        return src

    def root(self, i: int, name: str, value: object) -> Source:
        src = self._roots.get(i)
        if src is None:
            src = self._roots[i] = self._new(None, "root", name, i, value)
        return src

    def roots(self) -> list[Source]:
        return [self._roots[i] for i in sorted(self._roots)]

    def pin(self, obj: object, name: str) -> Source:
        """Returns a source for an object that the program itself keeps alive."""
        src = self._pins.get(obj)
        if src is None:
            src = self._pins[obj] = self._new(None, "pin", name, obj, obj)
        return src

    def instance(self, obj: object, name: str) -> Source:
        """Returns a source for the object that the region's calls call, in whose place another region's programs may have another one.

        The steps have a pin for it, so that no call is slower, but a guard relies on its identity only if it says so.
        """
        assert self.instance_at < 0
        self.instance_at = len(self.steps)
        src = Source(len(self.reads.sources), None, "instance", name, obj)
        self.reads.sources.append(src)
        self._add(("pin", src.reg, -1, obj))
        return src

    def type_attr(self, cls: type, name: str, value: object) -> Source:
        src = self._type_attrs.get((id(cls), name))
        if src is None:
            src = self._type_attrs[(id(cls), name)] = self._new(None, "type_attr", (cls, name), (cls, name), value)
        return src

    def type_lacks(self, cls: type, name: str) -> None:
        if (id(cls), name) not in self._lacks:
            self._lacks.add((id(cls), name))
            self._add(("type_lacks", -1, -1, (cls, name)))

    def access(self, parent: Source, op: str, key: object, value: object) -> Source:
        """Returns the source of a value read from ``parent``; ``value`` is the current value."""
        if type(key) is str:
            ident: object = key if op == "key" else (op, key)
        elif op == "key":
            ident = (op, type(key), key) if type(key) in _CONSTANT_KEYS else (op, id(key))
        elif op == "member":
            ident = (op, id(key))
        else:
            ident = (op, key)
        children = parent.children
        src = children.get(ident)
        if src is None:
            frame, reads = self.interp.frame or _NO_FRAME, self.reads
            sources = reads.sources
            if self.seen and op == "member" and is_a(parent.value, torch.Tensor):
                key = UnseenMember(key)
            reg = len(sources)
            if children is _NO_CHILDREN:
                children = parent.children = {}
            src = children[ident] = Source(reg, parent, op, key, value)
            sources.append(src)
            self.steps.append((op, reg, parent.reg, key))
            reads.infos.append(frame.info)
            reads.ips.append(frame.ip)
        return src

    def check(self, src: Source, op: str, payload: Any, ident: object = None) -> None:
        """Adds a check of ``src``'s value, once per (op, ident)."""
        key = op if ident is None else (op, ident)
        checked = src.checked
        if key not in checked:
            if checked is _NO_CHECKS:
                src.checked = {key}
            else:
                checked.add(key)
            frame, reads = self.interp.frame or _NO_FRAME, self.reads
            if self.seen and op == "predicate" and is_a(src.value, torch.Tensor):
                payload = (UnseenMember(payload[0]), payload[1])
            self.steps.append((op, -1, src.reg, payload))
            reads.infos.append(frame.info)
            reads.ips.append(frame.ip)

    def tensor(self, src: Source, facts: TensorFacts) -> None:
        """Adds a check of a tensor's facts, once."""
        if "tensor" not in src.checked:
            self.tensors[src.reg] = facts
            self.check(src, "tensor", facts)

    def distinct(self, ones: Iterable[Source], others: Iterable[Source] = ()) -> None:
        """Adds a check, once, that ``ones`` are different objects, and that none is among ``others``."""
        payload = (tuple([src.reg for src in ones]), tuple([src.reg for src in others]))
        if payload[0] and len(payload[0]) + len(payload[1]) > 1 and payload not in self._distinct:
            self._distinct.add(payload)
            self._add(("distinct", -1, -1, payload))

    def relation(self, relation: Relation) -> None:
        """Adds a check of a relation between sizes and numbers in sources."""
        self._add(("relation", -1, -1, relation), placed=False)

    def storages(self, sources: list[Source], pattern: tuple[int, ...]) -> None:
        """Adds a check of which ``sources`` share memory; ``pattern``: for each, the first source that it shares memory with."""
        self._add(("storages", -1, -1, (tuple([src.reg for src in sources]), pattern)), placed=False)

    def ambient(self, facts: tuple) -> None:
        self._add(("ambient", -1, -1, facts))
