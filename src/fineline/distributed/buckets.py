"""Cuts graphs at the buckets of DistributedDataParallel, so that the gradients of one bucket are exchanged while those of the next are computed.

A compiled graph gives the gradients of all its parameters at the end of its backward pass. In parts, one for each bucket, it gives those of a
bucket as soon as they are known, and `DistributedDataParallel` begins to exchange them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.fx import GraphModule, Node
from torch.nn.parallel import DistributedDataParallel

from fineline.backends.invoke import compile_graph
from fineline.backends.registry import Backend
from fineline.bytecode.asynchronous import let_pass
from fineline.distributed.graph_cuts import Cuts
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.recorder import SOURCE
from fineline.identity import IdentitySet


class Buckets(NamedTuple):
    """The graph inputs whose gradients a `DistributedDataParallel` exchanges, with their sizes in bytes, and the sizes of its buckets."""

    parameters: dict[Node, int]
    limits: tuple[int, ...]


def buckets_of(gm: CapturedGraph) -> Buckets | None:
    """Returns the buckets for a graph that was captured while a `DistributedDataParallel` runs; None if it need not be cut."""
    module = getattr(DistributedDataParallel, "_active_ddp_module", None)
    # The parts of a graph that AOTAutograd would get wrong would not tell.
    if module is None or not torch.is_grad_enabled() or gm.beyond_aot:
        return None
    exchanged = IdentitySet(p for p in module._module_parameters if p.requires_grad)
    found = {}
    for node in gm._graph.find_nodes(op="placeholder"):
        value: Any = getattr(node.meta.get(SOURCE), "value", None)
        if value in exchanged:
            found[node] = value.nbytes
    limits = _limits(module)
    return Buckets(found, limits) if sum(found.values()) > limits[0] else None


def _limits(module: DistributedDataParallel) -> tuple[int, ...]:
    own = getattr(module, "bucket_bytes_cap_list", None)
    if own:
        return tuple(own)
    cap = module.bucket_bytes_cap
    return (dist._DEFAULT_FIRST_BUCKET_BYTES, cap) if module.bucket_bytes_cap_default else (cap,)


def places(nodes: Sequence[Node], legal: Sequence[bool], buckets: Buckets) -> list[int]:
    """Returns where to cut: the nodes, in order, before which a part begins.

    The backward pass runs through the nodes in reverse. The gradient of a parameter is complete after the first node that uses it.
    """
    at = {n: i for i, n in enumerate(nodes)}
    size = [0] * len(nodes)
    for parameter, nbytes in buckets.parameters.items():
        used = [at[user] for user in parameter.users if user in at]
        if used:
            size[min(used)] += nbytes
    cuts: list[int] = []
    filled, rest = 0, sum(size)
    for i in range(len(nodes) - 1, 0, -1):
        filled, rest = filled + size[i], rest - size[i]
        if rest and legal[i] and filled >= buckets.limits[min(len(cuts), len(buckets.limits) - 1)]:
            cuts.append(i)
            filled = 0
    return cuts[::-1]


def compile_at_buckets(
    backend: Backend, gm: GraphModule, examples: Sequence[Any], where: str, buckets: Buckets, note: Callable[[str], None]
) -> Callable:
    """Compiles a graph in parts, one for each bucket, or as a whole if it fills only one. ``note``: reports what was done."""
    try:
        cuts = Cuts(gm, examples)
        found = places(cuts.nodes, cuts.legal(), buckets)
    except Exception as e:
        let_pass(e)
        note(f"the graph is not cut at the buckets of DistributedDataParallel: a run on fake tensors raises {type(e).__name__}: {e}")
        return compile_graph(backend, gm, examples, where)
    if not found:
        return compile_graph(backend, gm, examples, where)
    parts = cuts.parts(found)
    compiled = [compile_graph(backend, part.module, cuts.examples(part), where) for part in parts]
    note(f"the graph is cut into {len(parts)} parts at the buckets of DistributedDataParallel")
    return cuts.chained(parts, compiled)
