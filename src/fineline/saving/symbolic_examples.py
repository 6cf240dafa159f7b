"""Examples for backends of graphs whose sizes vary: fake tensors with symbols, about which the program's guards are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from fineline.codegen.programs import GraphCall
from fineline.fake.fake_tensors import Path
from fineline.guards.facts import TensorFacts
from fineline.guards.postfix import OPERANDS
from fineline.guards.relation import TARGETS, Leaf, Relation, python_text
from fineline.guards.source import Source
from fineline.guards.steps import Step
from fineline.import_thread import shapes_imported
from fineline.kinds import is_a
from fineline.saving.object_names import NotNamed

Symbolic = torch.SymInt | int


class Inputs(NamedTuple):
    """What the guards of a program say about its graph's inputs: the facts of each, None for an int; and the relations between sizes and numbers.

    ``texts``: the paths of the inputs. PyTorch names symbols by them, and its caches find a graph by the names of its symbols too.
    """

    registers: tuple[int, ...]
    texts: tuple[str, ...]
    facts: tuple[TensorFacts | None, ...]
    relations: tuple[Relation, ...]


def varying_inputs(call: GraphCall, steps: Sequence[Step], sources: Sequence[Source]) -> Inputs | None:
    """Returns the inputs of a graph that takes sizes or numbers that vary; None for another. Raises `NotNamed` if a backend cannot get them again."""
    known = {src: facts for op, _, src, facts in steps if op == "tensor"}
    integers = {src for op, _, src, cls in steps if op == "type" and cls is int}
    facts = tuple([known.get(register) for register in call.registers])
    if all([f is not None and (f.layout is not torch.strided or None not in (*f.sizes, *(f.strides or ()))) for f in facts]):
        return None
    numbers = [register for register, f in zip(call.registers, facts, strict=True) if f is None]
    if not integers.issuperset(numbers):
        raise NotNamed("its graph takes a float that varies, or an object without sizes, and its backend is not 'eager'")
    texts = tuple([sources[register].text() for register in call.registers])
    return Inputs(call.registers, texts, facts, tuple([relation for op, _, _, relation in steps if op == "relation"]))


class SymbolicExamples:
    """The examples of one graph, made from the inputs of its first run."""

    def __init__(self, inputs: Inputs, values: Sequence[Any]) -> None:
        shapes_imported()
        self._shapes = ShapeEnv()
        mode = FakeTensorMode(shape_env=self._shapes, allow_non_fake_inputs=True)
        self.values = [self._example(mode, *each) for each in zip(inputs.texts, inputs.facts, values, strict=True)]
        by_register = dict(zip(inputs.registers, self.values, strict=True))
        for relation in inputs.relations:
            if all([leaf.register in by_register for leaf in relation.leaves]):
                # What has a truth value is known to the environment from here on.
                bool(_computed(relation, by_register))
        self._known = len(self._shapes.guards)
        self._places = self._symbols()

    def _example(self, mode: FakeTensorMode, text: str, facts: TensorFacts | None, v: Any) -> Any:
        if facts is None:
            return self._shapes.create_unspecified_symint_and_symbol(v, Path(text), DimDynamic.DYNAMIC)
        if facts.layout is not torch.strided or None not in (*facts.sizes, *(facts.strides or ())):
            return mode.from_tensor(v, static_shapes=True)
        dims = [DimDynamic.DYNAMIC if n is None else DimDynamic.STATIC for n in facts.sizes]
        context = StatelessSymbolicContext(dynamic_sizes=dims)  # type: ignore[var-annotated]
        return mode.from_tensor(v, source=Path(text), symbolic_context=context)

    def _symbols(self) -> dict[sympy.Symbol, tuple[int, int]]:
        """Returns where a run finds the value of each symbol: the number of an input, and its dimension, or -1 for a number."""
        found: dict[sympy.Symbol, tuple[int, int]] = {}
        for i, v in enumerate(self.values):
            for d, n in enumerate(v.shape) if is_a(v, FakeTensor) else [(-1, v)]:
                if type(n) is torch.SymInt and n.node._expr.is_Symbol:
                    found.setdefault(n.node._expr, (i, d))
        return found

    def check(self) -> Callable[[tuple], bool] | None:
        """Returns the check of what the backend has assumed beyond the guards; None if there is nothing. Raises if the check cannot be written."""
        claims = [self._shapes.simplify(guard.expr) for guard in self._shapes.guards[self._known :]]
        claims = [claim for claim in claims if claim != sympy.true]
        claims += [sympy.Eq(symbol, value) for symbol in self._places if (value := self._shapes.simplify(symbol)).is_number]
        if not claims:
            return None
        names = {symbol: f"value({i}, {d})" for symbol, (i, d) in self._places.items()}
        source = " and ".join([f"({python_text(claim, names)})" for claim in claims])
        code = compile(f"lambda value: {source}", "<fineline claims of a backend>", "eval")
        holds = eval(code)

        def check(inputs: tuple) -> bool:
            return bool(holds(lambda i, d: inputs[i] if d < 0 else inputs[i].shape[d]))

        return check


def _computed(relation: Relation, values: Mapping[int, Any]) -> Any:
    """Returns what a relation's code gives for symbolic leaves."""
    stack: list[Any] = []
    for op, arg in relation.code:
        if op == "leaf":
            stack.append(_leaf(relation.leaves[arg], values))
        elif op == "const":
            stack.append(arg)
        else:
            operands = stack[-OPERANDS[op] :]
            stack[-OPERANDS[op] :] = [TARGETS[op](*operands)]
    return stack[-1]


def _leaf(leaf: Leaf, values: Mapping[int, Any]) -> Symbolic:
    v = values[leaf.register]
    if leaf.kind == "number" or not is_a(v, Tensor):
        return v
    return v.storage_offset() if leaf.kind == "offset" else (v.shape if leaf.kind == "size" else v.stride())[leaf.at]
