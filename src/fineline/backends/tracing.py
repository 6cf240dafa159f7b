"""The environment that AOTAutograd and Inductor need: a tracing context with fake inputs, and their own copy of the graph."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes._tensorify_python_scalars import TensorifyState
from torch.utils._sympy.symbol import SymT, symbol_is_type

from fineline.backends.aot_refusal import BeyondAOT
from fineline.backends.mesh_calls import meshes_as_inputs
from fineline.bytecode.handlers import Deferral, Observer, handled_signals, standing_in
from fineline.import_thread import shapes_imported

if TYPE_CHECKING:
    from torch._inductor.utils import InputType

    Compile = Callable[[GraphModule, Sequence[InputType]], Callable]


def fakes_of(example_inputs: Sequence[InputType]) -> list[InputType]:
    """Returns the inputs with fakes in place of real tensors: these may change, or be freed, before a backend reads them."""
    shapes_imported()
    fake_mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    return [fake_mode.from_tensor(t, static_shapes=True) if _is_real(t, fake_mode) else t for t in example_inputs]


@contextmanager
def tracing_context(example_inputs: Sequence[InputType]) -> Iterator[None]:
    """Enters a tracing context for one graph.

    Without one, the disk caches of AOTAutograd and Inductor are bypassed, because they look for a ``ShapeEnv`` there. Real
    inputs are faked here with static sizes, so that AOTAutograd uses these fakes and makes no size symbolic.
    """
    shapes_imported()
    fake_mode = detect_fake_mode(example_inputs) or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # The mode remembers fakes only while they are alive.
    fakes = [fake_mode.from_tensor(t, static_shapes=True) for t in example_inputs if _is_real(t, fake_mode)]
    try:
        _name_floats(fake_mode, example_inputs)
        with tracing(TracingContext(fake_mode)):
            yield
    finally:
        TensorifyState.clear()
    del fakes


def _name_floats(fake_mode: FakeTensorMode, example_inputs: Sequence[InputType]) -> None:
    # AOTAutograd assumes that each symbol of a float belongs to an input, and rejects a graph that does not use one: declare
    # the symbols of other numbers specialized beforehand.
    floats = [getattr(t, "item_memo", None) for t in example_inputs]
    given = {number.node._expr for number in floats if number is not None}
    for symbol in fake_mode.shape_env.backed_var_to_val if fake_mode.shape_env is not None else ():
        if symbol_is_type(symbol, SymT.FLOAT) and symbol not in given:
            TensorifyState.specialize(str(symbol))


def compiled_copy(gm: GraphModule, example_inputs: Sequence[InputType], compile_graph: Compile) -> Callable:
    """Compiles a copy of a graph, which ``compile_graph`` may rewrite; ``explain`` and the next backend need the original.

    Symbolic sizes become inputs, before the others: if a float is computed from one, as in the correction of a batch norm in
    training, AOTAutograd looks for that input (``tensorify_python_scalars``, torch 2.13).
    """
    if getattr(gm, "reads_numbers", False):
        # AOTAutograd 2.13 refuses it. From 2.14 on it takes it, and Inductor raises other exceptions than eager code where the index is too large.
        raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
    if reason := getattr(gm, "beyond_aot", ""):
        raise BeyondAOT(reason)
    own = GraphModule(gm, copy.deepcopy(gm.graph), type(gm).__name__)
    for node in own.graph.find_nodes(op="call_function", target=torch._assert_async):
        if len(node.args) == 1 and not node.kwargs:
            # AOTAutograd drops the overload without a text, as if it had no effect (torch 2.13). Eager code has the real text.
            node.args = (*node.args, "a number is zero")
            own.recompile()
    meshes = meshes_as_inputs(own)
    known = {n.node.expr for n in example_inputs if isinstance(n, torch.SymInt)}
    places: list[tuple[int, str, int]] = []
    sizes: list[torch.SymInt] = []
    for i, name, t in _tensors(example_inputs):
        for d, n in enumerate(tuple[int | torch.SymInt, ...](t.shape)):
            if isinstance(n, torch.SymInt) and not n.node.is_nested_int() and n.node.expr.is_Symbol and n.node.expr not in known:
                known.add(n.node.expr)
                places.append((i, name, d))
                sizes.append(n)
    if not places and not meshes:
        return standing_in(Deferral, handled_signals(), compile_graph, own, example_inputs)
    with own.graph.inserting_before(next(iter(own.graph.nodes))):
        for n in sizes:
            own.graph.placeholder(str(n.node.expr))
    own.recompile()
    compiled = standing_in(Deferral, handled_signals(), compile_graph, own, [*sizes, *example_inputs, *meshes])  # type: ignore[list-item]

    def run(*inputs: Any) -> object:
        return compiled(*[(getattr(inputs[i], name) if name else inputs[i]).shape[d] for i, name, d in places], *inputs, *meshes)

    return run


def _tensors(example_inputs: Sequence[InputType]) -> Iterator[tuple[int, str, torch.Tensor]]:
    """Yields the tensors among the inputs, and the inner tensors of those with a ragged dimension: these have sizes that the outer ones do not show."""
    for i, t in enumerate(example_inputs):
        if isinstance(t, torch.Tensor):
            yield i, "", t
            if t.layout is torch.jagged:
                for name in t.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
                    yield i, name, getattr(t, name)


def interruptible(compile_traced: Callable) -> Callable:
    """Wraps ``compile_traced``, which AOTAutograd calls with a traced graph, so that signal handlers run at once during the call."""

    @functools.wraps(compile_traced)
    def compile_at_once(*args: object, **kwargs: object) -> object:
        return standing_in(Observer, handled_signals(), functools.partial(compile_traced, *args, **kwargs))

    return compile_at_once


def random_from(self: torch.Tensor, low: int, high: int | None, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Computes ``aten.random.from`` with an operator that draws the same: FX cannot write the keyword ``from`` into code."""
    return NotImplemented if high is None or generator is not None else torch.ops.aten.randint_like.low_dtype(self, low, high)


RANDOM_FROM = {getattr(torch.ops.aten.random, "from"): random_from}


def _is_real(value: object, fake_mode: FakeTensorMode) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not fake_mode
