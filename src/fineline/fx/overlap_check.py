"""A check for compiled graphs that write into inputs in foreign memory, such as NumPy's: two may overlap although their storages differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from fineline.backends.eager import as_it_is
from fineline.guards.facts import storage_of
from fineline.guards.native_core import CORE
from fineline.kinds import is_a
from fineline.torch_facts.wrapper_subclasses import leaves_of

_STORAGE: Any = torch._C.TensorBase.untyped_storage


def any_foreign_in_python(inputs: tuple) -> bool:
    """Returns whether one of the tensors is in memory that is not PyTorch's alone: its storage cannot be resized."""
    with torch._C.DisableTorchFunction():
        return any([storage_of(t) and not _STORAGE(t).resizable() for t in inputs])


any_foreign: Callable[[tuple], bool] = any_foreign_in_python if CORE is None else CORE.any_foreign


def apart(compiled: Callable[..., Any], gm: GraphModule, wrappers: bool) -> Callable[..., Any]:
    """Wraps ``compiled``: if inputs of different storages overlap, ``gm`` runs as it is, because compilers compare storages only.

    ``wrappers``: some inputs are of wrapper subclasses, and lie where their inner tensors do.
    """

    def run(*inputs: Any) -> Any:
        tensors = tuple([x for t in inputs if is_a(t, Tensor) for x in leaves_of(t)]) if wrappers else inputs
        if not any_foreign(tensors) or not lie_on_each_other(tensors):
            return compiled(*inputs)
        # The graph may have got more outputs since it was made.
        gm.recompile()
        return as_it_is(gm)(*inputs)

    return run


def lie_on_each_other(inputs: tuple) -> bool:
    """Returns whether two tensors of different storages have memory in common."""
    spans = sorted([(*span(t), storage_of(t)) for t in inputs if is_a(t, Tensor) and storage_of(t) and t.numel()])
    return any([start < end and a != b for (_, end, a), (start, _, b) in itertools.pairwise(spans)])


def span(t: Tensor) -> tuple[int, int]:
    """Returns the addresses of the start and the end of the storage of ``t``."""
    storage = _STORAGE(t)
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
