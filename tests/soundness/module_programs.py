"""Random programs of modules as text: what a seed gives, as a tree of statements that can be made smaller."""

from __future__ import annotations

import dataclasses
import linecache
import random
import re
from types import CodeType
from typing import Any

from tests.oracle import Program, Step
from tests.soundness import module_grammar as grammar

HOLE = re.compile(r"\{(new|int|raise|[tifbvmunec])\}")
CLAUSES = ("except", "finally", "else", "elif")
KINDS = ("module", "module", "function", "function", "method", "train", "nested", "threads")

PRELUDE = """\
import contextlib, copy, functools, math, random, signal, types, warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import fineline
from tests.oracle import t
from tests.soundness.module_parts import *

log = []
table = {'n': 0}
handles = []
y, s, k, flag = None, 0.5, 1, True
box = Box(torch.ones(1, 4))

def on_signal(number, frame):
    log.append('signal')
    if len(log) % 3 == 0:
        raise Boom('signal')

signal.signal(signal.SIGUSR1, on_signal)
"""


@dataclasses.dataclass
class Statement:
    """A line, or a compound statement: its clauses, each a header and a body."""

    line: str
    clauses: list[tuple[str, list[Statement]]] = dataclasses.field(default_factory=list)

    def lines(self, margin: str = "") -> list[str]:
        if not self.clauses:
            return [margin + self.line]
        out: list[str] = []
        for header, body in self.clauses:
            out.append(margin + header)
            inner = [line for statement in body for line in statement.lines(margin + "    ")]
            out += inner or [margin + "    pass"]
        return out


def parse(lines: list[str]) -> list[Statement]:
    """The statements of text whose blocks are indented by four."""
    statements: list[Statement] = []
    place = 0
    while place < len(lines):
        line, end = lines[place], place + 1
        while end < len(lines) and lines[end].startswith("    "):
            end += 1
        body = [inner[4:] for inner in lines[place + 1 : end]]
        if not body:
            statements.append(Statement(line))
        elif line.startswith(CLAUSES) and statements:
            statements[-1].clauses.append((line, parse(body)))
        else:
            statements.append(Statement("", [(line, parse(body))]))
        place = end
    return statements


@dataclasses.dataclass
class Scope:
    """What a place in a program may name."""

    tensors: list[str]
    ints: list[str]
    modules: list[str]
    has: frozenset[str]
    outer: list[str] = dataclasses.field(default_factory=list)  # of functions around: to be read only

    def inner(self) -> Scope:
        return dataclasses.replace(self, tensors=[*self.tensors], ints=[*self.ints])

    def function(self, parameters: list[str]) -> Scope:
        return dataclasses.replace(self, tensors=parameters or self.tensors, ints=[], outer=[*self.outer, *self.tensors])


class Writer:
    """Writes one program; all of its choices follow from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = 0

    def choose(self, table: list[tuple[int, str, str]], has: frozenset[str]) -> str:
        rows = [row for row in table if not row[1] or row[1] in has]
        return self.rng.choices([row[2] for row in rows], [row[0] for row in rows])[0]

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def expression(self, hole: str, scope: Scope, depth: int) -> str:
        rng = self.rng
        if hole == "v":
            return rng.choice([*scope.tensors, *scope.outer] if rng.random() < 0.3 else scope.tensors)
        if hole == "m":
            return rng.choice(scope.modules)
        if hole == "n":
            return str(rng.randrange(4))
        if hole == "e":
            return rng.choice(grammar.EXCEPTIONS)
        if hole == "c":
            return rng.choice(["Boom", "Bang", "IndexError", "RuntimeError", "KeyError"])
        if hole == "i" and scope.ints and rng.random() < 0.3:
            return rng.choice(scope.ints)
        table = {"t": grammar.TENSORS, "i": grammar.INTS, "f": grammar.FLOATS, "b": grammar.BOOLS}[hole]
        template = table[0][2] if depth <= 0 else self.choose(table, scope.has)
        text = self.fill(template, scope, depth - 1, {})
        call = template.endswith(")") and not template.startswith("{")
        return text if call or " " not in template else f"({text})"

    def fill(self, template: str, scope: Scope, depth: int, own: dict[str, str]) -> str:
        """The template with its holes filled: new names come last, so that nothing reads them too early."""

        def old(match: re.Match[str]) -> str:
            hole = match[1]
            if hole in ("new", "int"):
                return match[0]
            if hole == "u":
                return own.setdefault("u", self.name("u"))
            return self.expression(hole, scope, depth)

        def new(match: re.Match[str]) -> str:
            kind = match[1]
            if kind not in own:
                own[kind] = self.name("v" if kind == "new" else "i")
                (scope.tensors if kind == "new" else scope.ints).append(own[kind])
            return own[kind]

        if template.startswith(("{v} = ", "{v} += ")):
            template = self.rng.choice(scope.tensors) + template[3:]
        return re.sub(r"\{(new|int)\}", new, HOLE.sub(old, template))

    def written(self, statements: list[Statement], scope: Scope, depth: int, own: dict[str, str] | None = None) -> list[Statement]:
        """The statements of a template, filled."""
        own = {} if own is None else own
        out: list[Statement] = []
        for statement in statements:
            if statement.line == "...":
                out += self.body(scope, depth - 1, self.rng.randint(1, 2))
            elif statement.line == "{raise}":
                out.append(Statement(self.fill(self.choose(grammar.RAISING, scope.has), scope, 1, {})))
            elif statement.clauses:
                clauses = []
                for header, body in statement.clauses:
                    inner = scope.inner()
                    if header.startswith("def "):
                        parameters = ["x"] if "(x" in header else []
                        header = self.fill(header, scope, 1, own)
                        inner = scope.function(parameters)
                    else:
                        header = self.fill(header, inner, 1, own)
                    clauses.append((header, self.written(body, inner, depth, own)))
                out.append(Statement("", clauses))
            else:
                out.append(Statement(self.fill(statement.line, scope, 2, own)))
        return out

    def body(self, scope: Scope, depth: int, count: int) -> list[Statement]:
        out: list[Statement] = []
        for _ in range(count):
            draw = self.rng.random()
            if draw < 0.02:
                out.append(Statement(self.fill(self.choose(grammar.RAISING, scope.has), scope, 1, {})))
            elif draw < 0.45 and depth > 0:
                template = self.choose(grammar.COMPOUND, scope.has)
                out += self.written(parse(template.split("\n")), scope, depth)
            else:
                out.append(Statement(self.fill(self.choose(grammar.SIMPLE, scope.has), scope, 2, {})))
        return out

    def function(self, header: str, scope: Scope, count: int, result: str = "return {t}", depth: int = 2) -> Statement:
        body = self.body(scope, depth, count)
        return Statement("", [(header, [*body, Statement(self.fill(result, scope, 2, {}))])])


PATHS = ["net", "net.sub", "net.sub", "net.other", "net.chain[0]", "net.parts['a']"]
RESULTS = ["return {t}", "return {t}", "return {t}, {i}", "return {'a': {t}, 'b': {f}}", "return Box({t}, {i})", "return Pair({t}, {t})"]
PARAMETERS = "x, y=None, k=1, s=0.5, flag=False, box=box"
ALL = frozenset({"self", "alone", "main"})


def classes(writer: Writer, result: str) -> list[Statement]:
    """The modules of a program."""
    rng, out = writer.rng, []
    for name in ("Leaf0", "Leaf1"):
        helper = Scope(["x"], [], ["torch.tanh", "aside"], ALL)
        forward = Scope(["x"], [], ["self.helper", "torch.tanh"], ALL)
        methods = [
            writer.function("def helper(self, x):", helper, 1, depth=1),
            writer.function("def forward(self, x, k=1):", forward, rng.randint(1, 2), depth=1),
        ]
        out.append(Statement("", [(f"class {name}(Part):", methods)]))
    setup = parse(
        """\
super().__init__()
self.sub = Leaf0()
self.other = Leaf1()
self.chain = nn.Sequential(Leaf0(), nn.Tanh())
self.parts = nn.ModuleDict({'a': Leaf1(), 'b': nn.Linear(4, 4)})""".split("\n")
    )
    if rng.random() < 0.3:
        setup.append(Statement("self.other.weight = self.sub.weight"))
    scope = Scope(["x", "y"], [], ["self.sub", "self.other", "self.chain", "self.parts['a']", "self.helper"], ALL)
    methods = [
        Statement("", [("def __init__(self):", setup)]),
        writer.function("def helper(self, x):", Scope(["x"], [], ["self.sub", "torch.tanh"], ALL), 1, depth=1),
        writer.function(f"def forward(self, {PARAMETERS}):", scope, rng.randint(2, 4), result),
    ]
    return [*out, Statement("", [("class Root(Part):", methods)]), Statement("net = Root()")]


def hooks(writer: Writer, count: int, paths: list[str]) -> list[Statement]:
    out = []
    for _ in range(count):
        kind, template = writer.rng.choices([row[1:] for row in grammar.HOOKS], [row[0] for row in grammar.HOOKS])[0]
        own: dict[str, str] = {}
        out += writer.written(parse(template.split("\n")), Scope(["out"], [], ["torch.tanh"], frozenset()), 0, own)
        module = writer.rng.choice(paths)
        register = grammar.REGISTER[kind].replace("{m}", module).replace("{u}", own["u"])
        out.append(Statement(f"handles.append({register})"))
    return out


def changes(writer: Writer, place: int) -> Statement:
    """What happens before a call."""
    rng, lines = writer.rng, []
    for _ in range(rng.choice([0, 1, 1, 2])):
        if rng.random() < 0.2:
            lines.append(Statement("", [("with attempt(log):", hooks(writer, 1, PATHS))]))
            continue
        template = writer.choose(grammar.CHANGES, frozenset())
        line = template.replace("{p}", rng.choice(PATHS)).replace("{q}", rng.choice(PATHS)).replace("{n}", str(rng.randrange(4)))
        lines.append(Statement("", [("with attempt(log):", [Statement(line)])]))
    return Statement("", [(f"def change_{place}():", lines)])


def arguments(writer: Writer, place: int, rows: int, plain: bool) -> Statement:
    rng = writer.rng
    grad = rng.random() < 0.3
    lines = [f"x = t({place}, {rows}, 4, grad={grad})"]
    second = rng.choice([f"t({place + 50}, {rows}, 4)", f"t({place + 50}, {rows}, 4)", "x", "x[:]", "x.detach().t().contiguous().t()"])
    given = [second]
    if rng.random() < 0.6 or plain:
        given.append(f"k={rng.choice([1, 1, 2, 3, 5])}")
    if rng.random() < 0.6:
        given.append(f"s={rng.choice([0.5, 0.5, 0.25, 2])}")
    if rng.random() < 0.6:
        given.append(f"flag={rng.random() < 0.5}")
    if rng.random() < 0.5:
        given.append(f"box=Box({rng.choice(['x.detach()', f't({place + 70}, {rows}, 4)'])}, {rng.randrange(4)}, [1, {rng.randrange(3)}])")
    lines.append(f"return arguments(x, {', '.join(given)})")
    return Statement("", [(f"def arguments_{place}():", [Statement(line) for line in lines])])


THREADS = """\
shared = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
logs, tables = [[], []], [{'n': 0}, {'n': 0}]
def start(compile):
    first, second = hidden(compile(one)), hidden(compile({second}))
    def fn(x, y=None, k=1, s=0.5, flag=False, box=box):
        given = [(x.detach().clone(), x.detach() * 2, k + place, s, flag, Box(x.detach() + 1), logs[place], tables[place]) for place in (0, 1)]
        return both(lambda: first.get()(*given[0]), lambda: second.get()(*given[1])), given
    return fn"""

STARTS = {
    "module": "def start():\n    return net",
    "method": "def start():\n    return net.forward",
    "function": "def start():\n    return call",
    "train": (
        "opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)\n"
        f"def call({PARAMETERS}):\n    opt.zero_grad()\n    loss = net(x, y, k, s, flag, box).pow(2).mean()\n    loss.backward()\n"
        "    opt.step()\n    return loss.detach()\n"
        "def start():\n    return call"
    ),
    "nested": (
        "def start(compile):\n    inner, outer = hidden(compile(net.sub)), hidden(compile(call))\n"
        f"    def fn({PARAMETERS}):\n        return inner.get()(x * 2), outer.get()(x, y, k, s, flag, box)\n    return fn"
    ),
}


@dataclasses.dataclass
class RandomProgram:
    """A program as a tree; how often it is called, and whether it compiles parts of itself."""

    seed: int
    kind: str
    tree: list[Statement]
    calls: int

    @property
    def raw(self) -> bool:
        return self.kind in ("nested", "threads")

    def text(self) -> str:
        return PRELUDE + "\n".join(line for statement in self.tree for line in statement.lines()) + "\n"

    def program(self) -> Program:
        """For the oracle."""
        return Made(self).program()


class Made:
    """A program's text, compiled once and run anew for each twin."""

    def __init__(self, random_program: RandomProgram) -> None:
        self.random_program = random_program
        self.namespace: dict[str, Any] = {}
        self.positional: tuple[Any, ...] = ()
        self.file = f"<module program {random_program.seed}>"
        text = random_program.text()
        self.code: CodeType = compile(text, self.file, "exec")
        linecache.cache[self.file] = (len(text), None, text.splitlines(keepends=True), self.file)

    def make(self, *compiler: Any) -> tuple[Any, Any]:
        self.namespace = {"__name__": "module_program"}
        exec(self.code, self.namespace)
        fn = self.namespace["start"](*compiler)
        names = ("net", "log", "table", "handles", "box", "logs", "tables", "shared")
        return fn, {name: self.namespace[name] for name in names if name in self.namespace}

    def program(self) -> Program:
        # The oracle asks for keywords first; both may name one tensor.
        def keywords(place: int) -> dict[str, Any]:
            self.positional, given = self.namespace[f"arguments_{place}"]()
            return given

        def step(place: int) -> Step:
            return Step(place, lambda place: self.positional, keywords, lambda state: self.namespace[f"change_{place}"]())

        steps = [step(place) for place in range(self.random_program.calls)]
        made = self.make  # a function of its own: it has a name
        kind = self.random_program.kind
        name = f"module program {self.random_program.seed}"
        return Program(name, made, steps, min_graphs=0, breaks=True, raw=self.random_program.raw, one_by_one=kind == "threads")


def generate(seed: int) -> RandomProgram:
    writer = Writer(seed)
    rng = writer.rng
    kind = rng.choice(KINDS)
    tree: list[Statement] = []
    if kind == "threads":
        for name in ("one", "two"):
            scope = Scope(["x", "y"], [], ["shared", "torch.tanh"], frozenset())
            tree.append(writer.function(f"def {name}(x, y, k, s, flag, box, log, table):", scope, rng.randint(2, 4), rng.choice(RESULTS)))
        tree += parse(THREADS.replace("{second}", rng.choice(["one", "two"])).split("\n"))
    else:
        tree += classes(writer, RESULTS[0] if kind == "train" or rng.random() < 0.5 else rng.choice(RESULTS))
        tree += hooks(writer, rng.choice([0, 1, 2]), PATHS)
        if kind in ("function", "nested"):
            scope = Scope(["x", "y"], [], ["net.sub", "net.chain", "net.helper", "torch.tanh"], frozenset({"alone", "main"}))
            tree.append(writer.function(f"def call({PARAMETERS}):", scope, rng.randint(2, 4), rng.choice(RESULTS)))
        tree += parse(STARTS[kind].split("\n"))
    calls = rng.choice([2, 3, 3, 4])
    rows = rng.choice([2, 3, 3])
    varied = rng.random() < 0.3
    for place in range(calls):
        tree.append(arguments(writer, place, rows + (place % 3 if varied else 0), False))
        tree.append(changes(writer, place) if kind != "threads" else Statement("", [(f"def change_{place}():", [])]))
    return RandomProgram(seed, kind, tree, calls)
