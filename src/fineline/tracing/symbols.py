"""The sizes and numbers of one segment that may vary: the source of each, and the assumptions that the captured code made about them."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.fx.node import Node, map_arg
from torch.utils._sympy.interp import handlers
from torch.utils._sympy.reference import TensorReferenceAnalysis

from fineline.fake.fake_tensors import Fakes, NotFakeable, Path
from fineline.frames.graph_breaks import Restart
from fineline.fx.body_recorder import Part
from fineline.fx.recorder import NotForGraph
from fineline.guards.facts import TensorFacts, tensor_facts
from fineline.guards.relation import Leaf, nodes_of, python_text, relation_of, symbols_of
from fineline.guards.source import Source
from fineline.guards.term import Term
from fineline.identity import AddressSet
from fineline.import_thread import shapes_imported
from fineline.kinds import is_a
from fineline.policy.break_settings import breaks_here
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.symbolic.floats import hint
from fineline.symbolic.shape_env import Shapes
from fineline.symbolic.symbol_places import Place, SymbolPlaces, Varying
from fineline.torch_facts.wrapper_subclasses import is_jagged, lengths_of, ragged_dim, stands_for_lengths
from fineline.tracing.identity_guards import guard_identity
from fineline.tracing.inlined_caches import Inlined
from fineline.tracing.interp import Interp

# The names that PyTorch gives to symbols.
_SYMBOL = re.compile(r"\b(?:z?[su]\d+|zuf\d+)\b")


class Carried(NamedTuple):
    """A graph input without a source: the program computes the number. A float is passed in a tensor, because backends expect that."""

    value: torch.SymFloat | torch.SymInt
    reg: int = -1


# Clears the caches of `ShapeEnv`'s methods, which all environments share.
_CLEAR = tuple([method.cache_clear for method in vars(ShapeEnv).values() if hasattr(method, "cache_clear")])


@functools.cache
def _without_tensor_form() -> tuple[type, ...]:
    """Returns the functions in PyTorch's expressions that AOTAutograd cannot compute with tensors; it does so where a float meets a tensor."""
    return tuple([function for function, name in handlers().items() if not hasattr(TensorReferenceAnalysis, name)])


class Symbols:
    """The symbols of one segment; ``varying`` says which sizes and numbers vary (see `region.dynamic_dims`).

    ``scalars`` and ``shaped``: numbers read from tensors, and sizes that depend on such numbers, are symbols as well.
    ``behind``: the segment starts after a graph break, and is usually short.
    """

    def __init__(self, interp: Interp, varying: Varying, scalars: bool = False, shaped: bool = False, behind: bool = False) -> None:
        self.scalars, self.shaped, self.behind = scalars, shaped, behind
        self.interp, self.trace = interp, interp.trace
        self.varying = varying
        shapes_imported()
        self.shapes = Shapes(interp, interp.lessons.numbers.breaking_draws)
        self.fakes = Fakes(self.shapes, self._context, self._bind)
        self.draws = self.shapes.draws
        self.inlined = Inlined(interp.lessons.numbers.specialized_caches)
        self.places = SymbolPlaces(self.shapes, varying)
        # Symbols that only the graph knows, and those of ragged dimensions: for each, a tensor that has it as a size, stride or offset.
        self._born: dict[sympy.Symbol, tuple[Tensor, str, tuple]] = {}
        # The symbols that the graph's floats are computed from.
        self._in_floats: set[sympy.Symbol] = set()
        # Tensors that only eager calls at graph breaks may read. Their sources keep them alive.
        self.unsized = AddressSet()

    @property
    def used(self) -> bool:
        return self.places.used

    # -- reading -------------------------------------------------------------------------------------------------------
    def facts(self, t: Tensor, src: Source) -> TensorFacts:
        """Returns the facts of a tensor that are guarded at once; varying sizes and all strides of such a tensor are left open."""
        facts = tensor_facts(t)
        loose = self.varying.loose(src, t)
        if loose and breaks_here(self.interp.options.breaks) == "any":
            # Code that reads its sizes runs at a graph break: nothing else depends on them.
            self.unsized.add(t)
            strides = None if facts.strides is None else (None,) * len(facts.strides)
            return facts._replace(sizes=tuple([None if d in loose else n for d, n in enumerate(facts.sizes)]), strides=strides)
        dims = self.varying.dims(src, t)
        if not dims and not self.varying.strides(src, t):
            return facts
        sizes = tuple([None if d in dims else n for d, n in enumerate(facts.sizes)])
        return facts._replace(sizes=sizes, strides=(None,) * len(sizes))

    def _context(self, t: Tensor) -> tuple[Any, Any]:
        if t in self.unsized:
            raise NotFakeable(f"a {type(t).__name__} of layout {t.layout} whose sizes vary")
        src = self.trace.sources.get(t)
        if src is None:
            return None, None
        dims, strides = self.varying.dims(src, t), self.varying.strides(src, t)
        if not dims and not strides:
            return None, None
        symbolic: Any = StatelessSymbolicContext(
            dynamic_sizes=[dims[d].kind if d in dims else DimDynamic.STATIC for d in range(t.dim())],
            dynamic_strides=[DimDynamic.DYNAMIC if d in strides else DimDynamic.INFER_STRIDE for d in range(t.dim())],
            constraint_sizes=[dims[d].constraint if d in dims else None for d in range(t.dim())],
        )
        return symbolic, Path(src.text())

    def _bind(self, t: Tensor, fake: Tensor) -> None:
        src = self.trace.sources[t]
        dims = self.varying.dims(src, t)
        for d, size in enumerate(fake.shape):
            if d in dims:
                self._place(Place(src, "size", d), size)
        for d, stride in enumerate(fake.stride()):
            self._place(Place(src, "stride", d), stride)

    def _place(self, place: Place, number: Any) -> None:
        expr = number.node._expr if type(number) in SYMBOLIC else sympy.Integer(number)
        self.places.bind(place, expr)
        if type(number) in SYMBOLIC:
            if self.behind and not self.fakes.symbolic:
                self.fakes.keep_later()
            self.fakes.symbolic = True

    def number(self, v: Any, src: Source) -> Any:
        """Returns the symbol for a number that varies; None if this number does not."""
        found = self.places.numbers.get(src.reg)
        if found is None and self.varying.number(src, v):
            if type(v) is float:
                found = self.shapes.floats.new(v, src.text())
            else:
                found = self.shapes.create_unspecified_symint_and_symbol(v, Path(src.text()), DimDynamic.DYNAMIC)
            if type(found) not in SYMBOLIC:
                return None
            self.places.numbers[src.reg] = found
            self.trace.guards.check(src, "type", type(v))
            self._place(Place(src, "number", -1), found)
        return found

    def term(self, number: Any) -> Term:
        """Returns the term that computes a symbolic number from the leaves."""
        return self.shapes.floats.expanded(number.node.expr)

    # -- the graph -----------------------------------------------------------------------------------------------------
    def node(self, number: Any) -> Any:
        """Returns the graph's argument for a symbolic number: a node, or a constant."""
        if stands_for_lengths(number) and (is_a(self.trace.recorder, Part) or not self.has_lengths(number)):
            raise NotForGraph("the size of a ragged dimension from before the segment, or from around a body")
        expr = number.node.expr
        if is_a(self.trace.recorder, Part):
            return self._in_part(self.trace.recorder, number)
        if type(number) is torch.SymFloat and number.node.has_hint() and expr.is_Symbol:
            symbols = symbols_of(self.shapes.floats.expanded(expr))
            if any([self.places.leaves[symbol].text() in self.varying.fixed for symbol in symbols if symbol in self.places.leaves]):
                return self.shapes.floats.settled(number)
            self._in_floats.update(symbols)
            plain = self.shapes.floats.exactly(number).plain
            if plain is None or (type(plain) is torch.SymFloat and plain.node.expr.has(*_without_tensor_form())):
                return self._carried(expr, number)
        # The program also computes the numbers that are made from a float.
        term = self.shapes.floats.expanded(expr, whole=False)
        env = {symbol: self._leaf(symbol) for symbol in symbols_of(term)}
        return nodes_of(term, env, self.trace.recorder.graph, self.trace.recorder.numbers)

    def _in_part(self, part: Part, number: Any) -> Any:
        """Returns a node for a symbolic number in a graph that another graph runs, and that has its own symbols."""
        term = self.term(number)
        env = {symbol: found for symbol in symbols_of(term) if (found := self._own(part, symbol)) is not None}
        if not env:
            return part.number(number)
        for symbol in set(symbols_of(term)) - env.keys():
            if not symbol.is_integer:
                raise Restart("FL517", f"{symbol} is a float from around a body, and is used with a number from inside")
            value = self.shapes.backed_var_to_val.get(symbol)
            env[symbol] = part.number(self.shapes.create_symintnode(symbol, hint=None if value is None else int(value)))
        return nodes_of(term, env, part.graph, part.computed)

    def _own(self, part: Part, symbol: sympy.Symbol) -> Any:
        """Returns the node for a symbol that is known only inside the sub-graph; None if it comes from outside."""
        if symbol in part.own or symbol in self.places.leaves or symbol not in self._born:
            return part.own.get(symbol)
        tensor, kind, at = self._born[symbol]
        if not part.made(tensor):
            return None
        node = part.own[symbol] = self.trace.recorder.quietly("call_method", kind, (self.trace.node(tensor), *at), kind)
        return node

    def _carried(self, symbol: sympy.Symbol, number: torch.SymFloat) -> Any:
        found = self.trace.recorder.numbers.get(symbol)
        if found is None:
            recorder = self.trace.recorder
            hole = recorder.placeholder(number, "number", Carried(number))
            found = recorder.numbers[symbol] = recorder.quietly("call_method", "item", (hole,), "item")
        return found

    def constants(self) -> int:
        """Returns how many symbols and guarded expressions have a single value in all calls that the program accepts."""
        known = [symbol for symbol in (*self.places.leaves, *self.shapes.floats.exact) if self.shapes.simplify(symbol).is_number]
        equal = [g for g in self.shapes.guards if is_a(g.expr, sympy.Eq) and any([side.is_number for side in g.expr.args])]
        return len(known) + len(equal)

    def fix_floats(self) -> bool:
        """Makes the graph's floats, and the numbers they are computed from, constants from the next capture on; returns whether one is new."""
        fixed = self.varying.fixed
        before = len(fixed)
        self.draws.depend(self._in_floats)
        fixed.update([self.places.leaves[symbol].text() for symbol in self._in_floats if symbol in self.places.leaves])
        return len(fixed) > before

    def prune(self) -> None:
        """Removes the inputs for floats that have a single value, or that no operator uses."""
        recorder = self.trace.recorder
        for hole, src in list(recorder.inputs):
            if type(src) is not Carried or type(src.value) is not torch.SymFloat:
                continue
            (item,) = hole.users
            if not item.users or self.shapes.simplify(src.value.node._expr).is_number:
                value = hint(src.value)
                for user in list(item.users):
                    user.args, user.kwargs = _with(user.args, item, value), _with(user.kwargs, item, value)
                recorder.graph.erase_node(item)
                recorder.graph.erase_node(hole)
                recorder.inputs.remove((hole, src))

    def _leaf(self, symbol: sympy.Symbol) -> Any:
        recorder = self.trace.recorder
        found = recorder.numbers.get(symbol)
        if found is None:
            place = self.places.leaves.get(symbol)
            if place is None and (symbol in self.shapes.floats.exact or symbol in self.draws.of):
                number: Any = self.shapes.create_symintnode(symbol, hint=int(self.shapes.backed_var_to_val[symbol]))
                found = recorder.placeholder(number, "number", Carried(number))
            elif place is None:
                if symbol not in self._born:
                    raise Restart("FL517", f"{symbol} is a number inside of an operator")
                tensor, kind, at = self._born[symbol]
                found = recorder.quietly("call_method", kind, (self.trace.node(tensor), *at), kind)
            elif place.kind == "number":
                number = self.places.numbers[place.source.reg]
                found = recorder.placeholder(number, "number", place.source)
            else:
                tensor = self.trace.node(place.source.value)
                found = recorder.quietly("call_method", place.kind, (tensor, place.dim), place.kind)
            recorder.numbers[symbol] = found
        return found

    def text(self, number: Any) -> str:
        """Returns a symbolic number as an expression of the reads in the user's code."""
        term = self.shapes.floats.expanded(number.node.expr, whole=False)
        return python_text(term, {symbol: self._text(symbol) for symbol in symbols_of(term)})

    def in_words(self, text: str) -> str:
        """Replaces the symbols in one of PyTorch's messages with the user's expressions for them."""
        known = {str(symbol): symbol for symbol in (*self.places.leaves, *self._born, *self.trace.recorder.numbers)}
        return _SYMBOL.sub(lambda found: self._text(known[found[0]]) if found[0] in known else found[0], text)

    def _text(self, symbol: sympy.Symbol) -> str:
        if symbol in self.places.leaves:
            return self.places.leaves[symbol].text()
        if symbol in self.draws.of:
            return "(a random number)"
        if symbol in self._born:
            tensor, kind, at = self._born[symbol]
            src = self.trace.sources.get(tensor)
            return f"{src.text() if src is not None else self._call_of(self.trace.recorder.find(tensor))}.{kind}({', '.join(map(str, at))})"
        return self._call_of(self.trace.recorder.numbers.get(symbol))

    def _call_of(self, node: object) -> str:
        return _called(node, {hole: src.text() for hole, src in self.trace.recorder.inputs if is_a(src, Source)})

    def leaf(self, symbol: sympy.Symbol) -> Any:
        """Returns the node for a symbol that only the graph knows; None if the program knows it."""
        return None if symbol in self.places.leaves or symbol in self.draws.of else self._leaf(symbol)

    # -- what only the graph knows -------------------------------------------------------------------------------------
    def born(self, value: Any) -> None:
        """Registers the new symbols in ``value``, the result of an operator."""
        new = set(self._new())
        for t in value if is_a(value, (tuple, list)) else (value,):
            if is_a(t, Tensor) and t.layout is torch.strided:
                parts = [("size", (d,), n) for d, n in enumerate(t.shape)] + [("stride", (d,), n) for d, n in enumerate(t.stride())]
                for kind, at, n in [*parts, ("storage_offset", (), t.storage_offset())]:
                    if type(n) is torch.SymInt and n.node._expr in new:
                        self._born.setdefault(n.node._expr, (t, kind, at))

    def _new(self) -> list[sympy.Symbol]:
        pending = self.shapes.pending_fresh_unbacked_symbols
        new = list(pending)
        # Otherwise a later tracer of the graph would look for them in its own results.
        pending.clear()
        return new

    # -- sizes of ragged dimensions ------------------------------------------------------------------------------------
    def note_lengths(self, t: Any, size: torch.SymInt) -> bool:
        """Notes that ``size`` is the one of the ragged dimension of ``t``; returns False if it is another number."""
        expr = size.node.expr
        if not expr.is_Symbol or t not in self.trace.containers.wrappers:
            return False
        if expr not in self._born:
            # Rather an input, because the program need not keep it.
            owner = self.trace.containers.wrappers.owner(self._held(t))
            holder: Any = owner[0] if owner is not None and is_jagged(owner[0]) and self._held(owner[0]) is self._held(t) else t
            if holder not in self.trace.sources and is_a(self.trace.recorder, Part):
                return False
            self._born[expr] = holder, "size", (ragged_dim(holder),)
        return True

    def _held(self, t: Any) -> Tensor:
        """Returns the tensor that holds the lengths in ``t``."""
        found: Tensor = self.fakes.outside(lengths_of(self.fakes.twin(t)))
        return found

    def has_lengths(self, size: torch.SymInt) -> bool:
        """Returns whether ``size`` is one of a tensor of this capture."""
        return getattr(size.node, "shape_env", None) is self.shapes and size.node.expr in self._born

    def holder(self, size: torch.SymInt) -> Tensor:
        """Returns a tensor with a ragged dimension of this size."""
        return self._born[size.node.expr][0]

    def same_lengths(self, a: torch.SymInt, b: torch.SymInt) -> bool:
        """Returns whether two sizes of ragged dimensions stand for the lengths in one tensor, guarded."""
        one, other = [self._held(self.holder(n)) for n in (a, b)]
        guard_identity(self.trace, one, other)
        return one is other

    def read(self, number: Any, node: Node) -> Any:
        """Registers ``node`` as the source of the new symbol in ``number``; returns the number."""
        if self.trace.guards.interp.tensors.shows_layouts:
            node.meta["example_value"] = number
        self.note_node(self._new()[-1], node)
        return number

    def note_node(self, symbol: sympy.Symbol, node: Node) -> None:
        """Registers ``node`` of the graph as the source of ``symbol``."""
        recorder = self.trace.recorder
        (recorder.own if is_a(recorder, Part) else recorder.numbers)[symbol] = node

    def given(self, results: Any, node: Node) -> None:
        """Registers the new numbers among the ``results`` of an operator's ``node``."""
        for i, v in enumerate(results):
            if type(v) is torch.SymInt and v.node.expr.is_Symbol:
                self.note_node(v.node.expr, self.trace.recorder.quietly("call_function", operator.getitem, (node, i), "getitem"))

    def handed(self) -> torch.SymInt:
        """Returns a number that an operator is going to hand to a graph."""
        with self.shapes.ignore_fresh_unbacked_symbols():
            return self.shapes.create_unbacked_symint()

    def apart(self, op: Any, values: Any) -> Any:
        """Records an operator on floats of which the graph alone knows some, as a node of its own: a sum of floats must not be reordered."""
        node = self.trace.recorder.quietly("call_function", op, tuple([self.node(v) if type(v) in SYMBOLIC else v for v in values]), op.__name__)
        return self.read(self.shapes.create_unbacked_symfloat(), node)

    def expect(self, condition: Any, text: str, error: type[Exception] | None) -> None:
        """Records a check of ``condition``. ``error``: the type that the user's code raises with this text when the check fails; None: unknown."""
        node = self.node(condition)
        condition.node.expect_true("", 0)
        self.trace.failures.expect(text, error)
        self.trace.recorder.record("call_function", torch.ops.aten._assert_scalar.default, (node, text), {}, None, "assert_scalar")

    def example(self, value: Any, src: Source | Carried) -> Any:
        """Returns a graph input as the backend sees it."""
        if type(src) is Carried:
            return self.fakes.number(value) if type(value) is torch.SymFloat else value
        if not is_a(value, Tensor):
            return self.places.numbers[src.reg]
        self.interp.eager.computing = True
        # The tracer of the graph must not reuse numbers that were read from it before.
        self.fakes.mode.epoch += 1
        try:
            return self.fakes.example(value)
        finally:
            self.interp.eager.computing = False

    # -- the end -------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Ends the capture: cuts the references back from the fake tensors, because they would be cycles."""
        self.fakes.close()
        self.draws.of.clear()
        self.inlined.close()
        # PyTorch's global caches keep every environment that queried them alive; nothing queries them about this one again.
        for clear in _CLEAR:
            clear()
        del self.interp, self.trace

    def guard(self) -> None:
        """Adds the assumptions about the symbols to the guards."""
        guards = self.trace.guards
        terms, places = self.places.claims(self.draws)
        for term in terms:
            symbols = symbols_of(term)
            self.draws.depend(symbols)
            used = {symbol: places[symbol] for symbol in symbols if symbol in places}
            leaves = {symbol: Leaf(place.kind, place.source.reg, place.dim) for symbol, place in used.items()}
            relation = relation_of(term, leaves, {s: p.text() for s, p in used.items()}) if len(used) == len(symbols) else None
            if relation is None:
                raise Restart("FL517", f"{python_text(term, {s: str(s) for s in symbols})} has no guard")
            guards.relation(relation)

    def check(self, interp: Interp) -> None:
        """Checks at the end of the segment the assumptions about inlined calls and drawn numbers."""
        self.inlined.check(interp)
        self.check_draws()

    def check_draws(self) -> None:
        """Checks, before a backend gets the graph, that no claim depends on a drawn number."""
        if self.draws.of:
            self.draws.depend([symbol for term in self.places.claims(self.draws)[0] for symbol in symbols_of(term)])

def _called(node: object, inputs: Mapping[Node, str]) -> str:
    """Returns the call that a node of the graph records as text, without its tensor arguments."""
    if not is_a(node, Node):
        return "(a number from the graph)"
    if node.op == "placeholder":
        return inputs.get(node, "(a number from the graph)")
    name = node.target if type(node.target) is str else getattr(node.target, "__name__", str(node.target))
    if node.target is operator.getitem:
        index = node.args[1] if type(node.args[1]) is int else "..."
        return f"{_called(node.args[0], inputs)}[{index}]"
    if getattr(node.target, "__module__", None) in ("_operator", "math"):
        given = [_called(a, inputs) if is_a(a, Node) else str(a) for a in node.args]
        return f"{name}({', '.join(given)})"
    return f"{name}()"


def _with(args: Any, node: Node, value: float) -> Any:
    return map_arg(args, lambda n: value if n is node else n)
