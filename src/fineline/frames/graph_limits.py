"""The kinds of values and operators that the graphs of a region may hold, as far as captures have learned it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """What stays out of graphs. Nothing does, until a graph could not be compiled because of it."""

    # Whether the context of an inference mode has to cross graph breaks.
    inference_mode_breaks: bool = False
    # Whether NumPy arrays that are made of constants are constants.
    constant_arrays: bool = True
    # Whether sparse, nested and quantized tensors stay out of graphs.
    dense_only: bool = False
    # Whether the capturing call has to run the backend's code already, because the operators cannot run one by one before.
    compiled_first_call: bool = False
    # Names of operators that have no fake kernel and that the backend has failed on: they stay out of graphs.
    no_fake_kernel: frozenset[str] = frozenset()

    def and_also(self, other: GraphLimits) -> GraphLimits:
        """Returns limits that are as narrow as both."""
        return GraphLimits(
            self.inference_mode_breaks or other.inference_mode_breaks,
            self.constant_arrays and other.constant_arrays,
            self.dense_only or other.dense_only,
            self.compiled_first_call or other.compiled_first_call,
            self.no_fake_kernel | other.no_fake_kernel,
        )
