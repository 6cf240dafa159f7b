"""What code of each kind may do if it is to become a sub-graph: the rules that `capture_subgraph` captures it by."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class SubGraphRules:
    """The rules of one kind of sub-graph."""

    kind: str
    # Tensors and symbolic numbers from around it become inputs, and it may use what the captured code has made; else it knows its operands alone.
    lifts: bool = True
    # It runs on fakes, also where the capture around it runs on the real values.
    on_fakes: bool = True
    # It may write into its operands.
    writes_operands: bool = False
    # The functions that change PyTorch's state, of which it may call these; None: all. In the end the state must be what it was.
    states: frozenset[Any] | None = None
    # It may call operators that are not PyTorch's own, and functions under allow_in_graph: nobody knows what these do besides.
    custom_operators: bool = True
    # It may make numbers that only the graph knows; it may use those from around it.
    makes_unbacked: bool = True
    takes_unbacked: bool = True
    # Single numbers in tensors may be indices.
    number_indices: bool = False
    # It may give its operands, and views of them; it may give symbolic numbers.
    gives_operands: bool = False
    gives_numbers: bool = False
    # It runs at another time than its capture: what may be otherwise by then, it may not ask. ``opposite``: of what it may ask although that can
    # change, it gets the other answer.
    later: bool = False
    opposite: bool = False
    # It may be differentiated itself.
    differentiable: bool = False
    # The kinds of sub-graphs that may stand in it; None: all.
    contains: frozenset[str] | None = None

    def but(self, **changes: Any) -> SubGraphRules:
        """Returns the rules with these changes, which hold for one capture."""
        return dataclasses.replace(self, **changes)


# An autograd function: its forward, on the values of the capture around it, and its backward, on gradients that stand for those to come.
FORWARD = SubGraphRules(
    "forward", lifts=False, on_fakes=False, states=frozenset({torch._C._set_grad_enabled}), custom_operators=False, makes_unbacked=False,
    contains=frozenset(),
)  # fmt: skip
BACKWARD = FORWARD.but(kind="backward", later=True)
# The functions that control-flow operators run: alternatively, or until a condition; once for each row; inside of attention.
BRANCH = SubGraphRules("branch", gives_numbers=True)
ROW = SubGraphRules("row")
MODIFIER = SubGraphRules("modifier", number_indices=True, gives_operands=True)
# The function that checkpoint computes once more in the backward pass.
CHECKPOINT = SubGraphRules("checkpoint", gives_operands=True)
# A function under nested_compile_region, on the values of the capture around it: the graphs of equal calls are one.
REGION = SubGraphRules("region", on_fakes=False, makes_unbacked=False, takes_unbacked=False)

KINDS = (FORWARD, BACKWARD, BRANCH, ROW, MODIFIER, CHECKPOINT, REGION)
