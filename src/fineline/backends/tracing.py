"""The surroundings that AOTAutograd and Inductor need: a tracing context with fake inputs, and their own copy of the graph."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes._tensorify_python_scalars import TensorifyState
from torch.utils._sympy.symbol import SymT, symbol_is_type

from fineline.bytecode.handlers import Deferral, Observer, handled_signals, standing_in
from fineline.import_thread import shapes_imported


@contextmanager
def tracing_context(example_inputs: Sequence[Any]) -> Iterator[None]:
    """Enters a tracing context for one graph.

    Without one, both disk caches (AOTAutograd's and Inductor's) are bypassed: they look for a ``ShapeEnv`` there. Real
    inputs are faked here with static sizes, so that AOTAutograd finds them faked already and makes no size symbolic.
    """
    shapes_imported()
    fake_mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # The mode remembers what it faked only as long as the fakes live.
    fakes = [fake_mode.from_tensor(t, static_shapes=True) for t in example_inputs if _is_real(t, fake_mode)]
    try:
        _name_floats(fake_mode, example_inputs)
        with tracing(TracingContext(fake_mode)):
            yield
    finally:
        TensorifyState.clear()
    del fakes


def _name_floats(fake_mode: FakeTensorMode, example_inputs: Sequence[Any]) -> None:
    # AOTAutograd takes each symbol of a float for an input's, and refuses a graph in which one is of no use: those of other numbers
    # are named to it beforehand.
    given = {t.item_memo.node._expr for t in example_inputs if getattr(t, "item_memo", None) is not None}
    for symbol in fake_mode.shape_env.backed_var_to_val if fake_mode.shape_env is not None else ():
        if symbol_is_type(symbol, SymT.FLOAT) and symbol not in given:
            TensorifyState.specialize(str(symbol))


Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def compiled_copy(gm: GraphModule, example_inputs: Sequence[Any], compile_graph: Compile) -> Callable[..., Any]:
    """Returns what ``compile_graph`` makes of a graph that it may rewrite: the captured one is kept for ``explain`` and for the next backend.

    Symbolic sizes become inputs, in front of the others: where a float is computed of one, as in a batch norm's correction for training,
    AOTAutograd looks for that input (``tensorify_python_scalars``, torch 2.13).
    """
    own = GraphModule(gm, copy.deepcopy(gm.graph), type(gm).__name__)
    for node in own.graph.find_nodes(op="call_function", target=torch._assert_async):
        if len(node.args) == 1 and not node.kwargs:
            # AOTAutograd drops the overload without a text, as if it did nothing (torch 2.13). Where it fails, eager code says what.
            node.args = (*node.args, "a number is zero")
            own.recompile()
    known = {n.node.expr for n in example_inputs if isinstance(n, torch.SymInt)}
    places: list[tuple[int, int]] = []
    sizes: list[torch.SymInt] = []
    for i, t in enumerate(example_inputs):
        for d, n in enumerate(tuple[Any, ...](t.shape) if isinstance(t, torch.Tensor) else ()):
            if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol and n.node.expr not in known:
                known.add(n.node.expr)
                places.append((i, d))
                sizes.append(n)
    if not places:
        return standing_in(Deferral, handled_signals(), compile_graph, own, example_inputs)
    with own.graph.inserting_before(next(iter(own.graph.nodes))):
        for n in sizes:
            own.graph.placeholder(str(n.node.expr))
    own.recompile()
    compiled = standing_in(Deferral, handled_signals(), compile_graph, own, [*sizes, *example_inputs])

    def run(*inputs: Any) -> Any:
        return compiled(*[inputs[i].shape[d] for i, d in places], *inputs)

    return run


def interruptible(compile_traced: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``compile_traced``, which AOTAutograd calls with what it has traced, such that signal handlers are called at once meanwhile."""

    @functools.wraps(compile_traced)
    def compile_at_once(*args: Any, **kwargs: Any) -> Any:
        return standing_in(Observer, handled_signals(), functools.partial(compile_traced, *args, **kwargs))

    return compile_at_once


def random_from(self: torch.Tensor, low: int, high: int | None, *, generator: Any = None) -> Any:
    """Computes ``aten.random.from`` by an operator that draws the same: ``from`` is a keyword, and FX cannot write that name into a graph's code."""
    return NotImplemented if high is None or generator is not None else torch.ops.aten.randint_like.low_dtype(self, low, high)


RANDOM_FROM = {getattr(torch.ops.aten.random, "from"): random_from}


def _is_real(value: Any, fake_mode: FakeTensorMode) -> bool:
    return isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not fake_mode
