"""Knowledge about the sizes of an operator's result before it runs, and the operands that decide them."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from torch.fx import Node

from fineline.kinds import is_a
from fineline.torch_facts.mutation import METADATA_MUTATORS

# Operators whose result is as large as their first argument.
_LIKE_FIRST = frozenset(
    ["index_add", "index_copy", "index_fill", "index_put", "masked_fill", "masked_scatter", "scatter", "scatter_add", "scatter_reduce"]
)
RESIZING = frozenset(fn.__name__ for fn in METADATA_MUTATORS)


class Foresight(enum.Enum):
    """The knowledge about the sizes of a call's result before it runs."""

    FORESEEN = "they follow from what is guarded"
    BY_DATA = "the numbers in a tensor decide them"
    WATCHED = "what its Python code calls tells, in one run"
    UNFORESEEN = "nobody can tell"


def sized_by(node: Node, name: str) -> Iterable[Node]:
    """Returns the operands that decide the sizes of a node's result: none for a new sparse tensor, whose size is an argument."""
    if name.startswith("sparse_") and name.endswith("_tensor"):
        return ()
    return [a for a in node.args[:1] if is_a(a, Node)] if name in _LIKE_FIRST else node.all_input_nodes
