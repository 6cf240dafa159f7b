"""Keeps compilers in a thread of fineline's own off the random generators, which user code draws from at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

import torch._functorch.aot_autograd as aot_autograd
from torch._inductor import compile_fx, select_algorithm


@contextmanager
def generators_untouched() -> Iterator[None]:
    """Lets this thread's compilers neither save nor restore the random states in the block.

    AOTAutograd and Inductor put the states back after they have traced: what other threads have drawn meanwhile would be drawn again.
    Tracing itself draws nothing, because its tensors are fake. Call this while no other thread does.
    """
    here = threading.get_ident()

    def here_nothing(save: Callable[[], AbstractContextManager[object]]) -> Callable[[], AbstractContextManager[object]]:
        def preserve_rng_state() -> AbstractContextManager[object]:
            return nullcontext() if threading.get_ident() == here else save()

        return preserve_rng_state

    utils = compile_fx.dynamo_utils
    with (
        mock.patch.object(aot_autograd, "preserve_rng_state", here_nothing(aot_autograd.preserve_rng_state)),
        mock.patch.object(select_algorithm, "preserve_rng_state", here_nothing(select_algorithm.preserve_rng_state)),
        mock.patch.object(utils, "preserve_rng_state", here_nothing(utils.preserve_rng_state)),
    ):
        yield
