"""The backend ``inductor``: AOTAutograd and TorchInductor, with the modes and options of ``torch.compile``."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, get_origin

import torch
import torch._functorch.config
import torch._inductor
import torch.compiler.config
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner, get_patched_config_dict
from torch._inductor.decomposition import select_decomp_table
from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.nn.attention import _cur_sdpa_kernel_backends

from fineline.backends.tracing import RANDOM_FROM, compiled_copy, interruptible, tracing_context
from fineline.errors import BadArgument

if TYPE_CHECKING:
    from torch._inductor.utils import InputType

_compile_inner = interruptible(compile_fx_inner)


class Inductor:
    """The backend, with its check of ``mode`` and ``options``."""

    __name__ = "inductor"

    def __call__(
        self, gm: GraphModule, example_inputs: Sequence[InputType], *, mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> Callable:
        return self._compile(gm, example_inputs, self.check_arguments(mode, options))

    def drawing_as_eager(
        self, gm: GraphModule, example_inputs: Sequence[InputType], *, mode: str | None = None, options: Mapping[str, object] | None = None
    ) -> Callable:
        """Compiles code that draws the random numbers of eager code."""
        return self._compile(gm, example_inputs, {**self.check_arguments(mode, options), "fallback_random": True})

    def _compile(self, gm: GraphModule, example_inputs: Sequence[InputType], patches: dict[str, object]) -> Callable:
        if patches.get("triton.cudagraphs"):
            _keep_profiler_apart_from_cudagraphs()

        def compile_graph(own: GraphModule, inputs: Sequence[InputType]) -> Callable:
            tag = f"{torch.compiler.config.cache_key_tag}{_kernels()}"
            with torch.compiler.config.patch(cache_key_tag=tag), _cache_of(gm):  # type: ignore[attr-defined]
                compiled: Any = compile_fx(own, inputs, inner_compile=_compile_inner, config_patches=patches, decompositions=_table(own, patches))
            # compile_fx wraps its result to keep TorchDynamo out. The wrapper slows each call down and is not needed here.
            inner: Callable = getattr(compiled, "_torchdynamo_orig_callable", compiled)
            return inner

        with tracing_context(example_inputs):
            return compiled_copy(gm, example_inputs, compile_graph)

    def get_compiler_config(self, mode: str | None = None, options: Mapping[str, object] | None = None) -> dict[str, object]:
        """Returns Inductor's configuration with these changes."""
        return get_patched_config_dict(config_patches=self.check_arguments(mode, options))

    def check_arguments(self, mode: str | None = None, options: Mapping[str, object] | None = None) -> dict[str, object]:
        """Returns the changes to Inductor's configuration that a mode or options mean; raises `BadArgument` for unknown ones."""
        wanted = dict(options or {})
        if mode and mode != "default":
            modes = torch._inductor.list_mode_options()
            if mode not in modes:
                raise BadArgument(f"mode={mode!r}; inductor's modes are {', '.join(modes)}", id="FL206")
            wanted = dict(modes[mode])
        known = config.get_config_copy()
        patches = {}
        for option, value in wanted.items():
            name = option.replace("-", "_")
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise BadArgument(f"inductor has no option {option!r}{hint}", id="FL206")
            expected = config.get_type(name)  # type: ignore[attr-defined]
            # isinstance cannot check generic types (list[str]); Inductor accepts these unchecked.
            if get_origin(expected) is None and not isinstance(value, expected):
                right = type(known[name]).__name__
                raise BadArgument(f"option {option!r} is a {type(value).__name__}, and should be a {right}", id="FL206")
            patches[name] = value
        return patches


def _cache_of(gm: GraphModule) -> AbstractContextManager[object]:
    """Disables AOTAutograd's cache for a graph with an input that is a number.

    AOTAutograd may specialize such a number, and reports that to the capture; the cache keeps the code without the report.
    """
    varies = any([node.op == "placeholder" and node.name.startswith("number_") for node in gm.graph.nodes])
    return torch._functorch.config.patch(enable_autograd_cache=False) if varies else nullcontext()


def _table(gm: GraphModule, patches: dict[str, object]) -> dict[OpOverload, Callable] | None:
    """Returns Inductor's decompositions and those it lacks; None if the graph needs none: disk caches skip a graph with a table."""
    nodes = [node for part in gm.modules() if isinstance(part, GraphModule) for node in part.graph.nodes]
    if not any("random_" in str(node.target) for node in nodes):
        return None
    with config.patch(patches):
        return {**select_decomp_table(), **RANDOM_FROM}


def _kernels() -> str:
    """Returns a cache key of the kernels that tracing may choose: disk caches keep the choice, but do not check it."""
    core = torch._C
    attention = [kernel.name for kernel in _cur_sdpa_kernel_backends(with_priority=True)]
    return f"{attention}{core._get_math_sdp_allow_fp16_bf16_reduction()}{core._get_cudnn_enabled()}{core._get_mkldnn_enabled()}"


def _keep_profiler_apart_from_cudagraphs() -> None:
    # The profiler's tear-down conflicts with CUDA graphs; torch.compile sets the same two variables.
    version = getattr(torch.version, "cuda", None)
    if version is None or tuple(map(int, version.split(".")[:2])) < (12, 6):
        os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
        os.environ["TEARDOWN_CUPTI"] = "0"


inductor = Inductor()
