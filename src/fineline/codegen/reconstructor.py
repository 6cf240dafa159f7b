"""Source that rebuilds the objects that the captured code made: one expression or a few statements for each."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.codegen.reconstruct_builtins import MAKERS, iterator
from fineline.codegen.reconstruct_instances import exception, instance
from fineline.fake.fake_tensors import carry, own_attributes
from fineline.frames.graph_breaks import NotReconstructible
from fineline.fx.output_fixups import Remake, disowned, remake
from fineline.guards.facts import storage_of
from fineline.guards.relation import python_text, symbols_of
from fineline.guards.source import MODULE_TABLES, Source
from fineline.kinds import is_a
from fineline.objects.deferred_texts import call_of
from fineline.objects.iterator_stand_ins import KINDS, recipe_of
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.local_classes import CLASS_MEMBERS
from fineline.tracing.segment_trace import SINGLETONS, VALUES, SegmentTrace, is_value
from fineline.tracing.symbols import Carried

LONG = 2000  # bits
LITERALS = (type(None), bool, int, str, bytes, type(...))
# Names that the programs' own statements use.
RESERVED = frozenset({"result", "depth", "failure", "failed", "error", "random", "raised", "kept", "drawn", "program", "math", *dir(builtins)})


class Reconstructor:
    """Writes the statements that give a program its values; each object once, so that identity relations hold."""

    def __init__(self, trace: SegmentTrace) -> None:
        self.trace = trace
        self.lines: list[str] = []
        # What comes behind the writes to what was there before.
        self.late: list[str] = []
        self.params: dict[int, str] = {}
        self.param_sources: list[Source] = []
        self.constants: dict[str, Any] = {}
        self.outputs: list[tuple[Any, str]] = []
        self.remade: list[tuple[int, Remake]] = []
        # The outputs by the memory that they lie in.
        self.places: dict[int, list[int]] = {}
        self._constant_names: dict[int, str] = {}
        self._memo: dict[int, str] = {}
        self._kept: list[Any] = []
        self.busy: set[int] = set()
        # An output has no history, and no compiler may ask for it.
        self.disowned = False
        self._output_names: dict[Any, str] = {}
        self._used: set[str] = set(RESERVED)
        self._n = 0
        # The variables that random numbers are drawn into, by what stands for each in the capture.
        self.draws: dict[Any, str] = {s: self.fresh("draw") for s in trace.symbols.draws.of} if trace.symbols is not None else {}

    def close(self) -> None:
        """Lets go of the values: nothing more is written."""
        self._kept.clear()

    # -- names ---------------------------------------------------------------------------------------------------------

    def fresh(self, base: str) -> str:
        # Most are identifiers, and re.sub takes 2 us.
        name = base if base.isidentifier() and "_" not in (base[0], base[-1]) else re.sub(r"\W+", "_", base).strip("_") or "v"
        if name[0].isdigit() or keyword.iskeyword(name):
            name = "_" + name
        name = name[:60]
        stem = name
        while name in self._used:
            self._n += 1
            name = f"{stem}_{self._n}"
        self._used.add(name)
        return name

    @property
    def built(self) -> Set[int]:
        """Returns the objects that the program makes, by identity."""
        return self._memo.keys()

    def param(self, src: Source) -> str:
        """Returns the parameter of the program that the guard program's register for ``src`` is passed as."""
        name = self.params.get(src.reg)
        if name is None:
            name = self.params[src.reg] = self.fresh(short_name(src))
            self.param_sources.append(src)
        return name

    def constant(self, v: Any, base: str = "const") -> str:
        name = self._constant_names.get(id(v))
        if name is None:
            name = self._constant_names[id(v)] = self.fresh(base)
            self.constants[name] = v
        return name

    # -- values --------------------------------------------------------------------------------------------------------
    def expr(self, v: Any) -> str:
        """Returns an expression that gives ``v`` when the program runs."""
        trace = self.trace
        t = type(v)
        if trace.lazy and id(v) in trace.lazy:
            return self.param(trace.lazy[id(v)])
        if trace.texts and id(v) in trace.texts:
            return self._text(v)
        if t in SINGLETONS or (t in VALUES and t is not slice):
            return self._literal(v, t)
        if t in SYMBOLIC and trace.symbols is not None and getattr(v.node, "shape_env", None) is trace.symbols.shapes:
            return self._number(v)
        name = self._memo.get(id(v))
        if name is not None:
            return name
        if is_a(v, Tensor):
            return self._tensor(v)
        if t in CLASS_MEMBERS and v.__objclass__ in trace.classes:
            return self.member(v)
        local = v in trace.classes
        src = trace.sources.get(id(v))
        if src is not None:
            if src.op == "pin":
                return self.constant(v, short_name(src))
            if is_value(v) and t is not tuple and not local:
                return self.constant(v, getattr(v, "__name__", t.__name__))
            return self.param(src)
        if local and is_a(v, type):
            raise NotReconstructible(f"the class {v.__qualname__}, of unknown origin")
        if t is not tuple and is_value(v) and not local and not (t is frozenset and id(v) in trace.made):
            return self.constant(v, getattr(v, "__name__", t.__name__))
        if id(v) in self.busy:
            raise NotReconstructible(f"a {t.__name__} that is made of itself")
        self._kept.append(v)
        if id(v) in trace.bound:
            given = trace.bound[id(v)]
            get = self.constant(type(given[0]).__get__, "get")
            return self.statement("bound", f"{get}({self.items(given)})", v)
        make = MAKERS.get(t)
        if make is not None:
            return make(self, v)
        recipe = recipe_of(v)
        if recipe is not None:
            return iterator(self, v, recipe)
        if t in KINDS:
            raise NotReconstructible(f"a {KINDS[t].__qualname__} that is under way")
        return exception(self, v) if is_a(v, BaseException) else instance(self, v)

    def _literal(self, v: Any, t: type) -> str:
        if t is int and v.bit_length() > LONG:
            # Python refuses to write out the digits of very large numbers.
            return hex(v)
        if t in LITERALS or (t is float and math.isfinite(v)):
            return repr(v)
        return self.constant(v, t.__name__)

    def _number(self, v: Any) -> str:
        """Returns a symbolic number, computed from the sizes and numbers that the program is given."""
        names = {}
        term = self.trace.symbols.term(v)
        for symbol in symbols_of(term):
            if symbol in self.trace.symbols.draws.of:
                names[symbol] = self.draws[symbol]
                continue
            node = self.trace.symbols.leaf(symbol)
            if node is not None:
                names[symbol] = self._output(node)
                continue
            leaf = self.trace.symbols.leaves[symbol]
            name = self.param(leaf.source)
            names[symbol] = name if leaf.kind == "number" else f"{name}.{leaf.kind}({leaf.dim})"
        text = python_text(term, names)
        if "math." in text:
            self.constants["math"] = math
        return f"({text})"

    def _text(self, v: str) -> str:
        name = self._memo.get(id(v))
        if name is not None:
            return name
        fn, args = call_of(self.trace, v)
        return self.statement("text", f"{self.constant(fn, fn.__name__)}({self.call(args, {})})", v)

    def graph_input(self, src: Any) -> str:
        """Returns what the graph is given."""
        if type(src) is not Carried:
            return self.param(src)
        text = self.expr(src.value)
        return f"{self.constant(carry, 'carry')}({text})" if type(src.value) is torch.SymFloat else text

    def _tensor(self, v: Tensor) -> str:
        recorder = self.trace.recorder
        src = self.trace.sources.get(id(v))
        if src is not None:
            return self.param(src)
        if not recorder.known(v):
            raise NotReconstructible(f"a tensor of unknown origin, shape {tuple(v.shape)}")
        node = recorder.find(v)
        new = node not in self._output_names
        name = self._output(node)
        if new:
            if storage := storage_of(v):
                self.places.setdefault(storage, []).append(len(self.outputs) - 1)
            self.disowned = self.disowned or disowned(v)
            change = remake(v, self.trace.start_ambient.inference_mode, recorder.leaves)
            if change is not None:
                self.remade.append((len(self.outputs) - 1, change))
            own = {k: x for k, x in v.__dict__.items() if k not in own_attributes()} if type(v) is FakeTensor else v.__dict__
            if own:
                self.fill_dict(f"{name}.__dict__", own)
        return name

    def _output(self, node: Any) -> str:
        """Returns the variable for what a node of the graph gives."""
        name = self._output_names.get(node)
        if name is None:
            name = self._output_names[node] = self.fresh(str(node))
            self.outputs.append((node, name))
        return name

    def statement(self, base: str, text: str, v: Any) -> str:
        """Makes ``v``; -> its variable. One that what it is made of holds in turn was made with that."""
        if id(v) in self._memo:
            return self._memo[id(v)]
        name = self.fresh(base)
        self.lines.append(f"{name} = {text}")
        self._memo[id(v)] = name
        return name

    def items(self, items: Any) -> str:
        return ", ".join([self.expr(x) for x in items])

    def pack(self, items: Any) -> str:
        """Returns a tuple of them."""
        text = self.items(items)
        return f"({text},)" if text else "()"

    def pairs(self, v: dict) -> str:
        return ", ".join([f"{self.expr(k)}: {self.expr(x)}" for k, x in dict.items(v)])

    def call(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
        """Returns the arguments of a call."""
        named = [f"{k}={self.expr(x)}" if _plain(k) else f"**{{{k!r}: {self.expr(x)}}}" for k, x in kwargs.items()]
        return ", ".join([*[self.expr(x) for x in args], *named])

    def fill_dict(self, name: str, v: dict) -> None:
        if v:
            self.lines.append(f"{name}.update({{{self.pairs(v)}}})")

    def check_made(self, v: Any) -> None:
        if id(v) not in self.trace.made and not is_a(v, (tuple, frozenset)):
            raise NotReconstructible(f"a {type(v).__name__} of unknown origin")
        if self.trace.symbols is not None:
            self.trace.symbols.inlined.keep(v)

    def loose(self, v: Any) -> str:
        """Returns the expression of a container that ``__reduce__`` has just made; it counts as made in the capture."""
        if type(v) in (list, dict, set) and id(v) not in self.trace.sources:
            self.trace.made.add(id(v))
            self._kept.append(v)
        return self.expr(v)

    def known(self, v: Any) -> str | None:
        """Returns the variable of an object that the program has made already; None if there is none."""
        return self._memo.get(id(v))

    def forget(self, v: Any) -> None:
        """Forgets the object made for ``v``, so that other holders of ``v`` do not get it."""
        self._memo.pop(id(v), None)

    def name_part(self, v: Any, text: str) -> None:
        """Notes that ``text``, a part of a rebuilt object, is ``v``."""
        self._memo.setdefault(id(v), text)

    def member(self, descr: Any) -> str:
        """Returns a C descriptor; that of a class made by the call is the one of the class made by the program."""
        if descr.__objclass__ in self.trace.classes:
            return f"{self.expr(descr.__objclass__)}.__dict__[{descr.__name__!r}]"
        return self.constant(descr, descr.__name__)


def short_name(src: Source) -> str:
    """Returns a readable name for a program's parameter."""
    parts: list[str] = []
    node: Source | None = src
    while node is not None and len(parts) < 6:
        op, key = node.op, node.key
        if op == "key" or op == "index":
            if type(key) is str:
                if key not in MODULE_TABLES:
                    parts.append(key)
            else:
                parts.append(str(key) if is_a(key, (str, int)) else "item")
        elif op == "root" or op == "pin":
            parts.append(str(key))
        elif op == "type_attr":
            parts.append(f"{key[0].__name__}_{key[1]}")
        elif op != "dict":
            parts.append(getattr(key, "__name__", op))
        node = node.parent
    return "_".join(reversed(parts))


def _plain(name: str) -> bool:
    """Returns whether an argument can be named in source text, and is then called just that."""
    return type(name) is str and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
