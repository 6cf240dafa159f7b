"""The backend ``aot_eager``: forward and backward traced ahead of time by AOTAutograd, then run operator by operator."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config
from torch.fx import GraphModule
from torch.fx.graph import _BoxedCodeGen

from fineline.backends.eager import unannounced
from fineline.backends.lock import TRACERS
from fineline.backends.tracing import RANDOM_FROM, compiled_copy, tracing_context
from fineline.bytecode.handlers import Deferral, handled_signals, standing_in

if TYPE_CHECKING:
    from torch._inductor.utils import InputType


def aot_eager(gm: GraphModule, example_inputs: Sequence[InputType], **kwargs: object) -> Callable:
    """Returns the traced graph that Inductor would get, run without code generation: this separates faults of tracing and of Inductor."""
    if kwargs:
        warnings.warn(f'backend="aot_eager" has no modes and no options; it ignores {kwargs}', stacklevel=2)
    # Python code restores PyTorch's settings: defer signals, because their exceptions could interrupt it.
    return standing_in(Deferral, handled_signals(), _compiled, gm, example_inputs)


def _compiled(gm: GraphModule, example_inputs: Sequence[InputType]) -> Callable:
    # Without it, unused random draws are removed from the graph, and later draws differ from those of eager code.
    with tracing_context(example_inputs), config.patch(fallback_random=True):
        return compiled_copy(gm, example_inputs, _traced)


def _run_later(gm: GraphModule, example_inputs: Sequence[InputType]) -> Callable:
    # The graph of a backward pass may be compiled at its first run, in any thread.
    return TRACERS.holding(_run_boxed, gm, example_inputs)


def _run_boxed(gm: GraphModule, example_inputs: Sequence[InputType]) -> Callable:
    # A boxed graph takes its inputs in one list and empties it, so that activations are freed at their last use.
    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    for part in gm.modules():
        if isinstance(part, GraphModule):
            unannounced(part)
    forward = gm.forward

    def run(args: list[object]) -> object:
        return forward(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


_traced = functools.partial(
    aot_module_simplified,
    fw_compiler=_run_boxed,
    bw_compiler=_run_later,
    inference_compiler=_run_boxed,
    partition_fn=min_cut_rematerialization_partition,
    keep_inference_input_mutations=True,
    decompositions=RANDOM_FROM,
)
