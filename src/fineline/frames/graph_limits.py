"""The limits on a region's graphs that captures have learned: kinds of values and operators that stay out of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """The kinds of values that stay out of graphs. A limit is set after a graph with such a value could not be compiled."""

    # Whether entering an inference mode breaks the graph, because its context is used after a graph break.
    inference_mode_breaks: bool = False
    # Whether NumPy arrays made of constants are constants.
    constant_arrays: bool = True
    # Whether NumPy arrays that share memory with tensors are parts of graphs.
    traced_arrays: bool = True
    # Whether sparse, nested and quantized tensors stay out of graphs.
    dense_only: bool = False
    # Whether the capturing call already runs the backend's code, because the operators cannot run one by one before.
    compiled_first_call: bool = False
    # Whether the captured code makes classes, which the program makes again.
    made_classes: bool = True
    # Names of operators without a fake kernel on which the backend failed: they stay out of graphs.
    no_fake_kernel: frozenset[str] = frozenset()

    def and_also(self, other: GraphLimits) -> GraphLimits:
        """Returns the union of both limits."""
        return GraphLimits(
            self.inference_mode_breaks or other.inference_mode_breaks,
            self.constant_arrays and other.constant_arrays,
            self.traced_arrays and other.traced_arrays,
            self.dense_only or other.dense_only,
            self.compiled_first_call or other.compiled_first_call,
            self.made_classes and other.made_classes,
            self.no_fake_kernel | other.no_fake_kernel,
        )
