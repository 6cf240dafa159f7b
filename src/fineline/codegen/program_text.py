"""The text of a program as it is written: its parameters, constants and variables, and the statements that make objects."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch.fx import Node

from fineline.codegen.value_walk import ValueWalk
from fineline.frames.graph_breaks import NotReconstructible
from fineline.fx.output_fixups import Remake
from fineline.guards.source import LASTING, MODULE_TABLES, Source
from fineline.identity import AddressMap, AddressSet
from fineline.kinds import is_a
from fineline.tracing.segment_trace import SegmentTrace

# Names that the programs' own statements use.
RESERVED = frozenset({"result", "depth", "modes", "failure", "failed", "error", "random", "raised", "kept", "drawn", "program", "math", *dir(builtins)})


class GraphOutputs:
    """The results of its graph that a program uses."""

    def __init__(self) -> None:
        # The variable of each result, in the order in which the graph returns them.
        self.names: dict[Node, str] = {}
        self.remade: list[tuple[Node, Remake]] = []
        # By the storage that they are in.
        self.places: dict[int, list[Node]] = {}
        # Whether PyTorch forbids to read the history of one of them, which compilers do.
        self.disowned = False
        # Whether one of them is a tensor of a transform of torch.func.
        self.transformed = False
        # Why AOTAutograd cannot give one of them; "" if it can.
        self.beyond_aot = ""


class ProgramText(ValueWalk[str]):
    """Statements that make the values of a program; each object is made once, so that identity relations hold."""

    def __init__(self, trace: SegmentTrace) -> None:
        super().__init__(trace)
        self.lines: list[str] = []
        # Statements after the writes to objects that existed before.
        self.late: list[str] = []
        self.params: dict[int, str] = {}
        self.param_sources: list[Source] = []
        self.constants: dict[str, Any] = {}
        self.outputs = GraphOutputs()
        # The objects whose statements are being written: an inner one is part of the outer ones.
        self.busy = AddressSet()
        # The variables of cells that get a class, by the class that is being written.
        self._open_cells: list[tuple[str, type]] = []
        # ``constants`` keeps the objects with a name here alive, and ``_kept`` the others that the program makes.
        self._constant_names: AddressMap[str] = AddressMap()
        self._kept: list[Any] = []
        self._used: set[str] = set(RESERVED)
        self._n = 0
        # The variables of random numbers, by the symbol of each in the capture.
        self.draws: dict[Any, str] = {s: self.fresh("draw") for s in trace.symbols.draws.of} if trace.symbols is not None else {}

    def close(self) -> None:
        """Drops the values, after the last statement is written."""
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
    def built(self) -> AddressSet:
        """Returns the objects that the program makes."""
        return self._memo.addresses()

    def param(self, src: Source) -> str:
        """Returns the parameter of the program that gets the guard program's register for ``src``."""
        name = self.params.get(src.reg)
        if name is None:
            name = self.params[src.reg] = self.fresh(short_name(src))
            self.param_sources.append(src)
        return name

    def constant(self, v: Any, base: str = "const") -> str:
        name = self._constant_names.get(v)
        if name is None:
            name = self._constant_names[v] = self.fresh(base)
            self.constants[name] = v
        return name

    def output(self, node: Node) -> str:
        """Returns the variable for the result of a node of the graph."""
        name = self.outputs.names.get(node)
        if name is None:
            name = self.outputs.names[node] = self.fresh(str(node))
        return name

    # -- statements ----------------------------------------------------------------------------------------------------
    def statement(self, base: str, text: str, v: Any) -> str:
        """Writes the statement that makes ``v``, and returns its variable. If a part of ``v`` contains ``v``, it is made already."""
        if v in self._memo:
            return self._memo[v]
        name = self.fresh(base)
        self.lines.append(f"{name} = {text}")
        self._memo[v] = name
        return name

    def items(self, items: Any) -> str:
        # A comprehension would need another frame for each level of nesting, of about a thousand that Python allows.
        texts = []
        for x in items:
            texts.append(self.expr(x))
        return ", ".join(texts)

    def pack(self, items: Any) -> str:
        """Returns the expression of a tuple of ``items``."""
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
        if v not in self.trace.made and not is_a(v, (tuple, frozenset)):
            raise NotReconstructible(f"a {type(v).__name__} of unknown origin")
        if self.trace.symbols is not None:
            self.trace.symbols.inlined.keep(v)

    def loose(self, v: Any) -> str:
        """Returns the expression of a container that a read of an iterator's state has just made; it counts as made in the capture."""
        if type(v) in (list, dict, set) and v not in self.trace.sources:
            self.trace.made.add(v)
            self._kept.append(v)
        return self.expr(v)

    def open_cell(self, name: str, cls: type) -> None:
        """Notes a cell that gets a class as soon as the class has been made, because the class holds the cell."""
        self._open_cells.append((name, cls))

    def close_cells(self, cls: type, text: str) -> None:
        """Writes the statements that put a class into the cells which were made before it."""
        self.lines += [f"{name}.cell_contents = {text}" for name, held in self._open_cells if held is cls]
        self._open_cells = [(name, held) for name, held in self._open_cells if held is not cls]

    def known(self, v: Any) -> str | None:
        """Returns the variable of an object that the program has made already; None if there is none."""
        return self._memo.get(v)

    def forget(self, v: Any) -> None:
        """Forgets the object made for ``v``, so that other holders of ``v`` do not get it."""
        self._memo.pop(v, None)

    def name_part(self, v: Any, text: str) -> None:
        """Notes that ``text``, a part of a rebuilt object, is ``v``."""
        self._memo.setdefault(v, text)

    def member(self, descr: Any) -> str:
        """Returns the expression of a C descriptor. If the call made its class, it is read from the class that the program makes."""
        if descr.__objclass__ in self.trace.classes.local:
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
        elif op == "root" or op in LASTING:
            parts.append(str(key))
        elif op == "type_attr":
            parts.append(f"{key[0].__name__}_{key[1]}")
        elif op != "dict":
            parts.append(getattr(key, "__name__", op))
        node = node.parent
    return "_".join(reversed(parts))


def _plain(name: str) -> bool:
    """Returns whether the name of a keyword argument can be written in source text, and stays the same there."""
    return type(name) is str and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
