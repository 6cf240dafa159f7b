"""The sizes and numbers that vary at an entry point: by mark, by option, or because they have changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, StrictMinMaxConstraint
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from fineline.bytecode.asynchronous import let_pass
from fineline.codegen.programs import ResidualProgram
from fineline.fake.fake_tensors import unwarned
from fineline.fx.output_fixups import as_plain
from fineline.guards.evaluate import LENGTH, SIZED, raw_len, read_leaf, read_step
from fineline.guards.facts import tensor_facts
from fineline.guards.postfix import LEAST_INTEGER, MOST_INTEGER, run
from fineline.guards.source import Source, member_text
from fineline.guards.steps import ACCESS, Step
from fineline.kinds import is_a, is_wrapper_class, taken_as_it_is
from fineline.policy.dim_marks import DIMS, Mark
from fineline.torch_facts.wrapper_subclasses import InnerTensor, is_jagged
from fineline.tracing.identity_guards import DequeLength
from fineline.tracing.plain_values import LAZY

# By type of a value in a container that differs from call to call: its word in `DynamicDims.unsteady`.
HELD: Mapping[type, str] = MappingProxyType({int: "numbers", float: "numbers", str: "texts", bytes: "texts"})


class Dim(NamedTuple):
    """A size that varies. ``marked``: by the user, so that it is an error if the code needs it to be a constant."""

    kind: Any
    constraint: Any = None
    marked: bool = False


# The kinds of values that vary: numbers; texts and bytes; floats, but no ints; and the first sizes of tensors, also of those in a tuple or list.
KINDS = ("numbers", "texts", "floats", "rows")
# The inner tensors of one with a ragged dimension whose first size depends on all lengths.
RAGGED = frozenset({"_values", "_min_seqlen_tensor", "_max_seqlen_tensor"})
CHANGED = Dim(DimDynamic.DYNAMIC)
DUCK = Dim(DimDynamic.DUCK)


class DynamicDims:
    """The values that vary. ``dynamic``, the region's option: None for changed and marked ones, True for all, False for marked ones."""

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._sizes: dict[str, set[int]] = {}
        self._strides: dict[str, set[int]] = {}
        # The names of what varies, by kind: see `KINDS`.
        self._varying: dict[str, set[str]] = {kind: set() for kind in KINDS}
        # The containers whose "length" or "keys" have changed, or only the "numbers" or "texts" in them.
        self.unsteady: dict[str, str] = {}
        # The live values after a graph break for which the tables above are complete.
        self._exact: set[str] = set()
        # Whether floats may vary; and the floats that the backend accepts only as constants.
        self.floats = True
        self.fixed: set[str] = set()
        # The guards of the newest program here, and the names of its arguments. Not the program, which in a loop refers to this object.
        self._newest: tuple = ((), ())
        self._names: tuple = ()

    def follow_option(self, dynamic: bool | None) -> None:
        """Takes the new value of the region's option ``dynamic``."""
        self.dynamic = dynamic

    def copy(self) -> DynamicDims:
        """Returns the values that vary here, for the same place in the region of an equal callable."""
        other = DynamicDims(self.dynamic)
        other._sizes, other._strides = ({name: set(dims) for name, dims in table.items()} for table in (dict(self._sizes), dict(self._strides)))
        other._varying = {kind: set(names) for kind, names in self._varying.items()}
        other._exact, other.fixed = set(self._exact), set(self.fixed)
        other.unsteady, other.floats = dict(self.unsteady), self.floats
        return other

    def compare_result(self, steps: Iterable[Step], result: Any, at: int) -> None:
        """Notes that the ``result`` of an eager call, which is root number ``at``, varies if a program of an equal callable is for another one."""
        if self.dynamic is False or type(result) not in (*LAZY, str, bytes):
            return
        register = next((dst for op, dst, _, payload in steps if op == "root" and payload == at), None)
        known = [payload for op, _, reg, payload in steps if op == "eq" and reg == register]
        if any([type(n) is type(result) and n != result for n in known]):
            (self._varying["numbers"] if type(result) in LAZY else self.texts).add("result")

    def keep_floats(self) -> None:
        """Makes all floats constants."""
        self.floats = False

    def captured(self, segment: ResidualProgram, names: tuple) -> None:
        """Notes a new program that starts here, with arguments of these names."""
        self._newest, self._names = (segment.steps, segment.reads.sources), names

    def symbolic(self, roots: tuple, names: tuple) -> bool:
        """Returns whether some of the values found in these ``roots`` may be symbols."""
        if self.dynamic or self._sizes or self._strides or DIMS:
            return True
        # A graph break often turns a number or text that varies into a module or another text, which cannot be symbols.
        others = set(names) - {name for name, v in zip(names, roots, strict=True) if type(v) in LAZY}
        return not self._varying["numbers"] <= others or self._is_expected(roots, names)

    def _is_expected(self, roots: tuple, names: tuple) -> bool:
        """Returns whether a value among these ``roots`` varies by what `expect` has noted, before it has been seen to."""
        floats, rows = self._varying["floats"], self._varying["rows"]
        if not floats and not rows:
            return False
        return any([(type(v) is float and name in floats) or (name in rows and _holds_rows(v)) for name, v in zip(names, roots, strict=True)])

    def varies(self, roots: tuple, names: tuple) -> bool:
        """Returns whether a value among these ``roots``, which come from a graph break, has been seen to vary, texts included, or is expected to."""
        return self.found or bool(self.texts) or self._is_expected(roots, names)

    @property
    def found(self) -> bool:
        """Returns whether a size, stride or number has been seen to vary."""
        return bool(self._sizes or self._strides or self._varying["numbers"])

    @property
    def texts(self) -> set[str]:
        """Returns the names of the texts and bytes that vary after a graph break."""
        return self._varying["texts"]

    def expect(self, name: str, kinds: Iterable[str]) -> None:
        """Notes that a live value after a graph break varies if it is of one of these `KINDS`."""
        if self.dynamic is not False:
            for kind in kinds:
                self._varying[kind].add(name)

    def dims(self, src: Source, t: Tensor) -> Mapping[int, Dim]:
        """Returns the sizes of a tensor that vary."""
        marks, held = _marks(src, t), is_a(t, torch.nn.Parameter)
        t = as_plain(t)
        if not _has_symbolic_fake(t):
            return {}
        held = held or _belongs_to_module(src)
        everything = self.dynamic and src.text() not in self._exact
        # AOTAutograd miscounts the symbols that a backward pass needs, if the sizes inside of a tensor with a ragged dimension share one.
        apart = src.parent is not None and is_jagged(src.parent.value)
        dims: dict[int, Dim] = {}
        for d in range(t.dim()):
            mark = marks.get(d)
            if mark is not None and mark.kind in MARKED:
                # PyTorch's own marks have not been checked, and a tensor may have been resized.
                mark.check(t.shape[d], d)
                dims[d] = MARKED[mark.kind](mark)
            elif mark is not None or held:
                continue
            elif everything or (apart and d == 0 and self.dynamic is None and src.key.at in RAGGED):
                dims[d] = CHANGED if apart else DUCK
        for d in (*self._sizes.get(src.text(), ()), *self._sizes_by_data(src)):
            if d < t.dim() and d not in dims and marks.get(d, Mark("")).kind != "static":
                dims[d] = DUCK if self.dynamic and not apart else CHANGED
        return dims

    def _sizes_by_data(self, src: Source) -> tuple[int, ...]:
        """Returns the sizes of a tensor that data decides."""
        if not self._varying["rows"]:
            return ()
        whole = src.parent if src.op == "index" and src.parent is not None else src
        return (0,) if whole.op == "root" and whole.text() in self._varying["rows"] else ()

    def loose(self, src: Source, t: Tensor) -> frozenset[int]:
        """Returns the sizes that vary of a tensor without a symbolic fake: a sparse one, or one of a class that overrides the dispatch of operators."""
        t = as_plain(t)
        if _is_plain(t) and t.layout is torch.strided:
            return frozenset()
        return frozenset(self._sizes.get(src.text(), ()))

    def strides(self, src: Source, t: Tensor) -> frozenset[int]:
        """Returns the strides of a tensor that vary independently of its sizes."""
        t = as_plain(t)
        return frozenset([d for d in self._strides.get(src.text(), ()) if d < t.dim() and not t.is_nested])

    def number(self, src: Source, v: int | float) -> bool:
        """Returns whether the number ``v`` that comes from ``src`` varies."""
        if type(v) is float and (not self.floats or src.text() in self.fixed or v == 0 or not math.isfinite(v)):
            return False
        if type(v) is int and not LEAST_INTEGER <= v <= MOST_INTEGER:
            return False
        if type(v) is float and src.text() in self._varying["floats"]:
            return True
        return src.text() in self._varying["numbers"] or (bool(self.dynamic) and src.op == "root" and src.text() not in self._exact)

    def length(self, src: Source) -> bool:
        """Returns whether the length of a container that comes from ``src`` varies, and the code does not read all items."""
        return member_text(LENGTH, src.text()) in self._varying["numbers"]

    def add(self, name: str, dims: Set[int] = frozenset(), number: bool = False) -> None:
        """Notes that exactly these sizes of a live value after a graph break vary, or that it is a ``number`` that varies."""
        self._exact.add(name)
        if dims:
            self._sizes.setdefault(name, set()).update(dims)
        if number:
            self._varying["numbers"].add(name)

    def differ(self, names: Iterable[str]) -> None:
        """Notes that the numbers with these names vary from one iteration of a loop to the next."""
        self._varying["numbers"].update(names)

    def observe(self, roots: tuple, names: tuple) -> None:
        """Notes the sizes and numbers in which a call that fits no program differs from the one that the newest program was captured for."""
        # Without a program there is nothing to compare with.
        if self.dynamic is False or not self._newest[0]:
            return
        if names != self._names:
            given = dict(zip(_with_occurrence(names), roots, strict=True))
            roots = tuple([given.get(name) for name in _with_occurrence(self._names)])
        # A read may warn, for example of the gradient of a tensor that is not a leaf.
        with unwarned():
            self._compare_all(roots)

    def _compare_all(self, roots: tuple) -> None:
        registers: dict[int, Any] = {}
        sources: dict[int, Source] = {}
        read: Counter[int] = Counter()
        lengths: dict[int, int] = {}
        keys: dict[int, tuple] = {}
        resized: set[str] = set()
        steps, all_sources = self._newest
        for op, dst, reg, payload in steps:
            if op in ACCESS:
                read[reg] += op != "type_attr"
                try:
                    registers[dst] = read_step(op, registers.get(reg), payload, roots)
                except Exception as e:  # whatever goes wrong in a guard, there is no value
                    let_pass(e)
                    continue
            elif op in ("len", "keys", "set_eq") or (op == "predicate" and type(payload[0]) is DequeLength):
                lengths[reg] = payload if op == "len" else payload[0].n if op == "predicate" else len(payload)
                if op == "keys" and all([type(key) is str for key in payload]):
                    keys[reg] = payload
            elif op == "relation":
                self._relate(payload, registers, sources, resized)
            elif reg not in registers:
                continue
            elif op == "tensor" and is_a(registers[reg], Tensor):
                src = sources[reg] = all_sources[reg]
                if self._compare(src, payload, registers[reg]):
                    resized.add(src.text())
            elif op == "eq" and type(registers[reg]) is type(payload) and registers[reg] != payload:
                src = all_sources[reg]
                if src.op in ("index", "key", "member") and src.parent is not None and type(payload) in HELD:
                    self.unsteady.setdefault(src.parent.text(), HELD[type(payload)])
                if type(payload) in (int, float):
                    self._varying["numbers"].add(src.text())
                elif type(payload) in (str, bytes) and (src.op == "root" or (src.op == "index" and src.parent is not None and src.parent.op == "root")):
                    self.texts.add(src.text())

        for reg, n in lengths.items():
            if reg not in registers or not is_a(registers[reg], SIZED):
                continue
            text = all_sources[reg].text()
            if raw_len(registers[reg]) == n:
                if reg in keys and is_a(registers[reg], dict) and not all([dict.__contains__(registers[reg], key) for key in keys[reg]]):
                    self.unsteady.setdefault(text, "keys")
                continue
            self.unsteady[text] = "length"
            # If all items are read, each length has a program of its own in any case.
            if n > read[reg]:
                self._varying["numbers"].add(member_text(LENGTH, text))

    def _compare(self, src: Source, known: Any, t: Tensor) -> bool:
        """Notes the sizes, or else the strides, in which a tensor differs; returns whether a size does."""
        now = tensor_facts(t)
        if len(now.sizes) != len(known.sizes) or is_a(t, torch.nn.Parameter) or tuple in map(type, now.sizes):
            return False
        changed = {d for d, (a, b) in enumerate(zip(known.sizes, now.sizes, strict=True)) if a is not None and a != b}
        if changed:
            self._sizes.setdefault(src.text(), set()).update(changed)
        elif known.strides is not None and now.strides is not None:
            self._stride(src, t, [d for d, (a, b) in enumerate(zip(known.strides, now.strides, strict=True)) if a is not None and a != b])
        return bool(changed)

    def _relate(self, relation: Any, registers: dict, sources: dict, resized: set[str]) -> None:
        """Notes the strides that vary independently, because they no longer follow from the sizes."""
        strides = [leaf for leaf in relation.leaves if leaf.kind == "stride" and leaf.register in sources]
        strides = [leaf for leaf in strides if sources[leaf.register].text() not in resized]
        try:
            if not strides or run(relation.code, [read_leaf(leaf, registers) for leaf in relation.leaves]):
                return
        except Exception as e:  # no value, as above
            let_pass(e)
            return
        for leaf in strides:
            self._stride(sources[leaf.register], registers[leaf.register], [leaf.at])

    def _stride(self, src: Source, t: Tensor, dims: list[int]) -> None:
        # The place of a stride of one shows the order of the memory, for which each program is specialized.
        t = as_plain(t)
        found = {d for d in dims if t.stride(d) > 1}
        if found:
            self._strides.setdefault(src.text(), set()).update(found)


def _holds_rows(v: Any) -> bool:
    """Returns whether a value is a tensor, or tensors in a tuple or list, with more than one row, so that the number may be a symbol."""
    parts = v if type(v) in (tuple, list) else (v,)
    return any([type(t) is Tensor and t.layout is torch.strided and t.dim() > 0 and t.shape[0] > 1 for t in parts])


def _is_plain(t: Tensor) -> bool:
    return type(t) in (Tensor, torch.nn.Parameter) or taken_as_it_is(type(t)) or is_wrapper_class(type(t))


def _has_symbolic_fake(t: Tensor) -> bool:
    return _is_plain(t) and t.layout is torch.strided and not t.is_nested


def _marks(src: Source, t: Tensor) -> Mapping[int, Mark]:
    """Returns the marks of a tensor. Those of an inner tensor are its class's: the user asks for no error if the code needs a constant."""
    marks = DIMS.of(t)
    if src.op != "member" or not is_a(src.key, InnerTensor):
        return marks
    marks = {d: mark._replace(kind="maybe") if mark.kind == "dynamic" else mark for d, mark in marks.items()}
    return dict.fromkeys(t.__dict__.get("_dynamo_propagated_dynamic_indices", ()), Mark("maybe")) | marks


def _marked(mark: Mark) -> Dim:
    if mark.min is None and mark.max is None:
        return Dim(DimDynamic.DYNAMIC, None, True)
    span = ValueRanges(lower=0 if mark.min is None else mark.min, upper=int_oo if mark.max is None else mark.max)
    return Dim(DimDynamic.DYNAMIC, StrictMinMaxConstraint(vr=span, warn_only=False), True)


MARKED: Mapping[str, Any] = MappingProxyType(
    {"dynamic": _marked, "maybe": lambda mark: CHANGED, "unbacked": lambda mark: Dim(DimDynamic.UNBACKED, None, True)}
)


def marked(values: Any, ragged: bool, within: tuple[int, ...] = ()) -> bool:
    """Returns whether PyTorch's own marks are on a tensor among ``values``, or in containers among them (``within`` others).

    ``ragged``: whether a ragged dimension is as good as marked. It has another length in nearly every batch.
    """
    for v in values:
        if type(v) is Tensor:
            if v.__dict__ and DIMS.of(v):
                return True
        elif ragged and is_jagged(v):
            return True
        elif type(v) in (list, tuple, dict) and len(v) < 100 and id(v) not in within:
            if marked(v.values() if type(v) is dict else v, ragged, (*within, id(v))):
                return True
    return False


def _with_occurrence(names: tuple) -> list[tuple[Any, int]]:
    """Returns each name with the number of its earlier occurrences."""
    return [(name, names[:i].count(name)) for i, name in enumerate(names)]


def _belongs_to_module(src: Source) -> bool:
    parent = src.parent
    return parent is not None and parent.op == "key" and parent.key in ("_parameters", "_buffers")
