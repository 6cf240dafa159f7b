"""Random Python programs over tensors, containers, classes, closures, exceptions and generators, as source text.

A program is self-contained: ``make()`` gives ``(fn, state)``, ``args(place)`` the arguments of a call, and ``state.changes[place]()`` is
what happens before that call. The tensors of one call all have the shape (rows, 3), so that nearly every expression is valid; what is not raises, and
the exception has to be the same one. The rows may differ from call to call, and so may the numbers given. A program may be of special
kinds (``tensor_kinds.py``), whose text is mixed with the rest.
"""

from __future__ import annotations

import linecache
import re
import string
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

import fineline
from tests.oracle import Program, Step
from tests.soundness import versions
from tests.soundness.template import CALLS, CHANGES, EXTRAS, OVERRIDES, PRELUDE, SETTERS, classes, tail
from tests.soundness.tensor_kinds import KINDS, PLAIN, Kind

UNARY = ["sin()", "cos()", "tanh()", "relu()", "abs()", "neg()", "clone()", "flip(0)", "detach()", "t().reshape(-1, 3)", "softmax(0)"]
SIZED = [
    "{T}.sum(1, keepdim=True).expand(-1, 3)", "{T}.reshape(-1).view(-1, 3)", "{T}.reshape(len({T}), 3)", "{T}.t().contiguous().view({T}.shape)",
    "{T}.mean(0).expand_as({T})", "({T} / {T}.shape[0])", "({T} * torch.arange(len({T})).unsqueeze(1))", "{T}.flatten().reshape({T}.size())",
    "torch.cat([{T}[:{N}], {T}[{N}:]])[:len(x)]", "torch.cat({T}.split(2))", "torch.cat({T}.chunk(2, 1), 1)", "{T}.roll({N}, 0)",
    "torch.nn.functional.pad({T}, (0, 0, 1, 0))[1:]", "{T}.new_ones({T}.size(0), 3)", "torch.full({T}.shape, {N})", "{T}[torch.arange({T}.shape[0]).flip(0)]",
    "{T}.repeat(2, 1)[: x.shape[0]]", "torch.stack(list({T}))", "torch.stack([row * {N} for row in {T}])", "{T}.view(-1, *{T}.shape[1:])",
    "torch.zeros(*{T}.shape).add({N})", "torch.einsum('ij,ik->ik', {T}, {T})", "{T}.unfold(0, 1, 1).squeeze(-1)", "({T} * r)", "({T} ** 2 * (r + {N}))",
    "{T}.narrow(0, 0, len({T}))", "{T}.cumsum(0)", "torch.tril({T}, {N})", "({T} @ {T}.T @ {T})", "{T}.as_strided({T}.size(), (3, 1))",
    "{T}.masked_fill({T} > 0, r)", "torch.linspace(0, 1, len(x) * 3).view(-1, 3)", "{T}.index_select(0, torch.arange(len({T})))",
]  # fmt: skip
SIZES = ["{T}.shape[0]", "len({T})", "{T}.size(-2)", "{T}.numel() // 3", "({T}.shape[0] + 1) // 2", "{T}.stride()[0]", "int(r * 4)", "ROWS"]
INPLACE = ["add_(1)", "mul_(0.5)", "tanh_()", "neg_()", "zero_()", "copy_({T})", "relu_()", "add_({T}, alpha=2)"]
ERRORS = ["ZeroDivisionError", "KeyError", "IndexError", "TypeError", "Oops", "RuntimeError", "Exception", "(KeyError, Oops)"]
BAD = ["1 // 0", "G_DICT['none']", "[][3]", "None + 1", "tensor(1) @ tensor(2)", "raise_oops({I})", "int('x')", "state.nothing"]
NAMES = {"T": "t", "I": "i", "L": "l", "N": "n", "D": "d", "O": "o", "F": "f", "S": "s", "A": "a"}
HOLE = re.compile(r"\{(T|A|I|B|X|W|u|new|array)\}")


class Writer:
    """Writes one program; ``scope`` maps a kind of value to the expressions that hold one here."""

    def __init__(self, draw: Any, kinds: Sequence[Kind] = ()) -> None:
        self.draw = draw
        self.kinds = kinds
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0
        self.budget = 0
        self.scope: dict[str, list[str]] = {}
        self.loops = 0
        self.own: set[str] = set()
        self.closing = 0

    # -- drawing -----------------------------------------------------------------------------------------------------
    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent  # so that shrinking goes towards "no"

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{NAMES[kind]}{self.count}"

    def bind(self, kind: str, name: str) -> None:
        self.scope.setdefault(kind, []).append(name)

    def var(self, kind: str) -> str | None:
        return self.pick(self.scope[kind][::-1]) if self.scope.get(kind) else None

    def special(self, part: str, depth: int, percent: int = 30) -> str | None:
        """An expression of one of the program's kinds, or a statement's text; sometimes."""
        texts = [text for kind in self.kinds for text in getattr(kind, part)]
        if not texts or depth < 0 or not self.chance(percent):
            return None
        return self.filled(self.pick(texts), depth, {}) if part != "statements" else self.pick(texts)

    def filled(self, text: str, depth: int, own: dict[str, str]) -> str:
        """The text with its holes filled; its new names are in ``own``."""

        def value(match: re.Match[str]) -> str:
            hole = match[1]
            if hole == "T":
                return self.tensor(depth - 1)
            if hole == "A":
                return self.array(depth - 1)
            if hole == "I":
                return self.number(0)
            if hole == "B":
                return self.truth(0)
            if hole == "X":
                return self.pick([n for n in self.scope["T"] if n.isidentifier()])
            if hole == "W":
                return self.var("A") or "state.a"
            if hole not in own:
                own[hole] = self.name({"u": "S", "new": "T", "array": "A"}[hole])
            return own[hole]

        return HOLE.sub(value, text)

    # -- expressions -------------------------------------------------------------------------------------------------
    def array(self, depth: int) -> str:
        if depth <= 0:
            return self.var("A") or "state.a"
        return self.special("arrays", depth, 100) or "state.a"

    def tensor(self, depth: int = 2) -> str:
        if depth > 0 and (special := self.special("tensors", depth)):
            return special
        kind = self.draw(st.integers(-6, 19))
        if depth <= 0 or kind <= 0:  # 0 is what shrinking goes towards
            return self.var("T") or "tensor(3)"
        T, less = (lambda: self.tensor(depth - 1)), depth - 1
        if kind <= 2:
            return f"{T()}.{self.pick(UNARY)}" if self.chance(50) else self.pick(SIZED).format(T=T(), N=self.number(less))
        if kind <= 5:
            return f"({T()} {self.pick('+-*')} {T()})"
        if kind <= 7:
            return f"({T()} {self.pick('+-*')} {self.number(less)})"
        if kind == 8:
            return f"torch.where({T()} > 0, {T()}, {T()})"
        if kind == 9:
            return f"torch.stack([{T()}, {T()}]).mean(0)"
        if kind == 10 and (xs := self.var("L")):
            return f"{xs}[{self.number(less)} % len({xs})]"
        if kind == 11 and (d := self.var("D")):
            return self.pick([f"{d}['a']", f"{d}.get({self.pick(['a', 'b', 'zz'])!r}, {T()})"])
        if kind in (12, 13) and (o := self.var("O")):
            return self.pick([f"{o}.v", f"{o}.m({T()})", f"{o}.p", f"({o} + {T()})", f"{o}.m({T()}, k={self.number(less)})"])
        if kind == 14 and (f := self.var("F")):
            return self.pick([f"{f}({T()})", f"{f}({T()}, {self.number(less)})", f"{f}({T()}, 1, {T()}, k={self.number(less)})"])
        if kind == 15:
            return f"({T()} if {self.truth(less)} else {T()})"
        if kind == 16:
            return f"(lambda v, k={self.number(less)}: v * k + {T()})({T()})"
        if kind == 17 and (xs := self.var("L")):
            return f"sum((v * {self.number(less)} for v in {xs}{self.pick(['', '[:2]', '[::-1]'])}), {T()})"
        if kind == 18 and self.chance(30):
            return f"({T()} * {T()}.mean().tanh().item())"
        return f"{T()}.flip(0)"

    def number(self, depth: int = 1) -> str:
        if depth > 0 and (special := self.special("numbers", depth, 20)):
            return special
        simple = self.draw(st.integers(0, 3))
        kind = self.draw(st.integers(-5, 10))
        if depth <= 0 or kind <= 0:
            return self.var("I") or str(simple) if self.chance(60) else str(simple)
        N, less = (lambda: self.number(depth - 1)), depth - 1
        if kind <= 2:
            return f"(({N()} {self.pick(['+', '-', '*'])} {N()}) % 5)"
        if kind == 3 and (xs := self.var("L") or self.var("N")):
            return f"len({xs})"
        if kind == 4 and (ns := self.var("N")):
            return self.pick([f"sum({ns}) % 5", f"{ns}[-1]", f"max({ns}, default=0)", f"{ns}.count({N()})"])
        if kind == 5 and (o := self.var("O")):
            return self.pick([f"{o}.n", f"{o}.k", f"len({o}.items)", f"getattr({o}, 'maybe', {N()})"])
        if kind == 6:
            return f"({N()} if {self.truth(less)} else {N()})"
        if kind == 7:
            return self.pick(SIZES).format(T=self.tensor(less))
        if kind == 8:
            return self.pick(["G_INT", "state.n", "cell", "G_DICT['a']", "len(G_LIST)", "sum(G_DICT.values())"])
        if kind == 9:
            return f"{self.pick(['min', 'max'])}({N()}, {N()})"
        return f"[1, 2, 3][{N()} % 3]"

    def truth(self, depth: int = 1) -> str:
        if special := self.special("conditions", depth, 20):
            return special
        N, less = (lambda: self.number(depth)), depth - 1
        kind = self.draw(st.integers(0, 11))
        if kind <= 3 or depth < 0:
            return f"{N()} {self.pick(['<', '==', '>=', '!='])} {N()}"
        if kind == 4:
            return f"not ({self.truth(less)})"
        if kind == 5:
            return f"({self.truth(less)} {self.pick(['and', 'or'])} {self.truth(less)})"
        if kind == 6 and (d := self.var("D")):
            return f"{self.pick(['a', 'b', 'q'])!r} in {d}"
        if kind == 7 and (o := self.var("O")):
            return self.pick([f"isinstance({o}, Base)", f"hasattr({o}, 'maybe')", f"{o}", f"type({o}) is Sub"])
        if kind == 8:
            return f"{self.tensor(0)} is {self.tensor(0)}"
        if kind == 9 and self.chance(50):
            return f"{self.tensor(1)}.sum() > 0"
        if kind == 10 and (xs := self.var("L")):
            return f"{xs} is {self.var('L')}"
        return f"0 <= {N()} < {N()}"

    # -- statements --------------------------------------------------------------------------------------------------
    def block(self, statements: int, *, loop: bool = False) -> None:
        """An indented suite; names bound in it are mostly forgotten behind it, and sometimes not (they may then be unbound)."""
        before = {kind: list(names) for kind, names in self.scope.items()}
        self.depth += 1
        self.loops += loop
        for _ in range(statements):
            self.statement()
        if not self.lines[-1].startswith("    " * self.depth):
            self.emit("pass")
        self.loops -= loop
        self.depth -= 1
        if not self.chance(8):
            self.scope = before

    def special_statement(self, text: str) -> None:
        """The statements of a text; those that it leaves open are drawn."""
        own: dict[str, str] = {}
        before, kept, functions = {kind: list(names) for kind, names in self.scope.items()}, (self.own, self.loops), 0
        for line in text.split("\n"):
            bare = line.lstrip()
            inner = (len(line) - len(bare)) // 4
            if functions and not inner:
                functions, self.closing, (self.own, self.loops) = 0, self.closing - 1, kept
                self.scope = {kind: list(names) for kind, names in before.items()}
            self.depth += inner
            if bare == "...":
                self.depth -= 1
                self.block(self.draw(st.integers(1, 2)))
                self.depth += 1
            else:
                self.emit(self.filled(bare, 2, own))
            self.depth -= inner
            if bare.startswith("def "):
                functions, self.closing, self.own, self.loops = 1, self.closing + 1, {"v"}, 0
                self.bind("T", "v")
        self.scope = before
        for hole, kind in {"new": "T", "array": "A"}.items():
            if hole in own:
                self.bind(kind, own[hole])

    def statement(self) -> None:
        self.budget -= 1
        simple = [self.assign] * 5 + [self.write] * 4 + [self.write_outside] * 3 + [self.call_only, self.oddity]
        nested = [self.branch, self.loop, self.attempt, self.with_, self.define, self.comprehend, self.generate, self.match_]
        nested += [self.by_version] * 3
        if self.budget > 0 and self.depth < 5 and (text := self.special("statements", 1, 35)):
            self.special_statement(text)
        elif self.budget > 0 and self.depth < 5:
            self.pick(simple + nested)()
        else:
            self.pick(simple)()

    def assign(self) -> None:
        kind = self.pick(["T", "T", "T", "I", "L", "N", "D", "O", "S"])
        value = {
            "T": lambda: self.tensor(3),
            "I": lambda: self.number(2),
            "L": lambda: f"[{self.tensor()}, {self.tensor(1)}]" if self.chance(70) else f"list({self.var('L') or '[]'})",
            "N": lambda: f"[{self.number()}, {self.number()}]",
            "D": lambda: f"{{'a': {self.tensor()}, {self.pick(['b', 'q'])!r}: {self.tensor(1)}}}",
            "O": lambda: f"{self.pick(['Base', 'Sub'])}({self.tensor(1)}, {self.number()})",
            "S": lambda: f"f\'\'\'{{{self.number()}}}-{{{self.number()}:>3}}\'\'\'",
        }[kind]()
        if kind == "T" and self.chance(15) and (old := self.var("T")) and old.isidentifier():
            self.emit(f"{self.own_name(old)} = {value}")
            return
        name = self.name(kind)
        self.emit(f"{name} = {value}")
        self.bind(kind, name)

    def own_name(self, name: str) -> str:
        """A name that may be assigned here without making an outer one local; otherwise a new one."""
        if name in self.own or not self.closing:
            return name
        new = self.name("T")
        self.bind("T", new)
        return new

    def write(self) -> None:
        """Writes to a tensor or container in place."""
        kind = self.draw(st.integers(0, 9))
        if kind <= 3:
            t = self.tensor(0)
            how = self.draw(st.integers(0, 3))
            if how == 0:
                self.emit(f"{t}[{self.number(0)} % 2] = {self.tensor(1)}[0]")
            elif how == 1:
                self.emit(f"{t}[:, 1:] {self.pick(['+=', '*=', '-='])} {self.number()}")
            else:
                self.emit(f"{t}.{self.pick(INPLACE).format(T=self.tensor(1))}")
        elif kind <= 5 and (xs := self.var("L")):
            n = f"{self.number()} % max(len({xs}), 1)"
            choices = [".append({T})", "[{n}] = {T}", ".pop()", ".insert({n}, {T})", "[1:] = [{T}]", ".reverse()", ".extend([{T}] * 2)"]
            self.emit(xs + self.pick(choices).format(T=self.tensor(1), n=n))
        elif kind <= 7 and (d := self.var("D")):
            key = repr(self.pick(["a", "b", "new"]))
            choices = ["[{k}] = {T}", ".update(b={T})", ".pop({k}, None)", ".setdefault({k}, {T})", "['a'] += 1"]
            self.emit(d + self.pick(choices).format(T=self.tensor(1), k=key))
        elif kind == 8 and (ns := self.var("N")):
            self.emit(ns + self.pick([".append({I})", "[0] = {I}", ".sort()", ".extend([{I}])", "[:] = [{I}]"]).format(I=self.number()))
        elif o := self.var("O"):
            choices = [".v = {T}", ".n += 1", ".items.append({I})", ".maybe = {I}", ".p = {T}", ".__dict__.pop('maybe', 0)", ".v.mul_(0.5)"]
            self.emit(o + self.pick(choices).format(T=self.tensor(1), I=self.number()))

    def write_outside(self) -> None:
        choices = [
            "state.n += {I}", "state.t = {T}", "state.items.append({I})", "state.ts[0] = {T}", "G_LIST.append({I})", "state.last = state.o",
            "state.o.n = {I}", "state.o.v = {T}", "LOG.append({I})", "state.t.add_(1)", "Sub.k = {I}", "Base.extra = {I}",
            "state.d['a'] = {T}", "state.seen.add({I})", "state.ts[:] = [{T}]", "del state.items[:]", "G_DICT['b'] = {I}",
            "G_DICT.pop('zz', None)",
        ]  # fmt: skip
        text = self.pick(choices).format(T=self.tensor(1), I=self.number())
        if self.chance(25) and not self.closing:
            text = self.pick([f"cell = (cell + {self.number()}) % 7", f"G_INT = (G_INT + {self.number()}) % 7", "cell += 1"])
        self.emit(text)

    def call_only(self) -> None:
        if f := self.var("F"):
            self.emit(f"{f}({self.tensor(1)}, {self.number()})")
        else:
            self.emit(f"state.o.m({self.tensor(1)})")

    def oddity(self) -> None:
        kind = self.draw(st.integers(0, 9))
        if kind == 0:
            self.emit(f"print('at', {self.number()})")
        elif kind == 1:
            self.emit(f"LOG.append(float({self.tensor(1)}.sum()))")
        elif kind == 2 and self.loops:
            self.emit(f"if {self.truth()}:")
            self.emit(f"    {self.pick(['break', 'continue'])}")
        elif kind == 3:
            self.emit(f"if {self.truth()}:")
            self.emit(f"    return {self.tensor(1)}")
        elif kind == 4:
            self.emit(f"if {self.truth()}:")
            self.emit(f"    {self.pick(BAD).format(I=self.number())}")
        elif kind == 5:
            a, b = self.name("T"), self.name("T")
            self.emit(f"{a}, {b} = {self.tensor(1)}, {self.tensor(1)}")
            self.bind("T", a)
            self.bind("T", b)
        elif kind == 6:
            self.emit(f"assert {self.truth()}, 'checked'")
        elif kind == 7:
            said = self.pick(["{T}.shape", "str({T}.shape)", "f'{{{T}.size(0)}} rows'", "repr({T}.numel())", "type({T}.shape[0])", "(r, {T}.stride())"])
            self.emit(f"LOG.append(({self.number()}, [{said.format(T=self.tensor(1))}, {self.truth(0)}]))")
        elif kind == 8:
            name = self.name("T")
            self.emit(f"{name} = torch.rand({self.pick(['len(x), 3', '*x.shape', 'ROWS, 3', 'y.size()'])})")
            self.bind("T", name)
        else:
            self.emit("graph_break()")

    def branch(self) -> None:
        self.emit(f"if {self.truth(2)}:")
        self.block(self.draw(st.integers(1, 3)))
        if self.chance(40):
            self.emit("else:")
            self.block(self.draw(st.integers(1, 2)))

    def loop(self) -> None:
        kind = self.draw(st.integers(0, 4))
        before = {k: list(v) for k, v in self.scope.items()}
        i, t = self.name("I"), self.name("T")
        xs = self.var("L") or "[tensor(5)]"
        if kind == 0:
            self.emit(f"for {i} in range({self.number()} % {self.pick([4, 4, 9])}):")
        elif kind == 1:
            self.emit(f"for {i}, {t} in enumerate({xs}[:3]):")
            self.bind("T", t)
        elif kind == 2:
            self.emit(f"for {t}, {i} in zip(list({xs}), {self.var('N') or '[1, 2, 3]'}):")
            self.bind("T", t)
        elif kind == 3:
            numbers = ["G_LIST[:3]", "itertools.islice(itertools.count(), 3)", "sorted(G_DICT.values())[:3]"]
            self.emit(f"for {i} in {self.pick(numbers)}:")
        else:
            self.emit(f"{i} = 0")
            self.emit(f"while {i} < {self.number(0)}{self.pick(['', '', ' + 5'])}:")
            self.emit(f"    {i} += 1")
        self.bind("I", i)
        self.block(self.draw(st.integers(1, 3)), loop=True)
        if self.chance(20):
            self.emit("else:")
            self.block(1)
        self.scope = before

    def attempt(self) -> None:
        self.emit("try:")
        self.block(self.draw(st.integers(1, 2)))
        if self.chance(60):
            self.emit("    " + self.pick(BAD).format(I=self.number()))
        error = self.pick(ERRORS)
        name = self.name("S")
        self.emit(f"except {error} as {name}:")
        self.emit(f"    LOG.append((type({name}).__name__, str({name})))")
        self.block(1)
        if self.chance(20):
            self.emit("    " + self.pick(["raise", f"raise Oops({self.number()})", f"raise Oops('chained') from {name}"]))
        if self.chance(30):
            self.emit("else:")
            self.block(1)
        if self.chance(30):
            self.emit("finally:")
            self.block(1)

    def with_(self) -> None:
        managers = ["torch.no_grad()", "scope('s')", "Swallow((KeyError, Oops))", "contextlib.suppress(IndexError)", "torch.enable_grad()"]
        self.emit(f"with {self.pick(managers)}:")
        self.block(self.draw(st.integers(1, 3)))

    def define(self) -> None:
        """A nested function over what is in scope; it may write to the cell."""
        name, before = self.name("F"), {kind: list(names) for kind, names in self.scope.items()}
        budget, loops = self.budget, self.loops
        self.budget, self.loops = min(self.budget, 4), 0
        self.emit(f"def {name}(v, j={self.number()}, *rest, k=1):")
        if writes := self.chance(30):
            self.emit("    nonlocal cell")
            self.emit("    cell = (cell + j) % 7")
        self.closing += 1
        own, self.own = self.own, {"v"}
        self.bind("T", "v")
        self.bind("I", "j")
        self.bind("I", "k")
        self.block(self.draw(st.integers(1, 2)))
        self.emit(f"    return v * k + {self.tensor(1)}" if not writes else f"    return v + cell + len(rest) * {self.tensor(0)}")
        self.closing -= 1
        self.own = own
        self.budget, self.loops, self.scope = budget, loops, before
        self.bind("F", name)

    def comprehend(self) -> None:
        xs, name = self.var("L") or "state.ts", self.name("L")
        before = {kind: list(names) for kind, names in self.scope.items()}
        v = self.name("T")
        self.bind("T", v)
        body, test = self.tensor(1), self.truth()
        self.scope = before
        form = self.draw(st.integers(0, 3))
        if form == 0:
            self.emit(f"{name} = [{body} for {v} in {xs}]")
        elif form == 1:
            self.emit(f"{name} = [{body} for {v} in {xs}[:3] for _ in range(2) if {test}]")
        elif form == 2:
            self.emit(f"{name} = list(map(lambda {v}: {body}, {xs}))")
        else:
            self.emit(f"{name} = sorted([{body} for {v} in {xs}], key=lambda u: {self.number()}) + [{self.tensor(1)}]")
        self.bind("L", name)

    def generate(self) -> None:
        g, name = self.name("F"), self.name("L")
        self.emit(f"def {g}(v):")
        self.emit(f"    for j in range({self.number(0)} % 4):")
        self.emit("        try:")
        self.emit(f"            got = yield v * j + {self.tensor(1)}")
        self.emit("            if got is not None:")
        self.emit("                v = v + got")
        self.emit("        except Oops:")
        self.emit("            yield v - 1")
        self.emit("        finally:")
        self.emit("            LOG.append(j)")
        form = self.draw(st.integers(0, 5))
        if form == 0:
            self.emit(f"{name} = list({g}({self.tensor(1)}))")
        elif form == 1:
            self.emit(f"{name} = [*itertools.islice({g}({self.tensor(1)}), 2), {self.tensor(1)}]")
        elif form == 2:
            run = self.name("S")
            self.emit(f"{run} = {g}({self.tensor(1)})")
            self.emit(f"{name} = [next({run}, {self.tensor(0)})]")
            self.emit("try:")
            self.emit(f"    {name}.append({run}.{self.pick(['send(1)', 'throw(Oops(1))', 'send(None)'])})")
            self.emit("except StopIteration:")
            self.emit("    pass")
            self.emit(f"{run}.close()")
        elif form == 3:  # left before it is through
            self.emit(f"{name} = []")
            self.emit(f"for {name}_item in {g}({self.tensor(1)}):")
            self.emit(f"    {name}.append({name}_item)")
            self.emit(f"    if {self.truth()}:")
            self.emit("        break")
        elif form == 4:  # gone as soon as it has begun
            self.emit(f"{name} = [next({g}({self.tensor(1)}), {self.tensor(0)})]")
        else:
            self.emit(f"def {g}_from(v):")
            self.emit(f"    yield from {g}(v)")
            self.emit(f"    yield from [{self.tensor(1)}]")
            self.emit(f"{name} = list({g}_from({self.tensor(1)}))")
        self.bind("L", name)

    def match_(self) -> None:
        pair = f"({self.number()}, {self.number()})"
        subject = self.pick([self.number(), pair, self.var("D") or "G_DICT", self.var("O") or "state.o", "G_LIST"])
        self.emit(f"match {subject}:")
        self.depth += 1
        cases = ["0 | 1", "int(k) if k > 2", "(0, _) | [_, 1]", "{'a': found}", "Sub(n=0)", "Base()", "[first, *_]"]
        for _ in range(self.draw(st.integers(1, 3))):
            self.emit(f"case {self.pick(cases)}:")
            self.block(1)
        self.emit("case _:")
        self.block(1)
        self.depth -= 1


    def by_version(self) -> None:
        """A statement that differs between the versions of Python, with other expressions in each of its places."""
        text, result = self.pick(versions.TEXTS), self.name("T")
        new = {place: self.name("S") for place in "ABC"} | {"R": result, "X": self.pick([n for n in self.scope["T"] if n.isidentifier()])}
        drawn: dict[str, Callable[[], str]] = {
            "T": lambda: self.tensor(1), "I": lambda: self.number(0), "L": lambda: self.var("L") or "state.ts", "D": lambda: self.var("D") or "state.d",
            "O": lambda: self.var("O") or "state.o",
        }  # fmt: skip
        parts = [literal + (new.get(place or "") or drawn[place]() if place else "") for literal, place, _, _ in string.Formatter().parse(text)]
        for line in "".join(parts).split("\n"):
            self.emit(line)
        self.bind("T", result)


@st.composite
def programs(draw: Any, names: Sequence[str] = (PLAIN, *KINDS)) -> str:
    """The source of a program, of one or two of the named kinds."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    kinds = [KINDS[name] for name in chosen if name != PLAIN]
    w = Writer(draw, kinds)
    head = PRELUDE + classes(w.pick(EXTRAS), w.pick(SETTERS), w.pick(OVERRIDES), w.chance(50)) + f"# kinds: {' '.join(chosen)}\n"
    head += "\n\n".join(kind.prelude for kind in kinds)
    w.depth = 2
    w.scope = {"T": ["state.t", "x", "y"], "I": ["state.n", "n"], "L": ["state.ts", "xs"], "N": ["state.items"], "D": ["state.d", "d"]}
    w.bind("O", "state.o")
    w.own = {"x", "y"}
    w.budget = draw(st.integers(2, 14))
    for _ in range(w.budget):
        w.statement()
    parts = [w.tensor(2)] + [w.var(k) or w.number() for k in draw(st.lists(st.sampled_from("TTILNDOSA"), max_size=3))]
    result = w.pick(["{0}", "[{0}]", "({0}, x)", "{{'r': [{0}]}}", "({0},)"]).format(", ".join(parts))
    special = [change for kind in kinds for change in kind.changes]
    changes = [f"attempt(lambda: {w.pick(special) if special and w.chance(60) else w.pick(CHANGES)})" for _ in range(CALLS)]
    given = [(w.pick([1, 1, 1, 2, 0]), w.pick([2, 2, 2, 3, 1, 0]), w.chance(25), w.chance(10)) for _ in range(CALLS)]
    if w.chance(60):
        sizes = [(w.pick([2, 4, 3, 5, 7, 1]), w.pick([0.5, 0.25, 0.75, 1.5, 0.0])) for _ in range(CALLS)]
        given = [(w.pick([n, n, 3, 4, 7]), length, alias, same, *size) for (n, length, alias, same), size in zip(given, sizes, strict=True)]
    else:
        given = [(*g, 2, 0.5) for g in given]
    marks = [f"fineline.{w.pick(['maybe_mark_dynamic', 'mark_static'])}({w.pick('xy')}, {w.pick([0, -1])})"] if w.chance(15) else []
    for texts in [kind.given for kind in kinds if kind.given]:
        # Those of some calls, so that the calls differ, or of all.
        places = w.pick(["True", "True", "place % 2", "place > 1"])
        marks.append(f"if {places}:\n        with contextlib.suppress(Exception):\n            " + w.pick(texts).replace("\n", "\n        "))
    made = [line for kind in kinds for line in (*kind.setup, *([w.pick(kind.state)] if kind.state else []))]
    raw = any(kind.raw for kind in kinds)
    return head + tail(w.lines, result, changes, given, w.chance(30), marks, made, bool(kinds), "equals" in chosen, raw)


def kinds_of(source: str) -> list[str]:
    """The kinds of a program, by its source."""
    return re.findall(r"^# kinds: (.*)$", source, re.MULTILINE)[0].split()


def program_of(source: str, number: int = 0) -> Program:
    """The program of a source text; each ``make()`` runs the whole text again, so that its globals and classes are fresh."""
    filename = f"<program {number}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    code = compile(source, filename, "exec")
    spaces: list[dict[str, Any]] = []

    def make(*compiler: Any) -> Any:
        space: dict[str, Any] = {"__name__": "program", "graph_break": fineline.graph_break}
        exec(code, space)
        spaces[:] = [space]
        return space["make"](*compiler)

    def step(place: int) -> Step:
        return Step(place, lambda i: spaces[0]["args"](i), None, lambda state: state.changes[place]())

    steps = [step(place) for place in range(CALLS)]
    kinds = [KINDS[name] for name in kinds_of(source) if name != PLAIN]
    raw, tolerance = any(kind.raw for kind in kinds), max([0.0, *[kind.tolerance for kind in kinds]])
    return Program(filename, make, steps, frozenset(range(CALLS)), min_graphs=0, breaks=True, raw=raw, tolerance=tolerance)
