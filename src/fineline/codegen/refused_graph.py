"""The consequences of a backend's failure to compile a graph: the graph runs as captured, the code is captured otherwise, or the error is the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound

from fineline.backends.aot_refusal import BeyondAOT
from fineline.errors import BackendFailed
from fineline.fake.missing_kernels import unfaked
from fineline.frames.graph_breaks import Restart, Uncompiled
from fineline.frames.graph_limits import GraphLimits
from fineline.fx.graph_traits import scattered
from fineline.kinds import is_a
from fineline.torch_facts.distributed_tensors import SWITCHES
from fineline.torch_facts.wrapper_subclasses import is_jagged
from fineline.tracing.lessons import Lessons
from fineline.tracing.symbols import Symbols

# The errors of AOTAutograd at a number that is known only at run time.
_UNKNOWN = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
_SWITCHES = [set_ for _, set_ in SWITCHES]
# Errors of AOTAutograd at graphs that run as they were captured: the class, a part of the text, and what is said.
_BEYOND: tuple[tuple[type[Exception], str, str], ...] = (
    (
        RuntimeError,
        "needed for gradient computation has been modified by an inplace operation",
        "it overwrites what its gradients need: AOTAutograd finds that out now, and eager code where it goes backward",
    ),
    (PendingUnbackedSymbolNotFound, "", "the class of a tensor reads numbers in it, which AOTAutograd looks for in the results"),
    # PyTorch keeps the layouts of results, with a mesh that equals those of the inputs.
    (AssertionError, "was invalid, but is output", "AOTAutograd loses the mesh of a gradient, which is another object than those of the inputs"),
)


class RefusedGraph:
    """A graph that a backend may refuse, with what decides about the consequences."""

    def __init__(self, gm: GraphModule, examples: Sequence[Any], symbols: Symbols | None, lessons: Lessons, is_scattered: bool) -> None:
        self._gm, self._symbols, self._lessons = gm, symbols, lessons
        self._examples, self._is_scattered = examples, is_scattered or any(map(scattered, examples))
        # What eager code may run and backends may not compile: it has no form for them, or its gradients fail, which only they compute at once.
        self._partial = "tensors with a ragged dimension" if any(map(is_jagged, examples)) else ""
        if any([node.target in _SWITCHES for node in gm._graph.nodes]):
            self._partial = "blocks that decide how operators on a DTensor are computed"

    def with_examples(self, examples: Sequence[Any]) -> RefusedGraph:
        """Returns the same with fakes as examples, which keep no memory alive."""
        return RefusedGraph(self._gm, examples, self._symbols, self._lessons, self._is_scattered)

    def __call__(self, e: BackendFailed) -> str:
        """Returns why the graph runs as it was captured; raises `Uncompiled` or `Restart` if it is to be captured otherwise, or ``e``."""
        symbols = self._symbols
        for cls, text, reason in _BEYOND:
            if is_a(e.__cause__, cls) and text in str(e.__cause__):
                return reason
        if is_a(e.__cause__, BeyondAOT):
            return str(e.__cause__)
        if is_a(e.__cause__, RuntimeError) and self._partial:
            return f"the backend cannot compile it for {self._partial} ({e.reason})"
        if symbols is None and is_a(e.__cause__, _UNKNOWN):
            # In a capture on fakes the number is a symbol, or is read between two graphs.
            text = f"the backend can't compile what reads a tensor's number ({e.reason})"
            raise Uncompiled("FL502", text, GraphLimits(compiled_first_call=True)) from None
        if self._is_scattered:
            text = f"the backend can't compile a graph with sparse, nested or quantized tensors ({e.reason})"
            raise Uncompiled("FL522", text, GraphLimits(dense_only=True)) from None
        if symbols is None and (name := unfaked(self._gm, self._examples)):
            raise Uncompiled("FL516", f"{name} does not run on fake tensors ({e.reason})", GraphLimits(no_fake_kernel=frozenset({name}))) from None
        if symbols is not None and symbols.used and not self._lessons.numbers.backend_asks:
            self._lessons.numbers.backend_asks = True
            raise Restart("FL519", f"the backend takes no number that varies ({e.reason})", again=True) from None
        if symbols is None or not symbols.fix_floats():
            raise e
        raise Restart("FL519", f"the backend takes no float that varies ({e.reason})", again=True) from None
