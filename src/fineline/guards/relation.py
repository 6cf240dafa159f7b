"""Converts a symbolic expression over sizes and numbers to its executable forms: a guard, Python text, or nodes of a graph."""

from __future__ import annotations

import ast
import builtins
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import sympy
import torch
from torch import fx

from fineline.guards.postfix import OPERANDS, Code, Number, check_code
from fineline.guards.term import Term, Unsupported, term_of
from fineline.kinds import is_a


class Leaf(NamedTuple):
    """A number that a guard reads: a tensor's "size" or "stride" number ``at``, its "offset", or the "number" in a register."""

    kind: str
    register: int
    at: int = -1


class Relation(NamedTuple):
    """The payload of a ``relation`` step; ``text`` is for messages."""

    leaves: tuple[Leaf, ...]
    code: Code
    text: str


CONSTANTS = ("int", "float", "bool")
BINARY: dict[str, type[ast.operator]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "truediv": ast.Div, "floordiv": ast.FloorDiv, "mod": ast.Mod, "pow": ast.Pow,
    "bit_and": ast.BitAnd, "bit_or": ast.BitOr, "bit_xor": ast.BitXor,
}  # fmt: skip
COMPARISONS: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE,
}  # fmt: skip
CALLS = {"to_float": "float", "round_to": "round"} | dict.fromkeys(("abs", "round", "min", "max"))
# Not operator.pow: FX writes "-2 ** n" for (-2) ** n.
TARGETS: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": builtins.pow, "neg": operator.neg, "abs": operator.abs, "min": torch.sym_min, "max": torch.sym_max,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and": operator.and_, "or": operator.or_, "not": torch.sym_not, "select": torch.sym_ite, "to_float": torch.sym_float,
    "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "round": builtins.round, "round_to": builtins.round,
    "bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor,
}  # fmt: skip


# -- a guard ------------------------------------------------------------------------------------------------------------
def relation_of(expr: sympy.Basic | Term, leaves: Mapping[sympy.Symbol, Leaf], names: Mapping[sympy.Symbol, str]) -> Relation | None:
    """Returns the guard that ``expr`` is true; None if the stack machine cannot compute it."""
    try:
        term = term_of(expr)
        symbols = symbols_of(term)
        code = tuple(_instructions(term, symbols))
        check_code(code, len(symbols))
    except ValueError:
        return None
    return Relation(tuple([leaves[symbol] for symbol in symbols]), code, _text(term, names))


def has_code(term: Term) -> bool:
    """Returns whether the stack machine can compute ``term``."""
    try:
        symbols = symbols_of(term)
        check_code(tuple(_instructions(term, symbols)), len(symbols))
    except ValueError:
        return False
    return True


def symbols_of(term: Term) -> list[sympy.Symbol]:
    return list(dict.fromkeys(_symbols(term)))


def _symbols(term: Term) -> Iterator[sympy.Symbol]:
    if term.op == "symbol":
        yield term.args[0]
    elif term.op not in CONSTANTS:
        for arg in term.args:
            yield from _symbols(arg)


def _instructions(term: Term, symbols: list[sympy.Symbol]) -> Iterator[tuple[str, Number | None]]:
    op, args = term
    if op == "symbol":
        yield "leaf", symbols.index(args[0])
    elif op in CONSTANTS:
        yield "const", args[0]
    elif op not in OPERANDS:
        raise Unsupported(f"{op} is no operator of the stack machine")
    else:
        for position, arg in enumerate(args):
            yield from _instructions(arg, symbols)
            if position >= OPERANDS[op] - 1:
                yield op, None


# -- Python text --------------------------------------------------------------------------------------------------------
def python_text(expr: sympy.Basic | Term, names: Mapping[sympy.Symbol, str]) -> str:
    """Returns Python source that computes ``expr`` with builtins and ``math``. ``names``: the source of each symbol."""
    return _text(term_of(expr), names)


def _text(term: Term, names: Mapping[sympy.Symbol, str]) -> str:
    return ast.unparse(_syntax(term, names))


def _syntax(term: Term, names: Mapping[sympy.Symbol, str]) -> ast.expr:
    op, args = term
    if op == "symbol":
        return ast.Name(names[args[0]])
    if op in CONSTANTS:
        return _constant(args[0])
    parts = [_syntax(arg, names) for arg in args]
    if op in BINARY:
        return functools.reduce(lambda left, right: ast.BinOp(left, BINARY[op](), right), parts)
    if op in COMPARISONS:
        return ast.Compare(parts[0], [COMPARISONS[op]()], parts[1:])
    if op in ("and", "or"):
        return ast.BoolOp(ast.And() if op == "and" else ast.Or(), parts)
    if op in ("neg", "not"):
        return ast.UnaryOp(ast.USub() if op == "neg" else ast.Not(), parts[0])
    if op == "select":
        return ast.IfExp(*parts)
    return ast.Call(ast.Name((CALLS[op] or op) if op in CALLS else f"math.{op}"), parts, [])


def _constant(value: Number) -> ast.expr:
    if math.copysign(1, value) < 0:
        return ast.UnaryOp(ast.USub(), _constant(-value))
    return ast.Name("math.inf") if value == math.inf else ast.Constant(value)


# -- nodes of a graph ---------------------------------------------------------------------------------------------------
def nodes_of(
    expr: sympy.Basic | Term, env: Mapping[sympy.Symbol, fx.Node], graph: fx.Graph, cache: dict[Term, fx.Node | Number] | None = None
) -> fx.Node | Number:
    """Returns the node that computes ``expr`` from the nodes of its symbols, made at the graph's insertion point, or a constant.
    ``cache`` contains nodes made before; it is valid while they come before the insertion point."""
    return _node(term_of(expr), env, graph, {} if cache is None else cache)


def _node(term: Term, env: Mapping[sympy.Symbol, fx.Node], graph: fx.Graph, cache: dict[Term, fx.Node | Number]) -> fx.Node | Number:
    op, args = term
    if op == "symbol":
        return env[args[0]]
    if op in CONSTANTS:
        return args[0]
    if term not in cache:
        parts = [_node(arg, env, graph, cache) for arg in args]
        if op == "select":
            parts = _alike(parts, graph)
        target = TARGETS.get(op) or getattr(torch, f"_sym_{op}", None)
        if target is None:
            raise Unsupported(f"PyTorch has no symbolic {op}")
        many = len(parts) > OPERANDS.get(op, len(parts))
        made = functools.reduce(lambda left, right: _call(target, (left, right), graph), parts) if many else _call(target, parts, graph)
        cache[term] = made
    return cache[term]


def _call(target: Callable, args: Sequence[fx.Node | Number], graph: fx.Graph) -> fx.Node | Number:
    if not any(is_a(arg, fx.Node) for arg in args):
        return target(*args)
    return graph.call_function(target, tuple(args))


def _alike(parts: list[fx.Node | Number], graph: fx.Graph) -> list[fx.Node | Number]:
    """Makes a constant operand of ``torch.sym_ite`` symbolic if the other is: it accepts two symbolic values or two plain ones."""
    condition, yes, no = parts

    def beside(value: fx.Node | Number, other: fx.Node | Number) -> fx.Node | Number:
        if is_a(value, fx.Node) or not is_a(other, fx.Node):
            return value
        return _call(operator.add, (_call(operator.mul, (other, 0), graph), value), graph)

    return [condition, beside(yes, no), beside(no, yes)]
